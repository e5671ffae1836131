//! What a lab's keeper wants to know: how many machine-hours can be had, when,
//! with which policy, at what slowdown, with how many moves, and what it costs
//! the owners.
//!
//! The promise: nothing is called better or worse that the weeks do not bear
//! out, and no gain is printed without its cost to owners.

mod hours;
mod pairs;
mod tables;

use std::collections::BTreeSet;
use std::path::Path;

use gleaner_figure::{Axis, LineChart, Look, Panels, Series, series_colour};

use self::pairs::{Choice, Outcome, Where};
use super::charts::seconds;
use super::document::{Document, count};
use super::interval::{Compared, DRAWS, Estimate, SEED, WEEKS_MIN};
use super::{Source, WriteReportError};
use crate::results::manifest::{Manifest, OwnerFacts};
use crate::results::{Label, Legend};

pub(super) use self::pairs::Pairs;

const ORACLE: &str = "oracle";
const LAST_IDLE_FIRST: &str = "last-idle-first";
const MIGRATE: &str = "migrate";

/// Ranks and bags are told apart: ranks wait for each other, a bag spreads to
/// whatever is idle.
pub(super) fn pairs(manifest: &Manifest) -> [Pairs; 2] {
    [false, true].map(|bag| {
        let programs = (0..).zip(&manifest.programs).filter(|(_, facts)| facts.bag == bag);
        Pairs::of(programs.map(|(place, _)| place).collect())
    })
}

pub(super) fn write(
    source: &Source,
    [ranks, bags]: &[Pairs; 2],
    legend: &Legend,
    out: &Path,
) -> Result<Document, WriteReportError> {
    let title = format!("What the lab can give: {}", source.manifest.name);
    let mut document = Document::new(out, &title)?;
    let report = LibraryReport { source, ranks, bags, legend };
    report.answer(&mut document);
    report.method(&mut document);
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
    ranks: &'a Pairs,
    bags: &'a Pairs,
    legend: &'a Legend,
}

impl LibraryReport<'_> {
    fn owners(&self) -> &OwnerFacts {
        &self.source.manifest.owners
    }

    fn policy(&self, (policy, _): Choice) -> &str {
        self.legend.text(Label::Policy, policy)
    }

    fn reaction(&self, (_, reaction): Choice) -> &str {
        self.legend.text(Label::OnBusy, reaction)
    }

    fn spoken(&self, choice: Choice) -> String {
        format!("{} and {}", self.policy(choice), self.reaction(choice))
    }

    fn place(&self, label: Label, text: &str) -> u16 {
        let place = self.legend.texts(label).iter().position(|known| known == text);
        place.and_then(|place| u16::try_from(place).ok()).unwrap_or(0)
    }

    /// What everything is measured against: the thesis's own choice, if it was
    /// tried.
    fn usual(&self) -> Choice {
        (self.place(Label::Policy, LAST_IDLE_FIRST), self.place(Label::OnBusy, MIGRATE))
    }

    /// Policies that a lab can have; no lab knows the future.
    fn policies_to_have(&self, pairs: &Pairs) -> Vec<u16> {
        let policies = pairs.choices().into_iter().filter(|choice| self.policy(*choice) != ORACLE);
        let policies: BTreeSet<u16> = policies.map(|(policy, _)| policy).collect();
        policies.into_iter().collect()
    }

    fn reactions_of(pairs: &Pairs) -> Vec<u16> {
        let reactions: BTreeSet<u16> =
            pairs.choices().into_iter().map(|(_, reaction)| reaction).collect();
        reactions.into_iter().collect()
    }

    /// Of the choices that take no longer than the fastest, as far as can be
    /// told, the one that disturbs least.
    fn gentlest_of_the_fast(
        pairs: &Pairs,
        network: Where,
        choices: &[Choice],
        disturbs: fn(&Outcome) -> f64,
    ) -> Option<Choice> {
        let known = choices
            .iter()
            .filter_map(|choice| Some((*choice, pairs.stretch(network, *choice)?.value)));
        let (fastest, _) = known.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let as_fast = |choice: &&Choice| {
            let against = pairs.time_against(network, **choice, fastest);
            against.is_some_and(|against| against.compared() == Compared::NoDifference)
        };
        let disturbance =
            |choice: &Choice| pairs.mean(network, *choice, disturbs).map_or(0.0, |it| it.value);
        let gentlest =
            choices.iter().filter(as_fast).min_by(|a, b| disturbance(a).total_cmp(&disturbance(b)));
        Some(gentlest.copied().unwrap_or(fastest))
    }

    /// With the usual reaction.
    fn best_policy(&self, network: i64) -> Option<Choice> {
        let usual = self.usual();
        let choices: Vec<Choice> =
            self.policies_to_have(self.ranks).into_iter().map(|policy| (policy, usual.1)).collect();
        Self::gentlest_of_the_fast(self.ranks, Where::network(network), &choices, |it| it.moves)
    }

    /// With that policy, of the reactions under which nothing computes beside
    /// an owner.
    fn best_choice(&self, network: i64) -> Option<Choice> {
        let (policy, _) = self.best_policy(network)?;
        let of = Where::network(network);
        let quiet = |choice: &Choice| {
            self.ranks.mean(of, *choice, |it| it.beside_s).is_some_and(|it| it.value <= 0.0)
        };
        let choices: Vec<Choice> = Self::reactions_of(self.ranks)
            .into_iter()
            .map(|reaction| (policy, reaction))
            .filter(quiet)
            .collect();
        Self::gentlest_of_the_fast(self.ranks, of, &choices, |it| it.frozen_s)
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
        said.extend(self.bags.networks().into_iter().filter_map(|n| self.most_harvest(n)));
        for network in self.ranks.networks() {
            said.extend(self.policy_said(network));
            said.extend(self.reaction_said(network));
            said.extend(self.beside_owners_said(network));
        }
        document.list(&said);
    }

    fn policy_said(&self, network: i64) -> Option<String> {
        let (of, best) = (Where::network(network), self.best_policy(network)?);
        let usual = self.usual();
        if best == usual {
            return Some(format!(
                "With {network} workstations, no policy is both as fast as {} and moves less.",
                self.policy(usual)
            ));
        }
        let time = self.ranks.time_against(of, best, usual)?;
        let moves = self.ranks.part_of(of, (best, usual), |it| it.moves);
        let moves = moves
            .map_or_else(String::new, |moves| format!(", with {} of its moves", moves.spoken(2)));
        Some(format!(
            "With {network} workstations, {}: programs take {} times as long as with {} ({}){moves}. {}",
            self.policy(best),
            time.spoken(3),
            self.policy(usual),
            compared(&time, "faster", "slower"),
            self.costs_said(of, best)?
        ))
    }

    /// What it costs owners.
    fn costs_said(&self, of: Where, choice: Choice) -> Option<String> {
        let mean = |quantity| Some(self.ranks.mean(of, choice, quantity)?.value);
        Some(format!(
            "An execution meets {:.1} owners' returns, computes for {} s beside owners, and stands still or leaves for {} s \
             under them.",
            mean(|it| it.returns)?,
            whole(mean(|it| it.beside_s)?),
            whole(mean(|it| it.frozen_s)?)
        ))
    }

    fn reaction_said(&self, network: i64) -> Option<String> {
        let (of, best) = (Where::network(network), self.best_choice(network)?);
        let stretch = self.ranks.stretch(of, best)?;
        let ended = self.ranks.mean(of, best, |it| f64::from(u8::from(it.ended)))?;
        Some(format!(
            "With {network} workstations, of what leaves owners their processors {} take the least time or no more than \
             that, and least of it under owners: {} times as long as on workstations that are always idle; {:.1} % of the \
             executions end with their period. {}",
            self.spoken(best),
            stretch.spoken(2),
            100.0 * ended.value,
            self.costs_said(of, best)?
        ))
    }

    /// Reactions that are faster because they stay beside the owner: with their
    /// price.
    fn beside_owners_said(&self, network: i64) -> Vec<String> {
        let (of, Some(best)) = (Where::network(network), self.best_choice(network)) else {
            return vec![];
        };
        let said = |reaction| {
            let choice = (best.0, reaction);
            let beside = self.ranks.mean(of, choice, |it| it.beside_s)?;
            let time = self.ranks.time_against(of, choice, best)?;
            (beside.value > 0.0).then(|| {
                format!(
                    "With {network} workstations, {} would take {} times as long as {} ({}), and compute for {} s an execution \
                     beside owners who are there.",
                    self.reaction(choice),
                    time.spoken(2),
                    self.reaction(best),
                    compared(&time, "faster", "slower"),
                    whole(beside.value)
                )
            })
        };
        Self::reactions_of(self.ranks).into_iter().filter_map(said).collect()
    }

    fn method(&self, document: &mut Document) {
        document.section("How it was compared");
        document.paragraph(&format!(
            "Choices are compared by pairs: the same program in the same period on the same workstations at the same cost. \
             Times are joined as geometric means of the pairs' ratios, or shown as medians: a single execution decides \
             nothing. Intervals in brackets are of 95 %: {DRAWS} times as many weeks as there are ({}) are drawn with \
             replacement, seed {SEED}, each with all that lies in it; with fewer than {WEEKS_MIN} weeks there are none. Where \
             an interval of a ratio holds 1 there is no difference that these weeks show. An execution that was given up \
             counts with the time that it was given. The best of many choices looks a little better than it will be, because \
             it was chosen on the weeks that measure it.",
            self.ranks.weeks().max(self.bags.weeks())
        ));
        let oracle = (self.place(Label::Policy, ORACLE), self.usual().1);
        if self.policy(oracle) != ORACLE {
            return;
        }
        let beaten = self.ranks.networks().into_iter().filter_map(|network| {
            let best = self.best_policy(network)?;
            let part = self.ranks.longer_in(Where::network(network), oracle, best)?;
            Some(format!("{:.0} % of the pairs with {network} workstations", 100.0 * part))
        });
        let beaten: Vec<String> = beaten.collect();
        document.paragraph(&format!(
            "The oracle knows when each owner returns next and gives each subprogram the workstation that stays idle longest. It \
             is no bound, and no policy to have. It sees one choice at a time: it saves moves, not time, and does not ask \
             which rank the others wait for, how long an owner stays where a rank waits under them, or what is idle later. So \
             it may be beaten: it took longer than the policy named above, by more than a hundredth, in {}.",
            if beaten.is_empty() { "no pair".to_owned() } else { beaten.join(", ") }
        ));
    }

    /// One chart against cost for each network, all on one scale.
    fn panels(
        &self,
        title: &str,
        subtitle: &str,
        of_network: &dyn Fn(i64) -> Vec<(Choice, String)>,
    ) -> Panels {
        let chart = |network| {
            let lines = of_network(network).into_iter().enumerate();
            let line = |(place, (choice, name)): (usize, (Choice, String))| {
                let at = |cost: i64| {
                    let of = Where { cost: Some(cost), ..Where::network(network) };
                    Some((seconds(cost), self.ranks.stretch(of, choice)?.value))
                };
                let look = if name == ORACLE { Look::Dashed } else { Look::Dotted };
                let points = self.ranks.costs().into_iter().filter_map(at).collect();
                Series::new(name, points).looking(look).coloured(series_colour(place))
            };
            LineChart {
                title: format!("{network} workstations"),
                x_axis: Axis::linear("cost of a move (s)"),
                y_axis: Axis::linear("times as long as undisturbed"),
                series: lines.map(line).collect(),
                ..LineChart::default()
            }
        };
        Panels {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            columns: 2,
            same_axes: true,
            charts: self.ranks.networks().into_iter().map(chart).collect(),
        }
    }
}

/// How a ratio compares, in a word.
fn compared(ratio: &Estimate, less: &'static str, more: &'static str) -> &'static str {
    match ratio.compared() {
        Compared::Less => less,
        Compared::More => more,
        Compared::NoDifference => "no difference",
        Compared::TooFewWeeks => "too few weeks to tell",
    }
}

/// Seconds, counted.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive, and the cast saturates"
)]
fn whole(seconds: f64) -> String {
    count(seconds.round() as u64)
}
