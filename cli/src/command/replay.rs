//! `glean replay`: what would programs do on these workstations, with these
//! owners?

mod campaign;
mod execution;
mod lab;
mod queue;
mod shards;
mod spot;
mod workload;

use anyhow::Result;
use clap::Subcommand;

use crate::failure::Verdict;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: ReplayCommand,
}

#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// Execute a program once, and say where its time went.
    #[command(after_help = "Example:
  glean replay run data/traces/fft.trace --usage owners --workstations 30 \\
    --at 1993-11-09T15:00:00Z --on-busy migrate --cost 10s --gantt fft.svg

`glean usage generate` makes owners up, for a start; the collector's archive has real ones.

Reactions: migrate, rollback, retreat, suspend, such as `suspend 10min then migrate`, and such as
`renice 20%`. Exit code: 0 the program ended, 1 it was given up.")]
    Run(execution::Args),
    /// Run the jobs of many users through the coordinator's own core, and say who waited how long.
    #[command(after_help = "Example:
  glean replay queue data/queue.toml --usage owners --workstations 30 --at 1993-11-09T15:00:00Z

Each workstation has one place; a guest stands still under its owner and retreats after ten minutes.
Exit code: 0 all jobs were done, 1 some were refused or given up.")]
    Queue(queue::Args),
    /// Execute programs under every combination of what a campaign file names.
    #[command(after_help = "Examples:
  glean replay campaign data/campaigns/phalen1994.toml --out results
  glean replay campaign data/campaigns/library.toml --usage uncg --out library --shard 2/8

What was interrupted goes on where it was. Shards fill one directory, or directories whose `chunks`
are put together; whoever finds all chunks there joins them to results.parquet and results.csv.
Exit code: 0 all is there, 1 other shards have not done their share yet.")]
    Campaign(campaign::CampaignArgs),
    /// Run jobs that arrive over time under scheduling policies: on clusters, or beside owners.
    #[command(after_help = "Examples:
  glean replay workload data/campaigns/workloads/ghafoor-5.7.toml --out arrivals
  glean replay report arrivals --out compared
  glean replay workload data/campaigns/workloads/ghafoor-5.6.toml --json
  glean replay workload data/campaigns/workloads/ghafoor-5.6.toml --swf run.swf.gz
  glean replay workload data/campaigns/workloads/ghafoor-5.6.toml --out far --on lab --shards 8

What was interrupted goes on where it was; shards fill one directory. With --on lab they are the
subprograms of a job, which goes on without this command; the same command again waits for it, and
brings what it left. Exit code: 0 all is there (without --out: every job has ended), 1 it is not.")]
    Workload(workload::Args),
    /// Say what rules for machines that may be taken back are worth, on traces and owners of years to come.
    #[command(after_help = "Examples:
  glean replay spot availability-*.json.gz
  glean replay spot --usage uncg --from 2013-01-01T00:00:00Z --until 2014-01-01T00:00:00Z

Uniform progress beside greedy (Wu et al. 2024), checkpoints paced by the measured hazard beside those of
Young and Daly, a move before the owner's return and second copies of the last subtasks beside neither.
Nobody looks ahead: what teaches is before what is judged. Exit code: 0.")]
    Spot(spot::Args),
    /// Write tables and figures of a campaign's results.
    #[command(after_help = "Example:\n  glean replay report results --out report")]
    Report(campaign::ReportArgs),
}

/// # Errors
/// What cannot be read, executed or written.
pub fn run(command: &ReplayCommand) -> Result<Verdict> {
    match command {
        ReplayCommand::Run(args) => execution::run(args),
        ReplayCommand::Queue(args) => queue::run(args),
        ReplayCommand::Campaign(args) => campaign::run(args),
        ReplayCommand::Workload(args) => workload::run(args),
        ReplayCommand::Spot(args) => spot::run(args),
        ReplayCommand::Report(args) => campaign::report(args),
    }
}
