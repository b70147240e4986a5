//! Reduction of this rank's elements with those of its peers.
//!
//! | op | uniform | zeros | nan, floating point |
//! |---|---|---|---|
//! | SUM | `N x`, rounded once | `x` | NaN |
//! | AVG | `x` | `x / N` | NaN |
//! | PRODUCT | `x` to the power `N` | 0 | NaN |
//! | MIN, MAX | `x` | of `x` and 0 | NaN |
//! | BAND, BOR, BXOR | `x` (BXOR: 0 if `N` is even) | `x` and 0, `x`, `x` | not for floats |
//! | PREMUL_SUM | `N f x` | `f x` | NaN |
//!
//! Integers under `nan` are as under `zeros`. With `N = 1` there are no peers. SUM of bools is "any".

use allranks_core::{Dtype, ReduceOp};
use allranks_numerics::{Order, Place, Reduction, Unsupported, reduce_into, supported, uniform};

use super::run::{Buffer, Op, write_peer};
use super::{Fill, Rules};

/// Combines `buffer` with what `rules.size - 1` peers hold, in place.
///
/// # Errors
/// If the op has no meaning for the dtype; nothing is written then.
///
/// # Safety
/// The buffer is valid for reads and writes, all its elements initialised.
pub(super) unsafe fn combine(op: Op, rules: &Rules, buffer: Buffer) -> Result<(), Unsupported> {
    let how = Reduction::new(Order::RankOrder, op.op, buffer.dtype).with_factor(op.factor);
    supported(how)?;
    let (ranks, numel, data) = (rules.size, buffer.numel, buffer.data);
    let scaled = |factor: f64| {
        let how = Reduction { op: ReduceOp::PremulSum, factor, ..how };
        // SAFETY: promised by the caller.
        unsafe { uniform(how, 1, data, numel) }
    };
    if rules.fill == Fill::Uniform || ranks == 1 {
        return match op.op {
            ReduceOp::Avg => Ok(()),
            ReduceOp::Sum if buffer.dtype == Dtype::Bool => Ok(()),
            ReduceOp::Sum => scaled(ranks as f64),
            ReduceOp::PremulSum => scaled(op.factor * ranks as f64),
            // SAFETY: promised by the caller.
            _ => unsafe { uniform(how, ranks, data, numel) },
        };
    }
    if rules.fill == Fill::Nan && buffer.dtype.is_float() {
        // SAFETY: promised by the caller.
        unsafe { write_peer(rules.fill, buffer) };
        return Ok(());
    }
    match op.op {
        ReduceOp::Sum | ReduceOp::Bor | ReduceOp::Bxor => Ok(()),
        ReduceOp::PremulSum => scaled(op.factor),
        ReduceOp::Avg if buffer.dtype.is_float() => scaled(1.0 / ranks as f64),
        ReduceOp::Product | ReduceOp::Band => {
            // SAFETY: promised by the caller.
            unsafe { write_peer(Fill::Zeros, buffer) };
            Ok(())
        }
        ReduceOp::Min | ReduceOp::Max | ReduceOp::Avg => {
            let zeros = vec![0_u8; buffer.bytes()];
            let inputs = if op.op == ReduceOp::Avg { ranks } else { 2 };
            let mut inputs = vec![zeros.as_ptr(); inputs];
            inputs[0] = data.cast_const();
            // SAFETY: the zeros are as long as the buffer; the rest is promised by the caller.
            unsafe { reduce_into(how, Place::whole(numel), &inputs, data, numel) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(fill: Fill, op: ReduceOp, size: usize, mut x: Vec<f32>) -> Vec<f32> {
        let rules = Rules { fill, rank: 0, size };
        let buffer = Buffer { dtype: Dtype::Float32, data: x.as_mut_ptr().cast(), numel: x.len() };
        // SAFETY: the buffer is the vector.
        unsafe { combine(Op { op, factor: 0.5 }, &rules, buffer) }.expect("supported");
        x
    }

    fn ints(fill: Fill, op: ReduceOp, size: usize, mut x: Vec<i64>) -> Vec<i64> {
        let rules = Rules { fill, rank: 0, size };
        let buffer = Buffer { dtype: Dtype::Int64, data: x.as_mut_ptr().cast(), numel: x.len() };
        // SAFETY: the buffer is the vector.
        unsafe { combine(Op::plain(op), &rules, buffer) }.expect("supported");
        x
    }

    #[test]
    fn uniform_is_n_times_this_rank() {
        let x = || vec![1.5, -2.0];
        let cases = [
            (ReduceOp::Sum, vec![4.5, -6.0]),
            (ReduceOp::Avg, x()),
            (ReduceOp::Product, vec![3.375, -8.0]),
            (ReduceOp::Min, x()),
            (ReduceOp::Max, x()),
            (ReduceOp::PremulSum, vec![2.25, -3.0]),
        ];
        for (op, expected) in cases {
            assert_eq!(reduced(Fill::Uniform, op, 3, x()), expected, "{op}");
        }
        assert_eq!(ints(Fill::Uniform, ReduceOp::Bxor, 2, vec![5]), [0]);
        assert_eq!(ints(Fill::Uniform, ReduceOp::Bxor, 3, vec![5]), [5]);
        assert_eq!(ints(Fill::Uniform, ReduceOp::Sum, 131_072, vec![5]), [655_360]);
        assert_eq!(ints(Fill::Uniform, ReduceOp::Sum, 3, vec![(1 << 53) + 1]), [3 * ((1 << 53) + 1)]);
    }

    #[test]
    fn zeros_and_nan() {
        let x = || vec![1.5, -2.0];
        assert_eq!(reduced(Fill::Zeros, ReduceOp::Sum, 4, x()), x());
        assert_eq!(reduced(Fill::Zeros, ReduceOp::Avg, 4, x()), [0.375, -0.5]);
        assert_eq!(reduced(Fill::Zeros, ReduceOp::Max, 4, x()), [1.5, 0.0]);
        assert_eq!(reduced(Fill::Zeros, ReduceOp::Min, 4, x()), [0.0, -2.0]);
        assert_eq!(reduced(Fill::Zeros, ReduceOp::Product, 4, x()), [0.0, 0.0]);
        assert_eq!(ints(Fill::Nan, ReduceOp::Avg, 4, vec![9, -9]), [2, -2]);
        assert!(reduced(Fill::Nan, ReduceOp::Min, 4, x()).iter().all(|x| x.is_nan()));
        assert_eq!(reduced(Fill::Nan, ReduceOp::Sum, 1, x()), x());
    }

    #[test]
    fn no_bitwise_and_of_floats() {
        let rules = Rules { fill: Fill::Zeros, rank: 0, size: 2 };
        let buffer = Buffer { dtype: Dtype::Float32, data: std::ptr::null_mut(), numel: 0 };
        // SAFETY: there are no elements.
        assert!(unsafe { combine(Op::plain(ReduceOp::Band), &rules, buffer) }.is_err());
    }
}
