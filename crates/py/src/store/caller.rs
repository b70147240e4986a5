//! Who waits for a store: a rank's thread, which hands the baton over, or any other.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use allranks_core::GlobalRank;
use allranks_sched::{Clock, TaskId, Wait, Wake};
use allranks_store::{Waiter, Waker};
use pyo3::prelude::*;

use crate::baton::{self, Current, Shared};

impl Waker for Shared {
    fn wake(&self, task: TaskId) {
        self.scheduler.wake(task);
    }
}

/// A thread of no rank: it waits in real time.
#[derive(Default)]
pub(super) struct OsThread {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Waker for OsThread {
    fn wake(&self, _task: TaskId) {
        *self.woken.lock().expect("never poisoned") = true;
        self.changed.notify_one();
    }
}

impl OsThread {
    /// Whether it was woken; short, so that signal handlers get their turn.
    fn wait_a_moment(&self) -> bool {
        let woken = self.woken.lock().expect("never poisoned");
        *self.changed.wait_timeout_while(woken, Duration::from_millis(20), |w| !*w).expect("never poisoned").0
    }
}

/// Whoever called.
pub(super) enum Caller<'py> {
    Rank(Python<'py>, Current),
    Other(Python<'py>, Arc<OsThread>, TaskId),
}

impl<'py> Caller<'py> {
    /// The thread that calls.
    pub(super) fn this(py: Python<'py>) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        /// Numbers for threads of no rank, far above those of tasks.
        static NEXT: AtomicU32 = AtomicU32::new(1 << 31);
        match baton::current() {
            Some(current) => Self::Rank(py, current),
            None => Self::Other(py, Arc::default(), TaskId(NEXT.fetch_add(1, Ordering::Relaxed))),
        }
    }
}

impl Waiter for Caller<'_> {
    type Stop = PyErr;

    fn task(&self) -> TaskId {
        match self {
            Self::Rank(_, current) => current.task,
            Self::Other(_, _, task) => *task,
        }
    }

    fn rank(&self) -> Option<GlobalRank> {
        match self {
            Self::Rank(_, current) => Some(current.rank),
            Self::Other(..) => None,
        }
    }

    fn waker(&self) -> Arc<dyn Waker> {
        match self {
            Self::Rank(_, current) => current.shared.clone(),
            Self::Other(_, thread, _) => thread.clone(),
        }
    }

    fn block(&mut self, deadline: Option<Duration>, limit: Option<Duration>) -> PyResult<Wake> {
        match self {
            Self::Rank(py, current) => {
                let scheduler = &current.shared.scheduler;
                // Nobody has to wait for a default that is long: with a real clock a stall is reported instead.
                let timeout = if scheduler.clock() == Clock::Virtual { limit } else { deadline };
                let wait = Wait { timeout, ..Wait::default() };
                let wake = current.settle(*py, scheduler.block(current.task, wait))?;
                if wake == Wake::TimedOut {
                    current.shared.expiring(*py, current.rank)?;
                }
                Ok(wake)
            }
            Self::Other(py, thread, _) => {
                let until = limit.map(|limit| Instant::now() + limit);
                loop {
                    if py.detach(|| thread.wait_a_moment()) {
                        return Ok(Wake::Ready);
                    }
                    py.check_signals()?;
                    if until.is_some_and(|at| at <= Instant::now()) {
                        return Ok(Wake::TimedOut);
                    }
                }
            }
        }
    }

    fn yield_now(&mut self) -> PyResult<()> {
        match self {
            Self::Rank(py, current) => current.settle(*py, current.shared.scheduler.poll(current.task, None)).map(drop),
            Self::Other(..) => Ok(()),
        }
    }
}
