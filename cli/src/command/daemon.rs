//! The daemons, as services run them: a configuration file, a log on standard
//! error, and SIGTERM to end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use gleaner_agent::{AgentConfig, AgentError};
use gleaner_collector::{CollectorConfig, CollectorError};
use gleaner_coordinator::config::CoordinatorConfig;
use gleaner_shell::identity::IdentityError;
use gleaner_shell::{config, log};
use serde::de::DeserializeOwned;

use crate::failure::{Verdict, hinted};

pub const AGENT_CONFIG: &str = "/etc/gleaner/agent.toml";
pub const COORDINATOR_CONFIG: &str = "/etc/gleaner/coordinator.toml";
pub const COLLECTOR_CONFIG: &str = "/etc/gleaner/collector.toml";

#[derive(Debug, clap::Args)]
pub struct RunAgent {
    /// The configuration [default: /etc/gleaner/agent.toml where it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which coordinator.
#[derive(Debug, clap::Args)]
pub struct CoordinatorHome {
    /// The configuration [default: /etc/gleaner/coordinator.toml where it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep jobs, staged files and the authority here instead.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct RunCoordinator {
    #[command(flatten)]
    pub home: CoordinatorHome,
    /// Listen at this address and UDP port instead.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

#[derive(Debug, clap::Args)]
pub struct RunCollector {
    /// The configuration [default: /etc/gleaner/collector.toml where it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct KeeperArgs {}

/// A file that was asked for must be there; the usual one need not be.
pub(crate) fn load<T: DeserializeOwned + Default>(asked: Option<&Path>, usual: &str) -> Result<T> {
    let loaded = match asked {
        Some(path) => config::load(path),
        None => config::load_or_default(Path::new(usual)),
    };
    loaded.map_err(|error| match &error {
        config::ConfigError::Invalid { path, .. } => {
            let hint = format!("correct {}; what is left out has its default", path.display());
            hinted(error.to_string(), hint)
        }
        config::ConfigError::Missing { .. } | config::ConfigError::Unreadable { .. } => {
            error.into()
        }
    })
}

/// # Errors
/// The agent cannot start.
pub fn agent(args: &RunAgent) -> Result<Verdict> {
    let config: AgentConfig = load(args.config.as_deref(), AGENT_CONFIG)?;
    let asked = std::env::var_os(log::VARIABLE).is_some();
    log::init((!asked).then_some(config.log.as_str()))?;
    let ended = gleaner_agent::run(config);
    ended.map(Verdict::Ended).map_err(|error| {
        if matches!(error, AgentError::Identity(IdentityError::NotEnrolled { .. })) {
            unenrolled(&error, "agent")
        } else if matches!(error, AgentError::Copied { .. }) {
            hinted(error.to_string(), COPIED)
        } else {
            error.into()
        }
    })
}

/// What it is to run with, and where its data is.
pub(crate) fn coordinator_config(home: &CoordinatorHome) -> Result<CoordinatorConfig> {
    let mut config: CoordinatorConfig = load(home.config.as_deref(), COORDINATOR_CONFIG)?;
    if let Some(data) = &home.data {
        config.data.clone_from(data);
    }
    Ok(config)
}

/// # Errors
/// The coordinator cannot start, or cannot go on.
pub fn coordinator(args: &RunCoordinator) -> Result<Verdict> {
    let mut config = coordinator_config(&args.home)?;
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    log::init(None)?;
    gleaner_coordinator::run(&config)?;
    Ok(Verdict::Yes)
}

/// # Errors
/// The collector cannot start, or cannot go on.
pub fn collector(args: &RunCollector) -> Result<Verdict> {
    let config: CollectorConfig = load(args.config.as_deref(), COLLECTOR_CONFIG)?;
    log::init(None)?;
    gleaner_collector::run(config).map_err(|error| {
        if matches!(error, CollectorError::Identity(IdentityError::NotEnrolled { .. })) {
            unenrolled(&error, "collector")
        } else {
            error.into()
        }
    })?;
    Ok(Verdict::Yes)
}

/// What to do on a machine whose image was made from another's.
pub(crate) const COPIED: &str = "sudo glean agent install --coordinator HOST:PORT --token T gives \
    this machine an identity of its own; --moved keeps the other's, if that machine is gone";

fn unenrolled(error: &dyn std::error::Error, what: &str) -> anyhow::Error {
    hinted(
        error.to_string(),
        format!("sudo glean {what} install --coordinator HOST:PORT --token T enrols this machine"),
    )
}
