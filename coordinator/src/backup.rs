//! Backups of a coordinator, taken while it runs, and bringing one back.
//!
//! A backup is one file: what the store held at one moment, and the authority.
//!
//! ```text
//! magic │ length │ contents: the files, each with its size and hash │ their bytes ..
//!                └── hash of all before ──┘
//! ```
//!
//! The promises: a backup is whole or not there; what is brought back was looked
//! through row by row; what it takes the place of is kept beside it; and it begins
//! a generation, so that nothing which its later self gave out is taken for its own.
//! Staged files are not in it: they never change, and any tool can copy them.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use gleaner_common::id::ContentHash;
use gleaner_common::time::WallTime;
use gleaner_shell::atomic::{PRIVATE, ReplaceError, Replacement, beside};
use gleaner_shell::clock::Clock;
use gleaner_shell::identity::AUTHORITY_FILES;
use serde::{Deserialize, Serialize};

use crate::run::{CoordinatorError, lock};
use crate::store::{self, Checked, DatabaseError, FILE, OpenStoreError};

const MAGIC: &[u8; 16] = b"gleaner backup 1";

/// Names and hashes of three files are some hundred bytes.
const CONTENTS_BYTES_MAX: u32 = 1 << 16;

/// Where a backup is laid before it takes the store's place, with the process that does.
const INCOMING: &str = "restoring-";

/// Where what a restore took the place of is kept, with the second of it.
const REPLACED: &str = "replaced-";

/// Numbers of jobs, and of workstations, that a restored store leaves out: its later self
/// may have given them to others.
const NUMBERS_LEFT_OUT: u32 = 1_000;

/// Why there is no backup, or none was brought back. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} exists: expected a new file", path.display())]
    Exists { path: PathBuf },
    #[error("there is no coordinator's data in {}: {why}", path.display())]
    NoData { path: PathBuf, why: io::Error },
    #[error("cannot write {}: {why}", path.display())]
    Writing { path: PathBuf, why: io::Error },
    #[error(transparent)]
    Placing(#[from] ReplaceError),
    #[error("cannot read the backup {}: {why}", path.display())]
    Reading { path: PathBuf, why: io::Error },
    #[error("{} is not a backup of a coordinator: expected what `glean coordinator backup` wrote", path.display())]
    NotOurs { path: PathBuf },
    #[error("the backup {} is damaged: {what} is not as it was written", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot copy the database {}: {why}", path.display())]
    Copying { path: PathBuf, why: DatabaseError },
    #[error("the database {} is damaged: {detail}: expected a whole one to take a backup of", path.display())]
    Sick { path: PathBuf, detail: String },
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    #[error(transparent)]
    Data(#[from] CoordinatorError),
}

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    taken: WallTime,
    files: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    hash: ContentHash,
}

/// What was saved, or brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    pub taken: WallTime,
    pub bytes: u64,
    pub rows: u64,
    /// Tokens that were open and may have been used since: they are revoked.
    pub tokens: usize,
    /// Where what was replaced is kept.
    pub kept: Option<PathBuf>,
}

/// Saves what the coordinator of this data directory holds, which may run.
///
/// # Errors
/// See [`BackupError`].
pub fn backup(data: &Path, to: &Path, replace: bool) -> Result<Backup, BackupError> {
    if !replace && to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let database = data.join(FILE);
    File::open(&database).map_err(|why| BackupError::NoData { path: data.to_owned(), why })?;
    let copied = Temporary(beside(to, "copy"));
    let copying = |why| BackupError::Copying { path: database.clone(), why };
    store::copy(&database, &copied.0).map_err(copying)?;
    let rows = match store::check(&copied.0).map_err(copying)? {
        Checked::Whole { rows } => rows,
        Checked::Damaged(detail) => return Err(BackupError::Sick { path: database, detail }),
    };
    let taken = Clock::new().wall();
    let authority = AUTHORITY_FILES.map(|name| (name, data.join(name)));
    let sources: Vec<_> = [(FILE, copied.0.clone())].into_iter().chain(authority).collect();
    let reading = |path: &Path| {
        let path = path.to_owned();
        move |why| BackupError::NoData { path, why }
    };
    let mut contents = Contents { taken, files: vec![] };
    for (name, path) in &sources {
        let (bytes, hash) =
            hash_of(File::open(path).map_err(reading(path))?).map_err(reading(path))?;
        contents.files.push(Entry { name: (*name).to_owned(), bytes, hash });
    }
    let replacement = Replacement::begin(to, PRIVATE)?;
    let writing = |why| BackupError::Writing { path: to.to_owned(), why };
    let mut file = replacement.file();
    file.write_all(&header(&contents)).map_err(writing)?;
    for (_, path) in &sources {
        let mut source = File::open(path).map_err(reading(path))?;
        io::copy(&mut source, &mut file).map_err(writing)?;
    }
    let bytes = file.metadata().map_err(writing)?.len();
    replacement.finish()?;
    Ok(Backup { taken, bytes, rows, tokens: 0, kept: None })
}

fn header(contents: &Contents) -> Vec<u8> {
    let contents = postcard::to_stdvec(contents)
        .unwrap_or_else(|error| unreachable!("postcard writes what is plain: {error}"));
    let length = u32::try_from(contents.len()).unwrap_or(u32::MAX);
    let mut header = [MAGIC.as_slice(), &length.to_le_bytes(), &contents].concat();
    let hash = *blake3::hash(&header).as_bytes();
    header.extend(hash);
    header
}

/// Brings a backup back into a data directory, whose coordinator may not run.
///
/// # Errors
/// See [`BackupError`].
pub fn restore(data: &Path, from: &Path) -> Result<Backup, BackupError> {
    let _lock = lock(data)?;
    let reading = |why| BackupError::Reading { path: from.to_owned(), why };
    let mut file = File::open(from).map_err(reading)?;
    let contents = read_contents(&mut file, from)?;
    clear_what_was_cut_off(data);
    let incoming = data.join(format!("{INCOMING}{}", std::process::id()));
    fs::create_dir(&incoming)
        .map_err(|why| BackupError::Writing { path: incoming.clone(), why })?;
    let restored = lay(&mut file, from, &contents, (&incoming, &earlier(data)))
        .and_then(|laid| Ok((laid, take_the_place(data, &incoming, contents.taken)?)));
    // It is empty, if all went well.
    let _ = fs::remove_dir_all(&incoming);
    let ((rows, tokens), kept) = restored?;
    let bytes = contents.files.iter().map(|file| file.bytes).sum();
    Ok(Backup { taken: contents.taken, bytes, rows, tokens, kept })
}

fn read_contents(file: &mut File, path: &Path) -> Result<Contents, BackupError> {
    let not_ours = || BackupError::NotOurs { path: path.to_owned() };
    let damaged = |what: &str| BackupError::Damaged { path: path.to_owned(), what: what.into() };
    let mut begin = [0; MAGIC.len() + 4];
    file.read_exact(&mut begin).map_err(|_| not_ours())?;
    let (magic, length) = begin.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(not_ours());
    }
    let length = u32::from_le_bytes(length.try_into().unwrap_or_default());
    if length > CONTENTS_BYTES_MAX {
        return Err(damaged("its table of contents"));
    }
    let mut contents = vec![0; length as usize + blake3::OUT_LEN];
    file.read_exact(&mut contents).map_err(|_| damaged("its table of contents"))?;
    let (contents, hash) = contents.split_at(length as usize);
    if blake3::hash(&[&begin, contents].concat()).as_bytes() != hash {
        return Err(damaged("its table of contents"));
    }
    postcard::from_bytes(contents).map_err(|_| damaged("its table of contents"))
}

/// Lays the files of a backup into a directory of their own and looks through them and
/// what they replace;
/// how many rows there are, and tokens that were open.
fn lay(
    file: &mut File,
    from: &Path,
    contents: &Contents,
    (into, replaces): (&Path, &[PathBuf]),
) -> Result<(u64, usize), BackupError> {
    let damaged = |what: &str| BackupError::Damaged { path: from.to_owned(), what: what.into() };
    let known = |name: &str| name == FILE || AUTHORITY_FILES.contains(&name);
    for Entry { name, bytes, hash } in &contents.files {
        if !known(name) {
            return Err(BackupError::NotOurs { path: from.to_owned() });
        }
        let path = into.join(name);
        let placing = Replacement::begin(&path, PRIVATE)?;
        let mut hashing = Hashing { to: placing.file(), hasher: blake3::Hasher::new() };
        let copied = io::copy(&mut Read::by_ref(file).take(*bytes), &mut hashing)
            .map_err(|why| BackupError::Writing { path: path.clone(), why })?;
        if copied != *bytes || *hashing.hasher.finalize().as_bytes() != hash.0 {
            return Err(damaged(name));
        }
        placing.finish()?;
    }
    let database = into.join(FILE);
    let tokens = store::make_copy(into, replaces, NUMBERS_LEFT_OUT)?;
    let copying = |why| BackupError::Copying { path: database.clone(), why };
    match store::check(&database).map_err(copying)? {
        Checked::Whole { rows } => Ok((rows, tokens)),
        Checked::Damaged(detail) => Err(damaged(&detail)),
    }
}

/// Moves what is in the data directory aside and what came into its place.
fn take_the_place(
    data: &Path,
    incoming: &Path,
    taken: WallTime,
) -> Result<Option<PathBuf>, BackupError> {
    let writing = |path: &Path| {
        let path = path.to_owned();
        move |why| BackupError::Writing { path, why }
    };
    let aside = new_name(data, &format!("{REPLACED}{:.0}", Clock::new().wall().unix_s()));
    // Whoever brings it back may be root, and the coordinator is not.
    let owner = fs::metadata(data).map_err(writing(data))?;
    for entry in fs::read_dir(incoming).map_err(writing(incoming))? {
        let path = entry.map_err(writing(incoming))?.path();
        chown(&path, Some(owner.uid()), Some(owner.gid())).map_err(writing(&path))?;
    }
    let steps = steps(data, incoming, &aside);
    let is_kept = steps.iter().any(|step| step.to().starts_with(&aside));
    if is_kept {
        fs::create_dir(&aside).map_err(writing(&aside))?;
    }
    for step in &steps {
        step.carry_out().map_err(writing(step.to()))?;
    }
    for directory in [&aside, data].into_iter().skip(usize::from(!is_kept)) {
        File::open(directory).and_then(|it| it.sync_all()).map_err(writing(directory))?;
    }
    tracing::info!("a backup of {:.0} (Unix time) took the place of the store", taken.unix_s());
    Ok(is_kept.then_some(aside))
}

/// One change of a data directory.
#[derive(Debug)]
enum PlacingStep {
    /// Another name for a file, which outlasts what takes the place of the first.
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Move {
        from: PathBuf,
        to: PathBuf,
    },
}

impl PlacingStep {
    fn to(&self) -> &Path {
        match self {
            Self::Link { to, .. } | Self::Move { to, .. } => to,
        }
    }

    fn carry_out(&self) -> io::Result<()> {
        match self {
            Self::Link { from, to } => fs::hard_link(from, to),
            Self::Move { from, to } => fs::rename(from, to),
        }
    }
}

/// Whatever this is cut off at, nothing starts anew or by mistake: there is an authority
/// all the time, if there was one, and no database beside another's.
fn steps(data: &Path, incoming: &Path, aside: &Path) -> Vec<PlacingStep> {
    let is_there = |name: &&str| data.join(name).exists();
    let kept = |name: &str| (data.join(name), aside.join(name));
    let authority = AUTHORITY_FILES.into_iter().filter(is_there).map(|name| {
        let (from, to) = kept(name);
        PlacingStep::Link { from, to }
    });
    let wal = format!("{FILE}-wal");
    let shared_memory = format!("{FILE}-shm");
    let database = [FILE, &wal, &shared_memory].into_iter().filter(is_there).map(|name| {
        let (from, to) = kept(name);
        PlacingStep::Move { from, to }
    });
    let comes = AUTHORITY_FILES.into_iter().chain([FILE]);
    let comes = comes
        .filter(|name| incoming.join(name).exists())
        .map(|name| PlacingStep::Move { from: incoming.join(name), to: data.join(name) });
    authority.chain(database).chain(comes).collect()
}

/// A name that nothing has here: what is kept there stays.
fn new_name(data: &Path, name: &str) -> PathBuf {
    let more = (2..).map(|count| format!("{name}-{count}"));
    let mut names = [name.to_owned()].into_iter().chain(more).map(|name| data.join(name));
    names.find(|path| !path.exists()).unwrap_or_else(|| unreachable!("numbers do not end"))
}

/// The databases whose later selves may have given out numbers: the one that is there,
/// and those that restores took the place of, also ones that were killed.
fn earlier(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let kept = entries.filter(|it| it.file_name().to_string_lossy().starts_with(REPLACED));
    let kept = kept.map(|it| it.path().join(FILE)).filter(|path| path.exists());
    [data.join(FILE)].into_iter().chain(kept).collect()
}

/// What a restore left that was killed: copies of what its backup still has.
fn clear_what_was_cut_off(data: &Path) {
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(INCOMING) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Writes, and hashes what is written.
struct Hashing<'a> {
    to: &'a File,
    hasher: blake3::Hasher,
}

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn hash_of(mut file: File) -> io::Result<(u64, ContentHash)> {
    let mut hasher = blake3::Hasher::new();
    let bytes = io::copy(&mut file, &mut hasher)?;
    Ok((bytes, ContentHash(*hasher.finalize().as_bytes())))
}

/// A file that goes with whatever happens.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None` if a coordinator would start there anew, else whose files it would find.
    fn found(data: &Path) -> Option<Vec<String>> {
        let read = |name: &str| fs::read_to_string(data.join(name)).ok();
        let authority: Vec<_> = AUTHORITY_FILES.into_iter().filter_map(read).collect();
        (!authority.is_empty()).then(|| authority.into_iter().chain(read(FILE)).collect())
    }

    #[test]
    fn a_restore_that_is_cut_off_leaves_the_old_the_new_or_what_does_not_start() {
        let wal = format!("{FILE}-wal");
        for was_there in [true, false] {
            for done in 0.. {
                let dir = tempfile::tempdir().unwrap();
                let (data, incoming) =
                    (dir.path().join("data"), dir.path().join("data/restoring-1"));
                let aside = data.join("replaced-1");
                fs::create_dir_all(&incoming).unwrap();
                fs::create_dir_all(&aside).unwrap();
                for name in AUTHORITY_FILES.into_iter().chain([FILE]) {
                    fs::write(incoming.join(name), "new").unwrap();
                }
                for name in AUTHORITY_FILES.into_iter().chain([FILE, &wal]) {
                    let _ = was_there.then(|| fs::write(data.join(name), "old").unwrap());
                }
                let steps = steps(&data, &incoming, &aside);
                for step in steps.iter().take(done) {
                    step.carry_out().unwrap();
                }
                let found = found(&data);
                let is_there = data.join(FILE).exists();
                let all_of = |whose: &str| found.iter().flatten().all(|it| it == whose);
                let begun = if was_there { found.is_some() } else { done == 0 || found.is_some() };
                assert!(begun, "cut off after {done} of {steps:?}");
                assert!(!is_there || all_of("old") || all_of("new"), "after {done} of {steps:?}");
                assert!(!data.join(&wal).exists() || !is_there || all_of("old"), "after {done}");
                if done == steps.len() {
                    assert!(is_there && all_of("new"));
                    let kept = aside.join(FILE).exists() && aside.join(AUTHORITY_FILES[0]).exists();
                    assert_eq!(kept, was_there);
                    break;
                }
            }
        }
    }
}
