//! A guest can use the cycles it is lent and its own directory, and nothing
//! of it stays.

use std::cell::RefCell;
use std::fs;
use std::time::Duration;

use gleaner_agent::container::cgroup::{GroupLimits, PlaceGroup};
use gleaner_agent::container::keeper::{GuestLimits, Report};
use gleaner_agent::doctor::Health;

use crate::Test;
use crate::machine::{LONG, Place, is_root, processes_with, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_guest_runs_and_its_end_is_told_with_what_it_printed", runs),
    ("a_keeper_starts_one_guest_after_another", one_after_another),
    ("what_cannot_run_is_refused_with_the_reason", cannot_run),
    ("a_guest_that_daemonises_does_not_survive_its_end", daemons_end),
    ("a_place_with_four_busy_threads_freezes_and_thaws", freezes),
    ("a_frozen_place_is_killed_as_one", frozen_is_killed),
    ("nothing_outlives_the_keeper", keeper_dies),
    ("a_guest_is_alone_with_its_directory", is_alone),
    ("a_guest_over_its_limits_is_stopped", limits),
    ("the_doctor_tries_a_real_guest", doctor),
    ("a_bare_guest_costs_little_more_than_a_spawn", costs_little),
];

fn runs() {
    let mut place = Place::new();
    if is_root() {
        assert_eq!(place.missing, Vec::<String>::new());
    }
    let ended = place.shell("echo out; echo err >&2; exit 3");
    assert_eq!((ended.stdout, ended.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    assert_eq!(ended.status >> 8, 3);
    assert!(ended.clean);
    let ended = place.shell("head -c 100000 /dev/zero; touch x; kill -9 $$");
    assert_eq!((ended.status, ended.stdout_bytes, ended.clean), (9, 100_000, false));
    assert_eq!(fs::metadata(place.directory.join("stdout")).unwrap().len(), 100_000);
}

fn one_after_another() {
    let mut place = Place::new();
    for n in 0..20 {
        let ended = place.shell(&format!("echo {n}"));
        assert_eq!(ended.stdout, format!("{n}\n").into_bytes());
    }
}

fn cannot_run() {
    let mut place = Place::new();
    for (command, expected) in [
        ("no-such-program", "no program `no-such-program`"),
        ("/no/such/program", "cannot run `/no/such/program`: No such file"),
        ("/etc/passwd", "cannot run `/etc/passwd`: Permission denied"),
    ] {
        place.start(&[command]);
        let Report::CannotStart { why, here_only, .. } = place.report() else {
            panic!("{command}")
        };
        assert!(why.starts_with(expected), "{why}");
        assert!(!here_only);
    }
    assert_eq!(place.shell("true").status, 0);
}

fn daemons_end() {
    let mut place = Place::new();
    let mark = "4711.5";
    let ended = place.shell(&format!(
        "for i in 1 2 3; do (setsid sh -c 'sleep {mark} & sleep {mark}' </dev/null &) ; done; \
         while [ $(grep -lz {mark} /proc/[0-9]*/cmdline | wc -l) -lt 6 ]; do :; done"
    ));
    assert_eq!(ended.status, 0);
    assert_eq!(processes_with(mark), Vec::<i32>::new());
}

const FOUR_THREADS: &str = "for i in 1 2 3 4; do (while :; do :; done) & done; echo ok > up; wait";

fn freezes() {
    let mut place = Place::new();
    place.start(&["sh", "-c", FOUR_THREADS]);
    place.wait_for_file("up");
    let Some(group) = &mut place.group else { return };
    for _ in 0..50 {
        group.freeze().unwrap();
        assert!(group.wait_frozen(LONG));
        // What the threads used while they came to a stand may be told late.
        let mut before = group.cpu_time();
        until("frozen guests use nothing", || {
            for _ in 0..100 {
                assert!(group.is_frozen());
            }
            let earlier = std::mem::replace(&mut before, group.cpu_time());
            before == earlier
        });
        group.thaw().unwrap();
        until("thawed guests use time", || group.cpu_time() > before);
    }
}

fn frozen_is_killed() {
    let mut place = Place::new();
    place.start(&["sh", "-c", FOUR_THREADS]);
    place.wait_for_file("up");
    let Some(group) = &mut place.group else { return };
    group.freeze().unwrap();
    assert!(group.wait_frozen(LONG));
    group.kill().unwrap();
    assert!(group.wait_empty(LONG));
}

fn keeper_dies() {
    let mut place = Place::new();
    place.start(&["sh", "-c", "(setsid sleep 4712.5 &) ; sleep 4712.5"]);
    until("the guest runs", || processes_with("sleep 4712.5").len() >= 2);
    if !place.keeper().is_contained() {
        gleaner_skip::without_lab("a keeper cannot shut itself in here");
        return;
    }
    rustix::process::kill_process(place.keeper().pid(), rustix::process::Signal::KILL).unwrap();
    place.keeper = None; // Waits for the keeper: then everything has gone.
    assert_eq!(processes_with("4712.5"), Vec::<i32>::new());
}

fn is_alone() {
    let place = RefCell::new(Place::new());
    let contained = place.borrow().keeper().is_contained();
    let says = |script: &str| String::from_utf8(place.borrow_mut().shell(script).stdout).unwrap();
    let fails = |script: &str| place.borrow_mut().shell(script).status != 0;
    assert!(!fails("echo x > x && cat x && rm x"));
    assert!(!fails("echo x > /dev/null && head -c 1 /dev/urandom"));
    assert_eq!(says("chrt -p $$ | head -1").trim().rsplit(' ').next(), Some("SCHED_IDLE"));
    assert!(fails("chrt -o -p 0 $$ 2>/dev/null && renice -n -5 $$"));
    assert!(fails("kill -9 1; kill -0 1 && exit 1"), "it is the keeper's");
    if contained {
        // The keeper, the shell, ls, and grep if it is there already.
        let seen: u32 = says("ls /proc | grep -c '^[0-9]'").trim().parse().unwrap();
        assert!(seen <= 4, "{seen} processes seen");
        assert_eq!(says("grep -c : /proc/net/dev"), "1\n");
        assert!(fails("cat /proc/1/environ"));
    }
    if is_root() {
        assert_eq!(says("id -u; id -G").trim(), "61900\n61900");
        assert!(fails("cat /root/.profile || ls /root || ls /home || ls /var"));
        assert_eq!(says("ls -A /run /home /srv | grep -v : | tr -d '\n'"), "");
        assert!(!fails("echo mine > /tmp/mine && mkdir -p /dev/shm/a/b"));
        assert_eq!(says("cat /tmp/mine 2>/dev/null; ls -A /dev/shm"), "", "of another guest");
        assert!(!std::path::Path::new("/tmp/mine").exists());
        assert!(fails("cat /etc/shadow"));
    }
}

fn limits() {
    let mut place = Place::new();
    let Some(group) = &mut place.group else { return };
    group.set_limits(GroupLimits { memory_bytes_max: 64 << 20, processes_max: 8 });
    let before = group.starvation();
    let ended = place.shell("head -c 200000000 /dev/zero | tail -c 190000000 | wc -c");
    assert!(place.group.as_ref().unwrap().starvation().is_beyond(before), "{ended:?}");
    let ended = place.shell("for i in 1 2 3 4 5 6 7 8 9 10; do sleep 4713.5 & done");
    assert_ne!(ended.status, 0);
    assert!(String::from_utf8_lossy(&ended.stderr).contains("fork"), "{ended:?}");
    place.start_as(gleaner_agent::container::keeper::StartGuest {
        command: ["head", "-c", "100000", "/dev/zero"].map(str::to_owned).to_vec(),
        limits: GuestLimits { file_bytes_max: 5_000, ..GuestLimits::default() },
        ..place.order()
    });
    let ended = place.ended();
    assert_eq!(ended.stdout_bytes, 5_000);
    assert_ne!(ended.status, 0);
}

/// In CPU time, which a machine with other things to do does not stretch.
fn costs_little() {
    let mut place = Place::new();
    let used = |place: &Place| place.group.as_ref().map(PlaceGroup::cpu_time);
    let Some(before) = used(&place) else { return };
    let count = 100;
    for _ in 0..count {
        place.start(&["/bin/true"]);
        assert_eq!(place.ended().status, 0);
    }
    let contained = used(&place).unwrap().saturating_sub(before) / count;
    let begin = own_cpu();
    for _ in 0..count {
        std::process::Command::new("/bin/true").status().unwrap();
    }
    let bare = own_cpu().saturating_sub(begin) / count;
    println!("  a guest takes {contained:?} of CPU time, a bare spawn {bare:?}");
    assert!(contained < bare * 4 + Duration::from_millis(1));
}

/// This process's CPU time and that of its children.
fn own_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 1..];
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(4).map(|n| n.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

fn doctor() {
    let home = tempfile::tempdir().unwrap();
    let mut config = gleaner_agent::AgentConfig {
        data: home.path().into(),
        runtime: home.path().into(),
        ..Default::default()
    };
    let checks = gleaner_agent::doctor::checks(&config, false);
    for name in ["guest", "kill", "settings", "data directory"] {
        assert!(
            checks.iter().any(|check| check.subject == name && check.health == Health::Well),
            "{name}: {checks:?}"
        );
    }
    if is_root() {
        assert!(checks.iter().all(|check| check.health == Health::Well), "{checks:?}");
        config.guests.uid_base = 65_534; // Nobody, by name.
        let checks = gleaner_agent::doctor::checks(&config, false);
        let users = checks.iter().find(|check| check.subject == "guest users").unwrap();
        assert!(users.health == Health::Lacking && users.found.contains("nobody"), "{users:?}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
}
