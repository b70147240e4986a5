//! Who waits for what, over all stores of a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use allranks_core::GlobalRank;
use allranks_sched::TaskId;

use crate::Patience;

/// One task that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub task: TaskId,
    /// Whose; `None` for a thread that belongs to no rank.
    pub rank: Option<GlobalRank>,
    /// Where: `TCPStore localhost:29500`.
    pub store: Arc<str>,
    /// The operation: `get`, `wait`, `multi_get`, `queue_pop`, `barrier`, `connect`, `wait_for_workers`.
    pub operation: &'static str,
    /// For what: the keys still missing, in full, prefixes included.
    pub keys: Vec<String>,
    /// For how long.
    pub patience: Patience,
}

/// The list of those who wait, in the order of tasks. Cheap to clone: all clones are one board.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<TaskId, Waiting>>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, Waiting>> {
        self.0.lock().expect("no thread panics while it holds the board")
    }

    /// Everybody who waits now.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn put(&self, waiting: Waiting) {
        self.lock().insert(waiting.task, waiting);
    }

    pub(crate) fn remove(&self, task: TaskId) {
        self.lock().remove(&task);
    }
}
