//! The one thread that writes: it takes all that has come while it wrote,
//! appends it, syncs each log once, and answers. In between it is asked to look
//! through what was written long ago.

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

#[derive(Debug)]
enum Request {
    Append {
        batch: Batch,
        answer: oneshot::Sender<Answer>,
    },
    /// Is there more to be looked through?
    Look(oneshot::Sender<bool>),
}

/// Hands records to the writer thread.
#[derive(Clone, Debug)]
pub(super) struct LogWriter {
    requests: mpsc::Sender<Request>,
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
        self.requests.send(Request::Append { batch, answer }).await.ok()?;
        answered.await.ok()
    }

    /// One step of [`Store::look`]; `None` if the thread has ended.
    pub(super) async fn look(&self) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Look(answer)).await.ok()?;
        answered.await.ok()
    }
}

/// Starts the thread. It ends when the last `Writer` is gone and all that was
/// handed over is done.
pub(super) fn start(mut store: Store) -> io::Result<(LogWriter, JoinHandle<()>)> {
    let (requests, mut queue) = mpsc::channel::<Request>(QUEUE_MAX);
    let work = move || {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < QUEUE_MAX
                && let Ok(next) = queue.try_recv()
            {
                group.push(next);
            }
            let (mut batches, mut answers, mut looks) = (vec![], vec![], vec![]);
            for request in group {
                match request {
                    Request::Append { batch, answer } => {
                        batches.push(batch);
                        answers.push(answer);
                    }
                    Request::Look(answer) => looks.push(answer),
                }
            }
            for (answer, outcome) in answers.into_iter().zip(store.append(&batches)) {
                // Whoever asked may be gone; the agent will send it again.
                let _ = answer.send(outcome);
            }
            for answer in looks {
                let _ = answer.send(store.look());
            }
        }
    };
    let thread = thread::Builder::new().name("log-writer".into()).spawn(work)?;
    Ok((LogWriter { requests }, thread))
}
