//! Real threads under the scheduler.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use allranks_sched::{Handoff, OwnerId, Policy, Random, Replay, RoundRobin, Scheduler, Step, TaskId, Wait, Wake};
use proptest::prelude::*;

/// Carries out a hand-over; `None` is a stall.
fn go(handoff: Handoff<'_>) -> Option<Wake> {
    match handoff {
        Handoff::Continue(wake) => Some(wake),
        Handoff::Stalled => None,
        Handoff::Park(switch) => Some(switch.go()),
    }
}

type Log = Arc<Mutex<Vec<String>>>;
type Body = Box<dyn FnOnce(&Scheduler, TaskId, &Log) + Send>;

/// Runs one thread a body and returns what they logged and the recorded steps.
fn run(policy: impl Policy + 'static, bodies: Vec<Body>) -> (Vec<String>, Vec<Step>) {
    let sched = Arc::new(Scheduler::new(policy));
    sched.record_steps();
    let log: Log = Arc::default();
    let tasks: Vec<_> = (0..bodies.len()).map(|i| sched.spawn(OwnerId(i as u32), false)).collect();
    let threads: Vec<_> = bodies
        .into_iter()
        .zip(tasks)
        .map(|(body, task)| {
            let (sched, log) = (sched.clone(), log.clone());
            thread::spawn(move || {
                sched.attach(task);
                body(&sched, task, &log);
                if sched.finish(task) {
                    log.lock().unwrap().push("stalled at end".into());
                    sched.abort();
                }
            })
        })
        .collect();
    sched.start();
    assert!(sched.wait_over(Duration::from_secs(20)), "the run ends");
    for t in threads {
        t.join().unwrap();
    }
    let lines = log.lock().unwrap().clone();
    (lines, sched.steps())
}

fn say(log: &Log, text: impl Into<String>) {
    log.lock().unwrap().push(text.into());
}

fn yielder(name: &'static str, times: usize) -> Body {
    Box::new(move |s, t, log| {
        for i in 0..times {
            say(log, format!("{name}{i}"));
            go(s.yield_now(t));
        }
    })
}

#[test]
fn round_robin_takes_turns() {
    let (log, _) = run(RoundRobin, vec![yielder("a", 2), yielder("b", 2), yielder("c", 1)]);
    assert_eq!(log, ["a0", "b0", "c0", "a1", "b1"]);
}

#[test]
fn block_and_wake() {
    let bodies: Vec<Body> = vec![
        Box::new(|s, t, log| {
            assert_eq!(go(s.block(t, Wait::default())), Some(Wake::Ready));
            say(log, "woken");
        }),
        Box::new(|s, _, log| {
            say(log, "waking");
            assert!(s.wake(TaskId(0)));
            assert!(!s.wake(TaskId(0)), "already runnable");
        }),
    ];
    assert_eq!(run(RoundRobin, bodies).0, ["waking", "woken"]);
}

#[test]
fn stall_is_told_to_the_last_one_to_wait() {
    let waiter = || -> Body {
        Box::new(|s, t, log| match go(s.block(t, Wait::default())) {
            None => {
                say(log, format!("{t} sees the stall"));
                s.abort();
                assert_eq!(go(s.block(t, Wait::default())), Some(Wake::Aborted));
            }
            Some(wake) => say(log, format!("{t} {wake:?}")),
        })
    };
    assert_eq!(run(RoundRobin, vec![waiter(), waiter()]).0, ["1 sees the stall", "0 Aborted"]);
}

#[test]
fn stall_at_the_end_of_a_task() {
    let bodies: Vec<Body> =
        vec![Box::new(|s, t, log| say(log, format!("{:?}", go(s.block(t, Wait::default()))))), Box::new(|_, _, _| ())];
    assert_eq!(run(RoundRobin, bodies).0, ["stalled at end", "Some(Aborted)"]);
}

#[test]
fn soft_before_deadline_before_stall() {
    let wait = |wait: Wait| -> Body {
        Box::new(move |s, t, log| {
            let wake = go(s.block(t, wait));
            say(log, format!("{t} {wake:?}"));
        })
    };
    let hour = Some(Duration::from_secs(3600));
    let start = Instant::now();
    let (log, _) = run(
        RoundRobin,
        vec![
            wait(Wait { timeout: hour, ..Wait::default() }),
            wait(Wait { timeout: Some(Duration::from_secs(60)), ..Wait::default() }),
            wait(Wait { soft: true, ..Wait::default() }),
        ],
    );
    assert_eq!(log, ["2 Some(Soft)", "1 Some(TimedOut)", "0 Some(TimedOut)"]);
    assert!(start.elapsed() < Duration::from_secs(10), "no deadline is waited for");
}

#[test]
fn sleepers_wake_in_virtual_order_after_the_runnable() {
    let sleeper = |millis: u64| -> Body {
        Box::new(move |s, t, log| {
            go(s.sleep(t, Duration::from_millis(millis)));
            say(log, format!("slept {millis}"));
        })
    };
    let (log, _) = run(RoundRobin, vec![sleeper(30), sleeper(10), yielder("y", 1), sleeper(0)]);
    assert_eq!(log, ["y0", "slept 0", "slept 10", "slept 30"]);
}

#[test]
fn a_deadline_before_the_next_sleeper_expires_first() {
    let bodies: Vec<Body> = vec![
        Box::new(|s, t, log| {
            let wait = Wait { timeout: Some(Duration::from_millis(10)), ..Wait::default() };
            let wake = go(s.block(t, wait));
            say(log, format!("{wake:?}"));
        }),
        Box::new(|s, t, log| {
            go(s.sleep(t, Duration::from_millis(60)));
            say(log, "slept");
        }),
    ];
    assert_eq!(run(RoundRobin, bodies).0, ["Some(TimedOut)", "slept"]);
}

#[test]
fn an_outside_task_is_waited_for() {
    let bodies: Vec<Body> = vec![
        Box::new(|s, t, log| {
            s.go_outside(t);
            thread::sleep(Duration::from_millis(30));
            s.come_back(t);
            say(log, "back");
            s.wake(TaskId(1));
        }),
        Box::new(|s, t, log| {
            go(s.block(t, Wait::default()));
            say(log, "woken");
        }),
    ];
    assert_eq!(run(RoundRobin, bodies).0, ["back", "woken"]);
}

#[test]
fn daemons_do_not_hold_up_the_end() {
    let sched = Arc::new(Scheduler::new(RoundRobin));
    let (daemon, main) = (sched.spawn(OwnerId(0), true), sched.spawn(OwnerId(0), false));
    let inner = sched.clone();
    let waiting = thread::spawn(move || {
        inner.attach(daemon);
        assert_eq!(go(inner.block(daemon, Wait::default())), Some(Wake::Aborted));
        inner.finish(daemon);
    });
    let inner = sched.clone();
    let ending = thread::spawn(move || {
        inner.attach(main);
        go(inner.yield_now(main));
        assert!(!inner.finish(main), "a waiting daemon is no stall");
    });
    sched.start();
    assert!(sched.wait_over(Duration::from_secs(10)));
    sched.abort();
    ending.join().unwrap();
    waiting.join().unwrap();
}

/// A small program: each task a list of (0: yield, 1: wake the next task, 2: wait softly).
fn program(bodies: &[Vec<u8>]) -> Vec<Body> {
    let n = bodies.len() as u32;
    bodies
        .iter()
        .cloned()
        .map(|ops| -> Body {
            Box::new(move |s, t, log| {
                for op in ops {
                    say(log, format!("{t}:{op}"));
                    match op {
                        0 => drop(go(s.yield_now(t))),
                        1 => drop(s.wake(TaskId((t.0 + 1) % n))),
                        _ => drop(go(s.block(t, Wait { soft: true, ..Wait::default() }))),
                    }
                }
            })
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn same_seed_same_run_and_replay_sees_the_same_runnable_sets(
        bodies in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 1..5),
        seed: u64,
    ) {
        let (log, steps) = run(Random::new(seed), program(&bodies));
        let (again, again_steps) = run(Random::new(seed), program(&bodies));
        prop_assert_eq!(&log, &again);
        prop_assert_eq!(&steps, &again_steps);
        let (replayed, replayed_steps) = run(Replay::new(steps.iter().map(|s| s.picked).collect()), program(&bodies));
        prop_assert_eq!(&log, &replayed);
        prop_assert_eq!(&steps, &replayed_steps);
    }
}
