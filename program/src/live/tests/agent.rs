//! The agent's side of several ranks in one process: real pipes, real
//! endpoints, a loop that reads whatever is written. It does what an agent has
//! to do, except that all ranks are here.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
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
use gleaner_program_core::wire::{AgentFrame, Answer, Ask};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::Pipes;

struct Seat {
    endpoint: Endpoint,
    read: Option<OwnedFd>,
    write: Option<OwnedFd>,
    reader: FrameReader,
    /// What the program has not read.
    unread: VecDeque<Bytes>,
    state: Vec<u8>,
    kept: BTreeMap<Boundary, Vec<u8>>,
}

pub(super) struct Agent {
    seats: Vec<Seat>,
    /// What is to be handled before anything is read.
    todo: VecDeque<(usize, Event)>,
    bag: Bag,
    now: Moment,
    /// Ranks whose process is to begin again, if it ends.
    restarts: Vec<u32>,
    pub(super) complaints: Vec<Complaint>,
    /// The most that was held for all ranks.
    pub(super) held_max: u64,
}

/// What an agent does about a process that has ended.
pub(super) enum Next {
    Over,
    /// Another process begins with these pipes.
    Again(Pipes),
}

/// How much a pipe takes before its writer waits: several pieces, so that
/// reader and writer run side by side. What is refused stays as it was.
const PIPE_BYTES: usize = 1 << 20;

fn pair() -> (OwnedFd, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
    (read, write)
}

impl Agent {
    /// For so many ranks; gives the pipes of each.
    pub(super) fn new(ranks: u32, log_bytes_max: u64, restarts: Vec<u32>) -> (Self, Vec<Pipes>) {
        let limits = bag::Limits { tasks_max: 1_000, bytes_max: 1 << 20 };
        let mut agent = Self {
            seats: vec![],
            todo: VecDeque::new(),
            bag: Bag::new(limits, None),
            now: Moment(1),
            restarts,
            complaints: vec![],
            held_max: 0,
        };
        let mut all = vec![];
        for rank in 0..ranks {
            let config = Config {
                rank: Rank(rank),
                ranks,
                first: Rank(0),
                members: ranks,
                parent: None,
                ranks_max: 16,
                log_bytes_max,
                snapshot: Snapshot(0),
                floor: Fence(0),
            };
            agent.seats.push(Seat {
                endpoint: Endpoint::new(config, Fence(u64::from(rank) + 1)),
                read: None,
                write: None,
                reader: FrameReader::default(),
                unread: VecDeque::new(),
                state: vec![],
                kept: BTreeMap::new(),
            });
            all.push(agent.seats.last_mut().unwrap().plug());
        }
        (agent, all)
    }

    /// Until every rank has ended. `ended` is asked what comes after a process.
    pub(super) fn run(&mut self, mut begin: impl FnMut(u32, Pipes)) {
        while self.seats.iter().any(|seat| seat.read.is_some()) {
            let ready = self.wait();
            for index in ready {
                if let Next::Again(pipes) = self.read(index) {
                    begin(u32::try_from(index).unwrap(), pipes);
                }
                self.settle();
            }
            self.wake();
            self.find_deadlock();
        }
    }

    /// Waits until a pipe can be read, or written where something is unread.
    fn wait(&mut self) -> Vec<usize> {
        let (mut fds, mut of) = (vec![], vec![]);
        for (index, seat) in self.seats.iter().enumerate() {
            if let Some(read) = &seat.read {
                fds.push(PollFd::from_borrowed_fd(read.as_fd(), PollFlags::IN));
                of.push((index, true));
            }
            if let Some(write) = seat.write.as_ref().filter(|_| !seat.unread.is_empty()) {
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
                (true, false) => self.seats[index].write_what_fits(),
                (false, _) => {}
            }
        }
        readable
    }

    fn read(&mut self, index: usize) -> Next {
        let seat = &mut self.seats[index];
        let Some(read) = &seat.read else { return Next::Over };
        match rustix::io::read(read, spare_capacity(seat.reader.space())) {
            Ok(0) => return self.process_ended(index),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Next::Over,
            Err(error) => panic!("{error}"),
        }
        loop {
            let frame = self.seats[index].reader.next_frame();
            match frame {
                Ok(Some(frame)) => self.handle(index, Event::FromProgram(frame)),
                Ok(None) => return Next::Over,
                Err(error) => {
                    let rank = self.seats[index].endpoint.rank();
                    let what = error.to_string();
                    self.complaints.push(Complaint::Protocol { rank, what });
                    return self.process_ended(index);
                }
            }
        }
    }

    fn process_ended(&mut self, index: usize) -> Next {
        let rank = u32::try_from(index).unwrap();
        self.seats[index].unplug();
        if let Some(place) = self.restarts.iter().position(|again| *again == rank) {
            self.restarts.remove(place);
            let pipes = self.seats[index].plug();
            self.handle(index, Event::RolledBack(Back::Process));
            return Next::Again(pipes);
        }
        self.handle(index, Event::Ended(End::ExitCode(0)));
        let effects = self.bag.gone(Rank(rank), true);
        self.bag_says(effects);
        Next::Over
    }

    fn handle(&mut self, index: usize, event: Event) {
        let mut effects = vec![];
        self.seats[index].endpoint.handle(self.now, event, &mut effects);
        self.carry_out(index, effects);
    }

    fn wake(&mut self) {
        for index in 0..self.seats.len() {
            let mut effects = vec![];
            self.seats[index].endpoint.wake(self.now, &mut effects);
            self.carry_out(index, effects);
        }
        self.settle();
    }

    /// What ranks say to each other, until all is said.
    fn settle(&mut self) {
        while let Some((index, event)) = self.todo.pop_front() {
            self.handle(index, event);
        }
        for seat in &mut self.seats {
            seat.write_what_fits();
        }
        let held = self.seats.iter().map(|seat| seat.endpoint.held()).sum();
        self.held_max = self.held_max.max(held);
    }

    fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        let (rank, fence) = (self.seats[index].endpoint.rank(), self.seats[index].endpoint.fence());
        for effect in effects {
            let seat = &mut self.seats[index];
            match effect {
                Effect::ToProgram(frame) => seat.give(&frame),
                Effect::Restore(boundary) => seat.restore(boundary),
                Effect::ToPeer { to, frame } => {
                    self.todo
                        .push_back((to.0 as usize, Event::FromPeer { from: rank, fence, frame }));
                }
                Effect::Ask { request, ask: Ask::Processors } => {
                    let answer = Answer::Processors { count: 3 };
                    self.todo.push_back((index, Event::Answered { request, answer }));
                }
                Effect::Ask { request, ask: Ask::Spawn { .. } } => {
                    let answer = Answer::TooMany { available: 3 };
                    self.todo.push_back((index, Event::Answered { request, answer }));
                }
                Effect::Ask { request, ask } => {
                    let effects = self.bag.ask(rank, request, ask);
                    self.bag_says(effects);
                }
                Effect::Keep { boundary, last, state } => {
                    seat.state.extend_from_slice(&state);
                    if last {
                        seat.kept.insert(boundary, std::mem::take(&mut seat.state));
                        self.todo.push_back((index, Event::Kept(boundary)));
                    }
                }
                Effect::Forget(boundary) => seat.kept.retain(|of, _| *of >= boundary),
                Effect::Complain(complaint) => {
                    if complaint.is_fatal() {
                        seat.unplug();
                    }
                    self.complaints.push(complaint);
                }
                Effect::Ended { end, snapshot, sent } => {
                    for other in 0..self.seats.len() {
                        let last = sent.iter().find(|(to, _)| to.0 as usize == other);
                        let last = last.map_or(0, |(_, last)| *last);
                        let event = Event::PeerEnded { rank, snapshot, end, last };
                        self.todo.push_back((other, event));
                    }
                }
                Effect::Retreated | Effect::Drained => {}
                Effect::Cut { .. } | Effect::TakeImage | Effect::NoCut(_) => unreachable!(),
            }
        }
    }

    fn bag_says(&mut self, effects: Vec<bag::Effect>) {
        for effect in effects {
            if let bag::Effect::Answer { rank, request, answer } = effect {
                self.todo.push_back((rank.0 as usize, Event::Answered { request, answer }));
            }
        }
    }

    fn find_deadlock(&mut self) {
        let facts: Vec<_> = self.seats.iter().map(|seat| seat.endpoint.facts()).collect();
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

impl Seat {
    /// Makes the pipes of a new process; gives its ends.
    fn plug(&mut self) -> Pipes {
        let ((their_read, our_write), (our_read, their_write)) = (pair(), pair());
        rustix::io::ioctl_fionbio(&our_write, true).unwrap();
        rustix::io::ioctl_fionbio(&our_read, true).unwrap();
        (self.read, self.write) = (Some(our_read), Some(our_write));
        self.reader = FrameReader::default();
        self.unread.clear();
        Pipes::new(their_read, their_write)
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
pub(super) fn corrupt(pipes: Pipes) {
    let (_read, write) = pipes.into_ends();
    let _ = std::fs::File::from(write).write_all(&[0xff; 64]);
}
