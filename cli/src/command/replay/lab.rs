//! Which workstations take part in a replay, and when.

use std::time::Duration;

use anyhow::Result;
use gleaner_collector::load::{LoadOptions, timelines};
use gleaner_collector::timeline::{Reading, Readings};
use gleaner_common::time::WallTime;
use gleaner_common::units::parse_duration;
use gleaner_replay::campaign::criterion::CriterionChoice;
use gleaner_replay::{Lab, Order, Selection, Usage};

use crate::command::usage::InterpretArgs;
use crate::failure::hinted;
use crate::flags::{self, UsageArchive};
use crate::{output, values};

#[derive(Debug, clap::Args)]
pub struct LabArgs {
    #[command(flatten)]
    pub archive: UsageArchive,
    /// How many workstations take part.
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub workstations: u32,
    /// When it begins, such as 2026-11-20T10:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = flags::time)]
    pub at: WallTime,
    /// What has not ended so long after it began is given up.
    #[arg(long, value_name = "SPAN", value_parser = parse_duration, default_value = "6h")]
    pub length: Duration,
    /// What counts as idle: as-recorded, or such as load:0.5 or tty:5min.
    #[arg(long, value_name = "CRITERION", default_value = "as-recorded")]
    pub criterion: CriterionChoice,
    #[command(flatten)]
    pub interpret: InterpretArgs,
    /// Draw the workstations with this seed instead of taking the first ones by name.
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,
}

impl LabArgs {
    /// The owners' past.
    pub(super) fn usage(&self) -> Result<Usage> {
        let (all, logs) = self.interpret.split();
        let (interpretation, criterion) = (all.unwrap_or_default(), self.criterion.criterion);
        let readings = Readings { all: Reading { interpretation, criterion }, logs };
        let options = LoadOptions { readings, ..LoadOptions::default() };
        let loaded = timelines(&self.archive.directory()?, &options, &mut |_| ())?;
        output::notes(&loaded.notes());
        Ok(Usage::from_timelines(loaded.timelines))
    }

    /// The workstations that have one.
    pub(super) fn select(&self, usage: &Usage) -> Result<Lab> {
        let order = self.shuffle.map_or(Order::AsRead, |seed| Order::Shuffled { seed });
        let (start, span, count) = (self.at, self.length, self.workstations);
        Lab::select(usage, &Selection { start, span, count, order }).map_err(|error| {
            let said = match usage.span() {
                Some((from, to)) => format!(
                    "the log of {} workstations goes from {} to {}; a shorter --length asks less of it",
                    usage.workstations(),
                    gleaner_collector::wall::spoken_time(from),
                    gleaner_collector::wall::spoken_time(to)
                ),
                None => "the log is empty".to_owned(),
            };
            hinted(error.to_string(), said)
        })
    }
}
