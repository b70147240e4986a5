//! The scheduler as Python sees it: who runs, on which thread, and what is swapped when another rank's turn comes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allranks_core::GlobalRank;
use allranks_sched::{Clock, Handoff, OwnerId, Random, RoundRobin, Scheduler, Switch, TaskId, TaskState, Wait, Wake};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::swap::Swapper;

pyo3::create_exception!(
    allranks._allranks,
    RankAborted,
    pyo3::exceptions::PyBaseException,
    "Ends a rank because the run cannot go on. Not an Exception, so that `except Exception` lets it pass."
);

/// Nobody's state is in place: the program has not started.
const NOBODY: u32 = u32::MAX;

/// Everything that rank threads share.
pub(crate) struct Shared {
    pub scheduler: Arc<Scheduler>,
    swapper: Option<Py<Swapper>>,
    /// Called, with the baton held, when nobody can go on. Must call `abort`.
    on_stall: Py<PyAny>,
    /// Called with a rank and None, the baton held, when a wait of the rank is about to time out; then with the rank
    /// and the text that it gets, unless the engine knows that.
    on_expiry: Option<Py<PyAny>>,
    /// Whose state is in place.
    in_place: AtomicU32,
    /// The number by which Python knows the thread of a task.
    idents: Mutex<BTreeMap<TaskId, u64>>,
}

impl Shared {
    /// A wait of `rank` is about to time out; the program has not been told.
    pub fn expiring(&self, py: Python<'_>, rank: GlobalRank) -> PyResult<()> {
        self.on_expiry.as_ref().map_or(Ok(()), |call| call.call1(py, (rank.0, py.None())).map(drop))
    }

    /// It is told now, with this text.
    pub fn expired(&self, py: Python<'_>, rank: GlobalRank, text: &str) -> PyResult<()> {
        self.on_expiry.as_ref().map_or(Ok(()), |call| call.call1(py, (rank.0, text)).map(drop))
    }

    /// Every task whose thread has come, with that thread's number.
    pub fn threads(&self) -> BTreeMap<TaskId, u64> {
        self.idents.lock().expect("never poisoned").clone()
    }
}

/// The task of the current thread.
#[derive(Clone)]
pub(crate) struct Current {
    pub shared: Arc<Shared>,
    pub task: TaskId,
    pub rank: GlobalRank,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The task of this thread, if it belongs to a rank.
pub(crate) fn current() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// A forked child is no rank: its only thread goes on without a baton.
#[pyfunction]
pub(crate) fn forget_current_task() {
    FORKED.store(true, Ordering::Relaxed);
    CURRENT.set(None);
}

/// Whether this process was forked from one with ranks. No other thread of the parent exists here, and whatever lock one
/// of them held stays locked: the scheduler must not be touched.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Task and rank of this thread, or None.
#[pyfunction]
pub(crate) fn current_task() -> Option<(u32, u32)> {
    CURRENT.with_borrow(|c| c.as_ref().map(|c| (c.task.0, c.rank.0)))
}

/// The rank that this thread belongs to, or None.
#[pyfunction]
pub(crate) fn current_rank() -> Option<u32> {
    CURRENT.with_borrow(|c| c.as_ref().map(|c| c.rank.0))
}

impl Current {
    /// Carries out a hand-over. Waits without the interpreter; back again, puts this rank's state in place.
    ///
    /// # Errors
    /// [`RankAborted`] if the run was aborted meanwhile, or whatever a swap raised.
    pub fn settle(&self, py: Python<'_>, handoff: Handoff<'_>) -> PyResult<Wake> {
        let wake = match handoff {
            Handoff::Continue(wake) => wake,
            Handoff::Park(switch) => self.park(py, switch)?,
            Handoff::Stalled => {
                self.shared.on_stall.call0(py)?;
                Wake::Aborted
            }
        };
        if wake == Wake::Aborted { Err(aborted()) } else { Ok(wake) }
    }

    fn park(&self, py: Python<'_>, switch: Switch<'_>) -> PyResult<Wake> {
        let wake = py.detach(|| switch.go());
        self.swap_in(py)?;
        Ok(wake)
    }

    /// Puts this rank's state in place if another's is.
    fn swap_in(&self, py: Python<'_>) -> PyResult<()> {
        let before = self.shared.in_place.swap(self.rank.0, Ordering::Relaxed);
        match &self.shared.swapper {
            Some(swapper) if before != self.rank.0 => {
                let out = (before != NOBODY).then_some(before as usize);
                swapper.get().swap_ranks(py, out, Some(self.rank.index()))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn aborted() -> PyErr {
    RankAborted::new_err("the run was aborted")
}

/// Seconds as Python gives them; `None` and negative numbers wait for ever.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(s) if s < 0.0 => Ok(None),
        Some(s) => Duration::try_from_secs_f64(s).map(Some).map_err(|e| PyValueError::new_err(e.to_string())),
    }
}

/// Lets exactly one thread of all ranks run; see the crate `allranks-sched`.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct Baton {
    pub shared: Arc<Shared>,
}

#[pymethods]
impl Baton {
    /// `schedule` is "round-robin" or "random"; `seed` serves the latter. `clock` is "real" or "virtual". `on_stall()` is
    /// called when nobody can go on, and must call `abort`; `on_expiry(rank, text)` when a wait for others
    /// is about to time out (text None) and when a store says so (the exception's text).
    #[new]
    #[pyo3(signature = (*, schedule, seed, swapper, on_stall, clock = "real", on_expiry = None))]
    fn new(
        schedule: &str,
        seed: u64,
        swapper: Option<Py<Swapper>>,
        on_stall: Py<PyAny>,
        clock: &str,
        on_expiry: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let clock = match clock {
            "real" => Clock::Real,
            "virtual" => Clock::Virtual,
            other => return Err(PyValueError::new_err(format!("unknown clock {other:?}: it is real or virtual"))),
        };
        let scheduler = match schedule {
            "round-robin" => Scheduler::with_clock(RoundRobin, clock),
            "random" => Scheduler::with_clock(Random::new(seed), clock),
            other => return Err(PyValueError::new_err(format!("unknown schedule {other:?}"))),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                scheduler: Arc::new(scheduler),
                swapper,
                on_stall,
                on_expiry,
                in_place: AtomicU32::new(NOBODY),
                idents: Mutex::default(),
            }),
        })
    }

    /// Makes a runnable task of a rank and returns its id; a thread must `attach` to it.
    #[pyo3(signature = (rank, *, daemon = false))]
    fn spawn(&self, rank: u32, daemon: bool) -> u32 {
        self.shared.scheduler.spawn(OwnerId(rank), daemon).0
    }

    /// Gives the first task its turn.
    fn start(&self) {
        self.shared.scheduler.start();
    }

    /// This thread becomes the thread of `task` of `rank`; returns when its first turn comes.
    fn attach(&self, py: Python<'_>, task: u32, rank: u32) -> PyResult<()> {
        let current = Current { shared: self.shared.clone(), task: TaskId(task), rank: GlobalRank(rank) };
        let ident = py.import("_thread")?.call_method0("get_ident")?.extract()?;
        self.shared.idents.lock().expect("never poisoned").insert(current.task, ident);
        let wake = py.detach(|| self.shared.scheduler.attach(current.task));
        CURRENT.set(Some(current.clone())); // Before the swap: readers and writers may ask whose turn it is.
        current.swap_in(py)?;
        if wake == Wake::Aborted { Err(aborted()) } else { Ok(()) }
    }

    /// Ends the task of this thread; others go on. The thread must not touch a rank's state after that.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let current = this(py)?;
        CURRENT.set(None);
        self.shared.idents.lock().expect("never poisoned").remove(&current.task);
        let stalled = self.shared.scheduler.finish(current.task);
        if stalled { self.shared.on_stall.call0(py).map(drop) } else { Ok(()) }
    }

    /// Ends a task of another thread, which never runs again: its process is gone.
    fn abandon(&self, py: Python<'_>, task: u32) -> PyResult<()> {
        let stalled = self.shared.scheduler.finish(TaskId(task));
        if stalled { self.shared.on_stall.call0(py).map(drop) } else { Ok(()) }
    }

    /// Lets the other tasks run first.
    fn yield_now(&self, py: Python<'_>) -> PyResult<()> {
        let me = this(py)?;
        me.settle(py, self.shared.scheduler.yield_now(me.task)).map(drop)
    }

    /// Lets time pass while others run.
    fn sleep(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let me = this(py)?;
        let duration = Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?;
        me.settle(py, self.shared.scheduler.sleep(me.task, duration)).map(drop)
    }

    /// Whether time jumps.
    #[getter]
    fn is_virtual(&self) -> bool {
        self.shared.scheduler.clock() == Clock::Virtual
    }

    /// How far the program's time is ahead of the system's, in nanoseconds; 0 with a real clock.
    #[getter]
    fn jumped_ns(&self) -> u64 {
        u64::try_from(self.shared.scheduler.jumped().total().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for `wake(task)`: "ready", "timed-out" or "soft". `timeout` in seconds, None for ever.
    #[pyo3(signature = (timeout = None, *, soft = false))]
    fn block(&self, py: Python<'_>, timeout: Option<f64>, soft: bool) -> PyResult<&'static str> {
        let me = this(py)?;
        let wait = Wait { timeout: self::timeout(timeout)?, until: None, soft };
        Ok(match me.settle(py, self.shared.scheduler.block(me.task, wait))? {
            Wake::TimedOut => "timed-out",
            Wake::Soft => "soft",
            Wake::Ready | Wake::Aborted => "ready",
        })
    }

    /// Makes a waiting task runnable; false if it was not waiting.
    fn wake(&self, task: u32) -> bool {
        self.shared.scheduler.wake(TaskId(task))
    }

    /// Before a system call that blocks for a reason outside this process: others run meanwhile.
    fn go_outside(&self, py: Python<'_>) -> PyResult<()> {
        let me = this(py)?;
        self.shared.scheduler.go_outside(me.task);
        Ok(())
    }

    /// After that call: waits for the turn.
    fn come_back(&self, py: Python<'_>) -> PyResult<()> {
        let me = this(py)?;
        let wake = py.detach(|| self.shared.scheduler.come_back(me.task));
        me.swap_in(py)?;
        if wake == Wake::Aborted { Err(aborted()) } else { Ok(()) }
    }

    /// Wakes everybody; each wait raises RankAborted from now on.
    fn abort(&self) {
        self.shared.scheduler.abort();
    }

    /// Whether `abort` was called.
    #[getter]
    fn is_aborted(&self) -> bool {
        self.shared.scheduler.is_aborted()
    }

    /// For the main thread: waits until all tasks but daemons ended; false after `seconds`. Runs signal handlers.
    fn wait_over(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let duration = Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let over = py.detach(|| self.shared.scheduler.wait_over(duration));
        py.check_signals()?;
        Ok(over)
    }

    /// The task that runs now (or None) and how often the baton changed hands so far.
    fn holder(&self) -> (Option<u32>, u64) {
        let (task, switches) = self.shared.scheduler.holder();
        (task.map(|t| t.0), switches)
    }

    /// (task, rank, daemon, state) of every task; state is "runnable", "running", "blocked", "sleeping", "outside" or
    /// "done".
    fn tasks(&self) -> Vec<(u32, u32, bool, &'static str)> {
        let name = |state| match state {
            TaskState::Runnable => "runnable",
            TaskState::Running => "running",
            TaskState::Blocked => "blocked",
            TaskState::Sleeping => "sleeping",
            TaskState::Outside => "outside",
            TaskState::Done => "done",
        };
        self.shared.scheduler.tasks().into_iter().map(|t| (t.task.0, t.owner.0, t.daemon, name(t.state))).collect()
    }

    /// The number by which Python knows the thread of each task.
    fn threads(&self) -> BTreeMap<u32, u64> {
        self.shared.threads().into_iter().map(|(task, ident)| (task.0, ident)).collect()
    }

    /// From now on, every choice among runnable tasks is kept.
    fn record_steps(&self) {
        self.shared.scheduler.record_steps();
    }

    /// The choices kept so far: (runnable tasks, the one that ran).
    fn steps(&self) -> Vec<(Vec<u32>, u32)> {
        let plain = |s: allranks_sched::Step| (s.runnable.into_iter().map(|t| t.0).collect(), s.picked.0);
        self.shared.scheduler.steps().into_iter().map(plain).collect()
    }
}

/// The current task; an error on a thread that no rank started.
pub(crate) fn this(_py: Python<'_>) -> PyResult<Current> {
    current().ok_or_else(|| {
        PyRuntimeError::new_err(
            "this thread belongs to no rank: only threads that a rank started with threading.Thread can communicate",
        )
    })
}
