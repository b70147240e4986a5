//! Whether a program is correct: no rank waits for ever, and every byte of every result is determined.
//!
//! This is written against the program alone, not against the generator, and is stricter than gloo: every operation
//! blocks until all who take part have started it.

use std::collections::{BTreeMap, BTreeSet};

use allranks_core::GlobalRank;

use crate::class::Class;
use crate::program::{Action, Group, How, Layout, Program, Source, Step};

/// Why a program is not correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Wrong {
    #[error("group {0} is not a group of this world")]
    Group(usize),
    #[error("step {0} is malformed: {1}")]
    Step(usize, &'static str),
    #[error("rank {rank} does not start and finish step {step} exactly once")]
    Order { rank: u32, step: usize },
    #[error("ranks start the collectives of group {0} in different orders")]
    Sequence(usize),
    #[error("messages of tag {tag} from {from} to {to} in group {group} are received in another order than sent")]
    Messages { group: usize, from: u32, to: u32, tag: i64 },
    #[error("a message of tag {0} could be taken by another step's receive")]
    Tag(i64),
    #[error("rank {rank} uses the result of step {source_step} in step {step} at a wrong moment")]
    Source { rank: u32, step: usize, source_step: usize },
    #[error("ranks {0:?} wait for ever")]
    Deadlock(Vec<u32>),
}

/// Checks everything.
pub fn check(program: &Program) -> Result<(), Wrong> {
    groups(program)?;
    for (index, step) in program.steps.iter().enumerate() {
        well_formed(program, step).map_err(|why| Wrong::Step(index, why))?;
    }
    barriers(program)?;
    once_each(program)?;
    sequences(program)?;
    messages(program)?;
    sources(program)?;
    progress(program)
}

fn groups(program: &Program) -> Result<(), Wrong> {
    let world = program.world;
    let mut made = Made::new(world);
    for (index, group) in program.groups.iter().enumerate() {
        let distinct: BTreeSet<GlobalRank> = group.ranks.iter().copied().collect();
        let inside = distinct.len() == group.ranks.len() && distinct.iter().all(|rank| rank.0 < world);
        let sorted = group.how == How::Unsorted || group.ranks.is_sorted();
        let first = (index == 0) == (group.how == How::World);
        let whole = index > 0 || group.ranks.len() == world as usize;
        let proper = group.how != How::Split || group.ranks.len() < world as usize;
        if !(inside && sorted && first && whole && proper) || group.ranks.is_empty() || !made.agrees(group) {
            return Err(Wrong::Group(index));
        }
        made.make(group);
    }
    if program.groups.is_empty() || program.orders.len() != world as usize {
        return Err(Wrong::Group(0));
    }
    Ok(())
}

/// torch names a group after the number of groups that the rank has made; if its members have made different numbers,
/// they wait for each other for ever. A group that only its members make is counted by them alone.
pub(crate) struct Made(Vec<usize>);

impl Made {
    pub(crate) fn new(world: u32) -> Self {
        Self(vec![0; world as usize])
    }

    /// Whether those who will be in one group call it by one name.
    pub(crate) fn agrees(&self, group: &Group) -> bool {
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (rank, count) in self.0.iter().enumerate() {
            let member = group.ranks.iter().any(|r| r.index() == rank);
            (if member { &mut inside } else { &mut outside }).insert(count);
        }
        inside.len() <= 1 && (group.how != How::Split || outside.len() <= 1)
    }

    pub(crate) fn make(&mut self, group: &Group) {
        for (rank, count) in self.0.iter_mut().enumerate() {
            *count += usize::from(group.how != How::Local || group.ranks.iter().any(|r| r.index() == rank));
        }
    }
}

fn well_formed(program: &Program, step: &Step) -> Result<(), &'static str> {
    let Some(group) = program.groups.get(step.group) else { return Err("no such group") };
    let size = group.ranks.len();
    let class = step.class;
    let expect = |ok: bool, why: &'static str| if ok { Ok(()) } else { Err(why) };
    expect(class.has_dtype() == step.dtype.is_some(), "a dtype where there is none, or none")?;
    expect(class.is_reduction() == step.op.is_some(), "a reduce op where there is none, or none")?;
    expect(class.is_rooted() == step.root.is_some(), "a root where there is none, or none")?;
    expect(step.root.is_none_or(|root| root.index() < size), "the root is no member")?;
    expect(step.rows.is_empty() || step.rows.len() == size, "rows for each member")?;
    expect(step.rows.iter().all(|row| row.len() == size), "rows to each member")?;
    expect(class.is_message() != step.messages.is_empty(), "messages where there are none, or none")?;
    expect(!step.asynchronous || class.may_be_async(), "cannot be asynchronous")?;
    expect(step.out_layout != Layout::Expanded, "writes to one element several times")?;
    expect(step.count >= 1, "no tensors")?;
    for message in &step.messages {
        let inside = message.from.index() < size && message.to.index() < size;
        expect(inside && message.from != message.to, "a message between members")?;
    }
    Ok(())
}

/// gloo's barrier waits for what is still under way on the group. A refused operation may be, and then the barrier raises
/// its exception.
fn barriers(program: &Program) -> Result<(), Wrong> {
    for (index, step) in program.steps.iter().enumerate() {
        let refused = |before: &Step| before.refused && before.group == step.group;
        if step.class == Class::Barrier && program.steps[..index].iter().any(refused) {
            return Err(Wrong::Step(index, "a barrier after a refusal"));
        }
    }
    Ok(())
}

fn once_each(program: &Program) -> Result<(), Wrong> {
    for (rank, order) in program.orders.iter().enumerate() {
        let rank = rank as u32;
        let mut open = BTreeSet::new();
        let mut done = BTreeSet::new();
        for &action in order {
            let (Action::Start(index) | Action::Wait(index)) = action;
            let wrong = Wrong::Order { rank, step: index };
            let Some(step) = program.steps.get(index) else { return Err(wrong) };
            let fine = match action {
                Action::Start(_) if step.asynchronous => !done.contains(&index) && open.insert(index),
                Action::Start(_) => done.insert(index),
                Action::Wait(_) => open.remove(&index) && done.insert(index),
            };
            if !fine {
                return Err(wrong);
            }
        }
        let takes_part = |step: &Step| program.participants(step).contains(&GlobalRank(rank));
        for (index, step) in program.steps.iter().enumerate() {
            if takes_part(step) != done.contains(&index) {
                return Err(Wrong::Order { rank, step: index });
            }
        }
    }
    Ok(())
}

/// Steps in the order in which a rank starts them.
fn started(order: &[Action]) -> impl Iterator<Item = usize> + '_ {
    order.iter().filter_map(|action| match action {
        Action::Start(step) => Some(*step),
        Action::Wait(_) => None,
    })
}

fn sequences(program: &Program) -> Result<(), Wrong> {
    for (index, group) in program.groups.iter().enumerate() {
        let of = |rank: &GlobalRank| -> Vec<usize> {
            let here = |step: &usize| program.steps[*step].group == index && !program.steps[*step].class.is_message();
            started(&program.orders[rank.index()]).filter(here).collect()
        };
        let mut all = group.ranks.iter().map(of);
        let first = all.next();
        if all.any(|other| Some(other) != first) {
            return Err(Wrong::Sequence(index));
        }
    }
    Ok(())
}

/// A message, as step and place in its list.
type Which = (usize, usize);
/// Group, sender, receiver, tag.
type Lane = (usize, u32, u32, i64);

fn messages(program: &Program) -> Result<(), Wrong> {
    let mut sent: BTreeMap<Lane, Vec<Which>> = BTreeMap::new();
    let mut received: BTreeMap<Lane, Vec<Which>> = BTreeMap::new();
    let mut tags: BTreeMap<(usize, i64), usize> = BTreeMap::new();
    for (rank, order) in program.orders.iter().enumerate() {
        for index in started(order) {
            let step = &program.steps[index];
            let members = program.members(step);
            let mut calls = Vec::new();
            for (k, message) in step.messages.iter().enumerate() {
                let lane = (step.group, message.from.0, message.to.0, message.tag.0);
                if members[message.from.index()].index() == rank {
                    calls.push((message.sent_at, true, lane, (index, k)));
                    *tags.entry((step.group, message.tag.0)).or_default() += 1;
                }
                if members[message.to.index()].index() == rank {
                    calls.push((message.received_at, false, lane, (index, k)));
                }
            }
            calls.sort_unstable();
            for (_, is_send, lane, which) in calls {
                (if is_send { &mut sent } else { &mut received }).entry(lane).or_default().push(which);
            }
        }
    }
    if let Some((&(group, from, to, tag), _)) = sent.iter().find(|(lane, which)| received.get(lane) != Some(which)) {
        return Err(Wrong::Messages { group, from, to, tag });
    }
    let any = program.steps.iter().flat_map(|s| s.messages.iter().filter(|m| m.any_source).map(|m| (s.group, m.tag.0)));
    for key in any {
        if tags[&key] != 1 {
            return Err(Wrong::Tag(key.1));
        }
    }
    Ok(())
}

/// Results are read when they are there and before another step overwrites them.
fn sources(program: &Program) -> Result<(), Wrong> {
    for (rank, order) in program.orders.iter().enumerate() {
        let rank = rank as u32;
        let mut there = BTreeSet::new();
        for &action in order {
            let (Action::Start(index) | Action::Wait(index)) = action;
            let step = &program.steps[index];
            if matches!(action, Action::Start(_)) {
                let fine = match step.source {
                    Source::Fresh => true,
                    Source::Bytes(from) => there.contains(&from),
                    Source::Same(from) => there.remove(&from),
                };
                if !fine {
                    let source_step = step.source.step().expect("a fresh source is fine");
                    return Err(Wrong::Source { rank, step: index, source_step });
                }
            }
            if !step.asynchronous || matches!(action, Action::Wait(_)) {
                there.insert(index);
            }
        }
    }
    Ok(())
}

/// Runs the program with operations that block for all who take part.
fn progress(program: &Program) -> Result<(), Wrong> {
    let takers: Vec<usize> = program.steps.iter().map(|step| program.participants(step).len()).collect();
    let mut arrived = vec![0; program.steps.len()];
    let mut at = vec![0; program.orders.len()];
    // Whether the rank has started the step that it stands at.
    let mut inside = vec![false; program.orders.len()];
    loop {
        let mut moved = false;
        for (rank, order) in program.orders.iter().enumerate() {
            while let Some(&action) = order.get(at[rank]) {
                let (Action::Start(index) | Action::Wait(index)) = action;
                if matches!(action, Action::Start(_)) && !inside[rank] {
                    arrived[index] += 1;
                    inside[rank] = true;
                    moved = true;
                }
                let is_free = matches!(action, Action::Start(_)) && program.steps[index].asynchronous;
                if !is_free && arrived[index] < takers[index] {
                    break;
                }
                at[rank] += 1;
                inside[rank] = false;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let stuck: Vec<u32> =
        (0..program.world).filter(|&rank| at[rank as usize] < program.orders[rank as usize].len()).collect();
    if stuck.is_empty() { Ok(()) } else { Err(Wrong::Deadlock(stuck)) }
}
