//! Rows: what `glean usage` lists, exports and prints with `--json`. Their
//! field names are an interface.

use gleaner_common::usage::{Cause, UsageRecord};
use serde::Serialize;

use crate::name::WorkstationName;
use crate::timeline::{Period, PeriodState};
use crate::wall::spoken_time;
use gleaner_collector_core::summary::Damage;

/// One log, for `glean usage ls`.
#[derive(Clone, Debug, Serialize)]
pub struct LogRow {
    pub workstation: WorkstationName,
    pub records: u64,
    pub first: Option<String>,
    pub last: Option<String>,
    pub boots: usize,
    pub segments: u32,
    pub bytes: u64,
    /// "whole", or what is damaged in one line each.
    pub health: Vec<String>,
}

/// One record, for `glean usage show` and exports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordRow {
    pub workstation: WorkstationName,
    pub at: String,
    pub cause: Cause,
    pub load_1m: f32,
    pub load_5m: f32,
    pub load_15m: f32,
    pub users: u32,
    pub input_idle_s: Option<f64>,
    pub slots: u16,
    pub reason: String,
    pub boot: String,
    pub life: String,
    pub sequence: u64,
    pub since_boot_s: f64,
}

impl RecordRow {
    pub fn new(workstation: &WorkstationName, record: &UsageRecord) -> Self {
        Self {
            workstation: workstation.clone(),
            at: spoken_time(record.at),
            cause: record.cause,
            load_1m: record.load.one,
            load_5m: record.load.five,
            load_15m: record.load.fifteen,
            users: record.users,
            input_idle_s: record.input_idle.map(|idle| idle.as_secs_f64()),
            slots: record.slots,
            reason: record.reason.clone(),
            boot: record.boot.to_string(),
            life: record.life.to_string(),
            sequence: record.sequence,
            since_boot_s: record.since_boot.as_secs_f64(),
        }
    }
}

/// One interpreted period, for `glean usage show --periods` and exports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeriodRow {
    pub workstation: WorkstationName,
    pub state: PeriodState,
    pub start: String,
    pub end: String,
    pub duration_s: f64,
    pub cause: Option<Cause>,
    pub slots: u16,
    /// How far the start may be off either way.
    pub margin_s: f64,
}

impl PeriodRow {
    pub fn new(workstation: &WorkstationName, period: &Period) -> Self {
        Self {
            workstation: workstation.clone(),
            state: period.state,
            start: spoken_time(period.start),
            end: spoken_time(period.end()),
            duration_s: period.duration.as_secs_f64(),
            cause: period.cause,
            slots: period.slots,
            margin_s: period.margin.as_secs_f64(),
        }
    }
}

/// What is damaged or missing, one line each, or "whole".
pub fn health(damage: &[Damage], missing: u64) -> Vec<String> {
    let mut lines: Vec<String> = damage.iter().map(ToString::to_string).collect();
    if missing > 0 {
        lines.push(format!("{missing} records that its agent numbered are not here"));
    }
    if lines.is_empty() {
        lines.push("whole".into());
    }
    lines
}
