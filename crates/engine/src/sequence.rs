//! How gloo counts operations.

use allranks_core::{GroupRank, OpKind};

/// By how much the sequence number of a member of a group of `size` grows with an operation on `tensors` tensors, as
/// measured on torch 2.15: messages count too; a reduce_scatter of lists is a reduce for each member, a coalesced one an
/// operation for each tensor; a monitored barrier is a message to and from rank 0. NCCL counts collectives.
pub(crate) fn gloo_steps(kind: OpKind, tensors: u64, size: u64, me: GroupRank) -> u64 {
    match kind {
        OpKind::NewGroup => 0,
        OpKind::ReduceScatter => size,
        OpKind::ReduceScatterCoalesced => tensors,
        OpKind::MonitoredBarrier if me == GroupRank(0) => 2 * size.saturating_sub(1),
        OpKind::MonitoredBarrier => 2,
        _ => 1,
    }
}
