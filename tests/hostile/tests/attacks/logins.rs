//! Logins on a workstation: whoever may log in there, and is neither its owner nor root.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::world::World;
use gleaner_shell::clock::Clock;
use rustix::process::{Gid, Pid, Signal, Uid, kill_process};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    a_login_cannot_read_keys_stores_and_guests_files,
    a_login_cannot_touch_the_daemons_and_their_sockets,
    a_login_cannot_block_the_owners_socket,
    a_guests_user_may_ask_its_agent_nothing,
);

pub(crate) const ALONE: &[Claim] = claims!(Alone: a_login_cannot_end_anothers_pause);

/// Somebody with a login, and nothing else.
const LOGIN: u32 = 4_711;

/// How long an agent listens to who says nothing.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// Does something as another user: the thread is theirs, and ends.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let theirs = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(theirs).join().unwrap())
}

fn asked(socket: &Path, request: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // Who may not ask is answered at once.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

/// All files below a directory, as root sees them.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// What says nothing that the network would not.
const PUBLIC: [&str; 6] =
    ["certificate.pem", "authority.pem", "identity.toml", "pause.toml", "agent.sock", "speed"];

fn a_login_cannot_read_keys_stores_and_guests_files(world: &World) -> Result<()> {
    let mut places = vec![world.lab.coordinator_data(), world.lab.collector_data()];
    for host in &world.lab.hosts {
        places.extend([host.dir.join("data"), host.identity()]);
    }
    let all: Vec<PathBuf> = places.iter().flat_map(|place| files_below(place)).collect();
    for wanted in ["key.pem", "authority-key.pem", "agent.log"] {
        let is_there = |path: &PathBuf| path.ends_with(wanted);
        ensure!(wanted == "agent.log" || all.iter().any(is_there), "no {wanted} in {all:?}");
    }
    let secret = all.into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !PUBLIC.contains(&name.as_str())
    });
    let secret: Vec<PathBuf> = secret.collect();
    ensure!(secret.len() > 10, "{secret:?}");
    let read: Vec<PathBuf> = as_user(LOGIN, || {
        secret.iter().filter(|path| std::fs::File::open(path).is_ok()).cloned().collect()
    });
    ensure!(read.is_empty(), "read by anybody: {read:?}");
    Ok(())
}

fn a_login_cannot_touch_the_daemons_and_their_sockets(world: &World) -> Result<()> {
    let host = &world.lab.hosts[0];
    let worker = Pid::from_raw(i32::try_from(host.agent_worker()?)?);
    let socket = host.owner_socket();
    let touched = as_user(LOGIN, || {
        let kills = worker.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok());
        let replaces = std::fs::remove_file(&socket).is_ok();
        let plants = std::fs::write(socket.with_file_name("planted"), "").is_ok();
        let reads = worker.is_some_and(|pid| {
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok()
        });
        [kills, replaces, plants, reads]
    });
    assert_eq!(touched, [false; 4], "ended, replaced, planted, read");
    Ok(())
}

fn a_login_cannot_block_the_owners_socket(world: &World) -> Result<()> {
    let socket = world.lab.hosts[0].owner_socket();
    let silent: Vec<UnixStream> =
        as_user(LOGIN, || (0..100).filter_map(|_| UnixStream::connect(&socket).ok()).collect());
    ensure!(silent.len() > 50, "only {} connections", silent.len());
    let began = Clock.now();
    as_user(LOGIN + 1, || {
        let said = asked(&socket, &"x".repeat(9_000))?;
        ensure!(said.contains("longer than 4096 bytes"), "{said}");
        let said = asked(&socket, "{\"shutdown\":{}}\n")?;
        ensure!(said.contains("not a request"), "{said}");
        let said = asked(&socket, "\"status\"\n")?;
        ensure!(said.contains("\"status\""), "{said}");
        Ok(())
    })?;
    let took = Clock.now().since(began);
    ensure!(took < SILENT_FOR, "the owner waited for {took:?}");
    drop(silent);
    Ok(())
}

fn a_guests_user_may_ask_its_agent_nothing(world: &World) -> Result<()> {
    for (host, uid) in world.lab.hosts.iter().zip([62_101, 62_201]) {
        let socket = host.owner_socket();
        for request in ["\"status\"\n", "{\"pause\":{\"seconds\":null}}\n", "\"resume\"\n"] {
            let said = as_user(uid, || asked(&socket, request))?;
            ensure!(said.contains("guests may not ask"), "{said}");
        }
    }
    Ok(())
}

fn a_login_cannot_end_anothers_pause(world: &mut World) -> Result<()> {
    let socket = world.lab.hosts[0].owner_socket();
    let pause = |seconds: u32| format!("{{\"pause\":{{\"seconds\":{seconds}}}}}\n");
    let said = as_user(LOGIN, || asked(&socket, &pause(3_600)))?;
    ensure!(said.contains("done"), "{said}");
    for request in ["\"resume\"\n", &pause(1)] {
        let said = as_user(LOGIN + 1, || asked(&socket, request))?;
        ensure!(said.contains("only they or root end that"), "{said}");
    }
    let said = as_user(LOGIN, || asked(&socket, "\"resume\"\n"))?;
    ensure!(said.contains("done"), "{said}");
    world.lab.wait_for_idle(2)
}
