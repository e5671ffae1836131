//! Standard output: the answer. The only place that writes there.
//!
//! A table for people, one record a line for programs, raw bytes for what a
//! subprogram printed. A reader who closes the pipe has read enough: that is
//! [`Closed`], which ends the program without a word.

use std::io::{self, BufWriter, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table};
use serde::Serialize;

/// Nobody reads our answer any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub struct Closed;

/// One record on one line.
///
/// # Errors
/// Standard output is closed or full.
pub fn record<T: Serialize>(record: &T) -> anyhow::Result<()> {
    line(&serde_json::to_string(record)?)
}

/// A table. Numbers are right-aligned by their look, the last column is wrapped
/// at the terminal's width and all others never.
///
/// # Errors
/// Standard output is closed or full.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    line(&render(header, rows))
}

/// One line of text.
///
/// # Errors
/// Standard output is closed or full.
pub fn line(text: &str) -> anyhow::Result<()> {
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
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    write(|out| out.write_all(bytes))
}

fn write(content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match content(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
        Ok(()) => Ok(()),
    }
}

/// A table as text, without the last line's end.
pub fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(|title| Cell::new(title.to_uppercase())));
    for row in rows {
        table.add_row(row.iter().map(Cell::new));
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let texts = || rows.iter().filter_map(|row| row.get(number));
        if number + 1 < header.len() {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if !rows.is_empty() && texts().all(|text| looks_like_a_number(text)) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn looks_like_a_number(text: &str) -> bool {
    text.is_empty() || text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_plain_text_with_numbers_to_the_right() {
        let rows = [["1", "primes", "7.5"], ["12", "a longer name", "120"]]
            .map(|row| row.map(str::to_owned).to_vec());
        insta::assert_snapshot!(render(&["job", "name", "cpu"], &rows), @r"
        JOB  NAME           CPU
          1  primes         7.5
         12  a longer name  120
        ");
    }

    #[test]
    fn a_table_without_rows_still_says_what_its_columns_are() {
        insta::assert_snapshot!(render(&["job", "name"], &[]), @"JOB  NAME");
    }
}
