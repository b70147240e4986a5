//! Operations against a slow oracle, and waiting with a caller that records instead of blocking.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allranks_core::{GlobalRank, WorldSize};
use allranks_sched::{TaskId, Wake};
use allranks_store::{
    Alone, Blame, Board, Flavor, Hub, KeyValueStore, Patience, StoreError, TcpRequest, WaitError, Waiter, Waker,
};
use proptest::prelude::*;

/// Whom the store woke.
#[derive(Default)]
struct Log(Mutex<Vec<TaskId>>);

impl Waker for Log {
    fn wake(&self, task: TaskId) {
        self.0.lock().unwrap().push(task);
    }
}

/// While it blocks, `meanwhile` runs: once for each wait, in order. Without more of it, the run is stopped.
struct Scripted<'a> {
    task: TaskId,
    log: Arc<Log>,
    meanwhile: VecDeque<Box<dyn FnMut() + 'a>>,
    polls: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Stopped;

impl<'a> Scripted<'a> {
    fn new(meanwhile: impl IntoIterator<Item = Box<dyn FnMut() + 'a>>) -> Self {
        Self { task: TaskId(7), log: Arc::default(), meanwhile: meanwhile.into_iter().collect(), polls: 0 }
    }

    fn idle() -> Self {
        Self::new([])
    }
}

impl Waiter for Scripted<'_> {
    type Stop = Stopped;

    fn task(&self) -> TaskId {
        self.task
    }

    fn rank(&self) -> Option<GlobalRank> {
        Some(GlobalRank(3))
    }

    fn waker(&self) -> Arc<dyn Waker> {
        self.log.clone()
    }

    fn block(&mut self, deadline: Option<Duration>, _limit: Option<Duration>) -> Result<Wake, Stopped> {
        let Some(mut step) = self.meanwhile.pop_front() else {
            return if deadline.is_some() { Ok(Wake::TimedOut) } else { Err(Stopped) };
        };
        let wakes = |log: &Log| log.0.lock().unwrap().iter().filter(|&&t| t == self.task).count();
        let before = wakes(&self.log);
        step();
        let woken = wakes(&self.log) > before;
        match (woken, deadline) {
            (true, _) => Ok(Wake::Ready),
            (false, Some(_)) => Ok(Wake::TimedOut),
            (false, None) => Err(Stopped),
        }
    }

    fn yield_now(&mut self) -> Result<(), Stopped> {
        self.polls += 1;
        Ok(())
    }
}

fn store(flavor: Flavor) -> KeyValueStore {
    KeyValueStore::new("s", flavor, None, Board::default())
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

const SOON: Patience = Patience { millis: 200, explicit: true };

#[test]
fn a_wait_is_woken_once_all_keys_are_there_and_listed_meanwhile() {
    let board = Board::default();
    let s = KeyValueStore::new("s", Flavor::Tcp, None, board.clone());
    s.set("a", vec![]);
    let mut waiter = Scripted::new([Box::new(|| {
        let waiting = board.waiting();
        assert_eq!((waiting.len(), waiting[0].keys.clone()), (1, keys(&["b", "c"])));
        assert_eq!((waiting[0].operation, waiting[0].rank), ("wait", Some(GlobalRank(3))));
        s.set("x", vec![]);
        s.add("b", 0).unwrap();
        s.append("c", b"");
        assert!(s.delete_key("b"), "gone before the waiter runs");
    }) as Box<dyn FnMut()>]);
    assert_eq!(s.wait(&mut waiter, &keys(&["a", "b", "c"]), Patience::DEFAULT), Ok(()));
    assert_eq!(*waiter.log.0.lock().unwrap(), [TaskId(7)]);
    assert_eq!(board.waiting(), []);
}

#[test]
fn a_change_of_another_key_wakes_nobody() {
    let s = store(Flavor::Tcp);
    let mut waiter = Scripted::new([Box::new(|| s.set("other", vec![])) as Box<dyn FnMut()>]);
    assert_eq!(s.get(&mut waiter, "k", Patience::DEFAULT), Err(WaitError::Stopped(Stopped)));
    s.set("k", vec![]);
    assert!(waiter.log.0.lock().unwrap().is_empty(), "it no longer waits");
}

#[test]
fn time_outs_in_the_words_of_each_class() {
    let said = |flavor, patience| {
        let s = store(flavor);
        let wait = s.wait(&mut Scripted::idle(), &keys(&["case/never"]), patience);
        let Err(WaitError::Store(error)) = wait else { return ("stopped".to_owned(), Blame::Runtime) };
        (error.to_string(), error.blame())
    };
    let tcp = |text: &str| (text.to_owned(), Blame::DistStore);
    assert_eq!(said(Flavor::Tcp, SOON), tcp("wait timeout after 200ms, keys: /case/never"));
    assert_eq!(said(Flavor::Tcp, Patience::of_millis(0)), tcp("wait timeout after 0ms, keys: /case/never"));
    assert_eq!(said(Flavor::Hash, SOON), ("Wait timeout".to_owned(), Blame::DistStore));
    assert_eq!(said(Flavor::File, SOON), ("Wait timeout".to_owned(), Blame::Runtime));
    let for_ever = ("stopped".to_owned(), Blame::Runtime);
    assert_eq!(said(Flavor::Hash, Patience::of_millis(0)), for_ever, "0 is for ever there");
    assert_eq!(said(Flavor::Tcp, Patience::DEFAULT), for_ever, "nobody chose it");
}

#[test]
fn an_item_goes_to_who_waited_first() {
    let s = store(Flavor::Hash);
    let log = Arc::new(Log::default());
    let mut second = Scripted::new([Box::new(|| s.queue_push("q", vec![1]).unwrap()) as Box<dyn FnMut()>]);
    second.log = log.clone();
    second.task = TaskId(2);
    let second = Mutex::new(second);
    let mut first = Scripted::new([Box::new(|| {
        let mut second = second.lock().unwrap();
        // Task 1 is woken by the item; task 2 sees nothing of it and is stopped.
        let _ = s.queue_pop(&mut *second, "q", Some(SOON));
    }) as Box<dyn FnMut()>]);
    first.log = log.clone();
    first.task = TaskId(1);
    assert_eq!(s.queue_pop(&mut first, "q", Some(Patience::DEFAULT)), Ok(vec![1]));
    assert_eq!(log.0.lock().unwrap()[0], TaskId(1));
}

#[test]
fn polls_let_others_run() {
    let s = store(Flavor::Tcp);
    let mut waiter = Scripted::idle();
    assert_eq!(s.check(&mut waiter, &keys(&["k"])), Ok(false));
    assert_eq!(s.queue_pop(&mut waiter, "q", None), Err(StoreError::QueueEmpty.into()));
    assert_eq!(waiter.polls, 2);
    s.set("k", vec![]);
    assert_eq!(s.check(&mut waiter, &keys(&["k"])), Ok(true));
    assert_eq!(waiter.polls, 2);
}

#[test]
fn a_place_ends_with_its_last_server() {
    let hub = Hub::new(None, vec!["here".into()]);
    let request = |host: &str, port, is_master| TcpRequest {
        host: host.into(),
        port,
        workers: None,
        is_master,
        multi_tenant: false,
        wait_for_workers: true,
        patience: SOON,
    };
    let tcp = |host: &str, port, is_master| hub.tcp(&mut Scripted::idle(), &request(host, port, is_master));
    let Ok(server) = tcp("here", 0, true) else { panic!("nobody else serves") };
    let Ok(client) = tcp("LOCALHOST", server.port, false) else { panic!("it runs") };
    assert!(Arc::ptr_eq(&server.store, &client.store));
    let taken = tcp("127.0.0.1", server.port, true).err();
    assert_eq!(taken, Some(StoreError::AddressInUse { port: server.port }.into()));
    let port = server.port;
    drop(server);
    let host = "here".to_owned();
    assert_eq!(tcp("here", port, false).err(), Some(StoreError::ConnectTimedOut { millis: 200, host, port }.into()));
    assert!(tcp("here", port, true).is_ok());
}

#[test]
fn without_peers_nothing_waits_and_memory_does_not_grow_with_the_world() {
    let alone = Alone { rank: GlobalRank(5), world_size: WorldSize(131_072) };
    let hub = Hub::new(Some(alone), vec![]);
    let mut waiter = Scripted::idle();
    let s = hub.rendezvous(&mut waiter, "env://", Some(("h", 1)), (5, 131_072), Patience::DEFAULT).unwrap();
    s.set("k5", vec![9]);
    assert_eq!(s.get(&mut waiter, "k131071", Patience::DEFAULT), Ok(vec![9]));
    let error = s.get(&mut waiter, "k131072", SOON);
    let key = "k131072".to_owned();
    let (rank, world_size) = (alone.rank, alone.world_size);
    assert_eq!(error, Err(StoreError::NoPeer { rank, world_size, key }.into()));
    assert_eq!(s.add("n", 2), Ok(262_144));
    assert_eq!(s.barrier(&mut waiter, "b", 131_072, SOON), Ok(()));
    assert_eq!(s.barrier_by_keys(&mut waiter, "c", 4, SOON), Ok(()));
    assert_eq!(s.list_keys(), ["b", "c/num_members", "k5", "n"]);
}

/// One step; keys are few, so that they meet.
#[derive(Clone, Debug)]
enum Op {
    Set(u8, Vec<u8>),
    Add(u8, i64),
    Append(u8, Vec<u8>),
    CompareSet(u8, Vec<u8>, Vec<u8>),
    Delete(u8),
    Get(u8),
    Push(u8, u8),
    Pop(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u8..4;
    let text = || prop::sample::select(vec![b"".to_vec(), b"1".to_vec(), b"-20".to_vec(), b"x".to_vec()]);
    prop_oneof![
        (key.clone(), text()).prop_map(|(k, v)| Op::Set(k, v)),
        (key.clone(), -3i64..4).prop_map(|(k, n)| Op::Add(k, n)),
        (key.clone(), text()).prop_map(|(k, v)| Op::Append(k, v)),
        (key.clone(), text(), text()).prop_map(|(k, a, b)| Op::CompareSet(k, a, b)),
        key.clone().prop_map(Op::Delete),
        key.clone().prop_map(Op::Get),
        (key.clone(), 0u8..9).prop_map(|(k, v)| Op::Push(k, v)),
        key.prop_map(Op::Pop),
    ]
}

/// The oracle: plain maps, written down as the documentation of torch says it.
#[derive(Default)]
struct Oracle {
    map: BTreeMap<String, Vec<u8>>,
    queues: BTreeMap<String, Vec<u8>>,
}

impl Oracle {
    fn number(&self, key: &str) -> Option<i64> {
        match self.map.get(key) {
            None => Some(0),
            Some(v) if v.is_empty() => Some(0),
            Some(v) => {
                // The longest prefix that is a number.
                let text = String::from_utf8(v.clone()).unwrap();
                (1..=text.len()).rev().find_map(|n| text[..n].parse().ok())
            }
        }
    }
}

proptest! {
    #[test]
    fn as_plain_maps_do(ops in prop::collection::vec(op(), 0..60)) {
        let (s, mut oracle) = (store(Flavor::Hash), Oracle::default());
        for op in ops {
            match op {
                Op::Set(k, v) => {
                    s.set(&k.to_string(), v.clone());
                    oracle.map.insert(k.to_string(), v);
                }
                Op::Add(k, n) => {
                    let want = oracle.number(&k.to_string()).map(|old| old + n);
                    prop_assert_eq!(s.add(&k.to_string(), n).ok(), want);
                    if let Some(sum) = want {
                        oracle.map.insert(k.to_string(), sum.to_string().into_bytes());
                    }
                }
                Op::Append(k, v) => {
                    s.append(&k.to_string(), &v);
                    oracle.map.entry(k.to_string()).or_default().extend(v);
                }
                Op::CompareSet(k, expected, desired) => {
                    let key = k.to_string();
                    let old = oracle.map.get(&key).cloned();
                    let fits = old.as_deref().unwrap_or(b"") == expected && (old.is_some() || expected.is_empty());
                    if fits {
                        oracle.map.insert(key.clone(), desired.clone());
                    }
                    let want = if fits { desired.clone() } else { old.unwrap_or(expected.clone()) };
                    prop_assert_eq!(s.compare_set(&key, expected, desired), (want, fits));
                }
                Op::Delete(k) => {
                    prop_assert_eq!(s.delete_key(&k.to_string()), oracle.map.remove(&k.to_string()).is_some());
                }
                Op::Get(k) => {
                    let got = s.get(&mut Scripted::idle(), &k.to_string(), SOON).ok();
                    prop_assert_eq!(got, oracle.map.get(&k.to_string()).cloned());
                }
                Op::Push(k, v) => {
                    s.queue_push(&k.to_string(), vec![v]).unwrap();
                    oracle.queues.entry(k.to_string()).or_default().push(v);
                }
                Op::Pop(k) => {
                    let queue = oracle.queues.entry(k.to_string()).or_default();
                    let want = (!queue.is_empty()).then(|| vec![queue.remove(0)]);
                    prop_assert_eq!(s.queue_pop(&mut Scripted::idle(), &k.to_string(), None).ok(), want);
                }
            }
            prop_assert_eq!(s.list_keys(), oracle.map.keys().cloned().collect::<Vec<_>>());
            prop_assert_eq!(s.num_keys(), oracle.map.len());
            for k in 0..4u8 {
                let queued = oracle.queues.get(&k.to_string()).map_or(0, Vec::len);
                prop_assert_eq!(s.queue_len(&k.to_string()), Ok(queued));
                prop_assert_eq!(s.has_all(&[k.to_string()]), oracle.map.contains_key(&k.to_string()) || queued > 0);
            }
        }
    }

    /// Whatever is set in whatever order, a wait ends with the set that completes its keys, and is not woken before.
    #[test]
    fn a_wait_ends_with_its_last_key(wanted in prop::collection::btree_set(0u8..6, 1..5), sets in prop::collection::vec(0u8..6, 0..20)) {
        let s = store(Flavor::Tcp);
        let names: Vec<String> = wanted.iter().map(u8::to_string).collect();
        let log: Arc<Log> = Arc::default();
        let seen = Mutex::new(Vec::new());
        let mut waiter = Scripted::new([Box::new(|| {
            for k in &sets {
                s.set(&k.to_string(), vec![]);
                seen.lock().unwrap().push((*k, log.0.lock().unwrap().len()));
            }
        }) as Box<dyn FnMut()>]);
        waiter.log = log.clone();
        let complete = wanted.iter().all(|k| sets.contains(k));
        let waited = s.wait(&mut waiter, &names, Patience::DEFAULT);
        prop_assert_eq!(waited.is_ok(), complete);
        drop(waiter);
        let mut missing = wanted;
        for (k, wakes) in seen.into_inner().unwrap() {
            missing.remove(&k);
            prop_assert_eq!(wakes, usize::from(missing.is_empty()));
        }
    }
}
