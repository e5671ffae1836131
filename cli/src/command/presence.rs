//! `glean presence`: a helper inside somebody's session.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gleaner_agent::config::AgentConfig;
use gleaner_shell::log;

use super::daemon::AGENT_CONFIG;
use crate::failure::Verdict;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The agent's socket [default: that of its configuration, /run/gleaner/presence.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Ends with the session.
///
/// # Errors
/// There is no display here, or none that tells when it was used.
pub fn run(args: &Args) -> Result<Verdict> {
    log::init(None)?;
    let socket = args.socket.clone().unwrap_or_else(usual_socket);
    gleaner_agent::presence::run(&socket)?;
    Ok(Verdict::Yes)
}

/// A configuration that cannot be read is the agent's business, not this user's.
fn usual_socket() -> PathBuf {
    gleaner_shell::config::load_or_default::<AgentConfig>(Path::new(AGENT_CONFIG))
        .unwrap_or_default()
        .presence_socket()
}
