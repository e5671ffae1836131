//! What is seen of the demo's lab, on standard error: live lines on a terminal.
//!
//! Where nobody sees them drawn, and where the machine is so busy that little
//! moves, a line every ten seconds says how far the demo is and how much of a
//! core its guests get.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gleaner_common::report::{JobRow, JobSummary};
use gleaner_common::wire::Reply;
use gleaner_lab::cgroup;
use gleaner_shell::clock::Clock;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// How often it is said how far the demo is.
const EVERY: Duration = Duration::from_secs(10);

/// One line for the job and one for each workstation.
#[derive(Debug)]
pub(super) struct View {
    lines: MultiProgress,
    job: Option<ProgressBar>,
    workstations: Vec<ProgressBar>,
    quiet: bool,
    stage: Arc<Mutex<Stage>>,
    /// The thread that says how far the demo is, and what ends it.
    teller: Option<(Sender<()>, JoinHandle<()>)>,
}

/// How far the demo is.
#[derive(Debug, Default)]
struct Stage {
    what: String,
    /// The guests' cgroups, where there are any.
    groups: Vec<PathBuf>,
    /// The guests' CPU time as their agents report it.
    reported_s: f64,
}

impl View {
    pub(super) fn new(quiet: bool) -> Self {
        let lines = MultiProgress::new();
        if quiet {
            lines.set_draw_target(ProgressDrawTarget::hidden());
        }
        let stage = Arc::new(Mutex::new(Stage::default()));
        let (end, ended) = channel();
        let (told, shown) = (Arc::clone(&stage), lines.clone());
        let thread = thread::spawn(move || tell(&told, &shown, &ended));
        let teller = Some((end, thread));
        Self { lines, job: None, workstations: vec![], quiet, stage, teller }
    }

    /// One line, above the live lines where there is a terminal.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet {
            say(&self.lines, line);
        }
    }

    /// What the demo is at.
    pub(super) fn enter(&self, what: &str) {
        what.clone_into(&mut self.lock().what);
    }

    /// Where the guests' cgroups are.
    pub(super) fn look_at(&self, groups: Vec<PathBuf>) {
        self.lock().groups = groups;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn draw(&mut self, row: &JobRow, rows: &[Reply], last: Option<Duration>) {
        let job = &row.summary;
        self.enter(&progress(job));
        self.lock().reported_s = row.cpu_s + row.wasted_cpu_s;
        let lines = self.lines.clone();
        let bar = self.job.get_or_insert_with(|| {
            let bar = lines.add(ProgressBar::new(u64::from(job.total)));
            bar.set_style(style("job      {bar:40} {pos}/{len} done  {msg}"));
            bar
        });
        bar.set_position(u64::from(job.counts.succeeded));
        let last = last.as_ref().map_or(0.0, Duration::as_secs_f64) * 1e3;
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

impl Drop for View {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.teller.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn say(lines: &MultiProgress, line: &str) {
    if lines.is_hidden() || lines.println(line).is_err() {
        output::say(line);
    }
}

/// Says how far the demo is until it has ended.
fn tell(stage: &Mutex<Stage>, lines: &MultiProgress, ended: &Receiver<()>) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (mut at, mut used_s) = (Clock.now(), 0.0);
    while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, used_before_s) = (at, used_s);
        (at, used_s) = (Clock.now(), stage.used_s());
        let share = (used_s - used_before_s).max(0.0) / at.since(before).as_secs_f64();
        let load = load_1m();
        if lines.is_hidden() || load > cores as f64 {
            say(lines, &spoken(&stage.what, share, load, cores));
        }
    }
}

impl Stage {
    fn used_s(&self) -> f64 {
        if self.groups.is_empty() {
            return self.reported_s;
        }
        self.groups.iter().map(|group| cgroup::cpu_us(group) as f64 / 1e6).sum()
    }
}

fn progress(job: &JobSummary) -> String {
    format!(
        "{} of {} done, {} running, {} suspended",
        job.counts.succeeded, job.total, job.running, job.suspended
    )
}

fn spoken(what: &str, share: f64, load: f64, cores: usize) -> String {
    format!("{what}; guests get {share:.2} of a core (load {load:.1} on {cores} cores)")
}

/// 0 where it cannot be read.
fn load_1m() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_much_of_a_core_guests_get() {
        let said = spoken("12 of 240 done, 4 running, 1 suspended", 0.0812, 20.31, 2);
        assert_eq!(
            said,
            "12 of 240 done, 4 running, 1 suspended; guests get 0.08 of a core (load 20.3 on 2 cores)"
        );
    }

    #[test]
    fn the_machines_load_is_read() {
        assert!(load_1m().is_finite() && load_1m() >= 0.0);
    }
}
