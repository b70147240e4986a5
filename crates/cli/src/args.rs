//! The words of the command line, as clap sees them. What they mean together is checked in `plan`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use allranks_core::Profile;
use allranks_report::FillRule;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// Every rank of a distributed PyTorch program, in one process on one machine.
#[derive(Debug, Parser)]
#[command(name = "allranks", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a script as all ranks of a world, or as one of them
    Run(Box<RunArgs>),
}

const RUN_LONG: &str = "\
Run a script as all ranks of a world, or as one of them

Without --rank, every rank runs in this process, one thread each and one at a time, and data really moves. With \
--rank R, only rank R runs: nothing is communicated and what other ranks would send is filled in by the rule of --fill.

The script needs no change. Everything after SCRIPT (or after -m MODULE) belongs to the script.";

const RUN_AFTER: &str = "\
Exit status: 0 clean; 1 the program failed (a rank raised or exited with a status other than 0); 2 usage; \
3 an error was found (with --strict: or a warning).

Examples:
  allranks run -n 8 train.py --epochs 1          all 8 ranks
  allranks run -n 4096 --rank 17 train.py        rank 17 of 4096, nothing communicated
  allranks run -n 4 -m package.train --lr 0.1    a module
  allranks run -n 4 --on gloo train.py           4 real processes, through torchrun";

#[derive(Args, Debug)]
#[command(
    long_about = RUN_LONG,
    after_long_help = RUN_AFTER,
    override_usage = "allranks run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]"
)]
pub(crate) struct RunArgs {
    /// How many ranks the world has [default: 2]
    #[arg(short = 'n', value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub world: Option<u32>,

    /// Run this rank only, without communication
    #[arg(long, value_name = "R", value_parser = count, allow_negative_numbers = true)]
    pub rank: Option<u32>,

    /// Whose rules hold where backends differ [default: those of the backend that the script names]
    #[arg(long, value_parser = profiles())]
    pub profile: Option<Profile>,

    /// Seed of everything that is drawn by us; the same seed gives the same run
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,

    /// Which rank goes on at a hand-over [default: round-robin]
    #[arg(long, value_enum)]
    pub schedule: Option<SchedulePolicy>,

    /// Whether sleeps and time-outs take time. `virtual`: when all ranks sleep or wait, time jumps [default: real]
    #[arg(long, value_enum)]
    pub clock: Option<ClockChoice>,

    /// With --rank: what the other ranks are said to hold. `uniform`: what this rank holds [default: uniform]
    #[arg(long, value_parser = fills())]
    pub fill: Option<FillRule>,

    /// Write findings to FILE, one JSON object a line; the file is empty if there is none
    #[arg(long, value_name = "FILE")]
    pub findings: Option<PathBuf>,

    /// Put `[rank R]` before each line that a rank prints
    #[arg(long)]
    pub tag_output: bool,

    /// Open the debugger where a rank raises
    #[arg(long)]
    pub pdb: bool,

    /// Drop the closing line and notes; errors and findings are still shown
    #[arg(short, long)]
    pub quiet: bool,

    /// Let warnings fail the run
    #[arg(long)]
    pub strict: bool,

    /// Run real processes through torchrun, with this backend
    #[arg(long, value_name = "BACKEND", value_parser = profiles())]
    pub on: Option<Profile>,

    /// Take over although torchrun, SLURM or MPI started this process as one of several
    #[arg(long)]
    pub allow_launcher: bool,

    /// Name a rank that runs this long without ever waiting, with its stack; 0 turns it off [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub watchdog: Option<Duration>,

    /// Run a module as `python -m` does; what follows belongs to it
    #[arg(short = 'm', value_names = ["MODULE", "ARGS"], num_args = 1.., allow_hyphen_values = true)]
    pub module: Vec<OsString>,

    /// The script, then its arguments
    #[arg(value_name = "SCRIPT [ARGS]", trailing_var_arg = true)]
    pub script: Vec<OsString>,
}

/// Who goes on at a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchedulePolicy {
    /// The next runnable rank in order.
    RoundRobin,
    /// A runnable rank drawn from the seed.
    Random,
}

/// Whether sleeps and time-outs take time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockChoice {
    /// As without us.
    Real,
    /// When every rank sleeps or waits with a deadline, time jumps to the earliest.
    Virtual,
}

macro_rules! option_value {
    ($name:ident) => {
        impl $name {
            /// The name on the command line.
            pub fn name(self) -> String {
                let value = self.to_possible_value().expect("no value is hidden");
                value.get_name().to_owned()
            }
        }
    };
}
option_value!(SchedulePolicy);
option_value!(ClockChoice);

/// The whole command line, for help texts and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

fn profiles() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.iter().map(|profile| profile.name()))
        .map(|name| name.parse().expect("only names of profiles pass"))
}

fn fills() -> impl TypedValueParser<Value = FillRule> {
    PossibleValuesParser::new(FillRule::ALL.iter().map(|fill| fill.name()))
        .map(|name| name.parse().expect("only names of fill rules pass"))
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a whole number from 0 to {}", u32::MAX))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a whole number from 0 to {}", u64::MAX))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|_| "must be zero or more".to_owned())
}
