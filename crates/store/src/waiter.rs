//! How a caller waits: the seam to whoever schedules.

use std::sync::Arc;
use std::time::Duration;

use allranks_core::GlobalRank;
use allranks_sched::{TaskId, Wake};

use crate::{Flavor, StoreError};

/// Makes a waiting task runnable.
pub trait Waker: Send + Sync {
    /// Called once, with no lock of a store held. `task` is what [`Waiter::task`] answered.
    fn wake(&self, task: TaskId);
}

/// Somebody who can wait.
pub trait Waiter {
    /// What ends a wait from outside: the run was aborted.
    type Stop;

    /// Unique among those who wait at one time.
    fn task(&self) -> TaskId;

    /// For reports; `None` on a thread that belongs to no rank.
    fn rank(&self) -> Option<GlobalRank>;

    /// Wakes this waiter.
    fn waker(&self) -> Arc<dyn Waker>;

    /// Lets others run until woken. `deadline` is the time-out that the program chose, if it did: for a scheduler,
    /// which finds out by itself if nobody can ever wake this one. `limit` is the time-out whether chosen or default:
    /// for a thread that no scheduler knows.
    ///
    /// # Errors
    /// Whatever ends the wait from outside.
    fn block(&mut self, deadline: Option<Duration>, limit: Option<Duration>) -> Result<Wake, Self::Stop>;

    /// Lets others run once: the caller polls.
    ///
    /// # Errors
    /// As for [`block`](Self::block).
    fn yield_now(&mut self) -> Result<(), Self::Stop>;
}

/// How long a caller is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time-out as torch counts it; what 0 and less mean depends on the flavor.
    pub millis: i64,
    /// Whether the program asked for just this time-out. A default that nobody chose never expires: a key that nobody
    /// can set is then a stall, which is reported as such.
    pub explicit: bool,
}

impl Patience {
    /// `Store::kDefaultTimeout` of torch.
    pub const DEFAULT: Self = Self { millis: 300_000, explicit: false };

    /// A time-out that the program chose.
    pub fn of_millis(millis: i64) -> Self {
        Self { millis, explicit: true }
    }

    /// When to give up, whether chosen or default; `None` for never. To `TCPStore` 0 is at once and less is never; to
    /// the others it is the other way round.
    pub fn limit(self, flavor: Flavor) -> Option<Duration> {
        let at_once = match flavor {
            Flavor::Tcp => self.millis == 0,
            Flavor::Hash | Flavor::File => self.millis < 0,
        };
        match u64::try_from(self.millis) {
            _ if at_once => Some(Duration::ZERO),
            Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
            _ => None,
        }
    }

    /// What a scheduler is told: only a time-out that the program chose.
    pub fn deadline(self, flavor: Flavor) -> Option<Duration> {
        self.limit(flavor).filter(|_| self.explicit)
    }
}

/// Why a wait failed.
#[derive(Debug, PartialEq, Eq)]
pub enum WaitError<S> {
    /// For a reason of the store.
    Store(StoreError),
    /// It was ended from outside.
    Stopped(S),
}

impl<S> From<StoreError> for WaitError<S> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
