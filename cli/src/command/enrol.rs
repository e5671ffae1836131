//! `glean enrol`: from a token to an identity.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gleaner_common::wire::Role;
use gleaner_shell::enrol::{self, EnrolError};
use gleaner_shell::identity::{Home, Identity, Token};

use crate::ask::{own_directory, runtime};
use crate::failure::{Verdict, hinted};
use crate::output;
use crate::values;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the coordinator listens.
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    pub coordinator: String,
    /// The token, from `glean token create`.
    #[arg(long)]
    pub token: String,
    /// The name to be known by [default: your login].
    #[arg(long)]
    pub name: Option<String>,
    /// Where to keep the identity [default: ~/.config/gleaner].
    #[arg(long, env = "GLEAN_IDENTITY", value_name = "DIR", hide_env_values = true)]
    pub identity: Option<PathBuf>,
    /// Replace an identity that is there already.
    #[arg(long)]
    pub force: bool,
}

/// # Errors
/// A bad token, no coordinator, an identity that is there or cannot be kept.
pub fn run(args: &Args) -> Result<Verdict> {
    let dir = args.identity.clone().or_else(own_directory).ok_or_else(|| {
        hinted(
            "cannot tell where to keep the identity: $HOME is not set",
            "--identity DIR says where",
        )
    })?;
    if let (Ok(there), false) = (Identity::load(&dir), args.force) {
        return Err(hinted(
            format!(
                "{} holds the identity of {} {} already",
                dir.display(),
                there.role.name(),
                there.name
            ),
            "--force replaces it, --identity DIR keeps another beside it",
        ));
    }
    let name = args.name.clone().unwrap_or_else(login);
    let identity = with_token(&args.coordinator, &args.token, &name)?;
    keep(&identity, &dir)?;
    if identity.role == Role::Agent {
        Home::here().note(&dir)?;
    }
    output::say(&format!(
        "enrolled as {} {} at {}; the identity is in {}",
        identity.role.name(),
        identity.name,
        identity.coordinator,
        dir.display()
    ));
    Ok(Verdict::Yes)
}

/// Enrols, without keeping the identity yet.
pub(crate) fn with_token(coordinator: &str, token: &str, name: &str) -> Result<Identity> {
    let token: Token =
        token.parse().map_err(|error: gleaner_shell::identity::ParseTokenError| {
            hinted(error.to_string(), "an admin makes one with `glean token create`")
        })?;
    runtime()?.block_on(enrol::enrol(coordinator, &token, name)).map_err(with_hint)
}

fn with_hint(error: EnrolError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => hinted(error.to_string(), hint),
        None => error.into(),
    }
}

/// Keeps an identity for nobody but its owner to read.
pub(crate) fn keep(identity: &Identity, dir: &Path) -> Result<()> {
    let failed = || format!("cannot keep the identity in {}", dir.display());
    fs::create_dir_all(dir).with_context(failed)?;
    // A shared directory may be somebody else's to decide on.
    if identity.role != Role::Agent {
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    }
    identity.store(dir).with_context(failed)
}

fn login() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|login| !login.is_empty()))
        .unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()))
}
