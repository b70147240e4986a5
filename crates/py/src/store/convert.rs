//! What a store takes from Python, and the exceptions that it raises.

use allranks_store::{Blame, StoreError, WaitError};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDelta, PyDeltaAccess, PyString};

use crate::baton;

pub(super) fn raise(py: Python<'_>, error: WaitError<PyErr>) -> PyErr {
    match error {
        WaitError::Stopped(error) => error,
        WaitError::Store(error) => raised(py, &error),
    }
}

/// The one place where a store's error becomes an exception.
pub(super) fn raised(py: Python<'_>, error: &StoreError) -> PyErr {
    let text = error.to_string();
    if let (true, Some(me)) = (error.is_timeout(), baton::current())
        && let Err(e) = me.shared.expired(py, me.rank, &text)
    {
        return e;
    }
    let torch = |name: &str| match py.import("torch.distributed").and_then(|m| m.getattr(name)?.call1((&text,))) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    };
    match error.blame() {
        Blame::DistStore => torch("DistStoreError"),
        Blame::DistNetwork => torch("DistNetworkError"),
        Blame::QueueEmpty => torch("QueueEmptyError"),
        Blame::Runtime => PyRuntimeError::new_err(text),
        Blame::Value => PyValueError::new_err(text),
        Blame::Index => PyIndexError::new_err(text),
        Blame::NotImplemented => PyNotImplementedError::new_err(text),
    }
}

/// Text or bytes, as pybind takes them for a C++ string.
pub(super) fn bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.as_bytes().to_vec());
    }
    if let Ok(raw) = value.cast::<PyBytes>() {
        return Ok(raw.as_bytes().to_vec());
    }
    if let Ok(raw) = value.cast::<PyByteArray>() {
        return Ok(raw.to_vec());
    }
    let name = value.get_type().qualname()?;
    Err(PyTypeError::new_err(format!("incompatible function arguments: a store takes str or bytes, not {name}")))
}

pub(super) fn key(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(String::from_utf8_lossy(&bytes(value)?).into_owned())
}

pub(super) fn all<T>(values: &Bound<'_, PyAny>, one: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>) -> PyResult<Vec<T>> {
    if values.is_instance_of::<PyString>() || values.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(
            "incompatible function arguments: a sequence is wanted, not one str or bytes",
        ));
    }
    values.try_iter()?.map(|value| one(&value?)).collect()
}

/// A `timedelta`, or seconds.
pub(super) fn millis(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(delta) = time.cast::<PyDelta>() {
        let seconds = i64::from(delta.get_days()) * 86_400 + i64::from(delta.get_seconds());
        return Ok(seconds * 1000 + i64::from(delta.get_microseconds()) / 1000);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a time-out of 10^18 seconds is for ever")]
    Ok((time.extract::<f64>()? * 1000.0) as i64)
}
