//! What a stall looks like from inside.

use std::collections::BTreeMap;
use std::sync::Arc;

use allranks_check::{GroupView, StallView, WaitFor, Waiting, stalled};
use allranks_core::{CallSite, Event, Finding, GlobalRank, GroupId, GroupRank, OpKind, OpRecord, RankSet};
use allranks_sched::{TaskId, TaskState};

use super::group::Group;
use super::{Inner, World};

/// A task that waits for keys of a store.
#[derive(Clone, Debug)]
pub struct StoreWait {
    /// The task.
    pub task: TaskId,
    /// Its keys.
    pub keys: Vec<String>,
}

impl World {
    /// Explains why nobody can go on, and ends the run. `sites` says where tasks stand, as far as that is known.
    /// Returns what was found.
    pub fn stalled(&self, sites: &BTreeMap<TaskId, CallSite>, stores: &[StoreWait]) -> Vec<Finding> {
        let (waiting, found) = self.explain(sites, stores);
        self.sink.emit(Event::Stalled { waiting });
        self.stop(found.clone());
        found
    }

    /// Who waits, and why these go no further.
    pub(super) fn explain(&self, sites: &BTreeMap<TaskId, CallSite>, stores: &[StoreWait]) -> (RankSet, Vec<Finding>) {
        let view = self.view(sites, stores);
        // Ranks that failed explain who is missing: they are the first cause, and told from `failures`.
        let failed: RankSet = self.lock().failures.iter().map(|f| f.rank).collect();
        let found = stalled(&view)
            .into_iter()
            .filter(|f| failed.is_empty() || !f.ranks.iter().any(|r| failed.contains(r)) || is_mismatch(f))
            .collect();
        (view.waiting.iter().map(|w| w.rank).collect(), found)
    }

    /// Who waits where, in words, for every blocked task: `(rank, place, what)`.
    pub fn standing(
        &self,
        sites: &BTreeMap<TaskId, CallSite>,
        stores: &[StoreWait],
    ) -> Vec<(GlobalRank, Option<CallSite>, String)> {
        let say = |w: Waiting| {
            let what = match &w.on {
                WaitFor::Collective { op, missing, .. } => {
                    format!("in {} #{}, waits for {}", allranks_check::describe(op), op.seq, missing.noun())
                }
                WaitFor::Message { op, .. } => format!("in {}", allranks_check::describe(op)),
                WaitFor::StoreKeys(keys) => format!("waits for store key {}", keys.join(", ")),
                WaitFor::Other(what) => format!("waits for {what}"),
            };
            (w.rank, w.site, what)
        };
        self.view(sites, stores).waiting.into_iter().map(say).collect()
    }

    fn view(&self, sites: &BTreeMap<TaskId, CallSite>, stores: &[StoreWait]) -> StallView {
        let tasks = self.scheduler.tasks();
        let inner = self.lock();
        // Whoever noticed the stall was about to wait: its task still runs.
        let waiting = tasks.iter().filter(|t| t.state != TaskState::Done).filter_map(|t| {
            let rank = GlobalRank(t.owner.0);
            let on = match inner.waits.get(&t.task) {
                Some((_, ticket)) => wait_for(&inner, ticket.record()),
                None => match stores.iter().find(|s| s.task == t.task) {
                    Some(store) => WaitFor::StoreKeys(store.keys.clone()),
                    None if matches!(t.state, TaskState::Blocked | TaskState::Running) && !t.daemon => {
                        WaitFor::Other("a thread, a lock or a queue of its own".to_owned())
                    }
                    None => return None,
                },
            };
            let of_op = match &on {
                WaitFor::Collective { op, .. } | WaitFor::Message { op, .. } => op.site.clone(),
                WaitFor::StoreKeys(_) | WaitFor::Other(_) => None,
            };
            Some(Waiting { rank, site: of_op.or_else(|| sites.get(&t.task).cloned()), on })
        });
        let waiting = waiting.collect();
        let groups = inner.groups.iter().enumerate().map(|(i, g)| (GroupId(i as u32), group_view(g))).collect();
        StallView { waiting, ended: inner.ended.clone(), groups }
    }
}

fn is_mismatch(finding: &Finding) -> bool {
    use allranks_core::FindingId as Id;
    matches!(
        finding.id,
        Id::KindMismatch
            | Id::ShapeMismatch
            | Id::DtypeMismatch
            | Id::ReduceOpMismatch
            | Id::RootMismatch
            | Id::SplitMismatch
            | Id::CountMismatch
            | Id::GroupMismatch
    )
}

fn group_view(group: &Group) -> GroupView {
    let of = |(i, rank): (usize, &GlobalRank)| (*rank, group.history(GroupRank(i as u32)));
    GroupView { name: group.name.clone(), histories: group.members.iter().enumerate().map(of).collect() }
}

fn wait_for(inner: &Inner, op: &Arc<OpRecord>) -> WaitFor {
    let group = &inner.groups[op.group.0 as usize];
    if op.kind.is_p2p() {
        let peer = op.root.map(|r| group.members[r.index()]);
        return WaitFor::Message { op: op.clone(), peer, near: near(group, op) };
    }
    let slot = group.slot(op);
    let mut arrived = Vec::new();
    let mut missing = RankSet::new();
    for (i, rank) in group.members.iter().enumerate() {
        match slot.and_then(|s| s.arrived[i].as_ref()) {
            Some(call) => arrived.push(call.record.clone()),
            None => {
                missing.insert(*rank);
            }
        }
    }
    WaitFor::Collective { op: op.clone(), arrived, missing }
}

/// Messages between the same two ranks, in the same direction, that wait for their other side.
fn near(group: &Group, op: &OpRecord) -> Vec<Arc<OpRecord>> {
    let me = group.members.iter().position(|m| *m == op.rank).map(|i| GroupRank(i as u32));
    let Some(me) = me else { return Vec::new() };
    if op.kind == OpKind::Send {
        let fits = |(to, r): &(GroupRank, &super::call::Arrived)| {
            Some(*to) == op.root && r.record.root.is_none_or(|from| from == me)
        };
        group.messages.recvs().filter(fits).map(|(_, r)| r.record.clone()).collect()
    } else {
        let fits = |(from, s): &(GroupRank, &super::call::Arrived)| {
            s.record.root == Some(me) && op.root.is_none_or(|r| r == *from)
        };
        group.messages.sends().filter(fits).map(|(_, s)| s.record.clone()).collect()
    }
}
