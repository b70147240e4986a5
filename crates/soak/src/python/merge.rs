//! One order of all ranks' actions, in which each rank finds its own: so the text is written once for all ranks.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::{Action, Program};

/// Step, and whether it is the wait; the earliest step goes first where there is a choice.
type Node = (usize, bool);

fn node(action: Action) -> Node {
    match action {
        Action::Start(step) => (step, false),
        Action::Wait(step) => (step, true),
    }
}

/// `None` if two ranks do two things in opposite orders.
pub(super) fn merged(program: &Program) -> Option<Vec<Action>> {
    let mut after: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    let mut before: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    for order in &program.orders {
        for &action in order {
            before.entry(node(action)).or_default();
        }
        for pair in order.windows(2) {
            let (a, b) = (node(pair[0]), node(pair[1]));
            after.entry(a).or_default().insert(b);
            before.entry(b).or_default().insert(a);
        }
    }
    let mut free: BTreeSet<Node> = before.iter().filter(|(_, b)| b.is_empty()).map(|(&n, _)| n).collect();
    let mut actions = Vec::with_capacity(before.len());
    while let Some(next) = free.pop_first() {
        actions.push(if next.1 { Action::Wait(next.0) } else { Action::Start(next.0) });
        for &then in after.get(&next).into_iter().flatten() {
            let waits = before.get_mut(&then).expect("every node is listed");
            waits.remove(&next);
            if waits.is_empty() {
                free.insert(then);
            }
        }
    }
    (actions.len() == before.len()).then_some(actions)
}
