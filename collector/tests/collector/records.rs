//! Records to test with, and what a data directory holds of them.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use gleaner_collector::archive::Archive;
use gleaner_collector::name::WorkstationName;
use gleaner_collector::store::Batch;
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};

pub(crate) fn name(text: &str) -> WorkstationName {
    text.parse().unwrap()
}

/// A record with its own values in every field.
pub(crate) fn record(sequence: u64) -> UsageRecord {
    let causes = Cause::ALL;
    let part = f32::from(u16::try_from(sequence % 100).unwrap()) / 100.0;
    UsageRecord {
        life: SpoolLife([4; 16]),
        boot: BootId([3; 16]),
        sequence,
        at: WallTime(1_767_600_000_123_456_789 + i64::try_from(sequence).unwrap() * 1_000_000_007),
        since_boot: Duration::from_nanos(sequence * 1_000_000_007),
        cause: causes[usize::try_from(sequence).unwrap() % causes.len()],
        load: LoadAverages { one: part, five: part / 3.0, fifteen: part / 7.0 },
        users: u32::try_from(sequence % 5).unwrap(),
        input_idle: (!sequence.is_multiple_of(3)).then(|| Duration::from_millis(sequence * 17)),
        slots: u16::try_from(sequence % 4).unwrap(),
        reason: format!("pts/{sequence}, \"0.0 s\" ago; ü"),
    }
}

pub(crate) fn batch(workstation: &str, sequences: std::ops::RangeInclusive<u64>) -> Batch {
    Batch::of(name(workstation), sequences.map(record).collect())
}

/// All records of a workstation, in the order they are on disk.
#[track_caller]
pub(crate) fn kept(data: &Path, workstation: &str) -> Vec<UsageRecord> {
    let mut records = vec![];
    Archive::new(data)
        .read(&name(workstation), |record| {
            records.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    records
}
