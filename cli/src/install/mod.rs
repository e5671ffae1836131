//! Setting up a machine: files, user, enrolment and service; and taking them
//! away again. Everything may be done twice: what is there already stays.
//!
//! `--root DIR` does the same below a directory, without users and services:
//! for packages and tests.

pub mod agent;
pub mod collector;
pub mod coordinator;
mod membership;
mod pages;
mod service;
mod site;

use std::path::PathBuf;

pub(crate) use self::service::has_agent as has_agent_service;
use crate::values;

/// Where the binary is put, as the unit files name it.
pub const BINARY: &str = "/usr/local/bin/glean";

/// The user of the daemons that need not be root.
pub const USER: &str = "gleaner";

/// What every set-up takes.
#[derive(Clone, Debug, clap::Args)]
pub struct SiteArgs {
    /// Set up below this directory, without users and services: for packages and tests.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// Arguments of `glean coordinator install`.
#[derive(Clone, Debug, clap::Args)]
pub struct CoordinatorArgs {
    #[command(flatten)]
    pub site: SiteArgs,
}

/// Arguments of `glean agent install` and `glean collector install`.
#[derive(Clone, Debug, clap::Args)]
pub struct MemberArgs {
    /// Where the coordinator listens; not needed by a machine that is enrolled.
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    pub coordinator: Option<String>,
    /// The token, from `glean token create`; not needed by a machine that is enrolled.
    #[arg(long)]
    pub token: Option<String>,
    /// The name to be known by [default: the host's].
    #[arg(long)]
    pub name: Option<String>,
    /// Keep an identity that was made on another machine: that one is gone, and its disk is here.
    #[arg(long)]
    pub moved: bool,
    #[command(flatten)]
    pub site: SiteArgs,
}

/// Arguments of every `uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// Take configuration, identity and data away too.
    #[arg(long)]
    pub purge: bool,
    #[command(flatten)]
    pub site: SiteArgs,
}

#[cfg(test)]
mod tests;
