//! Who of the runnable goes next. One type a policy.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::TaskId;

/// Chooses among runnable tasks.
pub trait Policy: Send {
    /// Returns the index in `runnable` of the task that runs next.
    ///
    /// `runnable` is never empty and ascending. `last` is the task that held the baton before, or `None` at the
    /// start; it is in `runnable` only if it yielded. The answer must be a function of the calls so far: no clock,
    /// no address, no thread id. An index out of range is a bug of the policy.
    fn pick(&mut self, runnable: &[TaskId], last: Option<TaskId>) -> usize;
}

/// The next higher task id, wrapping around.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Policy for RoundRobin {
    fn pick(&mut self, runnable: &[TaskId], last: Option<TaskId>) -> usize {
        let Some(last) = last else { return 0 };
        let after = runnable.partition_point(|&task| task <= last);
        if after == runnable.len() { 0 } else { after }
    }
}

/// A seeded choice: PCG64 (MCG variant of `rand_pcg`), one draw a step.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The same seed gives the same choices.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }
}

impl Policy for Random {
    fn pick(&mut self, runnable: &[TaskId], _last: Option<TaskId>) -> usize {
        // Multiply-shift maps 64 random bits to the range; the bias is below 2^-32 for any real number of tasks.
        let wide = u128::from(self.0.next_u64()) * runnable.len() as u128;
        usize::try_from(wide >> 64).expect("smaller than the number of runnable tasks")
    }
}

/// Repeats recorded choices; after their end, round robin.
#[derive(Clone, Debug)]
pub struct Replay {
    choices: std::vec::IntoIter<TaskId>,
}

impl Replay {
    /// Takes the tasks in the order in which they ran.
    pub fn new(choices: Vec<TaskId>) -> Self {
        Self { choices: choices.into_iter() }
    }
}

impl Policy for Replay {
    fn pick(&mut self, runnable: &[TaskId], last: Option<TaskId>) -> usize {
        let recorded = self.choices.next();
        recorded.and_then(|task| runnable.binary_search(&task).ok()).unwrap_or_else(|| RoundRobin.pick(runnable, last))
    }
}
