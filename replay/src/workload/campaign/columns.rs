//! What is in a row of the results.
//!
//! An axis says where in the grid a run is, a measure what came of it. Both
//! are called the same in results, in printed tables and in reports.

use super::plan::RunRow;
use crate::results::table::{Column, Table};
use crate::workload::Outcome;

/// Axes that are texts.
pub(crate) const TEXTS: [&str; 4] = ["workload", "policy", "site", "range"];

/// All axes, in the order of the columns.
pub(crate) const AXES: [&str; 11] = [
    "workload",
    "policy",
    "site",
    "range",
    "processors",
    "speed",
    "malleable",
    "gap_s",
    "negotiation_s",
    "adaptation_s",
    "repeat",
];

/// A measure's name, and how it is had.
type Named<T> = (&'static str, fn(&RunRow) -> T);

const COUNTS: [Named<u64>; 9] = [
    ("jobs", |row| row.summary.ended + row.summary.refused + row.summary.left),
    ("ended", |row| row.summary.ended),
    ("refused", |row| row.summary.refused),
    ("left", |row| row.summary.left),
    ("negotiations", |row| row.summary.negotiations),
    ("adaptations", |row| row.summary.adaptations),
    ("cycles", |row| row.summary.cycles),
    ("taken_by_owners", |row| row.summary.taken_by_owners),
    ("returned", |row| row.summary.returned),
];

const NUMBERS: [Named<f64>; 16] = [
    ("utilisation", |row| row.summary.held()),
    ("useful", |row| row.summary.useful()),
    ("turnaround_s", |row| row.summary.mean_turnaround_s()),
    // Over all jobs, where one that was refused takes no time.
    ("turnaround_all_s", |row| {
        let all = row.summary.ended + row.summary.refused + row.summary.left;
        row.summary.mean_turnaround_s() * row.summary.ended as f64 / all as f64
    }),
    ("wait_s", |row| row.summary.mean_wait_s()),
    ("execution_s", |row| row.summary.mean_execution_s()),
    ("span_s", |row| row.summary.span().as_secs_f64()),
    ("slowdown", |row| row.summary.mean_slowdown()),
    ("profit", |row| row.summary.profit),
    ("mean_size", |row| row.summary.mean_size()),
    ("running", |row| row.summary.mean_running()),
    ("jobs_per_s", |row| row.summary.jobs_per_s()),
    ("used_s", |row| row.summary.used_s),
    ("lost_s", |row| row.summary.lost_s),
    // The same in what processors do in a second, which differs by their clock.
    ("excess", |row| row.summary.lost_s * row.speed),
    ("available_s", |row| row.summary.available_s),
];

/// Is this a column of text, or one of numbers? `None` if it is no axis.
pub(crate) fn axis(name: &str) -> Option<bool> {
    AXES.contains(&name).then(|| TEXTS.contains(&name))
}

pub(crate) fn measure(name: &str) -> bool {
    let counts = COUNTS.iter().map(|(name, _)| *name);
    counts.chain(NUMBERS.iter().map(|(name, _)| *name)).any(|known| known == name)
}

/// The axes of runs.
pub(super) fn axes(rows: &[&RunRow]) -> Table {
    let text = |of: fn(&RunRow) -> String| Column::Text(rows.iter().map(|row| of(row)).collect());
    let number = |of: fn(&RunRow) -> f64| Column::Real(rows.iter().map(|row| of(row)).collect());
    let whole = |of: fn(&RunRow) -> u32| {
        Column::Integer(rows.iter().map(|row| i64::from(of(row))).collect())
    };
    let columns = [
        text(|row| row.workload.clone()),
        text(|row| row.policy.to_owned()),
        text(|row| row.site.clone()),
        text(|row| row.range.clone()),
        whole(|row| row.processors),
        number(|row| row.speed),
        whole(|row| row.malleable),
        number(|row| row.gap_s),
        number(|row| row.negotiation_s),
        number(|row| row.adaptation_s),
        whole(|row| row.repeat),
    ];
    Table::new(AXES.into_iter().zip(columns))
}

/// Runs as a table.
pub(crate) fn runs(rows: &[RunRow]) -> Table {
    let mut table = axes(&rows.iter().collect::<Vec<_>>());
    for (name, of) in COUNTS {
        let values = rows.iter().map(|row| i64::try_from(of(row)).unwrap_or(i64::MAX));
        table.push(name, Column::Integer(values.collect()));
    }
    for (name, of) in NUMBERS {
        table.push(name, Column::Real(rows.iter().map(of).collect()));
    }
    table
}

/// The jobs of runs as a table, each with the axes of its run.
pub(super) fn jobs(rows: &[RunRow]) -> Table {
    let of_job: Vec<&RunRow> =
        rows.iter().flat_map(|row| row.outcomes.iter().map(move |_| row)).collect();
    let all = || rows.iter().flat_map(|row| &row.outcomes);
    let mut table = axes(&of_job);
    let seconds = |moment: gleaner_common::time::Moment| {
        std::time::Duration::from_nanos(moment.0).as_secs_f64()
    };
    table.push("class", Column::Text(all().map(|job| job.class.name().to_owned()).collect()));
    let whole =
        |values: &mut dyn Iterator<Item = u32>| Column::Integer(values.map(i64::from).collect());
    table.push("job", whole(&mut all().map(|job| job.job.0)));
    table.push("submitted_s", Column::Real(all().map(|job| seconds(job.submitted)).collect()));
    table.push("started_s", Column::Real(all().map(|job| seconds(job.started)).collect()));
    table.push("ended_s", Column::Real(all().map(|job| seconds(job.ended)).collect()));
    let span = |spans: &mut dyn Iterator<Item = std::time::Duration>| {
        Column::Real(spans.map(|span| span.as_secs_f64()).collect())
    };
    table.push("wait_s", span(&mut all().map(Outcome::wait)));
    table.push("execution_s", span(&mut all().map(Outcome::execution)));
    table.push("turnaround_s", span(&mut all().map(Outcome::turnaround)));
    table.push("slowdown", Column::Real(all().map(Outcome::slowdown).collect()));
    table.push("size", whole(&mut all().map(|job| job.size)));
    table.push("largest", whole(&mut all().map(|job| job.largest)));
    table.push("mean_size", Column::Real(all().map(Outcome::mean_size).collect()));
    table.push("used_s", Column::Real(all().map(|job| job.used_s).collect()));
    table.push("adaptations", whole(&mut all().map(|job| job.adaptations)));
    table.push("profit", Column::Real(all().map(|job| job.profit).collect()));
    table
}
