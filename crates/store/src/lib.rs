//! The key-value stores of one run: what `TCPStore`, `HashStore` and `FileStore` are between processes.
//!
//! [`KeyValueStore`] holds the data of one *place* and knows who waits for which key; who waits hands its turn over
//! through a [`Waiter`], so nothing here knows of threads or of Python. [`Hub`] finds the store of a place: two
//! `TCPStore`s of one host and port share their data, as do two `FileStore`s of one path. [`Board`] lists who waits for
//! what, for the report of a run that cannot go on.
//!
//! The [`Flavor`] says whose habits a store has: they differ in texts of errors, in queues and in what they count.
//!
//! A store of a run with one rank and no peers is [`Alone`]: it never blocks; see there for what it answers.

mod alone;
mod board;
mod data;
mod error;
mod flavor;
mod hub;
mod number;
mod places;
mod store;
mod wait;
mod waiter;
mod waiters;

pub use alone::Alone;
pub use board::{Board, Waiting};
pub use error::{Blame, StoreError};
pub use flavor::Flavor;
pub use hub::{FileUse, Hub, Joined, ServerUse, TcpRequest};
pub use store::KeyValueStore;
pub use waiter::{Patience, WaitError, Waiter, Waker};
