//! What a lab's ranks do, and their processes: each is a program that says by
//! itself whether its messages come once and in order.

use std::rc::Rc;
use std::time::Duration;

use gleaner_agent_core::guest::Start;
use gleaner_agent_core::router;
use gleaner_common::id::{Fence, JobId, SubprogramId};
use gleaner_common::job::{JobSpec, Outcome};
use gleaner_common::program::Life;
use gleaner_program_core::address::Rank;
use gleaner_program_core::negotiation::Change;
use gleaner_program_core::simulated::{Found, Habits, Op, Program, Progress, draw};
use gleaner_program_core::wire::{LIST_MAX, ProgramFrame};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::invariant::holds;
use super::place::Place;
use super::shell::Pipe;
use super::{Lab, Local};

/// A process as it was written down.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) left: Duration,
    pub(crate) outcome: Outcome,
    /// Of a rank: its program, and how long it works between two operations.
    pub(crate) program: Option<(Program, Duration)>,
}

impl router::Image for Image {
    fn bytes(&self) -> u64 {
        1_000
    }
}

/// What the process of a rank has in memory.
#[derive(Clone, Debug)]
pub(crate) struct RankProcess {
    pub(crate) program: Program,
    pub(crate) pipe: Pipe,
    pub(crate) pace: Duration,
    /// Its next operation is planned.
    planned: bool,
    pub(crate) retreated: bool,
}

impl RankProcess {
    pub(crate) fn new((program, pace): (Program, Duration), pipe: Pipe) -> Self {
        Self { program, pipe, pace, planned: false, retreated: false }
    }

    /// Its next operation, or its end: because nobody hears it, because it has to end
    /// or, half done, because it fails.
    fn goes_on(&mut self, gives_up: bool, fails: bool) -> Progress {
        let Self { program, pipe, .. } = self;
        let is_closed = pipe.is_closed();
        let progress = pipe.with(|pipes| {
            if is_closed || fails && program.is_half_done() {
                program.die();
            } else if gives_up {
                program.quit(&mut pipes.to_agent);
            }
            program.step(&mut pipes.to_program, &mut pipes.to_agent)
        });
        self.planned = progress == Progress::Moved;
        progress
    }
}

/// Do the ranks of such a job talk? Others take tasks out of a bag.
pub(super) fn talks(spec: &JobSpec) -> bool {
    let saves = spec.program.is_some_and(|program| program.checkpoint_every.is_some());
    saves || spec.program.is_some() && spec.retries % 2 == 1
}

/// Does its first rank speak for the program?
fn negotiates(start: &Start) -> bool {
    let increases = start.spec.program.is_some_and(|program| program.increases);
    increases && !start.subprogram.job.0.is_multiple_of(4)
}

/// Do they go back to images? Others save their state themselves.
fn has_images(job: JobId) -> bool {
    job.0 % 6 != 1
}

impl Lab {
    /// What this rank does from its beginning on.
    fn script(&self, start: &Start, life: Life) -> Rc<Vec<Op>> {
        let (id, spec) = (start.subprogram, &start.spec);
        let (ranks, talk) = (spec.indexes.len(), talks(spec));
        let images = has_images(id.job);
        let is_first = !self.anew.contains(&(id, life));
        let mut script = if talk {
            let seed = self.seed ^ (u64::from(id.job.0) << 32);
            let mut random = SmallRng::seed_from_u64(seed);
            let boundaries = if images { 0.06 } else { 0.0 };
            let saves = if images { 0.0 } else { 0.1 };
            let habits = Habits { saves, boundaries, asks: 0.03, long: 0.01, middling: 0.1 };
            let ranks = ranks as usize;
            let steps = random.random_range(4..=32) * ranks;
            let mut scripts = draw(&mut random, ranks, steps, habits);
            if (id.index as usize) < ranks {
                scripts.swap_remove(id.index as usize)
            } else {
                vec![Op::Ask]
            }
        } else {
            let closes = (id.index == 0).then_some(Op::CloseBag);
            let marks = images.then_some(Op::Boundary);
            [Op::Put; 3].into_iter().chain(closes).chain(marks).chain([Op::Tasks]).collect()
        };
        if id.index == 0 && is_first {
            script.insert(0, Op::Spawn(1));
        }
        if id.index == 0 && negotiates(start) {
            let change = if id.job.0.is_multiple_of(2) {
                Change::Grow { by: 2 }
            } else {
                Change::Shrink { by: 1 }
            };
            let at = script.len() / 2;
            script.insert(at, Op::Wants(change));
            script.insert(0, Op::Negotiates);
        }
        Rc::new(script)
    }

    /// A new process of a rank.
    pub(super) fn rank_process(&mut self, start: &Start) -> (Program, Duration) {
        let id = start.subprogram;
        let life = start.rank.as_ref().expect("it is a rank").life;
        let script = self.script(start, life);
        // Those that talk take long enough for something to happen meanwhile.
        let work = if talks(&start.spec) { self.long_work() } else { self.work(id.job) };
        let pace = work / u32::try_from(script.len() + 1).unwrap_or(1);
        (Program::new(Rank(id.index), script), pace)
    }

    /// The rank's process has lost its work: it begins anew with nothing. Ranks that
    /// talk know no better then than to end.
    pub(super) fn begins_anew(&mut self, start: &Start) {
        let id = start.subprogram;
        let life = start.rank.as_ref().expect("it is a rank").life;
        self.anew.insert((id, life));
        if talks(&start.spec) {
            self.gives_up(id.job, life);
        }
    }

    /// All ranks of this life of a program end by themselves.
    pub(super) fn gives_up(&mut self, job: JobId, life: Life) {
        if !self.broken.insert((job, life)) {
            return;
        }
        for index in 0..self.hosts.len() {
            let processes = self.hosts[index].processes();
            let of_job = processes.filter(|(_, process)| process.subprogram.job == job);
            for fence in of_job.map(|(_, process)| process.fence).collect::<Vec<_>>() {
                self.kick(index, fence);
            }
        }
    }

    /// A rank that runs goes on with its script.
    pub(super) fn kick(&mut self, index: usize, fence: Fence) {
        let now = self.now;
        let host = &mut self.hosts[index];
        let Some(at) = host.place_of(fence) else { return };
        let place = &mut host.places[at];
        if place.running(now).is_none_or(|process| process.fence != fence) {
            return;
        }
        let Some(process) = &mut place.process else { return };
        let number = process.number;
        let Some(rank) = &mut process.rank else { return };
        if rank.program.is_over() || std::mem::replace(&mut rank.planned, true) {
            return;
        }
        let after = self.up_to(Duration::from_millis(1));
        self.plan_here(index, after, Local::Runs(number));
    }

    /// One operation of a rank's program, if its process runs at this moment.
    pub(super) fn rank_runs(&mut self, index: usize, number: u64) {
        let now = self.now;
        let places = &mut self.hosts[index].places;
        let of = |place: &&mut Place| place.process.as_ref().is_some_and(|it| it.number == number);
        let Some(place) = places.iter_mut().find(of) else { return };
        let runs = place.running(now).is_some();
        let Some(process) = &mut place.process else { return };
        let (id, life) = (process.subprogram, process.life.unwrap_or_default());
        let Some(rank) = process.rank.as_mut() else { return };
        rank.planned = false;
        if !runs || rank.program.is_over() {
            return;
        }
        if rank.pipe.is_closed() && process.outcome == Outcome::Succeeded {
            process.outcome = Outcome::ExitCode(1);
        }
        let gives_up = self.broken.contains(&(id.job, life));
        let progress = rank.goes_on(gives_up, process.outcome != Outcome::Succeeded);
        let (gap, found) = (rank.pace * 2, std::mem::take(&mut rank.program.found));
        if progress == Progress::Over {
            place.account(now);
            let process = place.process.as_mut().expect("it was there");
            process.left = Duration::from_millis(1);
        }
        if progress == Progress::Moved {
            let after = self.up_to(gap);
            self.plan_here(index, after, Local::Runs(number));
        }
        self.rank_found(id, life, found);
        // Its agent reads the pipe now and then, and at its end.
        if progress == Progress::Blocked || self.rng.random_bool(0.8) {
            self.act(index, |_, _| {});
        }
    }

    /// A rank judges what it is told.
    fn rank_found(&mut self, id: SubprogramId, life: Life, found: Found) {
        let Found { received, accepted, gives, negotiated, begun, deadlock, wrong } = found;
        if wrong.is_some() || received > 0 {
            holds!(RankOrder, wrong.is_none(), "{id}: {}", wrong.unwrap_or_default());
            self.received += received;
        }
        if let Some(waits) = deadlock.filter(|_| !self.broken.contains(&(id.job, life))) {
            // Others wait for what a rank would have said that has failed.
            let one_failed = self.failed.contains(&(id.job, life));
            holds!(RankOrder, one_failed, "{id} is told of a deadlock: {waits:?}");
            self.gives_up(id.job, life);
        }
        for (request, task) in accepted {
            self.witness.accepted(id, life, request, task);
        }
        for ranks in begun {
            self.witness.begun((id.job, life), ranks);
        }
        self.gave += u64::from(gives);
        self.negotiated += negotiated;
        self.ranks_leave(id.job, gives);
    }

    /// So many of a program's ranks leave, as they were told to by another; those that
    /// talk promise it, and stay.
    fn ranks_leave(&mut self, job: JobId, count: u32) {
        let mut left = count;
        for index in 0..self.hosts.len() {
            for place in &mut self.hosts[index].places {
                let Some(process) = &mut place.process else { continue };
                let is_it = process.subprogram.job == job && process.subprogram.index > 0;
                if let Some(rank) = process.rank.as_mut().filter(|_| is_it && left > 0) {
                    rank.program.leaves();
                    left -= 1;
                }
            }
        }
    }

    /// A program does what it must not, if it is there.
    pub(super) fn faults(&mut self, index: usize, number: u64) {
        let now = self.now;
        let places = self.hosts[index].places.iter();
        let process = places.filter_map(|place| place.running(now)).find(|it| it.number == number);
        let Some(rank) = process.and_then(|process| process.rank.as_ref()) else { return };
        rank.pipe.with(|pipes| {
            pipes.to_agent.push_back(ProgramFrame::Matched(vec![0; LIST_MAX + 1]));
        });
        self.act(index, |_, _| {});
    }

    /// The rank returns its work, and ends by itself. Ranks that talk do not.
    pub(super) fn returns(&mut self, index: usize, fence: Fence) {
        let now = self.now;
        let Some(at) = self.hosts[index].place_of(fence) else { return };
        let place = &mut self.hosts[index].places[at];
        let talk = place.guest.as_ref().is_none_or(|guest| talks(&guest.start.spec));
        if talk || place.running(now).is_none() {
            return;
        }
        place.account(now);
        let process = place.process.as_mut().expect("it runs");
        let Some(rank) = &mut process.rank else { return };
        let RankProcess { program, pipe, .. } = rank;
        let returns =
            pipe.with(|pipes| program.retreat(&mut pipes.to_program, &mut pipes.to_agent));
        if returns {
            rank.retreated = true;
            (process.left, process.outcome) = (Duration::from_millis(1), Outcome::Succeeded);
            self.act(index, |_, _| {});
        }
    }
}
