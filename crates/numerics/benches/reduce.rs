//! `all_reduce` over 8 ranks against a plain copy of the same bytes.
//!
//! The copy reads each input once and writes each output once, as `all_reduce` must.

#![expect(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use allranks_core::{Dtype, ReduceOp};
use allranks_numerics::{Order, Place, Reduction, all_reduce};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const RANKS: usize = 8;

/// Eight buffers of `bytes` bytes whose elements are finite in every dtype and stay so under addition.
fn buffers(bytes: usize) -> Vec<Vec<u8>> {
    (0..RANKS).map(|_| vec![0u8; bytes]).collect()
}

fn bench_all_reduce(c: &mut Criterion, name: &str, bytes: usize, cases: &[(Dtype, ReduceOp)]) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Bytes((RANKS * bytes) as u64));
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    let mut from = buffers(bytes);
    let mut to = buffers(bytes);
    group.bench_function("copy", |b| {
        b.iter(|| {
            for (from, to) in from.iter().zip(&mut to) {
                black_box(&mut *to).copy_from_slice(black_box(from));
            }
        });
    });
    drop(to);
    let pointers: Vec<_> = from.iter_mut().map(|x| x.as_mut_ptr()).collect();
    for &(dtype, op) in cases {
        let how = Reduction::new(Order::GlooAllReduce, op, dtype);
        let numel = bytes / dtype.size();
        group.bench_function(BenchmarkId::new(op.name(), dtype), |b| {
            b.iter(|| {
                // SAFETY: each buffer holds `numel` elements and is ours.
                unsafe { all_reduce(how, Place::whole(numel), black_box(&pointers), numel) }.expect("supported");
            });
        });
    }
    group.finish();
}

fn benches(c: &mut Criterion) {
    let all = [
        (Dtype::Float32, ReduceOp::Sum),
        (Dtype::Float32, ReduceOp::Max),
        (Dtype::Float32, ReduceOp::Avg),
        (Dtype::Bfloat16, ReduceOp::Sum),
        (Dtype::Float16, ReduceOp::Sum),
        (Dtype::Int64, ReduceOp::Sum),
    ];
    bench_all_reduce(c, "64MiB", 64 << 20, &all);
    bench_all_reduce(c, "1MiB", 1 << 20, &all[..1]);
    bench_all_reduce(c, "64KiB", 64 << 10, &all[..1]);
    bench_all_reduce(c, "1KiB", 1 << 10, &all);
}

criterion_group!(reduce, benches);
criterion_main!(reduce);
