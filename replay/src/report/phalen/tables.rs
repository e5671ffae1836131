//! §7.1 and §7.2: by number of workstations.

use gleaner_figure::LineChart;

use super::super::WriteReportError;
use super::super::charts::{crossing, nanos};
use super::super::cube::{Dim, Quantity, Sample};
use super::super::document::{Document, percent};
use super::{ON_PATH, PhalenReport, SLOWDOWN, TRANSITIONS, printed};

impl PhalenReport<'_> {
    /// What the owners were fitted to, and what follows from it.
    pub(super) fn slowdown_by_cost(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section(if self.owners_are_fitted() {
            "Fitted, not predicted: slowdown by cost (§7.1; Tables 11 and 12, Figures 5 and 10)"
        } else {
            "Slowdown by cost (§7.1)"
        });
        self.table_11(document)?;
        self.table_12(document)?;
        let mut slowdown = self.named.against_cost(
            "Average slowdown by number of workstations",
            SLOWDOWN,
            Dim::Workstations,
            &[],
            Quantity::Slowdown,
        );
        for (series, workstations) in slowdown.series.iter_mut().zip(self.networks()) {
            series.references = reference_points(workstations);
        }
        "printed by Phalen (Tables 11, 12)".clone_into(&mut slowdown.reference_name);
        document.figure(
            "figure-05",
            "Figure 5: average slowdown by number of workstations",
            &slowdown,
        )?;
        for series in &mut slowdown.series {
            series.points.retain(|(cost, _)| *cost <= 40.0);
            series.references.retain(|(cost, _)| *cost <= 40.0);
        }
        document.figure(
            "figure-10",
            "Figure 10: average slowdown at costs of 1 to 40 s",
            &LineChart { title: "Average slowdown at costs of 1 to 40 s".into(), ..slowdown },
        )
    }

    pub(super) fn by_workstations(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By number of workstations (§7.2)");
        self.table_10(document)?;
        for (name, title, y, quantity) in [
            ("07", "Average busy transitions", "busy transitions", TRANSITIONS),
            (
                "08",
                "Average busy transitions on the critical path",
                "on the critical path",
                ON_PATH,
            ),
            (
                "09",
                "Share of the transitions on the critical path",
                "on the critical path (%)",
                Quantity::ShareOnPath,
            ),
        ] {
            let chart = self.named.against_cost(title, y, Dim::Workstations, &[], quantity);
            let caption = format!(
                "Figure {}: {} by number of workstations",
                name.trim_start_matches('0'),
                title.to_lowercase()
            );
            document.figure(&format!("figure-{name}"), &caption, &chart)?;
        }
        Ok(())
    }

    fn table_10(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let header = [
            "workstations",
            "of the executions",
            "of their mean",
            "between the programs' means",
            "hers",
        ];
        let range = |values: Vec<f64>| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if values.is_empty() { "-".into() } else { format!("{least:.2} to {most:.2}") }
        };
        let mut rows = vec![];
        for workstations in self.networks() {
            let filter = [(Dim::Workstations, workstations)];
            let along = self.named.cube.along(Dim::Cost, &filter, Quantity::Slowdown);
            let deviations = along.values().filter_map(Sample::deviation).collect();
            let errors = along.values().filter_map(Sample::error).collect();
            let hers = printed::TABLE_10.iter().find(|row| row.0 == workstations);
            rows.push(vec![
                workstations.to_string(),
                range(deviations),
                range(errors),
                range(self.between_programs(workstations)),
                hers.map_or("-".into(), |(_, least, most)| format!("{least:.2} to {most:.2}")),
            ]);
        }
        document.table(
            "table-10",
            "Table 10: range of standard deviations of the slowdown, in %, over all costs",
            &header,
            &rows,
        )?;
        document.paragraph(
            "She does not print what her standard deviations are taken over. Those of single executions are necessarily \
             of the order of the slowdown itself, since most executions meet few transitions and some meet many; hers \
             are a tenth of it or less, which fits a deviation of means.",
        );
        Ok(())
    }

    fn between_programs(&self, workstations: i64) -> Vec<f64> {
        let programs = self.named.cube.values(Dim::Program);
        let costs = self.named.cube.values(Dim::Cost);
        let deviation = |cost: &i64| {
            let means: Vec<f64> = programs
                .iter()
                .filter_map(|program| {
                    let filter = [
                        (Dim::Program, *program),
                        (Dim::Workstations, workstations),
                        (Dim::Cost, *cost),
                    ];
                    self.named.cube.mean(&filter, Quantity::Slowdown)
                })
                .collect();
            let many = means.len() as f64;
            let mean = means.iter().sum::<f64>() / many;
            let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
            (means.len() > 1).then(|| (squares / (many - 1.0)).sqrt())
        };
        costs.iter().filter_map(deviation).collect()
    }

    fn table_11(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let titles: Vec<String> = printed::SLOWDOWNS
            .iter()
            .flat_map(|slowdown| [format!("{slowdown} %"), "hers".to_owned()])
            .collect();
        let header: Vec<&str> =
            std::iter::once("workstations").chain(titles.iter().map(String::as_str)).collect();
        let mut rows = vec![];
        for workstations in self.networks() {
            let line = self.slowdowns(workstations);
            let hers = printed::TABLE_11.iter().find(|row| row.0 == workstations);
            let mut row = vec![workstations.to_string()];
            for (place, slowdown) in printed::SLOWDOWNS.into_iter().enumerate() {
                let at = crossing(&line, slowdown);
                row.push(at.map_or("not reached".into(), |cost| format!("{cost:.1} s")));
                row.push(hers.map_or("-".into(), |(_, costs)| format!("{} s", costs[place])));
            }
            rows.push(row);
        }
        document.table(
            "table-11",
            "Table 11: cost of a move that slows down by so much",
            &header,
            &rows,
        )
    }

    fn table_12(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let titles: Vec<String> = printed::COSTS
            .iter()
            .flat_map(|cost| [format!("{cost} s"), "hers".to_owned()])
            .collect();
        let header: Vec<&str> =
            std::iter::once("workstations").chain(titles.iter().map(String::as_str)).collect();
        let mut rows = vec![];
        for workstations in self.networks() {
            let hers = printed::TABLE_12.iter().find(|row| row.0 == workstations);
            let mut row = vec![workstations.to_string()];
            for (place, cost) in printed::COSTS.into_iter().enumerate() {
                let filter = [(Dim::Workstations, workstations), (Dim::Cost, nanos(cost))];
                row.push(percent(self.named.cube.mean(&filter, Quantity::Slowdown), 2));
                row.push(percent(hers.map(|(_, slowdowns)| slowdowns[place]), 2));
            }
            rows.push(row);
        }
        document.table("table-12", "Table 12: slowdown at so much a move", &header, &rows)
    }
}

/// Her Tables 11 and 12 as points of Figure 5.
fn reference_points(workstations: i64) -> Vec<(f64, f64)> {
    let eleven = printed::TABLE_11.iter().filter(|row| row.0 == workstations);
    let eleven = eleven.flat_map(|row| row.1.into_iter().zip(printed::SLOWDOWNS));
    let twelve = printed::TABLE_12.iter().filter(|row| row.0 == workstations);
    let twelve =
        twelve.flat_map(|row| printed::COSTS.map(|cost| cost as f64).into_iter().zip(row.1));
    eleven.chain(twelve).collect()
}
