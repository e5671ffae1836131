//! A slow simulator, meant to be obviously right: it goes from one moment at
//! which anything can happen to the next, looks at everything each time, and
//! shares no code with the engine but the types it is asked with.
//!
//! The critical path is found forwards: every rank carries the account of the
//! path that led to where it is, and messages carry it on.

mod account;
pub(crate) mod cases;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_common::job::{OnBusy, Patience, Reaction};
use gleaner_common::time::Moment;
use gleaner_common::trace::Op;
use gleaner_coordinator_core::Policy;
use gleaner_coordinator_core::placement::{Candidate, Cost};
use gleaner_replay::{Breakdown, Placement, What};

use account::Account;
use cases::Case;

const SHARE_WHOLE: u64 = 1_000_000;

/// Of policies that look at times only.
const ALIKE: Option<Cost> = None;

/// What happened, to be compared: when, to whom, what. Messages are known by
/// their sender and how many it had sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happened {
    To(What),
    Sent,
    Received { from: u32, nth: u32 },
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) finished: bool,
    pub(crate) end: u64,
    pub(crate) last: u32,
    pub(crate) happened: Vec<Vec<(u64, Happened)>>,
    pub(crate) busy_transitions: u32,
    pub(crate) moves: u32,
    pub(crate) waits: u32,
    pub(crate) used: BTreeSet<u32>,
    pub(crate) path: Breakdown,
    pub(crate) path_busy: u32,
    pub(crate) own: Breakdown,
    pub(crate) useful: u64,
    pub(crate) wasted: u64,
    pub(crate) shared_computing: u64,
    pub(crate) shared_frozen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unborn,
    Waiting,
    Moving { arrives: u64 },
    Computing,
    Blocked,
    Frozen { blocked: bool },
    Done,
    Gone,
}

/// What a rank is at.
#[derive(Debug)]
enum At {
    /// Waiting to be spawned.
    Begin,
    Op(Op),
    End,
}

#[derive(Clone, Debug)]
struct Rank {
    state: State,
    op: usize,
    /// Work left of the operation, if it is work and was begun.
    left: u64,
    begun: bool,
    /// Work of its subtask that is done.
    subtask: u64,
    /// Its subtask's first operation.
    start: usize,
    /// What it sends before this operation was sent already.
    sent_before: usize,
    /// Everything before is accounted for.
    since: u64,
    place: Option<usize>,
    demoted: bool,
    /// When it was demoted, frozen or left without a place.
    stays_since: u64,
    patience_ends: Option<u64>,
    /// It stood at a receive when it was frozen or left.
    was_blocked: bool,
    leaves: Reaction,
    /// When the owner leaves whose workstation still holds its process.
    owner_leaves: Option<u64>,
    begins_at: Option<u64>,
    path: Account,
    own: Account,
    sent: u32,
    useful: u64,
}

impl Rank {
    /// How long its process has been held beside an owner since it left.
    fn held_until(&self, now: u64) -> u64 {
        self.owner_leaves.map_or(0, |leaves| leaves.min(now).saturating_sub(self.stays_since))
    }
}

struct Sent {
    arrival: u64,
    delay: u64,
    from: u32,
    nth: u32,
    path: Account,
}

/// A channel: who sends, who receives, and the tag; none for a spawn.
type Channel = (u32, u32, Option<u32>);

struct Slow<'a> {
    case: &'a Case,
    now: u64,
    ranks: Vec<Rank>,
    /// How many changes of each workstation have happened.
    passed: Vec<usize>,
    guests: Vec<Option<usize>>,
    channels: BTreeMap<Channel, VecDeque<Sent>>,
    spawned_by: BTreeMap<usize, u32>,
    queue: VecDeque<usize>,
    out: Outcome,
}

pub(crate) fn run(case: &Case) -> Outcome {
    let mut spawned_by = BTreeMap::new();
    for (rank, ops) in (0..).zip(&case.trace.ranks) {
        for op in ops {
            if let Op::Spawn { rank: spawned } = op {
                spawned_by.insert(*spawned as usize, rank);
            }
        }
    }
    let ranks = (0..case.trace.ranks.len()).map(|rank| Rank {
        state: State::Unborn,
        op: 0,
        left: 0,
        begun: false,
        subtask: 0,
        start: 0,
        sent_before: 0,
        since: 0,
        place: None,
        demoted: false,
        stays_since: 0,
        patience_ends: None,
        was_blocked: false,
        leaves: Reaction::Renice, // None yet.
        owner_leaves: None,
        begins_at: (!case.model.spawns || !spawned_by.contains_key(&rank))
            .then_some(nanos(case.model.begins)),
        path: Account::default(),
        own: Account::default(),
        sent: 0,
        useful: 0,
    });
    let ranks: Vec<Rank> = ranks.collect();
    let out = Outcome { happened: vec![vec![]; ranks.len()], ..Outcome::default() };
    let guests = vec![None; case.owners.len()];
    let (channels, queue) = (BTreeMap::new(), VecDeque::new());
    let passed = vec![0; case.owners.len()];
    let mut slow = Slow { case, now: 0, ranks, passed, guests, channels, spawned_by, queue, out };
    slow.run();
    slow.out
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

impl Slow<'_> {
    fn run(&mut self) {
        let end = nanos(self.case.span);
        loop {
            if self.ranks.iter().all(|rank| rank.state == State::Gone) {
                self.out.finished = true;
                return;
            }
            let Some(now) = self.next_moment().filter(|now| *now < end) else {
                self.now = end;
                self.break_off();
                return;
            };
            self.now = now;
            for place in 0..self.case.owners.len() {
                if self.next_change(place) == now {
                    self.passed[place] += 1;
                    if self.is_idle(place) {
                        self.turned_idle(place);
                    } else {
                        self.turned_busy(place);
                    }
                }
            }
            self.run_on();
            while self.one_timer() {
                self.run_on();
            }
        }
    }

    /// The next moment at which anything can happen.
    fn next_moment(&self) -> Option<u64> {
        let changes = (0..self.case.owners.len()).map(|place| self.next_change(place));
        let ranks = (0..self.ranks.len()).filter_map(|rank| self.next_of(rank));
        changes.chain(ranks).min()
    }

    fn next_of(&self, rank: usize) -> Option<u64> {
        let it = &self.ranks[rank];
        match it.state {
            State::Unborn => it.begins_at,
            State::Moving { arrives } => Some(arrives),
            State::Computing => Some(it.since + self.time_for(it, it.left)),
            State::Blocked => {
                let arrival = self.oldest(rank)?.arrival;
                Some(arrival.max(self.now))
            }
            State::Frozen { .. } => it.patience_ends,
            State::Waiting | State::Done | State::Gone => None,
        }
    }

    fn time_for(&self, rank: &Rank, work: u64) -> u64 {
        if rank.demoted { (work * SHARE_WHOLE).div_ceil(self.share()) } else { work }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1")]
    fn share(&self) -> u64 {
        (self.case.model.renice_share * SHARE_WHOLE as f64) as u64
    }

    fn is_idle(&self, place: usize) -> bool {
        self.case.owners[place].idle == self.passed[place].is_multiple_of(2)
    }

    /// When the present state of a workstation began; negative before the start.
    fn idle_since(&self, place: usize) -> i64 {
        let owner = &self.case.owners[place];
        let signed = |at: Duration| i64::try_from(nanos(at)).unwrap();
        match self.passed[place].checked_sub(1) {
            Some(last) => signed(owner.changes[last]),
            None => -signed(owner.since),
        }
    }

    fn next_change(&self, place: usize) -> u64 {
        let next = self.case.owners[place].changes.get(self.passed[place]);
        next.map_or(u64::MAX, |at| nanos(*at))
    }

    fn tell(&mut self, rank: usize, happened: Happened) {
        self.out.happened[rank].push((self.now, happened));
    }

    // What a rank does by itself.

    /// Everybody runs as far as possible in this moment.
    fn run_on(&mut self) {
        while (0..self.ranks.len()).any(|rank| self.one_operation(rank)) {}
    }

    /// Ends one operation, if it ends now.
    fn one_operation(&mut self, rank: usize) -> bool {
        match self.ranks[rank].state {
            State::Computing if self.next_of(rank) == Some(self.now) => {
                self.account(rank);
                self.end_operation(rank);
                true
            }
            State::Blocked => self.try_to_receive(rank),
            _ => false,
        }
    }

    /// Its work is done; on to what comes next.
    fn end_operation(&mut self, rank: usize) {
        let me = u32::try_from(rank).unwrap();
        let twice = self.ranks[rank].op < self.ranks[rank].sent_before;
        match self.operation(rank) {
            At::End => {
                self.ranks[rank].state = State::Done;
                return;
            }
            At::Op(Op::Compute { nanos }) if !self.ranks[rank].begun => {
                (self.ranks[rank].left, self.ranks[rank].begun) = (nanos, true);
                return;
            }
            At::Begin | At::Op(Op::Receive { .. }) => {
                self.ranks[rank].state = State::Blocked;
                return;
            }
            At::Op(Op::Compute { .. }) => {}
            At::Op(_) if twice => {}
            At::Op(Op::Send { to, bytes, tag }) => {
                self.send(rank, (me, to, Some(tag)), self.case.delay(bytes));
            }
            At::Op(Op::Spawn { rank: to }) => {
                let delay = self.case.delay(0);
                self.send(rank, (me, to, None), delay);
                self.tell(rank, Happened::To(What::Spawned { rank: to }));
                if self.case.model.spawns {
                    self.ranks[to as usize].begins_at = Some(self.now + delay);
                }
            }
        }
        let it = &mut self.ranks[rank];
        (it.op, it.begun) = (it.op + 1, false);
        it.sent_before = it.sent_before.max(it.op);
    }

    /// What it is at: before its own operations a spawned rank waits for its
    /// spawner.
    fn operation(&self, rank: usize) -> At {
        let it = &self.ranks[rank];
        let before = usize::from(self.spawned_by.contains_key(&rank));
        let Some(own) = it.op.checked_sub(before) else { return At::Begin };
        self.case.trace.ranks[rank].get(own).map_or(At::End, |op| At::Op(*op))
    }

    fn send(&mut self, rank: usize, channel: Channel, delay: u64) {
        let it = &mut self.ranks[rank];
        let sent =
            Sent { arrival: self.now + delay, delay, from: channel.0, nth: it.sent, path: it.path };
        it.sent += 1;
        self.channels.entry(channel).or_default().push_back(sent);
        self.tell(rank, Happened::Sent);
    }

    fn channel(&self, rank: usize) -> Channel {
        let to = u32::try_from(rank).unwrap();
        match self.operation(rank) {
            At::Begin => (self.spawned_by[&rank], to, None),
            At::Op(Op::Receive { from, tag }) => (from, to, Some(tag)),
            other => panic!("blocked at {other:?}"),
        }
    }

    fn oldest(&self, rank: usize) -> Option<&Sent> {
        self.channels.get(&self.channel(rank))?.front()
    }

    fn try_to_receive(&mut self, rank: usize) -> bool {
        if self.oldest(rank).is_none_or(|sent| sent.arrival > self.now) {
            return false;
        }
        let channel = self.channel(rank);
        let sent = self.channels.get_mut(&channel).unwrap().pop_front().unwrap();
        let had_to_wait = sent.arrival > self.ranks[rank].since;
        self.account(rank);
        let it = &mut self.ranks[rank];
        if had_to_wait {
            it.path = sent.path;
            it.path.messages += sent.delay;
        }
        it.state = State::Computing;
        it.op += 1;
        (it.start, it.subtask, it.left, it.begun) = (it.op, 0, 0, false);
        self.tell(rank, Happened::Received { from: sent.from, nth: sent.nth });
        true
    }

    /// Charges the time since the last account to what the rank did.
    fn account(&mut self, rank: usize) {
        let (now, share) = (self.now, self.share());
        let it = &mut self.ranks[rank];
        let spent = now - it.since;
        it.since = now;
        let it_was = it.state;
        let mut add = Account::default();
        match it_was {
            State::Computing => {
                let floor = spent * share / SHARE_WHOLE;
                let work = if it.demoted { floor.min(it.left) } else { spent };
                it.left -= work;
                it.subtask += work;
                it.useful += work;
                add.compute = work;
                add.slowed = spent - work;
                if it.demoted {
                    self.out.shared_computing += spent;
                }
            }
            State::Blocked => add.messages = spent,
            State::Frozen { .. } => {
                add.frozen = spent;
                self.out.shared_frozen += spent;
            }
            State::Waiting => add.waiting = spent,
            State::Moving { .. } => add.moving = spent,
            State::Unborn | State::Done | State::Gone => {}
        }
        it.path += add;
        it.own += add;
    }

    // What owners do.

    fn turned_busy(&mut self, place: usize) {
        if let Some(rank) = self.guests[place]
            && matches!(self.ranks[rank].state, State::Computing | State::Blocked)
        {
            self.account(rank);
            self.owner_is_here(rank, place);
        }
    }

    fn turned_idle(&mut self, place: usize) {
        let Some(rank) = self.guests[place] else {
            self.became_free();
            return;
        };
        if matches!(
            self.ranks[rank].state,
            State::Computing | State::Blocked | State::Frozen { .. }
        ) {
            self.account(rank);
            self.ranks[rank].demoted = false;
            self.ranks[rank].patience_ends = None;
            self.tell(rank, Happened::To(What::Resumed));
            self.go_on(rank);
        }
    }

    fn owner_is_here(&mut self, rank: usize, place: usize) {
        self.out.busy_transitions += 1;
        self.ranks[rank].path.busy += 1;
        let workstation = u32::try_from(place).unwrap();
        self.tell(rank, Happened::To(What::OwnerReturned { workstation }));
        let on_busy: OnBusy = self.case.model.on_busy;
        let it = &mut self.ranks[rank];
        it.was_blocked |= it.state == State::Blocked;
        match on_busy.reaction {
            Reaction::Renice => {
                it.demoted = true;
                it.stays_since = self.now;
                self.tell(rank, Happened::To(What::WasDemoted));
                self.go_on(rank);
            }
            Reaction::Suspend => {
                it.state = State::Frozen { blocked: it.was_blocked };
                it.stays_since = self.now;
                let patience = match on_busy.patience {
                    Patience::Forever => None,
                    Patience::For(span) => Some(span),
                    Patience::ByCost => Some(cost_of(&self.case.model.costs, on_busy.then)),
                };
                it.patience_ends = patience.map(|patience| self.now + nanos(patience));
                self.tell(rank, Happened::To(What::Froze));
            }
            moves => self.leave(rank, moves),
        }
    }

    fn leave(&mut self, rank: usize, how: Reaction) {
        let it = &mut self.ranks[rank];
        if how != Reaction::Migrate && !it.was_blocked {
            let lost = it.subtask;
            (it.op, it.begun, it.subtask, it.left) = (it.start, false, 0, 0);
            it.useful -= lost;
            for account in [&mut it.path, &mut it.own] {
                account.compute -= lost;
                account.repeated += lost;
            }
            self.out.wasted += lost;
            if lost > 0 {
                self.tell(rank, Happened::To(What::Lost { work: lost }));
            }
        }
        let owner_leaves = self.next_change(self.ranks[rank].place.unwrap());
        let it = &mut self.ranks[rank];
        it.leaves = how;
        it.patience_ends = None;
        it.demoted = false;
        it.stays_since = self.now;
        let place = it.place.take().unwrap();
        it.owner_leaves = (how == Reaction::Migrate).then_some(owner_leaves);
        self.guests[place] = None;
        self.seek_place(rank);
    }

    /// Runs on from here and now.
    fn go_on(&mut self, rank: usize) {
        let it = &mut self.ranks[rank];
        it.state = State::Computing;
        it.since = self.now;
        it.was_blocked = false;
        if !it.begun {
            it.left = 0;
        }
    }

    // Who gets which workstation.

    fn free(&self) -> Vec<usize> {
        let places = 0..self.case.owners.len();
        places.filter(|place| self.is_idle(*place) && self.guests[*place].is_none()).collect()
    }

    fn seek_place(&mut self, rank: usize) {
        let free = self.free();
        let i64_of = |at: u64| i64::try_from(at.min(i64::MAX.unsigned_abs())).unwrap();
        let best = free.into_iter().min_by_key(|place| match self.case.model.placement {
            Placement::Core(Policy::LastIdleFirst) => (-self.idle_since(*place), ALIKE, *place),
            Placement::Core(Policy::FirstIdleFirst) => (self.idle_since(*place), ALIKE, *place),
            Placement::Core(Policy::Ranked) => (0, Some(self.cost_of(*place)), *place),
            Placement::Oracle => (-i64_of(self.next_change(*place)), ALIKE, *place),
            Placement::Core(other) => panic!("{other:?} is not compared here"),
        });
        if let Some(place) = best {
            self.take(rank, place);
        } else {
            self.ranks[rank].state = State::Waiting;
            self.ranks[rank].since = self.now;
            self.queue.push_back(rank);
            self.out.waits += 1;
            self.tell(rank, Happened::To(What::Waits));
        }
    }

    /// Quahog's rank is a formula of its own, and is asked.
    fn cost_of(&self, place: usize) -> Cost {
        let now = i64::try_from(self.now).unwrap();
        let idle_for = Duration::from_nanos((now - self.idle_since(place)).unsigned_abs());
        let idle_since = Moment(u64::MAX / 2) - idle_for;
        let machine = &self.case.machines[place];
        let (load_1m, speed) = (machine.loads[self.passed[place]], machine.speed);
        Policy::Ranked.cost(&Candidate { idle_since, idle_for, load_1m, speed, risk: 0.0 })
    }

    /// A workstation became free, the only one if anybody waits.
    fn became_free(&mut self) {
        if let Some(rank) = self.queue.pop_front() {
            let free = self.free();
            assert_eq!(free.len(), 1, "who waits takes the first that becomes free");
            self.account(rank);
            self.take(rank, free[0]);
        } else if self.case.model.grows {
            let stays = |rank: &usize| {
                let it = &self.ranks[*rank];
                let here = matches!(it.state, State::Computing | State::Blocked);
                matches!(it.state, State::Frozen { .. }) || here && it.demoted
            };
            let longest = |rank: &usize| (self.ranks[*rank].stays_since, *rank);
            if let Some(rank) = (0..self.ranks.len()).filter(stays).min_by_key(longest) {
                self.account(rank);
                let it = &mut self.ranks[rank];
                it.was_blocked |= it.state == State::Blocked;
                self.leave(rank, Reaction::Migrate);
            }
        }
    }

    fn take(&mut self, rank: usize, place: usize) {
        let workstation = u32::try_from(place).unwrap();
        self.guests[place] = Some(rank);
        self.out.used.insert(workstation);
        let it = &mut self.ranks[rank];
        it.place = Some(place);
        if it.leaves == Reaction::Renice {
            it.leaves = Reaction::Migrate;
            self.tell(rank, Happened::To(What::Began { workstation }));
            self.go_on(rank);
            return;
        }
        let cost = nanos(cost_of(&self.case.model.costs, it.leaves));
        let arrives = self.now + cost;
        (it.state, it.since) = (State::Moving { arrives }, self.now);
        let held = it.held_until(arrives.min(nanos(self.case.span)));
        self.out.moves += 1;
        self.tell(rank, Happened::To(What::Moves { to: workstation, until: arrives }));
        self.out.shared_frozen += held;
    }

    // Timers.

    fn one_timer(&mut self) -> bool {
        let due = |rank: &usize| {
            let it = &self.ranks[*rank];
            it.state == State::Done
                || !matches!(it.state, State::Computing | State::Blocked)
                    && self.next_of(*rank) == Some(self.now)
        };
        let Some(rank) = (0..self.ranks.len()).find(due) else { return false };
        match self.ranks[rank].state {
            State::Unborn => self.begins(rank),
            State::Moving { .. } => self.arrives(rank),
            State::Frozen { blocked } => {
                self.account(rank);
                self.ranks[rank].was_blocked = blocked;
                self.leave(rank, self.case.model.on_busy.then);
            }
            State::Done => self.ends(rank),
            other => panic!("{other:?} has no timer"),
        }
        true
    }

    fn begins(&mut self, rank: usize) {
        let begins = nanos(self.case.model.begins);
        let spawned = self.spawned_by.contains_key(&rank) && self.case.model.spawns;
        let path = spawned.then(|| {
            let word = self.oldest(rank).unwrap();
            Account { messages: word.path.messages + word.delay, ..word.path }
        });
        let it = &mut self.ranks[rank];
        it.path = path.unwrap_or_default();
        it.own.messages = self.now - begins;
        (it.since, it.stays_since) = (self.now, self.now);
        self.seek_place(rank);
    }

    fn arrives(&mut self, rank: usize) {
        self.account(rank);
        let place = self.ranks[rank].place.unwrap();
        if self.is_idle(place) {
            let workstation = u32::try_from(place).unwrap();
            self.tell(rank, Happened::To(What::Arrived { workstation }));
            self.go_on(rank);
        } else {
            self.owner_is_here(rank, place);
        }
    }

    fn ends(&mut self, rank: usize) {
        self.tell(rank, Happened::To(What::Finished));
        let it = &mut self.ranks[rank];
        it.state = State::Gone;
        let place = it.place.take().unwrap();
        let (path, own, useful) = (it.path, it.own, it.useful);
        self.out.useful += useful;
        let gone = self.ranks.iter().filter(|rank| rank.state == State::Gone).count();
        if self.now > self.out.end || gone == 1 {
            self.out.end = self.now;
            self.out.last = u32::try_from(rank).unwrap();
            (self.out.path, self.out.path_busy) = (path.breakdown(), path.busy);
            self.out.own = own.breakdown();
        }
        self.guests[place] = None;
        if self.is_idle(place) {
            self.became_free();
        }
    }

    fn break_off(&mut self) {
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].state == State::Waiting {
                self.out.shared_frozen += self.ranks[rank].held_until(self.now);
            }
            self.account(rank);
            if self.ranks[rank].state != State::Gone {
                self.out.useful += self.ranks[rank].useful;
            }
        }
        self.out.end = self.now;
    }
}

fn cost_of(costs: &gleaner_replay::Costs, reaction: Reaction) -> Duration {
    match reaction {
        Reaction::Migrate => costs.migrate,
        Reaction::Rollback => costs.rollback,
        Reaction::Retreat => costs.retreat,
        stays => panic!("{stays:?} does not move"),
    }
}
