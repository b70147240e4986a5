//! The baton: how threads wait for it and pass it on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::state::{Next, Parker, State};
use crate::timeline::{Clock, Deadline, Jumped};
use crate::{OwnerId, Policy, Step, TaskId, TaskInfo, TaskState, Wait, Wake};

/// What came of giving up the baton.
#[must_use = "a Park must be carried out, or the baton is lost"]
pub enum Handoff<'a> {
    /// The caller keeps or at once regained the baton.
    Continue(Wake),
    /// Nobody can go on, the caller included. The caller keeps the baton, and its wait is withdrawn.
    Stalled,
    /// Another task is next: call [`Switch::go`], after releasing whatever the other may need.
    Park(Switch<'a>),
}

/// A decided hand-over that has not happened yet.
///
/// It is apart from the decision so that the caller can release locks (the Python interpreter) in between: waking the
/// next thread before that would make it run into the lock.
#[must_use = "the next task waits until this goes"]
pub struct Switch<'a> {
    scheduler: &'a Scheduler,
    next: Option<Arc<Parker>>,
    me: Option<(TaskId, Arc<Parker>)>,
}

/// Decides who runs; see the crate's documentation.
pub struct Scheduler {
    state: Mutex<State>,
    over: Condvar,
    clock: Clock,
    jumped: Jumped,
}

impl Scheduler {
    /// Without tasks; time is real.
    pub fn new(policy: impl Policy + 'static) -> Self {
        Self::with_clock(policy, Clock::Real)
    }

    /// Without tasks.
    pub fn with_clock(policy: impl Policy + 'static, clock: Clock) -> Self {
        let state = State::new(Box::new(policy), clock);
        let jumped = state.time.jumped.clone();
        Self { state: Mutex::new(state), over: Condvar::new(), clock, jumped }
    }

    /// Whether time passes by itself.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How far the program's time is ahead of the system's; always zero with a real clock.
    pub fn jumped(&self) -> &Jumped {
        &self.jumped
    }

    /// Virtual time: the sum of what was slept or waited out. A [`Deadline`] has passed when its `at` is below it.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// The point in time that much later than now.
    pub fn after(&self, duration: Duration) -> Deadline {
        self.lock().after(duration)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the scheduler")
    }

    /// Records every choice among runnable tasks from now on.
    pub fn record_steps(&self) {
        self.lock().steps.get_or_insert_default();
    }

    /// The recorded choices so far.
    pub fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone().unwrap_or_default()
    }

    /// Makes a task, runnable at once. A thread must come for it with [`attach`](Self::attach). A `daemon` does not
    /// keep the run alive, and does not stall it when it waits for ever.
    pub fn spawn(&self, owner: OwnerId, daemon: bool) -> TaskId {
        self.lock().add(owner, daemon)
    }

    /// Gives the baton to a first task; call it once after the first tasks were spawned.
    pub fn start(&self) {
        self.dispatch_if_free(self.lock());
    }

    /// The calling thread becomes the thread of `task` and waits for its first turn.
    pub fn attach(&self, task: TaskId) -> Wake {
        let parker = Arc::new(Parker { granted: AtomicBool::new(false), thread: thread::current() });
        let mut state = self.lock();
        let entry = state.task(task);
        assert!(entry.parker.is_none(), "one thread a task");
        entry.parker = Some(parker.clone());
        if entry.state == TaskState::Running {
            parker.granted.store(true, Ordering::Release);
        }
        drop(state);
        self.park(task, &parker)
    }

    /// Waits until another task calls [`wake`](Self::wake).
    pub fn block(&self, task: TaskId, wait: Wait) -> Handoff<'_> {
        let mut state = self.lock();
        if state.aborted {
            return Handoff::Continue(Wake::Aborted);
        }
        state.block(task, wait);
        self.hand_over(state, task)
    }

    /// Lets the others go first.
    pub fn yield_now(&self, task: TaskId) -> Handoff<'_> {
        let mut state = self.lock();
        if state.aborted {
            return Handoff::Continue(Wake::Aborted);
        }
        state.yield_now(task);
        self.hand_over(state, task)
    }

    /// Lets at least `duration` pass on the clock; others run meanwhile. Zero is a [`poll`](Self::poll).
    pub fn sleep(&self, task: TaskId, duration: Duration) -> Handoff<'_> {
        if duration.is_zero() {
            return self.poll(task, None);
        }
        let mut state = self.lock();
        if state.aborted {
            return Handoff::Continue(Wake::Aborted);
        }
        state.sleep(task, duration);
        self.hand_over(state, task)
    }

    /// A turn behind all that can run, for a task that asks again and again whether something happened. When all who
    /// poll have asked in vain, sleepers and deadlines go on as if they did not: with a virtual clock after
    /// some rounds, else when they are due. `until` is when asking has an end: [`Wake::TimedOut`].
    pub fn poll(&self, task: TaskId, until: Option<Deadline>) -> Handoff<'_> {
        let mut state = self.lock();
        if state.aborted {
            return Handoff::Continue(Wake::Aborted);
        }
        state.poll(task, until);
        self.hand_over(state, task)
    }

    /// Gives up the baton for a call that blocks in a way the scheduler does not know; the thread does not wait.
    /// Must be followed by [`come_back`](Self::come_back).
    pub fn go_outside(&self, task: TaskId) {
        let mut state = self.lock();
        state.go_outside(task);
        self.dispatch_if_free(state);
    }

    /// Waits for the baton after [`go_outside`](Self::go_outside).
    pub fn come_back(&self, task: TaskId) -> Wake {
        let mut state = self.lock();
        let parker = state.task(task).parker.clone().expect("only a task with a thread goes outside");
        let wake = if state.aborted { Wake::Aborted } else { Wake::Ready };
        state.ready(task, wake);
        self.dispatch_if_free(state);
        self.park(task, &parker)
    }

    /// Ends a task. The caller's thread no longer holds the baton. True if the others are stalled now: somebody must
    /// then [`abort`](Self::abort).
    pub fn finish(&self, task: TaskId) -> bool {
        let mut state = self.lock();
        let held = state.holder == Some(task);
        state.finish(task);
        if held || state.holder.is_none() { self.dispatch_if_free(state) } else { false }
    }

    /// Makes a blocked or sleeping task runnable; false if it was neither.
    pub fn wake(&self, task: TaskId) -> bool {
        let mut state = self.lock();
        if !matches!(state.task(task).state, TaskState::Blocked | TaskState::Sleeping) {
            return false;
        }
        state.ready(task, Wake::Ready);
        self.dispatch_if_free(state);
        true
    }

    /// Wakes everybody with [`Wake::Aborted`]; every later wait returns that at once.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.abort();
        self.dispatch_if_free(state);
    }

    /// Whether [`abort`](Self::abort) was called.
    pub fn is_aborted(&self) -> bool {
        self.lock().aborted
    }

    /// Waits until no task but daemons is left, at most for `timeout`; true if so.
    pub fn wait_over(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if state.tasks.iter().all(|t| t.daemon || t.state == TaskState::Done) {
                return true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return false;
            };
            state = self.over.wait_timeout(state, left).expect("no thread panics while it holds the scheduler").0;
        }
    }

    /// Who holds the baton, and how often it changed hands so far: a watchdog compares two answers.
    pub fn holder(&self) -> (Option<TaskId>, u64) {
        let state = self.lock();
        (state.holder, state.switches)
    }

    /// Every task, in the order of their ids.
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let state = self.lock();
        let info = |(i, t): (usize, &crate::state::Task)| TaskInfo {
            task: TaskId(i as u32),
            owner: t.owner,
            daemon: t.daemon,
            state: t.state,
        };
        state.tasks.iter().enumerate().map(info).collect()
    }

    fn hand_over(&self, mut state: MutexGuard<'_, State>, me: TaskId) -> Handoff<'_> {
        match state.dispatch() {
            Next::Task(next) if next == me => Handoff::Continue(state.task(me).wake),
            Next::Task(next) => Handoff::Park(self.switch(&mut state, Some(next), me)),
            Next::Idle => {
                nudge_sleeper(&state);
                Handoff::Park(self.switch(&mut state, None, me))
            }
            Next::Stalled | Next::Over => {
                // Over cannot be: `me` itself waits; only a daemon that waits alone comes here, and stays parked.
                if state.task(me).daemon && !state.tasks.iter().any(|t| !t.daemon && t.state == TaskState::Blocked) {
                    return Handoff::Park(self.switch(&mut state, None, me));
                }
                state.ready(me, Wake::Ready);
                let regained = state.dispatch();
                debug_assert!(matches!(regained, Next::Task(task) if task == me), "nobody else was runnable");
                Handoff::Stalled
            }
        }
    }

    fn switch(&self, state: &mut State, next: Option<TaskId>, me: TaskId) -> Switch<'_> {
        let mine = state.task(me).parker.clone().expect("the running task has a thread");
        Switch { scheduler: self, next: next.and_then(|t| state.task(t).parker.clone()), me: Some((me, mine)) }
    }

    /// Gives a free baton on and wakes its new holder; true if stalled.
    fn dispatch_if_free(&self, mut state: MutexGuard<'_, State>) -> bool {
        if state.holder.is_some() {
            return false;
        }
        let (next, stalled) = match state.dispatch() {
            Next::Task(task) => (state.task(task).parker.clone(), false),
            Next::Idle => {
                nudge_sleeper(&state);
                (None, false)
            }
            Next::Stalled => (None, true),
            Next::Over => (None, false),
        };
        if state.tasks.iter().all(|t| t.daemon || t.state == TaskState::Done) {
            self.over.notify_all();
        }
        drop(state);
        if let Some(parker) = next {
            grant(&parker);
        }
        stalled
    }

    /// Waits for the grant. A sleeper wakes itself in time and asks for the baton.
    fn park(&self, task: TaskId, parker: &Parker) -> Wake {
        loop {
            if parker.granted.swap(false, Ordering::Acquire) {
                return self.lock().task(task).wake;
            }
            let mut state = self.lock();
            let entry = state.task(task);
            let due = match entry.state {
                TaskState::Sleeping => entry.due,
                _ => None,
            };
            let left = due.map(|due| state.time.left(due));
            match left {
                Some(left) if left.is_zero() => {
                    // Past its time: asking once is enough, whoever frees the baton later looks at sleepers again.
                    state.task(task).due = None;
                    self.dispatch_if_free(state);
                }
                Some(left) => {
                    drop(state);
                    thread::park_timeout(left);
                }
                None => {
                    drop(state);
                    thread::park();
                }
            }
        }
    }
}

impl Switch<'_> {
    /// Wakes the next task and waits for the next turn.
    pub fn go(self) -> Wake {
        if let Some(next) = &self.next {
            grant(next);
        }
        let (task, parker) = self.me.as_ref().expect("made with a task");
        self.scheduler.park(*task, parker)
    }
}

/// Nobody runs until a sleeper wakes: it must see how late it is by now.
fn nudge_sleeper(state: &State) {
    if state.time.clock == Clock::Virtual
        && let Some(parker) = state.first_sleeper()
    {
        parker.thread.unpark();
    }
}

fn grant(parker: &Parker) {
    parker.granted.store(true, Ordering::Release);
    parker.thread.unpark();
}
