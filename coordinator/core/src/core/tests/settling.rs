//! Nothing takes the place of what may still run.

use gleaner_common::program::ProgramSpec;

use super::*;

/// From a lease on.
const THE_REST: Duration = PAST_LEASE.saturating_sub(LEASE);

/// A store as it was before anything was placed, marked as a restored backup is, and
/// one workstation that is idle.
fn restored() -> (Site, JobId) {
    let mut site = Site::new(Config::default());
    let (job, _) = site.submit(1, 0);
    let record = site.core.jobs[&job].record().clone();
    let workstations = vec![(WorkstationId(1), "desk".to_owned())];
    let restored =
        Restored { workstations, jobs: vec![record], is_copy: true, ..Restored::default() };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    assert_eq!(site.connect(1, 1, 1), [], "another may run it, that the store does not know");
    (site, job)
}

#[test]
fn after_a_restore_nothing_begins_before_a_lease_has_ended() {
    let (mut site, job) = restored();
    let why = site.core.why_job(site.now, job).unwrap();
    assert!(why[0].contains("went back") && why[0].contains("10 s"), "{why:?}");
    assert_eq!(site.pass_heard(LEASE), []);
    assert_eq!(site.pass_heard(THE_REST).len(), 1);
    assert!(!site.core.why_job(site.now, job).unwrap()[0].contains("went back"));
}

/// What its agent has not named may have gone elsewhere since the backup.
#[test]
fn what_a_restored_store_calls_placed_is_offered_again_only_then() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, subprogram, fence) = only(&offered);
    let attempts = vec![AttemptRecord {
        fence,
        subprogram,
        replica: 0,
        workstation: WorkstationId(1),
        placed: site.wall(),
        end: None,
        coming: None,
        arrived: false,
    }];
    let jobs = vec![site.core.jobs[&job].record().clone()];
    let workstations = vec![(WorkstationId(1), "desk".to_owned())];
    let restored = Restored { workstations, jobs, attempts, is_copy: true, ..Restored::default() };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    assert_eq!(site.connect(1, 1, 1), []);
    assert_eq!(site.pass_heard(PAST_LEASE), [(1, subprogram, fence)]);
}

/// Two ranks on two workstations, of which the second hears nothing any more.
fn half_deaf() -> (Site, JobId, Vec<Offered>) {
    let mut site = Site::with_idle(4);
    let (job, offered) = site.submit_program(2, ProgramSpec::default());
    for (id, _, fence) in &offered {
        site.started(*id, *fence);
    }
    site.deaf.insert(WorkstationId(offered[1].0));
    (site, job, offered)
}

#[test]
fn a_program_begins_again_when_its_ranks_of_before_have_stopped() {
    let (mut site, job, offered) = half_deaf();
    let ((first, _, one), (second, _, other)) = (offered[0], offered[1]);
    assert_eq!(site.hear_of(first, lost(one)), [], "the other may run");
    let why = site.core.why_job(site.now, job).unwrap();
    assert!(why[0].contains("may still run"), "{why:?}");
    // Another's word for it is worth nothing.
    site.hear(first, AgentFrame::Stopped { fence: other });
    assert_eq!(site.offers(), []);
    assert_eq!(site.hear(second, AgentFrame::Stopped { fence: other }).len(), 2);
}

/// While the disk stood still, the program began again.
#[test]
fn an_offer_that_waited_for_the_disk_and_is_not_wanted_any_more_does_not_leave() {
    let (mut site, _, offered) = half_deaf();
    let frames: Vec<CoordinatorFrame> = offered
        .iter()
        .flat_map(|(_, _, fence)| {
            let fence = *fence;
            [CoordinatorFrame::GoOn { fence }, CoordinatorFrame::Stay { fence }]
        })
        .collect();
    assert!(frames.iter().all(|frame| !site.core.is_overtaken(frame)));
    site.hear_of(offered[0].0, lost(offered[0].2));
    assert!(frames.iter().all(|frame| site.core.is_overtaken(frame)));
    let cancel = CoordinatorFrame::Cancel { fence: offered[1].2 };
    assert!(!site.core.is_overtaken(&cancel), "it takes nothing up");
    let again = site.hear(offered[1].0, AgentFrame::Stopped { fence: offered[1].2 });
    assert_eq!(again.len(), 2);
    let offers = site.last.effects.iter().filter_map(|effect| {
        let Effect::Send { frame, .. } = effect else { return None };
        matches!(frame, CoordinatorFrame::Offer(_)).then_some(frame.clone())
    });
    let offers: Vec<_> = offers.collect();
    assert!(offers.iter().all(|offer| !site.core.is_overtaken(offer)));
    site.hear_of(again[0].0, lost(again[0].2));
    assert!(offers.iter().all(|offer| site.core.is_overtaken(offer)), "{offers:?}");
}

#[test]
fn a_program_begins_again_when_an_agent_holds_none_of_its_ranks() {
    let (mut site, _, offered) = half_deaf();
    site.hear_of(offered[0].0, lost(offered[0].2));
    assert_eq!(site.reconnect(offered[1].0, 2, &[]).len(), 2);
}

#[test]
fn a_program_waits_for_what_its_agent_still_names() {
    let (mut site, _, offered) = half_deaf();
    let (second, _, fence) = offered[1];
    site.hear_of(offered[0].0, lost(offered[0].2));
    let from = link(second, 2);
    let hello = AgentFrame::Hello {
        incarnation: Incarnation(1),
        boot: BootId::default(),
        facts: Box::new(Facts { cores: 1, places: 1, ..Facts::default() }),
        presence: presence(false, 1),
        held: vec![(fence, GuestState::Running)],
        seen: Fence::default(),
    };
    assert_eq!(site.handle(Event::Heard { from, frame: hello }), [], "it says that it runs");
    let frame = AgentFrame::Stopped { fence };
    assert_eq!(site.handle(Event::Heard { from, frame }).len(), 2);
}

/// It is the coordinator's clock that says so, and its agent's may be a little behind.
#[test]
fn what_is_unwanted_just_after_its_lease_is_waited_for_as_well() {
    let (mut site, _, offered) = half_deaf();
    assert_eq!(site.pass_heard(LEASE + THE_REST / 2), []);
    assert_eq!(site.hear_of(offered[0].0, lost(offered[0].2)), []);
    assert_eq!(site.pass_heard(THE_REST).len(), 2);
}

#[test]
fn a_program_begins_again_when_the_lease_of_its_ranks_has_ended() {
    let (mut site, _, offered) = half_deaf();
    site.hear_of(offered[0].0, lost(offered[0].2));
    assert_eq!(site.pass_heard(LEASE), []);
    assert_eq!(site.pass_heard(THE_REST).len(), 2);
}

/// Its order to stop waits for the disk, and its heartbeats are acknowledged.
#[test]
fn a_program_waits_for_a_lease_that_is_renewed_until_its_rank_has_stopped() {
    let (mut site, _, offered) = half_deaf();
    let (second, _, fence) = offered[1];
    site.hear_of(offered[0].0, lost(offered[0].2));
    for _ in 0..6 {
        assert_eq!(site.pass_heard(LEASE / 2), []);
        assert_eq!(site.heartbeat(second), []);
    }
    assert_eq!(site.hear(second, AgentFrame::Stopped { fence }).len(), 2);
}

fn lost(fence: Fence) -> AttemptEvent {
    AttemptEvent::Lost { fence, reason: "its keeper died".into(), suspensions: 0 }
}
