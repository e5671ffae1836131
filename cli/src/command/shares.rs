//! `glean shares`: who has used how much, and whose turn comes next.

use anyhow::Result;
use gleaner_common::report::ShareRow;
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
    let mut rows: Vec<ShareRow> = ask(&args.access, async |client| {
        ask::rows(client, &Request::Shares, |reply| {
            if let Reply::Share(row) = reply { Some(*row) } else { None }
        })
        .await
    })?;
    rows.sort_by(|a, b| a.factor.total_cmp(&b.factor));
    args.form.print(&rows, show::shares)?;
    Ok(Verdict::Yes)
}
