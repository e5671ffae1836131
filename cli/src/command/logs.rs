//! `glean logs`: what subprograms printed, as they printed it, but for what would
//! do something to a terminal.

use anyhow::{Context, Result};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::wire::{Printed, Reply, Request};
use gleaner_shell::client::Client;

use crate::ask::{self, Access, ask};
use crate::failure::{Refusal, Verdict};
use crate::output;
use crate::values::{self, JobOrSubprogram};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number, or a subprogram's, such as 7.12.
    #[arg(value_name = "ID", value_parser = values::job_or_subprogram)]
    pub id: JobOrSubprogram,
    /// What they printed to standard error instead.
    #[arg(long)]
    pub stderr: bool,
    /// On a terminal too, print every byte as it is: control codes do what they say.
    #[arg(long)]
    pub raw: bool,
    /// What this replica of a subprogram printed, 1 for the first, whether or not it counts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub replica: Option<u8>,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, or nothing of that number.
pub fn run(args: &Args) -> Result<Verdict> {
    ask(&args.access, async |client| match args.id {
        JobOrSubprogram::Subprogram(id) => {
            let bytes = printed(client, id, args).await?;
            output::printed(&bytes, args.raw)?;
            Ok(Verdict::Yes)
        }
        JobOrSubprogram::Job(id) => all(client, id, args).await,
    })
}

async fn all(client: &Client, id: JobId, args: &Args) -> Result<Verdict> {
    let mut any = Verdict::No;
    for row in ask::subprograms(client, id).await? {
        let bytes = match printed(client, row.subprogram, args).await {
            Ok(bytes) => bytes,
            // This subprogram has printed nothing yet; the others may have.
            Err(error) if error.is::<Refusal>() => continue,
            Err(error) => return Err(error),
        };
        output::line(&format!("==> {} {} <==", row.subprogram, row.state.name()))?;
        output::printed(&bytes, args.raw)?;
        if bytes.last().is_some_and(|last| *last != b'\n') {
            output::line("")?;
        }
        any = Verdict::Yes;
    }
    if any == Verdict::No {
        output::say(&format!("no subprogram of job {id} has ended yet"));
    }
    Ok(any)
}

/// What one subprogram printed, checked against its hash.
async fn printed(client: &Client, id: SubprogramId, args: &Args) -> Result<Vec<u8>> {
    let request = match args.replica {
        Some(replica) => Request::ReplicaOutput { subprogram: id, replica },
        None => Request::Output(id),
    };
    let Reply::Output { stdout, stderr: errors, .. } = ask::one(client, &request).await? else {
        return Err(ask::unexpected(&request));
    };
    match if args.stderr { errors } else { stdout } {
        Printed::Inline(bytes) => Ok(bytes),
        Printed::Staged { hash, truncated, .. } => {
            let bytes = client
                .get_bytes(hash)
                .await
                .map_err(ask::failed)
                .with_context(|| format!("cannot get what {id} printed"))?;
            if truncated {
                output::say(&format!("{id} printed more than is kept: this is cut"));
            }
            Ok(bytes)
        }
    }
}
