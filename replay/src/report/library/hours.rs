//! How many machine-hours there are, when, and how many of them work without
//! messages gets.

use gleaner_figure::{Axis, HeatMap, LineChart, Look, Series};

use super::super::WriteReportError;
use super::super::charts::{points, weekday};
use super::super::cube::{Dim, Quantity};
use super::super::document::{Document, count, number, percent};
use super::{LibraryReport, MOVES, TRANSITIONS};
use crate::results::manifest::IDLE_LENGTHS_MIN;

impl LibraryReport<'_> {
    pub(super) fn machine_hours(&self, document: &mut Document) -> Result<(), WriteReportError> {
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

    pub(super) fn best_hours(&self) -> Option<String> {
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

    /// What a bag of subtasks got: work that needs no messages.
    pub(super) fn harvest(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let cube = &self.bags.cube;
        let networks = cube.values(Dim::Workstations);
        if networks.is_empty() {
            return Ok(());
        }
        document.section("How many machine-hours work without messages gets");
        let mut rows = vec![];
        for workstations in &networks {
            for policy in cube.values(Dim::Policy) {
                for reaction in cube.values(Dim::OnBusy) {
                    let filter = [
                        (Dim::Workstations, *workstations),
                        (Dim::Policy, policy),
                        (Dim::OnBusy, reaction),
                    ];
                    let mean = |quantity| cube.mean(&filter, quantity);
                    rows.push(vec![
                        workstations.to_string(),
                        self.bags.name(Dim::Policy, policy),
                        self.bags.name(Dim::OnBusy, reaction),
                        percent(mean(Quantity::Finished).map(|part| 100.0 * part), 1),
                        number(mean(Quantity::AtWork), 1),
                        percent(mean(Quantity::Utilisation), 1),
                        percent(mean(Quantity::WastedShare), 1),
                        number(mean(TRANSITIONS), 1),
                        number(mean(MOVES), 1),
                    ]);
                }
            }
        }
        let header = [
            "workstations",
            "policy",
            "on busy",
            "ended",
            "machine-hours an hour",
            "idle time used",
            "work in vain",
            "owners' returns",
            "moves",
        ];
        document.table(
            "harvest",
            "Bags of subtasks, means over all periods and costs",
            &header,
            &rows,
        )?;
        let line = |workstations: i64| {
            let along =
                cube.along(Dim::Hour, &[(Dim::Workstations, workstations)], Quantity::AtWork);
            let name = self.bags.name(Dim::Workstations, workstations);
            Series::new(name, points(&along, |hour| hour as f64)).looking(Look::Dotted)
        };
        let chart = LineChart {
            title: "Machine-hours an hour, by when the work begins".into(),
            x_axis: Axis::linear("hour at which the work begins"),
            y_axis: Axis::linear("workstations at useful work"),
            series: networks.iter().map(|network| line(*network)).collect(),
            ..LineChart::default()
        };
        document.figure(
            "harvest",
            "Bags of subtasks: workstations at useful work, over all policies and reactions",
            &chart,
        )
    }

    /// The policy and reaction that get the most, for each network.
    pub(super) fn most_harvest(&self, workstations: i64) -> Option<String> {
        let cube = &self.bags.cube;
        let reactions = cube.values(Dim::OnBusy);
        let pairs = self
            .policies_to_have()
            .into_iter()
            .flat_map(|policy| reactions.iter().map(move |reaction| (policy, *reaction)));
        let found = pairs.filter_map(|(policy, reaction)| {
            let filter =
                [(Dim::Workstations, workstations), (Dim::Policy, policy), (Dim::OnBusy, reaction)];
            let mean = |quantity| cube.mean(&filter, quantity);
            Some((policy, reaction, mean(Quantity::AtWork)?, mean(Quantity::WastedShare)?))
        });
        let (policy, reaction, at_work, wasted) = found.max_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(format!(
            "Work without messages gets {at_work:.1} machine-hours an hour out of {workstations} workstations with {} and \
             {}; {wasted:.1} % of it is done in vain.",
            self.bags.name(Dim::Policy, policy),
            self.bags.name(Dim::OnBusy, reaction)
        ))
    }
}
