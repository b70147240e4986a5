//! The command line for Python: `parse(argv)` gives a plan, or the exit status of what has been said already.

use std::ffi::OsString;
use std::path::PathBuf;

use allranks_cli::{ExitStatus, Parsed, Printer, RunPlan, Target, memory};
use pyo3::prelude::*;

/// A checked `allranks run`.
#[pyclass(name = "RunPlan", module = "allranks._allranks", frozen)]
pub struct PyRunPlan(pub RunPlan);

#[pymethods]
impl PyRunPlan {
    /// How many ranks; at least 1.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world.0
    }

    /// The only rank that runs, or None for all of them.
    #[getter]
    fn rank(&self) -> Option<u32> {
        self.0.rank.map(|rank| rank.0)
    }

    /// "gloo", "nccl", or None: as the script's backend has it.
    #[getter]
    fn profile(&self) -> Option<&'static str> {
        self.0.profile.map(|profile| profile.name())
    }

    /// The seed of everything that is drawn.
    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed
    }

    /// "round-robin" or "random".
    #[getter]
    fn schedule(&self) -> String {
        self.0.schedule.name()
    }

    /// "real" or "virtual".
    #[getter]
    fn clock(&self) -> String {
        self.0.clock.name()
    }

    /// "uniform", "zeros" or "nan".
    #[getter]
    fn fill(&self) -> &'static str {
        self.0.fill.name()
    }

    /// Absolute path of the findings file.
    #[getter]
    fn findings(&self) -> Option<OsString> {
        self.0.findings.clone().map(PathBuf::into_os_string)
    }

    /// Output lines say which rank wrote them.
    #[getter]
    fn tag_output(&self) -> bool {
        self.0.tag_output
    }

    /// Post-mortem debugger.
    #[getter]
    fn pdb(&self) -> bool {
        self.0.pdb
    }

    /// No closing line.
    #[getter]
    fn quiet(&self) -> bool {
        self.0.quiet
    }

    /// Warnings fail the run.
    #[getter]
    fn strict(&self) -> bool {
        self.0.strict
    }

    /// "gloo" or "nccl" for real processes through torchrun.
    #[getter]
    fn on(&self) -> Option<&'static str> {
        self.0.on.map(|backend| backend.name())
    }

    /// The guard against taking over a real launch is off.
    #[getter]
    fn allow_launcher(&self) -> bool {
        self.0.allow_launcher
    }

    /// Seconds that a rank may run without waiting, or None for ever.
    #[getter]
    fn watchdog(&self) -> Option<f64> {
        self.0.watchdog.map(|limit| limit.as_secs_f64())
    }

    /// The script's path as written, or None if a module is run.
    #[getter]
    fn script(&self) -> Option<OsString> {
        match &self.0.target {
            Target::Script(path) => Some(path.clone().into_os_string()),
            Target::Module(_) => None,
        }
    }

    /// The module's name, or None if a script is run.
    #[getter]
    fn module(&self) -> Option<&str> {
        match &self.0.target {
            Target::Script(_) => None,
            Target::Module(name) => Some(name),
        }
    }

    /// The program's own arguments.
    #[getter]
    fn args(&self) -> Vec<OsString> {
        self.0.args.clone()
    }

    /// `reproduce: allranks run ...`.
    fn reproduce(&self) -> String {
        self.0.reproduce()
    }

    fn __repr__(&self) -> String {
        format!("<RunPlan {:?}>", self.0.reproduce().trim_start_matches("reproduce: "))
    }
}

/// Reads `sys.argv`. A plan, or the exit status after the error, the help or the version has been printed.
#[pyfunction]
pub fn parse(py: Python<'_>, argv: Vec<OsString>) -> PyResult<Py<PyAny>> {
    let printer = Printer::for_process(false);
    let parsed = allranks_cli::parse(argv, |name| std::env::var(name).ok()).and_then(|parsed| {
        if let Parsed::Run(plan) = &parsed {
            memory::check(plan, memory::available())?;
        }
        Ok(parsed)
    });
    let status = match parsed {
        Ok(Parsed::Run(plan)) => return Ok(Py::new(py, PyRunPlan(*plan))?.into_any()),
        Ok(text) => {
            printer.text(&text);
            ExitStatus::Clean
        }
        Err(error) => {
            printer.usage_error(&error);
            ExitStatus::Usage
        }
    };
    Ok(status.code().into_pyobject(py)?.into_any().unbind())
}

/// Why this process must not be taken over (a launcher started it as one of several), or None.
#[pyfunction]
pub fn launch_refusal() -> Option<String> {
    allranks_cli::guard(|name| std::env::var(name).ok()).map(|refusal| refusal.to_string())
}

/// Prints `allranks: error: MESSAGE`, and the hint on its own line, to stderr.
#[pyfunction]
#[pyo3(signature = (message, *, hint=None))]
pub fn print_error(message: &str, hint: Option<&str>) {
    Printer::for_process(false).error(message, hint);
}
