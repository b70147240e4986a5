//! `threading.Lock` and `threading.RLock` for rank threads: who waits for one hands the baton over.
//!
//! On a thread that belongs to no rank (and in forked children) they are ordinary locks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use allranks_sched::{TaskId, Wait, Wake};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::baton::{self, Shared};

#[derive(Default)]
struct Inner {
    held: bool,
    waiters: VecDeque<(Arc<Shared>, TaskId)>,
    os_waiters: usize,
}

#[derive(Default)]
struct Core {
    inner: Mutex<Inner>,
    freed: Condvar,
}

impl Core {
    fn try_take(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().expect("never poisoned").held, true)
    }

    /// `timeout` None waits for ever.
    fn take(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<bool> {
        if self.try_take() {
            return Ok(true);
        }
        match baton::current() {
            Some(me) => loop {
                self.inner.lock().expect("never poisoned").waiters.push_back((me.shared.clone(), me.task));
                let handoff = me.shared.scheduler.block(me.task, Wait { timeout, ..Wait::default() });
                let woken = me.settle(py, handoff);
                self.inner.lock().expect("never poisoned").waiters.retain(|(_, task)| *task != me.task);
                let wake = woken?;
                if self.try_take() {
                    return Ok(true);
                }
                if wake == Wake::TimedOut {
                    return Ok(false);
                }
            },
            None => {
                let taken = py.detach(|| self.take_on_os_thread(timeout));
                py.check_signals()?;
                Ok(taken)
            }
        }
    }

    fn take_on_os_thread(&self, timeout: Option<Duration>) -> bool {
        let until = timeout.map(|t| Instant::now() + t);
        let mut inner = self.inner.lock().expect("never poisoned");
        inner.os_waiters += 1;
        while inner.held {
            let Some(until) = until else {
                inner = self.freed.wait(inner).expect("never poisoned");
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.freed.wait_timeout(inner, left).expect("never poisoned").0;
        }
        inner.os_waiters -= 1;
        !std::mem::replace(&mut inner.held, true)
    }

    /// False if it was not held.
    fn free(&self) -> bool {
        let mut inner = self.inner.lock().expect("never poisoned");
        if !std::mem::replace(&mut inner.held, false) {
            return false;
        }
        if inner.os_waiters > 0 {
            self.freed.notify_one();
        }
        if baton::is_forked() {
            inner.waiters.clear(); // They wait in the parent.
        }
        if let Some((shared, task)) = inner.waiters.pop_front() {
            drop(inner);
            shared.scheduler.wake(task);
        }
        true
    }

    fn is_held(&self) -> bool {
        self.inner.lock().expect("never poisoned").held
    }
}

/// The meaning of `acquire(blocking, timeout)`: None is one attempt, Some(None) for ever.
fn patience(blocking: bool, timeout: f64) -> PyResult<Option<Option<Duration>>> {
    if !blocking {
        if timeout != -1.0 {
            return Err(PyValueError::new_err("can't specify a timeout for a non-blocking call"));
        }
        return Ok(None);
    }
    if timeout < 0.0 && timeout != -1.0 {
        return Err(PyValueError::new_err("timeout value must be a non-negative number"));
    }
    if timeout == -1.0 {
        return Ok(Some(None));
    }
    let duration =
        Duration::try_from_secs_f64(timeout).map_err(|_| PyOverflowError::new_err("timeout value is too large"))?;
    Ok(Some(Some(duration)))
}

/// Stands in for `threading.Lock`.
#[pyclass(frozen, weakref, module = "allranks._allranks", name = "Lock")]
#[derive(Default)]
pub(crate) struct PyLock {
    core: Mutex<Arc<Core>>,
}

impl PyLock {
    fn core(&self) -> Arc<Core> {
        self.core.lock().expect("never poisoned").clone()
    }
}

#[pymethods]
impl PyLock {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (blocking = true, timeout = -1.0))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: f64) -> PyResult<bool> {
        let core = self.core();
        match patience(blocking, timeout)? {
            None => Ok(core.try_take()),
            Some(timeout) => core.take(py, timeout),
        }
    }

    fn release(&self) -> PyResult<()> {
        if self.core().free() { Ok(()) } else { Err(PyRuntimeError::new_err("release unlocked lock")) }
    }

    fn locked(&self) -> bool {
        self.core().is_held()
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.core().take(py, None)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release()
    }

    fn _at_fork_reinit(&self) {
        *self.core.lock().expect("never poisoned") = Arc::default();
    }
}

#[derive(Clone, Copy, Default)]
struct Owned {
    thread: u64,
    count: usize,
}

/// Stands in for `threading.RLock`.
#[pyclass(frozen, weakref, module = "allranks._allranks", name = "RLock")]
#[derive(Default)]
pub(crate) struct PyRLock {
    core: Mutex<Arc<Core>>,
    owned: Mutex<Owned>,
}

/// A number of this thread that is never 0 and never used again.
fn thread_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! { static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed); }
    MINE.with(|n| *n)
}

impl PyRLock {
    fn core(&self) -> Arc<Core> {
        self.core.lock().expect("never poisoned").clone()
    }

    fn owned(&self) -> Owned {
        *self.owned.lock().expect("never poisoned")
    }

    fn set_owned(&self, thread: u64, count: usize) {
        *self.owned.lock().expect("never poisoned") = Owned { thread, count };
    }
}

#[pymethods]
impl PyRLock {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (blocking = true, timeout = -1.0))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: f64) -> PyResult<bool> {
        let (me, owned) = (thread_number(), self.owned());
        if owned.count > 0 && owned.thread == me {
            self.set_owned(me, owned.count + 1);
            return Ok(true);
        }
        let core = self.core();
        let taken = match patience(blocking, timeout)? {
            None => core.try_take(),
            Some(timeout) => core.take(py, timeout)?,
        };
        if taken {
            self.set_owned(me, 1);
        }
        Ok(taken)
    }

    fn release(&self) -> PyResult<()> {
        let (me, owned) = (thread_number(), self.owned());
        if owned.count == 0 || owned.thread != me {
            return Err(PyRuntimeError::new_err("cannot release un-acquired lock"));
        }
        self.set_owned(me, owned.count - 1);
        if owned.count == 1 {
            self.core().free();
        }
        Ok(())
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.acquire(py, true, -1.0)
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release()
    }

    fn locked(&self) -> bool {
        self.owned().count > 0
    }

    fn _is_owned(&self) -> bool {
        let owned = self.owned();
        owned.count > 0 && owned.thread == thread_number()
    }

    fn _recursion_count(&self) -> usize {
        if self._is_owned() { self.owned().count } else { 0 }
    }

    fn _release_save(&self) -> PyResult<usize> {
        let count = self._recursion_count();
        if count == 0 {
            return Err(PyRuntimeError::new_err("cannot release un-acquired lock"));
        }
        self.set_owned(thread_number(), 0);
        self.core().free();
        Ok(count)
    }

    fn _acquire_restore(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.core().take(py, None)?;
        self.set_owned(thread_number(), count);
        Ok(())
    }

    fn _at_fork_reinit(&self) {
        *self.core.lock().expect("never poisoned") = Arc::default();
        self.set_owned(0, 0);
    }
}
