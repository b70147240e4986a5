//! Operations of one rank on one group: typed slices in and out, each waits until it is complete.

use std::panic::{Location, resume_unwind};

use allranks_core::{CallSite, GroupId, GroupRank, OpKind, OpRecord, ReduceOp, Seq, Shape, Tag, TensorMeta};
use smallvec::{SmallVec, smallvec};

use super::{Aborted, Element, Rank};
use crate::world::{Call, Issued};
use crate::{Buf, Ticket};

/// A group that the rank is a member of.
pub struct Group<'a> {
    pub(super) rank: &'a Rank<'a>,
    pub(super) id: GroupId,
    pub(super) me: GroupRank,
    pub(super) size: usize,
}

fn read_only<T: Element>(data: &[T]) -> Buf {
    // SAFETY: every operation here waits until it is complete, so the borrow outlives it; the engine only reads inputs
    // of kinds that are not done in place.
    unsafe { Buf::new(data.as_ptr().cast_mut().cast(), size_of_val(data)) }
}

fn writable<T: Element>(data: &mut [T]) -> Buf {
    // SAFETY: as above, and the borrow is exclusive.
    unsafe { Buf::new(data.as_mut_ptr().cast(), size_of_val(data)) }
}

fn meta<T: Element>(data: &[T]) -> TensorMeta {
    TensorMeta { dtype: T::DTYPE, shape: Shape::from(&[data.len() as u64][..]) }
}

impl Group<'_> {
    /// This rank's place in the group.
    pub fn group_rank(&self) -> GroupRank {
        self.me
    }

    /// How many members.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Combines everybody's `data`; all end with the result.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: ReduceOp) {
        let mut call = self.call(OpKind::AllReduce, Location::caller());
        call.record.reduce_op = Some(op);
        call.record.inputs = smallvec![meta(data)];
        call.inputs = smallvec![writable(data)];
        self.carry_out(call);
    }

    /// Combines everybody's `data`; the root ends with the result.
    #[track_caller]
    pub fn reduce<T: Element>(&self, data: &mut [T], op: ReduceOp, root: GroupRank) {
        let mut call = self.call(OpKind::Reduce, Location::caller());
        call.record.reduce_op = Some(op);
        call.record.root = Some(root);
        call.record.inputs = smallvec![meta(data)];
        call.inputs = smallvec![writable(data)];
        self.carry_out(call);
    }

    /// The root's `data` goes to all.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: GroupRank) {
        let mut call = self.call(OpKind::Broadcast, Location::caller());
        call.record.root = Some(root);
        call.record.inputs = smallvec![meta(data)];
        call.inputs = smallvec![writable(data)];
        self.carry_out(call);
    }

    /// `output`, of as many parts as there are members, ends with everybody's `input`.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) {
        let call = self.in_out(OpKind::AllGatherSingle, input, output, Location::caller());
        self.carry_out(call);
    }

    /// `output` ends with the combination of this member's part of everybody's `input`.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) {
        let mut call = self.in_out(OpKind::ReduceScatterSingle, input, output, Location::caller());
        call.record.reduce_op = Some(op);
        self.carry_out(call);
    }

    /// Part j of `input` (of `sends[j]` elements) goes to member j; part i of `output` (of `expects[i]`) comes from i.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, input: &[T], sends: &[u64], output: &mut [T], expects: &[u64]) {
        let mut call = self.in_out(OpKind::AllToAllSingle, input, output, Location::caller());
        call.record.input_splits = sends.to_vec();
        call.record.output_splits = expects.to_vec();
        self.carry_out(call);
    }

    /// Nobody goes on before all members have come.
    #[track_caller]
    pub fn barrier(&self) {
        let call = self.call(OpKind::Barrier, Location::caller());
        self.carry_out(call);
    }

    /// A message to `to`; returns when it is received.
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: GroupRank, tag: Tag) {
        let mut call = self.call(OpKind::Send, Location::caller());
        call.record.root = Some(to);
        call.record.tag = Some(tag);
        call.record.inputs = smallvec![meta(data)];
        call.inputs = smallvec![read_only(data)];
        self.carry_out(call);
    }

    /// A message from `from`, or from anyone; returns who sent it.
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: Option<GroupRank>, tag: Tag) -> GroupRank {
        let mut call = self.call(OpKind::Recv, Location::caller());
        call.record.root = from;
        call.record.tag = Some(tag);
        call.record.outputs = smallvec![meta(data)];
        call.outputs = smallvec![writable(data)];
        self.carry_out(call).source().expect("a receive that is complete knows its sender")
    }

    pub(super) fn call(&self, kind: OpKind, at: &Location<'_>) -> Call {
        let site = CallSite { file: at.file().into(), line: at.line(), function: "".into() };
        Call {
            record: OpRecord {
                rank: self.rank.rank,
                group: self.id,
                seq: Seq(0),
                kind,
                reduce_op: None,
                root: None,
                tag: None,
                inputs: SmallVec::new(),
                outputs: SmallVec::new(),
                input_splits: Vec::new(),
                output_splits: Vec::new(),
                members: Vec::new(),
                is_async: false,
                site: Some(site),
            },
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            factor: 1.0,
            keep: None,
            timeout: None,
            attachment: None,
        }
    }

    fn in_out<T: Element>(&self, kind: OpKind, input: &[T], output: &mut [T], at: &Location<'_>) -> Call {
        let mut call = self.call(kind, at);
        call.record.inputs = smallvec![meta(input)];
        call.record.outputs = smallvec![meta(output)];
        call.inputs = smallvec![read_only(input)];
        call.outputs = smallvec![writable(output)];
        call
    }

    /// Issues and waits.
    ///
    /// # Panics
    /// If the engine refuses the arguments: the rank fails with its message.
    #[track_caller]
    pub(super) fn carry_out(&self, call: Call) -> Ticket {
        let issued = self.rank.world.issue(self.id, self.me, call).unwrap_or_else(|e| panic!("{e}"));
        match issued {
            Issued::Done { ticket, .. } | Issued::Pending(ticket) => {
                self.rank.wait(&ticket);
                ticket
            }
            Issued::Disagrees => resume_unwind(Box::new(Aborted)),
        }
    }
}
