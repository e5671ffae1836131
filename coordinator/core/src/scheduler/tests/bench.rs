//! A bench for schedulers: seconds, jobs that take as long as they say, and
//! answers that come at once.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use crate::scheduler::{
    Allowed, Class, Decision, Fact, Parameters, Request, Resources, Scheduler, Sizes, named,
};

pub(super) fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

pub(super) fn rigid(size: u32, takes_s: u64) -> Request {
    Request::rigid(size, Some(Duration::from_secs(takes_s))).expect("a request")
}

/// A malleable job that takes so long on its preferred size.
pub(super) fn malleable(three: [u32; 3], allowed: Allowed, takes_s: u64) -> Request {
    let sizes = Sizes::new(three, allowed).expect("sizes");
    Request::new(Class::Malleable, sizes, Some(Duration::from_secs(takes_s)))
}

pub(super) struct Bench {
    pub(super) scheduler: Scheduler,
    pub(super) now: Moment,
    pub(super) starts: BTreeMap<JobId, Moment>,
    pub(super) ends: BTreeMap<JobId, Moment>,
    pub(super) refused: Vec<JobId>,
    pub(super) told: Vec<Decision>,
    next: u32,
}

impl Bench {
    #[track_caller]
    pub(super) fn new(policy: &str, resources: Resources) -> Self {
        Self::with(policy, resources, &Parameters::default())
    }

    #[track_caller]
    pub(super) fn with(policy: &str, resources: Resources, parameters: &Parameters) -> Self {
        let policy = named(policy).expect("a policy");
        Self {
            scheduler: Scheduler::new(resources, (policy.build)(parameters)),
            now: Moment::ZERO,
            starts: BTreeMap::new(),
            ends: BTreeMap::new(),
            refused: vec![],
            told: vec![],
            next: 0,
        }
    }

    pub(super) fn tell(&mut self, fact: Fact) {
        self.scheduler.handle(self.now, fact);
        self.check();
    }

    /// Submits without a cycle.
    pub(super) fn submit(&mut self, request: Request) -> JobId {
        self.next += 1;
        let job = JobId(self.next);
        self.tell(Fact::Submitted { job, request: Box::new(request) });
        job
    }

    /// All stages of a cycle; jobs answer as their sizes let them. What was
    /// decided in all of them.
    #[track_caller]
    pub(super) fn cycle(&mut self) -> Vec<Decision> {
        self.cycle_with(Self::obedient)
    }

    #[track_caller]
    pub(super) fn cycle_with(
        &mut self,
        answer: impl Fn(&Self, &Decision) -> Option<Fact>,
    ) -> Vec<Decision> {
        let mut all = vec![];
        for _ in 0..1_000 {
            let decisions = self.scheduler.cycle(self.now);
            self.check();
            for decision in &decisions {
                match decision {
                    Decision::Start { job, .. } => {
                        self.starts.entry(*job).or_insert(self.now);
                    }
                    Decision::Refuse { job, .. } => self.refused.push(*job),
                    Decision::Grow { .. }
                    | Decision::Shrink { .. }
                    | Decision::Offer { .. }
                    | Decision::Reserve { .. } => {}
                }
            }
            let answers: Vec<Fact> =
                decisions.iter().filter_map(|decision| answer(self, decision)).collect();
            all.extend(decisions);
            if answers.is_empty() {
                self.told.extend(&all);
                return all;
            }
            for fact in answers {
                self.tell(fact);
            }
        }
        panic!("a cycle of more than 1,000 stages: {all:?}");
    }

    /// What a job answers that does what its sizes let it.
    pub(super) fn obedient(&self, decision: &Decision) -> Option<Fact> {
        let sizes = |job| {
            let it = self.scheduler.state().get(job).expect("it runs");
            (&it.request.sizes, it.size)
        };
        match *decision {
            Decision::Grow { job, by, .. } => {
                let (sizes, size) = sizes(job);
                Some(Fact::Answered { job, by: sizes.taken(size, by) })
            }
            Decision::Shrink { job, by, .. } => {
                let (sizes, size) = sizes(job);
                Some(Fact::Answered { job, by: sizes.given(size, by) })
            }
            Decision::Offer { job, up_to } => {
                let (sizes, size) = sizes(job);
                let more = sizes.taken(size, up_to);
                Some(Fact::Asked { job, more, is_answer: true })
            }
            Decision::Start { .. } | Decision::Reserve { .. } | Decision::Refuse { .. } => None,
        }
    }

    /// The jobs' sizes, by number.
    pub(super) fn sizes(&self) -> Vec<(u32, u32)> {
        let mut sizes: Vec<_> =
            self.scheduler.state().running().map(|(job, it)| (job.0, it.size)).collect();
        sizes.sort_unstable();
        sizes
    }

    /// When the first of those that run ends.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.scheduler.state().ends().map(|(end, _)| end).next()
    }

    /// Goes on to a moment and tells of all that have ended by then.
    pub(super) fn go_to(&mut self, now: Moment) {
        self.now = now;
        let state = self.scheduler.state();
        let ended = state.running().filter(|(_, it)| it.progress.end() <= now);
        let ended: Vec<JobId> = ended.map(|(job, _)| job).collect();
        for job in ended {
            self.ends.insert(job, now);
            self.tell(Fact::Ended { job });
        }
    }

    /// Until nobody runs.
    #[track_caller]
    pub(super) fn finish(&mut self) {
        self.cycle();
        for _ in 0..100_000 {
            let Some(end) = self.next_end() else { return };
            self.go_to(end);
            self.cycle();
        }
        panic!("jobs run for ever");
    }

    /// Processors are neither created nor lost, and bounds and sizes hold.
    #[track_caller]
    pub(super) fn check(&self) {
        let state = self.scheduler.state();
        let held: u32 = state.running().map(|(_, it)| it.size + it.offered).sum();
        assert_eq!(held, state.held());
        let asked: u32 = state.running().map(|(_, it)| it.asked).sum();
        assert_eq!(asked, state.releasing());
        let spare: u32 = state.running().map(|(_, it)| it.spare()).sum();
        assert_eq!(spare, state.spare());
        assert_eq!(state.ends().count(), state.running_count());
        for (job, it) in state.running() {
            let sizes = &it.request.sizes;
            assert!(sizes.contains(it.size), "{job} of {sizes:?} on {}", it.size);
            assert!(sizes.contains(it.size + it.offered), "{job} is offered {}", it.offered);
        }
    }
}
