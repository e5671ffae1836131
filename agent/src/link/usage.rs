//! Usage records: to the disk first, then to the collector, until it has them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::wire::{Purpose, RECORDS_MAX, UsageFrame, UsageReply, close};
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Current, LinkEvent, Recorded, ToEventLoop, lock};
use crate::spool::Spool;

/// No collector, or one whose disk is full: as seldom as every minute.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Takes records.
#[derive(Debug)]
pub(super) struct Recorder {
    spool: Arc<Mutex<Spool>>,
    boot: BootId,
    more: Arc<Notify>,
    event_loop: ToEventLoop,
    writes: Mutex<Option<JoinHandle<()>>>,
    sender: JoinHandle<()>,
}

pub(super) fn start(
    spool: Spool,
    boot: BootId,
    current: Current,
    event_loop: ToEventLoop,
) -> Recorder {
    let spool = Arc::new(Mutex::new(spool));
    let more = Arc::new(Notify::new());
    let sender = tokio::spawn(send_for_ever(Arc::clone(&spool), current, Arc::clone(&more)));
    Recorder { spool, boot, more, event_loop, writes: Mutex::new(None), sender }
}

impl Recorder {
    /// Keeps a record, in order, without making the caller wait for the disk.
    pub(super) fn record(&self, record: Recorded) {
        let (spool, more, event_loop) =
            (Arc::clone(&self.spool), Arc::clone(&self.more), self.event_loop.clone());
        let boot = self.boot;
        let mut writes = lock(&self.writes);
        let before = writes.take();
        *writes = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let kept = spawn_blocking(move || lock(&spool).append(boot, &record));
            if let Ok(Some(trouble)) = kept.await {
                event_loop.tell(LinkEvent::Missing(trouble));
            }
            more.notify_one();
        }));
    }

    /// Waits until what was recorded is on the disk.
    pub(super) async fn stop(self) {
        let last = lock(&self.writes).take();
        if let Some(last) = last {
            let _ = tokio::time::timeout(Duration::from_secs(5), last).await;
        }
        // The last record may still reach the collector.
        let _ = tokio::time::timeout(Duration::from_millis(200), async {
            while !lock(&self.spool).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        self.sender.abort();
    }
}

async fn send_for_ever(spool: Arc<Mutex<Spool>>, mut current: Current, more: Arc<Notify>) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut said = String::new();
    loop {
        if lock(&spool).is_empty() {
            more.notified().await;
            continue;
        }
        let connection = match current.wait_for(Option::is_some).await {
            Ok(connection) => connection.clone(),
            Err(_) => return,
        };
        let Some(connection) = connection else { continue };
        let Err(why) = async {
            let (mut writer, mut reader) = stream::open(&connection, Purpose::Usage).await?;
            send(&spool, &more, &mut writer, &mut reader, &mut backoff).await
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

/// Sends and waits for the confirmation, batch after batch.
async fn send(
    spool: &Arc<Mutex<Spool>>,
    more: &Notify,
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
    backoff: &mut Backoff,
) -> Result<std::convert::Infallible, UsageError> {
    loop {
        let batch = lock(spool).batch(RECORDS_MAX);
        let Some(last) = batch.last().map(|record| (record.boot, record.sequence)) else {
            // Notice the collector's leaving while there is nothing to send.
            tokio::select! {
                () = more.notified() => continue,
                reply = reader.expect::<UsageReply>() => { reply?; continue }
            }
        };
        writer.queue(&UsageFrame::Records(batch)).map_err(StreamError::Frame)?;
        writer.flush().await?;
        loop {
            match reader.expect().await? {
                UsageReply::Confirmed { boot, sequence } => {
                    let spool = Arc::clone(spool);
                    let forget = move || lock(&spool).confirm(boot, sequence);
                    let _ = spawn_blocking(forget).await;
                    backoff.reset();
                    if (boot, sequence) == last {
                        break;
                    }
                }
                UsageReply::Deferred { reason } => return Err(UsageError::Deferred(reason)),
            }
        }
    }
}
