//! One rank at this agent: its endpoint, its pipes, its saved states.

use std::time::Duration;

use gleaner_common::frame::FrameError;
use gleaner_common::id::JobId;
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Boundary, Rank};
use gleaner_program_core::endpoint::{Endpoint, PipeRest};
use gleaner_program_core::facts::{End, Stance};
use gleaner_program_core::wire::{AgentFrame, Ask, FromRank, ProgramFrame};

use super::complaints::Complaints;
use super::imaging::{Imaging, Kept};
use super::pace::Pace;
use super::saved_states::States;
use super::shell::{PipeRead, Pipes, Shell};

/// A wait that lasts so long is told: it may be for ever.
const LONG_WAIT: Duration = Duration::from_secs(3);

/// What may be wrong with a rank's pipes.
type PipeError<S> = <<S as Shell>::Pipes as Pipes>::Error;

#[derive(Debug)]
pub(super) struct LocalRank<S: Shell> {
    pub(super) job: JobId,
    pub(super) life: Life,
    pub(super) endpoint: Endpoint,
    pub(super) states: States,
    /// What ended it: the event loop knows.
    pub(super) fault: Option<String>,
    /// The rank was asked to return its work, and has so long.
    pub(super) retreats_within: Option<Duration>,
    /// The rank has returned its work.
    pub(super) retreated: bool,
    /// The rank has asked to be let go.
    pub(super) left: bool,
    /// Said again on every connection.
    pub(super) said: Vec<FromRank>,
    /// The same, of the last snapshot it took part in.
    pub(super) cut: Option<FromRank>,
    pub(super) complaints: Complaints,
    /// Those of its process, if it has one that can be heard.
    pipes: Option<S::Pipes>,
    slabs: S::Slabs,
    /// The rank comes from elsewhere, with that, and is not set going yet.
    pub(super) arriving: Option<Keep>,
    /// What was in the pipes when it was packed.
    pub(super) rest: PipeRest,
    pub(super) imaging: Imaging,
    /// What it can go back to, or why not.
    pub(super) image: Option<Kept<S::Image>>,
    pub(super) no_image: Option<String>,
    pub(super) pace: Pace,
    /// Blocked in a receive since then, and nobody was told.
    waits_since: Option<Moment>,
}

impl<S: Shell> LocalRank<S> {
    pub(super) fn new(job: JobId, life: Life, endpoint: Endpoint, slabs: S::Slabs) -> Self {
        Self {
            job,
            life,
            endpoint,
            states: States::default(),
            fault: None,
            retreats_within: None,
            retreated: false,
            left: false,
            said: vec![],
            cut: None,
            complaints: Complaints::default(),
            pipes: None,
            slabs,
            arriving: None,
            rest: PipeRest::default(),
            imaging: Imaging::Nothing,
            image: None,
            no_image: None,
            pace: Pace::default(),
            waits_since: None,
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.endpoint.rank()
    }

    // ── pipes ──────────────────────────────────────────────────────────────

    /// Gives the rank the pipes of a new process.
    ///
    /// # Errors
    /// They cannot be heard.
    pub(super) fn plug(&mut self, shell: &mut S, ends: S::Ends) -> Result<(), PipeError<S>> {
        self.pipes = Some(shell.plug(self.endpoint.fence(), ends, &self.slabs)?);
        Ok(())
    }

    pub(super) fn unplug(&mut self) {
        self.pipes = None;
        self.states.interrupted();
        self.waits_since = None;
        (self.image, self.imaging) = (None, Imaging::Nothing);
        self.pace = Pace::default();
    }

    /// Takes in what the program has written, at most a buffer of it.
    ///
    /// # Errors
    /// The pipe is sick.
    pub(super) fn fill(&mut self) -> Result<PipeRead, PipeError<S>> {
        self.pipes.as_mut().map_or(Ok(PipeRead::Nothing), Pipes::fill)
    }

    /// The next frame of what was taken in.
    pub(super) fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        self.pipes.as_mut().map_or(Ok(None), Pipes::next_frame)
    }

    /// Did the program end in the middle of a frame?
    pub(super) fn is_cut_off(&self) -> Option<FrameError> {
        self.pipes.as_ref().and_then(Pipes::cut_off)
    }

    pub(super) fn give(&mut self, frame: &AgentFrame) {
        self.waits_since = None;
        if let Some(pipes) = &mut self.pipes {
            pipes.push(frame);
        }
    }

    /// Gives the state that was kept at a boundary.
    pub(super) fn restore(&mut self, boundary: Boundary) {
        let parts = self.states.get(boundary).unwrap_or_default().to_vec();
        let (count, mut frames) = (parts.len(), vec![]);
        for (index, state) in parts.into_iter().enumerate() {
            frames.push(AgentFrame::State { last: index + 1 == count, state });
        }
        if frames.is_empty() {
            frames.push(AgentFrame::State { last: true, state: bytes::Bytes::new() });
        }
        for frame in &frames {
            self.give(frame);
        }
    }

    /// Writes what the pipe takes, and the rest when it has place.
    pub(super) fn flush(&mut self) {
        if let Some(pipes) = &mut self.pipes {
            pipes.flush();
        }
    }

    /// Takes out of the pipes what stands in them: the process does, too. What
    /// it has written whole was read before.
    ///
    /// # Errors
    /// The pipe cannot be emptied from this side.
    pub(super) fn empty_pipes(&mut self) -> Result<&PipeRest, PipeError<S>> {
        self.rest = self.pipes.as_mut().map_or_else(|| Ok(PipeRest::default()), Pipes::empty)?;
        Ok(&self.rest)
    }

    /// Puts back what was taken out of the pipes, here or elsewhere.
    pub(super) fn refill_pipes(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        if let Some(pipes) = &mut self.pipes {
            pipes.refill(rest);
            pipes.flush();
        }
    }

    // ── what it is about ───────────────────────────────────────────────────

    /// The program said something.
    pub(super) fn heard(&mut self, now: Moment, frame: &ProgramFrame) {
        self.waits_since = matches!(frame, ProgramFrame::Waiting { .. }).then_some(now);
        // Nobody refuses a rank that leaves, and it does not wait for an answer.
        self.left |= matches!(frame, ProgramFrame::Ask { ask: Ask::Leave, .. });
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        let told = self.waits_since.map(|since| since + LONG_WAIT);
        [self.endpoint.deadline(), told, self.pace.deadline()].into_iter().flatten().min()
    }

    /// A wait of which the coordinator should know.
    pub(super) fn long_wait(&mut self, now: Moment) -> Option<FromRank> {
        self.waits_since.take_if(|since| now >= *since + LONG_WAIT)?;
        let facts = self.endpoint.facts();
        matches!(facts.stance, Stance::Waits(_)).then_some(FromRank::Facts { asked: None, facts })
    }

    /// What it waits for is told once more, in case nobody heard it.
    pub(super) fn doubt_what_was_told(&mut self, now: Moment) {
        if matches!(self.endpoint.facts().stance, Stance::Waits(_)) {
            self.waits_since.get_or_insert(now);
        }
    }

    /// How it ended, knowing more than the kernel.
    pub(super) fn end(&self, end: End) -> End {
        if self.left && end == End::ExitCode(0) { End::Left } else { end }
    }
}
