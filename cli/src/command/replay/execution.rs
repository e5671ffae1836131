//! `glean replay run`: one execution.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_common::units::parse_duration;
use gleaner_coordinator_core::Policy;
use gleaner_figure::Figure;
use gleaner_replay::campaign::inputs::read_trace;
use gleaner_replay::campaign::plan::model;
use gleaner_replay::campaign::values::{PlacementChoice, ReactionChoice};
use gleaner_replay::gantt::gantt;
use gleaner_replay::{
    Breakdown, Costs, Execution, Lab, Learner, Network, Observed, Program, RulesOf, Scratch, Usage,
    run_observed,
};
use serde::Serialize;

use super::lab::LabArgs;
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The program's trace.
    #[arg(value_name = "PROGRAM.trace")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub lab: LabArgs,
    /// Stretch its computing so that it takes this long undisturbed.
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    pub scale_to: Option<Duration>,
    /// Which idle workstation is taken: a policy of the coordinator's, or oracle.
    #[arg(long, default_value = "last-idle-first")]
    pub policy: PlacementChoice,
    /// What a rank does when its workstation's owner returns.
    #[arg(long, value_name = "REACTION", default_value = "migrate")]
    pub on_busy: ReactionChoice,
    /// When ranks begin, and where they wait: phalen1994 (each as soon as it can;
    /// nowhere) or live (all together; where they were).
    #[arg(long, default_value = "phalen1994")]
    pub rules: RulesOf,
    /// What one move costs.
    #[arg(long, value_name = "SPAN", value_parser = parse_duration, default_value = "10s")]
    pub cost: Duration,
    /// Draw who ran where into this file, .svg, .png or .pdf.
    #[arg(long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// One record instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// A trace or a log that cannot be read, or too few workstations.
pub(super) fn run(args: &Args) -> Result<Verdict> {
    let mut trace = read_trace(&args.trace)?;
    if let Some(to) = args.scale_to {
        trace = trace.scaled_to(to).with_context(|| args.trace.display().to_string())?;
    }
    let program = Program::compile(&trace, Network::default())
        .with_context(|| args.trace.display().to_string())?;
    let ranks = u32::try_from(trace.ranks.len()).unwrap_or(u32::MAX);
    if args.lab.workstations < ranks {
        anyhow::bail!(
            "{} has {ranks} ranks: expected at least as many workstations, not {}",
            args.trace.display(),
            args.lab.workstations
        );
    }
    let usage = args.lab.usage()?;
    let mut lab = args.lab.select(&usage)?;
    Learner::new(&usage).teach(&mut lab);
    if args.policy == PlacementChoice::Core(Policy::Ranked) {
        output::notes(&usage.ranked_lacks());
    }
    let rules = args.rules.rules();
    let model = gleaner_replay::Model { rules, ..model(args.policy, args.on_busy) };
    let cost = args.cost;
    let dear = gleaner_replay::Model {
        costs: Costs { migrate: cost, rollback: cost, retreat: cost },
        ..model
    };
    let (mut scratch, mut observed) = (Scratch::default(), vec![]);
    let free = gleaner_replay::run(&program, &lab, &model, &mut scratch);
    let execution = run_observed(&program, &lab, &dear, &mut scratch, &mut observed);
    let row = Row::new(args, &program, &execution, &free);
    if args.json {
        output::record(&row)?;
    } else {
        output::table(&["", "", ""], &row.lines())?;
    }
    if let Some(path) = &args.gantt {
        draw(path, args, &usage, &lab, &observed, &execution)?;
    }
    Ok(Verdict::from(execution.finished))
}

fn draw(
    path: &Path,
    args: &Args,
    usage: &Usage,
    lab: &Lab,
    observed: &[Observed],
    execution: &Execution,
) -> Result<()> {
    let name = |workstation| {
        let origin = lab.origin(workstation) as usize;
        usage.names().get(origin).cloned().unwrap_or_default()
    };
    let program = args.trace.file_stem().unwrap_or_default().to_string_lossy();
    let title = format!(
        "{program} from {}, {:.0} s, {} moves",
        gleaner_collector::wall::spoken_time(args.lab.at),
        execution.execution.as_secs_f64(),
        execution.moves
    );
    let figure = gantt(&title, lab, observed, name);
    output::figure(path, &figure, figure.natural_size())?;
    output::say(&format!("{} shows who ran where", path.display()));
    Ok(())
}

/// Phalen 1994, Table 9, and more.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    workstations: u32,
    at: String,
    policy: String,
    on_busy: String,
    rules: RulesOf,
    criterion: String,
    cost_s: f64,
    finished: bool,
    execution_s: f64,
    zero_cost_s: Option<f64>,
    undisturbed_s: f64,
    slowdown_percent: Option<f64>,
    transitions: u32,
    on_critical_path: u32,
    moves: u32,
    waits: u32,
    nodes_used: u32,
    average_idle_s: f64,
    utilisation: f64,
    useful_s: f64,
    wasted_s: f64,
    beside_owners_s: f64,
    frozen_under_owners_s: f64,
    critical_path: Parts,
    last_rank: Parts,
}

/// A [`Breakdown`] in seconds.
#[expect(clippy::struct_field_names, reason = "the unit belongs to the records' names")]
#[derive(Debug, Serialize)]
struct Parts {
    compute_s: f64,
    repeated_s: f64,
    slowed_s: f64,
    blocked_s: f64,
    waiting_s: f64,
    frozen_s: f64,
    moving_s: f64,
}

impl From<&Breakdown> for Parts {
    fn from(path: &Breakdown) -> Self {
        Self {
            compute_s: path.compute.as_secs_f64(),
            repeated_s: path.repeated.as_secs_f64(),
            slowed_s: path.slowed.as_secs_f64(),
            blocked_s: path.messages.as_secs_f64(),
            waiting_s: path.waiting.as_secs_f64(),
            frozen_s: path.frozen.as_secs_f64(),
            moving_s: path.moving.as_secs_f64(),
        }
    }
}

impl Row {
    fn new(args: &Args, program: &Program, execution: &Execution, free: &Execution) -> Self {
        let file = args.trace.file_stem().unwrap_or_default();
        Self {
            program: file.to_string_lossy().into_owned(),
            workstations: args.lab.workstations,
            at: gleaner_collector::wall::spoken_time(args.lab.at),
            policy: args.policy.to_string(),
            rules: args.rules,
            on_busy: args.on_busy.to_string(),
            criterion: args.lab.criterion.to_string(),
            cost_s: args.cost.as_secs_f64(),
            finished: execution.finished,
            execution_s: execution.execution.as_secs_f64(),
            zero_cost_s: free.finished.then_some(free.execution.as_secs_f64()),
            undisturbed_s: program.critical_path().as_secs_f64(),
            slowdown_percent: execution.slowdown(free),
            transitions: execution.busy_transitions,
            on_critical_path: execution.on_critical_path,
            moves: execution.moves,
            waits: execution.waits,
            nodes_used: execution.nodes_used,
            average_idle_s: execution.average_idle.as_secs_f64(),
            utilisation: execution.utilisation(),
            useful_s: execution.useful.as_secs_f64(),
            wasted_s: execution.wasted.as_secs_f64(),
            beside_owners_s: execution.shared_computing.as_secs_f64(),
            frozen_under_owners_s: execution.shared_frozen.as_secs_f64(),
            critical_path: Parts::from(&execution.path),
            last_rank: Parts::from(&execution.last_rank),
        }
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let seconds = |value: f64| format!("{value:.3} s");
        let line =
            |what: &str, value: String, more: &str| vec![what.to_owned(), value, more.to_owned()];
        let ended = if self.finished { "" } else { "given up: the period ended first" };
        let slowdown =
            self.slowdown_percent.map_or_else(|| "-".to_owned(), |s| format!("{s:.2} %"));
        let zero = self.zero_cost_s.map_or_else(|| "-".to_owned(), seconds);
        let mut lines = vec![
            line("execution", seconds(self.execution_s), ended),
            line("at cost zero", zero, ""),
            line(
                "undisturbed",
                seconds(self.undisturbed_s),
                "on workstations that are always idle",
            ),
            line("slowdown", slowdown, "against cost zero"),
            line("busy transitions", self.transitions.to_string(), "under a rank"),
            line("on the critical path", self.on_critical_path.to_string(), ""),
            line("moves", self.moves.to_string(), ""),
            line("waits", self.waits.to_string(), "for an idle workstation"),
            line("nodes used", format!("{} of {}", self.nodes_used, self.workstations), ""),
            line("average idle", seconds(self.average_idle_s), "of the workstations meanwhile"),
            line("idle time used", format!("{:.1} %", 100.0 * self.utilisation), ""),
            line("work in vain", seconds(self.wasted_s), ""),
            line("beside owners", seconds(self.beside_owners_s), "computing, demoted"),
            line("under owners", seconds(self.frozen_under_owners_s), "frozen, waiting or leaving"),
        ];
        for (what, part) in self.critical_path.lines() {
            lines.push(line(&format!("path: {what}"), seconds(part), ""));
        }
        lines
    }
}

impl Parts {
    /// The parts that are not nothing.
    fn lines(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let parts = [
            ("compute", self.compute_s),
            ("repeated", self.repeated_s),
            ("slowed", self.slowed_s),
            ("blocked", self.blocked_s),
            ("waiting", self.waiting_s),
            ("frozen", self.frozen_s),
            ("moving", self.moving_s),
        ];
        parts.into_iter().filter(|(_, part)| *part > 0.0)
    }
}
