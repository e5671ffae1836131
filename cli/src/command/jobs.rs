//! `glean jobs`: the jobs, newest first.

use std::collections::BTreeMap;

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::JobRow;
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::client::Client;

use super::{show, whereabouts};
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::Form;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only these jobs.
    #[arg(value_name = "JOB")]
    pub jobs: Vec<JobId>,
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, or a job that is not there.
pub fn run(args: &Args) -> Result<Verdict> {
    let (rows, ranks) = ask(&args.access, async |client| {
        let rows = all(client, &args.jobs).await?;
        let ranks =
            if args.form.json { BTreeMap::new() } else { whereabouts::ask(client, &rows).await? };
        Ok((rows, ranks))
    })?;
    args.form.print(&rows, |rows| show::jobs(rows, &ranks, &show::here()))?;
    Ok(Verdict::Yes)
}

async fn all(client: &Client, jobs: &[JobId]) -> Result<Vec<JobRow>> {
    if jobs.is_empty() {
        return ask::rows(client, &Request::Jobs, pick).await;
    }
    let mut rows = vec![];
    for id in jobs {
        rows.push(one(client, *id).await?);
    }
    Ok(rows)
}

/// One job's row.
pub(super) async fn one(client: &Client, job: JobId) -> Result<JobRow> {
    let request = Request::Job(job);
    pick(ask::one(client, &request).await?).ok_or_else(|| ask::unexpected(&request))
}

fn pick(reply: Reply) -> Option<JobRow> {
    if let Reply::Job(row) = reply { Some(*row) } else { None }
}
