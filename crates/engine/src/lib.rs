//! Plays the ranks of a distributed program in one process.
//!
//! Executors emit [`Event`](allranks_core::Event)s to a sink; they hold no files and print nothing.

mod buffer;
pub mod fake;
#[cfg(feature = "mutants")]
pub mod mutants;
mod ranks;
mod sequence;
mod volume;
mod world;

pub use allranks_numerics::rules::Exception;
pub use buffer::Buf;
pub use ranks::{Element, Group, Options, Rank, RunError, run};
pub use volume::bytes_moved;
pub use world::{Call, Issued, Refused, StoreWait, Ticket, World, WorldSummary};
