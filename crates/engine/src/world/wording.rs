//! What gloo says when a wait of its own ends without the other side.
//!
//! Measured on gloo of torch 2.15; where more than one rank is missing, or the missing one is no neighbour, which of the
//! two words comes is a race in gloo and a choice here. gloo puts the path and the line of its source before the text,
//! and a port behind `[127.0.0.1]`; these are left out.

use std::time::Duration;

use allranks_core::{GroupRank, OpKind, OpRecord};

/// The rank's own wait timed out before: gloo closes all its connections of that group.
pub(super) const BROKEN: &str = "Application timeout caused pair closure";

/// The other side's wait timed out, or its process is gone.
pub(super) const CLOSED: &str = "[gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]. This is typically \
                                 caused by a remote worker crashing. Check the logs of the remote worker before \
                                 reporting an error.";

/// The wait of member `me` of `size` for an operation timed out after `limit` because members were `absent`.
pub(super) fn timed_out(
    op: &OpRecord,
    me: GroupRank,
    size: usize,
    absent: &[GroupRank],
    limit: Option<Duration>,
) -> String {
    let word = if sends(op.kind, op.root == Some(me), me.index(), size, absent) { "send" } else { "recv" };
    let millis = limit.unwrap_or_default().as_millis();
    format!("[gloo/transport/tcp/unbound_buffer.cc] Timed out waiting {millis}ms for {word} operation to complete")
}

/// Whether it was a send that found no taker.
fn sends(kind: OpKind, is_root: bool, me: usize, size: usize, absent: &[GroupRank]) -> bool {
    let gone = |rank: usize| absent.iter().any(|a| a.index() == rank % size);
    let (left, right) = (me + size - 1, me + 1);
    match kind {
        OpKind::Send | OpKind::AllToAll | OpKind::AllToAllSingle => true,
        OpKind::Recv | OpKind::NewGroup | OpKind::MonitoredBarrier => false,
        OpKind::Broadcast | OpKind::Scatter => is_root,
        OpKind::Gather => !is_root,
        // Rings that receive from the right and send to the left.
        OpKind::AllReduce
        | OpKind::AllReduceCoalesced
        | OpKind::Reduce
        | OpKind::ReduceScatter
        | OpKind::ReduceScatterSingle
        | OpKind::ReduceScatterCoalesced => !gone(right) && gone(left),
        // Rings that send to the right and receive from the left.
        OpKind::AllGather | OpKind::AllGatherSingle | OpKind::AllGatherCoalesced | OpKind::AllReduceSparse => {
            gone(right)
        }
        // Receives from 1, 2, 4... to the left, sends as far to the right, one step after the other.
        OpKind::Barrier => std::iter::successors(Some(1), |d| Some(d * 2))
            .take_while(|&d| d < size)
            .find_map(|d| if gone(me + size - d) { Some(false) } else { gone(me + d).then_some(true) })
            .unwrap_or(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(kind: OpKind, is_root: bool, me: usize, size: usize) -> &'static str {
        let absent = [GroupRank(size as u32 - 1)];
        if sends(kind, is_root, me, size, &absent) { "send" } else { "recv" }
    }

    /// What real gloo said, the last rank being late: with 2 ranks, and rank 0 and 1 of 3.
    #[test]
    fn as_measured() {
        for (kind, root, two, zero, one) in [
            (OpKind::AllReduce, 9, "recv", "send", "recv"),
            (OpKind::Reduce, 0, "recv", "send", "recv"),
            (OpKind::ReduceScatterSingle, 9, "recv", "send", "recv"),
            (OpKind::AllGather, 9, "send", "recv", "send"),
            (OpKind::Barrier, 9, "recv", "recv", "send"),
            (OpKind::AllToAllSingle, 9, "send", "send", "send"),
            (OpKind::Scatter, 9, "recv", "recv", "recv"),
            (OpKind::Gather, 9, "send", "send", "send"),
            (OpKind::Broadcast, 9, "recv", "recv", "recv"),
        ] {
            let said = [says(kind, root == 0, 0, 2), says(kind, root == 0, 0, 3), says(kind, root == 1, 1, 3)];
            assert_eq!(said, [two, zero, one], "{kind}");
        }
        for (kind, two) in [(OpKind::Broadcast, "send"), (OpKind::Scatter, "send"), (OpKind::Gather, "recv")] {
            assert_eq!(says(kind, true, 0, 2), two, "{kind} at its root");
        }
    }
}
