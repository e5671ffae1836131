//! What a lab's keeper wants to know: how many machine-hours can be had, when,
//! with which policy, at what slowdown, with how many moves.

use std::path::Path;

use gleaner_figure::{Axis, HeatMap, LineChart, Look, Panels, Series};

use super::charts::{Named, points, weekday};
use super::cube::{Cube, Dim, Quantity};
use super::document::{Document, count, number, percent};
use super::{Source, WriteReportError};
use crate::results::Measure;
use crate::results::manifest::{IDLE_LENGTHS_MIN, OwnerFacts};

const MOVES: Quantity = Quantity::Count(Measure::Moves);
const TRANSITIONS: Quantity = Quantity::Count(Measure::Transitions);

const QUANTITIES: &[Quantity] = &[
    Quantity::Finished,
    Quantity::Stretch,
    Quantity::Slowdown,
    Quantity::Utilisation,
    Quantity::WastedShare,
    TRANSITIONS,
    MOVES,
    Quantity::Count(Measure::NodesUsed),
    Quantity::Seconds(Measure::SharedComputing),
    Quantity::Seconds(Measure::SharedFrozen),
];

pub(super) fn cubes() -> Vec<Cube> {
    let choices = &[Dim::Program, Dim::Workstations, Dim::Policy, Dim::OnBusy, Dim::Cost];
    let hours = &[Dim::Workstations, Dim::Policy, Dim::OnBusy, Dim::Hour, Dim::Weekday];
    vec![Cube::new(choices, QUANTITIES), Cube::new(hours, QUANTITIES)]
}

pub(super) fn write(
    source: &Source,
    cubes: &[Named; 2],
    out: &Path,
) -> Result<Document, WriteReportError> {
    let title = format!("What the lab can give: {}", source.manifest.name);
    let mut document = Document::new(out, &title)?;
    let report = Report { source, choices: &cubes[0], hours: &cubes[1] };
    report.answer(&mut document);
    report.machine_hours(&mut document)?;
    report.policies(&mut document)?;
    report.reactions(&mut document)?;
    report.when(&mut document)?;
    document.section("What was executed, and what was left out");
    document.list(&source.left_out());
    Ok(document)
}

struct Report<'a> {
    source: &'a Source,
    choices: &'a Named,
    hours: &'a Named,
}

impl Report<'_> {
    fn owners(&self) -> &OwnerFacts {
        &self.source.manifest.owners
    }

    /// Policies that a lab can have, the best first: over everything else,
    /// those with which programs take the least time.
    fn ranking(&self) -> Vec<(i64, f64)> {
        let cube = &self.choices.cube;
        let mut ranking: Vec<(i64, f64)> = cube
            .values(Dim::Policy)
            .into_iter()
            .filter(|policy| self.choices.name(Dim::Policy, *policy) != "oracle")
            .filter_map(|policy| {
                Some((policy, cube.mean(&[(Dim::Policy, policy)], Quantity::Stretch)?))
            })
            .collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }

    /// Likewise the reactions.
    fn reaction_ranking(&self, policy: i64) -> Vec<(i64, f64)> {
        let cube = &self.choices.cube;
        let mut ranking: Vec<(i64, f64)> = cube
            .values(Dim::OnBusy)
            .into_iter()
            .filter_map(|reaction| {
                let filter = [(Dim::Policy, policy), (Dim::OnBusy, reaction)];
                Some((reaction, cube.mean(&filter, Quantity::Stretch)?))
            })
            .collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }

    fn answer(&self, document: &mut Document) {
        document.section("The answer");
        let mut said = vec![];
        let owners = self.owners();
        let idle: u64 = owners.idle_s.iter().sum();
        let all = idle + owners.busy_s.iter().chain(&owners.unknown_s).sum::<u64>();
        if all > 0 && owners.days > 0 && owners.workstations > 0 {
            said.push(format!(
                "{} workstations stood idle for {} machine-hours in {} days: {} a day, {:.1} hours of the day for each ({:.0} % of the time).",
                owners.workstations,
                count(idle / 3_600),
                owners.days,
                count(idle / 3_600 / u64::from(owners.days)),
                idle as f64 / 3_600.0 / f64::from(owners.days) / f64::from(owners.workstations),
                100.0 * idle as f64 / all as f64
            ));
            said.extend(self.best_hours());
        }
        let ranking = self.ranking();
        if let (Some((best, stretch)), Some((worst, most))) = (ranking.first(), ranking.last()) {
            said.push(format!(
                "The best policy that needs no prophecy is {}: programs take {stretch:.2} times as long as on workstations \
                 that are always idle; with {}, the worst, {most:.2} times.",
                self.choices.name(Dim::Policy, *best),
                self.choices.name(Dim::Policy, *worst)
            ));
            said.extend(self.best_reaction(*best));
        }
        document.list(&said);
    }

    fn best_hours(&self) -> Option<String> {
        let owners = self.owners();
        let share = |hour: usize| {
            let idle = *owners.idle_s.get(hour)? as f64;
            let all = idle + *owners.busy_s.get(hour)? as f64 + *owners.unknown_s.get(hour)? as f64;
            (all > 0.0).then(|| (hour, idle / all))
        };
        let shares: Vec<(usize, f64)> = (0..168).filter_map(share).collect();
        let most = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let least = shares.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let spoken = |hour: usize| {
            let day = i64::try_from(hour / 24).unwrap_or(0);
            format!("{} {:02}:00", weekday(day), hour % 24)
        };
        let machines = f64::from(owners.workstations);
        Some(format!(
            "The most are idle on {} ({:.0} of {}), the fewest on {} ({:.0}).",
            spoken(most.0),
            most.1 * machines,
            owners.workstations,
            spoken(least.0),
            least.1 * machines
        ))
    }

    fn best_reaction(&self, policy: i64) -> Option<String> {
        let ranking = self.reaction_ranking(policy);
        let (reaction, stretch) = ranking.first()?;
        let filter = [(Dim::Policy, policy), (Dim::OnBusy, *reaction)];
        let cube = &self.choices.cube;
        Some(format!(
            "With it, the best reaction is {}: {stretch:.2} times as long, {:.1} moves an execution, {:.1} owners' returns.",
            self.choices.name(Dim::OnBusy, *reaction),
            cube.mean(&filter, MOVES)?,
            cube.mean(&filter, TRANSITIONS)?
        ))
    }

    fn machine_hours(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("How many machine-hours, and when");
        let owners = self.owners();
        if owners.idle_s.len() != 168 {
            document.paragraph("The log has no idle time.");
            return Ok(());
        }
        let value = |hour: usize| {
            let all = owners.idle_s[hour] + owners.busy_s[hour] + owners.unknown_s[hour];
            (all > 0)
                .then(|| f64::from(owners.workstations) * owners.idle_s[hour] as f64 / all as f64)
        };
        let map = HeatMap {
            title: "Idle workstations through the week".into(),
            subtitle: format!("of {}, on average", owners.workstations),
            rows: (0..7).map(|day| weekday(day).to_owned()).collect(),
            columns: (0..24).map(|hour| format!("{hour:02}")).collect(),
            column_label: "hour of the day".into(),
            values: (0..7)
                .map(|day| (0..24).map(|hour| value(day * 24 + hour)).collect())
                .collect(),
            value_label: "idle workstations".into(),
            missing_name: "nothing known".into(),
            ..HeatMap::default()
        };
        document.figure("idle-week", "Idle workstations by hour of the week", &map)?;
        let total: u64 = owners.idle_s_by_length.iter().sum();
        let mut longer = total;
        let mut rows = vec![];
        for (place, seconds) in owners.idle_s_by_length.iter().enumerate() {
            let from = place.checked_sub(1).map_or(0, |place| IDLE_LENGTHS_MIN[place]);
            let to = IDLE_LENGTHS_MIN.get(place);
            rows.push(vec![
                to.map_or_else(|| format!("over {from} min"), |to| format!("{from} to {to} min")),
                count(seconds / 3_600),
                percent((total > 0).then(|| 100.0 * *seconds as f64 / total as f64), 1),
                percent((total > 0).then(|| 100.0 * longer as f64 / total as f64), 1),
            ]);
            longer -= seconds;
        }
        let header = ["idle period", "machine-hours", "of all", "in such or longer"];
        document.table("idle-lengths", "In how long pieces the machine-hours come", &header, &rows)
    }

    fn policies(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("With which policy, at what slowdown, with how many moves");
        self.table(
            document,
            "policies",
            "Means by policy, over all programs, reactions and costs",
            Dim::Policy,
        )?;
        let charts: Vec<LineChart> = self
            .choices
            .cube
            .values(Dim::Workstations)
            .into_iter()
            .map(|workstations| {
                let filter = [(Dim::Workstations, workstations)];
                let title = self.choices.name(Dim::Workstations, workstations);
                let mut chart = self.choices.against_cost(
                    &title,
                    "times as long as undisturbed",
                    Dim::Policy,
                    &filter,
                    Quantity::Stretch,
                );
                for series in &mut chart.series {
                    series.look = if series.name == "oracle" { Look::Dashed } else { Look::Dotted };
                }
                chart
            })
            .collect();
        let panels = Panels {
            title: "How much longer programs take, by policy".into(),
            columns: 2,
            charts,
            ..Panels::default()
        };
        document.figure(
            "policies",
            "By policy and number of workstations; the oracle knows the future and cannot be had",
            &panels,
        )
    }

    fn reactions(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("With which reaction");
        self.table(
            document,
            "reactions",
            "Means by reaction, over all programs, policies and costs",
            Dim::OnBusy,
        )?;
        let chart = self.choices.against_cost(
            "How much longer programs take, by reaction",
            "times as long as undisturbed",
            Dim::OnBusy,
            &[],
            Quantity::Stretch,
        );
        document.figure("reactions", "By reaction", &chart)
    }

    fn table(
        &self,
        document: &mut Document,
        name: &str,
        caption: &str,
        by: Dim,
    ) -> Result<(), WriteReportError> {
        let cube = &self.choices.cube;
        let mut rows = vec![];
        for workstations in cube.values(Dim::Workstations) {
            for value in cube.values(by) {
                let filter = [(Dim::Workstations, workstations), (by, value)];
                let mean = |quantity| cube.mean(&filter, quantity);
                rows.push(vec![
                    workstations.to_string(),
                    self.choices.name(by, value),
                    percent(mean(Quantity::Finished).map(|part| 100.0 * part), 1),
                    number(mean(Quantity::Stretch), 3),
                    percent(mean(Quantity::Slowdown), 1),
                    number(mean(TRANSITIONS), 2),
                    number(mean(MOVES), 2),
                    number(mean(Quantity::Count(Measure::NodesUsed)), 1),
                    percent(mean(Quantity::Utilisation), 1),
                    percent(mean(Quantity::WastedShare), 2),
                    number(mean(Quantity::Seconds(Measure::SharedComputing)), 1),
                ]);
            }
        }
        let what = if by == Dim::Policy { "policy" } else { "on busy" };
        let header = [
            "workstations",
            what,
            "ended",
            "times undisturbed",
            "slowdown by cost",
            "owners' returns",
            "moves",
            "nodes used",
            "idle time used",
            "work in vain",
            "beside owners (s)",
        ];
        document.table(name, caption, &header, &rows)
    }

    fn when(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("At which hour");
        let Some((best, _)) = self.ranking().first().copied() else { return Ok(()) };
        let cube = &self.hours.cube;
        for (quantity, name, y, title) in [
            (
                Quantity::Stretch,
                "hour-stretch",
                "times as long as undisturbed",
                "How much longer programs take",
            ),
            (TRANSITIONS, "hour-returns", "owners' returns", "Owners' returns an execution"),
        ] {
            let series = cube.values(Dim::Workstations).into_iter().map(|workstations| {
                let filter = [(Dim::Workstations, workstations), (Dim::Policy, best)];
                let along = cube.along(Dim::Hour, &filter, quantity);
                Series::new(
                    self.hours.name(Dim::Workstations, workstations),
                    points(&along, |hour| hour as f64),
                )
                .looking(Look::Dotted)
            });
            let chart = LineChart {
                title: format!("{title}, by hour of the day"),
                subtitle: self.hours.name(Dim::Policy, best),
                x_axis: Axis::linear("hour at which the program begins"),
                y_axis: Axis::linear(y),
                series: series.collect(),
                ..LineChart::default()
            };
            document.figure(
                name,
                &format!(
                    "{title}, by hour of the day, with {}",
                    self.hours.name(Dim::Policy, best)
                ),
                &chart,
            )?;
        }
        Ok(())
    }
}
