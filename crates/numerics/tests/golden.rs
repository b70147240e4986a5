//! Hashes made by real gloo (`tests/oracle/make_golden.py`), against ours.

use allranks_core::{Dtype, OpKind, Profile, ReduceOp};
use allranks_numerics::{Order, Place, Reduction, all_reduce, reduce_into};

const MIB: usize = 1 << 20;
const GOLDEN: &str = include_str!("../data/golden.tsv");

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn counter(seed: u64, i: u64) -> u64 {
    mix(seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn hash(data: &[u8]) -> u64 {
    data.iter()
        .enumerate()
        .fold(0u64, |h, (i, &b)| h.wrapping_add((u64::from(b) + 1).wrapping_mul(counter(0, i as u64))))
}

/// The bytes that the generator's `make` puts into a tensor.
fn make(dtype: Dtype, data: &str, seed: u64, n: usize) -> Vec<u8> {
    let (size, parts, keep, put): (usize, usize, u64, u64) = match dtype {
        Dtype::Float64 => (8, 1, 0x83ff_ffff_ffff_ffff, 960 << 52),
        Dtype::Complex128 => (8, 2, 0x83ff_ffff_ffff_ffff, 960 << 52),
        Dtype::Float32 => (4, 1, 0x9fff_ffff, 64 << 23),
        Dtype::Complex64 => (4, 2, 0x9fff_ffff, 64 << 23),
        Dtype::Float16 => (2, 1, 0xbfff, 0),
        Dtype::Complex32 => (2, 2, 0xbfff, 0),
        Dtype::Bfloat16 => (2, 1, 0x9fff, 64 << 7),
        Dtype::Bool => (1, 1, 1, 0),
        other => (other.size(), 1, u64::MAX, 0),
    };
    let whole = data == "bits" && dtype != Dtype::Bool;
    let words = (0..(n * parts) as u64).map(|i| counter(seed, i));
    words
        .flat_map(|w| {
            let w = if whole { w } else { w & keep | put };
            w.to_le_bytes().into_iter().take(size)
        })
        .collect()
}

struct Row<'a> {
    ranks: usize,
    kind: &'a str,
    dtype: Dtype,
    op: ReduceOp,
    data: &'a str,
    hash: u64,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    GOLDEN.lines().skip(2).map(|line| {
        let f: Vec<_> = line.split('\t').collect();
        let [ranks, kind, dtype, op, data, hash] = f[..] else { panic!("malformed row {line:?}") };
        Row {
            ranks: ranks.parse().expect("a number"),
            kind,
            dtype: dtype.parse().expect("a dtype"),
            op: op.parse().expect("an op"),
            data,
            hash: u64::from_str_radix(hash, 16).expect("a hash"),
        }
    })
}

fn sizes(row: &Row<'_>) -> Vec<usize> {
    let n = row.ranks;
    if row.data == "big" {
        let size = row.dtype.size();
        let whole = [2 * n * MIB / size, 9 * n * MIB / (2 * size) + 1];
        return whole.map(|w| if row.kind == "reduce_scatter_tensor" { w / n } else { w }).to_vec();
    }
    let mut sizes = vec![0, 1, 2, 3, n - 1, n, n + 1, 2 * n + 1, 4 * n + 3, 257];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The outputs of all ranks that have one, in order of ranks.
fn outputs(row: &Row<'_>, n: usize) -> Vec<Vec<u8>> {
    let Row { ranks, kind, dtype, op, data, .. } = *row;
    let size = dtype.size();
    let inputs = |elements: usize, which: u64| -> Vec<Vec<u8>> {
        let seed = |rank: usize| (rank * 1_000_003 + n * 17) as u64 + which * 7_919;
        (0..ranks).map(|rank| make(dtype, data, seed(rank), elements)).collect()
    };
    let order = |kind| Order::of(Profile::Gloo, kind).expect("a reduction");
    let in_place = |called: OpKind, tensors: &mut [Vec<u8>], place: Place, elements: usize| {
        let bufs: Vec<_> = tensors.iter_mut().map(|t| t.as_mut_ptr()).collect();
        let how = Reduction::new(order(OpKind::AllReduce), op, dtype).copied(called, 3);
        // SAFETY: each buffer holds `elements` elements.
        unsafe { all_reduce(how, place, &bufs, elements) }.expect("supported");
    };
    let scatter = |called: OpKind, elements: usize, which: u64| -> Vec<Vec<u8>> {
        let inputs = inputs(elements * ranks, which);
        let how = Reduction::new(order(called), op, dtype).copied(called, 1);
        let part = |rank: usize| {
            let mut out = vec![0; elements * size];
            let start = rank * elements;
            let from: Vec<_> = inputs.iter().map(|x| x[start * size..].as_ptr()).collect();
            let place = Place::of_scatter(called, ranks, rank, elements);
            // SAFETY: each input holds `elements` elements from `start` on, and so does `out`.
            unsafe { reduce_into(how, place, &from, out.as_mut_ptr(), elements) }.expect("supported");
            out
        };
        (0..ranks).map(part).collect()
    };
    match kind {
        "all_reduce" => {
            let mut tensors = inputs(n, 0);
            in_place(OpKind::AllReduce, &mut tensors, Place::whole(n), n);
            tensors
        }
        "all_reduce_coalesced" => {
            let total = 2 * n + 4;
            let mut all = vec![Vec::new(); ranks];
            for (which, elements, start) in [(0, n, 0), (1, 3, n), (2, n + 1, n + 3)] {
                let mut tensors = inputs(elements, which);
                in_place(OpKind::AllReduceCoalesced, &mut tensors, Place::part(total, start), elements);
                all.iter_mut().zip(tensors).for_each(|(a, t)| a.extend(t));
            }
            all
        }
        "reduce_first" | "reduce_last" => {
            let inputs = inputs(n, 0);
            let mut out = vec![0; n * size];
            let from: Vec<_> = inputs.iter().map(|x| x.as_ptr()).collect();
            let how = Reduction::new(order(OpKind::Reduce), op, dtype);
            // SAFETY: all hold `n` elements.
            unsafe { reduce_into(how, Place::whole(n), &from, out.as_mut_ptr(), n) }.expect("supported");
            vec![out]
        }
        "reduce_scatter" => scatter(OpKind::ReduceScatter, n, 0),
        "reduce_scatter_tensor" => scatter(OpKind::ReduceScatterSingle, n, 0),
        "reduce_scatter_coalesced" => {
            let second = scatter(OpKind::ReduceScatterCoalesced, n + 1, 1);
            scatter(OpKind::ReduceScatterCoalesced, n, 0)
                .into_iter()
                .zip(second)
                .map(|(a, b)| [a, b].concat())
                .collect()
        }
        other => panic!("unknown kind {other}"),
    }
}

#[test]
fn equals_gloo_bit_for_bit() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in rows() {
        let mut h = 0;
        for n in sizes(&row) {
            for out in outputs(&row, n) {
                h = mix(h ^ hash(&out));
            }
        }
        count += 1;
        if h != row.hash {
            wrong.push(format!("{} {} {} {} {}", row.ranks, row.kind, row.dtype, row.op, row.data));
        }
    }
    assert!(count > 0, "the golden file is empty");
    assert!(wrong.is_empty(), "{} of {count} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
