//! What can go wrong, in torch's words.

use std::path::PathBuf;

use allranks_core::{GlobalRank, WorldSize};

use crate::Flavor;

/// The class of exception that torch raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// `torch.distributed.DistStoreError`.
    DistStore,
    /// `torch.distributed.DistNetworkError`.
    DistNetwork,
    /// `torch.distributed.QueueEmptyError`.
    QueueEmpty,
    /// `RuntimeError`.
    Runtime,
    /// `ValueError`.
    Value,
    /// `IndexError`.
    Index,
    /// `NotImplementedError`.
    NotImplemented,
}

/// Errors of stores. Texts are torch's own where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StoreError {
    #[error("{}", timed_out(*.flavor, *.millis, .keys, *.single))]
    TimedOut { flavor: Flavor, millis: i64, keys: Vec<String>, single: bool },
    #[error("barrier timeout after {millis}ms, key: {key}")]
    BarrierTimedOut { millis: i64, key: String },
    #[error("Timed out after {seconds} seconds waiting for clients. {joined}/{expected} clients joined.")]
    WorkersTimedOut { seconds: i64, joined: i64, expected: i64 },
    #[error("The client socket has timed out after {millis}ms while trying to connect to ({host}, {port}).")]
    ConnectTimedOut { millis: i64, host: String, port: u16 },
    #[error(
        "The server socket has failed to listen on any local network address. port: {port}, useIpv6: false, \
         code: -98, name: EADDRINUSE, message: address already in use"
    )]
    AddressInUse { port: u16 },
    #[error("{}", not_a_number(*.flavor, .key))]
    NotANumber { flavor: Flavor, key: String, out_of_range: bool },
    #[error("queue is empty")]
    QueueEmpty,
    #[error("queue support is not implemented.")]
    NoQueues,
    #[error("multiSet keys and values vectors must be of same size")]
    SizesDiffer,
    #[error("open({}): {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error(
        "no peer exists in one-rank mode (this process is rank {rank} of {world_size}), so nobody sets the store key \
         {key:?}: only this rank's own keys, and keys that differ from them by a rank number, have a value"
    )]
    NoPeer { rank: GlobalRank, world_size: WorldSize, key: String },
}

impl StoreError {
    /// Whether a wait came to its end.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::BarrierTimedOut { .. } | Self::WorkersTimedOut { .. })
    }

    /// The exception to raise.
    pub fn blame(&self) -> Blame {
        match self {
            Self::TimedOut { flavor: Flavor::File, .. } => Blame::Runtime,
            Self::TimedOut { .. }
            | Self::BarrierTimedOut { .. }
            | Self::WorkersTimedOut { .. }
            | Self::SizesDiffer
            | Self::File { .. }
            | Self::NoPeer { .. } => Blame::DistStore,
            Self::ConnectTimedOut { .. } | Self::AddressInUse { .. } => Blame::DistNetwork,
            Self::NotANumber { flavor: Flavor::Tcp, .. } => Blame::DistNetwork,
            Self::NotANumber { out_of_range: true, .. } => Blame::Index,
            Self::NotANumber { .. } => Blame::Value,
            Self::QueueEmpty => Blame::QueueEmpty,
            Self::NoQueues => Blame::NotImplemented,
        }
    }
}

fn timed_out(flavor: Flavor, millis: i64, keys: &[String], single: bool) -> String {
    match flavor {
        Flavor::Tcp => {
            let shown: Vec<_> = keys.iter().map(|k| flavor.shown(k)).collect();
            format!("wait timeout after {millis}ms, keys: {}", shown.join(", "))
        }
        Flavor::File if single => format!("Timeout waiting for key: {} after {millis} ms", keys.join(", ")),
        Flavor::Hash | Flavor::File => "Wait timeout".to_owned(),
    }
}

fn not_a_number(flavor: Flavor, key: &str) -> String {
    match flavor {
        // The real server drops the connection, and the client sees no more than that.
        Flavor::Tcp => format!(
            "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash? \
             (add: the value of key {key:?} is not a number)"
        ),
        Flavor::Hash | Flavor::File => "stoll".to_owned(),
    }
}
