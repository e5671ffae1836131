//! Two machines with one identity.

use gleaner_common::id::MachineId;
use gleaner_common::program::ProgramSpec;

use super::*;

/// A machine that has the identity of `host1`, or a copy of it.
struct Machine {
    host: &'static str,
    boot: u8,
    life: u64,
    id: Option<MachineId>,
    serial: u64,
}

impl Machine {
    fn new(host: &'static str, boot: u8, life: u64, id: Option<u8>) -> Self {
        Self { host, boot, life, id: id.map(|id| MachineId([id; 16])), serial: 0 }
    }
}

impl Site {
    /// The reason, if it is refused.
    fn dial(&mut self, machine: &mut Machine, serial: u64) -> Option<String> {
        machine.serial = serial;
        let machine_id = machine.id;
        let mut facts = Facts { cores: 1, places: 1, machine_id, ..Facts::default() };
        facts.machine.hostname = machine.host.into();
        let frame = AgentFrame::Hello {
            incarnation: Incarnation(machine.life),
            boot: BootId([machine.boot; 16]),
            facts: Box::new(facts),
            presence: presence(false, 1),
            held: vec![],
            seen: Fence::default(),
        };
        self.handle(Event::Heard { from: link(1, serial), frame });
        self.refused_link(serial)
    }

    fn refused_link(&self, serial: u64) -> Option<String> {
        self.last.effects.iter().find_map(|effect| {
            let Effect::Refuse { link, reason } = effect else { return None };
            (link.serial == serial).then(|| reason.clone())
        })
    }

    fn beats(&mut self, machine: &Machine) {
        let load = LoadAverages::default();
        let frame = AgentFrame::Heartbeat { sequence: 1, slots: 1, load };
        self.handle(Event::Heard { from: link(1, machine.serial), frame });
    }

    /// A job of one subprogram, with its attempt at `host1`; and what a coordinator
    /// starts from that dies then, where this life spoke last.
    fn gives_out(&mut self, life: u64) -> (Fence, Restored) {
        let (_, offered) = self.submit(1, 0);
        let (_, _, fence) = only(&offered);
        let attempt = |change: &Change| {
            let Change::Attempt(record) = change else { return None };
            Some(record.clone())
        };
        let restored = Restored {
            workstations: vec![(WorkstationId(1), "host1".to_owned())],
            incarnations: vec![(WorkstationId(1), Incarnation(life))],
            jobs: self.core.jobs.values().map(|job| job.record().clone()).collect(),
            attempts: self.last.changes.iter().filter_map(attempt).collect(),
            fences_below: Fence::of(10_000),
            ..Restored::default()
        };
        (fence, restored)
    }

    /// A program begins that has one at `host1` as well.
    fn has_a_rank_at_host2(&mut self) -> Fence {
        self.enrol(2);
        self.connect(2, 1, 1);
        let (_, offered) = self.submit_program_with(2, ProgramSpec::default(), 5);
        let (.., fence) = *offered.iter().find(|(at, ..)| *at == 2).unwrap();
        self.started(2, fence);
        fence
    }

    fn starts_anew(&mut self, restored: Restored) {
        self.core = Core::restore(self.now, self.wall(), Config::default(), restored);
    }

    /// The life that is kept in this step as the one that speaks.
    fn kept_life(&self) -> Option<Incarnation> {
        self.last.changes.iter().find_map(|change| {
            let Change::Incarnation { incarnation, .. } = change else { return None };
            Some(*incarnation)
        })
    }

    fn reason(&self) -> String {
        self.core.workstation_row(self.now, WorkstationId(1)).unwrap().reason
    }

    /// Both live on and dial as often as they may, for an hour: how many attempts
    /// were lost, of a workstation that always has one.
    fn hour_of_both(&mut self, both: &mut [Machine; 2]) -> u64 {
        let (job, _) = self.submit(1, 1_000);
        let mut serial = 10;
        for _ in 0..1_200 {
            for machine in both.iter_mut() {
                let present = self.core.link(WorkstationId(1)).map(|link| link.serial);
                if present == Some(machine.serial) {
                    self.beats(machine);
                } else {
                    serial += 1;
                    self.dial(machine, serial);
                }
            }
            self.pass(s(3));
        }
        self.core.summary(job).map_or(0, |summary| summary.counts.lost)
    }
}

/// Two machines, two boots of unknown machines, and two containers of one.
fn pairs() -> [[Machine; 2]; 3] {
    let new = Machine::new;
    [
        [new("desk", 1, 1, Some(1)), new("clone", 2, 2, Some(2))],
        [new("desk", 1, 1, None), new("clone", 2, 2, None)],
        [new("desk", 1, 1, Some(1)), new("clone", 1, 2, Some(1))],
    ]
}

/// They pushed each other out for good, and each time all was lost.
#[test]
fn an_hour_of_two_machines_with_one_identity_loses_two_attempts_at_most() {
    for mut both in pairs() {
        let mut site = Site::new(Config::default());
        site.enrol(1);
        site.dial(&mut both[0], 1);
        let lost = site.hour_of_both(&mut both);
        assert!(lost <= 2, "{lost} were lost");
        let heard = site.core.link(WorkstationId(1)).unwrap().serial;
        assert_eq!(heard, both[0].serial, "the first goes on");
        let told = site.reason();
        assert!(told.contains("two machines have its identity: desk, and clone, refused for "));
    }
}

#[test]
fn a_life_that_comes_back_proves_a_copy_and_waits_for_what_that_runs() {
    let [.., [mut first, mut second]] = pairs();
    let mut site = Site::new(Config::default());
    site.enrol(1);
    assert_eq!(site.dial(&mut first, 1), None);
    assert_eq!(site.dial(&mut second, 2), None, "as an agent that was started anew");
    let (_, offered) = site.submit(1, 0);
    let (at, _, fence) = only(&offered);
    let frame = AgentFrame::Attempt(AttemptEvent::Started { fence, waited: Duration::ZERO });
    site.handle(Event::Heard { from: link(at, 2), frame });
    let told = site.dial(&mut first, 3).unwrap();
    assert!(told.starts_with("what host1 was given before has to end first"), "{told}");
    let told = site.refused_link(2).unwrap();
    assert!(told.starts_with("host1 is in use on another machine, desk, that had it before"));
    assert!(site.dial(&mut second, 4).is_some());
    assert!(site.dial(&mut first, 5).is_some(), "its lease has not ended");
    site.pass(PAST_LEASE);
    assert_eq!(site.dial(&mut first, 6), None);
    assert_eq!(site.offers().len(), 1, "what was lost runs again");
    assert!(site.dial(&mut second, 7).is_some());
}

/// Its copy was told to stop a rank, and nobody has heard that it did.
#[test]
fn a_life_that_comes_back_waits_for_what_was_to_stop() {
    let [.., [mut first, mut second]] = pairs();
    let mut site = Site::new(Config::default());
    site.enrol(1);
    assert_eq!(site.dial(&mut first, 1), None);
    assert_eq!(site.dial(&mut second, 2), None);
    let failed = site.has_a_rank_at_host2();
    site.finished(2, failed, Outcome::ExitCode(1));
    let told = site.dial(&mut first, 3).unwrap_or_default();
    assert!(told.starts_with("what host1 was given before has to end first"), "{told}");
    site.pass(PAST_LEASE);
    assert_eq!(site.dial(&mut first, 4), None);
}

#[test]
fn another_boot_waits_for_what_was_to_stop() {
    let mut first = Machine::new("desk", 1, 1, Some(7));
    let mut second = Machine::new("desk", 2, 2, Some(7));
    let mut site = Site::new(Config::default());
    site.enrol(1);
    assert_eq!(site.dial(&mut first, 1), None);
    let failed = site.has_a_rank_at_host2();
    site.handle(Event::Disconnected(link(1, 1)));
    site.finished(2, failed, Outcome::ExitCode(1));
    let told = site.dial(&mut second, 2).unwrap_or_default();
    assert!(told.starts_with("what host1 was given before has to end first"), "{told}");
    site.pass(PAST_LEASE);
    assert_eq!(site.dial(&mut second, 3), None);
}

#[test]
fn a_coordinator_that_was_started_anew_finds_out_again_who_was_first() {
    let [.., [mut first, mut second]] = pairs();
    let incarnations = vec![(WorkstationId(1), Incarnation(first.life))];
    let workstations = vec![(WorkstationId(1), "host1".to_owned())];
    let restored = Restored { workstations, incarnations, ..Restored::default() };
    let mut site = Site::new(Config::default());
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    assert_eq!(site.dial(&mut second, 1), None, "an agent may have been started anew");
    assert_eq!(site.dial(&mut first, 2), None);
    assert!(site.dial(&mut second, 3).is_some());
    let kept = site.last.changes.iter().any(|it| matches!(it, Change::Incarnation { .. }));
    assert!(!kept, "only a life that is heard is kept");
}

#[test]
fn after_a_restart_a_copy_waits_until_nothing_that_was_given_out_can_run() {
    for mut both in pairs() {
        let [first, second] = &mut both;
        let mut site = Site::new(Config::default());
        site.enrol(1);
        site.dial(first, 1);
        let (_, restored) = site.gives_out(first.life);
        site.starts_anew(restored);
        let told = site.dial(second, 2).expect("the first may be alive, and is not heard yet");
        assert!(told.starts_with("what host1 was given before has to end first"), "{told}");
        assert_eq!(site.dial(first, 3), None);
        assert_eq!(site.offers().len(), 1, "the same attempt, which goes on");
        site.pass(s(1));
        assert!(site.core.attempts.len() == 1 && site.last.changes.is_empty());
    }
}

/// A restart in between would have offered the first what the second may still run.
#[test]
fn who_waits_for_its_copy_is_kept_as_the_speaker_only_when_it_speaks() {
    let [.., [mut first, mut second]] = pairs();
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.dial(&mut first, 1);
    site.dial(&mut second, 2);
    assert_eq!(site.kept_life(), Some(Incarnation(second.life)));
    let (fence, restored) = site.gives_out(second.life);
    assert!(site.dial(&mut first, 3).is_some());
    assert_eq!(site.kept_life(), None, "it is not let in yet");
    let mut anew = Site::new(Config::default());
    anew.starts_anew(restored);
    assert!(anew.dial(&mut first, 4).is_some(), "nor is it after a restart");
    assert_eq!(anew.offers(), []);
    site.pass(PAST_LEASE);
    assert_eq!(site.dial(&mut first, 5), None);
    assert_eq!(site.kept_life(), Some(Incarnation(first.life)));
    assert_ne!(only(&site.offers()).2, fence, "a new attempt, not what the second had");
}

#[test]
fn a_machine_whose_name_was_copied_waits_for_what_the_other_boot_may_run() {
    let mut first = Machine::new("desk", 1, 1, Some(1));
    let mut second = Machine::new("clone", 2, 2, Some(1));
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.dial(&mut first, 1);
    let (_, offered) = site.submit(1, 0);
    assert_eq!(offered.len(), 1);
    site.handle(Event::Disconnected(link(1, 1)));
    site.pass(s(7));
    let told = site.dial(&mut second, 2).expect("guests of the first may run");
    assert!(told.starts_with("what host1 was given before has to end first"), "{told}");
    assert_eq!(site.dial(&mut first, 3), None, "the first comes back in time");
}

#[test]
fn an_admin_lets_a_disk_that_has_moved_in_before_its_time() {
    let [[mut first, mut second], ..] = pairs();
    let mut site = Site::new(Config::default());
    site.enrol(1);
    site.dial(&mut first, 1);
    assert!(site.dial(&mut second, 2).is_some());
    site.handle(Event::Disconnected(link(1, 1)));
    site.pass(s(60));
    assert!(site.dial(&mut second, 3).is_some(), "the first may be starting anew");
    let workstation = WorkstationId(1);
    site.handle(Event::Drained { workstation, drained: false, now: false });
    assert_eq!(site.dial(&mut second, 4), None);
    assert!(!site.reason().contains("two machines"));
}
