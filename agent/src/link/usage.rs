//! Usage records: to the disk first, then to the collector, until it has them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner_agent_core::spool::{Deferred, Exchange, Note, Recorded};
use gleaner_common::wire::{Purpose, UsageReply, close};
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Current, LinkEvent, ToEventLoop, lock};
use crate::spool::Spool;

/// No collector, or one whose disk is full: as seldom as every minute.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A disk that was full is tried again, whether or not the owner comes or goes.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// The spool, for all who use it.
#[derive(Clone, Debug)]
struct Shared {
    spool: Arc<Mutex<Spool>>,
    /// Something is there to be sent.
    more: Arc<Notify>,
    event_loop: ToEventLoop,
}

impl Shared {
    /// Does something with the spool and its disk, without making the caller wait on a
    /// thread that others need.
    async fn with<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Spool) -> R + Send + 'static,
    ) -> R {
        let spool = Arc::clone(&self.spool);
        let done = spawn_blocking(move || act(&mut lock(&spool))).await;
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    fn say(&self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            if note.is_trouble() {
                tracing::error!("{note}");
                self.event_loop.tell(LinkEvent::Missing(note.to_string()));
            } else {
                tracing::info!("{note}");
            }
        }
    }

    async fn save(&self) {
        let note = self.with(Spool::save).await;
        self.say(note);
        self.more.notify_one();
    }

    async fn save_for_ever(self) {
        loop {
            Clock.sleep(SAVE_AGAIN).await;
            if lock(&self.spool).has_unsaved() {
                self.save().await;
            }
        }
    }
}

/// Takes records.
#[derive(Debug)]
pub(super) struct Recorder {
    shared: Shared,
    writes: Mutex<Option<JoinHandle<()>>>,
    tasks: [JoinHandle<()>; 2],
}

pub(super) fn start(spool: Spool, current: Current, event_loop: ToEventLoop) -> Recorder {
    let (spool, more) = (Arc::new(Mutex::new(spool)), Arc::new(Notify::new()));
    let shared = Shared { spool, more, event_loop };
    let tasks = [
        tokio::spawn(send_for_ever(shared.clone(), current)),
        tokio::spawn(shared.clone().save_for_ever()),
    ];
    Recorder { shared, writes: Mutex::new(None), tasks }
}

impl Recorder {
    /// Keeps a record, in order, without making the caller wait for the disk.
    pub(super) fn record(&self, record: Recorded) {
        let shared = self.shared.clone();
        let mut writes = lock(&self.writes);
        let before = writes.take();
        *writes = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let note = shared.with(move |spool| spool.append(&record)).await;
            shared.say(note);
            shared.more.notify_one();
        }));
    }

    /// Waits until what was recorded is on the disk.
    pub(super) async fn stop(self) {
        let last = lock(&self.writes).take();
        let saved = async {
            if let Some(last) = last {
                let _ = last.await;
            }
            self.shared.save().await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(5), saved).await;
        // The last record may still reach the collector.
        let _ = tokio::time::timeout(Duration::from_millis(200), async {
            while !lock(&self.shared.spool).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// On each connection, also with nothing to send: the collector may have lost what it
/// had, and what it lacks may still be here.
async fn send_for_ever(shared: Shared, mut current: Current) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut said = String::new();
    loop {
        let connection = match current.wait_for(Option::is_some).await {
            Ok(connection) => connection.clone(),
            Err(_) => return,
        };
        let Some(connection) = connection else { continue };
        let Err(why) = async {
            let (mut writer, mut reader) = stream::open(&connection, Purpose::Usage).await?;
            send(&shared, &mut writer, &mut reader, &mut backoff).await
        }
        .await;
        let why = match why {
            UsageError::Deferred(reason) => format!("the collector keeps no records: {reason}"),
            UsageError::Stream(StreamError::Reset { code: close::NO_COLLECTOR }) => {
                "no collector is connected".to_owned()
            }
            UsageError::Stream(error) => format!("the usage stream ended: {error}"),
        };
        if why != said {
            tracing::info!("{why}; usage records are kept here meanwhile");
            said = why;
        }
        Clock.sleep(backoff.next().unwrap_or(RETRY_MAX)).await;
    }
}

enum UsageError {
    Deferred(String),
    Stream(StreamError),
}

impl From<StreamError> for UsageError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

/// Sends what there is, frame after frame, each answered before the next.
async fn send(
    shared: &Shared,
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
    backoff: &mut Backoff,
) -> Result<std::convert::Infallible, UsageError> {
    let exchange = Arc::new(Mutex::new(Exchange::default()));
    loop {
        let frame = lock(&shared.spool).next_frame(&mut lock(&exchange));
        let sent = frame.is_some();
        if let Some(frame) = frame {
            writer.queue(&frame).map_err(StreamError::Frame)?;
            writer.flush().await?;
        }
        // Also notices the collector's leaving while there is nothing to send.
        let reply = tokio::select! {
            reply = reader.expect::<UsageReply>() => reply?,
            () = shared.more.notified(), if !sent => continue,
        };
        let is_kept = matches!(reply, UsageReply::Confirmed { .. });
        let exchange = Arc::clone(&exchange);
        let heard = shared.with(move |spool| spool.hear(&mut lock(&exchange), reply)).await;
        let notes = heard.map_err(|Deferred(reason)| UsageError::Deferred(reason))?;
        shared.say(notes);
        // A collector that knows its lives and keeps nothing new is tried seldom.
        if is_kept || lock(&shared.spool).is_empty() {
            backoff.reset();
        }
    }
}
