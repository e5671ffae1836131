//! A program with its library, as the agent sees it: a script, and what a
//! real library keeps in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::negotiator::{Due, Negotiator};
use super::script::Op;
use crate::address::{
    Communicator, Envelope, Inside, Negotiation, Part, Rank, Request, Tag, Task, cost, pieces,
};
use crate::negotiation::side::{granted, wish};
use crate::negotiation::{Change, Party, Said};
use crate::wire::{AgentFrame, Answer, Ask, ProgramFrame, Unreceived, VERSION, Wait};

/// What the program saves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// How many operations of its script are behind it.
    pub at: usize,
    /// Of all that it has heard.
    pub hash: u64,
    sent: BTreeMap<(Rank, Tag), u64>,
    received: BTreeMap<(Rank, Tag), u64>,
}

#[derive(Clone, Debug)]
struct Message {
    number: u64,
    from: Rank,
    tag: Tag,
    bytes: Vec<u8>,
    whole: bool,
    /// Its cost that the agent was not told of yet.
    untaken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Born,
    Greeting,
    Restoring,
    Running,
    Over,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    Moved,
    Blocked,
    Over,
}

/// What a program has found out, for whoever runs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// So many messages were received.
    pub received: u64,
    /// The results of tasks that were accepted, by the questions that told them.
    pub accepted: Vec<(Request, Task)>,
    /// So many of the others are to leave, by so many negotiations that have ended.
    pub gives: u32,
    pub negotiated: u64,
    /// The ranks that begin by them: the first of each, and how many.
    pub begun: Vec<(Rank, u32)>,
    /// A deadlock that it was told of.
    pub deadlock: Option<Vec<(Rank, Wait)>>,
    /// What its agent has done wrong.
    pub wrong: Option<String>,
}

/// One process of a rank.
#[derive(Clone, Debug)]
pub struct Program {
    pub state: State,
    pub rank: Rank,
    script: Rc<Vec<Op>>,
    phase: Phase,
    saved: Vec<u8>,
    inbox: Vec<Message>,
    inside: BTreeMap<Rank, Inside>,
    window: u64,
    rooms: BTreeMap<Rank, u64>,
    sent_cost: BTreeMap<Rank, u64>,
    took: BTreeMap<Rank, u64>,
    logged: bool,
    /// The first question of this process, and the next.
    first: Request,
    request: Request,
    asked: Option<Request>,
    answers: BTreeMap<Request, Answer>,
    /// The pieces of the message that is being sent.
    sending: VecDeque<(Rank, Envelope, Bytes)>,
    read: u64,
    told_waiting: Option<u64>,
    gone: BTreeSet<Rank>,
    /// Has it said that it stands at a boundary, and may it go on?
    stands: Option<bool>,
    /// The task it has taken out of the bag.
    holding: Option<Task>,
    asked_to_retreat: bool,
    negotiator: Negotiator,
    /// What the coordinator has said to what it wants.
    wanted: Option<Said>,
    leaves: bool,
    pub found: Found,
}

/// What the messages of a rank are filled with.
fn filling(rank: Rank) -> u8 {
    rank.0.to_le_bytes()[0]
}

fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

impl Program {
    pub fn new(rank: Rank, script: Rc<Vec<Op>>) -> Self {
        Self {
            state: State::default(),
            rank,
            script,
            phase: Phase::Born,
            saved: vec![],
            inbox: vec![],
            inside: BTreeMap::new(),
            window: 0,
            rooms: BTreeMap::new(),
            sent_cost: BTreeMap::new(),
            took: BTreeMap::new(),
            logged: false,
            first: Request(0),
            request: Request(0),
            asked: None,
            answers: BTreeMap::new(),
            sending: VecDeque::new(),
            read: 0,
            told_waiting: None,
            gone: BTreeSet::new(),
            stands: None,
            holding: None,
            asked_to_retreat: false,
            negotiator: Negotiator::default(),
            wanted: None,
            leaves: false,
            found: Found::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Runs to the end of one operation, or until it has to wait.
    pub fn step(
        &mut self,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> Progress {
        let progress = self.operate(from_agent, to_agent);
        if self.phase == Phase::Running {
            let mood = mix(self.state.hash, self.read) >> 32;
            let Due { gives, begun, says } = self.negotiator.act(mood);
            self.found.gives += gives;
            self.found.begun.extend(begun);
            to_agent.extend(says.into_iter().map(ProgramFrame::Negotiate));
        }
        progress
    }

    fn operate(
        &mut self,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> Progress {
        match self.phase {
            Phase::Born => {
                to_agent.push_back(ProgramFrame::Hello { version: VERSION });
                self.phase = Phase::Greeting;
                return Progress::Moved;
            }
            Phase::Over => return Progress::Over,
            Phase::Greeting | Phase::Restoring => {
                self.read_all(from_agent);
                let waits = matches!(self.phase, Phase::Greeting | Phase::Restoring);
                return if waits { Progress::Blocked } else { Progress::Moved };
            }
            Phase::Running => {}
        }
        let Some(&op) = self.script.get(self.state.at) else {
            self.read_all(from_agent);
            self.bye(to_agent);
            return Progress::Over;
        };
        let done = match op {
            Op::Send { to, tag, bytes } => self.send(to, tag, bytes, from_agent, to_agent),
            Op::Receive { from, tag } => self.receive(from, tag, from_agent, to_agent),
            Op::Save => {
                self.save(to_agent);
                true
            }
            Op::Boundary => self.boundary(from_agent, to_agent),
            Op::Ask => self.ask(Ask::Processors, from_agent, to_agent),
            Op::Spawn(count) => self.ask(Ask::Spawn { count }, from_agent, to_agent),
            Op::Negotiates => self.ask(Ask::Negotiates, from_agent, to_agent),
            Op::Wants(change) => self.wants(change, from_agent, to_agent),
            Op::Put => self.ask(Ask::PutTask { task: vec![1, 2, 3] }, from_agent, to_agent),
            Op::CloseBag => self.ask(Ask::CloseBag, from_agent, to_agent),
            Op::Tasks if self.leaves && self.asked.is_none() && self.holding.is_none() => {
                to_agent.push_back(ProgramFrame::Ask { request: self.request, ask: Ask::Leave });
                self.bye(to_agent);
                return Progress::Over;
            }
            Op::Tasks => {
                let ask = match self.holding {
                    Some(task) => Ask::Done { task, result: vec![4] },
                    None => Ask::NextTask,
                };
                self.ask(ask, from_agent, to_agent)
            }
        };
        if !done {
            return Progress::Blocked;
        }
        // A save is of the state after it, and the bag is left when it is done; of what
        // is wanted there may be more to say.
        if !matches!(op, Op::Save | Op::Tasks) && self.wanted.is_none() {
            self.state.at += 1;
        }
        Progress::Moved
    }

    /// Returns its work and ends, if it was asked to.
    pub fn retreat(
        &mut self,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        if self.phase == Phase::Running {
            self.read_all(from_agent);
        }
        let returns = self.phase == Phase::Running && self.asked_to_retreat;
        if returns {
            to_agent.push_back(ProgramFrame::Retreated);
            self.phase = Phase::Over;
        }
        returns
    }

    /// Has it done half of what it does?
    pub fn is_half_done(&self) -> bool {
        self.state.at * 2 >= self.script.len()
    }

    /// Ends in the middle of what it does.
    pub fn die(&mut self) {
        self.phase = Phase::Over;
    }

    /// Ends where it is, and says so.
    pub fn quit(&mut self, to_agent: &mut VecDeque<ProgramFrame>) {
        if self.phase == Phase::Running {
            self.bye(to_agent);
        }
        self.phase = Phase::Over;
    }

    fn is_wrong(&mut self, what: impl FnOnce() -> String) {
        self.found.wrong.get_or_insert_with(what);
    }

    fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.is_wrong(what);
        }
    }

    fn bye(&mut self, to_agent: &mut VecDeque<ProgramFrame>) {
        let unreceived = self
            .inbox
            .iter()
            .map(|m| Unreceived {
                from: m.from,
                communicator: Communicator(0),
                tag: m.tag,
                messages: 1,
            })
            .collect();
        to_agent.push_back(ProgramFrame::Bye { unreceived });
        self.phase = Phase::Over;
    }

    fn save(&mut self, to_agent: &mut VecDeque<ProgramFrame>) {
        self.state.at += 1;
        let bytes = postcard::to_stdvec(&self.state).expect("it serialises");
        let half = bytes.len() / 2;
        for (last, part) in [(false, &bytes[..half]), (true, &bytes[half..])] {
            let state = Bytes::copy_from_slice(part);
            to_agent.push_back(ProgramFrame::Save { last, state });
        }
    }

    fn boundary(
        &mut self,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        if self.stands.is_none() {
            self.stands = Some(false);
            to_agent.push_back(ProgramFrame::Boundary);
        }
        self.read_all(from_agent);
        self.stands.take_if(|may_go_on| *may_go_on).is_some()
    }

    fn ask(
        &mut self,
        ask: Ask,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        let request = *self.asked.get_or_insert_with(|| {
            let request = self.request;
            self.request = Request(request.0 + 1);
            to_agent.push_back(ProgramFrame::Ask { request, ask });
            request
        });
        self.read_all(from_agent);
        let Some(answer) = self.answers.remove(&request) else {
            self.tell_waiting(Wait::Answer { request }, to_agent);
            return false;
        };
        self.asked = None;
        match answer {
            Answer::Processors { count } => {
                self.state.hash = mix(self.state.hash, u64::from(count));
            }
            Answer::Task { task, .. } => self.holding = Some(task),
            Answer::Done { first } => {
                if let Some(task) = self.holding.take().filter(|_| first) {
                    self.found.accepted.push((request, task));
                }
            }
            Answer::NoMoreTasks => self.state.at += 1,
            Answer::Declined { .. } => self.holding = None,
            Answer::Spawned { first, count } => self.found.begun.push((first, count)),
            Answer::TooMany { .. }
            | Answer::Put { .. }
            | Answer::BagClosed
            | Answer::Closed
            | Answer::Noted => {}
            Answer::Negotiated(said) => {
                self.found.negotiated += u64::from(said.statement.concludes());
                let ranks = granted(&said.statement).map_or(0..0, |(_, ranks)| ranks);
                let (first, count) = (Rank(ranks.start), ranks.end - ranks.start);
                self.found.begun.extend((count > 0).then_some((first, count)));
                self.wanted = Some(said).filter(|said| said.statement.proposes().is_some());
            }
            Answer::Left | Answer::Returned | Answer::Result { .. } | Answer::NoMoreResults => {
                self.is_wrong(|| format!("it has not asked that: {answer:?}"));
            }
        }
        true
    }

    /// Until that is agreed about, or is not to be had.
    fn wants(
        &mut self,
        change: Change,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        let heard = self.wanted.as_ref();
        let Some(statement) = wish(change, heard.map(|said| &said.statement)) else { return true };
        let said = if let Some(heard) = heard {
            Said { round: heard.round + 1, statement, ..heard.clone() }
        } else {
            let (opener, negotiation) = (Party::Job, Negotiation(self.request.0));
            Said { opener, negotiation, round: 0, statement }
        };
        self.ask(Ask::Negotiate(said), from_agent, to_agent)
    }

    /// It leaves as soon as it holds nothing, if it takes tasks out of the bag.
    pub fn leaves(&mut self) {
        self.leaves = true;
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        bytes: usize,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        if self.sending.is_empty() {
            let index = self.state.sent.entry((to, tag)).or_default();
            let mut message = vec![];
            message.extend_from_slice(&index.to_le_bytes());
            message.extend_from_slice(&self.state.hash.to_le_bytes());
            message.resize(bytes, filling(self.rank));
            *index += 1;
            let message = Bytes::from(message);
            self.sending = pieces(bytes)
                .map(|(part, range)| {
                    let envelope = Envelope { communicator: Communicator(0), tag, part };
                    (to, envelope, message.slice(range))
                })
                .collect();
        }
        while let Some((to, envelope, payload)) = self.sending.pop_front() {
            let cost = cost(payload.len());
            let sent = self.sent_cost.entry(to).or_default();
            if *sent + cost > *self.rooms.get(&to).unwrap_or(&self.window) {
                self.sending.push_front((to, envelope, payload));
                self.read_all(from_agent);
                let sent = self.sent_cost[&to];
                if sent + cost > *self.rooms.get(&to).unwrap_or(&self.window) {
                    self.tell_waiting(Wait::Room { to }, to_agent);
                    return false;
                }
                continue;
            }
            *sent += cost;
            to_agent.push_back(ProgramFrame::Send { to, envelope, payload });
        }
        true
    }

    fn receive(
        &mut self,
        from: Option<Rank>,
        tag: Option<Tag>,
        from_agent: &mut VecDeque<AgentFrame>,
        to_agent: &mut VecDeque<ProgramFrame>,
    ) -> bool {
        let fits = |m: &Message| {
            from.is_none_or(|from| from == m.from) && tag.is_none_or(|tag| tag == m.tag)
        };
        self.read_all(from_agent);
        let Some(index) = self.inbox.iter().position(fits).filter(|&i| self.inbox[i].whole) else {
            // Whatever may stand before what is waited for is taken in.
            let took: Vec<_> = self
                .inbox
                .iter_mut()
                .filter(|m| from.is_none_or(|from| from == m.from) && m.untaken > 0)
                .map(|m| (m.from, std::mem::take(&mut m.untaken)))
                .collect();
            for (from, cost) in took {
                self.take(from, cost, to_agent);
            }
            let on = Wait::Message { from, communicator: Communicator(0), tag };
            self.tell_waiting(on, to_agent);
            return false;
        };
        let message = self.inbox.remove(index);
        if message.untaken > 0 {
            self.take(message.from, message.untaken, to_agent);
        }
        if self.logged {
            to_agent.push_back(ProgramFrame::Matched(vec![message.number]));
        }
        self.look_at(&message);
        true
    }

    /// Once, in order, and whole.
    fn look_at(&mut self, message: &Message) {
        self.found.received += 1;
        let (rank, from, tag) = (self.rank, message.from, message.tag);
        let expected =
            *self.state.received.entry((from, tag)).and_modify(|it| *it += 1).or_insert(1);
        let number = |at: usize| {
            let bytes = message.bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(u64::MAX, u64::from_le_bytes)
        };
        let (index, theirs) = (number(0), number(8));
        self.must(index == expected - 1, || {
            format!("{rank} received number {index} of {from}, {tag}, and not {}", expected - 1)
        });
        let rest = message.bytes.iter().skip(16);
        let is_whole = rest.clone().all(|byte| *byte == filling(from));
        self.must(is_whole, || format!("{rank} received what {from} has not sent"));
        let length = message.bytes.len() as u64;
        let hash = mix(mix(self.state.hash, theirs), length);
        self.state.hash = mix(hash, u64::from(message.from.0) << 8 | u64::from(message.tag.0));
    }

    fn take(&mut self, from: Rank, cost: u64, to_agent: &mut VecDeque<ProgramFrame>) {
        let total = self.took.entry(from).or_default();
        *total += cost;
        to_agent.push_back(ProgramFrame::Took { from, total: *total });
    }

    fn tell_waiting(&mut self, on: Wait, to_agent: &mut VecDeque<ProgramFrame>) {
        if self.told_waiting != Some(self.read) {
            self.told_waiting = Some(self.read);
            to_agent.push_back(ProgramFrame::Waiting { on, read: self.read });
        }
    }

    fn read_all(&mut self, from_agent: &mut VecDeque<AgentFrame>) {
        while let Some(frame) = from_agent.pop_front() {
            self.read += u64::from(!matches!(frame, AgentFrame::State { .. }));
            self.read_one(frame);
        }
    }

    fn read_one(&mut self, frame: AgentFrame) {
        let phase = self.phase;
        match frame {
            AgentFrame::Welcome(welcome) => {
                self.must(phase == Phase::Greeting, || format!("welcomed while {phase:?}"));
                self.window = welcome.window;
                self.rooms = welcome.rooms.into_iter().collect();
                self.logged = welcome.logged;
                (self.first, self.request) = (welcome.request, welcome.request);
                self.phase =
                    if welcome.restored.is_some() { Phase::Restoring } else { Phase::Running };
            }
            AgentFrame::State { last, state } => {
                self.must(phase == Phase::Restoring, || format!("restored while {phase:?}"));
                self.saved.extend_from_slice(&state);
                if last {
                    match postcard::from_bytes(&self.saved) {
                        Ok(state) => self.state = state,
                        Err(error) => self.is_wrong(|| format!("its state is another's: {error}")),
                    }
                    self.phase = Phase::Running;
                }
            }
            AgentFrame::Deliver { number, from, envelope, payload } => {
                self.delivered(number, from, envelope, &payload);
            }
            AgentFrame::Room { to, total } => {
                let room = self.rooms.entry(to).or_insert(self.window);
                let grows = total > std::mem::replace(room, total);
                self.must(grows, || format!("the room to {to} shrinks to {total}"));
            }
            AgentFrame::Answer { request, answer } => {
                self.must(request >= self.first, || format!("a former process asked {request}"));
                let before = self.answers.insert(request, answer);
                self.must(before.is_none(), || format!("{request} is answered twice"));
            }
            AgentFrame::Gone { rank, .. } => drop(self.gone.insert(rank)),
            AgentFrame::Deadlock { waits } => self.found.deadlock = Some(waits),
            AgentFrame::GoOn => {
                let stood = self.stands.replace(true);
                self.must(stood == Some(false), || "it goes on and does not stand".to_owned());
            }
            AgentFrame::Retreat { .. } => self.asked_to_retreat = true,
            AgentFrame::Negotiate(said) => {
                self.found.negotiated += u64::from(said.statement.concludes());
                self.negotiator.hear(&said);
            }
            AgentFrame::PleaseSave | AgentFrame::Ranks { .. } => {}
            AgentFrame::Refused { reason } => self.is_wrong(|| format!("refused: {reason}")),
        }
    }

    fn delivered(&mut self, number: u64, from: Rank, envelope: Envelope, payload: &[u8]) {
        let cost = cost(payload.len());
        self.must(!self.gone.contains(&from), || format!("{from} speaks and was gone"));
        let fits = self.inside.entry(from).or_default().accept(envelope.part, payload.len());
        self.must(fits, || format!("a piece of {from} in the middle of another message"));
        let whole = matches!(envelope.part, Part::Whole | Part::Last);
        if matches!(envelope.part, Part::Whole | Part::First { .. }) {
            let (tag, bytes) = (envelope.tag, payload.to_vec());
            self.inbox.push(Message { number, from, tag, bytes, whole, untaken: cost });
            return;
        }
        let open = self.inbox.iter_mut().rev().find(|m| m.from == from && !m.whole);
        let Some(open) = open else {
            return self.is_wrong(|| format!("a piece of {from} without its first one"));
        };
        open.bytes.extend_from_slice(payload);
        open.whole = whole;
        open.untaken += cost;
    }
}
