//! `glean jobs`: the jobs, newest first.

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::JobRow;
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::client::Client;

use super::show;
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only these jobs.
    #[arg(value_name = "JOB")]
    pub jobs: Vec<JobId>,
    /// One record a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, or a job that is not there.
pub fn run(args: &Args) -> Result<Verdict> {
    let rows = ask(&args.access, async |client| {
        if args.jobs.is_empty() {
            return ask::rows(client, &Request::Jobs, pick).await;
        }
        let mut rows = vec![];
        for id in &args.jobs {
            rows.push(one(client, *id).await?);
        }
        Ok(rows)
    })?;
    if args.json {
        rows.iter().try_for_each(output::record)?;
    } else {
        show::jobs(&rows, &show::here()).print()?;
    }
    Ok(Verdict::Yes)
}

/// One job's row.
pub(super) async fn one(client: &Client, job: JobId) -> Result<JobRow> {
    let request = Request::Job(job);
    pick(ask::one(client, &request).await?).ok_or_else(|| ask::unexpected(&request))
}

fn pick(reply: Reply) -> Option<JobRow> {
    if let Reply::Job(row) = reply { Some(*row) } else { None }
}
