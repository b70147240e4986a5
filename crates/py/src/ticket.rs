//! A rank's claim on the completion of an operation.

use std::sync::Arc;

use allranks_engine::{Ticket, World};
use allranks_sched::{Wait, Wake};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::baton::{self, Current};

/// Runs what the issuer wanted to happen on completion.
pub(crate) fn finish(py: Python<'_>, ticket: &Ticket) -> PyResult<()> {
    let Some(attachment) = ticket.take_attachment() else { return Ok(()) };
    #[cfg(feature = "mutants")]
    if crate::mutants::forgets_staging() {
        return Ok(());
    }
    match attachment.downcast::<Py<PyAny>>() {
        Ok(callable) => callable.call0(py).map(drop),
        Err(_) => Ok(()),
    }
}

/// A claim on an operation's completion.
#[pyclass(frozen, module = "allranks._allranks", name = "Ticket")]
pub(crate) struct PyTicket {
    pub engine: Arc<World>,
    pub ticket: Ticket,
}

#[pymethods]
impl PyTicket {
    /// Waits, at most `timeout` seconds (None: as long as the operation may take): "done", "timed-out", or "soft": with
    /// `soft`, the wait is given up when nobody else can go on either.
    ///
    /// RuntimeError if the operation failed. It fails when its own time is over, and with it whatever its rank has in the
    /// group; so it does after `timeout` if that is to count as its own (`fails`).
    #[pyo3(signature = (timeout = None, soft = false, fails = false))]
    pub fn wait(&self, py: Python<'_>, timeout: Option<f64>, soft: bool, fails: bool) -> PyResult<&'static str> {
        if self.ticket.is_done() {
            return self.end();
        }
        let me = baton::this(py)?;
        let scheduler = &me.shared.scheduler;
        let asked = baton::timeout(timeout)?;
        let (own, other) = if fails { (asked, None) } else { (None, asked) };
        let until = self.engine.wait_until(&self.ticket, own);
        let other = other.map(|limit| scheduler.after(limit));
        let wait = Wait { timeout: None, until: until.into_iter().chain(other).min(), soft };
        loop {
            self.engine.start_waiting(me.task, me.rank, &self.ticket);
            let settled = me.settle(py, scheduler.block(me.task, wait));
            if let Ok(Wake::TimedOut) = settled
                && !self.ticket.is_done()
            {
                self.expiring(py, &me)?;
            }
            self.engine.stop_waiting(me.task, &self.ticket);
            let wake = settled?;
            if self.ticket.is_done() {
                return self.end();
            }
            match wake {
                Wake::TimedOut if until.is_some() && until <= wait.until => {
                    self.engine.expire(&self.ticket);
                    return self.end();
                }
                Wake::TimedOut => {
                    self.engine.suspect_stall(me.rank, WAIT_TIMED_OUT);
                    return Ok("timed-out");
                }
                Wake::Soft => return Ok("soft"),
                Wake::Ready | Wake::Aborted => {}
            }
        }
    }

    /// Lets others run, for a loop that asks `is_done` again and again. The operation fails if its time is over then.
    fn poll(&self, py: Python<'_>) -> PyResult<()> {
        let Some(me) = baton::current() else { return Ok(()) };
        me.settle(py, me.shared.scheduler.poll(me.task, self.ticket.deadline()))?;
        if self.engine.is_overdue(&self.ticket) {
            self.engine.start_waiting(me.task, me.rank, &self.ticket);
            let noted = self.expiring(py, &me);
            self.engine.stop_waiting(me.task, &self.ticket);
            noted?;
            self.engine.expire(&self.ticket);
        }
        Ok(())
    }

    /// Why it failed, or None.
    #[getter]
    fn failure(&self) -> Option<&str> {
        self.ticket.failure().map(|text| &**text)
    }

    /// Whether the operation is over, complete or failed; does not wait.
    #[getter]
    fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// The sender's group rank, for a receive that is complete.
    #[getter]
    fn source(&self) -> Option<u32> {
        self.ticket.source().map(|s| s.0)
    }

    /// The global rank that issued it.
    #[getter]
    fn rank(&self) -> u32 {
        self.ticket.record().rank.0
    }

    /// Where it was issued: (file, line, function), if that is known.
    #[getter]
    fn site(&self) -> Option<(String, u32, String)> {
        self.ticket.record().site.as_ref().map(|s| (s.file.to_string(), s.line, s.function.to_string()))
    }

    /// Notes that the program knows it to be complete, as `wait` does.
    fn set_waited(&self) {
        self.engine.waited(&self.ticket);
    }

    /// Group ranks of the members who have not come, for a collective that is not complete, or failed.
    fn absent(&self) -> Vec<u32> {
        self.engine.absent(&self.ticket).into_iter().map(|r| r.0).collect()
    }

    /// The operation's position among the member's collectives.
    #[getter]
    fn seq(&self) -> u64 {
        self.ticket.record().seq.0
    }
}

/// What torch says when `Work.wait(timeout)` gives up and the operation goes on.
const WAIT_TIMED_OUT: &str = "Operation timed out!";

impl PyTicket {
    /// What the program gets to know of an operation that is over.
    fn end(&self) -> PyResult<&'static str> {
        self.engine.waited(&self.ticket);
        match self.ticket.failure() {
            None => Ok("done"),
            Some(text) => Err(PyRuntimeError::new_err(text.to_string())),
        }
    }

    /// A wait is about to time out: what a stall would be told is kept, in case the rank dies of it.
    fn expiring(&self, py: Python<'_>, me: &Current) -> PyResult<()> {
        if self.engine.knows_why(me.rank) { Ok(()) } else { me.shared.expiring(py, me.rank) }
    }
}
