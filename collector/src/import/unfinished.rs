//! The mark of an import that is under way.
//!
//! The promise: from before its first record is kept until all of them are, a
//! file in the data directory says so. An import that is killed leaves it
//! behind; the same import again, once it is whole, takes it away. Readers tell
//! of it. Knows nothing of records.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::lines::whole_text;
use gleaner_common::plain::cut;
use gleaner_shell::atomic::{self, ReplaceError};
use gleaner_shell::disk;
use serde::{Deserialize, Serialize};

use crate::store::sync_directory;

/// No workstation's name begins with it.
const BEGINNING: &str = ".import-";

const MODE: u32 = 0o600;

/// Some 100,000 names; a longer list is taken for one of all.
const MARK_BYTES_MAX: usize = 4 << 20;

/// Sources of which no more is told.
const SOURCES_CHARS_MAX: usize = 200;

/// What is being imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) format: String,
    pub(super) sources: Vec<String>,
    /// Whose logs have some or all of its records.
    pub(super) workstations: Vec<String>,
}

/// A mark that was set.
#[derive(Debug)]
pub(super) struct SetMark {
    data: PathBuf,
    path: PathBuf,
}

impl SetMark {
    /// Sets a mark, on disk when this returns. `identity` tells one import from
    /// others.
    pub(super) fn set(
        data: &Path,
        identity: blake3::Hash,
        mark: &Mark,
    ) -> Result<Self, ReplaceError> {
        let path = data.join(format!("{BEGINNING}{}", &identity.to_hex()[..16]));
        let text = toml::to_string(mark)
            .unwrap_or_else(|error| unreachable!("texts always serialise: {error}"));
        atomic::replace(&path, text.as_bytes(), MODE)?;
        Ok(Self { data: data.to_owned(), path })
    }

    /// Everything is kept.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        sync_directory(&self.data)
    }
}

/// An import that left its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    path: PathBuf,
    mark: Mark,
}

impl Unfinished {
    /// Has it touched this workstation's log?
    pub fn has(&self, workstation: &str) -> bool {
        // A mark that does not read is taken for one of all.
        let names = &self.mark.workstations;
        names.is_empty() || names.binary_search_by(|name| name.as_str().cmp(workstation)).is_ok()
    }

    /// What a person should know.
    pub fn note(&self) -> String {
        let Mark { format, sources, .. } = &self.mark;
        let sources = sources.join(", ");
        let sources = cut(&sources, SOURCES_CHARS_MAX);
        let mark = self.path.display();
        format!(
            "an import of {sources} as {format} was cut off, or is under way: the same import \
             again completes it ({mark} is its mark)"
        )
    }
}

/// The imports that left their mark in a data directory, in order.
///
/// # Errors
/// A directory that cannot be listed.
pub fn unfinished(data: &Path) -> io::Result<Vec<Unfinished>> {
    let mut found = vec![];
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        // `atomic` writes beside what it replaces.
        let is_mark = name.to_str().and_then(|name| name.strip_prefix(BEGINNING));
        if !is_mark.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            continue;
        }
        let path = entry.path();
        let text = disk::open(&path).ok().and_then(|file| whole_text(file, MARK_BYTES_MAX).ok());
        let mark = text.and_then(|text| toml::from_str(&text).ok());
        let unknown = || Mark { format: "something".into(), ..Mark::default() };
        found.push(Unfinished { path, mark: mark.unwrap_or_else(unknown) });
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
