//! `glean users`: who may submit jobs.

use anyhow::Result;
use clap::Subcommand;
use gleaner_common::report::UserRow;
use gleaner_common::wire::{Reply, Request};

use super::show;
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: UsersCommand,
}

#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// List everybody who may submit jobs.
    #[command(after_help = "Example:\n  glean users ls --json")]
    Ls(ListArgs),
    /// Take a user's keys away and cancel their jobs: they are out at once, the name is free.
    #[command(visible_alias = "remove")]
    #[command(after_help = "Examples:
  glean users rm ada
  glean users rm ada --keep-jobs     what is under way ends as if ada were here")]
    Rm(RemoveArgs),
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub access: Access,
}

#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// The user's name.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Let the user's jobs go on to their end.
    #[arg(long)]
    pub keep_jobs: bool,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, not an admin, or no such user.
pub fn run(command: UsersCommand) -> Result<Verdict> {
    match command {
        UsersCommand::Ls(args) => list(&args),
        UsersCommand::Rm(args) => remove(args),
    }
}

fn list(args: &ListArgs) -> Result<Verdict> {
    let rows: Vec<UserRow> = ask(&args.access, async |client| {
        ask::rows(client, &Request::Users, |reply| {
            if let Reply::User(row) = reply { Some(*row) } else { None }
        })
        .await
    })?;
    args.form.print(&rows, |rows| show::users(rows, &show::here()))?;
    Ok(Verdict::Yes)
}

fn remove(args: RemoveArgs) -> Result<Verdict> {
    let RemoveArgs { name, keep_jobs, access } = args;
    let request = Request::UserRemove { name: name.clone(), keep_jobs };
    let reply = ask(&access, async |client| ask::one(client, &request).await)?;
    let Reply::UserRemoved { cancelled, kept } = reply else {
        return Err(ask::unexpected(&request));
    };
    output::say(&format!(
        "user {name} is let in no more; jobs cancelled: {cancelled}, that go on: {kept}"
    ));
    Ok(Verdict::Yes)
}
