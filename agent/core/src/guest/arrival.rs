//! A guest that comes from elsewhere, or out of a snapshot. The taking in is
//! the shell's; here it is decided what follows what.
//!
//! ```text
//! expected ─► coming ─► header: its keeper prepares ─► known: it lands ─► whole, and it stands ─► landed ─► go on
//!     └──────────┴── not coming, called off, cannot land ─► as if it never came
//! ```

use std::time::Duration;

use gleaner_common::reaction::{Keep, Step};
use gleaner_common::time::Moment;

use super::image::Image;
use super::{Effect, Guest, NOT_BEGUN, Process, State, Turn, Word};

/// How long an expected guest's state may be on its way before anything of it
/// comes: its source must stop it, find the way here and look at it first.
pub const ARRIVAL_WITHIN: Duration = Duration::from_secs(30);

/// A rank talks to its agent through two pipes, and to nobody otherwise.
const RANK_PIPES: usize = 2;

/// How far a guest's arrival is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    stage: Stage,
    process: Coming,
    /// How much came, once all of it did.
    whole: Option<u64>,
    /// It takes the place of the process that it began with here, and goes on
    /// when it is here: nobody else has a say in that.
    from_snapshot: bool,
}

/// Does a process come?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    /// None so far; a rank may come without.
    No,
    /// The keeper before its own is not gone yet.
    Waits,
    /// Its keeper prepares for it, or has it.
    Received,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The process that it began with here is not gone yet.
    Clearing,
    /// Nothing has come; something must until then.
    Expected(Moment),
    Coming,
    /// It is known what comes. Input files are laid that did not come along, or its
    /// keeper is not there yet, and what is known already waits for them.
    Preparing {
        lays: bool,
        known: Option<Keep>,
    },
    /// Everything is here but its memory.
    Landing {
        /// The router has its endpoint, if it is a rank.
        unpacked: bool,
        /// Its process is here, or will be begun anew.
        stands: bool,
    },
    /// It is said to be whole.
    Verifying,
}

impl Arrival {
    pub(super) fn expected(now: Moment) -> Self {
        let stage = Stage::Expected(now + ARRIVAL_WITHIN);
        Self { stage, process: Coming::No, whole: None, from_snapshot: false }
    }

    pub(super) fn keeper_has_it(&self) -> bool {
        self.process == Coming::Received
    }

    pub(super) fn is_clearing(&self) -> bool {
        self.stage == Stage::Clearing
    }

    /// Its keeper is dying and has not heard of it.
    pub(super) fn not_received(&mut self) {
        let lays = match self.stage {
            Stage::Coming => false,
            Stage::Preparing { lays, known: None } => lays,
            // What it had begun with goes, nothing has come, or it is on its way in.
            Stage::Clearing
            | Stage::Expected(_)
            | Stage::Preparing { known: Some(_), .. }
            | Stage::Landing { .. }
            | Stage::Verifying => return,
        };
        if self.keeper_has_it() {
            (self.process, self.stage) = (Coming::Waits, Stage::Preparing { lays, known: None });
        }
    }

    pub(super) fn overdue_at(&self) -> Option<Moment> {
        let Stage::Expected(until) = self.stage else { return None };
        Some(until)
    }
}

impl Guest {
    fn arrival(&mut self) -> Option<&mut Arrival> {
        let Process::Arriving(arrival) = &mut self.process else { return None };
        Some(arrival)
    }

    pub(super) fn coming(&mut self) {
        if let Some(arrival) = self.arrival()
            && matches!(arrival.stage, Stage::Expected(_))
        {
            arrival.stage = Stage::Coming;
        }
    }

    /// A process comes: its keeper makes itself ready for it meanwhile.
    pub(super) fn header(&mut self, pipes: usize, lays: bool, turn: &mut Turn<'_>) {
        let wanted = if self.is_rank() { RANK_PIPES } else { 0 };
        let at = self.start.at;
        let Some(arrival) = self.arrival() else { return };
        if !matches!(arrival.stage, Stage::Expected(_) | Stage::Coming) {
            return;
        }
        if pipes != wanted {
            let reason = format!("it has {pipes} pipes: expected {wanted}");
            return self.not_coming(reason, turn);
        }
        if let Err(reason) = &turn.site.moves {
            return self.not_coming(reason.clone(), turn);
        }
        (arrival.process, arrival.stage) = (Coming::Waits, Stage::Preparing { lays, known: None });
        self.receive(turn);
        if lays {
            turn.order(Effect::LayRest(at));
        }
    }

    /// Has its keeper prepare for it, if that is there.
    fn receive(&mut self, turn: &mut Turn<'_>) {
        let at = self.start.at;
        if let Some(arrival) = self.arrival()
            && turn.has_keeper(true)
        {
            arrival.process = Coming::Received;
            turn.order(Effect::ReceiveProcess(at));
            self.prepared(turn);
        }
    }

    /// Its files lie, and its keeper prepares for it.
    fn prepared(&mut self, turn: &mut Turn<'_>) {
        let Some(arrival) = self.arrival() else { return };
        if let Stage::Preparing { lays: false, known } = arrival.stage
            && arrival.process == Coming::Received
        {
            arrival.stage = Stage::Coming;
            if let Some(keep) = known {
                self.known(keep, turn);
            }
        }
    }

    pub(super) fn keeper_gone_before_it_came(&mut self, turn: &mut Turn<'_>) {
        let Some(arrival) = self.arrival() else { return };
        match (arrival.stage, arrival.process) {
            (Stage::Clearing, _) => {
                arrival.stage = Stage::Coming;
                turn.order(Effect::ClearGround(self.start.at));
                turn.has_keeper(self.is_staged(turn.site));
                turn.order(Effect::ExpectSnapshot(self.start.clone()));
            }
            // One is made when it is known what comes.
            (_, Coming::No) => {}
            (_, Coming::Waits) => self.receive(turn),
            (_, Coming::Received) => self.not_coming("its keeper is gone".to_owned(), turn),
        }
    }

    /// What did not come along is here, or is not to be had.
    pub(super) fn rest_laid(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        let Some(arrival) = self.arrival() else { return };
        let Stage::Preparing { lays, .. } = &mut arrival.stage else { return };
        *lays = false;
        match done {
            Ok(()) => self.prepared(turn),
            Err(reason) => self.not_coming(reason, turn),
        }
    }

    /// It is brought to life, while its memory comes.
    pub(super) fn known(&mut self, keep: Keep, turn: &mut Turn<'_>) {
        let (at, is_rank) = (self.start.at, self.is_rank());
        let Some(arrival) = self.arrival() else { return };
        match &mut arrival.stage {
            Stage::Expected(_) | Stage::Coming => {}
            Stage::Preparing { known, .. } => return *known = Some(keep),
            Stage::Clearing | Stage::Landing { .. } | Stage::Verifying => return,
        }
        let with_process = match (keep, arrival.keeper_has_it(), is_rank) {
            (Keep::State, true, _) | (Keep::SubtaskStart, true, true) => true,
            (Keep::SubtaskStart | Keep::Nothing, false, true) if !arrival.from_snapshot => false,
            (Keep::State | Keep::SubtaskStart | Keep::Nothing, ..) => {
                return self.not_coming("it came without a process".to_owned(), turn);
            }
        };
        arrival.stage = Stage::Landing { unpacked: !is_rank, stands: !with_process };
        if is_rank {
            turn.order(Effect::Unpack(at));
        }
        if with_process {
            turn.order(Effect::Land(at));
        }
        self.endpoint = is_rank;
        self.land(turn);
    }

    /// All of it has come, and is what was sent.
    pub(super) fn whole(&mut self, bytes: u64, turn: &mut Turn<'_>) {
        if let Some(arrival) = self.arrival() {
            arrival.whole = Some(bytes);
            self.land(turn);
        }
    }

    /// The router has its endpoint, or can do nothing with it.
    pub(super) fn unpacked(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        let Some(arrival) = self.arrival() else { return };
        let Stage::Landing { unpacked, .. } = &mut arrival.stage else { return };
        *unpacked = done.is_ok();
        match done {
            Ok(()) => self.land(turn),
            Err(reason) => self.not_coming(reason, turn),
        }
    }

    pub(super) fn process_stands(&mut self, turn: &mut Turn<'_>) {
        if let Some(Arrival { stage: Stage::Landing { stands, .. }, .. }) = self.arrival() {
            *stands = true;
            self.land(turn);
        }
    }

    /// Has everything come together?
    fn land(&mut self, turn: &mut Turn<'_>) {
        let at = self.start.at;
        let Some(arrival) = self.arrival() else { return };
        let all = Stage::Landing { unpacked: true, stands: true };
        if arrival.stage == all && arrival.whole.is_some() {
            arrival.stage = Stage::Verifying;
            turn.order(Effect::Verify(at));
        }
    }

    /// All of it is here, and nothing was wrong with it; or something was.
    pub(super) fn verified(&mut self, done: Result<Duration, String>, turn: &mut Turn<'_>) {
        let at = self.start.at;
        let Some(arrival) = self.arrival() else { return };
        let Arrival { stage: Stage::Verifying, whole: Some(bytes), .. } = *arrival else { return };
        let (keeper_has_it, from_snapshot) = (arrival.keeper_has_it(), arrival.from_snapshot);
        let frozen = match done {
            Ok(frozen) => frozen,
            Err(reason) => return self.not_coming(reason, turn),
        };
        self.process = if keeper_has_it { Process::Alive } else { Process::Gone };
        self.measured = turn.now;
        if from_snapshot {
            turn.order(Effect::SetGoing(at));
            return turn.order(Effect::GoOn(at));
        }
        self.enter(turn.now, State::Landed);
        turn.order(Effect::Answer(at, None));
        turn.say(self.fence(), Word::Arrived { bytes, frozen });
    }

    /// What has landed runs as if it had begun here: what its job says of an
    /// owner who has come meanwhile happens before.
    pub(super) fn go_on(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::Landed {
            return;
        }
        let at = self.start.at;
        self.enter(turn.now, State::Running);
        if matches!(self.process, Process::Reaping { .. }) {
            // It was let go elsewhere and has ended here: that is told as of one that ran.
            return;
        }
        if self.is_rank() {
            turn.order(Effect::SetGoing(at));
        }
        let step = self.terms.on_busy.when(turn.owner);
        if step == Step::Move(Keep::Nothing) && self.is_rank() {
            return self.leave_bare(turn);
        }
        self.follow(step, turn);
        match (&self.state, &self.process) {
            (State::Ending(_) | State::Ended, _) => {}
            (_, Process::Gone) => self.begin(turn),
            _ => turn.order(Effect::GoOn(at)),
        }
    }

    /// It will not come, or cannot be brought to life: the place is as before.
    pub(super) fn not_coming(&mut self, reason: String, turn: &mut Turn<'_>) {
        if self.arrival().is_none_or(|arrival| arrival.is_clearing()) {
            return;
        }
        turn.order(Effect::Answer(self.start.at, Some(reason.clone())));
        // It was for this one, and may know its image.
        turn.keeper.drop_it(&mut turn.out);
        self.never_ran(reason, false, turn);
    }

    /// The snapshot that a rank has begun with holds an image: that takes the
    /// place of its process.
    pub(super) fn begin_with_image(&mut self, turn: &mut Turn<'_>) {
        let has_cut = self.start.rank.as_ref().is_some_and(|rank| rank.cut.is_some());
        if self.process != Process::Alive || self.came || !has_cut {
            return;
        }
        self.came = true;
        self.cannot_leave(NOT_BEGUN.to_owned(), turn);
        (self.image, self.endpoint) = (Image::None, false);
        turn.keeper.drop_it(&mut turn.out);
        let arrival = Arrival::expected(turn.now);
        let arrival = Arrival { stage: Stage::Clearing, from_snapshot: true, ..arrival };
        self.process = Process::Arriving(arrival);
    }
}
