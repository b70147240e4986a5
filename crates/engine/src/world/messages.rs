//! Point-to-point messages of one group that have not met their other side.

use std::collections::{BTreeMap, VecDeque};

use allranks_core::{GroupRank, Profile, Seq};

use super::call::Arrived;

/// Waiting sends and receives, each queue in the order of posting.
#[derive(Default)]
pub(super) struct Messages {
    /// By receiver: (sender, send).
    sends: BTreeMap<GroupRank, VecDeque<(GroupRank, Arrived)>>,
    /// By receiver.
    recvs: BTreeMap<GroupRank, VecDeque<Arrived>>,
    numbers: BTreeMap<GroupRank, u64>,
}

impl Messages {
    pub fn next_number(&mut self, me: GroupRank) -> Seq {
        let next = self.numbers.entry(me).or_default();
        *next += 1;
        Seq(*next - 1)
    }

    /// Posts one side; if the other side waits already, both come out: (send, receive).
    ///
    /// Under gloo, messages match by sender and tag; under NCCL tags are ignored. Among several that match, the first
    /// posted wins.
    pub fn post(&mut self, profile: Profile, me: GroupRank, call: Arrived) -> Option<(Arrived, Arrived)> {
        let tags_match = |a: &Arrived, b: &Arrived| profile == Profile::Nccl || a.record.tag == b.record.tag;
        if call.record.kind == allranks_core::OpKind::Send {
            let to = call.record.root.expect("a send has a peer");
            let waiting = self.recvs.entry(to).or_default();
            let fits = |r: &Arrived| r.record.root.is_none_or(|from| from == me) && tags_match(r, &call);
            let Some(at) = waiting.iter().position(fits) else {
                self.sends.entry(to).or_default().push_back((me, call));
                return None;
            };
            let recv = waiting.remove(at).expect("just found");
            recv.ticket.set_source(me);
            Some((call, recv))
        } else {
            let waiting = self.sends.entry(me).or_default();
            let fits =
                |(from, s): &(GroupRank, Arrived)| call.record.root.is_none_or(|r| r == *from) && tags_match(s, &call);
            let Some(at) = waiting.iter().position(fits) else {
                self.recvs.entry(me).or_default().push_back(call);
                return None;
            };
            let (from, send) = waiting.remove(at).expect("just found");
            call.ticket.set_source(from);
            Some((send, call))
        }
    }

    /// Takes out the messages of `member`, and those to and from it: whose each is, and who is missing.
    pub fn withdraw(&mut self, member: GroupRank) -> Vec<(GroupRank, Arrived, Vec<GroupRank>)> {
        let mut taken = Vec::new();
        for (&to, queue) in &mut self.sends {
            for (from, send) in std::mem::take(queue) {
                if from == member || to == member {
                    taken.push((from, send, vec![to]));
                } else {
                    queue.push_back((from, send));
                }
            }
        }
        for (&to, queue) in &mut self.recvs {
            for recv in std::mem::take(queue) {
                if to == member || recv.record.root == Some(member) {
                    let missing = recv.record.root.into_iter().collect();
                    taken.push((to, recv, missing));
                } else {
                    queue.push_back(recv);
                }
            }
        }
        taken
    }

    /// Waiting sends: (sender, send).
    pub fn sends(&self) -> impl Iterator<Item = (GroupRank, &Arrived)> {
        self.sends.values().flatten().map(|(from, s)| (*from, s))
    }

    /// Waiting receives: (receiver, receive).
    pub fn recvs(&self) -> impl Iterator<Item = (GroupRank, &Arrived)> {
        self.recvs.iter().flat_map(|(to, queue)| queue.iter().map(move |r| (*to, r)))
    }
}
