//! Aliasing, alignment, threads and one-rank answers.

use allranks_core::{Dtype, ReduceOp};
use allranks_numerics::{Order, Place, Reduction, UNIFORM_EXACT, all_reduce, reduce_into, supported, uniform};

fn floats(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % 10_007) as f32 * 1.1 - 5000.0).collect()
}

fn sum(dtype: Dtype) -> Reduction {
    Reduction::new(Order::GlooAllReduce, ReduceOp::Sum, dtype)
}

fn reduced(how: Reduction, inputs: &[Vec<f32>]) -> Vec<f32> {
    let n = inputs[0].len();
    let mut out = vec![0f32; n];
    let from: Vec<*const u8> = inputs.iter().map(|x| x.as_ptr().cast()).collect();
    // SAFETY: all hold `n` floats.
    unsafe { reduce_into(how, Place::whole(n), &from, out.as_mut_ptr().cast(), n) }.expect("supported");
    out
}

#[test]
fn threads_change_nothing() {
    let n = if cfg!(miri) { 100 } else { 300_001 };
    let inputs: Vec<_> = (0..4).map(|r| floats(n, r)).collect();
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(|| reduced(sum(Dtype::Float32), &inputs))
    };
    assert_eq!(with(1), with(3));
}

#[test]
fn two_ranks_may_share_a_buffer() {
    let n = if cfg!(miri) { 50 } else { 100_000 };
    let (mut a, mut b) = (floats(n, 1), floats(n, 2));
    let expected = reduced(sum(Dtype::Float32), &[a.clone(), b.clone(), a.clone()]);
    let (pa, pb) = (a.as_mut_ptr().cast::<u8>(), b.as_mut_ptr().cast::<u8>());
    // SAFETY: both hold `n` floats.
    unsafe { all_reduce(sum(Dtype::Float32), Place::whole(n), &[pa, pb, pa], n) }.expect("supported");
    assert_eq!(a, expected);
    assert_eq!(b, expected);
}

#[test]
fn overlapping_buffers_stay_within_themselves() {
    let n = if cfg!(miri) { 40 } else { 100_000 };
    let mut whole = vec![1f32; n + 3];
    whole[n + 2] = 7.0;
    let p = whole.as_mut_ptr();
    // SAFETY: the second buffer starts one float later; both lie within `whole`.
    let bufs: [*mut u8; 2] = unsafe { [p.cast(), p.add(1).cast()] };
    // SAFETY: both hold `n` floats within `whole`.
    unsafe { all_reduce(sum(Dtype::Float32), Place::whole(n), &bufs, n) }.expect("supported");
    assert_eq!(whole[n + 2], 7.0);
    assert_eq!(whole[0], 2.0);
}

#[test]
fn alignment_is_not_needed() {
    let inputs = [floats(9, 1), floats(9, 2)];
    let expected = reduced(sum(Dtype::Float32), &inputs);
    let mut bytes: Vec<Vec<u8>> =
        inputs.iter().map(|x| [0u8].into_iter().chain(x.iter().flat_map(|f| f.to_ne_bytes())).collect()).collect();
    let bufs: Vec<*mut u8> = bytes.iter_mut().map(|b| b[1..].as_mut_ptr()).collect();
    // SAFETY: 36 bytes follow each pointer.
    unsafe { all_reduce(sum(Dtype::Float32), Place::whole(9), &bufs, 9) }.expect("supported");
    let got: Vec<f32> =
        bytes[0][1..].chunks_exact(4).map(|c| f32::from_ne_bytes(c.try_into().expect("four bytes"))).collect();
    assert_eq!(got, expected);
}

#[test]
fn nothing_to_do_is_fine() {
    // SAFETY: there are no elements.
    unsafe {
        all_reduce(sum(Dtype::Float32), Place::whole(0), &[], 5).expect("no ranks");
        all_reduce(sum(Dtype::Float32), Place::whole(0), &[std::ptr::null_mut()], 0).expect("no elements");
    }
}

#[test]
fn what_is_refused_is_untouched() {
    let mut x = [1i64, 2];
    let how = Reduction::new(Order::GlooAllReduce, ReduceOp::Avg, Dtype::Int64);
    let p = x.as_mut_ptr().cast();
    // SAFETY: `x` holds two elements.
    let error = unsafe { all_reduce(how, Place::whole(2), &[p, p], 2) }.expect_err("gloo has no such average");
    assert_eq!(error.to_string(), "no avg of int64 in GlooAllReduce");
    assert_eq!(x, [1, 2]);
    supported(Reduction { order: Order::RankOrder, ..how }).expect("NCCL has it");
}

fn uniform_f32(op: ReduceOp, ranks: usize, x: f32) -> f32 {
    let mut y = x;
    let how = Reduction::new(Order::GlooAllReduce, op, Dtype::Float32);
    // SAFETY: `y` is one float.
    unsafe { uniform(how, ranks, (&raw mut y).cast(), 1) }.expect("supported");
    y
}

fn uniform_i8(op: ReduceOp, ranks: usize, x: i8) -> i8 {
    let mut y = x;
    let how = Reduction::new(Order::GlooAllReduce, op, Dtype::Int8);
    // SAFETY: `y` is one byte.
    unsafe { uniform(how, ranks, (&raw mut y).cast(), 1) }.expect("supported");
    y
}

#[test]
fn uniform_ranks_equal_that_many_real_ones() {
    for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
        for ranks in [1, 2, 3, 7, UNIFORM_EXACT] {
            let how = Reduction::new(Order::GlooAllReduce, op, Dtype::Float32);
            let expected = reduced(how, &vec![vec![1.1f32]; ranks]);
            assert_eq!(uniform_f32(op, ranks, 1.1), expected[0], "{op} {ranks}");
        }
    }
}

#[test]
fn uniform_ranks_without_number_cost_one_operation() {
    assert_eq!(uniform_f32(ReduceOp::Sum, 4096, 1.1), 1.1 * 4096.0);
    assert_eq!(uniform_f32(ReduceOp::Product, 100, 2.0), 2f32.powi(100));
    assert_eq!(uniform_f32(ReduceOp::Avg, 4096, 1.1), 1.1);
    assert_eq!(uniform_f32(ReduceOp::Max, 4096, 1.1), 1.1);
    for ranks in [1usize, 2, 63, 65, 200, 257] {
        let wrapped = (0..ranks).fold(0i8, |acc, _| acc.wrapping_add(77));
        assert_eq!(uniform_i8(ReduceOp::Sum, ranks, 77), wrapped);
        let wrapped = (0..ranks).fold(1i8, |acc, _| acc.wrapping_mul(77));
        assert_eq!(uniform_i8(ReduceOp::Product, ranks, 77), wrapped);
        assert_eq!(uniform_i8(ReduceOp::Bxor, ranks, 77), if ranks % 2 == 0 { 0 } else { 77 });
        assert_eq!(uniform_i8(ReduceOp::Band, ranks, 77), 77);
    }
}

#[test]
fn nccl_orders_sum_bools_as_or_and_premultiply() {
    let mut bools = [1u8, 0];
    let p = bools.as_mut_ptr();
    let how = Reduction::new(Order::RankOrder, ReduceOp::Sum, Dtype::Bool);
    // SAFETY: two bytes.
    unsafe { all_reduce(how, Place::whole(2), &[p, p], 2) }.expect("supported");
    assert_eq!(bools, [1, 0]);
    let inputs = [vec![1f32, 2.0], vec![10.0, 20.0]];
    let how = Reduction::new(Order::RankOrder, ReduceOp::PremulSum, Dtype::Float32).with_factor(0.5);
    assert_eq!(reduced(how, &inputs), [5.5, 11.0]);
}
