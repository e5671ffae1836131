//! A table with typed columns: what either format writes, row by row.

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::UsageRecord;

use crate::name::WorkstationName;
use crate::timeline::Period;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A moment, in nanoseconds since 1970.
    Time,
    /// A length, in seconds.
    Span,
    Load,
    Count,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) optional: bool,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, optional: false }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, optional: true }
}

pub(super) const RECORD_COLUMNS: &[Column] = &[
    column("workstation", Kind::Text),
    column("at", Kind::Time),
    column("cause", Kind::Text),
    column("load_1m", Kind::Load),
    column("load_5m", Kind::Load),
    column("load_15m", Kind::Load),
    column("users", Kind::Count),
    optional("input_idle_s", Kind::Span),
    column("slots", Kind::Count),
    column("reason", Kind::Text),
    column("boot", Kind::Text),
    column("sequence", Kind::Count),
    column("since_boot_s", Kind::Span),
];

pub(super) const PERIOD_COLUMNS: &[Column] = &[
    column("workstation", Kind::Text),
    column("state", Kind::Text),
    column("start", Kind::Time),
    column("end", Kind::Time),
    column("duration_s", Kind::Span),
    optional("cause", Kind::Text),
    column("slots", Kind::Count),
    column("margin_s", Kind::Span),
];

/// A field, of the kind of its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Missing,
    Text(String),
    Time(WallTime),
    Span(Duration),
    Load(f32),
    Count(u64),
}

pub(super) fn record_row(name: &WorkstationName, record: &UsageRecord) -> Vec<Value> {
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
    ]
}

pub(super) fn period_row(name: &WorkstationName, period: &Period) -> Vec<Value> {
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
