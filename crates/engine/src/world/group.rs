//! One process group: who is in it, what waits there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use allranks_core::{Finding, GlobalRank, GroupId, GroupRank, OpKind, OpRecord, Profile, RankSet, Seq};

use super::call::{Arrived, Call};
use super::messages::Messages;
use super::ticket::Ticket;
use crate::sequence::gloo_steps;

/// How many collectives of each member are remembered for reports.
const HISTORY: usize = 256;

/// Collectives that count apart: a group is made, or watched over, beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Data,
    NewGroup,
    MonitoredBarrier,
}

impl Stream {
    pub fn of(kind: OpKind) -> Self {
        match kind {
            OpKind::NewGroup => Stream::NewGroup,
            OpKind::MonitoredBarrier => Stream::MonitoredBarrier,
            _ => Stream::Data,
        }
    }
}

/// A collective that not all members have come to.
pub(super) struct Slot {
    pub arrived: Vec<Option<Arrived>>,
    pub count: usize,
    /// Whose time is over first, and when, in virtual time.
    pub earliest: Option<(Duration, GroupRank)>,
}

impl Slot {
    /// Members who have not come.
    pub fn absent(&self) -> impl Iterator<Item = GroupRank> {
        self.arrived.iter().enumerate().filter(|(_, a)| a.is_none()).map(|(i, _)| GroupRank(i as u32))
    }
}

pub(super) struct Group {
    pub key: Arc<str>,
    pub name: Arc<str>,
    pub members: Arc<[GlobalRank]>,
    pub profile: Profile,
    /// Members that have made their end of it.
    pub joined: RankSet,
    pub slots: BTreeMap<(Stream, Seq), Slot>,
    pub messages: Messages,
    /// Members whose wait timed out, and what was found then: they have no connections any more.
    pub broken: BTreeMap<GroupRank, Arc<[Finding]>>,
    pub operations: BTreeMap<OpKind, u64>,
    pub bytes: u64,
    next: BTreeMap<(Stream, GroupRank), u64>,
    /// By member: gloo's sequence number.
    gloo_sequence: Vec<u64>,
    histories: BTreeMap<GroupRank, VecDeque<Arc<OpRecord>>>,
    forgot: bool,
}

impl Group {
    pub fn new(key: &str, name: &str, members: &[GlobalRank], profile: Profile) -> Self {
        Self {
            key: key.into(),
            name: name.into(),
            members: members.into(),
            profile,
            joined: RankSet::new(),
            slots: BTreeMap::new(),
            messages: Messages::default(),
            broken: BTreeMap::new(),
            operations: BTreeMap::new(),
            bytes: 0,
            next: BTreeMap::new(),
            gloo_sequence: vec![0; members.len()],
            histories: BTreeMap::new(),
            forgot: false,
        }
    }

    /// Counts an operation that the backend took, even if its worker fails.
    pub fn count(&mut self, me: GroupRank, record: &OpRecord) {
        let size = self.members.len() as u64;
        self.gloo_sequence[me.index()] += gloo_steps(record.kind, record.inputs.len() as u64, size, me);
    }

    pub fn next_seq(&self, me: GroupRank) -> u64 {
        if self.profile == Profile::Gloo {
            return self.gloo_sequence[me.index()];
        }
        self.next.get(&(Stream::Data, me)).copied().unwrap_or(0)
    }

    /// Gives a call its place in the member's sequence.
    pub fn number(&mut self, id: GroupId, me: GroupRank, mut call: Call) -> Arrived {
        let record = &mut call.record;
        record.group = id;
        record.seq = if record.kind.is_p2p() {
            self.messages.next_number(me)
        } else {
            let next = self.next.entry((Stream::of(record.kind), me)).or_default();
            *next += 1;
            Seq(*next - 1)
        };
        let record = call.record.clone();
        let arrived = Arrived::new(record, call);
        if Stream::of(arrived.record.kind) == Stream::Data && !arrived.record.kind.is_p2p() {
            let history = self.histories.entry(me).or_default();
            if history.len() == HISTORY {
                history.pop_front();
                self.forgot = true;
            }
            history.push_back(arrived.record.clone());
        }
        arrived
    }

    /// A member comes to a collective; if it is the last, all come out in the order of group ranks.
    pub fn arrive(&mut self, me: GroupRank, call: Arrived) -> (Ticket, Option<Vec<Arrived>>) {
        let key = (Stream::of(call.record.kind), call.record.seq);
        let size = self.members.len();
        let slot = self.slots.entry(key).or_insert_with(|| Slot {
            arrived: std::iter::repeat_with(|| None).take(size).collect(),
            count: 0,
            earliest: None,
        });
        let ticket = call.ticket.clone();
        let over = ticket.deadline().map(|d| (d.at, me));
        slot.earliest = slot.earliest.into_iter().chain(over).min();
        let before = slot.arrived[me.index()].replace(call);
        assert!(before.is_none(), "a member's positions are numbered without repetition");
        slot.count += 1;
        if slot.count < size {
            return (ticket, None);
        }
        let slot = self.slots.remove(&key).expect("just filled");
        (ticket, Some(slot.arrived.into_iter().flatten().collect()))
    }

    /// A send or a receive; with its other side, the send comes first.
    pub fn message(&mut self, me: GroupRank, call: Arrived) -> (Ticket, Option<Vec<Arrived>>) {
        let ticket = call.ticket.clone();
        (ticket, self.messages.post(self.profile, me, call).map(|(send, recv)| vec![send, recv]))
    }

    /// The group rank of a member.
    pub fn member(&self, rank: GlobalRank) -> GroupRank {
        let at = self.members.iter().position(|m| *m == rank).expect("only members have tickets of a group");
        GroupRank(at as u32)
    }

    /// Takes out what waits in the group and needs `member`: whose it is, and who has not come to it.
    pub fn withdraw(&mut self, member: GroupRank) -> Vec<(GroupRank, Arrived, Vec<GroupRank>)> {
        let mut taken = Vec::new();
        // Everybody takes part in a collective. Groups are made over the store.
        let (kept, gone) =
            std::mem::take(&mut self.slots).into_iter().partition(|((stream, _), _)| *stream == Stream::NewGroup);
        self.slots = kept;
        for (_, slot) in gone {
            let absent: Vec<GroupRank> = slot.absent().collect();
            let all = slot.arrived.into_iter().enumerate();
            taken.extend(all.filter_map(|(i, call)| Some((GroupRank(i as u32), call?, absent.clone()))));
        }
        taken.extend(self.messages.withdraw(member));
        taken
    }

    /// Where the others of a collective are, until all have come.
    pub fn slot(&self, op: &OpRecord) -> Option<&Slot> {
        self.slots.get(&(Stream::of(op.kind), op.seq))
    }

    pub fn history(&self, me: GroupRank) -> Vec<Arc<OpRecord>> {
        self.histories.get(&me).into_iter().flatten().cloned().collect()
    }

    /// Every collective of every member, unless there were too many to remember.
    pub fn whole_histories(&self) -> Option<Vec<Vec<Arc<OpRecord>>>> {
        (!self.forgot).then(|| (0..self.members.len() as u32).map(|r| self.history(GroupRank(r))).collect())
    }
}
