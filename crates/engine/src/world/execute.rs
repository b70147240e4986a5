//! Moves and combines the data of an operation whose participants have all come.

use allranks_core::{OpKind, Profile, ReduceOp};
use allranks_numerics::rules::torch_divides;
use allranks_numerics::{Order, Place, Reduction, all_reduce, reduce_into};

use super::call::Arrived;
use crate::Buf;
use crate::buffer::copy_all;
#[cfg(feature = "mutants")]
use crate::mutants;

/// Carries out an operation. `all` are the participants in the order of group ranks (send, receive for a message);
/// they agree, as `allranks_check::meeting` says, and each call passed its own check.
pub(super) fn execute(profile: Profile, size: usize, all: &[Arrived]) {
    let first = &all[0];
    #[cfg(feature = "mutants")]
    if mutants::skips(first.record.kind) {
        return;
    }
    let root = first.record.root.map_or(0, allranks_core::GroupRank::index);
    let mut copies: Vec<(Buf, Buf)> = Vec::new();
    match first.record.kind {
        OpKind::AllReduce | OpKind::AllReduceCoalesced => reduce_in_place(profile, all),
        OpKind::Reduce => reduce_to_root(profile, all, root),
        OpKind::ReduceScatter => reduce_scatter_lists(profile, all),
        OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => reduce_scatter_parts(profile, all),
        OpKind::Broadcast => {
            for (i, to) in all.iter().enumerate().filter(|(i, _)| *i != root) {
                debug_assert_ne!(i, root);
                copies.extend(all[root].inputs.iter().copied().zip(to.inputs.iter().copied()));
            }
        }
        OpKind::AllGather | OpKind::AllGatherSingle | OpKind::AllGatherCoalesced => {
            for to in all {
                for (from_rank, from) in all.iter().enumerate() {
                    for (k, &input) in from.inputs.iter().enumerate() {
                        copies.push((input, gathered(to, k, from_rank, size, input.len())));
                    }
                }
            }
        }
        OpKind::Gather => copies.extend(all.iter().zip(&all[root].outputs).map(|(from, &to)| (from.inputs[0], to))),
        OpKind::Scatter => copies.extend(all[root].inputs.iter().zip(all).map(|(&from, to)| (from, to.outputs[0]))),
        OpKind::AllToAll => {
            for (i, from) in all.iter().enumerate() {
                copies.extend(from.inputs.iter().zip(all).map(|(&input, to)| (input, to.outputs[i])));
            }
        }
        OpKind::AllToAllSingle => copies = split_copies(all),
        OpKind::Send | OpKind::Recv => copies.push((all[0].inputs[0], all[1].outputs[0])),
        OpKind::AllReduceSparse | OpKind::Barrier | OpKind::MonitoredBarrier | OpKind::NewGroup => {}
    }
    #[cfg(feature = "mutants")]
    mutants::redirect(first.record.kind, &mut copies);
    copy_all(&copies);
    #[cfg(feature = "mutants")]
    mutants::spoil(all);
}

/// Where member `to` gets the `k`-th input of `from`.
fn gathered(to: &Arrived, k: usize, from: usize, size: usize, len: usize) -> Buf {
    let kind = to.record.kind;
    if kind == OpKind::AllGather {
        to.outputs[from]
    } else if to.outputs.len() == to.inputs.len() {
        to.outputs[k].part(from * len, len).expect("checked: the output has one part for each member")
    } else {
        to.outputs[k * size + from]
    }
}

/// all_to_all_single: the part of i for j goes to the part of j from i.
fn split_copies(all: &[Arrived]) -> Vec<(Buf, Buf)> {
    let width = |a: &Arrived| a.record.inputs.first().map_or(1, |m| m.dtype.size());
    let starts = |splits: &[u64], size: usize| -> Vec<usize> {
        splits
            .iter()
            .scan(0, |at, &n| {
                let start = *at;
                *at += n as usize * size;
                Some(start)
            })
            .collect()
    };
    let sends: Vec<Vec<usize>> = all.iter().map(|a| starts(&a.record.input_splits, width(a))).collect();
    let recvs: Vec<Vec<usize>> = all.iter().map(|a| starts(&a.record.output_splits, width(a))).collect();
    let mut copies = Vec::with_capacity(all.len() * all.len());
    for (i, from) in all.iter().enumerate() {
        for (j, to) in all.iter().enumerate() {
            let len = from.record.input_splits[j] as usize * width(from);
            let source = from.inputs[0].part(sends[i][j], len).expect("checked: splits add up");
            let target = to.outputs[0].part(recvs[j][i], len).expect("checked: splits agree and add up");
            copies.push((source, target));
        }
    }
    copies
}

fn how(profile: Profile, a: &Arrived) -> (Reduction, usize) {
    let order = Order::of(profile, a.record.kind).expect("a reduction");
    #[cfg(feature = "mutants")]
    let order = mutants::order(a.record.kind, order);
    let dtype = a.record.inputs.first().map_or(allranks_core::Dtype::Float32, |m| m.dtype);
    let mut op = a.record.reduce_op.unwrap_or(ReduceOp::Sum);
    if op == ReduceOp::Avg && torch_divides(profile, dtype) {
        op = ReduceOp::Sum;
    }
    (Reduction::new(order, op, dtype).with_factor(a.factor).copied(a.record.kind, a.inputs.len()), dtype.size())
}

/// Runs a reduction whose dtype and op were checked when the calls came in.
fn checked(result: Result<(), allranks_numerics::Unsupported>) {
    result.expect("checked: the rules allow this dtype and op");
}

fn reduce_in_place(profile: Profile, all: &[Arrived]) {
    let (how, width) = how(profile, &all[0]);
    let total: usize = all[0].inputs.iter().map(|b| b.len() / width).sum();
    let mut start = 0;
    for k in 0..all[0].inputs.len() {
        let bufs: Vec<*mut u8> = all.iter().map(|a| a.inputs[k].ptr()).collect();
        let numel = all[0].inputs[k].len() / width;
        // SAFETY: by the promise of `Buf`, each is valid for its length, and lengths agree.
        checked(unsafe { all_reduce(how, Place::part(total, start), &bufs, numel) });
        start += numel;
    }
}

fn reduce_to_root(profile: Profile, all: &[Arrived], root: usize) {
    let (how, width) = how(profile, &all[0]);
    let inputs: Vec<*const u8> = all.iter().map(|a| a.inputs[0].ptr().cast_const()).collect();
    let numel = all[0].inputs[0].len() / width;
    // SAFETY: as above; the output is one of the inputs, which `reduce_into` allows.
    checked(unsafe { reduce_into(how, Place::whole(numel), &inputs, all[root].inputs[0].ptr(), numel) });
}

fn reduce_scatter_lists(profile: Profile, all: &[Arrived]) {
    let (how, width) = how(profile, &all[0]);
    for (i, to) in all.iter().enumerate() {
        let inputs: Vec<*const u8> = all.iter().map(|a| a.inputs[i].ptr().cast_const()).collect();
        let numel = to.outputs[0].len() / width;
        let place = Place::of_scatter(to.record.kind, all.len(), i, numel);
        // SAFETY: as above.
        checked(unsafe { reduce_into(how, place, &inputs, to.outputs[0].ptr(), numel) });
    }
}

fn reduce_scatter_parts(profile: Profile, all: &[Arrived]) {
    let (how, width) = how(profile, &all[0]);
    for k in 0..all[0].inputs.len() {
        for (i, to) in all.iter().enumerate() {
            let out = to.outputs[k];
            let part = |a: &Arrived| a.inputs[k].part(i * out.len(), out.len()).expect("checked: N parts");
            let inputs: Vec<*const u8> = all.iter().map(|a| part(a).ptr().cast_const()).collect();
            let numel = out.len() / width;
            let place = Place::of_scatter(to.record.kind, all.len(), i, numel);
            // SAFETY: as above.
            checked(unsafe { reduce_into(how, place, &inputs, out.ptr(), numel) });
        }
    }
}
