//! In which order ranks start steps and wait for them: as different between ranks as is correct.

use allranks_core::GlobalRank;

use crate::check::check;
use crate::draw::Draw;
use crate::program::{Action, Program, Step};

/// Orders that the check accepts.
pub(crate) fn drawn(draw: &mut Draw, program: &Program) -> Vec<Vec<Action>> {
    let mut orders = program.plain_orders();
    let alike = draw.chance(30);
    let shared: Vec<usize> = program.steps.iter().map(|_| draw.below(program.steps.len() + 1)).collect();
    for (rank, order) in orders.iter_mut().enumerate() {
        let own: Vec<usize> = program.steps.iter().map(|_| draw.below(program.steps.len() + 1)).collect();
        *order = with_waits(program, rank as u32, if alike { &shared } else { &own });
    }
    if alike {
        return orders;
    }
    // Neighbours change places where that is correct.
    let mut best = Program { orders, ..program.clone() };
    for rank in 0..best.orders.len() {
        for at in 1..best.orders[rank].len() {
            if draw.chance(25) {
                best.orders[rank].swap(at - 1, at);
                if check(&best).is_err() {
                    best.orders[rank].swap(at - 1, at);
                }
            }
        }
    }
    best.orders
}

/// A rank waits for a step `patience` steps later, or when it needs the result.
fn with_waits(program: &Program, rank: u32, patience: &[usize]) -> Vec<Action> {
    let mine = |step: &Step| program.participants(step).contains(&GlobalRank(rank));
    let mut order = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (index, step) in program.steps.iter().enumerate() {
        if mine(step) {
            if let Some(at) = step.source.step().and_then(|from| open.iter().position(|&o| o == from)) {
                order.push(Action::Wait(open.remove(at)));
            }
            order.push(Action::Start(index));
            if step.asynchronous {
                open.push(index);
            }
        }
        open.retain(|&o| {
            let due = o + patience[o] <= index;
            if due {
                order.push(Action::Wait(o));
            }
            !due
        });
    }
    // The latest first, so that waits cross.
    order.extend(open.into_iter().rev().map(Action::Wait));
    order
}
