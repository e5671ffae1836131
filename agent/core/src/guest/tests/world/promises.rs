//! What a place orders and says, carried out in the model, and the promises that
//! must hold meanwhile.

use gleaner_common::job::Reaction;
use gleaner_common::reaction::{Keep, Owner};
use gleaner_common::wire::GuestState;

use super::super::super::{Effect, End, Out, Word};
use super::{Asked, Process, World};

impl World {
    pub(super) fn see(&mut self, out: Out) {
        let place = |wanted: fn(&Effect) -> bool| out.effects.iter().position(wanted);
        let spawned = place(|effect| matches!(effect, Effect::SpawnKeeper { .. }));
        let first = spawned.map_or(0, |at| at + 1);
        let frozen = place(|effect| matches!(effect, Effect::Freeze(_)));
        // Who hurries to the freezer does so before.
        let before = frozen.map_or(&[][..], |at| &out.effects[first.min(at)..at]);
        let soon = before.iter().all(|effect| matches!(effect, Effect::Hurry(_, true)));
        self.is_true(soon, "something else comes before the owner");
        for effect in out.effects {
            self.say(|| {
                let said = format!("  {effect:?}");
                said.split(", subprogram").next().unwrap_or_default().to_owned()
            });
            self.carry_out(effect);
        }
        // One that begins anew says both, so that what it had in hand is returned.
        let stays = out.words.iter().any(|(_, word)| matches!(word, Word::Stays { .. }));
        for (fence, word) in out.words {
            self.say(|| format!("  {fence}: {word:?}"));
            self.hear(&word, stays);
        }
        self.state = self.place.guest().map(|(_, state)| state);
        self.waits &= self.state == Some(GuestState::Suspended);
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(said) = &mut self.said {
            said.push(what());
        }
    }

    pub(super) fn is_true(&self, holds: bool, what: &str) {
        if holds {
            return;
        }
        if let Some(said) = &self.said {
            panic!("{what}\n{:?}\n{}", self.setting, said.join("\n"));
        }
        let mut aloud = Self::begin(self.setting, Some(vec![]));
        for choice in &self.chosen {
            aloud.act(*choice);
        }
        if self.calms {
            aloud.calm();
        }
        unreachable!("it broke before, and not now: {what}");
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each effect")]
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Freeze(_) => {
                self.is_true(!self.frozen, "frozen twice");
                (self.frozen, self.runs_on) = (true, false);
            }
            Effect::Thaw(_) => {
                self.is_true(self.frozen, "thawed twice");
                self.is_true(
                    self.carriers == 0 || self.process != Process::Alive,
                    "thawed on its way",
                );
                self.is_true(
                    !self.writing || self.process != Process::Alive,
                    "thawed for its image",
                );
                self.frozen = false;
            }
            Effect::Hurry(_, hurries) => {
                self.is_true(self.hurries != hurries, "hurried twice");
                self.hurries = hurries;
            }
            Effect::Kill(_) => {
                self.is_true(self.keeper.is_some(), "killed without a keeper");
                self.is_true(self.process != Process::Killed, "killed twice");
                self.is_true(!self.carried || self.may_undo, "destroyed on its way");
                self.process = Process::Killed;
                self.asked.retain(|asked| *asked != Asked::Land);
                self.asked.push_back(Asked::KeeperDies);
            }
            Effect::SpawnKeeper { staged, .. } => {
                self.is_true(self.keeper.is_none(), "two keepers");
                self.is_true(!self.frozen, "a keeper is born frozen");
                self.is_true(!staged || self.setting.moves, "a stage where nothing moves");
                (self.keeper, self.spawned) = (Some(staged), 2);
            }
            Effect::DropKeeper(_) => {
                self.is_true(self.keeper.is_some() && !self.going, "no keeper to drop");
                if self.process != Process::None {
                    self.process = Process::Killed;
                }
                (self.going, self.receives) = (true, false);
                self.asked.retain(|asked| !matches!(asked, Asked::KeeperDies | Asked::Land));
                self.asked.push_back(Asked::KeeperDies);
            }
            Effect::Prepare(_) => {
                self.is_true(self.process == Process::None, "prepared for two");
                (self.prepared, self.laid, self.launched) = (true, true, 2);
            }
            Effect::Expect(_) | Effect::ExpectSnapshot(_) => {
                self.is_true(self.process == Process::None, "expected beside itself");
                (self.prepared, self.laid, self.launched) = (true, true, 2);
                (self.expected, self.header, self.known, self.whole) = (true, false, None, false);
            }
            Effect::LayInputs(_) | Effect::LayRest(_) => {
                self.is_true(self.prepared && !self.asked.contains(&Asked::Lay), "laid twice");
                self.laid = false;
                self.asked.push_back(Asked::Lay);
            }
            Effect::Launch { begins, .. } => {
                let ready = self.keeper.is_some() && !self.going && self.prepared && self.laid;
                self.is_true(ready && !self.cancelled && self.ended == 0, "launched on no ground");
                self.is_true(self.process == Process::None, "two processes");
                self.is_true(begins != self.endpoint || !self.setting.rank, "two endpoints");
                let plugged = std::mem::take(&mut self.plugged);
                self.is_true(begins || plugged || !self.setting.rank, "begun without pipes");
                self.endpoint = self.setting.rank;
                (self.process, self.launched, self.orphaned) = (Process::Alive, 2, false);
            }
            Effect::Reap { stays, endpoint, .. } => {
                self.is_true(self.process == Process::None, "reaped alive");
                self.is_true(
                    !self.asked.iter().any(|it| matches!(it, Asked::Exit { .. })),
                    "reaped twice",
                );
                (self.imaging, self.writing) = (false, false);
                self.asked.push_back(Asked::Exit { stays: stays && endpoint });
            }
            Effect::ClearGround(_) => {
                let nobody = self.process == Process::None;
                self.is_true(nobody || self.keeper.is_some(), "cleared under a guest");
                (self.prepared, self.process) = (false, Process::None);
            }
            Effect::Look(_) if self.asked.contains(&Asked::Look) => {}
            Effect::Look(_) => self.asked.push_back(Asked::Look),
            Effect::Measure(_) | Effect::AskToRetreat { .. } | Effect::Abandon { .. } => {}
            Effect::ReceiveProcess(_) => {
                let frozen = self.frozen && !self.snapshot;
                let here = self.keeper == Some(true) && !self.going;
                let ready = here && self.header && !frozen;
                self.is_true(ready && !self.receives, "no stage for what comes");
                self.receives = true;
            }
            // The router does what it is told in order, and answers later.
            Effect::Unpack(_) => {
                self.is_true(self.setting.rank && !self.endpoint, "unpacked twice");
                (self.endpoint, self.silent, self.plugged) = (true, true, true);
                self.asked.push_back(Asked::Unpack);
            }
            Effect::Land(_) => {
                let twice = self.asked.contains(&Asked::Land) || self.process != Process::None;
                self.is_true(self.receives && self.laid && !twice, "landed twice, or on nothing");
                self.asked.push_back(Asked::Land);
            }
            Effect::Verify(_) => {
                let stands = !self.header || self.process == Process::Stopped;
                let all = stands && self.endpoint == self.setting.rank && self.laid;
                self.is_true(all && self.whole && self.known.is_some(), "not all of it is here");
                self.asked.push_back(Asked::Verify);
            }
            Effect::Answer(_, no) => {
                self.answers += u32::from(!self.snapshot);
                self.is_true(self.answers <= 1, "answered twice");
                self.expected &= no.is_none();
            }
            Effect::SetGoing(_) => {
                self.is_true(self.landed || self.snapshot, "set going before it landed");
                self.is_true(!self.setting.rank || self.silent, "its rank speaks already");
                // Of what lies in a snapshot nobody is told that it has come.
                (self.silent, self.expected) = (false, self.expected && !self.snapshot);
            }
            Effect::GoOn(_) => {
                self.is_true(self.landed || self.snapshot, "goes on before it landed");
                self.is_true(self.process == Process::Stopped, "set going twice");
                self.process = Process::Alive;
            }
            Effect::Pack(..) => {
                let alone = !self.packs && self.endpoint && !self.writing;
                self.is_true(!self.runs() && alone, "packed while it runs, or twice");
                (self.packed, self.packs) = (true, true);
                self.asked.push_back(Asked::Pack);
            }
            Effect::Stayed(_) => {
                let there = self.endpoint || self.snapshot;
                self.is_true(self.packs && there, "stays, and was not to leave");
                (self.packed, self.packs) = (false, false);
            }
            Effect::Carry(departure) => {
                let bare = departure.keep == Keep::Nothing;
                self.is_true(
                    bare || self.frozen && self.process == Process::Alive,
                    "carried while it runs",
                );
                self.is_true(self.packed == self.setting.rank, "carried without its rank");
                let alone = !self.carried && !self.asked.contains(&Asked::Pack);
                self.is_true(alone, "carried twice, or before it is packed");
                self.carriers += 1;
                self.carried = true;
                self.asked.push_back(Asked::Carry);
            }
            Effect::CallBack(_) => {
                self.is_true(self.carried, "nobody carries it");
                self.carried = false;
            }
            Effect::DropEndpoint(_, to) => {
                self.is_true(self.endpoint, "dropped twice");
                self.is_true(to.is_none() || self.carried, "gone to where nobody carries it");
                (self.endpoint, self.packed, self.packs) = (false, false, false);
            }
            Effect::Replug(_) => {
                self.is_true(!self.packs && !self.carried, "begun anew on its way");
                self.plugged = true;
                self.is_true(self.endpoint && self.process == Process::None, "begun beside itself");
                self.packed = false;
            }
            Effect::EmptyPipes(_) => {
                self.is_true(!self.waits, "its image does not wait for the owner");
                self.is_true(
                    self.frozen && self.process == Process::Alive && self.imaging && !self.writing,
                    "its pipes emptied while it runs",
                );
                self.writing = true;
                self.asked.push_back(Asked::EmptyPipes);
            }
            Effect::WriteImage(_) => {
                self.is_true(self.frozen && self.writing, "written down while it runs");
                self.asked.push_back(Asked::WriteImage);
            }
            Effect::ImageEnded { .. } => {
                self.is_true(self.imaging, "an image ended twice");
                (self.imaging, self.writing) = (false, false);
            }
            Effect::Stage { .. }
            | Effect::Discard { .. }
            | Effect::Send(_)
            | Effect::Record(_)
            | Effect::PersistPause(_)
            | Effect::ReadyToSleep
            | Effect::ReadyToStop => unreachable!("not a place's"),
        }
    }

    fn hear(&mut self, word: &Word, stays: bool) {
        match word {
            Word::WantsAway { keep } | Word::Departs { keep } => {
                self.is_true(stays || !self.runs(), "asks while it runs");
                self.wish = Some(*keep);
            }
            Word::Arrived { .. } => {
                self.is_true(!self.landed, "landed twice");
                (self.landed, self.expected) = (true, false);
                self.is_true(self.answers == 1, "arrived, and nobody is told");
            }
            Word::Refused(_)
            | Word::NotStarted { .. }
            | Word::Retreated { .. }
            | Word::Lost { .. } => self.ended += 1,
            Word::Finished { end, .. } => {
                self.ended += 1;
                let seen = !self.orphaned || *end != End::Exited;
                self.is_true(seen, "its keeper's death counts as its own");
            }
            Word::Stays { .. } | Word::CannotLeave { .. } => self.wish = None,
            Word::State(_) => {}
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.process == Process::Alive && !self.frozen
    }

    pub(super) fn check(&self) {
        let demoted = self.setting.on_busy.reaction == Reaction::Renice
            || self.state == Some(GuestState::Demoted) && self.setting.rank;
        let may = self.owner == Owner::Away || demoted && self.owner == Owner::Here;
        self.is_true(may || !self.runs() || self.runs_on, "runs beside its owner");
        self.is_true(!self.packed || !self.runs(), "a packed rank runs");
        self.is_true(!self.runs() || !self.silent, "a rank runs and may not speak");
        let free = matches!(self.state, Some(GuestState::Running | GuestState::Demoted));
        let free = free && self.process == Process::Alive;
        let held = self.carriers > 0 || self.imaging;
        self.is_true(!free || held || !self.frozen, "it runs, and stands still");
        let hurries = held || !free || self.snapshot;
        self.is_true(hurries || !self.hurries, "hurries for nothing");
        let ends = self.ended + u32::from(self.cancelled);
        self.is_true(ends <= 1, "ended twice");
        let here = self.place.guest().is_some();
        self.is_true(here != (ends == 1), "neither here nor ended");
        if self.place.is_free() {
            self.is_true(!self.frozen && !self.hurries, "left frozen");
            self.is_true(self.process == Process::None && !self.going, "left running");
            self.is_true(!self.endpoint, "its endpoint is left");
            let reaps = self.asked.iter().any(|it| matches!(it, Asked::Exit { .. }));
            self.is_true(!reaps, "free before it is reaped");
            let answered = !self.setting.arrives || self.answers == 1;
            self.is_true(answered && !self.expected, "whoever sent it waits for an answer");
        }
    }
}
