//! A claim on the completion of one rank's part of an operation.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use allranks_core::{GroupRank, OpRecord};
use allranks_sched::{Deadline, TaskId};
use smallvec::SmallVec;

use super::open::Line;

/// Says when an operation is complete. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Ticket(Arc<Claim>);

struct Claim {
    record: Arc<OpRecord>,
    done: AtomicBool,
    source: AtomicU32,
    waiters: Mutex<SmallVec<[TaskId; 1]>>,
    attachment: Mutex<Option<Box<dyn Any + Send>>>,
    timing: Mutex<Timing>,
    failure: OnceLock<Failed>,
    /// Of a message that the program has not waited for.
    open: Mutex<Option<Arc<Line>>>,
}

#[derive(Clone, Copy, Default)]
struct Timing {
    limit: Option<Duration>,
    deadline: Option<Deadline>,
}

struct Failed {
    text: Arc<str>,
    absent: Vec<GroupRank>,
}

const NO_SOURCE: u32 = u32::MAX;

impl Ticket {
    pub(super) fn new(record: Arc<OpRecord>, attachment: Option<Box<dyn Any + Send>>, limit: Option<Duration>) -> Self {
        Self(Arc::new(Claim {
            record,
            done: AtomicBool::new(false),
            source: AtomicU32::new(NO_SOURCE),
            waiters: Mutex::default(),
            attachment: Mutex::new(attachment),
            timing: Mutex::new(Timing { limit, deadline: None }),
            failure: OnceLock::new(),
            open: Mutex::default(),
        }))
    }

    /// The operation.
    pub fn record(&self) -> &Arc<OpRecord> {
        &self.0.record
    }

    /// Whether it is over: complete or failed.
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

    /// Why it failed, if it did: the text of the exception.
    pub fn failure(&self) -> Option<&Arc<str>> {
        self.0.failure.get().map(|failed| &failed.text)
    }

    /// Who had not come when it failed.
    pub(super) fn absent(&self) -> Option<&[GroupRank]> {
        self.0.failure.get().map(|failed| failed.absent.as_slice())
    }

    fn timing(&self) -> Timing {
        *self.0.timing.lock().expect("no thread panics while it holds a ticket")
    }

    /// The time-out that counts for it.
    pub fn limit(&self) -> Option<Duration> {
        self.timing().limit
    }

    /// When its time is over.
    pub fn deadline(&self) -> Option<Deadline> {
        self.timing().deadline
    }

    pub(super) fn set_deadline(&self, deadline: Deadline, limit: Duration) {
        let mut timing = self.0.timing.lock().expect("no thread panics while it holds a ticket");
        *timing = Timing { limit: Some(limit), deadline: Some(deadline) };
    }

    pub(super) fn set_open(&self, line: Arc<Line>) {
        *self.0.open.lock().expect("no thread panics while it holds a ticket") = Some(line);
    }

    pub(super) fn take_open(&self) -> Option<Arc<Line>> {
        self.0.open.lock().expect("no thread panics while it holds a ticket").take()
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

    /// Marks it failed and returns who waits for it.
    pub(super) fn fail(&self, text: Arc<str>, absent: Vec<GroupRank>) -> SmallVec<[TaskId; 1]> {
        // A message may fail again, by a later wait; the first reason stays.
        let _ = self.0.failure.set(Failed { text, absent });
        self.complete()
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
