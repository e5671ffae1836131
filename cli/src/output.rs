//! Standard output: the answer; standard error: the talk. The only place that
//! writes to either.
//!
//! A listing is a table for people ([`table`]), or all of it with `--long`, or
//! one record a line for programs; what a subprogram printed is raw bytes. A
//! reader who closes the pipe has read enough: that is [`Closed`], which ends
//! the program without a word.

mod table;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use gleaner_common::plain::{cut, for_terminal, plain, plain_lines};
use gleaner_common::time::Spoken;
use gleaner_figure::{Figure, Format, Size};
use gleaner_shell::atomic::{self, PUBLIC};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use table::Layout;
pub(crate) use table::Listing;

/// Lines that may wait for whoever reads them.
const LINES_MAX: usize = 1_024;

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
        Sheet { form: self, layout: None }.next(listing).map_or(Ok(()), |text| block(&text))
    }
}

/// Listings for people one below the other, or the pages of a long one, which
/// then has one header and is as wide as its first page asks for.
#[derive(Debug)]
struct Sheet {
    form: Form,
    /// The layout of the page before.
    layout: Option<Layout>,
}

impl Sheet {
    /// The next page as text, if there is anything on it.
    fn next(&mut self, page: &Listing) -> Option<String> {
        let is_first = self.layout.is_none();
        if !is_first && page.is_empty() {
            return None;
        }
        let layout = self.layout.take().filter(|layout| page.suits(layout));
        let is_headed = layout.is_none();
        let layout = layout.unwrap_or_else(|| page.layout(width()));
        let dropped = layout.dropped();
        let mut text = String::new();
        if !is_first && (is_headed || self.form.long) {
            text.push('\n');
        }
        if self.form.long {
            text += &page.long();
        } else {
            text += &page.text(&layout, is_headed);
            if is_headed && !dropped.is_empty() {
                say(&format!("no room for {}: --long shows all", dropped.join(", ")));
            }
        }
        self.layout = Some(layout);
        Some(text)
    }
}

/// Prints rows as they come, which may be millions. A thread of its own waits for
/// their reader, so that the connection they come from stays alive.
///
/// # Errors
/// Standard output is closed or full, or those of the work.
pub(crate) async fn streamed<T>(
    form: Form,
    work: impl AsyncFnOnce(Pages) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (waiting, mut next) = mpsc::channel(LINES_MAX);
    let printed = spawn_blocking(move || lines(std::iter::from_fn(|| next.blocking_recv())));
    let done = work(Pages { sheet: Sheet { form, layout: None }, lines: waiting }).await;
    printed.await??;
    done
}

/// Where rows that come page by page are shown.
#[derive(Debug)]
pub(crate) struct Pages {
    sheet: Sheet,
    lines: mpsc::Sender<String>,
}

impl Pages {
    /// # Errors
    /// Standard output is closed or full.
    pub(crate) async fn show<T: Serialize>(
        &mut self,
        rows: &[T],
        listing: impl FnOnce(&[T]) -> Listing,
    ) -> anyhow::Result<()> {
        if !self.sheet.form.json {
            let text = self.sheet.next(&listing(rows));
            return self.print(text.into_iter().map(Ok)).await;
        }
        self.print(rows.iter().map(serde_json::to_string)).await
    }

    async fn print(
        &self,
        lines: impl Iterator<Item = serde_json::Result<String>>,
    ) -> anyhow::Result<()> {
        for line in lines {
            // Its receiver ends early only where nobody reads any more.
            self.lines.send(line?).await.map_err(|_| Closed)?;
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
    block(&listing.listing().fitted(width()).0)
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
    words().lines().for_each(say);
    Ok(())
}

/// What is to be known beside the results, on standard error.
pub(crate) fn notes(notes: &[String]) {
    for note in notes {
        say(note);
    }
}

/// A chart as a file, in the format that its ending names, which takes the place of an
/// older one when all of it is on the disk.
///
/// # Errors
/// A chart that cannot be drawn, another ending, or a file that cannot be written.
pub(crate) fn figure(path: &Path, figure: &dyn Figure, size: Size) -> anyhow::Result<()> {
    let drawn = figure.draw(Format::of(path)?, size)?;
    atomic::replace(path, &drawn, PUBLIC)?;
    Ok(())
}

/// A line on standard error, the only way there: harmless, and of bounded length,
/// whatever names and reasons are in it.
pub(crate) fn say(line: &str) {
    eprintln!("{}", cut(line, SAID_CHARS_MAX));
}

/// Some ten lines of a terminal.
const SAID_CHARS_MAX: usize = 1_000;

/// One line of text, whatever stands in it.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    write(|out| writeln!(out, "{}", plain(text)))
}

/// Lines that are laid out already, in which what came from outside is harmless.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn block(text: &str) -> anyhow::Result<()> {
    write(|out| writeln!(out, "{}", plain_lines(text)))
}

/// Lines of text as they come, as many as there are.
///
/// # Errors
/// Standard output is closed or full.
pub fn lines(mut lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
    write(|out| lines.try_for_each(|line| writeln!(out, "{}", plain_lines(&line))))
}

/// What a guest printed: as it is, but on a terminal harmless unless it is asked
/// for `raw`. Colours stay; a program's output is to look as it does at home.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn printed(content: &[u8], raw: bool) -> anyhow::Result<()> {
    if raw || !io::stdout().is_terminal() {
        return bytes(content);
    }
    bytes(&for_terminal(content))
}

/// Bytes as they are.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    write(|out| out.write_all(bytes))
}

/// The width of the terminal; `None` where the answer goes elsewhere.
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

#[cfg(test)]
mod tests {
    use gleaner_common::plain::is_harmful;

    use super::*;

    /// A disk that filled up had cost the chart of before.
    #[test]
    fn a_chart_takes_the_place_of_an_older_one_and_is_not_written_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let (chart, older) = (dir.path().join("week.svg"), dir.path().join("older"));
        std::fs::write(&chart, "the chart of before").unwrap();
        std::fs::hard_link(&chart, &older).unwrap();
        let gantt = gleaner_figure::Gantt {
            lanes: vec!["ada".into()],
            bar_kinds: vec![gleaner_figure::GanttKind::new("up", gleaner_figure::OKABE_ITO[0])],
            bars: vec![gleaner_figure::Bar { end: 30.0, ..Default::default() }],
            ..Default::default()
        };
        figure(&chart, &gantt, gantt.natural_size()).unwrap();
        assert!(std::fs::read_to_string(&chart).unwrap().starts_with("<svg"));
        assert_eq!(std::fs::read_to_string(&older).unwrap(), "the chart of before");
    }

    /// A job's name forged rows on a terminal.
    #[test]
    fn a_job_name_that_holds_escape_codes_and_lines_is_text_in_its_cell() {
        let name = "x\n9  mine  ada  succeeded\u{1b}[2K\u{1b}[1A\u{9b}31m\u{202e}cilbup".to_owned();
        let listing = Listing::of(std::slice::from_ref(&name)).column("name", 9, String::clone);
        let (text, _) = listing.listing().fitted(None);
        assert_eq!(text.lines().count(), 2, "a header and a row: {text:?}");
        let is_harmful = |c: char| c != '\n' && is_harmful(c);
        assert!(!text.contains(is_harmful), "{text:?}");
        assert!(text.contains("\\u001b[2K"), "{text:?}");
    }

    #[test]
    fn a_record_stays_the_record_that_it_was() {
        let record = vec!["\u{1b}[2K", "\u{9b}", "\u{202e}", "\\", "plain"];
        let text = serde_json::to_string(&record).unwrap();
        let printed = plain_lines(&text);
        assert!(!printed.contains(is_harmful), "{printed:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&printed).unwrap(), record);
    }
}
