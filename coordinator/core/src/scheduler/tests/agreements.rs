//! The strategies of Posner's group beside what their programs do, node by node
//! (projectwagomu/MalleableJobScheduling, b942537: `min_agreement.py`,
//! `pref_agreement.py`, `average_agreement.py`, `AgreementHandler.py`), where jobs
//! do at once as they are told.
//!
//! Only counts are in the policies; here every node has a name, and an agreement
//! is about these very nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::JobId;
use proptest::prelude::*;

use super::bench::{Bench, malleable, rigid};
use crate::scheduler::{Allowed, Fact, Request, Resources};

const NODES: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Min,
    Pref,
    Average,
}

/// `[min, pref, max]`; a rigid job's are the same.
type Three = [usize; 3];

#[derive(Debug, Default)]
struct World {
    sizes: BTreeMap<u32, Three>,
    pending: Vec<u32>,
    /// Whose nodes these are, in the order in which they came.
    running: BTreeMap<u32, Vec<u32>>,
    /// For whom these nodes are meant.
    agreements: BTreeMap<u32, BTreeSet<u32>>,
    /// Jobs are sorted by what they have above it, not above the minimum.
    by_pref: bool,
}

impl World {
    fn free(&self) -> Vec<u32> {
        let held: BTreeSet<u32> = self.running.values().flatten().copied().collect();
        (0..NODES).filter(|node| !held.contains(node)).collect()
    }

    fn is_meant(&self, node: u32) -> bool {
        self.agreements.values().any(|nodes| nodes.contains(&node))
    }

    /// `schedule`. Has anybody another number of nodes than before?
    fn call(&mut self, kind: Kind) -> bool {
        let malleable = |job: &&u32| self.sizes[*job][0] < self.sizes[*job][2];
        let before: Vec<u32> = self.running.keys().filter(malleable).copied().collect();
        let counts = |world: &Self| before.iter().map(|job| world.running[job].len()).collect();
        let counted: Vec<usize> = counts(self);
        let mut free = self.free();
        self.resolve(&mut free);
        free.retain(|node| !self.is_meant(*node));
        let mut pending: Vec<u32> =
            self.pending.iter().filter(|job| !self.agreements.contains_key(job)).copied().collect();
        // Whoever is behind the head is said to delay it, whatever it asks for.
        if let Some(head) = pending.first().copied()
            && self.sizes[&head][0] <= free.len()
        {
            let [min, pref, _] = self.sizes[&head];
            let takes = if kind == Kind::Pref { pref.min(free.len()) } else { min };
            let nodes: Vec<u32> = free.drain(..takes).collect();
            self.start(head, nodes);
            pending.remove(0);
        }
        for job in pending {
            let [min, pref, _] = self.sizes[&job];
            let gives = match kind {
                Kind::Min => self.select(&before, min, 0),
                Kind::Pref => self
                    .select(&before, pref, 1)
                    .or_else(|| self.select(&before, min, 1))
                    .or_else(|| self.select(&before, min, 0)),
                Kind::Average => self.select_average(&before, min),
            };
            for (giver, nodes) in gives.unwrap_or_default() {
                let held = self.running.get_mut(&giver).expect("it runs");
                held.retain(|node| !nodes.contains(node));
                self.agreements.entry(job).or_default().extend(nodes);
            }
        }
        match kind {
            Kind::Min => self.expand(&before, &mut free, 0, 2),
            Kind::Pref => {
                self.expand(&before, &mut free, 1, 1);
                self.expand(&before, &mut free, 1, 2);
            }
            Kind::Average => self.expand_average(&before, &mut free),
        }
        counted != counts(self)
    }

    /// `DirectAgreementHandler`.
    fn resolve(&mut self, free: &mut Vec<u32>) {
        for job in self.pending.clone() {
            let Some(nodes) = self.agreements.get(&job).cloned() else { continue };
            if nodes.iter().all(|node| free.contains(node)) {
                free.retain(|node| !nodes.contains(node));
                self.agreements.remove(&job);
                self.start(job, nodes.into_iter().collect());
            }
        }
    }

    fn start(&mut self, job: u32, nodes: Vec<u32>) {
        self.pending.retain(|other| *other != job);
        self.running.insert(job, nodes);
    }

    fn above(&self, job: u32, what: usize) -> i64 {
        let held = i64::try_from(self.running[&job].len()).expect("few");
        held - i64::try_from(self.sizes[&job][what]).expect("few")
    }

    /// `select_shrink_jobs`: the most above first, each keeps its own `keeps`.
    fn select(&self, jobs: &[u32], mut needs: usize, keeps: usize) -> Option<Vec<(u32, Vec<u32>)>> {
        // By the minimum in one file, by the preferred number in the other.
        let by = usize::from(self.by_pref);
        let mut sorted = jobs.to_vec();
        sorted.sort_by_key(|job| -self.above(*job, by));
        let mut gives = vec![];
        for job in sorted {
            let nodes = self.running[&job].iter().skip(self.sizes[&job][keeps]);
            let nodes: Vec<u32> = nodes.take(needs).copied().collect();
            needs -= nodes.len();
            gives.push((job, nodes));
        }
        (needs == 0).then_some(gives)
    }

    /// Its own reckoning of who has most: what was planned already is added.
    fn select_average(&self, jobs: &[u32], needs: usize) -> Option<Vec<(u32, Vec<u32>)>> {
        let mut gives: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for _ in 0..needs {
            let planned = |job: u32| gives.get(&job).map_or(0, Vec::len);
            let can = |job: &&u32| self.running[*job].len() - planned(**job) > self.sizes[*job][0];
            let mut best: Option<(f64, u32)> = None;
            for job in jobs.iter().filter(can) {
                let share = self.share(*job, self.running[job].len() + planned(*job));
                if best.is_none_or(|(most, _)| share > most) {
                    best = Some((share, *job));
                }
            }
            let (_, job) = best?;
            let node = self.running[&job][self.sizes[&job][0] + planned(job)];
            gives.entry(job).or_default().push(node);
        }
        Some(gives.into_iter().collect())
    }

    fn share(&self, job: u32, held: usize) -> f64 {
        let [min, _, max] = self.sizes[&job];
        (held as f64 - min as f64) / (max - min) as f64
    }

    fn expand(&mut self, jobs: &[u32], free: &mut Vec<u32>, by: usize, up_to: usize) {
        let mut sorted = jobs.to_vec();
        sorted.sort_by_key(|job| self.above(*job, by));
        for job in sorted {
            let held = self.running.get_mut(&job).expect("it runs");
            let more = self.sizes[&job][up_to].saturating_sub(held.len()).min(free.len());
            held.extend(free.drain(..more));
        }
    }

    /// What was planned already is subtracted: one job gets all.
    fn expand_average(&mut self, jobs: &[u32], free: &mut Vec<u32>) {
        let mut planned: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..free.len() {
            let mut least: Option<(f64, u32)> = None;
            for job in jobs {
                let so_far = planned.get(job).copied().unwrap_or(0);
                let [min, _, max] = self.sizes[job].map(|it| it as f64);
                let held = self.running[job].len() as f64 - so_far as f64;
                let share = (held - min) / (max - min);
                if least.is_none_or(|(least, _)| share < least) {
                    least = Some((share, *job));
                }
            }
            let Some((_, job)) = least else { return };
            if self.running[&job].len() == self.sizes[&job][2] {
                break;
            }
            *planned.entry(job).or_default() += 1;
        }
        for (job, many) in planned {
            let held = self.running.get_mut(&job).expect("it runs");
            let more = (self.sizes[&job][2] - held.len()).min(many);
            held.extend(free.drain(..more));
        }
    }

    fn counts(&self) -> Vec<(u32, u32)> {
        let count =
            |(job, nodes): (&u32, &Vec<u32>)| (*job, u32::try_from(nodes.len()).expect("few"));
        self.running.iter().map(count).collect()
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Submit([u32; 3]),
    End(usize),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => prop::array::uniform3(1..=NODES).prop_map(|mut three| {
            three.sort_unstable();
            Happening::Submit(three)
        }),
        2 => (0..8_usize).prop_map(Happening::End),
    ]
}

fn request([min, pref, max]: [u32; 3]) -> Request {
    if min == max { rigid(min, 9_999) } else { malleable([min, pref, max], Allowed::Any, 9_999) }
}

fn check(policy: &str, kind: Kind, story: &[Happening]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(policy, Resources::steady(NODES));
    let mut world = World { by_pref: kind == Kind::Pref, ..World::default() };
    for what in story {
        bench.now = bench.now + Duration::from_secs(1);
        match *what {
            Happening::Submit(three) => {
                let job = bench.submit(request(three)).0;
                world.sizes.insert(job, three.map(|it| it as usize));
                world.pending.push(job);
            }
            Happening::End(index) => {
                let Some(job) = world.running.keys().nth(index).copied() else { continue };
                world.running.remove(&job);
                bench.tell(Fact::Ended { job: JobId(job) });
            }
        }
        bench.cycle();
        while world.call(kind) {}
        prop_assert_eq!(
            bench.sizes(),
            world.counts(),
            "{} after {:?} of {:?}",
            policy,
            what,
            story
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn jobs_start_on_minimums_as_in_their_program(
        story in prop::collection::vec(any_happening(), 1..30)
    ) {
        check("min-agreement", Kind::Min, &story)?;
    }

    #[test]
    fn jobs_start_on_preferred_numbers_as_in_their_program(
        story in prop::collection::vec(any_happening(), 1..30)
    ) {
        check("pref-agreement", Kind::Pref, &story)?;
    }

    #[test]
    fn jobs_are_averaged_as_in_their_program(
        story in prop::collection::vec(any_happening(), 1..30)
    ) {
        check("average-agreement", Kind::Average, &story)?;
    }
}
