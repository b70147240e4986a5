//! What is known of each task, and the decision who runs next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::Policy;

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

pub(crate) struct Task {
    pub owner: OwnerId,
    pub daemon: bool,
    pub state: TaskState,
    pub wake: Wake,
    pub wait: Wait,
    /// None until the thread of the task has come.
    pub parker: Option<Arc<Parker>>,
    /// A sleeper's real wake-up time.
    pub real_deadline: Option<Instant>,
    timer: Option<WakeAt>,
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
    policy: Box<dyn Policy>,
    runnable: BTreeSet<TaskId>,
    sleepers: BTreeSet<WakeAt>,
    deadlines: BTreeSet<WakeAt>,
    softs: BTreeSet<TaskId>,
    outside: usize,
    last: Option<TaskId>,
    now: Duration,
    order: u64,
    scratch: Vec<TaskId>,
    blocked: BTreeMap<TaskId, ()>,
}

impl State {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            tasks: Vec::new(),
            holder: None,
            aborted: false,
            switches: 0,
            steps: None,
            policy,
            runnable: BTreeSet::new(),
            sleepers: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            softs: BTreeSet::new(),
            outside: 0,
            last: None,
            now: Duration::ZERO,
            order: 0,
            scratch: Vec::new(),
            blocked: BTreeMap::new(),
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
            real_deadline: None,
            timer: None,
        });
        self.runnable.insert(task);
        task
    }

    fn timer(&mut self, task: TaskId, after: Duration) -> WakeAt {
        self.order += 1;
        WakeAt { virtual_time: self.now.saturating_add(after), order: self.order, task }
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
                if let Some(timer) = self.task(task).timer.take() {
                    self.sleepers.remove(&timer);
                }
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
                self.blocked.insert(task, ());
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
        if let Some(timeout) = wait.timeout {
            let timer = self.timer(task, timeout);
            self.deadlines.insert(timer);
            self.task(task).timer = Some(timer);
        }
    }

    pub fn sleep(&mut self, task: TaskId, duration: Duration) {
        self.move_to(task, TaskState::Sleeping);
        let timer = self.timer(task, duration);
        self.sleepers.insert(timer);
        let entry = self.task(task);
        entry.timer = Some(timer);
        entry.wake = Wake::Ready;
        entry.real_deadline = Some(Instant::now() + duration);
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
        let expires_first = match (self.deadlines.first(), self.sleepers.first()) {
            (Some(deadline), Some(sleeper)) => deadline < sleeper && self.outside == 0,
            _ => false,
        };
        if let Some(first) = self.sleepers.first().copied().filter(|_| !expires_first) {
            let due = self.task(first.task).real_deadline.is_none_or(|at| at <= Instant::now());
            if !due {
                return Next::Idle;
            }
            self.now = self.now.max(first.virtual_time);
            return self.grant(first.task);
        }
        if self.outside > 0 {
            return Next::Idle;
        }
        if let Some(task) = self.softs.first().copied().filter(|_| !expires_first) {
            self.task(task).wake = Wake::Soft;
            return self.grant(task);
        }
        if let Some(first) = self.deadlines.first().copied() {
            self.now = self.now.max(first.virtual_time);
            self.task(first.task).wake = Wake::TimedOut;
            return self.grant(first.task);
        }
        if self.blocked.keys().any(|&t| !self.tasks[t.0 as usize].daemon) { Next::Stalled } else { Next::Over }
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
        self.move_to(task, TaskState::Running);
        Next::Task(task)
    }
}
