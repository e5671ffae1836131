//! §7.3, §7.4 and Appendix 10.1: by time of day, by activity, by program.

use gleaner_figure::LineChart;

use super::super::WriteReportError;
use super::super::cube::{Dim, IDLE_CLASSES, Quantity};
use super::super::document::{Document, count};
use super::{ON_PATH, PhalenReport, SLOWDOWN, TRANSITIONS};
use crate::results::Label;

impl PhalenReport<'_> {
    pub(super) fn by_time_of_day(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By time of day (§7.3)");
        document.paragraph(
            "Night is midnight to 6 a.m., morning 6 a.m. to noon, afternoon noon to 6 p.m., evening 6 p.m. to midnight.",
        );
        for (first, y, quantity, what) in [
            (11, SLOWDOWN, Quantity::Slowdown, "slowdown"),
            (14, "busy transitions", TRANSITIONS, "busy transitions"),
        ] {
            self.figures(document, first, y, quantity, what, Dim::TimeOfDay)?;
        }
        Ok(())
    }

    pub(super) fn by_activity(&self, document: &mut Document) -> Result<(), WriteReportError> {
        document.section("By length of the idle periods (§7.4)");
        for (first, y, quantity, what) in [
            (17, SLOWDOWN, Quantity::Slowdown, "slowdown"),
            (20, "on the critical path", ON_PATH, "busy transitions on the critical path"),
        ] {
            self.figures(document, first, y, quantity, what, Dim::IdleClass)?;
        }
        self.classes(document)
    }

    /// One figure for each network.
    fn figures(
        &self,
        document: &mut Document,
        first: usize,
        y: &str,
        quantity: Quantity,
        what: &str,
        by: Dim,
    ) -> Result<(), WriteReportError> {
        for (figure, workstations) in (first..).zip(self.networks()) {
            let title =
                format!("Average {what} by {} on {workstations} workstations", grouping(by));
            let filter = [(Dim::Workstations, workstations)];
            let chart = self.named.against_cost(&title, y, by, &filter, quantity);
            numbered(document, figure, &lower(&title), &chart)?;
        }
        Ok(())
    }

    /// How many executions fall into each class: lines of few are rough.
    fn classes(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let mut rows = vec![];
        for workstations in self.networks() {
            let filter = [(Dim::Workstations, workstations)];
            let along = self.named.cube.along(Dim::IdleClass, &filter, Quantity::Finished);
            let mut row = vec![workstations.to_string()];
            row.extend(
                (0..4).map(|class| count(along.get(&class).map_or(0, |sample| sample.many))),
            );
            rows.push(row);
        }
        let header: Vec<&str> = std::iter::once("workstations").chain(IDLE_CLASSES).collect();
        document.table(
            "activity-classes",
            "Executions by mean length of the idle periods",
            &header,
            &rows,
        )
    }

    /// Figures 23 to 50: seven for each program, in her order.
    pub(super) fn appendix(&self, document: &mut Document) -> Result<(), WriteReportError> {
        let mut figure = 23;
        for (title, name) in [
            ("FFT program", "fft"),
            ("MSH program", "msh"),
            ("DET", "det"),
            ("TEST program", "test"),
        ] {
            document.section(&format!("Appendix 10.1: {title}"));
            let Some(program) = self.named.value(Label::Program, name) else {
                document.paragraph(&format!(
                    "The campaign has no program `{name}`: figures {figure} to {} are left out.",
                    figure + 6
                ));
                figure += 7;
                continue;
            };
            let of = [(Dim::Program, program)];
            let heading =
                format!("{}: average slowdown by number of workstations", name.to_uppercase());
            let slowdown = Quantity::Slowdown;
            let chart =
                self.named.against_cost(&heading, SLOWDOWN, Dim::Workstations, &of, slowdown);
            numbered(document, figure, &heading, &chart)?;
            figure += 1;
            for workstations in [30, 50, 100] {
                for by in [Dim::TimeOfDay, Dim::IdleClass] {
                    let heading = format!(
                        "{}: average slowdown by {} on {workstations} workstations",
                        name.to_uppercase(),
                        grouping(by)
                    );
                    let filter = [(Dim::Program, program), (Dim::Workstations, workstations)];
                    let chart = self.named.against_cost(&heading, SLOWDOWN, by, &filter, slowdown);
                    numbered(document, figure, &heading, &chart)?;
                    figure += 1;
                }
            }
        }
        Ok(())
    }
}

/// One of her figures.
fn numbered(
    document: &mut Document,
    figure: usize,
    caption: &str,
    chart: &LineChart,
) -> Result<(), WriteReportError> {
    document.figure(&format!("figure-{figure:02}"), &format!("Figure {figure}: {caption}"), chart)
}

fn grouping(by: Dim) -> &'static str {
    if by == Dim::TimeOfDay { "time of day" } else { "length of the idle periods" }
}

fn lower(title: &str) -> String {
    let mut characters = title.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
