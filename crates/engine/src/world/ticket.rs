//! A claim on the completion of one rank's part of an operation.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use allranks_core::{GroupRank, OpRecord};
use allranks_sched::TaskId;
use smallvec::SmallVec;

/// Says when an operation is complete. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Ticket(Arc<Claim>);

struct Claim {
    record: Arc<OpRecord>,
    done: AtomicBool,
    source: AtomicU32,
    waiters: Mutex<SmallVec<[TaskId; 1]>>,
    attachment: Mutex<Option<Box<dyn Any + Send>>>,
}

const NO_SOURCE: u32 = u32::MAX;

impl Ticket {
    pub(super) fn new(record: Arc<OpRecord>, attachment: Option<Box<dyn Any + Send>>) -> Self {
        Self(Arc::new(Claim {
            record,
            done: AtomicBool::new(false),
            source: AtomicU32::new(NO_SOURCE),
            waiters: Mutex::default(),
            attachment: Mutex::new(attachment),
        }))
    }

    /// The operation.
    pub fn record(&self) -> &Arc<OpRecord> {
        &self.0.record
    }

    /// Whether it is complete.
    pub fn is_done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    /// The sender, for a receive that is complete.
    pub fn source(&self) -> Option<GroupRank> {
        Some(self.0.source.load(Ordering::Acquire)).filter(|&s| s != NO_SOURCE).map(GroupRank)
    }

    /// What the issuer sent along for whoever completes the operation; once only.
    pub fn take_attachment(&self) -> Option<Box<dyn Any + Send>> {
        self.0.attachment.lock().expect("no thread panics while it holds a ticket").take()
    }

    /// Whether both are the same claim.
    pub fn is(&self, other: &Ticket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn set_source(&self, source: GroupRank) {
        self.0.source.store(source.0, Ordering::Release);
    }

    pub(super) fn add_waiter(&self, task: TaskId) {
        self.0.waiters.lock().expect("no thread panics while it holds a ticket").push(task);
    }

    pub(super) fn remove_waiter(&self, task: TaskId) {
        self.0.waiters.lock().expect("no thread panics while it holds a ticket").retain(|t| *t != task);
    }

    /// Marks it complete and returns who waits for it.
    pub(super) fn complete(&self) -> SmallVec<[TaskId; 1]> {
        self.0.done.store(true, Ordering::Release);
        std::mem::take(&mut *self.0.waiters.lock().expect("no thread panics while it holds a ticket"))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("kind", &self.0.record.kind)
            .field("rank", &self.0.record.rank)
            .field("done", &self.is_done())
            .finish()
    }
}
