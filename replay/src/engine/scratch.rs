//! Room to work in.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use gleaner_common::reaction::Keep;

use crate::bag::BagScratch;
use crate::places::Places;
use crate::program::{NONE, Program};

/// What an execution works in, to be used again and again: once it is as
/// large as the largest program and lab, an execution allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) ranks: Vec<RankProgress>,
    /// For each rank, the message that it is blocked for.
    pub(super) awaits: Vec<u32>,
    pub(crate) messages: Vec<Message>,
    pub(crate) places: Places,
    /// Ranks without a place, who waits longest first.
    pub(super) waiting: VecDeque<u32>,
    /// Ranks under an owner, by when that began; kept if the model grows.
    pub(super) under_owners: BTreeSet<(u64, u32)>,
    /// Ranks that can run on.
    pub(super) ready: Vec<u32>,
    pub(super) timers: BinaryHeap<Reverse<RankTimer>>,
    pub(crate) records: Vec<PathRecord>,
    /// What a bag needs instead.
    pub(crate) bag: BagScratch,
}

/// Where a rank is, and how far it has run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankProgress {
    /// Everything before this moment has happened to it.
    pub(super) clock: u64,
    /// What is left to compute of its step.
    pub(super) left: u64,
    /// It must not run up to here.
    pub(super) horizon: u64,
    /// Its step, among all of the program's.
    pub(super) at: u32,
    /// The last message that it had to wait for.
    pub(super) binding: u32,
    /// Its newest record.
    pub(super) head: u32,
    pub(super) workstation: u32,
    /// Since when it has been frozen, demoted or waiting.
    pub(super) since: u64,
    /// Its process stays on the workstation that it left until it arrives,
    /// and its owner is there until then; 0 if it does not stay.
    pub(super) held_until: u64,
    /// How it moves.
    pub(super) keep: Keep,
    pub(super) state: RankState,
    pub(super) demoted: bool,
    /// Its work is done and it is at its receive.
    pub(super) blocked: bool,
    /// It has had a workstation before.
    pub(super) placed: bool,
    /// Grows when it is no longer frozen: a timer of before is void.
    pub(super) stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    /// Has not begun.
    NotBegun,
    Waiting,
    Moving,
    /// Computing or blocked, demoted or not.
    Here,
    Frozen,
    /// Has a timer for its end.
    Finishing,
    Gone,
}

/// A message, sent or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// [`UNSENT`] until it is sent.
    pub(crate) arrival: u64,
    /// The last message for which its sender had had to wait.
    pub(crate) cause: u32,
    /// Its sender's newest record when it was sent.
    pub(crate) head: u32,
}

pub(super) const UNSENT: u64 = u64::MAX;

/// Some time of a rank that was not work, or not in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathRecord {
    /// When that ended.
    pub(crate) at: u64,
    pub(crate) amount: u64,
    /// The record before, of the same rank.
    pub(crate) previous: u32,
    pub(crate) kind: PathRecordKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathRecordKind {
    /// The owner returned; takes no time.
    Busy,
    /// Was blocked when the owner returned or left.
    Blocked,
    Waiting,
    Frozen,
    Moving,
    /// Work took longer by that.
    Slowed,
    /// Work was lost.
    Repeated,
}

/// Something that will happen to a rank; in the order in which that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankTimer {
    pub(super) at: u64,
    /// Not a step: everybody runs as far as possible first.
    pub(super) late: bool,
    pub(super) rank: u32,
    pub(super) kind: RankTimerKind,
    pub(super) stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankTimerKind {
    /// For one that must not run ahead.
    Step,
    Begin,
    Arrive,
    Patience,
    Finish,
}

impl Scratch {
    pub(super) fn prepare(&mut self, program: &Program) {
        let steps = program.first.iter().zip(&program.spawner);
        self.ranks.clear();
        self.ranks.extend(steps.map(|(&at, _)| RankProgress {
            clock: 0,
            left: program.steps[at as usize].work,
            horizon: 0,
            at,
            binding: NONE,
            head: NONE,
            workstation: NONE,
            since: 0,
            held_until: 0,
            keep: Keep::RankState,
            state: RankState::NotBegun,
            demoted: false,
            blocked: false,
            placed: false,
            stamp: 0,
        }));
        self.awaits.clear();
        self.awaits.resize(self.ranks.len(), NONE);
        self.messages.clear();
        let unsent = Message { arrival: UNSENT, cause: NONE, head: NONE };
        self.messages.resize(program.ends.len(), unsent);
        self.waiting.clear();
        self.under_owners.clear();
        self.ready.clear();
        self.timers.clear();
        self.records.clear();
    }
}
