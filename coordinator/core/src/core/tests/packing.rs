//! How workstations are packed: by cores, memory, disk and GPUs, and never with
//! more than they lend.

use gleaner_common::amounts::Amounts;
use gleaner_common::program::ProgramSpec;
use gleaner_common::shape::Shape;
use proptest::prelude::*;

use super::super::SchedulerConfig;
use super::*;
use crate::job::Avoided;
use crate::needs::Needs;

const GIB: u64 = 1 << 30;

fn lending(cores: u16, memory_gib: u64) -> Facts {
    let memory_bytes = 2 * memory_gib * GIB;
    let memory_lent_bytes = memory_gib * GIB;
    Facts { cores, places: cores, memory_bytes, memory_lent_bytes, ..Facts::default() }
}

fn bag(count: u32, cores: u16, memory_gib: u64) -> JobSpec {
    let mut spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(count).unwrap());
    spec.cores = cores;
    spec.limits.memory_bytes_max = memory_gib * GIB;
    spec
}

fn hosts(offered: &[Offered]) -> Vec<u32> {
    let mut hosts: Vec<_> = offered.iter().map(|(at, ..)| *at).collect();
    hosts.sort_unstable();
    hosts
}

impl Site {
    fn lend(facts: impl IntoIterator<Item = Facts>) -> Self {
        let mut site = Self::new(Config::default());
        for (id, facts) in (1..).zip(facts) {
            site.enrol(id);
            site.lends(id, facts);
        }
        site
    }

    fn lends(&mut self, id: u32, facts: Facts) -> Vec<Offered> {
        let slots = facts.cores;
        let serial = self.now.0;
        self.now = self.now + Duration::from_millis(1);
        self.hello(link(id, serial), Incarnation(1), facts, presence(false, slots), vec![])
    }

    pub(super) fn ends(&mut self, (at, _, fence): Offered) -> Vec<Offered> {
        self.now = self.now + s(60);
        let event = AttemptEvent::Finished(finished(fence, Outcome::Succeeded, s(60)));
        let serial = self.core.link(WorkstationId(at)).expect("connected").serial;
        self.handle(Event::Heard { from: link(at, serial), frame: AgentFrame::Attempt(event) })
    }

    /// What the guests of each workstation take, counted anew from their jobs.
    fn taken(&self) -> BTreeMap<WorkstationId, Amounts> {
        let mut taken = BTreeMap::new();
        for attempt in self.core.attempts.values() {
            let lends = self.core.pool.get(attempt.workstation).unwrap().facts.lends();
            let asked = self.core.jobs[&attempt.job].spec().asked();
            let sum: &mut Amounts = taken.entry(attempt.workstation).or_default();
            *sum = sum.plus(lends.part(asked));
        }
        taken
    }

    /// Nothing is lent twice, a workstation is found iff some has enough, and whoever
    /// is first does not wait where there is enough: others may, for processors that
    /// gather for the first.
    fn check_packed(&self) -> Result<(), String> {
        self.core.check_places()?;
        let taken = self.taken();
        for id in self.core.pool.ids() {
            let it = self.core.pool.get(id).unwrap();
            let of = taken.get(&id).copied().unwrap_or_default();
            if !it.facts.lends().covers(of) {
                return Err(format!("{id} lends {:?} and {of:?} are taken", it.facts.lends()));
            }
            if it.free() != it.capacity().minus(of) {
                return Err(format!("{id} calls {:?} free of {of:?}", it.free()));
            }
        }
        let queued = self.core.jobs.values().filter(|job| job.queued() > 0);
        for (nth, job) in queued.enumerate() {
            let needs = job.needs();
            let fits = self.core.pool.free_ones().any(|(_, it)| needs.are_met_now(it));
            let found = self.core.pool.choose_for(needs, &Avoided::default());
            if fits != found.is_some() || (fits && nth == 0) {
                return Err(format!("{needs:?} waits, {fits} and found {found:?}"));
            }
            if (self.core.pool.room_for(1, needs) > 0) != fits {
                return Err(format!("{needs:?} have room, or not: {fits}"));
            }
        }
        Ok(())
    }
}

#[test]
fn two_jobs_of_two_cores_leave_a_core_each_on_workstations_of_three() {
    let mut site = Site::lend([lending(3, 6), lending(3, 6)]);
    let (_, first) = site.submit_spec(bag(1, 2, 0));
    let (_, second) = site.submit_spec(bag(2, 2, 0));
    let mut both = [first.clone(), second].concat();
    both.sort_unstable();
    assert_eq!(hosts(&both), [1, 2], "two cores are free in all, on different workstations");
    let job = both[1].1.job.max(both[0].1.job);
    let why = site.core.why_job(site.now, job).unwrap();
    let told = "none of the 2 with a free core suits it now: `2 cores` excludes 2, \
                `4.0 GiB of memory` excludes 2";
    assert!(why.contains(&told.to_owned()), "{why:?}");
    let (_, small) = site.submit_spec(bag(3, 1, 0));
    assert_eq!(hosts(&small), [1, 2], "what is left is lent to others");
    site.check_packed().unwrap();
    assert_eq!(hosts(&site.ends(first[0])), hosts(&first), "and the next pair goes there");
    site.check_packed().unwrap();
}

#[test]
fn who_asks_for_nothing_has_the_part_that_goes_with_its_cores() {
    let mut site = Site::lend([lending(4, 8)]);
    let (_, greedy) = site.submit_spec(bag(1, 1, 5));
    assert_eq!(greedy.len(), 1);
    let (_, plain) = site.submit_spec(bag(4, 1, 0));
    assert_eq!(plain.len(), 1, "2 GiB for a core: 3 GiB are left, and 1 GiB then");
    let (_, modest) = site.submit_spec(bag(4, 1, 1));
    assert_eq!(modest.len(), 1, "and now all of the memory is lent, but not all of the cores");
    assert_eq!(site.ends(greedy[0]).len(), 2);
    site.check_packed().unwrap();
}

/// Under policies that offer in one stage what they do not need to begin jobs, one
/// that could not begin was given places to grow by.
#[test]
fn what_nothing_suits_does_not_begin_with_what_it_could_grow_by() {
    for policy in crate::scheduler::ALL {
        let scheduler =
            SchedulerConfig { policy: policy.name.into(), ..SchedulerConfig::default() };
        let mut site = Site::new(Config { scheduler, ..Config::default() });
        for (id, cores) in (1..).zip([3, 3, 1, 1]) {
            site.enrol(id);
            site.lends(id, lending(cores, 2 * u64::from(cores)));
        }
        assert_eq!(site.submit_spec(bag(1, 2, 0)).1.len(), 1, "{}", policy.name);
        let shape = Shape { min: Some(2), preferred: Some(2), ..Shape::default() };
        let pairs = JobSpec { shape, ..bag(4, 2, 0) };
        assert_eq!(site.submit_spec(pairs).1, [], "{}: only one has two cores", policy.name);
        site.core.check_places().unwrap();
    }
}

/// A free core with less memory than goes with it was counted as a place, and one of
/// two ranks begun.
#[test]
fn a_program_does_not_begin_in_part_beside_a_guest_that_has_the_memory() {
    let mut site = Site::lend([lending(2, 4)]);
    let (_, large) = site.submit_spec(bag(1, 1, 3));
    let mut program = bag(2, 1, 0);
    program.program = Some(ProgramSpec { ranks_max: 2, ..ProgramSpec::default() });
    let (_, offered) = site.submit_spec(program);
    assert_eq!(offered, []);
    site.enrol(2);
    let joins = site.lends(2, lending(1, 2));
    assert_eq!(joins, [], "a core with its memory, and one with half of it");
    assert_eq!(site.ends(only(&large)).len(), 2, "both at once");
}

#[test]
fn a_gpu_and_a_disk_are_lent_once() {
    let facts = |gpus, disk_gib| Facts { gpus, disk_lent_bytes: disk_gib * GIB, ..lending(4, 8) };
    let mut site = Site::lend([facts(0, 100), facts(2, 10)]);
    let with_gpu = JobSpec { gpus: 1, ..bag(3, 1, 1) };
    let (_, offered) = site.submit_spec(with_gpu);
    assert_eq!(hosts(&offered), [2, 2]);
    let mut large = bag(2, 1, 1);
    large.limits.disk_bytes_max = 60 * GIB;
    assert_eq!(hosts(&site.submit_spec(large).1), [1]);
    site.check_packed().unwrap();
}

#[test]
fn what_no_workstation_lends_is_refused_and_the_nearest_says_what_it_lends() {
    let mut site = Site::lend([lending(2, 4), Facts { gpus: 1, ..lending(4, 8) }]);
    let told = "no workstation meets all that is required; of 2: `6 cores` excludes 2; \
                the nearest is host2, without `6 cores` (it lends 4 cores)";
    assert_eq!(site.refusal_of("ann", bag(1, 6, 0)), told);
    let told = "of 2: `12.0 GiB of memory` excludes 2; the nearest is host2, without \
                `12.0 GiB of memory` (it lends 8.0 GiB of memory)";
    let refusal = site.refusal_of("ann", bag(1, 1, 12));
    assert!(refusal.ends_with(told), "its machine has 16 GiB, half of it the owner's: {refusal}");
    let refusal = site.refusal_of("ann", JobSpec { gpus: 2, ..bag(1, 1, 0) });
    assert!(refusal.ends_with("without `2 GPUs` (it lends 1 GPU)"), "{refusal}");
    // Parts that run at once are to fit together.
    let mut pairs = bag(4, 2, 0);
    pairs.program = Some(ProgramSpec::default());
    let told = "not taken: it needs 8 processors, and there are 6 at most";
    assert_eq!(site.refusal_of("ann", pairs.clone()), told);
    let mut threes = bag(2, 3, 0);
    threes.program = Some(ProgramSpec::default());
    let told = "not taken: 2 parts of it are to run at once, and 1 fit on all workstations";
    assert_eq!(site.refusal_of("ann", threes), told);
    pairs.indexes = IndexRange::count_of(3).unwrap();
    let (_, ranks) = site.submit_spec(pairs);
    assert_eq!(hosts(&ranks), [1, 2, 2], "two cores for each rank, all at once");
    site.check_packed().unwrap();
}

#[test]
fn cores_that_an_owner_needs_are_not_lent() {
    let mut site = Site::lend([lending(4, 8)]);
    let serial = site.core.link(WorkstationId(1)).unwrap().serial;
    let load = LoadAverages::default();
    let frame = AgentFrame::Heartbeat { sequence: 1, slots: 3, load };
    site.handle(Event::Heard { from: link(1, serial), frame });
    let (_, offered) = site.submit_spec(bag(3, 2, 0));
    assert_eq!(offered.len(), 1, "three cores hold one guest of two");
}

/// Small jobs took every core that became free, and whoever asked for two of one
/// workstation never came by them; or the small ones waited where it could not go.
#[test]
fn who_asks_for_two_cores_keeps_one_workstation_and_nobody_from_the_others() {
    let mut site = Site::lend([lending(1, 2), lending(2, 4), lending(2, 4)]);
    let (_, mut small) = site.submit_spec(bag(5, 1, 0));
    assert_eq!(small.len(), 5);
    let (pair, none) = site.submit_spec(JobSpec { priority: 1, ..bag(1, 2, 0) });
    let (_, none_either) = site.submit_spec(bag(50, 1, 0));
    assert_eq!((none, none_either), (vec![], vec![]));
    small.sort_unstable();
    assert_eq!(hosts(&site.ends(small[0])), [1], "two cores will never be free there");
    site.check_packed().unwrap();
    assert_eq!(site.ends(small[1]), [], "one of two is free, and kept");
    let why = site.core.why_workstation(site.now, WorkstationId(2)).unwrap();
    let told = format!("kept until there is enough free for job {pair}");
    assert!(why.contains(&told), "{why:?}");
    assert_eq!(hosts(&site.ends(small[3])), [3], "the other pair is not kept");
    let placed = site.ends(small[2]);
    assert_eq!((placed[0].0, placed[0].1.job), (2, pair));
    assert_eq!(hosts(&site.ends(placed[0])), [2, 2], "and then it is everybody's again");
    site.check_packed().unwrap();
}

#[test]
fn what_is_kept_for_a_job_is_let_go_when_it_is_cancelled_or_the_owner_comes() {
    for owner_comes in [false, true] {
        let mut site = Site::lend([lending(2, 4)]);
        let (_, small) = site.submit_spec(bag(2, 1, 0));
        let (pair, _) = site.submit_spec(JobSpec { priority: 1, ..bag(1, 2, 0) });
        site.submit_spec(bag(9, 1, 0));
        assert_eq!(site.ends(small[0]), []);
        let from = site.core.link(WorkstationId(1)).unwrap();
        if owner_comes {
            let frame = AgentFrame::Presence(presence(true, 2));
            site.handle(Event::Heard { from, frame });
            assert_eq!(site.core.pool.kept(), None);
        } else {
            assert_eq!(site.cancel(pair).len(), 1);
        }
        site.check_packed().unwrap();
    }
}

#[test]
fn a_user_pays_for_cores() {
    let mut site = Site::lend([lending(4, 8)]);
    site.submit_spec(bag(1, 3, 0));
    assert_eq!(site.core.shares.running("ann"), 3);
}

#[derive(Clone, Debug)]
enum Doing {
    Submit { count: u32, cores: u16, memory_gib: u64, gpus: u16 },
    End(usize),
    Turn { id: u32, busy: bool, slots: u16 },
    Reconnect { id: u32, cores: u16, memory_gib: u64 },
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        (1..6u32, 1..4u16, 0..5u64, 0..2u16).prop_map(|(count, cores, memory_gib, gpus)| {
            Doing::Submit { count, cores, memory_gib, gpus: gpus / 2 + gpus % 2 }
        }),
        any::<usize>().prop_map(Doing::End),
        any::<usize>().prop_map(Doing::End),
        (1..5u32, prop::bool::weighted(0.2), 2..5u16).prop_map(|(id, busy, slots)| Doing::Turn {
            id,
            busy,
            slots
        }),
        (1..5u32, 1..5u16, 1..9u64).prop_map(|(id, cores, memory_gib)| Doing::Reconnect {
            id,
            cores,
            memory_gib
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever comes and goes; that an owner takes cores back while guests have
    /// them, and an agent lends less than before, is the only way to take more.
    #[test]
    fn nothing_is_lent_twice_and_what_there_is_enough_for_is_found(
        steps in prop::collection::vec(doing(), 1..60)
    ) {
        let all = (1..5u16).map(|n| Facts { gpus: n / 3, ..lending(n, 2 * u64::from(n)) });
        let mut site = Site::lend(all);
        for step in steps {
            site.now = site.now + s(1);
            match step {
                Doing::Submit { count, cores, memory_gib, gpus } => {
                    let spec = JobSpec { gpus, ..bag(count, cores, memory_gib) };
                    let asked = spec.clone();
                    let (request, spec) = (RequestId(9), Box::new(spec));
                    site.handle(Event::Submitted { request, user: "ann".into(), spec });
                    // It is refused only if nobody lends so much.
                    let some = site.core.pool.known().any(|it| Needs::of(&asked).are_met(it));
                    let refused = matches!(site.answer(), Some(Answer::No(_)));
                    prop_assert_eq!(refused, !some);
                }
                Doing::End(which) => {
                    let open: Vec<_> = site.core.attempts.iter().map(|(fence, it)| {
                        (it.workstation.0, subprogram(it.job, it.position), *fence)
                    }).collect();
                    if let Some(offer) = open.get(which % open.len().max(1)) {
                        site.ends(*offer);
                    }
                }
                Doing::Turn { id, busy, slots } => {
                    let from = site.core.link(WorkstationId(id)).unwrap();
                    let frame = AgentFrame::Presence(presence(busy, slots));
                    site.handle(Event::Heard { from, frame });
                }
                Doing::Reconnect { id, cores, memory_gib } => {
                    let held = site.core.attempts.values();
                    if held.clone().all(|it| it.workstation.0 != id) {
                        site.lends(id, lending(cores, memory_gib));
                    }
                }
            }
            while site.core.deadline().is_some_and(|at| at == Moment::ZERO) {
                site.last = site.core.wake(site.now, site.wall());
            }
            let packed = site.check_packed();
            prop_assert!(packed.is_ok(), "{}", packed.unwrap_err());
        }
    }
}
