//! Numbers records and fills in what every form of them has.

use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{LoadAverages, UsageRecord};

use super::life::OwnerDoing;
use super::truth::IDLE_LOAD;
use crate::import::Observation;
use crate::name::WorkstationName;
use crate::origin::Origin;

/// Writes the log of one workstation.
pub(super) struct RecordWriter {
    name: WorkstationName,
    seed: u64,
    cores: u16,
    boot: BootId,
    boot_start: WallTime,
    sequence: u64,
    meter: LoadMeter,
    pub(super) records: Vec<UsageRecord>,
}

impl RecordWriter {
    pub(super) fn new(name: WorkstationName, seed: u64, cores: u16) -> Self {
        Self {
            name,
            seed,
            cores,
            boot: BootId([0; 16]),
            boot_start: WallTime(0),
            sequence: 0,
            meter: LoadMeter::default(),
            records: vec![],
        }
    }

    pub(super) fn boot(&mut self, origin: Origin, at: WallTime) {
        self.boot = origin.seeded_boot(&self.name, at, self.seed);
        (self.boot_start, self.sequence) = (at, 0);
        self.meter = LoadMeter { at, ..LoadMeter::default() };
    }

    pub(super) fn write(&mut self, observed: Observation) {
        self.sequence += 1;
        let since_boot = observed.at.since(self.boot_start);
        self.records.push(observed.into_record(self.boot, self.sequence, since_boot));
    }

    /// All three averages, when the one-minute average has been `one` since
    /// the last time this was asked and is `now` from here on.
    pub(super) fn averages(&mut self, at: WallTime, now: f64) -> LoadAverages {
        self.meter.advance(at);
        self.meter.level = now;
        self.meter.averages()
    }

    /// Cores free of the owner: load up to the criterion takes none, and
    /// whoever is there has one at the least.
    pub(super) fn slots(&self, doing: OwnerDoing, load: f64) -> u16 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "floats saturate, and a load is small"
        )]
        let loaded = (load - IDLE_LOAD).ceil().max(0.0) as u16;
        let at_hand = match doing {
            OwnerDoing::Visited | OwnerDoing::Loaded => 1,
            OwnerDoing::Away | OwnerDoing::Pausing | OwnerDoing::Stopped => 0,
        };
        self.cores.saturating_sub(loaded.max(at_hand))
    }
}

/// The five and fifteen minute averages that follow a one-minute average.
#[derive(Clone, Copy, Debug, Default)]
struct LoadMeter {
    at: WallTime,
    level: f64,
    five: f64,
    fifteen: f64,
}

impl LoadMeter {
    fn advance(&mut self, at: WallTime) {
        let s = at.since(self.at).as_secs_f64();
        let follow =
            |average: f64, over_s: f64| self.level + (average - self.level) * (-s / over_s).exp();
        (self.five, self.fifteen) = (follow(self.five, 300.0), follow(self.fifteen, 900.0));
        self.at = at;
    }

    #[expect(clippy::cast_possible_truncation, reason = "records hold loads as f32")]
    fn averages(&self) -> LoadAverages {
        // Two digits, as `uptime` prints: a third digit would be made up twice over.
        let hundredths = |load: f64| ((load * 100.0).round() / 100.0) as f32;
        LoadAverages {
            one: hundredths(self.level),
            five: hundredths(self.five),
            fifteen: hundredths(self.fifteen),
        }
    }
}
