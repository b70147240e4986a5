//! Operations and reduce ops.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name that is not one of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}")]
pub struct UnknownName {
    /// What was being named.
    pub what: &'static str,
    /// The name as given.
    pub name: String,
}

macro_rules! named {
    ($(#[$doc:meta])* $what:literal $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name that users know.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|v| v.name() == text)
                    .ok_or_else(|| UnknownName { what: $what, name: text.to_owned() })
            }
        }
    };
}

named! {
    /// What an operation does, named after the `torch.distributed` function.
    "operation" OpKind {
        /// Every member ends with the reduction of all inputs.
        AllReduce = "all_reduce",
        /// Several all_reduces that travel as one operation.
        AllReduceCoalesced = "all_reduce_coalesced",
        /// all_reduce of sparse COO tensors.
        AllReduceSparse = "all_reduce_sparse",
        /// The root's tensor goes to all.
        Broadcast = "broadcast",
        /// The root ends with the reduction.
        Reduce = "reduce",
        /// Every member ends with every input, as a list.
        AllGather = "all_gather",
        /// Every member ends with every input, in one tensor.
        AllGatherSingle = "all_gather_into_tensor",
        /// Several all_gathers that travel as one operation.
        AllGatherCoalesced = "all_gather_coalesced",
        /// The root ends with every input.
        Gather = "gather",
        /// The root's list is dealt out.
        Scatter = "scatter",
        /// Member i ends with the reduction of all i-th inputs, given as a list.
        ReduceScatter = "reduce_scatter",
        /// Member i ends with the reduction of all i-th parts of one tensor.
        ReduceScatterSingle = "reduce_scatter_tensor",
        /// Several reduce_scatters that travel as one operation.
        ReduceScatterCoalesced = "reduce_scatter_coalesced",
        /// Member i's j-th tensor goes to member j's i-th.
        AllToAll = "all_to_all",
        /// all_to_all on parts of one tensor.
        AllToAllSingle = "all_to_all_single",
        /// Nobody leaves before all have come.
        Barrier = "barrier",
        /// A barrier that names who is absent.
        MonitoredBarrier = "monitored_barrier",
        /// A message to one peer.
        Send = "send",
        /// A message from one peer, or from any.
        Recv = "recv",
        /// A process group is made; all ranks of the parent take part.
        NewGroup = "new_group",
    }
}

named! {
    /// How elements are combined.
    "reduce op" ReduceOp {
        /// Sum.
        Sum = "sum",
        /// Sum divided by the number of members.
        Avg = "avg",
        /// Product.
        Product = "product",
        /// Minimum.
        Min = "min",
        /// Maximum.
        Max = "max",
        /// Bitwise and.
        Band = "band",
        /// Bitwise or.
        Bor = "bor",
        /// Bitwise exclusive or.
        Bxor = "bxor",
        /// Each input times a factor, then the sum.
        PremulSum = "premul_sum",
    }
}

named! {
    /// Whose rules hold where backends differ (blocking, tags, dtypes, exceptions).
    "profile" Profile {
        /// gloo's rules.
        Gloo = "gloo",
        /// NCCL's rules.
        Nccl = "nccl",
    }
}

impl OpKind {
    /// A message between two ranks; all others are collectives.
    pub const fn is_p2p(self) -> bool {
        matches!(self, OpKind::Send | OpKind::Recv)
    }

    /// Combines elements, so a [`ReduceOp`] belongs to it.
    pub const fn is_reduction(self) -> bool {
        matches!(
            self,
            OpKind::AllReduce
                | OpKind::AllReduceCoalesced
                | OpKind::AllReduceSparse
                | OpKind::Reduce
                | OpKind::ReduceScatter
                | OpKind::ReduceScatterSingle
                | OpKind::ReduceScatterCoalesced
        )
    }

    /// Has a root rank.
    pub const fn is_rooted(self) -> bool {
        matches!(self, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter)
    }
}
