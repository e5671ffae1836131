//! Results as Parquet: texts with a dictionary, 64-bit integers, and the
//! slowdown as a double that is missing where there is none.

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

use super::columns::{Label, Legend, Measure, Row};

const SLOWDOWN: &str = "slowdown";

/// Writes rows, one row group for each batch of them.
pub(super) struct ParquetResults<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> ParquetResults<W> {
    /// # Errors
    /// Those of the destination.
    pub(super) fn begin(to: W) -> io::Result<Self> {
        let schema = schema().map_err(into_io)?;
        Ok(Self { writer: begin_file(to, schema)? })
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn add(&mut self, legend: &Legend, rows: &[Row]) -> io::Result<()> {
        self.try_add(legend, rows).map_err(into_io)
    }

    fn try_add(&mut self, legend: &Legend, rows: &[Row]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for label in Label::ALL {
            let texts: Vec<ByteArray> =
                legend.texts(label).iter().map(|text| text.as_str().into()).collect();
            let values: Vec<ByteArray> =
                rows.iter().map(|row| texts[usize::from(row.label(label))].clone()).collect();
            write::<ByteArrayType, _>(&mut group, &values, None)?;
        }
        for measure in Measure::ALL {
            let values: Vec<i64> = rows.iter().map(|row| row[measure]).collect();
            write::<Int64Type, _>(&mut group, &values, None)?;
        }
        let slowdowns: Vec<Option<f64>> = rows.iter().map(Row::slowdown).collect();
        let levels: Vec<i16> = slowdowns.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<f64> = slowdowns.into_iter().flatten().collect();
        write::<DoubleType, _>(&mut group, &values, Some(&levels))?;
        group.close().map(|_| ())
    }

    /// # Errors
    /// Those of the destination.
    pub(super) fn finish(self) -> io::Result<W> {
        self.writer.into_inner().map_err(into_io)
    }
}

fn schema() -> Result<Type, ParquetError> {
    let column = |name: &str, physical, logical, repetition| {
        let builder = Type::primitive_type_builder(name, physical);
        builder.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
    };
    let mut fields = vec![];
    for label in Label::ALL {
        let text = Some(LogicalType::String);
        fields.push(column(label.name(), Physical::BYTE_ARRAY, text, Repetition::REQUIRED)?);
    }
    for measure in Measure::ALL {
        fields.push(column(measure.name(), Physical::INT64, None, Repetition::REQUIRED)?);
    }
    fields.push(column(SLOWDOWN, Physical::DOUBLE, None, Repetition::OPTIONAL)?);
    Type::group_type_builder("gleaner_results").with_fields(fields).build()
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        unreachable!("the schema was made from these columns")
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Reads a file of results, one row group at a time.
///
/// # Errors
/// A file that cannot be read, or is not one of ours; or those of `take`.
pub(crate) fn read_rows(
    path: &Path,
    legend: &mut Legend,
    mut take: impl FnMut(&Legend, &[Row]) -> io::Result<()>,
) -> io::Result<()> {
    let reader = SerializedFileReader::new(disk::open(path)?).map_err(into_io)?;
    let columns = reader.metadata().file_metadata().schema_descr();
    let names = Label::ALL.iter().map(|label| label.name());
    let names = names.chain(Measure::ALL.iter().map(|measure| measure.name())).chain([SLOWDOWN]);
    if !columns.columns().iter().map(|column| column.name()).eq(names) {
        return Err(io::Error::other("these are not results of this version's campaigns"));
    }
    let mut rows = vec![];
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(into_io)?;
        read_group(&*group, legend, &mut rows).map_err(into_io)?;
        take(legend, &rows)?;
    }
    Ok(())
}

/// How many rows a file of results holds, by its own account.
///
/// # Errors
/// A file that is not there, not whole, or not one of ours.
pub(super) fn count_rows(path: &Path) -> io::Result<u64> {
    let reader = SerializedFileReader::new(disk::open(path)?).map_err(into_io)?;
    u64::try_from(reader.metadata().file_metadata().num_rows()).map_err(io::Error::other)
}

fn read_group(
    group: &dyn RowGroupReader,
    legend: &mut Legend,
    rows: &mut Vec<Row>,
) -> Result<(), ParquetError> {
    let many = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    rows.clear();
    rows.resize(many, Row::EMPTY);
    for (place, label) in Label::ALL.into_iter().enumerate() {
        // Neighbours are mostly equal: look a text up when it changes.
        let mut last: Option<(ByteArray, u16)> = None;
        for (row, text) in rows.iter_mut().zip(read::<ByteArrayType>(group, place, many)?) {
            let position = match &last {
                Some((known, position)) if *known == text => *position,
                _ => legend
                    .position(label, text.as_utf8()?)
                    .ok_or_else(|| ParquetError::General("too many labels".to_owned()))?,
            };
            row.labels[place] = position;
            last = Some((text, position));
        }
    }
    for (place, measure) in Measure::ALL.iter().enumerate() {
        let values = read::<Int64Type>(group, Label::ALL.len() + place, many)?;
        rows.iter_mut().zip(values).for_each(|(row, value)| row[*measure] = value);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn legend() -> Legend {
        Legend::new([
            vec!["fft".into(), "det".into()],
            vec!["last-idle-first".into()],
            vec!["migrate".into()],
            vec!["as-recorded".into()],
            vec!["night".into(), "morning".into()],
        ])
    }

    fn rows() -> Vec<Row> {
        (0..10)
            .map(|number| {
                let mut row = Row::EMPTY;
                row.labels[Label::Program as usize] = u16::from(number > 4);
                row[Measure::Finished] = i64::from(number != 3);
                row[Measure::ZeroCost] = 100;
                row[Measure::Execution] = 100 + number;
                row[Measure::PeriodStart] = -number;
                row
            })
            .collect()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.parquet");
        let mut writer = ParquetResults::begin(std::fs::File::create(&path).unwrap()).unwrap();
        writer.add(&legend(), &rows()).unwrap();
        writer.add(&legend(), &rows()[..3]).unwrap();
        writer.finish().unwrap();
        let (mut found, mut read) = (Legend::default(), vec![]);
        read_rows(&path, &mut found, |_, rows| {
            read.extend_from_slice(rows);
            Ok(())
        })
        .unwrap();
        assert_eq!(read, [rows(), rows()[..3].to_vec()].concat());
        assert_eq!(found.texts(Label::Program), ["fft", "det"]);
    }

    #[test]
    fn an_execution_that_was_given_up_has_no_slowdown() {
        assert_eq!(rows()[3].slowdown(), None);
        assert_eq!(rows()[5].slowdown(), Some(0.05));
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.parquet");
        std::fs::write(&path, "not parquet at all").unwrap();
        assert!(read_rows(&path, &mut Legend::default(), |_, _| Ok(())).is_err());
    }
}
