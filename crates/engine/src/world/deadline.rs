//! A wait of gloo's times out: what becomes of the operation, and of the group.
//!
//! gloo ends all connections of the rank within that group. Whatever else it has in flight there fails, whatever it
//! issues later fails at once, and others fail in each operation that needs it. Other groups go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allranks_core::{CallSite, Finding, GlobalRank, GroupId, GroupRank, OpKind, OpRecord};
use allranks_numerics::rules::Exception;
use allranks_sched::{Deadline, TaskId};

use super::call::Arrived;
use super::suspects::{Snapshot, Suspicion};
use super::wording::{BROKEN, CLOSED, timed_out};
use super::{Inner, Refused, StoreWait, Ticket, World};

/// What has to happen once the world's lock is released.
#[derive(Default)]
pub(super) struct Aftermath {
    tasks: Vec<TaskId>,
    /// Their memory is let go last: that may run code of the program.
    _withdrawn: Vec<Arrived>,
}

impl World {
    /// The wait of `rank` is about to time out: keeps what can be said of it. `sites` and `stores` as for
    /// [`stalled`](World::stalled).
    pub fn expiring(&self, rank: GlobalRank, sites: &BTreeMap<TaskId, CallSite>, stores: &[StoreWait]) {
        if !self.knows_why(rank) {
            let (ranks, findings) = self.explain(sites, stores);
            let at = self.scheduler.now();
            self.lock().suspects.snapshot = Snapshot { at, ranks: ranks.iter().collect(), findings: findings.into() };
        }
    }

    /// Whether [`expiring`](Self::expiring) has nothing to find out: others timed out at the same time.
    pub fn knows_why(&self, rank: GlobalRank) -> bool {
        let now = self.scheduler.now();
        let snapshot = &self.lock().suspects.snapshot;
        snapshot.at == now && snapshot.ranks.contains(&rank)
    }

    /// `rank` gets an exception with this text because a wait of its own timed out. If it dies of that, what was found
    /// by [`expiring`](Self::expiring) is reported in place of the failure.
    pub fn suspect_stall(&self, rank: GlobalRank, text: &str) {
        let mut inner = self.lock();
        let findings = inner.suspects.snapshot.findings.clone();
        inner.suspects.snapshot.ranks.remove(&rank);
        inner.suspects.by_rank.insert(rank, Suspicion { findings, text: Some(text.into()) });
    }

    /// The exception that `rank` dies of, and those that it came from, have these texts: other suspicions are void.
    pub fn dies_of(&self, rank: GlobalRank, texts: &[String]) {
        self.lock().suspects.dies_of(rank, texts);
    }

    /// When the wait for an operation ends: for a collective that is fixed when it is issued, for a message it is its
    /// limit from now, for either `limit` from now if that is given.
    pub fn wait_until(&self, ticket: &Ticket, limit: Option<Duration>) -> Option<Deadline> {
        let of_message = ticket.limit().filter(|_| ticket.record().kind.is_p2p());
        if let Some(limit) = limit.or(of_message) {
            ticket.set_deadline(self.scheduler.after(limit), limit);
        }
        ticket.deadline()
    }

    /// The time of an operation is over: it fails, and whatever else this rank has in its group.
    pub fn expire(&self, ticket: &Ticket) {
        let now = self.scheduler.now();
        let op = ticket.record();
        let mut inner = self.lock();
        let me = inner.groups[op.group.0 as usize].member(op.rank);
        let findings = inner.suspects.snapshot.findings.clone();
        let aftermath = inner.break_off(op.group, me, now, &findings);
        drop(inner);
        self.wake(aftermath);
    }

    /// Whether the time of an operation is over although it is not complete.
    pub fn is_overdue(&self, ticket: &Ticket) -> bool {
        !ticket.is_done() && ticket.deadline().is_some_and(|d| d.at <= self.scheduler.now())
    }

    pub(super) fn wake(&self, aftermath: Aftermath) {
        for task in &aftermath.tasks {
            self.scheduler.wake(*task);
        }
        drop(aftermath);
    }

    /// A member that came to this collective before, and whose time for it is over by now.
    pub(super) fn late_member(&self, inner: &Inner, op: &OpRecord) -> Option<GroupRank> {
        let (over, member) = inner.groups[op.group.0 as usize].slot(op)?.earliest?;
        (over < self.scheduler.now()).then_some(member)
    }
}

impl Inner {
    /// Why a member can not issue an operation: its connections, or those of whom it needs, are gone.
    pub(super) fn refuse(&mut self, group: GroupId, me: GroupRank, op: &OpRecord) -> Option<Refused> {
        let state = &self.groups[group.0 as usize];
        if state.broken.is_empty() || op.kind == OpKind::NewGroup {
            return None;
        }
        let needs = |member: GroupRank| !op.kind.is_p2p() || op.root == Some(member);
        let (message, findings) = match state.broken.get(&me) {
            Some(findings) => (BROKEN, findings.clone()),
            None => (CLOSED, state.broken.iter().find(|(member, _)| needs(**member))?.1.clone()),
        };
        if !findings.is_empty() || !self.failures.is_empty() {
            self.suspects.by_rank.insert(op.rank, Suspicion { findings, text: Some(message.into()) });
        }
        let late = !op.kind.is_p2p();
        Some(Refused { exception: Exception::RuntimeError, message: message.to_owned(), late })
    }

    /// Ends all connections of a member: what it takes part in fails, for others too. Those whose time is over as well
    /// time out themselves.
    pub(super) fn break_off(
        &mut self,
        group: GroupId,
        member: GroupRank,
        now: Duration,
        findings: &Arc<[Finding]>,
    ) -> Aftermath {
        let state = &mut self.groups[group.0 as usize];
        let size = state.members.len();
        let mut aftermath = Aftermath::default();
        let mut todo = vec![member];
        while let Some(member) = todo.pop() {
            if state.broken.insert(member, findings.clone()).is_some() {
                continue;
            }
            for (owner, arrived, absent) in state.withdraw(member) {
                let op = &arrived.record;
                let over = arrived.ticket.deadline().is_some_and(|d| d.at <= now);
                let text: Arc<str> = if over {
                    timed_out(op, owner, size, &absent, arrived.ticket.limit()).into()
                } else if owner == member {
                    BROKEN.into()
                } else {
                    CLOSED.into()
                };
                if over {
                    todo.push(owner);
                }
                if !findings.is_empty() || !self.failures.is_empty() {
                    let suspicion = Suspicion { findings: findings.clone(), text: Some(text.clone()) };
                    self.suspects.by_rank.insert(op.rank, suspicion);
                }
                self.suspects.snapshot.ranks.remove(&op.rank);
                aftermath.tasks.extend(arrived.ticket.fail(text, absent));
                aftermath._withdrawn.push(arrived);
            }
        }
        aftermath
    }
}
