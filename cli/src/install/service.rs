//! systemd units: written, enabled and started, or stopped and taken away.
//! Where systemd does not run, that is said, with what to do instead.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;

use super::site::{Site, run, same_file, say};
use super::{BINARY, UninstallArgs, pages};
use crate::failure::{Verdict, hinted, one_line};

/// Where units that an administrator installs live.
const UNITS: &str = "/etc/systemd/system";

/// There while systemd is the machine's init (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";

/// How long a daemon may take until it answers, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// One daemon's service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    /// How to run it by hand.
    pub(super) by_hand: &'static str,
}

pub(super) const AGENT: Service = Service { name: "gleaner-agent.service", by_hand: "glean agent" };
pub(super) const COORDINATOR: Service =
    Service { name: "gleaner-coordinator.service", by_hand: "glean coordinator" };
pub(super) const COLLECTOR: Service =
    Service { name: "gleaner-collector.service", by_hand: "glean collector" };

impl Service {
    fn path(self) -> String {
        unit(self.name)
    }

    pub(super) fn is_installed(self, site: &Site) -> bool {
        site.path(self.path()).exists()
    }

    /// Writes the unit, enables it, and starts it; a daemon whose binary, unit
    /// or identity changed is started anew. Returns when the daemon answers:
    /// the next command may need it.
    ///
    /// # Errors
    /// A file that cannot be written, or a service that does not start.
    pub(super) fn install(
        self,
        site: &Site,
        text: &str,
        changed: bool,
        answers: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let changed = site.file(&self.path(), text.as_bytes())? || changed;
        if !site.is_live() {
            return Ok(());
        }
        if !is_managed(site) {
            say(&format!("systemd does not run here: start `{}` by hand", self.by_hand));
            return Ok(());
        }
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", self.name])?;
        let changed = changed || self.runs_another();
        systemctl(&[if changed { "restart" } else { "start" }, self.name])?;
        self.wait_for(answers)?;
        say(&format!("{} is enabled and runs", self.name));
        Ok(())
    }

    /// Does it run a binary that has been replaced? Another daemon's installation may have done so.
    fn runs_another(self) -> bool {
        let asked = ["show", "--property=MainPID", "--value", self.name];
        let Ok(said) = Command::new("systemctl").args(asked).output() else { return false };
        let pid = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        pid != "0" && !same_file(&Path::new("/proc").join(pid).join("exe"), Path::new(BINARY))
    }

    fn wait_for(self, answers: impl Fn() -> Result<()>) -> Result<()> {
        let end = Clock.now() + PATIENCE;
        let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        while let Err(error) = answers() {
            if Clock.now() > end {
                let said = one_line(&error);
                return Err(hinted(
                    format!("{} has been started and does not answer: {said}", self.name),
                    format!("journalctl -u {} has its log", self.name),
                ));
            }
            pauses.next().into_iter().for_each(std::thread::sleep);
        }
        Ok(())
    }

    /// Stops and disables the daemon and takes its unit away.
    ///
    /// # Errors
    /// A file that cannot be removed, or a service that does not stop.
    pub(super) fn uninstall(self, site: &Site) -> Result<()> {
        if is_managed(site) && self.is_installed(site) {
            systemctl(&["disable", "--now", self.name])?;
        }
        remove_unit(site, self.name)
    }

    /// Takes away a daemon that runs as the user that is made for it; `own` is its
    /// data and its configuration.
    ///
    /// # Errors
    /// As for `uninstall`.
    pub(super) fn uninstall_with_user(
        self,
        args: &UninstallArgs,
        all: &clap::Command,
        own: [&str; 2],
    ) -> Result<Verdict> {
        let site = Site::open(&args.site.root, all)?;
        self.uninstall(&site)?;
        if args.purge {
            own.into_iter().try_for_each(|path| site.remove(path))?;
            site.remove_if_empty("/etc/gleaner");
            site.remove_if_empty("/var/lib/gleaner");
            if ![COORDINATOR, COLLECTOR].into_iter().any(|other| other.is_installed(&site)) {
                site.remove_user();
            }
        }
        remove_shared(&site)?;
        Ok(Verdict::Yes)
    }
}

/// Does systemd run the services here?
fn is_managed(site: &Site) -> bool {
    site.is_live() && Path::new(BOOTED).exists()
}

fn remove_unit(site: &Site, name: &str) -> Result<()> {
    site.remove(&unit(name))?;
    if is_managed(site) {
        systemctl(&["daemon-reload"])?;
    }
    Ok(())
}

/// Takes a slice away, with its control group: a service that stops leaves both.
///
/// # Errors
/// A file that cannot be removed, or a slice that does not stop.
pub(super) fn remove_slice(site: &Site, name: &str) -> Result<()> {
    if is_managed(site) && site.path(unit(name)).exists() {
        systemctl(&["stop", name])?;
    }
    remove_unit(site, name)
}

/// Is this machine's agent a service?
pub(crate) fn has_agent() -> bool {
    Path::new(BOOTED).exists() && Path::new(&AGENT.path()).exists()
}

/// Takes away what services share, once none is left. Returns whether none is.
///
/// # Errors
/// A file that cannot be removed.
pub(super) fn remove_shared(site: &Site) -> Result<bool> {
    if [AGENT, COORDINATOR, COLLECTOR].into_iter().any(|service| service.is_installed(site)) {
        return Ok(false);
    }
    site.remove(BINARY)?;
    pages::remove(site)?;
    Ok(true)
}

/// Where a unit's file is.
pub(super) fn unit(name: &str) -> String {
    format!("{UNITS}/{name}")
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    run(Command::new("systemctl").args(arguments))
}
