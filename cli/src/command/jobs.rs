//! `glean jobs`: the jobs, newest first.

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::JobRow;
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::client::Client;

use super::{show, whereabouts};
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::{self, Form, Pages};

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
    ask(&args.access, async |client| {
        output::streamed(args.form, async |pages| list(client, args, pages).await).await
    })?;
    Ok(Verdict::Yes)
}

/// Shows them as they come: there may be as many as the coordinator keeps.
async fn list(client: &Client, args: &Args, mut pages: Pages) -> Result<()> {
    let mut page = async |rows: Vec<JobRow>| {
        let asked: &[JobRow] = if args.form.json { &[] } else { &rows };
        let ranks = whereabouts::ask(client, asked).await?;
        pages.show(&rows, |rows| show::jobs(rows, &ranks, &show::here())).await
    };
    if args.jobs.is_empty() {
        return ask::every_page(client, &Request::Jobs, pick, page).await;
    }
    let mut rows = vec![];
    for id in &args.jobs {
        rows.push(one(client, *id).await?);
    }
    page(rows).await
}

/// One job's row.
pub(super) async fn one(client: &Client, job: JobId) -> Result<JobRow> {
    let request = Request::Job(job);
    pick(ask::one(client, &request).await?).ok_or_else(|| ask::unexpected(&request))
}

fn pick(reply: Reply) -> Option<JobRow> {
    if let Reply::Job(row) = reply { Some(*row) } else { None }
}
