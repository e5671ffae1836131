//! The endpoint of one rank at its agent: everything between its program's
//! two pipes and the endpoints of the other ranks.
//!
//! The promise: what one rank sends to another is delivered once and in
//! order, through any number of moves of either and of repeats of a subtask,
//! and neither end ever holds more than its windows and its log. Knows
//! nothing of workstations, connections or files.
//!
//! ```text
//!            Hello                    pack
//!   absent ─────────► present  ── (either) ──► away ──► unpack, Arrived (there) or Stayed (here)
//!     ▲  RolledBack      │
//!     └──────────────────┤ a fault: broken; Ended: ended, and drained when all is acknowledged
//! ```
//!
//! **Going back.** The program saves its state at a boundary, or an image of its
//! process is taken while it stands at one; the endpoint keeps what is delivered after it ([`log`](crate::log)). When the rank goes
//! back, that is delivered again, and what the repeated subtask sends is
//! known by its number and goes no further.
//!
//! **Hosting one.** The agent makes two pipes (its own ends non-blocking),
//! starts the process with the others and [`PIPES_VARIABLE`], and then:
//! everything read goes through a [`FrameReader`] to [`Event::FromProgram`];
//! a frame that does not read ends the process. `ToProgram` is queued and
//! written as the pipe takes it: the queue is bounded by the windows. The
//! read end is read at all times, also while writing is held up. `ToPeer` goes
//! where the [`Directory`] says, to an endpoint here without being encoded.
//! `deadline` and `wake` as in every core.
//!
//! **Moving it.** Freeze the process; read what it wrote and handle it; wait
//! until a `Keep` under way is answered; take what it has not read out of the
//! pipe and the queue ([`PipeRest`]); [`Endpoint::pack`]. There:
//! [`Endpoint::unpack`], restore the process with new pipes, put the rest into
//! them first, learn the place, [`Event::Arrived`]. Here: learn the new place
//! and drop the endpoint, or [`Event::Stayed`]. Ranks that have ended are told
//! again by the coordinator, and the number of ranks if it has changed.
//!
//! **Snapshots.** A coordinated checkpoint needs no halt: every frame carries
//! the number of the last snapshot its sender took part in, and whoever hears
//! of a newer one takes its own cut before it looks at the frame (Lai and
//! Yang 1987). A cut is the endpoint's own state: the last boundary, the
//! deliveries since, and what is sent and not acknowledged. The latter is
//! what is in the channels, so no channel has to be recorded.
//!
//! [`PIPES_VARIABLE`]: crate::wire::PIPES_VARIABLE
//! [`FrameReader`]: crate::framing::FrameReader
//! [`Directory`]: crate::directory::Directory

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

use crate::address::{Boundary, Rank, Request, Snapshot, window};
use crate::complaint::Complaint;
use crate::facts::{End, RankFacts, Stance};
use crate::log::{Fill, Log};
use crate::negotiation::Said;
use crate::packed::{Mark, Presence, What};
use crate::peer::Peer;
use crate::wire::{AgentFrame, Answer, Ask, PeerFrame, ProgramFrame, Unreceived, Wait};

mod back;
mod from_peer;
mod from_program;
mod packing;

pub use crate::packed::{PipeRest, UnpackError};

/// The most questions of one rank that the coordinator has not answered.
pub const OPEN_ASKS_MAX: usize = 64;

/// How much is kept at most of what a rank receives, for it to go back. A
/// guess, not yet measured.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// What an endpoint is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub rank: Rank,
    /// How many ranks there are now.
    pub ranks: u32,
    /// The ranks that begin together with this one: so many from the first on.
    pub first: Rank,
    pub members: u32,
    /// Who spawned them.
    pub parent: Option<Rank>,
    /// The most there may ever be: every endpoint of the job computes its
    /// windows from it.
    pub ranks_max: u32,
    /// How much is kept for a rollback; 0: none is possible.
    pub log_bytes_max: u64,
    /// The newest snapshot of the job when this rank begins.
    pub snapshot: Snapshot,
    /// Frames of older attempts are not heard: the first fence that was given
    /// out since the program went back as a whole, if it did.
    pub floor: Fence,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    FromProgram(ProgramFrame),
    /// A frame for this rank, of that rank's attempt with this fence.
    FromPeer {
        from: Rank,
        fence: Fence,
        frame: PeerFrame,
    },
    /// The place of this rank is known now, or the way there is open again.
    PeerAt(Rank),
    /// This rank has ended, after this snapshot; its last piece to us had
    /// this number.
    PeerEnded {
        rank: Rank,
        snapshot: Snapshot,
        end: End,
        last: u64,
    },
    /// The program has so many ranks now.
    Ranks(u32),
    Answered {
        request: Request,
        answer: Answer,
    },
    /// The coordinator is there again and may have lost questions.
    CoordinatorBack,
    /// The coordinator has found that these ranks wait for each other
    /// ([`facts::diagnose`](crate::facts::diagnose)).
    Deadlock(Vec<(Rank, Wait)>),
    /// The state that the program saved is durable, or cannot be kept.
    Kept(Boundary),
    NotKept(Boundary),
    /// The process stands still for an image: what it wrote is handled, and
    /// what it has not read is kept with the image. This is a boundary, the
    /// [next one](Endpoint::next_boundary), if the image is taken.
    ImageBegun,
    /// The image was taken.
    Imaged,
    /// No image could be taken.
    NotImaged {
        because: String,
    },
    /// The image to go back to is not here any more.
    ImageLost,
    /// The process is gone, and another will take its place: with
    /// [`Back::Image`] now (it is restored, its pipes are filled with the
    /// what was kept with it), otherwise when its program says `Hello`.
    RolledBack(Back),
    /// The process has ended and none will take its place.
    Ended(End),
    /// Ask the program to save at its next boundary.
    PleaseSave,
    /// Ask the program to return its work.
    Retreat {
        within: Duration,
    },
    /// Take part in this snapshot.
    Cut(Snapshot),
    /// The coordinator says something in a negotiation.
    Negotiate(Said),
    /// Unpacked here, and the process with it.
    Arrived,
    /// The rank was packed, and stays after all.
    Stayed,
}

/// What begins at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// A new process, which is given the state it saved.
    Process,
    /// The image of the process.
    Image,
    /// A new process, which is given nothing: a retreat. Not at a boundary.
    Nothing,
}

/// What to do about it, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    ToProgram(AgentFrame),
    /// After the `Welcome` just given: write the kept state of this boundary.
    Restore(Boundary),
    ToPeer {
        to: Rank,
        frame: PeerFrame,
    },
    /// Ask the coordinator. Repeated questions have the same number.
    Ask {
        request: Request,
        ask: Ask,
    },
    /// A part of the state of this boundary, to be kept; answer the last part
    /// by `Kept` or `NotKept`.
    Keep {
        boundary: Boundary,
        last: bool,
        state: Bytes,
    },
    /// The state before this boundary is not needed any more (except by
    /// snapshots).
    Forget(Boundary),
    Complain(Complaint),
    /// The program has returned its work and ends.
    Retreated,
    /// The rank has ended; tell the others the number of the last piece to each.
    Ended {
        end: End,
        snapshot: Snapshot,
        sent: Vec<(Rank, u64)>,
    },
    /// The rank has ended and nobody lacks anything of it: forget it.
    Drained,
    /// The rank's part of the snapshot, to be kept with the state of this
    /// boundary.
    Cut {
        snapshot: Snapshot,
        boundary: Boundary,
        state: Vec<u8>,
    },
    /// Take an image, because the program stands at a boundary or for a
    /// snapshot: freeze the process, empty its pipes and say `ImageBegun`, then
    /// answer by `Imaged` or `NotImaged`. Said again while one is being taken,
    /// it is answered with that one.
    TakeImage,
    /// The rank takes no part in this snapshot: it comes to nothing.
    NoCut(Snapshot),
    /// Tell the coordinator. What is lost is asked for again.
    Negotiate(Said),
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    config: Config,
    window: u64,
    fence: Fence,
    presence: Presence,
    away: bool,
    peers: BTreeMap<Rank, Peer>,
    log: Log,
    snapshot: Snapshot,
    /// Waits for an image to take part in this snapshot.
    cutting: Option<Snapshot>,
    /// What became known of ended ranks after their cut and before ours.
    deferred: Vec<(Rank, Snapshot, (End, u64))>,
    /// Where the rank can go back to; and the state that is being kept.
    boundary: Option<Mark>,
    pending: Option<Mark>,
    boundaries: u64,
    /// The newest question, of the rank, of its present process, and of those before
    /// that one which it knows nothing of.
    asked: Request,
    program_asked: Request,
    former: Request,
    open: BTreeMap<Request, Ask>,
    /// How many frames the process was given, and what it waits for since.
    frames: u64,
    wait: Option<Wait>,
    /// The program stands at a boundary until it is told to go on.
    at_boundary: bool,
    /// What the program leaves behind, if that was its end.
    unreceived: Vec<Unreceived>,
    /// How many repeats can be compared.
    remembered: usize,
    /// What it has said in negotiations since it heard anything in one.
    haggled: u32,
    tick: Option<Moment>,
}

impl Endpoint {
    pub fn new(config: Config, fence: Fence) -> Self {
        let log = Log::new(config.log_bytes_max);
        Self {
            window: window(config.ranks_max),
            fence,
            presence: Presence::Absent,
            away: false,
            peers: BTreeMap::new(),
            boundary: log.keeps().then(Mark::default),
            log,
            snapshot: config.snapshot,
            cutting: None,
            deferred: vec![],
            pending: None,
            boundaries: 0,
            asked: Request(0),
            program_asked: Request(0),
            former: Request(0),
            open: BTreeMap::new(),
            frames: 0,
            haggled: 0,
            wait: None,
            at_boundary: false,
            unreceived: vec![],
            remembered: 0,
            tick: None,
            config,
        }
    }

    pub fn rank(&self) -> Rank {
        self.config.rank
    }

    /// The attempt that is here: for the packets.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Has the rank ended? It may still have something to send.
    pub fn is_ended(&self) -> bool {
        matches!(self.presence, Presence::Ended { .. })
    }

    /// Appends to `out` what is to be done.
    pub fn handle(&mut self, now: Moment, event: Event, out: &mut Vec<Effect>) {
        // What it is told while it is away is lost: its bytes are written. The
        // ranks whose frames are thrown away are told if it stays.
        if self.away && !matches!(event, Event::FromPeer { .. } | Event::Stayed) {
            return;
        }
        self.happened(now, event, out);
        // Last: the endpoint may be gone then.
        self.look_if_drained(out);
    }

    fn happened(&mut self, now: Moment, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::FromProgram(frame) => self.program_said(now, frame, out),
            Event::FromPeer { from, fence, frame } => self.peer_said(now, from, fence, frame, out),
            Event::PeerAt(rank) => self.peer_at(now, rank, out),
            Event::PeerEnded { rank, snapshot, end, last } => {
                self.peer_ended(rank, snapshot, (end, last), out);
            }
            Event::Ranks(count) => {
                self.config.ranks = count;
                self.tell(AgentFrame::Ranks { count }, out);
            }
            Event::Answered { request, answer } => self.answered(request, answer, out),
            Event::CoordinatorBack => out.extend(self.open_asks()),
            Event::Deadlock(waits) => {
                if self.wait.is_some() {
                    self.tell(AgentFrame::Deadlock { waits }, out);
                }
            }
            Event::Kept(boundary) => self.kept(boundary, out),
            Event::NotKept(boundary) => {
                self.pending.take_if(|mark| mark.boundary == boundary);
            }
            Event::ImageBegun => self.image_begun(),
            Event::Imaged => self.imaged(now, out),
            Event::NotImaged { because } => self.not_imaged(now, because, out),
            Event::ImageLost => self.image_lost(),
            Event::RolledBack(back) => self.rolled_back(now, back, out),
            Event::Ended(end) => self.ended(now, end, out),
            Event::PleaseSave => self.tell(AgentFrame::PleaseSave, out),
            Event::Retreat { within } => self.tell(AgentFrame::Retreat { within }, out),
            Event::Cut(snapshot) => self.cut(snapshot, out),
            Event::Negotiate(said) => {
                self.haggled = 0;
                self.tell(AgentFrame::Negotiate(said), out);
            }
            Event::Arrived => {
                // Elsewhere it was heard.
                self.haggled = 0;
                self.arrived(now, out);
            }
            Event::Stayed => {
                self.away = false;
                self.say_where_we_are(now, |peer| peer.incoming.skipped, out);
                self.ask_again(out);
            }
        }
    }

    /// When [`Endpoint::wake`] is due. Ask again after every `handle` and `wake`.
    pub fn deadline(&self) -> Option<Moment> {
        if self.away { None } else { self.tick }
    }

    /// Acknowledges what has waited, and asks who has been silent for long.
    pub fn wake(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if self.away || self.tick.is_none_or(|at| now < at) {
            return;
        }
        self.tick = None;
        for (&to, peer) in &mut self.peers {
            let asks = peer.out.ask(now);
            if asks || peer.incoming.ack_at().is_some_and(|at| at <= now) {
                let (snapshot, ack) = (self.snapshot, peer.incoming.ack());
                let frame = if asks {
                    PeerFrame::Probe { snapshot, ack }
                } else {
                    PeerFrame::Ack { snapshot, ack }
                };
                out.push(Effect::ToPeer { to, frame });
            }
            earliest(&mut self.tick, peer.out.ask_at());
            earliest(&mut self.tick, peer.incoming.ack_at());
        }
    }

    /// What this rank does and has had, for [`facts`](crate::facts).
    pub fn facts(&self) -> RankFacts {
        let numbers = |number: fn(&Peer) -> u64| {
            self.peers.iter().map(|(&rank, peer)| (rank, number(peer))).collect()
        };
        RankFacts {
            rank: self.config.rank,
            stance: match (self.presence, self.wait) {
                (Presence::Ended { end, .. }, _) => Stance::Ended(end),
                (Presence::Present, Some(wait)) if !self.away => Stance::Waits(wait),
                (Presence::Present | Presence::Absent | Presence::Broken, _) => Stance::Active,
            },
            sent: numbers(|peer| peer.out.last()),
            received: numbers(|peer| peer.incoming.received()),
        }
    }

    /// The cost of what is kept for others, what waits for the program, and
    /// what the program has been given and has not taken.
    pub fn held(&self) -> u64 {
        self.peers.values().map(|peer| peer.out.kept() + peer.incoming.untaken()).sum()
    }

    /// Asks again what may have been answered, or asked in vain, meanwhile.
    fn ask_again(&self, out: &mut Vec<Effect>) {
        out.extend((self.cutting.is_some() || self.at_boundary).then_some(Effect::TakeImage));
        out.extend(self.open_asks());
    }

    fn open_asks(&self) -> impl Iterator<Item = Effect> {
        self.open.iter().map(|(&request, ask)| Effect::Ask { request, ask: ask.clone() })
    }

    /// Gives the program a frame, if it is there.
    fn tell(&mut self, frame: AgentFrame, out: &mut Vec<Effect>) {
        if self.presence == Presence::Present {
            self.frames += 1;
            self.wait = None;
            out.push(Effect::ToProgram(frame));
        }
    }

    fn complain(&mut self, complaint: Complaint, out: &mut Vec<Effect>) {
        if complaint.is_fatal() && !matches!(self.presence, Presence::Ended { .. }) {
            self.presence = Presence::Broken;
        }
        out.push(Effect::Complain(complaint));
    }

    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let (window, floor) = (self.window, self.config.floor);
        self.peers.entry(rank).or_insert_with(|| Peer::new(window, floor))
    }

    /// Sends what may be sent to this rank.
    fn pump(&mut self, now: Moment, to: Rank, out: &mut Vec<Effect>) {
        let snapshot = self.snapshot;
        let Some(peer) = self.peers.get_mut(&to) else { return };
        while let Some((number, piece)) = peer.out.next(now) {
            let (ack, envelope, payload) = (peer.incoming.ack(), piece.envelope, piece.payload);
            let frame = PeerFrame::Data { snapshot, ack, number, envelope, payload };
            out.push(Effect::ToPeer { to, frame });
        }
        earliest(&mut self.tick, peer.out.ask_at());
    }

    /// Tells the program of a rank that has ended, after all it sent.
    fn tell_gone(&mut self, rank: Rank, out: &mut Vec<Effect>) {
        let present = self.presence == Presence::Present;
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        let Some((end, _)) = peer.end else { return };
        if present && !peer.told_gone && peer.is_exhausted() {
            peer.told_gone = true;
            self.look_at_wait(out);
            self.tell(AgentFrame::Gone { rank, end }, out);
        }
    }

    fn tell_all_gone(&mut self, out: &mut Vec<Effect>) {
        let ended = self.peers.iter().filter(|(_, peer)| peer.is_exhausted());
        for rank in ended.map(|(&rank, _)| rank).collect::<Vec<_>>() {
            self.tell_gone(rank, out);
        }
    }

    /// Acknowledges at once if there is much to say, otherwise soon.
    fn acknowledge(&mut self, to: Rank, out: &mut Vec<Effect>) {
        let snapshot = self.snapshot;
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.incoming.is_ack_urgent() {
            let ack = peer.incoming.ack();
            out.push(Effect::ToPeer { to, frame: PeerFrame::Ack { snapshot, ack } });
        }
        earliest(&mut self.tick, peer.incoming.ack_at());
    }

    /// Tells the program what it may send to this rank, if that is much more
    /// than it knows.
    fn make_room(&mut self, to: Rank, out: &mut Vec<Effect>) {
        if self.presence != Presence::Present {
            return;
        }
        if let Some(total) = self.peers.get_mut(&to).and_then(Peer::room) {
            self.tell(AgentFrame::Room { to, total }, out);
        }
    }

    /// Puts what has arrived into the log, and gives it to the program if
    /// that is there.
    fn deliver(&mut self, message: u64, what: What, out: &mut Vec<Effect>) {
        let present = self.presence == Presence::Present;
        if present {
            let frame = frame_of(self.log.next_number(), &what);
            if let What::Piece { from, payload, .. } = &what {
                let cost = crate::address::cost(payload.len());
                let incoming = &mut self.peer(*from).incoming;
                incoming.waiting -= cost;
                incoming.given += cost;
            }
            self.tell(frame, out);
            if !self.log.keeps() {
                // An image that is being taken does not have it.
                self.pending = None;
            }
        }
        self.log.push(message, what, present);
        self.look_at_log(out);
    }

    /// Keeps the log within its bound. What waits for a process is bounded by
    /// the windows, and the process begins at the boundary.
    fn look_at_log(&mut self, out: &mut Vec<Effect>) {
        if self.presence != Presence::Present {
            return;
        }
        match self.log.fill(self.program_asked) {
            Fill::Enough => {}
            Fill::Half => self.tell(AgentFrame::PleaseSave, out),
            Fill::Full => self.no_way_back(out),
        }
    }
}

fn earliest(tick: &mut Option<Moment>, at: Option<Moment>) {
    *tick = match (*tick, at) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

fn frame_of(number: u64, what: &What) -> AgentFrame {
    match what {
        What::Piece { from, envelope, payload } => AgentFrame::Deliver {
            number,
            from: *from,
            envelope: *envelope,
            payload: payload.clone(),
        },
        What::Answer { request, answer } => {
            AgentFrame::Answer { request: *request, answer: answer.clone() }
        }
    }
}

#[cfg(test)]
mod tests;
