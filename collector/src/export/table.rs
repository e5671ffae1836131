//! A table with typed columns: what either format writes, row by row.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::UsageRecord;

use crate::name::WorkstationName;
use crate::timeline::Period;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    /// A moment, in nanoseconds since 1970.
    Time,
    /// A length, in seconds.
    Span,
    Load,
    Count,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: ColumnKind,
    pub(crate) optional: bool,
}

const fn column(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, optional: false }
}

const fn optional(name: &'static str, kind: ColumnKind) -> Column {
    Column { name, kind, optional: true }
}

pub(crate) const RECORD_COLUMNS: &[Column] = &[
    column("workstation", ColumnKind::Text),
    column("at", ColumnKind::Time),
    column("cause", ColumnKind::Text),
    column("load_1m", ColumnKind::Load),
    column("load_5m", ColumnKind::Load),
    column("load_15m", ColumnKind::Load),
    column("users", ColumnKind::Count),
    optional("input_idle_s", ColumnKind::Span),
    column("slots", ColumnKind::Count),
    column("reason", ColumnKind::Text),
    column("boot", ColumnKind::Text),
    column("sequence", ColumnKind::Count),
    column("since_boot_s", ColumnKind::Span),
    column("life", ColumnKind::Text),
];

pub(crate) const PERIOD_COLUMNS: &[Column] = &[
    column("workstation", ColumnKind::Text),
    column("state", ColumnKind::Text),
    column("start", ColumnKind::Time),
    column("end", ColumnKind::Time),
    column("duration_s", ColumnKind::Span),
    optional("cause", ColumnKind::Text),
    column("slots", ColumnKind::Count),
    column("margin_s", ColumnKind::Span),
];

/// A field, of the kind of its column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Missing,
    Text(String),
    Time(WallTime),
    Span(Duration),
    Load(f32),
    Count(u64),
}

pub(crate) fn record_row(name: &WorkstationName, record: &UsageRecord) -> Vec<Value> {
    vec![
        Value::Text(name.to_string()),
        Value::Time(record.at),
        Value::Text(record.cause.name().into()),
        Value::Load(record.load.one),
        Value::Load(record.load.five),
        Value::Load(record.load.fifteen),
        Value::Count(record.users.into()),
        record.input_idle.map_or(Value::Missing, Value::Span),
        Value::Count(record.slots.into()),
        Value::Text(record.reason.clone()),
        Value::Text(record.boot.to_string()),
        Value::Count(record.sequence),
        Value::Span(record.since_boot),
        Value::Text(record.life.to_string()),
    ]
}

pub(crate) fn period_row(name: &WorkstationName, period: &Period) -> Vec<Value> {
    vec![
        Value::Text(name.to_string()),
        Value::Text(period.state.name().into()),
        Value::Time(period.start),
        Value::Time(period.end()),
        Value::Span(period.duration),
        period.cause.map_or(Value::Missing, |cause| Value::Text(cause.name().into())),
        Value::Count(period.slots.into()),
        Value::Span(period.margin),
    ]
}
