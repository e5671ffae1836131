//! Comma-separated values: a header, times in RFC 3339, lengths in exact
//! seconds, an empty field for what is missing. People look at them, too: what
//! a text holds that is no letter is escaped.

use std::io::{self, Write};
use std::time::Duration;

use csv::Writer;
use gleaner_common::plain::plain;

use super::table::{Column, Value};
use crate::wall::spoken_time;

pub(crate) struct CsvTable<W: Write> {
    writer: Writer<W>,
}

impl<W: Write> CsvTable<W> {
    pub(super) fn begin(columns: &[Column], to: W) -> io::Result<Self> {
        let mut writer = Writer::from_writer(to);
        writer.write_record(columns.iter().map(|column| column.name))?;
        Ok(Self { writer })
    }

    pub(super) fn add(&mut self, row: &[Value]) -> io::Result<()> {
        for value in row {
            self.writer.write_field(text_of(value))?;
        }
        Ok(self.writer.write_record(None::<&[u8]>)?)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Missing => String::new(),
        Value::Text(text) => plain(text).into_owned(),
        Value::Time(at) => spoken_time(*at),
        Value::Span(span) => seconds(*span),
        Value::Load(load) => load.to_string(),
        Value::Count(count) => count.to_string(),
    }
}

fn seconds(span: Duration) -> String {
    let text = format!("{}.{:09}", span.as_secs(), span.subsec_nanos());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_moves_no_cursor_and_reorders_nothing() {
        let reason = Value::Text("\u{1b}[2J\r\nKDE \u{202e}gpj.exe".into());
        assert_eq!(text_of(&reason), "\\u001b[2J\\u000d\\u000aKDE \\u202egpj.exe");
    }

    #[test]
    fn seconds_are_exact_and_short() {
        assert_eq!(seconds(Duration::from_secs(100)), "100");
        assert_eq!(seconds(Duration::new(0, 1)), "0.000000001");
        assert_eq!(seconds(Duration::new(12, 500_000_000)), "12.5");
    }
}
