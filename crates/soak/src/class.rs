//! Classes of operations: what a step of a program can be.

use allranks_core::{Dtype, OpKind, Profile, ReduceOp};
use allranks_numerics::rules::refusal;
use serde::{Deserialize, Serialize};

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $kind:expr;)+) => {
        /// What a step does, named after the call that it makes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Class { $($(#[$doc])* #[serde(rename = $text)] $variant),+ }

        impl Class {
            /// Every class, in declaration order.
            pub const ALL: &'static [Class] = &[$(Class::$variant),+];

            /// The name in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Class::$variant => $text),+ }
            }

            /// The operation that reaches the backend; `None` for objects, which are several.
            pub const fn kind(self) -> Option<OpKind> {
                match self { $(Class::$variant => $kind),+ }
            }
        }
    };
}

classes! {
    /// `dist.all_reduce`.
    AllReduce = "all_reduce", Some(OpKind::AllReduce);
    /// `dist.all_reduce_coalesced`.
    AllReduceCoalesced = "all_reduce_coalesced", Some(OpKind::AllReduceCoalesced);
    /// Several `dist.all_reduce` in a coalescing manager.
    AllReduceManaged = "all_reduce (manager)", Some(OpKind::AllReduceCoalesced);
    /// `dist.all_reduce` of a sparse tensor.
    AllReduceSparse = "all_reduce (sparse)", Some(OpKind::AllReduceSparse);
    /// `dist.reduce`.
    Reduce = "reduce", Some(OpKind::Reduce);
    /// `dist.reduce_scatter` of a list.
    ReduceScatter = "reduce_scatter", Some(OpKind::ReduceScatter);
    /// `dist.reduce_scatter_tensor`.
    ReduceScatterTensor = "reduce_scatter_tensor", Some(OpKind::ReduceScatterSingle);
    /// Several `dist.reduce_scatter_tensor` in a coalescing manager.
    ReduceScatterManaged = "reduce_scatter_tensor (manager)", Some(OpKind::ReduceScatterCoalesced);
    /// `dist.broadcast`.
    Broadcast = "broadcast", Some(OpKind::Broadcast);
    /// `dist.all_gather` into a list.
    AllGather = "all_gather", Some(OpKind::AllGather);
    /// `dist.all_gather_into_tensor`.
    AllGatherIntoTensor = "all_gather_into_tensor", Some(OpKind::AllGatherSingle);
    /// `dist.all_gather_coalesced`.
    AllGatherCoalesced = "all_gather_coalesced", Some(OpKind::AllGatherCoalesced);
    /// Several `dist.all_gather_into_tensor` in a coalescing manager.
    AllGatherManaged = "all_gather_into_tensor (manager)", Some(OpKind::AllGatherCoalesced);
    /// `dist.gather`.
    Gather = "gather", Some(OpKind::Gather);
    /// `dist.scatter`.
    Scatter = "scatter", Some(OpKind::Scatter);
    /// `dist.all_to_all` of lists.
    AllToAll = "all_to_all", Some(OpKind::AllToAll);
    /// `dist.all_to_all_single`, with and without splits.
    AllToAllSingle = "all_to_all_single", Some(OpKind::AllToAllSingle);
    /// Functional `all_reduce`.
    FunAllReduce = "functional all_reduce", Some(OpKind::AllReduce);
    /// Functional `broadcast`.
    FunBroadcast = "functional broadcast", Some(OpKind::Broadcast);
    /// Functional `all_gather_tensor`.
    FunAllGather = "functional all_gather", Some(OpKind::AllGatherSingle);
    /// Functional `reduce_scatter_tensor`.
    FunReduceScatter = "functional reduce_scatter", Some(OpKind::ReduceScatterSingle);
    /// Functional `all_to_all_single`.
    FunAllToAll = "functional all_to_all", Some(OpKind::AllToAllSingle);
    /// One `dist.send` and its `dist.recv`, from a rank or from any.
    SendRecv = "send/recv", Some(OpKind::Send);
    /// Several `dist.isend` and `dist.irecv`.
    IsendIrecv = "isend/irecv", Some(OpKind::Send);
    /// `dist.batch_isend_irecv`.
    Batch = "batch_isend_irecv", Some(OpKind::Send);
    /// `dist.barrier`.
    Barrier = "barrier", Some(OpKind::Barrier);
    /// `dist.monitored_barrier`.
    MonitoredBarrier = "monitored_barrier", Some(OpKind::MonitoredBarrier);
    /// `dist.broadcast_object_list`.
    BroadcastObjects = "broadcast_object_list", None;
    /// `dist.all_gather_object`.
    AllGatherObject = "all_gather_object", None;
    /// `dist.gather_object`.
    GatherObject = "gather_object", None;
    /// `dist.scatter_object_list`.
    ScatterObjects = "scatter_object_list", None;
}

impl Class {
    /// Messages between some members; all other classes are collectives of a group.
    pub const fn is_message(self) -> bool {
        matches!(self, Class::SendRecv | Class::IsendIrecv | Class::Batch)
    }

    /// Moves tensors, so a dtype belongs to it.
    pub const fn has_dtype(self) -> bool {
        self.kind().is_some() && !matches!(self, Class::Barrier | Class::MonitoredBarrier)
    }

    /// Combines elements.
    pub fn is_reduction(self) -> bool {
        self.kind().is_some_and(OpKind::is_reduction)
    }

    /// Has a root.
    pub fn is_rooted(self) -> bool {
        self.kind().is_some_and(OpKind::is_rooted)
            || matches!(self, Class::BroadcastObjects | Class::GatherObject | Class::ScatterObjects)
    }

    /// One of the functional collectives, which wait when their result is used.
    pub const fn is_functional(self) -> bool {
        matches!(
            self,
            Class::FunAllReduce
                | Class::FunBroadcast
                | Class::FunAllGather
                | Class::FunReduceScatter
                | Class::FunAllToAll
        )
    }

    /// Goes through `_coalescing_manager`.
    pub const fn is_managed(self) -> bool {
        matches!(self, Class::AllReduceManaged | Class::ReduceScatterManaged | Class::AllGatherManaged)
    }

    /// Several tensors in one operation.
    pub const fn is_coalesced(self) -> bool {
        self.is_managed() || matches!(self, Class::AllReduceCoalesced | Class::AllGatherCoalesced)
    }

    /// Can be waited for later.
    pub const fn may_be_async(self) -> bool {
        !matches!(
            self,
            Class::SendRecv
                | Class::MonitoredBarrier
                | Class::BroadcastObjects
                | Class::AllGatherObject
                | Class::GatherObject
                | Class::ScatterObjects
        )
    }

    /// The reduce ops that gloo does (or refuses) for a dtype.
    pub fn ops(self, dtype: Dtype, refused: bool) -> Vec<ReduceOp> {
        let kind = self.kind().expect("only classes with tensors have a reduce op");
        let is_refused = |op: &ReduceOp| refusal(Profile::Gloo, kind, Some(*op), dtype).is_some();
        ReduceOp::ALL.iter().copied().filter(|op| is_refused(op) == refused).collect()
    }

    /// Whether gloo does something with a dtype (or refuses something).
    pub fn takes(self, dtype: Dtype, refused: bool) -> bool {
        let Some(kind) = self.kind() else { return false };
        // The functional one does not show complex numbers as real ones to gloo, as all others do.
        if self == Class::FunAllToAll && dtype.is_complex() {
            return refused;
        }
        if self.is_reduction() {
            return !self.ops(dtype, refused).is_empty();
        }
        refusal(Profile::Gloo, kind, None, dtype).is_some() == refused
    }
}
