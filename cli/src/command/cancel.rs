//! `glean cancel ID`.

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::wire::Request;

use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number.
    #[arg(value_name = "JOB")]
    pub job: JobId,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, no such job, or somebody else's.
pub fn run(args: &Args) -> Result<Verdict> {
    ask(&args.access, async |client| ask::one(client, &Request::Cancel(args.job)).await)?;
    output::say(&format!("job {} is cancelled", args.job));
    Ok(Verdict::Yes)
}
