//! Is this machine fit for guests? What the running agent says of its sensors,
//! and what this process can see of the kernel itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use gleaner_agent::config::AgentConfig;
use gleaner_agent::doctor::{self, Check};
use gleaner_common::machine::Machine;
use gleaner_common::time::{Spoken, WallTime};
use gleaner_common::validity::LIFE_MAX;
use gleaner_common::wire::Role;
use gleaner_shell::endpoint::{Credentials, connect};
use gleaner_shell::identity::{Home, Identity};

use super::finding;
use crate::ask::runtime;
use crate::command::daemon::{self, AGENT_CONFIG};
use crate::command::machine as parts;
use crate::command::owner::{self, SocketArgs};
use crate::install;

/// A few guests' files; a guess.
const ROOM_BYTES_MIN: u64 = 1 << 30;

/// Checks the agent with this configuration file, or the usual one.
pub(super) fn checks(file: Option<&Path>, socket: &SocketArgs) -> Vec<Check> {
    let mut checks = vec![];
    let config = match daemon::load::<AgentConfig>(file, AGENT_CONFIG) {
        Ok(config) => {
            let file = file.map_or_else(|| AGENT_CONFIG.into(), Path::to_string_lossy);
            checks.push(Check::well("configuration", file));
            config
        }
        Err(error) => {
            let (found, repair) = finding(&error);
            checks.push(Check::sick("configuration", found, repair.unwrap_or_default()));
            AgentConfig::default()
        }
    };
    checks.extend(of_machine(&gleaner_agent::machine::describe(), &config.data));
    // A guest is tried, frozen and killed.
    checks.extend(doctor::checks(&config, install::has_agent_service()));
    checks.extend(of_sensors(&config));
    checks.push(of_clock());
    checks.extend(of_identity(&config.identity));
    let usual = || SocketArgs { socket: Some(config.owner_socket()) };
    let socket = if socket.socket.is_some() { socket.clone() } else { usual() };
    checks.extend(of_agent(&socket));
    checks
}

/// Is there room for guests' files, and does nothing run too hot?
fn of_machine(machine: &Machine, data: &Path) -> Vec<Check> {
    let what = format!("{}, {}, {}", machine.hostname, machine.os, machine.processor);
    let mut checks = vec![Check::well("machine", what)];
    let disks = machine.disks.iter().filter(|disk| data.starts_with(&disk.path));
    if let Some(disk) = disks.max_by_key(|disk| disk.path.len()) {
        let found = parts::disk(disk);
        checks.push(if disk.free_bytes >= ROOM_BYTES_MIN {
            Check::well("disk", found)
        } else {
            Check::lacking("disk", found, "make room: guests' inputs and outputs lie there")
        });
    }
    if let Some(hottest) = machine.hottest() {
        let found = parts::temperature(hottest);
        let too_hot = hottest.critical_celsius.is_some_and(|critical| hottest.celsius >= critical);
        checks.push(if too_hot {
            Check::lacking("temperature", found, "it slows itself down: see to its cooling")
        } else {
            Check::well("temperature", found)
        });
    }
    checks
}

fn of_sensors(config: &AgentConfig) -> Vec<Check> {
    let patterns = config.sensors.terminals.iter().map(Path::new);
    // A pattern stands for files in its directory; a directory for its own.
    let places: BTreeSet<&Path> =
        patterns.filter_map(|at| if at.is_dir() { Some(at) } else { at.parent() }).collect();
    let terminals = places.into_iter().map(|dir| match fs::read_dir(dir) {
        Ok(_) => Check::well("terminals", format!("{} can be watched", dir.display())),
        Err(error) => Check::sick(
            "terminals",
            format!("cannot watch {}: {error}", dir.display()),
            "let the service see it: no PrivateDevices=, no chroot without devpts",
        ),
    });
    let input = &config.sensors.input;
    let input = match devices(input) {
        Ok(0) => Check::lacking(
            "input",
            format!("no device in {}", input.display()),
            "none is needed on a machine without keyboard and screen; the terminals are watched",
        ),
        Ok(many) => Check::well("input", format!("{many} devices can be read")),
        Err(error) if error.kind() == ErrorKind::NotFound => Check::lacking(
            "input",
            format!("no directory {}", input.display()),
            "none is needed on a machine without keyboard and screen; the terminals are watched",
        ),
        Err(error) => Check::sick(
            "input",
            format!("cannot read {}: {error}", input.display()),
            "run as root, with DeviceAllow=char-input r in the service",
        ),
    };
    let bus = Path::new("/run/dbus/system_bus_socket");
    let sessions = if bus.exists() {
        Check::well("sessions", "there is a system bus")
    } else {
        Check::lacking(
            "sessions",
            "no system bus: no session locks or inhibitors",
            "install dbus and systemd-logind",
        )
    };
    terminals.chain([input, sessions]).collect()
}

/// How many event devices can be opened.
fn devices(dir: &Path) -> std::io::Result<usize> {
    let mut many = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("event") {
            fs::File::open(entry.path())?;
            many += 1;
        }
    }
    Ok(many)
}

/// A clock that jumped, as far as a machine can see by itself.
fn of_clock() -> Check {
    let year_2025_s = 1_735_689_600.0;
    let now = gleaner_shell::clock::Clock::new().wall();
    if now.unix_s() > year_2025_s {
        return Check::well("clock", "plausible");
    }
    Check::sick("clock", "before 2025", "set it by NTP: timedatectl set-ntp true")
}

fn of_identity(dir: &Path) -> Vec<Check> {
    let repair = "sudo glean agent install --coordinator HOST:PORT --token T enrols this machine";
    let identity = match Identity::load(dir) {
        Ok(identity) if identity.role == Role::Agent => identity,
        Ok(identity) => {
            let found = format!("{} holds that of a {}", dir.display(), identity.role.name());
            return vec![Check::sick("identity", found, repair)];
        }
        Err(error) => return vec![Check::sick("identity", error.to_string(), repair)],
    };
    if Home::noted(dir).is_some_and(|there| there.is_another(&Home::here())) {
        let found = format!("{} was made on another machine: this is a copy of it", dir.display());
        return vec![Check::sick("identity", found, daemon::COPIED)];
    }
    let identity_check = of_certificate(&identity, dir);
    let reached = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let link =
                connect(&identity.coordinator, Credentials::Identity(&identity), None).await?;
            link.close().await;
            Ok(())
        })
    });
    let port = match reached {
        Ok(()) => Check::well(
            "port",
            format!("{} answers, and both sides trust each other", identity.coordinator),
        ),
        Err(error) => {
            let (found, _) = finding(&error);
            Check::sick(
                "port",
                found,
                "does the firewall let UDP through, and is this machine's key not revoked?",
            )
        }
    };
    vec![identity_check, port]
}

/// Is it renewed in time? By the clock here, which is looked at elsewhere.
fn of_certificate(identity: &Identity, dir: &Path) -> Check {
    let known = format!("agent {}, key {}", identity.name, identity.fingerprint());
    let left = |at: WallTime| at.since(gleaner_shell::clock::Clock::new().wall());
    let Some(validity) = identity.validity() else {
        return Check::sick(
            "identity",
            format!("{known}: its certificate does not read"),
            "enrol again",
        );
    };
    let until = left(validity.until);
    if until.is_zero() {
        let repair = "an admin makes a token by `glean token create --role agent --name NAME`, and \
                      sudo glean agent install --coordinator HOST:PORT --token T enrols again";
        return Check::sick("identity", format!("{known}: its certificate has run out"), repair);
    }
    let good = format!("{known}, good for {} more", Spoken(until));
    // Half of the time there was for it.
    if validity.life() <= LIFE_MAX && until < validity.life() / 6 {
        let found = format!("{good}, and was to be renewed long ago");
        let repair = format!("can the agent write {}? Its log says more", dir.display());
        return Check::sick("identity", found, repair);
    }
    Check::well("identity", good)
}

fn of_agent(socket: &SocketArgs) -> Vec<Check> {
    let status = match owner::status_of(socket) {
        Ok(status) => status,
        Err(error) => {
            let (found, _) = finding(&error);
            return vec![Check::sick("agent", found, "systemctl enable --now gleaner-agent")];
        }
    };
    let mut checks = vec![match (&status.refused, status.connected) {
        (Some(reason), _) => Check::sick(
            "agent",
            reason.clone(),
            "sudo glean agent install --coordinator HOST:PORT --token T enrols again",
        ),
        (None, false) => {
            Check::sick("agent", "not connected", "see its log: journalctl -u gleaner-agent")
        }
        (None, true) => Check::well("agent", status.verdict.clone()),
    }];
    if let Some(why) = &status.unready {
        checks.push(Check::sick("readiness", why.clone(), "make room: nothing is begun before"));
    }
    for sensor in &status.sensors {
        let found = match &sensor.detail {
            Some(detail) => format!("{} {}: {detail}", sensor.sensor, sensor.health),
            None => format!("{} {}", sensor.sensor, sensor.health),
        };
        checks.push(match sensor.health.as_str() {
            "well" => Check::well("sensor", found),
            "sick" => Check::sick("sensor", found, "the reason is in: journalctl -u gleaner-agent"),
            _ => Check::lacking("sensor", found, "fine where the machine has no such thing"),
        });
    }
    for line in &status.missing {
        checks.push(Check::lacking("missing", line.clone(), "guests run without it"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use gleaner_common::machine::{Disk, Temperature};

    use super::*;
    use crate::command::doctor::Health;

    #[test]
    fn a_machine_that_is_not_enrolled_is_told_how() {
        let dir = tempfile::tempdir().unwrap();
        let checks = of_identity(dir.path());
        assert_eq!(checks[0].health, Health::Sick);
        assert!(checks[0].repair.as_deref().unwrap().contains("glean agent install"));
    }

    #[test]
    fn a_full_disk_and_a_hot_processor_are_told() {
        let disk =
            |path: &str, free_bytes| Disk { path: path.into(), total_bytes: 9 << 30, free_bytes };
        let mut machine = Machine {
            disks: vec![disk("/", 0), disk("/var", 2 << 30), disk("/home", 0)],
            ..Machine::default()
        };
        let health = |machine: &Machine| -> Vec<Health> {
            let checks = of_machine(machine, Path::new("/var/lib/gleaner/agent"));
            checks.iter().map(|check| check.health).collect()
        };
        assert_eq!(health(&machine), [Health::Well; 2]);
        machine.disks.pop();
        machine.disks.pop();
        machine.temperatures = vec![Temperature {
            label: "core".into(),
            celsius: 101.0,
            critical_celsius: Some(100.0),
        }];
        assert_eq!(health(&machine), [Health::Well, Health::Lacking, Health::Lacking]);
    }

    #[test]
    fn a_directory_of_terminals_that_cannot_be_seen_is_sick() {
        let mut config = AgentConfig::default();
        config.sensors.terminals = vec!["/nonexistent/pts/#".into()];
        let checks = of_sensors(&config);
        assert_eq!((checks[0].subject, checks[0].health), ("terminals", Health::Sick));
    }

    #[test]
    fn without_an_agent_the_next_step_is_to_start_it() {
        let socket = SocketArgs { socket: Some("/nonexistent/agent.sock".into()) };
        let checks = of_agent(&socket);
        assert!(checks[0].found.starts_with("no agent runs here"), "{checks:?}");
    }
}
