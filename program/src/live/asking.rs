//! What the program asks the coordinator, and what its answers are to it.

use std::ops::Range;

use gleaner_program_core::address::Negotiation;
use gleaner_program_core::endpoint::OPEN_ASKS_MAX;
use gleaner_program_core::facts::End;
use gleaner_program_core::negotiation::{Party, Said, Statement};
use gleaner_program_core::wire::ASK_BYTES_MAX;

use super::{
    Answer, Ask, Awaited, BTreeMap, Error, Event, Rank, Request, SPACE, Tag, Task, TaskId, Wait,
};
use crate::error::Ending;
use crate::mailbox::Wanted;

/// What a question was about, as far as its answer does not say.
#[derive(Clone, Copy, Debug)]
enum About {
    AddTask,
    Spawn(u32),
    /// Nobody waits for its answer.
    Quiet,
    Other,
}

#[derive(Debug)]
pub(crate) struct Asking {
    next: Request,
    open: BTreeMap<Request, About>,
    /// Answers to questions that a program which has gone back will ask again.
    early: BTreeMap<Request, Answer>,
}

impl Asking {
    pub(crate) fn new(next: Request) -> Self {
        Self { next, open: BTreeMap::new(), early: BTreeMap::new() }
    }

    /// The oldest open question, if no more can be open.
    pub(super) fn is_full(&self) -> Option<Request> {
        let oldest = self.open.keys().next().copied();
        oldest.filter(|_| self.open.len() >= OPEN_ASKS_MAX)
    }

    /// What the next question says in a negotiation: it has the number of the
    /// question that opened it.
    pub(crate) fn said(&self, statement: Statement, after: Option<Said>) -> Said {
        if let Some(before) = after {
            return Said { round: before.round.saturating_add(1), statement, ..before };
        }
        let (opener, negotiation) = (Party::Job, Negotiation(self.next.0));
        Said { opener, negotiation, round: 0, statement }
    }

    /// Numbers a question; gives its answer if that has come.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<(Request, Option<Event>), Error> {
        let (about, bytes) = match ask {
            Ask::PutTask { task } => (About::AddTask, task.len()),
            Ask::Spawn { count } => (About::Spawn(*count), 0),
            Ask::Done { result, .. } => (About::Quiet, result.len()),
            Ask::CloseBag
            | Ask::ReturnTask { .. }
            | Ask::Leave
            | Ask::Negotiates
            | Ask::BeginsAnew => (About::Quiet, 0),
            Ask::Processors | Ask::NextTask | Ask::NextResult | Ask::Negotiate(_) => {
                (About::Other, 0)
            }
        };
        if bytes > ASK_BYTES_MAX {
            return Err(Error::TooLong { bytes, max: ASK_BYTES_MAX });
        }
        let request = self.next;
        self.next = Request(request.0 + 1);
        let Some(answer) = self.early.remove(&request) else {
            self.open.insert(request, about);
            return Ok((request, None));
        };
        Ok((request, event(about, answer)?))
    }

    pub(crate) fn answered(
        &mut self,
        request: Request,
        answer: Answer,
    ) -> Result<Option<Event>, Error> {
        if let Some(about) = self.open.remove(&request) {
            return event(about, answer);
        }
        if request < self.next {
            return Err(Error::Lost("the agent answered twice".to_owned()));
        }
        self.early.insert(request, answer);
        Ok(None)
    }

    /// What the program waits for, as the agent is told.
    pub(super) fn wait_for(&self, awaited: Awaited) -> Wait {
        match awaited {
            Awaited::Message(Wanted { from, tag }) => {
                Wait::Message { from: from.map(Rank), communicator: SPACE, tag: tag.map(Tag) }
            }
            Awaited::Room { to } => Wait::Room { to: Rank(to) },
            Awaited::Task | Awaited::TaskResult | Awaited::Answer => {
                Wait::Answer { request: Request(self.next.0.saturating_sub(1)) }
            }
            Awaited::End { rank } => Wait::End { rank: Rank(rank) },
        }
    }
}

fn event(about: About, answer: Answer) -> Result<Option<Event>, Error> {
    let id = |task: gleaner_program_core::address::Task| TaskId(task.0);
    Ok(Some(match (about, answer) {
        (About::Quiet, _)
        | (
            _,
            Answer::Left | Answer::Done { .. } | Answer::Returned | Answer::Closed | Answer::Noted,
        ) => return Ok(None),
        (_, Answer::Negotiated(said)) => Event::Negotiated(said),
        (_, Answer::Task { task, bytes }) => Event::Task(Some(Task { id: id(task), work: bytes })),
        (_, Answer::NoMoreTasks) => Event::Task(None),
        (_, Answer::Result { task, bytes }) => Event::TaskResult(Some((id(task), bytes))),
        (_, Answer::NoMoreResults) => Event::TaskResult(None),
        (_, Answer::Put { task }) => Event::Added(Ok(id(task))),
        (_, Answer::BagClosed) => Event::Added(Err(Error::BagClosed)),
        (_, Answer::Processors { count }) => Event::Processors(count),
        (_, Answer::Spawned { first, count }) => Event::Spawned(Ok(ranks(first, count))),
        (About::Spawn(wanted), Answer::TooMany { available }) => {
            Event::Spawned(Err(Error::NoProcessors { wanted, available }))
        }
        (About::AddTask, Answer::Declined { reason }) => Event::Added(Err(Error::Declined(reason))),
        (About::Spawn(_), Answer::Declined { reason }) => {
            Event::Spawned(Err(Error::Declined(reason)))
        }
        (About::Other, Answer::Declined { reason }) => return Err(Error::Declined(reason)),
        (About::AddTask | About::Other, Answer::TooMany { .. }) => {
            return Err(Error::Lost("an answer to what nobody asked".to_owned()));
        }
    }))
}

fn ranks(first: Rank, count: u32) -> Range<u32> {
    first.0..first.0.saturating_add(count)
}

/// How a rank ended, as its process tells.
pub(super) fn ending(end: End) -> Ending {
    match end {
        End::ExitCode(0) => Ending::Returned,
        End::ExitCode(code) => Ending::Failed(format!("exit code {code}")),
        End::Signal(signal) => Ending::Failed(format!("ended by signal {signal}")),
        End::Left => Ending::Left,
        End::Retreated => Ending::Retreated,
        End::Stopped => Ending::Failed("it was stopped".to_owned()),
    }
}

pub(super) fn deadlock(waits: &[(Rank, Wait)]) -> Error {
    let awaited = |wait: &Wait| match *wait {
        Wait::Message { from, tag, .. } => {
            let (from, tag) = (from.map(|from| from.0), tag.map(|tag| tag.0));
            Awaited::Message(Wanted { from, tag })
        }
        Wait::Room { to } => Awaited::Room { to: to.0 },
        Wait::Answer { .. } => Awaited::Answer,
        Wait::End { rank } => Awaited::End { rank: rank.0 },
    };
    let waiting = waits.iter().map(|(rank, wait)| (rank.0, awaited(wait))).collect();
    Error::Deadlock { waiting }
}
