//! Nobody can go on. Why?

use std::collections::BTreeMap;
use std::sync::Arc;

use allranks_core::{CallSite, Finding, FindingId, GlobalRank, GroupId, Location, OpKind, OpRecord, RankSet, Severity};

use crate::DEFINITE;
use crate::describe::{describe, location};
use crate::meet::meeting;

/// What one task waits for.
#[derive(Clone, Debug)]
pub enum WaitFor {
    /// A collective: `arrived` are the operations of those who came (itself included), `missing` the others.
    Collective {
        /// This rank's operation.
        op: Arc<OpRecord>,
        /// What all who came issued, in the order of group ranks.
        arrived: Vec<Arc<OpRecord>>,
        /// Members who did not come.
        missing: RankSet,
    },
    /// A message. `peer` is `None` for a receive from anyone; `near` are messages between the two that wait under
    /// another tag.
    Message {
        /// This rank's operation.
        op: Arc<OpRecord>,
        /// The other side.
        peer: Option<GlobalRank>,
        /// Opposite messages with another tag.
        near: Vec<Arc<OpRecord>>,
    },
    /// Keys of a store that nobody has set.
    StoreKeys(Vec<String>),
    /// A thread, a lock or something else inside the rank: in words.
    Other(String),
}

/// One blocked task.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Whose.
    pub rank: GlobalRank,
    /// Where it stands.
    pub site: Option<CallSite>,
    /// For what.
    pub on: WaitFor,
}

/// A group as the stall report needs it.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: Arc<str>,
    /// The latest collectives of each member, oldest first.
    pub histories: BTreeMap<GlobalRank, Vec<Arc<OpRecord>>>,
}

/// Everything that is known when nobody can go on.
#[derive(Clone, Debug, Default)]
pub struct StallView {
    /// Blocked tasks.
    pub waiting: Vec<Waiting>,
    /// Ranks that ended, in whatever way.
    pub ended: RankSet,
    /// The groups.
    pub groups: BTreeMap<GroupId, GroupView>,
}

impl StallView {
    fn group_name(&self, op: &OpRecord) -> Arc<str> {
        self.groups.get(&op.group).map_or_else(|| "?".into(), |g| g.name.clone())
    }

    fn waits(&self, rank: GlobalRank) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(move |w| w.rank == rank)
    }

    /// Whom a wait is for; empty if that is not a matter of ranks.
    fn blockers(&self, on: &WaitFor) -> RankSet {
        match on {
            WaitFor::Collective { missing, .. } => missing.clone(),
            WaitFor::Message { peer, .. } => peer.iter().copied().collect(),
            WaitFor::StoreKeys(_) | WaitFor::Other(_) => RankSet::new(),
        }
    }
}

/// Explains a stall. Each blocked operation gives at most one finding; operations that already met and disagree give
/// the mismatch instead. Never empty if somebody waits.
pub fn stalled(view: &StallView) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut told: Vec<(GroupId, OpKind, u64)> = Vec::new();
    for waiting in &view.waiting {
        let WaitFor::Collective { op, arrived, missing } = &waiting.on else { continue };
        let key = (op.group, op.kind, op.seq.0);
        if told.contains(&key) {
            continue;
        }
        told.push(key);
        let arrived_refs: Vec<&OpRecord> = arrived.iter().map(Arc::as_ref).collect();
        if let Some(mismatch) = meeting(&view.group_name(op), &arrived_refs) {
            if !told_mismatch(&found, &mismatch) {
                found.push(mismatch);
            }
            continue;
        }
        // Members who wait elsewhere are part of a circle, told below; the others never come.
        let absent: RankSet = missing.iter().filter(|&r| view.waits(r).next().is_none()).collect();
        if absent.is_empty() {
            continue;
        }
        found.push(
            shifted(view, op, arrived, &absent).unwrap_or_else(|| missing_participant(view, op, arrived, &absent)),
        );
    }
    for waiting in &view.waiting {
        match &waiting.on {
            WaitFor::Message { op, peer, near } => {
                let twin = |f: &Finding| f.id == FindingId::TagMismatch && f.ranks.contains(op.rank);
                if let Some(finding) = lonely_message(view, op, *peer, near)
                    && !(finding.id == FindingId::TagMismatch && found.iter().any(twin))
                {
                    found.push(finding);
                }
            }
            WaitFor::StoreKeys(keys) => found.push(never_set(waiting, keys)),
            WaitFor::Collective { .. } | WaitFor::Other(_) => {}
        }
    }
    // Two messages that miss each other by their tags are a circle too, but that is not the cause.
    if !found.iter().any(|f| f.id == FindingId::TagMismatch) {
        found.extend(circle(view));
    }
    if found.is_empty() && !view.waiting.is_empty() {
        found.push(everybody(view));
    }
    found
}

fn told_mismatch(found: &[Finding], new: &Finding) -> bool {
    found.iter().any(|f| f.id == new.id && f.group == new.group && f.seq == new.seq)
}

fn missing_participant(view: &StallView, op: &OpRecord, arrived: &[Arc<OpRecord>], absent: &RankSet) -> Finding {
    let name = view.group_name(op);
    let here: RankSet = arrived.iter().map(|a| a.rank).collect();
    let ended = absent.iter().all(|r| view.ended.contains(r));
    let fate = if ended { "ended without it" } else { "never came" };
    let mut locations: Vec<Location> = arrived.iter().filter_map(|a| location(a)).collect();
    locations.extend(absent.iter().filter_map(|r| last_operation(view, op.group, r)));
    Finding {
        id: FindingId::MissingParticipant,
        severity: Severity::Error,
        headline: format!(
            "{} wait{} in {} #{} on group {name}, but {} {fate}",
            here.noun(),
            if here.len() == 1 { "s" } else { "" },
            describe(op),
            op.seq,
            absent.noun()
        ),
        ranks: absent.clone(),
        group: Some(name),
        op: Some(op.shown_kind()),
        seq: Some(op.seq),
        locations,
        hints: vec!["every member of a group must take part in each of its collectives".to_owned()],
        rule: DEFINITE.to_owned(),
    }
}

fn last_operation(view: &StallView, group: GroupId, rank: GlobalRank) -> Option<Location> {
    let history = view.groups.get(&group)?.histories.get(&rank)?;
    let last = history.last()?;
    let mut at = location(last)?;
    at.what = format!("its last collective on this group: {} #{}", at.what, last.seq);
    Some(at)
}

/// An absent rank whose operations look like the others' from some position on, but one earlier or later.
fn shifted(view: &StallView, op: &OpRecord, arrived: &[Arc<OpRecord>], absent: &RankSet) -> Option<Finding> {
    let group = view.groups.get(&op.group)?;
    let behind = absent.first()?;
    let theirs = group.histories.get(&behind)?;
    let full = group.histories.get(&arrived.first()?.rank)?;
    if absent.len() > 1 || theirs.len() + 1 != full.len() {
        return None;
    }
    let same = |a: &OpRecord, b: &OpRecord| a.kind == b.kind && a.site == b.site && a.inputs == b.inputs;
    let skipped = theirs.iter().zip(full).position(|(a, b)| !same(a, b))?;
    if !theirs[skipped..].iter().zip(&full[skipped + 1..]).all(|(a, b)| same(a, b)) {
        return None;
    }
    let (lost, met) = (&full[skipped], &theirs[skipped]);
    let mut locations: Vec<Location> =
        arrived.iter().filter_map(|a| group.histories.get(&a.rank)?.get(skipped)).filter_map(|a| location(a)).collect();
    locations.extend(location(met));
    locations.extend(arrived.iter().filter_map(|a| location(a)));
    Some(Finding {
        id: FindingId::SequenceShift,
        severity: Severity::Error,
        headline: format!(
            "rank {behind} skipped {} #{} on group {}: from there on it is one operation ahead of the others",
            describe(lost),
            lost.seq,
            group.name
        ),
        ranks: [behind].into_iter().collect(),
        group: Some(group.name.clone()),
        op: Some(lost.shown_kind()),
        seq: Some(lost.seq),
        locations,
        hints: vec!["look for a condition or an exception that only this rank meets".to_owned()],
        rule: DEFINITE.to_owned(),
    })
}

/// A message whose other side can not come any more, or waits under another tag.
fn lonely_message(
    view: &StallView,
    op: &OpRecord,
    peer: Option<GlobalRank>,
    near: &[Arc<OpRecord>],
) -> Option<Finding> {
    let mut locations: Vec<Location> = location(op).into_iter().collect();
    let sends = op.kind == OpKind::Send;
    let (id, headline, hints) = if let Some(other) = near.first() {
        locations.extend(near.iter().filter_map(|o| location(o)));
        let tag = |o: &OpRecord| o.tag.map_or(0, |t| t.0);
        let text = format!(
            "tags disagree ({} and {}): rank {} waits in {}, rank {} in {}",
            tag(op),
            tag(other),
            op.rank,
            describe(op),
            other.rank,
            describe(other)
        );
        (FindingId::TagMismatch, text, vec!["send and receive with the same tag".to_owned()])
    } else {
        let gone = match peer {
            Some(peer) => view.waits(peer).next().is_none(),
            None => view.waiting.iter().all(|w| w.rank == op.rank),
        };
        if !gone {
            return None;
        }
        let id = if sends { FindingId::UnmatchedSend } else { FindingId::UnmatchedRecv };
        let who = peer.map_or_else(|| "every other rank".to_owned(), |p| format!("rank {p}"));
        let verb = if sends { "receives it" } else { "sends it" };
        // When a deadline passes, the peer may still run or sleep.
        let runs = peer.is_some_and(|peer| !view.ended.contains(peer));
        let fate = if runs { "never" } else { "ended and never" };
        (id, format!("rank {} waits in {}, but {who} {fate} {verb}", op.rank, describe(op)), Vec::new())
    };
    let mut ranks: RankSet = [op.rank].into_iter().collect();
    ranks.extend(peer);
    Some(Finding {
        id,
        severity: Severity::Error,
        headline,
        ranks,
        group: Some(view.group_name(op)),
        op: Some(op.shown_kind()),
        seq: None,
        locations,
        hints,
        rule: DEFINITE.to_owned(),
    })
}

fn never_set(waiting: &Waiting, keys: &[String]) -> Finding {
    let what = format!("waits for store key {}", keys.join(", "));
    Finding {
        id: FindingId::StoreKeyNeverSet,
        severity: Severity::Error,
        headline: format!("rank {} {what}, which nobody will set", waiting.rank),
        ranks: [waiting.rank].into_iter().collect(),
        group: None,
        op: None,
        seq: None,
        locations: waiting.site.clone().map(|site| Location { rank: waiting.rank, site, what }).into_iter().collect(),
        hints: Vec::new(),
        rule: DEFINITE.to_owned(),
    }
}

/// Follows who waits for whom until a rank comes twice.
fn circle(view: &StallView) -> Option<Finding> {
    for start in &view.waiting {
        let mut path: Vec<&Waiting> = vec![start];
        loop {
            let last = path[path.len() - 1];
            let next = view.blockers(&last.on).iter().find_map(|r| view.waits(r).next());
            let Some(next) = next else { break };
            if let Some(at) = path.iter().position(|w| w.rank == next.rank) {
                return Some(cycle_finding(view, &path[at..]));
            }
            path.push(next);
        }
    }
    None
}

fn step_text(view: &StallView, waiting: &Waiting) -> String {
    match &waiting.on {
        WaitFor::Collective { op, missing, .. } => format!(
            "rank {} is in {} #{} on group {} and waits for {}",
            waiting.rank,
            describe(op),
            op.seq,
            view.group_name(op),
            missing.noun()
        ),
        WaitFor::Message { op, .. } => format!("rank {} is in {}", waiting.rank, describe(op)),
        WaitFor::StoreKeys(keys) => format!("rank {} waits for store key {}", waiting.rank, keys.join(", ")),
        WaitFor::Other(what) => format!("rank {} waits for {what}", waiting.rank),
    }
}

fn place(waiting: &Waiting) -> Option<Location> {
    match &waiting.on {
        WaitFor::Collective { op, .. } | WaitFor::Message { op, .. } => location(op),
        WaitFor::StoreKeys(_) | WaitFor::Other(_) => None,
    }
    .or_else(|| Some(Location { rank: waiting.rank, site: waiting.site.clone()?, what: "waits here".to_owned() }))
}

fn cycle_finding(view: &StallView, circle: &[&Waiting]) -> Finding {
    let sends = circle.iter().all(|w| matches!(&w.on, WaitFor::Message { op, .. } if op.kind == OpKind::Send));
    let steps: Vec<String> = circle.iter().map(|w| step_text(view, w)).collect();
    let hints = if sends {
        vec!["let one side receive first (order by parity), or use isend or batch_isend_irecv".to_owned()]
    } else {
        vec!["call the operations of all groups in one order on every rank".to_owned()]
    };
    Finding {
        id: FindingId::DeadlockCycle,
        severity: Severity::Error,
        headline: format!("ranks wait for each other: {}", steps.join("; ")),
        ranks: circle.iter().map(|w| w.rank).collect(),
        group: None,
        op: None,
        seq: None,
        locations: circle.iter().filter_map(|w| place(w)).collect(),
        hints,
        rule: if sends { "gloo: send waits for its receive".to_owned() } else { DEFINITE.to_owned() },
    }
}

/// The last resort: who waits where. Ranks that wait for something inside themselves are to blame, if there are any.
fn everybody(view: &StallView) -> Finding {
    let inside: RankSet = view.waiting.iter().filter(|w| matches!(w.on, WaitFor::Other(_))).map(|w| w.rank).collect();
    let mut steps: Vec<String> = view.waiting.iter().map(|w| step_text(view, w)).collect();
    steps.dedup();
    Finding {
        id: FindingId::DeadlockCycle,
        severity: Severity::Error,
        headline: format!("nobody can go on: {}", steps.join("; ")),
        ranks: if inside.is_empty() { view.waiting.iter().map(|w| w.rank).collect() } else { inside },
        group: None,
        op: None,
        seq: None,
        locations: view.waiting.iter().filter_map(place).collect(),
        hints: Vec::new(),
        rule: DEFINITE.to_owned(),
    }
}
