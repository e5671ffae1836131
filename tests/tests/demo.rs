//! The demo tells the truth and says what was asked of it.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::glean;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

fn demo(arguments: &[&str], user: Option<u32>) -> Result<Value> {
    let mut command = Command::new(glean()?);
    command.args(["demo", "--json"]).args(arguments);
    if let Some(user) = user {
        command.uid(user).gid(user).env("HOME", "/tmp");
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "glean demo: {}: {said}", output.status);
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(text.trim()).with_context(|| format!("not one record: {text}"))
}

#[track_caller]
fn check_nothing_is_lost(record: &Value, subprograms: u64) {
    assert_eq!(record["workstations"], 4, "{record}");
    assert_eq!(record["subprograms"], subprograms, "{record}");
    assert_eq!(record["completed"], subprograms, "{record}");
    assert_eq!(record["lost"], 0, "{record}");
    assert_eq!(record["duplicated"], 0, "{record}");
    assert_eq!(record["answer_ok"], true, "{record}");
    for key in ["owner_returns", "usage_records"] {
        assert!(record[key].as_u64().is_some_and(|count| count > 0), "{key}: {record}");
    }
    for key in ["retreats", "suspensions", "reaction_p50_s", "reaction_max_s"] {
        assert!(record[key].is_number(), "{key}: {record}");
    }
}

/// Somebody who is not root sees the same, and in one line each what is not.
#[test]
fn the_demo_runs_without_root_and_says_what_is_missing() -> Result<()> {
    let nobody = 65_534;
    let root = rustix::process::geteuid().is_root();
    let record = demo(&["--subprograms", "40"], root.then_some(nobody))?;
    check_nothing_is_lost(&record, 40);
    let missing = record["missing"].as_array().map(Vec::len);
    assert!(missing.is_some_and(|lines| lines > 0), "what is missing is said: {record}");
    Ok(())
}

/// Nobody is left to wonder: where the lines are not drawn, one is written every
/// ten seconds.
#[test]
fn the_demo_harvests_loses_nothing_and_says_how_far_it_is() -> Result<()> {
    let arguments = ["demo", "--json", "--subprograms", "400"];
    let output = Command::new(glean()?).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let record: Value = serde_json::from_slice(&output.stdout).with_context(|| said.to_string())?;
    check_nothing_is_lost(&record, 400);
    let told: Vec<&str> = said.lines().filter(|line| line.contains(" of a core (load ")).collect();
    let elapsed_s = record["elapsed_s"].as_f64().context("its time")?;
    // One that is due as it ends may be missing.
    assert!(told.len() as f64 >= elapsed_s / 10.0 - 2.0, "{elapsed_s} s: {said}");
    assert!(told.iter().any(|line| line.contains(" of 400 done, ")), "{said}");
    Ok(())
}

/// When the demo is interrupted: told from what lies in its directory.
const STAGES: [(&str, &str); 6] = [
    ("it has begun", ""),
    ("its lab has a directory", "glean-lab-*"),
    ("its coordinator runs", "glean-lab-*/coordinator.log"),
    ("its second workstation is being set up", "glean-lab-*/host2"),
    ("its job is there", "glean-lab-*/primes.awk"),
    ("guests run", "glean-lab-*/host1/data/places/*"),
];

/// What matches below a directory: a name, or the beginning of one with a `*`.
fn there(dir: &Path, pattern: &str) -> bool {
    let (first, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    if first.is_empty() {
        return true;
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let fits = first.strip_suffix('*').map_or(name == first, |start| name.starts_with(start));
        fits && there(&entry.path(), rest)
    })
}

/// Every process that was started with this directory as its temporary one.
fn processes_of(dir: &Path) -> Vec<String> {
    let text = dir.display().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_it = entries.filter(|entry| {
        ["environ", "cmdline"].iter().any(|file| {
            let read = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&read).contains(&text)
        })
    });
    of_it.map(|entry| entry.path().display().to_string()).collect()
}

/// Groups at the top of each hierarchy that are named like a lab.
fn groups_of_labs() -> Vec<std::path::PathBuf> {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let groups = tops.iter().flat_map(|top| gleaner_lab::cgroup::subgroups(Path::new(top)));
    groups.filter(|group| group.to_string_lossy().contains("glean-lab-")).collect()
}

fn interrupt(child: &mut Child, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("a process")?;
    // A terminal sends Ctrl-C to the whole group, a service manager to one.
    if signal == Signal::INT {
        kill_process_group(pid, signal)?;
    } else {
        kill_process(pid, signal)?;
    }
    let status = until("the demo ends", PATIENCE, || Ok(child.try_wait()?))?;
    anyhow::ensure!(status.code() == Some(2), "{status}");
    Ok(())
}

/// No directory with its keys, no group, no process, and so no namespace: those
/// live only as long as somebody is in them.
#[test]
fn an_interrupted_demo_leaves_nothing_behind() -> Result<()> {
    for (number, (stage, file)) in STAGES.into_iter().enumerate() {
        for signal in [Signal::INT, Signal::TERM] {
            let dir = tempfile::tempdir()?;
            let mut child = Command::new(glean()?)
                .args(["demo", "--workstations", "2"])
                .env("TMPDIR", dir.path())
                .process_group(0)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            until(stage, PATIENCE, || {
                anyhow::ensure!(child.try_wait()?.is_none(), "the demo has ended");
                Ok(there(dir.path(), &format!("glean-lab-*/{file}")).then_some(()))
            })?;
            let names = names_of_labs(dir.path());
            interrupt(&mut child, signal).with_context(|| stage)?;
            let left: Vec<_> = std::fs::read_dir(dir.path())?.flatten().collect();
            assert!(left.is_empty(), "{number}, {stage}: {left:?}");
            assert_eq!(processes_of(dir.path()), Vec::<String>::new(), "{stage}");
            let groups = groups_of_labs();
            let is_left =
                |name: &String| groups.iter().any(|it| it.to_string_lossy().contains(name));
            assert!(!names.iter().any(is_left), "{stage}: {groups:?}");
        }
    }
    Ok(())
}

/// The names that a demo's groups have.
fn names_of_labs(dir: &Path) -> Vec<String> {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let outer = names(dir);
    let inner = outer.iter().flat_map(|name| names(&dir.join(name)));
    let all = outer.iter().cloned().chain(inner);
    all.filter(|name| name.starts_with("glean-lab-")).collect()
}
