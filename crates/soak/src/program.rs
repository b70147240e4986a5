//! A program as data.
//!
//! A program is a table of groups, a table of steps, and for each rank the order in which it starts steps and waits for
//! them. Tensors are not in it: each is made from the program's seed by the rule of `tests/soak/values.py`.

use allranks_core::{Dtype, GlobalRank, GroupRank, ReduceOp, Tag};
use serde::{Deserialize, Serialize};

use crate::class::Class;

/// A correct program, if [`crate::check`] says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it was generated from; also part of every tensor's seed.
    pub seed: u64,
    /// How many ranks run it.
    pub world: u32,
    /// The first is the world.
    pub groups: Vec<Group>,
    /// The operations, in an order in which they could run one after the other.
    pub steps: Vec<Step>,
    /// For each rank, what it does.
    pub orders: Vec<Vec<Action>>,
}

/// Some ranks that communicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its members, in the order of their group ranks.
    pub ranks: Vec<GlobalRank>,
    /// How it comes to be.
    pub how: How,
}

/// How a group is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The default group.
    World,
    /// `new_group` by every rank of the world.
    New,
    /// `new_group(sort_ranks=False)`: group ranks in the order given.
    Unsorted,
    /// `new_group(use_local_synchronization=True)` by its members alone.
    Local,
    /// `split_group` of the world by every rank, the other ranks in a group of their own.
    Split,
}

/// What a rank does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Starts a step, and finishes it unless it is asynchronous.
    Start(usize),
    /// Waits for an asynchronous step.
    Wait(usize),
}

/// Where the elements of a tensor lie in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// All the memory, in order.
    Plain,
    /// A slice of something larger.
    Offset,
    /// Dimensions in reverse order, without gaps.
    Transposed,
    /// Every second element.
    Gaps,
    /// All rows are one.
    Expanded,
}

impl Layout {
    /// The name in programs.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Plain => "plain",
            Layout::Offset => "offset",
            Layout::Transposed => "transposed",
            Layout::Gaps => "gaps",
            Layout::Expanded => "expanded",
        }
    }
}

/// Where the first input of a step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// From the seed.
    Fresh,
    /// The memory of an earlier step's result, repeated to the length that is needed.
    Bytes(usize),
    /// An earlier step's result itself, which the step overwrites.
    Same(usize),
}

impl Source {
    /// The step that has to be finished first.
    pub const fn step(self) -> Option<usize> {
        match self {
            Source::Fresh => None,
            Source::Bytes(step) | Source::Same(step) => Some(step),
        }
    }
}

/// One message of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who sends.
    pub from: GroupRank,
    /// Who receives.
    pub to: GroupRank,
    /// Its tag.
    pub tag: Tag,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Where among the sender's calls of this step it is sent.
    pub sent_at: u32,
    /// Where among the receiver's calls of this step it is received.
    pub received_at: u32,
    /// Received from any source: no other message may have the tag.
    pub any_source: bool,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is called.
    pub class: Class,
    /// On which group, as an index.
    pub group: usize,
    /// Makes its tensors different from other steps'; stays when steps before it are dropped.
    pub key: u32,
    /// Of all its tensors.
    pub dtype: Option<Dtype>,
    /// For reductions.
    pub op: Option<ReduceOp>,
    /// For rooted operations.
    pub root: Option<GroupRank>,
    /// The root or peer is given as `group_src` or `group_dst`.
    pub by_group_rank: bool,
    /// The shape of one member's part.
    pub shape: Vec<usize>,
    /// Of what is read, or changed in place.
    pub layout: Layout,
    /// Of what is written.
    pub out_layout: Layout,
    /// How many tensors (or objects) travel together.
    pub count: usize,
    /// For all_to_all_single, rows of dimension 0 that member i sends to member j; empty for equal parts.
    pub rows: Vec<Vec<usize>>,
    /// For messages.
    pub messages: Vec<Message>,
    /// Inputs hold infinities, NaNs, denormals, extremes.
    pub odd: bool,
    /// Waited for later.
    pub asynchronous: bool,
    /// The first input.
    pub source: Source,
    /// gloo refuses it; so do we.
    pub refused: bool,
}

impl Program {
    /// The members of a step's group.
    pub fn members(&self, step: &Step) -> &[GlobalRank] {
        &self.groups[step.group].ranks
    }

    /// Who takes part in a step: its group, or those who send or receive.
    pub fn participants(&self, step: &Step) -> Vec<GlobalRank> {
        let members = self.members(step);
        if !step.class.is_message() {
            return members.to_vec();
        }
        let mut ranks: Vec<GlobalRank> =
            step.messages.iter().flat_map(|m| [members[m.from.index()], members[m.to.index()]]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The order in which every rank finishes a step before the next begins.
    pub fn plain_orders(&self) -> Vec<Vec<Action>> {
        (0..self.world)
            .map(|rank| {
                let mine = |step: &Step| self.participants(step).contains(&GlobalRank(rank));
                let both = |(index, step): (usize, &Step)| {
                    let wait = step.asynchronous.then_some(Action::Wait(index));
                    std::iter::once(Action::Start(index)).chain(wait)
                };
                self.steps.iter().enumerate().filter(|(_, step)| mine(step)).flat_map(both).collect()
            })
            .collect()
    }
}
