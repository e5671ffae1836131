//! The task bag and the processors, as a rank sees them (models 1 to 4 of
//! Phalen 1994, Table 1).

use std::ops::Range;

use gleaner_common::trace::Op;

use crate::bag::{Task, TaskId};
use crate::communicator::Communicator;
use crate::error::{Awaited, Error};
use crate::transport::{Event, Order};

impl Communicator {
    /// Puts work into the program's bag, for whoever asks first.
    ///
    /// # Errors
    /// The bag is closed.
    pub fn add_task(&mut self, work: &[u8]) -> Result<TaskId, Error> {
        self.call(|this| {
            this.order(Order::AddTask(work.to_vec()))?;
            this.answer(Awaited::Answer, |event| {
                if let Event::Added(added) = event { Ok(added) } else { Err(event) }
            })?
        })
    }

    /// Says that no more work will be put in.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn close_bag(&mut self) -> Result<(), Error> {
        self.call(|this| this.order(Order::CloseBag))
    }

    /// The next piece of work; `None` once the bag is closed and all of it is
    /// done. Waits while what others have in hand may still come back.
    ///
    /// # Errors
    /// All ranks wait, or this one was asked to retreat.
    pub fn next_task(&mut self) -> Result<Option<Task>, Error> {
        self.call(|this| {
            this.order(Order::NextTask)?;
            this.answer(Awaited::Task, |event| {
                if let Event::Task(task) = event { Ok(task) } else { Err(event) }
            })
        })
    }

    /// A task that this rank took is done.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn done(&mut self, task: TaskId, result: &[u8]) -> Result<(), Error> {
        self.call(|this| this.order(Order::Done { task, result: result.to_vec() }))
    }

    /// Gives a task back undone: it is the next that anybody gets.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn return_task(&mut self, task: TaskId) -> Result<(), Error> {
        self.call(|this| this.order(Order::ReturnTask(task)))
    }

    /// The next result, in the order tasks were done; `None` once the bag is
    /// closed and every result was given out.
    ///
    /// # Errors
    /// All ranks wait.
    pub fn next_result(&mut self) -> Result<Option<(TaskId, Vec<u8>)>, Error> {
        self.call(|this| {
            this.order(Order::NextResult)?;
            this.answer(Awaited::TaskResult, |event| {
                if let Event::TaskResult(result) = event { Ok(result) } else { Err(event) }
            })
        })
    }

    /// How many more ranks could begin now.
    ///
    /// # Errors
    /// The other ranks cannot be reached any more.
    pub fn processors(&mut self) -> Result<u32, Error> {
        self.call(|this| {
            this.order(Order::Processors)?;
            this.answer(Awaited::Answer, |event| {
                if let Event::Processors(processors) = event { Ok(processors) } else { Err(event) }
            })
        })
    }

    /// Lets `n` more ranks begin; they run the same program, their
    /// [`Communicator::parent`] is this rank and their collectives are among
    /// themselves.
    ///
    /// # Errors
    /// Fewer processors are to be had.
    pub fn spawn(&mut self, n: u32) -> Result<Range<u32>, Error> {
        self.call(|this| {
            this.order(Order::Spawn(n))?;
            let ranks = this.answer(Awaited::Answer, |event| {
                if let Event::Spawned(ranks) = event { Ok(ranks) } else { Err(event) }
            })??;
            ranks.clone().for_each(|rank| this.note(Op::Spawn { rank }));
            Ok(ranks)
        })
    }
}
