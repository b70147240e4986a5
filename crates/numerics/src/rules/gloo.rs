//! gloo's refusals, all measured.

use std::borrow::Cow;

use allranks_core::{Dtype, OpKind, ReduceOp};

use super::{
    Evidence, Exception, Refusal, complex_as_real, complex_message, is_bitwise, op_name, python_refusal, scalar_type,
};

/// The types that torch's gloo code is instantiated for.
const fn known(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::Float64
            | Dtype::Float32
            | Dtype::Float16
            | Dtype::Bfloat16
            | Dtype::Int64
            | Dtype::Int32
            | Dtype::Int8
            | Dtype::Uint8
            | Dtype::Bool
    )
}

fn refuse(exception: Exception, message: impl Into<Cow<'static, str>>) -> Option<Refusal> {
    Some(Refusal { exception, message: message.into(), after_sum: false, evidence: Evidence::Measured })
}

fn invalid_type() -> Option<Refusal> {
    refuse(Exception::RuntimeError, "Invalid scalar type")
}

pub(super) fn refusal(kind: OpKind, op: Option<ReduceOp>, dtype: Dtype) -> Option<Refusal> {
    match (kind, op) {
        // Point to point moves bytes.
        (OpKind::Send | OpKind::Recv, _) => None,
        // Every other operation but this one sees a complex tensor as a real one.
        (OpKind::Gather, _) if dtype.is_complex() => invalid_type(),
        (OpKind::AllReduceSparse, Some(op)) => sparse(op, dtype),
        (_, Some(op)) => dense(kind, op, dtype),
        (_, None) => (!known(dtype) && !dtype.is_complex()).then(invalid_type).flatten(),
    }
}

fn dense(kind: OpKind, op: ReduceOp, dtype: Dtype) -> Option<Refusal> {
    if let Some(refusal) = python_refusal(kind, op, dtype, Evidence::Measured) {
        return Some(refusal);
    }
    let python_sees_real = matches!(kind, OpKind::AllReduce | OpKind::AllReduceCoalesced);
    if dtype.is_complex() && !complex_as_real(op) {
        // reduce_scatter is an all_reduce inside.
        let who = if kind == OpKind::Reduce { "reduce" } else { "all_reduce" };
        return refuse(Exception::RuntimeError, complex_message(who, op));
    }
    if !known(dtype) && !dtype.is_complex() {
        return invalid_type();
    }
    if op == ReduceOp::PremulSum {
        return refuse(Exception::RuntimeError, "Cannot use ReduceOp.PREMUL_SUM with Gloo");
    }
    if is_bitwise(op) && dtype.is_float() {
        let message = format!("Cannot use ReduceOp.{} with non-integral dtype", op_name(op));
        return refuse(Exception::RuntimeError, message);
    }
    // AVG is SUM, then a division by torch in place, which these cannot hold or do.
    let after_sum = |refusal: Option<Refusal>| refusal.map(|r| Refusal { after_sum: true, ..r });
    if op == ReduceOp::Avg && !dtype.is_float() {
        let message = format!("result type Float can't be cast to the desired output type {}", scalar_type(dtype));
        return after_sum(refuse(Exception::RuntimeError, message));
    }
    if op == ReduceOp::Avg && dtype == Dtype::Complex32 && !python_sees_real {
        return after_sum(refuse(Exception::NotImplementedError, "\"div_cpu\" not implemented for 'ComplexHalf'"));
    }
    None
}

/// torch makes the sum itself, from gathered tensors.
fn sparse(op: ReduceOp, dtype: Dtype) -> Option<Refusal> {
    if let Some(refusal) = python_refusal(OpKind::AllReduceSparse, op, dtype, Evidence::Measured) {
        return Some(refusal);
    }
    if op != ReduceOp::Sum {
        let message = "ProcessGroupGloo::allreduce: unsupported reduction operation \
                       (allreduce of sparse tensors only works with ReduceOp.SUM)";
        return refuse(Exception::RuntimeError, message);
    }
    let missing = |what: &str, dtype: Dtype| {
        refuse(Exception::NotImplementedError, format!("\"{what}\" not implemented for '{}'", scalar_type(dtype)))
    };
    match dtype {
        Dtype::Int16 => invalid_type(),
        Dtype::Float16 | Dtype::Complex32 => missing("cadd_sparse", Dtype::Float16),
        Dtype::Bool => missing("cadd_sparse", dtype),
        _ if known(dtype) || dtype.is_complex() => None,
        _ => missing("coalesce", dtype),
    }
}
