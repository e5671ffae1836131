//! How many machine-hours there are, when, and how many of them work without
//! messages gets.

use gleaner_figure::{Axis, HeatMap, LineChart, Look, Series};

use super::super::WriteReportError;
use super::super::charts::weekday;
use super::super::document::{Document, count, number, percent};
use super::super::interval::Compared;
use super::pairs::{Choice, Where};
use super::{LibraryReport, ORACLE, compared, whole};
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
        let networks = self.bags.networks();
        if networks.is_empty() {
            return Ok(());
        }
        document.section("How many machine-hours work without messages gets");
        for network in &networks {
            document.paragraph(&format!(
                "{network} workstations: {} on average are idle while a bag runs.",
                number(self.idle_meanwhile(*network), 1)
            ));
        }
        let rows: Vec<Vec<String>> = networks
            .iter()
            .flat_map(|network| self.bags.choices().into_iter().map(|it| (*network, it)))
            .map(|(network, choice)| self.harvest_row(network, choice))
            .collect();
        let header = [
            "workstations",
            "policy",
            "on busy",
            "ended",
            "machine-hours an hour",
            "as a part of",
            "so it is",
            "idle time used",
            "work in vain",
            "owners' returns",
            "moves",
            "beside owners (s)",
            "frozen under owners (s)",
        ];
        let caption = format!(
            "Bags of subtasks, over all periods and costs, as a part of what {} get; what it costs owners is of one execution",
            self.spoken(self.usual())
        );
        document.table("harvest", &caption, &header, &rows)?;
        let line = |network: i64| {
            let choice = self.best_harvest(network)?;
            let at = |hour: i64| {
                let of = Where { hour: Some(hour), ..Where::network(network) };
                Some((hour as f64, self.bags.mean(of, choice, |it| it.at_work)?.value))
            };
            let points = (0..24).filter_map(at).collect();
            Some(Series::new(format!("{network} workstations"), points).looking(Look::Dotted))
        };
        let chart = LineChart {
            title: "Machine-hours an hour, by when the work begins".into(),
            x_axis: Axis::linear("hour at which the work begins"),
            y_axis: Axis::linear("workstations at useful work"),
            series: networks.iter().filter_map(|network| line(*network)).collect(),
            ..LineChart::default()
        };
        document.figure(
            "harvest",
            "Bags of subtasks: workstations at useful work, with the best policy and reaction of each",
            &chart,
        )
    }

    fn harvest_row(&self, network: i64, choice: Choice) -> Vec<String> {
        let (of, bags) = (Where::network(network), self.bags);
        let mean = |quantity| bags.mean(of, choice, quantity).map(|it| it.value);
        let share = |part, all| bags.share(of, choice, part, all).map(|part| 100.0 * part);
        let at_work = bags.mean(of, choice, |it| it.at_work);
        let usual = self.usual();
        let against =
            bags.part_of(of, (choice, usual), |it| it.at_work).filter(|_| choice != usual);
        vec![
            network.to_string(),
            self.policy(choice).to_owned(),
            self.reaction(choice).to_owned(),
            percent(mean(|it| f64::from(u8::from(it.ended))).map(|part| 100.0 * part), 1),
            at_work.map_or_else(|| "-".to_owned(), |it| it.spoken(1)),
            against.map_or_else(|| "-".to_owned(), |it| it.spoken(3)),
            against.map_or("-", |it| compared(&it, "less", "more")).to_owned(),
            percent(share(|it| it.useful_s, |it| it.idle_s), 1),
            percent(share(|it| it.wasted_s, |it| it.useful_s + it.wasted_s), 1),
            number(mean(|it| it.returns), 1),
            number(mean(|it| it.moves), 1),
            mean(|it| it.beside_s).map_or_else(|| "-".to_owned(), whole),
            mean(|it| it.frozen_s).map_or_else(|| "-".to_owned(), whole),
        ]
    }

    /// How many workstations are idle while a bag runs.
    fn idle_meanwhile(&self, network: i64) -> Option<f64> {
        let choice = self.best_harvest(network)?;
        let of = Where::network(network);
        self.bags.share(of, choice, |it| it.idle_s, |it| it.took_s)
    }

    /// Of the choices under which nothing computes beside an owner and that get
    /// no less than the best of them, the one that disturbs least.
    fn best_harvest(&self, network: i64) -> Option<Choice> {
        let of = Where::network(network);
        let choices = self.bags.choices().into_iter().filter(|it| self.policy(*it) != ORACLE);
        let known = choices.filter_map(|choice| {
            let beside = self.bags.mean(of, choice, |it| it.beside_s)?.value;
            let at_work = self.bags.mean(of, choice, |it| it.at_work)?.value;
            (beside <= 0.0).then_some((choice, at_work))
        });
        let known: Vec<(Choice, f64)> = known.collect();
        let (best, _) = *known.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let mean =
            |choice, quantity| self.bags.mean(of, choice, quantity).map_or(0.0, |it| it.value);
        let as_much = known.into_iter().filter(|(choice, _)| {
            let part = self.bags.part_of(of, (*choice, best), |it| it.at_work);
            part.is_some_and(|part| part.compared() == Compared::NoDifference)
        });
        let disturbs = |choice| (mean(choice, |it| it.frozen_s), mean(choice, |it| it.moves));
        let gentlest = as_much
            .map(|(choice, _)| (choice, disturbs(choice)))
            .min_by(|a, b| a.1.0.total_cmp(&b.1.0).then(a.1.1.total_cmp(&b.1.1)));
        Some(gentlest.map_or(best, |(choice, _)| choice))
    }

    /// The policy and reaction that get the most, for each network.
    pub(super) fn most_harvest(&self, network: i64) -> Option<String> {
        let (of, choice) = (Where::network(network), self.best_harvest(network)?);
        let at_work = self.bags.mean(of, choice, |it| it.at_work)?;
        let wasted =
            self.bags.share(of, choice, |it| it.wasted_s, |it| it.useful_s + it.wasted_s)?;
        let mean = |quantity| self.bags.mean(of, choice, quantity).map_or(0.0, |it| it.value);
        Some(format!(
            "Work without messages gets {} machine-hours an hour out of {network} workstations, of which {} are idle \
             meanwhile, with {}; {:.1} % of it is done in vain. A bag meets {:.0} owners' returns, computes for 0 s beside \
             owners, and stands still or leaves for {} s under them.",
            at_work.spoken(1),
            number(self.idle_meanwhile(network), 1),
            self.spoken(choice),
            100.0 * wasted,
            mean(|it| it.returns),
            whole(mean(|it| it.frozen_s))
        ))
    }
}
