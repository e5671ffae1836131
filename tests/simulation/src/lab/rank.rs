//! What a lab's ranks do: they put tasks into their program's bag, take some
//! out, and end. And what their agents' routers keep of them.

use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId};
use gleaner_common::job::Outcome;
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::address::{Rank, Request, Snapshot, Task};
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::{Answer, Ask, FromRank};

/// One rank's questions, one after the other. It moves with its rank.
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) job: JobId,
    pub(crate) rank: u32,
    pub(crate) life: Life,
    asked: u64,
    /// Does it use the bag? A program that does has no snapshots.
    bag: bool,
    /// Does it go back to images? Others save their state themselves.
    pub(crate) images: bool,
    /// The rank's newest part of a snapshot, told of on every connection.
    pub(crate) cut: Option<(Snapshot, ContentHash)>,
    open: Option<(Request, Ask)>,
    puts: u32,
    holding: Option<Task>,
    spawns: bool,
    closes: bool,
    done: bool,
}

impl Script {
    pub(crate) fn new(job: JobId, rank: u32, life: Life, bag: bool) -> Self {
        let first = rank == 0;
        Self {
            job,
            rank,
            life,
            asked: 0,
            bag,
            images: job.0 % 6 != 1,
            cut: None,
            open: None,
            puts: 3,
            holding: None,
            spawns: first,
            closes: first,
            done: false,
        }
    }

    /// A new process: it knows nothing, and its questions have new numbers.
    pub(crate) fn begin_anew(&mut self) {
        let anew = Self::new(self.job, self.rank, self.life, self.bag);
        *self = Self { asked: self.asked, spawns: self.spawns, cut: self.cut, ..anew };
    }

    /// The question that is open, or the next one.
    pub(crate) fn ask(&mut self, fence: Fence) -> Option<AgentFrame> {
        if self.open.is_none() {
            let ask = self.next()?;
            self.asked += 1;
            self.open = Some((Request(self.asked), ask));
        }
        let (request, ask) = self.open.clone()?;
        Some(frame(fence, self.life, &FromRank::Ask { request, ask }))
    }

    fn next(&mut self) -> Option<Ask> {
        if std::mem::take(&mut self.spawns) {
            return Some(Ask::Spawn { count: 1 });
        }
        if !self.bag {
            return None;
        }
        if self.puts > 0 {
            self.puts -= 1;
            return Some(Ask::PutTask { task: vec![1, 2, 3] });
        }
        if std::mem::take(&mut self.closes) {
            return Some(Ask::CloseBag);
        }
        if let Some(task) = self.holding.take() {
            return Some(Ask::Done { task, result: vec![4] });
        }
        (!self.done).then_some(Ask::NextTask)
    }

    /// The task whose result counts now, if this answer says so.
    pub(crate) fn answered(&mut self, request: Request, answer: &Answer) -> Option<Task> {
        let (_, asked) = self.open.take_if(|(of, _)| *of == request)?;
        if let Answer::Task { task, .. } = answer {
            self.holding = Some(*task);
        }
        self.done |= *answer == Answer::NoMoreTasks;
        let Ask::Done { task, .. } = asked else { return None };
        (*answer == Answer::Done { first: true }).then_some(task)
    }
}

/// A process as it was written down.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) left: Duration,
    pub(crate) outcome: Outcome,
}

/// A rank that its router has packed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) script: Script,
    /// What it goes back to, if it goes back to an image.
    pub(crate) image: Option<Image>,
}

/// How far an image is, as a router knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imaging {
    Nothing,
    Wanted,
    Begun,
}

/// A rank, as a router has it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct Endpoint {
    pub(crate) script: Script,
    /// Does the endpoint have the pipes of a process?
    pub(crate) plugged: bool,
    /// What the rank has arrived with, if it was not set going yet.
    pub(crate) arriving: Option<Keep>,
    pub(crate) packed: bool,
    pub(crate) retreating: bool,
    pub(crate) retreated: bool,
    pub(crate) fault: bool,
    pub(crate) imaging: Imaging,
    pub(crate) image: Option<Image>,
    pub(crate) ended: Option<End>,
    pub(crate) drained: bool,
}

impl Endpoint {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            plugged: true,
            arriving: None,
            packed: false,
            retreating: false,
            retreated: false,
            fault: false,
            imaging: Imaging::Nothing,
            image: None,
            ended: None,
            drained: false,
        }
    }

    /// Does the rank have a process that hears it?
    pub(crate) fn is_set_going(&self) -> bool {
        self.plugged && self.arriving.is_none() && self.ended.is_none()
    }

    /// What there is to go back to: an image, or what the program has saved.
    pub(crate) fn way_back(&self) -> Result<Option<Image>, String> {
        match (&self.image, self.script.images) {
            (_, false) => Ok(None),
            (Some(image), true) => Ok(Some(image.clone())),
            (None, true) => Err("no image is kept of it".to_owned()),
        }
    }

    /// What an ended rank says on every connection.
    pub(crate) fn say(&self, fence: Fence) -> Vec<AgentFrame> {
        let Some(end) = self.ended else { return vec![] };
        let ended = FromRank::Ended { end, snapshot: Snapshot(0), sent: vec![(Rank(0), 1)] };
        let mut said = vec![frame(fence, self.script.life, &ended)];
        if self.drained {
            said.push(frame(fence, self.script.life, &FromRank::Drained));
        }
        said
    }
}

pub(super) fn frame(fence: Fence, life: Life, said: &FromRank) -> AgentFrame {
    let bytes = postcard::to_stdvec(said).expect("it serialises");
    AgentFrame::FromRank { fence, life, bytes }
}
