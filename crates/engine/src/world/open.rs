//! Messages that a rank has not waited for, counted by the line that issued them.
//!
//! A program may issue messages for ever and never wait; what is kept grows with its lines only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allranks_core::{GroupId, OpKind, OpRecord};

/// Group, kind, line, function, file.
type Key = (GroupId, OpKind, u32, Arc<str>, Arc<str>);

/// Messages of one line.
#[derive(Debug)]
pub(super) struct Line {
    first: Arc<OpRecord>,
    open: AtomicU64,
}

/// Those of one rank.
#[derive(Debug, Default)]
pub(super) struct OpenMessages(BTreeMap<Key, Arc<Line>>);

fn key(op: &OpRecord) -> Key {
    let (line, function, file) = match &op.site {
        Some(site) => (site.line, site.function.clone(), site.file.clone()),
        None => (0, "".into(), "".into()),
    };
    (op.group, op.kind, line, function, file)
}

impl OpenMessages {
    /// Counts one; give what it returns to [`waited`](Self::waited).
    pub fn add(&mut self, op: &Arc<OpRecord>) -> Arc<Line> {
        let fresh = || Arc::new(Line { first: op.clone(), open: AtomicU64::new(0) });
        let line = self.0.entry(key(op)).or_insert_with(fresh);
        line.open.fetch_add(1, Ordering::Relaxed);
        line.clone()
    }

    /// The program waited for one.
    pub fn waited(&mut self, line: &Arc<Line>) {
        if line.open.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let key = key(&line.first);
        // After `forgive_sends` the line may have a new count.
        if self.0.get(&key).is_some_and(|here| Arc::ptr_eq(here, line)) {
            self.0.remove(&key);
        }
    }

    /// The rank can know that its sends have arrived.
    pub fn forgive_sends(&mut self) {
        self.0.retain(|(_, kind, ..), _| *kind != OpKind::Send);
    }

    /// The first of each line that has open ones.
    pub fn left(&self) -> Vec<Arc<OpRecord>> {
        self.0.values().map(|line| line.first.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use allranks_core::{CallSite, GlobalRank, Seq};
    use smallvec::SmallVec;

    use super::*;

    fn op(kind: OpKind, line: u32) -> Arc<OpRecord> {
        Arc::new(OpRecord {
            rank: GlobalRank(0),
            group: GroupId(0),
            seq: Seq(0),
            kind,
            reduce_op: None,
            root: None,
            tag: None,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            input_splits: Vec::new(),
            output_splits: Vec::new(),
            members: Vec::new(),
            is_async: true,
            site: Some(CallSite { file: "a.py".into(), line, function: "f".into() }),
        })
    }

    #[test]
    fn what_is_kept_does_not_grow_with_the_messages() {
        let mut open = OpenMessages::default();
        let lines: Vec<_> = (0..1000).map(|i| open.add(&op(OpKind::Recv, i % 3))).collect();
        assert_eq!(open.left().len(), 3);
        lines.iter().for_each(|line| open.waited(line));
        assert!(open.left().is_empty());
    }

    #[test]
    fn a_forgiven_send_does_not_count_against_a_later_one() {
        let mut open = OpenMessages::default();
        let early = open.add(&op(OpKind::Send, 1));
        open.add(&op(OpKind::Recv, 2));
        open.forgive_sends();
        assert_eq!(open.left().len(), 1);
        let late = open.add(&op(OpKind::Send, 1));
        open.waited(&early);
        assert_eq!(open.left().len(), 2);
        open.waited(&late);
        assert_eq!(open.left().len(), 1);
    }
}
