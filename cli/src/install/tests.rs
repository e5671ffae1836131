//! Setting up below a directory, twice, and what systemd says of the units.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory as _;
use gleaner_agent::config::AgentConfig;
use gleaner_shell::identity::Home;

use super::site::Site;
use super::{CoordinatorArgs, MemberArgs, SiteArgs, UninstallArgs};
use super::{agent, collector, coordinator, membership};
use crate::arguments::Cli;

/// Every path with its mode and content.
fn tree(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                walk(root, &path, found);
                found.insert(name, (mode, vec![]));
            } else {
                found.insert(name, (mode, fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

fn site(root: &Path) -> SiteArgs {
    SiteArgs { root: root.to_owned() }
}

fn member(root: &Path) -> MemberArgs {
    MemberArgs { coordinator: None, token: None, name: None, moved: false, site: site(root) }
}

fn install_all(root: &Path) {
    coordinator::install(&CoordinatorArgs { site: site(root) }, &Cli::command()).unwrap();
    collector::install(&member(root), &Cli::command()).unwrap();
    agent::install(&member(root), &Cli::command()).unwrap();
}

/// This one and those below it that are shown.
fn commands(of: &clap::Command) -> usize {
    1 + of.get_subcommands().filter(|one| !one.is_hide_set()).map(commands).sum::<usize>()
}

#[test]
fn installing_twice_is_the_same_and_keeps_what_a_site_has_chosen() {
    let dir = tempfile::tempdir().unwrap();
    install_all(dir.path());
    let chosen = dir.path().join("etc/gleaner/agent.toml");
    fs::write(&chosen, "places = 2\n").unwrap();
    let first = tree(dir.path());
    install_all(dir.path());
    assert_eq!(tree(dir.path()), first);
    let (manuals, rest): (Vec<_>, Vec<_>) =
        first.iter().partition(|(path, _)| path.contains("/man1/"));
    assert_eq!(manuals.len(), commands(&Cli::command()), "a manual for each command");
    assert!(manuals.iter().all(|(path, (mode, _))| path.ends_with(".1") && *mode == 0o644));
    let modes: Vec<String> =
        rest.iter().map(|(path, (mode, _))| format!("{mode:o} {path}")).collect();
    insta::assert_snapshot!(modes.join("\n"), @r"
    755 etc
    755 etc/gleaner
    644 etc/gleaner/agent.toml
    644 etc/gleaner/collector.toml
    644 etc/gleaner/coordinator.toml
    755 etc/systemd
    755 etc/systemd/system
    644 etc/systemd/system/gleaner-agent.service
    644 etc/systemd/system/gleaner-collector.service
    644 etc/systemd/system/gleaner-coordinator.service
    644 etc/systemd/system/gleaner.slice
    755 etc/xdg
    755 etc/xdg/autostart
    644 etc/xdg/autostart/gleaner-presence.desktop
    755 usr
    755 usr/local
    755 usr/local/bin
    755 usr/local/bin/glean
    755 usr/local/share
    755 usr/local/share/bash-completion
    755 usr/local/share/bash-completion/completions
    644 usr/local/share/bash-completion/completions/glean
    755 usr/local/share/fish
    755 usr/local/share/fish/vendor_completions.d
    644 usr/local/share/fish/vendor_completions.d/glean.fish
    755 usr/local/share/man
    755 usr/local/share/man/man1
    755 usr/local/share/zsh
    755 usr/local/share/zsh/site-functions
    644 usr/local/share/zsh/site-functions/_glean
    755 var
    755 var/lib
    755 var/lib/gleaner
    711 var/lib/gleaner/agent
    700 var/lib/gleaner/collector
    700 var/lib/gleaner/collector/identity
    700 var/lib/gleaner/collector/usage
    700 var/lib/gleaner/coordinator
    ");
}

#[test]
fn uninstalling_keeps_data_and_purging_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    install_all(dir.path());
    let arguments = |purge| UninstallArgs { purge, site: site(dir.path()) };
    for purge in [false, true] {
        agent::uninstall(&arguments(purge), &Cli::command()).unwrap();
        collector::uninstall(&arguments(purge), &Cli::command()).unwrap();
        coordinator::uninstall(&arguments(purge), &Cli::command()).unwrap();
        let left = tree(dir.path());
        assert!(!left.keys().any(|path| path.contains("gleaner-") || path.contains("bin/glean")));
        assert_eq!(left.contains_key("etc/gleaner/agent.toml"), !purge);
        assert_eq!(left.contains_key("var/lib/gleaner/coordinator"), !purge);
    }
    let left = tree(dir.path());
    let share: Vec<_> = left.keys().filter(|path| path.starts_with("usr/local/share/")).collect();
    // The manuals' own directory is Debian's.
    assert_eq!(share, ["usr/local/share/man"]);
    // Purging once more finds nothing and is no mistake.
    agent::uninstall(&arguments(true), &Cli::command()).unwrap();
}

#[test]
fn the_binary_stays_while_another_daemon_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    install_all(dir.path());
    agent::uninstall(&UninstallArgs { purge: true, site: site(dir.path()) }, &Cli::command())
        .unwrap();
    assert!(dir.path().join("usr/local/bin/glean").exists());
}

#[test]
fn the_identity_and_a_shared_directory_are_writable_under_the_unit() {
    let mut config = AgentConfig::default();
    let unit = agent::unit(&config);
    let writable: Vec<&str> =
        unit.lines().filter(|line| line.starts_with("ReadWritePaths=-")).collect();
    assert_eq!(writable, ["ReadWritePaths=-\"/etc/gleaner/agent\""]);
    config.guests.shared_directories = vec!["/home/lab data".into(), "/srv/50%".into()];
    let unit = agent::unit(&config);
    assert!(unit.contains("ReadWritePaths=-\"/home/lab data\"\nReadWritePaths=-\"/srv/50%%\"\n"));
    verify(&[("gleaner-agent.service", &unit), ("gleaner.slice", agent::SLICE)]);
}

/// FIELD.md I5: hardening of a service has blinded other detectors.
#[test]
fn the_agents_unit_hides_no_terminal_and_no_keyboard() {
    let unit = agent::unit(&AgentConfig::default());
    let settings: Vec<&str> =
        unit.lines().filter(|line| !line.starts_with('#') && line.contains('=')).collect();
    for blinding in [
        "PrivateDevices=yes",
        "PrivateDevices=true",
        "ProcSubset=pid",
        "PrivatePIDs=yes",
        "RootDirectory=",
        "RestrictNamespaces=yes",
        "ProtectControlGroups=yes",
        "PrivateUsers=yes",
        "InaccessiblePaths=/dev",
    ] {
        assert!(!settings.contains(&blinding), "{blinding}");
    }
    for needed in ["DeviceAllow=char-input r", "Delegate=yes", "KillMode=control-group"] {
        assert!(settings.contains(&needed), "{needed}");
    }
    // This hides no process from who may trace.
    assert!(settings.contains(&"ProtectProc=invisible") && unit.contains(" CAP_SYS_PTRACE "));
}

/// Under 3 for what faces the whole lab. The agent cannot be: what lives under a filter of
/// system calls cannot be written down by CRIU, and systemd gives a service without one 4.4 at
/// best, were it nobody, with no network, device or right at all.
#[test]
fn systemd_finds_the_units_exposed_no_more_than_their_work_asks() {
    let agent = agent::unit(&AgentConfig::default());
    for (name, text, tenths_max) in [
        ("gleaner-coordinator.service", coordinator::UNIT, 29),
        ("gleaner-collector.service", collector::UNIT, 29),
        ("gleaner-agent.service", &agent, 79),
    ] {
        let threshold = format!("--threshold={tenths_max}");
        analyze(&["security", "--offline=yes", "--no-pager", &threshold], &[(name, text)]);
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    verify(&[
        ("gleaner-agent.service", &agent::unit(&AgentConfig::default())),
        ("gleaner.slice", agent::SLICE),
        ("gleaner-coordinator.service", coordinator::UNIT),
        ("gleaner-collector.service", collector::UNIT),
    ]);
}

#[track_caller]
fn verify(units: &[(&str, &str)]) {
    let said = analyze(&["verify", "--man=no"], units);
    // It also speaks of the machine's other units.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("gleaner")).collect();
    assert!(ours.is_empty(), "{said}");
}

/// What systemd says of the units; nothing where it is not.
#[track_caller]
fn analyze(arguments: &[&str], units: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    // The binary must exist for systemd to be content: any one does.
    let program = std::env::current_exe().unwrap();
    let paths: Vec<_> = units
        .iter()
        .map(|(name, text)| {
            let path = dir.path().join(name);
            fs::write(&path, text.replace(super::BINARY, program.to_str().unwrap())).unwrap();
            path
        })
        .collect();
    let output = match Command::new("systemd-analyze").args(arguments).args(&paths).output() {
        Ok(output) => output,
        Err(error) => {
            gleaner_skip::without_lab(format!("systemd-analyze: {error}"));
            return String::new();
        }
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{units:?}: {said}{}", told.lines().last().unwrap_or(""));
    said
}

/// A machine with this number, and an identity that was made on it.
fn home(product: &str) -> Home {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("sys/class/dmi/id")).unwrap();
    fs::write(root.path().join("sys/class/dmi/id/product_uuid"), product).unwrap();
    Home::of(root.path())
}

#[test]
fn a_copied_identity_is_left_behind_for_a_token_or_kept_where_its_disk_has_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (desk, clone) = (home("4c4c4544-0042"), home("4c4c4544-0043"));
    let place = dir.path().join("etc/gleaner/agent");
    let data = dir.path().join("var/lib/gleaner/agent");
    for path in [&place, &data] {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("kept"), "x").unwrap();
    }
    desk.note(&place).unwrap();
    let opened = Site::open(dir.path(), &Cli::command()).unwrap();
    let leave = |args: &MemberArgs, here: &Home| {
        let data = "/var/lib/gleaner/agent";
        membership::leave_copy(&opened, args, here, "/etc/gleaner/agent", &[data])
    };
    let plain = member(dir.path());
    leave(&plain, &desk).unwrap();
    let error = leave(&plain, &clone).unwrap_err().to_string();
    assert!(error.ends_with("was made on another machine, and this one has a copy of it"));
    let text = || Some("x".to_owned());
    leave(&MemberArgs { coordinator: text(), token: text(), ..plain.clone() }, &clone).unwrap();
    assert!(!place.exists() && !data.exists());
    for path in ["etc/gleaner", "var/lib/gleaner"] {
        let aside = dir.path().join(path).join("agent.of-another-machine-1/kept");
        assert_eq!(fs::read_to_string(aside).unwrap(), "x");
    }
    fs::create_dir_all(&place).unwrap();
    desk.note(&place).unwrap();
    leave(&MemberArgs { moved: true, ..plain }, &clone).unwrap();
    assert_eq!(Home::noted(&place), Some(clone));
}
