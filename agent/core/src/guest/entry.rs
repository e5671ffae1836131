//! How a guest begins, and begins anew: a keeper, its files, its process.

use gleaner_common::job::{JobSpec, OnBusy, Reaction};
use gleaner_common::reaction::Keep;

use super::arrival::Arrival;
use super::{Effect, Guest, NoImage, Process, Site, State, Turn, Word};

impl Guest {
    /// Into a free place of an owner who is away.
    pub(super) fn enter_place(&mut self, turn: &mut Turn<'_>) {
        if self.start.arrival.is_none() {
            return self.begin(turn);
        }
        self.came = true;
        self.state = State::Arriving;
        self.process = Process::Arriving(Arrival::expected(turn.now));
        // Made ready already, if it can be.
        turn.has_keeper(self.is_staged(turn.site));
        turn.order(Effect::Expect(self.start.clone()));
    }

    /// Its process is started, once its files are here.
    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        turn.has_keeper(self.is_staged(turn.site));
        turn.order(Effect::Prepare(self.start.clone()));
        if self.start.spec.inputs.is_empty() {
            return self.launch(turn);
        }
        self.process = Process::Preparing { laid: false };
        turn.order(Effect::LayInputs(self.start.at));
    }

    fn launch(&mut self, turn: &mut Turn<'_>) {
        if !turn.has_keeper(self.is_staged(turn.site)) {
            return self.process = Process::Preparing { laid: true };
        }
        (self.process, self.measured) = (Process::Alive, turn.now);
        let (at, begins) = (self.start.at, self.is_rank() && !self.endpoint);
        self.endpoint |= begins;
        turn.order(Effect::Launch { at, begins });
    }

    /// Its input files lie where it will find them, or why not.
    pub(super) fn laid(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        match self.process {
            Process::Arriving(_) => self.rest_laid(done, turn),
            Process::Preparing { laid: false } => match done {
                Err(reason) if self.is_wanted() => self.never_ran(reason, false, turn),
                Ok(()) | Err(_) => self.launch_if_wanted(turn),
            },
            Process::Preparing { laid: true }
            | Process::Alive
            | Process::Killed { .. }
            | Process::Reaping { .. }
            | Process::Gone => {}
        }
    }

    /// Or was it killed meanwhile?
    fn is_wanted(&self) -> bool {
        !matches!(self.state, State::Ending(_) | State::Leaving { keep: Keep::Nothing, .. })
    }

    pub(super) fn launch_if_wanted(&mut self, turn: &mut Turn<'_>) {
        if self.is_wanted() { self.launch(turn) } else { self.gone_unstarted(turn) }
    }

    /// Its keeper is dying, and has not heard of it. The death of one that was kept
    /// ready is nothing to the guest: it has another.
    pub(super) fn not_begun(&mut self, turn: &mut Turn<'_>) {
        if !turn.keeper.was_kept() {
            return;
        }
        let stays = matches!(self.state, State::Running | State::Demoted | State::Suspended(_));
        match &mut self.process {
            Process::Arriving(arrival) => arrival.not_received(),
            Process::Alive if stays => {
                self.end_image(Err(NoImage::NotNow), turn);
                self.process = Process::Preparing { laid: true };
            }
            Process::Alive
            | Process::Preparing { .. }
            | Process::Killed { .. }
            | Process::Reaping { .. }
            | Process::Gone => {}
        }
    }

    /// No keeper could be made: of one that was killed meanwhile, none will tell.
    pub(super) fn no_keeper(&mut self, reason: String, turn: &mut Turn<'_>) {
        if matches!(self.process, Process::Arriving(_)) {
            return self.not_coming(reason, turn);
        }
        self.never_ran(reason, false, turn);
    }

    /// Its keeper cannot start it, or bring it to life.
    pub(super) fn cannot_start(&mut self, why: String, hopeless: bool, turn: &mut Turn<'_>) {
        match self.process {
            Process::Arriving(_) => self.not_coming(why, turn),
            Process::Alive => {
                if turn.keeper.is_staged() {
                    // It was for this one.
                    turn.keeper.drop_it(&mut turn.out);
                }
                self.never_ran(why, hopeless, turn);
            }
            Process::Preparing { .. }
            | Process::Killed { .. }
            | Process::Reaping { .. }
            | Process::Gone => {}
        }
    }

    /// A rank that has lost its process, and that nobody has taken, gets another.
    pub(super) fn begin_again(&mut self, turn: &mut Turn<'_>) {
        self.gave_up = false;
        self.cannot.clear();
        self.enter(turn.now, State::Running);
        turn.order(Effect::Replug(self.start.at));
        self.begin(turn);
        turn.say(self.fence(), Word::Stays { keep: Keep::Nothing });
    }

    /// Is its keeper one for guests that can move? Where nothing can, they run
    /// all the same, and return their work.
    pub(super) fn is_staged(&self, site: &Site) -> bool {
        let spec = &self.start.spec;
        // A rank that goes back may go back to an image.
        site.moves.is_ok() && (spec.on_busy.means(Reaction::Migrate) || may_go_back(spec))
    }
}

/// Is anything kept of a job's guests to go back with?
pub fn may_go_back(spec: &JobSpec) -> bool {
    let OnBusy { reaction, then, .. } = spec.on_busy;
    [reaction, then].contains(&Reaction::Rollback)
        || spec.program.is_some_and(|program| program.checkpoint_every.is_some())
}
