//! The engine through its Rust face.

use allranks_core::{FindingId, GroupRank, ReduceOp, Tag};
use allranks_engine::{Options, Rank, run};
use proptest::prelude::*;

fn seeded(seed: u64) -> Options {
    Options { seed: Some(seed), ..Options::default() }
}

fn ids<T: Send + std::fmt::Debug>(n: u32, body: impl Fn(&Rank<'_>) -> T + Sync) -> Vec<FindingId> {
    run(n, &Options::default(), body).expect_err("wrong on purpose").findings.iter().map(|f| f.id).collect()
}

#[test]
fn every_collective() {
    let results = run(3, &Options::default(), |rank| {
        let (me, world) = (rank.rank().0, rank.world());
        let mut sum = [me as i64, 10];
        world.all_reduce(&mut sum, ReduceOp::Sum);
        let mut max = [me as f32];
        world.reduce(&mut max, ReduceOp::Max, GroupRank(1));
        let mut word = [if me == 2 { 7u8 } else { 0 }];
        world.broadcast(&mut word, GroupRank(2));
        let mut all = [0i32; 3];
        world.all_gather(&[me as i32 * 5], &mut all);
        let mut mine = [0i32];
        world.reduce_scatter(&[1, 2, me as i32], &mut mine, ReduceOp::Sum);
        let mut got = [0i32; 3];
        world.all_to_all(&[me as i32 * 10, me as i32 * 10 + 1, me as i32 * 10 + 2], &[1, 1, 1], &mut got, &[1, 1, 1]);
        world.barrier();
        (sum, max, word, all, mine, got)
    })
    .expect("correct");
    for (r, (sum, max, word, all, mine, got)) in results.into_iter().enumerate() {
        assert_eq!(sum, [3, 30]);
        if r == 1 {
            assert_eq!(max, [2.0]);
        }
        assert_eq!((word, all), ([7], [0, 5, 10]));
        assert_eq!(mine, [[3, 6, 3][r]]);
        assert_eq!(got, [r as i32, 10 + r as i32, 20 + r as i32]);
    }
}

/// Large enough for several threads: every element of every result, on every rank.
#[test]
fn large_operations() {
    const N: usize = (1 << 18) + 3;
    let given = |rank: usize, at: usize| ((at * 7 + rank * 13) % 101) as f32;
    let from = |rank: usize| -> Vec<f32> { (0..3 * N).map(|at| given(rank, at)).collect() };
    let sum = |at: usize| (0..3).map(|r| given(r, at)).sum::<f32>();
    run(3, &Options::default(), |rank| {
        let (me, world, whole) = (rank.rank().index(), rank.world(), from(rank.rank().index()));
        let mine = &whole[..N];
        let mut x = mine.to_vec();
        world.all_reduce(&mut x, ReduceOp::Sum);
        assert!((0..N).all(|at| x[at] == sum(at)), "all_reduce on rank {me}");
        for root in 0..3 {
            x.copy_from_slice(mine);
            world.reduce(&mut x, ReduceOp::Sum, GroupRank(root));
            assert!(me != root as usize || (0..N).all(|at| x[at] == sum(at)), "reduce on rank {me}");
            x.copy_from_slice(mine);
            world.broadcast(&mut x, GroupRank(root));
            assert!((0..N).all(|at| x[at] == given(root as usize, at)), "broadcast on rank {me}");
        }
        let mut all = vec![0.0f32; 3 * N];
        world.all_gather(mine, &mut all);
        assert!((0..3 * N).all(|at| all[at] == given(at / N, at % N)), "all_gather on rank {me}");
        world.all_to_all(&whole, &[N as u64; 3], &mut all, &[N as u64; 3]);
        assert!((0..3 * N).all(|at| all[at] == given(at / N, me * N + at % N)), "all_to_all on rank {me}");
        world.reduce_scatter(&whole, &mut x, ReduceOp::Sum);
        assert!((0..N).all(|at| x[at] == sum(me * N + at)), "reduce_scatter on rank {me}");
        let (next, last) = (GroupRank((me as u32 + 1) % 3), GroupRank((me as u32 + 2) % 3));
        if me == 0 {
            world.send(mine, next, Tag(0));
        }
        world.recv(&mut x, Some(last), Tag(0));
        if me != 0 {
            world.send(mine, next, Tag(0));
        }
        assert!((0..N).all(|at| x[at] == given(last.index(), at)), "recv on rank {me}");
    })
    .expect("correct");
}

#[test]
fn groups_have_their_own_sequence() {
    let results = run(4, &Options::default(), |rank| {
        let low = rank.new_group(&[1, 0]);
        let high = rank.new_group(&[2, 3]);
        let group = low.or(high).expect("everybody is in one");
        let mut x = [i64::from(rank.rank().0)];
        group.all_reduce(&mut x, ReduceOp::Sum);
        rank.world().all_reduce(&mut x, ReduceOp::Max);
        (x[0], group.group_rank().0, group.size())
    })
    .expect("correct");
    assert_eq!(results, [(5, 0, 2), (5, 1, 2), (5, 0, 2), (5, 1, 2)]);
}

#[test]
fn messages_match_by_tag_and_sender() {
    let results = run(3, &Options::default(), |rank| {
        let world = rank.world();
        match rank.rank().0 {
            0 => {
                let (mut a, mut b) = ([0i32], [0i32]);
                let first = world.recv(&mut a, None, Tag(0)).0;
                let second = world.recv(&mut b, None, Tag(0)).0;
                vec![(first, a[0]), (second, b[0])]
            }
            me => {
                world.send(&[me as i32 * 100], GroupRank(0), Tag(0));
                Vec::new()
            }
        }
    })
    .expect("correct");
    let mut got = results[0].clone();
    got.sort_unstable();
    assert_eq!(got, [(1, 100), (2, 200)]);
}

#[test]
fn mismatches_are_named_and_not_carried_out() {
    let kind =
        ids(
            3,
            |r| if r.rank().0 == 2 { r.world().barrier() } else { r.world().all_reduce(&mut [1.0f32], ReduceOp::Sum) },
        );
    assert_eq!(kind, [FindingId::KindMismatch]);
    let shape = ids(2, |r| r.world().all_reduce(&mut vec![1.0f32; 2 + r.rank().index()], ReduceOp::Sum));
    assert_eq!(shape, [FindingId::ShapeMismatch]);
    let op = ids(2, |r| {
        let op = if r.rank().0 == 0 { ReduceOp::Sum } else { ReduceOp::Max };
        r.world().all_reduce(&mut [1.0f32], op);
    });
    assert_eq!(op, [FindingId::ReduceOpMismatch]);
    let root = ids(2, |r| r.world().broadcast(&mut [1u8], GroupRank(r.rank().0)));
    assert_eq!(root, [FindingId::RootMismatch]);
    let splits = ids(2, |r| {
        let sends: &[u64] = if r.rank().0 == 0 { &[1, 2] } else { &[2, 1] };
        r.world().all_to_all(&[0i32; 3], sends, &mut [0i32; 3], &[1, 2]);
    });
    assert_eq!(splits, [FindingId::SplitMismatch]);
    let dtype = ids(2, |r| {
        if r.rank().0 == 0 {
            r.world().send(&[1i32], GroupRank(1), Tag(0));
        } else {
            r.world().recv(&mut [1.0f32], Some(GroupRank(0)), Tag(0));
        }
    });
    assert_eq!(dtype, [FindingId::DtypeMismatch]);
    let group = ids(3, |r| r.new_group(if r.rank().0 == 1 { &[0, 1] } else { &[0, 1, 2] }).is_some());
    assert_eq!(group, [FindingId::GroupMismatch]);
}

#[test]
fn stalls_are_explained() {
    let cycle = ids(2, |r| r.world().send(&[1u8], GroupRank(1 - r.rank().0), Tag(0)));
    assert_eq!(cycle, [FindingId::DeadlockCycle]);
    let missing = ids(2, |r| {
        if r.rank().0 == 0 {
            r.world().barrier()
        }
    });
    assert_eq!(missing, [FindingId::MissingParticipant]);
    let lonely = ids(2, |r| {
        if r.rank().0 == 0 {
            r.world().recv(&mut [0u8], Some(GroupRank(1)), Tag(0));
        }
    });
    assert_eq!(lonely, [FindingId::UnmatchedRecv]);
    let tag = ids(2, |r| {
        if r.rank().0 == 0 {
            r.world().send(&[0u8], GroupRank(1), Tag(1));
        } else {
            r.world().recv(&mut [0u8], Some(GroupRank(0)), Tag(2));
        }
    });
    assert!(tag.contains(&FindingId::TagMismatch), "{tag:?}");
    let crossed = ids(2, |r| {
        let (a, b) = (r.new_group(&[0, 1]).expect("member"), r.new_group(&[0, 1]).expect("member"));
        let (first, second) = if r.rank().0 == 0 { (&a, &b) } else { (&b, &a) };
        first.barrier();
        second.barrier();
    });
    assert_eq!(crossed, [FindingId::DeadlockCycle]);
}

#[test]
fn the_first_failure_is_told_and_nobody_hangs() {
    let error = run(3, &Options::default(), |rank| {
        assert!(rank.rank().0 != 1, "boom");
        rank.world().barrier();
    })
    .expect_err("rank 1 panics");
    assert_eq!(error.findings[0].id, FindingId::RankFailed);
    assert!(error.to_string().contains("boom"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn results_do_not_depend_on_the_schedule(n in 1u32..6, len in 0usize..40, seed: u64) {
        let body = |rank: &Rank<'_>| {
            let mut data: Vec<f32> = (0..len).map(|i| ((i * 31 + rank.rank().index() * 17) % 97) as f32 * 1e-3).collect();
            rank.world().all_reduce(&mut data, ReduceOp::Sum);
            rank.yield_now();
            let mut all = vec![0.0; len * n as usize];
            rank.world().all_gather(&data, &mut all);
            all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let plain = run(n, &Options::default(), body).expect("correct");
        let random = run(n, &seeded(seed), body).expect("correct");
        prop_assert_eq!(plain, random);
    }
}
