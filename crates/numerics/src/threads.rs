//! The threads that share out large copies and folds.
//!
//! They belong to one process: a forked child has none of its parent's threads, so a pool that was started before the
//! fork would wait for ever. Rayon's global pool cannot be started twice; this one is, once for each process.

use std::sync::{Arc, Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool, and the process that started it. `None` for the pool: there is one processor, or no thread to be had.
type Started = Option<(u32, Option<Arc<ThreadPool>>)>;

static STARTED: Mutex<Started> = Mutex::new(None);

/// Where parallel iterators run.
pub enum Threads {
    /// On the pool that runs the caller.
    Here,
    /// On this process's own.
    Own(Arc<ThreadPool>),
}

/// Threads to share work with; `None` if the caller would be alone. The first call in a process starts them, and they
/// inherit the affinity of the calling thread.
pub fn available() -> Option<Threads> {
    if rayon::current_thread_index().is_some() {
        return (rayon::current_num_threads() > 1).then_some(Threads::Here);
    }
    let me = std::process::id();
    let mut started = STARTED.lock().expect("starting threads does not panic");
    if started.as_ref().is_none_or(|(process, _)| *process != me) {
        let pool = ThreadPoolBuilder::new().build().ok().filter(|pool| pool.current_num_threads() > 1);
        // The parent's is not dropped: that would speak to threads that do not exist.
        std::mem::forget(started.replace((me, pool.map(Arc::new))));
    }
    started.as_ref().and_then(|(_, pool)| pool.clone()).map(Threads::Own)
}

impl Threads {
    /// Runs `work`, whose parallel iterators use these threads, and waits for it.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Threads::Here => work(),
            Threads::Own(pool) => pool.install(work),
        }
    }
}
