//! One operation as a rank hands it in.

use std::any::Any;
use std::sync::Arc;

use allranks_core::{GroupRank, OpKind, OpRecord, Profile};
use allranks_numerics::rules::{Exception, refusal};
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
    /// Travels on the ticket, for whoever completes the operation: see [`Ticket::take_attachment`].
    pub attachment: Option<Box<dyn Any + Send>>,
}

/// A call with its number and ticket.
pub(super) struct Arrived {
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
}

impl Refused {
    fn runtime(message: impl Into<String>) -> Self {
        Self { exception: Exception::RuntimeError, message: message.into() }
    }
}

impl Arrived {
    pub fn new(record: OpRecord, call: Call) -> Self {
        let record = Arc::new(record);
        let ticket = Ticket::new(record.clone(), call.attachment);
        Self { record, inputs: call.inputs, outputs: call.outputs, factor: call.factor, ticket, _keep: call.keep }
    }
}

impl Call {
    /// Checks what a rank can know alone.
    pub(super) fn check(&self, profile: Profile, size: usize, me: GroupRank) -> Result<(), Refused> {
        let record = &self.record;
        let name = record.kind;
        if let Some(root) = record.root.filter(|r| r.index() >= size) {
            return Err(Refused::runtime(format!("{name}: rank {root} is not in a group of {size}")));
        }
        if record.kind.is_p2p() && record.root == Some(me) {
            return Err(Refused::runtime(format!("{name}: a rank can not send to or receive from itself")));
        }
        self.check_dtypes(profile)?;
        let is_root = record.root == Some(me);
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let counts = |what: &str, got: usize, want: usize| {
            if got == want {
                return Ok(());
            }
            Err(Refused::runtime(format!("{name}: {what} has {got} tensors, but the group has {want} members")))
        };
        match record.kind {
            OpKind::AllGather => counts("the output list", outputs, size)?,
            OpKind::Gather if is_root => counts("the gather list", outputs, size)?,
            OpKind::Scatter if is_root => counts("the scatter list", inputs, size)?,
            OpKind::ReduceScatter => counts("the input list", inputs, size)?,
            OpKind::AllToAll => {
                counts("the input list", inputs, size)?;
                counts("the output list", outputs, size)?;
            }
            _ => {}
        }
        self.check_lengths(size)
    }

    fn check_dtypes(&self, profile: Profile) -> Result<(), Refused> {
        let record = &self.record;
        let mut metas = record.inputs.iter().chain(&record.outputs);
        let Some(first) = metas.next() else { return Ok(()) };
        if record.kind != OpKind::AllToAll && metas.any(|m| m.dtype != first.dtype) {
            return Err(Refused::runtime(format!("{}: tensors are of different dtypes", record.kind)));
        }
        match refusal(profile, record.kind, record.reduce_op, first.dtype) {
            Some(r) => Err(Refused { exception: r.exception, message: r.message.into_owned() }),
            None => Ok(()),
        }
    }

    fn check_lengths(&self, size: usize) -> Result<(), Refused> {
        let record = &self.record;
        let name = record.kind;
        let unequal = |what: &str| Err(Refused::runtime(format!("{name}: {what}")));
        match record.kind {
            OpKind::AllGather if self.outputs.iter().any(|o| o.len() != self.inputs[0].len()) => {
                unequal("each output must be as large as the input")
            }
            OpKind::AllGatherSingle | OpKind::AllGatherCoalesced if self.outputs.len() == self.inputs.len() => {
                if self.inputs.iter().zip(&self.outputs).any(|(i, o)| i.len() * size != o.len()) {
                    return unequal("output tensor size must be equal to world_size times input tensor size");
                }
                Ok(())
            }
            OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => {
                if self.inputs.iter().zip(&self.outputs).any(|(i, o)| o.len() * size != i.len()) {
                    return unequal("input tensor must be the same size as output size times world size");
                }
                Ok(())
            }
            OpKind::AllToAllSingle => {
                let elements = |b: &Buf, i: usize, metas: &[allranks_core::TensorMeta]| {
                    metas.get(i).map_or(0, |m| b.len() / m.dtype.size()) as u64
                };
                let (sent, received) =
                    (elements(&self.inputs[0], 0, &record.inputs), elements(&self.outputs[0], 0, &record.outputs));
                if record.input_splits.len() != size || record.output_splits.len() != size {
                    return unequal("Number of tensor splits not equal to group size");
                }
                if record.input_splits.iter().sum::<u64>() != sent
                    || record.output_splits.iter().sum::<u64>() != received
                {
                    return unequal("Split sizes doesn't match total dim 0 size");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
