//! A real scheduler, one job that it negotiates with, and everything that can go
//! wrong between them.

use gleaner_common::id::JobId;
use proptest::prelude::*;

use super::*;
use crate::scheduler::{
    Allowed, Class, Decision, Fact, Parameters, Request as JobRequest, Resources, Scheduler, Sizes,
    named,
};

const ID: JobId = JobId(1);
const ALL: u32 = 16;

struct Site {
    scheduler: Scheduler,
    desk: Desk,
    /// Jobs that wait for room or have it.
    others: u32,
    /// The ranks of the job that have not ended, as they are.
    size: u32,
    to_job: Vec<Said>,
    to_coordinator: Vec<Said>,
}

/// What happens next.
#[derive(Clone, Debug)]
enum Next {
    Rigid(u32),
    OtherEnds,
    Owners(u32),
    Requests(u32),
    Spawns(u32),
    Arrives(bool, bool),
    JobDecides(u8, u32),
    RankEnds,
    Passes(u64),
}

fn next() -> impl Strategy<Value = Next> {
    prop_oneof![
        (1..9_u32).prop_map(Next::Rigid),
        Just(Next::OtherEnds),
        (0..6_u32).prop_map(Next::Owners),
        (1..9_u32).prop_map(Next::Requests),
        (1..9_u32).prop_map(Next::Spawns),
        (any::<bool>(), any::<bool>()).prop_map(|(to_job, lost)| Next::Arrives(to_job, lost)),
        (0..5_u8, 1..9_u32).prop_map(|(choice, by)| Next::JobDecides(choice, by)),
        Just(Next::RankEnds),
        (1..40_u64).prop_map(Next::Passes),
    ]
}

impl Site {
    fn new(policy: &str, class: Class) -> Self {
        let policy = named(policy).unwrap();
        let policy = (policy.build)(&Parameters::default());
        let mut scheduler = Scheduler::new(Resources::steady(ALL), policy);
        let sizes = Sizes::new([1, 4, ALL], Allowed::Any).unwrap();
        let request = Box::new(JobRequest::new(class, sizes, None));
        scheduler.handle(Moment(1), Fact::Submitted { job: ID, request });
        let decided = scheduler.cycle(Moment(1));
        let size = scheduler.state().get(ID).unwrap_or_else(|| panic!("{decided:?}")).size;
        let mut desk = Desk::new();
        (desk.at.size, desk.at.next, desk.at.room) = (size, Rank(size), 60_000);
        Self { scheduler, desk, others: 1, size, to_job: vec![], to_coordinator: vec![] }
    }

    fn tell(&mut self, fact: Fact) {
        self.scheduler.handle(self.desk.at.clock.now, fact);
    }

    /// Whatever the scheduler wants done is done, stage by stage.
    fn settle(&mut self) {
        self.carry_out();
        for _ in 0..100 {
            let decisions = self.scheduler.cycle(self.desk.at.clock.now);
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                self.decided(decision);
            }
        }
        panic!("the stages do not end");
    }

    fn decided(&mut self, decision: Decision) {
        match decision {
            Decision::Grow { job: ID, by, obligation } => {
                self.desk.happen(|it, at, out| it.grow(at, Some(JOB), by, obligation.into(), out));
            }
            Decision::Shrink { job: ID, by, obligation } => {
                self.desk
                    .happen(|it, at, out| it.shrink(at, Some(JOB), by, obligation.into(), out));
            }
            Decision::Offer { job: ID, up_to } => {
                self.desk.happen(|it, at, out| it.offer(at, up_to, out));
            }
            Decision::Start { .. }
            | Decision::Reserve { .. }
            | Decision::Refuse { .. }
            | Decision::Grow { .. }
            | Decision::Shrink { .. }
            | Decision::Offer { .. } => return,
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.desk.made) {
            match effect {
                Effect::Tell { said, .. } => self.to_job.push(said),
                Effect::Begin { count, .. } => self.size += count,
                Effect::Asked { more, is_answer } => {
                    self.tell(Fact::Asked { job: ID, more, is_answer });
                }
                Effect::Answered { by } => self.tell(Fact::Answered { job: ID, by }),
                Effect::Enforce { by } => {
                    let by = by.min(self.size - 1);
                    (self.size, self.desk.at.size) = (self.size - by, self.size - by);
                    self.desk.happen(|it, _, out| it.enforced(by, out));
                    return self.carry_out();
                }
                Effect::Answer { .. } | Effect::Note(_) => {}
            }
        }
    }

    fn step(&mut self, next: &Next) {
        match *next {
            Next::Rigid(size) => {
                self.others += 1;
                let request = Box::new(JobRequest::rigid(size, None).unwrap());
                self.tell(Fact::Submitted { job: JobId(self.others), request });
            }
            Next::OtherEnds => {
                let running = self.scheduler.state().running();
                let ended = running.map(|(job, _)| job).rfind(|job| *job != ID);
                if let Some(job) = ended {
                    self.tell(Fact::Ended { job });
                }
            }
            Next::Owners(here) => {
                let processors = ALL - here;
                self.tell(Fact::Resources(Resources { processors, ..Resources::steady(ALL) }));
            }
            Next::Requests(by) => _ = self.desk.requests(by),
            Next::Spawns(count) => _ = self.desk.ask(Ask::Spawn { count }),
            Next::Arrives(true, is_lost) => {
                if !self.to_job.is_empty() {
                    let said = self.to_job.remove(0);
                    self.arrives(&said, is_lost);
                }
            }
            Next::Arrives(false, is_lost) => {
                if !self.to_coordinator.is_empty() {
                    let said = self.to_coordinator.remove(0);
                    if !is_lost {
                        self.desk.happen(|it, at, out| it.heard(at, JOB, &said, out));
                    }
                }
            }
            Next::JobDecides(choice, by) => self.job_decides(choice, by),
            Next::RankEnds if self.size > 1 => self.rank_ends(),
            Next::RankEnds => {}
            Next::Passes(s) => self.desk.pass(Duration::from_secs(s)),
        }
        self.settle();
    }

    fn arrives(&mut self, said: &Said, is_lost: bool) {
        if is_lost {
            return;
        }
        let now = self.desk.at.clock.now;
        match &mut self.desk.job {
            Some(talk) if talk.number() == said.negotiation => {
                let said = sent(talk.hear(now, said));
                self.to_coordinator.extend(said);
            }
            _ => {
                let talk = Talk::answer(now, Party::Job, limits(2), said).ok();
                self.desk.job = talk.map(|(talk, _)| talk).or(self.desk.job.take());
            }
        }
    }

    fn job_decides(&mut self, choice: u8, by: u32) {
        let now = self.desk.at.clock.now;
        let Some(talk) = &mut self.desk.job else { return };
        let mut template = talk.table().clone();
        template.items[0].change = template.items[0].change.of(by);
        let choice = match choice {
            0 | 1 => Choice::Accept(None),
            2 => Choice::Reject(Why::Unwanted),
            3 => Choice::Counter(template),
            _ => Choice::Final(template),
        };
        let said = sent(talk.say(now, choice));
        self.to_coordinator.extend(said);
    }

    /// As the core tells the scheduler of it: what counts for a negotiation is
    /// told by that.
    fn rank_ends(&mut self) {
        self.size -= 1;
        self.desk.at.size = self.size;
        let mut counts = false;
        self.desk.happen(|it, at, out| counts = it.ended(at, Rank(9_999), out));
        if !counts {
            let size = self.scheduler.state().get(ID).expect("it runs").size - 1;
            self.tell(Fact::Resized { job: ID, size });
        }
    }
}

fn sent(effects: Vec<talk::Effect>) -> Vec<Said> {
    let said = effects.into_iter().filter_map(|effect| match effect {
        talk::Effect::Send(said) => Some(said),
        talk::Effect::Decide(_) | talk::Effect::Heard(_) | talk::Effect::Over(_) => None,
    });
    said.collect()
}

proptest! {
    /// When all is said and done, the scheduler holds nothing for the job, waits
    /// for nothing of it, and knows how many processors it has.
    #[test]
    fn nothing_is_set_aside_or_waited_for_in_the_end(
        class in prop_oneof![Just(Class::Malleable), Just(Class::Evolving)],
        policy in prop_oneof![Just("ghafoor"), Just("equipartition")],
        steps in prop::collection::vec(next(), 1..60),
    ) {
        let mut site = Site::new(policy, class);
        for step in steps {
            site.step(&step);
        }
        // Nobody wants anything any more, and nobody answers.
        for _ in 0..200 {
            site.to_job.clear();
            site.to_coordinator.clear();
            let Some(due) = site.desk.negotiations.deadline() else { break };
            let span = due.since(site.desk.at.clock.now);
            site.desk.pass(span);
            site.carry_out();
        }
        prop_assert_eq!(site.desk.negotiations.deadline(), None);
        let job = site.scheduler.state().get(ID).expect("it runs");
        prop_assert_eq!((job.offered, job.asked, job.want), (0, 0, None));
        prop_assert_eq!(job.size, site.size);
    }
}
