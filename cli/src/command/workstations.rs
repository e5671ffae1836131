//! `glean workstations`: idle or busy, and why.

use anyhow::Result;
use gleaner_common::report::WorkstationRow;
use gleaner_common::wire::{Reply, Request};

use super::show;
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::Form;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub form: Form,
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
    args.form.print(&rows, show::workstations)?;
    Ok(Verdict::Yes)
}
