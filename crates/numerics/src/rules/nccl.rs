//! NCCL's refusals, as torch's source has them. None of this was run.

use std::borrow::Cow;

use allranks_core::{Dtype, OpKind, ReduceOp};

use super::{Evidence, Exception, Refusal, complex_as_real, complex_message, op_name, python_refusal, scalar_type};

fn refuse(exception: Exception, message: impl Into<Cow<'static, str>>) -> Option<Refusal> {
    Some(Refusal { exception, message: message.into(), after_sum: false, evidence: Evidence::Read })
}

pub(super) fn refusal(kind: OpKind, op: Option<ReduceOp>, dtype: Dtype) -> Option<Refusal> {
    if let Some(op) = op {
        if let Some(refusal) = python_refusal(kind, op, dtype, Evidence::Read) {
            return Some(refusal);
        }
        if kind == OpKind::AllReduceSparse {
            let message = "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.";
            return refuse(Exception::RuntimeError, message);
        }
        if let Some(refusal) = reduction(kind, op, dtype) {
            return Some(refusal);
        }
    }
    // Types of NCCL, and those that torch sends as bytes or as twice as many real numbers.
    match dtype {
        Dtype::Int16 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 | Dtype::Float8E8m0fnu => {
            let message = "Input tensor data type is not supported for NCCL process group: ";
            refuse(Exception::TypeError, format!("{message}{}", scalar_type(dtype)))
        }
        _ => None,
    }
}

fn reduction(kind: OpKind, op: ReduceOp, dtype: Dtype) -> Option<Refusal> {
    if dtype.is_complex() && !complex_as_real(op) {
        let who = match kind {
            OpKind::Reduce => "reduce",
            OpKind::ReduceScatter | OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => "reduce_scatter",
            _ => "all_reduce",
        };
        return refuse(Exception::RuntimeError, complex_message(who, op));
    }
    if matches!(dtype, Dtype::Float8E4m3fnuz | Dtype::Float8E5m2fnuz | Dtype::Float8E8m0fnu) {
        return refuse(Exception::RuntimeError, "Unsupported Float8 type for NCCL reduction");
    }
    match op {
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
            refuse(Exception::ValueError, format!("Cannot use ReduceOp.{} with NCCL", op_name(op)))
        }
        ReduceOp::Avg if dtype == Dtype::Bool => {
            refuse(Exception::TypeError, "Cannot use ReduceOp.AVG with boolean inputs")
        }
        ReduceOp::PremulSum if !matches!(scalar_size(dtype), Some(2 | 4 | 8)) => {
            refuse(Exception::TypeError, "PreMulSum Data type must be half, float, bfloat16 or double")
        }
        _ => None,
    }
}

/// Bytes of a float, or of a complex number's part; `None` for integers.
fn scalar_size(dtype: Dtype) -> Option<usize> {
    dtype.is_float().then(|| if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() })
}
