//! The operations that may wait.

use std::collections::BTreeSet;

use allranks_sched::Wake;

use crate::store::{Inner, KeyValueStore};
use crate::waiters::Need;
use crate::{Flavor, Patience, StoreError, WaitError, Waiter, Waiting};

/// One operation that waits.
struct Ask<'a> {
    operation: &'static str,
    patience: Patience,
    /// What the report shows in place of the missing keys.
    shown: Option<String>,
    timed_out: &'a dyn Fn(&Inner, &Need) -> StoreError,
}

/// What an attempt came to.
enum Attempt<T> {
    Done(T),
    Wait(Need),
}

impl KeyValueStore {
    /// Tries until it is done. `woken` is the answer once woken, if waking is enough; else it is tried again.
    fn until<T, W: Waiter>(
        &self,
        waiter: &mut W,
        ask: &Ask<'_>,
        mut woken: Option<T>,
        mut attempt: impl FnMut(&mut Inner) -> Attempt<T>,
    ) -> Result<T, WaitError<W::Stop>> {
        loop {
            let (seq, need) = {
                let mut inner = self.lock();
                let need = match attempt(&mut inner) {
                    Attempt::Done(answer) => return Ok(answer),
                    Attempt::Wait(need) => need,
                };
                if let Some(alone) = self.alone {
                    let key = need.keys().into_iter().next().unwrap_or_default();
                    return Err(StoreError::NoPeer { rank: alone.rank, world_size: alone.world_size, key }.into());
                }
                (inner.waiters.add(waiter.task(), waiter.waker(), need.clone()), need)
            };
            self.board.put(Waiting {
                task: waiter.task(),
                rank: waiter.rank(),
                store: self.name.clone(),
                operation: ask.operation,
                keys: ask.shown.clone().map_or_else(|| need.keys(), |shown| vec![shown]),
                patience: ask.patience,
            });
            let wake = waiter.block(ask.patience.deadline(self.flavor), ask.patience.limit(self.flavor));
            self.board.remove(waiter.task());
            self.lock().waiters.remove(seq);
            match wake.map_err(WaitError::Stopped)? {
                Wake::TimedOut => return Err((ask.timed_out)(&self.lock(), &need).into()),
                Wake::Ready | Wake::Soft | Wake::Aborted => {
                    if let Some(answer) = woken.take() {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    fn missing(&self, millis: i64, keys: &[String], single: bool) -> StoreError {
        StoreError::TimedOut { flavor: self.flavor, millis, keys: keys.to_vec(), single }
    }

    /// Waits until the key has a value.
    ///
    /// # Errors
    /// If the time is up or the wait is ended from outside; likewise for the other operations that wait. Without
    /// peers, if the key is missing.
    pub fn get<W: Waiter>(&self, waiter: &mut W, key: &str, patience: Patience) -> Result<Vec<u8>, WaitError<W::Stop>> {
        self.get_as(waiter, "get", key, patience, &[key.to_owned()])
    }

    fn get_as<W: Waiter>(
        &self,
        waiter: &mut W,
        operation: &'static str,
        key: &str,
        patience: Patience,
        blamed: &[String],
    ) -> Result<Vec<u8>, WaitError<W::Stop>> {
        let timed_out = |_: &Inner, _: &Need| self.missing(patience.millis, blamed, true);
        let ask = Ask { operation, patience, shown: None, timed_out: &timed_out };
        self.until(waiter, &ask, None, |inner| match inner.get(key) {
            Some(value) => Attempt::Done(value),
            None => Attempt::Wait(Need::Value(key.to_owned())),
        })
    }

    /// The values of several keys, in their order.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn multi_get<W: Waiter>(
        &self,
        waiter: &mut W,
        keys: &[String],
        patience: Patience,
    ) -> Result<Vec<Vec<u8>>, WaitError<W::Stop>> {
        let get = |key: &String| {
            let blamed = if self.flavor == Flavor::Tcp { keys } else { std::slice::from_ref(key) };
            self.get_as(waiter, "multi_get", key, patience, blamed)
        };
        keys.iter().map(get).collect()
    }

    /// Waits until each of the keys was set (it may be gone again by then).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn wait<W: Waiter>(
        &self,
        waiter: &mut W,
        keys: &[String],
        patience: Patience,
    ) -> Result<(), WaitError<W::Stop>> {
        let timed_out = |_: &Inner, _: &Need| self.missing(patience.millis, keys, false);
        let ask = Ask { operation: "wait", patience, shown: None, timed_out: &timed_out };
        self.until(waiter, &ask, Some(()), |inner| {
            let missing: BTreeSet<String> = keys.iter().filter(|k| !inner.has(k)).cloned().collect();
            if missing.is_empty() { Attempt::Done(()) } else { Attempt::Wait(Need::Keys(missing)) }
        })
    }

    /// Whether all keys are there. Others run once before it says no, so that a loop around it comes to an end.
    ///
    /// # Errors
    /// If the run was ended meanwhile.
    pub fn check<W: Waiter>(&self, waiter: &mut W, keys: &[String]) -> Result<bool, W::Stop> {
        if self.has_all(keys) {
            return Ok(true);
        }
        waiter.yield_now()?;
        Ok(self.has_all(keys))
    }

    /// The first item of a queue; waits for one if `patience` is given.
    ///
    /// # Errors
    /// As for [`get`](Self::get), and [`StoreError::QueueEmpty`] if it does not wait. Others ran once by then.
    pub fn queue_pop<W: Waiter>(
        &self,
        waiter: &mut W,
        key: &str,
        patience: Option<Patience>,
    ) -> Result<Vec<u8>, WaitError<W::Stop>> {
        self.queues()?;
        let Some(patience) = patience else {
            if self.lock().data.queue_len(key) == 0 {
                waiter.yield_now().map_err(WaitError::Stopped)?;
            }
            return self.lock().data.queue_pop(key).ok_or(WaitError::Store(StoreError::QueueEmpty));
        };
        let timed_out = |_: &Inner, _: &Need| self.missing(patience.millis, &[key.to_owned()], true);
        let ask = Ask { operation: "queue_pop", patience, shown: None, timed_out: &timed_out };
        self.until(waiter, &ask, None, |inner| match inner.data.queue_pop(key) {
            Some(item) => Attempt::Done(item),
            None => Attempt::Wait(Need::Item(key.to_owned())),
        })
    }

    /// Waits until `world_size` callers came to the barrier `key`, which counts on afterwards.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn barrier<W: Waiter>(
        &self,
        waiter: &mut W,
        key: &str,
        world_size: i64,
        patience: Patience,
    ) -> Result<(), WaitError<W::Stop>> {
        let timed_out =
            |_: &Inner, _: &Need| StoreError::BarrierTimedOut { millis: patience.millis, key: key.to_owned() };
        let ask = Ask { operation: "barrier", patience, shown: None, timed_out: &timed_out };
        if self.flavor != Flavor::Tcp {
            return self.barrier_by_keys(waiter, key, world_size, patience);
        }
        self.add(key, 1)?;
        self.until(waiter, &ask, Some(()), |inner| match inner.data.count(key) >= world_size {
            true => Attempt::Done(()),
            false if self.alone.is_some() => Attempt::Done(()),
            false => Attempt::Wait(Need::Count(key.to_owned(), world_size)),
        })
    }

    /// The same by a counter `key/num_members` and a key `key/last_member`, as torch does it where a store has no
    /// barrier of its own: in `PrefixStore` too, whatever it wraps.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn barrier_by_keys<W: Waiter>(
        &self,
        waiter: &mut W,
        key: &str,
        world_size: i64,
        patience: Patience,
    ) -> Result<(), WaitError<W::Stop>> {
        let (members, last) = (format!("{key}/num_members"), format!("{key}/last_member"));
        if self.add(&members, 1)? == world_size {
            self.set(&last, b"1".to_vec());
        }
        let timed_out = |_: &Inner, _: &Need| self.missing(patience.millis, std::slice::from_ref(&last), false);
        let ask = Ask { operation: "barrier", patience, shown: None, timed_out: &timed_out };
        self.until(waiter, &ask, Some(()), |inner| match inner.has(&last) {
            true => Attempt::Done(()),
            false => Attempt::Wait(Need::Keys(BTreeSet::from([last.clone()]))),
        })
    }

    /// For the server of a `TCPStore`: waits until that many workers [joined](Self::join). Without peers, they have.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn wait_for_workers<W: Waiter>(
        &self,
        waiter: &mut W,
        expected: i64,
        patience: Patience,
    ) -> Result<(), WaitError<W::Stop>> {
        let timed_out = |inner: &Inner, _: &Need| StoreError::WorkersTimedOut {
            seconds: patience.millis / 1000,
            joined: inner.data.workers,
            expected,
        };
        let shown = Some(format!("{expected} workers of {}", self.name));
        let ask = Ask { operation: "wait_for_workers", patience, shown, timed_out: &timed_out };
        self.until(waiter, &ask, Some(()), |inner| match inner.data.workers >= expected {
            false if self.alone.is_none() => Attempt::Wait(Need::Workers(expected)),
            _ => Attempt::Done(()),
        })
    }
}
