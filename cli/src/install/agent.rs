//! `glean agent install | uninstall`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Command;
use gleaner_agent::config::{AgentConfig, EXAMPLE};
use gleaner_agent::doctor::{self, Health};
use gleaner_common::wire::Role;
use gleaner_shell::identity::Home;

use super::service::{self, AGENT};
use super::site::{Owner, Site, say};
use super::{MemberArgs, UninstallArgs, membership, pages};
use crate::command::daemon::AGENT_CONFIG;
use crate::command::owner::{self, SocketArgs};
use crate::failure::Verdict;

pub(super) const UNIT: &str = include_str!("units/gleaner-agent.service");
pub(super) const SLICE: &str = include_str!("units/gleaner.slice");
/// Every desktop starts what is here with its sessions.
const AUTOSTART: &str = "/etc/xdg/autostart/gleaner-presence.desktop";
const PRESENCE: &str = include_str!("units/gleaner-presence.desktop");
const SLICE_NAME: &str = "gleaner.slice";

/// Where jobs may run instead of in a private directory, as the unit allows it.
const SHARED_LINE: &str = "# @SHARED@\n";

/// # Errors
/// A step that cannot be done; those before it are, and may be done again.
pub fn install(args: &MemberArgs, all: &Command) -> Result<Verdict> {
    let site = Site::open(&args.site.root, all)?;
    site.directory("/etc/gleaner", 0o755, Owner::Root)?;
    site.configuration(AGENT_CONFIG, EXAMPLE)?;
    let config: AgentConfig = gleaner_shell::config::load(&site.path(AGENT_CONFIG))?;
    if site.is_live() {
        check_users(&config)?;
        let data = utf8(&config.data)?;
        membership::leave_copy(&site, args, &Home::here(), utf8(&config.identity)?, &[data])?;
    }
    site.directory("/var/lib/gleaner", 0o755, Owner::Root)?;
    site.directory(utf8(&config.data)?, 0o711, Owner::Root)?;
    let mut changed = site.binary()?;
    changed |= membership::ensure(&site, args, Role::Agent, utf8(&config.identity)?, Owner::Root)?;
    changed |= site.file(&service::unit(SLICE_NAME), SLICE.as_bytes())?;
    site.file(AUTOSTART, PRESENCE.as_bytes())?;
    pages::write(&site)?;
    AGENT.install(&site, &unit(&config), changed, || {
        owner::status_of(&SocketArgs { socket: Some(config.owner_socket()) }).map(drop)
    })?;
    Ok(Verdict::Yes)
}

/// # Errors
/// A step that cannot be done.
pub fn uninstall(args: &UninstallArgs, all: &Command) -> Result<Verdict> {
    let site = Site::open(&args.site.root, all)?;
    AGENT.uninstall(&site)?;
    service::remove_slice(&site, SLICE_NAME)?;
    site.remove(AUTOSTART)?;
    // Where there is no desktop, these are ours.
    Path::new(AUTOSTART).ancestors().skip(1).take(2).for_each(|it| site.remove_if_empty(it));
    if args.purge {
        let config: AgentConfig =
            gleaner_shell::config::load(&site.path(AGENT_CONFIG)).unwrap_or_default();
        for path in [config.identity.as_path(), config.data.as_path(), Path::new(AGENT_CONFIG)] {
            site.remove(utf8(path)?)?;
        }
        site.remove_if_empty("/etc/gleaner");
        site.remove_if_empty("/var/lib/gleaner");
        say("the coordinator still lists this workstation, as away");
    }
    service::remove_shared(&site)?;
    Ok(Verdict::Yes)
}

/// The unit, with what of the configuration must be writable: the identity, which
/// is renewed, and the shared directories.
pub(super) fn unit(config: &AgentConfig) -> String {
    let mut lines = String::new();
    for path in [&config.identity].into_iter().chain(&config.guests.shared_directories) {
        // The dash: one that is not mounted is no reason not to start.
        let path = path.display().to_string().replace('%', "%%");
        lines.extend(["ReadWritePaths=-\"", &path, "\"\n"]);
    }
    UNIT.replace(SHARED_LINE, &lines)
}

/// Nobody's account may be among guests' user numbers.
fn check_users(config: &AgentConfig) -> Result<()> {
    let users = doctor::guest_users(config);
    if users.health != Health::Well {
        bail!("{AGENT_CONFIG}: {}: {}", users.found, users.repair.unwrap_or_default());
    }
    say(&format!("guests run as users {}", users.found));
    Ok(())
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
