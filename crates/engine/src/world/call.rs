//! One operation as a rank hands it in.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use allranks_core::OpRecord;
use allranks_numerics::rules::Exception;
use smallvec::SmallVec;

use super::ticket::Ticket;
use crate::Buf;

/// An operation with its memory.
///
/// Which buffers belong to which kind, with `N` members:
///
/// | kind | inputs | outputs |
/// |---|---|---|
/// | all_reduce, coalesced or not; broadcast; reduce | each tensor, changed in place | none |
/// | all_gather | 1 | N |
/// | all_gather_into_tensor | 1 | 1, of N parts |
/// | all_gather_coalesced | k | k of N parts each, or k x N |
/// | gather | 1 | N on the root |
/// | scatter | N on the root | 1 |
/// | reduce_scatter | N | 1 |
/// | reduce_scatter_tensor; coalesced | k of N parts each | k |
/// | all_to_all | N | N |
/// | all_to_all_single | 1, cut by `input_splits` | 1, cut by `output_splits` |
/// | send | 1 | none |
/// | recv | none | 1 |
pub struct Call {
    /// What; `seq` is filled in by the world. Splits count elements.
    pub record: OpRecord,
    /// What it reads.
    pub inputs: SmallVec<[Buf; 1]>,
    /// What it writes.
    pub outputs: SmallVec<[Buf; 1]>,
    /// The factor of PREMUL_SUM.
    pub factor: f64,
    /// Dropped when the operation is complete: whatever keeps the memory alive.
    pub keep: Option<Box<dyn Any + Send>>,
    /// The time-out that counts for it: none if nobody chose one. That of a message runs from each wait on, that of a
    /// collective from its issue.
    pub timeout: Option<Duration>,
    /// Travels on the ticket, for whoever completes the operation: see [`Ticket::take_attachment`].
    pub attachment: Option<Box<dyn Any + Send>>,
}

/// A call with its number and ticket.
pub(crate) struct Arrived {
    pub record: Arc<OpRecord>,
    pub inputs: SmallVec<[Buf; 1]>,
    pub outputs: SmallVec<[Buf; 1]>,
    pub factor: f64,
    pub ticket: Ticket,
    /// Only held.
    _keep: Option<Box<dyn Any + Send>>,
}

/// Arguments that are wrong by themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The Python exception that the backend raises.
    pub exception: Exception,
    /// Its text.
    pub message: String,
    /// The backend takes the operation and its worker fails: an asynchronous call returns, and `wait` raises.
    pub late: bool,
}

impl Arrived {
    pub fn new(record: OpRecord, call: Call) -> Self {
        let record = Arc::new(record);
        let ticket = Ticket::new(record.clone(), call.attachment, call.timeout);
        Self { record, inputs: call.inputs, outputs: call.outputs, factor: call.factor, ticket, _keep: call.keep }
    }
}
