//! Who of one store waits for which key, so that a change wakes only those it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allranks_sched::TaskId;

use crate::data::Data;
use crate::waiter::Waker;

/// What must come true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// `wait`: each of these keys was there once; queues count.
    Keys(BTreeSet<String>),
    /// `get`: this key has a value.
    Value(String),
    /// `queue_pop`: this queue has an item.
    Item(String),
    /// `barrier`: the number under this key reaches that.
    Count(String, i64),
    /// `wait_for_workers`: that many came.
    Workers(i64),
}

impl Need {
    /// The keys that it hangs on; none for workers.
    pub fn keys(&self) -> Vec<String> {
        match self {
            Need::Keys(keys) => keys.iter().cloned().collect(),
            Need::Value(key) | Need::Item(key) | Need::Count(key, _) => vec![key.clone()],
            Need::Workers(_) => Vec::new(),
        }
    }
}

struct Entry {
    task: TaskId,
    waker: Arc<dyn Waker>,
    need: Need,
}

/// Those to wake once the store's lock is released.
pub(crate) type Woken = Vec<(TaskId, Arc<dyn Waker>)>;

/// In the order of arrival.
#[derive(Default)]
pub(crate) struct Waiters {
    entries: BTreeMap<u64, Entry>,
    by_key: BTreeMap<String, BTreeSet<u64>>,
    next: u64,
}

impl Waiters {
    /// A number for [`remove`](Self::remove).
    pub fn add(&mut self, task: TaskId, waker: Arc<dyn Waker>, need: Need) -> u64 {
        let seq = self.next;
        self.next += 1;
        for key in need.keys() {
            self.by_key.entry(key).or_default().insert(seq);
        }
        self.entries.insert(seq, Entry { task, waker, need });
        seq
    }

    /// Nothing if it was woken.
    pub fn remove(&mut self, seq: u64) {
        let Some(entry) = self.entries.remove(&seq) else { return };
        for key in entry.need.keys() {
            self.forget(&key, seq);
        }
    }

    fn forget(&mut self, key: &str, seq: u64) {
        if let Some(seqs) = self.by_key.get_mut(key) {
            seqs.remove(&seq);
            if seqs.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    fn wake(&mut self, seq: u64, woken: &mut Woken) {
        if let Some(entry) = self.entries.get(&seq) {
            woken.push((entry.task, entry.waker.clone()));
            self.remove(seq);
        }
    }

    /// The value of `key` changed.
    pub fn changed(&mut self, key: &str, data: &Data, woken: &mut Woken) {
        for seq in self.by_key.get(key).cloned().unwrap_or_default() {
            let Some(entry) = self.entries.get_mut(&seq) else { continue };
            let (met, struck_off) = match &mut entry.need {
                Need::Keys(keys) => {
                    keys.remove(key);
                    (keys.is_empty(), true)
                }
                Need::Value(key) => (data.get(key).is_some(), false),
                Need::Count(key, at_least) => (data.count(key) >= *at_least, false),
                Need::Item(_) | Need::Workers(_) => (false, false),
            };
            if struck_off {
                self.forget(key, seq);
            }
            if met {
                self.wake(seq, woken);
            }
        }
    }

    /// An item was pushed to the queue `key`: one of those who pop is woken, and all who wait for the key.
    pub fn pushed(&mut self, key: &str, data: &Data, woken: &mut Woken) {
        let seqs = self.by_key.get(key).cloned().unwrap_or_default();
        let pops = |seq: &u64| self.entries.get(seq).is_some_and(|e| matches!(e.need, Need::Item(_)));
        if let Some(first) = seqs.iter().copied().find(pops) {
            self.wake(first, woken);
        }
        self.changed(key, data, woken);
    }

    /// One more worker came.
    pub fn joined(&mut self, data: &Data, woken: &mut Woken) {
        let met = |e: &Entry| matches!(e.need, Need::Workers(at_least) if data.workers >= at_least);
        let seqs: Vec<u64> = self.entries.iter().filter(|(_, e)| met(e)).map(|(&seq, _)| seq).collect();
        for seq in seqs {
            self.wake(seq, woken);
        }
    }
}
