//! Whose fault it is that guests fail: their jobs', or the workstations'.
//!
//! One workstation can make everything fail that runs there: its disk is full, a
//! library is gone, its network is. One job can fail wherever it runs. A failure by
//! itself says neither; the difference is what the same work comes to elsewhere.
//!
//! ```text
//! several of a job (or of a user) failed here, one after the other ─► suspected: no more of it
//!                                                                      goes here while it has a choice
//! .. and it succeeds on more workstations than it fails on       ─► accused: its failures here do not count
//! .. and several users accuse, and nobody else succeeds here     ─► it rests for everybody
//! fails on several workstations and succeeds on no more          ─► its own fault: nothing follows
//! ```
//!
//! The promise: what one user's work comes to changes where *that user's* work goes,
//! and nothing for anybody else; never do more than half of all workstations rest. All
//! evidence is forgotten after a while. Knows nothing of queues and connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::time::Moment;

/// So many different subprograms in a row: two fail by chance. A guess.
const SUSPECT_AFTER: usize = 3;

/// Who fails on so many workstations, and succeeds on no more, fails by itself.
const EVERYWHERE: usize = 3;

/// For so long nothing is sent where it failed; twice as long each time that the
/// next one failed as well. Guesses.
const SUSPECT_FOR: Duration = Duration::from_secs(60);
const DOUBLED_MAX: u32 = 6;

/// Evidence is forgotten after so long without more of it.
const FRESH_FOR: Duration = Duration::from_secs(7_200);

/// So many users must accuse a workstation before it rests for everybody.
const ACCUSERS: usize = 2;

/// Evidence of so many jobs and users is kept, of so many workstations each, and so
/// many failures of each are not counted.
const SOURCES_MAX: usize = 256;
const WORKSTATIONS_MAX: usize = 64;
const EXCUSED_MAX: usize = 1_000;

/// A subprogram that has ended somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) user: &'a str,
    pub(crate) job: JobId,
    pub(crate) index: u32,
    pub(crate) at: WorkstationId,
}

/// What follows from a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Subprograms of the job whose failure there does not count, this one among
    /// them or not.
    pub(crate) excused: BTreeSet<u32>,
    /// The workstation rests for everybody, for so long, and why.
    pub(crate) rest: Option<(Duration, String)>,
}

/// What is known of all that failed of late.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    jobs: BTreeMap<JobId, Evidence>,
    users: BTreeMap<String, Evidence>,
    /// How often in a row each has rested, and until when.
    rests: BTreeMap<WorkstationId, (u32, Moment)>,
    /// When something is suspected no more.
    ends: BTreeSet<Moment>,
}

/// What one job, or one user, has come to on each workstation.
#[derive(Debug, Default)]
struct Evidence {
    last: Moment,
    at: BTreeMap<WorkstationId, Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    last: Moment,
    /// Different subprograms that failed since the last success.
    failed: BTreeSet<(JobId, u32)>,
    succeeded: bool,
    /// Until when nothing is sent here, and how often that was so in a row.
    until: Moment,
    times: u32,
    /// Subprograms whose failure here was not counted.
    excused: BTreeSet<u32>,
}

impl Tally {
    fn fails(&self, now: Moment) -> bool {
        !self.failed.is_empty() && now.since(self.last) < FRESH_FOR
    }

    /// So often that it is no chance.
    fn fails_often(&self, now: Moment) -> bool {
        self.failed.len() >= SUSPECT_AFTER && self.fails(now)
    }

    fn works(&self, now: Moment) -> bool {
        self.succeeded && self.failed.len() < SUSPECT_AFTER && now.since(self.last) < FRESH_FOR
    }
}

impl Evidence {
    fn tally(&mut self, now: Moment, at: WorkstationId) -> &mut Tally {
        self.last = now;
        if self.at.len() >= WORKSTATIONS_MAX && !self.at.contains_key(&at) {
            let oldest = self.at.iter().min_by_key(|(id, tally)| (tally.last, **id));
            let oldest = oldest.map(|(id, _)| *id);
            oldest.and_then(|id| self.at.remove(&id));
        }
        let tally = self.at.entry(at).or_default();
        if now.since(tally.last) >= FRESH_FOR {
            *tally = Tally::default();
        }
        tally.last = now;
        tally
    }

    fn succeeded(&mut self, now: Moment, at: WorkstationId) {
        let tally = self.tally(now, at);
        tally.failed.clear();
        (tally.succeeded, tally.until, tally.times) = (true, Moment::ZERO, 0);
    }

    /// Until when nothing more is sent there, if that begins now.
    fn failed(&mut self, now: Moment, at: WorkstationId, which: (JobId, u32)) -> Option<Moment> {
        let tally = self.tally(now, at);
        if tally.failed.len() < EXCUSED_MAX {
            tally.failed.insert(which);
        }
        let begins = tally.fails_often(now) && now >= tally.until;
        begins.then(|| {
            tally.until = now + SUSPECT_FOR * 2_u32.pow(tally.times.min(DOUBLED_MAX));
            tally.times += 1;
            tally.until
        })
    }

    fn count(&self, holds: impl Fn(&Tally) -> bool) -> usize {
        self.at.values().filter(|tally| holds(tally)).count()
    }

    fn is_its_own_fault(&self, now: Moment) -> bool {
        let fails = self.count(|tally| tally.fails(now));
        fails >= EVERYWHERE && fails >= self.count(|tally| tally.works(now))
    }

    /// Where nothing more is sent while there is a choice.
    fn suspected(&self, now: Moment) -> impl Iterator<Item = WorkstationId> + '_ {
        let is_its_own = self.is_its_own_fault(now);
        let suspected = self.at.iter().filter(move |(_, tally)| now < tally.until && !is_its_own);
        suspected.map(|(id, _)| *id)
    }

    /// Does it fail there, and hardly anywhere else?
    fn accuses(&self, now: Moment, at: WorkstationId) -> bool {
        let fails_here = self.at.get(&at).is_some_and(|tally| tally.fails_often(now));
        let fails = self.count(|tally| tally.fails_often(now));
        fails_here && self.count(|tally| tally.works(now)) >= fails
    }

    fn works(&self, now: Moment, at: WorkstationId) -> bool {
        self.at.get(&at).is_some_and(|tally| tally.works(now))
    }
}

impl Blame {
    pub(crate) fn succeeded(&mut self, now: Moment, case: Case<'_>) {
        self.of_job(now, case.job).succeeded(now, case.at);
        self.of_user(now, case.user).succeeded(now, case.at);
        self.rests.remove(&case.at);
    }

    /// With so many workstations in sight.
    pub(crate) fn failed(&mut self, now: Moment, case: Case<'_>, workstations: usize) -> Judgement {
        let Case { user, job, index, at } = case;
        let of_user = self.of_user(now, user).failed(now, at, (job, index));
        let of_job = self.of_job(now, job);
        let ends = of_job.failed(now, at, (job, index)).into_iter().chain(of_user);
        let mut excused = BTreeSet::new();
        if of_job.accuses(now, at) {
            let tally = of_job.tally(now, at);
            let room = EXCUSED_MAX.saturating_sub(tally.excused.len());
            let new = tally.failed.iter().map(|(_, index)| *index);
            excused = new.filter(|index| !tally.excused.contains(index)).take(room).collect();
            tally.excused.extend(&excused);
        }
        self.ends.extend(ends);
        Judgement { excused, rest: self.rest(now, at, workstations) }
    }

    /// Where the next of a job is not sent while it has a choice.
    pub(crate) fn suspected(&self, now: Moment, job: JobId, user: &str) -> Vec<WorkstationId> {
        // Mostly nothing is suspected of anything.
        if self.ends.is_empty() {
            return vec![];
        }
        let of = [self.jobs.get(&job), self.users.get(user)];
        let mut all: Vec<_> = of.into_iter().flatten().flat_map(|it| it.suspected(now)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// When the first of what is suspected is so no more.
    pub(crate) fn due(&self) -> Option<Moment> {
        self.ends.first().copied()
    }

    /// Is something suspected no more?
    pub(crate) fn take_what_is_due(&mut self, now: Moment) -> bool {
        let before = self.ends.len();
        self.ends = self.ends.split_off(&(now + Duration::from_nanos(1)));
        self.ends.len() < before
    }

    /// Whose work fails there and works elsewhere.
    pub(crate) fn accusers(&self, now: Moment, at: WorkstationId) -> Vec<&str> {
        let all = self.users.iter().filter(|(_, of)| of.accuses(now, at));
        all.map(|(user, _)| user.as_str()).collect()
    }

    /// An admin says that it is well again.
    pub(crate) fn forgive(&mut self, at: WorkstationId) {
        self.rests.remove(&at);
        for evidence in self.jobs.values_mut().chain(self.users.values_mut()) {
            evidence.at.remove(&at);
        }
    }

    fn rest(
        &mut self,
        now: Moment,
        at: WorkstationId,
        workstations: usize,
    ) -> Option<(Duration, String)> {
        let resting = self.rests.values().filter(|(_, until)| now < *until).count();
        let accusers = self.accusers(now, at);
        let is_defended = self.users.values().any(|of| of.works(now, at));
        if accusers.len() < ACCUSERS || is_defended || (resting + 1) * 2 > workstations {
            return None;
        }
        let reason = format!(
            "what {} users submit fails here and works elsewhere: {}",
            accusers.len(),
            accusers.join(", ")
        );
        let (times, until) = self.rests.get(&at).copied().unwrap_or_default();
        if now < until {
            return None;
        }
        let span = SUSPECT_FOR * 2_u32.pow(times.min(DOUBLED_MAX));
        self.rests.insert(at, (times + 1, now + span));
        Some((span, reason))
    }

    fn of_job(&mut self, now: Moment, job: JobId) -> &mut Evidence {
        make_room(&mut self.jobs, &job);
        let of = self.jobs.entry(job).or_default();
        of.last = now;
        of
    }

    fn of_user(&mut self, now: Moment, user: &str) -> &mut Evidence {
        if !self.users.contains_key(user) {
            let user = user.to_owned();
            make_room(&mut self.users, &user);
            self.users.insert(user, Evidence::default());
        }
        let of = self.users.get_mut(user).expect("it is there by now");
        of.last = now;
        of
    }
}

/// What was not heard of for longest goes.
fn make_room<K: Ord + Clone>(of: &mut BTreeMap<K, Evidence>, new: &K) {
    if of.len() < SOURCES_MAX || of.contains_key(new) {
        return;
    }
    let oldest = of.iter().min_by(|a, b| a.1.last.cmp(&b.1.last)).map(|(key, _)| key.clone());
    oldest.and_then(|key| of.remove(&key));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAB: usize = 12;

    fn case(user: &'static str, job: u32, index: u32, at: u32) -> Case<'static> {
        Case { user, job: JobId(job), index, at: WorkstationId(at) }
    }

    fn at(seconds: u64) -> Moment {
        Moment(1 << 60) + Duration::from_secs(seconds)
    }

    /// So many subprograms of a job fail there.
    fn fail(blame: &mut Blame, user: &'static str, job: u32, there: u32, many: u32) -> Judgement {
        let judge = |index| blame.failed(at(0), case(user, job, index, there), LAB);
        (0..many).map(judge).last().unwrap_or_default()
    }

    fn suspected(blame: &Blame, user: &str, job: u32) -> Vec<u32> {
        blame.suspected(at(0), JobId(job), user).iter().map(|id| id.0).collect()
    }

    #[test]
    fn where_three_in_a_row_fail_a_user_sends_no_more_and_others_do() {
        let mut blame = Blame::default();
        fail(&mut blame, "ann", 1, 7, 2);
        assert_eq!(suspected(&blame, "ann", 1), []);
        fail(&mut blame, "ann", 1, 7, 3);
        assert_eq!(suspected(&blame, "ann", 1), [7]);
        assert_eq!(suspected(&blame, "ann", 2), [7], "another job of hers");
        assert_eq!(suspected(&blame, "ben", 3), []);
        blame.succeeded(at(0), case("ann", 1, 9, 7));
        assert_eq!(suspected(&blame, "ann", 1), [], "it was chance");
    }

    #[test]
    fn what_works_elsewhere_is_not_charged_with_what_fails_here() {
        let mut blame = Blame::default();
        assert_eq!(fail(&mut blame, "ann", 1, 7, 3).excused, BTreeSet::new(), "nothing works yet");
        blame.succeeded(at(0), case("ann", 1, 5, 8));
        let judgement = blame.failed(at(0), case("ann", 1, 3, 7), LAB);
        assert_eq!(judgement, Judgement { excused: [0, 1, 2, 3].into(), rest: None });
        let again = blame.failed(at(0), case("ann", 1, 3, 7), LAB);
        assert_eq!(again.excused, BTreeSet::new(), "once for each");
    }

    #[test]
    fn what_fails_everywhere_is_its_own_fault() {
        let mut blame = Blame::default();
        for there in 1..=9 {
            fail(&mut blame, "ann", 1, there, 3);
        }
        assert_eq!(suspected(&blame, "ann", 1), []);
        blame.succeeded(at(0), case("ann", 1, 5, 10));
        assert_eq!(fail(&mut blame, "ann", 1, 9, 5).excused, BTreeSet::new());
    }

    #[test]
    fn a_workstation_rests_for_everybody_when_users_agree_and_nobody_speaks_for_it() {
        let accuse = |blame: &mut Blame, user, job| {
            blame.succeeded(at(0), case(user, job, 9, 8));
            fail(blame, user, job, 7, 3).rest
        };
        let mut blame = Blame::default();
        assert_eq!(accuse(&mut blame, "ann", 1), None);
        assert_eq!(accuse(&mut blame, "ann", 2), None, "she alone has no say over others");
        let told = "what 2 users submit fails here and works elsewhere: ann, ben";
        assert_eq!(accuse(&mut blame, "ben", 3), Some((SUSPECT_FOR, told.to_owned())));
        assert_eq!(accuse(&mut blame, "ben", 3), None, "it rests already");
        let later = at(61);
        let again = blame.failed(later, case("ben", 3, 4, 7), LAB);
        assert_eq!(again.rest.unwrap().0, SUSPECT_FOR * 2);

        let mut defended = Blame::default();
        defended.succeeded(at(0), case("eva", 4, 0, 7));
        accuse(&mut defended, "ann", 1);
        assert_eq!(accuse(&mut defended, "ben", 3), None);
    }

    #[test]
    fn a_suspicion_ends_by_itself_doubles_when_it_was_right_and_is_forgotten() {
        let mut blame = Blame::default();
        fail(&mut blame, "ann", 1, 7, 3);
        assert_eq!(blame.due(), Some(at(60)));
        assert!(!blame.take_what_is_due(at(59)) && blame.take_what_is_due(at(60)));
        let is_suspected = |blame: &Blame, now| !blame.suspected(now, JobId(1), "ann").is_empty();
        assert!(!is_suspected(&blame, at(60)));
        blame.failed(at(60), case("ann", 1, 4, 7), LAB);
        assert!(is_suspected(&blame, at(179)) && !is_suspected(&blame, at(180)));
        let long_after = at(60) + FRESH_FOR;
        blame.failed(long_after, case("ann", 1, 5, 7), LAB);
        assert!(!is_suspected(&blame, long_after), "one by itself");
    }

    #[test]
    fn an_admin_ends_it() {
        let mut blame = Blame::default();
        fail(&mut blame, "ann", 1, 7, 3);
        blame.forgive(WorkstationId(7));
        assert_eq!(suspected(&blame, "ann", 1), []);
        fail(&mut blame, "ann", 1, 7, 2);
        assert_eq!(suspected(&blame, "ann", 1), []);
    }

    #[test]
    fn never_more_than_half_of_a_lab_rests() {
        let mut blame = Blame::default();
        let mut resting = vec![];
        for there in 1..=4 {
            for (user, job) in [("ann", 1), ("ben", 2)] {
                (11..=20).for_each(|well| blame.succeeded(at(0), case(user, job, well, well)));
                let judged = (0..3).map(|n| blame.failed(at(0), case(user, job, n, there), 4));
                resting.extend(judged.filter_map(|it| it.rest).map(|_| there));
            }
        }
        assert_eq!(resting, [1, 2]);
    }

    const USERS: [&str; 3] = ["ann", "ben", "eva"];

    proptest! {
        /// Whatever comes to whatever end: one user changes nothing for another, at
        /// most half of a lab rests, and no failure is excused twice.
        #[test]
        fn one_users_failures_are_nobody_elses(
            cases in prop::collection::vec(
                (0usize..3, 0u32..3, 0u32..30, 1u32..7, prop::bool::weighted(0.3), 0u64..40),
                1..400,
            )
        ) {
            let (mut all, mut alone) = (Blame::default(), Blame::default());
            let (mut now, mut rests) = (at(0), BTreeMap::new());
            let mut excused = BTreeSet::new();
            for (user, job, index, there, works, waits) in cases {
                now = now + Duration::from_secs(waits);
                let job = u32::try_from(user).unwrap() * 10 + job;
                let case = case(USERS[user], job, index, there);
                if works {
                    all.succeeded(now, case);
                } else {
                    let judgement = all.failed(now, case, 6);
                    for index in judgement.excused {
                        prop_assert!(excused.insert((job, there, index)));
                    }
                    if let Some((span, _)) = judgement.rest {
                        rests.insert(there, now + span);
                    }
                }
                let resting = rests.values().filter(|until| now < **until).count();
                prop_assert!(resting <= 3, "{resting} of 6");
                if user == 0 {
                    if works {
                        alone.succeeded(now, case);
                    } else {
                        prop_assert_eq!(alone.failed(now, case, 6).rest, None);
                    }
                }
                for job in 0..3 {
                    let of = |blame: &Blame| blame.suspected(now, JobId(job), USERS[0]);
                    prop_assert_eq!(of(&all), of(&alone));
                }
            }
        }
    }
}
