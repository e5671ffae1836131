//! `glean workstations`: idle or busy, and why.

use anyhow::Result;
use gleaner_common::report::WorkstationRow;
use gleaner_common::wire::{Reply, Request};

use super::show;
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// One record a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer.
pub fn run(args: &Args) -> Result<Verdict> {
    let rows: Vec<WorkstationRow> = ask(&args.access, async |client| {
        ask::rows(client, &Request::Workstations, |reply| {
            if let Reply::Workstation(row) = reply { Some(*row) } else { None }
        })
        .await
    })?;
    if args.json {
        rows.iter().try_for_each(output::record)?;
    } else {
        show::workstations(&rows).print()?;
    }
    Ok(Verdict::Yes)
}
