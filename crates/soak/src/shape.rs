//! Sizes, layouts, splits and messages of a step.

use allranks_core::{Dtype, GroupRank, ReduceOp, Tag};

use crate::class::Class;
use crate::draw::Draw;
use crate::program::{Layout, Message, Step};

use Layout::{Expanded, Gaps, Offset, Plain, Transposed};

/// Chooses everything about the tensors of a step whose class, dtype and group (of `size` members) are known.
pub(crate) fn choose(draw: &mut Draw, step: &mut Step, size: usize) {
    let class = step.class;
    step.count = match class {
        _ if class.is_coalesced() => draw.between(1, 4),
        Class::BroadcastObjects => draw.between(1, 3),
        _ => 1,
    };
    step.shape = shape(draw, size, least_dimensions(class));
    if matches!(class, Class::AllToAllSingle | Class::FunAllToAll) && draw.chance(60) {
        step.rows = rows(draw, size, step.shape[0]);
    }
    (step.layout, step.out_layout) = layouts(draw, class);
    let average = step.op == Some(ReduceOp::Avg);
    if matches!(class, Class::AllReduceCoalesced | Class::AllReduceManaged) && (average || step.shape.contains(&1)) {
        // gloo fails for some strides of dimensions of one.
        step.layout = Plain;
    }
    if average && scatters_tensor(class) && step.dtype.is_some_and(Dtype::is_complex) {
        step.odd = false;
    }
}

/// Averages of complex numbers are torch's divisions, of all parts there and of one part here; how vector and single
/// divisions fall decides the signs of NaNs.
pub(crate) const fn scatters_tensor(class: Class) -> bool {
    matches!(class, Class::ReduceScatterTensor | Class::ReduceScatterManaged | Class::FunReduceScatter)
}

/// gloo reads the first size of these, which a tensor without dimensions does not have.
fn least_dimensions(class: Class) -> usize {
    match class {
        Class::ReduceScatter
        | Class::ReduceScatterTensor
        | Class::ReduceScatterManaged
        | Class::AllReduceSparse
        | Class::AllToAll
        | Class::AllToAllSingle
        | Class::AllGatherIntoTensor
        | Class::AllGatherManaged => 1,
        _ if class.is_functional() => 1,
        _ => 0,
    }
}

fn shape(draw: &mut Draw, size: usize, least: usize) -> Vec<usize> {
    let length = match draw.weighted(&[10, 25, 15, 30, 16, 3, 1]) {
        0 if least == 0 => return Vec::new(),
        0 | 1 => draw.below(9),
        2 => draw.pick(&[size, size + 1, 2 * size, 2 * size + 1, size - 1]),
        3 => draw.between(9, 80),
        4 => draw.between(81, 1200),
        5 => draw.between(20_000, 70_000),
        _ => draw.between(250_000, 600_000),
    };
    match draw.weighted(&[50, 35, 15]) {
        0 => vec![length],
        1 => {
            let columns = draw.between(1, 5);
            vec![length.div_ceil(columns), columns]
        }
        _ => {
            let (columns, depth) = (draw.between(1, 3), draw.between(1, 3));
            vec![length.div_ceil(columns * depth), columns, depth]
        }
    }
}

/// About as many rows as a part would have; many are zero.
fn rows(draw: &mut Draw, size: usize, about: usize) -> Vec<Vec<usize>> {
    let mut row = || (0..size).map(|_| if draw.chance(25) { 0 } else { draw.between(0, about.max(2)) }).collect();
    (0..size).map(|_| row()).collect()
}

/// Of what is read and of what is written: what gloo takes without touching memory that lies between.
fn layouts(draw: &mut Draw, class: Class) -> (Layout, Layout) {
    const DENSE: &[Layout] = &[Plain, Plain, Offset, Transposed];
    const WRITTEN: &[Layout] = &[Plain, Plain, Offset, Transposed, Gaps];
    const READ: &[Layout] = &[Plain, Plain, Offset, Transposed, Gaps, Expanded];
    const WHOLE: &[Layout] = &[Plain, Plain, Offset];
    // No reverse order of dimensions; see "What is left out" in the crate's documentation.
    const IN_ORDER: &[Layout] = &[Plain, Plain, Offset, Gaps];
    let (read, written) = match class {
        Class::AllReduce | Class::Reduce | Class::Broadcast => (DENSE, WHOLE),
        Class::AllReduceCoalesced | Class::AllReduceManaged => (IN_ORDER, WHOLE),
        Class::AllGather
        | Class::AllGatherCoalesced
        | Class::AllToAll
        | Class::AllGatherIntoTensor
        | Class::AllGatherManaged => (READ, WRITTEN),
        Class::ReduceScatterTensor | Class::ReduceScatterManaged => (IN_ORDER, WRITTEN),
        Class::FunReduceScatter => (IN_ORDER, WHOLE),
        Class::Gather => (DENSE, WRITTEN),
        Class::Scatter => (DENSE, DENSE),
        Class::AllToAllSingle => (WHOLE, DENSE),
        Class::ReduceScatter => {
            // Elements are added as they lie, so both lie alike.
            let both = draw.pick(DENSE);
            return (both, both);
        }
        _ if class.is_functional() => (READ, WHOLE),
        _ => (WHOLE, WHOLE),
    };
    (draw.pick(read), draw.pick(written))
}

/// Messages between random members, each pair in the same order on both sides if a tag comes twice.
pub(crate) fn messages(draw: &mut Draw, step: &mut Step, size: usize) {
    let count = if step.class == Class::SendRecv { 1 } else { draw.between(1, 5) };
    let mut places: Vec<u32> = (0..count as u32).collect();
    let sent = shuffled(draw, &mut places);
    let received = shuffled(draw, &mut places);
    for k in 0..count {
        let from = draw.below(size);
        let to = (from + 1 + draw.below(size - 1)) % size;
        // No other step has this tag.
        let own = i64::from(step.key) * 16 + k as i64;
        let shape = shape(draw, size, 0);
        // gloo cannot receive nothing from anybody.
        let any_source = step.class == Class::SendRecv && !shape.contains(&0) && draw.chance(40);
        step.messages.push(Message {
            from: GroupRank(from as u32),
            to: GroupRank(to as u32),
            tag: Tag(own),
            shape,
            sent_at: sent[k],
            received_at: received[k],
            any_source,
        });
    }
    if count > 1 && draw.chance(40) {
        let first = step.messages[0].clone();
        let second = &mut step.messages[1];
        (second.from, second.to, second.tag) = (first.from, first.to, first.tag);
        if (first.sent_at < second.sent_at) != (first.received_at < second.received_at) {
            let (a, b) = (first.received_at, second.received_at);
            second.received_at = a;
            step.messages[0].received_at = b;
        }
    }
    step.shape = Vec::new();
}

fn shuffled(draw: &mut Draw, places: &mut [u32]) -> Vec<u32> {
    draw.shuffle(places);
    places.to_vec()
}

/// The shape of all members' parts in one tensor.
pub(crate) fn whole(step: &Step, size: usize) -> Vec<usize> {
    match step.shape.split_first() {
        None => vec![size],
        Some((first, rest)) => [&[first * size], rest].concat(),
    }
}

/// What a finished step leaves to later ones on every member: nothing, a tensor, or one that is alike everywhere and
/// without gaps, of a shape.
pub(crate) fn result(step: &Step, size: usize) -> Option<Option<Vec<usize>>> {
    if step.refused {
        return None;
    }
    let written = |shape: Vec<usize>| Some((step.out_layout != Gaps).then_some(shape));
    match step.class {
        Class::AllReduce | Class::Broadcast => Some(Some(step.shape.clone())),
        Class::FunAllReduce | Class::FunBroadcast | Class::FunReduceScatter => Some(Some(step.shape.clone())),
        Class::FunAllGather => Some(Some(whole(step, size))),
        Class::AllGatherIntoTensor => written(whole(step, size)),
        Class::Scatter | Class::ReduceScatter | Class::ReduceScatterTensor => written(step.shape.clone()),
        Class::AllToAllSingle | Class::FunAllToAll => Some(None),
        _ => None,
    }
}
