//! Machines that exist twice, and disks that are full.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, LabHost};
use gleaner_tests::{lab_or_skip, options};
use serde_json::Value;

/// What `glean workstations` says of a host.
fn reason(lab: &Lab, host: &str) -> Result<String> {
    let rows = lab.rows::<Value>(&["workstations", "--json"])?;
    let row = rows.iter().find(|row| row["name"] == host).context("it is enrolled")?;
    Ok(row["reason"].as_str().unwrap_or_default().to_owned())
}

fn wait_for_reason(lab: &Lab, host: &str, text: &str) -> Result<()> {
    until(&format!("{host}: {text}"), PATIENCE, || {
        Ok(reason(lab, host)?.contains(text).then_some(()))
    })
}

fn stop_agent(host: &mut LabHost) -> Result<()> {
    host.agent.as_mut().context("it runs")?.stop().map(drop)
}

/// As an image of one host does that is written to another.
fn copy_identity(from: &Path, to: &Path) -> Result<()> {
    fs::remove_dir_all(to)?;
    fs::create_dir(to)?;
    for file in fs::read_dir(from)?.flatten() {
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// Each pushed the other out, and all that it ran was lost, for ever.
#[test]
fn of_two_hosts_with_one_identity_the_second_is_refused_and_little_is_lost() -> Result<()> {
    let Some(mut lab) = lab_or_skip(options(3)?)? else { return Ok(()) };
    let (first, second) = (lab.hosts[0].identity(), lab.hosts[1].identity());
    stop_agent(&mut lab.hosts[1])?;
    copy_identity(&first, &second)?;
    let job = lab.submit(&["--count", "24", "--", "sleep", "1"])?;
    lab.hosts[1].start_agent()?;
    let refused = lab.hosts[1].agent.as_mut().context("it runs")?;
    refused.wait_for_log_times("host1 is in use on another machine", 1, PATIENCE)?;
    wait_for_reason(&lab, "host1", "two machines have its identity")?;
    let told = String::from_utf8_lossy(&lab.run(&["doctor"])?.stdout).into_owned();
    assert!(told.contains("host1: two machines"), "{told}");
    let row = lab.wait_for_job(job)?;
    assert_eq!(row["summary"]["state"], "succeeded", "{row}");
    // Twice all that both of its places had.
    let lost = row["summary"]["lost"].as_u64().context("a count of what was lost")?;
    assert!(lost <= 4, "{row}");
    // An image that was made on other hardware is told before it is used.
    stop_agent(&mut lab.hosts[1])?;
    let foreign = |mark: &str| format!("{mark} = \"{}\"\n", "0123456789abcdef".repeat(2));
    let marks: String = ["product", "board", "address", "system"].map(foreign).concat();
    fs::write(second.join("machine.toml"), marks)?;
    lab.hosts[1].start_agent()?;
    let log = lab.hosts[1].dir.join("agent.log");
    until("it ends and says why", PATIENCE, || {
        let said = fs::read_to_string(&log)?;
        Ok(said.contains("was made on another machine").then_some(()))
    })
}

/// A small file system of its own, for as long as this lives.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Result<Option<Self>> {
        let arguments = ["-t", "tmpfs", "-o", "size=64m,mode=0711", "tmpfs"];
        let done = Command::new("mount").args(arguments).arg(at).output()?;
        if !done.status.success() {
            gleaner_skip::without_lab(String::from_utf8_lossy(&done.stderr).into_owned());
            return Ok(None);
        }
        Ok(Some(Self(at)))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_host_whose_disk_is_full_says_so_at_the_first_failure_and_is_used_again_with_room() -> Result<()>
{
    let Some(mut lab) = lab_or_skip(options(2)?)? else { return Ok(()) };
    stop_agent(&mut lab.hosts[0])?;
    let data = lab.hosts[0].dir.join("data");
    fs::remove_dir_all(&data)?;
    fs::create_dir(&data)?;
    let Some(small) = Small::mount(&data)? else { return Ok(()) };
    lab.hosts[0].start_agent()?;
    lab.wait_for_idle(2)?;
    // Guests find nothing left; the agent itself had a little.
    fs::write(data.join("filler"), vec![1; 63 << 20])?;
    let script = "head -c 2000000 /dev/zero > file && sleep 0.2";
    let job = lab.submit(&["--count", "10", "--", "sh", "-c", script])?;
    wait_for_reason(&lab, "host1", "not ready: disk: ")?;
    let row = lab.wait_for_job(job)?;
    assert_eq!(row["summary"]["state"], "succeeded", "{row}");
    let burnt = row["summary"]["retried"].as_u64().unwrap_or(u64::MAX);
    assert!(burnt <= 8, "{row}");
    fs::remove_file(data.join("filler"))?;
    wait_for_reason(&lab, "host1", "idle: ")?;
    stop_agent(&mut lab.hosts[0])?;
    drop(small);
    Ok(())
}
