//! From a program that shows something to the smallest one found that still shows it.

mod smaller;

use crate::check::check;
use crate::program::Program;

use smaller::{drop_rank, drop_unused_groups, in_the_world, keep_steps, simpler};

/// Makes `program` smaller as long as `shows` says yes; only correct programs are tried.
pub fn shrink(program: &Program, shows: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    loop {
        let before = best.clone();
        let mut shows = |candidate: &Program| check(candidate).is_ok() && shows(candidate);
        fewer_steps(&mut best, &mut shows);
        let plain = Program { orders: best.plain_orders(), ..best.clone() };
        attempt(&mut best, plain, &mut shows);
        fewer_ranks(&mut best, &mut shows);
        simpler_steps(&mut best, &mut shows);
        let unused = drop_unused_groups(&best);
        attempt(&mut best, unused, &mut shows);
        if best == before {
            return best;
        }
    }
}

type Shows<'a> = dyn FnMut(&Program) -> bool + 'a;

fn attempt(best: &mut Program, candidate: Program, shows: &mut Shows<'_>) -> bool {
    let better = candidate != *best && shows(&candidate);
    if better {
        *best = candidate;
    }
    better
}

/// Drops halves, quarters, ... single steps.
fn fewer_steps(best: &mut Program, shows: &mut Shows<'_>) {
    let mut chunk = best.steps.len().div_ceil(2);
    loop {
        let mut start = 0;
        while start < best.steps.len() {
            let dropped = start..(start + chunk).min(best.steps.len());
            let candidate = keep_steps(best, |index| !dropped.contains(&index));
            if !attempt(best, candidate, shows) {
                start += chunk;
            }
        }
        if chunk <= 1 {
            return;
        }
        chunk = chunk.div_ceil(2);
    }
}

fn fewer_ranks(best: &mut Program, shows: &mut Shows<'_>) {
    for rank in (0..best.world).rev() {
        if best.world > 1 {
            let candidate = drop_rank(best, rank);
            attempt(best, candidate, shows);
        }
    }
    for group in (1..best.groups.len()).rev() {
        let candidate = in_the_world(best, group);
        attempt(best, candidate, shows);
    }
}

fn simpler_steps(best: &mut Program, shows: &mut Shows<'_>) {
    for index in 0..best.steps.len() {
        // Each change as often as it helps, since sizes are halved.
        let mut change = 0;
        loop {
            let candidates = simpler(&best.steps[index]);
            let Some(step) = candidates.into_iter().nth(change) else { break };
            let mut candidate = best.clone();
            let sync = best.steps[index].asynchronous && !step.asynchronous;
            candidate.steps[index] = step;
            if sync {
                candidate = smaller::without_wait(&candidate, index);
            }
            smaller::only_participants(&mut candidate);
            if !attempt(best, candidate, shows) {
                change += 1;
            }
        }
    }
}
