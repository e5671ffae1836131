//! A rank on a workstation: its transport is two inherited pipes to its agent.
//!
//! ```text
//!  order ─► queue of its receiver ─► room? ─► write pipe ─► agent
//!  event ◄── whole messages ◄── pieces ◄──── read pipe ◄── agent
//! ```
//!
//! The protocol and what the agent makes of it are `gleaner-program-core`.
//! Here is the program's half: messages are cut into pieces and put together
//! again, no more is sent than there is room for, and room is given back for
//! what the program takes. Blocks in plain system calls, with no thread and no
//! runtime of its own, so that a checkpoint finds nothing but a process that
//! reads or writes a pipe.
//!
//! **Taking.** A message that is received gives its room back. So that what
//! the program waits for is never kept from it by what stands before, a rank
//! that waits takes all that comes from whom it waits for, and after
//! [`PATIENCE`] from everybody, up to [`UNRECEIVED_BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_program_core::address::{
    Communicator as Space, Envelope, Rank, Request, Tag, cost, pieces,
};
use gleaner_program_core::wire::{
    AgentFrame, Answer, Ask, LIST_MAX, PIPE_BYTES_MAX, ProgramFrame, Unreceived, VERSION, Wait,
    Welcome,
};

use crate::bag::{Task, TaskId};
use crate::error::{Awaited, Error};
use crate::mailbox::Message;
use crate::transport::{Beginning, Event, Order, Transport};

mod arriving;
pub(crate) mod asking;
mod pipes;
mod run;
mod sending;

pub use pipes::{ConnectError, Pipes};
pub use run::{is_live, run, run_live};

use arriving::{Arriving, Piece};
use asking::Asking;
use pipes::Came;
use sending::Sending;

/// How long a rank waits before it says so, and takes what it did not ask for.
const PATIENCE: Duration = Duration::from_millis(20);

/// How much that nobody receives a waiting rank takes from the pipe.
const UNRECEIVED_BYTES_MAX: u64 = 256 << 20;

/// The program's own space of tags; collectives have tags above its.
const SPACE: Space = Space(0);

pub struct Live {
    pipes: Pipes,
    sending: Sending,
    arriving: Arriving,
    asking: Asking,
    events: VecDeque<Event>,
    /// Agent's frames read, and how many there were when a wait was told.
    read: u64,
    told_waiting: Option<u64>,
    /// Does the agent keep what was delivered until it is received?
    logged: bool,
    matched: Vec<u64>,
    /// Is an image of this process wanted at the next boundary, and does it
    /// stand at one?
    image_wanted: bool,
    at_boundary: bool,
    /// All wait for each other.
    deadlock: Option<Error>,
}

impl Live {
    /// Greets the agent and waits for its welcome, and for the state that the
    /// rank begins with.
    ///
    /// # Errors
    /// No agent at the other end, or one of another version.
    pub fn connect(mut pipes: Pipes) -> Result<(Self, Beginning), ConnectError> {
        pipes.write(&ProgramFrame::Hello { version: VERSION })?;
        pipes.flush()?;
        let first = pipes.next_frame()?;
        let AgentFrame::Welcome(welcome) = first else {
            if let AgentFrame::Refused { reason } = first {
                return Err(ConnectError::Refused(reason));
            }
            return Err(ConnectError::Unexpected(format!("{first:.60?}")));
        };
        let mut live = Self {
            pipes,
            sending: Sending::new(&welcome),
            arriving: Arriving::new(welcome.window),
            asking: Asking::new(welcome.request),
            events: VecDeque::new(),
            read: 1,
            told_waiting: None,
            logged: welcome.logged,
            matched: vec![],
            image_wanted: true,
            at_boundary: false,
            deadlock: None,
        };
        let state = welcome.restored.map(|_| live.read_state()).transpose()?;
        if welcome.ranks > welcome.members.end {
            live.events.push_back(Event::Grown { size: welcome.ranks });
        }
        let Welcome { rank, members, parent, .. } = welcome;
        let parent = parent.map(|parent| parent.0);
        Ok((live, Beginning { rank: rank.0, members, parent, state }))
    }

    /// The saved state; what else comes meanwhile is kept.
    fn read_state(&mut self) -> Result<Vec<u8>, ConnectError> {
        let mut saved = vec![];
        loop {
            let frame = self.pipes.next_frame()?;
            let AgentFrame::State { last, state } = frame else {
                self.heard(frame)?;
                continue;
            };
            saved.extend_from_slice(&state);
            if last {
                return Ok(saved);
            }
        }
    }

    /// Reads what has come, or waits for it that long (`None`: for ever).
    /// `false`: nothing came.
    fn read(&mut self, patience: Option<Duration>) -> Result<bool, Error> {
        // What came together with the welcome or the state, first.
        if self.hear_all()? {
            return Ok(true);
        }
        let came = self.pipes.fill(patience)?;
        self.hear_all()?;
        Ok(came)
    }

    fn hear_all(&mut self) -> Result<bool, Error> {
        let before = self.read;
        while let Some(came) = self.pipes.poll()? {
            match came {
                Came::Frame(frame) => self.heard(frame)?,
                Came::Piece(piece) => {
                    self.read += 1;
                    let pipes = &mut self.pipes;
                    let payload = |into: &mut _| pipes.read_payload(into, piece.bytes);
                    self.events.extend(self.arriving.piece(piece, payload)?.map(Event::Message));
                }
            }
        }
        Ok(self.read > before)
    }

    fn heard(&mut self, frame: AgentFrame) -> Result<(), Error> {
        self.read += 1;
        match frame {
            AgentFrame::Deliver { number, from, envelope, payload } => {
                let piece = Piece { number, from, envelope, bytes: payload.len() };
                let message = self.arriving.piece(piece, |into| {
                    // A message of one piece is what was read.
                    if into.capacity() == 0 {
                        *into = payload.into();
                    } else {
                        into.extend_from_slice(&payload);
                    }
                    Ok(())
                })?;
                self.events.extend(message.map(Event::Message));
            }
            AgentFrame::Room { to, total } => {
                self.sending.room(to.0, total);
                self.sending.send_what_fits(to.0, &mut self.pipes)?;
            }
            AgentFrame::Answer { request, answer } => {
                self.events.extend(self.asking.answered(request, answer)?);
            }
            AgentFrame::Gone { rank, end } => {
                let ending = asking::ending(end);
                self.events.push_back(Event::Gone { rank: rank.0, ending });
            }
            AgentFrame::Ranks { count } => self.events.push_back(Event::Grown { size: count }),
            AgentFrame::Retreat { .. } => self.events.push_back(Event::Retreat),
            AgentFrame::Deadlock { waits } => self.deadlock = Some(asking::deadlock(&waits)),
            AgentFrame::PleaseSave => {
                self.image_wanted = true;
                self.events.push_back(Event::PleaseSave);
            }
            AgentFrame::GoOn => self.at_boundary = false,
            AgentFrame::Negotiate(said) => self.events.push_back(Event::Negotiate(said)),
            AgentFrame::Refused { reason } => return Err(Error::Lost(reason)),
            other @ (AgentFrame::Welcome(_) | AgentFrame::State { .. }) => {
                return Err(Error::Lost(format!("the agent said {other:.60?} out of turn")));
            }
        }
        Ok(())
    }

    /// Blocks until something comes. Whoever is blocked for long says so,
    /// once for each frame read, and takes what is there for it.
    fn block(&mut self, on: Wait) -> Result<(), Error> {
        if let Some(deadlock) = self.deadlock.take() {
            return Err(deadlock);
        }
        match on {
            Wait::Message { from, .. } => self.arriving.take_all_of(from.map(|from| from.0)),
            // The end of a rank comes after all that it sent.
            Wait::End { rank } => self.arriving.take_all_of(Some(rank.0)),
            Wait::Room { .. } | Wait::Answer { .. } => {}
        }
        self.tell_taken(false)?;
        self.pipes.flush()?;
        if self.read(Some(PATIENCE))? {
            return Ok(());
        }
        self.arriving.take_all_of(None);
        self.tell_taken(true)?;
        self.tell_matched()?;
        if self.told_waiting != Some(self.read) {
            self.told_waiting = Some(self.read);
            self.pipes.write(&ProgramFrame::Waiting { on, read: self.read })?;
        }
        self.pipes.flush()?;
        self.read(None)?;
        match self.deadlock.take() {
            Some(deadlock) => Err(deadlock),
            None => Ok(()),
        }
    }

    /// Gives room back: all of it, or where it is much.
    fn tell_taken(&mut self, all: bool) -> Result<(), Error> {
        while let Some((from, total)) = self.arriving.tell(all) {
            self.pipes.write(&ProgramFrame::Took { from: Rank(from), total })?;
        }
        Ok(())
    }

    fn tell_matched(&mut self) -> Result<(), Error> {
        if !self.matched.is_empty() {
            let matched = std::mem::take(&mut self.matched);
            self.pipes.write(&ProgramFrame::Matched(matched))?;
        }
        Ok(())
    }

    fn begin_send(&mut self, to: u32, tag: u32, bytes: Vec<u8>) -> Result<(), Error> {
        let bytes = bytes::Bytes::from(bytes);
        self.tell_matched()?;
        for (part, range) in pieces(bytes.len()) {
            let envelope = Envelope { communicator: SPACE, tag: Tag(tag), part };
            self.sending.push(to, envelope, bytes.slice(range));
        }
        self.sending.send_what_fits(to, &mut self.pipes)?;
        self.pipes.flush()
    }

    /// Sends out of the program's own memory, and waits for room where it has to.
    fn send_now(&mut self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.tell_matched()?;
        let envelope = |part| Envelope { communicator: SPACE, tag: Tag(tag), part };
        let mut pieces = pieces(bytes.len());
        while let Some((part, range)) = pieces.next() {
            while !self.sending.has_room(to, range.len()) {
                let Err(error) = self.block(Wait::Room { to: Rank(to) }) else { continue };
                // What was begun is sent to its end, if the program goes on.
                for (part, range) in std::iter::once((part, range)).chain(pieces) {
                    let payload = bytes::Bytes::copy_from_slice(&bytes[range]);
                    self.sending.push(to, envelope(part), payload);
                }
                self.sending.send_what_fits(to, &mut self.pipes)?;
                self.pipes.wait_until_read();
                return Err(error);
            }
            self.sending.sent(to, range.len());
            // Behind a whole pipeful nothing that was lent is left unread: a pipe
            // has so many slots, none with more than a page, and no agent makes a
            // bigger one. Whoever returns before must wait, or nobody reads.
            let lend = bytes.len() - range.end >= PIPE_BYTES_MAX;
            self.pipes.write_piece(Rank(to), envelope(part), &bytes[range], lend)?;
        }
        self.pipes.flush()
    }

    /// Lets everything leave that waits for room.
    fn send_all(&mut self) -> Result<(), Error> {
        while let Some(to) = self.sending.held_up() {
            self.block(Wait::Room { to: Rank(to) })?;
        }
        Ok(())
    }

    fn ask(&mut self, ask: Ask) -> Result<(), Error> {
        while let Some(request) = self.asking.is_full() {
            self.block(Wait::Answer { request })?;
        }
        let (request, answered) = self.asking.ask(&ask)?;
        self.events.extend(answered);
        self.pipes.write(&ProgramFrame::Ask { request, ask })?;
        self.pipes.flush()
    }

    /// All that was sent before belongs to what is saved.
    fn save(&mut self, state: &[u8]) -> Result<(), Error> {
        self.send_all()?;
        self.tell_matched()?;
        let state = bytes::Bytes::copy_from_slice(state);
        for (_, range) in pieces(state.len()) {
            let last = range.end == state.len();
            self.pipes.write(&ProgramFrame::Save { last, state: state.slice(range) })?;
        }
        self.pipes.flush()
    }

    /// Stands still while an image is taken, if one is wanted.
    fn boundary(&mut self) -> Result<(), Error> {
        if !self.logged || !std::mem::take(&mut self.image_wanted) {
            return Ok(());
        }
        self.tell_matched()?;
        self.at_boundary = true;
        self.pipes.write(&ProgramFrame::Boundary)?;
        self.pipes.flush()?;
        while self.at_boundary {
            self.read(None)?;
        }
        Ok(())
    }
}

impl Transport for Live {
    fn send(&mut self, _order: u64, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.sending.begin_order();
        self.send_now(to, tag, bytes)
    }

    fn order(&mut self, order: Order) -> Result<(), Error> {
        self.sending.begin_order();
        match order {
            Order::Send { to, tag, bytes } => self.begin_send(to, tag, bytes),
            Order::AddTask(task) => self.ask(Ask::PutTask { task }),
            Order::CloseBag => self.ask(Ask::CloseBag),
            Order::NextTask => self.ask(Ask::NextTask),
            Order::Done { task, result } => self.ask(Ask::Done { task: task.into(), result }),
            Order::ReturnTask(task) => self.ask(Ask::ReturnTask { task: task.into() }),
            Order::NextResult => self.ask(Ask::NextResult),
            Order::Spawn(count) => self.ask(Ask::Spawn { count }),
            Order::Processors => self.ask(Ask::Processors),
            Order::Save(state) => self.save(&state),
            Order::Boundary => self.boundary(),
            Order::Negotiates => self.ask(Ask::Negotiates),
            Order::Propose { statement, after } => {
                let said = self.asking.said(statement, after);
                self.ask(Ask::Negotiate(said))
            }
            Order::Say(said) => {
                self.pipes.write(&ProgramFrame::Negotiate(said))?;
                self.pipes.flush()
            }
            Order::Leave => {
                self.send_all()?;
                self.ask(Ask::Leave)
            }
        }
    }

    fn accepted(&mut self, at_least: u64, wait: bool) -> Result<u64, Error> {
        while let Some(to) = self.sending.holds_up(at_least) {
            if !wait {
                return Ok(0);
            }
            self.block(Wait::Room { to: Rank(to) })?;
        }
        Ok(at_least)
    }

    fn poll(&mut self) -> Result<Option<Event>, Error> {
        if self.events.is_empty() {
            self.read(Some(Duration::ZERO))?;
        }
        Ok(self.events.pop_front())
    }

    fn received(&mut self, message: &Message) -> Result<(), Error> {
        self.arriving.received(message);
        if self.logged {
            self.matched.push(message.number);
            if self.matched.len() >= LIST_MAX {
                self.tell_matched()?;
            }
        }
        let before = self.pipes.unflushed();
        self.tell_taken(false)?;
        // The sender may be waiting for it, and this rank compute for long.
        if self.pipes.unflushed() > before { self.pipes.flush() } else { Ok(()) }
    }

    fn finish(&mut self, unreceived: &[&Message], retreated: bool) -> Result<(), Error> {
        self.send_all()?;
        self.tell_matched()?;
        let mut left: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for message in unreceived {
            *left.entry((message.from, message.tag)).or_default() += 1;
        }
        let unreceived = left.into_iter().take(LIST_MAX).map(|((from, tag), messages)| {
            Unreceived { from: Rank(from), communicator: SPACE, tag: Tag(tag), messages }
        });
        let unreceived = unreceived.collect();
        if retreated {
            self.pipes.write(&ProgramFrame::Retreated)?;
        }
        self.pipes.write(&ProgramFrame::Bye { unreceived })?;
        self.pipes.flush()
    }

    fn wait(&mut self, awaited: Awaited) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.block(self.asking.wait_for(awaited))?;
        }
    }
}

#[cfg(test)]
mod tests;
