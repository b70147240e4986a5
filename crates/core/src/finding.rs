//! What a check makes of events: data, not text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallSite, GlobalRank, OpKind, RankSet, Seq};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The run goes on and succeeds, unless `--strict`.
    Warning,
    /// The run fails.
    Error,
}

macro_rules! finding_ids {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// The stable name of a kind of finding. An id never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FindingId { $($(#[$doc])* #[serde(rename = $text)] $variant),+ }

        impl FindingId {
            /// Every id, in declaration order.
            pub const ALL: &'static [FindingId] = &[$(FindingId::$variant),+];

            /// The id as users see it.
            pub const fn name(self) -> &'static str {
                match self { $(FindingId::$variant => $text),+ }
            }
        }
    };
}

finding_ids! {
    /// Collectives of different kinds meet.
    KindMismatch = "kind-mismatch",
    /// Shapes that must agree do not.
    ShapeMismatch = "shape-mismatch",
    /// Dtypes disagree.
    DtypeMismatch = "dtype-mismatch",
    /// Reduce ops disagree.
    ReduceOpMismatch = "reduce-op-mismatch",
    /// Roots disagree.
    RootMismatch = "root-mismatch",
    /// What one rank sends another does not expect.
    SplitMismatch = "split-mismatch",
    /// Numbers of tensors disagree.
    CountMismatch = "count-mismatch",
    /// The same operations meet, but from crossed source lines.
    CallSitesDiffer = "call-sites-differ",
    /// A member never arrives.
    MissingParticipant = "missing-participant",
    /// A member is one operation ahead or behind.
    SequenceShift = "sequence-shift",
    /// Ranks wait for each other in a circle.
    DeadlockCycle = "deadlock-cycle",
    /// A send that nobody receives.
    UnmatchedSend = "unmatched-send",
    /// A receive that nobody sends to.
    UnmatchedRecv = "unmatched-recv",
    /// A message waits under another tag.
    TagMismatch = "tag-mismatch",
    /// Ranks make different groups at the same time.
    GroupMismatch = "group-mismatch",
    /// A rank uses a group that it is not in.
    NotAMember = "not-a-member",
    /// A rank raised or exited with a status other than 0.
    RankFailed = "rank-failed",
    /// An argument was refused.
    BadArgument = "bad-argument",
    /// A buffer changed while an operation had it.
    BufferRace = "buffer-race",
    /// An asynchronous operation was never waited for.
    UnwaitedWork = "unwaited-work",
    /// Output tensors share memory.
    AliasedBuffers = "aliased-buffers",
    /// A strided view where the backend takes it for dense memory.
    StridedBuffer = "strided-buffer",
    /// A result was overwritten before it was read.
    LostResult = "lost-result",
    /// Values that claim to be equal are not.
    ReplicaDivergence = "replica-divergence",
    /// A key that nobody sets is waited for.
    StoreKeyNeverSet = "store-key-never-set",
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One place that a finding points at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// Whose.
    pub rank: GlobalRank,
    /// Source file, line and function.
    #[serde(flatten)]
    pub site: CallSite,
    /// What the rank does there: `all_reduce float32 (4,)`.
    pub what: String,
}

/// Something wrong in the user's program (or, as a warning, likely wrong).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which kind.
    pub id: FindingId,
    /// How bad.
    pub severity: Severity,
    /// One line, without the id.
    pub headline: String,
    /// The ranks at fault; both sides where none is in the minority.
    pub ranks: RankSet,
    /// Name of the group.
    pub group: Option<Arc<str>>,
    /// The operation.
    pub op: Option<OpKind>,
    /// Its position on the group.
    pub seq: Option<Seq>,
    /// Where, folded: equal places of several ranks stay one entry a rank here and are folded by renderers.
    pub locations: Vec<Location>,
    /// What to do about it.
    pub hints: Vec<String>,
    /// Under whose rule it holds: `definite`, or a profile's name with the rule.
    pub rule: String,
}
