//! A program of ranks, beyond where they are: its lives, what its ranks have
//! asked, who has ended, its snapshots, and who waits for whom.
//!
//! The promise: what a rank was answered stays answered, over restarts of the
//! coordinator too. All that outlives a restart is in [`Past`], which changes
//! only by events that are written down first. Knows nothing of workstations.
//!
//! ```text
//! a rank asks, ends, has its part ──► Happened ──► journal (record), then Past ──► Order
//!                                                       a new life ──► Happened::Began
//! ```

mod negotiating;
mod past;
mod record;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_common::id::{ContentHash, Fence, Generation, WorkstationId};
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::bag;
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::facts::{End, RankFacts};
use gleaner_program_core::snapshots::{self, Snapshots};
use gleaner_program_core::wire::{ASK_BYTES_MAX, Answer, Ask, ToRank};

pub(crate) use past::Past;
use past::Question;
pub(crate) use record::{Ended, Group, ProgramState, Whole};
use record::{Happened, PackedPast};
use waits::Waits;

use crate::negotiation::{Clock, Negotiations};

/// A program whose store went back in time may have begun again so often since, where
/// no clock says more.
const LIVES_LEFT_OUT: u32 = 1_000;

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Write this event down, under this number.
    Journal {
        sequence: u64,
        bytes: Vec<u8>,
    },
    Send {
        rank: Rank,
        what: ToRank,
    },
    SendAll(ToRank),
    /// The program has so many ranks more.
    Spawned {
        count: u32,
    },
    Note(String),
    /// These parts are what the program goes back to.
    Cuts(Vec<ContentHash>),
    /// Nothing of this program needs these parts any more.
    Unneeded(Vec<ContentHash>),
    /// The program asks for so many more processors, or no longer (0).
    Asked {
        more: u32,
        is_answer: bool,
    },
    /// So many were taken, or given up, of what was offered or asked for.
    Answered {
        by: u32,
    },
    /// So many are to be taken from the program.
    Enforce {
        by: u32,
    },
}

/// A journal smaller than this is not written anew. A larger one is, when it
/// has grown to twice its size after the last time: so each event is written
/// three times at most.
const JOURNAL_BYTES_MIN: usize = 1 << 20;

/// What an event takes beside its bytes. A guess.
const EVENT_BYTES: usize = 64;

const NO_SNAPSHOTS: &str = "it uses its bag of tasks, which takes no part in snapshots: none are \
                            taken, and a rank that is lost takes it back to its start";

impl Order {
    /// Is this order carried out even if the life that gave it is over?
    fn outlives_a_life(&self) -> bool {
        let is_of_the_job = matches!(self, Self::Note(_) | Self::Unneeded(_));
        is_of_the_job || matches!(self, Self::Asked { .. } | Self::Answered { .. })
    }
}

#[derive(Debug)]
pub(crate) struct Program {
    spec: ProgramSpec,
    life: Life,
    past: Past,
    /// The number of the next event of this life.
    sequence: u64,
    /// How many bytes the journal takes, and how many its first event does.
    journal_bytes: usize,
    journal_from_bytes: usize,
    snapshots: Option<Snapshots>,
    /// The parts of the snapshot under way, if one is.
    parts: Option<BTreeMap<Rank, ContentHash>>,
    /// The user was told why a snapshot failed, and none was whole since.
    missed: bool,
    waits: Waits,
    negotiations: Negotiations,
    /// Agents that were not told of a rank's place, because they had no rank then.
    pub(crate) missed_places: BTreeSet<WorkstationId>,
    orders: VecDeque<Order>,
}

impl Program {
    /// A program of so many ranks begins.
    pub(crate) fn new(now: Moment, spec: ProgramSpec, ranks: u32, floor: Fence) -> Self {
        let group = Group { first: 0, count: ranks, parent: None };
        let state = ProgramState { floor, groups: vec![group], ..ProgramState::default() };
        let mut program = Self::of(now, spec, Life(1), state.clone());
        program.journal(&Happened::Began(Box::new(state)));
        program
    }

    /// Restores a program from its journal, in order; `None` if that makes no
    /// program.
    pub(crate) fn restore<'a>(
        now: Moment,
        spec: ProgramSpec,
        events: impl Iterator<Item = (Life, &'a [u8])>,
    ) -> Option<Self> {
        let mut program: Option<Self> = None;
        for (life, bytes) in events {
            match (Happened::from_bytes(bytes)?, &mut program) {
                (Happened::Began(state), _) => {
                    program = Some(Self::of(now, spec, life, *state));
                }
                (Happened::AllThis(past), _) => {
                    let mut then = Self::of(now, spec, life, ProgramState::default());
                    then.past = (*past).try_into().ok()?;
                    program = Some(then);
                }
                (happened, Some(program)) => {
                    let _ = program.past.apply(happened);
                }
                (_, None) => return None,
            }
            program.as_mut()?.grow_journal(bytes.len());
        }
        let mut program = program?;
        program.drive_snapshots(now);
        Some(program)
    }

    /// The program is in this life, and nothing else is known of it.
    pub(crate) fn in_life(mut self, life: Life) -> Self {
        self.life = life;
        self.orders.clear();
        self
    }

    fn of(now: Moment, spec: ProgramSpec, life: Life, state: ProgramState) -> Self {
        let mut program = Self {
            spec,
            life,
            past: Past::begin(state),
            sequence: 0,
            journal_bytes: 0,
            journal_from_bytes: 0,
            snapshots: None,
            parts: None,
            missed: false,
            waits: Waits::default(),
            negotiations: Negotiations::default(),
            missed_places: BTreeSet::new(),
            orders: VecDeque::new(),
        };
        program.drive_snapshots(now);
        program
    }

    fn drive_snapshots(&mut self, now: Moment) {
        self.drop_parts();
        let past = &self.past;
        let ranks = (0..past.ranks()).map(Rank);
        let there =
            ranks.filter(|rank| past.state.ended.get(rank).is_none_or(|ended| !ended.drained));
        self.snapshots = self
            .spec
            .checkpoint_every
            .filter(|_| !past.has_used_bag())
            .map(|every| Snapshots::new(now, every, there).after(past.state.newest));
    }

    pub(crate) fn life(&self) -> Life {
        self.life
    }

    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// The most ranks there may be.
    pub(crate) fn ranks_max(&self) -> u32 {
        let first = self.past.state.groups.first().map_or(0, |group| group.count);
        self.spec.ranks_max.max(first)
    }

    /// Takes the first of the orders that were given: what is carried out may bring more,
    /// which come after the others.
    pub(crate) fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    fn journal(&mut self, happened: &Happened) {
        let (sequence, bytes) = (self.sequence, happened.to_bytes());
        self.grow_journal(bytes.len());
        self.orders.push_back(Order::Journal { sequence, bytes });
    }

    fn grow_journal(&mut self, by: usize) {
        self.journal_bytes += by + EVENT_BYTES;
        if self.sequence == 0 {
            self.journal_from_bytes = self.journal_bytes;
        }
        self.sequence += 1;
    }

    /// A long life must not fill the disk, nor take long to be read again.
    fn renew_journal(&mut self) {
        if self.journal_bytes < JOURNAL_BYTES_MIN.max(2 * self.journal_from_bytes) {
            return;
        }
        (self.sequence, self.journal_bytes) = (0, 0);
        let all = Happened::AllThis(Box::new(PackedPast::from(self.past.clone())));
        self.journal(&all);
    }

    /// Writes an event down, and then applies it.
    fn happen(&mut self, happened: Happened) {
        self.journal(&happened);
        let effects = self.past.apply(happened);
        self.bag_effects(effects);
        self.renew_journal();
    }

    fn bag_effects(&mut self, effects: Vec<bag::Effect>) {
        for effect in effects {
            match effect {
                bag::Effect::Answer { rank, request, answer } => {
                    self.answer(rank, request, answer);
                }
                bag::Effect::Accept { .. } => {}
                bag::Effect::GiveUp { task, losses } => self.orders.push_back(Order::Note(
                    format!("{task} was lost {losses} times with the ranks that held it: given up"),
                )),
            }
        }
    }

    fn answer(&mut self, rank: Rank, request: Request, answer: Answer) {
        let what = ToRank::Answered { request, answer };
        self.orders.push_back(Order::Send { rank, what });
    }

    /// A rank asks. `free`: how many more ranks there are places for now.
    pub(crate) fn asked(
        &mut self,
        clock: Clock,
        rank: Rank,
        (request, ask): (Request, Ask),
        free: u32,
    ) {
        let free = free.min(self.ranks_max().saturating_sub(self.past.ranks()));
        match ask {
            // What would be offered to one that asks for all there can be.
            Ask::Processors => self.answer(rank, request, Answer::Processors { count: free }),
            // To give one's own processor back needs nobody's consent.
            Ask::Leave => self.answer(rank, request, Answer::Left),
            Ask::Spawn { .. } | Ask::Negotiate(_) => {
                self.asked_to_negotiate(clock, rank, (request, ask), free);
            }
            Ask::Negotiates => self.negotiates(rank, request),
            Ask::BeginsAnew if !self.past.is_known_to_bag(rank) => {
                self.answer(rank, request, Answer::Returned);
            }
            Ask::Done { result: bytes, .. } | Ask::PutTask { task: bytes }
                if bytes.len() > ASK_BYTES_MAX =>
            {
                let reason = format!("{} bytes: expected at most {ASK_BYTES_MAX}", bytes.len());
                self.answer(rank, request, Answer::Declined { reason });
            }
            Ask::NextTask
            | Ask::Done { .. }
            | Ask::ReturnTask { .. }
            | Ask::PutTask { .. }
            | Ask::CloseBag
            | Ask::NextResult
            | Ask::BeginsAnew => self.asked_bag(rank, request, ask),
        }
    }

    fn asked_bag(&mut self, rank: Rank, request: Request, ask: Ask) {
        match self.past.question(rank, request) {
            Question::New => self.happen(Happened::Asked { rank, request, ask }),
            Question::Again => {
                // The question changes nothing, so nothing is written down.
                let effects = self.past.bag.ask(rank, request, ask);
                self.bag_effects(effects);
            }
            Question::Void => {}
        }
    }

    pub(crate) fn reacts_to_increases(&self) -> bool {
        self.spec.increases
    }

    /// How many ranks more a program with tasks left could make use of. One
    /// without a bag would not know what new ranks are for.
    pub(crate) fn could_add(&self) -> u32 {
        let has_work = self.past.has_used_bag() && !self.past.bag.is_done();
        let could = self.spec.increases && has_work && self.negotiator().is_none();
        if could { self.ranks_max().saturating_sub(self.past.ranks()) } else { 0 }
    }

    /// How many ranks more a program that negotiates may be offered.
    pub(crate) fn could_be_offered(&self) -> u32 {
        let could = self.spec.increases && self.negotiator().is_some();
        if could { self.ranks_max().saturating_sub(self.past.ranks()) } else { 0 }
    }

    /// There is room for so many more, which it takes.
    pub(crate) fn grow(&mut self, room: u32) {
        let count = room.min(self.could_add());
        if count == 0 {
            return;
        }
        let first = Rank(self.past.ranks());
        self.add_ranks(count, Happened::Grew { first, count });
    }

    fn add_ranks(&mut self, count: u32, happened: Happened) {
        self.happen(happened);
        self.orders.push_back(Order::Spawned { count });
        self.orders.push_back(Order::SendAll(ToRank::Ranks(self.past.ranks())));
    }

    /// The spawned ranks exist from now on.
    pub(crate) fn began(&mut self, now: Moment, ranks: impl Iterator<Item = Rank>) {
        for rank in ranks {
            self.drive_snapshot(now, snapshots::Event::Began(rank));
        }
    }

    /// A rank's process is gone: the tasks that it held come back.
    pub(crate) fn gone(&mut self, rank: Rank) {
        if self.past.is_known_to_bag(rank) {
            self.happen(Happened::Gone { rank, lost: false });
        }
    }

    pub(crate) fn ended(
        &mut self,
        clock: Clock,
        rank: Rank,
        (end, snapshot): (End, Snapshot),
        sent: Vec<(Rank, u64)>,
    ) {
        if self.past.state.ended.contains_key(&rank) {
            return;
        }
        let lasts: BTreeMap<Rank, u64> = sent.iter().copied().collect();
        for to in (0..self.past.ranks()).map(Rank).filter(|to| *to != rank) {
            let last = lasts.get(&to).copied().unwrap_or_default();
            let what = ToRank::PeerEnded { rank, snapshot, end, last };
            self.orders.push_back(Order::Send { rank: to, what });
        }
        self.happen(Happened::Ended { rank, end, snapshot, sent });
        self.gone(rank);
        self.negotiator_ended(clock, rank);
        // A rank that waits for any other may wait in vain now.
        self.waits.look_again(clock.now);
    }

    /// What a rank that begins, arrives or is connected again is told: who has
    /// ended, the snapshot that is under way, and what is negotiated with it.
    pub(crate) fn past_for(&self, to: Rank) -> impl Iterator<Item = ToRank> + '_ {
        let others = self.past.state.ended.iter().filter(move |(rank, _)| **rank != to);
        let ended = others.map(move |(&rank, ended)| {
            let &Ended { end, snapshot, .. } = ended;
            ToRank::PeerEnded { rank, snapshot, end, last: ended.last_to(to) }
        });
        let cut = self.parts.as_ref().map(|_| ToRank::Cut(self.past.state.newest));
        ended.chain(cut).chain(self.negotiations.missed_by(to).map(ToRank::Negotiate))
    }

    pub(crate) fn drained(&mut self, now: Moment, rank: Rank) {
        if self.past.state.ended.get(&rank).is_none_or(|ended| ended.drained) {
            return;
        }
        self.happen(Happened::Drained(rank));
        self.drive_snapshot(now, snapshots::Event::Drained(rank));
    }

    /// What the store does not know may have gone on in later lives, whose ranks are
    /// still about: their numbers are left out. A generation is of its second, and
    /// programs do not begin again as often: so it is beyond the lives of all selves of
    /// the store, also if the same copy comes back twice.
    pub(crate) fn leave_lives_out(&mut self, generation: Generation) {
        let is_beyond = generation.0 > self.life.0;
        let beyond = self.life.0.saturating_add(LIVES_LEFT_OUT);
        self.life = Life(if is_beyond { generation.0 } else { beyond });
    }

    /// The program begins a new life, at its last whole snapshot or at its
    /// start. `finished`: the ranks that need not begin again, if they had ended there.
    pub(crate) fn begin_again(
        &mut self,
        now: Moment,
        floor: Fence,
        counts: bool,
        finished: &BTreeSet<Rank>,
    ) {
        self.drop_parts();
        self.abandon_negotiations();
        let state = self.past.again(floor, counts, finished);
        let life = Life(self.life.0 + 1);
        let mut next = Self::of(now, self.spec, life, state.clone());
        next.journal(&Happened::Began(Box::new(state)));
        let parts = next.past.state.whole.as_ref().map(Whole::hashes).unwrap_or_default();
        if let Some(whole) = self.past.state.whole.as_ref().filter(|_| parts.is_empty()) {
            self.orders.push_back(Order::Unneeded(whole.hashes()));
        }
        next.orders.push_back(Order::Cuts(parts));
        // The old life's last orders go first.
        let last = std::mem::take(&mut self.orders).into_iter().filter(Order::outlives_a_life);
        next.orders = last.chain(std::mem::take(&mut next.orders)).collect();
        *self = next;
    }

    /// The program is over. Returns the parts that nobody needs any more.
    pub(crate) fn unneeded_now(&mut self) -> Vec<ContentHash> {
        let under_way = self.parts.take().unwrap_or_default().into_values();
        under_way.chain(self.past.state.whole.iter().flat_map(Whole::hashes)).collect()
    }

    /// The part of the snapshot that this rank begins with. One that is newer than the
    /// program's beginning has a rank as it began, if it has not begun yet.
    pub(crate) fn part(&self, rank: Rank) -> Option<ContentHash> {
        self.past.state.whole.as_ref().and_then(|whole| whole.parts.get(&rank).copied())
    }

    // ── snapshots ──────────────────────────────────────────────────────────

    pub(crate) fn has_part(
        &mut self,
        now: Moment,
        rank: Rank,
        snapshot: Snapshot,
        part: ContentHash,
    ) {
        match &mut self.parts {
            Some(parts) if snapshot == self.past.state.newest => drop(parts.insert(rank, part)),
            Some(_) | None => return,
        }
        self.drive_snapshot(now, snapshots::Event::Kept { rank, snapshot });
    }

    /// A rank is to begin elsewhere: its new endpoint takes no part in the snapshot under
    /// way, and would not begin with what the old one had of it.
    pub(crate) fn never_began(&mut self, now: Moment, rank: Rank) {
        self.has_no_part(now, rank, self.past.state.newest);
    }

    pub(crate) fn has_no_part(&mut self, now: Moment, rank: Rank, snapshot: Snapshot) {
        self.drive_snapshot(now, snapshots::Event::NotKept { rank, snapshot });
    }

    fn drive_snapshot(&mut self, now: Moment, event: snapshots::Event) {
        let effects = self.snapshots.as_mut().map(|snapshots| snapshots.handle(now, event));
        self.snapshot_effects(effects.unwrap_or_default());
    }

    fn snapshot_effects(&mut self, effects: Vec<snapshots::Effect>) {
        for effect in effects {
            match effect {
                snapshots::Effect::Cut(snapshot) => {
                    self.drop_parts();
                    self.parts = Some(BTreeMap::new());
                    self.happen(Happened::CutBegan(snapshot));
                    self.orders.push_back(Order::SendAll(ToRank::Cut(snapshot)));
                }
                snapshots::Effect::Whole(snapshot) => self.is_whole(snapshot),
                snapshots::Effect::Forget(snapshot) if snapshot == self.past.state.newest => {
                    self.drop_parts();
                }
                // What counts is the last whole one, which `past` knows.
                snapshots::Effect::Forget(_) | snapshots::Effect::GoBack(_) => {}
            }
        }
    }

    /// A snapshot is of no use to a program with a bag, which is the
    /// coordinator's and takes no part in it, or if a rank had ended with
    /// messages that nobody has yet, because it would have no process to begin
    /// with: such a program goes back further. Nor is one where a rank had failed,
    /// of which the coordinator is about to hear: it would have failed there, too.
    fn is_whole(&mut self, snapshot: Snapshot) {
        let ended = &self.past.state.ended;
        let had_ended =
            |rank: &Rank| ended.get(rank).is_some_and(|ended| ended.snapshot < snapshot);
        let is_of_use = !self.past.has_used_bag()
            && ended.values().all(Ended::is_well)
            && self.parts.as_ref().is_some_and(|parts| !parts.keys().any(had_ended));
        if !is_of_use {
            return self.drop_parts();
        }
        self.missed = false;
        let parts = self.parts.take().unwrap_or_default();
        self.orders.push_back(Order::Cuts(parts.values().copied().collect()));
        let before = self.past.state.whole.as_ref().map(Whole::hashes).unwrap_or_default();
        let kept: BTreeSet<ContentHash> = parts.values().copied().collect();
        self.unneeded(before.into_iter().filter(|part| !kept.contains(part)).collect());
        self.happen(Happened::Whole { snapshot, parts });
    }

    /// Is this news for the user? What keeps one snapshot from becoming whole
    /// keeps the next, and would drown everything else.
    pub(crate) fn is_news(&mut self, complaint: &Complaint) -> bool {
        !matches!(complaint, Complaint::NoCut { .. }) || !std::mem::replace(&mut self.missed, true)
    }

    /// The snapshot under way comes to nothing, if there is one.
    fn drop_parts(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        let kept = self.past.state.whole.as_ref().map(Whole::hashes).unwrap_or_default();
        let kept: BTreeSet<ContentHash> = kept.into_iter().collect();
        self.unneeded(parts.into_values().filter(|part| !kept.contains(part)).collect());
    }

    fn unneeded(&mut self, parts: Vec<ContentHash>) {
        if !parts.is_empty() {
            self.orders.push_back(Order::Unneeded(parts));
        }
    }

    // ── who waits for whom ─────────────────────────────────────────────────

    /// Takes in what a rank says of its waiting. `live`: the ranks that can be
    /// asked.
    pub(crate) fn facts(
        &mut self,
        now: Moment,
        asked: Option<u64>,
        facts: RankFacts,
        live: &BTreeSet<Rank>,
    ) {
        self.waits.facts(now, asked, facts);
        self.look_at_waits(now, live);
    }

    fn look_at_waits(&mut self, now: Moment, live: &BTreeSet<Rank>) {
        let mut orders = vec![];
        self.waits.go_on(now, &self.past, live, &mut orders);
        self.orders.extend(orders);
    }

    /// When `wake` is due: ask again after every call.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let snapshots = self.snapshots.as_ref().and_then(Snapshots::deadline);
        [self.waits.deadline(), snapshots, self.negotiations.deadline()].into_iter().flatten().min()
    }

    /// Acts on a deadline. `all`: no rank is queued or being carried.
    pub(crate) fn wake(&mut self, clock: Clock, live: &BTreeSet<Rank>, all: bool) {
        let now = clock.now;
        self.wake_negotiations(clock);
        if self.waits.deadline().is_some_and(|at| at <= now) {
            self.look_at_waits(now, live);
        }
        if self.snapshots.as_ref().and_then(Snapshots::deadline).is_none_or(|at| now < at) {
            return;
        }
        if self.past.has_used_bag() {
            // No snapshot would be of any use: see `is_whole`.
            self.drop_parts();
            self.snapshots = None;
            self.orders.push_back(Order::Note(NO_SNAPSHOTS.to_owned()));
        } else if all || self.parts.is_some() {
            let effects = self.snapshots.as_mut().map(|snapshots| snapshots.wake(now));
            self.snapshot_effects(effects.unwrap_or_default());
        } else {
            // The snapshot would fail: a rank without a process has no part.
            self.drive_snapshots(now);
        }
    }
}
