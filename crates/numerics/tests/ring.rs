//! Against a literal simulation of gloo's ring: every rank, every segment, every message, one after the other.

use allranks_core::{Dtype, ReduceOp};
use allranks_numerics::{Order, Place, Reduction, all_reduce, reduce_into};
use half::{bf16, f16};
use proptest::prelude::*;

/// An element as the simulation computes with it: independent of the crate's own types.
trait Number: Copy + PartialOrd + std::fmt::Debug {
    const DTYPE: Dtype;
    fn from_seed(seed: i32) -> Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn bits(self) -> u64;
}

macro_rules! number {
    ($t:ty, $dtype:ident, $from:expr, $bits:expr, $add:expr, $mul:expr) => {
        impl Number for $t {
            const DTYPE: Dtype = Dtype::$dtype;
            fn from_seed(seed: i32) -> Self {
                $from(seed)
            }
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }
            fn mul(self, other: Self) -> Self {
                $mul(self, other)
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
        }
    };
}

/// A number whose magnitude varies over 2^-12 to 2^12.
fn float(seed: i32) -> f32 {
    (seed % 1000) as f32 / 7.0 * 2f32.powi((seed / 1000) % 12)
}

number!(f32, Float32, float, |x: f32| u64::from(x.to_bits()), |a, b| a + b, |a, b| a * b);
number!(f16, Float16, |s| f16::from_f32(float(s) / 64.0), |x: f16| u64::from(x.to_bits()), |a, b| a + b, |a, b| a * b);
number!(bf16, Bfloat16, |s| bf16::from_f32(float(s)), |x: bf16| u64::from(x.to_bits()), |a, b| a + b, |a, b| a * b);
number!(i8, Int8, |s| s as i8, |x: i8| u64::from(x as u8), i8::wrapping_add, i8::wrapping_mul);

fn combine<T: Number>(op: ReduceOp, own: T, received: T) -> T {
    match op {
        ReduceOp::Sum => own.add(received),
        ReduceOp::Product => own.mul(received),
        ReduceOp::Min => {
            if received < own {
                received
            } else {
                own
            }
        }
        ReduceOp::Max => {
            if own < received {
                received
            } else {
                own
            }
        }
        other => panic!("no simulation of {other}"),
    }
}

/// gloo's all_reduce on small buffers: what is left in each rank's buffer.
fn simulate<T: Number>(op: ReduceOp, mut ranks: Vec<Vec<T>>) -> Vec<Vec<T>> {
    let n = ranks.len();
    let len = ranks[0].len();
    if n == 1 || len == 0 {
        return ranks;
    }
    let (segments, per_rank) = (2 * n, 2);
    let size = len.div_ceil(segments);
    let range = |segment: usize| (segment % segments * size).min(len)..(segment % segments * size + size).min(len);
    // Reduce-scatter: each sends to the rank before it and receives from the rank after it.
    for i in 0..segments - per_rank {
        let sent: Vec<Vec<T>> = (0..n).map(|r| ranks[r][range((r + 1) * per_rank + i)].to_vec()).collect();
        for r in 0..n {
            let at = range((r + 2) * per_rank + i);
            for (own, &received) in ranks[r][at].iter_mut().zip(&sent[(r + 1) % n]) {
                *own = combine(op, *own, received);
            }
        }
    }
    // All-gather: the same way round.
    for i in 0..segments - per_rank {
        let sent: Vec<Vec<T>> = (0..n).map(|r| ranks[r][range(r * per_rank + i)].to_vec()).collect();
        for r in 0..n {
            ranks[r][range((r + 1) * per_rank + i)].copy_from_slice(&sent[(r + 1) % n]);
        }
    }
    ranks
}

fn check<T: Number>(op: ReduceOp, n: usize, len: usize, seeds: &[i32]) -> Result<(), TestCaseError> {
    let seed = |r: usize, i: usize| seeds[(r * 31 + i * 7) % seeds.len()].wrapping_add((r * 13 + i) as i32);
    let inputs: Vec<Vec<T>> = (0..n).map(|r| (0..len).map(|i| T::from_seed(seed(r, i))).collect()).collect();
    let expected = simulate(op, inputs.clone());
    let how = Reduction::new(Order::GlooAllReduce, op, T::DTYPE);

    let mut ours = inputs.clone();
    let bufs: Vec<*mut u8> = ours.iter_mut().map(|x| x.as_mut_ptr().cast()).collect();
    // SAFETY: each buffer holds `len` elements of the dtype.
    unsafe { all_reduce(how, Place::whole(len), &bufs, len) }.expect("supported");
    let bits = |x: &[Vec<T>]| x.iter().map(|v| v.iter().map(|e| e.bits()).collect()).collect::<Vec<Vec<u64>>>();
    prop_assert_eq!(bits(&ours), bits(&expected));

    // Any part of it, out of place.
    let start = len / 3;
    let mut part = inputs[0][start..].to_vec();
    let from: Vec<*const u8> = inputs.iter().map(|x| x[start..].as_ptr().cast()).collect();
    // SAFETY: each input holds `len - start` elements from `start` on, and so does `part`.
    unsafe { reduce_into(how, Place::part(len, start), &from, part.as_mut_ptr().cast(), len - start) }
        .expect("supported");
    prop_assert_eq!(bits(&[part]), bits(&[expected[0][start..].to_vec()]));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    #[test]
    fn equals_the_simulated_ring(
        n in 1usize..=16,
        len in 0usize..70,
        op in prop::sample::select(vec![ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max]),
        seeds in prop::collection::vec(-1_000_000i32..1_000_000, 1..40),
    ) {
        check::<f32>(op, n, len, &seeds)?;
        check::<f16>(op, n, len, &seeds)?;
        check::<bf16>(op, n, len, &seeds)?;
        check::<i8>(op, n, len, &seeds)?;
    }
}
