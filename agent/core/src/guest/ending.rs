//! How a guest ends: by itself, by a limit, given up, or before it began.

use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::units::spoken_size;

use super::departure::Trip;
use super::image::Image;
use super::{
    Effect, End, Exit, Guest, NOT_BEGUN, NotHere, Process, STOPPED_MAX, State, Turn, Why, Word,
};

const UNWANTED: &str = "not wanted any more";

/// Why an attempt is lost of which nobody saw the end.
const KEEPER_DIED: &str = "its keeper died";
const KEEPER_STOPPED: &str = "its keeper was stopped, and killed for that";

impl Guest {
    /// Somebody who knows why asks for it: it is abandoned, and its work returned.
    pub(super) fn retreat_as_asked(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::Ending(None) | State::Ended => {}
            State::Arriving | State::Landed => self.refuse(NotHere::Asked, turn),
            _ if self.is_unbegun_rank() => self.refuse(NotHere::Asked, turn),
            State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Leaving { .. }
            | State::Ending(Some(_)) => self.retreat(Why::Asked, turn),
        }
    }

    /// One that begins anew has begun.
    fn is_unbegun_rank(&self) -> bool {
        self.is_rank() && !self.endpoint && matches!(self.process, Process::Preparing { .. })
    }

    pub(super) fn retreat(&mut self, why: Why, turn: &mut Turn<'_>) {
        turn.say(self.fence(), Word::Retreated { why, suspensions: self.clock.suspensions });
        self.give_up(turn);
    }

    pub(super) fn refuse(&mut self, why: NotHere, turn: &mut Turn<'_>) {
        turn.say(self.fence(), Word::Refused(why));
        self.give_up(turn);
    }

    /// Nobody wants to hear of it again.
    pub(super) fn cancel(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.state, State::Ending(None)) {
            self.give_up(turn);
        }
    }

    pub(super) fn give_up(&mut self, turn: &mut Turn<'_>) {
        let mut gone_to = None;
        if let State::Leaving { trip: Trip::Carried(to), .. } = &self.state {
            gone_to = Some(to.at.clone());
        }
        self.enter(turn.now, State::Ending(None));
        self.kill(false, turn);
        if std::mem::take(&mut self.endpoint) {
            turn.order(Effect::DropEndpoint(self.start.at, gone_to));
        }
    }

    /// Kills the guest for a reason of its own; its exit finishes it.
    pub(super) fn end(&mut self, end: End, turn: &mut Turn<'_>) {
        // Nobody would have seen the end of what was killed for its keeper.
        let killed = matches!(self.process, Process::Killed { orphaned: None, .. } | Process::Gone);
        if !killed && !matches!(self.state, State::Ending(_)) {
            self.enter(turn.now, State::Ending(Some(end)));
            self.kill(false, turn);
        }
    }

    /// Ends its processes; does its rank stay, to leave without them?
    pub(super) fn kill(&mut self, stays: bool, turn: &mut Turn<'_>) {
        let at = self.start.at;
        match &mut self.process {
            Process::Arriving(arrival) => {
                let keeper_has_it = arrival.keeper_has_it();
                if arrival.is_clearing() {
                    // What it began with is being killed as it is.
                    return self.process = Process::Killed { stays, orphaned: None };
                }
                turn.order(Effect::Answer(at, Some(UNWANTED.to_owned())));
                if keeper_has_it {
                    self.process = Process::Killed { stays, orphaned: None };
                    turn.order(Effect::Kill(at));
                } else {
                    self.gone_unstarted(turn);
                }
            }
            Process::Alive => {
                // What is killed is not written down, and its router hears of its end.
                self.image = Image::None;
                self.process = Process::Killed { stays, orphaned: None };
                turn.order(Effect::Kill(at));
            }
            Process::Killed { stays: before, .. } => *before &= stays,
            // What becomes of one that prepares is seen when its files lie, or when
            // the keeper before its own is gone.
            Process::Preparing { .. } | Process::Reaping { .. } => {}
            Process::Gone => self.enter(turn.now, State::Ended),
        }
    }

    /// The keeper is dead, and with it everything at this place.
    pub(super) fn keeper_gone(&mut self, turn: &mut Turn<'_>) {
        match self.process {
            Process::Arriving(_) => self.keeper_gone_before_it_came(turn),
            Process::Alive => self.reap(false, Some(KEEPER_DIED), turn),
            Process::Killed { stays, orphaned } => self.reap(stays, orphaned, turn),
            Process::Preparing { laid: true } => self.launch_if_wanted(turn),
            // It gets another keeper when its files lie.
            Process::Preparing { laid: false } | Process::Reaping { .. } | Process::Gone => {}
        }
    }

    /// Its keeper would never say how it ends: it is killed, unless it is about to leave,
    /// which has a time of its own.
    pub(super) fn keeper_stands(&mut self, since: Moment, turn: &mut Turn<'_>) {
        if turn.now.since(since) < STOPPED_MAX {
            return;
        }
        if matches!(self.process, Process::Arriving(_)) {
            return self.not_coming(KEEPER_STOPPED.to_owned(), turn);
        }
        let stays = matches!(
            self.state,
            State::Running | State::Demoted | State::Suspended(_) | State::Retreating { .. }
        );
        let is_alone = self.process == Process::Alive && self.carriers == 0;
        if stays && is_alone {
            self.kill(false, turn);
            self.process = Process::Killed { stays: false, orphaned: Some(KEEPER_STOPPED) };
        }
    }

    pub(super) fn reap(
        &mut self,
        stays: bool,
        orphaned: Option<&'static str>,
        turn: &mut Turn<'_>,
    ) {
        let stays = stays || matches!(self.state, State::Retreating { returned: true, .. });
        self.process = Process::Reaping { stays, orphaned };
        self.image = Image::None;
        let discard = stays || self.state == State::Ending(None);
        let (at, endpoint) = (self.start.at, self.endpoint);
        turn.order(Effect::Reap { at, endpoint, stays, discard });
    }

    /// It is over before it had a process.
    pub(super) fn gone_unstarted(&mut self, turn: &mut Turn<'_>) {
        turn.order(Effect::ClearGround(self.start.at));
        if self.state == State::Ending(None) {
            self.enter(turn.now, State::Ended);
        } else if self.endpoint {
            let stays = matches!(self.state, State::Leaving { .. });
            self.reap(stays, None, turn);
        } else if matches!(self.state, State::Ending(_)) {
            self.exited(Exit::never_ran(), false, turn);
        } else {
            self.never_ran(NOT_BEGUN.to_owned(), false, turn);
        }
    }

    /// It could not be started, and nothing is left of it.
    pub(super) fn never_ran(&mut self, reason: String, hopeless: bool, turn: &mut Turn<'_>) {
        // How its process has ended is being found out, and says more.
        if matches!(self.process, Process::Reaping { .. }) {
            return;
        }
        if self.state != State::Ending(None) {
            turn.say(self.fence(), Word::NotStarted { reason, hopeless });
        }
        if std::mem::take(&mut self.endpoint) {
            turn.order(Effect::DropEndpoint(self.start.at, None));
        }
        turn.order(Effect::ClearGround(self.start.at));
        self.enter(turn.now, State::Ended);
    }

    /// The guest and all its processes are gone; does its rank stay?
    pub(super) fn exited(&mut self, exit: Exit, stays: bool, turn: &mut Turn<'_>) {
        let was_sent = matches!(self.process, Process::Reaping { stays: true, .. });
        let mut lost = None;
        if let Process::Reaping { orphaned, .. } = self.process {
            lost = orphaned.filter(|_| !exit.is_its_doing());
        }
        if stays && exit.left.is_none() {
            turn.order(Effect::Abandon { fence: self.fence() });
        }
        self.process = Process::Gone;
        self.endpoint = false;
        self.count(turn.now);
        let end = match &self.state {
            // Everything has been said.
            State::Ending(None) | State::Ended => None,
            State::Retreating { returned: true, .. }
            | State::Leaving { keep: Keep::Nothing, .. }
                if stays =>
            {
                return self.lost_its_process(turn);
            }
            // It was to leave without its process, and its rank is lost as well.
            State::Leaving { .. } if was_sent && !exit.is_fault() => {
                let suspensions = self.clock.suspensions;
                Some(Word::Retreated { why: Why::OwnerCame, suspensions })
            }
            State::Arriving | State::Landed => Some(Word::Refused(NotHere::Ended)),
            State::Ending(Some(end)) => Some(self.finished(end.clone(), exit)),
            _ if let Some(reason) = lost => Some(self.lost(reason, &exit, turn)),
            State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Leaving { .. } => Some(self.finished(End::Exited, exit)),
        };
        if let Some(end) = end {
            turn.say(self.fence(), end);
        }
        if stays {
            turn.order(Effect::DropEndpoint(self.start.at, None));
        }
        self.enter(turn.now, State::Ended);
    }

    pub(super) fn finished(&self, end: End, exit: Exit) -> Word {
        Word::Finished { end, clock: self.clock, exit: Box::new(exit) }
    }

    /// How it would have ended is not known, and what it left is worth nothing.
    fn lost(&self, reason: &str, exit: &Exit, turn: &mut Turn<'_>) -> Word {
        if exit.left.is_none() {
            turn.order(Effect::Abandon { fence: self.fence() });
        }
        Word::Lost { reason: reason.to_owned(), suspensions: self.clock.suspensions }
    }

    /// Its rank is here without it, and says so.
    pub(super) fn lost_its_process(&mut self, turn: &mut Turn<'_>) {
        self.endpoint = true;
        if !matches!(self.state, State::Leaving { .. }) {
            self.enter(turn.now, State::Leaving { keep: Keep::Nothing, trip: Trip::Wished });
        }
        if matches!(self.state, State::Leaving { trip: Trip::Wished, .. }) {
            self.goes_or_begins(turn);
        }
    }

    pub(super) fn measured(&mut self, disk_bytes: u64, turn: &mut Turn<'_>) {
        let most = self.start.limits.disk_bytes_max;
        if disk_bytes > most {
            self.end(End::OverLimit(format!("disk: at most {}", spoken_size(most))), turn);
        }
    }
}
