//! One rank at this agent: its endpoint, its pipes, its saved states.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use gleaner_common::frame::FrameError;
use gleaner_common::id::JobId;
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Boundary, Rank};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::endpoint::{Endpoint, PipeRest};
use gleaner_program_core::facts::{End, Stance};
use gleaner_program_core::wire::{AgentFrame, Ask, FromRank, ProgramFrame};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::imaging::{Imaging, Kept};
use super::intake::Intake;
use super::pace::Pace;
use super::pipe_watch::{PipeWatch, Source, Watching};
use super::pipes::{Outbox, PipeEnds};
use super::saved_states::States;
use super::slabs::Slabs;

/// A wait that lasts so long is told: it may be for ever.
const LONG_WAIT: Duration = Duration::from_secs(3);

/// The most that is told of what one rank does wrong and may.
const COMPLAINTS_MAX: usize = 64;

/// How much of a pipe is taken out at once.
const READ_BYTES: usize = 64 << 10;

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeRead {
    /// All there was place for: perhaps there is more.
    Much,
    /// All there was at that moment.
    Some,
    Nothing,
    /// The program has closed its end.
    End,
}

#[derive(Debug)]
pub(super) struct LocalRank {
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
    complained: Vec<Complaint>,
    /// The last of those about snapshots, which may go on for as long as it runs.
    missed: Option<Complaint>,
    read: Option<Source>,
    write: Option<OwnedFd>,
    /// Since the pipe was full: it is written again when it has place.
    waits_for_place: Option<Watching>,
    slabs: Slabs,
    intake: Intake<ProgramFrame<u64>>,
    outbox: Outbox,
    /// The rank comes from elsewhere, with that, and is not set going yet.
    pub(super) arriving: Option<Keep>,
    /// What was in the pipes when it was packed.
    rest: PipeRest,
    pub(super) imaging: Imaging,
    /// What it can go back to, or why not.
    pub(super) image: Option<Kept>,
    pub(super) no_image: Option<String>,
    pub(super) pace: Pace,
    /// Blocked in a receive since then, and nobody was told.
    waits_since: Option<Moment>,
}

impl LocalRank {
    pub(super) fn new(job: JobId, life: Life, endpoint: Endpoint, slabs: Slabs) -> Self {
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
            complained: vec![],
            missed: None,
            read: None,
            write: None,
            intake: Intake::default(),
            outbox: Outbox::new(slabs.clone()),
            slabs,
            waits_for_place: None,
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
    /// No room to watch them.
    pub(super) fn plug(&mut self, watch: &PipeWatch, ends: PipeEnds) -> io::Result<()> {
        self.read = Some(watch.listen(self.endpoint.fence(), ends.read)?);
        (self.write, self.waits_for_place) = (Some(ends.write), None);
        self.intake = Intake::default();
        self.outbox.clear();
        Ok(())
    }

    pub(super) fn unplug(&mut self) {
        (self.read, self.write, self.waits_for_place) = (None, None, None);
        self.outbox.clear();
        self.states.interrupted();
        self.waits_since = None;
        (self.image, self.imaging) = (None, Imaging::Nothing);
        self.pace = Pace::default();
    }

    /// Takes in what the program has written, at most a buffer of it.
    ///
    /// # Errors
    /// The pipe is sick.
    pub(super) fn fill(&mut self) -> io::Result<PipeRead> {
        let Some(read) = &self.read else { return Ok(PipeRead::Nothing) };
        let heard = self.intake.fill(read.pipe.get_ref())?;
        if heard == PipeRead::End {
            self.read = None;
        }
        Ok(heard)
    }

    /// The next frame of what was taken in.
    pub(super) fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        self.intake.next_frame(|_| Some(self.slabs.clone()))
    }

    /// Did the program end in the middle of a frame?
    pub(super) fn is_cut_off(&self) -> Option<FrameError> {
        self.intake.cut_off()
    }

    pub(super) fn give(&mut self, frame: &AgentFrame) {
        self.waits_since = None;
        if self.write.is_some()
            && let Err(error) = self.outbox.push(frame)
        {
            tracing::error!(%error, "cannot write a frame for a rank");
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
    pub(super) fn flush(&mut self, watch: &PipeWatch) {
        let Some(write) = &self.write else { return };
        match self.outbox.write(write) {
            Ok(false) if self.waits_for_place.is_none() => {
                match watch.wait_for_place(self.endpoint.fence(), write) {
                    Ok(hearing) => self.waits_for_place = Some(hearing),
                    Err(error) => tracing::error!(%error, "cannot wait for a rank to read"),
                }
            }
            Ok(_) => {}
            // Nobody reads any more: the end of the other pipe says so.
            Err(_) => {
                (self.write, self.waits_for_place) = (None, None);
                self.outbox.clear();
            }
        }
    }

    /// Takes out of the pipes what stands in them: the process does, too. What
    /// it has written whole was read before.
    ///
    /// # Errors
    /// The pipe cannot be emptied from this side.
    pub(super) fn empty_pipes(&mut self) -> io::Result<&PipeRest> {
        let mut unread = vec![];
        if let Some(write) = &self.write {
            // The other end is the program's; the kernel opens it to us as well.
            let path = format!("/proc/self/fd/{}", write.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let read = rustix::fs::open(path, flags, Mode::empty())?;
            loop {
                unread.reserve(READ_BYTES);
                match rustix::io::read(&read, spare_capacity(&mut unread)) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        unread.append(&mut self.outbox.take());
        self.rest = PipeRest { to_program: unread, from_program: self.intake.take_rest() };
        Ok(&self.rest)
    }

    /// Puts back what was taken out of the pipes, here or elsewhere.
    pub(super) fn refill_pipes(&mut self, rest: Option<PipeRest>) {
        let PipeRest { to_program, from_program } =
            rest.unwrap_or_else(|| std::mem::take(&mut self.rest));
        self.outbox.begin_with(to_program);
        if !from_program.is_empty() {
            self.intake = Intake::with_rest(from_program);
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

    /// Is this worth telling? Not twice, and not without end. That it had no
    /// part in a snapshot is said of each, because the coordinator tells what is
    /// news of it; it takes no room from what else may be wrong.
    pub(super) fn complains(&mut self, complaint: &Complaint) -> bool {
        if matches!(complaint, Complaint::NoCut { .. }) {
            let before = self.missed.replace(complaint.clone());
            return before.as_ref() != Some(complaint);
        }
        let new = self.complained.len() < COMPLAINTS_MAX && !self.complained.contains(complaint);
        if new {
            self.complained.push(complaint.clone());
        }
        new
    }

    /// How it ended, knowing more than the kernel.
    pub(super) fn end(&self, end: End) -> End {
        if self.left && end == End::ExitCode(0) { End::Left } else { end }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::Fence;
    use gleaner_program_core::address::Snapshot;
    use gleaner_program_core::endpoint::Config;

    use super::*;

    fn local_rank() -> LocalRank {
        let config = Config {
            rank: Rank(0),
            ranks: 1,
            first: Rank(0),
            members: 1,
            parent: None,
            ranks_max: 1,
            log_bytes_max: 0,
            snapshot: Snapshot(0),
            floor: Fence::of(0),
        };
        LocalRank::new(JobId(1), Life(0), Endpoint::new(config, Fence::of(1)), Slabs::default())
    }

    fn no_cut(snapshot: u32) -> Complaint {
        let because = "it saves no state".to_owned();
        Complaint::NoCut { rank: Rank(0), snapshot: Snapshot(snapshot), because }
    }

    #[test]
    fn missed_snapshots_do_not_crowd_out_what_else_is_wrong() {
        let mut local_rank = local_rank();
        for snapshot in 1..=1_000 {
            assert!(local_rank.complains(&no_cut(snapshot)));
            assert!(!local_rank.complains(&no_cut(snapshot)), "snapshot {snapshot} twice");
        }
        assert!(
            local_rank.complains(&Complaint::EndedInsideMessage { rank: Rank(0), to: Rank(1) })
        );
    }

    #[test]
    fn a_rank_is_not_complained_of_twice_nor_without_end() {
        let mut local_rank = local_rank();
        let full = |bytes_max| Complaint::LogFull { rank: Rank(0), bytes_max };
        let told = (0..1_000).filter(|bytes| local_rank.complains(&full(*bytes))).count();
        assert_eq!(told, COMPLAINTS_MAX);
        assert!(!local_rank.complains(&full(0)));
    }
}
