//! The strategies of Posner's group: waiting jobs start on their minimum or
//! preferred size, running ones give for them by agreement, and what is left
//! makes running ones larger.
//!
//! As their programs do, and not as they are named: the first in the queue
//! starts, one a call, and nobody overtakes, since what they compare with the
//! clock is the work in operations; and where sizes are averaged, all goes to,
//! or comes from, a single job, since what it was given so far is subtracted.

use gleaner_common::id::JobId;

use super::agreements::{Agreements, Met};
use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Parameters, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::state::{Turn, Waiting};

const SOURCE: &str = "Posner, Hupfeld and Finnerty 2023; MalleableJobScheduling, b942537";

const fn named(name: &'static str, line: &'static str, build: Build) -> Named {
    Named { name, line, source: SOURCE, build }
}

type Build = fn(&Parameters) -> Box<dyn Scheduling>;

pub(super) const MIN_AGREEMENT: Named = named(
    "min-agreement",
    "starts on minimums; who is furthest above it gives; each waits for its own processors",
    |_| Strategy::boxed(Aim::Minimum, Met::Directly),
);

pub(super) const MIN_STEAL: Named = named(
    "min-steal-agreement",
    "as min-agreement; who waits takes what was given for others",
    |_| Strategy::boxed(Aim::Minimum, Met::BySteal),
);

pub(super) const MIN_POOL: Named =
    named("min-common-pool", "as min-agreement; who waits takes whatever is free", |_| {
        Strategy::boxed(Aim::Minimum, Met::FromPool)
    });

pub(super) const PREF_AGREEMENT: Named = named(
    "pref-agreement",
    "starts on preferred sizes; who is furthest above its own gives; each waits for its own",
    |_| Strategy::boxed(Aim::Preferred, Met::Directly),
);

pub(super) const PREF_STEAL: Named = named(
    "pref-steal-agreement",
    "as pref-agreement; who waits takes what was given for others",
    |_| Strategy::boxed(Aim::Preferred, Met::BySteal),
);

pub(super) const PREF_POOL: Named =
    named("pref-common-pool", "as pref-agreement; who waits takes whatever is free", |_| {
        Strategy::boxed(Aim::Preferred, Met::FromPool)
    });

pub(super) const AVERAGE_AGREEMENT: Named = named(
    "average-agreement",
    "starts on minimums; who has most of its range gives, who has least gets all",
    |_| Strategy::boxed(Aim::Average, Met::Directly),
);

pub(super) const AVERAGE_STEAL: Named = named(
    "average-steal-agreement",
    "as average-agreement; who waits takes what was given for others",
    |_| Strategy::boxed(Aim::Average, Met::BySteal),
);

pub(super) const AVERAGE_POOL: Named =
    named("average-common-pool", "as average-agreement; who waits takes whatever is free", |_| {
        Strategy::boxed(Aim::Average, Met::FromPool)
    });

/// Who is asked first, as long as nobody has been promised more: whoever is
/// furthest above the aim.
#[derive(Debug)]
struct Donors {
    order: Vec<usize>,
    /// What all can give together, if each keeps its minimum (0) or preferred
    /// size (1).
    spare: [u32; 2],
}

impl Donors {
    fn of(aim: Aim, parts: &[Part]) -> Self {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by(|a, b| parts[*b].excess(aim).total_cmp(&parts[*a].excess(aim)));
        let spare = [0, 1].map(|keeps| parts.iter().map(|part| part.spare(keeps)).sum());
        Self { order, spare }
    }

    /// Who gives how many; each gives all it can, and then the next.
    fn find(&self, parts: &[Part], needs: u32, keeps: usize) -> Option<Vec<(usize, u32)>> {
        if needs > self.spare[keeps] {
            return None;
        }
        let (mut missing, mut gives) = (needs, vec![]);
        for index in &self.order {
            let count = parts[*index].spare(keeps).min(missing);
            if count > 0 {
                gives.push((*index, count));
                missing -= count;
            }
        }
        Some(gives)
    }
}

/// Which size is the measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Minimum,
    Preferred,
    Average,
}

#[derive(Debug)]
struct Strategy {
    aim: Aim,
    agreements: Agreements,
}

/// A running job that can change, and what becomes of it in this call.
#[derive(Clone, Copy, Debug)]
struct Part {
    job: JobId,
    three: [u32; 3],
    size: u32,
    gives: u32,
    gets: u32,
}

impl Part {
    fn now(&self) -> u32 {
        self.size - self.gives + self.gets
    }

    fn spare(&self, keeps: usize) -> u32 {
        self.now().saturating_sub(self.three[keeps])
    }

    /// How far above the aim it is; by it they are sorted.
    fn excess(&self, aim: Aim) -> f64 {
        let [min, preferred, max] = self.three.map(f64::from);
        let now = f64::from(self.now());
        match aim {
            Aim::Minimum => now - min,
            Aim::Preferred => now - preferred,
            Aim::Average => (now - min) / (max - min).max(1.0),
        }
    }
}

impl Scheduling for Strategy {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        let mut parts: Vec<Part> = cycle
            .negotiable()
            .map(|(job, it)| {
                let sizes = &it.request.sizes;
                let three = [sizes.min(), sizes.preferred(), sizes.max()];
                Part { job, three, size: it.size, gives: 0, gets: 0 }
            })
            .collect();
        parts.sort_by_key(|part| part.job);
        self.agreements.resolve(cycle);
        let mut waiting: Vec<Turn> = cycle
            .waiting()
            .map(|(turn, _)| turn)
            .filter(|turn| !self.agreements.has(*turn))
            .collect();
        if waiting.first().is_some_and(|first| self.start(cycle, *first)) {
            waiting.remove(0);
        }
        let mut donors = Donors::of(self.aim, &parts);
        for turn in waiting {
            // Nobody behind can be promised anything either.
            if cycle.least_needed().is_none_or(|least| least > donors.spare[0]) {
                let free = self.agreements.free(cycle);
                let needs = cycle.waiting_at(turn).map_or(0, |it| it.request.sizes.min());
                cycle.wait(turn, Reason::TooFewFree { needs, free });
                break;
            }
            self.agree(cycle, turn, &mut parts, &mut donors);
        }
        self.expand(cycle, &mut parts);
        self.order(cycle, &parts);
    }
}

impl Strategy {
    fn boxed(aim: Aim, met: Met) -> Box<dyn Scheduling> {
        Box::new(Self { aim, agreements: Agreements::new(met) })
    }

    fn start(&self, cycle: &mut Cycle<'_>, first: Turn) -> bool {
        let Some(job) = cycle.waiting_at(first) else { return false };
        let (sizes, free) = (&job.request.sizes, self.agreements.free(cycle));
        let size = match self.aim {
            Aim::Minimum | Aim::Average => Some(sizes.min()).filter(|min| *min <= free),
            Aim::Preferred => sizes.at_most(sizes.preferred().min(free)),
        };
        size.is_some_and(|size| cycle.start(first, size))
    }

    /// Promises a waiting job what running ones can give, if that is enough.
    fn agree(
        &mut self,
        cycle: &mut Cycle<'_>,
        turn: Turn,
        parts: &mut [Part],
        donors: &mut Donors,
    ) {
        let Some(job) = cycle.waiting_at(turn) else { return };
        let [min, preferred] = [job.request.sizes.min(), job.request.sizes.preferred()];
        let gives = match self.aim {
            Aim::Minimum | Aim::Average => donors.find(parts, min, 0),
            Aim::Preferred => donors
                .find(parts, preferred, 1)
                .or_else(|| donors.find(parts, min, 1))
                .or_else(|| donors.find(parts, min, 0)),
        };
        let Some(gives) = gives else {
            let free = self.agreements.free(cycle);
            return cycle.wait(turn, Reason::TooFewFree { needs: min, free });
        };
        let processors = gives.iter().map(|(_, count)| *count).sum();
        for (index, count) in gives {
            parts[index].gives += count;
            self.agreements.promise(parts[index].job, turn, count);
        }
        *donors = Donors::of(self.aim, parts);
        cycle.wait(turn, Reason::Releasing { processors });
    }

    /// What is free to whoever is furthest below the aim.
    fn expand(&self, cycle: &Cycle<'_>, parts: &mut [Part]) {
        let mut free = self.agreements.free(cycle);
        let ups: &[usize] = if self.aim == Aim::Preferred { &[1, 2] } else { &[2] };
        for up_to in ups {
            let mut order: Vec<usize> = (0..parts.len()).collect();
            order.sort_by(|a, b| parts[*a].excess(self.aim).total_cmp(&parts[*b].excess(self.aim)));
            order.truncate(if self.aim == Aim::Average { 1 } else { order.len() });
            for index in order {
                let part = &mut parts[index];
                let count = part.three[*up_to].saturating_sub(part.now()).min(free);
                part.gets += count;
                free -= count;
            }
        }
    }

    fn order(&mut self, cycle: &mut Cycle<'_>, parts: &[Part]) {
        for part in parts {
            let keeps = part.gives.min(part.gets);
            // One that exchanges nodes for as many others has nothing to do
            // here; theirs is silent until its next iteration all the same.
            if part.gives > keeps {
                cycle.shrink(part.job, part.gives - keeps, Obligation::Mandatory);
            }
            if part.gets > keeps {
                cycle.grow(part.job, part.gets - keeps, Obligation::Voluntary);
            }
            if keeps > 0 {
                self.agreements.put_aside(part.job, keeps);
            }
        }
    }
}

pub(super) const EASY: Named = named(
    "rigid-easy-backfill",
    "the first in the queue on its preferred size, and nobody overtakes",
    |_| Box::new(Simple(first_only)),
);

pub(super) const BACKFILL: Named = named(
    "rigid-backfill",
    "whoever fits on its preferred size starts, but not right behind another",
    |_| Box::new(Simple(whoever_fits)),
);

pub(super) const FIFO: Named =
    named("rigid-fifo", "in order, each on as many as are free, up to its maximum", |_| {
        Box::new(Simple(in_order))
    });

pub(super) const SHORTEST: Named = named(
    "rigid-shortest-job-first",
    "the least work by minimum first, on as many as are free, up to its maximum",
    |_| Box::new(Simple(shortest_first)),
);

/// A strategy that changes no sizes.
#[derive(Debug)]
struct Simple(fn(&mut Cycle<'_>));

impl Scheduling for Simple {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        (self.0)(cycle);
    }
}

fn first_only(cycle: &mut Cycle<'_>) {
    if let Some((turn, job)) = cycle.first_waiting() {
        let (needs, free) = (job.request.sizes.preferred(), cycle.free());
        if !cycle.start(turn, needs) {
            cycle.wait(turn, Reason::TooFewFree { needs, free });
        }
    }
}

/// They walk a list that they take from, so the one behind is passed over.
fn whoever_fits(cycle: &mut Cycle<'_>) {
    let turns: Vec<Turn> = cycle.waiting().map(|(turn, _)| turn).collect();
    let mut turns = turns.into_iter();
    while let Some(turn) = turns.next() {
        let needs = cycle.waiting_at(turn).map_or(u32::MAX, |it| it.request.sizes.preferred());
        let free = cycle.free();
        if cycle.start(turn, needs) {
            turns.next();
        } else {
            cycle.wait(turn, Reason::TooFewFree { needs, free });
        }
    }
}

fn in_order(cycle: &mut Cycle<'_>) {
    let turns: Vec<Turn> = cycle.waiting().map(|(turn, _)| turn).collect();
    one_by_one(cycle, &turns);
}

fn shortest_first(cycle: &mut Cycle<'_>) {
    let work_by_min = |(turn, job): (Turn, &Waiting)| {
        let request = &job.request;
        let alone = request.takes(1).map_or(f64::INFINITY, |takes| takes.as_secs_f64());
        (alone / f64::from(request.sizes.min()), turn)
    };
    let mut turns: Vec<(f64, Turn)> = cycle.waiting().map(work_by_min).collect();
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let turns: Vec<Turn> = turns.into_iter().map(|(_, turn)| turn).collect();
    one_by_one(cycle, &turns);
}

fn one_by_one(cycle: &mut Cycle<'_>, turns: &[Turn]) {
    for turn in turns {
        let Some(job) = cycle.waiting_at(*turn) else { continue };
        let (needs, free) = (job.request.sizes.min(), cycle.free());
        let size = job.request.sizes.at_most(free);
        if !size.is_some_and(|size| cycle.start(*turn, size)) {
            return cycle.wait(*turn, Reason::TooFewFree { needs, free });
        }
    }
}
