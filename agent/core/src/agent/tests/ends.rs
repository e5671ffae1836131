//! How guests end, and what becomes of their files.

use super::*;

#[test]
fn a_cancelled_guest_dies_wherever_it_is_and_all_that_is_said_is_that_it_has() {
    let mut agent = agent(1);
    let cancel = |fence| frame(CoordinatorFrame::Cancel { fence: Fence::of(fence) });
    for fence in [1, 2] {
        let _ = agent.handle(at(0), offer(fence, 1));
    }
    assert_eq!(said(&agent.handle(at(1), cancel(2))), ["#2 stopped"]);
    assert_eq!(said(&agent.handle(at(1), cancel(1))), ["kill #1", "#1 stopped"]);
    assert_eq!(said(&agent.handle(at(1), cancel(9))), ["#9 stopped"], "it never was");
    assert_eq!(succeeds(&mut agent, at(1), 1), Vec::<String>::new());
    let _ = agent.handle(at(1), offer(3, 1));
    let exit = Exit { left: None, ..exit(Outcome::Succeeded) };
    let _ = exits(&mut agent, at(2), 3, exit);
    assert_eq!(said(&agent.handle(at(2), cancel(3))), ["#3 stopped", "abandon #3"]);
    assert_eq!(agent.status(at(2)).ends_waiting, 0);
}

#[test]
fn a_result_that_is_still_staged_leaves_its_place_and_survives_the_owner() {
    let mut agent = running(1);
    let _ = agent.handle(at(1), offer(2, 1));
    let exit = Exit { left: None, ..exit(Outcome::ExitCode(3)) };
    let effects = exits(&mut agent, at(1), 1, exit);
    assert_eq!(said(&effects), ["start #2"]);
    let _ = agent.handle(at(2), typed());
    assert!(agent.knows(Fence::of(1)));
    let left = Left { stdout: Printed::Inline(b"out".to_vec()), ..Left::default() };
    let effects = agent.handle(at(3), Event::Collected { fence: Fence::of(1), left });
    let [Effect::Send(AgentFrame::Attempt(AttemptEvent::Finished(finished))), ..] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(finished.outcome, Outcome::ExitCode(3));
    assert_eq!(finished.stdout, Printed::Inline(b"out".to_vec()));
}

/// What was brought was thrown away with the wish to leave, and awaited for ever.
#[test]
fn an_owner_who_comes_while_it_is_found_out_how_a_guest_ended_loses_no_result() {
    let mut agent = running(4);
    let (fence, place) = (Fence::of(1), place_of(&agent, 1));
    let _ = agent.handle(at(1), Event::Keeper(place, KeeperEvent::Ended { last: false }));
    let _ = agent.handle(at(1), Event::Collected { fence, left: Left::default() });
    assert!(said(&agent.handle(at(2), typed())).contains(&"#1 wants away: State".to_owned()));
    let exit = Box::new(Exit { left: None, ..exit(Outcome::Succeeded) });
    let effects = agent.handle(at(2), guest(1, guest::Event::Exited { exit, stays: false }));
    let finished = |it: &Effect| matches!(it, Effect::Send(AgentFrame::Attempt(AttemptEvent::Finished(it))) if it.fence == fence);
    assert!(effects.iter().any(finished), "{effects:?}");
}

#[test]
fn input_files_are_fetched_once_and_hold_up_nobody_else() {
    let mut agent = agent(1);
    let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
    let hash = gleaner_common::id::ContentHash([0; 32]);
    let (path, size_bytes, executable) = ("data".into(), 9, false);
    spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
    let _ = agent.handle(at(0), described(4, spec));
    assert_eq!(said(&agent.handle(at(0), offer(1, 4))), ["stage 4"]);
    assert_eq!(said(&agent.handle(at(0), offer(2, 4))), Vec::<String>::new());
    assert_eq!(said(&agent.handle(at(0), offer(3, 1))), ["start #3"]);
    let _ = agent.handle(at(1), Event::Staged(JobId(4)));
    assert_eq!(succeeds(&mut agent, at(1), 3), ["lay files of #1", "#3 succeeded"]);
    let laid = guest(1, guest::Event::Laid(Ok(())));
    assert_eq!(said(&agent.handle(at(1), laid)), ["start #1"]);
    let forget = frame(CoordinatorFrame::Forget { job: JobId(4) });
    assert_eq!(said(&agent.handle(at(1), forget)), Vec::<String>::new(), "#2 waits");
    assert_eq!(succeeds(&mut agent, at(2), 1), ["lay files of #2", "#1 succeeded", "discard 4"]);
}

#[test]
fn files_that_cannot_be_had_end_what_waits_for_them() {
    for (hopeless, end) in
        [(true, "#1 cannot start: no such blob"), (false, "#1 refused: no such blob")]
    {
        let mut agent = agent(1);
        let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
        let hash = gleaner_common::id::ContentHash([0; 32]);
        let (path, size_bytes, executable) = ("data".into(), 9, false);
        spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
        let _ = agent.handle(at(0), described(4, spec));
        let _ = agent.handle(at(0), offer(1, 4));
        let failed =
            Event::StagingFailed { job: JobId(4), reason: "no such blob".into(), hopeless };
        assert_eq!(said(&agent.handle(at(0), failed)), [end]);
        assert_eq!(said(&agent.handle(at(0), offer(2, 4))), ["stage 4"], "tried again");
    }
}

#[test]
fn a_guest_that_cannot_start_gives_its_place_back() {
    let mut agent = agent(1);
    let _ = agent.handle(at(0), offer(1, 1));
    let _ = agent.handle(at(0), offer(2, 1));
    let (fence, why) = (Fence::of(1), "no such program".to_owned());
    let failed = KeeperEvent::CannotStart { fence, why, hopeless: true };
    let effects = agent.handle(at(0), Event::Keeper(PlaceId(0), failed));
    assert_eq!(said(&effects), ["start #2", "#1 cannot start: no such program"]);
}

#[test]
fn limits_and_the_timeout_name_themselves() {
    let mut agent = running(1);
    let over = guest(1, guest::Event::OverLimit("memory 512 MiB".into()));
    assert_eq!(said(&agent.handle(at(1), over)), ["kill #1"]);
    let effects = exits(&mut agent, at(1), 1, exit(Outcome::Signal(9)));
    assert_eq!(said(&effects), ["#1 over its limit: memory 512 MiB"]);
}
