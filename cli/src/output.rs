//! Standard output: the answer. The only place that writes there.
//!
//! A listing is a table for people ([`table`]), or all of it with `--long`, or
//! one record a line for programs; what a subprogram printed is raw bytes. A
//! reader who closes the pipe has read enough: that is [`Closed`], which ends
//! the program without a word.

mod table;

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use gleaner_common::time::Spoken;
use serde::Serialize;

pub(crate) use table::Listing;

/// Nobody reads our answer any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct Closed;

/// How a listing is written.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Form {
    /// One record a line.
    #[arg(long)]
    pub json: bool,
    /// Everything, a line for each field, however narrow the terminal is.
    #[arg(long, conflicts_with = "json")]
    pub long: bool,
}

impl Form {
    /// # Errors
    /// Standard output is closed or full.
    pub(crate) fn print<T: Serialize>(
        self,
        rows: &[T],
        listing: impl FnOnce(&[T]) -> Listing,
    ) -> anyhow::Result<()> {
        if self.json { rows.iter().try_for_each(record) } else { self.show(&listing(rows)) }
    }

    /// A listing for people.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub(crate) fn show(self, listing: &Listing) -> anyhow::Result<()> {
        if self.long {
            return line(&listing.long());
        }
        let (text, dropped) = listing.fitted(width());
        line(&text)?;
        if !dropped.is_empty() {
            eprintln!("no room for {}: --long shows all", dropped.join(", "));
        }
        Ok(())
    }
}

/// One record on one line.
///
/// # Errors
/// Standard output is closed or full.
pub fn record<T: Serialize>(record: &T) -> anyhow::Result<()> {
    line(&serde_json::to_string(record)?)
}

/// A table that is no listing: no column is ever left out, and the last one is
/// wrapped at the terminal's width.
///
/// # Errors
/// Standard output is closed or full.
pub fn table(header: &[&'static str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let mut listing = Listing::of(rows);
    for (at, title) in header.iter().enumerate() {
        let cell = |row: &Vec<String>| row.get(at).cloned().unwrap_or_default();
        listing = match header.len() - at {
            1 => listing.wrapped(title, (9, 16), cell),
            _ => listing.column(title, 9, cell),
        };
    }
    line(&listing.listing().fitted(width()).0)
}

/// A span as people read it.
pub(crate) fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds)
        .map_or_else(|_| "?".into(), |span| Spoken(span).to_string())
}

/// A result as a record on standard output, or in words for people, who redirect
/// what was asked for and read these beside it.
pub(crate) fn told<T: Serialize>(
    json: bool,
    result: &T,
    words: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if json {
        return record(result);
    }
    eprintln!("{}", words());
    Ok(())
}

/// What is to be known beside the results, on standard error.
pub(crate) fn notes(notes: &[String]) {
    for note in notes {
        eprintln!("{note}");
    }
}

/// One line of text.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    write(|out| writeln!(out, "{text}"))
}

/// Lines of text as they come, as many as there are.
///
/// # Errors
/// Standard output is closed or full.
pub fn lines(mut lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
    write(|out| lines.try_for_each(|line| writeln!(out, "{line}")))
}

/// Bytes as they are.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    write(|out| out.write_all(bytes))
}

/// That of the terminal; `None` where the answer goes elsewhere.
fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

fn write(content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match content(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
        Ok(()) => Ok(()),
    }
}
