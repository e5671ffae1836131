//! The agent's side of a program's ranks, all of them, in one process: real
//! pipes, real endpoints, a loop that reads whatever is written. It does what
//! an agent and the coordinator have to do, except that all ranks are here.

#![allow(dead_code, reason = "each of its users needs a part of it")]
#![allow(clippy::unwrap_used, reason = "of a test")]

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Buf, Bytes};
use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Boundary, PIECE_BYTES_MAX, Rank, Snapshot};
use gleaner_program_core::bag::{self, Bag};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::endpoint::{Back, Config, Effect, Endpoint, Event};
use gleaner_program_core::facts::{End, diagnose};
use gleaner_program_core::framing::{self, FrameReader};
use gleaner_program_core::negotiation::alone::{self, Alone, Processors};
use gleaner_program_core::negotiation::{Change, Obligation};
use gleaner_program_core::wire::{AgentFrame, Answer, Ask, PIPE_BYTES_MAX};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The program's ends of a rank's two pipes.
pub(crate) struct Ends {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

/// How an agent is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// That begin with the program.
    pub(crate) ranks: u32,
    /// How much is kept for a rollback; 0: none is possible.
    pub(crate) log_bytes_max: u64,
    /// Ranks whose process is to begin again, if it ends.
    pub(crate) restarts: Vec<u32>,
    /// How many ranks more may be spawned.
    pub(crate) processors: u32,
    /// What the program is offered or asked for, once a rank of it negotiates.
    pub(crate) offers: Vec<(Change, Obligation)>,
    /// Ranks that are asked to retreat with their n-th task.
    pub(crate) retreats: Vec<(u32, u32)>,
    /// Ranks whose state is wanted once they are there.
    pub(crate) save_asked: Vec<u32>,
    /// The directory in which each rank is to record what it does.
    pub(crate) record: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        let (restarts, retreats, save_asked, offers) = (vec![], vec![], vec![], vec![]);
        let (ranks, log_bytes_max, processors, record) = (1, 0, 3, None);
        Self { ranks, log_bytes_max, restarts, processors, offers, retreats, save_asked, record }
    }
}

struct HostedRank {
    endpoint: Endpoint,
    read: Option<OwnedFd>,
    write: Option<OwnedFd>,
    reader: FrameReader,
    /// What the program has not read.
    unread: VecDeque<Bytes>,
    state: Vec<u8>,
    kept: BTreeMap<Boundary, Vec<u8>>,
    /// How its process will have ended.
    end: End,
    /// What its last pieces to others were, once it has ended.
    ended: Option<Vec<(Rank, u64)>>,
}

pub(crate) struct Agent {
    hosted: Vec<HostedRank>,
    /// What is to be handled before anything is read.
    todo: VecDeque<(usize, Event)>,
    bag: Bag,
    negotiations: Alone,
    now: Moment,
    setup: Setup,
    /// Spawned, and not begun.
    spawned: Vec<(u32, Ends)>,
    pub(crate) complaints: Vec<Complaint>,
    /// The most that was held for all ranks.
    pub(crate) held_max: u64,
}

/// What an agent does about a process that has ended.
pub(crate) enum Next {
    Over,
    /// Another process begins with these pipes.
    Again(Ends),
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES_MAX);
    (read, write)
}

impl Agent {
    /// Gives the pipes of each rank.
    pub(crate) fn new(setup: Setup) -> (Self, Vec<Ends>) {
        let limits = bag::Limits { tasks_max: 1_000, bytes_max: 1 << 20 };
        let ranks = setup.ranks;
        let negotiations = Alone::new(setup.offers.clone());
        let mut agent = Self {
            hosted: vec![],
            todo: VecDeque::new(),
            bag: Bag::new(limits, None),
            negotiations,
            now: Moment(1),
            setup,
            spawned: vec![],
            complaints: vec![],
            held_max: 0,
        };
        let all = agent.host(ranks, None);
        (agent, all)
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.hosted.len()).unwrap()
    }

    /// So many ranks more.
    fn host(&mut self, members: u32, parent: Option<Rank>) -> Vec<Ends> {
        let first = self.ranks();
        let mut all = vec![];
        for rank in first..first + members {
            let config = Config {
                rank: Rank(rank),
                ranks: first + members,
                first: Rank(first),
                members,
                parent,
                ranks_max: 32,
                log_bytes_max: self.setup.log_bytes_max,
                snapshot: Snapshot(0),
                floor: Fence::of(0),
            };
            self.hosted.push(HostedRank {
                endpoint: Endpoint::new(config, Fence::of(rank + 1)),
                read: None,
                write: None,
                reader: FrameReader::default(),
                unread: VecDeque::new(),
                state: vec![],
                kept: BTreeMap::new(),
                end: End::ExitCode(0),
                ended: None,
            });
            all.push(self.hosted.last_mut().unwrap().plug());
        }
        all
    }

    fn spawn(&mut self, parent: u32, count: u32) -> Answer {
        let available = self.setup.processors;
        if count > available {
            return Answer::TooMany { available };
        }
        self.setup.processors -= count;
        let first = self.ranks();
        let ends = self.host(count, Some(Rank(parent)));
        for other in 0..first {
            self.todo.push_back((other as usize, Event::Ranks(first + count)));
            let Some(sent) = self.hosted[other as usize].ended.clone() else { continue };
            for rank in first..first + count {
                self.todo.push_back((rank as usize, self.peer_ended(other, &sent, rank)));
            }
        }
        self.spawned.extend((first..).zip(ends));
        Answer::Spawned { first: Rank(first), count }
    }

    fn peer_ended(&self, rank: u32, sent: &[(Rank, u64)], to: u32) -> Event {
        let last = sent.iter().find(|(of, _)| of.0 == to).map_or(0, |(_, last)| *last);
        let (rank, end) = (Rank(rank), self.hosted[rank as usize].end);
        Event::PeerEnded { rank, snapshot: Snapshot(0), end, last }
    }

    /// Until every rank has ended. `ended` is asked what comes after a process.
    pub(crate) fn run(&mut self, mut begin: impl FnMut(u32, Ends)) {
        while self.hosted.iter().any(|rank_here| rank_here.read.is_some()) {
            let ready = self.wait();
            for index in ready {
                if let Next::Again(pipes) = self.read(index) {
                    begin(u32::try_from(index).unwrap(), pipes);
                }
                self.settle();
                self.spawned.drain(..).for_each(|(rank, ends)| begin(rank, ends));
            }
            self.wake();
            self.find_deadlock();
        }
    }

    /// Waits until a pipe can be read, or written where something is unread.
    fn wait(&mut self) -> Vec<usize> {
        let (mut fds, mut of) = (vec![], vec![]);
        for (index, rank_here) in self.hosted.iter().enumerate() {
            if let Some(read) = &rank_here.read {
                fds.push(PollFd::from_borrowed_fd(read.as_fd(), PollFlags::IN));
                of.push((index, true));
            }
            if let Some(write) = rank_here.write.as_ref().filter(|_| !rank_here.unread.is_empty()) {
                fds.push(PollFd::from_borrowed_fd(write.as_fd(), PollFlags::OUT));
                of.push((index, false));
            }
        }
        let timeout = Timespec::try_from(Duration::from_millis(5)).unwrap();
        if rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 0 {
            self.now = self.now + Duration::from_millis(5);
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut readable = vec![];
        for ((index, is_read), ready) in of.into_iter().zip(ready) {
            match (ready, is_read) {
                (true, true) => readable.push(index),
                (true, false) => self.hosted[index].write_what_fits(),
                (false, _) => {}
            }
        }
        readable
    }

    fn read(&mut self, index: usize) -> Next {
        let rank_here = &mut self.hosted[index];
        let Some(read) = &rank_here.read else { return Next::Over };
        match rustix::io::read(read, spare_capacity(rank_here.reader.space())) {
            Ok(0) => return self.process_ended(index),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Next::Over,
            Err(error) => panic!("{error}"),
        }
        loop {
            let frame = self.hosted[index].reader.next_frame();
            match frame {
                Ok(Some(frame)) => self.handle(index, Event::FromProgram(frame)),
                Ok(None) => return Next::Over,
                Err(error) => {
                    let rank = self.hosted[index].endpoint.rank();
                    let what = error.to_string();
                    self.complaints.push(Complaint::Protocol { rank, what });
                    return self.process_ended(index);
                }
            }
        }
    }

    fn process_ended(&mut self, index: usize) -> Next {
        let rank = u32::try_from(index).unwrap();
        self.hosted[index].unplug();
        if let Some(place) = self.setup.restarts.iter().position(|again| *again == rank) {
            self.setup.restarts.remove(place);
            let pipes = self.hosted[index].plug();
            self.handle(index, Event::RolledBack(Back::Process));
            return Next::Again(pipes);
        }
        let end = self.hosted[index].end;
        self.handle(index, Event::Ended(end));
        self.setup.processors += 1;
        let effects = self.bag.gone(Rank(rank), !matches!(end, End::Retreated | End::Left));
        self.bag_says(effects);
        let effects = self.negotiations.ended(Rank(rank));
        self.negotiated(effects);
        Next::Over
    }

    fn there(&self) -> Processors {
        Processors { free: self.setup.processors, next: Rank(self.ranks()) }
    }

    fn negotiated(&mut self, effects: Vec<alone::Effect>) {
        for effect in effects {
            match effect {
                alone::Effect::Tell { rank, said } => {
                    self.todo.push_back((rank.0 as usize, Event::Negotiate(said)));
                }
                alone::Effect::Answer { rank, request, answer } => {
                    self.todo.push_back((rank.0 as usize, Event::Answered { request, answer }));
                }
                alone::Effect::Begin { by, count } => drop(self.spawn(by.0, count)),
            }
        }
    }

    fn handle(&mut self, index: usize, event: Event) {
        let mut effects = vec![];
        self.hosted[index].endpoint.handle(self.now, event, &mut effects);
        self.carry_out(index, effects);
    }

    fn wake(&mut self) {
        for index in 0..self.hosted.len() {
            let mut effects = vec![];
            self.hosted[index].endpoint.wake(self.now, &mut effects);
            self.carry_out(index, effects);
        }
        self.settle();
    }

    /// What ranks say to each other, until all is said.
    fn settle(&mut self) {
        while let Some((index, event)) = self.todo.pop_front() {
            self.handle(index, event);
        }
        for rank_here in &mut self.hosted {
            rank_here.write_what_fits();
        }
        let held = self.hosted.iter().map(|rank_here| rank_here.endpoint.held()).sum();
        self.held_max = self.held_max.max(held);
    }

    fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        let (rank, fence) =
            (self.hosted[index].endpoint.rank(), self.hosted[index].endpoint.fence());
        for effect in effects {
            let rank_here = &mut self.hosted[index];
            match effect {
                Effect::ToProgram(frame) => {
                    rank_here.give(&frame);
                    let wanted = self.setup.save_asked.iter().position(|of| *of == rank.0);
                    if let Some(place) = wanted {
                        self.setup.save_asked.remove(place);
                        self.todo.push_back((index, Event::PleaseSave));
                    }
                }
                Effect::Restore(boundary) => rank_here.restore(boundary),
                Effect::ToPeer { to, frame } => {
                    self.todo
                        .push_back((to.0 as usize, Event::FromPeer { from: rank, fence, frame }));
                }
                Effect::Ask { request, ask: Ask::Processors } => {
                    let answer = Answer::Processors { count: self.setup.processors };
                    self.todo.push_back((index, Event::Answered { request, answer }));
                }
                Effect::Ask { request, ask: Ask::Leave } => {
                    rank_here.end = End::Left;
                    self.todo.push_back((index, Event::Answered { request, answer: Answer::Left }));
                }
                Effect::Ask { request, ask: Ask::Spawn { count } } => {
                    let answer = self.spawn(rank.0, count);
                    self.todo.push_back((index, Event::Answered { request, answer }));
                }
                Effect::Ask { request, ask: Ask::Negotiates } => {
                    let answer = Answer::Noted;
                    self.todo.push_back((index, Event::Answered { request, answer }));
                    let effects = self.negotiations.negotiates(rank);
                    self.negotiated(effects);
                }
                Effect::Ask { request, ask: ask @ Ask::Negotiate(_) } => {
                    let there = self.there();
                    let effects = self.negotiations.asked(rank, (request, &ask), there);
                    self.negotiated(effects);
                }
                Effect::Negotiate(said) => {
                    let there = self.there();
                    let effects = self.negotiations.said(rank, &said, there);
                    self.negotiated(effects);
                }
                Effect::Ask { request, ask } => {
                    let effects = self.bag.ask(rank, request, ask);
                    self.bag_says(effects);
                }
                Effect::Keep { boundary, last, state } => {
                    rank_here.state.extend_from_slice(&state);
                    if last {
                        rank_here.kept.insert(boundary, std::mem::take(&mut rank_here.state));
                        self.todo.push_back((index, Event::Kept(boundary)));
                    }
                }
                Effect::Forget(boundary) => rank_here.kept.retain(|of, _| *of >= boundary),
                Effect::Complain(complaint) => {
                    if complaint.is_fatal() {
                        rank_here.unplug();
                        rank_here.end = End::Stopped;
                        self.todo.push_back((index, Event::Ended(End::Stopped)));
                    }
                    self.complaints.push(complaint);
                }
                Effect::Ended { sent, .. } => {
                    for other in 0..self.ranks() {
                        let event = self.peer_ended(rank.0, &sent, other);
                        self.todo.push_back((other as usize, event));
                    }
                    self.hosted[index].ended = Some(sent);
                }
                Effect::Retreated => rank_here.end = End::Retreated,
                Effect::Drained => {}
                Effect::TakeImage => {
                    let because = "threads have none".to_owned();
                    self.complaints.push(Complaint::NoImage { rank, because: because.clone() });
                    self.todo.push_back((index, Event::NotImaged { because }));
                }
                Effect::Cut { .. } | Effect::NoCut(_) => unreachable!(),
            }
        }
    }

    fn bag_says(&mut self, effects: Vec<bag::Effect>) {
        for effect in effects {
            if let bag::Effect::Answer { rank, request, answer } = effect {
                let is_task = matches!(answer, Answer::Task { .. });
                self.todo.push_back((rank.0 as usize, Event::Answered { request, answer }));
                if is_task && self.is_wanted_back(rank) {
                    // Time goes by here while all are waiting for a core.
                    let within = Duration::from_secs(60);
                    self.todo.push_back((rank.0 as usize, Event::Retreat { within }));
                }
            }
        }
    }

    /// Has the rank's owner returned with this task?
    fn is_wanted_back(&mut self, rank: Rank) -> bool {
        let mut retreats = self.setup.retreats.iter_mut();
        let left = retreats.find(|(of, left)| *of == rank.0 && *left > 0);
        left.is_some_and(|(_, left)| {
            *left -= 1;
            *left == 0
        })
    }

    fn find_deadlock(&mut self) {
        let facts: Vec<_> =
            self.hosted.iter().map(|rank_here| rank_here.endpoint.facts()).collect();
        for complaint in diagnose(&facts) {
            if let Complaint::Deadlock { waits } = &complaint {
                for (rank, _) in waits {
                    self.todo.push_back((rank.0 as usize, Event::Deadlock(waits.clone())));
                }
                self.complaints.push(complaint);
            }
        }
        self.settle();
    }
}

impl HostedRank {
    /// Makes the pipes of a new process; gives its ends.
    fn plug(&mut self) -> Ends {
        let ((their_read, our_write), (our_read, their_write)) = (pair(), pair());
        rustix::io::ioctl_fionbio(&our_write, true).unwrap();
        rustix::io::ioctl_fionbio(&our_read, true).unwrap();
        (self.read, self.write) = (Some(our_read), Some(our_write));
        self.reader = FrameReader::default();
        self.unread.clear();
        Ends { read: their_read, write: their_write }
    }

    fn unplug(&mut self) {
        (self.read, self.write) = (None, None);
        self.unread.clear();
        self.state.clear();
    }

    fn give(&mut self, frame: &AgentFrame) {
        let mut head = vec![];
        let apart = framing::encode(frame, &mut head).unwrap();
        self.unread.push_back(head.into());
        if !apart.is_empty() {
            self.unread.push_back(apart);
        }
    }

    fn restore(&mut self, boundary: Boundary) {
        let state = Bytes::from(self.kept[&boundary].clone());
        let mut start = 0;
        loop {
            let end = state.len().min(start + PIECE_BYTES_MAX);
            let last = end == state.len();
            self.give(&AgentFrame::State { last, state: state.slice(start..end) });
            start = end;
            if last {
                return;
            }
        }
    }

    fn write_what_fits(&mut self) {
        let Some(write) = &self.write else { return };
        while !self.unread.is_empty() {
            let slices: Vec<_> =
                self.unread.iter().take(16).map(|bytes| std::io::IoSlice::new(bytes)).collect();
            match rustix::io::writev(write, &slices) {
                Ok(mut written) => {
                    while let Some(front) = self.unread.front_mut().filter(|_| written > 0) {
                        let step = written.min(front.len());
                        front.advance(step);
                        written -= step;
                        if front.is_empty() {
                            self.unread.pop_front();
                        }
                    }
                }
                Err(Errno::AGAIN) => return,
                // The process has gone; its end is read.
                Err(_) => {
                    self.unread.clear();
                    return;
                }
            }
        }
    }
}

/// Writes bytes that are no frame, as a sick program would.
pub(crate) fn corrupt(ends: Ends) {
    let _ = std::fs::File::from(ends.write).write_all(&[0xff; 64]);
}
