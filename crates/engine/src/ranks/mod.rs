//! Ranks as closures: the engine for Rust programs.
//!
//! ```
//! use allranks_core::ReduceOp;
//! use allranks_engine::{Options, run};
//!
//! let sums = run(4, &Options::default(), |rank| {
//!     let mut data = [rank.rank().0 as f32, 1.0];
//!     rank.world().all_reduce(&mut data, ReduceOp::Sum);
//!     data
//! })
//! .expect("the ranks agree");
//! assert_eq!(sums, vec![[6.0, 4.0]; 4]);
//! ```
//!
//! What disagrees or waits for ever is an answer, not a hang:
//!
//! ```
//! use allranks_core::FindingId;
//! use allranks_engine::{Options, run};
//!
//! let error = run(2, &Options::default(), |rank| {
//!     if rank.rank().0 == 0 {
//!         rank.world().barrier();
//!     }
//! })
//! .expect_err("rank 1 never comes");
//! assert_eq!(error.findings[0].id, FindingId::MissingParticipant);
//! ```

mod element;
mod group;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use allranks_check::Failure;
use allranks_core::{EventSink, Finding, GlobalRank, GroupId, GroupRank, NullSink, OpKind, Profile};
use allranks_sched::{Handoff, OwnerId, Random, RoundRobin, Scheduler, TaskId, Wait, Wake};

pub use element::Element;
pub use group::Group;

use crate::Ticket;
use crate::world::World;

/// How to run.
#[derive(Clone)]
pub struct Options {
    /// Whose rules and order of reduction hold.
    pub profile: Profile,
    /// A seed makes the choice of the next rank random, and repeatable; none is round robin.
    pub seed: Option<u64>,
    /// Where events go.
    pub sink: Arc<dyn EventSink>,
}

impl Default for Options {
    fn default() -> Self {
        Self { profile: Profile::Gloo, seed: None, sink: Arc::new(NullSink) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("profile", &self.profile).field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// A run that did not end well.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.findings.iter().map(|f| format!("{}: {}", f.id, f.headline)).collect::<Vec<_>>().join("; "))]
pub struct RunError {
    /// Why; never empty.
    pub findings: Vec<Finding>,
}

/// One rank, inside its closure.
pub struct Rank<'a> {
    world: &'a World,
    scheduler: &'a Scheduler,
    task: TaskId,
    rank: GlobalRank,
    size: u32,
    group: GroupId,
    profile: Profile,
    groups_made: Mutex<u32>,
}

/// Ends a rank whose run was aborted; never seen outside.
struct Aborted;

/// Runs `body` as every rank of a world, one at a time, each on a thread of its own, and returns what they return, by
/// rank. A rank that panics has failed.
///
/// # Errors
/// [`RunError`] if ranks disagree, wait for ever, or panic.
///
/// # Panics
/// If `world_size` is 0, or a thread can not be made.
pub fn run<T: Send>(
    world_size: u32,
    options: &Options,
    body: impl Fn(&Rank<'_>) -> T + Sync,
) -> Result<Vec<T>, RunError> {
    assert!(world_size > 0, "a world has at least one rank");
    let scheduler = Arc::new(match options.seed {
        Some(seed) => Scheduler::new(Random::new(seed)),
        None => Scheduler::new(RoundRobin),
    });
    let world = World::new(scheduler.clone(), options.sink.clone());
    let everybody: Vec<GlobalRank> = (0..world_size).map(GlobalRank).collect();
    let tasks: Vec<TaskId> = everybody.iter().map(|r| scheduler.spawn(OwnerId(r.0), false)).collect();
    let results: Vec<Mutex<Option<T>>> = everybody.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for (&rank, &task) in everybody.iter().zip(&tasks) {
            let (world, scheduler, results, body, everybody) = (&world, &scheduler, &results, &body, &everybody);
            scope.spawn(move || {
                scheduler.attach(task);
                let group = world.join_group("WORLD", "WORLD", everybody, options.profile, rank);
                let me = Rank {
                    world,
                    scheduler,
                    task,
                    rank,
                    size: world_size,
                    group,
                    profile: options.profile,
                    groups_made: Mutex::new(0),
                };
                let outcome = catch_unwind(AssertUnwindSafe(|| body(&me)));
                let ok = outcome.is_ok();
                match outcome {
                    Ok(value) => *results[rank.index()].lock().expect("one writer") = Some(value),
                    Err(panic) if panic.is::<Aborted>() => {}
                    Err(panic) => {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked");
                        world.rank_failed(Failure { rank, site: None, message: text.to_owned() });
                    }
                }
                world.rank_ended(rank, ok);
                if scheduler.finish(task) {
                    world.stalled(&BTreeMap::new(), &[]);
                }
            });
        }
        scheduler.start();
        while !scheduler.wait_over(Duration::from_secs(3600)) {}
    });
    let findings = world.findings();
    if findings.iter().any(|f| f.severity == allranks_core::Severity::Error) {
        return Err(RunError { findings });
    }
    Ok(results.into_iter().map(|r| r.into_inner().expect("no thread is left").expect("no rank failed")).collect())
}

impl<'a> Rank<'a> {
    /// Which.
    pub fn rank(&self) -> GlobalRank {
        self.rank
    }

    /// Of how many.
    pub fn world_size(&self) -> u32 {
        self.size
    }

    /// The group of all ranks.
    pub fn world(&'a self) -> Group<'a> {
        Group { rank: self, id: self.group, me: GroupRank(self.rank.0), size: self.size as usize }
    }

    /// A new group of some ranks, in ascending order; every rank of the world calls it, outsiders get `None`.
    #[track_caller]
    pub fn new_group(&'a self, ranks: &[u32]) -> Option<Group<'a>> {
        let mut members: Vec<GlobalRank> = ranks.iter().copied().map(GlobalRank).collect();
        members.sort_unstable();
        members.dedup();
        let mut call = self.world().call(OpKind::NewGroup, Location::caller());
        call.record.members = members.clone();
        self.world().carry_out(call);
        let number = {
            let mut made = self.groups_made.lock().expect("one thread a rank");
            *made += 1;
            *made
        };
        let me = members.iter().position(|m| *m == self.rank)?;
        let key = format!("group {number}");
        let id = self.world.join_group(&key, &key, &members, self.profile, self.rank);
        Some(Group { rank: self, id, me: GroupRank(me as u32), size: members.len() })
    }

    /// Lets the other ranks run first.
    pub fn yield_now(&self) {
        self.go(self.scheduler.yield_now(self.task));
    }

    fn go(&self, handoff: Handoff<'_>) {
        let wake = match handoff {
            Handoff::Continue(wake) => wake,
            Handoff::Park(switch) => switch.go(),
            Handoff::Stalled => {
                self.world.stalled(&BTreeMap::new(), &[]);
                Wake::Aborted
            }
        };
        if wake == Wake::Aborted {
            resume_unwind(Box::new(Aborted));
        }
    }

    fn wait(&self, ticket: &Ticket) {
        while !ticket.is_done() {
            self.world.start_waiting(self.task, self.rank, ticket);
            self.go(self.scheduler.block(self.task, Wait::default()));
            self.world.stop_waiting(self.task, ticket);
        }
        self.world.waited(ticket);
    }
}
