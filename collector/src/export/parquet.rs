//! Parquet: times as nanosecond timestamps, lengths as seconds in doubles,
//! Snappy, one row group for every [`GROUP_ROWS`] rows.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::table::{Column, ColumnKind, Value};

/// Rows that are held in memory at a time.
const GROUP_ROWS: usize = 1 << 16;

pub(crate) struct ParquetTable<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: &'static [Column],
    rows: Vec<Vec<Value>>,
}

impl<W: Write + Send> ParquetTable<W> {
    pub(super) fn begin(columns: &'static [Column], to: W) -> io::Result<Self> {
        let fields: Result<Vec<_>, _> =
            columns.iter().map(|column| field(*column).map(Arc::new)).collect();
        let schema = Type::group_type_builder("gleaner_usage")
            .with_fields(fields.map_err(into_io)?)
            .build()
            .map_err(into_io)?;
        Ok(Self { writer: begin_file(to, schema)?, columns, rows: vec![] })
    }

    pub(super) fn add(&mut self, row: Vec<Value>) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() >= GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        let mut to = self.writer.into_inner().map_err(into_io)?;
        to.flush()
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(into_io)?;
        for (place, column) in self.columns.iter().enumerate() {
            let Some(mut writer) = group.next_column().map_err(into_io)? else {
                unreachable!("the schema was made from these columns")
            };
            let fields = self.rows.iter().map(|row| &row[place]);
            write_column(&mut writer, *column, fields).map_err(into_io)?;
            writer.close().map_err(into_io)?;
        }
        group.close().map_err(into_io)?;
        self.rows.clear();
        Ok(())
    }
}

fn field(column: Column) -> Result<Type, ParquetError> {
    let nanos = LogicalType::timestamp(true, TimeUnit::NANOS);
    let (physical, logical) = match column.kind {
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Time => (Physical::INT64, Some(nanos)),
        ColumnKind::Span => (Physical::DOUBLE, None),
        ColumnKind::Load => (Physical::FLOAT, None),
        ColumnKind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
    };
    let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn write_column<'a>(
    writer: &mut SerializedColumnWriter<'_>,
    column: Column,
    fields: impl Iterator<Item = &'a Value> + Clone,
) -> Result<(), ParquetError> {
    // 1 where there is a value, for columns where it may be missing.
    let levels: Option<Vec<i16>> = column
        .optional
        .then(|| fields.clone().map(|field| i16::from(*field != Value::Missing)).collect());
    let levels = levels.as_deref();
    match column.kind {
        ColumnKind::Text => write::<ByteArrayType>(writer, levels, fields, |field| {
            if let Value::Text(text) = field { Some(text.as_str().into()) } else { None }
        }),
        ColumnKind::Time => write::<Int64Type>(writer, levels, fields, |field| {
            if let Value::Time(at) = field { Some(at.0) } else { None }
        }),
        ColumnKind::Count => write::<Int64Type>(writer, levels, fields, |field| {
            if let Value::Count(count) = field { Some(count.cast_signed()) } else { None }
        }),
        ColumnKind::Span => write::<DoubleType>(writer, levels, fields, |field| {
            if let Value::Span(span) = field { Some(span.as_secs_f64()) } else { None }
        }),
        ColumnKind::Load => write::<FloatType>(writer, levels, fields, |field| {
            if let Value::Load(load) = field { Some(*load) } else { None }
        }),
    }
}

fn write<'a, T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    levels: Option<&[i16]>,
    fields: impl Iterator<Item = &'a Value>,
    value: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = fields.filter_map(value).collect();
    writer.typed::<T>().write_batch(&values, levels, None).map(|_| ())
}

/// Begins any Parquet file of ours.
///
/// # Errors
/// Those of the destination.
pub fn begin_file<W: Write + Send>(to: W, schema: Type) -> io::Result<SerializedFileWriter<W>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("gleaner ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties)).map_err(into_io)
}

/// The destination's own error, if it was that which failed.
pub fn into_io(error: ParquetError) -> io::Error {
    let ParquetError::External(inner) = error else { return io::Error::other(error) };
    match inner.downcast::<io::Error>() {
        Ok(error) => *error,
        Err(other) => io::Error::other(other),
    }
}
