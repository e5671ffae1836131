//! `glean why`: the question people ask most.

use anyhow::Result;
use gleaner_common::wire::{Reply, Request};
use serde::Serialize;

use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output;
use crate::values::{self, JobOrSubprogram};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A job (7), a subprogram (7.12) or a workstation (its name or number, such as ws-042 or w3).
    #[arg(value_name = "JOB|SUBPROGRAM|WORKSTATION")]
    pub about: String,
    /// One record.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

#[derive(Serialize)]
struct Answer<'a> {
    about: &'a str,
    /// The deciding one first.
    reasons: Vec<String>,
}

/// # Errors
/// No answer, or nothing of that name.
pub fn run(args: &Args) -> Result<Verdict> {
    let request = match values::job_or_subprogram(&args.about) {
        Ok(JobOrSubprogram::Job(job)) => Request::WhyJob(job),
        Ok(JobOrSubprogram::Subprogram(subprogram)) => Request::WhySubprogram(subprogram),
        Err(_) => Request::WhyWorkstation(args.about.clone()),
    };
    let reply = ask(&args.access, async |client| ask::one(client, &request).await)?;
    let Reply::Why(reasons) = reply else { return Err(ask::unexpected(&request)) };
    if args.json {
        output::record(&Answer { about: &args.about, reasons })?;
    } else {
        reasons.iter().try_for_each(|reason| output::line(reason))?;
    }
    Ok(Verdict::Yes)
}
