//! `glean job ID --gantt`: who ran where, and who moved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};
use gleaner_common::report::{AttemptRow, JobRow, SubprogramRow};
use gleaner_common::time::WallTime;
use gleaner_common::wire::Request;
use gleaner_figure::{Arrow, Axis, Bar, Colour, Figure as _, Gantt, GanttKind};
use gleaner_shell::client::Client;

use super::attempts;
use super::sizes::{lines, sizes};
use crate::ask;
use crate::failure::hinted;
use crate::output;

/// More than this nobody can read.
pub(super) const SUBPROGRAMS_MAX: u32 = 2_000;

/// More changes than this are told together.
const LINES_MAX: f64 = 60.0;

/// How an attempt ended is the colour of its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ByItself,
    Moved,
    Retreated,
    Lost,
    GoesOn,
}

impl End {
    fn of(row: &AttemptRow) -> Self {
        match row.end.as_deref() {
            None => Self::GoesOn,
            Some(end) if end.starts_with("moved") => Self::Moved,
            Some(end) if end.starts_with("retreated") => Self::Retreated,
            Some(end) if end.starts_with("lost") => Self::Lost,
            Some(_) => Self::ByItself,
        }
    }

    fn kinds() -> Vec<GanttKind> {
        vec![
            GanttKind::new("ended by itself", Colour(0, 114, 178)),
            GanttKind::new("moved on", Colour(86, 180, 233)),
            GanttKind::new("retreated", Colour(204, 121, 167)),
            GanttKind::new("lost", Colour(213, 94, 0)),
            GanttKind::new("goes on", Colour(0, 158, 115)),
        ]
    }
}

/// Asks for every attempt of the job and draws them.
///
/// # Errors
/// More subprograms than can be drawn, no answer, or a file that cannot be
/// written.
pub(super) async fn draw(
    client: &Client,
    job: &JobRow,
    rows: &[SubprogramRow],
    to: &Path,
) -> Result<()> {
    let attempts = all_attempts(client, job, rows).await?;
    let now = job.ended.unwrap_or_else(|| gleaner_shell::clock::Clock.wall());
    let figure = gantt(job, attempts, now).ok_or_else(|| has_not_run(job))?;
    output::figure(to, &figure, figure.natural_size())?;
    output::say(&format!("{} shows who ran where", to.display()));
    Ok(())
}

/// Says the same in text: the job's size over time.
///
/// # Errors
/// More subprograms than can be drawn, or no answer.
pub(super) async fn tell(
    client: &Client,
    job: &JobRow,
    rows: &[SubprogramRow],
    json: bool,
) -> Result<()> {
    let attempts = all_attempts(client, job, rows).await?;
    if json {
        return sizes(&attempts, 0.0).iter().try_for_each(output::record);
    }
    let changes = sizes(&attempts, 0.0);
    let last = changes.last().ok_or_else(|| has_not_run(job))?;
    let step = last.at_s / LINES_MAX;
    let told = if changes.len() as f64 > LINES_MAX { sizes(&attempts, step) } else { changes };
    output::lines(lines(&told).into_iter())
}

fn has_not_run(job: &JobRow) -> anyhow::Error {
    hinted(
        format!("nothing of job {} has run yet", job.job),
        format!("glean why {} tells what it waits for", job.job),
    )
}

async fn all_attempts(
    client: &Client,
    job: &JobRow,
    rows: &[SubprogramRow],
) -> Result<Vec<AttemptRow>> {
    let all = job.summary.total;
    if all > SUBPROGRAMS_MAX {
        bail!("job {} has {all} subprograms: at most {SUBPROGRAMS_MAX} can be drawn", job.job);
    }
    let all = std::sync::Mutex::new(vec![]);
    ask::each(rows, async |row| {
        let found = attempts(client, &Request::Attempts(row.subprogram)).await?;
        all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found);
        Ok(())
    })
    .await?;
    Ok(all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// `None` if there is nothing to draw.
fn gantt(job: &JobRow, mut attempts: Vec<AttemptRow>, now: WallTime) -> Option<Gantt> {
    attempts.sort_by_key(|row| (row.placed, row.fence));
    let start = attempts.first()?.placed;
    let seconds = |at: WallTime| at.since(start).as_secs_f64();
    let mut lanes = Lanes::new(&attempts);
    let mut last: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
    let (mut bars, mut arrows) = (vec![], vec![]);
    for row in &attempts {
        let (from, to) = (seconds(row.placed), seconds(row.ended.unwrap_or(now)));
        let lane = lanes.take(&row.workstation, from, to);
        let index = row.subprogram.index;
        let kind = End::of(row) as usize;
        bars.push(Bar { lane, start: from, end: to, kind, label: index.to_string() });
        if let Some(before) = last.insert(index, (lane, to)) {
            arrows.push(Arrow { from: before, to: (lane, from.max(before.1)), kind: 0 });
        }
    }
    let moved = attempts.iter().filter(|row| End::of(row) == End::Moved).count();
    let end = bars.iter().map(|bar| bar.end).fold(1e-3, f64::max);
    let (job, name, many) = (job.job, &job.name, attempts.len());
    Some(Gantt {
        title: format!("job {job}, {name}"),
        subtitle: format!("{many} attempts, {moved} moves"),
        time_axis: Axis::linear("time (s)").from_to(0.0, end),
        lanes: lanes.names(),
        bar_kinds: End::kinds(),
        bars,
        arrow_kinds: vec![GanttKind::new("went on there", Colour(213, 94, 0))],
        arrows,
        shade_kinds: vec![],
        shades: vec![],
    })
}

/// A workstation has as many lanes as it ran at once.
struct Lanes {
    /// For each workstation, when each of its lanes is free again.
    free: BTreeMap<String, Vec<(usize, f64)>>,
    names: Vec<String>,
}

impl Lanes {
    fn new(attempts: &[AttemptRow]) -> Self {
        let hosts: BTreeSet<&String> = attempts.iter().map(|row| &row.workstation).collect();
        let names: Vec<String> = hosts.into_iter().cloned().collect();
        let free = names.iter().cloned().enumerate();
        let free = free.map(|(lane, name)| (name, vec![(lane, 0.0)])).collect();
        Self { free, names }
    }

    fn take(&mut self, workstation: &str, from: f64, to: f64) -> usize {
        let lanes = self.free.entry(workstation.to_owned()).or_default();
        if let Some((lane, free)) = lanes.iter_mut().find(|(_, free)| *free <= from) {
            *free = to;
            return *lane;
        }
        let lane = self.names.len();
        lanes.push((lane, to));
        self.names.push(format!("{workstation} ({})", lanes.len()));
        lane
    }

    fn names(self) -> Vec<String> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::{Fence, JobId, SubprogramId};

    use super::*;
    use crate::command::show::tests::a_job;

    fn attempt(
        fence: u32,
        index: u32,
        host: &str,
        from: i64,
        to: Option<(i64, &str)>,
    ) -> AttemptRow {
        AttemptRow {
            replica: 1,
            fence: Fence::of(fence),
            subprogram: SubprogramId { job: JobId(7), index },
            workstation: host.into(),
            placed: WallTime::from_unix_s(from),
            ended: to.map(|(at, _)| WallTime::from_unix_s(at)),
            end: to.map(|(_, how)| how.into()),
        }
    }

    #[test]
    fn what_ran_side_by_side_has_lanes_of_its_own_and_moves_are_arrows() {
        let rows = vec![
            attempt(1, 0, "a", 100, Some((110, "moved to b"))),
            attempt(2, 1, "a", 100, Some((130, "succeeded"))),
            attempt(3, 0, "b", 110, None),
            attempt(4, 2, "a", 115, Some((120, "lost: the lease ended"))),
        ];
        let figure = gantt(&a_job(), rows, WallTime::from_unix_s(140)).unwrap();
        assert_eq!(figure.lanes, ["a", "b", "a (2)"]);
        let bars: Vec<_> = figure.bars.iter().map(|bar| (bar.lane, bar.end, bar.kind)).collect();
        assert_eq!(bars, [(0, 10.0, 1), (2, 30.0, 0), (1, 40.0, 4), (0, 20.0, 3)]);
        assert_eq!(figure.arrows, [Arrow { from: (0, 10.0), to: (1, 10.0), kind: 0 }]);
        assert!(figure.subtitle.ends_with("1 moves"), "{}", figure.subtitle);
    }

    #[test]
    fn a_job_that_has_not_run_has_no_picture() {
        assert!(gantt(&a_job(), vec![], WallTime::from_unix_s(1)).is_none());
    }
}
