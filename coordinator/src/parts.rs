//! Removing the parts of snapshots that no program goes back to any more.
//!
//! The promise: programs that are saved every few seconds take up the room of
//! their last snapshots, not of a day's. What waits to be removed is forgotten
//! when the coordinator stops: the next cleanup finds the rest.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::time::{Moment, WallTime};
use gleaner_shell::clock::Clock;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::blobs::Blobs;
use crate::store::Reader;

/// Lists of parts that may wait to be taken in.
const TOLD_MAX: usize = 1_024;

/// Parts that may wait to be removed.
const WAITING_MAX: usize = 100_000;

/// Another program's part may have the same content: what was staged for a
/// snapshot so long ago belongs to a whole one by now, or to none.
const GRACE: Duration = Duration::from_secs(90);

pub(crate) type Unneeded = mpsc::Sender<Vec<ContentHash>>;

pub(crate) fn channel() -> (Unneeded, mpsc::Receiver<Vec<ContentHash>>) {
    mpsc::channel(TOLD_MAX)
}

pub(crate) struct PartCleanup {
    pub(crate) clock: Clock,
    pub(crate) blobs: Blobs,
    pub(crate) reader: Reader,
    pub(crate) unneeded: mpsc::Receiver<Vec<ContentHash>>,
}

impl PartCleanup {
    pub(crate) async fn run(mut self) {
        let mut waiting: VecDeque<(Moment, ContentHash)> = VecDeque::new();
        loop {
            let due = waiting.front().map(|(told, _)| *told + GRACE);
            tokio::select! {
                parts = self.unneeded.recv() => {
                    let Some(parts) = parts else { return };
                    let now = self.clock.now();
                    let room = WAITING_MAX.saturating_sub(waiting.len());
                    waiting.extend(parts.into_iter().take(room).map(|part| (now, part)));
                }
                () = self.clock.sleep_until(due), if due.is_some() => {
                    let now = self.clock.now();
                    let count = waiting.partition_point(|(told, _)| *told + GRACE <= now);
                    let parts = waiting.drain(..count).map(|(_, part)| part).collect();
                    self.remove(parts, earlier(self.clock.wall(), GRACE)).await;
                }
            }
        }
    }

    async fn remove(&self, parts: Vec<ContentHash>, before: WallTime) {
        let (blobs, reader) = (self.blobs.clone(), self.reader.clone());
        let removed = spawn_blocking(move || -> io::Result<()> {
            for part in parts {
                let is_wanted = || reader.read_here(|tables| tables.is_wanted(part));
                blobs.remove_unless(part, before, || is_wanted().map_err(io::Error::other))?;
            }
            Ok(())
        });
        if let Ok(Err(error)) = removed.await {
            tracing::warn!("some parts of snapshots stay for a day: {error}");
        }
    }
}

pub(crate) fn earlier(wall: WallTime, span: Duration) -> WallTime {
    WallTime(wall.0.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::JobId;
    use gleaner_coordinator_core::Change;

    use super::*;
    use crate::blobs::{BlobLimits, stage};
    use crate::store::{Store, Write};

    #[tokio::test]
    async fn parts_go_when_nobody_goes_back_to_them_and_no_sooner() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BlobLimits { blob_bytes_max: 1_000, blobs_bytes_max: 1_000 };
        let blobs = Blobs::open(&dir.path().join("blobs"), limits).unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let [old, present] = [&b"old"[..], b"present"].map(|part| stage(&blobs, part));
        let cuts = Change::Cuts { job: JobId(1), parts: vec![present] };
        store.commit(&[Write::Change(cuts)]).unwrap();
        let (_unneeded, told) = channel();
        let (clock, reader) = (Clock::new(), store.reader().unwrap());
        let cleanup = PartCleanup { clock, blobs: blobs.clone(), reader, unneeded: told };
        let all = vec![old, present, ContentHash([9; 32])];
        let here = || [old, present].map(|part| blobs.get(part).is_ok());
        cleanup.remove(all.clone(), earlier(clock.wall(), GRACE)).await;
        assert_eq!(here(), [true, true], "they are new");
        cleanup.remove(all, WallTime(clock.wall().0 + 1_000_000_000)).await;
        assert_eq!(here(), [false, true]);
        assert!(stage(&blobs, &[7; 993]) != old, "their room is free again");
    }
}
