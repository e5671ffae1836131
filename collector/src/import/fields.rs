//! Rows of comma-separated values (RFC 4180), bounded.
//!
//! The promise: a row gives the fields that the `csv` crate gives, and one that
//! grows too long, because a quote was never closed or because it is no text at
//! all, is refused before it is kept. Blank lines and lines that begin with `#`
//! are no rows. Every row knows its line.

use std::io::BufRead;

use gleaner_common::lines::{BoundedLines, LineError};

/// A record of ours has at most 600.
const ROW_BYTES_MAX: usize = 16 << 10;

/// Why a row cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("a row of more than {ROW_BYTES_MAX} bytes, in which a quote is not closed")]
    TooLong,
    #[error("a quote that is never closed")]
    OpenQuote,
    #[error("a row that is not UTF-8")]
    NotUtf8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote in quotes, which ends them unless another one follows.
    QuoteInQuotes,
}

/// Reads rows one after the other.
pub(super) struct Rows<R> {
    lines: BoundedLines<R>,
    text: Vec<u8>,
    /// Where each field ends in `text`.
    ends: Vec<usize>,
    line: u64,
}

/// The fields of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    text: &'a str,
    ends: &'a [usize],
}

impl<'a> Row<'a> {
    pub(super) fn len(self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(self, place: usize) -> Option<&'a str> {
        let end = *self.ends.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'a str> {
        (0..self.len()).filter_map(move |place| self.get(place))
    }
}

/// Where a column stands in a header; an error if it stands there twice.
pub(super) fn only_place(
    header: Row<'_>,
    title: &str,
    is_it: impl Fn(&str) -> bool,
) -> Result<Option<usize>, String> {
    let mut places = (0..).zip(header.iter()).filter(|(_, column)| is_it(column.trim()));
    let place = places.next().map(|(place, _)| place);
    match places.next() {
        Some(_) => Err(format!("column `{title}` is there twice")),
        None => Ok(place),
    }
}

impl<R: BufRead> Rows<R> {
    pub(super) fn new(input: R) -> Self {
        let lines = BoundedLines::new(input, ROW_BYTES_MAX);
        Self { lines, text: vec![], ends: vec![], line: 0 }
    }

    /// The line on which the last row began.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The line that was read last.
    pub(super) fn line_read(&self) -> u64 {
        self.lines.number()
    }

    /// The last row.
    pub(super) fn row(&self) -> Row<'_> {
        let text = std::str::from_utf8(&self.text)
            .unwrap_or_else(|_| unreachable!("`advance` has looked at it"));
        Row { text, ends: &self.ends }
    }

    /// Goes to the next row, if there is one.
    pub(super) fn advance(&mut self) -> Result<bool, RowError> {
        self.text.clear();
        self.ends.clear();
        let mut at = None;
        while self.lines.next_raw()?.is_some() {
            let line = self.lines.last();
            if at.is_none() {
                if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                    continue;
                }
                self.line = self.lines.number();
            }
            let now = take(line, at.unwrap_or(At::FieldStart), &mut self.text, &mut self.ends)?;
            if now != At::Quoted {
                self.ends.push(self.text.len());
                // Fields end between letters: the ends are those of commas.
                std::str::from_utf8(&self.text).map_err(|_| RowError::NotUtf8)?;
                return Ok(true);
            }
            if self.text.len() > ROW_BYTES_MAX {
                return Err(RowError::TooLong);
            }
            at = Some(now);
        }
        if at.is_some() { Err(RowError::OpenQuote) } else { Ok(false) }
    }
}

/// Takes a line; its end counts only in quotes.
fn take(
    line: &[u8],
    mut at: At,
    text: &mut Vec<u8>,
    ends: &mut Vec<usize>,
) -> Result<At, RowError> {
    let content = line.strip_suffix(b"\n").unwrap_or(line);
    let is_ended = content.len() < line.len();
    let (content, has_return) = match content.strip_suffix(b"\r") {
        Some(content) => (content, true),
        None => (content, false),
    };
    for byte in content {
        at = match (at, byte) {
            (At::FieldStart, b'"') => At::Quoted,
            (At::Quoted, b'"') => At::QuoteInQuotes,
            (At::FieldStart | At::Plain | At::QuoteInQuotes, b',') => {
                ends.push(text.len());
                At::FieldStart
            }
            (At::FieldStart | At::Plain | At::QuoteInQuotes, b'\r') => {
                return Err(LineError::LoneReturn.into());
            }
            (At::Quoted, _) | (At::QuoteInQuotes, b'"') => {
                text.push(*byte);
                At::Quoted
            }
            (At::FieldStart | At::Plain | At::QuoteInQuotes, _) => {
                text.push(*byte);
                At::Plain
            }
        };
    }
    if at == At::Quoted {
        text.extend(has_return.then_some(b'\r'));
        text.extend(is_ended.then_some(b'\n'));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8]) -> Result<Vec<(u64, Vec<String>)>, String> {
        let mut rows = Rows::new(text);
        let mut got = vec![];
        while rows.advance().map_err(|error| error.to_string())? {
            got.push((rows.line(), rows.row().iter().map(str::to_owned).collect()));
        }
        Ok(got)
    }

    #[track_caller]
    fn check(text: &str, expected: &[(u64, &[&str])]) {
        let got = all(text.as_bytes()).unwrap();
        let got: Vec<(u64, Vec<&str>)> = got
            .iter()
            .map(|(line, row)| (*line, row.iter().map(String::as_str).collect()))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(line, row)| (*line, row.to_vec())).collect();
        assert_eq!(got, expected, "{text:?}");
    }

    #[test]
    fn fields_may_be_quoted_and_go_over_lines() {
        check("a,b\r\n\n# no row\n c,\n", &[(1, &["a", "b"]), (4, &[" c", ""])]);
        check("\"a,\"\"b\"\"\",c\n", &[(1, &["a,\"b\"", "c"])]);
        check("x,\"one\r\ntwo\"\ny,z", &[(1, &["x", "one\r\ntwo"]), (3, &["y", "z"])]);
    }

    #[test]
    fn what_is_no_row_is_refused_in_few_words() {
        let refused = |text: &[u8]| all(text).unwrap_err();
        assert_eq!(refused(b"a,\"b\n"), "a quote that is never closed");
        assert_eq!(refused(b"a\xff\n"), "a row that is not UTF-8");
        assert!(refused(b"a,b\rc,d\r").starts_with("a carriage return inside a line"));
        assert_eq!(refused(&vec![0; 100_000]), "a line of more than 16384 bytes");
        let open = format!("\"{}", "a\n".repeat(50_000));
        assert!(refused(open.as_bytes()).contains("in which a quote is not closed"));
    }

    proptest! {
        #[test]
        fn the_fields_are_those_that_the_csv_crate_reads(text in "[ab\",\n]{0,40}") {
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(text.as_bytes());
            let theirs: Vec<Vec<String>> = reader
                .records()
                .map(|row| row.unwrap().iter().map(str::to_owned).collect())
                .collect();
            if let Ok(ours) = all(text.as_bytes()) {
                let ours: Vec<_> = ours.into_iter().map(|(_, row)| row).collect();
                prop_assert_eq!(ours, theirs);
            } else {
                prop_assert!(text.contains('"'), "only a quote can be left open");
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&bytes);
        }
    }
}
