//! The data of one place and the operations that never wait.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::data::Data;
use crate::waiters::{Waiters, Woken};
use crate::{Alone, Board, Flavor, StoreError};

/// What one lock guards.
pub(crate) struct Inner {
    pub data: Data,
    pub waiters: Waiters,
    alone: Option<Alone>,
}

impl Inner {
    /// `get`, with peers' keys answered if there are none.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.data.get(key).or_else(|| {
            let mine = self.alone?.counterparts(key).iter().find_map(|k| self.data.get(k));
            mine.or_else(|| self.let_go(key).then(|| b"1".to_vec()))
        })
    }

    /// `check` of one key, likewise.
    pub fn has(&self, key: &str) -> bool {
        let peers = || self.alone.is_some_and(|a| a.counterparts(key).iter().any(|k| self.data.has(k)));
        self.data.has(key) || peers() || (self.alone.is_some() && self.let_go(key))
    }

    /// Whether the last to arrive at a counter of mine would set `key`.
    fn let_go(&self, key: &str) -> bool {
        Alone::counter_of(key).is_some_and(|counter| self.data.value(&counter).is_some())
    }
}

/// One place. Operations that may wait are in the second block of methods; they take a [`Waiter`](crate::Waiter).
pub struct KeyValueStore {
    pub(crate) name: Arc<str>,
    pub(crate) flavor: Flavor,
    pub(crate) alone: Option<Alone>,
    pub(crate) board: Board,
    inner: Mutex<Inner>,
}

impl KeyValueStore {
    /// Empty. `name` is for reports; those who wait are listed on `board`.
    pub fn new(name: impl Into<Arc<str>>, flavor: Flavor, alone: Option<Alone>, board: Board) -> Self {
        let inner = Inner { data: Data::new(flavor), waiters: Waiters::default(), alone };
        Self { name: name.into(), flavor, alone, board, inner: Mutex::new(inner) }
    }

    /// As reports call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose habits it has.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics while it holds a store")
    }

    /// Changes the data, then wakes whom it concerns: no lock is held then.
    fn change<T>(&self, change: impl FnOnce(&mut Inner, &mut Woken) -> T) -> T {
        let mut woken = Woken::new();
        let answer = change(&mut self.lock(), &mut woken);
        for (task, waker) in woken {
            waker.wake(task);
        }
        answer
    }

    fn changed(&self, key: &str, change: impl FnOnce(&mut Data)) {
        self.change(|inner, woken| {
            change(&mut inner.data);
            inner.waiters.changed(key, &inner.data, woken);
        });
    }

    /// Sets a key.
    pub fn set(&self, key: &str, value: Vec<u8>) {
        self.changed(key, |data| data.set(key, value));
    }

    /// Sets several keys at once.
    ///
    /// # Errors
    /// If there are not as many values as keys.
    pub fn multi_set(&self, keys: &[String], values: Vec<Vec<u8>>) -> Result<(), StoreError> {
        if keys.len() != values.len() {
            return Err(StoreError::SizesDiffer);
        }
        self.change(|inner, woken| {
            for (key, value) in keys.iter().zip(values) {
                inner.data.set(key, value);
            }
            for key in keys {
                inner.waiters.changed(key, &inner.data, woken);
            }
        });
        Ok(())
    }

    /// Adds to a number kept as decimal text, a missing key being 0; returns the sum. It wraps around as in C++.
    ///
    /// # Errors
    /// If the value does not begin with a number.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, StoreError> {
        let amount = self.alone.map_or(amount, |a| a.for_all(amount));
        self.change(|inner, woken| {
            let sum = inner.data.add(key, amount)?;
            inner.waiters.changed(key, &inner.data, woken);
            Ok(sum)
        })
    }

    /// Sets a key if its value is `expected`, or if it is missing and `expected` is empty. Returns the value that the
    /// key has then; for a missing key that was not set, `expected`. The second answer is whether it was set.
    pub fn compare_set(&self, key: &str, expected: Vec<u8>, desired: Vec<u8>) -> (Vec<u8>, bool) {
        self.change(|inner, woken| {
            let (value, set) = inner.data.compare_set(key, expected, desired);
            if set {
                inner.waiters.changed(key, &inner.data, woken);
            }
            (value, set)
        })
    }

    /// Appends to a value, a missing key being empty.
    pub fn append(&self, key: &str, value: &[u8]) {
        self.changed(key, |data| data.append(key, value));
    }

    /// Removes a key; true if it was there (to `FileStore`, always).
    pub fn delete_key(&self, key: &str) -> bool {
        self.lock().data.delete(key)
    }

    /// How many keys there are, those that torch's classes add included; queues do not count.
    pub fn num_keys(&self) -> usize {
        self.lock().data.num_keys()
    }

    /// The keys in ascending order, without queues.
    pub fn list_keys(&self) -> Vec<String> {
        self.lock().data.keys()
    }

    /// Whether all keys are there; a queue that is not empty counts.
    pub fn has_all(&self, keys: &[String]) -> bool {
        let inner = self.lock();
        keys.iter().all(|key| inner.has(key))
    }

    pub(crate) fn queues(&self) -> Result<(), StoreError> {
        if self.flavor.has_queues() { Ok(()) } else { Err(StoreError::NoQueues) }
    }

    /// Puts an item at the end of a queue.
    ///
    /// # Errors
    /// If the flavor has no queues; likewise for the other operations on queues.
    pub fn queue_push(&self, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.queues()?;
        self.change(|inner, woken| {
            inner.data.queue_push(key, value);
            inner.waiters.pushed(key, &inner.data, woken);
        });
        Ok(())
    }

    /// The length of a queue, 0 if there is none.
    ///
    /// # Errors
    /// If the flavor has no queues.
    pub fn queue_len(&self, key: &str) -> Result<usize, StoreError> {
        self.queues()?;
        Ok(self.lock().data.queue_len(key))
    }

    /// A `TCPStore` with a known number of workers came; returns how many there are now.
    pub fn join(&self) -> i64 {
        self.change(|inner, woken| {
            inner.data.workers += 1;
            inner.waiters.joined(&inner.data, woken);
            inner.data.workers
        })
    }
}
