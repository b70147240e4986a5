//! The vocabulary that every other crate speaks.
//!
//! Ids are types ([`GlobalRank`], [`GroupRank`], [`GroupId`], [`Seq`]), so that a rank of a group can never be
//! taken for a rank of the world. [`Event`] is what an executor reports while it runs; [`Finding`] is what a check
//! makes of events. Nothing here blocks, prints or opens a file.

mod dtype;
mod event;
mod finding;
mod ids;
mod op;
mod rankset;
mod tensor;

pub use dtype::{Dtype, UnknownDtype};
pub use event::{CallSite, Event, EventSink, NullSink, OpRecord};
pub use finding::{Finding, FindingId, Location, Severity};
pub use ids::{Bytes, GlobalRank, GroupId, GroupRank, Seq, Tag, WorldSize};
pub use op::{OpKind, Profile, ReduceOp, UnknownName};
pub use rankset::RankSet;
pub use tensor::{Shape, TensorMeta};
