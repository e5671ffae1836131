//! `glean token`: how machines and people are let in.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use gleaner_common::report::TokenRow;
use gleaner_common::time::Spoken;
use gleaner_common::units;
use gleaner_common::wire::{Reply, Request, Role};
use serde::Serialize;

use super::show;
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token that enrols one machine or person, once.
    #[command(after_help = "Example:\n  glean token create --role user --name ada --lifetime 1d")]
    Create(CreateArgs),
    /// List the tokens: open, used, expired or revoked.
    #[command(after_help = "Example:\n  glean token ls --json")]
    Ls(ListArgs),
    /// Make an open token worthless.
    #[command(after_help = "Example:\n  glean token revoke 1f2e3d4c")]
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// What the newcomer will be: agent, user, admin or collector.
    #[arg(long)]
    pub role: Role,
    /// How long the token is good for.
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = units::parse_duration)]
    pub lifetime: Duration,
    /// The name the newcomer must take; any by default.
    #[arg(long)]
    pub name: Option<String>,
    /// One record.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub access: Access,
}

#[derive(Debug, clap::Args)]
pub struct RevokeArgs {
    /// The token's short name, as `glean token ls` shows it.
    #[arg(value_name = "TOKEN")]
    pub id: String,
    #[command(flatten)]
    pub access: Access,
}

#[derive(Serialize)]
struct Created {
    token: String,
    id: String,
    role: Role,
    /// Nanoseconds since 1970, as all times in records.
    expires: i64,
}

/// # Errors
/// No answer, or not an admin.
pub fn run(command: TokenCommand) -> Result<Verdict> {
    match command {
        TokenCommand::Create(args) => create(args),
        TokenCommand::Ls(args) => list(&args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn create(args: CreateArgs) -> Result<Verdict> {
    let CreateArgs { role, lifetime, name, json, access } = args;
    let request = Request::TokenCreate { role, lifetime, name };
    let reply = ask(&access, async |client| ask::one(client, &request).await)?;
    let Reply::Token { text, id, expires } = reply else { return Err(ask::unexpected(&request)) };
    if json {
        output::record(&Created { token: text, id, role, expires: expires.0 })?;
    } else {
        // The token alone on standard output, so that $(..) takes it.
        output::line(&text)?;
        output::say(&format!(
            "token {id} enrols one {}, once, within {}",
            role.name(),
            Spoken(lifetime)
        ));
    }
    Ok(Verdict::Yes)
}

fn list(args: &ListArgs) -> Result<Verdict> {
    let rows: Vec<TokenRow> = ask(&args.access, async |client| {
        ask::rows(client, &Request::Tokens, |reply| {
            if let Reply::TokenRow(row) = reply { Some(*row) } else { None }
        })
        .await
    })?;
    args.form.print(&rows, |rows| show::tokens(rows, &show::here()))?;
    Ok(Verdict::Yes)
}

fn revoke(args: RevokeArgs) -> Result<Verdict> {
    let RevokeArgs { id, access } = args;
    let request = Request::TokenRevoke { id: id.clone() };
    ask(&access, async |client| ask::one(client, &request).await)?;
    output::say(&format!("token {id} is revoked"));
    Ok(Verdict::Yes)
}
