//! What an import reads: files, in order, compressed or not, line by line.
//!
//! The promise: whatever is wrong with a file is said with its name and line.
//! Knows nothing of what the lines mean.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use super::ImportError;

/// RFC 1952, §2.3.1: how gzip begins, whatever the file is called.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Read at once.
const BLOCK_BYTES: usize = 256 << 10;

/// The files of an import, and how much of them has been read.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) files: Vec<PathBuf>,
    /// How many bytes the files have on disk.
    pub(super) bytes: u64,
    pub(super) read: Rc<Cell<u64>>,
}

impl Sources {
    /// Files as they are given; those of a directory in order of name. Hidden
    /// files and what is no file are left alone.
    pub(super) fn find(given: &[PathBuf]) -> Result<Self, ImportError> {
        let mut files = vec![];
        for source in given {
            let failed = |error| ImportError::Read { path: source.clone(), source: error };
            if !fs::metadata(source).map_err(failed)?.is_dir() {
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
        Ok(Self { files, bytes, read: Rc::new(Cell::new(0)) })
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<Box<dyn BufRead>> {
        let counted = Counted { file: File::open(path)?, read: self.read.clone() };
        plain(BufReader::with_capacity(BLOCK_BYTES, counted))
    }

    /// The lines of a file, none of which has more than `bytes_max`.
    pub(super) fn lines(&self, path: &Path, bytes_max: u64) -> Result<Lines, ImportError> {
        let failed = |source| ImportError::Read { path: path.to_owned(), source };
        let reader = self.open(path).map_err(failed)?;
        Ok(Lines { path: path.to_owned(), reader, number: 0, bytes: vec![], bytes_max })
    }

    /// What to say if there was nothing in any of them.
    pub(super) fn empty(&self, given: &[PathBuf], expected: &'static str) -> ImportError {
        let path = self.files.first().or(given.first()).cloned().unwrap_or_default();
        ImportError::Empty { path, expected }
    }
}

/// A file again from its beginning, when only its lines are to be counted.
pub(super) fn reopen(path: &Path) -> io::Result<Box<dyn BufRead>> {
    plain(BufReader::new(File::open(path)?))
}

/// How many lines can be read before something is wrong.
pub(super) fn lines_readable(path: &Path) -> u64 {
    let lines = |text: Box<dyn BufRead>| text.split(b'\n').take_while(Result::is_ok).count();
    reopen(path).map_or(0, lines) as u64
}

fn plain(mut reader: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    if !reader.fill_buf()?.starts_with(&GZIP) {
        return Ok(Box::new(reader));
    }
    Ok(Box::new(BufReader::with_capacity(BLOCK_BYTES, MultiGzDecoder::new(reader))))
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

/// What a failed read means to a person, if it is about what is in the file.
pub(super) fn broken_compression(error: &io::Error) -> Option<&'static str> {
    let kind = error.kind();
    if kind == io::ErrorKind::UnexpectedEof {
        Some("the file ends in the middle of its compressed data: it was cut off")
    } else if kind == io::ErrorKind::InvalidInput || kind == io::ErrorKind::InvalidData {
        Some("the compressed data are damaged from here on")
    } else {
        None
    }
}

/// The lines of one file.
pub(super) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    /// The number of the last line given, from 1.
    number: u64,
    bytes: Vec<u8>,
    bytes_max: u64,
}

impl Lines {
    /// The next line, without the white space around it.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>, ImportError> {
        self.bytes.clear();
        let mut limited = self.reader.by_ref().take(self.bytes_max + 1);
        let read = limited.read_until(b'\n', &mut self.bytes);
        self.number += 1;
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => {
                return Err(match broken_compression(&error) {
                    Some(what) => self.bad(what),
                    None => ImportError::Read { path: self.path.clone(), source: error },
                });
            }
        }
        if self.bytes.len() as u64 > self.bytes_max {
            return Err(self.bad(format!("a line of more than {} bytes", self.bytes_max)));
        }
        // The bytes are checked first: their borrow must end before `bad`.
        if std::str::from_utf8(&self.bytes).is_err() {
            return Err(self.bad("a line that is not UTF-8"));
        }
        Ok(std::str::from_utf8(&self.bytes).ok().map(str::trim))
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The last line given is bad.
    pub(super) fn bad(&self, what: impl Into<String>) -> ImportError {
        ImportError::Bad { path: self.path.clone(), line: self.number, what: what.into() }
    }
}
