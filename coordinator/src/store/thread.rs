//! The store's thread: everything that waits becomes one transaction.
//!
//! The promise: what a batch wants released leaves after its writes, and those
//! of all batches before it, are on the disk; in order; and exactly once. A
//! disk that refuses (full, or sick) holds everything back until it takes it:
//! nothing is dropped and nothing leaves.
//!
//! ```text
//! brain ── Batch ──►│ one transaction of all that wait │── Released ──► brain
//!                   └── refused: back off, once more ◄─┘
//! ```

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

use super::write::{Write, Writer};

/// After this long without work the log is written into the database.
const QUIET: Duration = Duration::from_secs(1);
/// The log is written into the database after this many transactions, too.
const COMMITS_BETWEEN_CHECKPOINTS: u32 = 500;
/// How soon a refused transaction is tried again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// So many batches go into one transaction at most.
const BATCHES_MAX: usize = 4_096;

/// Writes, and what may leave once they are durable.
pub(crate) struct Batch<R> {
    pub(crate) writes: Vec<Write>,
    pub(crate) release: Vec<R>,
}

/// Many small transactions cost more than they hurry: after a burst, they keep
/// this distance, and each takes in what came meanwhile. A lone subprogram's
/// way through the whole system takes about two of them.
const SPACING: Duration = Duration::from_micros(1_000);
const BURST: u32 = 16;

/// What is wrong with the store; `None` if all is well.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreHealth {
    refusing: Arc<Mutex<Option<String>>>,
    damage: Arc<OnceLock<String>>,
}

impl StoreHealth {
    /// Why it takes no writes.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is not as it was written.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    pub(crate) fn found_damaged(&self, detail: String) {
        // The first finding is as good as the second.
        let _ = self.damage.set(detail);
    }

    fn set(&self, trouble: Option<String>) {
        *self.refusing.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// What the thread tells.
pub(crate) enum FromStore<R> {
    /// What may leave now, in this order.
    Released(Vec<R>),
    /// The disk refuses; said once per trouble.
    Refusing(String),
}

/// The running thread. Drop `batches` and join it to close the database.
#[derive(Debug)]
pub(crate) struct StoreThread<R> {
    pub(crate) batches: mpsc::Sender<Batch<R>>,
    pub(crate) health: StoreHealth,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts the thread. `tell` is called on it; it must not block.
///
/// # Errors
/// The system gives no more threads.
pub(crate) fn start<R: Send + 'static>(
    writer: Writer,
    tell: impl FnMut(FromStore<R>) + Send + 'static,
) -> std::io::Result<StoreThread<R>> {
    let (batches, arriving) = mpsc::channel();
    let health = StoreHealth::default();
    let worker =
        Worker { writer, arriving, tell, health: health.clone(), commits: 0, free: Moment::ZERO };
    let thread = std::thread::Builder::new()
        .name("store".into())
        .stack_size(512 << 10)
        .spawn(move || worker.run())?;
    Ok(StoreThread { batches, health, thread })
}

struct Worker<R, F> {
    writer: Writer,
    arriving: Receiver<Batch<R>>,
    tell: F,
    health: StoreHealth,
    /// Transactions since the last checkpoint.
    commits: u32,
    /// When all transactions so far have had their distance.
    free: Moment,
}

impl<R, F: FnMut(FromStore<R>)> Worker<R, F> {
    fn run(mut self) {
        loop {
            let first = match self.arriving.recv_timeout(QUIET) {
                Err(RecvTimeoutError::Timeout) if self.commits > 0 => {
                    self.checkpoint();
                    continue;
                }
                // There is nothing to do until a batch comes: sleep without a
                // timer.
                Err(RecvTimeoutError::Timeout) => self.arriving.recv().ok(),
                received => received.ok(),
            };
            // Closing the last connection brings the log in; this says if it cannot.
            let Some(first) = first else { return self.checkpoint() };
            if !self.carry_out(first) {
                return;
            }
            if self.commits >= COMMITS_BETWEEN_CHECKPOINTS {
                self.checkpoint();
            }
        }
    }

    /// Commits this and everything else that waits. False if the coordinator
    /// stops while the disk refuses.
    fn carry_out(&mut self, first: Batch<R>) -> bool {
        self.keep_distance();
        let mut batches = vec![first];
        while batches.len() < BATCHES_MAX
            && let Ok(next) = self.arriving.try_recv()
        {
            batches.push(next);
        }
        if !self.commit(&mut batches) {
            return false;
        }
        let release = batches.into_iter().flat_map(|batch| batch.release).collect();
        (self.tell)(FromStore::Released(release));
        true
    }

    fn keep_distance(&mut self) {
        let now = Clock::new().now();
        std::thread::sleep(self.free.since(now + SPACING * BURST));
        self.free = self.free.max(now) + SPACING;
    }

    fn commit(&mut self, batches: &mut Vec<Batch<R>>) -> bool {
        let mut retry = RETRY.0;
        loop {
            let writes: Vec<&Write> = batches.iter().flat_map(|batch| &batch.writes).collect();
            let Err(error) = self.writer.commit(&writes) else {
                self.commits += 1;
                if self.health.trouble().is_some() {
                    self.health.set(None);
                    tracing::info!("the store takes writes again");
                }
                return true;
            };
            let why = error.to_string();
            let is_news = self.health.trouble().is_none();
            self.health.set(Some(why.clone()));
            if is_news {
                tracing::error!("the store refuses writes: {why}: everything waits for it");
                (self.tell)(FromStore::Refusing(why));
            }
            // What arrives is taken in, so that a stop is noticed.
            let is_stopping = loop {
                match self.arriving.try_recv() {
                    Ok(next) => batches.push(next),
                    Err(why) => break why == TryRecvError::Disconnected,
                }
            };
            if is_stopping {
                let left = batches.len();
                tracing::error!("stopped with {left} decisions unwritten: nobody was told of them");
                return false;
            }
            std::thread::sleep(retry);
            retry = (retry * 2).min(RETRY.1);
        }
    }

    fn checkpoint(&mut self) {
        self.commits = 0;
        if let Err(error) = self.writer.checkpoint() {
            tracing::warn!("the store's log was not brought in, it stays: {error}");
        }
    }
}
