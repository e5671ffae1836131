//! The live core and replay, driven by the same events, decide the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, JobId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Outcome};
use gleaner_common::shape::{Class, Shape};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, Presence, Printed,
};
use gleaner_coordinator_core::scheduler::{ALL, Parameters, Request, Resources, named};
use gleaner_coordinator_core::{
    Config, Core, Effect, Event, Link, RequestId, Restored, SchedulerConfig, Step,
};
use gleaner_replay::workload::{ChangeCosts, WorkloadJob, run_workload};
use proptest::prelude::*;

const PLACES: u32 = 12;

fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

/// When each job started and ended.
type Course = BTreeMap<JobId, (Moment, Moment)>;

fn in_replay(policy: &str, jobs: &[WorkloadJob]) -> Course {
    let policy = (named(policy).unwrap().build)(&Parameters::default());
    let mut course = Course::new();
    let (all, costs) = (Resources::steady(PLACES), ChangeCosts::default());
    run_workload(jobs.iter().cloned(), all, policy, costs, |outcome| {
        course.insert(outcome.job, (outcome.started, outcome.ended));
    });
    course
}

/// A core with workstations of one place each, whose guests take as long as
/// their job does.
struct Live<'a> {
    core: Core,
    jobs: &'a [WorkloadJob],
    now: Moment,
    ends: BTreeSet<(Moment, JobId, Fence, WorkstationId)>,
    course: Course,
}

fn live(policy: &str, jobs: &[WorkloadJob]) -> Course {
    let scheduler = SchedulerConfig { policy: policy.to_owned(), ..SchedulerConfig::default() };
    let config = Config { scheduler, lease: Duration::from_secs(1 << 30), ..Config::default() };
    let core = Core::restore(Moment::ZERO, WallTime(0), config, Restored::default());
    let (ends, course) = (BTreeSet::new(), Course::new());
    let mut live = Live { core, jobs, now: Moment::ZERO, ends, course };
    (1..=PLACES).for_each(|id| live.connect(WorkstationId(id)));
    let mut coming = jobs.iter().peekable();
    loop {
        let next = coming.peek().map(|job| job.submitted);
        let end = live.ends.first().map(|(at, ..)| *at);
        let Some(now) = next.into_iter().chain(end).min() else { return live.course };
        live.now = now;
        let mut events = live.finished();
        while let Some(job) = coming.next_if(|job| job.submitted <= now) {
            events.push(submitted(job));
        }
        live.handle(events);
    }
}

fn submitted(job: &WorkloadJob) -> Event {
    let indexes = IndexRange::count_of(job.request.sizes.max()).unwrap();
    let mut spec = JobSpec::new(vec!["x".into()], indexes);
    let (class, estimate) = (Some(Class::Rigid), job.request.estimate);
    spec.shape = Shape { class, estimate, ..Shape::default() };
    spec.priority = job.request.priority;
    let request = RequestId(job.number.0.into());
    Event::Submitted { request, user: "ann".into(), spec: Box::new(spec) }
}

impl Live<'_> {
    fn connect(&mut self, workstation: WorkstationId) {
        let load = LoadAverages::default();
        let lasted = Duration::ZERO;
        let presence =
            Presence { busy: false, reason: String::new(), lasted, slots: 1, load, users: 0 };
        let frame = AgentFrame::Hello {
            incarnation: Incarnation(1),
            boot: BootId::default(),
            facts: Box::new(Facts { cores: 1, places: 1, ..Facts::default() }),
            presence,
            held: vec![],
            seen: gleaner_common::id::Fence::default(),
        };
        let from = Link { workstation, serial: 1 };
        let enrolled = Event::Enrolled { workstation, name: workstation.to_string() };
        self.handle(vec![enrolled, Event::Heard { from, frame }]);
    }

    fn finished(&mut self) -> Vec<Event> {
        let later = self.ends.split_off(&(
            self.now + Duration::from_nanos(1),
            JobId(0),
            Fence::of(0),
            WorkstationId(0),
        ));
        let ended = std::mem::replace(&mut self.ends, later);
        let event = |(at, job, fence, workstation)| {
            self.course.get_mut(&job).unwrap().1 = at;
            let finished = Finished {
                fence,
                outcome: Outcome::Succeeded,
                cpu: Duration::ZERO,
                ran: self.jobs[job.0 as usize - 1].takes,
                suspended: Duration::ZERO,
                suspensions: 0,
                stdout: Printed::default(),
                stderr: Printed::default(),
                outputs: vec![],
            };
            let frame = AgentFrame::Attempt(AttemptEvent::Finished(finished));
            Event::Heard { from: Link { workstation, serial: 1 }, frame }
        };
        ended.into_iter().map(event).collect()
    }

    fn handle(&mut self, events: Vec<Event>) {
        let wall = WallTime(i64::try_from(self.now.0).unwrap());
        let step = self.core.handle_all(self.now, wall, events);
        self.take(step);
        while self.core.deadline().is_some_and(|due| due <= self.now) {
            let step = self.core.wake(self.now, wall);
            self.take(step);
        }
        self.core.check_places().unwrap();
    }

    fn take(&mut self, step: Step) {
        for effect in step.effects {
            let Effect::Send { to, frame: CoordinatorFrame::Offer(offer) } = effect else {
                continue;
            };
            let job = offer.subprogram.job;
            let end = self.now + self.jobs[job.0 as usize - 1].takes;
            self.ends.insert((end, job, offer.fence, to.workstation));
            self.course.entry(job).or_insert((self.now, Moment::MAX));
        }
    }
}

fn any_job() -> impl Strategy<Value = WorkloadJob> {
    (0..120_u64, 1..40_u64, 1..4_u64, 1..=PLACES, -1..=1_i8).prop_map(
        |(submitted, takes, doubt, size, priority)| {
            let estimate = Some(Duration::from_secs(takes * doubt));
            let request = Request { priority, ..Request::rigid(size, estimate).unwrap() };
            let (number, takes) = (JobId(0), Duration::from_secs(takes));
            WorkloadJob { number, submitted: at(submitted), takes, request }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_live_core_and_replay_decide_the_same(
        mut jobs in prop::collection::vec(any_job(), 1..30)
    ) {
        jobs.sort_by_key(|job| job.submitted);
        for (job, number) in jobs.iter_mut().zip(1..) {
            job.number = JobId(number);
        }
        for policy in ALL {
            let (ours, theirs) = (live(policy.name, &jobs), in_replay(policy.name, &jobs));
            prop_assert_eq!(ours, theirs, "{}", policy.name);
        }
    }
}
