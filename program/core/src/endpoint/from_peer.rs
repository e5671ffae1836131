//! What other ranks' agents say.

use gleaner_common::id::Fence;
use gleaner_common::time::Moment;

use super::{Effect, Endpoint};
use crate::address::{Envelope, Rank, Snapshot, cost};
use crate::complaint::Complaint;
use crate::facts::End;
use crate::incoming::Arrival;
use crate::packed::{Presence, What};
use crate::peer::Peer;
use crate::wire::{Ack, PeerFrame};

impl Endpoint {
    pub(super) fn peer_said(
        &mut self,
        now: Moment,
        from: Rank,
        fence: Fence,
        frame: PeerFrame,
        out: &mut Vec<Effect>,
    ) {
        let own_snapshot = self.snapshot;
        if from.0 >= self.config.ranks_max {
            return;
        }
        let away = self.away;
        let peer = self.peer(from);
        // From an attempt that is over, or from before all went back.
        if fence < peer.fence {
            return;
        }
        peer.fence = fence;
        if away {
            peer.incoming.skipped = true;
            return;
        }
        if frame.snapshot() > own_snapshot && !self.cut_before(frame.snapshot(), from, out) {
            return;
        }
        match frame {
            PeerFrame::Ack { ack, .. } => self.acked(now, from, ack, out),
            PeerFrame::Probe { ack, .. } => {
                self.acked(now, from, ack, out);
                self.answer_probe(from, out);
            }
            PeerFrame::Gone { ack, .. } => self.gone(now, from, ack, out),
            PeerFrame::Data { ack, number, envelope, payload, .. } => {
                self.acked(now, from, ack, out);
                self.arrived_data(now, from, number, envelope, payload, out);
            }
        }
    }

    fn acked(&mut self, now: Moment, from: Rank, ack: Ack, out: &mut Vec<Effect>) {
        let peer = self.peer(from);
        // What it claims beyond what was sent is nonsense; nothing follows.
        if peer.out.acknowledge(now, ack) {
            self.pump(now, from, out);
            self.make_room(from, out);
        }
    }

    fn answer_probe(&mut self, to: Rank, out: &mut Vec<Effect>) {
        let (snapshot, ended) = (self.snapshot, matches!(self.presence, Presence::Ended { .. }));
        let ack = self.peer(to).incoming.ack();
        let frame = if ended {
            PeerFrame::Gone { snapshot, ack }
        } else {
            PeerFrame::Ack { snapshot, ack }
        };
        out.push(Effect::ToPeer { to, frame });
    }

    fn arrived_data(
        &mut self,
        now: Moment,
        from: Rank,
        number: u64,
        envelope: Envelope,
        payload: bytes::Bytes,
        out: &mut Vec<Effect>,
    ) {
        if matches!(self.presence, Presence::Ended { .. }) {
            return self.answer_probe(from, out);
        }
        if self.presence == Presence::Absent {
            // What is acknowledged is not sent again, and a rank whose process has not
            // begun may begin elsewhere, without what has come here.
            self.peer(from).incoming.skipped = true;
            return;
        }
        let snapshot = self.snapshot;
        let next_number = self.log.next_number();
        let incoming = &mut self.peer(from).incoming;
        match incoming.arrive(now, number, cost(payload.len())) {
            Arrival::Next => {
                let message = incoming.message(envelope.part, next_number);
                self.deliver(message, What::Piece { from, envelope, payload }, out);
                self.tell_gone(from, out);
                self.acknowledge(from, out);
            }
            Arrival::Repeated => self.acknowledge(from, out),
            Arrival::Early { say: true } => {
                let ack = incoming.ack();
                out.push(Effect::ToPeer { to: from, frame: PeerFrame::Ack { snapshot, ack } });
            }
            Arrival::Early { say: false } | Arrival::Over => {}
        }
    }

    fn gone(&mut self, now: Moment, from: Rank, ack: Ack, out: &mut Vec<Effect>) {
        let rank = self.config.rank;
        let peer = self.peer(from);
        if !peer.out.acknowledge(now, ack) {
            return;
        }
        peer.gone = true;
        let end = peer.end.map_or(End::Stopped, |(end, _)| end);
        if let Some(tag) = peer.out.give_up() {
            out.push(Effect::Complain(Complaint::SentToEnded { rank, to: from, tag, end }));
        }
        self.make_room(from, out);
    }

    pub(super) fn peer_at(&mut self, now: Moment, rank: Rank, out: &mut Vec<Effect>) {
        let snapshot = self.snapshot;
        let away = self.away;
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if away || peer.out.is_empty() {
            return;
        }
        peer.out.rewind();
        let said = out.len();
        self.pump(now, rank, out);
        // The sender is not allowed to send anything: perhaps the permission was lost.
        if out.len() == said {
            let ack = self.peer(rank).incoming.ack();
            out.push(Effect::ToPeer { to: rank, frame: PeerFrame::Probe { snapshot, ack } });
        }
    }

    pub(super) fn peer_ended(
        &mut self,
        rank: Rank,
        snapshot: Snapshot,
        end: (End, u64),
        out: &mut Vec<Effect>,
    ) {
        if rank.0 >= self.config.ranks_max {
            return;
        }
        self.cut(snapshot, out);
        if self.snapshot < snapshot {
            return self.deferred.push((rank, snapshot, end));
        }
        // What is not acknowledged has arrived, or never will: nobody knows.
        let peer = self.peer(rank);
        peer.end = Some(end);
        peer.gone = true;
        peer.out.give_up();
        self.make_room(rank, out);
        self.tell_gone(rank, out);
    }

    /// Tells those ranks where this one stands, and asks the same of them.
    pub(super) fn say_where_we_are(
        &mut self,
        now: Moment,
        whom: impl Fn(&Peer) -> bool,
        out: &mut Vec<Effect>,
    ) {
        let snapshot = self.snapshot;
        for (&to, peer) in self.peers.iter_mut().filter(|(_, peer)| whom(peer)) {
            peer.out.restart_clock(now);
            super::earliest(&mut self.tick, peer.out.ask_at());
            let ack = peer.incoming.ack();
            out.push(Effect::ToPeer { to, frame: PeerFrame::Probe { snapshot, ack } });
        }
    }
}
