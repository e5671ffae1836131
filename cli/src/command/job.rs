//! `glean job ID`: a job and its subprograms, or a subprogram and its attempts.

mod gantt;

use std::path::PathBuf;

use anyhow::{Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::AttemptRow;
use gleaner_common::wire::{Reply, Request};
use gleaner_figure::Format;
use gleaner_shell::client::Client;

use super::{jobs, show};
use crate::ask::{self, Access, ask};
use crate::failure::{Refusal, Verdict};
use crate::output;
use crate::values::{self, JobOrSubprogram};

/// As many as a person reads; `--all` and `--json` give every one.
const ROWS_MAX: usize = 100;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number, or a subprogram's, such as 7.12.
    #[arg(value_name = "ID", value_parser = values::job_or_subprogram)]
    pub id: JobOrSubprogram,
    /// Every subprogram, however many.
    #[arg(long)]
    pub all: bool,
    /// Draw who ran where and who moved into this file, .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// One record a line: the job and its subprograms, or the subprogram and its attempts.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, or no such job.
pub fn run(args: &Args) -> Result<Verdict> {
    args.gantt.as_deref().map(Format::of).transpose()?;
    ask(&args.access, async |client| match args.id {
        JobOrSubprogram::Job(id) => job(client, args, id).await,
        JobOrSubprogram::Subprogram(id) => subprogram(client, args, id).await,
    })?;
    Ok(Verdict::Yes)
}

async fn job(client: &Client, args: &Args, id: JobId) -> Result<()> {
    let job = jobs::one(client, id).await?;
    let mut rows = ask::subprograms(client, id).await?;
    if let Some(path) = &args.gantt {
        gantt::draw(client, &job, &rows, path).await?;
    }
    if args.json {
        output::record(&job)?;
        return rows.iter().try_for_each(output::record);
    }
    show::job(&job, &show::here()).print()?;
    output::line("")?;
    let all = rows.len();
    if !args.all {
        rows.truncate(ROWS_MAX);
    }
    show::subprograms(&rows).print()?;
    if rows.len() < all {
        eprintln!("{} more: glean job {id} --all", all - rows.len());
    }
    Ok(())
}

async fn subprogram(client: &Client, args: &Args, id: SubprogramId) -> Result<()> {
    let rows = ask::subprograms(client, id.job).await?;
    let row = rows.into_iter().find(|row| row.subprogram == id);
    let row = row.ok_or_else(|| Refusal(format!("job {} has no subprogram {id}", id.job)))?;
    if args.gantt.is_some() {
        bail!("--gantt draws a whole job: expected a job's number, such as {}", id.job);
    }
    let attempts = attempts(client, &Request::Attempts(id)).await?;
    if args.json {
        output::record(&row)?;
        return attempts.iter().try_for_each(output::record);
    }
    show::subprograms(&[row]).print()?;
    output::line("")?;
    show::attempts(&attempts, &show::here()).print()
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
