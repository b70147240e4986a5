//! All ranks of a program, with real data.
//!
//! A rank *issues* an operation and gets a [`Ticket`]. A collective is carried out by the member that comes last, a
//! message by the side that comes second; then its tickets are done and who waits for them is woken. Nobody blocks in
//! here: waiting is a matter of the scheduler, which the caller drives.

mod arguments;
mod call;
mod deadline;
mod execute;
mod found;
mod group;
mod messages;
mod open;
mod stall;
mod suspects;
mod ticket;
mod wording;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use allranks_check::{Failure, meeting, message};
use allranks_core::{
    Bytes, Event, EventSink, Finding, GlobalRank, GroupId, GroupRank, OpKind, OpRecord, Profile, RankSet,
};
use allranks_sched::{Scheduler, TaskId};

#[cfg(feature = "mutants")]
pub(crate) use call::Arrived;
pub use call::{Call, Refused};
use group::Group;
use open::OpenMessages;
pub use stall::StoreWait;
use suspects::Suspects;
pub use ticket::Ticket;

use crate::volume::bytes_moved;

/// What became of an operation when it was issued.
#[derive(Debug)]
pub enum Issued {
    /// It waits for others.
    Pending(Ticket),
    /// It is complete. `others` are the tickets of the other participants, which just became done too.
    Done {
        /// The caller's ticket.
        ticket: Ticket,
        /// Everybody else's.
        others: Vec<Ticket>,
    },
    /// It met others and disagrees: the run was aborted and nothing was carried out.
    Disagrees,
}

/// Counts for the closing line.
#[derive(Clone, Debug, Default)]
pub struct WorldSummary {
    /// Operations that were carried out, by kind; a collective counts once.
    pub operations: BTreeMap<OpKind, u64>,
    /// Name, size and bytes that would move between its members, of each group, in the order in which they were made.
    pub groups: Vec<(Arc<str>, u32, Bytes)>,
}

/// The state that all ranks share; see the module's documentation.
pub struct World {
    scheduler: Arc<Scheduler>,
    sink: Arc<dyn EventSink>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: Vec<Group>,
    findings: Vec<Finding>,
    failures: Vec<Failure>,
    /// Ready-made findings of ranks that may die of an exception; see [`World::suspect`].
    suspects: Suspects,
    ended: RankSet,
    waits: BTreeMap<TaskId, (GlobalRank, Ticket)>,
    /// Messages of each rank that it has not waited for; sends only as long as it can not know that they arrived.
    open_messages: BTreeMap<GlobalRank, OpenMessages>,
    aborted: bool,
}

impl World {
    /// Without groups.
    pub fn new(scheduler: Arc<Scheduler>, sink: Arc<dyn EventSink>) -> Self {
        // Threads that share out large copies must not inherit the affinity of the first rank that needs them.
        let _ = allranks_numerics::threads::available();
        Self { scheduler, sink, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics while it holds the world")
    }

    /// The group of this `key` and these members, for `rank` to join. The first call makes it; a rank that joins the
    /// same key again (after it destroyed its process groups) gets a new one, the same as the others that do.
    pub fn join_group(
        &self,
        key: &str,
        name: &str,
        members: &[GlobalRank],
        profile: Profile,
        rank: GlobalRank,
    ) -> GroupId {
        let mut inner = self.lock();
        let known =
            inner.groups.iter().position(|g| &*g.key == key && &*g.members == members && !g.joined.contains(rank));
        let at = known.unwrap_or_else(|| {
            inner.groups.push(Group::new(key, name, members, profile));
            inner.groups.len() - 1
        });
        inner.groups[at].joined.insert(rank);
        let group = GroupId(u32::try_from(at).expect("fewer than 2^32 groups"));
        if known.is_none() {
            let (name, members) = (inner.groups[at].name.clone(), inner.groups[at].members.clone());
            drop(inner);
            self.sink.emit(Event::GroupCreated { group, name, members });
        }
        group
    }

    /// Issues an operation of member `me` of `group`.
    ///
    /// # Errors
    /// [`Refused`]: the arguments are wrong by themselves; nothing happened.
    pub fn issue(&self, group: GroupId, me: GroupRank, call: Call) -> Result<Issued, Refused> {
        let mut inner = self.lock();
        if inner.aborted {
            return Ok(Issued::Disagrees);
        }
        let state = &mut inner.groups[group.0 as usize];
        let checked = call.check(state.profile, state.members.len(), me);
        if checked.as_ref().map_or_else(|refused| refused.late, |()| true) {
            state.count(me, &call.record);
        }
        checked?;
        if let Some(refused) = inner.refuse(group, me, &call.record) {
            return Err(refused);
        }
        let limit = call.timeout;
        let call = inner.groups[group.0 as usize].number(group, me, call);
        let record = call.record.clone();
        if let Some(limit) = limit.filter(|_| !record.kind.is_p2p()) {
            call.ticket.set_deadline(self.scheduler.after(limit), limit);
        }
        if let Some(late) = self.late_member(&inner, &record) {
            let now = self.scheduler.now();
            let aftermath = inner.break_off(group, late, now, &Arc::default());
            let refused = inner.refuse(group, me, &record);
            drop(inner);
            self.wake(aftermath);
            return Err(refused.expect("a member is gone"));
        }
        if self.sink.wants_operations() {
            self.sink.emit(Event::Issued(record.clone()));
        }
        let state = &mut inner.groups[group.0 as usize];
        let (ticket, met) = if record.kind.is_p2p() { state.message(me, call) } else { state.arrive(me, call) };
        if record.kind.is_p2p() {
            ticket.set_open(inner.open_messages.entry(record.rank).or_default().add(&record));
        }
        let Some(met) = met else { return Ok(Issued::Pending(ticket)) };
        let state = &mut inner.groups[group.0 as usize];
        let name = state.name.clone();
        let records: Vec<&OpRecord> = met.iter().map(|c| &*c.record).collect();
        let disagreement =
            if record.kind.is_p2p() { message(&name, records[0], records[1]) } else { meeting(&name, &records) };
        if let Some(finding) = disagreement {
            drop(inner);
            self.stop(vec![finding]);
            return Ok(Issued::Disagrees);
        }
        let (profile, size) = (state.profile, state.members.len());
        *state.operations.entry(met[0].record.shown_kind()).or_default() += 1;
        let moved = met.iter().enumerate().map(|(i, c)| bytes_moved(&c.record, size as u64, i as u32).0);
        state.bytes += moved.sum::<u64>();
        drop(inner);
        execute::execute(profile, size, &met);
        let others = met.iter().map(|c| c.ticket.clone()).filter(|t| !t.is(&ticket)).collect();
        for call in &met {
            for task in call.ticket.complete() {
                self.scheduler.wake(task);
            }
        }
        if self.sink.wants_operations() {
            self.sink.emit(Event::Completed { group, seq: record.seq, kind: record.kind });
        }
        Ok(Issued::Done { ticket, others })
    }

    /// Notes that `task` of `rank` is about to wait for a ticket, so that a stall can be explained.
    /// [`stop_waiting`](Self::stop_waiting) takes it back.
    pub fn start_waiting(&self, task: TaskId, rank: GlobalRank, ticket: &Ticket) {
        ticket.add_waiter(task);
        self.lock().waits.insert(task, (rank, ticket.clone()));
    }

    /// The program knows a ticket to be complete. After a collective or a receive it may well know that its earlier
    /// messages have arrived, so they are not held against it any more.
    pub fn waited(&self, ticket: &Ticket) {
        let record = ticket.record();
        let mut inner = self.lock();
        let Some(open) = inner.open_messages.get_mut(&record.rank) else { return };
        if let Some(line) = ticket.take_open() {
            open.waited(&line);
        }
        if record.kind != OpKind::Send && ticket.failure().is_none() {
            open.forgive_sends();
        }
    }

    /// The task does not wait any more.
    pub fn stop_waiting(&self, task: TaskId, ticket: &Ticket) {
        ticket.remove_waiter(task);
        self.lock().waits.remove(&task);
    }

    /// Reports findings and ends the run: every rank that waits, or will, is told so. Only the first call reports.
    pub fn stop(&self, findings: Vec<Finding>) {
        let first = !std::mem::replace(&mut self.lock().aborted, true);
        if first {
            for finding in findings {
                self.find(finding);
            }
        }
        self.scheduler.abort();
    }

    /// A rank raised, or exited with a status other than 0.
    pub fn rank_failed(&self, failure: Failure) {
        self.lock().failures.push(failure);
    }

    /// A rank ended, in whatever way. Returns what it left behind: messages that it did not wait for (sends that it can
    /// know to be received are forgiven).
    pub fn rank_ended(&self, rank: GlobalRank, ok: bool) -> Vec<Arc<OpRecord>> {
        let mut inner = self.lock();
        inner.ended.insert(rank);
        let open = inner.open_messages.remove(&rank).unwrap_or_default();
        let left = if inner.aborted { Vec::new() } else { open.left() };
        drop(inner);
        self.sink.emit(Event::RankEnded { rank, ok });
        left
    }

    /// Counts so far.
    pub fn summary(&self) -> WorldSummary {
        let inner = self.lock();
        let mut summary = WorldSummary::default();
        for group in &inner.groups {
            for (kind, n) in &group.operations {
                *summary.operations.entry(*kind).or_default() += n;
            }
            if group.bytes > 0 {
                let size = group.members.len() as u32;
                // A group that was made again goes on where the one before it ended.
                match summary.groups.iter_mut().find(|(name, n, _)| *name == group.name && *n == size) {
                    Some((_, _, bytes)) => bytes.0 += group.bytes,
                    None => summary.groups.push((group.name.clone(), size, Bytes(group.bytes))),
                }
            }
        }
        summary
    }

    /// Members (group ranks) who have not come to a collective that is not complete; empty if it is complete.
    pub fn absent(&self, ticket: &Ticket) -> Vec<GroupRank> {
        if let Some(absent) = ticket.absent() {
            return absent.to_vec();
        }
        let record = ticket.record();
        let inner = self.lock();
        inner.groups[record.group.0 as usize].slot(record).map_or_else(Vec::new, |slot| slot.absent().collect())
    }

    /// The sequence number that the backend would give: gloo counts as in `gloo_steps` of the module `sequence`, NCCL the
    /// collectives that the member has issued.
    pub fn next_seq(&self, group: GroupId, me: GroupRank) -> u64 {
        self.lock().groups[group.0 as usize].next_seq(me)
    }
}
