//! What is known of each task, and the decision who runs next.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Thread;
use std::time::Duration;

use crate::Policy;
use crate::timeline::{Clock, Deadline, Timeline};

/// With a virtual clock, how often each poller asks in vain before time jumps to a sleeper: who asks a few times is in no
/// loop.
const ROUNDS_BEFORE_SLEEPERS: usize = 100;
/// The same before a deadline expires: a loop with an end of its own should come to it.
const ROUNDS_BEFORE_DEADLINES: usize = 10_000;

/// A task of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whoever a task belongs to; the scheduler only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// How a task wants to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Give up after this much (virtual) time; it passes at once when nobody else can go on.
    pub timeout: Option<Duration>,
    /// Give up then; the earlier of the two counts.
    pub until: Option<Deadline>,
    /// May be woken without what it waits for if nobody else can go on.
    pub soft: bool,
}

/// Why a task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It was woken, slept out, or got its turn.
    Ready,
    /// Its deadline passed.
    TimedOut,
    /// Nobody else could go on, and it was soft.
    Soft,
    /// The run was aborted.
    Aborted,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Could run.
    Runnable,
    /// Holds the baton.
    Running,
    /// Waits for a wake.
    Blocked,
    /// Waits for time to pass.
    Sleeping,
    /// In an unmanaged call, without the baton; comes back by itself.
    Outside,
    /// Ended.
    Done,
}

/// A task as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Which.
    pub task: TaskId,
    /// Whose.
    pub owner: OwnerId,
    /// Does not keep the run alive.
    pub daemon: bool,
    /// Where it stands.
    pub state: TaskState,
}

/// One decision of a policy, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who could have run, ascending.
    pub runnable: Vec<TaskId>,
    /// Who ran.
    pub picked: TaskId,
}

/// The flag that a parked thread looks at, and the thread to unpark.
#[derive(Debug)]
pub(crate) struct Parker {
    pub granted: AtomicBool,
    pub thread: Thread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WakeAt {
    virtual_time: Duration,
    order: u64,
    task: TaskId,
}

/// What a sleeping task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nap {
    /// Its time.
    Timed,
    /// A turn behind all that can run; the number says whose turn is first.
    Poll(u64),
}

pub(crate) struct Task {
    pub owner: OwnerId,
    pub daemon: bool,
    pub state: TaskState,
    pub wake: Wake,
    pub wait: Wait,
    /// None until the thread of the task has come.
    pub parker: Option<Arc<Parker>>,
    /// The program's time at which it wakes by itself; None also if that is past.
    pub due: Option<Duration>,
    timer: Option<WakeAt>,
    nap: Nap,
}

/// Who got the baton.
pub(crate) enum Next {
    /// This task holds it now.
    Task(TaskId),
    /// Nobody yet: a sleeper or an outside task will ask.
    Idle,
    /// Nobody ever, though tasks that matter wait.
    Stalled,
    /// Nobody is left to run.
    Over,
}

pub(crate) struct State {
    pub tasks: Vec<Task>,
    pub holder: Option<TaskId>,
    pub aborted: bool,
    pub switches: u64,
    pub steps: Option<Vec<Step>>,
    pub time: Timeline,
    policy: Box<dyn Policy>,
    runnable: BTreeSet<TaskId>,
    sleepers: BTreeSet<WakeAt>,
    /// Who polls, in turn.
    polls: BTreeSet<(u64, TaskId)>,
    /// Turns of pollers since anybody else had one.
    vain_polls: usize,
    deadlines: BTreeSet<WakeAt>,
    softs: BTreeSet<TaskId>,
    outside: usize,
    last: Option<TaskId>,
    pub now: Duration,
    order: u64,
    scratch: Vec<TaskId>,
    blocked: BTreeSet<TaskId>,
}

impl State {
    pub fn new(policy: Box<dyn Policy>, clock: Clock) -> Self {
        Self {
            tasks: Vec::new(),
            holder: None,
            aborted: false,
            switches: 0,
            steps: None,
            time: Timeline::new(clock),
            policy,
            runnable: BTreeSet::new(),
            sleepers: BTreeSet::new(),
            polls: BTreeSet::new(),
            vain_polls: 0,
            deadlines: BTreeSet::new(),
            softs: BTreeSet::new(),
            outside: 0,
            last: None,
            now: Duration::ZERO,
            order: 0,
            scratch: Vec::new(),
            blocked: BTreeSet::new(),
        }
    }

    pub fn task(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.0 as usize]
    }

    pub fn add(&mut self, owner: OwnerId, daemon: bool) -> TaskId {
        let task = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
        self.tasks.push(Task {
            owner,
            daemon,
            state: TaskState::Runnable,
            wake: Wake::Ready,
            wait: Wait::default(),
            parker: None,
            due: None,
            timer: None,
            nap: Nap::Timed,
        });
        self.runnable.insert(task);
        task
    }

    /// That much later than now.
    pub fn after(&self, duration: Duration) -> Deadline {
        Deadline { at: self.now.saturating_add(duration), due: self.time.now().saturating_add(duration) }
    }

    fn set_timer(&mut self, task: TaskId, deadline: Deadline) -> WakeAt {
        self.order += 1;
        let timer = WakeAt { virtual_time: deadline.at, order: self.order, task };
        let entry = self.task(task);
        (entry.timer, entry.due) = (Some(timer), Some(deadline.due));
        timer
    }

    /// Takes a task out of whatever it waits in and puts it into `state`.
    fn move_to(&mut self, task: TaskId, state: TaskState) {
        let old = self.task(task).state;
        match old {
            TaskState::Runnable => {
                self.runnable.remove(&task);
            }
            TaskState::Running => self.holder = None,
            TaskState::Blocked => {
                self.blocked.remove(&task);
                self.softs.remove(&task);
                if let Some(timer) = self.task(task).timer.take() {
                    self.deadlines.remove(&timer);
                }
            }
            TaskState::Sleeping => {
                let entry = self.task(task);
                let (nap, timer) = (entry.nap, entry.timer.take());
                match nap {
                    Nap::Timed => timer.map(|t| self.sleepers.remove(&t)),
                    Nap::Poll(turn) => {
                        self.polls.remove(&(turn, task));
                        timer.map(|t| self.deadlines.remove(&t))
                    }
                };
            }
            TaskState::Outside => self.outside -= 1,
            TaskState::Done => {}
        }
        match state {
            TaskState::Runnable => {
                self.runnable.insert(task);
            }
            TaskState::Running => {
                self.holder = Some(task);
                self.switches += 1;
                self.last = Some(task);
            }
            TaskState::Blocked => {
                self.blocked.insert(task);
            }
            TaskState::Outside => self.outside += 1,
            TaskState::Sleeping | TaskState::Done => {}
        }
        self.task(task).state = state;
    }

    pub fn yield_now(&mut self, task: TaskId) {
        self.task(task).wake = Wake::Ready;
        self.move_to(task, TaskState::Runnable);
    }

    pub fn block(&mut self, task: TaskId, wait: Wait) {
        self.move_to(task, TaskState::Blocked);
        self.task(task).wait = wait;
        if wait.soft {
            self.softs.insert(task);
        }
        let until = wait.timeout.map(|t| self.after(t)).into_iter().chain(wait.until).min();
        if let Some(deadline) = until {
            let timer = self.set_timer(task, deadline);
            self.deadlines.insert(timer);
        }
    }

    pub fn sleep(&mut self, task: TaskId, duration: Duration) {
        self.move_to(task, TaskState::Sleeping);
        let deadline = self.after(duration);
        let timer = self.set_timer(task, deadline);
        self.sleepers.insert(timer);
        let entry = self.task(task);
        (entry.wake, entry.nap) = (Wake::Ready, Nap::Timed);
    }

    pub fn poll(&mut self, task: TaskId, until: Option<Deadline>) {
        self.move_to(task, TaskState::Sleeping);
        self.order += 1;
        let turn = self.order;
        self.polls.insert((turn, task));
        let entry = self.task(task);
        (entry.wake, entry.nap, entry.due) = (Wake::Ready, Nap::Poll(turn), None);
        if let Some(deadline) = until {
            let timer = self.set_timer(task, deadline);
            self.deadlines.insert(timer);
        }
    }

    pub fn go_outside(&mut self, task: TaskId) {
        self.move_to(task, TaskState::Outside);
    }

    pub fn finish(&mut self, task: TaskId) {
        self.move_to(task, TaskState::Done);
    }

    /// Makes a waiting task runnable; false if it was not waiting.
    pub fn ready(&mut self, task: TaskId, wake: Wake) -> bool {
        match self.task(task).state {
            TaskState::Blocked | TaskState::Sleeping | TaskState::Outside => {
                self.move_to(task, TaskState::Runnable);
                self.task(task).wake = wake;
                true
            }
            TaskState::Runnable | TaskState::Running | TaskState::Done => false,
        }
    }

    pub fn abort(&mut self) {
        self.aborted = true;
        for task in (0..self.tasks.len()).map(|i| TaskId(i as u32)) {
            if matches!(self.task(task).state, TaskState::Blocked | TaskState::Sleeping) {
                self.ready(task, Wake::Aborted);
            }
        }
    }

    /// Gives the free baton to the next task, in the order that the crate's documentation states.
    pub fn dispatch(&mut self) -> Next {
        debug_assert!(self.holder.is_none(), "the baton is free");
        if let Some(task) = self.next_runnable() {
            return self.grant(task);
        }
        if !self.asked_in_vain(1) {
            return self.grant_poll().expect("somebody polls");
        }
        let expires_first = match (self.deadlines.first(), self.sleepers.first()) {
            (Some(deadline), Some(sleeper)) => deadline < sleeper && self.outside == 0,
            _ => false,
        };
        if let Some(first) = self.sleepers.first().copied().filter(|_| !expires_first) {
            let jumps =
                self.time.clock == Clock::Virtual && self.outside == 0 && self.asked_in_vain(ROUNDS_BEFORE_SLEEPERS);
            if jumps || self.is_due(first.task) {
                return self.grant_timed(first, Wake::Ready);
            }
            return self.grant_poll().unwrap_or(Next::Idle);
        }
        if self.outside > 0 {
            return self.grant_poll().unwrap_or(Next::Idle);
        }
        if let Some(task) = self.softs.first().copied().filter(|_| !expires_first) {
            self.task(task).wake = Wake::Soft;
            return self.grant(task);
        }
        if let Some(first) = self.deadlines.first().copied() {
            let jumps = self.time.clock == Clock::Virtual && self.asked_in_vain(ROUNDS_BEFORE_DEADLINES);
            if self.polls.is_empty() || jumps || self.is_due(first.task) {
                return self.grant_timed(first, Wake::TimedOut);
            }
        }
        if let Some(next) = self.grant_poll() {
            return next;
        }
        if self.blocked.iter().any(|&t| !self.tasks[t.0 as usize].daemon) { Next::Stalled } else { Next::Over }
    }

    /// Who wakes first by its time, for the thread to look at the clock again after a jump.
    pub fn first_sleeper(&self) -> Option<&Arc<Parker>> {
        self.sleepers.first().and_then(|first| self.tasks[first.task.0 as usize].parker.as_ref())
    }

    /// Whether each of those who poll has done so that often since anything else happened.
    fn asked_in_vain(&self, rounds: usize) -> bool {
        self.vain_polls >= self.polls.len().saturating_mul(rounds)
    }

    fn is_due(&self, task: TaskId) -> bool {
        self.tasks[task.0 as usize].due.is_none_or(|due| self.time.left(due).is_zero())
    }

    fn grant_timed(&mut self, first: WakeAt, wake: Wake) -> Next {
        self.now = self.now.max(first.virtual_time);
        let entry = self.task(first.task);
        entry.wake = wake;
        if let Some(due) = entry.due.take() {
            self.time.jump_to(due);
        }
        self.grant(first.task)
    }

    /// The next turn of who polls.
    fn grant_poll(&mut self) -> Option<Next> {
        let (_, task) = self.polls.first().copied()?;
        let vain = self.vain_polls.saturating_add(1);
        let next = self.grant(task);
        self.vain_polls = vain;
        Some(next)
    }

    fn next_runnable(&mut self) -> Option<TaskId> {
        match self.runnable.len() {
            0 => return None,
            1 if self.steps.is_none() => return self.runnable.first().copied(),
            _ => {}
        }
        self.scratch.clear();
        self.scratch.extend(&self.runnable);
        let picked = self.scratch[self.policy.pick(&self.scratch, self.last)];
        if let Some(steps) = &mut self.steps {
            steps.push(Step { runnable: self.scratch.clone(), picked });
        }
        Some(picked)
    }

    fn grant(&mut self, task: TaskId) -> Next {
        self.vain_polls = 0;
        self.move_to(task, TaskState::Running);
        Next::Task(task)
    }
}
