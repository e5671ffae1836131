//! Records to test with.

use std::time::Duration;

use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};

use crate::name::WorkstationName;

/// # Panics
/// It is no name.
pub fn name(text: &str) -> WorkstationName {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The record of a boot that began at second 1,700,000,000.
pub fn record(sequence: u64, second: u64, cause: Cause) -> UsageRecord {
    UsageRecord {
        life: SpoolLife([8; 16]),
        boot: BootId([7; 16]),
        sequence,
        at: WallTime::from_unix_s(1_700_000_000 + second.cast_signed()),
        since_boot: Duration::from_secs(second),
        cause,
        load: LoadAverages { one: 0.5, five: 0.25, fifteen: 0.125 },
        users: 1,
        input_idle: Some(Duration::from_secs(60)),
        slots: 2,
        reason: "pts/3, 0.0 s ago".into(),
    }
}
