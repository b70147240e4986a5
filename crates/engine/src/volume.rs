//! How many bytes an operation would put on the wire.

use allranks_core::{Bytes, OpKind, OpRecord};

/// The bytes that the issuing rank would send in a group of `size` members, by the usual algorithms: a ring for
/// all_reduce (`2 (N-1) / N` of its input), all_gather (its input to `N-1` others) and reduce_scatter (`(N-1) / N` of
/// its input); everything but its own part for all_to_all and scatter; its input once otherwise. A root's broadcast
/// counts `N-1` times, a receiver's nothing.
pub fn bytes_moved(op: &OpRecord, size: u64, group_rank: u32) -> Bytes {
    let input: u64 = op.inputs.iter().map(|t| t.bytes().0).sum();
    let others = size.saturating_sub(1);
    let is_root = op.root.is_some_and(|r| r.0 == group_rank);
    Bytes(match op.kind {
        OpKind::AllReduce | OpKind::AllReduceCoalesced | OpKind::AllReduceSparse => 2 * input * others / size.max(1),
        OpKind::AllGather | OpKind::AllGatherSingle | OpKind::AllGatherCoalesced => input * others,
        OpKind::ReduceScatter
        | OpKind::ReduceScatterSingle
        | OpKind::ReduceScatterCoalesced
        | OpKind::AllToAll
        | OpKind::AllToAllSingle => input * others / size.max(1),
        OpKind::Broadcast => {
            if is_root {
                input * others
            } else {
                0
            }
        }
        OpKind::Scatter => input * others / size.max(1),
        OpKind::Reduce | OpKind::Gather => {
            if is_root {
                0
            } else {
                input
            }
        }
        OpKind::Send => input,
        OpKind::Recv | OpKind::Barrier | OpKind::MonitoredBarrier | OpKind::NewGroup => 0,
    })
}
