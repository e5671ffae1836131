//! Results as CSV, for every other program.

use std::io::{self, Write};

use super::columns::{Label, Legend, Measure, Row};

/// Writes rows below a header.
pub(super) struct CsvResults<W: Write> {
    writer: ::csv::Writer<W>,
}

impl<W: Write> CsvResults<W> {
    /// # Errors
    /// Those of the destination.
    pub(super) fn begin(to: W) -> io::Result<Self> {
        let mut writer = ::csv::Writer::from_writer(to);
        let names = Label::ALL.iter().map(|label| label.name());
        let names = names.chain(Measure::ALL.iter().map(|measure| measure.name()));
        writer.write_record(names.chain(["slowdown"]))?;
        Ok(Self { writer })
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn add(&mut self, legend: &Legend, rows: &[Row]) -> io::Result<()> {
        let mut number = String::new();
        for row in rows {
            for label in Label::ALL {
                self.writer.write_field(legend.text(label, row.label(label)))?;
            }
            for measure in row.measures {
                number.clear();
                push_integer(&mut number, measure);
                self.writer.write_field(&number)?;
            }
            let slowdown = row.slowdown().map_or_else(String::new, |slowdown| slowdown.to_string());
            self.writer.write_record([slowdown])?;
        }
        Ok(())
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn finish(self) -> io::Result<W> {
        self.writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Millions of them are written: `format!` would take longer than executing.
fn push_integer(to: &mut String, number: i64) {
    use std::fmt::Write;
    // A string never fails.
    let _ = write!(to, "{number}");
}
