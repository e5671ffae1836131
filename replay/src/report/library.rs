//! What a lab's keeper wants to know: how many machine-hours can be had, when,
//! with which policy, at what slowdown, with how many moves.

mod hours;

use std::path::Path;

use gleaner_figure::{Axis, LineChart, Look, Panels, Series};

use super::charts::{Named, points};
use super::cube::{Cube, Dim, Quantity};
use super::document::{Document, count, number, percent};
use super::{Source, WriteReportError};
use crate::results::manifest::{Manifest, OwnerFacts};
use crate::results::{Label, Measure};

const ORACLE: &str = "oracle";
const MOVES: Quantity = Quantity::Count(Measure::Moves);
const TRANSITIONS: Quantity = Quantity::Count(Measure::Transitions);

const QUANTITIES: &[Quantity] = &[
    Quantity::Finished,
    Quantity::Stretch,
    Quantity::Slowdown,
    Quantity::Utilisation,
    Quantity::AtWork,
    Quantity::WastedShare,
    TRANSITIONS,
    MOVES,
    Quantity::Count(Measure::NodesUsed),
    Quantity::Seconds(Measure::SharedComputing),
    Quantity::Seconds(Measure::SharedFrozen),
];

/// Ranks and bags are in cubes of their own: ranks wait for each other, a bag spreads to
/// whatever is idle.
pub(super) fn cubes(manifest: &Manifest) -> Vec<Cube> {
    let choices = &[Dim::Program, Dim::Workstations, Dim::Policy, Dim::OnBusy, Dim::Cost];
    let hours = &[Dim::Workstations, Dim::Policy, Dim::OnBusy, Dim::Hour];
    let of = |bag: bool| {
        let programs = (0..).zip(&manifest.programs).filter(|(_, facts)| facts.bag == bag);
        programs.map(|(place, _)| place).collect::<Vec<u16>>()
    };
    vec![
        Cube::new(choices, QUANTITIES).of(of(false)),
        Cube::new(hours, QUANTITIES).of(of(false)),
        Cube::new(hours, QUANTITIES).of(of(true)),
    ]
}

pub(super) fn write(
    source: &Source,
    cubes: &[Named; 3],
    out: &Path,
) -> Result<Document, WriteReportError> {
    let title = format!("What the lab can give: {}", source.manifest.name);
    let mut document = Document::new(out, &title)?;
    let report = LibraryReport { source, choices: &cubes[0], hours: &cubes[1], bags: &cubes[2] };
    report.answer(&mut document);
    report.machine_hours(&mut document)?;
    report.harvest(&mut document)?;
    report.policies(&mut document)?;
    report.reactions(&mut document)?;
    report.when(&mut document)?;
    document.section("What was executed, and what was left out");
    document.list(&source.left_out());
    Ok(document)
}

struct LibraryReport<'a> {
    source: &'a Source,
    choices: &'a Named,
    hours: &'a Named,
    bags: &'a Named,
}

impl LibraryReport<'_> {
    fn owners(&self) -> &OwnerFacts {
        &self.source.manifest.owners
    }

    fn networks(&self) -> Vec<i64> {
        self.choices.cube.values(Dim::Workstations)
    }

    /// What policies are compared with: to migrate, if that was tried.
    fn usual_reaction(&self) -> i64 {
        self.choices.value(Label::OnBusy, "migrate").unwrap_or(0)
    }

    /// Policies that a lab can have; no lab knows the future.
    fn policies_to_have(&self) -> Vec<i64> {
        let all = self.choices.cube.values(Dim::Policy).into_iter();
        all.filter(|policy| self.choices.name(Dim::Policy, *policy) != ORACLE).collect()
    }

    fn stretch(&self, workstations: i64, policy: i64, reaction: i64) -> Option<f64> {
        let filter =
            [(Dim::Workstations, workstations), (Dim::Policy, policy), (Dim::OnBusy, reaction)];
        self.choices.cube.mean(&filter, Quantity::Stretch)
    }

    /// With the usual reaction.
    fn best_policy(&self, workstations: i64) -> Option<i64> {
        let reaction = self.usual_reaction();
        let policies = self.policies_to_have().into_iter();
        let known = policies
            .filter_map(|policy| Some((policy, self.stretch(workstations, policy, reaction)?)));
        known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(policy, _)| policy)
    }

    /// The policy and reaction with which programs take the least time.
    fn best_pair(&self, workstations: i64) -> Option<(i64, i64, f64)> {
        let reactions = self.choices.cube.values(Dim::OnBusy);
        let pairs = self
            .policies_to_have()
            .into_iter()
            .flat_map(|policy| reactions.iter().map(move |reaction| (policy, *reaction)));
        pairs
            .filter_map(|(policy, reaction)| {
                Some((policy, reaction, self.stretch(workstations, policy, reaction)?))
            })
            .min_by(|a, b| a.2.total_cmp(&b.2))
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
        said.extend(self.networks().into_iter().filter_map(|network| self.best_of(network)));
        said.extend(
            self.bags
                .cube
                .values(Dim::Workstations)
                .into_iter()
                .filter_map(|n| self.most_harvest(n)),
        );
        document.list(&said);
    }

    /// What is best for one network, and what the oracle would add.
    fn best_of(&self, workstations: i64) -> Option<String> {
        let (policy, reaction, stretch) = self.best_pair(workstations)?;
        let filter =
            [(Dim::Workstations, workstations), (Dim::Policy, policy), (Dim::OnBusy, reaction)];
        let mean = |quantity| self.choices.cube.mean(&filter, quantity);
        let oracle = self.choices.value(Label::Policy, ORACLE);
        let oracle = oracle.and_then(|oracle| self.stretch(workstations, oracle, reaction));
        let prophet = oracle.map_or_else(String::new, |stretch| {
            format!("; a prophet's choice of workstations would give {stretch:.2}")
        });
        Some(format!(
            "With {workstations} workstations, {} and {} are best: programs take {stretch:.2} times as long as on workstations \
             that are always idle{prophet}. {:.1} owners return and {:.1} moves are made in an execution; {:.1} % of the \
             executions end with their period.",
            self.choices.name(Dim::Policy, policy),
            self.choices.name(Dim::OnBusy, reaction),
            mean(TRANSITIONS)?,
            mean(MOVES)?,
            100.0 * mean(Quantity::Finished)?
        ))
    }

    fn policies(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let reaction = self.usual_reaction();
        let name = self.choices.name(Dim::OnBusy, reaction);
        document.section("With which policy, at what slowdown, with how many moves");
        let caption = format!("Means by policy, with {name}, over all programs and costs");
        let filter = |_| vec![(Dim::OnBusy, reaction)];
        self.table(document, "policies", &caption, Dim::Policy, &filter)?;
        let panels =
            self.panels("How much longer programs take, by policy", &name, Dim::Policy, &filter);
        let caption =
            "By policy and number of workstations; the oracle knows the future and cannot be had";
        document.figure("policies", caption, &panels)
    }

    fn reactions(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("With which reaction");
        let caption =
            "Means by reaction, with the best policy of each network, over all programs and costs";
        let filter = |workstations| {
            self.best_policy(workstations).map(|policy| (Dim::Policy, policy)).into_iter().collect()
        };
        self.table(document, "reactions", caption, Dim::OnBusy, &filter)?;
        let title = "How much longer programs take, by reaction";
        let panels = self.panels(title, "with the best policy of each", Dim::OnBusy, &filter);
        document.figure("reactions", "By reaction and number of workstations", &panels)?;
        self.programs(document)
    }

    /// Short and long programs, with what is best for each network.
    fn programs(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let caption = "Means by program, with the best policy and reaction of each network";
        let filter = |workstations| match self.best_pair(workstations) {
            Some((policy, reaction, _)) => vec![(Dim::Policy, policy), (Dim::OnBusy, reaction)],
            None => vec![],
        };
        self.table(document, "programs", caption, Dim::Program, &filter)
    }

    /// One chart against cost for each network.
    fn panels(
        &self,
        title: &str,
        subtitle: &str,
        by: Dim,
        filter: &dyn Fn(i64) -> Vec<(Dim, i64)>,
    ) -> Panels {
        let chart = |workstations| {
            let filter = [filter(workstations), vec![(Dim::Workstations, workstations)]].concat();
            let title = self.choices.name(Dim::Workstations, workstations);
            let y_label = "times as long as undisturbed";
            let mut chart =
                self.choices.against_cost(&title, y_label, by, &filter, Quantity::Stretch);
            for series in &mut chart.series {
                series.look = if series.name == ORACLE { Look::Dashed } else { Look::Dotted };
            }
            chart
        };
        Panels {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            columns: 2,
            charts: self.networks().into_iter().map(chart).collect(),
            ..Panels::default()
        }
    }

    fn table(
        &self,
        document: &mut Document,
        name: &str,
        caption: &str,
        by: Dim,
        filter: &dyn Fn(i64) -> Vec<(Dim, i64)>,
    ) -> Result<(), WriteReportError> {
        let cube = &self.choices.cube;
        let mut rows = vec![];
        for workstations in self.networks() {
            for value in cube.values(by) {
                let own = vec![(Dim::Workstations, workstations), (by, value)];
                let filter = [filter(workstations), own].concat();
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
                    number(mean(Quantity::AtWork), 1),
                    percent(mean(Quantity::Utilisation), 1),
                    percent(mean(Quantity::WastedShare), 2),
                    number(mean(Quantity::Seconds(Measure::SharedComputing)), 1),
                ]);
            }
        }
        let what = if by == Dim::Policy {
            "policy"
        } else if by == Dim::OnBusy {
            "on busy"
        } else {
            "program"
        };
        let header = [
            "workstations",
            what,
            "ended",
            "times undisturbed",
            "slowdown by cost",
            "owners' returns",
            "moves",
            "nodes used",
            "machine-hours an hour",
            "idle time used",
            "work in vain",
            "beside owners (s)",
        ];
        document.table(name, caption, &header, &rows)
    }

    fn when(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("At which hour");
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
            let line = |workstations| {
                let (policy, reaction, _) = self.best_pair(workstations)?;
                let filter = [
                    (Dim::Workstations, workstations),
                    (Dim::Policy, policy),
                    (Dim::OnBusy, reaction),
                ];
                let along = cube.along(Dim::Hour, &filter, quantity);
                let name = self.hours.name(Dim::Workstations, workstations);
                Some(Series::new(name, points(&along, |hour| hour as f64)).looking(Look::Dotted))
            };
            let chart = LineChart {
                title: format!("{title}, by hour of the day"),
                subtitle: "with the best policy and reaction of each".to_owned(),
                x_axis: Axis::linear("hour at which the program begins"),
                y_axis: Axis::linear(y),
                series: self.networks().into_iter().filter_map(line).collect(),
                ..LineChart::default()
            };
            document.figure(name, &format!("{title}, by hour of the day"), &chart)?;
        }
        Ok(())
    }
}
