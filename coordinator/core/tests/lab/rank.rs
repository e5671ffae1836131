//! What a lab's ranks do: they put tasks into their program's bag, take some
//! out, and end. And what their agents keep of those that have ended.

use gleaner_common::id::{ContentHash, Fence, JobId};
use gleaner_common::program::Life;
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
    /// Its newest part of a snapshot, told of on every connection.
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

/// A rank that has ended here.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) job: JobId,
    pub(crate) rank: u32,
    pub(crate) life: Life,
    pub(crate) drained: bool,
}

impl Remains {
    pub(crate) fn say(&self, fence: Fence) -> Vec<AgentFrame> {
        let (end, snapshot) = (End::ExitCode(0), Snapshot(0));
        let ended = FromRank::Ended { end, snapshot, sent: vec![(Rank(0), 1)] };
        let mut said = vec![frame(fence, self.life, &ended)];
        if self.drained {
            said.push(frame(fence, self.life, &FromRank::Drained));
        }
        said
    }
}

pub(super) fn frame(fence: Fence, life: Life, said: &FromRank) -> AgentFrame {
    let bytes = postcard::to_stdvec(said).expect("it serialises");
    AgentFrame::FromRank { fence, life, bytes }
}
