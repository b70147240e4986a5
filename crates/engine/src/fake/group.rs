//! The world of one rank, and its groups: positions, counts, and where events go.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use allranks_core::{
    Bytes, Event, EventSink, GlobalRank, GroupId, GroupRank, OpKind, OpRecord, Profile, Seq, WorldSize,
};

use super::{Fill, Rules};
use crate::sequence::gloo_steps;

const KINDS: usize = OpKind::ALL.len();

/// One rank of a world whose other ranks do not exist.
pub struct OneRank {
    rank: GlobalRank,
    size: WorldSize,
    fill: Fill,
    groups: Mutex<Vec<Arc<Group>>>,
    sink: RwLock<Option<Arc<dyn EventSink>>>,
    wants_operations: AtomicBool,
}

/// A process group that the rank is in.
#[derive(Debug)]
pub struct Group {
    /// Its id in this run.
    pub id: GroupId,
    /// Its name in torch, or its description.
    pub name: Arc<str>,
    /// Who the rank is, and what its peers hold.
    pub rules: Rules,
    /// Whose way of counting [`Group::sequence_number`] follows.
    counting: Profile,
    sequence: AtomicU64,
    collectives: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    counts: [AtomicU64; KINDS],
    /// One of the values below.
    coalescing: AtomicU8,
}

const NOT_COALESCING: u8 = 0;
const COALESCING: u8 = 1;
/// Coalescing, and the position of what is coalesced is taken.
const COALESCED: u8 = 2;

/// What happened in a world so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Operations by kind, without those that never happened.
    pub operations: Vec<(OpKind, u64)>,
    /// Name, size and the bytes that this rank would send, of each group in order of creation.
    pub groups: Vec<(Arc<str>, u32, Bytes)>,
}

impl OneRank {
    /// A world without groups.
    pub fn new(rank: GlobalRank, size: WorldSize, fill: Fill) -> Self {
        Self {
            rank,
            size,
            fill,
            groups: Mutex::default(),
            sink: RwLock::default(),
            wants_operations: AtomicBool::new(false),
        }
    }

    /// The rank that runs.
    pub fn rank(&self) -> GlobalRank {
        self.rank
    }

    /// How many ranks the program sees.
    pub fn size(&self) -> WorldSize {
        self.size
    }

    /// What peers hold.
    pub fn fill(&self) -> Fill {
        self.fill
    }

    /// From now on events go to `sink`; `None`: nowhere.
    ///
    /// # Panics
    /// If a sink panicked before.
    pub fn set_sink(&self, sink: Option<Arc<dyn EventSink>>) {
        let wants = sink.as_ref().is_some_and(|s| s.wants_operations());
        self.wants_operations.store(wants, Ordering::Relaxed);
        *self.sink.write().expect("sinks do not panic") = sink;
    }

    /// Whether to make an [`OpRecord`] at all.
    pub fn wants_operations(&self) -> bool {
        self.wants_operations.load(Ordering::Relaxed)
    }

    /// Hands an event on.
    ///
    /// # Panics
    /// If a sink panicked before.
    pub fn emit(&self, event: Event) {
        if let Some(sink) = &*self.sink.read().expect("sinks do not panic") {
            sink.emit(event);
        }
    }

    /// A new group with this rank at `rank` of `members`.
    ///
    /// # Panics
    /// If another thread panicked in here.
    pub fn group(&self, name: &str, rank: GroupRank, members: &[GlobalRank], counting: Profile) -> Arc<Group> {
        let mut groups = self.groups.lock().expect("nothing here panics");
        let group = Arc::new(Group {
            id: GroupId(u32::try_from(groups.len()).expect("fewer than 2^32 groups")),
            name: name.into(),
            rules: Rules { fill: self.fill, rank: rank.index(), size: members.len() },
            counting,
            sequence: AtomicU64::new(0),
            collectives: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; KINDS],
            coalescing: AtomicU8::new(NOT_COALESCING),
        });
        groups.push(group.clone());
        drop(groups);
        if self.sink.read().expect("sinks do not panic").is_some() {
            self.emit(Event::GroupCreated { group: group.id, name: group.name.clone(), members: members.into() });
        }
        group
    }

    /// Counts of all groups so far.
    ///
    /// # Panics
    /// If another thread panicked in here.
    pub fn totals(&self) -> Totals {
        let groups = self.groups.lock().expect("nothing here panics");
        let count = |at: usize| groups.iter().map(|g| g.counts[at].load(Ordering::Relaxed)).sum();
        let operations = OpKind::ALL.iter().enumerate().map(|(at, &kind)| (kind, count(at)));
        let entry = |g: &Arc<Group>| {
            let size = u32::try_from(g.rules.size).expect("ranks are u32");
            (g.name.clone(), size, Bytes(g.bytes.load(Ordering::Relaxed)))
        };
        Totals { operations: operations.filter(|&(_, n)| n > 0).collect(), groups: groups.iter().map(entry).collect() }
    }
}

impl Group {
    /// Counts an operation on `tensors` tensors that reads `input` bytes, and returns its position.
    pub fn issue(&self, kind: OpKind, tensors: u64, input: u64, root: Option<GroupRank>) -> Seq {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(sent(kind, input, root, &self.rules), Ordering::Relaxed);
        if self.counting == Profile::Gloo {
            let me = GroupRank(self.rules.rank as u32);
            let steps = gloo_steps(kind, tensors, self.rules.size as u64, me);
            self.sequence.fetch_add(steps, Ordering::Relaxed);
        }
        if kind.is_p2p() {
            return Seq(self.messages.fetch_add(1, Ordering::Relaxed));
        }
        match self.coalescing.load(Ordering::Relaxed) {
            COALESCED => return Seq(self.collectives.load(Ordering::Relaxed) - 1),
            COALESCING => self.coalescing.store(COALESCED, Ordering::Relaxed),
            _ => {}
        }
        Seq(self.collectives.fetch_add(1, Ordering::Relaxed))
    }

    /// The sequence number that the backend would give: NCCL counts collectives, what is coalesced once.
    pub fn sequence_number(&self) -> u64 {
        match self.counting {
            Profile::Gloo => self.sequence.load(Ordering::Relaxed),
            Profile::Nccl => self.collectives.load(Ordering::Relaxed),
        }
    }

    /// From now on collectives share one position, until [`Group::end_coalescing`].
    pub fn start_coalescing(&self) {
        self.coalescing.store(COALESCING, Ordering::Relaxed);
    }

    /// Ends what [`Group::start_coalescing`] began.
    pub fn end_coalescing(&self) {
        self.coalescing.store(NOT_COALESCING, Ordering::Relaxed);
    }
}

/// The bytes that this rank would send; the same formulas as [`crate::bytes_moved`].
fn sent(kind: OpKind, input: u64, root: Option<GroupRank>, rules: &Rules) -> u64 {
    let (size, others) = (rules.size as u64, rules.size as u64 - 1);
    let is_root = root.is_some_and(|r| r.index() == rules.rank);
    match kind {
        OpKind::AllReduce | OpKind::AllReduceCoalesced | OpKind::AllReduceSparse => 2 * input * others / size,
        OpKind::AllGather | OpKind::AllGatherSingle | OpKind::AllGatherCoalesced => input * others,
        OpKind::ReduceScatter
        | OpKind::ReduceScatterSingle
        | OpKind::ReduceScatterCoalesced
        | OpKind::AllToAll
        | OpKind::AllToAllSingle
        | OpKind::Scatter => input * others / size,
        OpKind::Broadcast if is_root => input * others,
        OpKind::Reduce | OpKind::Gather if !is_root => input,
        OpKind::Send => input,
        OpKind::Broadcast
        | OpKind::Reduce
        | OpKind::Gather
        | OpKind::Recv
        | OpKind::Barrier
        | OpKind::MonitoredBarrier
        | OpKind::NewGroup => 0,
    }
}

/// Keeps the last operations in memory.
pub struct Ring {
    capacity: usize,
    records: Mutex<std::collections::VecDeque<Arc<OpRecord>>>,
}

impl Ring {
    /// Keeps the last `capacity` operations.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, records: Mutex::new(std::collections::VecDeque::with_capacity(capacity)) }
    }

    /// The operations kept, oldest first.
    ///
    /// # Panics
    /// If another thread panicked in here.
    pub fn records(&self) -> Vec<Arc<OpRecord>> {
        self.records.lock().expect("nothing here panics").iter().cloned().collect()
    }
}

impl EventSink for Ring {
    fn emit(&self, event: Event) {
        let Event::Issued(record) = event else { return };
        let mut records = self.records.lock().expect("nothing here panics");
        if records.len() == self.capacity {
            records.pop_front();
        }
        records.push_back(record);
    }
}
