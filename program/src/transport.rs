//! What carries a rank's orders out and brings it events: threads of one
//! process today, the agent's pipes on a workstation.
//!
//! Orders are carried out in the order they are given, and the messages of one
//! sender come in the order they were sent. All else (which receive takes what,
//! collectives, recording) is the communicator's, the same on every transport.

use std::ops::Range;

use gleaner_program_core::negotiation::{Said, Statement};

use crate::bag::{Task, TaskId};
use crate::error::{Awaited, Ending, Error};
use crate::mailbox::Message;

/// What a rank is told when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    pub rank: u32,
    /// The ranks that begin together with this one.
    pub members: Range<u32>,
    /// Who spawned them.
    pub parent: Option<u32>,
    /// What this rank saved last, if it is begun again.
    pub state: Option<Vec<u8>>,
}

/// What a rank wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Send {
        to: u32,
        tag: u32,
        bytes: Vec<u8>,
    },
    /// Answered by [`Event::Added`].
    AddTask(Vec<u8>),
    CloseBag,
    /// Answered by [`Event::Task`] once there is one, or none any more.
    NextTask,
    Done {
        task: TaskId,
        result: Vec<u8>,
    },
    ReturnTask(TaskId),
    /// Answered by [`Event::TaskResult`].
    NextResult,
    /// Answered by [`Event::Spawned`].
    Spawn(u32),
    /// Answered by [`Event::Processors`].
    Processors,
    Save(Vec<u8>),
    /// Waits, if an image is taken.
    Boundary,
    Leave,
    /// This rank speaks for the program. Answered by [`Event::Negotiate`]s.
    Negotiates,
    /// Opens a negotiation, or goes on `after` what was said in it. Answered by
    /// [`Event::Negotiated`].
    Propose {
        statement: Statement,
        after: Option<Said>,
    },
    /// Says something in a negotiation that the coordinator has opened.
    Say(Said),
}

/// What a rank hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Message(Message),
    /// After the last message of that rank.
    Gone {
        rank: u32,
        ending: Ending,
    },
    /// The program has so many ranks now.
    Grown {
        size: u32,
    },
    Added(Result<TaskId, Error>),
    Task(Option<Task>),
    TaskResult(Option<(TaskId, Vec<u8>)>),
    Spawned(Result<Range<u32>, Error>),
    Processors(u32),
    /// The coordinator says something in a negotiation that it has opened.
    Negotiate(Said),
    /// What it says to [`Order::Propose`].
    Negotiated(Said),
    /// The state at the next subtask boundary is wanted.
    PleaseSave,
    /// The workstation is wanted back: keep what is worth keeping, and go.
    Retreat,
}

pub trait Transport: Send {
    /// Gives an order and does not wait until it is carried out.
    ///
    /// # Errors
    /// The other end is gone.
    fn order(&mut self, order: Order) -> Result<(), Error>;

    /// Gives the order to send, the `order`th, and waits until it needs no room
    /// here any more.
    ///
    /// # Errors
    /// The other end is gone.
    fn send(&mut self, order: u64, to: u32, tag: u32, bytes: &[u8]) -> Result<(), Error> {
        self.order(Order::Send { to, tag, bytes: bytes.to_vec() })?;
        self.accepted(order, true).map(|_| ())
    }

    /// How many orders so far need no room here any more; with `wait`, at
    /// least `at_least`. A slow receiver slows its sender down by it.
    ///
    /// # Errors
    /// The other end is gone.
    fn accepted(&mut self, at_least: u64, wait: bool) -> Result<u64, Error>;

    /// The next event, if one is there.
    ///
    /// # Errors
    /// The other end is gone.
    fn poll(&mut self) -> Result<Option<Event>, Error>;

    /// The program has received (or given up) this message.
    ///
    /// # Errors
    /// The other end is gone.
    fn received(&mut self, message: &Message) -> Result<(), Error> {
        let _ = message;
        Ok(())
    }

    /// The rank's function has ended. What it leaves, and whether it retreats.
    ///
    /// # Errors
    /// The other end is gone.
    fn finish(&mut self, unreceived: &[&Message], retreated: bool) -> Result<(), Error> {
        let _ = (unreceived, retreated);
        Ok(())
    }

    /// Waits for the next event; `awaited` is why, for whoever asks.
    ///
    /// # Errors
    /// The other end is gone, or it knows that no event will ever come.
    fn wait(&mut self, awaited: Awaited) -> Result<Event, Error>;
}
