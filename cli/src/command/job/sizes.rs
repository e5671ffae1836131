//! `glean job ID --gantt`, without a file: the job's size over time, in text.

use std::collections::BTreeSet;

use gleaner_common::report::AttemptRow;
use gleaner_common::time::WallTime;
use serde::Serialize;

use crate::output;

/// The longest bar.
const WIDTH: usize = 40;

/// What the job had from a moment on, and what had happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Held {
    /// Since the job's first attempt.
    pub(super) at_s: f64,
    /// Subprograms or ranks that were somewhere, each counted once.
    pub(super) size: usize,
    pub(super) workstations: usize,
    pub(super) began: u32,
    pub(super) ended: u32,
    pub(super) moved: u32,
    /// Their owners wanted these back.
    pub(super) retreated: u32,
    pub(super) lost: u32,
}

/// The sizes of a job, one for each moment at which anything changed; what
/// happened within a `step` is one.
pub(super) fn sizes(attempts: &[AttemptRow], step: f64) -> Vec<Held> {
    let Some(start) = attempts.iter().map(|row| row.placed).min() else { return vec![] };
    let seconds = |at: WallTime| at.since(start).as_secs_f64();
    let mut moments: Vec<f64> = attempts
        .iter()
        .flat_map(|row| [Some(row.placed), row.ended])
        .flatten()
        .map(seconds)
        .collect();
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    let mut until = f64::NEG_INFINITY;
    moments.retain(|at| {
        let is_new = *at >= until;
        until = if is_new { at + step } else { until };
        is_new
    });
    let last = moments.iter().skip(1).copied().chain([f64::INFINITY]);
    let spans = moments.iter().copied().zip(last);
    spans.map(|(from, to)| size(attempts, &seconds, from, to)).collect()
}

/// What happened from then on and before the next, and what it had after that.
fn size(attempts: &[AttemptRow], seconds: &impl Fn(WallTime) -> f64, from: f64, to: f64) -> Held {
    let is_within = |at: f64| from <= at && at < to;
    let is_open = |row: &&AttemptRow| {
        seconds(row.placed) < to && row.ended.is_none_or(|end| seconds(end) >= to)
    };
    let open = || attempts.iter().filter(is_open);
    let mut size = Held {
        at_s: from,
        size: open().map(|row| row.subprogram).collect::<BTreeSet<_>>().len(),
        workstations: open().map(|row| &row.workstation).collect::<BTreeSet<_>>().len(),
        ..Held::default()
    };
    for row in attempts {
        size.began += u32::from(is_within(seconds(row.placed)));
        if !row.ended.is_some_and(|end| is_within(seconds(end))) {
            continue;
        }
        let how = row.end.as_deref().unwrap_or_default();
        let count = match how.split([' ', ':']).next() {
            Some("moved") => &mut size.moved,
            Some("retreated") => &mut size.retreated,
            Some("lost") => &mut size.lost,
            Some(_) | None => &mut size.ended,
        };
        *count += 1;
    }
    // What has moved began nowhere else.
    size.began = size.began.saturating_sub(size.moved);
    size
}

/// Sizes as lines that people read.
pub(super) fn lines(sizes: &[Held]) -> Vec<String> {
    let most = sizes.iter().map(|size| size.size).max().unwrap_or(0).max(1);
    let width = WIDTH.min(most * 4);
    let line = |size: &Held| {
        let bar = "█".repeat((size.size * width).div_ceil(most));
        let happened = [
            (size.began, "began"),
            (size.ended, "ended"),
            (size.moved, "moved"),
            (size.retreated, "retreated from owners"),
            (size.lost, "lost"),
        ];
        let happened = happened.into_iter().filter(|(count, _)| *count > 0);
        let happened: Vec<String> =
            happened.map(|(count, what)| format!("{count} {what}")).collect();
        let (at, many) = (output::seconds(size.at_s), size.size);
        let (stations, happened) = (size.workstations, happened.join(", "));
        format!("{at:>9}  {many:>5} on {stations:<4} {bar:<width$}  {happened}")
    };
    sizes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::{Fence, JobId, SubprogramId};

    use super::*;

    fn attempt(index: u32, host: &str, from: i64, to: Option<(i64, &str)>) -> AttemptRow {
        AttemptRow {
            replica: 1,
            fence: Fence::of(index),
            subprogram: SubprogramId { job: JobId(7), index },
            workstation: host.into(),
            placed: WallTime::from_unix_s(from),
            ended: to.map(|(at, _)| WallTime::from_unix_s(at)),
            end: to.map(|(_, how)| how.into()),
        }
    }

    #[test]
    fn a_job_grows_and_shrinks_and_what_moves_is_counted_once() {
        let rows = [
            attempt(0, "a", 100, Some((120, "moved to b"))),
            attempt(1, "b", 100, None),
            // On its way while the other stands still.
            attempt(0, "b", 118, None),
            attempt(2, "c", 130, Some((140, "retreated: pts/0, 0 s ago"))),
        ];
        let all = sizes(&rows, 0.0);
        let told: Vec<_> = all.iter().map(|it| (it.at_s, it.size, it.workstations)).collect();
        assert_eq!(told, [(0.0, 2, 2), (18.0, 2, 2), (20.0, 2, 1), (30.0, 3, 2), (40.0, 2, 1)]);
        assert_eq!((all[2].moved, all[4].retreated), (1, 1));
        let few = sizes(&rows, 15.0);
        assert_eq!(few.len(), 3, "{few:?}");
        assert!(lines(&all)[4].ends_with("1 retreated from owners"), "{:?}", lines(&all));
    }

    #[test]
    fn a_job_that_has_not_run_has_no_size() {
        assert_eq!(sizes(&[], 1.0), []);
    }
}
