//! The keys, values and queues of one place; nothing here waits.

use std::collections::{BTreeMap, VecDeque};

use crate::number::{NotANumber, leading_number};
use crate::{Flavor, StoreError};

/// Contents of a store.
#[derive(Debug)]
pub(crate) struct Data {
    flavor: Flavor,
    values: BTreeMap<String, Vec<u8>>,
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
    /// How many `TCPStore`s with a known number of workers came here; a key of its own, as in torch.
    pub workers: i64,
}

impl Data {
    pub fn new(flavor: Flavor) -> Self {
        Self { flavor, values: BTreeMap::new(), queues: BTreeMap::new(), workers: 0 }
    }

    pub fn set(&mut self, key: &str, value: Vec<u8>) {
        self.values.insert(key.to_owned(), value);
    }

    pub fn value(&self, key: &str) -> Option<&Vec<u8>> {
        self.values.get(key)
    }

    /// What `get` answers: to `TCPStore`, a queue that is not empty is a key with an empty value.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let queue_counts = self.flavor == Flavor::Tcp && self.queue_len(key) > 0;
        self.values.get(key).cloned().or_else(|| queue_counts.then(Vec::new))
    }

    /// What `check` and `wait` look at.
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key) || self.queue_len(key) > 0
    }

    /// # Errors
    /// If the value is no number; an empty value is 0 except to `TCPStore`.
    pub fn add(&mut self, key: &str, amount: i64) -> Result<i64, StoreError> {
        let old = match self.values.get(key) {
            None => 0,
            Some(value) if value.is_empty() && self.flavor != Flavor::Tcp => 0,
            Some(value) => leading_number(value).map_err(|e| StoreError::NotANumber {
                flavor: self.flavor,
                key: key.to_owned(),
                out_of_range: e == NotANumber::OutOfRange,
            })?,
        };
        let sum = old.wrapping_add(amount);
        self.values.insert(key.to_owned(), sum.to_string().into_bytes());
        Ok(sum)
    }

    /// The number under a key, 0 if there is none.
    pub fn count(&self, key: &str) -> i64 {
        self.values.get(key).and_then(|v| leading_number(v).ok()).unwrap_or(0)
    }

    /// The answer, and whether the key was set. A missing key equals an empty expectation; otherwise the expectation
    /// itself comes back, as from torch.
    pub fn compare_set(&mut self, key: &str, expected: Vec<u8>, desired: Vec<u8>) -> (Vec<u8>, bool) {
        let fits = match self.values.get(key) {
            None if !expected.is_empty() => return (expected, false),
            None => true,
            Some(value) => *value == expected,
        };
        if fits {
            self.values.insert(key.to_owned(), desired);
        }
        (self.values[key].clone(), fits)
    }

    pub fn append(&mut self, key: &str, value: &[u8]) {
        self.values.entry(key.to_owned()).or_default().extend_from_slice(value);
    }

    /// Whether it was there; `FileStore` always says yes. A queue is not touched.
    pub fn delete(&mut self, key: &str) -> bool {
        self.values.remove(key).is_some() || self.flavor == Flavor::File
    }

    pub fn num_keys(&self) -> usize {
        self.values.len() + self.flavor.own_keys() + usize::from(self.workers > 0)
    }

    pub fn keys(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    pub fn queue_len(&self, key: &str) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub fn queue_push(&mut self, key: &str, value: Vec<u8>) {
        self.queues.entry(key.to_owned()).or_default().push_back(value);
    }

    /// An empty queue is forgotten.
    pub fn queue_pop(&mut self, key: &str) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(key)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        first
    }
}
