//! Which places exist: servers by host and port, files by path, and rounds of rendezvous.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use allranks_core::GlobalRank;

use crate::KeyValueStore;

/// A host and a port; every name of this machine is one host.
pub(crate) type Address = (String, u16);

/// A running `TCPStore` server.
pub(crate) struct Server {
    pub store: Arc<KeyValueStore>,
    /// Live stores that asked to be the server.
    pub users: usize,
    /// Whether a second one may ask.
    pub shared: bool,
}

/// A file that `FileStore`s use.
pub(crate) struct FilePlace {
    pub store: Arc<KeyValueStore>,
    /// Live stores.
    pub users: usize,
    /// Stores that are gone.
    pub finished: i64,
}

/// One gathering of all ranks at one place.
struct Round {
    store: Arc<KeyValueStore>,
    joined: u32,
}

/// Place, size and rank in it.
type Seat = (Arc<str>, u32, u32);

#[derive(Default)]
pub(crate) struct Places {
    pub servers: BTreeMap<Address, Server>,
    pub files: BTreeMap<PathBuf, FilePlace>,
    pub hash_stores: u64,
    ports_given: u16,
    /// How often each seat was taken, and by whom last.
    seats: BTreeMap<Seat, (u64, GlobalRank)>,
    /// Rounds that are not complete.
    rounds: BTreeMap<(Arc<str>, u32, u64), Round>,
}

/// The first port that [`Places::free_port`] gives.
const FIRST_PORT: u16 = 40_001;

impl Places {
    /// A port that nobody of this run uses; the same in each run.
    pub fn free_port(&mut self) -> u16 {
        loop {
            let port = FIRST_PORT + self.ports_given % 20_000;
            self.ports_given = self.ports_given.wrapping_add(1);
            if !self.servers.keys().any(|(_, used)| *used == port) {
                return port;
            }
        }
    }

    /// The store of the round in which `visitor` takes its seat: everybody's n-th visit is one round, however early or
    /// late others come. `None` if somebody else holds this seat in a round that still gathers.
    pub fn take_seat(
        &mut self,
        seat: Seat,
        visitor: GlobalRank,
        make: impl FnOnce() -> Arc<KeyValueStore>,
    ) -> Option<Arc<KeyValueStore>> {
        let (place, world_size, _) = seat.clone();
        let (visits, last) = self.seats.get(&seat).copied().unwrap_or((0, visitor));
        let gathering = visits > 0 && self.rounds.contains_key(&(place.clone(), world_size, visits - 1));
        if gathering && last != visitor {
            return None;
        }
        self.seats.insert(seat, (visits + 1, visitor));
        let key = (place, world_size, visits);
        let round = self.rounds.entry(key.clone()).or_insert_with(|| Round { store: make(), joined: 0 });
        round.joined += 1;
        let (store, complete) = (round.store.clone(), round.joined >= world_size);
        if complete {
            self.rounds.remove(&key);
        }
        Some(store)
    }
}
