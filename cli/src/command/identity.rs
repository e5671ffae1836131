//! `glean identity`: one's own key.

use anyhow::Result;
use clap::Subcommand;
use gleaner_shell::enrol;
use gleaner_shell::identity::Identity;

use crate::ask::{Access, ask};
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: IdentityCommand,
}

#[derive(Debug, Subcommand)]
pub enum IdentityCommand {
    /// Make a new key; the old one, wherever a copy of it is, is worth nothing from then on.
    #[command(after_help = "Example:\n  glean identity rotate")]
    Rotate(RotateArgs),
}

#[derive(Debug, clap::Args)]
pub struct RotateArgs {
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No identity, no answer, or one that cannot be kept.
pub fn run(command: &IdentityCommand) -> Result<Verdict> {
    let IdentityCommand::Rotate(args) = command;
    let dir = args.access.directory()?;
    let old = Identity::load(&dir)?;
    let new = ask(&args.access, async |client| {
        Ok(enrol::rotate(&client.link().connection, &dir, &old).await?)
    })?;
    output::say(&format!("{} {} has a new key, in {}", new.role.name(), new.name, dir.display()));
    Ok(Verdict::Yes)
}
