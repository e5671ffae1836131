//! How a rank runs ahead: the innermost loop.

use crate::observer::{Observer, What};
use crate::program::{NONE, StepEnd};

use super::scratch::{PathRecordKind, RankState, RankTimerKind, UNSENT};
use super::{Engine, WHOLE};

/// How long work takes with a share of the processor.
pub(crate) fn at_share(work: u64, share: u64) -> u64 {
    let took = (u128::from(work) * u128::from(WHOLE)).div_ceil(u128::from(share));
    u64::try_from(took).unwrap_or(u64::MAX)
}

impl<O: Observer> Engine<'_, O> {
    /// Runs a rank until its horizon, a message that is not there, or its end.
    pub(super) fn advance(&mut self, rank: u32) {
        let demoted = self.s.ranks[rank as usize].demoted;
        if demoted || !self.program.delays.is_empty() {
            self.run_ahead::<true>(rank);
        } else {
            self.run_ahead::<false>(rank);
        }
    }

    /// `SLOW`: demoted, or messages take time.
    fn run_ahead<const SLOW: bool>(&mut self, rank: u32) {
        let me = rank as usize;
        let (mut clock, mut left, mut at) =
            (self.s.ranks[me].clock, self.s.ranks[me].left, self.s.ranks[me].at);
        let (horizon, mut binding) = (self.s.ranks[me].horizon, self.s.ranks[me].binding);
        let demoted = SLOW && self.s.ranks[me].demoted;
        // Another rank's end may free a workstation for it to escape to at any
        // moment, so it goes no further than the present.
        let limit = if demoted && self.model.grows { self.now } else { u64::MAX };
        let mut blocked = false;
        loop {
            let step = self.program.steps[at as usize];
            let took = if demoted { at_share(left, self.share) } else { left };
            let done = clock.saturating_add(took);
            if done >= horizon {
                // What is left is settled when the horizon is reached.
                break;
            }
            if SLOW && done > limit {
                self.set_timer(done, rank, RankTimerKind::Step);
                break;
            }
            if demoted && took > 0 {
                self.note(rank, done, took - left, PathRecordKind::Slowed);
                self.tally.shared_computing += u128::from(took);
            }
            (clock, left) = (done, 0);
            match step.kind() {
                StepEnd::Receive => {
                    let arrival = self.s.messages[step.message as usize].arrival;
                    if arrival >= horizon {
                        // The message is not sent yet, or not here before the
                        // horizon.
                        blocked = true;
                        if arrival == UNSENT {
                            self.s.awaits[me] = step.message;
                        }
                        break;
                    }
                    if SLOW && arrival > limit {
                        blocked = true;
                        self.set_timer(arrival, rank, RankTimerKind::Step);
                        break;
                    }
                    if arrival > clock {
                        (clock, binding) = (arrival, step.message);
                    }
                    self.tell(rank, clock, What::Received { message: step.message });
                }
                StepEnd::Send => {
                    self.send::<SLOW>(rank, step.message, clock, binding);
                    let peer = step.peer();
                    if self.s.awaits[peer as usize] == step.message {
                        self.s.awaits[peer as usize] = NONE;
                        self.s.ready.push(peer);
                    }
                }
                StepEnd::Spawn => self.spawn(rank, step.message, clock, binding),
                StepEnd::End => {
                    self.s.ranks[me].state = RankState::Finishing;
                    self.no_longer_stays(rank);
                    self.set_timer(clock, rank, RankTimerKind::Finish);
                    break;
                }
            }
            at += 1;
            left = self.program.steps[at as usize].work;
        }
        let it = &mut self.s.ranks[me];
        (it.clock, it.left, it.at) = (clock, left, at);
        (it.binding, it.blocked) = (binding, blocked);
    }

    /// A rank that did not run ahead has reached the end of its step; or has
    /// left since, or is ready already.
    pub(super) fn steps_on(&mut self, rank: u32) {
        let it = &self.s.ranks[rank as usize];
        if it.state == RankState::Here && it.demoted {
            self.s.ready.push(rank);
        }
    }

    #[inline]
    fn send<const SLOW: bool>(&mut self, rank: u32, message: u32, clock: u64, binding: u32) {
        let head = self.s.ranks[rank as usize].head;
        let delay = if SLOW { self.program.delay(message) } else { 0 };
        let sent = &mut self.s.messages[message as usize];
        (sent.arrival, sent.cause, sent.head) = (clock.saturating_add(delay), binding, head);
        self.tell(rank, clock, What::Sent { message });
    }

    /// Lets another rank begin, now or when the word has reached it.
    #[cold]
    fn spawn(&mut self, rank: u32, message: u32, clock: u64, binding: u32) {
        self.send::<true>(rank, message, clock, binding);
        let (_, spawned) = self.program.ends[message as usize];
        self.tell(rank, clock, What::Spawned { rank: spawned });
        if self.model.spawns {
            let arrival = self.s.messages[message as usize].arrival;
            // The rank's begin is explained by this message alone.
            self.s.ranks[spawned as usize].binding = message;
            self.set_timer(arrival, spawned, RankTimerKind::Begin);
        } else if self.s.awaits[spawned as usize] == message {
            self.s.awaits[spawned as usize] = NONE;
            self.s.ready.push(spawned);
        }
    }

    /// Brings a rank that is here to a moment up to its horizon, where
    /// something is about to change for it.
    pub(super) fn settle(&mut self, rank: u32, now: u64) {
        self.s.awaits[rank as usize] = NONE;
        let it = &mut self.s.ranks[rank as usize];
        let spent = now - it.clock;
        it.clock = now;
        if it.blocked {
            self.note(rank, now, spent, PathRecordKind::Blocked);
        } else if it.demoted {
            let work = u128::from(spent) * u128::from(self.share) / u128::from(WHOLE);
            let work = u64::try_from(work).unwrap_or(u64::MAX).min(it.left);
            it.left -= work;
            self.tally.shared_computing += u128::from(spent);
            self.note(rank, now, spent - work, PathRecordKind::Slowed);
        } else {
            it.left -= spent;
        }
    }
}
