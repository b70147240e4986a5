//! Errors on purpose where Python carries an operation out: see `allranks_engine::mutants`.

use allranks_engine::mutants::{Change, Target, change, spoil_elements};
use pyo3::prelude::*;

use crate::tensor::meta_of;
use crate::world::parse;

/// Whether the copy back to tensors that are not dense is left out.
pub(crate) fn forgets_staging() -> bool {
    change(Target::Staging) == Some(Change::Nothing)
}

/// `combine(payloads)` for sparse tensors, done wrongly if `kind` is the mutant's.
pub(crate) fn combine(
    py: Python<'_>,
    kind: &str,
    payloads: Vec<Py<PyAny>>,
    combine: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let Some(change) = change(Target::Ranks(parse(kind)?)) else { return combine.call1((payloads,)).map(drop) };
    if change == Change::Nothing {
        return Ok(());
    }
    let mut order: Vec<Py<PyAny>> = payloads.iter().map(|p| p.clone_ref(py)).collect();
    if change == Change::Order {
        order.reverse();
    }
    combine.call1((order,))?;
    let wrong = match change {
        Change::FirstRank => &payloads[..1],
        Change::LastRank => &payloads[payloads.len() - 1..],
        _ => &payloads[..],
    };
    for tensor in wrong {
        let values = tensor.bind(py).call_method0("_values")?;
        let (meta, address) = (meta_of(&values)?, values.call_method0("data_ptr")?.extract::<usize>()?);
        let numel = usize::try_from(meta.bytes().0).expect("it is in memory") / meta.dtype.size();
        // SAFETY: the values of a coalesced tensor are dense memory that the payload keeps alive; the interpreter is
        // held, so no Python code uses it meanwhile.
        unsafe { spoil_elements(change, address as *mut u8, numel, meta.dtype) };
    }
    Ok(())
}
