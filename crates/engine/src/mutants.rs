//! Errors on purpose, to see whether the tests notice. Compiled only with the feature `mutants`, never for a release.
//!
//! `ALLRANKS_MUTANT=CHANGE:OPERATION` makes every operation of that kind a little wrong for the whole process:
//!
//! | change | what is wrong | where |
//! |---|---|---|
//! | `last` | the low byte of the last element of each result is one more (a bool is negated) | all ranks with a result |
//! | `first` | the same for the first element | all ranks with a result |
//! | `first-rank`, `last-rank` | as `last` | only the first, or last, member that has a result |
//! | `large` | as `last`, in results of at least [`LARGE`] bytes | all ranks with a result |
//! | `nothing` | no data is moved: results are what was there before | |
//! | `order` | a reduction in the order of ranks, not the backend's | reductions |
//! | `source` | each copy takes what the next copy of equal length should have taken | copies from several ranks |
//!
//! An operation is a name of [`OpKind`], `one-rank/` and such a name for what one-rank mode fills in, or `staging`:
//! the copy back to tensors that are not dense. A result that is empty stays as it is.

use std::sync::OnceLock;

use allranks_core::{Dtype, OpKind};
use allranks_numerics::Order;

use crate::Buf;
use crate::fake::{Buffer, Step};
use crate::world::Arrived;

#[cfg(not(debug_assertions))]
compile_error!("the feature `mutants` makes wrong results on purpose: it is not for release builds");

/// The name of the variable.
const VARIABLE: &str = "ALLRANKS_MUTANT";
/// From how many bytes on a result is large: enough for several threads' blocks.
pub const LARGE: usize = 1 << 20;

/// What is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The last element of each result.
    Last,
    /// The first element of each result.
    First,
    /// The last element of the first member's result.
    FirstRank,
    /// The last element of the last member's result.
    LastRank,
    /// The last element of each large result.
    Large,
    /// Nothing is done at all.
    Nothing,
    /// The order of a reduction.
    Order,
    /// Where copies come from.
    Source,
}

/// To what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An operation of all ranks; a message is a send.
    Ranks(OpKind),
    /// An operation of one-rank mode.
    OneRank(OpKind),
    /// The copy back to tensors that are not dense.
    Staging,
}

const CHANGES: [(&str, Change); 8] = [
    ("last", Change::Last),
    ("first", Change::First),
    ("first-rank", Change::FirstRank),
    ("last-rank", Change::LastRank),
    ("large", Change::Large),
    ("nothing", Change::Nothing),
    ("order", Change::Order),
    ("source", Change::Source),
];

fn parse(text: &str) -> Option<(Change, Target)> {
    let (change, target) = text.split_once(':')?;
    let change = CHANGES.iter().find(|(name, _)| *name == change)?.1;
    let target = match (target, target.strip_prefix("one-rank/")) {
        ("staging", _) => Target::Staging,
        (_, Some(kind)) => Target::OneRank(kind.parse().ok()?),
        (kind, None) => Target::Ranks(kind.parse().ok()?),
    };
    Some((change, target))
}

/// What is wrong in this process with `target`; `None` if nothing is.
///
/// # Panics
/// If the variable holds no mutant: a test run under it would show nothing.
pub fn change(target: Target) -> Option<Change> {
    static MUTANT: OnceLock<Option<(Change, Target)>> = OnceLock::new();
    let mutant = MUTANT.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
        Some(parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text} is no mutant")))
    });
    mutant.and_then(|(change, of)| (of == target).then_some(change))
}

fn of(kind: OpKind) -> Option<Change> {
    change(Target::Ranks(kind))
}

/// Whether the operation is left out.
pub(crate) fn skips(kind: OpKind) -> bool {
    of(kind) == Some(Change::Nothing)
}

/// The order to reduce in.
pub(crate) fn order(kind: OpKind, right: Order) -> Order {
    if of(kind) == Some(Change::Order) { Order::RankOrder } else { right }
}

/// Mixes up where copies come from.
pub(crate) fn redirect(kind: OpKind, copies: &mut [(Buf, Buf)]) {
    if of(kind) == Some(Change::Source) {
        for i in 1..copies.len() {
            if copies[i - 1].0.len() == copies[i].0.len() {
                let (left, right) = copies.split_at_mut(i);
                std::mem::swap(&mut left[i - 1].0, &mut right[0].0);
            }
        }
    }
}

/// Changes the results of an operation that was carried out.
pub(crate) fn spoil(all: &[Arrived]) {
    let kind = all[0].record.kind;
    let Some(change) = of(kind) else { return };
    let mut results: Vec<Vec<(Buf, Dtype)>> =
        all.iter().enumerate().map(|(i, a)| results(i, a)).filter(|bufs| !bufs.is_empty()).collect();
    match change {
        Change::FirstRank => results.truncate(1),
        Change::LastRank => drop(results.drain(..results.len().saturating_sub(1))),
        _ => {}
    }
    for (buf, dtype) in results.into_iter().flatten() {
        // SAFETY: by the promise of `Buf`, and the operation is not complete before we are done.
        unsafe { spoil_elements(change, buf.ptr(), buf.len() / dtype.size(), dtype) };
    }
}

/// Member `i`'s results, without empty ones.
fn results(i: usize, a: &Arrived) -> Vec<(Buf, Dtype)> {
    let record = &a.record;
    let is_root = record.root.is_some_and(|r| r.index() == i);
    let in_place = match record.kind {
        OpKind::AllReduce | OpKind::AllReduceCoalesced => true,
        OpKind::Reduce => is_root,
        OpKind::Broadcast => !is_root,
        _ => false,
    };
    let (bufs, metas) = if in_place { (&a.inputs, &record.inputs) } else { (&a.outputs, &record.outputs) };
    bufs.iter().zip(metas).filter(|(b, _)| !b.is_empty()).map(|(&b, m)| (b, m.dtype)).collect()
}

/// Changes `numel` elements at `data` after an operation.
///
/// # Safety
/// They are valid for reads and writes, and nobody else uses them meanwhile.
pub unsafe fn spoil_elements(change: Change, data: *mut u8, numel: usize, dtype: Dtype) {
    let at = match change {
        Change::First => 0,
        Change::Large if numel * dtype.size() < LARGE => return,
        Change::Last | Change::FirstRank | Change::LastRank | Change::Large => numel.saturating_sub(1),
        Change::Nothing | Change::Order | Change::Source => return,
    };
    if numel > 0 {
        // SAFETY: inside, by the promise of the caller. Numbers are stored low byte first.
        unsafe {
            let byte = data.add(at * dtype.size());
            *byte = if dtype == Dtype::Bool { *byte ^ 1 } else { byte.read().wrapping_add(1) };
        }
    }
}

/// Changes what the steps of one-rank mode wrote.
///
/// # Safety
/// As for [`crate::fake::run`].
pub unsafe fn spoil_steps(kind: OpKind, steps: &[Step], outs: &[Buffer]) {
    let Some(change) = change(Target::OneRank(kind)) else { return };
    for step in steps {
        let (Step::Reduce(to) | Step::Copy { to, .. } | Step::Peer(to)) = *step;
        let out = outs[to.tensor];
        // SAFETY: the part is inside, as `run` asserts; the rest is promised by the caller.
        unsafe { spoil_elements(change, out.data.add(to.start * out.dtype.size()), to.len, out.dtype) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_named_by_change_and_operation() {
        assert_eq!(parse("last:all_reduce"), Some((Change::Last, Target::Ranks(OpKind::AllReduce))));
        assert_eq!(parse("first:one-rank/recv"), Some((Change::First, Target::OneRank(OpKind::Recv))));
        assert_eq!(parse("nothing:staging"), Some((Change::Nothing, Target::Staging)));
        for wrong in ["last", "last:", "last:all_reduces", "off:all_reduce", "last:one-rank/"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_byte_is_changed() {
        let spoiled = |change, dtype, mut bytes: Vec<u8>| {
            // SAFETY: the elements are the vector's.
            unsafe { spoil_elements(change, bytes.as_mut_ptr(), bytes.len() / Dtype::size(dtype), dtype) };
            bytes
        };
        assert_eq!(spoiled(Change::Last, Dtype::Int16, vec![1, 2, 3, 4]), [1, 2, 4, 4]);
        assert_eq!(spoiled(Change::First, Dtype::Uint8, vec![255, 2]), [0, 2]);
        assert_eq!(spoiled(Change::FirstRank, Dtype::Bool, vec![0, 1]), [0, 0]);
        assert_eq!(spoiled(Change::Large, Dtype::Uint8, vec![7; 9]), [7; 9]);
        assert_eq!(spoiled(Change::Last, Dtype::Float64, Vec::new()), []);
    }
}
