//! The functions that tell the time, as rank threads see them under a virtual clock.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::baton;

/// How the wrapped function counts.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Nanoseconds,
}

/// Stands in for `time.time`, `time.monotonic_ns` and the like: what the function says, and what time has jumped.
///
/// On a thread that belongs to no rank it is the function itself.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct JumpingClock {
    real: Py<PyAny>,
    unit: Unit,
}

#[pymethods]
impl JumpingClock {
    /// `nanoseconds`: the function counts in whole nanoseconds, not in seconds.
    #[new]
    #[pyo3(signature = (real, *, nanoseconds))]
    fn new(real: Py<PyAny>, nanoseconds: bool) -> Self {
        Self { real, unit: if nanoseconds { Unit::Nanoseconds } else { Unit::Seconds } }
    }

    #[pyo3(signature = (*args))]
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let now = self.real.call1(py, args)?;
        let jumped = baton::current().map_or(Duration::ZERO, |me| me.shared.scheduler.jumped().total());
        if jumped.is_zero() {
            return Ok(now);
        }
        match self.unit {
            Unit::Seconds => {
                let seconds: f64 = now.extract(py)?;
                Ok((seconds + jumped.as_secs_f64()).into_pyobject(py)?.into_any().unbind())
            }
            Unit::Nanoseconds => {
                let nanoseconds: i128 = now.extract(py)?;
                let later = nanoseconds.saturating_add(i128::try_from(jumped.as_nanos()).unwrap_or(i128::MAX));
                Ok(later.into_pyobject(py)?.into_any().unbind())
            }
        }
    }

    /// Name, documentation and the like are the function's.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        self.real.getattr(py, name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.real.bind(py).repr()?.to_string())
    }
}
