//! Time as the program sees it, and how it jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether time passes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Sleepers sleep.
    #[default]
    Real,
    /// When every task sleeps or waits with a deadline, time jumps to the earliest of them.
    Virtual,
}

/// A point in time on both scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// Virtual time, which only sleeps and deadlines advance: this decides the order of events.
    pub at: Duration,
    /// The program's time (see `Timeline::now`): this says when it is due if time passes by itself.
    pub due: Duration,
}

/// How far time has jumped, for readers that hold no lock.
#[derive(Clone, Debug, Default)]
pub struct Jumped(Arc<AtomicU64>);

impl Jumped {
    /// What has to be added to the time of the system.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    fn add(&self, by: Duration) {
        // 2^64 ns are 584 years; a longer jump (a sleep until the end of time) ends there.
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let before = self.0.load(Ordering::Acquire);
        self.0.store(before.saturating_add(by), Ordering::Release);
    }
}

/// The program's time: what really passed since the start, and what was jumped.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub clock: Clock,
    pub jumped: Jumped,
    start: Instant,
}

impl Timeline {
    pub fn new(clock: Clock) -> Self {
        Self { clock, jumped: Jumped::default(), start: Instant::now() }
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed().saturating_add(self.jumped.total())
    }

    /// How long until then.
    pub fn left(&self, due: Duration) -> Duration {
        due.saturating_sub(self.now())
    }

    /// Under a virtual clock, makes it that late.
    pub fn jump_to(&self, due: Duration) {
        if self.clock == Clock::Virtual {
            self.jumped.add(self.left(due));
        }
    }
}
