//! The model: a group with a freezer, a keeper, a router, a link, an owner and
//! a coordinator. Each answers what it was asked for, when a walk says so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId, PlaceId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Limits, OnBusy, Reaction, StagedFile};
use gleaner_common::program::{Arrival, Life, RankAt, RankOffer};
use gleaner_common::reaction::{Keep, Owner};
use gleaner_common::time::Moment;
use gleaner_common::wire::GuestState;

use super::super::{
    Effect, Event, Exit, GuestAt, KeeperEvent, Look, Out, Place, Site, Start, Word,
};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const TIMEOUT: Duration = Duration::from_secs(25);
pub(super) const FENCE: Fence = Fence(7);

#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) on_busy: OnBusy,
    pub(super) rank: bool,
    pub(super) arrives: bool,
    pub(super) inputs: bool,
    /// It begins with its part of a snapshot.
    pub(super) cut: bool,
    pub(super) moves: bool,
    pub(super) timeout: bool,
}

/// Something that was asked for and has not been answered.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Lay,
    KeeperDies,
    Exit { stays: bool },
    Look,
    Pack,
    Carry,
    EmptyPipes,
    WriteImage,
    Unpack,
    Land,
    Verify,
}

/// How a guest's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    None,
    /// Ordered to start or to land, and not seen yet.
    Alive,
    /// Restored, and not told to go on.
    Stopped,
    Killed,
}

/// Something that can happen next.
#[derive(Clone, Debug)]
enum Choice {
    Owner(Owner),
    Depart(Keep, Fence),
    Stay,
    GoOn,
    Cancel,
    Retreat,
    Fault,
    OverLimit,
    Returned,
    ImageWanted,
    HasImage,
    Header {
        pipes: usize,
        lays: bool,
    },
    Known(Keep),
    Whole,
    NotComing,
    Ends,
    KeeperDies,
    CannotStart,
    /// What was ordered just now could not be done.
    SpawnFails,
    LaunchFails,
    /// An answer, good or bad.
    Answers(usize, bool),
    Time,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what can be seen of a place")]
pub(super) struct World {
    setting: Setting,
    place: Place,
    now: Moment,
    owner: Owner,
    /// What was chosen, to be walked again aloud where a promise breaks.
    chosen: Vec<usize>,
    calms: bool,
    /// What is said aloud of it.
    said: Option<Vec<String>>,
    asked: VecDeque<Asked>,
    // The kernel.
    frozen: bool,
    hurries: bool,
    keeper: Option<bool>,
    process: Process,
    prepared: bool,
    laid: bool,
    /// The keeper expects a process.
    receives: bool,
    /// So many events may come before it is heard that this failed.
    spawned: u8,
    launched: u8,
    /// It was let run on for a moment, to be looked into.
    runs_on: bool,
    // The router.
    endpoint: bool,
    packed: bool,
    /// It was asked for its endpoint, and not told that the rank stays.
    packs: bool,
    /// Its rank has come and may not speak.
    silent: bool,
    /// There are pipes for a process that goes with it.
    plugged: bool,
    writing: bool,
    /// An image is wanted, and the router waits for it.
    imaging: bool,
    /// It was wanted of a guest that its owner had stopped, and has not left.
    waits: bool,
    // The link.
    carriers: usize,
    /// Somebody carries it who was not called back.
    carried: bool,
    /// What is answered to whoever sends it.
    answers: u32,
    expected: bool,
    header: bool,
    known: Option<Keep>,
    whole: bool,
    snapshot: bool,
    // The coordinator.
    cancelled: bool,
    ended: u32,
    landed: bool,
    state: Option<GuestState>,
    /// What it wants away with.
    wish: Option<Keep>,
    /// What happens now may undo what is on its way.
    may_undo: bool,
}

impl World {
    pub(super) fn new(setting: Setting) -> Self {
        Self::begin(setting, None)
    }

    fn begin(setting: Setting, said: Option<Vec<String>>) -> Self {
        let moves = if setting.moves { Ok(()) } else { Err("no criu".to_owned()) };
        let site = Site { limits: Limits { disk_bytes_max: 9, ..Limits::default() }, moves };
        let mut world = Self {
            setting,
            place: Place::new(PlaceId(0), Arc::new(site)),
            now: Moment::ZERO + Duration::from_secs(1),
            owner: Owner::Away,
            chosen: vec![],
            calms: false,
            said,
            asked: VecDeque::new(),
            frozen: false,
            hurries: false,
            keeper: None,
            process: Process::None,
            prepared: false,
            laid: false,
            receives: false,
            spawned: 0,
            launched: 0,
            runs_on: false,
            endpoint: false,
            packed: false,
            packs: false,
            silent: false,
            plugged: false,
            writing: false,
            imaging: false,
            waits: false,
            carriers: 0,
            carried: false,
            answers: 0,
            expected: false,
            header: false,
            known: None,
            whole: false,
            snapshot: false,
            cancelled: false,
            ended: 0,
            landed: false,
            state: None,
            wish: None,
            may_undo: false,
        };
        let _ = world.place.turned(world.now, Owner::Away);
        let out = world.place.take(world.now, start(setting));
        world.see(out);
        world
    }

    // ── what can happen ────────────────────────────────────────────────────

    pub(super) fn choices(&self) -> usize {
        self.possible().len()
    }

    fn possible(&self) -> Vec<Choice> {
        // The container looks at once.
        if let Some(index) = self.asked.iter().position(|asked| *asked == Asked::Look) {
            return vec![Choice::Answers(index, true), Choice::Answers(index, false)];
        }
        let mut all = vec![
            Choice::Owner(Owner::Away),
            Choice::Owner(Owner::Here),
            Choice::Owner(Owner::Claims),
            Choice::Time,
        ];
        let keep = self.wish.unwrap_or(Keep::State);
        all.extend([Choice::Stay, Choice::GoOn, Choice::Cancel, Choice::Retreat]);
        all.extend([Choice::Depart(keep, Fence(8)), Choice::Depart(keep, Fence(9))]);
        if self.setting.rank {
            all.push(Choice::Depart(Keep::Nothing, Fence(9)));
        }
        if self.process == Process::Alive {
            // Frozen, it may have been killed, or have ended just before.
            all.extend([Choice::Fault, Choice::OverLimit, Choice::Ends, Choice::CannotStart]);
            if self.setting.rank && self.endpoint {
                all.push(Choice::Returned);
                if !self.imaging {
                    all.push(Choice::ImageWanted);
                }
            }
            if self.setting.cut && !self.snapshot {
                all.push(Choice::HasImage);
            }
        }
        if self.keeper.is_some() && !self.asked.contains(&Asked::KeeperDies) {
            all.push(Choice::KeeperDies);
        }
        if self.keeper.is_some() && self.spawned > 0 {
            all.push(Choice::SpawnFails);
        }
        if self.launched > 0 && !self.place.is_free() {
            all.push(Choice::LaunchFails);
        }
        if self.expected {
            if !self.header && self.known.is_none() {
                let pipes = if self.setting.rank { 2 } else { 0 };
                all.extend([false, true].map(|lays| Choice::Header { pipes, lays }));
                all.push(Choice::Header { pipes: 1, lays: false });
                all.push(Choice::Known(Keep::Nothing));
            }
            if self.header && self.known.is_none() {
                all.push(Choice::Known(if self.snapshot {
                    Keep::SubtaskStart
                } else {
                    Keep::State
                }));
            }
            if self.known.is_some() && !self.whole {
                all.push(Choice::Whole);
            }
            all.push(Choice::NotComing);
        }
        for index in 0..self.asked.len() {
            all.extend([Choice::Answers(index, true), Choice::Answers(index, false)]);
        }
        all
    }

    pub(super) fn act(&mut self, choice: usize) {
        self.chosen.push(choice);
        let choice = self.possible()[choice].clone();
        (self.spawned, self.launched) =
            (self.spawned.saturating_sub(1), self.launched.saturating_sub(1));
        let asked = self.asked.clone();
        self.say(|| format!("{choice:?} {asked:?}"));
        self.may_undo = matches!(
            choice,
            Choice::Cancel
                | Choice::Retreat
                | Choice::Fault
                | Choice::OverLimit
                | Choice::LaunchFails
        );
        match choice {
            Choice::Owner(owner) => {
                self.owner = owner;
                let out = self.place.turned(self.now, owner);
                self.see(out);
            }
            Choice::Depart(keep, fence) => {
                let to = rank_at(fence);
                self.tell(Event::Depart { keep, to });
            }
            Choice::Stay => self.tell(Event::Stay),
            Choice::GoOn => self.tell(Event::GoOn),
            Choice::Cancel => {
                self.cancelled |= self.place.guest().is_some();
                self.tell(Event::Cancel);
            }
            Choice::Retreat => self.tell(Event::Retreat),
            Choice::Fault => self.tell(Event::Faulted("it floods".into())),
            Choice::OverLimit => self.tell(Event::Measured { disk_bytes: 99 }),
            Choice::Returned => self.tell(Event::Returned),
            Choice::ImageWanted => {
                self.imaging = true;
                self.waits = self.state == Some(GuestState::Suspended);
                self.tell(Event::ImageWanted);
            }
            Choice::HasImage => {
                (self.snapshot, self.endpoint, self.imaging) = (true, false, false);
                self.tell(Event::HasImage);
            }
            Choice::Header { pipes, lays } => {
                self.header = true;
                self.tell(Event::Coming);
                self.tell(Event::Header { pipes, lays });
            }
            Choice::Known(keep) => {
                self.known = Some(keep);
                self.tell(Event::Known { keep });
            }
            Choice::Whole => {
                self.whole = true;
                self.tell(Event::Whole { bytes: 9 });
            }
            Choice::NotComing => {
                self.expected = false;
                self.tell(Event::NotComing("the stream broke".into()));
            }
            Choice::Ends => {
                self.process = Process::None;
                let last = self.keeper == Some(true);
                self.keeper_says(KeeperEvent::Ended { last });
            }
            Choice::CannotStart => {
                self.process = Process::None;
                let why = "no such program".to_owned();
                self.keeper_says(KeeperEvent::CannotStart { fence: FENCE, why, hopeless: true });
            }
            Choice::KeeperDies => self.keeper_dies(),
            Choice::SpawnFails => {
                self.forget_keeper();
                self.keeper_says(KeeperEvent::Failed("no namespaces".into()));
            }
            Choice::LaunchFails => {
                (self.process, self.launched) = (Process::None, 0);
                // Nothing was expected, and nobody is to be answered.
                self.answers += u32::from(std::mem::take(&mut self.expected));
                let reason = "no pipes".to_owned();
                self.tell(Event::Failed { reason, hopeless: false });
            }
            Choice::Answers(index, good) => self.answer(index, good),
            Choice::Time => self.pass_time(),
        }
        self.check();
    }

    fn keeper_dies(&mut self) {
        self.forget_keeper();
        self.keeper_says(KeeperEvent::Gone);
    }

    /// Nothing more is heard of it.
    fn forget_keeper(&mut self) {
        self.asked.retain(|asked| !matches!(asked, Asked::KeeperDies | Asked::Land));
        (self.keeper, self.process) = (None, Process::None);
        (self.receives, self.spawned) = (false, 0);
    }

    /// Until the next deadline, or for long.
    fn pass_time(&mut self) {
        let at = self.place.deadline().filter(|at| *at > self.now);
        self.now = at.unwrap_or(self.now + Duration::from_secs(700));
        self.runs_on = false;
        for _ in 0..3 {
            let out = self.place.wake(self.now);
            self.see(out);
        }
        let stays = self.place.deadline().is_some_and(|at| at <= self.now);
        self.is_true(!stays, "a deadline that stays");
    }

    fn answer(&mut self, index: usize, good: bool) {
        let done = if good { Ok(()) } else { Err("it is broken".to_owned()) };
        let asked = self.asked.remove(index).expect("it was asked for");
        match asked {
            Asked::Lay => {
                self.laid = good;
                self.tell(Event::Laid(done));
            }
            Asked::KeeperDies => self.keeper_dies(),
            Asked::Exit { stays } => {
                let stays = stays && good;
                (self.endpoint, self.packs) = (stays, self.packs && stays);
                self.tell(Event::Exited { exit: Box::new(Exit::never_ran()), stays });
            }
            Asked::Look => {
                let look = match (self.frozen && self.process == Process::Alive, good) {
                    (true, true) => Look::Steady,
                    (true, false) => Look::Between,
                    (false, true) => Look::Restless,
                    (false, false) => Look::NotBegun,
                };
                self.runs_on = look == Look::Between;
                self.tell(Event::Looked(look));
            }
            Asked::Pack => {
                self.packed &= good;
                self.tell(Event::Packed(done));
            }
            Asked::Carry => {
                assert!(self.carriers > 0);
                self.carriers -= 1;
                if !good {
                    self.tell(Event::CannotLeave("a socket".into()));
                }
                self.tell(Event::CarryingEnded);
            }
            Asked::EmptyPipes => {
                self.writing = good;
                self.tell(Event::PipesEmptied(done));
            }
            Asked::WriteImage => {
                self.writing = false;
                self.tell(Event::ImageWritten(done));
            }
            Asked::Unpack => self.tell(Event::Unpacked(done)),
            Asked::Land if good => {
                self.process = Process::Stopped;
                self.keeper_says(KeeperEvent::ProcessStands { fence: FENCE });
            }
            Asked::Land => {
                let why = "criu fails".to_owned();
                self.keeper_says(KeeperEvent::CannotStart { fence: FENCE, why, hopeless: false });
            }
            Asked::Verify => self.tell(Event::Verified(done.map(|()| Duration::ZERO))),
        }
    }

    fn tell(&mut self, event: Event) {
        let out = self.place.handle(self.now, event);
        self.see(out);
    }

    fn keeper_says(&mut self, event: KeeperEvent) {
        let out = self.place.keeper_says(self.now, event);
        self.see(out);
    }

    // ── what comes of it ───────────────────────────────────────────────────

    fn see(&mut self, out: Out) {
        let place = |wanted: fn(&Effect) -> bool| out.effects.iter().position(wanted);
        let spawned = place(|effect| matches!(effect, Effect::SpawnKeeper { .. }));
        let first = spawned.map_or(0, |at| at + 1);
        let frozen = place(|effect| matches!(effect, Effect::Freeze(_)));
        // Who hurries to the freezer does so before.
        let soon = frozen.is_none_or(|at| at <= first + 1);
        self.is_true(soon, "something else comes before the owner");
        for effect in out.effects {
            self.say(|| {
                let said = format!("  {effect:?}");
                said.split(", subprogram").next().unwrap_or_default().to_owned()
            });
            self.carry_out(effect);
        }
        // One that begins anew says both, so that what it had in hand is returned.
        let stays = out.words.iter().any(|(_, word)| *word == Word::Stays);
        for (fence, word) in out.words {
            self.say(|| format!("  {fence}: {word:?}"));
            self.hear(&word, stays);
        }
        self.state = self.place.guest().map(|(_, state)| state);
        self.waits &= self.state == Some(GuestState::Suspended);
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(said) = &mut self.said {
            said.push(what());
        }
    }

    fn is_true(&self, holds: bool, what: &str) {
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
                self.is_true(self.keeper.is_some(), "no keeper to drop");
                self.forget_keeper();
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
                let ready = self.keeper.is_some() && self.prepared && self.laid;
                self.is_true(ready && !self.cancelled && self.ended == 0, "launched on no ground");
                self.is_true(self.process == Process::None, "two processes");
                self.is_true(begins != self.endpoint || !self.setting.rank, "two endpoints");
                let plugged = std::mem::take(&mut self.plugged);
                self.is_true(begins || plugged || !self.setting.rank, "begun without pipes");
                self.endpoint = self.setting.rank;
                (self.process, self.launched) = (Process::Alive, 2);
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
            Effect::Measure(_) | Effect::AskToRetreat { .. } => {}
            Effect::ReceiveProcess(_) => {
                let frozen = self.frozen && !self.snapshot;
                let ready = self.keeper == Some(true) && self.header && !frozen;
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
                self.silent = false;
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
            | Effect::Abandon { .. }
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
            | Word::Finished { .. } => self.ended += 1,
            Word::Stays | Word::CannotLeave { .. } => self.wish = None,
            Word::State(_) => {}
        }
    }

    fn runs(&self) -> bool {
        self.process == Process::Alive && !self.frozen
    }

    fn check(&self) {
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
            self.is_true(self.process != Process::Alive, "left running");
            self.is_true(!self.endpoint, "its endpoint is left");
            let reaps = self.asked.iter().any(|it| matches!(it, Asked::Exit { .. }));
            self.is_true(!reaps, "free before it is reaped");
            let answered = !self.setting.arrives || self.answers == 1;
            self.is_true(answered && !self.expected, "whoever sent it waits for an answer");
        }
    }

    /// The owner leaves, everybody answers, and in the end nobody wants it.
    pub(super) fn calm(&mut self) {
        self.calms = true;
        self.say(|| "calm".to_owned());
        self.owner = Owner::Away;
        let out = self.place.turned(self.now, Owner::Away);
        self.see(out);
        self.check();
        for round in 0..60 {
            if self.place.is_free() {
                return self.another();
            }
            if self.asked.is_empty() || round == 40 {
                if round >= 20 && !self.cancelled && self.ended == 0 {
                    (self.cancelled, self.may_undo) = (true, true);
                    self.tell(Event::Cancel);
                } else {
                    // It runs, if it is not waited for.
                    let waits = self.state == Some(GuestState::Waiting) || self.expected;
                    let leaves = self.state == Some(GuestState::Leaving);
                    let well = waits || leaves || self.runs() || self.cancelled || self.ended > 0;
                    self.is_true(well, "it stands for ever");
                    self.is_true(!self.imaging || !self.runs(), "an image is waited for");
                    self.pass_time();
                }
            } else {
                self.answer(0, true);
            }
            self.check();
        }
        self.is_true(self.place.is_free(), "it never ends");
    }

    /// Whatever became of one guest, the next one runs.
    fn another(&mut self) {
        self.asked.clear();
        (self.cancelled, self.ended, self.carriers) = (false, 0, 0);
        (self.carried, self.imaging, self.prepared) = (false, false, false);
        let next = Setting { arrives: false, inputs: false, ..self.setting };
        let out = self.place.take(self.now, start(next));
        self.see(out);
        let runs = self.process == Process::Alive && !self.frozen;
        self.is_true(runs && self.state == Some(GuestState::Running), "the next one does not run");
    }
}

pub(super) fn rank_at(fence: Fence) -> RankAt {
    let workstation = WorkstationId(2);
    RankAt { rank: 0, fence, workstation, name: "ws2".into(), addresses: vec![] }
}

pub(super) fn start(setting: Setting) -> Start {
    let mut spec = JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(1).unwrap());
    spec.on_busy = setting.on_busy;
    spec.timeout = setting.timeout.then_some(TIMEOUT);
    if setting.inputs {
        let hash = ContentHash([1; 32]);
        spec.inputs = vec![StagedFile { path: "x".into(), hash, size_bytes: 1, executable: false }];
    }
    let offer = RankOffer {
        life: Life(0),
        ranks: 2,
        first: 0,
        members: 2,
        parent: None,
        snapshot: 0,
        floor: Fence(0),
        cut: setting.cut.then_some(ContentHash([2; 32])),
    };
    Start {
        at: GuestAt { place: PlaceId(0), fence: FENCE },
        subprogram: SubprogramId { job: JobId(1), index: 0 },
        spec: Arc::new(spec),
        limits: Limits { disk_bytes_max: 9, ..Limits::default() },
        rank: setting.rank.then(|| Box::new(offer)),
        arrival: setting.arrives.then(|| Arrival { from: WorkstationId(9), old: Fence(1) }),
    }
}
