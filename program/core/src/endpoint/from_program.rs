//! What the program says. Everything it can say wrong is a fault of its own,
//! which ends its process and nobody else's.

use bytes::Bytes;
use gleaner_common::time::Moment;

use super::{Effect, Endpoint, OPEN_ASKS_MAX};
use crate::address::{Envelope, PIECE_BYTES_MAX, Rank, Request, cost};
use crate::complaint::Complaint;
use crate::facts::End;
use crate::packed::{Presence, What};
use crate::peer::{Peer, Sending};
use crate::wire::{
    ASK_BYTES_MAX, AgentFrame, Answer, Ask, LIST_MAX, ProgramFrame, Unreceived, VERSION, Wait,
    Welcome,
};

/// A rank answers what it hears. So much it may say in negotiations without
/// hearing anything; what is lost is said again.
const HAGGLED_MAX: u32 = 64;
const HAGGLES: &str = "it says more than 64 things in negotiations that nobody has answered";

/// The most that is remembered of what was sent since the last boundary, in
/// pieces; four bytes each.
const REMEMBERED_MAX: usize = 4 << 20;

impl Endpoint {
    pub(super) fn program_said(&mut self, now: Moment, frame: ProgramFrame, out: &mut Vec<Effect>) {
        match (self.presence, frame) {
            (Presence::Absent, ProgramFrame::Hello { version }) => self.hello(now, version, out),
            (Presence::Absent, _) => self.fault("it did not begin with Hello", out),
            // The rank's process is about to end.
            (Presence::Broken | Presence::Ended { .. }, _) => {}
            (Presence::Present, frame) => self.said(now, frame, out),
        }
    }

    fn said(&mut self, now: Moment, frame: ProgramFrame, out: &mut Vec<Effect>) {
        match frame {
            ProgramFrame::Send { to, envelope, payload } => {
                self.send(now, to, envelope, payload, out);
            }
            ProgramFrame::Took { from, total } => self.took(from, total, out),
            ProgramFrame::Matched(numbers) => {
                if numbers.len() > LIST_MAX {
                    return self.fault("too many numbers at once", out);
                }
                for number in numbers {
                    self.log.matched(number);
                }
            }
            ProgramFrame::Waiting { on, read } => self.waits(on, read, out),
            ProgramFrame::Ask { request, ask } => self.ask(request, ask, out),
            ProgramFrame::Retreated => out.push(Effect::Retreated),
            ProgramFrame::Bye { unreceived } => {
                if unreceived.len() > LIST_MAX {
                    return self.fault("too long a list", out);
                }
                self.unreceived = unreceived;
            }
            ProgramFrame::Save { last, state } => self.save(last, state, out),
            ProgramFrame::Boundary => self.stands_at_boundary(out),
            ProgramFrame::Negotiate(said) => match said.check() {
                Ok(()) if self.haggled < HAGGLED_MAX => {
                    self.haggled += 1;
                    out.push(Effect::Negotiate(said));
                }
                Ok(()) => self.fault(HAGGLES, out),
                Err(nonsense) => self.fault(&nonsense.to_string(), out),
            },
            ProgramFrame::Hello { .. } => self.fault("it says Hello twice", out),
        }
    }

    fn hello(&mut self, now: Moment, version: u16, out: &mut Vec<Effect>) {
        let rank = self.config.rank;
        if version != VERSION {
            let complaint = Complaint::Version { rank, theirs: version, ours: VERSION };
            out.push(Effect::ToProgram(AgentFrame::Refused { reason: complaint.to_string() }));
            return self.complain(complaint, out);
        }
        self.presence = Presence::Present;
        (self.frames, self.at_boundary) = (0, false);
        let restored = self.boundary.as_ref().and_then(crate::packed::Mark::saved);
        let rooms = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.program_room != self.window)
            .map(|(&rank, peer)| (rank, peer.program_room))
            .collect();
        let welcome = Welcome {
            version: VERSION,
            rank,
            ranks: self.config.ranks,
            window: self.window,
            rooms,
            logged: self.log.keeps(),
            members: self.config.first.0..self.config.first.0 + self.config.members,
            parent: self.config.parent,
            request: Request(self.program_asked.0 + 1),
            restored,
        };
        self.tell(AgentFrame::Welcome(welcome), out);
        out.extend(restored.map(Effect::Restore));
        self.give_what_waits(out);
        self.say_where_we_are(now, |peer| peer.incoming.skipped, out);
    }

    pub(super) fn fault(&mut self, what: &str, out: &mut Vec<Effect>) {
        let complaint = Complaint::Protocol { rank: self.config.rank, what: what.to_owned() };
        self.complain(complaint, out);
    }

    fn send(
        &mut self,
        now: Moment,
        to: Rank,
        envelope: Envelope,
        payload: Bytes,
        out: &mut Vec<Effect>,
    ) {
        let (rank, ranks) = (self.config.rank, self.config.ranks);
        if to.0 >= ranks {
            return self.complain(Complaint::NoSuchRank { rank, to, ranks }, out);
        }
        let remember = self.log.keeps() && (self.boundary.is_some() || self.pending.is_some());
        let peer = self.peer(to);
        if !peer.inside.accept(envelope.part, payload.len()) {
            return self.fault("pieces that make no message", out);
        }
        let sent = peer.program_sent + cost(payload.len());
        if sent > peer.program_room {
            let over = sent - peer.program_room;
            return self.complain(Complaint::Flood { rank, to, over }, out);
        }
        peer.program_sent = sent;
        let before = peer.remembers();
        let sending = peer.send(envelope, payload, remember);
        let (more, end) = (peer.remembers() - before, peer.end.filter(|_| peer.gone));
        match sending {
            Sending::New => match end {
                Some((end, _)) => {
                    let tag = envelope.tag;
                    out.push(Effect::Complain(Complaint::SentToEnded { rank, to, tag, end }));
                }
                None => self.pump(now, to, out),
            },
            Sending::Repeated => {}
            Sending::Different => {
                let number = self.peer(to).program_last;
                return self.complain(Complaint::NotRepeatable { rank, to, number }, out);
            }
        }
        self.make_room(to, out);
        self.remembered += more;
        if self.remembered > REMEMBERED_MAX {
            self.log.forget_received(self.program_asked);
            self.no_way_back(out);
        }
    }

    fn took(&mut self, from: Rank, total: u64, out: &mut Vec<Effect>) {
        let Some(incoming) = self.peers.get_mut(&from).map(|peer| &mut peer.incoming) else {
            return self.fault("it has taken what it was not given", out);
        };
        if total < incoming.took || total > incoming.given {
            return self.fault("it has taken what it was not given", out);
        }
        incoming.took = total;
        self.acknowledge(from, out);
    }

    fn waits(&mut self, on: Wait, read: u64, out: &mut Vec<Effect>) {
        // Something was on its way when it was said.
        if read != self.frames {
            return;
        }
        self.wait = Some(on);
        self.look_at_wait(out);
    }

    /// Complains of a program that waits for what cannot come any more.
    pub(super) fn look_at_wait(&mut self, out: &mut Vec<Effect>) {
        let Some(on) = self.wait else { return };
        let ended: Option<(Rank, End)> = match on {
            Wait::Message { from: Some(from), .. } => {
                let Some(peer) = self.peers.get(&from).filter(|peer| peer.is_exhausted()) else {
                    return;
                };
                peer.end.map(|(end, _)| (from, end))
            }
            Wait::Message { from: None, .. } => {
                let own = self.config.rank;
                let exhausted = |(&rank, peer): (&Rank, &Peer)| rank != own && peer.is_exhausted();
                let others = self.peers.iter().filter(|&pair| exhausted(pair)).count();
                // What it has sent itself may still be on its way.
                let own = self.peers.get(&own);
                let to_itself = own.is_some_and(|p| p.out.last() > p.incoming.received());
                if others + 1 < self.config.ranks as usize || to_itself {
                    return;
                }
                None
            }
            Wait::Room { .. } | Wait::Answer { .. } | Wait::End { .. } => return,
        };
        let because = match ended {
            Some((rank, end)) => format!("{rank} has ended ({end})"),
            None => "every other rank has ended".to_owned(),
        };
        let rank = self.config.rank;
        out.push(Effect::Complain(Complaint::NeverComes { rank, on, because }));
    }

    fn ask(&mut self, request: Request, ask: Ask, out: &mut Vec<Effect>) {
        let bytes = match &ask {
            Ask::Done { result, .. } => result.len(),
            Ask::PutTask { task } => task.len(),
            Ask::Spawn { .. }
            | Ask::Leave
            | Ask::Processors
            | Ask::NextTask
            | Ask::ReturnTask { .. }
            | Ask::CloseBag
            | Ask::NextResult
            | Ask::Negotiates => 0,
            Ask::Negotiate(said) => {
                if let Err(nonsense) = said.check() {
                    return self.fault(&nonsense.to_string(), out);
                }
                0
            }
            Ask::BeginsAnew => return self.fault("it asks what its agent asks", out),
        };
        if request.0 != self.program_asked.0 + 1 {
            return self.fault("its questions are not numbered one after the other", out);
        }
        if bytes > ASK_BYTES_MAX || self.open_of_process() >= OPEN_ASKS_MAX {
            return self.fault("it asks too much at once", out);
        }
        self.program_asked = request;
        // Asked before it went back: the answer is given already, or comes.
        if request <= self.asked {
            return;
        }
        self.asked = request;
        self.open.insert(request, ask.clone());
        out.push(Effect::Ask { request, ask });
    }

    /// How many questions of the process that is here are open.
    pub(super) fn open_of_process(&self) -> usize {
        self.open.keys().filter(|request| **request > self.former).count()
    }

    pub(super) fn answered(&mut self, request: Request, answer: Answer, out: &mut Vec<Effect>) {
        // Answered already; or nobody here has asked.
        if self.open.remove(&request).is_none() || request <= self.former {
            return;
        }
        let number = self.log.next_number();
        self.deliver(number, What::Answer { request, answer }, out);
    }

    fn save(&mut self, last: bool, state: Bytes, out: &mut Vec<Effect>) {
        if state.len() > PIECE_BYTES_MAX {
            return self.fault("too long a part of a state", out);
        }
        if self.peers.values().any(|peer| peer.inside.is_open()) {
            return self.fault("it saves inside a message", out);
        }
        let boundary = crate::address::Boundary(self.boundaries + 1);
        out.push(Effect::Keep { boundary, last, state });
        if last {
            self.boundary_reached(boundary);
        }
    }

    pub(super) fn ended(&mut self, now: Moment, end: End, out: &mut Vec<Effect>) {
        if matches!(self.presence, Presence::Ended { .. }) {
            return;
        }
        let rank = self.config.rank;
        self.presence = Presence::Ended { end, drained: false };
        self.wait = None;
        let open = self.peers.iter().filter(|(_, peer)| peer.inside.is_open());
        out.extend(
            open.map(|(&to, _)| Effect::Complain(Complaint::EndedInsideMessage { rank, to })),
        );
        let left = std::mem::take(&mut self.unreceived).into_iter();
        out.extend(left.map(|Unreceived { from, tag, messages, .. }| {
            Effect::Complain(Complaint::NeverReceived { rank, from, tag, messages })
        }));
        let sent = self.peers.iter().map(|(&rank, peer)| (rank, peer.out.last())).collect();
        out.push(Effect::Ended { end, snapshot: self.snapshot, sent });
        self.finish_cut(now, out);
    }

    pub(super) fn look_if_drained(&mut self, out: &mut Vec<Effect>) {
        let Presence::Ended { end, drained: false } = self.presence else { return };
        if self.peers.values().all(|peer| peer.out.is_empty()) {
            self.presence = Presence::Ended { end, drained: true };
            out.push(Effect::Drained);
        }
    }
}
