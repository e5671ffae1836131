//! What was chosen to come near a printed figure, and which figure: what such a
//! figure shows here is a fit, and no prediction.

use super::super::WriteReportError;
use super::super::cube::Quantity;
use super::super::document::{Document, number, percent};
use super::{PhalenReport, printed};

/// Slowdown at 99 s with `data/campaigns/phalen1994.toml` at four costs, once
/// with the previous snapshot and once with the previous record as Table 6's
/// "prev": by workstations.
const PREV_AT_99: [(i64, f64, f64); 3] =
    [(30, 189.0, 281.0), (50, 175.0, 549.0), (100, 157.0, 616.0)];

impl PhalenReport<'_> {
    pub(super) fn owners_are_fitted(&self) -> bool {
        !self.source.manifest.setting.fitted.is_empty()
    }

    pub(super) fn what_was_fitted(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("What was fitted, and to which of her figures");
        let setting = &self.source.manifest.setting;
        document.paragraph(&self.origin_of_owners());
        let mut rows: Vec<Vec<String>> = vec![];
        for (name, value) in &setting.fitted {
            rows.push(vec![
                format!("owners: {name}"),
                value.clone(),
                "Table 12, all twelve cells".to_owned(),
            ]);
        }
        for (name, millis) in &setting.stretched {
            rows.push(vec![
                format!("program {name}: computing stretched to"),
                format!("{:.1} s", *millis as f64 / 1e3),
                "Table 8, its length".to_owned(),
            ]);
        }
        for network in &self.source.manifest.networks {
            if printed::TABLE_7.iter().any(|(n, ..)| *n == i64::from(network.workstations)) {
                rows.push(vec![
                    format!("periods with {} workstations", network.workstations),
                    network.periods_wanted.to_string(),
                    "Table 7, over four programs".to_owned(),
                ]);
            }
        }
        let header = ["parameter", "value", "chosen to come near"];
        document.table(
            "fitted",
            "Free parameters that were chosen by a printed figure",
            &header,
            &rows,
        )?;
        document.paragraph(&format!(
            "So Table 7, Table 8, Table 11, Table 12 and Figures 5 and 10 show below how near the fit came, and so do the \
             sentences that say the same in words; they are set apart. Figures by time of day, activity and program divide the same mean slowdowns: that mean is fitted, \
             what sets its parts apart is predicted. Everything else is predicted: nothing was chosen by it. Chosen by no figure of hers: a period is {} h long here, so that slow executions end too (hers are \
             segments of an hour, and what she did with an execution that lasts longer is not printed); its weeks, days \
             and hours are drawn with a seed.",
            number(Some(setting.period_s as f64 / 3_600.0), 0)
        ));
        self.previous(document)
    }

    fn origin_of_owners(&self) -> String {
        let setting = &self.source.manifest.setting;
        match &setting.model {
            Some(about) if self.owners_are_fitted() => format!(
                "The owners are made up, because her logs are lost: {about}. A random search over the parameters below ran \
                 this whole campaign's model until the slowdowns came near her Table 12.",
            ),
            Some(about) => format!(
                "The owners are made up by another model than the one that comes with gleaner: {about}. What it was fitted \
                 to is not known here.",
            ),
            None => "The owners are from a log: nothing of them was chosen by a figure of hers."
                .to_owned(),
        }
    }

    /// How much one word of Table 6 matters.
    fn previous(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let setting = &self.source.manifest.setting;
        document.paragraph(&format!(
            "The records' times were understood as `{}`. Table 6 estimates transitions from the \"prev\" time. By its footnote that \
             is the time of the previous record in the log, which may be hours ago; by its margins (\"sometime in 3 minute \
             span\") it is the previous snapshot, and so we take it. It matters more than any other choice here, and the owners \
             were fitted with the latter. `glean replay campaign --interpret previous-record` takes the footnote at its word:",
            setting.interpretation
        ));
        let rows: Vec<Vec<String>> = PREV_AT_99
            .iter()
            .map(|(workstations, snapshot, record)| {
                let hers = printed::TABLE_12.iter().find(|row| row.0 == *workstations);
                vec![
                    workstations.to_string(),
                    percent(Some(*snapshot), 0),
                    percent(Some(*record), 0),
                    percent(self.at(*workstations, 99, Quantity::Slowdown), 0),
                    percent(hers.map(|(_, slowdowns)| slowdowns[3]), 0),
                ]
            })
            .collect();
        let header = [
            "workstations",
            "the previous snapshot (measured once)",
            "the previous record (measured once)",
            "this campaign",
            "hers",
        ];
        document.table("prev", "Slowdown at 99 s by what \"prev\" means", &header, &rows)
    }
}
