//! The virtual clock, and who polls.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use allranks_sched::{Clock, Handoff, OwnerId, Random, RoundRobin, Scheduler, TaskId, Wait, Wake};
use proptest::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

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

/// Runs one thread a body; what they logged, and how far time jumped.
fn run(sched: Scheduler, bodies: Vec<Body>) -> (Vec<String>, Duration) {
    let sched = Arc::new(sched);
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
                    sched.abort();
                }
            })
        })
        .collect();
    sched.start();
    assert!(sched.wait_over(Duration::from_secs(60)), "the run ends");
    for t in threads {
        t.join().unwrap();
    }
    let lines = log.lock().unwrap().clone();
    (lines, sched.jumped().total())
}

fn virtually(bodies: Vec<Body>) -> (Vec<String>, Duration) {
    run(Scheduler::with_clock(RoundRobin, Clock::Virtual), bodies)
}

fn say(log: &Log, text: impl Into<String>) {
    log.lock().unwrap().push(text.into());
}

fn sleeper(name: &'static str, naps: Vec<Duration>) -> Body {
    Box::new(move |s, t, log| {
        for (i, nap) in naps.into_iter().enumerate() {
            go(s.sleep(t, nap));
            say(log, format!("{name}{i}"));
        }
    })
}

fn waiter(name: &'static str, timeout: Duration) -> Body {
    Box::new(move |s, t, log| {
        let wake = go(s.block(t, Wait { timeout: Some(timeout), ..Wait::default() }));
        say(log, format!("{name} {wake:?}"));
    })
}

#[test]
fn time_jumps_to_the_earliest_of_sleeps_and_deadlines() {
    let begin = Instant::now();
    let (log, jumped) =
        virtually(vec![sleeper("a", vec![HOUR, HOUR]), waiter("w", HOUR * 3 / 2), sleeper("b", vec![HOUR / 2])]);
    assert_eq!(log, ["b0", "a0", "w Some(TimedOut)", "a1"]);
    assert!(jumped <= HOUR * 2 && jumped + begin.elapsed() >= HOUR * 2, "two hours, jumped or passed: {jumped:?}");
}

#[test]
fn the_real_clock_never_jumps() {
    let (log, jumped) =
        run(Scheduler::new(RoundRobin), vec![sleeper("a", vec![Duration::from_millis(20)]), waiter("w", HOUR)]);
    assert_eq!(log, ["a0", "w Some(TimedOut)"]);
    assert_eq!(jumped, Duration::ZERO);
}

#[test]
fn no_jump_while_a_task_is_outside_but_time_passes() {
    let nap = Duration::from_millis(30);
    let bodies: Vec<Body> = vec![
        Box::new(move |s, t, log| {
            s.go_outside(t);
            // Until the sleeper has slept out: it must not need this task to come back.
            while log.lock().unwrap().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            s.come_back(t);
            say(log, "back");
        }),
        Box::new(move |s, t, log| {
            go(s.sleep(t, nap));
            say(log, "slept");
            go(s.sleep(t, HOUR));
            say(log, "slept long");
        }),
    ];
    assert_eq!(virtually(bodies).0, ["slept", "back", "slept long"]);
}

/// Who polls until `name` was logged.
fn poller(name: &'static str) -> Body {
    Box::new(move |s, t, log| {
        while !log.lock().unwrap().iter().any(|line| line.starts_with(name)) {
            go(s.poll(t, None));
        }
        say(log, "polled");
    })
}

#[test]
fn polling_keeps_nobody_from_waking() {
    let short = Duration::from_millis(20);
    for (sched, nap) in [(Scheduler::new(RoundRobin), short), (Scheduler::with_clock(RoundRobin, Clock::Virtual), HOUR)]
    {
        let (log, _) = run(sched, vec![poller("s"), poller("s"), sleeper("s", vec![nap])]);
        assert_eq!(log, ["s0", "polled", "polled"]);
    }
}

#[test]
fn a_deadline_passes_while_somebody_polls() {
    for (sched, timeout) in [
        (Scheduler::new(RoundRobin), Duration::from_millis(20)),
        (Scheduler::with_clock(RoundRobin, Clock::Virtual), HOUR),
    ] {
        let (log, _) = run(sched, vec![poller("w"), waiter("w", timeout)]);
        assert_eq!(log, ["w Some(TimedOut)", "polled"]);
    }
}

#[test]
fn polling_itself_may_have_an_end() {
    let body: Body = Box::new(|s, t, log| {
        let until = Some(s.after(HOUR));
        while go(s.poll(t, until)) != Some(Wake::TimedOut) {}
        say(log, format!("{}", s.now() == HOUR));
    });
    assert_eq!(virtually(vec![body]).0, ["true"]);
}

#[test]
fn who_asks_a_few_times_moves_no_deadline() {
    let asks: Body = Box::new(|s, t, log| {
        for _ in 0..50 {
            go(s.poll(t, None));
        }
        say(log, "asked");
        s.wake(TaskId(1));
    });
    assert_eq!(virtually(vec![asks, waiter("w", HOUR)]).0, ["asked", "w Some(Ready)"]);
}

#[test]
fn a_fixed_deadline_counts_from_when_it_was_made() {
    let body: Body = Box::new(|s, t, log| {
        let until = Some(s.after(HOUR));
        go(s.sleep(t, HOUR / 2));
        let wake = go(s.block(t, Wait { until, timeout: Some(HOUR), ..Wait::default() }));
        say(log, format!("{wake:?} {:?}", s.now()));
    });
    assert_eq!(virtually(vec![body]).0, ["Some(TimedOut) 3600s"]);
}

/// A small program: each task a list of (0: yield, 1: wake the next task, 2: wait a while, 3: poll; else: sleep).
fn program(bodies: &[Vec<u8>]) -> Vec<Body> {
    let n = bodies.len() as u32;
    bodies
        .iter()
        .cloned()
        .map(|ops| -> Body {
            Box::new(move |s, t, log| {
                for op in ops {
                    let wake = match op {
                        0 => go(s.yield_now(t)),
                        1 => {
                            s.wake(TaskId((t.0 + 1) % n));
                            None
                        }
                        2 => go(s.block(t, Wait { timeout: Some(HOUR), ..Wait::default() })),
                        3 => go(s.poll(t, None)),
                        _ => go(s.sleep(t, HOUR * u32::from(op) / 4)),
                    };
                    say(log, format!("{t}:{op} {wake:?} at {:?}", s.now()));
                }
            })
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Hours of sleep take no time, the order is a function of program and seed, and time never runs backwards.
    #[test]
    fn same_seed_same_order_under_a_virtual_clock(
        bodies in prop::collection::vec(prop::collection::vec(0u8..12, 0..10), 1..5),
        seed: u64,
    ) {
        let sched = || Scheduler::with_clock(Random::new(seed), Clock::Virtual);
        let (log, _) = run(sched(), program(&bodies));
        let (again, _) = run(sched(), program(&bodies));
        prop_assert_eq!(&log, &again);
        prop_assert_eq!(log.len(), bodies.iter().map(Vec::len).sum::<usize>(), "nobody waits for ever");
    }
}
