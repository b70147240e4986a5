//! Arguments that are wrong by themselves: what a rank can know alone.

use allranks_core::{GroupRank, OpKind, OpRecord, Profile, Shape, TensorMeta};
use allranks_numerics::rules::{Exception, refusal};

use super::call::{Call, Refused};

type Checked = Result<(), Refused>;

fn wrong(message: impl Into<String>) -> Checked {
    Err(Refused { exception: Exception::RuntimeError, message: message.into(), late: false })
}

impl Call {
    /// Checks everything that does not depend on what the others bring.
    pub(super) fn check(&self, profile: Profile, size: usize, me: GroupRank) -> Checked {
        let record = &self.record;
        peers(profile, record, size, me)?;
        counts(record, size, me)?;
        match profile {
            Profile::Gloo => shapes(record, size)?,
            Profile::Nccl => lengths(record, size)?,
        }
        splits(record, size)?;
        dtypes(profile, record)
    }
}

fn peers(profile: Profile, record: &OpRecord, size: usize, me: GroupRank) -> Checked {
    let name = record.kind;
    if let Some(root) = record.root.filter(|r| r.index() >= size) {
        return wrong(format!("{name}: invalid root rank: {root} is not in a group of {size}"));
    }
    if name.is_p2p() && record.root == Some(me) {
        return wrong(format!("{name}: a rank can not send to or receive from itself"));
    }
    if profile == Profile::Gloo && record.tag.is_some_and(|tag| tag.0 < 0) {
        return wrong("Tag must be nonnegative");
    }
    Ok(())
}

/// Lists of one tensor a member.
fn counts(record: &OpRecord, size: usize, me: GroupRank) -> Checked {
    let name = record.kind;
    let is_root = record.root == Some(me);
    let (inputs, outputs) = (record.inputs.len(), record.outputs.len());
    let members = |what: &str, got: usize| {
        if got == size {
            return Ok(());
        }
        wrong(format!("{name}: {what} has {got} tensors, but the group has {size} members"))
    };
    match name {
        OpKind::AllGather => members("the output list", outputs),
        OpKind::Gather if is_root => members("the gather list", outputs),
        OpKind::Scatter if is_root => members("the scatter list", inputs),
        OpKind::ReduceScatter => members("the input list", inputs),
        OpKind::AllToAll => members("the input list", inputs).and_then(|()| members("the output list", outputs)),
        _ => Ok(()),
    }
}

/// gloo compares shapes: those of a list with the single tensor's, and a tensor for all members must be the members'
/// tensors one after the other.
fn shapes(record: &OpRecord, size: usize) -> Checked {
    let name = record.kind;
    let (inputs, outputs) = (&record.inputs, &record.outputs);
    match name {
        OpKind::AllGather | OpKind::Gather => equal(name, &inputs[0], outputs),
        OpKind::Scatter => equal(name, &outputs[0], inputs),
        // gloo has begun with the first member's part when it looks at the next.
        OpKind::ReduceScatter => equal(name, &outputs[0], &inputs[..1]),
        OpKind::AllToAll => equal(name, &inputs[0], inputs.iter().chain(outputs)),
        // In a group of one, a list for each input is one tensor each, as the whole is.
        OpKind::AllGatherCoalesced if inputs.len() != outputs.len() || size == 1 => {
            inputs.iter().zip(outputs.chunks(size)).try_for_each(|(input, parts)| equal(name, input, parts))
        }
        OpKind::AllGatherSingle | OpKind::AllGatherCoalesced => parts(name, size, outputs, inputs),
        OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => parts(name, size, inputs, outputs),
        _ => Ok(()),
    }
}

fn equal<'a>(name: OpKind, expected: &TensorMeta, list: impl IntoIterator<Item = &'a TensorMeta>) -> Checked {
    match list.into_iter().position(|t| t.shape != expected.shape) {
        Some(at) => wrong(format!("{name}: invalid tensor size at index {at} (expected {})", expected.shape)),
        None => Ok(()),
    }
}

fn parts(name: OpKind, size: usize, wholes: &[TensorMeta], parts: &[TensorMeta]) -> Checked {
    for (whole, part) in wholes.iter().zip(parts) {
        let fits = match (&*whole.shape.0, &*part.shape.0) {
            ([all, rest @ ..], [one, others @ ..]) => *all == one * size as u64 && rest == others,
            _ => false,
        };
        if !fits {
            let (whole, part) = (&whole.shape, &part.shape);
            return wrong(format!("{name}: {whole} is not {size} times {part}, one after the other"));
        }
    }
    Ok(())
}

/// NCCL counts elements, and takes lists of different lengths.
fn lengths(record: &OpRecord, size: usize) -> Checked {
    let numel = |shape: &Shape| shape.numel();
    let times = |wholes: &[TensorMeta], parts: &[TensorMeta], message: &str| {
        let fits = wholes.iter().zip(parts).all(|(w, p)| numel(&w.shape) == numel(&p.shape) * size as u64);
        if fits { Ok(()) } else { wrong(format!("{}: {message}", record.kind)) }
    };
    match record.kind {
        OpKind::AllGather if record.outputs.iter().any(|o| numel(&o.shape) != numel(&record.inputs[0].shape)) => {
            wrong(format!("{}: each output must be as large as the input", record.kind))
        }
        OpKind::AllGatherSingle | OpKind::AllGatherCoalesced if record.outputs.len() == record.inputs.len() => times(
            &record.outputs,
            &record.inputs,
            "output tensor size must be equal to world_size times input tensor size",
        ),
        OpKind::ReduceScatterSingle | OpKind::ReduceScatterCoalesced => {
            times(&record.inputs, &record.outputs, "input tensor must be the same size as output size times world size")
        }
        _ => Ok(()),
    }
}

/// Splits count elements by now.
fn splits(record: &OpRecord, size: usize) -> Checked {
    if record.kind != OpKind::AllToAllSingle {
        return Ok(());
    }
    for (splits, tensors) in [(&record.input_splits, &record.inputs), (&record.output_splits, &record.outputs)] {
        if splits.len() != size {
            return wrong("Number of tensor splits not equal to group size");
        }
        if splits.iter().sum::<u64>() != tensors[0].shape.numel() {
            return wrong("Split sizes doesn't match total dim 0 size");
        }
    }
    Ok(())
}

fn dtypes(profile: Profile, record: &OpRecord) -> Checked {
    let mut metas = record.inputs.iter().chain(&record.outputs);
    let Some(first) = metas.next() else { return Ok(()) };
    if record.kind != OpKind::AllToAll && metas.any(|m| m.dtype != first.dtype) {
        return wrong(format!("{}: tensors are of different dtypes", record.kind));
    }
    // What fails after the sum takes place; who issued it divides, and gets the exception.
    match refusal(profile, record.kind, record.reduce_op, first.dtype).filter(|r| !r.after_sum) {
        Some(r) => Err(Refused { exception: r.exception, message: r.message.into_owned(), late: true }),
        None => Ok(()),
    }
}
