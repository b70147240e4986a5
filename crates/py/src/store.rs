//! Stores: each method of torch's `Store` is one call here. Who waits hands the baton over.

mod caller;
mod convert;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use allranks_core::{GlobalRank, WorldSize};
use allranks_store::{Alone, FileUse, Hub, KeyValueStore, Patience, ServerUse, TcpRequest, Waiter};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use caller::Caller;
use convert::{all, bytes, key, millis, raise, raised};

/// What keeps a place alive.
#[derive(Clone)]
enum Use {
    None,
    Server(#[expect(dead_code, reason = "its end is what counts")] Arc<ServerUse>),
    File(#[expect(dead_code, reason = "its end is what counts")] Arc<FileUse>),
}

/// The data behind one store object. Objects that stand for one place share the data, not the time-out.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct StoreCore {
    store: Arc<KeyValueStore>,
    patience: Mutex<Patience>,
    port: u16,
    usage: Use,
}

impl StoreCore {
    fn new(store: Arc<KeyValueStore>, patience: Patience, port: u16, usage: Use) -> Self {
        Self { store, patience: Mutex::new(patience), port, usage }
    }

    /// The time-out of this call, or the store's.
    fn patience(&self, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Patience> {
        match timeout {
            Some(time) => Ok(Patience::of_millis(millis(time)?)),
            None => Ok(*self.patience.lock().expect("never poisoned")),
        }
    }
}

#[pymethods]
impl StoreCore {
    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store.set(&self::key(key)?, bytes(value)?);
        Ok(())
    }

    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.store.get(&mut Caller::this(py), &self::key(key)?, self.patience(None)?);
        value.map(|v| PyBytes::new(py, &v)).map_err(|e| raise(py, e))
    }

    /// Adding nothing is a poll: others run first.
    fn add(&self, py: Python<'_>, key: &Bound<'_, PyAny>, amount: i64) -> PyResult<i64> {
        if amount == 0 {
            Caller::this(py).yield_now()?;
        }
        self.store.add(&self::key(key)?, amount).map_err(|e| raised(py, &e))
    }

    fn check(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.store.check(&mut Caller::this(py), &all(keys, key)?)
    }

    #[pyo3(signature = (keys, timeout = None))]
    fn wait(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let waited = self.store.wait(&mut Caller::this(py), &all(keys, key)?, self.patience(timeout)?);
        waited.map_err(|e| raise(py, e))
    }

    /// Not getting one's way is a poll: others run before the next attempt.
    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        expected: &Bound<'py, PyAny>,
        desired: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (value, set) = self.store.compare_set(&self::key(key)?, bytes(expected)?, bytes(desired)?);
        if !set {
            Caller::this(py).yield_now()?;
        }
        Ok(PyBytes::new(py, &value))
    }

    fn append(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store.append(&self::key(key)?, &bytes(value)?);
        Ok(())
    }

    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let values = self.store.multi_get(&mut Caller::this(py), &all(keys, key)?, self.patience(None)?);
        let values = values.map_err(|e| raise(py, e))?;
        Ok(values.iter().map(|v| PyBytes::new(py, v)).collect())
    }

    fn multi_set(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store.multi_set(&all(keys, key)?, all(values, bytes)?).map_err(|e| raised(py, &e))
    }

    fn delete_key(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.store.delete_key(&self::key(key)?))
    }

    /// Counting is a poll: others run first.
    fn num_keys(&self, py: Python<'_>) -> PyResult<usize> {
        Caller::this(py).yield_now()?;
        Ok(self.store.num_keys())
    }

    fn list_keys(&self) -> Vec<String> {
        self.store.list_keys()
    }

    fn has_extended_api(&self) -> bool {
        self.store.flavor().has_extended_api()
    }

    fn queue_push(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store.queue_push(&self::key(key)?, bytes(value)?).map_err(|e| raised(py, &e))
    }

    fn queue_pop<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>, block: bool) -> PyResult<Bound<'py, PyBytes>> {
        let patience = if block { Some(self.patience(None)?) } else { None };
        let item = self.store.queue_pop(&mut Caller::this(py), &self::key(key)?, patience);
        item.map(|v| PyBytes::new(py, &v)).map_err(|e| raise(py, e))
    }

    fn queue_len(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.store.queue_len(&self::key(key)?).map_err(|e| raised(py, &e))
    }

    /// `by_keys`: as `PrefixStore` does it.
    #[pyo3(signature = (key, world_size, timeout = None, *, by_keys = false))]
    fn barrier(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        world_size: i64,
        timeout: Option<&Bound<'_, PyAny>>,
        by_keys: bool,
    ) -> PyResult<()> {
        let (waiter, key, patience) = (&mut Caller::this(py), self::key(key)?, self.patience(timeout)?);
        let passed = if by_keys {
            self.store.barrier_by_keys(waiter, &key, world_size, patience)
        } else {
            self.store.barrier(waiter, &key, world_size, patience)
        };
        passed.map_err(|e| raise(py, e))
    }

    /// `explicit`: the program chose it, so that it may expire; see `allranks_store::Patience`.
    fn set_timeout(&self, timeout: &Bound<'_, PyAny>, explicit: bool) -> PyResult<()> {
        *self.patience.lock().expect("never poisoned") = Patience { millis: millis(timeout)?, explicit };
        Ok(())
    }

    /// The same place; the time-out as it is, except that a `FileStore`'s is the default again, as in torch.
    #[pyo3(name = "clone")]
    fn another(&self) -> PyResult<Self> {
        let patience = match self.store.flavor() {
            allranks_store::Flavor::File => Patience::DEFAULT,
            _ => self.patience(None)?,
        };
        Ok(Self::new(self.store.clone(), patience, self.port, self.usage.clone()))
    }

    /// As reports call it.
    #[getter]
    fn name(&self) -> &str {
        self.store.name()
    }

    /// The port of a `TCPStore`, 0 for others.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }
}

/// All stores of a run.
#[pyclass(frozen, module = "allranks._allranks")]
pub(crate) struct StoreHub {
    hub: Hub,
}

#[pymethods]
impl StoreHub {
    /// `alone` is the rank that this process plays if it has no peers.
    #[new]
    #[pyo3(signature = (*, world_size, alone = None, own_names = vec![]))]
    fn new(world_size: u32, alone: Option<u32>, own_names: Vec<String>) -> Self {
        let alone = alone.map(|rank| Alone { rank: GlobalRank(rank), world_size: WorldSize(world_size) });
        Self { hub: Hub::new(alone, own_names) }
    }

    #[getter]
    fn is_alone(&self) -> bool {
        self.hub.alone().is_some()
    }

    fn hash(&self) -> StoreCore {
        StoreCore::new(self.hub.hash_store(), Patience::DEFAULT, 0, Use::None)
    }

    /// `timeout` is None if the program did not choose one.
    #[pyo3(signature = (host, port, *, world_size, is_master, timeout, wait_for_workers, multi_tenant))]
    #[expect(clippy::too_many_arguments, reason = "torch's constructor has them")]
    fn tcp(
        &self,
        py: Python<'_>,
        host: String,
        port: u16,
        world_size: Option<i64>,
        is_master: bool,
        timeout: Option<&Bound<'_, PyAny>>,
        wait_for_workers: bool,
        multi_tenant: bool,
    ) -> PyResult<StoreCore> {
        let patience = timeout.map(|t| millis(t).map(Patience::of_millis)).transpose()?.unwrap_or(Patience::DEFAULT);
        let request =
            TcpRequest { host, port, workers: world_size, is_master, multi_tenant, wait_for_workers, patience };
        let joined = self.hub.tcp(&mut Caller::this(py), &request).map_err(|e| raise(py, e))?;
        let usage = joined.usage.map_or(Use::None, Use::Server);
        Ok(StoreCore::new(joined.store, patience, joined.port, usage))
    }

    fn file(&self, py: Python<'_>, path: PathBuf, world_size: i64) -> PyResult<StoreCore> {
        let joined = self.hub.file(&path, world_size).map_err(|e| raised(py, &e))?;
        Ok(StoreCore::new(joined.store, Patience::DEFAULT, 0, joined.usage.map_or(Use::None, Use::File)))
    }

    /// The default store of `init_process_group` over env:// or tcp://: fresh each time that all ranks gather.
    #[pyo3(signature = (place, *, host, port, rank, world_size))]
    fn rendezvous(
        &self,
        py: Python<'_>,
        place: &str,
        host: &str,
        port: u16,
        rank: u32,
        world_size: u32,
    ) -> PyResult<StoreCore> {
        let (seat, waiter, patience) = ((rank, world_size), &mut Caller::this(py), Patience::DEFAULT);
        let store = self.hub.rendezvous(waiter, place, Some((host, port)), seat, patience);
        Ok(StoreCore::new(store.map_err(|e| raise(py, e))?, patience, port, Use::None))
    }

    /// The same over file://; the file is there while it is used.
    #[pyo3(signature = (path, *, rank, world_size))]
    fn rendezvous_file(&self, py: Python<'_>, path: PathBuf, rank: u32, world_size: u32) -> PyResult<StoreCore> {
        let file = self.hub.file(&path, i64::from(world_size)).map_err(|e| raised(py, &e))?;
        let place = format!("file://{}", path.display());
        let (seat, waiter, patience) = ((rank, world_size), &mut Caller::this(py), Patience::DEFAULT);
        let store = self.hub.rendezvous(waiter, &place, None, seat, patience).map_err(|e| raise(py, e))?;
        Ok(StoreCore::new(store, patience, 0, file.usage.map_or(Use::None, Use::File)))
    }

    /// (task, missing keys) of everybody who waits for a store: what the report of a stall takes.
    fn waits(&self) -> Vec<(u32, Vec<String>)> {
        self.hub.waiting().into_iter().map(|w| (w.task.0, w.keys)).collect()
    }

    /// (task, rank, name of the store, operation, missing keys, whether the program chose the time-out).
    #[expect(clippy::type_complexity, reason = "a plain tuple to Python")]
    fn waiting(&self) -> Vec<(u32, Option<u32>, String, &'static str, Vec<String>, bool)> {
        let plain = |w: allranks_store::Waiting| {
            (w.task.0, w.rank.map(|r| r.0), w.store.to_string(), w.operation, w.keys, w.patience.explicit)
        };
        self.hub.waiting().into_iter().map(plain).collect()
    }
}
