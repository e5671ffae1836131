//! Attempts, from the offer to the acknowledged end.
//!
//! ```text
//! offered ─► waiting ─► at a place ─┬─► collected ─┬─► end told ─► acknowledged
//!               │                   │              │
//!               └───────────────────┴──────────────┘  refused, retreated, finished
//! ```

use std::path::Path;
use std::sync::Arc;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::{Fence, JobId, PlaceId, SubprogramId};
use gleaner_common::job::JobSpec;
use gleaner_common::program::{Arrival, RankOffer};
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, AttemptEvent, Blame, Finished, GuestState, Offer};

use super::places::{not_started, refused};
use super::{Agent, Out, WAITING_MAX};
use crate::guest::{self, Effect, Left, Owner};

/// An attempt that was accepted and has not ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) subprogram: SubprogramId,
    pub(super) spec: Arc<JobSpec>,
    pub(super) offered: Moment,
    pub(super) stage: Stage,
    pub(super) rank: Option<Box<RankOffer>>,
    /// Where its state comes from, or came from.
    pub(super) arrival: Option<Arrival>,
    /// What holds of its move, for the coordinator.
    pub(super) word: Option<AttemptEvent>,
    /// The guest's memory, when last looked at.
    pub(super) bytes: u64,
    /// What it left, if that came before it was known how it ended.
    pub(super) collected: Option<Result<Left, String>>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Waiting,
    At(PlaceId),
    /// The guest's processes have ended; what they left is being staged.
    Collecting(Box<Finished>),
}

/// A job whose attempts are offered on this connection.
#[derive(Debug)]
pub(super) struct Job {
    spec: Arc<JobSpec>,
    inputs: Inputs,
    /// No more of it will be offered.
    pub(super) forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inputs {
    Elsewhere,
    OnTheirWay,
    Here,
}

impl Inputs {
    fn of(spec: &JobSpec) -> Self {
        if spec.inputs.is_empty() { Self::Here } else { Self::Elsewhere }
    }
}

impl Agent {
    // ── offers ─────────────────────────────────────────────────────────────

    pub(super) fn described(&mut self, job: JobId, spec: JobSpec) {
        let known = self.jobs.get(&job).filter(|known| *known.spec == spec);
        let inputs = known.map_or(Inputs::of(&spec), |known| known.inputs);
        self.jobs.insert(job, Job { spec: Arc::new(spec), inputs, forgotten: false });
    }

    pub(super) fn forget(&mut self, job: JobId, out: &mut Out) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.forgotten = true;
        }
        self.tidy(job, out);
    }

    /// A new connection: jobs are described again before they are offered. What
    /// was not described on the last one was forgotten while nobody listened.
    pub(super) fn doubt_jobs(&mut self, out: &mut Out) {
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tidy(job, out);
        }
        for job in self.jobs.values_mut() {
            job.forgotten = true;
        }
    }

    /// Lets go of a forgotten job when nothing of it waits any more.
    pub(super) fn tidy(&mut self, job: JobId, out: &mut Out) {
        let waits = |fence| self.attempts.get(fence).is_some_and(|a| a.subprogram.job == job);
        if self.jobs.get(&job).is_none_or(|known| !known.forgotten)
            || self.waiting.iter().any(waits)
        {
            return;
        }
        if let Some(known) = self.jobs.remove(&job)
            && !known.spec.inputs.is_empty()
        {
            out.then.push(Effect::Discard { job });
        }
    }

    pub(super) fn offered(&mut self, now: Moment, offer: &Offer, out: &mut Out) {
        let Offer { fence, subprogram, .. } = *offer;
        self.seen = self.seen.max(fence);
        // Answered already.
        if self.attempts.contains_key(&fence) || self.ends.contains_key(&fence) {
            return;
        }
        // The coordinator has lost the answer: its store went back in time.
        if let Some(end) = self.delivered.take(fence) {
            return self.tell(end, out);
        }
        let spec = match self.judge(now, offer) {
            Ok(spec) => spec,
            Err(reason) => return self.tell(refused(fence, reason), out),
        };
        if let Some(directory) = self.not_shared(&spec) {
            let reason = format!("shared directory {directory} is not offered here");
            let refusal = AttemptEvent::Refused { fence, reason, blame: Blame::Job };
            return self.tell(refusal, out);
        }
        self.newest = fence;
        self.delivered.took(fence, subprogram);
        self.stage(subprogram.job, out);
        let attempt = Attempt {
            subprogram,
            spec,
            offered: now,
            stage: Stage::Waiting,
            rank: offer.rank.clone(),
            arrival: offer.arrival.clone(),
            word: None,
            bytes: 0,
            collected: None,
        };
        self.attempts.insert(fence, attempt);
        self.waiting.push_back(fence);
    }

    /// May it wait for a place here? If not, why not.
    fn judge(&self, now: Moment, offer: &Offer) -> Result<Arc<JobSpec>, String> {
        let Some(job) = self.jobs.get(&offer.subprogram.job) else {
            return Err(format!("job {} was not described", offer.subprogram.job));
        };
        if offer.fence <= self.newest {
            return Err(format!("overtaken by attempt {}", self.newest));
        }
        if self.leaving.is_some() || self.owner != Owner::Away {
            return Err(self.occupancy.verdict(now));
        }
        if let Some(why) = &self.unready {
            return Err(why.clone());
        }
        if self.places.is_empty() {
            return Err("no guest place is configured here".into());
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(format!("{WAITING_MAX} attempts are waiting here already"));
        }
        let lends = self.setup.facts.lends();
        if let Some((asked, has)) = lends.part(job.spec.asked()).lacking(lends).pop() {
            return Err(format!("it asks for {asked}, and {has} are lent here"));
        }
        match job.spec.on_busy.check() {
            Ok(()) => Ok(job.spec.clone()),
            Err(not_here) => Err(not_here.to_string()),
        }
    }

    /// The directory that the job asks for, if it is none of this workstation's.
    fn not_shared<'a>(&self, spec: &'a JobSpec) -> Option<&'a str> {
        let wanted = spec.shared_directory.as_deref()?;
        let mut offered = self.setup.facts.shared_directories.iter();
        (!offered.any(|it| Path::new(wanted).starts_with(it))).then_some(wanted)
    }

    fn stage(&mut self, job: JobId, out: &mut Out) {
        if let Some(known) = self.jobs.get_mut(&job)
            && known.inputs == Inputs::Elsewhere
        {
            known.inputs = Inputs::OnTheirWay;
            out.then.push(Effect::Stage { job, spec: known.spec.clone() });
        }
    }

    pub(super) fn staged(&mut self, job: JobId) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.inputs = Inputs::Here;
        }
    }

    pub(super) fn staging_failed(
        &mut self,
        job: JobId,
        reason: &str,
        hopeless: bool,
        out: &mut Out,
    ) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.inputs = Inputs::of(&known.spec);
        }
        for fence in self.waiting_of(|attempt| attempt.subprogram.job == job) {
            self.end(not_started(fence, reason.to_owned(), hopeless), out);
        }
    }

    /// The oldest attempt whose input files are here and for which there is enough
    /// free; who shares a place needs no more than a seat. What comes with its state
    /// stands still meanwhile: its files may come beside it.
    pub(super) fn next_staged(&self, free: Amounts) -> Option<Fence> {
        let lends = self.setup.facts.lends();
        self.waiting.iter().copied().find(|fence| {
            let Some(attempt) = self.attempts.get(fence) else { return false };
            let rides = self.riders.contains(fence);
            if !rides && !free.covers(lends.part(attempt.spec.asked())) {
                return false;
            }
            let job = self.jobs.get(&attempt.subprogram.job);
            job.is_some_and(|job| job.inputs == Inputs::Here || attempt.arrival.is_some())
        })
    }

    // ── ends ───────────────────────────────────────────────────────────────

    /// Nobody wants this attempt any more: no word of it but that it has stopped.
    pub(super) fn cancel(&mut self, now: Moment, fence: Fence, out: &mut Out) {
        out.send(AgentFrame::Stopped { fence });
        let Some(attempt) = self.attempts.remove(&fence) else { return };
        match attempt.stage {
            Stage::Waiting => self.waiting.retain(|waiting| *waiting != fence),
            Stage::At(place) => {
                let done = self.places[usize::from(place.0)].handle(now, guest::Event::Cancel);
                self.carry_out(done, "", out);
            }
            Stage::Collecting(_) => out.then.push(Effect::Abandon { fence }),
        }
        self.tidy(attempt.subprogram.job, out);
    }

    /// The welcome says which of the held guests are still wanted.
    pub(super) fn keep_only(&mut self, now: Moment, keep: &[Fence], out: &mut Out) {
        let unwanted = self.attempts.keys().copied().filter(|fence| !keep.contains(fence));
        for fence in unwanted.collect::<Vec<_>>() {
            self.cancel(now, fence, out);
        }
    }

    pub(super) fn held(&self) -> Vec<(Fence, GuestState)> {
        self.attempts.iter().map(|(fence, attempt)| (*fence, self.state(attempt))).collect()
    }

    pub(super) fn state(&self, attempt: &Attempt) -> GuestState {
        match attempt.stage {
            Stage::Waiting => GuestState::Waiting,
            Stage::At(place) => self.places[usize::from(place.0)]
                .guest()
                .map_or(GuestState::Running, |(_, state)| state),
            Stage::Collecting(_) => GuestState::Running,
        }
    }

    /// Ends an accepted attempt.
    pub(super) fn end(&mut self, end: AttemptEvent, out: &mut Out) {
        let fence = end.fence();
        let Some(attempt) = self.attempts.remove(&fence) else { return };
        if matches!(attempt.stage, Stage::Waiting) {
            self.waiting.retain(|waiting| *waiting != fence);
        }
        self.tell(end, out);
        self.tidy(attempt.subprogram.job, out);
    }

    /// Tells of an end now and on every connection until it is acknowledged.
    pub(super) fn tell(&mut self, end: AttemptEvent, out: &mut Out) {
        self.ends.insert(end.fence(), end.clone());
        self.report(end, out);
    }

    pub(super) fn report(&self, event: AttemptEvent, out: &mut Out) {
        if self.linked {
            out.send(AgentFrame::Attempt(event));
        }
    }

    pub(super) fn waiting_of(&self, which: impl Fn(&Attempt) -> bool) -> Vec<Fence> {
        let known = |fence: &Fence| self.attempts.get(fence).is_some_and(&which);
        self.waiting.iter().copied().filter(known).collect()
    }
}

impl Attempt {
    pub(super) fn place(&self) -> Option<PlaceId> {
        match self.stage {
            Stage::At(place) => Some(place),
            Stage::Waiting | Stage::Collecting(_) => None,
        }
    }

    /// Does it end with the lease that ends then? One that was offered later
    /// waits for a new lease, and one that has run to its end needs none.
    pub(super) fn is_under(&self, until: Moment) -> bool {
        match self.stage {
            Stage::At(_) => true,
            Stage::Waiting => self.offered < until,
            Stage::Collecting(_) => false,
        }
    }
}
