//! Results whose columns are not those of executions: named columns of texts,
//! whole numbers and real ones, as Parquet and as CSV.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use gleaner_collector::export::parquet::{begin_file, into_io};
use gleaner_shell::disk;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    Text(Vec<String>),
    Integer(Vec<i64>),
    /// One that is not a number is missing.
    Real(Vec<f64>),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Real(values) => values.len(),
        }
    }

    /// As CSV has it.
    pub(crate) fn text(&self, row: usize) -> String {
        match self {
            Self::Text(values) => values[row].clone(),
            Self::Integer(values) => values[row].to_string(),
            Self::Real(values) if values[row].is_finite() => values[row].to_string(),
            Self::Real(_) => String::new(),
        }
    }

    /// `None` for a text, and for what is missing.
    pub(crate) fn number(&self, row: usize) -> Option<f64> {
        match self {
            Self::Text(_) => None,
            Self::Integer(values) => values.get(row).map(|value| *value as f64),
            Self::Real(values) => values.get(row).copied().filter(|value| value.is_finite()),
        }
    }

    fn physical(&self) -> (Physical, Option<LogicalType>) {
        match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Integer(_) => (Physical::INT64, None),
            Self::Real(_) => (Physical::DOUBLE, None),
        }
    }
}

/// Columns of as many values, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    columns: Vec<(String, Column)>,
}

impl Table {
    pub(crate) fn new<N: Into<String>>(columns: impl IntoIterator<Item = (N, Column)>) -> Self {
        let columns = columns.into_iter().map(|(name, column)| (name.into(), column));
        Self { columns: columns.collect() }
    }

    pub(crate) fn push(&mut self, name: &str, column: Column) {
        self.columns.push((name.to_owned(), column));
    }

    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, column)| column)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let field = |(name, column): &(String, Column)| {
            let (physical, logical) = column.physical();
            let builder = Type::primitive_type_builder(name, physical);
            let builder = builder.with_logical_type(logical);
            builder.with_repetition(Repetition::REQUIRED).build().map(Arc::new)
        };
        let fields = self.columns.iter().map(field).collect::<Result<_, _>>()?;
        Type::group_type_builder("gleaner_results").with_fields(fields).build()
    }

    /// The whole file.
    ///
    /// # Errors
    /// None in memory, as far as is known.
    pub(crate) fn to_parquet(&self) -> io::Result<Vec<u8>> {
        let mut writer = TableWriter::begin(vec![], self)?;
        writer.add(self)?;
        writer.finish()
    }

    /// Reads a file, one row group at a time.
    ///
    /// # Errors
    /// A file that cannot be read, or has other types; or those of `take`.
    pub(crate) fn read(
        path: &Path,
        mut take: impl FnMut(Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let reader = SerializedFileReader::new(disk::open(path)?).map_err(into_io)?;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).map_err(into_io)?;
            take(Self::read_group(&*group).map_err(into_io)?)?;
        }
        Ok(())
    }

    fn read_group(group: &dyn RowGroupReader) -> Result<Self, ParquetError> {
        let many = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut table = Self::default();
        for (place, column) in group.metadata().columns().iter().enumerate() {
            let values = match column.column_type() {
                Physical::BYTE_ARRAY => {
                    let texts = read::<ByteArrayType>(group, place, many)?;
                    let texts = texts.iter().map(|text| text.as_utf8().map(str::to_owned));
                    Column::Text(texts.collect::<Result<_, _>>()?)
                }
                Physical::INT64 => Column::Integer(read::<Int64Type>(group, place, many)?),
                Physical::DOUBLE => Column::Real(read::<DoubleType>(group, place, many)?),
                other @ (Physical::BOOLEAN
                | Physical::INT32
                | Physical::INT96
                | Physical::FLOAT
                | Physical::FIXED_LEN_BYTE_ARRAY) => {
                    return Err(ParquetError::General(format!("a column of {other}")));
                }
            };
            table.push(column.column_descr().name(), values);
        }
        Ok(table)
    }
}

/// Writes tables of the same columns one below the other.
pub(super) struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> TableWriter<W> {
    /// # Errors
    /// Those of the destination.
    pub(super) fn begin(to: W, like: &Table) -> io::Result<Self> {
        let schema = like.schema().map_err(into_io)?;
        Ok(Self { writer: begin_file(to, schema)? })
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn add(&mut self, table: &Table) -> io::Result<()> {
        self.try_add(table).map_err(into_io)
    }

    fn try_add(&mut self, table: &Table) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (_, column) in &table.columns {
            match column {
                Column::Text(values) => {
                    let values: Vec<ByteArray> =
                        values.iter().map(|text| text.as_str().into()).collect();
                    write::<ByteArrayType, _>(&mut group, &values)?;
                }
                Column::Integer(values) => write::<Int64Type, _>(&mut group, values)?,
                Column::Real(values) => write::<DoubleType, _>(&mut group, values)?,
            }
        }
        group.close().map(|_| ())
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn finish(self) -> io::Result<W> {
        self.writer.into_inner().map_err(into_io)
    }
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("a table of more columns than the first".to_owned()));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

fn read<T: DataType>(
    group: &dyn RowGroupReader,
    place: usize,
    many: usize,
) -> Result<Vec<T::T>, ParquetError> {
    let mut column = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    let mut values = Vec::with_capacity(many);
    column.read_records(many, None, None, &mut values)?;
    if values.len() == many {
        Ok(values)
    } else {
        Err(ParquetError::General(format!("{} of {many} values of a column", values.len())))
    }
}

/// The same as CSV.
pub(super) struct TableLines<W: Write> {
    writer: ::csv::Writer<W>,
}

impl<W: Write> TableLines<W> {
    /// # Errors
    /// Those of the destination.
    pub(super) fn begin(to: W, like: &Table) -> io::Result<Self> {
        let mut writer = ::csv::Writer::from_writer(to);
        writer.write_record(like.names())?;
        Ok(Self { writer })
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn add(&mut self, table: &Table) -> io::Result<()> {
        for row in 0..table.rows() {
            self.writer.write_record(table.columns.iter().map(|(_, column)| column.text(row)))?;
        }
        Ok(())
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn finish(self) -> io::Result<W> {
        self.writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_what_is_missing_stays_so() {
        let table = Table::new([
            ("policy", Column::Text(vec!["fcfs".into(), "easy".into()])),
            ("jobs", Column::Integer(vec![-1, 54_034])),
            ("wait_s", Column::Real(vec![0.25, f64::NAN])),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        std::fs::write(&path, table.to_parquet().unwrap()).unwrap();
        let mut read = vec![];
        Table::read(&path, |table| {
            read.push(table);
            Ok(())
        })
        .unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].names().collect::<Vec<_>>(), ["policy", "jobs", "wait_s"]);
        assert_eq!(read[0].column("policy"), table.column("policy"));
        let wait = read[0].column("wait_s").unwrap();
        assert_eq!((wait.number(0), wait.number(1), wait.text(1).as_str()), (Some(0.25), None, ""));
        let mut lines = TableLines::begin(vec![], &table).unwrap();
        lines.add(&table).unwrap();
        let text = String::from_utf8(lines.finish().unwrap()).unwrap();
        assert_eq!(text, "policy,jobs,wait_s\nfcfs,-1,0.25\neasy,54034,\n");
    }
}
