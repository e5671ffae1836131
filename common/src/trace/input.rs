//! Lines of a trace, plain or compressed with gzip, and what can be wrong
//! with one. Bounded: a line that never ends is refused, not kept.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::{NAME_BYTES_MAX, OPERATIONS_MAX, RANKS_MAX};

/// Room for an all-to-all of 4,096 ranks with its two lists of counts.
const LINE_BYTES_MAX: usize = 128 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("a line that is not UTF-8")]
    NotText,
    #[error("{0}")]
    Meaning(String),
}

impl RefusedLine {
    pub(super) fn field(field: &str, expected: &'static str) -> Self {
        Self::Field { field: shortened(field), expected }
    }
}

/// What is quoted from outside stays short and printable.
pub(super) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut short: String = text.chars().take(CHARS_MAX).map(printable).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

fn printable(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

/// Bytes, unpacked if they are compressed with gzip.
///
/// # Errors
/// Those of the source.
pub fn unpacked<'a>(input: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let packed = input.fill_buf()?.starts_with(&GZIP_MAGIC);
    Ok(if packed {
        Box::new(BufReader::with_capacity(64 << 10, MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

/// The lines that say something: neither blank nor a comment (`#`).
pub(super) struct LineReader<R> {
    input: R,
    file: String,
    line: u32,
    buffer: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R, file: String) -> Self {
        Self { input, file, line: 0, buffer: vec![] }
    }

    /// The last line given is wrong.
    pub(super) fn refuse(&self, what: RefusedLine) -> ReadTraceError {
        // A file without any line is wrong on its first.
        ReadTraceError::Line { file: self.file.clone(), line: self.line.max(1), what }
    }

    /// The next line that says something, and its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u32, &str)>, ReadTraceError> {
        loop {
            self.buffer.clear();
            let bound = LINE_BYTES_MAX as u64 + 1;
            let length = (&mut self.input)
                .take(bound)
                .read_until(b'\n', &mut self.buffer)
                .map_err(ReadTraceError::Read)?;
            if length == 0 {
                return Ok(None);
            }
            self.line = self.line.saturating_add(1);
            if length > LINE_BYTES_MAX {
                return Err(self.refuse(RefusedLine::TooLong));
            }
            let said = self.buffer.trim_ascii();
            if !said.is_empty() && said[0] != b'#' {
                break;
            }
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some((self.line, text.trim()))),
            Err(_) => Err(self.refuse(RefusedLine::NotText)),
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
