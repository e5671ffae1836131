//! The model: a group with a freezer, a keeper, a router, a link, an owner and
//! a coordinator. Each answers what it was asked for, when a walk says so.

mod promises;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId, PlaceId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Limits, OnBusy, StagedFile};
use gleaner_common::program::{Arrival, Destination, Life, RankAt, RankOffer, Ticket};
use gleaner_common::reaction::{Keep, Owner};
use gleaner_common::time::Moment;
use gleaner_common::wire::GuestState;

use super::super::{Event, Exit, GuestAt, KeeperEvent, Look, Place, STOPPED_MAX, Site, Start};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const TIMEOUT: Duration = Duration::from_secs(25);
pub(super) const FENCE: Fence = Fence::of(7);

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what differs between guests")]
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
    /// It is stopped, for too long.
    KeeperStands,
    /// Before it has heard of its guest.
    KeeperIsDying,
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
    /// It was let go.
    going: bool,
    process: Process,
    /// Its keeper died while it ran.
    orphaned: bool,
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
            going: false,
            process: Process::None,
            orphaned: false,
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
        all.extend([Choice::Depart(keep, Fence::of(8)), Choice::Depart(keep, Fence::of(9))]);
        if self.setting.rank {
            all.push(Choice::Depart(Keep::Nothing, Fence::of(9)));
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
            if self.process == Process::Alive {
                all.push(Choice::KeeperStands);
            }
        }
        let launched = self.process == Process::Alive && self.launched > 0;
        let received = self.process == Process::None && self.receives && self.known.is_none();
        let alone = self.carriers == 0 && !self.writing && !self.packs && !self.going;
        let dies = self.asked.contains(&Asked::KeeperDies);
        if alone && !dies && self.spawned == 0 && (launched || received) {
            all.push(Choice::KeeperIsDying);
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
        for (index, asked) in self.asked.iter().enumerate() {
            // The router answers in order.
            if *asked == Asked::Pack && self.asked.iter().position(|it| it == asked) != Some(index)
            {
                continue;
            }
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
                let to = destination(fence);
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
            Choice::KeeperStands => {
                let since = self.now;
                self.keeper_says(KeeperEvent::Stopped { since });
                self.now = self.now + STOPPED_MAX;
                self.keeper_says(KeeperEvent::Stopped { since });
                self.orphaned |= self.process == Process::Killed;
            }
            Choice::KeeperIsDying => {
                let launched = self.process == Process::Alive;
                (self.process, self.launched) = (Process::None, 0);
                self.plugged |= launched && self.setting.rank;
                self.asked.push_back(Asked::KeeperDies);
                self.keeper_says(KeeperEvent::NotBegun { fence: FENCE });
            }
            Choice::SpawnFails => {
                self.forget_keeper();
                let reason = "no namespaces".to_owned();
                self.keeper_says(KeeperEvent::Failed { reason });
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
        self.orphaned |= self.process == Process::Alive;
        self.forget_keeper();
        self.keeper_says(KeeperEvent::Gone);
    }

    /// Nothing more is heard of it.
    fn forget_keeper(&mut self) {
        self.asked.retain(|asked| !matches!(asked, Asked::KeeperDies | Asked::Land));
        (self.keeper, self.going, self.process) = (None, false, Process::None);
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

pub(super) fn destination(fence: Fence) -> Destination {
    let workstation = WorkstationId(2);
    let at = RankAt { rank: 0, fence, workstation, name: "ws2".into(), addresses: vec![] };
    Destination { at, ticket: Ticket([2; 16]), ordered: false }
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
        floor: Fence::of(0),
        cut: setting.cut.then_some(ContentHash([2; 32])),
    };
    Start {
        at: GuestAt { place: PlaceId(0), fence: FENCE },
        subprogram: SubprogramId { job: JobId(1), index: 0 },
        spec: Arc::new(spec),
        limits: Limits { disk_bytes_max: 9, ..Limits::default() },
        gpus: vec![],
        rank: setting.rank.then(|| Box::new(offer)),
        arrival: setting.arrives.then(|| Arrival {
            from: WorkstationId(9),
            name: "ws9".into(),
            old: Fence::of(1),
            ticket: Ticket([9; 16]),
        }),
    }
}
