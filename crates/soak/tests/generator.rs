//! What the generator promises: correct programs, the same for the same seed, that cover everything.

use std::collections::BTreeSet;

use allranks_soak::{Action, Class, Program, Source, Table, Wrong, check, generate, script, shrink};

const PROGRAMS: u64 = 600;

#[test]
fn every_program_is_correct() {
    for seed in 0..PROGRAMS {
        assert_eq!(check(&generate(seed)), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_seed_is_a_program() {
    for seed in [0, 1, 77, u64::MAX] {
        assert_eq!(generate(seed), generate(seed));
    }
    assert_ne!(generate(1), generate(2));
}

#[test]
fn a_program_survives_as_data() {
    for seed in 0..50 {
        let program = generate(seed);
        let text = serde_json::to_string(&program).expect("numbers and strings are JSON");
        assert_eq!(serde_json::from_str::<Program>(&text).expect("it was written so"), program);
    }
}

#[test]
fn two_thousand_programs_have_each_class_and_dtype_fifty_times() {
    let mut table = Table::default();
    for seed in 1..=2000 {
        table.add(&generate(seed), &BTreeSet::new());
    }
    let (class, dtype, pair) = table.least();
    assert!(class >= 50 && dtype >= 50 && pair >= 50, "{}", table.text());
}

#[test]
fn programs_are_as_different_as_they_claim() {
    let all: Vec<Program> = (0..PROGRAMS).map(generate).collect();
    let some = |what: &str, is: &dyn Fn(&Program) -> bool| {
        let count = all.iter().filter(|program| is(program)).count();
        assert!(count >= 20, "{count} programs with {what}");
    };
    some("six ranks", &|p| p.world == 6);
    some("several groups", &|p| p.groups.len() > 2);
    some("an asynchronous step", &|p| p.steps.iter().any(|s| s.asynchronous));
    some("results that are used in place", &|p| p.steps.iter().any(|s| matches!(s.source, Source::Same(_))));
    some("results that are read", &|p| p.steps.iter().any(|s| matches!(s.source, Source::Bytes(_))));
    some("a refusal", &|p| p.steps.iter().any(|s| s.refused));
    some("uneven splits", &|p| p.steps.iter().any(|s| !s.rows.is_empty()));
    some("several messages", &|p| p.steps.iter().any(|s| s.messages.len() > 1));
    some("a receive from any", &|p| p.steps.iter().any(|s| s.messages.iter().any(|m| m.any_source)));
    some("empty tensors", &|p| p.steps.iter().any(|s| s.shape.contains(&0)));
    some("large tensors", &|p| p.steps.iter().any(|s| s.shape.iter().product::<usize>() > 200_000));
    // Ranks that wait in orders of their own.
    some("orders that differ", &|p| {
        let waits = |rank: &Vec<Action>| -> Vec<Action> {
            rank.iter().filter(|a| matches!(a, Action::Wait(_))).copied().collect()
        };
        p.orders.iter().map(waits).collect::<Vec<_>>().windows(2).any(|pair| {
            let common = |a: &[Action], b: &[Action]| a.iter().filter(|x| b.contains(x)).copied().collect::<Vec<_>>();
            common(&pair[0], &pair[1]) != common(&pair[1], &pair[0])
        })
    });
}

/// The program of the first seed that `change` can break, broken.
fn broken(mut change: impl FnMut(&mut Program) -> bool) -> Program {
    for seed in 0.. {
        let mut program = generate(seed);
        if change(&mut program) {
            return program;
        }
    }
    unreachable!("some program can be broken")
}

/// Two collectives on the world, not asynchronous, as places in every order.
fn two_on_the_world(program: &Program) -> Option<(usize, usize)> {
    let of = |step: &&usize| {
        let step = &program.steps[**step];
        step.group == 0 && !step.class.is_message() && !step.asynchronous
    };
    let indices: Vec<usize> = (0..program.steps.len()).collect();
    let mut found = indices.iter().filter(of);
    Some((*found.next()?, *found.next()?))
}

#[test]
fn collectives_in_different_orders_are_wrong() {
    let program = broken(|program| {
        let Some((a, b)) = two_on_the_world(program).filter(|_| program.world > 1) else { return false };
        for action in &mut program.orders[0] {
            *action = match *action {
                Action::Start(step) if step == a => Action::Start(b),
                Action::Start(step) if step == b => Action::Start(a),
                other => other,
            };
        }
        true
    });
    assert_eq!(check(&program), Err(Wrong::Sequence(0)));
}

#[test]
fn a_circle_over_two_groups_is_wrong() {
    let text = r#"{"seed":0,"world":2,"groups":[{"ranks":[0,1],"how":"world"},{"ranks":[0,1],"how":"new"}],"steps":[STEP0,STEP1],
        "orders":[[{"start":0},{"start":1}],[{"start":1},{"start":0}]]}"#;
    let step = |group: usize| {
        format!(
            r#"{{"class":"barrier","group":{group},"key":0,"dtype":null,"op":null,"root":null,"by_group_rank":false,
            "shape":[],"layout":"plain","out_layout":"plain","count":1,"rows":[],"messages":[],"odd":false,
            "asynchronous":false,"source":"fresh","refused":false}}"#
        )
    };
    let text = text.replace("STEP0", &step(0)).replace("STEP1", &step(1));
    let mut program: Program = serde_json::from_str(&text).expect("a program");
    assert_eq!(check(&program), Err(Wrong::Deadlock(vec![0, 1])));
    program.orders[1].reverse();
    assert_eq!(check(&program), Ok(()));
}

#[test]
fn messages_that_cross_are_wrong() {
    let program = broken(|program| {
        let twice = program.steps.iter_mut().find(|step| {
            step.messages.len() > 1 && {
                let (a, b) = (&step.messages[0], &step.messages[1]);
                (a.from, a.to, a.tag) == (b.from, b.to, b.tag)
            }
        });
        let Some(step) = twice else { return false };
        let first = step.messages[0].sent_at;
        step.messages[0].sent_at = step.messages[1].sent_at;
        step.messages[1].sent_at = first;
        true
    });
    assert!(matches!(check(&program), Err(Wrong::Messages { .. })));
}

#[test]
fn a_result_before_the_wait_is_wrong() {
    let program = broken(|program| {
        let used = program.steps.iter().find_map(|step| step.source.step().filter(|&s| program.steps[s].asynchronous));
        let Some(step) = used else { return false };
        for order in &mut program.orders {
            if let Some(at) = order.iter().position(|&action| action == Action::Wait(step)) {
                order.remove(at);
                order.push(Action::Wait(step));
            }
        }
        true
    });
    assert!(matches!(check(&program), Err(Wrong::Source { .. })));
}

#[test]
fn a_wait_that_is_missing_is_wrong() {
    let program = broken(|program| {
        let order = &mut program.orders[0];
        let before = order.len();
        order.retain(|action| !matches!(action, Action::Wait(_)));
        order.len() < before
    });
    assert!(matches!(check(&program), Err(Wrong::Order { rank: 0, .. })));
}

#[test]
fn shrinking_leaves_one_small_step() {
    let program = broken(|program| program.world > 3 && program.steps.iter().any(|s| s.class == Class::Gather));
    let mut tried = 0;
    let smallest = shrink(&program, &mut |candidate| {
        tried += 1;
        assert_eq!(check(candidate), Ok(()));
        candidate.world > 1 && candidate.steps.iter().any(|step| step.class == Class::Gather)
    });
    assert_eq!((smallest.world, smallest.steps.len(), smallest.groups.len()), (2, 1, 1), "{smallest:?}");
    assert!(smallest.steps[0].shape.iter().product::<usize>() <= 1);
    assert!(tried < 300, "{tried} programs tried");
}

#[test]
fn a_script_says_how_to_run_it() {
    let text = script(&generate(5), "soak show --seed 5");
    let world = generate(5).world;
    assert!(text.starts_with(&format!("# torchrun --standalone --nproc-per-node {world} THIS_FILE\n")));
    assert!(text.contains("SEED = 5") && text.contains("\ng0 = dist.group.WORLD\n"));
}
