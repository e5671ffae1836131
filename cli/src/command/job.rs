//! `glean job ID`: a job and its subprograms, or a subprogram and its attempts.

mod gantt;
mod sizes;

use std::path::PathBuf;

use anyhow::{Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::{AttemptRow, ReplicaRow};
use gleaner_common::wire::{Reply, Request};
use gleaner_figure::Format;
use gleaner_shell::client::Client;

use super::{jobs, show};
use crate::ask::{self, Access, ask, some_subprograms};
use crate::failure::{Refusal, Verdict};
use crate::output::{self, Form};
use crate::values::{self, JobOrSubprogram};

/// As many as a person reads; `--all` and `--json` give every one.
const ROWS_MAX: u32 = 100;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number, or a subprogram's, such as 7.12.
    #[arg(value_name = "ID", value_parser = values::job_or_subprogram)]
    pub id: JobOrSubprogram,
    /// Every subprogram, however many.
    #[arg(long)]
    pub all: bool,
    /// Show its size over time: how many ran, on how many workstations, who began, ended and
    /// retreated. With a file, .svg, .png or .pdf, draw who ran where and who moved.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub gantt: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, or no such job.
pub fn run(args: &Args) -> Result<Verdict> {
    args.gantt.as_ref().and_then(Option::as_deref).map(Format::of).transpose()?;
    ask(&args.access, async |client| match args.id {
        JobOrSubprogram::Job(id) => job(client, args, id).await,
        JobOrSubprogram::Subprogram(id) => subprogram(client, args, id).await,
    })?;
    Ok(Verdict::Yes)
}

async fn job(client: &Client, args: &Args, id: JobId) -> Result<()> {
    let job = jobs::one(client, id).await?;
    if let Some(path) = &args.gantt {
        let rows = some_subprograms(client, id, 0, gantt::SUBPROGRAMS_MAX).await?;
        match path {
            Some(path) => gantt::draw(client, &job, &rows, path).await?,
            None => return gantt::tell(client, &job, &rows, args.form.json).await,
        }
    }
    let count = if args.all || args.form.json { u32::MAX } else { ROWS_MAX };
    let request = Request::Subprograms { job: id, first: 0, count };
    let shown = output::streamed(args.form, async |mut pages| {
        pages.show(&[&job], |_| show::job(&job, &show::here())).await?;
        let mut shown = 0;
        let page = async |rows: Vec<_>| {
            shown += rows.len();
            pages.show(&rows, show::subprograms).await
        };
        ask::every_page(client, &request, ask::subprogram, page).await?;
        Ok(shown)
    });
    let more = (job.summary.total as usize).saturating_sub(shown.await?);
    if more > 0 {
        output::say(&format!("{more} more: `glean job {id} --all`"));
    }
    Ok(())
}

async fn subprogram(client: &Client, args: &Args, id: SubprogramId) -> Result<()> {
    let rows = some_subprograms(client, id.job, id.index, 1).await?;
    let row = rows.into_iter().find(|row| row.subprogram == id);
    let row = row.ok_or_else(|| Refusal(format!("job {} has no subprogram {id}", id.job)))?;
    if args.gantt.is_some() {
        bail!("--gantt draws a whole job: expected a job's number, such as {}", id.job);
    }
    let attempts = attempts(client, &Request::Attempts(id)).await?;
    let replicas = replicas(client, &Request::Replicas(id)).await?;
    args.form.print(&[row], show::subprograms)?;
    if !replicas.is_empty() {
        if !args.form.json {
            output::line("")?;
        }
        args.form.print(&replicas, show::replicas)?;
    }
    if !args.form.json {
        output::line("")?;
    }
    args.form.print(&attempts, |rows| show::attempts(rows, &show::here()))
}

async fn replicas(client: &Client, request: &Request) -> Result<Vec<ReplicaRow>> {
    ask::rows(
        client,
        request,
        |reply| {
            if let Reply::Replica(row) = reply { Some(*row) } else { None }
        },
    )
    .await
}

async fn attempts(client: &Client, request: &Request) -> Result<Vec<AttemptRow>> {
    ask::rows(
        client,
        request,
        |reply| {
            if let Reply::Attempt(row) = reply { Some(*row) } else { None }
        },
    )
    .await
}
