//! Lines of a trace, plain or compressed with gzip, and what can be wrong
//! with one.

use std::io::{self, BufRead};
use std::path::Path;

use crate::lines::{BoundedLines, LineError};
use crate::plain::quoted;

use super::{NAME_BYTES_MAX, OPERATIONS_MAX, RANKS_MAX};

/// Room for an all-to-all of 4,096 ranks with its two lists of counts.
const LINE_BYTES_MAX: usize = 128 << 10;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadTraceError {
    #[error("cannot read: {0}")]
    Read(io::Error),
    /// `file` is empty, or names a file inside an archive.
    #[error("{file}{}{line}: {what}", if file.is_empty() { "" } else { ":" })]
    Line { file: String, line: u32, what: RefusedLine },
    #[error("nothing to read: expected {0}")]
    Empty(&'static str),
    /// `what` says what was expected of the archive's files.
    #[error("{0}")]
    Archive(String),
}

impl ReadTraceError {
    /// The whole sentence, with the file that was read: `fft.trace:12: ..`.
    pub fn in_file(&self, path: &Path) -> String {
        match self {
            Self::Line { file, .. } if file.is_empty() => format!("{}:{self}", path.display()),
            Self::Line { .. } | Self::Read(_) | Self::Empty(_) | Self::Archive(_) => {
                format!("{}: {self}", path.display())
            }
        }
    }
}

/// Why a line of a trace was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedLine {
    #[error("`{found}` is not the beginning of a trace: expected `gleaner-trace 1`")]
    NotATrace { found: String },
    #[error("a trace of version {theirs}: expected version {ours}")]
    Version { theirs: u32, ours: u32 },
    #[error("`{found}`: expected {expected}")]
    Expected { found: String, expected: &'static str },
    #[error("the file ends here: expected {expected}")]
    Ended { expected: String },
    #[error("a name of {bytes} bytes, or with control characters: expected 1 to {NAME_BYTES_MAX}")]
    Name { bytes: usize },
    #[error("{0} ranks: expected 1 to {RANKS_MAX}")]
    Ranks(u64),
    #[error("rank {found}: expected rank {expected}, as the ranks stand in order")]
    RankOrder { found: u32, expected: u32 },
    #[error("`{0}` is not an operation: expected {1}")]
    Operation(String, &'static str),
    #[error("`{field}` is not {expected}")]
    Field { field: String, expected: &'static str },
    #[error("{found} fields after `{operation}`: expected {expected}")]
    Fields { operation: String, found: usize, expected: &'static str },
    #[error("more than {OPERATIONS_MAX} operations")]
    TooManyOperations,
    /// No line of a text at all.
    #[error("{0}")]
    NoLine(String),
    #[error("{0}")]
    Meaning(String),
}

impl RefusedLine {
    pub(super) fn field(field: &str, expected: &'static str) -> Self {
        Self::Field { field: quoted(field), expected }
    }
}

/// The lines that say something: neither blank nor a comment (`#`).
pub(super) struct LineReader<R> {
    lines: BoundedLines<R>,
    file: String,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R, file: String) -> Self {
        Self { lines: BoundedLines::new(input, LINE_BYTES_MAX), file }
    }

    /// The last line given is wrong.
    pub(super) fn refuse(&self, what: RefusedLine) -> ReadTraceError {
        // A file without any line is wrong on its first; operations are fewer
        // than can be counted so, and more lines are refused.
        let line = u32::try_from(self.lines.number().max(1)).unwrap_or(u32::MAX);
        ReadTraceError::Line { file: self.file.clone(), line, what }
    }

    /// The next line that says something, and its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u32, &str)>, ReadTraceError> {
        loop {
            let said = match self.lines.next_bytes() {
                Ok(Some(line)) => line.trim_ascii(),
                Ok(None) => return Ok(None),
                Err(LineError::Read(error)) => return Err(ReadTraceError::Read(error)),
                Err(error) => return Err(self.refuse(RefusedLine::NoLine(error.to_string()))),
            };
            if !said.is_empty() && said[0] != b'#' {
                break;
            }
        }
        let Ok(line) = u32::try_from(self.lines.number()) else {
            return Err(self.refuse(RefusedLine::NoLine("more lines than can be counted".into())));
        };
        match std::str::from_utf8(self.lines.last()) {
            Ok(text) => Ok(Some((line, text.trim()))),
            Err(_) => Err(self.refuse(RefusedLine::NoLine(LineError::NotUtf8.to_string()))),
        }
    }
}

/// A whole number of a field.
pub(super) fn whole<T: std::str::FromStr>(
    field: &str,
    expected: &'static str,
) -> Result<T, RefusedLine> {
    field.parse().map_err(|_| RefusedLine::field(field, expected))
}
