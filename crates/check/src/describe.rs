//! Operations in words.

use std::fmt::Write;

use allranks_core::{Location, OpKind, OpRecord, RankSet, TensorMeta};

/// One operation in words: `all_reduce sum float32 (4,)`, `send float32 (2,) to group rank 1, tag 3`.
pub fn describe(op: &OpRecord) -> String {
    let mut text = op.shown_kind().name().to_owned();
    if let Some(reduce_op) = op.reduce_op {
        write!(text, " {reduce_op}").expect("writing to a string");
    }
    let tensors: &[TensorMeta] = if op.inputs.is_empty() { &op.outputs } else { &op.inputs };
    if let Some((first, rest)) = tensors.split_first() {
        write!(text, " {first}").expect("writing to a string");
        if !rest.is_empty() {
            if rest.iter().all(|t| t == first) {
                write!(text, " x {}", tensors.len()).expect("writing to a string");
            } else {
                for t in rest.iter().take(7) {
                    write!(text, ", {t}").expect("writing to a string");
                }
                if rest.len() > 7 {
                    write!(text, ", ... ({} tensors)", tensors.len()).expect("writing to a string");
                }
            }
        }
    }
    match (op.kind, op.root) {
        (OpKind::Send, Some(peer)) => write!(text, " to group rank {peer}"),
        (OpKind::Recv, Some(peer)) => write!(text, " from group rank {peer}"),
        (OpKind::Recv, None) => write!(text, " from any rank"),
        (_, Some(root)) => write!(text, ", root {root}"),
        (_, None) => Ok(()),
    }
    .expect("writing to a string");
    if let Some(tag) = op.tag.filter(|t| t.0 != 0) {
        write!(text, ", tag {tag}").expect("writing to a string");
    }
    if !op.input_splits.is_empty() || !op.output_splits.is_empty() {
        write!(text, ", sends {:?}, expects {:?}", op.input_splits, op.output_splits).expect("writing to a string");
    }
    if op.kind == OpKind::NewGroup {
        let members: RankSet = op.members.iter().copied().collect();
        write!(text, " of {}", members.noun()).expect("writing to a string");
    }
    text
}

/// Where an operation was issued, if that is known.
pub(crate) fn location(op: &OpRecord) -> Option<Location> {
    let site = op.site.clone()?;
    Some(Location { rank: op.rank, site, what: describe(op) })
}
