//! Pure functions from operations to [`Finding`](allranks_core::Finding)s; the same code serves a run as it happens and
//! a recorded one.
//!
//! * [`meeting`]: operations that met but disagree;
//! * [`message`]: a send and a receive that met but disagree;
//! * [`stalled`]: nobody can go on; why;
//! * [`failures`]: ranks that raised or exited with a status other than 0, first cause first;
//! * [`crossed_sites`]: the same operations met from crossed source lines.

mod describe;
mod failed;
mod meet;
mod sites;
mod stall;

pub use describe::describe;
pub use failed::{Failure, failures};
pub use meet::{meeting, message};
pub use sites::crossed_sites;
pub use stall::{GroupView, StallView, WaitFor, Waiting, stalled};

/// Rule of a finding that holds under every backend.
pub(crate) const DEFINITE: &str = "definite";
