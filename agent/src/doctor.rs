//! The agent's part of `glean doctor`: not what the machine says it can, but
//! what it does when tried. A real keeper runs a real guest, which is frozen,
//! looked at and killed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId};
use gleaner_shell::clock::Clock;
use serde::Serialize;

use crate::config::{AgentConfig, Network};
use crate::container::cgroup::{PlaceGroup, Tree};
use crate::container::keeper::{Keeper, Order, Program, Report, Sandbox, StartGuest};
use crate::container::place_directories::PlaceDirectories;
use crate::container::tree::clear;
use crate::failure::one_line;
use crate::machine;
use crate::moving::Mover;
use crate::owner;
use crate::run::boot_id;

/// How long any one step may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A guest that never stops by itself.
const BUSY: &str = "while :; do :; done";

/// How a thing is that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Well,
    /// Works, with less than it could.
    Lacking,
    Sick,
}

impl Health {
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Lacking => "lacking",
            Self::Sick => "SICK",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    #[serde(rename = "check")]
    pub subject: &'static str,
    pub health: Health,
    pub found: String,
    pub repair: Option<String>,
}

impl Check {
    pub fn well(subject: &'static str, found: impl Into<String>) -> Self {
        Self { subject, health: Health::Well, found: found.into(), repair: None }
    }

    pub fn lacking(
        subject: &'static str,
        found: impl Into<String>,
        repair: impl Into<String>,
    ) -> Self {
        let repair = Some(repair.into());
        Self { subject, health: Health::Lacking, found: found.into(), repair }
    }

    pub fn sick(
        subject: &'static str,
        found: impl Into<String>,
        repair: impl Into<String>,
    ) -> Self {
        Self { health: Health::Sick, ..Self::lacking(subject, found, repair) }
    }
}

/// Tries everything that needs no coordinator. Call it before there is any
/// thread; it starts processes of this program (`glean keeper`). What only the
/// agent can judge within its service, if it has one, is asked of it.
pub fn checks(config: &AgentConfig, has_service: bool) -> Vec<Check> {
    let mut checks = vec![];
    checks.push(match config.check() {
        Ok(()) => Check::well("settings", "as they should be"),
        Err(error) => Check::sick("settings", error.to_string(), "correct the configuration"),
    });
    checks.push(guest_users(config));
    checks.push(data(&config.data));
    checks.extend(trial(config, has_service));
    checks
}

/// Guests' user numbers must be nobody's: they have no name.
pub fn guest_users(config: &AgentConfig) -> Check {
    let name = "guest users";
    if !rustix::process::geteuid().is_root() {
        let repair = "run the agent as root: each place then has a user of its own";
        return Check::lacking(name, "not root: guests run as the agent's own user", repair);
    }
    let uids = config.guest_uids(config.places(machine::cores()));
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let taken = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let login = fields.next()?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        uids.contains(&uid).then(|| format!("{login} has user number {uid}"))
    });
    match taken {
        None => Check::well(name, format!("{} to {}, nobody's", uids.start, uids.end - 1)),
        Some(taken) => Check::lacking(name, taken, "choose another guests.uid_base"),
    }
}

fn data(path: &Path) -> Check {
    let name = "data directory";
    let probe = path.join("doctor");
    let tried = fs::create_dir_all(path)
        .and_then(|()| fs::write(&probe, "x"))
        .and_then(|()| fs::remove_file(&probe));
    match tried {
        Ok(()) => Check::well(name, format!("{} can be written", path.display())),
        Err(error) => Check::sick(
            name,
            format!("{}: {error}", path.display()),
            "make room, or let the agent's user write there",
        ),
    }
}

/// Why a step of the trial failed.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error("{0}")]
    Step(String),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

impl TrialError {
    fn of(error: impl std::error::Error) -> Self {
        Self::Step(one_line(&error))
    }
}

/// Runs a guest in a place of its own, away from a running agent's.
fn trial(config: &AgentConfig, has_service: bool) -> Vec<Check> {
    let mut checks = vec![];
    let home = config.data.join("doctor-trial");
    let base = config.cgroup.directory.clone();
    let trial_base = base.map(|path| path.with_extension("doctor"));
    let tree = match Tree::try_out(trial_base.as_deref()) {
        Ok(tree) => {
            checks.push(Check::well("cgroup", format!("{} can be used", tree.guests().display())));
            for line in &tree.missing {
                checks.push(Check::lacking(
                    "cgroup controllers",
                    line.clone(),
                    "boot with systemd.unified_cgroup_hierarchy=1",
                ));
            }
            Some(tree)
        }
        Err(error) => {
            let repair = "run as root, with Delegate=yes in the service";
            checks.push(Check::lacking("cgroup", TrialError::of(error).to_string(), repair));
            None
        }
    };
    let mut group = tree.as_ref().and_then(|tree| tree.place(PlaceId(0)).ok());
    match guest(config, &home, group.as_ref()) {
        Err(error) => {
            let repair = "see the system's log; the kernel may forbid namespaces here";
            checks.push(Check::sick("guest", error.to_string(), repair));
        }
        Ok((keeper, missing)) => {
            checks.push(Check::well("guest", "a guest starts"));
            if missing.is_empty() {
                let all = "namespaces, own files, own user, Landlock, no way back";
                checks.push(Check::well("sandbox", all));
            }
            for line in missing {
                checks.push(Check::lacking(
                    "sandbox",
                    line,
                    "a newer kernel, or the agent as root",
                ));
            }
            if let Some(group) = &mut group {
                checks.push(freeze(group));
            }
            checks.push(kill(keeper, group.as_mut()));
        }
    }
    drop(group);
    checks.push(moves(config, tree.as_ref(), has_service));
    if let Some(tree) = tree {
        tree.remove();
    }
    clear(&home);
    checks
}

/// Can guests be moved? That is for the agent to say: its service leaves it less
/// than whoever asks here may have.
fn moves(config: &AgentConfig, tree: Option<&Tree>, has_service: bool) -> Check {
    let name = "moves";
    if !config.moves.enabled {
        return Check::well(name, "switched off: moves.enabled is false");
    }
    let running = owner::ask(&config.owner_socket(), &owner::Command::Status).ok();
    let (found, by) = if let Some(owner::Answer::Status(status)) = running {
        (status.moves, "as the agent found")
    } else if let Some(noted) = Mover::noted(config, boot_id()) {
        (noted, "as the agent found when it last started")
    } else if has_service {
        let repair = "systemctl start gleaner-agent: it tries at its start";
        return Check::sick(name, "not tried yet within the agent's service", repair);
    } else {
        let tried = Mover::try_here(config, tree);
        (Mover::status(tried.as_ref()), "tried outside of any service")
    };
    let detail = format!("{} ({by})", found.detail);
    if found.possible {
        return Check::well(name, detail);
    }
    let repair = "install CRIU 4.1 or newer; without it guests return their work instead of moving \
                  (moves.enabled = false says that this is meant)";
    Check::sick(name, detail, repair)
}

fn guest(
    config: &AgentConfig,
    home: &Path,
    group: Option<&PlaceGroup>,
) -> Result<(Keeper, Vec<String>), TrialError> {
    let uid = rustix::process::geteuid().is_root().then(|| config.guests.uid(PlaceId(0)));
    let directories = PlaceDirectories::prepare(home, PlaceId(0), uid).map_err(TrialError::of)?;
    let sandbox = Sandbox {
        directory: directories.root().to_path_buf(),
        uid,
        keeper_uid: config.guests.uid_base,
        readable: config.guests.readable.clone(),
        filter: config.guests.filter,
        ..Sandbox::default()
    };
    let program = Program::own().map_err(TrialError::of)?;
    let own_network = config.guests.network == Network::None;
    let (mut keeper, lacking) =
        Keeper::spawn(&program, group, own_network, sandbox).map_err(TrialError::of)?;
    let mut missing: Vec<String> = lacking.into_iter().collect();
    match report(&mut keeper)? {
        Report::Ready { missing: more } => missing.extend(more),
        Report::Began { .. }
        | Report::Ended(_)
        | Report::Landed { .. }
        | Report::CannotStart { .. } => {
            return Err(TrialError::Step("the keeper is confused".into()));
        }
    }
    let start = StartGuest {
        fence: Fence::of(1),
        fresh: true,
        command: ["/bin/sh", "-c", BUSY].map(str::to_owned).to_vec(),
        directory: keeper.as_seen(directories.root(), &directories.work()),
        ..StartGuest::default()
    };
    keeper.send(&Order::Start(Box::new(start))).map_err(TrialError::of)?;
    Ok((keeper, missing))
}

fn report(keeper: &mut Keeper) -> Result<Report, TrialError> {
    keeper.receive_within(PATIENCE).map_err(TrialError::of)?.ok_or(TrialError::Silent)
}

fn freeze(group: &mut PlaceGroup) -> Check {
    let repair = "the owner would share the machine with guests: use another kernel";
    let begin = Clock.now();
    if let Err(error) = group.freeze() {
        return Check::sick("freeze", error.to_string(), repair);
    }
    if !group.wait_frozen(PATIENCE) {
        return Check::sick("freeze", "a busy guest did not stand still", repair);
    }
    let took = Clock.now().since(begin);
    let _ = group.thaw();
    Check::well("freeze", format!("a busy guest stands still after {} µs", took.as_micros()))
}

fn kill(keeper: Keeper, group: Option<&mut PlaceGroup>) -> Check {
    keeper.kill();
    // Waits until the kernel has cleared its namespace.
    drop(keeper);
    if group.is_none_or(|group| group.wait_empty(PATIENCE)) {
        Check::well("kill", "nothing of the guest is left")
    } else {
        let repair = "a process is stuck in the kernel: see the system's log";
        Check::sick("kill", "something of the guest survives", repair)
    }
}
