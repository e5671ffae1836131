//! A worker that hangs, a supervisor that does as well, and keepers that die: no
//! guest runs that nobody vouches for, and none is blamed for it.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use gleaner_agent::owner;
use gleaner_agent_core::watchdog::{BEAT_EVERY, KILL_AFTER, UNREAD_MAX};
use gleaner_common::id::Fence;
use gleaner_common::job::{OnBusy, Outcome, Reaction};
use gleaner_common::time::Moment;
use gleaner_common::wire::{AttemptEvent, CoordinatorFrame};
use gleaner_shell::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Test;
use crate::agent::{Lab, job, script};
use crate::coordinator::SHORT_LEASE;
use crate::machine::{processes_with, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_guest_whose_keeper_is_killed_is_lost_and_has_not_failed", keeper_killed),
    ("however_late_a_keeper_dies_no_guest_is_told_as_killed", keeper_killed_at_the_end),
    ("an_idle_keeper_that_dies_costs_the_next_guest_nothing", idle_keeper_killed),
    ("a_guest_whose_keeper_is_stopped_is_lost_and_has_not_failed", keeper_stopped),
    ("a_stopped_worker_has_its_guests_stand_still_and_goes_on_after", stopped),
    ("a_worker_that_hangs_unseen_has_its_guests_stand_still", hangs),
    ("without_control_groups_guests_of_a_hung_worker_are_stopped_one_by_one", without_groups),
    ("an_owner_who_types_to_a_stopped_worker_is_heard_before_a_guest_runs", typed),
    ("an_owners_key_is_heard_while_another_guest_takes_long_to_die", key_beside_a_death),
    ("a_guest_of_a_hung_worker_is_killed_at_the_leases_end", killed_at_the_end),
    ("with_its_whole_agent_stopped_no_guest_outlives_the_lease", all_stopped),
    ("an_agent_on_time_has_no_guest_frozen_and_costs_little", on_time),
    ("no_keeper_is_left_defunct", no_defunct),
];

/// A guest that writes when it last ran, over and over.
const TICKS: &str = "exec perl -MTime::HiRes -e '$| = 1; open F, \">\", \"ticks\"; \
    while (1) { sysseek F, 0, 0; \
    syswrite F, sprintf(\"%020d\", 1e9 * Time::HiRes::clock_gettime(7)) }'";

/// How often is measured what is measured.
fn rounds() -> usize {
    std::env::var("GLEAN_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

impl Lab {
    fn last_tick(&self) -> Moment {
        let path = self.config.data.join("places/p0/guest/work/ticks");
        let text = fs::read_to_string(path).unwrap_or_default();
        Moment(text.trim().parse().unwrap_or(0))
    }

    #[track_caller]
    fn ticks_after(&self, begin: Moment) -> Moment {
        let mut tick = Moment::ZERO;
        until("it ticks", || {
            tick = self.last_tick();
            tick > begin
        });
        tick
    }

    /// Its last tick, once it ticks no more.
    #[track_caller]
    fn stands_still(&self) -> Moment {
        let (mut last, mut since) = (self.last_tick(), Clock.now());
        until("it stands still", || {
            let tick = self.last_tick();
            if tick != last {
                (last, since) = (tick, Clock.now());
            }
            Clock.now().since(since) > Duration::from_millis(300)
        });
        last
    }

    /// How often the supervisor froze guests, as the worker has told.
    pub(crate) fn freezes(&self) -> usize {
        self.log().matches("the supervisor froze guests").count()
    }

    fn keeper(&self) -> Pid {
        keeper_among(|| children_of(self.worker()))
    }

    fn end(&self) -> AttemptEvent {
        self.event("an end", |event| event.is_end().then_some(event))
    }
}

/// Sends it; the moment after.
fn signal(pid: Pid, signal: Signal) -> Moment {
    kill_process(pid, signal).unwrap();
    Clock.now()
}

fn children_of(pid: Pid) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero());
    pids_in(&fs::read_to_string(path).unwrap_or_default())
}

fn pids_in(text: &str) -> Vec<Pid> {
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn keeper_among(pids: impl Fn() -> Vec<Pid>) -> Pid {
    let mut keeper = None;
    until("a keeper", || {
        keeper = pids().into_iter().find(|pid| is_keeper(*pid));
        keeper.is_some()
    });
    keeper.unwrap()
}

fn read(pid: Pid, name: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).unwrap_or_default()
}

fn is_keeper(pid: Pid) -> bool {
    read(pid, "comm").trim() == "glean-keeper"
}

/// What follows its name: 0 for the state, 1 for the parent.
fn stat(pid: Pid, field: usize) -> Option<String> {
    let stat = read(pid, "stat");
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field).map(str::to_owned)
}

/// One place, and a guest in it that ticks.
fn ticking(lease: Option<Duration>) -> Lab {
    let mut lab = Lab::without_agent();
    lab.config.places = 1;
    if let Some(lease) = lease {
        lab.coordinator.grant(lease);
    }
    lab.start();
    offer_ticks(&lab);
    lab
}

fn offer_ticks(lab: &Lab) {
    let mut spec = script(TICKS);
    spec.on_busy = OnBusy::suspend(None, Reaction::Retreat);
    lab.offer(1, spec);
    lab.started();
    lab.ticks_after(Moment::ZERO);
}

#[derive(Default)]
struct Measured(Vec<Duration>);

impl Measured {
    /// The median, and the most.
    fn say(mut self, what: &str) -> (Duration, Duration) {
        self.0.sort();
        let ms = |span: &Duration| span.as_secs_f64() * 1e3;
        let (median, most) = (self.0[self.0.len() / 2], *self.0.last().unwrap());
        println!(
            "measured: {what}: median {:.2} ms, at most {:.2} ms of {}",
            ms(&median),
            ms(&most),
            self.0.len()
        );
        (median, most)
    }
}

// ── keepers that die ───────────────────────────────────────────────────────

fn keeper_killed() {
    let lab = Lab::new();
    for fence in 1..=3 {
        // The first as soon as there is a keeper, the others while the guest runs.
        lab.offer(fence, script("exec sleep 4741.5"));
        lab.started();
        if fence > 1 {
            until("the guest runs", || !processes_with("sleep 4741.5").is_empty());
        }
        signal(lab.keeper(), Signal::KILL);
        let end = lab.end();
        let is_lost =
            matches!(&end, AttemptEvent::Lost { reason, .. } if reason == "its keeper died");
        assert!(is_lost, "{end:?}");
        assert_eq!(processes_with("sleep 4741.5"), Vec::<i32>::new());
    }
    // Frozen for its owner, whom it is told to wait for.
    let mut spec = script("exec sleep 4741.5");
    spec.on_busy = OnBusy::suspend(None, Reaction::Retreat);
    lab.offer(4, spec);
    lab.started();
    until("the guest runs", || !processes_with("sleep 4741.5").is_empty());
    lab.ask(&owner::Command::Pause { seconds: None });
    lab.event("a suspension", |event| {
        matches!(event, AttemptEvent::Suspended { .. }).then_some(())
    });
    signal(lab.keeper(), Signal::KILL);
    assert!(matches!(lab.end(), AttemptEvent::Lost { suspensions: 1, .. }));
    lab.ask(&owner::Command::Resume);
    lab.wait_for_idle();
    lab.offer(5, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

/// Stopped by somebody, under a guest that ends.
fn keeper_stopped() {
    let lab = Lab::new();
    lab.offer(1, script("exec sleep 1"));
    lab.started();
    until("the guest runs", || !processes_with("sleep 1").is_empty());
    let stopped = signal(lab.keeper(), Signal::STOP);
    let end = lab.end();
    let after = Clock.now().since(stopped);
    let is_lost = matches!(&end, AttemptEvent::Lost { reason, .. } if reason.contains("stopped"));
    assert!(is_lost && after >= Duration::from_secs(10), "{end:?} after {after:?}");
    lab.offer(2, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

/// Killed at some moment between its guest's birth and the one after its end.
fn keeper_killed_at_the_end() {
    let lab = Lab::new();
    let (mut lost, mut ended) = (0, 0);
    let count = 20;
    for fence in 1..=count {
        lab.offer(fence, script("exit 3"));
        lab.started();
        let keeper = lab.keeper();
        // The moment, from at once to later than it takes.
        thread::sleep(Duration::from_micros(u64::from(fence) * 500));
        let _ = kill_process(keeper, Signal::KILL);
        match lab.end() {
            AttemptEvent::Lost { .. } => lost += 1,
            AttemptEvent::Finished(finished) => {
                assert_eq!(finished.outcome, Outcome::ExitCode(3));
                ended += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    println!("measured: of {count} guests {lost} were lost with their keepers, {ended} had ended");
}

/// Killed between two guests, or as the second one is started on it.
fn idle_keeper_killed() {
    let mut lab = Lab::without_agent();
    lab.config.places = 1;
    lab.start();
    lab.offer(1, script("exit 3"));
    lab.end();
    for fence in 2..=12 {
        let keeper = lab.keeper();
        if fence % 2 == 0 {
            signal(keeper, Signal::KILL);
            lab.offer(fence, script("exit 3"));
        } else {
            // It stands when it is told, and never hears.
            signal(keeper, Signal::STOP);
            lab.offer(fence, script("exit 3"));
            lab.started();
            signal(keeper, Signal::KILL);
        }
        let end = lab.end();
        let is_well =
            matches!(&end, AttemptEvent::Finished(it) if it.outcome == Outcome::ExitCode(3));
        assert!(is_well, "{fence}: {end:?}");
    }
}

// ── workers that hang ──────────────────────────────────────────────────────

fn stopped() {
    let lab = ticking(None);
    let worker = lab.worker();
    let (mut frozen, mut thawed) = (Measured::default(), Measured::default());
    for _ in 0..rounds() {
        lab.ticks_after(Clock.now());
        let stopped = signal(worker, Signal::STOP);
        let last = lab.stands_still();
        frozen.0.push(last.since(stopped));
        let went_on = signal(worker, Signal::CONT);
        thawed.0.push(lab.ticks_after(went_on).since(went_on));
    }
    let (took, _) = frozen.say("from SIGSTOP of a worker to its guest's last tick");
    assert!(took < BEAT_EVERY, "{took:?}");
    let (took, _) = thawed.say("from SIGCONT to its guest's first tick");
    assert!(took < BEAT_EVERY, "{took:?}");
    // Nothing was lost of it, and everything is answered as ever.
    assert_eq!(lab.status().guests[0].state, "running");
    assert_eq!(lab.worker(), worker);
    lab.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(1) });
    until("the guest is gone", || lab.status().guests.is_empty());
}

/// A group in which processes are made to hang, and nobody is told.
struct Stuck(PathBuf);

impl Stuck {
    fn new(lab: &Lab) -> Option<Self> {
        let group = lab.cgroup.as_ref()?.with_extension("stuck");
        fs::create_dir(&group).unwrap();
        let stuck = Self(group);
        stuck.write("cgroup.procs", &lab.worker().as_raw_nonzero().to_string());
        Some(stuck)
    }

    fn write(&self, file: &str, text: &str) -> Moment {
        fs::write(self.0.join(file), text).unwrap();
        Clock.now()
    }
}

fn hangs() {
    let mut lab = ticking(None);
    let Some(stuck) = Stuck::new(&lab) else {
        return gleaner_skip::without_lab("control groups are root's only");
    };
    let (mut frozen, mut thawed) = (Measured::default(), Measured::default());
    for _ in 0..rounds() {
        lab.ticks_after(Clock.now());
        let hung = stuck.write("cgroup.freeze", "1");
        frozen.0.push(lab.stands_still().since(hung));
        let went_on = stuck.write("cgroup.freeze", "0");
        thawed.0.push(lab.ticks_after(went_on).since(went_on));
    }
    let (took, _) = frozen.say("from a worker that hangs unseen to its guest's last tick");
    assert!(took < UNREAD_MAX + BEAT_EVERY, "{took:?}");
    let (took, _) = thawed.say("from its going on to its guest's first tick");
    assert!(took < BEAT_EVERY, "{took:?}");
    until("it is told", || lab.freezes() > 0);
    assert_eq!(lab.stop(), 0);
    until("an empty group", || fs::remove_dir(&stuck.0).is_ok());
}

fn without_groups() {
    let mut lab = Lab::without_agent();
    lab.config.places = 1;
    lab.config.cgroup.directory = Some("/nonexistent/groups".into());
    lab.start();
    offer_ticks(&lab);
    let worker = lab.worker();
    let stopped = signal(worker, Signal::STOP);
    let took = lab.stands_still().since(stopped);
    assert!(took < UNREAD_MAX + BEAT_EVERY, "{took:?}");
    let went_on = signal(worker, Signal::CONT);
    lab.ticks_after(went_on);
    // What the worker stops itself stays so when the supervisor lets go.
    lab.ask(&owner::Command::Pause { seconds: None });
    lab.stands_still();
    signal(worker, Signal::STOP);
    signal(worker, Signal::CONT);
    until("it answers", || lab.status().busy);
    let last = lab.stands_still();
    assert!(last <= Clock.now() - Duration::from_millis(300), "it ticks beside its owner");
    lab.ask(&owner::Command::Resume);
    lab.ticks_after(Clock.now());
}

/// What the agent takes for one.
struct Keyboard(OwnedFd);

impl Keyboard {
    fn of(lab: &Lab) -> Self {
        let path = lab.config.sensors.input.join("event0");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
        Self(rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap())
    }

    /// The moment before.
    fn press(&self) -> Moment {
        // Kind 1, code 30, value 1, after the time.
        let mut key = vec![0; 16];
        for word in [1_u16, 30, 1, 0] {
            key.extend(word.to_ne_bytes());
        }
        let pressed = Clock.now();
        rustix::io::write(&self.0, &key).unwrap();
        pressed
    }
}

/// A process in a keeper's namespace, whose parent we are: until we reap it, a keeper
/// that was killed is dying.
struct Straggler(Child);

impl Straggler {
    fn beside(keeper: Pid) -> Self {
        let path = format!("/proc/{}/ns/pid", keeper.as_raw_nonzero());
        let namespace = fs::File::open(path).unwrap();
        // All children of a thread are in there from then on.
        let spawn = || {
            let kind = Some(LinkNameSpaceType::ProcessID);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            Command::new("sleep").arg("4743").spawn().unwrap()
        };
        Self(thread::scope(|scope| scope.spawn(spawn).join().unwrap()))
    }

    fn is_dead(&self) -> bool {
        stat(Pid::from_child(&self.0), 0).as_deref() == Some("Z")
    }
}

impl Drop for Straggler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key_beside_a_death() {
    let mut lab = Lab::without_agent();
    lab.config.places = 2;
    lab.config.criteria.quiet = Duration::from_secs(1);
    let Some(group) = lab.cgroup.clone() else {
        return gleaner_skip::without_lab("control groups are root's only");
    };
    let keyboard = Keyboard::of(&lab);
    lab.start();
    let read = |path| fs::read_to_string(group.join("guests").join(path)).unwrap_or_default();
    let stands = || read("p1/cgroup.freeze").trim() == "1";
    let (mut frozen, mut told) = (Measured::default(), Measured::default());
    for round in 0..rounds() {
        let dies = 2 * u32::try_from(round).unwrap() + 1;
        lab.offer(dies, script("exec sleep 4743"));
        lab.started();
        if round == 0 {
            let mut spec = script("exec sleep 4743");
            spec.on_busy = OnBusy::suspend(None, Reaction::Retreat);
            lab.offer(2, spec);
            lab.started();
        }
        let keeper = keeper_among(|| pids_in(&read("p0/cgroup.procs")));
        let straggler = Straggler::beside(keeper);
        lab.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(dies) });
        until("it is dying", || straggler.is_dead());
        let pressed = keyboard.press();
        until("the other one stands still", stands);
        frozen.0.push(Clock.now().since(pressed));
        lab.event("a suspension", |event| {
            matches!(event, AttemptEvent::Suspended { .. }).then_some(())
        });
        told.0.push(Clock.now().since(pressed));
        assert!(is_keeper(keeper), "it was gone before");
        drop(straggler);
        until("it is reaped", || !is_keeper(keeper));
        lab.event("a resume", |event| matches!(event, AttemptEvent::Resumed { .. }).then_some(()));
    }
    let (took, _) = frozen.say("from a key to a guest's freeze, while another one's keeper dies");
    assert!(took < BEAT_EVERY, "{took:?}");
    told.say("from that key to the word of it");
}

fn typed() {
    let mut lab = Lab::without_agent();
    lab.config.places = 1;
    lab.config.criteria.quiet = Duration::from_secs(3);
    let keyboard = Keyboard::of(&lab);
    lab.start();
    offer_ticks(&lab);
    let worker = lab.worker();
    let stopped = signal(worker, Signal::STOP);
    keyboard.press();
    let last = lab.stands_still();
    println!("measured: from the stop to its last tick: {:?}", last.since(stopped));
    let went_on = signal(worker, Signal::CONT);
    lab.event("a suspension", |event| {
        matches!(event, AttemptEvent::Suspended { .. }).then_some(())
    });
    assert_eq!(lab.last_tick(), last, "it ran before its owner was heard");
    lab.event("a resume", |event| matches!(event, AttemptEvent::Resumed { .. }).then_some(()));
    let tick = lab.ticks_after(last);
    assert!(tick.since(went_on) + BEAT_EVERY >= lab.config.criteria.quiet, "{tick:?}");
}

fn killed_at_the_end() {
    let lab = ticking(Some(SHORT_LEASE));
    let worker = lab.worker();
    let stopped = signal(worker, Signal::STOP);
    until("the guest is killed", || processes_with("sysseek F, 0, 0").is_empty());
    let gone = Clock.now().since(stopped);
    println!("measured: a guest of a stopped worker is gone after {gone:?} of {SHORT_LEASE:?}");
    let last = lab.last_tick();
    assert!(last.since(stopped) < UNREAD_MAX + BEAT_EVERY, "{last:?} {stopped:?}");
    assert!(gone < SHORT_LEASE + KILL_AFTER + BEAT_EVERY * 5, "{gone:?}");
    signal(worker, Signal::CONT);
    let reason = lab.event("a retreat", |event| match event {
        AttemptEvent::Retreated { reason, .. } => Some(reason),
        other if other.is_end() => panic!("{other:?}"),
        _ => None,
    });
    assert!(reason.starts_with("the lease ended "), "{reason}");
    // And nothing is left frozen.
    lab.offer(2, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

/// As a machine that sleeps unannounced, but that its guests run on.
fn all_stopped() {
    let lab = ticking(Some(SHORT_LEASE));
    let (supervisor, worker) = (lab.supervisor(), lab.worker());
    signal(supervisor, Signal::STOP);
    let stopped = signal(worker, Signal::STOP);
    until("the guest is gone", || processes_with("sysseek F, 0, 0").is_empty());
    let ran_on = lab.last_tick().since(stopped);
    println!("measured: with all of its agent stopped, a guest ran on for {ran_on:?}");
    assert!(ran_on <= SHORT_LEASE, "{ran_on:?}");
    signal(supervisor, Signal::CONT);
    signal(worker, Signal::CONT);
    lab.event("a retreat", |event| match event {
        AttemptEvent::Retreated { .. } => Some(()),
        other if other.is_end() => panic!("{other:?}"),
        _ => None,
    });
    lab.offer(2, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

/// What both processes have done so far: switches of the processor, and its time.
fn effort(lab: &Lab) -> (u64, f64) {
    let of = |pid: Pid| {
        let status = read(pid, "status");
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.trim().parse().ok()).unwrap_or(0_u64)
        };
        let schedstat = read(pid, "schedstat");
        let ns = schedstat.split_whitespace().next().and_then(|ns| ns.parse().ok());
        (count("voluntary_ctxt_switches:"), ns.unwrap_or(0.0) / 1e9)
    };
    let (ours, theirs) = (of(lab.supervisor()), of(lab.worker()));
    (ours.0 + theirs.0, ours.1 + theirs.1)
}

fn on_time() {
    let lab = Lab::new();
    let spell = Duration::from_secs(rounds().clamp(3, 30) as u64);
    let per_second = |what: &str| {
        let (switches, cpu) = effort(&lab);
        thread::sleep(spell); // What is measured is this spell.
        let (after, cpu_after) = effort(&lab);
        let s = spell.as_secs_f64();
        let wakes = (after - switches) as f64 / s;
        println!(
            "measured: {what}: {wakes:.1} wake-ups and {:.3} ms of a core each second",
            (cpu_after - cpu) * 1e3 / s
        );
        wakes
    };
    let idle = per_second("supervisor and event loop without guests");
    offer_ticks(&lab);
    let beating = per_second("supervisor and event loop with a guest that runs");
    lab.ask(&owner::Command::Pause { seconds: None });
    lab.event("a suspension", |event| {
        matches!(event, AttemptEvent::Suspended { .. }).then_some(())
    });
    per_second("supervisor and event loop with a guest that stands still");
    assert!(beating > idle && beating < 100.0, "{idle} {beating}");
    println!("measured: guests frozen for a late beat: {}", lab.freezes());
}

// ── keepers that are left ──────────────────────────────────────────────────

fn defunct(lab: &Lab) -> usize {
    let ours = [lab.supervisor(), lab.worker()].map(|pid| pid.as_raw_nonzero().to_string());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    all.filter(|pid| stat(*pid, 0).as_deref() == Some("Z"))
        .filter(|pid| stat(*pid, 1).is_some_and(|parent| ours.contains(&parent)))
        .count()
}

fn no_defunct() {
    let lab = Lab::new();
    let mut fence = 0;
    for life in 0..6_u32 {
        for _ in 0..5 {
            fence += 1;
            lab.offer(fence, job(&["/bin/true"]));
            lab.end();
        }
        // Two with many processes, of which one stands still.
        for _ in 0..2 {
            fence += 1;
            let mut spec = script("for i in 1 2 3 4 5 6 7 8; do sleep 4742.5 & done; wait");
            spec.on_busy = OnBusy::suspend(None, Reaction::Retreat);
            lab.offer(fence, spec);
            lab.started();
        }
        until("they run", || processes_with("sleep 4742.5").len() >= 16);
        if life % 2 == 1 {
            signal(lab.worker(), Signal::STOP);
        }
        let worker = lab.worker();
        signal(worker, Signal::KILL);
        until("all are gone", || processes_with("4742.5").is_empty());
        until("another worker", || {
            children_of(lab.supervisor()).into_iter().any(|pid| pid != worker && !is_keeper(pid))
        });
        lab.wait_for_idle();
        until("nobody is defunct", || defunct(&lab) == 0);
    }
}
