//! From a seed to a correct program.

use allranks_core::{Dtype, GlobalRank, GroupRank, ReduceOp};

use crate::check::{Made, check};
use crate::class::Class;
use crate::deck::{Card, DEALT, dealt};
use crate::draw::Draw;
use crate::order;
use crate::program::{Group, How, Layout, Program, Source, Step};
use crate::shape;

/// How often a world has 1, 2, ... 6 ranks.
const WORLDS: [usize; 6] = [3, 27, 25, 21, 14, 10];
/// Steps on top of those that the deck decides, at most.
const EXTRA: usize = 4;
/// Steps of a result that later steps can use, at most so far back.
const NEAR: usize = 6;

/// The program of a seed. The same seed gives the same program; consecutive seeds cover all classes and dtypes alike.
pub fn generate(seed: u64) -> Program {
    let mut draw = Draw::new(seed);
    let world = 1 + draw.weighted(&WORLDS) as u32;
    let groups = groups(&mut draw, world);
    let mut program = Program { seed, world, groups, steps: Vec::new(), orders: Vec::new() };
    let extra = draw.below(EXTRA + 1);
    for k in 0..DEALT + extra {
        // The extra ones are other seeds' cards.
        let card = if k < DEALT { dealt(seed, k) } else { dealt(draw.below(1 << 20) as u64, k % DEALT) };
        let step = step(&mut draw, &program, card);
        program.steps.push(step);
    }
    program.orders = order::drawn(&mut draw, &program);
    if let Err(wrong) = check(&program) {
        panic!("the generator makes correct programs only; seed {seed}: {wrong}");
    }
    program
}

fn groups(draw: &mut Draw, world: u32) -> Vec<Group> {
    let everyone: Vec<GlobalRank> = (0..world).map(GlobalRank).collect();
    let mut groups = vec![Group { ranks: everyone.clone(), how: How::World }];
    let mut made = Made::new(world);
    made.make(&groups[0]);
    let more = if world == 1 { draw.below(2) } else { draw.below(4) };
    for _ in 0..more {
        let mut ranks = everyone.clone();
        draw.shuffle(&mut ranks);
        // Groups of one are legal and rare.
        let least = if draw.chance(10) { 1 } else { 2.min(world as usize) };
        ranks.truncate(draw.between(least, world as usize));
        let mut how = draw.pick(&[How::New, How::New, How::Unsorted, How::Local, How::Split]);
        if how == How::Split && ranks.len() == world as usize {
            how = How::New;
        }
        if how != How::Unsorted {
            ranks.sort_unstable();
        }
        let group = Group { ranks, how };
        if made.agrees(&group) {
            made.make(&group);
            groups.push(group);
        }
    }
    groups
}

fn step(draw: &mut Draw, program: &Program, card: Card) -> Step {
    // Messages need two members; a world of one refuses something instead.
    let needs_two = matches!(card, Card::Tensor(class, _) if class.is_message());
    let candidates: Vec<usize> =
        (0..program.groups.len()).filter(|&g| !needs_two || program.groups[g].ranks.len() > 1).collect();
    let (card, group) = if candidates.is_empty() { (Card::Refused, 0) } else { (card, draw.pick(&candidates)) };
    let size = program.groups[group].ranks.len();
    let mut step = blank(program.steps.len(), group);
    match card {
        Card::Other(class) => step.class = class,
        Card::Tensor(class, dtype) => (step.class, step.dtype) = (class, Some(dtype)),
        Card::Refused => {
            (step.class, step.dtype) = refused(draw);
            step.refused = true;
        }
    }
    if step.class == Class::Barrier && program.steps.iter().any(|s| s.refused && s.group == group) {
        step.class = Class::MonitoredBarrier;
    }
    let class = step.class;
    if let (true, Some(dtype)) = (class.is_reduction(), step.dtype) {
        step.op = Some(draw.pick(&class.ops(dtype, step.refused)));
    }
    if class.is_rooted() {
        step.root = Some(GroupRank(draw.below(size) as u32));
        step.by_group_rank = draw.chance(40);
    }
    step.odd = draw.chance(25);
    step.asynchronous = class.may_be_async() && !step.refused && draw.chance(45);
    shape::choose(draw, &mut step, size);
    if class.is_message() {
        shape::messages(draw, &mut step, size);
    }
    source(draw, program, &mut step);
    step
}

fn blank(key: usize, group: usize) -> Step {
    Step {
        class: Class::Barrier,
        group,
        key: key as u32,
        dtype: None,
        op: None,
        root: None,
        by_group_rank: false,
        shape: Vec::new(),
        layout: Layout::Plain,
        out_layout: Layout::Plain,
        count: 1,
        rows: Vec::new(),
        messages: Vec::new(),
        odd: false,
        asynchronous: false,
        source: Source::Fresh,
        refused: false,
    }
}

/// A manager stays open after an error, a functional collective is refused when its result is used, and a sparse sum in its
/// middle, at other times on other ranks: left out.
fn refused(draw: &mut Draw) -> (Class, Option<Dtype>) {
    let all: Vec<(Class, Dtype)> = Class::ALL
        .iter()
        .filter(|class| class.has_dtype() && !class.is_managed() && !class.is_functional())
        .filter(|class| **class != Class::AllReduceSparse)
        .flat_map(|&class| Dtype::ALL.map(|dtype| (class, dtype)))
        .filter(|(class, dtype)| class.takes(*dtype, true))
        .collect();
    let (class, dtype) = draw.pick(&all);
    (class, Some(dtype))
}

/// Lets values flow from an earlier step.
fn source(draw: &mut Draw, program: &Program, step: &mut Step) {
    if step.refused || !step.class.has_dtype() || step.class == Class::AllReduceSparse || !draw.chance(45) {
        return;
    }
    // Others' memory may hold NaNs.
    let divides = step.op == Some(ReduceOp::Avg) && step.dtype.is_some_and(Dtype::is_complex);
    if divides && shape::scatters_tensor(step.class) {
        return;
    }
    let members = program.members(step);
    let overwritten = |index: usize| program.steps.iter().any(|s| s.source == Source::Same(index));
    let near = program.steps.len().saturating_sub(NEAR)..program.steps.len();
    let usable: Vec<usize> = near
        .filter(|&index| {
            let from = &program.steps[index];
            let there = program.members(from);
            shape::result(from, there.len()).is_some()
                && members.iter().all(|r| there.contains(r))
                && !overwritten(index)
        })
        .collect();
    if usable.is_empty() {
        return;
    }
    let index = draw.pick(&usable);
    let from = &program.steps[index];
    let in_place = matches!(step.class, Class::AllReduce | Class::Broadcast | Class::Reduce);
    let result = shape::result(from, program.members(from).len());
    step.source = match result {
        Some(Some(shape)) if in_place && from.dtype == step.dtype && draw.chance(60) => {
            step.shape = shape;
            step.layout = Layout::Plain;
            Source::Same(index)
        }
        _ => Source::Bytes(index),
    };
}
