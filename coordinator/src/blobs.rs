//! Staged files, each known by the BLAKE3 hash of its content.
//!
//! ```text
//! DATA/blobs/ab/cdef..   a whole, checked file
//! DATA/blobs/arriving/N  a file on its way; removed at the next start
//! ```
//!
//! The promise: a file under its hash is whole, has that hash, and was on the
//! disk before anybody was told so. Knows nothing of jobs, and so never removes
//! a file by itself: `sweep` asks a caller that does.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gleaner_common::id::ContentHash;
use gleaner_common::time::WallTime;
use gleaner_common::units::spoken_size;

/// Where files are before they are whole.
const ARRIVING: &str = "arriving";

/// The store of staged files. Clone it freely.
#[derive(Clone, Debug)]
pub(crate) struct Blobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    limits: BlobLimits,
    /// The bytes of whole files, and of arriving ones those that are here.
    taken_bytes: AtomicU64,
    next_number: AtomicU64,
    /// A lock held while a file is found to be here, and while one is removed:
    /// what was found must not be gone a moment later.
    sweeping: Mutex<()>,
}

/// How much may be staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobLimits {
    pub(crate) blob_bytes_max: u64,
    pub(crate) blobs_bytes_max: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the staged files in {}: {why}", path.display())]
pub struct OpenBlobsError {
    pub path: PathBuf,
    pub why: io::Error,
}

/// Why a file was not staged. Nothing of it stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutBlobError {
    #[error(
        "the file is too large to stage: {} where at most {} are allowed",
        spoken_size(*.size_bytes), spoken_size(*.bytes_max)
    )]
    TooLarge { size_bytes: u64, bytes_max: u64 },
    #[error(
        "the coordinator's room for staged files is used up: {} of {}",
        spoken_size(*.taken_bytes), spoken_size(*.bytes_max)
    )]
    NoRoom { taken_bytes: u64, bytes_max: u64 },
    #[error("the coordinator's disk is full: the file was not staged")]
    DiskFull,
    #[error("more bytes than the {0} announced")]
    TooManyBytes(u64),
    #[error("the file ended after {got} of {announced} bytes")]
    TooFewBytes { got: u64, announced: u64 },
    #[error("the content does not have the hash {announced}: it has {got}")]
    WrongHash { announced: ContentHash, got: ContentHash },
    #[error("cannot stage the file: {why}")]
    Io { why: io::Error },
}

/// Why a staged file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetBlobError {
    #[error("no staged file {0}")]
    Unknown(ContentHash),
    #[error("the staged file {hash} cannot be read: {why}")]
    Io { hash: ContentHash, why: io::Error },
}

impl Blobs {
    /// Opens or makes the store, removes what never arrived whole, and counts
    /// what is there.
    ///
    /// # Errors
    /// A directory that cannot be made or read.
    pub(crate) fn open(root: &Path, limits: BlobLimits) -> Result<Self, OpenBlobsError> {
        let taken_bytes =
            prepare(root).map_err(|why| OpenBlobsError { path: root.to_owned(), why })?;
        Ok(Self(Arc::new(Inner {
            root: root.to_owned(),
            limits,
            taken_bytes: AtomicU64::new(taken_bytes),
            next_number: AtomicU64::new(0),
            sweeping: Mutex::new(()),
        })))
    }

    /// Is this file here? If so, it counts as new from now on, so that it
    /// stays until a job can be said to want it. Blocks on the disk.
    pub(crate) fn has(&self, hash: ContentHash, wall: WallTime) -> bool {
        let _sweeping = self.0.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(file) = File::options().write(true).open(self.path_of(hash)) else { return false };
        // On a disk that takes no change, nothing is swept either.
        let _ = file.set_modified(system_time(wall));
        true
    }

    /// Removes the files that are older than `before` and not wanted; returns
    /// how many, and their bytes. Blocks on the disk, for long if there are
    /// many files.
    ///
    /// # Errors
    /// Those of the disk, and those of `is_wanted`; what was removed is gone.
    pub(crate) fn sweep<E: From<io::Error>>(
        &self,
        before: WallTime,
        mut is_wanted: impl FnMut(ContentHash) -> Result<bool, E>,
    ) -> Result<(u64, u64), E> {
        let (mut files, mut bytes) = (0, 0);
        for folder in fs::read_dir(&self.0.root)? {
            let folder = folder?;
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                let Some(hash) = hash_of(&folder.file_name(), &file.file_name()) else { continue };
                if let Some(size) = self.remove_unless(hash, before, || is_wanted(hash))? {
                    files += 1;
                    bytes += size;
                }
            }
        }
        Ok((files, bytes))
    }

    /// Removes a file that is older than `before` and not wanted; returns its
    /// size, and nothing if it stays or is not here. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the disk, and those of `is_wanted`.
    pub(crate) fn remove_unless<E: From<io::Error>>(
        &self,
        hash: ContentHash,
        before: WallTime,
        is_wanted: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Option<u64>, E> {
        if is_wanted()? {
            return Ok(None);
        }
        let path = self.path_of(hash);
        let _sweeping = self.0.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let metadata = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        if metadata.modified()? >= system_time(before) {
            return Ok(None);
        }
        fs::remove_file(&path)?;
        self.0.taken_bytes.fetch_sub(metadata.len(), Ordering::Relaxed);
        Ok(Some(metadata.len()))
    }

    /// Opens a file for reading, and its size. Blocks on the disk.
    ///
    /// # Errors
    /// There is no such file, or it cannot be opened.
    pub(crate) fn get(&self, hash: ContentHash) -> Result<(File, u64), GetBlobError> {
        let opened = File::open(self.path_of(hash))
            .and_then(|file| file.metadata().map(|metadata| (file, metadata.len())));
        opened.map_err(|why| {
            if why.kind() == io::ErrorKind::NotFound {
                GetBlobError::Unknown(hash)
            } else {
                GetBlobError::Io { hash, why }
            }
        })
    }

    /// Makes room for a file; give the result its bytes and then `finish`.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// Too large, no room, or a disk that cannot be written.
    pub(crate) fn put(&self, hash: ContentHash, size_bytes: u64) -> Result<Arriving, PutBlobError> {
        let inner = &self.0;
        let BlobLimits { blob_bytes_max, blobs_bytes_max: bytes_max } = inner.limits;
        if size_bytes > blob_bytes_max {
            return Err(PutBlobError::TooLarge { size_bytes, bytes_max: blob_bytes_max });
        }
        // Room is taken as bytes arrive: an announcement alone takes none.
        let taken_bytes = inner.taken_bytes.load(Ordering::Relaxed);
        if taken_bytes.saturating_add(size_bytes) > bytes_max {
            return Err(PutBlobError::NoRoom { taken_bytes, bytes_max });
        }
        let number = inner.next_number.fetch_add(1, Ordering::Relaxed);
        let path = inner.root.join(ARRIVING).join(number.to_string());
        // From here on, dropping `arriving` gives the room back.
        let mut arriving = Arriving {
            blobs: self.clone(),
            hash,
            announced_bytes: size_bytes,
            got_bytes: 0,
            hasher: blake3::Hasher::new(),
            path,
            file: None,
            kept: false,
        };
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&arriving.path)
            .map_err(put_error)?;
        arriving.file = Some(file);
        Ok(arriving)
    }

    fn path_of(&self, hash: ContentHash) -> PathBuf {
        let name = hash.to_string();
        let (folder, rest) = name.split_at(2);
        self.0.root.join(folder).join(rest)
    }
}

/// A file that is being staged. Dropped before `finish`, it leaves nothing
/// behind.
#[derive(Debug)]
pub(crate) struct Arriving {
    blobs: Blobs,
    hash: ContentHash,
    announced_bytes: u64,
    got_bytes: u64,
    hasher: blake3::Hasher,
    path: PathBuf,
    file: Option<File>,
    kept: bool,
}

impl Arriving {
    /// Takes the next bytes. Blocks on the disk.
    ///
    /// # Errors
    /// More bytes than announced, or a disk that cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), PutBlobError> {
        let more = bytes.len() as u64;
        self.got_bytes += more;
        let taken_bytes = self.blobs.0.taken_bytes.fetch_add(more, Ordering::Relaxed);
        let bytes_max = self.blobs.0.limits.blobs_bytes_max;
        if taken_bytes.saturating_add(more) > bytes_max {
            return Err(PutBlobError::NoRoom { taken_bytes, bytes_max });
        }
        if self.got_bytes > self.announced_bytes {
            return Err(PutBlobError::TooManyBytes(self.announced_bytes));
        }
        self.hasher.update(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(put_error),
            None => unreachable!("an arriving file is opened before it is given out"),
        }
    }

    /// Checks the content and brings it to the disk. Staging the same content
    /// twice is fine. Returns its size. Blocks on the disk.
    ///
    /// # Errors
    /// The content is not what was announced, or the disk cannot be written.
    pub(crate) fn finish(mut self, wall: WallTime) -> Result<u64, PutBlobError> {
        let (got, announced) = (self.got_bytes, self.announced_bytes);
        if got < announced {
            return Err(PutBlobError::TooFewBytes { got, announced });
        }
        let got = ContentHash(*self.hasher.finalize().as_bytes());
        if got != self.hash {
            return Err(PutBlobError::WrongHash { announced: self.hash, got });
        }
        if !self.blobs.has(got, wall) {
            self.keep().map_err(put_error)?;
        }
        Ok(self.got_bytes)
    }

    fn keep(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            file.sync_data()?;
        }
        let path = self.blobs.path_of(self.hash);
        let folder = path.parent().unwrap_or(&self.blobs.0.root);
        match fs::create_dir(folder) {
            Ok(()) => File::open(&self.blobs.0.root)?.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        fs::rename(&self.path, &path)?;
        self.kept = true;
        File::open(folder)?.sync_all()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.blobs.0.taken_bytes.fetch_sub(self.got_bytes, Ordering::Relaxed);
        if self.file.take().is_some() {
            // What cannot be removed now is removed at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a piece of a file. Blocks on the disk.
///
/// # Errors
/// Those of the disk; a file shorter than it was is one of them.
pub(crate) fn read_piece(file: &mut File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; length];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut piece)?;
    Ok(piece)
}

fn put_error(why: io::Error) -> PutBlobError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if matches!(why.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
        PutBlobError::DiskFull
    } else {
        PutBlobError::Io { why }
    }
}

/// The hash that a file's folder and name make; `None` for arriving files.
fn hash_of(folder: &OsStr, name: &OsStr) -> Option<ContentHash> {
    let digits = format!("{}{}", folder.to_str()?, name.to_str()?);
    Some(ContentHash(*blake3::Hash::from_hex(digits).ok()?.as_bytes()))
}

fn system_time(wall: WallTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + wall.since(WallTime(0))
}

/// Makes the directories, empties the one for arriving files and returns how
/// many bytes the whole ones take.
fn prepare(root: &Path) -> io::Result<u64> {
    let arriving = root.join(ARRIVING);
    fs::create_dir_all(&arriving)?;
    for entry in fs::read_dir(&arriving)? {
        fs::remove_file(entry?.path())?;
    }
    let mut bytes = 0;
    for folder in fs::read_dir(root)? {
        let folder = folder?;
        if folder.file_type()?.is_dir() {
            for file in fs::read_dir(folder.path())? {
                bytes += file?.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

/// Stages a blob, for tests of what comes after.
#[cfg(test)]
pub(crate) fn stage(blobs: &Blobs, content: &[u8]) -> ContentHash {
    let hash = ContentHash(*blake3::hash(content).as_bytes());
    let mut arriving = blobs.put(hash, content.len() as u64).unwrap();
    arriving.write(content).unwrap();
    arriving.finish(gleaner_shell::clock::Clock::new().wall()).unwrap();
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BlobLimits = BlobLimits { blob_bytes_max: 1_000, blobs_bytes_max: 1_500 };

    const NOW: WallTime = WallTime(1_800_000_000_000_000_000);

    fn content_hash(content: &[u8]) -> ContentHash {
        ContentHash(*blake3::hash(content).as_bytes())
    }

    fn stage(blobs: &Blobs, content: &[u8]) -> Result<u64, PutBlobError> {
        let mut arriving = blobs.put(content_hash(content), content.len() as u64)?;
        arriving.write(content)?;
        arriving.finish(NOW)
    }

    fn leftovers(dir: &Path) -> usize {
        fs::read_dir(dir.join(ARRIVING)).unwrap().count()
    }

    #[test]
    fn a_staged_file_is_read_back_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        assert_eq!(stage(&blobs, b"hello").unwrap(), 5);
        assert_eq!(stage(&blobs, b"hello").unwrap(), 5);
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        let (mut file, size) = blobs.get(content_hash(b"hello")).unwrap();
        assert_eq!((read_piece(&mut file, 1, 3).unwrap().as_slice(), size), (&b"ell"[..], 5));
        assert_eq!(leftovers(dir.path()), 0);
        assert!(matches!(blobs.get(content_hash(b"other")), Err(GetBlobError::Unknown(_))));
    }

    #[test]
    fn content_that_is_not_what_was_announced_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        let mut wrong = blobs.put(content_hash(b"hello"), 5).unwrap();
        wrong.write(b"jello").unwrap();
        assert!(matches!(wrong.finish(NOW), Err(PutBlobError::WrongHash { .. })));
        let mut short = blobs.put(content_hash(b"hello"), 5).unwrap();
        short.write(b"hell").unwrap();
        assert!(matches!(short.finish(NOW), Err(PutBlobError::TooFewBytes { got: 4, .. })));
        let mut long = blobs.put(content_hash(b"hello"), 5).unwrap();
        assert!(matches!(long.write(b"hello!"), Err(PutBlobError::TooManyBytes(5))));
        drop(long);
        assert_eq!(leftovers(dir.path()), 0);
        assert!(!blobs.has(content_hash(b"hello"), NOW));
        assert_eq!(blobs.0.taken_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn both_bounds_hold_and_room_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        assert!(matches!(stage(&blobs, &[0; 1_001]), Err(PutBlobError::TooLarge { .. })));
        let mut first = blobs.put(content_hash(&[1; 900]), 900).unwrap();
        first.write(&[1; 900]).unwrap();
        assert!(matches!(stage(&blobs, &[2; 900]), Err(PutBlobError::NoRoom { .. })));
        drop(first);
        assert_eq!(stage(&blobs, &[2; 900]).unwrap(), 900);
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        assert!(matches!(stage(&blobs, &[3; 900]), Err(PutBlobError::NoRoom { .. })));
    }

    /// A stalled upload of all the room that there is kept everybody out.
    #[test]
    fn what_was_announced_and_does_not_come_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let limits = BlobLimits { blob_bytes_max: 1_000, blobs_bytes_max: 1_000 };
        let blobs = Blobs::open(&dir.path().join("blobs"), limits).unwrap();
        let mut stalled = blobs.put(content_hash(&[1; 1_000]), 1_000).unwrap();
        stalled.write(&[1; 100]).unwrap();
        stage(&blobs, &[2; 900]).unwrap();
        assert!(matches!(stalled.write(&[1; 1]), Err(PutBlobError::NoRoom { .. })));
        drop(stalled);
        stage(&blobs, &[3; 100]).unwrap();
    }

    #[test]
    fn what_never_arrived_is_gone_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        std::mem::forget(blobs.put(content_hash(b"x"), 1).unwrap());
        assert_eq!(leftovers(dir.path()), 1);
        Blobs::open(dir.path(), LIMITS).unwrap();
        assert_eq!(leftovers(dir.path()), 0);
    }

    #[test]
    fn only_old_files_that_nobody_wants_are_swept_and_their_room_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), LIMITS).unwrap();
        for content in [&b"wanted"[..], b"asked for", b"old"] {
            stage(&blobs, content).unwrap();
        }
        // As staging leaves them: of today, which is before `NOW`.
        assert!(blobs.has(content_hash(b"asked for"), NOW));
        let wanted = content_hash(b"wanted");
        let sweep = || blobs.sweep::<io::Error>(NOW, |hash| Ok(hash == wanted)).unwrap();
        assert_eq!(sweep(), (1, 3));
        assert_eq!(sweep(), (0, 0));
        assert!(blobs.get(wanted).is_ok() && blobs.get(content_hash(b"asked for")).is_ok());
        assert!(matches!(blobs.get(content_hash(b"old")), Err(GetBlobError::Unknown(_))));
        assert_eq!(blobs.0.taken_bytes.load(Ordering::Relaxed), 15);
    }
}
