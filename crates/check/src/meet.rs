//! Operations that met: do they agree?

use std::fmt::Debug;
use std::sync::Arc;

use allranks_core::{Finding, FindingId, OpKind, OpRecord, RankSet, Severity, TensorMeta};
use indexmap::IndexMap;

use crate::DEFINITE;
use crate::describe::{describe, location};

/// Checks the operations that members of one group issued at the same position, in the order of group ranks. Not all
/// members need to have come. `None`: they agree.
///
/// What must agree, in this order of precedence: kind; number of tensors; dtypes; reduce op; root; shapes (as torch's
/// own `TORCH_DISTRIBUTED_DEBUG=DETAIL` does, equal element counts are not enough); splits.
pub fn meeting(group: &Arc<str>, ops: &[&OpRecord]) -> Option<Finding> {
    let (first, others) = ops.split_first()?;
    if others.iter().all(|op| alike(first, op)) {
        return None;
    }
    let found = differing(FindingId::KindMismatch, "kind", ops, |op| op.kind).or_else(|| match first.kind {
        OpKind::Barrier | OpKind::MonitoredBarrier | OpKind::AllReduceSparse => {
            differing(FindingId::ReduceOpMismatch, "reduce op", ops, |op| op.reduce_op)
        }
        OpKind::NewGroup => differing(FindingId::GroupMismatch, "members of the new group", ops, |op| {
            op.members.iter().copied().collect::<RankSet>()
        }),
        OpKind::Scatter => rooted(ops).or_else(|| scatter(ops)),
        OpKind::ReduceScatter => common(ops).or_else(|| per_member(ops)),
        OpKind::AllToAll => all_to_all(ops),
        OpKind::AllToAllSingle => all_to_all_single(ops),
        _ => rooted(ops).or_else(|| common(ops)),
    })?;
    Some(found.finish(group, ops))
}

/// The common case, without a look at details: everybody brings the same to an operation whose members play like parts.
fn alike(a: &OpRecord, b: &OpRecord) -> bool {
    !matches!(a.kind, OpKind::Scatter | OpKind::ReduceScatter | OpKind::AllToAll | OpKind::AllToAllSingle)
        && a.kind == b.kind
        && a.reduce_op == b.reduce_op
        && a.root == b.root
        && a.inputs == b.inputs
        && a.members == b.members
        && (!a.inputs.is_empty() || a.outputs == b.outputs)
}

/// Checks a send against the receive that it met, both of one group.
pub fn message(group: &Arc<str>, send: &OpRecord, recv: &OpRecord) -> Option<Finding> {
    let ops = [send, recv];
    let (sent, received) = (send.inputs.first()?, recv.outputs.first()?);
    let (id, text) = if sent.dtype != received.dtype {
        (FindingId::DtypeMismatch, format!("a message of {} is received as {}", sent.dtype, received.dtype))
    } else if sent.shape.numel() != received.shape.numel() {
        (FindingId::ShapeMismatch, format!("a message of shape {} is received as {}", sent.shape, received.shape))
    } else {
        return None;
    };
    let found = Found { id, text, ranks: ops.iter().map(|op| op.rank).collect() };
    Some(found.finish(group, &ops))
}

struct Found {
    id: FindingId,
    text: String,
    ranks: RankSet,
}

impl Found {
    fn finish(self, group: &Arc<str>, ops: &[&OpRecord]) -> Finding {
        let first = ops[0];
        let hints = match self.id {
            FindingId::ShapeMismatch | FindingId::SplitMismatch => {
                vec!["exchange sizes first, or pad to the largest".to_owned()]
            }
            FindingId::GroupMismatch => vec![
                "every rank of the parent group must call new_group in the same order with the same ranks, members or \
                 not; or pass use_local_synchronization=True and call it on members only"
                    .to_owned(),
            ],
            FindingId::KindMismatch => {
                vec!["look for a collective under a condition that differs between ranks".to_owned()]
            }
            _ => Vec::new(),
        };
        Finding {
            id: self.id,
            severity: Severity::Error,
            headline: format!("{} {} on group {group}: {}", first.shown_kind(), position(first), self.text),
            ranks: self.ranks,
            group: Some(group.clone()),
            op: Some(first.shown_kind()),
            seq: Some(first.seq),
            locations: ops.iter().filter_map(|op| location(op)).collect(),
            hints,
            rule: DEFINITE.to_owned(),
        }
    }
}

fn position(op: &OpRecord) -> String {
    format!("#{}", op.seq)
}

/// Groups the ranks by `key`; if there is more than one key, blames the smallest side, or all on a tie.
fn differing<'a, K: std::hash::Hash + Eq + Debug>(
    id: FindingId,
    what: &str,
    ops: &[&'a OpRecord],
    key: impl Fn(&'a OpRecord) -> K,
) -> Option<Found> {
    let mut sides: IndexMap<K, Vec<&OpRecord>> = IndexMap::new();
    for op in ops {
        sides.entry(key(op)).or_default().push(op);
    }
    if sides.len() < 2 {
        return None;
    }
    let largest = sides.values().map(Vec::len).max().expect("not empty");
    let winners = sides.values().filter(|s| s.len() == largest).count();
    let blamed = sides.values().filter(|s| winners > 1 || s.len() < largest).flatten();
    let ranks: RankSet = blamed.map(|op| op.rank).collect();
    let texts: Vec<String> = sides
        .values()
        .map(|side| {
            let who: RankSet = side.iter().map(|op| op.rank).collect();
            format!("{} {}", who.noun(), describe(side[0]))
        })
        .collect();
    Some(Found { id, text: format!("{what} disagrees: {}", texts.join("; ")), ranks })
}

fn rooted(ops: &[&OpRecord]) -> Option<Found> {
    differing(FindingId::RootMismatch, "root", ops, |op| op.root)
}

/// What ranks bring: of equal number, dtype, reduce op and shape.
fn common(ops: &[&OpRecord]) -> Option<Found> {
    fn brought(op: &OpRecord) -> &[TensorMeta] {
        if op.inputs.is_empty() { &op.outputs } else { &op.inputs }
    }
    differing(FindingId::CountMismatch, "number of tensors", ops, |op| brought(op).len())
        .or_else(|| {
            differing(FindingId::DtypeMismatch, "dtype", ops, |op| {
                brought(op).iter().map(|t| t.dtype).collect::<Vec<_>>()
            })
        })
        .or_else(|| differing(FindingId::ReduceOpMismatch, "reduce op", ops, |op| op.reduce_op))
        .or_else(|| {
            differing(FindingId::ShapeMismatch, "shape", ops, |op| {
                brought(op).iter().map(|t| &t.shape).collect::<Vec<_>>()
            })
        })
}

fn one_pair(id: FindingId, a: &OpRecord, b: &OpRecord, text: String) -> Option<Found> {
    Some(Found { id, text, ranks: [a.rank, b.rank].into_iter().collect() })
}

/// The root's i-th tensor is member i's output.
fn scatter(ops: &[&OpRecord]) -> Option<Found> {
    let root = ops.iter().find(|op| !op.inputs.is_empty())?;
    for (op, part) in ops.iter().zip(&root.inputs).filter(|_| ops.len() == root.inputs.len()) {
        let Some(out) = op.outputs.first() else { continue };
        if out.dtype != part.dtype {
            let text = format!("rank {} sends {part} to rank {}, which expects {out}", root.rank, op.rank);
            return one_pair(FindingId::DtypeMismatch, root, op, text);
        }
        if out.shape.numel() != part.shape.numel() {
            let text = format!("rank {} sends {part} to rank {}, which expects {out}", root.rank, op.rank);
            return one_pair(FindingId::ShapeMismatch, root, op, text);
        }
    }
    None
}

/// reduce_scatter's i-th inputs and member i's output have as many elements.
fn per_member(ops: &[&OpRecord]) -> Option<Found> {
    for (i, member) in ops.iter().enumerate() {
        let Some(out) = member.outputs.first() else { continue };
        for op in ops {
            let Some(part) = op.inputs.get(i).filter(|p| p.shape.numel() != out.shape.numel()) else { continue };
            let text = format!("rank {} brings {part} for rank {}, which expects {out}", op.rank, member.rank);
            return one_pair(FindingId::ShapeMismatch, op, member, text);
        }
    }
    None
}

fn all_to_all(ops: &[&OpRecord]) -> Option<Found> {
    for (i, sender) in ops.iter().enumerate() {
        for (j, receiver) in ops.iter().enumerate() {
            let (Some(sent), Some(expected)) = (sender.inputs.get(j), receiver.outputs.get(i)) else { continue };
            let text =
                || format!("rank {} sends {sent} to rank {}, which expects {expected}", sender.rank, receiver.rank);
            if sent.dtype != expected.dtype {
                return one_pair(FindingId::DtypeMismatch, sender, receiver, text());
            }
            if sent.shape.numel() != expected.shape.numel() {
                return one_pair(FindingId::SplitMismatch, sender, receiver, text());
            }
        }
    }
    None
}

fn all_to_all_single(ops: &[&OpRecord]) -> Option<Found> {
    if let Some(found) = differing(FindingId::DtypeMismatch, "dtype", ops, |op| op.inputs.first().map(|t| t.dtype)) {
        return Some(found);
    }
    for (i, sender) in ops.iter().enumerate() {
        for (j, receiver) in ops.iter().enumerate() {
            let (Some(sent), Some(expected)) = (sender.input_splits.get(j), receiver.output_splits.get(i)) else {
                continue;
            };
            if sent != expected {
                let text = format!(
                    "rank {} sends {sent} elements to rank {}, which expects {expected}",
                    sender.rank, receiver.rank
                );
                return one_pair(FindingId::SplitMismatch, sender, receiver, text);
            }
        }
    }
    None
}
