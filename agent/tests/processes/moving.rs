//! Guests that move between two real agents, with the tests as coordinator.

use std::fs;
use std::net::SocketAddr;

use gleaner_agent::doctor::Health;
use gleaner_agent::owner;
use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{JobSpec, OnBusy, Outcome, Reaction};
use gleaner_common::program::{Arrival, Destination, RankAt, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Offer};

use rustix::process::{Pid, Signal, kill_process};

use crate::Test;
use crate::agent::{Lab, script, text};
use crate::machine::{is_root, processes_with, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_guest_goes_on_at_another_agent_and_nothing_is_done_twice", goes_on),
    ("what_is_not_taken_elsewhere_goes_on_where_it_was", stays),
    ("who_has_not_the_ticket_is_not_taken_in_and_who_has_it_is", ticket),
    ("what_cannot_be_carried_says_why_and_goes_on_where_it_was", cannot),
    ("what_has_ended_at_a_place_that_stands_still_is_told_and_not_carried", ended),
    ("what_had_not_begun_is_placed_elsewhere_at_once", not_begun),
    ("an_owner_who_leaves_in_time_keeps_the_guest", keeps),
    ("the_doctor_asks_the_agent_whether_guests_can_move", doctor_asks),
    ("a_keeper_waits_where_guests_are_welcome_and_the_last_one_could_move", kept_ready),
];

const TICKET: Ticket = Ticket([5; 16]);

/// Two agents that know each other, and where the second is reached.
struct Labs {
    here: Lab,
    there: Lab,
    address: Vec<SocketAddr>,
}

impl Labs {
    /// None where nothing can be moved.
    fn new() -> Option<Self> {
        if !is_root() {
            gleaner_skip::without_lab("guests can be moved by root only");
            return None;
        }
        let mut here = Lab::of(WorkstationId(1), None);
        let mut there = Lab::of(WorkstationId(2), Some(&here));
        there.config.guests.uid_base = 61_950;
        here.start();
        there.begin();
        let (address, moves) = there.coordinator.expect("a hello", |frame| match frame {
            AgentFrame::Hello { facts, .. } => {
                Some((facts.addresses, facts.fingerprint.ok_or(facts.missing)))
            }
            _ => None,
        });
        if let Err(missing) = moves {
            gleaner_skip::without_lab(missing.join("; "));
            return None;
        }
        there.wait_for_idle();
        Some(Self { here, there, address })
    }

    fn run(&self, command: &str) {
        self.here.offer(1, spec(command));
        self.here.started();
        let printed = self.here.config.data.join("places/p0/stdout");
        until("a first line", || fs::metadata(&printed).is_ok_and(|file| file.len() > 0));
    }

    /// The owner comes back, and the guest wants away.
    fn owner_returns(&self) {
        self.here.ask(&owner::Command::Pause { seconds: None });
        self.here.event("a wish to leave", |event| match event {
            AttemptEvent::WantsAway {
                fence: Fence { number: 1, .. }, keep: Keep::State, ..
            } => Some(()),
            AttemptEvent::Retreated { .. } => panic!("{event:?}"),
            _ => None,
        });
    }

    fn owner_leaves(&self) {
        self.here.ask(&owner::Command::Resume);
    }

    /// As a coordinator does that has chosen the second agent.
    fn send(&self, command: &str, fence: u32) {
        self.offer(command, fence);
        self.depart(fence, TICKET);
    }

    fn offer(&self, command: &str, fence: u32) {
        let job = JobId(1);
        let offer = Offer {
            fence: Fence::of(fence),
            subprogram: SubprogramId { job, index: 7 },
            rank: None,
            arrival: Some(Arrival {
                from: WorkstationId(1),
                name: "desk-1".into(),
                old: Fence::of(1),
                ticket: TICKET,
            }),
        };
        let job = CoordinatorFrame::Job { job, spec: Box::new(spec(command)) };
        self.there.coordinator.say(job);
        self.there.coordinator.say(CoordinatorFrame::Offer(offer));
    }

    fn depart(&self, fence: u32, ticket: Ticket) {
        let at = RankAt {
            rank: 7,
            fence: Fence::of(fence),
            workstation: WorkstationId(2),
            name: "desk-2".into(),
            addresses: self.address.clone(),
        };
        let to = Destination { at, ticket, ordered: false };
        self.here.coordinator.say(CoordinatorFrame::Depart {
            fence: Fence::of(1),
            keep: Keep::State,
            to,
        });
    }

    fn stays(&self) {
        self.here.coordinator.say(CoordinatorFrame::Stay { fence: Fence::of(1) });
        self.here.event("a suspension", |event| {
            matches!(event, AttemptEvent::Suspended { fence: Fence { number: 1, .. } })
                .then_some(())
        });
    }
}

impl Lab {
    fn refused(&self, of: u32) {
        self.event("a refusal", |event| {
            matches!(event, AttemptEvent::Refused { fence, .. } if fence == Fence::of(of))
                .then_some(())
        });
    }
}

fn spec(command: &str) -> JobSpec {
    let mut spec = script(command);
    spec.on_busy = OnBusy::at_once(Reaction::Migrate);
    spec
}

const COUNTS: &str = "echo $GLEAN_INDEX > state; i=0; \
    while [ $i -lt 20 ]; do i=$((i + 1)); echo $i; sleep 0.05; done; cat state; pwd";

fn counted() -> String {
    let numbers = (1..=20).fold(String::new(), |all, n| format!("{all}{n}\n"));
    format!("{numbers}7\n/place/guest/work\n")
}

fn goes_on() {
    let Some(labs) = Labs::new() else { return };
    labs.run(COUNTS);
    labs.owner_returns();
    labs.send(COUNTS, 5);
    let (bytes, frozen) = labs.there.event("an arrival", |event| match event {
        AttemptEvent::Arrived { fence: Fence { number: 5, .. }, bytes, frozen } => {
            Some((bytes, frozen))
        }
        AttemptEvent::Refused { .. } => panic!("{event:?}"),
        _ => None,
    });
    println!("moved {bytes} bytes; it stood still for {frozen:?}");
    assert_eq!(labs.here.status().guests[0].state, "leaving");
    labs.here.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(1) });
    labs.there.coordinator.say(CoordinatorFrame::GoOn { fence: Fence::of(5) });
    let finished = labs.there.finished();
    assert_eq!(finished.outcome, Outcome::Succeeded, "{}", text(&finished.stderr));
    assert_eq!(text(&finished.stdout), counted());
    // Both places take the next guest.
    labs.owner_leaves();
    labs.here.wait_for_idle();
    for lab in [&labs.here, &labs.there] {
        lab.offer(9, script("pwd"));
        assert_eq!(lab.finished().outcome, Outcome::Succeeded);
    }
}

fn stays() {
    let Some(labs) = Labs::new() else { return };
    labs.run(COUNTS);
    labs.there.ask(&owner::Command::Pause { seconds: None });
    labs.owner_returns();
    labs.send(COUNTS, 5);
    labs.there.refused(5);
    labs.stays();
    labs.owner_leaves();
    let finished = labs.here.finished();
    assert_eq!(finished.outcome, Outcome::Succeeded, "{}", text(&finished.stderr));
    assert_eq!(text(&finished.stdout), counted());
}

fn ticket() {
    let Some(labs) = Labs::new() else { return };
    labs.run(COUNTS);
    labs.owner_returns();
    labs.offer(COUNTS, 5);
    // Fences are numbers, which anybody can count.
    labs.depart(5, Ticket([6; 16]));
    until("it is refused", || labs.here.log().contains("attempt #5 is not expected here"));
    labs.stays();
    labs.depart(5, TICKET);
    labs.there.event("an arrival", |event| match event {
        AttemptEvent::Arrived { fence: Fence { number: 5, .. }, .. } => Some(()),
        AttemptEvent::Refused { .. } => panic!("{event:?}"),
        _ => None,
    });
    labs.here.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(1) });
    labs.there.coordinator.say(CoordinatorFrame::GoOn { fence: Fence::of(5) });
    assert_eq!(text(&labs.there.finished().stdout), counted());
}

const HOLDS: &str = "exec perl -e 'use Socket; $| = 1; socket(L, PF_INET, SOCK_STREAM, 0); \
    bind(L, sockaddr_in(8123, INADDR_LOOPBACK)); listen(L, 1); \
    socket(C, PF_INET, SOCK_STREAM, 0); connect(C, sockaddr_in(8123, INADDR_LOOPBACK)); \
    print \"holds\\n\"; sleep 4; print \"done\\n\"'";

/// A keeper that stands still with its guest does not say that this has ended.
fn ended() {
    let Some(labs) = Labs::new() else { return };
    labs.run("echo begins; exec sleep 4741.7");
    labs.owner_returns();
    let guest = processes_with("sleep 4741.7");
    assert_eq!(guest.len(), 1, "{guest:?}");
    kill_process(Pid::from_raw(guest[0]).unwrap(), Signal::KILL).unwrap();
    until("it has ended", || processes_with("sleep 4741.7").is_empty());
    labs.send("true", 5);
    assert_eq!(labs.here.finished().outcome, Outcome::Signal(9));
    labs.there.refused(5);
}

fn cannot() {
    let Some(labs) = Labs::new() else { return };
    labs.run(HOLDS);
    labs.owner_returns();
    labs.send(HOLDS, 5);
    let reason = labs.here.event("an obstacle", |event| match event {
        AttemptEvent::CannotLeave { fence: Fence { number: 1, .. }, keep: Keep::State, reason } => {
            Some(reason)
        }
        _ => None,
    });
    assert!(reason.ends_with("(perl) holds a TCP socket to 127.0.0.1:8123"), "{reason}");
    labs.there.refused(5);
    labs.owner_leaves();
    let finished = labs.here.finished();
    assert_eq!(text(&finished.stdout), "holds\ndone\n");
    labs.there.offer(9, script("pwd"));
    assert_eq!(labs.there.finished().outcome, Outcome::Succeeded);
}

fn keeps() {
    let Some(labs) = Labs::new() else { return };
    labs.run(COUNTS);
    labs.owner_returns();
    labs.owner_leaves();
    labs.here.event("a stay", |event| {
        matches!(event, AttemptEvent::Stays { fence: Fence { number: 1, .. }, .. }).then_some(())
    });
    // It crossed that word.
    labs.depart(5, TICKET);
    let reason = labs.here.event("a refusal to leave", |event| match event {
        AttemptEvent::CannotLeave { fence: Fence { number: 1, .. }, reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, "its owner has left");
    assert_eq!(text(&labs.here.finished().stdout), counted());
}

fn not_begun() {
    let Some(labs) = Labs::new() else { return };
    // A place that is being made for it is frozen before it is there.
    labs.here.offer(1, spec(COUNTS));
    labs.here.started();
    labs.owner_returns();
    labs.depart(5, TICKET);
    labs.here.event("an end or a departure", |event| match event {
        AttemptEvent::Refused { fence: Fence { number: 1, .. }, reason, .. } => {
            assert_eq!(reason, "its owner came before it began");
            Some(())
        }
        _ => None,
    });
    labs.owner_leaves();
    labs.here.wait_for_idle();
    labs.here.offer(9, script("pwd"));
    assert_eq!(labs.here.finished().outcome, Outcome::Succeeded);
}

/// Whoever asks may have more rights than the agent's service leaves it.
fn doctor_asks() {
    let mut lab = Lab::of(WorkstationId(1), None);
    let moves = |lab: &Lab| {
        let checks = gleaner_agent::doctor::checks(&lab.config, true);
        checks.into_iter().find(|check| check.subject == "moves").unwrap()
    };
    let untried = moves(&lab);
    assert!(
        untried.health == Health::Sick && untried.found.contains("not tried yet"),
        "{untried:?}"
    );
    lab.start();
    let status = lab.status().moves;
    let found = moves(&lab);
    assert_eq!(found.health == Health::Well, status.possible);
    assert_eq!(found.found, format!("{} (as the agent found)", status.detail));
    lab.stop();
    let noted = moves(&lab);
    if status.possible {
        let detail = format!("{} (as the agent found when it last started)", status.detail);
        assert_eq!((noted.health, noted.found), (Health::Well, detail));
    }
}

/// The keepers that are there, with what they have started.
fn keepers(lab: &Lab) -> Vec<(i32, bool)> {
    let is_keeper = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "glean-keeper\n")
    };
    let all = children(lab.worker().as_raw_nonzero().get()).into_iter().filter(is_keeper);
    all.map(|keeper| (keeper, !children(keeper).is_empty())).collect()
}

fn children(of: i32) -> Vec<i32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The one keeper, which has a guest or waits for one; the one before it may be dying.
#[track_caller]
fn keeper_after(lab: &Lab, before: i32, has_guest: bool) -> i32 {
    let mut found = 0;
    until("a keeper", || {
        let keepers = keepers(lab);
        found = keepers.first().map_or(0, |(keeper, _)| *keeper);
        found != before && keepers == [(found, has_guest)]
    });
    found
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn kept_ready() {
    let Some(labs) = Labs::new() else { return };
    let here = &labs.here;
    assert!(keepers(here).is_empty(), "nobody has come yet");
    let stays = spec("echo here; sleep 1000");
    here.offer(1, stays.clone());
    let began = keeper_after(here, 0, true);
    let guest = children(began)[0];
    let command = || fs::read_to_string(format!("/proc/{guest}/cmdline"));
    until("it runs", || command().is_ok_and(|command| command.contains("sleep 1000")));
    kill(guest);
    here.finished();
    let first = keeper_after(here, began, false);
    here.offer(2, stays.clone());
    until("a guest", || keepers(here) == [(first, true)]);
    here.ask(&owner::Command::Pause { seconds: None });
    here.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(2) });
    until("its end", || keepers(here).is_empty());
    // Whoever answers has done all that follows from it.
    here.status();
    assert!(keepers(here).is_empty(), "its owner is here");
    labs.owner_leaves();
    let second = keeper_after(here, first, false);
    here.offer(3, spec("echo runs"));
    assert_eq!(text(&here.finished().stdout), "runs\n");
    let third = keeper_after(here, second, false);
    // One that dies by itself is not made again and again; the next guest is
    // taken all the same.
    kill(third);
    until("its end", || keepers(here).is_empty());
    here.offer(4, stays);
    until("a guest", || matches!(keepers(here)[..], [(_, true)]));
}
