//! What an import reads: files, in order, compressed or not, line by line or
//! row by row, and pipes.
//!
//! The promise: whatever is wrong with a file is said with its name and line,
//! in few words; nothing of it is kept that is longer than a line may be. What
//! can be read only once (standard input, a pipe) is kept beside while it is
//! checked, in a file without a name. Knows nothing of what the lines mean.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gleaner_common::lines::{BoundedLines, LineError, unpacked};
use gleaner_common::plain::cut;

use super::ImportError;
use super::fields::{Row, RowError, Rows};

/// The name of standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// What is taken from a pipe: years of any trace.
const PIPE_BYTES_MAX: u64 = 4 << 30;

/// A complaint is a sentence, whatever it complains about.
const COMPLAINT_CHARS_MAX: usize = 500;

/// The files of an import, and how much of them has been read.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) files: Vec<PathBuf>,
    /// How many bytes the files have on disk.
    pub(super) bytes: u64,
    pub(super) read: Rc<Cell<u64>>,
    /// What came out of those that can be read only once.
    pipes: RefCell<BTreeMap<PathBuf, File>>,
}

impl Sources {
    /// Files as they are given; those of a directory in order of name. Hidden
    /// files and what is no file are left alone in a directory.
    pub(super) fn find(given: &[PathBuf]) -> Result<Self, ImportError> {
        let mut files = vec![];
        for source in given {
            let failed = |error| ImportError::Read { path: source.clone(), source: error };
            if source.as_os_str() == STANDARD_INPUT
                || !fs::metadata(source).map_err(failed)?.is_dir()
            {
                files.push(source.clone());
                continue;
            }
            let mut inside = vec![];
            for entry in fs::read_dir(source).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                if !hidden && entry.path().is_file() {
                    inside.push(entry.path());
                }
            }
            inside.sort_unstable();
            files.append(&mut inside);
        }
        let length = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
        let bytes = files.iter().map(length).sum();
        let (read, pipes) = (Rc::new(Cell::new(0)), RefCell::default());
        Ok(Self { files, bytes, read, pipes })
    }

    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn BufRead>, ImportError> {
        let failed = |source| ImportError::Read { path: path.to_owned(), source };
        let bytes = self.bytes_of(path).map_err(failed)?;
        unpacked(bytes).map_err(|error| cannot(path, 1, error.into()))
    }

    fn bytes_of(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        if let Some(kept) = self.pipes.borrow().get(path) {
            let mut kept = kept.try_clone()?;
            kept.rewind()?;
            return Ok(Box::new(kept));
        }
        let bytes: Box<dyn Read> = if path.as_os_str() == STANDARD_INPUT {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_file() {
                return Ok(Box::new(Counted { file, read: self.read.clone() }));
            }
            Box::new(file)
        };
        let kept = tempfile::tempfile()?;
        self.pipes.borrow_mut().insert(path.to_owned(), kept.try_clone()?);
        Ok(Box::new(KeptPipe { bytes, kept, length: 0 }))
    }

    /// The lines of a file, none of which has more than `bytes_max`.
    pub(super) fn lines(&self, path: &Path, bytes_max: usize) -> Result<Lines, ImportError> {
        let lines = BoundedLines::new(self.open(path)?, bytes_max);
        Ok(Lines { path: path.to_owned(), lines })
    }

    /// The rows of comma-separated values.
    pub(super) fn rows(&self, path: &Path) -> Result<FileRows, ImportError> {
        Ok(FileRows { path: path.to_owned(), rows: Rows::new(self.open(path)?) })
    }

    /// What to say if there was nothing in any of them.
    pub(super) fn empty(&self, given: &[PathBuf], expected: &'static str) -> ImportError {
        let path = self.files.first().or(given.first()).cloned().unwrap_or_default();
        ImportError::Empty { path, expected }
    }

    /// Tells this import from others: by where files lie, and by what a pipe
    /// held, once it was read.
    pub(super) fn identity(&self) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        for path in &self.files {
            if let Some(kept) = self.pipes.borrow().get(path) {
                let mut kept = kept.try_clone()?;
                kept.rewind()?;
                hasher.update_reader(kept)?;
            } else {
                hasher.update(fs::canonicalize(path)?.as_os_str().as_encoded_bytes());
            }
            hasher.update(b"\0");
        }
        Ok(hasher.finalize())
    }
}

struct Counted {
    file: File,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.read.set(self.read.get() + bytes as u64);
        Ok(bytes)
    }
}

/// Keeps what it reads.
struct KeptPipe {
    bytes: Box<dyn Read>,
    kept: File,
    length: u64,
}

impl Read for KeptPipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.read(buffer)?;
        self.length += length as u64;
        if self.length > PIPE_BYTES_MAX {
            return Err(io::Error::other("more than 4 GiB from a pipe: expected a file"));
        }
        self.kept.write_all(&buffer[..length])?;
        Ok(length)
    }
}

fn cannot(path: &Path, line: u64, error: LineError) -> ImportError {
    if let LineError::Read(source) = error {
        return ImportError::Read { path: path.to_owned(), source };
    }
    bad(path, line, &error.to_string())
}

/// A line that is wrong.
pub(super) fn bad(path: &Path, line: u64, what: &str) -> ImportError {
    let what = cut(what, COMPLAINT_CHARS_MAX).into_owned();
    ImportError::Bad { path: path.to_owned(), line, what }
}

/// The lines of one file.
pub(super) struct Lines {
    path: PathBuf,
    lines: BoundedLines<Box<dyn BufRead>>,
}

impl Lines {
    /// The next line, without the white space around it.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>, ImportError> {
        let number = self.lines.number() + 1;
        let line = self.lines.next_line().map_err(|error| cannot(&self.path, number, error))?;
        Ok(line.map(str::trim))
    }

    pub(super) fn number(&self) -> u64 {
        self.lines.number()
    }

    /// The last line given is bad.
    pub(super) fn bad(&self, what: impl AsRef<str>) -> ImportError {
        bad(&self.path, self.number(), what.as_ref())
    }
}

/// The rows of one file.
pub(super) struct FileRows {
    path: PathBuf,
    rows: Rows<Box<dyn BufRead>>,
}

impl FileRows {
    /// The next row and its line.
    pub(super) fn next_row(&mut self) -> Result<Option<(u64, Row<'_>)>, ImportError> {
        let (path, rows) = (&self.path, &mut self.rows);
        match rows.advance() {
            Ok(true) => Ok(Some((rows.line(), rows.row()))),
            Ok(false) => Ok(None),
            Err(RowError::Line(error)) => Err(cannot(path, rows.line_read(), error)),
            Err(error) => Err(bad(path, rows.line(), &error.to_string())),
        }
    }
}
