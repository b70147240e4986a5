//! One rank of a world whose other ranks do not exist.
//!
//! No data moves: what would come from a peer follows a stated [`Fill`] rule. [`Rules`] says which part of an output
//! comes from where ([`plan`](self) holds the table of all operations), [`run`] carries that out on raw memory, and a
//! caller whose tensors are not plain memory (another device, strided) carries the same [`Step`]s out by its own means.
//! [`OneRank`] and [`Group`] count what happens and hand out events.
//!
//! What this cannot show: anything that depends on what another rank really holds or does.

mod combine;
mod fill;
mod group;
mod plan;
mod run;

pub use fill::Fill;
pub use group::{Group, OneRank, Ring, Totals};
pub use plan::{Part, PlanError, Rules, Side, Step, Steps};
pub use run::{Buffer, Op, run};
