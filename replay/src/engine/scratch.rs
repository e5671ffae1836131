//! Room to work in.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use gleaner_common::reaction::Keep;
use gleaner_coordinator_core::residence::{Residence, Rules};

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
    /// Ranks without a place; those under an owner only if the model grows.
    pub(super) residence: Residence<(), u32>,
    /// Ranks that the scheduler has not begun yet.
    pub(super) newcomers: VecDeque<u32>,
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
    /// Everything before this moment has happened to the rank.
    pub(super) clock: u64,
    /// What is left to compute of its step.
    pub(super) left: u64,
    /// The rank must not run up to here.
    pub(super) horizon: u64,
    /// The rank's step, among all of the program's.
    pub(super) at: u32,
    /// The last message that the rank had to wait for.
    pub(super) binding: u32,
    /// The rank's newest record.
    pub(super) head: u32,
    pub(super) workstation: u32,
    /// Where the rank's process is while it moves, if it stays there until then.
    pub(super) from: u32,
    /// Since when the rank has been frozen, demoted or waiting.
    pub(super) since: u64,
    /// Until when an owner is at the workstation that the rank left, where its
    /// process stays until it arrives elsewhere; 0 if it does not stay.
    pub(super) held_until: u64,
    /// What the rank keeps when it moves.
    pub(super) keep: Keep,
    pub(super) state: RankState,
    pub(super) demoted: bool,
    /// The step's work is done and the rank is at its receive.
    pub(super) blocked: bool,
    /// The rank has had a workstation before.
    pub(super) placed: bool,
    /// A number that grows when the rank is no longer frozen: a timer with an
    /// older one is void.
    pub(super) stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    /// The rank has not begun.
    NotBegun,
    Waiting,
    Moving,
    /// Computing or blocked, demoted or not.
    Here,
    Frozen,
    /// The rank has a timer for its end.
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
    /// The sender's newest record when the message was sent.
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
    /// The rank was blocked when the owner returned or left.
    Blocked,
    Waiting,
    Frozen,
    Moving,
    /// Work took longer by that much.
    Slowed,
    /// Work was lost.
    Repeated,
}

/// Something that will happen to a rank; in the order in which that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankTimer {
    pub(super) at: u64,
    /// Whether every rank runs as far as possible first: all but steps.
    pub(super) late: bool,
    pub(super) rank: u32,
    pub(super) kind: RankTimerKind,
    pub(super) stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankTimerKind {
    /// The end of a step, for a rank that must not run ahead.
    Step,
    Begin,
    Arrive,
    Patience,
    Finish,
}

impl Scratch {
    pub(super) fn prepare(&mut self, program: &Program, rules: Rules) {
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
            from: NONE,
            since: 0,
            held_until: 0,
            keep: Keep::State,
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
        self.residence.clear(rules);
        self.newcomers.clear();
        self.ready.clear();
        self.timers.clear();
        self.records.clear();
    }
}
