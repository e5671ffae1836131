//! Programs that do what they must not, live: each gets a clear word that
//! names the rank and the cause, disturbs no other job, and leaves nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, LabHost, cgroup};
use gleaner_tests::{
    answer, host_of, lab_or_skip, options, owner_comes, owner_leaves, submit_example, subprograms,
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;
use tempfile::TempDir;

/// Three workstations that two programs of three ranks fill: both are on more
/// than one, and share one.
fn lab() -> Result<Option<Lab>> {
    let mut options = options(3)?;
    options.host.places = 2;
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(3)?;
    Ok(Some(lab))
}

/// The three ranks of a naughty program.
fn submit(lab: &Lab, mode: &[&str], options: &[&str]) -> Result<u64> {
    let mut all = vec!["--ranks", "3", "--retries", "0"];
    all.extend(options);
    submit_example(lab, &all, "naughty", mode)
}

/// What a user is shown of a job.
fn told(lab: &Lab, job: u64) -> Result<String> {
    lab.text(&["job", &job.to_string()])
}

/// No process, no group and no file of any guest is left anywhere.
fn all_are_clean(lab: &Lab) -> Result<()> {
    for host in &lab.hosts {
        until(&format!("{} is clean", host.name), PATIENCE, || Ok(is_clean(host).then_some(())))?;
    }
    Ok(())
}

fn is_clean(host: &LabHost) -> bool {
    let mut places = host.places().into_iter();
    host.guests().is_empty()
        && places.all(|place| {
            let files = host.dir.join("data/places").join(place.file_name().unwrap_or_default());
            let left = ["guest/work", "guest/output", "tmp"].map(|below| files.join(below));
            cgroup::subgroups(&place).is_empty() && left.iter().all(|below| is_bare(below))
        })
}

fn is_bare(directory: &Path) -> bool {
    directory.read_dir().map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn each_wrong_is_told_with_its_rank_and_cause_and_harms_nobody_else() -> Result<()> {
    let Some(lab) = lab()? else { return Ok(()) };
    let cases = [
        (
            "stranger",
            "failed",
            "exit code 2: naughty: rank 1 failed: rank 9999 of 3: expected 0 to 2",
        ),
        ("stranger-raw", "failed", "rank 1 sends to rank 9999: the program has ranks 0 to 2"),
        ("failing", "failed", ": exit code 3"),
        ("crashing", "failed", ": ended by signal 6"),
        ("flood", "failed", "rank 1 floods rank 0"),
        ("corrupt", "failed", "rank 1 broke the protocol of its pipes: a frame of 4294967295"),
        ("haggler", "failed", "rank 1 broke the protocol of its pipes: 70000 of Processors"),
        (
            "nagger",
            "failed",
            "rank 1 broke the protocol of its pipes: it says more than 64 things in",
        ),
        ("version", "failed", "speaks version 2 of the protocol, this agent 1"),
        ("deadlock", "failed", "deadlock: rank 0 waits for a message of rank 2, tag 7; rank 1"),
        (
            "quitter",
            "failed",
            "rank 0 failed: waited for a message of tag 7 from rank 1, but rank 1 has returned",
        ),
        ("deaf", "succeeded", "rank 1 ended without receiving 1 messages of rank 0, tag 7"),
        // No guest that may have to move is given more than /dev/null and its kin.
        ("device", "failed", "rank 1 failed: /dev/net/tun: No such file"),
        ("mute", "succeeded", ""),
        ("forker", "succeeded", ""),
    ];
    for (mode, state, cause) in cases {
        let good = submit(&lab, &["good"], &[])?;
        let job = submit(&lab, &[mode], &[])?;
        let row = lab.wait_for_job(job)?;
        let said = told(&lab, job)?;
        assert_eq!(row["summary"]["state"], state, "{mode}: {said}");
        // Whoever waits for the rank that did wrong ends for it, and may be heard
        // first: its end names that rank, and the others are cancelled.
        let by_a_peer = state == "failed" && said.contains("rank 1 has ended (exit code");
        assert!(said.contains(cause) || by_a_peer, "{mode}: expected `{cause}` in {said}");
        let names_a_rank = row["notes"].to_string().contains("rank ");
        assert!(state != "failed" || names_a_rank, "{mode}: whose fault? {said}");
        let unharmed = answer(&lab, good)?;
        assert!(unharmed.contains("20 rounds went round 3 ranks"), "beside {mode}: {unharmed}");
        all_are_clean(&lab)?;
    }
    Ok(())
}

/// The bytes that all guests of this mode have written, to their pipes above
/// all.
fn written(lab: &Lab, mode: &str) -> u64 {
    let of = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        line.split('\0').any(|word| word == mode).then_some(())?;
        let counts = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        counts.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse::<u64>().ok()
    };
    lab.hosts.iter().flat_map(LabHost::guests).filter_map(|pid| of(&pid)).sum()
}

/// What may be under way from one of three ranks to another.
const WINDOW: u64 = 4 << 20;

#[test]
fn who_sends_without_end_to_a_rank_that_never_receives_is_held_up_and_harms_nobody() -> Result<()> {
    let Some(lab) = lab()? else { return Ok(()) };
    let job = submit(&lab, &["unheard"], &[])?;
    until("rank 0 has begun to send", PATIENCE, || {
        Ok((written(&lab, "unheard") > WINDOW / 2).then_some(()))
    })?;
    until("it stands still while another program runs", PATIENCE, || {
        let before = written(&lab, "unheard");
        let said = answer(&lab, submit(&lab, &["good"], &[])?)?;
        ensure!(said.contains("20 rounds went round 3 ranks"), "beside it: {said}");
        Ok((written(&lab, "unheard") == before).then_some(()))
    })?;
    let under_way = written(&lab, "unheard");
    assert!(under_way < 2 * WINDOW, "{under_way} bytes for whom?");
    // Who computes may yet receive: it goes on, and its user is told.
    let said = "rank 0 has waited for room to send to rank 1, which has received nothing of it for";
    until("its user is told who holds up whom", PATIENCE, || {
        Ok(told(&lab, job)?.contains(said).then_some(()))
    })?;
    assert_eq!(lab.job(job)?["summary"]["running"], 2, "{}", told(&lab, job)?);
    lab.text(&["cancel", &job.to_string()])?;
    all_are_clean(&lab)
}

/// The owner of wherever rank 1 is comes, until its row is as wanted.
fn disturb(lab: &mut Lab, job: u64, fact: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    // A guest comes after everybody else who wants a core.
    until(fact, 4 * PATIENCE, || {
        let row = lab.job(job)?;
        ensure!(row["summary"]["state"] == "running", told(lab, job)?);
        let ranks = subprograms(lab, job)?;
        if wanted(&row) || wanted(&ranks[1]) {
            return Ok(Some(()));
        }
        // Not before it has begun: it would be chased from place to place.
        if ranks[1]["state"] == "running"
            && let Some(host) = host_of(lab, &ranks[1])
        {
            lab.hosts[host].type_key()?;
        }
        Ok(None)
    })
}

#[test]
fn who_ignores_its_retreat_is_ended_and_begins_elsewhere() -> Result<()> {
    let Some(mut lab) = lab()? else { return Ok(()) };
    let job = submit(&lab, &["stubborn"], &["--on-busy", "retreat"])?;
    disturb(&mut lab, job, "rank 1 had to go", |row| row["moves"].as_u64() >= Some(1))?;
    let notes = lab.job(job)?["notes"].to_string();
    assert!(notes.contains("rank 1 did not heed its retreat within 0.3 s"), "{notes}");
    lab.text(&["cancel", &job.to_string()])?;
    all_are_clean(&lab)
}

#[test]
fn what_holds_an_open_connection_stays_and_its_user_is_told_why() -> Result<()> {
    let Some(mut lab) = lab()? else { return Ok(()) };
    let mode = ["socket", "--rounds", "100000"];
    let job = submit(&lab, &mode, &["--on-busy", "migrate"])?;
    disturb(&mut lab, job, "its user is told", |row| {
        let notes = row["notes"].to_string();
        notes.contains("rank 1 cannot leave") && notes.contains("holds a TCP socket to 127.0.0.1")
    })?;
    lab.text(&["cancel", &job.to_string()])?;
    all_are_clean(&lab)
}

#[test]
fn what_holds_an_open_connection_has_no_image_to_go_back_to_and_its_user_is_told_why() -> Result<()>
{
    let Some(lab) = lab()? else { return Ok(()) };
    let mode = ["socket", "--mark", "--rounds", "100000"];
    let job = submit(&lab, &mode, &["--on-busy", "rollback"])?;
    until("its user is told", PATIENCE, || {
        let notes = lab.job(job)?["notes"].to_string();
        let told = notes.contains("no image of rank 1 was taken to go back to")
            && notes.contains("holds a TCP socket to 127.0.0.1");
        Ok(told.then_some(()))
    })?;
    assert_eq!(lab.job(job)?["summary"]["running"], 3, "{}", told(&lab, job)?);
    lab.text(&["cancel", &job.to_string()])?;
    all_are_clean(&lab)
}

/// A directory with a device that nobody's image can hold and anybody may
/// open: FUSE, or loop control, under a name of ours.
/// `None`, said aloud, where there is none of them.
fn a_device() -> Result<Option<TempDir>> {
    // Not below /tmp: guests have one of their own.
    let directory = tempfile::tempdir_in("/var/tmp")?;
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    let path = directory.path().join(DEVICE);
    for minor in [229, 237] {
        let (kind, device) = (FileType::CharacterDevice, makedev(10, minor));
        let made = mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device);
        if made.is_ok() && std::fs::File::open(&path).is_ok() {
            // Whatever this process's mask is.
            std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            return Ok(Some(directory));
        }
        let _ = std::fs::remove_file(&path);
    }
    gleaner_skip::without_lab("no device of FUSE or of loop control can be had");
    Ok(None)
}

const DEVICE: &str = "device";

/// How many messages go round while an owner comes and goes.
const ROUNDS: &str = "100";

#[test]
fn what_holds_a_device_stays_until_its_owner_leaves_and_its_user_is_told_why() -> Result<()> {
    let Some(directory) = a_device()? else { return Ok(()) };
    let mut options = options(3)?;
    options.host.places = 2;
    let shown = directory.path().display();
    options.host.extra = format!("[guests]\nreadable = [{READABLE}, \"{shown}\"]");
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(3)?;
    let device = directory.path().join(DEVICE).display().to_string();
    let mode = ["device", "--device", &device, "--rounds", ROUNDS];
    let job = submit(&lab, &mode, &["--on-busy", "migrate"])?;
    let host = until("rank 1 has it open", PATIENCE, || {
        let holds = |host: &LabHost| host.guests().into_iter().any(|pid| has_open(pid, &device));
        Ok(lab.hosts.iter().position(holds))
    })?;
    owner_comes(&lab, host)?;
    let said = until("its user is told", PATIENCE, || {
        let said = told(&lab, job)?;
        Ok(said.contains("rank 1 cannot leave").then_some(said))
    })?;
    assert!(said.contains(&format!("holds the device {device}")), "{said}");
    owner_leaves(&lab, host)?;
    let said = answer(&lab, job)?;
    assert!(said.contains(&format!("{ROUNDS} rounds went round 3 ranks")), "{said}");
    assert_eq!(subprograms(&lab, job)?[1]["moves"], 0, "{}", told(&lab, job)?);
    all_are_clean(&lab)
}

fn has_open(pid: u32, path: &str) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let mut targets = open.into_iter().flatten().flatten().map(|entry| entry.path().read_link());
    targets.any(|target| target.is_ok_and(|target| target == Path::new(path)))
}

/// What guests may read anywhere.
const READABLE: &str = r#""/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc""#;
