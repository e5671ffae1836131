//! Guests: what a program can do that somebody has submitted.

use std::fs::{self, Permissions};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use gleaner_common::id::SubprogramId;
use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::wire::{Printed, Request};
use gleaner_hostile::attacks::Claim;
use gleaner_hostile::claims;
use gleaner_hostile::peer::peers_port;
use gleaner_hostile::world::{World, hostile, nothing_done, nothing_there, script};
use gleaner_lab::wait::{PATIENCE, until};

pub(crate) const CLAIMS: &[Claim] = claims!(Beside:
    the_attacks_work_where_nothing_is_in_their_way,
    a_guest_cannot_read_the_hashes_of_passwords,
    a_guest_cannot_see_the_owners_files,
    a_guest_cannot_watch_what_the_owner_does,
    a_guest_cannot_write_outside_its_own_directories,
    a_guest_cannot_reach_another_guests_files,
    a_guest_sees_no_process_but_its_own,
    a_guest_cannot_read_its_keeper,
    a_guest_cannot_end_its_keeper,
    a_guest_cannot_limit_slow_or_pin_its_keeper,
    a_guest_has_no_rare_sockets,
    a_guest_makes_and_enters_no_namespaces,
    a_guest_has_no_io_uring,
    a_guest_has_no_kernel_keys,
    a_guest_cannot_look_into_the_kernel,
    a_guest_cannot_mount,
    a_guest_has_none_of_roots_rights,
    a_guest_makes_and_opens_no_devices,
    a_guest_cannot_go_before_the_owner,
    a_guest_cannot_leave_its_control_group,
    a_guest_gains_nothing_by_a_set_user_id_program,
    a_guest_reaches_nobody_over_the_network,
    a_guest_reaches_no_sockets_that_lie_about,
    a_guest_cannot_type_into_the_owners_terminal,
    a_guest_inherits_nothing_open_of_its_keepers,
    a_guest_that_can_move_gets_no_nearer_to_anybody,
    a_fork_bomb_stops_at_its_limit_and_ends_with_its_guest,
    a_guest_over_its_memory_is_ended_and_told,
    a_guest_that_daemonises_does_not_outlive_its_end,
    a_guest_opens_so_many_files_and_no_more,
    a_guest_that_prints_without_end_is_cut,
    a_guest_brings_back_no_links_pipes_and_sockets,
);

fn fails(world: &World, attack: &[&str], tries: usize) -> Result<()> {
    nothing_done(&world.tried(attack)?, tries)
}

/// None of these would show anything if the program could not do it at all.
fn the_attacks_work_where_nothing_is_in_their_way(world: &World) -> Result<()> {
    let file = world.owners_file("unprotected")?;
    let socket = world.owner("unprotected-socket");
    let _listens = UnixListener::bind(&socket)?;
    let attacks: [&[&str]; 9] = [
        &["read", "/etc/shadow", &file],
        &["stat", &file],
        &["list", "/root"],
        &["write", &file],
        &["watch", &file],
        &["connect", &socket],
        &["leave-keys"],
        &["sockets"],
        &["mounts"],
    ];
    for attack in attacks {
        // Whatever it mounts is its own.
        let mut command = Command::new("unshare");
        let said = command.args(["--mount", "--user", "--map-root-user"]).arg(hostile()?);
        let said = if ["read", "list"].contains(&attack[0]) {
            Command::new(hostile()?).args(attack).output()?
        } else {
            said.args(attack).output()?
        };
        let said = String::from_utf8_lossy(&said.stdout);
        ensure!(said.contains(": done"), "{attack:?} does nothing: {said}");
    }
    Ok(())
}

fn a_guest_cannot_read_the_hashes_of_passwords(world: &World) -> Result<()> {
    fails(world, &["read", "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/proc/kcore"], 4)
}

fn a_guest_cannot_see_the_owners_files(world: &World) -> Result<()> {
    let file = world.owners_file("diary")?;
    let directory = world.owner("");
    let lab = world.lab.dir().display().to_string();
    for verb in ["stat", "read", "list", "write"] {
        let paths = [&file, &directory, &lab, "/root", "/home", "/var/log", "/run/netns", "/boot"];
        nothing_there(&world.tried(&[&[verb][..], &paths].concat())?, paths.len())?;
    }
    Ok(())
}

fn a_guest_cannot_watch_what_the_owner_does(world: &World) -> Result<()> {
    let file = world.owners_file("watched")?;
    let directory = world.owner("");
    let said = world.tried(&[
        "watch",
        &file,
        &directory,
        "/dev/pts",
        "/dev/input",
        "/home",
        "/var/log",
    ])?;
    nothing_there(&said, 6)
}

fn a_guest_cannot_write_outside_its_own_directories(world: &World) -> Result<()> {
    let tools = world.site.path().join("tools").display().to_string();
    let places = ["/", "/etc", "/usr", "/usr/bin", "/etc/passwd", "/bin/sh", "/dev", "/place"];
    let kernels = ["/proc/sys/kernel/hostname", "/sys/power/state", "/proc/sys/vm/drop_caches"];
    fails(world, &[&["write", &tools][..], &places, &kernels].concat(), 12)
}

fn a_guest_cannot_reach_another_guests_files(world: &World) -> Result<()> {
    let secret = "echo mine > secret-of-ada; chmod -R 777 .; exec sleep 1000";
    let job = world.ada.asks.submit(script(secret))?;
    let host = world.ada.runs_at(SubprogramId { job, index: 0 })?;
    let places = world.host(&host)?.dir.join("data/places");
    let path = until("it has a secret", PATIENCE, || {
        let places = fs::read_dir(&places)?.flatten();
        let mut paths = places.map(|place| place.path().join("guest/work/secret-of-ada"));
        Ok(paths.find(|path| path.exists()))
    })?;
    let secret = path.display().to_string();
    let place = places.display().to_string();
    for verb in ["stat", "read", "list"] {
        let up = "/place/../p0/guest/work/secret-of-ada";
        nothing_there(&world.tried(&[verb, &secret, &place, up, "/place/p0"])?, 4)?;
    }
    // Its owner has no way of letting others in, and others see none of it.
    let here = world.tried(&["list", "/place", "/place/guest", "/tmp", "/dev/shm"])?;
    ensure!(!here.contains("secret"), "{here}");
    world.ada.asks.request(&Request::Cancel(job)).map(drop)
}

fn a_guest_sees_no_process_but_its_own(world: &World) -> Result<()> {
    let said = world.tried(&["processes"])?;
    ensure!(said == "sees process: 1\n", "besides its keeper: {said}");
    Ok(())
}

fn a_guest_cannot_read_its_keeper(world: &World) -> Result<()> {
    fails(world, &["trace"], 24)
}

fn a_guest_cannot_end_its_keeper(world: &World) -> Result<()> {
    fails(world, &["signal"], 66)
}

fn a_guest_cannot_limit_slow_or_pin_its_keeper(world: &World) -> Result<()> {
    fails(world, &["limit"], 13)
}

fn a_guest_has_no_rare_sockets(world: &World) -> Result<()> {
    fails(world, &["sockets"], 12)
}

fn a_guest_makes_and_enters_no_namespaces(world: &World) -> Result<()> {
    fails(world, &["namespaces"], 14)
}

fn a_guest_has_no_io_uring(world: &World) -> Result<()> {
    let said = world.tried(&["rings"])?;
    ensure!(said.matches("(os error 38)").count() == 3, "{said}");
    Ok(())
}

fn a_guest_has_no_kernel_keys(world: &World) -> Result<()> {
    fails(world, &["keys"], 3)
}

fn a_guest_cannot_look_into_the_kernel(world: &World) -> Result<()> {
    fails(world, &["eyes"], 13)
}

fn a_guest_cannot_mount(world: &World) -> Result<()> {
    fails(world, &["mounts"], 10)
}

fn a_guest_has_none_of_roots_rights(world: &World) -> Result<()> {
    fails(world, &["root"], 17)
}

fn a_guest_makes_and_opens_no_devices(world: &World) -> Result<()> {
    fails(world, &["devices"], 10)
}

fn a_guest_cannot_go_before_the_owner(world: &World) -> Result<()> {
    fails(world, &["schedule"], 6)
}

fn a_guest_cannot_leave_its_control_group(world: &World) -> Result<()> {
    fails(world, &["groups"], 4)
}

/// Where the owner has put one that makes whoever runs it root.
fn a_guest_gains_nothing_by_a_set_user_id_program(world: &World) -> Result<()> {
    let tool = world.site.path().join("tools/id");
    fs::copy("/usr/bin/id", &tool)?;
    fs::set_permissions(&tool, Permissions::from_mode(0o4_755))?;
    let said = world.tried(&["become", &tool.display().to_string()])?;
    ensure!(said.contains("runs as: 62") && said.contains("NoNewPrivs: 1"), "{said}");
    ensure!(said.matches(": 0000000000000000").count() == 4, "{said}");
    Ok(())
}

fn a_guest_reaches_nobody_over_the_network(world: &World) -> Result<()> {
    let (one, two) = (peers_port(1)?.to_string(), peers_port(2)?.to_string());
    fails(world, &["send", world.lab.address(), &one, &two, "192.0.2.1:53"], 8)
}

fn a_guest_reaches_no_sockets_that_lie_about(world: &World) -> Result<()> {
    let socket = world.owner("socket");
    let _listens = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o777))?;
    let mut abstracts = vec![];
    for host in &world.lab.hosts {
        let network = host.network.clone().context("a lab with networks")?;
        let bind = || {
            network.enter()?;
            UnixListener::bind_addr(&SocketAddr::from_abstract_name("gleaner-hostile")?)
        };
        let bound = std::thread::scope(|scope| scope.spawn(bind).join());
        abstracts.push(bound.map_err(|_| anyhow::anyhow!("a thread died"))??);
    }
    let agents = world.lab.hosts[0].owner_socket().display().to_string();
    fails(world, &["connect", &socket, &agents, "@gleaner-hostile", "/run/dbus/socket"], 4)
}

fn a_guest_cannot_type_into_the_owners_terminal(world: &World) -> Result<()> {
    let terminals = world.lab.hosts.iter().flat_map(|host| &host.terminals);
    let paths: Vec<String> = terminals.map(|it| it.path.display().to_string()).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    fails(world, &[&["terminal"][..], &paths].concat(), 13)
}

fn a_guest_inherits_nothing_open_of_its_keepers(world: &World) -> Result<()> {
    let said = world.tried(&["inherited"])?;
    ensure!(said == "descriptors: [0, 1, 2], the first is /dev/null\n", "{said}");
    Ok(())
}

/// It has no system-call filter: other walls are to hold.
fn a_guest_that_can_move_gets_no_nearer_to_anybody(world: &World) -> Result<()> {
    let file = world.owners_file("unmoved")?;
    let attacks: [(&[&str], usize); 10] = [
        (&["read", "/etc/shadow", &file], 2),
        (&["trace"], 24),
        (&["signal"], 66),
        (&["limit"], 13),
        (&["mounts"], 10),
        (&["root"], 17),
        (&["devices"], 10),
        (&["schedule"], 6),
        (&["send", world.lab.address()], 2),
        (&["within"], 16),
    ];
    let submitted = attacks.map(|(attack, tries)| {
        let mut spec = world.attack(attack);
        spec.on_busy = OnBusy::at_once(Reaction::Migrate);
        (world.mallory.asks.submit(spec), attack, tries)
    });
    for (job, attack, tries) in submitted {
        let ended = world.mallory.ended(job?)?;
        nothing_done(&ended.said(), tries).with_context(|| format!("{attack:?}"))?;
    }
    Ok(())
}

/// Processes whose command line holds these words, one after the other.
fn processes_of(words: &[&str]) -> usize {
    let text = format!("{}\0", words.join("\0"));
    let lines = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(text.len()).any(|part| part == text.as_bytes())).count()
}

fn a_fork_bomb_stops_at_its_limit_and_ends_with_its_guest(world: &World) -> Result<()> {
    let mut spec = world.attack(&["forks"]);
    spec.limits.processes_max = 64;
    let job = world.mallory.asks.submit(spec)?;
    // Another user's guest beside it is none the worse.
    let beside = world.run(&world.ada, script("for i in 1 2 3; do /bin/true; done; echo well"))?;
    assert_eq!(beside.said(), "well\n");
    let said = world.mallory.ended(job)?.said();
    let count = said.strip_prefix("after ").and_then(|said| said.split(' ').next());
    let count: u32 = count.context(said.clone())?.parse()?;
    ensure!(count < 64, "{said}");
    until("all of them have ended", PATIENCE, || {
        Ok((processes_of(&["./hostile", "forks"]) == 0).then_some(()))
    })
}

fn a_guest_over_its_memory_is_ended_and_told(world: &World) -> Result<()> {
    let mut spec = world.attack(&["memory", "1000000000"]);
    spec.limits.memory_bytes_max = 64 << 20;
    let ended = world.run(&world.mallory, spec)?;
    ensure!(ended.outcome().starts_with("over its limit: memory"), "{}", ended.outcome());
    Ok(())
}

fn a_guest_that_daemonises_does_not_outlive_its_end(world: &World) -> Result<()> {
    let said = world.tried(&["daemon", "left-behind-4714"])?;
    ensure!(said == "left behind: done\n", "{said}");
    assert_eq!(processes_of(&["sleep", "left-behind-4714"]), 0);
    Ok(())
}

fn a_guest_opens_so_many_files_and_no_more(world: &World) -> Result<()> {
    let said = world.tried(&["descriptors"])?;
    ensure!(said.contains("raise the limit: Operation not permitted"), "{said}");
    ensure!(said.contains("after 409") && said.contains("Too many open files"), "{said}");
    Ok(())
}

fn a_guest_that_prints_without_end_is_cut(world: &World) -> Result<()> {
    let ended = world.run(&world.mallory, world.attack(&["print", "20000000"]))?;
    let Printed::Staged { size_bytes, truncated, .. } = ended.stdout else {
        anyhow::bail!("{:?}", ended.stdout)
    };
    ensure!(truncated && size_bytes <= 1 << 20, "{size_bytes} bytes, cut: {truncated}");
    Ok(())
}

fn a_guest_brings_back_no_links_pipes_and_sockets(world: &World) -> Result<()> {
    let file = world.owners_file("linked")?;
    let mut spec = world.attack(&["outputs", &file, "/etc/passwd"]);
    spec.collect_output = true;
    let ended = world.run(&world.mallory, spec)?;
    ensure!(ended.said() == "outputs: done\n", "{}", ended.said());
    let paths: Vec<&str> = ended.outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["honest"]);
    let to = tempfile::tempdir()?;
    let out = to.path().display().to_string();
    let (well, _, said) =
        world.glean(&world.mallory, &["fetch", &ended.job.to_string(), "--out", &out])?;
    ensure!(well, "{said}");
    let fetched = fs::read_dir(to.path().join("0"))?.flatten().map(|entry| entry.file_name());
    assert_eq!(fetched.collect::<Vec<_>>(), ["honest"]);
    assert_eq!(fs::read_to_string(Path::new(&out).join("0/honest"))?, "honest");
    Ok(())
}
