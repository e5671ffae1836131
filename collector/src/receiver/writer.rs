//! The one thread that writes: it takes all that has come while it wrote,
//! appends it, syncs each log once, and answers.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use crate::log::{AppendError, Appended};
use crate::store::{Batch, Store};

/// Frames that wait for the disk, and that are synced together. A frame is
/// short of half a MiB, nearly always of 1 KiB.
const QUEUE_MAX: usize = 64;

pub(super) type Answer = Result<Appended, Arc<AppendError>>;

struct AppendRequest {
    batch: Batch,
    answer: oneshot::Sender<Answer>,
}

/// Hands records to the writer thread.
#[derive(Clone, Debug)]
pub(super) struct LogWriter {
    requests: mpsc::Sender<AppendRequest>,
}

impl LogWriter {
    /// Returns when the thread has ended, which it does not by itself.
    pub(super) async fn gone(&self) {
        self.requests.closed().await;
    }

    /// Returns when the records are on disk, or are not; `None` if the thread
    /// has ended.
    pub(super) async fn append(&self, batch: Batch) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(AppendRequest { batch, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// Starts the thread. It ends when the last `Writer` is gone and all that was
/// handed over is done.
pub(super) fn start(mut store: Store) -> io::Result<(LogWriter, JoinHandle<()>)> {
    let (requests, mut queue) = mpsc::channel::<AppendRequest>(QUEUE_MAX);
    let work = move || {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < QUEUE_MAX
                && let Ok(next) = queue.try_recv()
            {
                group.push(next);
            }
            let (batches, answers): (Vec<_>, Vec<_>) =
                group.into_iter().map(|order| (order.batch, order.answer)).unzip();
            for (answer, outcome) in answers.into_iter().zip(store.append(&batches)) {
                // Whoever asked may be gone; the agent will send it again.
                let _ = answer.send(outcome);
            }
        }
    };
    let thread = thread::Builder::new().name("log-writer".into()).spawn(work)?;
    Ok((LogWriter { requests }, thread))
}
