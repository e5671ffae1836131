//! The live view of the demo's lab, on the terminal's error stream.

use std::time::Duration;

use gleaner_common::report::JobSummary;
use gleaner_common::wire::Reply;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// One line for the job and one for each workstation.
#[derive(Debug)]
pub(super) struct View {
    lines: MultiProgress,
    job: Option<ProgressBar>,
    workstations: Vec<ProgressBar>,
    quiet: bool,
}

impl View {
    pub(super) fn new(quiet: bool) -> Self {
        Self { lines: MultiProgress::new(), job: None, workstations: vec![], quiet }
    }

    /// One line of talk, above the live lines where there is a terminal.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet && (self.lines.is_hidden() || self.lines.println(line).is_err()) {
            eprintln!("{line}");
        }
    }

    pub(super) fn draw(&mut self, job: &JobSummary, rows: &[Reply], reactions: &[Duration]) {
        if self.quiet {
            return;
        }
        let lines = self.lines.clone();
        let bar = self.job.get_or_insert_with(|| {
            let bar = lines.add(ProgressBar::new(u64::from(job.total)));
            bar.set_style(style("job      {bar:40} {pos}/{len} done  {msg}"));
            bar
        });
        bar.set_position(u64::from(job.counts.succeeded));
        let last = reactions.last().map_or(0.0, Duration::as_secs_f64) * 1e3;
        bar.set_message(format!(
            "{} running, {} suspended, {} retreats; last return freed in {last:.1} ms",
            job.running, job.suspended, job.counts.retreats
        ));
        for (at, row) in rows.iter().enumerate() {
            let Reply::Workstation(row) = row else { continue };
            if at == self.workstations.len() {
                let line = lines.add(ProgressBar::new_spinner());
                line.set_style(style("{msg}"));
                self.workstations.push(line);
            }
            self.workstations[at].set_message(format!(
                "{:8} {:4}  {} guests  {}",
                row.name,
                row.state.name(),
                row.guests,
                row.reason
            ));
        }
    }

    pub(super) fn end(&self) {
        for line in self.job.iter().chain(&self.workstations) {
            line.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
