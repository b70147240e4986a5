//! In which order the ranks' elements are combined.

use std::ops::Range;

use allranks_core::{OpKind, Profile};

/// gloo's default upper bound of one message of a ring, in bytes.
const MAX_SEGMENT_BYTES: usize = 1 << 20;

/// A named order of combination.
///
/// With `x[r]` the element of rank `r` at some index, `N` ranks, and indices of ranks taken mod `N`:
///
/// | order | result |
/// |---|---|
/// | gloo's | `x[j] ∘ (x[j-(N-1)] ∘ ( … (x[j-2] ∘ x[j-1])))`, where `j` is the chunk that holds the index |
/// | rank order | `x[N-1] ∘ ( … (x[1] ∘ x[0]))` |
///
/// The left operand is always the rank's own element and the right one what it received: it matters for NaN and for
/// the sign of zero in MIN and MAX. Elements of 16 and 8 bits are rounded after every `∘`.
///
/// gloo cuts the flat buffer into `N` chunks of `s` segments each, the last chunks shorter or empty. With `n` elements
/// and `M` elements in a mebibyte:
///
/// * [`Order::GlooAllReduce`]: `S = round_up(max(ceil(n / M), 2N), N)` segments of `ceil(n / S)` elements;
/// * [`Order::GlooReduce`]: segments of `g = min(ceil(n / 2N), M)` elements, `S = round_up(max(ceil(n / g), 2N), N)`
///   of them;
///
/// and a chunk is `S / N` segments. The two differ only above `2N` mebibytes.
///
/// Established by reading gloo's `allreduce.cc` and `reduce.cc`, and against hashes of what real gloo computes
/// (`data/golden.tsv`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// gloo's all_reduce; also its reduce_scatter in all forms, which is an all_reduce of which one part is kept.
    GlooAllReduce,
    /// gloo's reduce to a root.
    GlooReduce,
    /// Ascending ranks. Ours, for operations whose real order is not promised (NCCL). MIN and MAX skip NaN.
    RankOrder,
}

/// Where a run of elements lies in the flat buffer that an order speaks of.
///
/// | operation | flat buffer |
/// |---|---|
/// | all_reduce, reduce | the tensor |
/// | all_reduce_coalesced | all tensors of the call, one after the other |
/// | reduce_scatter of a list | each tensor of the list is one |
/// | reduce_scatter_tensor, one or several | each input tensor is one; rank `i` keeps its `i`-th part |
///
/// Units: elements of the dtype that is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Elements in the flat buffer.
    pub total: usize,
    /// Index of the run's first element.
    pub start: usize,
}

impl Place {
    /// A buffer of its own.
    pub const fn whole(total: usize) -> Self {
        Place { total, start: 0 }
    }

    /// Where the `numel` elements that rank `rank` keeps of a reduce_scatter lie.
    pub const fn of_scatter(kind: OpKind, ranks: usize, rank: usize, numel: usize) -> Self {
        match kind {
            OpKind::ReduceScatter => Place::whole(numel),
            _ => Place { total: ranks * numel, start: rank * numel },
        }
    }

    /// The run that starts at `start` in a flat buffer of `total` elements.
    pub const fn part(total: usize, start: usize) -> Self {
        Place { total, start }
    }
}

impl Order {
    /// The order that `profile` uses for `kind`; `None` if `kind` reduces nothing, or is the sparse all_reduce, which
    /// is a sum of sparse tensors in rank order made by torch itself.
    pub const fn of(profile: Profile, kind: OpKind) -> Option<Order> {
        if !kind.is_reduction() || matches!(kind, OpKind::AllReduceSparse) {
            return None;
        }
        Some(match (profile, kind) {
            (Profile::Nccl, _) => Order::RankOrder,
            (Profile::Gloo, OpKind::Reduce) => Order::GlooReduce,
            (Profile::Gloo, _) => Order::GlooAllReduce,
        })
    }

    /// Elements per chunk (one chunk per rank) of a buffer of `total` elements of `size` bytes; at least 1.
    pub fn chunk_len(self, total: usize, ranks: usize, size: usize) -> usize {
        let total = total.max(1);
        let max_segment = (MAX_SEGMENT_BYTES / size).max(1);
        let round_up = |segments: usize| segments.max(2 * ranks).next_multiple_of(ranks);
        match self {
            Order::GlooAllReduce => {
                let segments = round_up(total.div_ceil(max_segment));
                segments / ranks * total.div_ceil(segments)
            }
            Order::GlooReduce => {
                let segment = total.div_ceil(2 * ranks).min(max_segment);
                round_up(total.div_ceil(segment)) / ranks * segment
            }
            Order::RankOrder => total,
        }
    }

    /// The rank whose element is the `step`-th to be combined (0 first) in chunk `chunk`.
    #[inline]
    pub fn rank_at(self, chunk: usize, step: usize, ranks: usize) -> usize {
        match self {
            Order::GlooAllReduce | Order::GlooReduce => (chunk + 2 * ranks - 1 - step) % ranks,
            Order::RankOrder => step,
        }
    }

    /// Cuts `range` (indices in the flat buffer) where the chunk changes: `(chunk, indices)`, ascending.
    pub(crate) fn chunks(chunk_len: usize, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let chunk = at / chunk_len;
            let end = ((chunk + 1) * chunk_len).min(range.end);
            let piece = at..end;
            at = end;
            Some((chunk, piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_descends_and_ends_at_its_own_rank() {
        let ranks = |chunk| (0..4).map(|step| Order::GlooAllReduce.rank_at(chunk, step, 4)).collect::<Vec<_>>();
        assert_eq!(ranks(0), [3, 2, 1, 0]);
        assert_eq!(ranks(2), [1, 0, 3, 2]);
    }

    #[test]
    fn chunks_are_two_segments_while_small() {
        assert_eq!(Order::GlooAllReduce.chunk_len(10, 4, 4), 4);
        assert_eq!(Order::GlooReduce.chunk_len(10, 4, 4), 4);
        assert_eq!(Order::GlooAllReduce.chunk_len(0, 4, 4), 2);
        assert_eq!(Order::RankOrder.chunk_len(10, 4, 4), 10);
    }

    #[test]
    fn the_two_rings_part_ways_above_two_mebibytes_a_rank() {
        let mib = (1 << 20) / 4;
        // 4.5 MiB on two ranks: five and a bit messages, rounded up to six.
        let total = 9 * mib / 2;
        assert_eq!(Order::GlooAllReduce.chunk_len(total, 2, 4), 3 * total.div_ceil(6));
        assert_eq!(Order::GlooReduce.chunk_len(total, 2, 4), 3 * mib);
    }

    #[test]
    fn pieces_cover_the_range_once() {
        let pieces: Vec<_> = Order::chunks(4, 3..13).collect();
        assert_eq!(pieces, [(0, 3..4), (1, 4..8), (2, 8..12), (3, 12..13)]);
        assert_eq!(Order::chunks(4, 5..5).count(), 0);
    }
}
