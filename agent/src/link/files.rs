//! Staging: input files from the coordinator into a cache and from there into
//! guests' directories; what guests leave back to the coordinator.
//!
//! The promise: content is what its hash says, a guest cannot change what the
//! next one gets, and nothing a guest leaves is followed out of its directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{self, Left};
use gleaner_common::id::{ContentHash, Fence, JobId};
use gleaner_common::job::{FILES_MAX, JobSpec, StagedFile, is_inside};
use gleaner_common::wire::{INLINE_OUTPUT_BYTES_MAX, OutputFile, Printed};
use gleaner_program_core::address::Snapshot;
use gleaner_shell::blob::{self, BlobError};
use gleaner_shell::clock::Clock;
use quinn::Connection;
use tokio::task::{AbortHandle, spawn_blocking};

use super::{Collection, Current, Laying, Measuring, ToEventLoop, lock};
use crate::config::AgentConfig;
use crate::container::disk::disk_usage;
use crate::container::place_directories::open_strange;
use crate::container::tree::clear;
use crate::messages::{RouterCommand, RouterHandle};
use crate::moving::KeptImage;

const CACHE: &str = "cache";

/// How often a broken transfer is begun anew before the work goes elsewhere.
const TRIES: u32 = 5;
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How long, and how often, it is looked whether a file is still being written:
/// not for ever, as some network file systems never say no.
const WRITTEN_WITHIN: Duration = Duration::from_millis(500);
const WRITTEN_LOOK: Duration = Duration::from_millis(2);

/// Directories below `$GLEAN_OUTPUT` deeper than this are not brought back.
const DEPTH_MAX: usize = 32;

/// How many entries are looked at for them: directories, links and files.
const LOOKED_AT_MAX: usize = 4 * FILES_MAX;

/// Why files are not where they should be.
#[derive(Debug, thiserror::Error)]
enum FilesError {
    #[error("input {path}: {source}")]
    Input { path: String, source: BlobError },
    #[error("{path}: {source}")]
    Local { path: PathBuf, source: io::Error },
    #[error("output: {0}")]
    Output(#[from] BlobError),
    #[error("it left more than {FILES_MAX} files in its output directory")]
    TooMany,
    #[error("the agent is stopping")]
    Stopping,
}

impl FilesError {
    /// Might it work over another connection?
    fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Input { source: BlobError::Stream(_) | BlobError::Corrupt { .. }, .. }
                | Self::Output(BlobError::Stream(_))
        )
    }

    /// Would it fail anywhere?
    fn is_hopeless(&self) -> bool {
        matches!(self, Self::Input { source: BlobError::No { .. }, .. })
    }
}

/// What tells that a file is as it was: whoever else comes to own it could put
/// back all but its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    inode: (u64, u64),
    length: u64,
    changed: (i64, i64),
    owner: u32,
    mode: u32,
    is_file: bool,
}

impl Look {
    fn of(about: &fs::Metadata) -> Self {
        Self {
            inode: (about.dev(), about.ino()),
            length: about.len(),
            changed: (about.mtime(), about.mtime_nsec()),
            owner: about.uid(),
            mode: about.mode(),
            is_file: about.is_file(),
        }
    }

    fn is_ours(self) -> bool {
        self.owner == rustix::process::geteuid().as_raw() && self.mode & 0o222 == 0
    }
}

/// Does all staging.
#[derive(Debug)]
pub(super) struct Files {
    cache: Arc<Cache>,
    current: Current,
    event_loop: ToEventLoop,
    collecting: Arc<Mutex<BTreeMap<Fence, (AbortHandle, PathBuf)>>>,
}

impl Files {
    pub(super) fn new(config: &AgentConfig, current: Current, event_loop: ToEventLoop) -> Self {
        let cache = Cache::open(config.data.join(CACHE), config.guests.cache_bytes_max);
        Self { cache: Arc::new(cache), current, event_loop, collecting: Arc::default() }
    }

    pub(super) fn stage(&self, job: JobId, spec: Arc<JobSpec>) {
        let (cache, mut current, event_loop) =
            (Arc::clone(&self.cache), self.current.clone(), self.event_loop.clone());
        cache.pin(job, &spec.inputs);
        tokio::spawn(async move {
            let fetched = repeat(&mut current, |connection| {
                let (cache, spec) = (Arc::clone(&cache), Arc::clone(&spec));
                async move { cache.fetch(&connection, &spec.inputs).await }
            })
            .await;
            event_loop.core(match fetched {
                Ok(()) => Event::Staged(job),
                Err(error) => Event::StagingFailed {
                    job,
                    reason: error.to_string(),
                    hopeless: error.is_hopeless(),
                },
            });
        });
    }

    /// Stages a rank's part of a snapshot; tells the router.
    pub(super) fn stage_part(
        &self,
        fence: Fence,
        snapshot: Snapshot,
        (bytes, image): (Bytes, Option<KeptImage>),
        router: RouterHandle,
    ) {
        let mut current = self.current.clone();
        tokio::spawn(async move {
            let prepared = spawn_blocking(move || {
                let bytes = match image {
                    Some(image) => image.after(&bytes)?.into(),
                    None => bytes,
                };
                Ok::<_, io::Error>((blob::hash_bytes(&bytes), bytes))
            });
            let (hash, bytes) = match prepared.await {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(error)) => {
                    let part = Err(format!("its image does not read: {error}"));
                    return router.deliver(RouterCommand::Staged { fence, snapshot, part });
                }
                Err(_) => return,
            };
            let size_bytes = bytes.len() as u64;
            let staged = repeat(&mut current, |connection| {
                let bytes = bytes.clone();
                async move { Ok(blob::put(&connection, hash, size_bytes, &bytes[..]).await?) }
            })
            .await;
            let part = staged.map(|()| (hash, size_bytes)).map_err(|error| error.to_string());
            router.deliver(RouterCommand::Staged { fence, snapshot, part });
        });
    }

    /// Gets a rank's part of a snapshot for the router.
    pub(super) fn fetch_part(&self, fence: Fence, hash: ContentHash, router: RouterHandle) {
        let mut current = self.current.clone();
        tokio::spawn(async move {
            let got = repeat(&mut current, |connection| async move {
                Ok(blob::get_bytes(&connection, hash).await?)
            })
            .await;
            router.deliver(RouterCommand::Fetched {
                fence,
                part: got.map_err(|error| error.to_string()),
            });
        });
    }

    /// The job's inputs may leave the cache.
    pub(super) fn discard(&self, job: JobId) {
        self.cache.unpin(job);
        let cache = Arc::clone(&self.cache);
        spawn_blocking(move || cache.shrink());
    }

    pub(super) fn lay(&self, laying: Laying) {
        let (cache, event_loop, current) =
            (Arc::clone(&self.cache), self.event_loop.clone(), self.current.clone());
        tokio::spawn(async move {
            let fence = laying.fence;
            let done = lay(cache, laying, current).await.map_err(|error| error.to_string());
            event_loop.guest(fence, guest::Event::Laid(done));
        });
    }

    pub(super) fn collect(&self, collection: Collection) {
        let (mut current, event_loop, collecting) =
            (self.current.clone(), self.event_loop.clone(), Arc::clone(&self.collecting));
        let (fence, directory) = (collection.fence, collection.directory.clone());
        let collection = Arc::new(collection);
        let task = tokio::spawn(async move {
            let brought = repeat(&mut current, |connection| {
                let collection = Arc::clone(&collection);
                async move { bring_back(&connection, &collection).await }
            })
            .await;
            event_loop.core(match brought {
                Ok(left) => Event::Collected { fence, left },
                Err(error) => Event::CollectingFailed { fence, reason: error.to_string() },
            });
            lock(&collecting).remove(&fence);
            let directory = collection.directory.clone();
            let _ = spawn_blocking(move || clear(&directory)).await;
        });
        lock(&self.collecting).insert(fence, (task.abort_handle(), directory));
    }

    pub(super) fn abandon(&self, fence: Fence) {
        let task = lock(&self.collecting).remove(&fence);
        if let Some((task, directory)) = task {
            task.abort();
            self.clear(directory);
        }
    }

    #[expect(clippy::unused_self, reason = "it is staging's to remove what staging moved")]
    pub(super) fn clear(&self, path: PathBuf) {
        spawn_blocking(move || clear(&path));
    }

    pub(super) fn measure(&self, measuring: Measuring) {
        let event_loop = self.event_loop.clone();
        spawn_blocking(move || {
            let Measuring { fence, directory, group, bytes_max } = measuring;
            let disk_bytes = disk_usage(&directory, group.as_deref(), bytes_max);
            event_loop.guest(fence, guest::Event::Measured { disk_bytes });
        });
    }
}

/// Waits for what is not here yet: a guest comes before its input files do
/// where none of its job has been.
async fn lay(cache: Arc<Cache>, laying: Laying, mut current: Current) -> Result<(), FilesError> {
    let Laying { spec, only, into, uid, .. } = laying;
    let is_wanted = |file: &&StagedFile| only.as_ref().is_none_or(|it| it.contains(&file.path));
    let wanted: Arc<[StagedFile]> = spec.inputs.iter().filter(is_wanted).cloned().collect();
    if !cache.has(&wanted).await {
        repeat(&mut current, |connection| {
            let (cache, wanted) = (Arc::clone(&cache), Arc::clone(&wanted));
            async move { cache.fetch(&connection, &wanted).await }
        })
        .await?;
    }
    let laid = spawn_blocking(move || {
        let directory = PathBuf::from(format!("/proc/self/fd/{}", into.as_raw_fd()));
        wanted.iter().try_for_each(|file| cache.lay(file, &directory, uid))
    });
    laid.await.map_err(|_| FilesError::Stopping)?
}

/// Does something over the connection of the moment, and anew over the next if
/// that one breaks.
async fn repeat<T, F: Future<Output = Result<T, FilesError>>>(
    current: &mut Current,
    mut act: impl FnMut(Connection) -> F,
) -> Result<T, FilesError> {
    let mut tries = 0;
    loop {
        let found = current.wait_for(Option::is_some).await.map(|found| found.clone());
        let Some(connection) = found.map_err(|_| FilesError::Stopping)? else { continue };
        match act(connection.clone()).await {
            Err(error) if error.is_passing() => {
                // A connection that broke is no try: its successor is waited for.
                if connection.close_reason().is_none() {
                    tries += 1;
                }
                if tries >= TRIES {
                    return Err(error);
                }
                Clock.sleep(RETRY_AFTER).await;
            }
            done => return done,
        }
    }
}

/// Staged input, by content.
#[derive(Debug)]
struct Cache {
    directory: PathBuf,
    bytes_max: u64,
    pinned: Mutex<BTreeMap<JobId, BTreeSet<String>>>,
    /// Files as they were when their content was what their names say.
    verified: Mutex<BTreeMap<String, Look>>,
    /// One fetch at a time: two jobs may share a file.
    fetching: tokio::sync::Mutex<()>,
}

impl Cache {
    fn open(directory: PathBuf, bytes_max: u64) -> Self {
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory) {
            tracing::error!(path = %directory.display(), %error, "cannot make the cache");
        }
        Self {
            directory,
            bytes_max,
            pinned: Mutex::default(),
            verified: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    fn pin(&self, job: JobId, inputs: &[StagedFile]) {
        let names = inputs.iter().map(name_of).collect();
        lock(&self.pinned).insert(job, names);
    }

    fn unpin(&self, job: JobId) {
        lock(&self.pinned).remove(&job);
    }

    /// Is all of it here, as its names say? What is not is thrown away: somebody
    /// has come by the right to change it.
    async fn has(&self, inputs: &[StagedFile]) -> bool {
        let mut all = true;
        for input in inputs {
            all &= self.has_one(input).await;
        }
        all
    }

    async fn has_one(&self, input: &StagedFile) -> bool {
        let name = name_of(input);
        let path = self.directory.join(&name);
        let Ok(look) = fs::symlink_metadata(&path).map(|about| Look::of(&about)) else {
            return false;
        };
        if look.is_ours() && lock(&self.verified).get(&name) == Some(&look) {
            return true;
        }
        let hashed = if look.is_file { blob::hash_file(&path).await.ok() } else { None };
        let is_it = hashed.is_some_and(|(hash, _)| hash == input.hash);
        if is_it {
            lock(&self.verified).insert(name, look);
        } else {
            tracing::error!(path = %path.display(), "the cache holds something else: removed");
            let _ = fs::remove_file(&path);
        }
        is_it
    }

    async fn fetch(
        &self,
        connection: &Connection,
        inputs: &[StagedFile],
    ) -> Result<(), FilesError> {
        let _one = self.fetching.lock().await;
        for input in inputs {
            let path = self.directory.join(name_of(input));
            if tokio::fs::try_exists(&path).await.unwrap_or(false) {
                continue;
            }
            let failed = |source| FilesError::Local { path: path.clone(), source };
            let half = self.directory.join("incoming");
            let mut file = tokio::fs::File::create(&half).await.map_err(failed)?;
            blob::get(connection, input.hash, &mut file)
                .await
                .map_err(|source| FilesError::Input { path: input.path.clone(), source })?;
            let mode = if input.executable { 0o555 } else { 0o444 };
            file.set_permissions(fs::Permissions::from_mode(mode)).await.map_err(failed)?;
            drop(file);
            until_nobody_writes(half.clone()).await.map_err(failed)?;
            tokio::fs::rename(&half, &path).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Puts a file where a guest will find it. As root it is a link to the
    /// cache: the guest can read and replace it, never change it.
    fn lay(&self, file: &StagedFile, into: &Path, uid: Option<u32>) -> Result<(), FilesError> {
        let to = into.join(&file.path);
        let failed = |source| FilesError::Local { path: to.clone(), source };
        if !is_inside(&file.path) {
            return Err(failed(io::Error::other("leaves its directory")));
        }
        let mut directory = into.to_path_buf();
        for part in Path::new(&file.path).parent().into_iter().flat_map(Path::iter) {
            directory.push(part);
            match fs::create_dir(&directory) {
                Ok(()) => chown(&directory, uid, uid).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let from = self.directory.join(name_of(file));
        match uid {
            Some(_) => fs::hard_link(&from, &to).map_err(failed),
            None => {
                fs::copy(&from, &to).and_then(|_| wait_until_nobody_writes(&to)).map_err(failed)
            }
        }
    }

    /// Removes what nobody wants, the longest unused first, while it is too much.
    fn shrink(&self) {
        let pinned: BTreeSet<String> = lock(&self.pinned).values().flatten().cloned().collect();
        let mut files: Vec<_> = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let about = entry.metadata().ok()?;
                Some((about.accessed().ok()?, about.len(), entry.file_name(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|file| file.1).sum();
        for (_, size, name, path) in files {
            if total <= self.bytes_max {
                return;
            }
            if !pinned.contains(name.to_string_lossy().as_ref()) && fs::remove_file(path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Waits until no process has the file open for writing. One that is just being
/// started has what its parent had open, until it is the other program: as long
/// as that lasts, the kernel executes no file that its parent has written.
async fn until_nobody_writes(path: PathBuf) -> io::Result<()> {
    spawn_blocking(move || wait_until_nobody_writes(&path)).await.map_err(io::Error::other)?
}

fn wait_until_nobody_writes(path: &Path) -> io::Result<()> {
    let file = fs::File::open(path)?;
    let until = Clock.now() + WRITTEN_WITHIN;
    while is_being_written(&file) && Clock.now() < until {
        std::thread::sleep(WRITTEN_LOOK);
    }
    Ok(())
}

/// The kernel gives no lease on such a file. Where it gives none at all, that is
/// no answer.
#[expect(unsafe_code, reason = "rustix does not know leases")]
fn is_being_written(file: &fs::File) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: a plain system call on a descriptor that is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    if lease(libc::c_int::from(libc::F_RDLCK)) == 0 {
        lease(libc::c_int::from(libc::F_UNLCK));
        return false;
    }
    io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// Which of these lie below a directory as they were laid: links to the cache.
pub(crate) fn as_laid(data: &Path, inputs: &[StagedFile], below: &Path) -> Vec<String> {
    let inode =
        |path: &Path| fs::symlink_metadata(path).ok().map(|about| (about.dev(), about.ino()));
    let is_same = |file: &&StagedFile| {
        let cached = inode(&data.join(CACHE).join(name_of(file)));
        cached.is_some() && cached == inode(&below.join(&file.path))
    };
    inputs.iter().filter(is_same).map(|file| file.path.clone()).collect()
}

/// A file's rights are its inode's: one content may be there twice.
fn name_of(file: &StagedFile) -> String {
    format!("{}{}", file.hash, if file.executable { "x" } else { "" })
}

/// Stages what a guest printed and left.
async fn bring_back(connection: &Connection, of: &Collection) -> Result<Left, FilesError> {
    let printed = |name: &str, known: &Printed| {
        let (path, known) = (of.directory.join(name), known.clone());
        async move {
            match known {
                Printed::Inline(bytes) if !bytes.is_empty() => Ok(Printed::Inline(bytes)),
                Printed::Inline(_) | Printed::Staged { .. } => {
                    bring_printed(connection, path, of.output_bytes_max).await
                }
            }
        }
    };
    let stdout = printed("stdout", &of.printed.stdout).await?;
    let stderr = printed("stderr", &of.printed.stderr).await?;
    let mut outputs = vec![];
    if of.outputs {
        let root = of.directory.join("guest/output");
        let listed = spawn_blocking(move || list(&root));
        for (path, full, executable) in listed.await.map_err(|_| FilesError::Stopping)?? {
            let (hash, size_bytes) = blob::hash_file(&full).await?;
            blob::put_file(connection, &full, hash, size_bytes).await?;
            outputs.push(OutputFile { path, hash, size_bytes, executable });
        }
    }
    Ok(Left { stdout, stderr, outputs })
}

async fn bring_printed(
    connection: &Connection,
    path: PathBuf,
    bytes_max: u64,
) -> Result<Printed, FilesError> {
    let failed = |source| FilesError::Local { path: path.clone(), source };
    let size = open_strange(&path).and_then(|file| file.metadata()).map_err(failed)?.len();
    if size <= INLINE_OUTPUT_BYTES_MAX as u64 {
        return tokio::fs::read(&path).await.map(Printed::Inline).map_err(failed);
    }
    let truncated = size > bytes_max;
    if truncated {
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(bytes_max))
            .map_err(failed)?;
    }
    let (hash, size_bytes) = blob::hash_file(&path).await?;
    blob::put_file(connection, &path, hash, size_bytes).await?;
    Ok(Printed::Staged { hash, size_bytes, truncated })
}

/// Regular files below a directory, in order, links left out. So much is looked
/// at, and so deep, as may be brought back.
fn list(root: &Path) -> Result<Vec<(String, PathBuf, bool)>, FilesError> {
    let mut found = vec![];
    let mut directories = vec![(root.to_path_buf(), String::new(), 0)];
    let mut looked_at = 0;
    while let Some((directory, below, depth)) = directories.pop() {
        let failed = |source| FilesError::Local { path: directory.clone(), source };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                return Err(FilesError::TooMany);
            }
            // What is no text cannot be named in a reply: it stays behind.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{below}{name}");
            let about = entry.metadata().map_err(failed)?;
            if about.is_dir() && depth < DEPTH_MAX {
                directories.push((entry.path(), format!("{path}/"), depth + 1));
            } else if about.is_file() && is_inside(&path) {
                found.push((path, entry.path(), about.permissions().mode() & 0o111 != 0));
            }
        }
        if found.len() > FILES_MAX {
            return Err(FilesError::TooMany);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, byte: u8) -> StagedFile {
        StagedFile {
            path: path.into(),
            hash: ContentHash([byte; 32]),
            size_bytes: 3,
            executable: false,
        }
    }

    #[test]
    fn links_do_not_lead_out_of_the_output_directory() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/b")).unwrap();
        fs::write(home.path().join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("passwd")).unwrap();
        let found = list(home.path()).unwrap();
        let paths: Vec<_> = found.into_iter().map(|(path, ..)| path).collect();
        assert_eq!(paths, ["a/b/c"]);
    }

    #[test]
    fn inputs_lie_where_they_were_asked_for_and_nowhere_else() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path().join("cache"), 1 << 20);
        let into = home.path().join("work");
        fs::create_dir(&into).unwrap();
        let input = file("data/x/in.txt", 7);
        fs::write(cache.directory.join(name_of(&input)), "abc").unwrap();
        cache.lay(&input, &into, None).unwrap();
        assert_eq!(fs::read_to_string(into.join("data/x/in.txt")).unwrap(), "abc");
        assert!(cache.lay(&file("../out", 7), &into, None).is_err());
    }

    #[tokio::test]
    async fn what_was_changed_in_the_cache_is_thrown_away() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path().join("cache"), 1 << 20);
        let input = StagedFile { hash: blob::hash_bytes(b"abc"), ..file("in.txt", 0) };
        let path = cache.directory.join(name_of(&input));
        let put = |content: &str, mode| {
            let _ = fs::remove_file(&path);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("abc", 0o444);
        assert!(cache.has(std::slice::from_ref(&input)).await);
        assert!(cache.has(std::slice::from_ref(&input)).await);
        put("xyz", 0o444);
        assert!(!cache.has(std::slice::from_ref(&input)).await && !path.exists());
        // Who may write to it can put its time back.
        put("abc", 0o644);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(cache.has(std::slice::from_ref(&input)).await);
        fs::write(&path, "xyz").unwrap();
        fs::File::open(&path).unwrap().set_modified(before).unwrap();
        assert!(!cache.has(std::slice::from_ref(&input)).await && !path.exists());
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(!cache.has(std::slice::from_ref(&input)).await && !path.is_symlink());
    }

    #[test]
    fn a_file_is_being_written_as_long_as_anybody_can() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("program");
        let writing = fs::File::create(&path).unwrap();
        let inherited = writing.try_clone().unwrap();
        let file = fs::File::open(&path).unwrap();
        assert!(is_being_written(&file));
        drop(writing);
        assert!(is_being_written(&file));
        drop(inherited);
        // Not by us: another test's process may be about to start.
        while is_being_written(&file) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_cache_keeps_what_a_job_still_needs() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::open(home.path().join("cache"), 4);
        let (old, needed) = (file("a", 1), file("b", 2));
        for input in [&old, &needed] {
            fs::write(cache.directory.join(name_of(input)), "abc").unwrap();
        }
        cache.pin(JobId(1), std::slice::from_ref(&needed));
        cache.shrink();
        assert!(!cache.directory.join(name_of(&old)).exists());
        assert!(cache.directory.join(name_of(&needed)).exists());
    }
}
