//! Her sentences beside our numbers, and why they differ.

use super::super::WriteReportError;
use super::super::charts::{exponent, nanos};
use super::super::cube::{Dim, Quantity};
use super::super::document::{Document, number};
use super::{ON_PATH, PhalenReport, TRANSITIONS, printed};
use crate::results::Measure;

/// One of her sentences, and what we find.
struct Claim {
    hers: &'static str,
    ours: String,
    holds: Option<bool>,
}

impl PhalenReport<'_> {
    pub(super) fn differences(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("Her sentences, and where and why ours differ");
        let rows: Vec<Vec<String>> = self
            .claims()
            .into_iter()
            .map(|claim| {
                let holds = match claim.holds {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "-",
                };
                vec![claim.hers.to_owned(), claim.ours, holds.to_owned()]
            })
            .collect();
        document.table(
            "sentences",
            "What the thesis says of its results",
            &["Phalen 1994", "here", "holds here"],
            &rows,
        )?;
        document.paragraph(&self.why());
        Ok(())
    }

    pub(super) fn at(&self, workstations: i64, cost: i64, quantity: Quantity) -> Option<f64> {
        let filter = [(Dim::Workstations, workstations), (Dim::Cost, nanos(cost))];
        self.named.cube.mean(&filter, quantity)
    }

    /// The greatest mean of a quantity over costs up to so many seconds.
    fn most(&self, workstations: i64, up_to: i64, quantity: Quantity) -> Option<f64> {
        let along =
            self.named.cube.along(Dim::Cost, &[(Dim::Workstations, workstations)], quantity);
        let means = along.range(..=nanos(up_to)).filter_map(|(_, sample)| sample.mean());
        means.reduce(f64::max)
    }

    fn most_of_all(&self, up_to: i64, quantity: Quantity) -> Option<f64> {
        let networks = self.networks().into_iter();
        networks.filter_map(|network| self.most(network, up_to, quantity)).reduce(f64::max)
    }

    fn claims(&self) -> Vec<Claim> {
        let below = |hers, value: Option<f64>, limit: f64, unit: &str| Claim {
            hers,
            ours: format!("at most {}{unit}", number(value, 1)),
            holds: value.map(|value| value < limit),
        };
        let larger =
            [self.most(50, 100, Quantity::Slowdown), self.most(100, 100, Quantity::Slowdown)];
        let larger = larger.into_iter().flatten().reduce(f64::max);
        let mut claims = vec![
            below(
                "§7.1: \"The smallest migration cost considered is one second, and in all cases this causes less than a 1% slowdown\"",
                self.most_of_all(1, Quantity::Slowdown),
                1.0,
                " %",
            ),
            below(
                "§7.0: at costs of 1 to 50 s, \"a slowdown of less than 100%\"",
                self.most_of_all(50, Quantity::Slowdown),
                100.0,
                " %",
            ),
            below(
                "§7.2.1: with 50 or 100 workstations, 1 to 100 s cause \"less than 200%\"",
                larger,
                200.0,
                " %",
            ),
            below(
                "§7.2.1: with 30 workstations, \"below 200% for up to 80 second migration costs\"",
                self.most(30, 80, Quantity::Slowdown),
                200.0,
                " %",
            ),
            below(
                "§7.2.1: \"There are never more than 20 transitions\" (on average)",
                self.most_of_all(100, TRANSITIONS),
                printed::TRANSITIONS_MAX,
                "",
            ),
        ];
        claims.push(self.on_path_claim());
        claims.push(self.few_claim());
        claims.extend([self.early_claim(), self.night_claim(), self.superlinear_claim()]);
        claims
    }

    fn on_path_claim(&self) -> Claim {
        let ours = self.at(30, 100, ON_PATH);
        Claim {
            hers: "§7.2.1: with 30 workstations at 100 s, about seven and a half transitions on the critical path",
            ours: number(ours, 2),
            holds: ours.map(|ours| (ours / printed::ON_PATH_AT_30 - 1.0).abs() < 0.25),
        }
    }

    fn few_claim(&self) -> Claim {
        let [few, some, many] = [30, 50, 100].map(|n| self.at(n, 99, Quantity::Slowdown));
        // A quarter more or less counts as little here.
        let holds = || Some(few? > 1.25 * some? && some? < 1.25 * many? && many? < 1.25 * some?);
        Claim {
            hers: "§7.0: the number of workstations matters below twice that of the ranks, and little from three to five times",
            ours: format!(
                "at 99 s: {} %, {} % and {} %",
                number(few, 0),
                number(some, 0),
                number(many, 0)
            ),
            holds: holds(),
        }
    }

    fn early_claim(&self) -> Claim {
        let means = self.networks().into_iter().map(|n| self.at(n, 40, Quantity::Slowdown));
        let means: Vec<f64> = means.flatten().collect();
        let least = means.iter().copied().reduce(f64::min);
        let most = means.iter().copied().reduce(f64::max);
        let spread = || Some(most? - least?);
        Claim {
            hers: "§7.1: \"Only when the migration cost increases beyond 50 seconds does the number of workstations introduce a difference of more than 15%\"",
            ours: format!("at 40 s, {} points apart", number(spread(), 1)),
            holds: spread().map(|points| points <= 15.0),
        }
    }

    fn night_claim(&self) -> Claim {
        let by_time = self.named.cube.along(Dim::TimeOfDay, &[], Quantity::Slowdown);
        let means: Vec<(i64, f64)> =
            by_time.iter().filter_map(|(time, sample)| Some((*time, sample.mean()?))).collect();
        let texts = means
            .iter()
            .map(|(time, mean)| format!("{} {mean:.0} %", self.named.name(Dim::TimeOfDay, *time)));
        let least = means.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        Claim {
            hers: "§7.3: \"night time hours would provide the best potential for efficient executions\"",
            ours: texts.collect::<Vec<_>>().join(", "),
            holds: least.map(|(time, _)| self.named.name(Dim::TimeOfDay, *time) == "night"),
        }
    }

    fn superlinear_claim(&self) -> Claim {
        let exponents: Vec<f64> = self
            .networks()
            .into_iter()
            .filter_map(|network| exponent(&self.slowdowns(network), 40.0, 100.0))
            .collect();
        let texts: Vec<String> =
            exponents.iter().map(|exponent| format!("{exponent:.2}")).collect();
        Claim {
            hers: "§7.2.2: \"performance degradation occurs at a superlinear rate\" above 40 s",
            ours: format!("from 40 to 100 s it grows as cost to the power of {}", texts.join(", ")),
            holds: (!exponents.is_empty())
                .then(|| exponents.iter().all(|exponent| *exponent > 1.0)),
        }
    }

    /// Where and why ours differ, as far as numbers can tell.
    fn why(&self) -> String {
        let mut sentences = vec![];
        let mut ratios = vec![];
        for (workstations, hers) in printed::TABLE_12 {
            for (cost, hers) in printed::COSTS.into_iter().zip(hers) {
                if let Some(ours) = self.at(workstations, cost, Quantity::Slowdown) {
                    ratios.push(ours / hers);
                }
            }
        }
        if let (Some(least), Some(most)) =
            (ratios.iter().copied().reduce(f64::min), ratios.iter().copied().reduce(f64::max))
        {
            sentences.push(format!(
                "Over the twelve cells of her Table 12, our slowdown is {least:.2} to {most:.2} times hers."
            ));
        }
        if let (Some(on_path), Some(zero), Some(slowdown)) = (
            self.at(30, 100, ON_PATH),
            self.at(30, 100, Quantity::Seconds(Measure::ZeroCost)),
            self.at(30, 100, Quantity::Slowdown),
        ) {
            let explained = 100.0 * on_path * 100.0 / zero;
            let meets = match on_path / printed::ON_PATH_AT_30 {
                ..0.9 => "fewer transitions on their critical path than hers",
                0.9..1.1 => "about as many transitions on their critical path as hers",
                _ => "more transitions on their critical path than hers",
            };
            sentences.push(format!(
                "Her explanation is transitions on the critical path times the cost of one: 7.5 x 100 s on an average of \
                 255 s is her 300 %. The same sum is {explained:.0} % here ({on_path:.2} transitions, {zero:.0} s at cost \
                 zero), the measured slowdown {slowdown:.0} %: with 30 workstations at 100 s, our programs meet {meets}."
            ));
            sentences.extend(self.why_base(zero));
        }
        sentences.push(self.why_owners());
        sentences.extend(self.why_a_step());
        sentences.push(
            "What differs and cannot be compared: the structure of her traces (who waits for whom, and how often), \
             which decides how much of a delay is hidden behind blocking; the order in which her tool read the \
             workstations' files; and the states of her workstations between two of the three-minute snapshots, \
             which no log holds."
                .to_owned(),
        );
        sentences.retain(|sentence| !sentence.is_empty());
        sentences.join(" ")
    }

    /// A slowdown is measured against cost zero, and that may be slow already.
    fn why_base(&self, zero: f64) -> Option<String> {
        let programs = &self.source.manifest.programs;
        let sum: u64 = programs.iter().map(|program| program.undisturbed_ns).sum();
        let undisturbed = sum as f64 / 1e9 / programs.len() as f64;
        (zero > 1.1 * undisturbed).then(|| {
            format!(
                "At cost zero our programs take {zero:.0} s on 30 workstations and {undisturbed:.0} s undisturbed, because \
                 they wait until enough of the 30 are idle; that makes the slowdown against cost zero smaller. She does not \
                 print her executions at cost zero."
            )
        })
    }

    /// Half of what lies between two looks of rwho shows in the curves.
    fn why_a_step(&self) -> Option<String> {
        let line = self.slowdowns(30);
        let at = |cost: f64| line.iter().find(|(at, _)| (at - cost).abs() < 1e-6).map(|(_, y)| *y);
        let step = at(90.0)? - at(89.0)?;
        let usual = (at(89.0)? - at(80.0)?) / 9.0;
        (usual > 0.0 && step > 2.0 * usual).then(|| {
            format!(
                "The step at 90 s, {:.1} times as high as those before it, is the three-minute snapshots': Table 6 puts a \
                 return by load in the middle between two looks, so idle periods of 90 s are frequent, and whoever takes \
                 longer to move finds such a workstation busy again. Hers must have had it too.",
                step / usual
            )
        })
    }

    fn why_owners(&self) -> String {
        let owners = &self.source.manifest.owners;
        let sum = |seconds: &[u64]| seconds.iter().sum::<u64>() as f64;
        let (idle, busy) = (sum(&owners.idle_s), sum(&owners.busy_s));
        if idle + busy <= 0.0 || owners.idle_periods == 0 {
            return String::new();
        }
        format!(
            "Our owners leave their workstations idle for {:.0} % of the time, in periods of {:.0} minutes on average; \
             the thesis prints neither figure for hers, so a model of them can be fitted only to the classes and trends \
             that it does print.",
            100.0 * idle / (idle + busy),
            idle / owners.idle_periods as f64 / 60.0
        )
    }
}
