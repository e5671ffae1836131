//! Removing what is not needed any more: ended jobs that were kept long enough,
//! and staged files that no remembered job needs or has left.
//!
//! The promise: a file that somebody was told is here stays for a day, which
//! is time enough to submit the job that needs it.

use std::io;
use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::units::spoken_size;
use gleaner_shell::clock::Clock;
use tokio::task::spawn_blocking;

use crate::blobs::Blobs;
use crate::brain::{BrainHandle, Stopping};
use crate::parts::earlier;
use crate::store::{ReadStoreError, Reader, StoreHealth, Write};

/// The first cleanup waits: at the start there is other work to do.
const FIRST_AFTER: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(3_600);
/// A file that nobody wants yet may belong to a job that is about to come.
const FILE_AGE_MIN: Duration = Duration::from_secs(86_400);

const UPLOAD_AGE_MIN: Duration = Duration::from_secs(2 * 86_400);

/// Why a cleanup was not finished.
#[derive(Debug, thiserror::Error)]
enum CleanupError {
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error(transparent)]
    Read(#[from] ReadStoreError),
    #[error("cannot look through the staged files: {why}")]
    Files { why: io::Error },
}

impl From<io::Error> for CleanupError {
    fn from(why: io::Error) -> Self {
        Self::Files { why }
    }
}

pub(crate) struct Cleanup {
    pub(crate) clock: Clock,
    pub(crate) brain: BrainHandle,
    /// A reader of its own: looking through many files must not hold up
    /// requests.
    pub(crate) reader: Reader,
    pub(crate) blobs: Blobs,
    pub(crate) health: StoreHealth,
    pub(crate) keep_ended: Duration,
}

impl Cleanup {
    pub(crate) async fn run(self) {
        self.clock.sleep(FIRST_AFTER).await;
        loop {
            // Nothing can be removed while the disk refuses writes.
            if self.health.trouble().is_none() {
                match self.clean(self.clock.wall()).await {
                    Ok(()) => {}
                    Err(CleanupError::Stopping(_)) => return,
                    Err(error) => tracing::warn!("some things stay that could go: {error}"),
                }
            }
            self.clock.sleep(EVERY).await;
        }
    }

    async fn clean(&self, wall: WallTime) -> Result<(), CleanupError> {
        let before = earlier(wall, self.keep_ended);
        let mut jobs = 0;
        while let Some(job) = self.reader.read(move |tables| tables.ended_before(before)).await? {
            self.brain.write(vec![Write::Forget(job)]).await?;
            jobs += 1;
        }
        // A file that a user was told to be here may be named for as long as it is.
        let before = earlier(wall, UPLOAD_AGE_MIN);
        if self.reader.read(move |tables| tables.was_anything_sent(before)).await? {
            self.brain.write(vec![Write::ForgetUploads { before }]).await?;
        }
        let (files, bytes) = self.sweep(earlier(wall, FILE_AGE_MIN)).await?;
        if jobs + files > 0 {
            let size = spoken_size(bytes);
            tracing::info!("forgot {jobs} ended jobs and {files} staged files of {size}");
        }
        Ok(())
    }

    async fn sweep(&self, before: WallTime) -> Result<(u64, u64), CleanupError> {
        let (blobs, reader) = (self.blobs.clone(), self.reader.clone());
        let swept = spawn_blocking(move || {
            blobs.sweep(before, |hash| {
                let wanted = reader.read_here(|tables| tables.is_wanted(hash));
                Ok(wanted.map_err(ReadStoreError::from)?)
            })
        });
        swept.await.map_err(|_| Stopping)?
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::{ContentHash, JobId};
    use gleaner_common::job::{IndexRange, JobSpec, StagedFile};
    use gleaner_common::report::JobState;
    use gleaner_coordinator_core::{Change, JobProgress, JobRecord};

    use super::*;
    use crate::blobs::{BlobLimits, stage};
    use crate::brain::Input;
    use crate::store::Store;

    const DAY: Duration = Duration::from_secs(86_400);

    fn job(number: u32, input: ContentHash, ended: Option<WallTime>) -> Vec<Write> {
        let mut spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(1).unwrap());
        let path = "x".into();
        spec.inputs = vec![StagedFile { path, hash: input, size_bytes: 1, executable: false }];
        let mut progress = JobProgress::new(JobId(number));
        if ended.is_some() {
            progress = JobProgress { state: JobState::Succeeded, ended, ..progress };
        }
        let submitted = WallTime(0);
        let record = JobRecord {
            job: JobId(number),
            user: "ada".into(),
            submitted,
            spec,
            progress,
            notes: vec![],
        };
        vec![Write::Change(Change::Job(Box::new(record)))]
    }

    #[tokio::test]
    async fn old_jobs_go_with_their_files_and_their_numbers_stay_taken() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BlobLimits { blob_bytes_max: 1_000, blobs_bytes_max: 1_000 };
        let blobs = Blobs::open(&dir.path().join("blobs"), limits).unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let wall = Clock::new().wall();
        let (long_ago, lately) = (earlier(wall, 5 * DAY), earlier(wall, DAY));
        let files = [&b"running"[..], b"lately", b"long ago"].map(|name| stage(&blobs, name));
        for (number, (file, ended)) in
            files.into_iter().zip([None, Some(lately), Some(long_ago)]).enumerate()
        {
            store.commit(&job(u32::try_from(number).unwrap() + 1, file, ended)).unwrap();
        }
        let reader = store.reader().unwrap();
        let (brain, mut inputs) = BrainHandle::channel();
        let cleanup = Cleanup {
            clock: Clock::new(),
            brain,
            reader,
            blobs: blobs.clone(),
            health: StoreHealth::default(),
            keep_ended: 3 * DAY,
        };
        let (kept, store) = tokio::join!(cleanup.clean(wall), async {
            let Some(Input::Write { writes, then }) = inputs.recv().await else { panic!() };
            assert_eq!(writes, [Write::Forget(JobId(3))]);
            store.commit(&writes).unwrap();
            then();
            store
        });
        kept.unwrap();
        let here = files.map(|file| blobs.get(file).is_ok());
        assert_eq!(here, [true, true, true], "a day has not passed");
        cleanup.sweep(WallTime(wall.0 + 86_400_000_000_000)).await.unwrap();
        assert_eq!(files.map(|file| blobs.get(file).is_ok()), [true, true, false]);
        let (restored, _) = store.load().unwrap();
        assert_eq!((restored.jobs.len(), restored.last_job), (1, Some(JobId(3))));
    }
}
