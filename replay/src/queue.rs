//! Jobs of many users over a lab, by the coordinator's own core: whose turn it
//! is, and how long everybody waits.
//!
//! ```text
//! jobs, owners ─► heap of moments ─► Core::handle ─► offers ─► guests that run, stand still, retreat
//!                        ▲                                        │
//!                        └────────────── ends, patience ──────────┘
//! ```
//!
//! Each workstation has one place, and a guest does what the default reaction
//! says: it stands still while its owner is there and retreats after ten
//! minutes. The network never fails, and starting costs nothing. The promise:
//! no rule of turns is written here; the core that is live decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, JobId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Outcome, Patience};
use gleaner_common::shape::{Class, Shape};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::units;
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, Presence, Printed,
};
use gleaner_coordinator_core::{
    Answer, Config, Core, Effect, Event, Link, RequestId, Restored, Step,
};
use serde::{Deserialize, Serialize};

use crate::lab::{Lab, nanos};

/// A job that somebody submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedJob {
    pub user: String,
    /// After the period began.
    #[serde(with = "units::duration")]
    pub at: Duration,
    pub subprograms: u32,
    /// How long each of them computes.
    #[serde(with = "units::duration")]
    pub each: Duration,
    /// Among its user's jobs.
    #[serde(default)]
    pub priority: i8,
    /// Who decides on how many places it runs, and when.
    #[serde(default)]
    pub class: Option<Class>,
    /// The fewest and the most places it runs on.
    #[serde(default)]
    pub min: Option<u32>,
    #[serde(default)]
    pub max: Option<u32>,
}

impl QueuedJob {
    /// Its submitter knows how long it takes on its fewest places.
    fn shape(&self) -> Shape {
        let places = self.min.unwrap_or(1).max(1);
        let estimate = Some(self.each.saturating_mul(self.subprograms.div_ceil(places)));
        Shape { class: self.class, min: self.min, max: self.max, estimate, ..Shape::default() }
    }
}

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRun {
    /// Why it was not accepted.
    pub refused: Option<String>,
    /// When the first of its subprograms started, after its submission.
    pub waited: Option<Duration>,
    /// When the last one ended, after its submission.
    pub turnaround: Option<Duration>,
    pub succeeded: u32,
    /// Of all its attempts, also of those whose work was lost.
    pub used: Duration,
}

/// Runs the jobs until they are done or the lab's period is over; their runs in
/// the same order.
pub fn run_queue(lab: &Lab, jobs: &[QueuedJob], config: Config) -> Vec<JobRun> {
    let mut queue = QueueRun::new(lab, jobs, config);
    while let Some(now) = queue.next_moment().filter(|at| *at < lab.end) {
        queue.now = now;
        queue.turn();
    }
    queue.runs
}

/// What happens at a moment; of one moment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Transition(usize),
    Done(Fence, u32),
    OutOfPatience(Fence, u32),
    Submission(usize),
}

/// A guest at a workstation.
#[derive(Debug)]
struct Guest {
    job: usize,
    workstation: usize,
    /// What is left to compute.
    left: u64,
    /// Since when it runs; `None` while it waits or stands still.
    since: Option<u64>,
    /// Counts what was planned for it: what an older plan says is void.
    plan: u32,
    suspensions: u32,
    ran: u64,
}

#[derive(Debug, Default)]
struct Place {
    idle: bool,
    running: Option<Fence>,
    /// Sent ahead, in order.
    ahead: VecDeque<Fence>,
}

struct QueueRun<'a> {
    lab: &'a Lab,
    jobs: &'a [QueuedJob],
    core: Core,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, Happening)>>,
    places: Vec<Place>,
    guests: BTreeMap<Fence, Guest>,
    numbers: BTreeMap<JobId, usize>,
    runs: Vec<JobRun>,
    unfinished: usize,
}

impl<'a> QueueRun<'a> {
    fn new(lab: &'a Lab, jobs: &'a [QueuedJob], config: Config) -> Self {
        // Nobody is ever lost: no heartbeat is needed.
        let lease = Duration::from_nanos(lab.end.saturating_mul(2));
        let config = Config { lease, ..config };
        let core = Core::restore(Moment::ZERO, lab.start, config, Restored::default());
        let submissions = jobs.iter().enumerate();
        let mut heap: BinaryHeap<_> = submissions
            .map(|(job, spec)| Reverse((nanos(spec.at), Happening::Submission(job))))
            .collect();
        heap.extend(
            lab.transitions
                .iter()
                .enumerate()
                .map(|(index, one)| Reverse((one.at, Happening::Transition(index)))),
        );
        let mut queue = Self {
            lab,
            jobs,
            core,
            now: 0,
            heap,
            places: vec![],
            guests: BTreeMap::new(),
            numbers: BTreeMap::new(),
            runs: vec![JobRun::default(); jobs.len()],
            unfinished: jobs.len(),
        };
        queue.connect_all();
        queue
    }

    fn connect_all(&mut self) {
        let facts = Facts { cores: 1, places: 1, memory_bytes: u64::MAX, ..Facts::default() };
        for (place, start) in self.lab.starts.iter().enumerate() {
            self.places.push(Place { idle: start.idle, ..Place::default() });
            let workstation = link(place).workstation;
            let name = format!("ws{place}");
            self.tell(Event::Enrolled { workstation, name });
            let hello = AgentFrame::Hello {
                incarnation: Incarnation(1),
                boot: BootId::default(),
                facts: Box::new(Facts { speed: start.speed, ..facts.clone() }),
                presence: presence(!start.idle, Duration::from_nanos(start.since), start.load_1m),
                held: vec![],
                seen: gleaner_common::id::Fence::default(),
            };
            self.hear(place, hello);
        }
    }

    /// When something happens next; `None` when all jobs are done.
    fn next_moment(&self) -> Option<u64> {
        if self.unfinished == 0 {
            return None;
        }
        let planned = self.heap.peek().map(|Reverse((at, _))| *at);
        let due = self.core.deadline().map(|due| due.0.max(self.now));
        planned.into_iter().chain(due).min()
    }

    fn turn(&mut self) {
        while let Some(Reverse((_, next))) = self.heap.peek().filter(|next| next.0.0 <= self.now) {
            let next = *next;
            self.heap.pop();
            self.happens(next);
        }
        if self.core.deadline().is_some_and(|due| due.0 <= self.now) {
            let step = self.core.wake(self.moment(), self.wall());
            self.take(step);
        }
    }

    fn happens(&mut self, next: Happening) {
        match next {
            Happening::Transition(index) => self.transition(index),
            Happening::Submission(job) => self.submit(job),
            Happening::Done(fence, plan) if self.is_planned(fence, plan) => self.finish(fence),
            Happening::OutOfPatience(fence, plan) if self.is_planned(fence, plan) => {
                self.retreat(fence);
            }
            Happening::Done(..) | Happening::OutOfPatience(..) => {}
        }
    }

    fn is_planned(&self, fence: Fence, plan: u32) -> bool {
        self.guests.get(&fence).is_some_and(|guest| guest.plan == plan)
    }

    fn submit(&mut self, job: usize) {
        let QueuedJob { user, subprograms, priority, .. } = &self.jobs[job];
        let Some(indexes) = IndexRange::count_of(*subprograms) else {
            return self.ended(job);
        };
        let spec = JobSpec::new(vec![format!("job{job}")], indexes);
        let spec = JobSpec { priority: *priority, shape: self.jobs[job].shape(), ..spec };
        let request = RequestId(job as u64);
        self.tell(Event::Submitted { request, user: user.clone(), spec: Box::new(spec) });
    }

    fn transition(&mut self, index: usize) {
        let one = self.lab.transitions[index];
        let place = one.workstation as usize;
        self.places[place].idle = !one.busy;
        if one.busy {
            self.stand_still(place);
            self.hear(place, AgentFrame::Presence(presence(true, Duration::ZERO, one.load_1m)));
            for fence in std::mem::take(&mut self.places[place].ahead) {
                self.retreat(fence);
            }
        } else {
            self.go_on(place);
            self.hear(place, AgentFrame::Presence(presence(false, Duration::ZERO, one.load_1m)));
        }
    }

    fn stand_still(&mut self, place: usize) {
        let Some(fence) = self.places[place].running else { return };
        let Some(guest) = self.guests.get_mut(&fence) else { return };
        guest.stop(self.now);
        guest.suspensions += 1;
        if let Patience::For(span) = OnBusy::default().patience {
            let out = Happening::OutOfPatience(fence, guest.plan);
            self.heap.push(Reverse((self.now + nanos(span), out)));
        }
        self.hear(place, AgentFrame::Attempt(AttemptEvent::Suspended { fence }));
    }

    fn go_on(&mut self, place: usize) {
        match self.places[place].running {
            Some(fence) => {
                self.run(fence);
                self.hear(place, AgentFrame::Attempt(AttemptEvent::Resumed { fence }));
            }
            None => self.start_next(place),
        }
    }

    fn start_next(&mut self, place: usize) {
        let at = &mut self.places[place];
        if !at.idle || at.running.is_some() {
            return;
        }
        let Some(fence) = at.ahead.pop_front() else { return };
        at.running = Some(fence);
        let job = self.guests[&fence].job;
        let waited = Duration::from_nanos(self.now).saturating_sub(self.jobs[job].at);
        self.runs[job].waited.get_or_insert(waited);
        self.run(fence);
        let waited = Duration::ZERO;
        self.hear(place, AgentFrame::Attempt(AttemptEvent::Started { fence, waited }));
    }

    /// The guest computes from now on.
    fn run(&mut self, fence: Fence) {
        let Some(guest) = self.guests.get_mut(&fence) else { return };
        guest.since = Some(self.now);
        guest.plan += 1;
        let done = Happening::Done(fence, guest.plan);
        self.heap.push(Reverse((self.now + guest.left, done)));
    }

    fn finish(&mut self, fence: Fence) {
        let Some(guest) = self.leave(fence) else { return };
        self.runs[guest.job].succeeded += 1;
        if self.runs[guest.job].succeeded == self.jobs[guest.job].subprograms {
            self.ended(guest.job);
        }
        let ran = Duration::from_nanos(guest.ran);
        let finished = Finished {
            fence,
            outcome: Outcome::Succeeded,
            cpu: ran,
            ran,
            suspended: Duration::ZERO,
            suspensions: guest.suspensions,
            stdout: Printed::default(),
            stderr: Printed::default(),
            outputs: vec![],
        };
        self.start_next(guest.workstation);
        self.hear(guest.workstation, AgentFrame::Attempt(AttemptEvent::Finished(finished)));
    }

    fn retreat(&mut self, fence: Fence) {
        let Some(guest) = self.leave(fence) else { return };
        let reason = "its owner".to_owned();
        let suspensions = guest.suspensions;
        let retreated = AttemptEvent::Retreated { fence, reason, suspensions };
        self.hear(guest.workstation, AgentFrame::Attempt(retreated));
    }

    /// The guest has left its workstation.
    fn leave(&mut self, fence: Fence) -> Option<Guest> {
        let mut guest = self.guests.remove(&fence)?;
        guest.stop(self.now);
        self.runs[guest.job].used += Duration::from_nanos(guest.ran);
        let place = &mut self.places[guest.workstation];
        place.running = place.running.filter(|running| *running != fence);
        Some(guest)
    }

    fn ended(&mut self, job: usize) {
        let turnaround = Duration::from_nanos(self.now).saturating_sub(self.jobs[job].at);
        self.runs[job].turnaround = Some(turnaround);
        self.unfinished -= 1;
    }

    fn hear(&mut self, place: usize, frame: AgentFrame) {
        self.tell(Event::Heard { from: link(place), frame });
    }

    fn tell(&mut self, event: Event) {
        let step = self.core.handle(self.moment(), self.wall(), event);
        self.take(step);
    }

    fn take(&mut self, step: Step) {
        for effect in &step.effects {
            if let Effect::Answer { request, answer } = effect {
                let job = usize::try_from(request.0).unwrap_or(usize::MAX);
                match answer {
                    Answer::Submitted(id) => _ = self.numbers.insert(*id, job),
                    Answer::No(why) => {
                        self.runs[job].refused = Some(why.clone());
                        self.unfinished -= 1;
                    }
                    Answer::Cancelled(_) => {}
                }
            }
        }
        for effect in step.effects {
            let Effect::Send { to, frame: CoordinatorFrame::Offer(offer) } = effect else {
                continue;
            };
            let Some(&job) = self.numbers.get(&offer.subprogram.job) else { continue };
            let workstation = to.workstation.0 as usize;
            let left = nanos(self.jobs[job].each);
            let guest =
                Guest { job, workstation, left, since: None, plan: 0, suspensions: 0, ran: 0 };
            self.guests.insert(offer.fence, guest);
            self.places[workstation].ahead.push_back(offer.fence);
            self.start_next(workstation);
        }
    }

    fn moment(&self) -> Moment {
        Moment(self.now)
    }

    fn wall(&self) -> WallTime {
        WallTime(self.lab.start.0.saturating_add_unsigned(self.now))
    }
}

impl Guest {
    fn stop(&mut self, now: u64) {
        let Some(since) = self.since.take() else { return };
        self.ran += now - since;
        self.left = self.left.saturating_sub(now - since);
        self.plan += 1;
    }
}

fn link(place: usize) -> Link {
    let number = u32::try_from(place).unwrap_or(u32::MAX);
    Link { workstation: WorkstationId(number), serial: 1 }
}

fn presence(busy: bool, lasted: Duration, load_1m: f32) -> Presence {
    let load = LoadAverages { one: load_1m, ..LoadAverages::default() };
    Presence { busy, reason: String::new(), lasted, slots: u16::from(!busy), load, users: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Owner;
    use gleaner_coordinator_core::SchedulerConfig;
    use gleaner_coordinator_core::shares::ShareConfig;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(86_400);

    fn job(user: &str, at: Duration, subprograms: u32, each: Duration) -> QueuedJob {
        let (priority, class, min, max) = (0, None, None, None);
        QueuedJob { user: user.to_owned(), at, subprograms, each, priority, class, min, max }
    }

    fn run(lab: &Lab, jobs: &[QueuedJob]) -> Vec<JobRun> {
        run_queue(lab, jobs, Config::default())
    }

    #[test]
    fn two_million_subprograms_delay_anothers_one_by_one_slots_turn() {
        let lab = Lab::always_idle(3, DAY);
        let later = 10 * MINUTE + Duration::from_secs(7);
        let jobs = [job("bob", Duration::ZERO, 2_000_000, MINUTE), job("ada", later, 1, MINUTE)];
        let runs = run(&lab, &jobs);
        assert!(runs[0].waited == Some(Duration::ZERO) && runs[0].turnaround.is_none());
        let waited = runs[1].waited.unwrap();
        assert!(waited <= MINUTE, "{waited:?}");
        assert_eq!(runs[1].turnaround, Some(waited + MINUTE));
    }

    #[test]
    fn who_used_more_yesterday_waits_longer_today() {
        let lab = Lab::always_idle(1, DAY);
        let jobs = [
            job("bob", Duration::ZERO, 60, MINUTE),
            job("ada", 120 * MINUTE, 10, MINUTE),
            job("bob", 120 * MINUTE, 10, MINUTE),
        ];
        let runs = run(&lab, &jobs);
        assert_eq!(runs[0].turnaround, Some(60 * MINUTE));
        assert_eq!(runs[1].turnaround, Some(10 * MINUTE), "she had used nothing");
        assert_eq!(runs[2].turnaround, Some(20 * MINUTE));
    }

    #[test]
    fn a_job_that_fits_before_a_promised_start_overtakes_under_easy_and_not_under_fcfs() {
        let lab = Lab::always_idle(4, DAY);
        let rigid = |at: u64, places, each: u32| QueuedJob {
            class: Some(Class::Rigid),
            ..job("bob", Duration::from_secs(at), places, each * MINUTE)
        };
        let jobs = [rigid(0, 3, 10), rigid(1, 4, 10), rigid(2, 1, 5)];
        let waited = |policy: &str| {
            let scheduler = SchedulerConfig { policy: policy.into(), ..SchedulerConfig::default() };
            let runs = run_queue(&lab, &jobs, Config { scheduler, ..Config::default() });
            runs.iter().map(|run| run.waited.unwrap().as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(waited("easy"), [0, 599, 0]);
        assert_eq!(waited("fcfs"), [0, 599, 1_198]);
    }

    #[test]
    fn an_owner_makes_guests_wait_and_after_ten_minutes_retreat() {
        let owner = |minutes: [u64; 2]| Owner {
            idle: true,
            changes: minutes.map(|minute| Duration::from_secs(60 * minute)).to_vec(),
            ..Owner::default()
        };
        let short = Lab::of_owners(&[owner([1, 3])], DAY);
        let run_of = |lab: &Lab| run(lab, &[job("ada", Duration::ZERO, 1, 5 * MINUTE)]).remove(0);
        assert_eq!(run_of(&short).turnaround, Some(7 * MINUTE));
        let long = Lab::of_owners(&[owner([1, 31])], DAY);
        let run = run_of(&long);
        assert_eq!(run.turnaround, Some(36 * MINUTE), "from the start again");
        assert_eq!(run.used, 6 * MINUTE, "a minute was lost");
    }

    #[test]
    fn what_the_site_does_not_accept_is_told_with_its_reason() {
        let lab = Lab::always_idle(1, DAY);
        let shares = ShareConfig { queued_max: 5, ..ShareConfig::default() };
        let jobs = [job("bob", Duration::ZERO, 6, MINUTE)];
        let runs = run_queue(&lab, &jobs, Config { shares, ..Config::default() });
        assert!(runs[0].refused.is_some(), "{runs:?}");
    }
}
