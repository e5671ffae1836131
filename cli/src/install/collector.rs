//! `glean collector install | uninstall`.

use anyhow::Result;
use clap::Command;
use gleaner_common::wire::Role;

use super::service::COLLECTOR;
use super::site::{Owner, Site};
use super::{MemberArgs, UninstallArgs, membership, pages};
use crate::command::daemon::COLLECTOR_CONFIG;
use crate::failure::Verdict;

pub(super) const UNIT: &str = include_str!("units/gleaner-collector.service");
const HOME: &str = "/var/lib/gleaner/collector";
const DATA: &str = "/var/lib/gleaner/collector/usage";
const IDENTITY: &str = "/var/lib/gleaner/collector/identity";

const CONFIGURATION: &str = "\
# glean collector: every setting with its default. Leave out what suits you.

# Where the workstations' usage logs are kept.
data_dir = \"/var/lib/gleaner/collector/usage\"
# Key, certificate and the coordinator's address, from enrolment.
identity_dir = \"/var/lib/gleaner/collector/identity\"
";

/// # Errors
/// A step that cannot be done; those before it are, and may be done again.
pub fn install(args: &MemberArgs, all: &Command) -> Result<Verdict> {
    let mut site = Site::open(&args.site.root, all)?;
    site.user()?;
    site.directory("/etc/gleaner", 0o755, Owner::Root)?;
    site.configuration(COLLECTOR_CONFIG, CONFIGURATION)?;
    site.directory("/var/lib/gleaner", 0o755, Owner::Root)?;
    site.directory(HOME, 0o700, Owner::Gleaner)?;
    site.directory(DATA, 0o700, Owner::Gleaner)?;
    site.directory(IDENTITY, 0o700, Owner::Gleaner)?;
    let mut changed = site.binary()?;
    changed |= membership::ensure(&site, args, Role::Collector, IDENTITY, Owner::Gleaner)?;
    pages::write(&site)?;
    // Nobody asks the collector anything: it dials out.
    COLLECTOR.install(&site, UNIT, changed, || Ok(()))?;
    Ok(Verdict::Yes)
}

/// # Errors
/// A step that cannot be done.
pub fn uninstall(args: &UninstallArgs, all: &Command) -> Result<Verdict> {
    COLLECTOR.uninstall_with_user(args, all, [HOME, COLLECTOR_CONFIG])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gleaner_collector::CollectorConfig;

    use super::*;

    #[test]
    fn the_written_configuration_says_the_defaults() {
        let path = Path::new(COLLECTOR_CONFIG);
        let read: CollectorConfig = gleaner_shell::config::parse(path, CONFIGURATION).unwrap();
        assert_eq!(read, CollectorConfig::default());
    }
}
