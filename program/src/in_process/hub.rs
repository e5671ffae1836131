//! What the ranks of one process share: their inboxes, the bag, who waits.
//!
//! A rank's inbox is unbounded: a rank that floods another is slowed down by
//! the agents, not here.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gleaner_program_core::address::{Rank, Request};
use gleaner_program_core::bag::{Bag, Effect, Limits};
use gleaner_program_core::negotiation::alone::{self, Alone, Processors};
use gleaner_program_core::negotiation::{Change, Obligation};
use gleaner_program_core::wire::Ask;

use crate::error::{Awaited, Ending, Error};
use crate::live::asking::Asking;
use crate::mailbox::Message;
use crate::transport::{Beginning, Event, Order, Transport};

/// For whoever starts threads.
pub(super) enum Notice {
    Begin(Beginning),
    AllEnded,
}

pub(super) struct Hub {
    state: Mutex<State>,
}

struct State {
    rank_states: Vec<RankState>,
    bag: Bag,
    processors: u32,
    negotiations: Alone,
    /// Ranks that have not ended and do not wait.
    awake: usize,
    deadlock: Option<Error>,
    saved: BTreeMap<u32, Vec<u8>>,
    /// For each rank, after how many tasks it is asked to retreat.
    retreats: BTreeMap<u32, u32>,
    notices: Sender<Notice>,
}

/// What is known of one rank.
struct RankState {
    inbox: VecDeque<Event>,
    asking: Asking,
    waiting: Option<Awaited>,
    ended: bool,
    wake: Arc<Condvar>,
}

impl RankState {
    fn new() -> Self {
        let asking = Asking::new(Request(1));
        Self { inbox: VecDeque::new(), asking, waiting: None, ended: false, wake: Arc::default() }
    }
}

impl Hub {
    pub(super) fn new(
        ranks: u32,
        (processors, offers): (u32, Vec<(Change, Obligation)>),
        retreats: BTreeMap<u32, u32>,
        saved: BTreeMap<u32, Vec<u8>>,
        notices: Sender<Notice>,
    ) -> Self {
        let rank_states: Vec<RankState> = (0..ranks).map(|_| RankState::new()).collect();
        let awake = rank_states.len();
        let limits = Limits { tasks_max: u64::MAX, bytes_max: u64::MAX };
        let (bag, deadlock) = (Bag::new(limits, None), None);
        let negotiations = Alone::new(offers);
        let state = State {
            rank_states,
            bag,
            processors,
            negotiations,
            awake,
            deadlock,
            saved,
            retreats,
            notices,
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way; a rank's own panic is not ours.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rank's thread is about to end.
    pub(super) fn end(&self, rank: u32, ending: &Ending) {
        self.state().end(rank, ending);
    }

    pub(super) fn saved(&self) -> BTreeMap<u32, Vec<u8>> {
        self.state().saved.clone()
    }
}

impl State {
    fn rank_state(&mut self, rank: u32) -> &mut RankState {
        &mut self.rank_states[rank as usize]
    }

    fn push(&mut self, rank: u32, event: Event) {
        let rank_state = self.rank_state(rank);
        if rank_state.ended {
            return;
        }
        rank_state.inbox.push_back(event);
        self.wake(rank);
    }

    /// The rank waits no longer, if it did.
    fn wake(&mut self, rank: u32) {
        let rank_state = self.rank_state(rank);
        if rank_state.waiting.take().is_some() {
            rank_state.wake.notify_one();
            self.awake += 1;
        }
    }

    fn push_to_others(&mut self, rank: u32, event: &Event) {
        let others =
            (0..self.rank_states.len() as u64).filter_map(|other| u32::try_from(other).ok());
        for other in others.filter(|other| *other != rank) {
            self.push(other, event.clone());
        }
    }

    fn carry_out(&mut self, rank: u32, order: Order) -> Result<(), Error> {
        match order {
            Order::Send { to, tag, bytes } => {
                self.push(to, Event::Message(Message { from: rank, tag, bytes, number: 0 }));
            }
            Order::AddTask(task) => return self.ask(rank, Ask::PutTask { task }),
            Order::CloseBag => return self.ask(rank, Ask::CloseBag),
            Order::NextTask => return self.ask(rank, Ask::NextTask),
            Order::NextResult => return self.ask(rank, Ask::NextResult),
            Order::Done { task, result } => {
                return self.ask(rank, Ask::Done { task: task.into(), result });
            }
            Order::ReturnTask(task) => {
                return self.ask(rank, Ask::ReturnTask { task: task.into() });
            }
            Order::Spawn(n) => {
                let spawned = self.spawn(rank, n);
                self.push(rank, Event::Spawned(spawned));
            }
            Order::Processors => {
                let processors = self.processors;
                self.push(rank, Event::Processors(processors));
            }
            Order::Save(state) => {
                self.saved.insert(rank, state);
            }
            // Threads are not gone back with.
            Order::Boundary => {}
            Order::Negotiates => {
                let effects = self.negotiations.negotiates(Rank(rank));
                self.negotiated(effects)?;
            }
            Order::Propose { statement, after } => {
                let asking = &mut self.rank_state(rank).asking;
                let ask = Ask::Negotiate(asking.said(statement, after));
                let (request, _) = asking.ask(&ask)?;
                let there = self.there();
                let effects = self.negotiations.asked(Rank(rank), (request, &ask), there);
                self.negotiated(effects)?;
            }
            Order::Say(said) => {
                let there = self.there();
                let effects = self.negotiations.said(Rank(rank), &said, there);
                self.negotiated(effects)?;
            }
            Order::Leave => self.end(rank, &Ending::Left),
        }
        Ok(())
    }

    fn ask(&mut self, rank: u32, ask: Ask) -> Result<(), Error> {
        let (request, _) = self.rank_state(rank).asking.ask(&ask)?;
        let effects = self.bag.ask(Rank(rank), request, ask);
        self.answer(effects)
    }

    fn answer(&mut self, effects: Vec<Effect>) -> Result<(), Error> {
        for effect in effects {
            let Effect::Answer { rank, request, answer } = effect else { continue };
            let event = self.rank_state(rank.0).asking.answered(request, answer)?;
            if let Some(event) = event {
                self.give(rank.0, event);
            }
        }
        Ok(())
    }

    fn there(&self) -> Processors {
        let next = Rank(u32::try_from(self.rank_states.len()).unwrap_or(u32::MAX));
        Processors { free: self.processors, next }
    }

    fn negotiated(&mut self, effects: Vec<alone::Effect>) -> Result<(), Error> {
        for effect in effects {
            match effect {
                alone::Effect::Tell { rank, said } => self.push(rank.0, Event::Negotiate(said)),
                alone::Effect::Answer { rank, request, answer } => {
                    let event = self.rank_state(rank.0).asking.answered(request, answer)?;
                    if let Some(event) = event {
                        self.give(rank.0, event);
                    }
                }
                alone::Effect::Begin { by, count } => _ = self.spawn(by.0, count)?,
            }
        }
        Ok(())
    }

    fn give(&mut self, rank: u32, event: Event) {
        let is_task = matches!(event, Event::Task(Some(_)));
        self.push(rank, event);
        let Some(left) = self.retreats.get_mut(&rank).filter(|_| is_task) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.retreats.remove(&rank);
            self.push(rank, Event::Retreat);
        }
    }

    fn spawn(&mut self, parent: u32, n: u32) -> Result<Range<u32>, Error> {
        let available = self.processors;
        let first = u32::try_from(self.rank_states.len()).ok();
        let ranks = first.and_then(|first| Some(first..first.checked_add(n)?));
        let Some(ranks) = ranks.filter(|_| n <= available) else {
            return Err(Error::NoProcessors { wanted: n, available });
        };
        self.processors -= n;
        for rank in ranks.clone() {
            let mut rank_state = RankState::new();
            let before = (0_u32..).zip(&self.rank_states);
            let gone = before.filter(|(_, rank_state)| rank_state.ended).map(|(rank, _)| rank);
            let gone = gone.map(|rank| Event::Gone { rank, ending: Ending::Returned });
            rank_state.inbox.extend(gone);
            self.rank_states.push(rank_state);
            self.awake += 1;
            let state = self.saved.get(&rank).cloned();
            let beginning = Beginning { rank, members: ranks.clone(), parent: Some(parent), state };
            // The other end is there until all ranks have ended.
            let _ = self.notices.send(Notice::Begin(beginning));
        }
        let size = ranks.end;
        self.push(parent, Event::Grown { size });
        self.push_to_others(parent, &Event::Grown { size });
        Ok(ranks)
    }

    fn end(&mut self, rank: u32, ending: &Ending) {
        let rank_state = self.rank_state(rank);
        if rank_state.ended {
            return;
        }
        rank_state.ended = true;
        self.awake -= 1;
        self.processors += 1;
        self.push_to_others(rank, &Event::Gone { rank, ending: ending.clone() });
        let freed = self.bag.gone(Rank(rank), false);
        // Answers to what was asked: none of them is out of turn.
        let _ = self.answer(freed);
        let next = self.negotiations.ended(Rank(rank));
        let _ = self.negotiated(next);
        if self.rank_states.iter().all(|rank_state| rank_state.ended) {
            let _ = self.notices.send(Notice::AllEnded);
        }
    }

    /// All who are left wait, and nothing is on its way to any of them.
    fn find_deadlock(&mut self) {
        if self.awake > 0 || self.deadlock.is_some() {
            return;
        }
        let rank_states = (0_u32..).zip(&self.rank_states);
        let waiting = rank_states
            .filter_map(|(rank, rank_state)| Some((rank, rank_state.waiting?)))
            .collect();
        self.deadlock = Some(Error::Deadlock { waiting });
        self.rank_states.iter().for_each(|rank_state| rank_state.wake.notify_one());
    }
}

/// A rank's own end of the hub.
pub(super) struct HubTransport {
    pub(super) rank: u32,
    pub(super) hub: Arc<Hub>,
    pub(super) orders: u64,
}

impl Transport for HubTransport {
    fn order(&mut self, order: Order) -> Result<(), Error> {
        self.orders += 1;
        self.hub.state().carry_out(self.rank, order)
    }

    /// An inbox always has room.
    fn accepted(&mut self, _at_least: u64, _wait: bool) -> Result<u64, Error> {
        Ok(self.orders)
    }

    fn poll(&mut self) -> Result<Option<Event>, Error> {
        Ok(self.hub.state().rank_state(self.rank).inbox.pop_front())
    }

    fn wait(&mut self, awaited: Awaited) -> Result<Event, Error> {
        let mut state = self.hub.state();
        loop {
            // Before the inbox: the first to hear of it may have ended already.
            if let Some(deadlock) = state.deadlock.clone() {
                state.wake(self.rank);
                return Err(deadlock);
            }
            let rank_state = state.rank_state(self.rank);
            if let Some(event) = rank_state.inbox.pop_front() {
                return Ok(event);
            }
            let wake = Arc::clone(&rank_state.wake);
            if rank_state.waiting.replace(awaited).is_none() {
                state.awake -= 1;
            }
            state.find_deadlock();
            if state.deadlock.is_none() {
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
