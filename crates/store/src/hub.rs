//! The stores of one run, by what they stand for.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use allranks_core::GlobalRank;

use crate::places::{Address, FilePlace, Places, Server};
use crate::{Alone, Board, Flavor, KeyValueStore, Patience, StoreError, WaitError, Waiter, Waiting};

struct Shared {
    alone: Option<Alone>,
    board: Board,
    /// One key for each address at which a server runs.
    lobby: KeyValueStore,
    own_names: Vec<String>,
    places: Mutex<Places>,
}

/// All stores of a run. Cheap to clone: all clones are one hub.
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

/// Arguments of a `TCPStore`.
#[derive(Clone, Debug)]
pub struct TcpRequest {
    /// As the program wrote it.
    pub host: String,
    /// 0 lets a server pick one.
    pub port: u16,
    /// How many stores there will be, if known.
    pub workers: Option<i64>,
    /// Whether this one is the server.
    pub is_master: bool,
    /// Whether other servers of the same address share it.
    pub multi_tenant: bool,
    /// Whether the server waits for `workers`.
    pub wait_for_workers: bool,
    /// How long to wait for server and workers.
    pub patience: Patience,
}

/// What came of looking for a place.
pub struct Joined<Use> {
    /// The data.
    pub store: Arc<KeyValueStore>,
    /// The port, if there is one.
    pub port: u16,
    /// Keeps the place alive.
    pub usage: Option<Arc<Use>>,
}

/// A server runs as long as this lives.
pub struct ServerUse {
    hub: Hub,
    address: Address,
}

/// A file is in use as long as this lives; the last one removes it, as `FileStore` does.
pub struct FileUse {
    hub: Hub,
    store: Arc<KeyValueStore>,
    path: PathBuf,
    workers: i64,
}

impl Hub {
    /// Without stores. `own_names` are names of this machine besides localhost; `alone` if there are no peers.
    pub fn new(alone: Option<Alone>, own_names: Vec<String>) -> Self {
        let board = Board::default();
        let lobby = KeyValueStore::new("TCPStore servers", Flavor::Tcp, alone, board.clone());
        Self(Arc::new(Shared { alone, board, lobby, own_names, places: Mutex::default() }))
    }

    /// The rank that has no peers, if so.
    pub fn alone(&self) -> Option<Alone> {
        self.0.alone
    }

    /// Everybody who waits for a key of any store, in the order of tasks.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.board.waiting()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().expect("no thread panics while it holds the places")
    }

    fn make(&self, name: String, flavor: Flavor) -> Arc<KeyValueStore> {
        Arc::new(KeyValueStore::new(name, flavor, self.0.alone, self.0.board.clone()))
    }

    fn address(&self, host: &str, port: u16) -> Address {
        let host = host.to_ascii_lowercase();
        let local = matches!(host.as_str(), "localhost" | "::1" | "0.0.0.0" | "::" | "")
            || host.starts_with("127.")
            || self.0.own_names.iter().any(|name| name.eq_ignore_ascii_case(&host));
        (if local { "localhost".to_owned() } else { host }, port)
    }

    /// A store of its own.
    pub fn hash_store(&self) -> Arc<KeyValueStore> {
        let mut places = self.places();
        places.hash_stores += 1;
        self.make(format!("HashStore {}", places.hash_stores), Flavor::Hash)
    }

    /// What the constructor of `TCPStore` does: a server starts, a client waits for one; the server then waits for
    /// all workers. Without peers, nobody waits.
    ///
    /// # Errors
    /// If the address is taken, or the time is up.
    pub fn tcp<W: Waiter>(
        &self,
        waiter: &mut W,
        request: &TcpRequest,
    ) -> Result<Joined<ServerUse>, WaitError<W::Stop>> {
        let joined = if request.is_master {
            self.serve(&request.host, request.port, request.multi_tenant)?
        } else {
            self.connect(waiter, request)?
        };
        if let Some(workers) = request.workers.filter(|_| request.wait_for_workers) {
            joined.store.join();
            if request.is_master {
                joined.store.wait_for_workers(waiter, workers, request.patience)?;
            }
        }
        Ok(joined)
    }

    fn serve(&self, host: &str, port: u16, multi_tenant: bool) -> Result<Joined<ServerUse>, StoreError> {
        let mut places = self.places();
        let port = if port == 0 { places.free_port() } else { port };
        let address = self.address(host, port);
        if let Some(server) = places.servers.get_mut(&address) {
            if server.users > 0 && !(server.shared && multi_tenant) {
                return Err(StoreError::AddressInUse { port });
            }
            server.users += 1;
        } else {
            let store = self.make(lobby_key(&address), Flavor::Tcp);
            places.servers.insert(address.clone(), Server { store, users: 1, shared: multi_tenant });
        }
        let store = places.servers[&address].store.clone();
        drop(places);
        self.0.lobby.set(&lobby_key(&address), Vec::new());
        Ok(Joined { store, port, usage: Some(Arc::new(ServerUse { hub: self.clone(), address })) })
    }

    fn connect<W: Waiter>(
        &self,
        waiter: &mut W,
        request: &TcpRequest,
    ) -> Result<Joined<ServerUse>, WaitError<W::Stop>> {
        let (address, port) = (self.address(&request.host, request.port), request.port);
        if self.0.alone.is_some() && !self.places().servers.contains_key(&address) {
            return Ok(self.serve(&request.host, port, true)?);
        }
        loop {
            if let Some(server) = self.places().servers.get(&address) {
                return Ok(Joined { store: server.store.clone(), port, usage: None });
            }
            self.0.lobby.wait(waiter, &[lobby_key(&address)], request.patience).map_err(|error| match error {
                WaitError::Store(StoreError::TimedOut { millis, .. }) => {
                    StoreError::ConnectTimedOut { millis, host: request.host.clone(), port }.into()
                }
                other => other,
            })?;
        }
    }

    /// What the constructor of `FileStore` does: the file exists on disk from then on. Contents stay in memory. A file
    /// that was removed meanwhile is a new place.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn file(&self, path: &Path, workers: i64) -> Result<Joined<FileUse>, StoreError> {
        let failed = |e: std::io::Error| StoreError::File { path: path.to_owned(), reason: e.to_string() };
        let mut places = self.places();
        let existed = path.exists();
        OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        if !existed {
            places.files.remove(&path);
        }
        let place = places.files.entry(path.clone()).or_insert_with(|| FilePlace {
            store: self.make(format!("FileStore {}", path.display()), Flavor::File),
            users: 0,
            finished: 0,
        });
        place.users += 1;
        let store = place.store.clone();
        let usage = Arc::new(FileUse { hub: self.clone(), store: store.clone(), path, workers });
        Ok(Joined { store, port: 0, usage: Some(usage) })
    }

    /// A fresh store for each gathering of `world_size` ranks at `place`, `visitor` being `rank` among them. However
    /// often the same ranks meet at one place (destroy and initialise again), they never see the keys of an earlier
    /// time. A place with an `address` can be reached by plain `TCPStore` clients too, and its rank 0 waits until all
    /// have come.
    ///
    /// # Errors
    /// If another rank plays the same one at the same time, or the time is up.
    pub fn rendezvous<W: Waiter>(
        &self,
        waiter: &mut W,
        place: &str,
        address: Option<(&str, u16)>,
        (rank, world_size): (u32, u32),
        patience: Patience,
    ) -> Result<Arc<KeyValueStore>, WaitError<W::Stop>> {
        let flavor = if address.is_some() { Flavor::Tcp } else { Flavor::File };
        let make = || self.make(format!("the default store ({place})"), flavor);
        let store = if self.0.alone.is_some() {
            make()
        } else {
            let visitor = waiter.rank().unwrap_or(GlobalRank(rank));
            let seated = self.places().take_seat((place.into(), world_size, rank), visitor, make);
            seated.ok_or(StoreError::AddressInUse { port: address.map_or(0, |(_, port)| port) })?
        };
        if let Some((host, port)) = address {
            self.answer_clients(&self.address(host, port), &store);
            store.join();
            if rank == 0 {
                store.wait_for_workers(waiter, i64::from(world_size), patience)?;
            }
        }
        Ok(store)
    }

    /// Lets clients that only know the address find a store, unless a server of its own runs there.
    fn answer_clients(&self, address: &Address, store: &Arc<KeyValueStore>) {
        let mut places = self.places();
        if places.servers.get(address).is_some_and(|s| s.users > 0) {
            return;
        }
        places.servers.insert(address.clone(), Server { store: store.clone(), users: 0, shared: true });
        drop(places);
        self.0.lobby.set(&lobby_key(address), Vec::new());
    }
}

fn lobby_key((host, port): &Address) -> String {
    format!("TCPStore {host}:{port}")
}

impl ServerUse {
    /// The host and port, every name of this machine being localhost.
    pub fn address(&self) -> (&str, u16) {
        (&self.address.0, self.address.1)
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        let mut places = self.hub.places();
        let Some(server) = places.servers.get_mut(&self.address) else { return };
        server.users -= 1;
        if server.users == 0 {
            places.servers.remove(&self.address);
            drop(places);
            self.hub.0.lobby.delete_key(&lobby_key(&self.address));
        }
    }
}

impl Drop for FileUse {
    fn drop(&mut self) {
        let mut places = self.hub.places();
        let Some(place) = places.files.get_mut(&self.path).filter(|p| Arc::ptr_eq(&p.store, &self.store)) else {
            return;
        };
        place.users = place.users.saturating_sub(1);
        place.finished += 1;
        let all_done = place.finished >= self.workers || self.hub.0.alone.is_some();
        if place.users == 0 && self.workers >= 0 && all_done {
            places.files.remove(&self.path);
            // As in torch, whether it could be removed is not looked at.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
