//! Whose turn it is and how much they get, by the scheduler.

use gleaner_common::program::ProgramSpec;
use gleaner_common::report::SubprogramState;

use super::super::SchedulerConfig;
use super::*;

impl Site {
    /// As [`Site::with_idle`], under another policy.
    fn under(policy: &str, workstations: u32) -> Self {
        let scheduler = SchedulerConfig { policy: policy.into(), ..SchedulerConfig::default() };
        let mut site = Self::new(Config { scheduler, ..Config::default() });
        for id in 1..=workstations {
            site.enrol(id);
            site.connect(id, 1, 1);
            site.now = site.now + Duration::from_millis(1);
        }
        site
    }

    fn owner(&mut self, id: u32, is_here: bool) -> Vec<Offered> {
        self.hear(id, AgentFrame::Presence(presence(is_here, 1)))
    }

    fn succeed(&mut self, (at, _, fence): Offered) -> Vec<Offered> {
        self.now = self.now + s(1);
        self.finished(at, fence, Outcome::Succeeded)
    }
}

fn jobs_of(offered: &[Offered]) -> Vec<u32> {
    offered.iter().map(|offer| offer.1.job.0).collect()
}

#[test]
fn a_program_begins_on_all_the_places_it_needs_or_on_none() {
    let mut site = Site::with_idle(4);
    site.owner(4, true);
    let (_, offered) = site.submit_program(4, ProgramSpec::default());
    assert_eq!(offered, [], "three are free");
    let (bag, offered) = site.submit(3, 0);
    assert_eq!(jobs_of(&offered), [bag.0; 3], "nobody waits for what owners hold");
    assert_eq!(site.owner(4, false), []);
    for offer in &offered[..2] {
        assert_eq!(site.succeed(*offer), []);
    }
    assert_eq!(jobs_of(&site.succeed(offered[2])), [1; 4]);
}

#[test]
fn places_gather_for_a_program_that_comes_first_and_why_says_so() {
    let mut site = Site::with_idle(2);
    let (_, running) = site.submit(50, 0);
    let (program, offered) = site.submit_program(2, ProgramSpec::default());
    assert_eq!((running.len(), offered.len()), (2, 0));
    // The bag is older, and goes on until its user has submitted something urgent.
    let urgent =
        JobSpec { priority: 9, ..JobSpec::new(vec!["x".into()], IndexRange::count_of(2).unwrap()) };
    let urgent =
        JobSpec { program: Some(ProgramSpec { ranks_max: 2, ..ProgramSpec::default() }), ..urgent };
    let (urgent, _) = site.submit_spec(urgent);
    assert_eq!(site.succeed(running[0]), [], "its place is kept");
    let why = site.core.why_job(site.now, urgent).unwrap();
    assert!(why.contains(&"it needs 2 processors, and 1 are free".to_owned()), "{why:?}");
    assert_eq!(jobs_of(&site.succeed(running[1])), [urgent.0; 2]);
    assert!(site.core.job_row(program).is_some());
}

#[test]
fn what_is_larger_than_the_lab_is_refused_in_one_line_once_all_are_known() {
    let mut site = Site::with_idle(2);
    let mut program = JobSpec::new(vec!["x".into()], IndexRange::count_of(3).unwrap());
    program.program = Some(ProgramSpec { ranks_max: 3, ..ProgramSpec::default() });
    let submit = |site: &mut Site, spec: &JobSpec| {
        let spec = Box::new(spec.clone());
        site.handle(Event::Submitted { request: RequestId(9), user: "ann".into(), spec });
        site.answer()
    };
    let told = "not taken: it needs 3 processors, and there are 2 at most";
    assert_eq!(submit(&mut site, &program), Some(Answer::No(told.into())));
    site.enrol(3);
    assert!(matches!(submit(&mut site, &program), Some(Answer::Submitted(_))), "it may have room");
}

#[test]
fn under_first_come_first_served_nobody_overtakes_and_a_bag_keeps_its_place() {
    let mut site = Site::under("fcfs", 2);
    let (bag, offered) = site.submit(9, 0);
    assert_eq!(jobs_of(&offered), [bag.0], "a bag prefers one place");
    let (program, none) = site.submit_program(2, ProgramSpec::default());
    assert_eq!(
        (none.len(), site.submit(1, 0).1.len()),
        (0, 0),
        "one is free, and the first needs two"
    );
    let again = site.succeed(offered[0]);
    assert_eq!(jobs_of(&again), [bag.0]);
    let why = site.core.why_job(site.now, JobId(program.0 + 1)).unwrap();
    let behind = format!("job {program} comes first, and does not fit yet");
    assert!(why.contains(&behind), "{why:?}");
}

#[test]
fn a_bag_gives_places_as_its_subprograms_end() {
    let mut site = Site::under("pwa-egs", 2);
    let (bag, mut offered) = site.submit(9, 0);
    assert_eq!(jobs_of(&offered), [bag.0; 2], "it grows");
    let (other, none) = site.submit(1, 0);
    assert_eq!(none, [], "nothing that runs is stopped");
    let next = site.succeed(offered.remove(0));
    assert_eq!(jobs_of(&next), [other.0]);
    let next = site.succeed(only(&next));
    assert_eq!(jobs_of(&next), [bag.0], "and takes them back");
}

#[test]
fn a_bag_that_does_not_give_in_time_is_asked_for_its_newest_guests() {
    let mut site = Site::under("pwa-egs", 2);
    let (_, offered) = site.submit(9, 0);
    let (other, _) = site.submit(1, 0);
    let newest = *offered.iter().max_by_key(|offer| offer.2).unwrap();
    let give_back = CoordinatorFrame::GiveBack { fence: newest.2 };
    let mut asked = 0;
    for _ in 0..630 {
        (1..=2).for_each(|id| drop(site.heartbeat(id)));
        assert_eq!(site.pass(s(1)), [], "nothing is free before its agent says so");
        asked += site.sent().filter(|sent| *sent == (newest.0, &give_back)).count();
        site.last = Step::default();
    }
    assert_eq!(asked, 1, "after ten minutes");
    let next = site.retreated(newest.0, newest.2);
    assert_eq!(jobs_of(&next), [other.0], "its workstation need not rest");
    let row = site.core.subprogram_row(newest.1).unwrap();
    assert_eq!((row.state, row.failures), (SubprogramState::Queued, 0));
}

#[test]
fn an_owners_return_is_a_place_given_up_and_is_made_good_elsewhere() {
    let mut site = Site::under("pra-fpsma", 3);
    let (_, offered) = site.submit_program(2, ProgramSpec::default());
    let (bag, taken) = site.submit(9, 0);
    assert_eq!(jobs_of(&taken), [bag.0]);
    let (at, which, fence) = offered[1];
    // The rank never began: it begins elsewhere, before the bag goes on.
    site.refused(at, fence);
    let next = site.succeed(taken[0]);
    assert_eq!(only(&next).1, which);
}

#[test]
fn what_one_step_has_no_time_for_the_next_one_places() {
    let mut site = Site::new(Config::default());
    site.enrol(1);
    let jobs = 150;
    for _ in 0..jobs {
        site.submit(1, 0);
    }
    let mut offered = site.connect(1, jobs, jobs);
    assert!(offered.len() < jobs.into(), "not all of them in one step");
    offered.extend(site.pass(Duration::ZERO));
    assert_eq!(offered.len(), jobs.into());
}

#[test]
fn a_rigid_bag_runs_all_of_its_subprograms_at_once_and_a_limited_one_no_more() {
    use gleaner_common::shape::{Class, Shape};
    let mut site = Site::with_idle(4);
    let bag = |count| JobSpec::new(vec!["x".into()], IndexRange::count_of(count).unwrap());
    let two = Shape { max: Some(2), ..Shape::default() };
    let (limited, offered) = site.submit_spec(JobSpec { shape: two, ..bag(9) });
    assert_eq!(jobs_of(&offered), [limited.0; 2]);
    let rigid = Shape { class: Some(Class::Rigid), ..Shape::default() };
    let (three, none) = site.submit_spec(JobSpec { shape: rigid, priority: 1, ..bag(3) });
    assert_eq!(none, [], "two are free");
    let all = site.succeed(offered[0]);
    assert_eq!(jobs_of(&all), [three.0; 3], "places gather for what is more urgent");
    assert_eq!(jobs_of(&site.succeed(all[0])), [limited.0], "what is left of it has two");
}

#[test]
fn shares_come_first_under_every_policy() {
    for policy in ["fair", "fcfs", "easy", "pwa-egs", "ghafoor"] {
        let mut site = Site::under(policy, 1);
        let submit = |site: &mut Site, user: &str| {
            let spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(1).unwrap());
            let (request, spec) = (RequestId(7), Box::new(spec));
            site.handle(Event::Submitted { request, user: user.into(), spec })
        };
        let running = submit(&mut site, "bob");
        assert_eq!(submit(&mut site, "bob"), [], "{policy}");
        assert_eq!(submit(&mut site, "ada"), [], "{policy}");
        site.now = site.now + s(60);
        let next = site.succeed(only(&running));
        assert_eq!(jobs_of(&next), [3], "{policy}: she has used nothing");
    }
}
