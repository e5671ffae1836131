//! What others print, in a form that our results can be stood beside.
//!
//! ```text
//! # Ghafoor 2007, Table 6.2
//! processors,malleable,utilisation,turnaround_s
//! 256,0,0.84381,109741
//! ```
//!
//! Columns are called as in our results: axes say where in the grid a row is,
//! the others are measures. An empty cell is one that nobody printed.

use std::collections::BTreeMap;
use std::fmt;

use gleaner_common::plain::quoted;

use super::columns::{TEXTS, axis, measure};
use super::file::Where;

/// A value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Key {
    Text(String),
    Number(f64),
}

impl Key {
    fn of(axis: &str, text: &str) -> Option<Self> {
        if TEXTS.contains(&axis) {
            return Some(Self::Text(text.to_owned()));
        }
        text.parse().ok().map(Self::Number)
    }

    /// `None` for what no axis has.
    fn of_toml(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::String(text) => Some(Self::Text(text.clone())),
            toml::Value::Integer(number) => Some(Self::Number(*number as f64)),
            toml::Value::Float(number) => Some(Self::Number(*number)),
            toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => None,
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => (one - other).abs() < 1e-9,
            _ => false,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.pad(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Where in the grid: axes and their values.
pub(crate) type At = BTreeMap<String, Key>;

/// What a campaign file says of a place; what no axis has is left out.
pub(crate) fn of_where(place: &Where) -> At {
    let keys = place.iter().filter_map(|(axis, value)| Some((axis.clone(), Key::of_toml(value)?)));
    keys.collect()
}

/// A row of numbers that somebody printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrintedRow {
    pub(crate) at: At,
    /// In the order of the columns.
    pub(crate) values: Vec<Option<f64>>,
}

/// A table that somebody printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Printed {
    pub(crate) axes: Vec<String>,
    pub(crate) measures: Vec<String>,
    pub(crate) rows: Vec<PrintedRow>,
}

/// Why a text is no printed table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadPrintedError {
    #[error("`{0}` is no column of the results")]
    Column(String),
    #[error("`{text}` under `{column}`: expected a number")]
    Number { column: String, text: String },
    #[error("it is not a table: {0}")]
    Table(String),
}

impl Printed {
    pub(crate) fn parse(text: &str) -> Result<Self, ReadPrintedError> {
        let broken = |why: ::csv::Error| ReadPrintedError::Table(why.to_string());
        let mut reader = ::csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .trim(::csv::Trim::All)
            .from_reader(text.as_bytes());
        let names: Vec<String> =
            reader.headers().map_err(broken)?.iter().map(str::to_owned).collect();
        if let Some(name) = names.iter().find(|name| axis(name).is_none() && !measure(name)) {
            return Err(ReadPrintedError::Column(name.clone()));
        }
        let (axes, measures) = names.iter().cloned().partition(|name| axis(name).is_some());
        let mut printed = Self { axes, measures, rows: vec![] };
        for record in reader.records() {
            let record = record.map_err(broken)?;
            let cells = names.iter().zip(record.iter());
            printed.rows.push(PrintedRow::parse(cells)?);
        }
        Ok(printed)
    }
}

impl PrintedRow {
    fn parse<'a>(
        cells: impl Iterator<Item = (&'a String, &'a str)>,
    ) -> Result<Self, ReadPrintedError> {
        let mut row = Self { at: At::new(), values: vec![] };
        for (column, text) in cells {
            let wrong = || ReadPrintedError::Number { column: column.clone(), text: quoted(text) };
            if axis(column).is_some() {
                row.at.insert(column.clone(), Key::of(column, text).ok_or_else(wrong)?);
            } else if text.is_empty() {
                row.values.push(None);
            } else {
                let value = text.parse().ok().filter(|value: &f64| value.is_finite());
                row.values.push(Some(value.ok_or_else(wrong)?));
            }
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_table_is_read_by_the_names_of_its_columns() {
        let text = "# a comment\nrange, malleable, utilisation,turnaround_s\n2-16,10,0.86,\n";
        let printed = Printed::parse(text).expect("a table");
        assert_eq!((printed.axes.len(), printed.measures.len()), (2, 2));
        let row = &printed.rows[0];
        assert_eq!(row.at["range"], Key::Text("2-16".to_owned()));
        assert!(row.at["malleable"].is(&Key::Number(10.0)));
        assert_eq!(row.values, [Some(0.86), None]);
    }

    #[test]
    fn what_is_no_table_is_told() {
        for (text, told) in [
            ("malleable,speed_of_light\n", "`speed_of_light` is no column of the results"),
            ("malleable,profit\nten,1\n", "`ten` under `malleable`: expected a number"),
            ("malleable,profit\n10,much\n", "`much` under `profit`: expected a number"),
        ] {
            assert_eq!(Printed::parse(text).expect_err("no table").to_string(), told);
        }
        assert!(Printed::parse("malleable,profit\n1\n").is_err());
    }
}
