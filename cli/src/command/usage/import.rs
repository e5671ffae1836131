//! `glean usage import`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gleaner_collector::name::WorkstationName;
use gleaner_collector::usage::{self, HOLD_MAX, ImportFormat, ImportOptions, ImportSummary};
use gleaner_common::time::WallTime;
use gleaner_common::units::parse_duration;
use jiff::tz::TimeZone;

use super::during;
use crate::failure::{Verdict, hinted};
use crate::flags::{UsageArchive, time};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// rwho (what ruptime -a and rwho -a printed), csv (what export writes), sessions (host,start,end), last (what last
    /// prints), uncg (machine,state,timestamp), avt or fta (availability traces).
    #[arg(long)]
    pub format: ImportFormat,
    /// Files, gzip or not, or directories of them, in order of time; - is standard input.
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<PathBuf>,
    /// uncg, sessions, last: whose local time the rows have, such as `America/New_York` [default: UTC].
    #[arg(long, value_name = "ZONE", value_parser = super::generate::zone)]
    pub zone: Option<TimeZone>,
    /// uncg: leave out what this table of computers does not call a desktop.
    #[arg(long, value_name = "TABLE")]
    pub only_desktops: Option<PathBuf>,
    /// uncg: a state that is held for longer is no data [default: 7d].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub hold_max: Option<Duration>,
    /// avt: when the trace began, such as 2005-09-12T00:00:00Z [default: 1970].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub starts: Option<WallTime>,
    /// last: whose sessions these are [default: each file is named after its workstation].
    #[arg(long, value_name = "NAME")]
    pub workstation: Option<WorkstationName>,
    /// One record of what came in.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub usage: UsageArchive,
}

impl ImportArgs {
    /// An option that another format has no use for is a mistake.
    fn options(&self) -> Result<ImportOptions> {
        let is = |format| self.format == format;
        let has_local_times =
            is(ImportFormat::Uncg) || is(ImportFormat::Sessions) || is(ImportFormat::Last);
        for (given, fits, option) in [
            (self.zone.is_some(), has_local_times, "--zone"),
            (self.only_desktops.is_some(), is(ImportFormat::Uncg), "--only-desktops"),
            (self.hold_max.is_some(), is(ImportFormat::Uncg), "--hold-max"),
            (self.starts.is_some(), is(ImportFormat::Avt), "--starts"),
            (self.workstation.is_some(), is(ImportFormat::Last), "--workstation"),
        ] {
            if given && !fits {
                let hint = "glean usage import --help says which options each format has";
                return Err(hinted(format!("{option} means nothing for this format"), hint));
            }
        }
        Ok(ImportOptions {
            format: self.format,
            sources: self.sources.clone(),
            zone: self.zone.clone(),
            only_desktops: self.only_desktops.clone(),
            hold_max: self.hold_max.unwrap_or(HOLD_MAX),
            starts: self.starts,
            workstation: self.workstation.clone(),
        })
    }
}

pub(super) fn import(args: &ImportArgs) -> Result<Verdict> {
    let (data, options) = (args.usage.directory()?, args.options()?);
    let summary = during("importing", |show| usage::import(&data, &options, show))?;
    output::told(args.json, &summary, || spoken(&summary).join("\n"))?;
    Ok(Verdict::Yes)
}

/// What came in, and what did not.
fn spoken(summary: &ImportSummary) -> Vec<String> {
    let mut lines = vec![format!(
        "{} new records of {} workstations; {} were there already",
        summary.new, summary.workstations, summary.duplicates
    )];
    let local = summary.local_times;
    let counted = [
        (summary.repeated_rows, "rows repeat the state held already: merged".to_owned()),
        (
            summary.overlong,
            format!(
                "states were held too long to be believed, {:.0} h in all: no data",
                summary.overlong_h
            ),
        ),
        (
            summary.left_out_rows,
            format!(
                "rows of {} computers that are no desktops were left out, {} of them of computers that the table says nothing of",
                summary.left_out_workstations, summary.unlisted_rows
            ),
        ),
        (
            local.twice,
            "local times came twice: taken for the first, where that keeps them in order"
                .to_owned(),
        ),
        (
            local.never,
            "local times never came: taken for when the clock was put forward".to_owned(),
        ),
        (summary.empty_intervals, "intervals have no length: left out".to_owned()),
        (
            summary.overlapping_sessions,
            format!("of {} sessions overlap one before them: merged", summary.sessions),
        ),
        (summary.unended_sessions, "sessions have an end that nobody saw: left out".to_owned()),
    ];
    let there = counted.iter().filter(|(many, _)| *many > 0);
    lines.extend(there.map(|(many, what)| format!("{many} {what}")));
    lines
}
