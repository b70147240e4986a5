//! Not for production: a process that a launcher started as one of several is not taken over by itself.
//!
//! Taking over such a process would replace real communication by threads of our own, and a job of many machines would
//! compute nonsense without a word. The decision is a pure function of the environment and returns its reason.

use std::fmt;

/// What starts several processes of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// torchrun, or another launcher that sets torch's variables.
    Torchrun,
    /// SLURM's srun or sbatch.
    Slurm,
    /// mpirun, mpiexec.
    Mpi,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Torchrun => "torchrun",
            Launcher::Slurm => "SLURM",
            Launcher::Mpi => "MPI",
        })
    }
}

/// Why taking over is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is one of {processes} that {launcher} started ({variable}={processes})")]
pub struct Refusal {
    /// Who started it.
    pub launcher: Launcher,
    /// How many processes there are.
    pub processes: u64,
    /// The environment variable that says so.
    pub variable: &'static str,
}

impl Refusal {
    /// What to do about it, for the command line.
    pub const HINT: &'static str = "start allranks by itself, not under a launcher: it makes all ranks in one process; \
         if this process shall fake a world of its own all the same, add --allow-launcher";
}

/// Looks for a launch of more than one process. `None`: go ahead.
///
/// | launcher | variables |
/// |---|---|
/// | torchrun | `WORLD_SIZE` > 1 with `RANK` and either `LOCAL_RANK` or `TORCHELASTIC_RUN_ID` |
/// | SLURM | `SLURM_PROCID` with `SLURM_STEP_NUM_TASKS` > 1, or without that variable `SLURM_NTASKS` > 1 |
/// | MPI | `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` or `MPI_LOCALNRANKS` > 1 |
///
/// A shell inside `salloc`, and a step of one task, are not a launch.
pub fn guard(env: impl Fn(&str) -> Option<String>) -> Option<Refusal> {
    let has = |name: &str| env(name).is_some();
    let several = |name: &str| number(env(name)).filter(|&n| n > 1);
    let refuse = |launcher, variable| several(variable).map(|processes| Refusal { launcher, processes, variable });

    let torch = || {
        let launched = has("RANK") && (has("LOCAL_RANK") || has("TORCHELASTIC_RUN_ID"));
        launched.then(|| refuse(Launcher::Torchrun, "WORLD_SIZE")).flatten()
    };
    let slurm = || {
        let step = number(env("SLURM_STEP_NUM_TASKS")).is_some();
        let variable = if step { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" };
        has("SLURM_PROCID").then(|| refuse(Launcher::Slurm, variable)).flatten()
    };
    let mpi = || {
        let variables = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];
        variables.into_iter().find_map(|variable| refuse(Launcher::Mpi, variable))
    };
    torch().or_else(slurm).or_else(mpi)
}

fn number(text: Option<String>) -> Option<u64> {
    text?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(env: &[(&str, &str)]) -> Option<(Launcher, u64, &'static str)> {
        let look = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        guard(look).map(|refusal| (refusal.launcher, refusal.processes, refusal.variable))
    }

    #[test]
    fn launches_of_several_processes_are_refused() {
        use Launcher::{Mpi, Slurm, Torchrun};
        let torchrun = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "none")];
        assert_eq!(judge(&torchrun), Some((Torchrun, 4, "WORLD_SIZE")));
        assert_eq!(judge(&torchrun[..3]), Some((Torchrun, 4, "WORLD_SIZE")));
        let srun = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8")];
        assert_eq!(judge(&srun), Some((Slurm, 8, "SLURM_NTASKS")));
        assert_eq!(judge(&[("OMPI_COMM_WORLD_SIZE", "2")]), Some((Mpi, 2, "OMPI_COMM_WORLD_SIZE")));
        assert_eq!(judge(&[("PMI_SIZE", "16")]), Some((Mpi, 16, "PMI_SIZE")));
        assert_eq!(judge(&[("MPI_LOCALNRANKS", "2")]), Some((Mpi, 2, "MPI_LOCALNRANKS")));
    }

    #[test]
    fn single_processes_and_bare_allocations_go_ahead() {
        assert_eq!(judge(&[]), None);
        assert_eq!(judge(&[("WORLD_SIZE", "8")]), None);
        assert_eq!(judge(&[("WORLD_SIZE", "8"), ("RANK", "0")]), None);
        assert_eq!(judge(&[("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")]), None);
        assert_eq!(judge(&[("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "1")]), None);
        assert_eq!(judge(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]), None);
        assert_eq!(judge(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(judge(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMI_SIZE", "x")]), None);
    }
}
