//! Exactly one of many threads runs at a time, and who runs next is decided here.
//!
//! A thread takes part as a *task*. The running task holds the *baton*; it hands over when it blocks, sleeps, yields,
//! goes out into an unmanaged system call, or ends. Because nobody runs while another decides, the order of all
//! hand-overs is a function of the program and of the [`Policy`] alone, so a run can be repeated exactly.
//!
//! When the baton is free, the next holder is looked for in this order:
//!
//! 1. a runnable task, chosen by the policy;
//! 2. who polls, in turn, until each has asked once more since anything else happened;
//! 3. the sleeper with the earliest *virtual* wake-up time, once its time has come, unless a deadline (6) comes
//!    before it. Virtual time advances by sleeps and deadlines only, never by computation, so the order of sleepers does
//!    not depend on the machine;
//! 4. a task that is outside comes back by itself: wait for it;
//! 5. a *soft* waiter: it said that it can go on without what it waits for;
//! 6. the waiter with the earliest deadline: nothing can happen before it, so it expires at once (while somebody polls:
//!    when it is due, or after many rounds);
//! 7. who polls, again;
//! 8. otherwise nobody can go on: the run is *stalled*, and whoever handed over last is told so.
//!
//! With a [`Clock::Real`] a sleeper's time comes when it has really passed. With a [`Clock::Virtual`] it comes when it
//! is the next thing to happen: time *jumps* there, for all tasks alike. While a task is outside time does not jump; it
//! passes.
//!
//! Tasks and their owners are opaque numbers. Nothing here knows of ranks, Python or I/O.

mod policy;
mod scheduler;
mod state;
mod timeline;

pub use policy::{Policy, Random, Replay, RoundRobin};
pub use scheduler::{Handoff, Scheduler, Switch};
pub use state::{OwnerId, Step, TaskId, TaskInfo, TaskState, Wait, Wake};
pub use timeline::{Clock, Deadline, Jumped};
