//! A token goes round a ring of ranks; each adds its number. Then the same with a mistake in it.
//!
//! `cargo run --example ring`

use allranks_core::{GroupRank, Tag};
use allranks_engine::{Options, Rank, run};

fn pass_on(rank: &Rank<'_>, everybody_sends_first: bool) -> u64 {
    let world = rank.world();
    let (me, size) = (rank.rank().0, rank.world_size());
    let (next, previous) = (GroupRank((me + 1) % size), GroupRank((me + size - 1) % size));
    let mut token = [u64::from(me)];
    if me == 0 || everybody_sends_first {
        world.send(&token, next, Tag(0));
        world.recv(&mut token, Some(previous), Tag(0));
    } else {
        world.recv(&mut token, Some(previous), Tag(0));
        token[0] += u64::from(me);
        world.send(&token, next, Tag(0));
    }
    token[0]
}

#[expect(clippy::print_stdout, reason = "an example")]
fn main() {
    let tokens = run(8, &Options::default(), |rank| pass_on(rank, false)).expect("a correct ring");
    println!("rank 0 gets the token back with {}", tokens[0]);

    let error = run(3, &Options::default(), |rank| pass_on(rank, true)).expect_err("nobody receives");
    println!("and if everybody sends first: {error}");
}
