//! Smaller programs. They may be incorrect; whoever asks for them checks.

use allranks_core::{GlobalRank, GroupRank};

use crate::program::{Action, Group, How, Layout, Program, Source, Step};

/// The steps that `keep` chooses by index.
pub(super) fn keep_steps(program: &Program, keep: impl Fn(usize) -> bool) -> Program {
    let kept: Vec<usize> = (0..program.steps.len()).filter(|&index| keep(index)).collect();
    let place = |index: usize| kept.binary_search(&index).ok();
    let steps = kept.iter().map(|&index| {
        let mut step = program.steps[index].clone();
        step.source = match step.source {
            Source::Bytes(from) => place(from).map_or(Source::Fresh, Source::Bytes),
            Source::Same(from) => place(from).map_or(Source::Fresh, Source::Same),
            Source::Fresh => Source::Fresh,
        };
        step
    });
    let action = |action: &Action| match *action {
        Action::Start(index) => place(index).map(Action::Start),
        Action::Wait(index) => place(index).map(Action::Wait),
    };
    Program {
        steps: steps.collect(),
        orders: program.orders.iter().map(|order| order.iter().filter_map(action).collect()).collect(),
        ..program.clone()
    }
}

/// Ranks forget steps that they no longer take part in.
pub(super) fn only_participants(program: &mut Program) {
    let takers: Vec<Vec<GlobalRank>> = program.steps.iter().map(|step| program.participants(step)).collect();
    for (rank, order) in program.orders.iter_mut().enumerate() {
        order.retain(|action| {
            let (Action::Start(index) | Action::Wait(index)) = *action;
            takers[index].iter().any(|taker| taker.index() == rank)
        });
    }
}

/// The step is finished when it is started.
pub(super) fn without_wait(program: &Program, index: usize) -> Program {
    let mut program = program.clone();
    for order in &mut program.orders {
        order.retain(|action| *action != Action::Wait(index));
    }
    program
}

/// A world with one rank less.
pub(super) fn drop_rank(program: &Program, rank: u32) -> Program {
    let mut smaller = program.clone();
    smaller.world -= 1;
    smaller.orders.remove(rank as usize);
    for (index, group) in program.groups.iter().enumerate() {
        let Some(place) = group.ranks.iter().position(|r| r.0 == rank) else { continue };
        smaller.groups[index].ranks.remove(place);
        for step in smaller.steps.iter_mut().filter(|step| step.group == index) {
            drop_member(step, place);
        }
    }
    let world = smaller.world as usize;
    for group in &mut smaller.groups {
        for member in group.ranks.iter_mut().filter(|member| member.0 > rank) {
            member.0 -= 1;
        }
        if group.how == How::Split && group.ranks.len() == world {
            group.how = How::New;
        }
    }
    let alive = |step: &Step| {
        !smaller.groups[step.group].ranks.is_empty() && (!step.class.is_message() || !step.messages.is_empty())
    };
    let keep: Vec<bool> = smaller.steps.iter().map(alive).collect();
    let mut smaller = drop_unused_groups(&keep_steps(&smaller, |index| keep[index]));
    only_participants(&mut smaller);
    smaller
}

/// The member at `place` of the step's group is gone.
fn drop_member(step: &mut Step, place: usize) {
    let moved = |rank: GroupRank| GroupRank(if rank.index() > place { rank.0 - 1 } else { rank.0 });
    step.root = step.root.map(|root| if root.index() == place { GroupRank(0) } else { moved(root) });
    if !step.rows.is_empty() {
        step.rows.remove(place);
        for row in &mut step.rows {
            row.remove(place);
        }
    }
    step.messages.retain(|m| m.from.index() != place && m.to.index() != place);
    for message in &mut step.messages {
        (message.from, message.to) = (moved(message.from), moved(message.to));
    }
}

/// Groups that no step uses are not made.
pub(super) fn drop_unused_groups(program: &Program) -> Program {
    let used = |index: usize| index == 0 || program.steps.iter().any(|step| step.group == index);
    let kept: Vec<usize> = (0..program.groups.len()).filter(|&index| used(index)).collect();
    let mut smaller = program.clone();
    smaller.groups = kept.iter().map(|&index| program.groups[index].clone()).collect();
    for step in &mut smaller.steps {
        step.group = kept.binary_search(&step.group).expect("a group that is used is kept");
    }
    smaller
}

/// The steps of a group happen on the whole world, if it is no larger; or the group is made the simplest way.
pub(super) fn in_the_world(program: &Program, group: usize) -> Program {
    let mut smaller = program.clone();
    let Group { ranks, how } = &mut smaller.groups[group];
    if ranks.len() == program.world as usize {
        for step in smaller.steps.iter_mut().filter(|step| step.group == group) {
            step.group = 0;
        }
        smaller.orders = smaller.plain_orders();
        return drop_unused_groups(&smaller);
    }
    ranks.sort_unstable();
    *how = How::New;
    smaller
}

/// A step in simpler ways, the most different one first.
pub(super) fn simpler(step: &Step) -> Vec<Step> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Step)| {
        let mut changed = step.clone();
        change(&mut changed);
        if changed != *step {
            all.push(changed);
        }
    };
    with(&|s| s.asynchronous = false);
    with(&|s| s.source = Source::Fresh);
    with(&|s| s.odd = false);
    with(&|s| (s.layout, s.out_layout) = (Layout::Plain, Layout::Plain));
    with(&|s| s.by_group_rank = false);
    with(&|s| s.count = 1);
    with(&|s| s.count = s.count.div_ceil(2));
    with(&|s| s.rows = Vec::new());
    with(&|s| s.rows.iter_mut().flatten().for_each(|n| *n /= 2));
    for k in 0..step.messages.len() {
        with(&|s| {
            if s.messages.len() > 1 {
                s.messages.remove(k);
            }
        });
        with(&|s| s.messages[k].shape = vec![1]);
        with(&|s| s.messages[k].any_source = false);
    }
    with(&|s| s.shape.truncate(1));
    for k in 0..step.shape.len() {
        with(&|s| s.shape[k] = s.shape[k].min(1));
        with(&|s| s.shape[k] = s.shape[k].div_ceil(2));
        with(&|s| s.shape[k] = s.shape[k].saturating_sub(1));
    }
    all
}
