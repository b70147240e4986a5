//! What a backend refuses, with which exception, as a pure function of operation, reduce op and dtype.
//!
//! gloo's table was measured on torch 2.15 and 2.14, which agree, over every operation, reduce op and dtype
//! (`data/rules-gloo.tsv`; a test holds the function to it). NCCL's is read from torch's source and the strings of its
//! library; none of it was run ([`Evidence`]). A refusal comes on every rank: none of these looks at another rank.

mod gloo;
mod nccl;

use std::borrow::Cow;

use allranks_core::{Dtype, OpKind, Profile, ReduceOp};

/// A Python exception type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are Python's names")]
pub enum Exception {
    RuntimeError,
    ValueError,
    TypeError,
    NotImplementedError,
}

impl Exception {
    /// Python's name.
    pub const fn name(self) -> &'static str {
        match self {
            Exception::RuntimeError => "RuntimeError",
            Exception::ValueError => "ValueError",
            Exception::TypeError => "TypeError",
            Exception::NotImplementedError => "NotImplementedError",
        }
    }
}

/// How we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The operation was run on the real backend.
    Measured,
    /// Read in the source or in the library's strings; not run.
    Read,
}

/// An operation that the backend does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What Python raises.
    pub exception: Exception,
    /// The first line of its message.
    pub message: Cow<'static, str>,
    /// The reduction itself takes place and only torch's division after it fails. So the ranks meet first, and the sum
    /// is left in the tensor of an all_reduce, of an all_reduce_coalesced of one tensor, in the root's of a reduce and
    /// in the output of a reduce_scatter of a list. All other operations and refusals leave the tensors as they were.
    pub after_sum: bool,
    /// How we know.
    pub evidence: Evidence,
}

/// What `profile`'s backend says to `kind` of `dtype` elements with `op`; `None` if it does it.
///
/// A reduction without an `op` is a SUM, torch's default. An `op` on an operation that reduces nothing is ignored.
/// Group management and barriers are never refused here.
pub fn refusal(profile: Profile, kind: OpKind, op: Option<ReduceOp>, dtype: Dtype) -> Option<Refusal> {
    let op = kind.is_reduction().then(|| op.unwrap_or(ReduceOp::Sum));
    if matches!(kind, OpKind::Barrier | OpKind::MonitoredBarrier | OpKind::NewGroup) {
        return None;
    }
    match profile {
        Profile::Gloo => gloo::refusal(kind, op, dtype),
        Profile::Nccl => nccl::refusal(kind, op, dtype),
    }
}

/// Whether an average of this dtype is a sum that torch then divides, in its own way, on each rank: with gloo always, but
/// for real floating point numbers the division is part of the reduction here.
pub const fn torch_divides(profile: Profile, dtype: Dtype) -> bool {
    matches!(profile, Profile::Gloo) && (!dtype.is_float() || dtype.is_complex())
}

/// `RedOpType.MAX`'s last word.
fn op_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "SUM",
        ReduceOp::Avg => "AVG",
        ReduceOp::Product => "PRODUCT",
        ReduceOp::Min => "MIN",
        ReduceOp::Max => "MAX",
        ReduceOp::Band => "BAND",
        ReduceOp::Bor => "BOR",
        ReduceOp::Bxor => "BXOR",
        ReduceOp::PremulSum => "PREMUL_SUM",
    }
}

/// The name that torch's C++ messages use.
fn scalar_type(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float64 => "Double",
        Dtype::Float32 => "Float",
        Dtype::Float16 => "Half",
        Dtype::Bfloat16 => "BFloat16",
        Dtype::Float8E4m3fn => "Float8_e4m3fn",
        Dtype::Float8E4m3fnuz => "Float8_e4m3fnuz",
        Dtype::Float8E5m2 => "Float8_e5m2",
        Dtype::Float8E5m2fnuz => "Float8_e5m2fnuz",
        Dtype::Float8E8m0fnu => "Float8_e8m0fnu",
        Dtype::Complex128 => "ComplexDouble",
        Dtype::Complex64 => "ComplexFloat",
        Dtype::Complex32 => "ComplexHalf",
        Dtype::Int64 => "Long",
        Dtype::Int32 => "Int",
        Dtype::Int16 => "Short",
        Dtype::Int8 => "Char",
        Dtype::Uint64 => "UInt64",
        Dtype::Uint32 => "UInt32",
        Dtype::Uint16 => "UInt16",
        Dtype::Uint8 => "Byte",
        Dtype::Bool => "Bool",
    }
}

/// Ops that act on a complex number as on two real ones.
const fn complex_as_real(op: ReduceOp) -> bool {
    matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum)
}

/// torch's C++ layers: reductions of complex numbers other than sums. The message holds the op's number as a character.
fn complex_message(who: &str, op: ReduceOp) -> String {
    let number = match op {
        ReduceOp::Sum => '\0',
        ReduceOp::Avg => '\x01',
        ReduceOp::Product => '\x02',
        ReduceOp::Min => '\x03',
        ReduceOp::Max => '\x04',
        ReduceOp::Band => '\x05',
        ReduceOp::Bor => '\x06',
        ReduceOp::Bxor => '\x07',
        ReduceOp::PremulSum => '\x08',
    };
    format!("{who} does not support{number}on complex tensors")
}

const fn is_bitwise(op: ReduceOp) -> bool {
    matches!(op, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor)
}

/// torch's Python layer, before any backend: all_reduce takes complex numbers for sums only.
fn python_refusal(kind: OpKind, op: ReduceOp, dtype: Dtype, evidence: Evidence) -> Option<Refusal> {
    let checked = matches!(kind, OpKind::AllReduce | OpKind::AllReduceCoalesced | OpKind::AllReduceSparse);
    (checked && dtype.is_complex() && !complex_as_real(op)).then(|| Refusal {
        exception: Exception::ValueError,
        message: format!("all_reduce does not support RedOpType.{} on complex tensors", op_name(op)).into(),
        after_sum: false,
        evidence,
    })
}

#[cfg(test)]
mod tests;
