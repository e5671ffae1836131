//! Charts of usage logs: the week, how long periods last, and availability.
//!
//! Knows of timelines and charts; what they look like is `gleaner-figure`'s.

mod availability;
mod lengths;
mod page;
mod week;

use std::path::Path;

use gleaner_common::time::WallTime;
use gleaner_figure::Figure;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::archive::{ReadArchiveError, Span};
use crate::load::{LoadOptions, timelines};
use crate::progress::Progress;
use crate::timeline::{Readings, Timeline};
use crate::wall::system_zone;

gleaner_common::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PlotKind {
        /// Heat map: the part of time that is idle, by hour and day of the week.
        Week = "week",
        /// The part of idle and of busy periods that last longer.
        Survival = "survival",
        /// How many workstations are idle and busy, over time.
        Availability = "availability",
    }
}

pub use self::page::{Page, PageError, PageFigures, Price, page};

/// What `plot` asks for.
#[derive(Clone, Debug)]
pub struct PlotOptions {
    /// Empty: all workstations.
    pub names: Vec<String>,
    pub span: Span,
    pub readings: Readings,
    /// Whose hours and days; `None` is the machine's own zone.
    pub zone: Option<TimeZone>,
}

/// A chart, and what was strange about the logs.
pub struct Plot {
    pub figure: Box<dyn Figure>,
    pub notes: Vec<String>,
}

/// Why there is no chart.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    #[error(transparent)]
    Read(#[from] ReadArchiveError),
    #[error("nothing to plot: no period of the logs is known and lies in that time")]
    Nothing,
}

/// Draws the logs of a data directory.
///
/// # Errors
/// Logs that cannot be read, or that have nothing to draw.
pub fn plot(
    data: &Path,
    kind: PlotKind,
    options: &PlotOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Plot, PlotError> {
    let wanted = LoadOptions {
        names: options.names.clone(),
        span: options.span,
        readings: options.readings.clone(),
    };
    let loaded = timelines(data, &wanted, progress)?;
    let zone = options.zone.clone().unwrap_or_else(system_zone);
    let timelines: Vec<&Timeline> = loaded.timelines.iter().map(|(_, timeline)| timeline).collect();
    let figure = chart(kind, &timelines, options.span, &zone).ok_or(PlotError::Nothing)?;
    Ok(Plot { figure, notes: loaded.notes() })
}

/// Draws timelines; `None` if nothing of them is known in that time.
pub fn chart(
    kind: PlotKind,
    timelines: &[&Timeline],
    span: Span,
    zone: &TimeZone,
) -> Option<Box<dyn Figure>> {
    let scope = Scope::of(timelines, span, zone)?;
    Some(match kind {
        PlotKind::Week => Box::new(week::chart(timelines, &scope)),
        PlotKind::Survival => Box::new(lengths::chart(timelines, &scope)?),
        PlotKind::Availability => Box::new(availability::chart(timelines, &scope)),
    })
}

/// What a chart is of.
struct Scope {
    span: Span,
    zone: TimeZone,
    workstations: usize,
    from: WallTime,
    to: WallTime,
}

impl Scope {
    fn of(timelines: &[&Timeline], span: Span, zone: &TimeZone) -> Option<Self> {
        let mut scope: Option<Self> = None;
        for timeline in timelines {
            let mut periods = known(timeline, span).map(|period| (period.start, period.end()));
            let Some(first) = periods.next() else { continue };
            let ends = periods.fold(first, |ends, one| (ends.0.min(one.0), ends.1.max(one.1)));
            let scope = scope.get_or_insert_with(|| Self {
                span,
                zone: zone.clone(),
                workstations: 0,
                from: ends.0,
                to: ends.1,
            });
            scope.workstations += 1;
            (scope.from, scope.to) = (scope.from.min(ends.0), scope.to.max(ends.1));
        }
        scope
    }

    fn spoken(&self) -> String {
        let day = |at: WallTime| local(at, &self.zone).strftime("%-d %B %Y").to_string();
        // The last moment that belongs to the stretch.
        let last = WallTime(self.to.0.saturating_sub(1));
        let (from, to) = (day(self.from), day(last));
        let zone = self.zone.iana_name().map(|name| format!(", {name}")).unwrap_or_default();
        let machines = if self.workstations == 1 { "workstation" } else { "workstations" };
        let days = if from == to { from } else { format!("{from} to {to}") };
        format!("{} {machines}, {days}{zone}", self.workstations)
    }
}

/// The idle and busy periods in a span, cut to it.
fn known(timeline: &Timeline, span: Span) -> impl Iterator<Item = crate::timeline::Period> + '_ {
    let cut = timeline.periods.iter().filter_map(move |period| crate::stats::clip(period, span));
    cut.filter(|period| period.state != crate::timeline::PeriodState::Unknown)
}

fn local(at: WallTime, zone: &TimeZone) -> jiff::civil::DateTime {
    let moment = Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::UNIX_EPOCH);
    zone.to_datetime(moment)
}

#[cfg(test)]
mod tests;
