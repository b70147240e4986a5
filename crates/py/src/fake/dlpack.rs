//! A tensor's address, dtype and shape in one C call, through the exchange table that torch publishes for DLPack.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use allranks_core::{Dtype, Shape};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;

use crate::tensor;

/// `DLTensor` of DLPack 1.x.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

type FromObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int;

/// `DLPackExchangeAPI` of DLPack 1.3, as far as it is used here.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocator: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    from_object: Option<FromObject>,
}

const CPU: i32 = 1;
const NAME: *const c_char = c"dlpack_exchange_api".as_ptr();

/// None: this torch has no such table.
static FROM_OBJECT: PyOnceLock<Option<FromObject>> = PyOnceLock::new();

fn from_object(py: Python<'_>) -> PyResult<Option<FromObject>> {
    let find = || {
        let class = py.import("torch")?.getattr("Tensor")?;
        let Ok(capsule) = class.getattr("__dlpack_c_exchange_api__") else { return Ok::<_, PyErr>(None) };
        // SAFETY: the interpreter is held; a wrong object gives null and an exception.
        let api = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME) }.cast::<ExchangeApi>();
        if api.is_null() {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: DLPack promises that the table of this name is static and begins with its version; the layout read
        // here is that of major version 1.
        unsafe { Ok(((*api).major == 1).then_some((*api).from_object).flatten()) }
    };
    FROM_OBJECT.get_or_try_init(py, find).copied()
}

fn dtype(code: u8, bits: u8, lanes: u16) -> Option<Dtype> {
    Some(match (code, bits, lanes) {
        (2, 32, 1) => Dtype::Float32,
        (4, 16, 1) => Dtype::Bfloat16,
        (2, 16, 1) => Dtype::Float16,
        (2, 64, 1) => Dtype::Float64,
        (0, 64, 1) => Dtype::Int64,
        (0, 32, 1) => Dtype::Int32,
        (0, 16, 1) => Dtype::Int16,
        (0, 8, 1) => Dtype::Int8,
        (1, 64, 1) => Dtype::Uint64,
        (1, 32, 1) => Dtype::Uint32,
        (1, 16, 1) => Dtype::Uint16,
        (1, 8, 1) => Dtype::Uint8,
        (6, 8, 1) => Dtype::Bool,
        (5, 128, 1) => Dtype::Complex128,
        (5, 64, 1) => Dtype::Complex64,
        (5, 32, 1) => Dtype::Complex32,
        (10, 8, 1) => Dtype::Float8E4m3fn,
        (11, 8, 1) => Dtype::Float8E4m3fnuz,
        (12, 8, 1) => Dtype::Float8E5m2,
        (13, 8, 1) => Dtype::Float8E5m2fnuz,
        (14, 8, 1) => Dtype::Float8E8m0fnu,
        _ => return None,
    })
}

/// A tensor of an operation.
pub(crate) struct Tensor<'py> {
    pub object: Bound<'py, PyAny>,
    pub dtype: Dtype,
    pub numel: usize,
    pub shape: Shape,
    /// First element, if this is dense CPU memory (null if there are no elements); None for everything else.
    pub data: Option<*mut u8>,
}

impl<'py> Tensor<'py> {
    /// # Errors
    /// `NotImplementedError` for a dtype that allranks does not know; whatever the object's attributes raise.
    pub fn new(object: Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Some(from_object) = from_object(py)? {
            let mut raw = DlTensor {
                data: ptr::null_mut(),
                device_type: 0,
                device_id: 0,
                ndim: 0,
                code: 0,
                bits: 0,
                lanes: 0,
                shape: ptr::null(),
                strides: ptr::null(),
                byte_offset: 0,
            };
            // SAFETY: `raw` is a DLTensor; the object is kept alive by `object`. Objects that are no torch tensors are
            // refused by the callee with an exception.
            if unsafe { from_object(object.as_ptr(), &raw mut raw) } == 0 {
                if let Some(dtype) = dtype(raw.code, raw.bits, raw.lanes) {
                    return Ok(Self::from_raw(object, &raw, dtype));
                }
            } else {
                drop(PyErr::take(py)); // Sparse, meta, ...: described by its attributes instead.
            }
        }
        Self::described(object)
    }

    /// Without a look at its memory: for tensors that have none of their own (a refusal of DLPack costs milliseconds).
    ///
    /// # Errors
    /// As for [`Tensor::new`].
    pub fn described(object: Bound<'py, PyAny>) -> PyResult<Self> {
        let meta = tensor::meta_of(&object)?;
        let numel = usize::try_from(meta.shape.numel()).expect("a tensor's size is an i64");
        Ok(Self { object, dtype: meta.dtype, numel, shape: meta.shape, data: None })
    }

    fn from_raw(object: Bound<'py, PyAny>, raw: &DlTensor, dtype: Dtype) -> Self {
        let ndim = usize::try_from(raw.ndim).expect("not negative");
        let (sizes, strides): (&[i64], &[i64]) = if ndim == 0 {
            (&[], &[])
        } else {
            // SAFETY: DLPack: both have `ndim` entries (torch always gives strides), which live as long as the tensor.
            unsafe { (std::slice::from_raw_parts(raw.shape, ndim), std::slice::from_raw_parts(raw.strides, ndim)) }
        };
        let (mut dense, mut numel) = (true, 1_i64);
        for (&size, &stride) in sizes.iter().zip(strides).rev() {
            dense &= size == 1 || stride == numel;
            numel *= size;
        }
        let here = raw.device_type == CPU && (numel == 0 || (dense && !raw.data.is_null()));
        let data = here.then(|| raw.data.cast::<u8>().wrapping_add(usize::try_from(raw.byte_offset).expect("64 bits")));
        let shape = Shape(sizes.iter().map(|&n| n.cast_unsigned()).collect::<SmallVec<_>>());
        Self { object, dtype, numel: usize::try_from(numel).expect("not negative"), shape, data }
    }
}
