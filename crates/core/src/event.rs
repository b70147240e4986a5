//! What an executor reports while it runs.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Finding, GlobalRank, GroupId, GroupRank, OpKind, RankSet, ReduceOp, Seq, Tag, TensorMeta};

/// A place in the user's program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallSite {
    /// Path of the source file, as Python knows it.
    pub file: Arc<str>,
    /// Line, from 1; 0 where none is known.
    pub line: u32,
    /// Function or method name.
    pub function: Arc<str>,
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One operation as one rank issued it: everything that peers must agree on, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpRecord {
    /// Who issued it.
    pub rank: GlobalRank,
    /// On which group.
    pub group: GroupId,
    /// Its position in the rank's collectives on that group; for point-to-point, among its messages there.
    pub seq: Seq,
    /// What it does.
    pub kind: OpKind,
    /// How elements are combined, for reductions.
    pub reduce_op: Option<ReduceOp>,
    /// Root of a rooted collective, peer of a message (`None`: any source).
    pub root: Option<GroupRank>,
    /// Tag of a message.
    pub tag: Option<Tag>,
    /// What it reads.
    pub inputs: SmallVec<[TensorMeta; 1]>,
    /// What it writes.
    pub outputs: SmallVec<[TensorMeta; 1]>,
    /// Elements (or rows) sent to each member, for all_to_all_single with splits.
    pub input_splits: Vec<u64>,
    /// Elements (or rows) received from each member.
    pub output_splits: Vec<u64>,
    /// Members of the group to be made, for [`OpKind::NewGroup`].
    pub members: Vec<GlobalRank>,
    /// The caller goes on before it is complete.
    pub is_async: bool,
    /// The line of the user's program.
    pub site: Option<CallSite>,
}

impl OpRecord {
    /// What users call it: torch hands many a single operation in as a coalesced one of one tensor.
    pub fn shown_kind(&self) -> OpKind {
        match (self.kind, self.inputs.len()) {
            (OpKind::AllReduceCoalesced, 1) => OpKind::AllReduce,
            (OpKind::AllGatherCoalesced, 1) => OpKind::AllGatherSingle,
            (OpKind::ReduceScatterCoalesced, 1) => OpKind::ReduceScatterSingle,
            (kind, _) => kind,
        }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A group came to be.
    GroupCreated {
        /// Its id in this run.
        group: GroupId,
        /// Its name in torch.
        name: Arc<str>,
        /// Its members; position is the group rank.
        members: Arc<[GlobalRank]>,
    },
    /// A rank issued an operation.
    Issued(Arc<OpRecord>),
    /// All participants had come and the data moved.
    Completed {
        /// The group.
        group: GroupId,
        /// The operation's position.
        seq: Seq,
        /// What it was.
        kind: OpKind,
    },
    /// A check found something.
    Found(Box<Finding>),
    /// A rank ended; `ok` is false if it raised or exited with a status other than 0.
    RankEnded {
        /// Who.
        rank: GlobalRank,
        /// Without a failure.
        ok: bool,
    },
    /// Nobody can go on; these ranks wait.
    Stalled {
        /// Who waits.
        waiting: RankSet,
    },
}

/// Where events go. Called with the baton held, so calls never overlap; must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: Event);

    /// False lets an executor skip the making of [`Event::Issued`] and [`Event::Completed`].
    fn wants_operations(&self) -> bool {
        true
    }
}

/// Drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn emit(&self, _event: Event) {}

    fn wants_operations(&self) -> bool {
        false
    }
}
