//! What is printed: text from others does nothing to the terminal of who reads it.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Result, ensure};
use gleaner_common::wire::AgentFrame;
use gleaner_common::wire::{Facts, Request};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::peer::{Peer, presence};
use gleaner_hostile::world::{World, script};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_jobs_name_forges_no_rows_on_a_terminal,
    what_a_job_prints_does_nothing_to_a_terminal,
    a_workstations_words_do_nothing_to_a_terminal,
);

const CODES: &str = "x\n9  ada  succeeded\u{1b}[1A\u{1b}[2K\u{9b}31m\u{202e}\u{7}\r";

/// What the terminal gets while somebody runs `glean ARGUMENTS` on it.
fn on_a_terminal(world: &World, identity: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .map(std::fs::File::from)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let path = ptsname(&master, vec![])?;
    let slave = std::fs::File::options().read(true).write(true).open(path.to_str()?)?;
    let mut command = world.lab.command(arguments)?;
    command.env("GLEAN_IDENTITY", identity).stdout(slave.try_clone()?).stderr(slave);
    let mut child = command.spawn()?;
    // The terminal ends with the last who has it open.
    drop(command);
    let mut seen = vec![];
    let mut buffer = [0; 4_096];
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
    }
    child.wait()?;
    Ok(seen)
}

/// Nothing but text, in lines.
fn is_harmless(seen: &[u8], has: &str) -> Result<()> {
    let text = String::from_utf8_lossy(seen).replace("\r\n", "\n");
    ensure!(text.contains(has), "expected {has} in {text:?}");
    let harms = |c: char| !matches!(c, '\n' | '\t') && c.is_control() || c == '\u{202e}';
    ensure!(!text.contains(harms), "{text:?}");
    Ok(())
}

fn a_jobs_name_forges_no_rows_on_a_terminal(world: &World) -> Result<()> {
    let mut spec = script("true");
    spec.name = CODES.into();
    spec.command.push(CODES.into());
    spec.public = true;
    let ended = world.run(&world.mallory, spec)?;
    let job = ended.job.to_string();
    for arguments in [&["jobs"][..], &["job", &job], &["job", &job, "--json"], &["why", &job]] {
        let seen = on_a_terminal(world, &world.ada.identity, arguments)?;
        is_harmless(&seen, if arguments[0] == "why" { "" } else { "u001b[2K" })?;
        let text = String::from_utf8_lossy(&seen).into_owned();
        ensure!(!text.lines().any(|line| line.starts_with("9  ada")), "a forged row: {text}");
    }
    Ok(())
}

fn what_a_job_prints_does_nothing_to_a_terminal(world: &World) -> Result<()> {
    let mut spec = world.attack(&["codes"]);
    spec.public = true;
    let job = world.run(&world.mallory, spec)?.job.to_string();
    let seen = on_a_terminal(world, &world.ada.identity, &["logs", &job])?;
    is_harmless(&seen, "forged")?;
    // Programs get what it was.
    let (_, raw, _) = world.glean(&world.ada, &["logs", &job])?;
    ensure!(raw.contains("\u{1b}[2Kforged"), "{raw:?}");
    Ok(())
}

fn a_workstations_words_do_nothing_to_a_terminal(world: &World) -> Result<()> {
    let mut facts = Facts { kernel: CODES.into(), missing: vec![CODES.into()], ..Facts::default() };
    facts.machine.hostname = CODES.into();
    facts.machine.os = CODES.into();
    let peer = Peer::join(world.enrol("agent", "painter")?, facts, 0)?;
    let mut painted = presence(0);
    painted.reason = CODES.into();
    peer.say(AgentFrame::Presence(painted))?;
    peer.is_heard(1)?;
    for arguments in
        [&["workstations"][..], &["workstations", "--long"], &["why", "--workstation", "painter"]]
    {
        let seen = on_a_terminal(world, &world.ada.identity, arguments)?;
        is_harmless(&seen, "")?;
    }
    world.admin.request(&Request::WorkstationRemove { name: "painter".into() }).map(drop)
}
