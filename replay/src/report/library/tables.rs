//! Policies, reactions, programs and hours beside each other: each gain with
//! its cost to owners.

use gleaner_figure::{Axis, LineChart, Look, Series};

use super::super::WriteReportError;
use super::super::document::{Document, number, percent};
use super::super::interval::Estimate;
use super::pairs::{Choice, Where};
use super::{LibraryReport, ORACLE, compared, whole};
use crate::results::Label;

/// A row's choice, what it is called, and what it is measured against.
struct Line {
    of: Where,
    name: String,
    choice: Choice,
    against: Choice,
}

impl LibraryReport<'_> {
    pub(super) fn policies(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("With which policy, at what slowdown, with how many moves");
        let usual = self.usual();
        let mut lines = vec![];
        for network in self.ranks.networks() {
            lines.extend(self.policies_with(usual.1).into_iter().map(|(choice, name)| Line {
                of: Where::network(network),
                name,
                choice,
                against: usual,
            }));
        }
        let caption = format!(
            "By policy, with {}, over all programs, periods and costs; measured against {}",
            self.reaction(usual),
            self.policy(usual)
        );
        self.table(document, ("policies", &caption, "policy"), &lines)?;
        let title = "How much longer programs take, by policy (geometric means)";
        let panels = self.panels(title, self.reaction(usual), &|_| self.policies_with(usual.1));
        let caption = "By policy and number of workstations, on one scale; the oracle knows the future and cannot be had";
        document.figure("policies", caption, &panels)
    }

    fn policies_with(&self, reaction: u16) -> Vec<(Choice, String)> {
        let choices = self.ranks.choices().into_iter().filter(|choice| choice.1 == reaction);
        choices.map(|choice| (choice, self.policy(choice).to_owned())).collect()
    }

    pub(super) fn reactions(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("With which reaction");
        let with_best = |network| {
            let (policy, _) = self.best_policy(network).unwrap_or(self.usual());
            let choices = self.ranks.choices().into_iter().filter(move |it| it.0 == policy);
            choices.map(|it| (it, self.reaction(it).to_owned())).collect::<Vec<_>>()
        };
        let usual = self.usual();
        let mut lines = vec![];
        for network in self.ranks.networks() {
            lines.extend(with_best(network).into_iter().map(|(choice, name)| Line {
                of: Where::network(network),
                name,
                choice,
                against: (choice.0, usual.1),
            }));
        }
        let caption = format!(
            "By reaction, with the best policy of each network, over all programs, periods and costs; measured against {}",
            self.reaction(usual)
        );
        self.table(document, ("reactions", &caption, "on busy"), &lines)?;
        let title = "How much longer programs take, by reaction (geometric means)";
        let panels = self.panels(title, "with the best policy of each", &with_best);
        document.figure(
            "reactions",
            "By reaction and number of workstations, on one scale",
            &panels,
        )?;
        self.programs(document)
    }

    /// Short and long programs, with what is best for each network.
    fn programs(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let mut lines = vec![];
        for network in self.ranks.networks() {
            let Some(choice) = self.best_choice(network) else { continue };
            lines.extend(self.ranks.programs().iter().map(|program| Line {
                of: Where { program: Some(*program), ..Where::network(network) },
                name: self.legend.text(Label::Program, *program).to_owned(),
                choice,
                against: self.usual(),
            }));
        }
        let caption = format!(
            "By program, with the best policy and reaction of each network; measured against {}",
            self.spoken(self.usual())
        );
        self.table(document, ("programs", &caption, "program"), &lines)
    }

    fn table(
        &self,
        document: &mut Document,
        (name, caption, what): (&str, &str, &str),
        lines: &[Line],
    ) -> Result<(), WriteReportError> {
        let rows: Vec<Vec<String>> = lines.iter().map(|line| self.row(line)).collect();
        let header = [
            "workstations",
            what,
            "ended",
            "median times undisturbed",
            "geometric mean",
            "time against",
            "so it is",
            "moves",
            "moves against",
            "owners' returns",
            "beside owners (s)",
            "frozen under owners (s)",
        ];
        document.table(name, caption, &header, &rows)
    }

    fn row(&self, line: &Line) -> Vec<String> {
        let Line { of, name, choice, against } = line;
        let pairs = self.ranks;
        let mean = |quantity| pairs.mean(*of, *choice, quantity).map(|it| it.value);
        let spoken = |it: Option<Estimate>, digits| {
            it.map_or_else(|| "-".to_owned(), |it| it.spoken(digits))
        };
        let is_it = choice == against;
        let time = pairs.time_against(*of, *choice, *against).filter(|_| !is_it);
        let moves = pairs.part_of(*of, (*choice, *against), |it| it.moves).filter(|_| !is_it);
        vec![
            of.workstations.to_string(),
            if name == ORACLE { "oracle (no bound)".to_owned() } else { name.clone() },
            percent(mean(|it| f64::from(u8::from(it.ended))).map(|part| 100.0 * part), 1),
            number(pairs.median(*of, *choice), 3),
            spoken(pairs.stretch(*of, *choice), 3),
            spoken(time, 3),
            time.map_or("-", |time| compared(&time, "faster", "slower")).to_owned(),
            number(mean(|it| it.moves), 2),
            spoken(moves, 2),
            number(mean(|it| it.returns), 2),
            mean(|it| it.beside_s).map_or_else(|| "-".to_owned(), whole),
            mean(|it| it.frozen_s).map_or_else(|| "-".to_owned(), whole),
        ]
    }

    pub(super) fn when(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("At which hour");
        self.by_hour(
            document,
            ("hour-stretch", "How much longer programs take", "times as long as undisturbed"),
            |of, choice| self.ranks.stretch(of, choice),
        )?;
        self.by_hour(
            document,
            ("hour-returns", "Owners' returns an execution", "owners' returns"),
            |of, choice| self.ranks.mean(of, choice, |it| it.returns),
        )
    }

    fn by_hour(
        &self,
        document: &mut Document,
        (name, title, y_label): (&str, &str, &str),
        value: impl Fn(Where, Choice) -> Option<Estimate>,
    ) -> Result<(), WriteReportError> {
        let line = |network| {
            let choice = self.best_choice(network)?;
            let at = |hour: i64| {
                let of = Where { hour: Some(hour), ..Where::network(network) };
                Some((hour as f64, value(of, choice)?.value))
            };
            let points = (0..24).filter_map(at).collect();
            Some(Series::new(format!("{network} workstations"), points).looking(Look::Dotted))
        };
        let chart = LineChart {
            title: format!("{title}, by hour of the day"),
            subtitle: "with the best policy and reaction of each".to_owned(),
            x_axis: Axis::linear("hour at which the program begins"),
            y_axis: Axis::linear(y_label),
            series: self.ranks.networks().into_iter().filter_map(line).collect(),
            ..LineChart::default()
        };
        document.figure(name, &format!("{title}, by hour of the day"), &chart)
    }
}
