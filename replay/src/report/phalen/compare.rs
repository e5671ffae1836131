//! Her sentences beside our numbers, and why they differ.

use super::super::WriteReportError;
use super::super::charts::nanos;
use super::super::cube::{Dim, Quantity};
use super::super::document::Document;
use super::claims::Claim;
use super::{ON_PATH, PhalenReport, printed};
use crate::results::Measure;

impl PhalenReport<'_> {
    pub(super) fn differences(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let claims = self.claims();
        let (fitted, predicted): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.rests_on_fit && self.owners_are_fitted());
        document.section("Her sentences, and where and why ours differ");
        sentences(
            document,
            "sentences",
            "Predicted: what the thesis says of its results",
            &predicted,
        )?;
        if !fitted.is_empty() {
            let caption = "Fitted, not predicted: sentences that say again what Table 12 or Table 11 prints, \
                           to which our owners were fitted";
            sentences(document, "sentences-fitted", caption, &fitted)?;
        }
        document.paragraph(&self.why());
        Ok(())
    }

    pub(super) fn at(&self, workstations: i64, cost: i64, quantity: Quantity) -> Option<f64> {
        let filter = [(Dim::Workstations, workstations), (Dim::Cost, nanos(cost))];
        self.named.cube.mean(&filter, quantity)
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

fn sentences(
    document: &mut Document,
    name: &str,
    caption: &str,
    claims: &[Claim],
) -> Result<(), WriteReportError> {
    let rows: Vec<Vec<String>> = claims.iter().map(Claim::row).collect();
    let header = ["Phalen 1994", "here", "holds here", "counts as holding"];
    document.table(name, caption, &header, &rows)
}
