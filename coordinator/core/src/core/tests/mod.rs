//! Examples, one rule each. Whole labs are in `tests/simulation.rs`.

mod attempts;
mod blame;
mod choosing;
mod copies;
mod folding;
mod generations;
mod groups;
mod grow;
mod hostile;
mod moves;
mod negotiations;
mod packing;
mod ranks;
mod replicas;
mod schedule;
mod settling;
mod shares;
mod snapshots;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Outcome};
use gleaner_common::report::JobSummary;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, Blame, CoordinatorFrame, Facts, Finished, GuestState, Presence,
    Printed,
};

use super::{Config, Core};
use crate::event::{Event, Link, RequestId};
use crate::outlook::LearnedRecord;
use crate::record::{AttemptRecord, Change, JobProgress, ProgramEvent, Restored};
use crate::step::{Answer, Effect, Step};

const LEASE: Duration = Duration::from_secs(10);
/// One lease, the grace, and a little.
const PAST_LEASE: Duration = Duration::from_millis(10_251);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An offer, as it left.
type Offered = (u32, SubprogramId, Fence);

/// A core and the outside's side of the conversation.
struct Site {
    core: Core,
    now: Moment,
    requests: u64,
    last: Step,
    /// What a store would hold of programs.
    journal: Vec<ProgramEvent>,
    /// And of what was learned of owners.
    learned: BTreeMap<Option<WorkstationId>, LearnedRecord>,
    /// Workstations that hear nothing, and so do not say that anything has stopped.
    deaf: BTreeSet<WorkstationId>,
}

impl Site {
    fn new(config: Config) -> Self {
        let now = Moment(1_000_000_000_000);
        let core = Core::restore(now, WallTime(0), config, Restored::default());
        let (last, journal, learned) = (Step::default(), vec![], BTreeMap::new());
        Self { core, now, requests: 0, last, journal, learned, deaf: BTreeSet::new() }
    }

    /// With so many workstations connected, each with one core and place, all
    /// idle, the first longest.
    fn with_idle(workstations: u32) -> Self {
        let mut site = Self::new(Config::default());
        for id in 1..=workstations {
            site.enrol(id);
            site.connect(id, 1, 1);
            site.now = site.now + Duration::from_millis(1);
        }
        site
    }

    /// As if the epoch were 1970.
    fn wall(&self) -> WallTime {
        WallTime(i64::try_from(self.now.0).unwrap())
    }

    fn handle(&mut self, event: Event) -> Vec<Offered> {
        self.last = self.core.handle(self.now, self.wall(), event);
        self.obey();
        self.core.check_places().unwrap();
        self.keep_journal();
        self.offers()
    }

    /// Lets time pass, deadline by deadline; all that was offered meanwhile.
    fn pass(&mut self, span: Duration) -> Vec<Offered> {
        let until = self.now + span;
        let mut offered = vec![];
        while let Some(at) = self.core.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.last = self.core.wake(self.now, self.wall());
            self.obey();
            self.keep_journal();
            offered.extend(self.offers());
        }
        self.now = until;
        offered
    }

    /// Lets time pass in which every agent is heard that is not deaf.
    fn pass_heard(&mut self, span: Duration) -> Vec<Offered> {
        let until = self.now + span;
        let mut offered = vec![];
        while self.now < until {
            let all = self.core.pool.ids().filter(|id| !self.deaf.contains(id));
            for id in all.collect::<Vec<_>>() {
                offered.extend(self.heartbeat(id.0));
            }
            offered.extend(self.pass(until.since(self.now).min(s(3))));
        }
        offered
    }

    /// Agents that hear stop what is cancelled, and say so.
    fn obey(&mut self) {
        let mut seen = 0;
        while seen < self.last.effects.len() {
            let cancelled = self.last.effects[seen..].iter().filter_map(|effect| {
                let Effect::Send { to, frame: CoordinatorFrame::Cancel { fence } } = effect else {
                    return None;
                };
                Some((*to, *fence)).filter(|(to, _)| !self.deaf.contains(&to.workstation))
            });
            let cancelled: Vec<(Link, Fence)> = cancelled.collect();
            seen = self.last.effects.len();
            for (from, fence) in cancelled {
                self.stopped(from, fence);
            }
        }
    }

    /// An agent says so, and what follows belongs to the last step.
    fn stopped(&mut self, from: Link, fence: Fence) {
        let stopped = Event::Heard { from, frame: AgentFrame::Stopped { fence } };
        let step = self.core.handle(self.now, self.wall(), stopped);
        self.last.changes.extend(step.changes);
        self.last.effects.extend(step.effects);
    }

    fn keep_journal(&mut self) {
        for change in &self.last.changes {
            if let Change::Learned(row) = change {
                self.learned.insert(row.workstation, row.clone());
            }
            let Change::ProgramEvent { job, life, sequence, bytes } = change else { continue };
            if *sequence == 0 {
                self.journal.retain(|event| event.job != *job);
            }
            let event = ProgramEvent { job: *job, life: *life, bytes: bytes.clone() };
            self.journal.push(event);
        }
    }

    fn offers(&self) -> Vec<Offered> {
        let offers = self.sent().filter_map(|(to, frame)| {
            let CoordinatorFrame::Offer(offer) = frame else { return None };
            Some((to, offer.subprogram, offer.fence))
        });
        offers.collect()
    }

    /// What left with the last step.
    fn sent(&self) -> impl Iterator<Item = (u32, &CoordinatorFrame)> {
        self.last.effects.iter().filter_map(|effect| {
            let Effect::Send { to, frame } = effect else { return None };
            Some((to.workstation.0, frame))
        })
    }

    #[track_caller]
    fn check_sent(&self, to: u32, frame: &CoordinatorFrame) {
        let is_there = self.sent().any(|sent| sent == (to, frame));
        assert!(is_there, "{frame:?} was not sent: {:#?}", self.last.effects);
    }

    fn enrol(&mut self, id: u32) {
        let workstation = WorkstationId(id);
        self.handle(Event::Enrolled { workstation, name: format!("host{id}") });
    }

    fn connect(&mut self, id: u32, cores: u16, places: u16) -> Vec<Offered> {
        let facts = Facts { cores, places, speed: 100.0, ..Facts::default() };
        self.hello(link(id, 1), Incarnation(1), facts, presence(false, cores), vec![])
    }

    fn hello(
        &mut self,
        from: Link,
        incarnation: Incarnation,
        facts: Facts,
        presence: Presence,
        held: Vec<(Fence, GuestState)>,
    ) -> Vec<Offered> {
        let boot = BootId::default();
        let frame = AgentFrame::Hello {
            incarnation,
            boot,
            facts: Box::new(facts),
            presence,
            held: held.clone(),
            seen: Fence::default(),
        };
        self.handle(Event::Heard { from, frame });
        let kept = self.sent().find_map(|(_, frame)| {
            let CoordinatorFrame::Welcome { keep, .. } = frame else { return None };
            Some(keep.clone())
        });
        let kept = kept.unwrap_or_default();
        for (fence, _) in held.into_iter().filter(|(fence, _)| !kept.contains(fence)) {
            self.stopped(from, fence);
        }
        self.offers()
    }

    /// The same agent connects again.
    fn reconnect(&mut self, id: u32, serial: u64, held: &[Fence]) -> Vec<Offered> {
        let facts = Facts { cores: 1, places: 1, ..Facts::default() };
        let held = held.iter().map(|fence| (*fence, GuestState::Running)).collect();
        self.hello(link(id, serial), Incarnation(1), facts, presence(false, 1), held)
    }

    fn hear(&mut self, id: u32, frame: AgentFrame) -> Vec<Offered> {
        self.handle(Event::Heard { from: link(id, 1), frame })
    }

    fn hear_of(&mut self, id: u32, event: AttemptEvent) -> Vec<Offered> {
        self.hear(id, AgentFrame::Attempt(event))
    }

    fn started(&mut self, id: u32, fence: Fence) -> Vec<Offered> {
        self.hear_of(id, AttemptEvent::Started { fence, waited: Duration::ZERO })
    }

    fn heartbeat(&mut self, id: u32) -> Vec<Offered> {
        let load = LoadAverages::default();
        self.hear(id, AgentFrame::Heartbeat { sequence: 1, slots: 1, load })
    }

    fn retreated(&mut self, id: u32, fence: Fence) -> Vec<Offered> {
        let reason = "pts/3, 0.0 s ago".to_owned();
        self.hear_of(id, AttemptEvent::Retreated { fence, reason, suspensions: 1 })
    }

    fn refused(&mut self, id: u32, fence: Fence) -> Vec<Offered> {
        let reason = "no room".to_owned();
        self.hear_of(id, AttemptEvent::Refused { fence, reason, blame: Blame::Workstation })
    }

    fn finished(&mut self, id: u32, fence: Fence, outcome: Outcome) -> Vec<Offered> {
        self.hear_of(id, AttemptEvent::Finished(finished(fence, outcome, s(60))))
    }

    fn submit(&mut self, count: u32, retries: u32) -> (JobId, Vec<Offered>) {
        let indexes = IndexRange::count_of(count).unwrap();
        let mut spec = JobSpec::new(vec!["/bin/true".into()], indexes);
        spec.retries = retries;
        self.submit_spec(spec)
    }

    fn submit_spec(&mut self, spec: JobSpec) -> (JobId, Vec<Offered>) {
        self.requests += 1;
        let request = RequestId(self.requests);
        let offered =
            self.handle(Event::Submitted { request, user: "ann".into(), spec: Box::new(spec) });
        let answer = self.answer();
        let Some(Answer::Submitted(job)) = answer else { panic!("not accepted: {answer:?}") };
        (job, offered)
    }

    fn cancel(&mut self, job: JobId) -> Vec<Offered> {
        self.handle(Event::CancelAsked { request: RequestId(0), job })
    }

    fn answer(&self) -> Option<Answer> {
        self.last.effects.iter().find_map(|effect| {
            let Effect::Answer { answer, .. } = effect else { return None };
            Some(answer.clone())
        })
    }

    /// What the last step told of a job.
    #[track_caller]
    fn summary(&self) -> JobSummary {
        let told = self.last.effects.iter().find_map(|effect| {
            let Effect::Progress(summary) = effect else { return None };
            Some(*summary)
        });
        told.expect("no job moved")
    }

    /// What the last step keeps of a job.
    #[track_caller]
    fn progress(&self) -> JobProgress {
        let kept = self.last.changes.iter().find_map(|change| {
            let Change::Progress(progress) = change else { return None };
            Some(*progress)
        });
        kept.expect("no job's record changed")
    }

    /// Which results the last step accepted.
    fn accepted(&self) -> Vec<SubprogramId> {
        let results = self.last.changes.iter().filter_map(|change| {
            let Change::Result { subprogram, accepted: true, .. } = change else { return None };
            Some(*subprogram)
        });
        results.collect()
    }
}

fn link(id: u32, serial: u64) -> Link {
    Link { workstation: WorkstationId(id), serial }
}

fn presence(busy: bool, slots: u16) -> Presence {
    Presence {
        busy,
        reason: if busy { "pts/3, 2.0 s ago" } else { "no input for 5 min, load 0.01" }.into(),
        lasted: Duration::ZERO,
        slots,
        load: LoadAverages::default(),
        users: 1,
    }
}

fn finished(fence: Fence, outcome: Outcome, ran: Duration) -> Finished {
    Finished {
        fence,
        outcome,
        cpu: s(2),
        ran,
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::default(),
        stderr: Printed::default(),
        outputs: vec![],
    }
}

fn subprogram(job: JobId, index: u32) -> SubprogramId {
    SubprogramId { job, index }
}

/// The one offer of a step.
#[track_caller]
fn only(offered: &[Offered]) -> Offered {
    let [offer] = offered else { panic!("expected one offer: {offered:?}") };
    *offer
}
