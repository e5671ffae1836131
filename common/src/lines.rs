//! Lines of text from outside, bounded.
//!
//! The promise: whatever a file, a pipe or compressed data hold, a line that is
//! longer than its reader allows is refused before it is kept, and a text whose
//! lines would be understood wrongly (UTF-16, the line ends of old Macs) is
//! refused rather than read as one long line or as nothing. A byte-order mark
//! is taken. Knows nothing of what lines mean.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// RFC 1952, §2.3.1: how gzip begins, whatever the file is called.
const GZIP: [u8; 2] = [0x1f, 0x8b];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Why a line, or a whole text, cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("cannot read: {0}")]
    Read(io::Error),
    #[error("the file ends in the middle of its compressed data: it was cut off")]
    CutOff,
    #[error("the compressed data are damaged from here on")]
    Damaged,
    #[error("a line of more than {0} bytes")]
    TooLong(usize),
    #[error("more than {0} bytes: expected less")]
    TooLarge(usize),
    #[error("a line that is not UTF-8")]
    NotUtf8,
    #[error("text in UTF-16: expected UTF-8")]
    Utf16,
    #[error("a carriage return inside a line: expected lines that end in LF, or in CR LF")]
    LoneReturn,
}

impl From<io::Error> for LineError {
    /// The kinds are those by which a decompressor says what it found.
    fn from(error: io::Error) -> Self {
        let kind = error.kind();
        if kind == io::ErrorKind::UnexpectedEof {
            Self::CutOff
        } else if kind == io::ErrorKind::InvalidInput || kind == io::ErrorKind::InvalidData {
            Self::Damaged
        } else {
            Self::Read(error)
        }
    }
}

impl LineError {
    /// For readers that only know of bytes that cannot be read.
    pub fn into_io(self) -> io::Error {
        if let Self::Read(error) = self {
            return error;
        }
        io::Error::new(io::ErrorKind::InvalidData, self.to_string())
    }
}

/// Bytes, unpacked if they are compressed with gzip.
///
/// # Errors
/// Those of the source.
pub fn unpacked<'a>(input: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut input = BufReader::with_capacity(BLOCK_BYTES, input);
    if !input.fill_buf()?.starts_with(&GZIP) {
        return Ok(Box::new(input));
    }
    Ok(Box::new(BufReader::with_capacity(BLOCK_BYTES, MultiGzDecoder::new(input))))
}

/// A text that is held as a whole, without a byte-order mark.
///
/// # Errors
/// More than `bytes_max`, or no UTF-8.
pub fn whole_text(input: impl Read, bytes_max: usize) -> Result<String, LineError> {
    let mut bytes = vec![];
    input.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(LineError::TooLarge(bytes_max));
    }
    refuse_utf_16(&bytes)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|_| LineError::NotUtf8)
}

fn refuse_utf_16(bytes: &[u8]) -> Result<(), LineError> {
    let is_utf_16 = UTF_16.iter().any(|mark| bytes.starts_with(mark));
    if is_utf_16 { Err(LineError::Utf16) } else { Ok(()) }
}

/// The lines of a text, none longer than `bytes_max`.
#[derive(Debug)]
pub struct BoundedLines<R> {
    input: R,
    bytes: Vec<u8>,
    bytes_max: usize,
    number: u64,
}

impl<R: BufRead> BoundedLines<R> {
    pub fn new(input: R, bytes_max: usize) -> Self {
        Self { input, bytes: vec![], bytes_max, number: 0 }
    }

    /// The number of the line that was given last, or that was wrong; from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The line that was given last, as it stands.
    pub fn last(&self) -> &[u8] {
        &self.bytes
    }

    /// The next line without its end; `None` after the last.
    ///
    /// # Errors
    /// A line that cannot be read or taken.
    pub fn next_line(&mut self) -> Result<Option<&str>, LineError> {
        let Some(line) = self.next_bytes()? else { return Ok(None) };
        std::str::from_utf8(line).map(Some).map_err(|_| LineError::NotUtf8)
    }

    /// The same for a text whose letters do not matter.
    ///
    /// # Errors
    /// A line that cannot be read or taken.
    pub fn next_bytes(&mut self) -> Result<Option<&[u8]>, LineError> {
        let Some(line) = self.next_raw()? else { return Ok(None) };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') { Err(LineError::LoneReturn) } else { Ok(Some(line)) }
    }

    /// The next line as it stands, with its end.
    ///
    /// # Errors
    /// A line that cannot be read, or is too long.
    pub fn next_raw(&mut self) -> Result<Option<&[u8]>, LineError> {
        self.bytes.clear();
        self.number += 1;
        // With its end of two bytes, and one that is too many.
        let most = self.bytes_max as u64 + 3;
        (&mut self.input).take(most).read_until(b'\n', &mut self.bytes)?;
        if self.bytes.is_empty() {
            self.number -= 1;
            return Ok(None);
        }
        if self.number == 1 {
            refuse_utf_16(&self.bytes)?;
            if self.bytes.starts_with(BYTE_ORDER_MARK) {
                self.bytes.drain(..BYTE_ORDER_MARK.len());
            }
        }
        if self.bytes.trim_ascii_end().len() > self.bytes_max || self.bytes.len() as u64 == most {
            return Err(LineError::TooLong(self.bytes_max));
        }
        Ok(Some(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8], bytes_max: usize) -> Result<Vec<String>, (u64, LineError)> {
        let mut lines = BoundedLines::new(text, bytes_max);
        let mut got = vec![];
        loop {
            match lines.next_line() {
                Ok(Some(line)) => got.push(line.to_owned()),
                Ok(None) => return Ok(got),
                Err(error) => return Err((lines.number(), error)),
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(all(text.as_bytes(), 100).unwrap(), expected, "{text:?}");
    }

    #[track_caller]
    fn refused(text: &[u8], line: u64, expected: &str) {
        let (number, error) = all(text, 100).unwrap_err();
        assert_eq!((number, error.to_string().as_str()), (line, expected));
    }

    #[test]
    fn lines_end_in_lf_or_cr_lf_or_with_the_file_and_a_byte_order_mark_is_taken() {
        check("a\nb\r\n\nc", &["a", "b", "", "c"]);
        check("\u{feff}a\n\u{feff}b\n", &["a", "\u{feff}b"]);
        check("", &[]);
        check("\u{feff}", &[""]);
    }

    #[test]
    fn a_text_whose_lines_would_be_understood_wrongly_is_refused() {
        let lone = "a carriage return inside a line: expected lines that end in LF, or in CR LF";
        refused(b"a\nb\rc\r", 2, lone);
        refused(b"a\r\r\n", 1, lone);
        refused(b"\xff\xfea\0\n\0", 1, "text in UTF-16: expected UTF-8");
        refused(b"a\n\xff\n", 2, "a line that is not UTF-8");
    }

    #[test]
    fn a_line_may_have_so_many_bytes_and_not_one_more() {
        for end in ["", "\n", "\r\n"] {
            assert!(all(("x".repeat(100) + end).as_bytes(), 100).is_ok(), "{end:?}");
            refused(("x".repeat(101) + end).as_bytes(), 1, "a line of more than 100 bytes");
        }
        refused(&[0; 1_000], 1, "a line of more than 100 bytes");
        refused(&[b' '; 1_000], 1, "a line of more than 100 bytes");
    }

    #[test]
    fn an_endless_line_is_refused_before_it_is_kept() {
        let mut lines = BoundedLines::new(BufReader::new(io::repeat(0)), 1_000);
        assert!(matches!(lines.next_line(), Err(LineError::TooLong(1_000))));
        assert!(lines.bytes.capacity() < 100_000);
        assert!(matches!(whole_text(io::repeat(0), 1_000), Err(LineError::TooLarge(1_000))));
    }

    #[test]
    fn compressed_data_that_are_cut_or_damaged_are_told_apart() {
        let mut packed = vec![];
        let text = "some words that do not repeat themselves much\n".repeat(40);
        flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast())
            .read_to_end(&mut packed)
            .unwrap();
        let read = |packed: &[u8]| whole_text(unpacked(packed).unwrap(), 10_000);
        assert_eq!(read(&packed).unwrap(), text);
        assert!(matches!(read(&packed[..packed.len() / 2]), Err(LineError::CutOff)));
        let middle = packed.len() / 2;
        packed[middle] ^= 0xff;
        assert!(matches!(read(&packed), Err(LineError::Damaged | LineError::CutOff)));
    }

    proptest! {
        #[test]
        fn lines_are_those_that_the_text_has(text in "[a-c\n]{0,60}") {
            let expected: Vec<&str> = text.lines().collect();
            prop_assert_eq!(all(text.as_bytes(), 100).unwrap(), expected);
        }

        #[test]
        fn no_bytes_make_the_reader_panic_or_give_a_longer_line(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut lines = BoundedLines::new(&*bytes, 20);
            while let Ok(Some(line)) = lines.next_line() {
                prop_assert!(line.len() <= 20);
            }
        }
    }
}
