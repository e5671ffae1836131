//! `glean coordinator install | uninstall`.

use anyhow::{Context, Result};
use clap::Command;
use gleaner_common::wire::Request;
use gleaner_coordinator::{ADMIN, CoordinatorConfig};

use super::service::COORDINATOR;
use super::site::{Owner, Site, say};
use super::{CoordinatorArgs, UninstallArgs, pages};
use crate::ask::{self, Access, ask};
use crate::command::daemon::COORDINATOR_CONFIG;
use crate::failure::Verdict;

pub(super) const UNIT: &str = include_str!("units/gleaner-coordinator.service");
const DATA: &str = "/var/lib/gleaner/coordinator";

const HEAD: &str = "\
# glean coordinator: every setting with its default. Leave out what suits you.
# policy: likely-longest, last-idle-first, first-idle-first or ranked.
# [prices] asked = 900, least = 700: what running jobs pay for processors that they are
# offered, and the least; for one and hour, in thousandths of what the site counts in.

";

/// # Errors
/// A step that cannot be done; those before it are, and may be done again.
pub fn install(args: &CoordinatorArgs, all: &Command) -> Result<Verdict> {
    let mut site = Site::open(&args.site.root, all)?;
    site.user()?;
    site.directory("/etc/gleaner", 0o755, Owner::Root)?;
    site.configuration(COORDINATOR_CONFIG, &configuration()?)?;
    site.directory("/var/lib/gleaner", 0o755, Owner::Root)?;
    site.directory(DATA, 0o700, Owner::Gleaner)?;
    let changed = site.binary()?;
    pages::write(&site)?;
    COORDINATOR.install(&site, UNIT, changed, || answers(&site))?;
    if site.is_live() {
        say("next: `glean token create --role agent`, for each workstation");
    }
    Ok(Verdict::Yes)
}

/// # Errors
/// A step that cannot be done.
pub fn uninstall(args: &UninstallArgs, all: &Command) -> Result<Verdict> {
    COORDINATOR.uninstall_with_user(args, all, [DATA, COORDINATOR_CONFIG])
}

/// Does the coordinator answer its own administrator?
fn answers(site: &Site) -> Result<()> {
    let config: CoordinatorConfig = gleaner_shell::config::load(&site.path(COORDINATOR_CONFIG))?;
    let access = Access { identity: Some(config.data.join(ADMIN)), coordinator: None };
    ask(&access, async |client| ask::one(client, &Request::Health).await).map(drop)
}

fn configuration() -> Result<String> {
    let settings = toml::to_string(&CoordinatorConfig::default());
    Ok(format!("{HEAD}{}", settings.context("the defaults are a configuration")?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_written_configuration_says_the_defaults() {
        let path = Path::new(COORDINATOR_CONFIG);
        let read: CoordinatorConfig =
            gleaner_shell::config::parse(path, &configuration().unwrap()).unwrap();
        assert_eq!(read, CoordinatorConfig::default());
    }
}
