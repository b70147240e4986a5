//! The loop: blocks of elements, each folded over the ranks while it lies in the first-level cache.
//!
//! Every input is read once and every output written once. A block's result is complete before any of its outputs is
//! written, so outputs may be inputs. Elements are independent, so cutting into blocks, and blocks among threads,
//! changes no bit.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::kernel::Kernel;
use crate::order::{Order, Place};
use crate::threads;

/// Elements in a block: 16 KiB of f64.
const BLOCK: usize = 2048;
/// Bytes read from which on threads are used: some 50 us of work for one, several times what waking them costs.
/// An estimate; no sweep was made.
const PARALLEL_BYTES: usize = 1 << 20;
/// Elements that a thread takes at a time.
const PIECE: usize = 16 * BLOCK;

/// The inputs and outputs of one call, as raw memory.
///
/// Invariant, taken over from the caller of the public functions: every input is readable and every output writable
/// for the whole call at all indices that are folded, and nobody else writes to them.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a> {
    pub(crate) inputs: &'a [*const u8],
    pub(crate) outputs: &'a [*mut u8],
}

// SAFETY: the pointers are only followed in `fold`, whose pieces for different threads are disjoint ranges of indices;
// `fold` uses threads only if no two buffers overlap without being the same.
unsafe impl Sync for Buffers<'_> {}
// SAFETY: as above.
unsafe impl Send for Buffers<'_> {}

impl Buffers<'_> {
    /// No two buffers of `bytes` bytes overlap unless they start at the same address.
    fn same_or_apart(&self, bytes: usize) -> bool {
        let mut starts: Vec<usize> = self.inputs.iter().map(|p| p.addr()).collect();
        starts.extend(self.outputs.iter().map(|p| p.addr()));
        starts.sort_unstable();
        starts.dedup();
        starts.windows(2).all(|pair| pair[1] - pair[0] >= bytes)
    }
}

/// Folds `len` elements, which lie at `place`, over all inputs into all outputs.
///
/// # Safety
/// The invariant of [`Buffers`] holds for `len` elements of `K::Stored`, and any bit pattern is a `K::Stored`.
pub(crate) unsafe fn fold<K: Kernel>(kernel: K, order: Order, place: Place, buffers: Buffers<'_>, len: usize) {
    let bytes = len * size_of::<K::Stored>();
    let worth_it = len > PIECE && bytes * buffers.inputs.len() >= PARALLEL_BYTES && buffers.same_or_apart(bytes);
    let Some(threads) = worth_it.then(threads::available).flatten() else {
        // SAFETY: passed on from the caller.
        return unsafe { fold_range(kernel, order, place, buffers, 0..len) };
    };
    threads.run(|| {
        (0..len.div_ceil(PIECE)).into_par_iter().for_each(|piece| {
            let range = piece * PIECE..((piece + 1) * PIECE).min(len);
            // SAFETY: passed on from the caller; the ranges of different pieces are disjoint.
            unsafe { fold_range(kernel, order, place, buffers, range) };
        });
    });
}

/// # Safety
/// As for [`fold`], for the indices in `range`.
unsafe fn fold_range<K: Kernel>(kernel: K, order: Order, place: Place, buffers: Buffers<'_>, range: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the rest is passed on from the caller.
        return unsafe { fold_range_avx2(kernel, order, place, buffers, range) };
    }
    // SAFETY: passed on from the caller.
    unsafe { fold_range_plain(kernel, order, place, buffers, range) }
}

/// The same code, compiled for wider registers. No operation is fused: Rust never contracts `a * b + c`.
///
/// # Safety
/// As for [`fold_range`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_range_avx2<K: Kernel>(kernel: K, order: Order, place: Place, buffers: Buffers<'_>, range: Range<usize>) {
    // SAFETY: passed on from the caller.
    unsafe { fold_range_plain(kernel, order, place, buffers, range) }
}

/// # Safety
/// As for [`fold_range`].
#[inline(always)]
unsafe fn fold_range_plain<K: Kernel>(
    kernel: K,
    order: Order,
    place: Place,
    buffers: Buffers<'_>,
    range: Range<usize>,
) {
    let ranks = buffers.inputs.len();
    let chunk_len = order.chunk_len(place.total, ranks, size_of::<K::Stored>());
    let mut acc = [const { MaybeUninit::<K::Acc>::uninit() }; BLOCK];
    let mut result = [const { MaybeUninit::<K::Stored>::uninit() }; BLOCK];
    for (chunk, piece) in Order::chunks(chunk_len, place.start + range.start..place.start + range.end) {
        let end = piece.end - place.start;
        let mut at = piece.start - place.start;
        while at < end {
            let len = BLOCK.min(end - at);
            let acc = &mut acc[..len];
            let result = &mut result[..len];
            // SAFETY: `at..at + len` lies within the range that the caller vouches for.
            let input =
                |step: usize| unsafe { buffers.inputs[order.rank_at(chunk, step, ranks)].cast::<K::Stored>().add(at) };
            // SAFETY: each input is readable for `len` elements.
            unsafe {
                if fold_block::<K, true>(kernel, ranks, input, acc, result) {
                    fold_block::<K, false>(kernel, ranks, input, acc, result);
                }
            }
            // SAFETY: all of `result` was written above; `MaybeUninit<T>` is laid out as `T`.
            let result = unsafe { &mut *(result as *mut [MaybeUninit<K::Stored>] as *mut [K::Stored]) };
            kernel.patch(result, place.start + at, place.total);
            for output in buffers.outputs {
                // SAFETY: the output is writable for these elements, and `result` is our own memory. Copied as bytes,
                // so its alignment does not matter.
                unsafe {
                    let to = output.add(at * size_of::<K::Stored>());
                    to.copy_from_nonoverlapping(result.as_ptr().cast(), size_of_val(result));
                }
            }
            at += len;
        }
    }
}

/// Folds one block into `result`, writing all of it. True if `QUICK` and a result is doubtful.
///
/// # Safety
/// `input(step)` is readable for as many elements as `acc` and `result` have, for each step below `ranks`.
#[inline(always)]
unsafe fn fold_block<K: Kernel, const QUICK: bool>(
    kernel: K,
    ranks: usize,
    input: impl Fn(usize) -> *const K::Stored,
    acc: &mut [MaybeUninit<K::Acc>],
    result: &mut [MaybeUninit<K::Stored>],
) -> bool {
    let step = |own, acc| if QUICK { kernel.quick_step(own, acc) } else { kernel.step(own, acc) };
    let mut doubtful = false;
    // SAFETY: reads are within the inputs; `acc` is written in full by the first loop before it is read.
    unsafe {
        if ranks == 1 {
            let only = input(0);
            for (i, result) in result.iter_mut().enumerate() {
                result.write(kernel.alone(only.add(i).read_unaligned()));
            }
            return false;
        }
        let first = input(0);
        for (i, acc) in acc.iter_mut().enumerate() {
            acc.write(kernel.load(first.add(i).read_unaligned()));
        }
        // Two ranks at a time: half as much traffic between the accumulator and the cache.
        let mut at = 1;
        while at + 2 < ranks {
            let (one, two) = (input(at), input(at + 1));
            for (i, acc) in acc.iter_mut().enumerate() {
                let next = step(one.add(i).read_unaligned(), acc.assume_init());
                acc.write(step(two.add(i).read_unaligned(), next));
            }
            at += 2;
        }
        if at + 1 < ranks {
            let own = input(at);
            for (i, acc) in acc.iter_mut().enumerate() {
                acc.write(step(own.add(i).read_unaligned(), acc.assume_init()));
            }
        }
        let own = input(ranks - 1);
        for (i, (acc, result)) in acc.iter().zip(result.iter_mut()).enumerate() {
            let last = kernel.store(step(own.add(i).read_unaligned(), acc.assume_init()));
            doubtful |= QUICK && kernel.doubtful(last);
            result.write(last);
        }
    }
    doubtful
}
