//! torch tensors as buffers: the boundary where a Python object becomes an address.

use allranks_core::{Dtype, Shape, TensorMeta};
use allranks_engine::Buf;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;

/// torch's dtype objects, in the order of [`Dtype::ALL`]. Each is one object for ever, so identity decides.
static DTYPES: PyOnceLock<Vec<(Py<PyAny>, Dtype)>> = PyOnceLock::new();
static STRIDED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn dtypes(py: Python<'_>) -> PyResult<&Vec<(Py<PyAny>, Dtype)>> {
    DTYPES.get_or_try_init(py, || {
        let torch = py.import("torch")?;
        // An older torch may lack one.
        Ok(Dtype::ALL.iter().filter_map(|d| Some((torch.getattr(d.name()).ok()?.unbind(), *d))).collect())
    })
}

/// The dtype behind torch's object.
///
/// # Errors
/// `NotImplementedError` naming a dtype that is not known.
pub(crate) fn dtype_of(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let known = dtypes(py)?.iter().find(|(o, _)| o.is(object)).map(|(_, d)| *d);
    known.ok_or_else(|| PyNotImplementedError::new_err(format!("allranks does not know {object}")))
}

fn shape_of(tensor: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let sizes: SmallVec<[u64; 4]> = tensor
        .getattr(intern!(tensor.py(), "shape"))?
        .try_iter()?
        .map(|n| n.and_then(|n| n.extract()))
        .collect::<PyResult<_>>()?;
    Ok(Shape(sizes))
}

/// Dtype and sizes.
pub(crate) fn meta_of(tensor: &Bound<'_, PyAny>) -> PyResult<TensorMeta> {
    let py = tensor.py();
    let dtype = dtype_of(py, &tensor.getattr(intern!(py, "dtype"))?)?;
    Ok(TensorMeta { dtype, shape: shape_of(tensor)? })
}

/// The memory of a dense tensor in the CPU's memory, or `None` if it is something else: strided, sparse, conjugated,
/// on another device.
pub(crate) fn plain(tensor: &Bound<'_, PyAny>) -> PyResult<Option<(Buf, TensorMeta)>> {
    let py = tensor.py();
    let strided = STRIDED.get_or_try_init(py, || Ok::<_, PyErr>(py.import("torch")?.getattr("strided")?.unbind()))?;
    if !tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()?
        || !tensor.getattr(intern!(py, "layout"))?.is(strided)
        || !tensor.call_method0(intern!(py, "is_contiguous"))?.is_truthy()?
    {
        return Ok(None);
    }
    let meta = meta_of(tensor)?;
    if meta.dtype.is_complex() && tensor.call_method0(intern!(py, "is_conj"))?.is_truthy()? {
        return Ok(None);
    }
    let address: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
    let len = usize::try_from(meta.bytes().0).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    if address == 0 && len > 0 {
        return Err(PyRuntimeError::new_err("a tensor without memory (its storage was freed, or it is fake)"));
    }
    // SAFETY: a contiguous CPU tensor has its elements at data_ptr; the caller keeps the tensor alive until the
    // operation is complete, and the baton keeps other ranks from using it meanwhile.
    Ok(Some((unsafe { Buf::new(address as *mut u8, len) }, meta)))
}
