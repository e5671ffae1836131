//! Boundaries, going back to them, and the cuts of coordinated checkpoints.

use gleaner_common::time::Moment;

use super::{Back, Effect, Endpoint, OPEN_ASKS_MAX, frame_of};
use crate::address::{Boundary, Rank, Request, Snapshot, cost};
use crate::complaint::Complaint;
use crate::packed::{Mark, MarkKind, Presence, What};
use crate::peer;
use crate::wire::{AgentFrame, Ask};

impl Mark {
    /// The boundary of which a new process is given the state.
    pub(super) fn saved(&self) -> Option<Boundary> {
        (self.kind == MarkKind::Saved).then_some(self.boundary)
    }
}

impl Endpoint {
    /// Where the rank can go back to, and how: by an image or by its own state.
    pub fn way_back(&self) -> Option<(Boundary, Back)> {
        let mark = self.boundary.as_ref()?;
        let back = if mark.kind == MarkKind::Image { Back::Image } else { Back::Process };
        Some((mark.boundary, back))
    }

    /// The number of the boundary that the next image will be.
    pub fn next_boundary(&self) -> Boundary {
        Boundary(self.boundaries + 1)
    }

    fn mark(&mut self, kind: MarkKind) -> Mark {
        self.boundaries += 1;
        Mark {
            boundary: Boundary(self.boundaries),
            kind,
            present: self.presence == Presence::Present,
            stood: self.at_boundary,
            save: self.log.save(),
            given: self.log.given(),
            asked: self.program_asked,
            frames: self.frames,
            peers: self.peers.iter().map(|(&rank, peer)| (rank, peer.mark())).collect(),
        }
    }

    /// The program has given its whole state; it counts once it is kept.
    pub(super) fn boundary_reached(&mut self, boundary: Boundary) {
        if !self.log.keeps() {
            self.boundaries = boundary.0;
            return;
        }
        self.pend(MarkKind::Saved);
    }

    /// What begins here counts once it is kept.
    fn pend(&mut self, kind: MarkKind) {
        if self.boundary.is_none() && self.pending.is_none() {
            self.peers.values_mut().for_each(peer::Peer::remember_from_here);
        }
        self.pending = Some(self.mark(kind));
    }

    pub(super) fn kept(&mut self, boundary: Boundary, out: &mut Vec<Effect>) {
        // Overtaken: by a newer save, or because too much was received since.
        if let Some(mark) = self.pending.take_if(|mark| mark.boundary == boundary) {
            self.commit(mark, out);
        }
    }

    fn commit(&mut self, mark: Mark, out: &mut Vec<Effect>) {
        let given = (mark.kind == MarkKind::Image).then_some(mark.given);
        self.log.forget_before(mark.save, mark.asked, given);
        for (rank, peer) in &mut self.peers {
            peer.forget(mark.peers.get(rank).map_or(0, |mark| mark.last));
        }
        self.remembered = self.peers.values().map(peer::Peer::remembers).sum();
        out.push(Effect::Forget(mark.boundary));
        self.boundary = Some(mark);
    }

    /// What a rollback needs could not be kept.
    pub(super) fn no_way_back(&mut self, out: &mut Vec<Effect>) {
        let (rank, bytes_max) = (self.config.rank, self.log.bytes_max());
        self.pending = None;
        self.remembered = 0;
        if self.boundary.take().is_some() {
            out.push(Effect::Complain(Complaint::LogFull { rank, bytes_max }));
        }
    }

    pub(super) fn rolled_back(&mut self, now: Moment, back: Back, out: &mut Vec<Effect>) {
        // An ended rank has no process to go back with.
        if matches!(self.presence, Presence::Ended { .. }) {
            return;
        }
        (self.pending, self.wait) = (None, None);
        self.at_boundary = false;
        self.unreceived.clear();
        if back == Back::Nothing {
            return self.begin_anew(now, out);
        }
        let Some(mark) = self.boundary.clone() else {
            return self.complain(Complaint::NothingKept { rank: self.config.rank }, out);
        };
        let image = back == Back::Image;
        self.program_asked = mark.asked;
        self.log.go_back(image.then_some(mark.given));
        for (rank, peer) in &mut self.peers {
            let mark = mark.peers.get(rank).copied();
            if image {
                peer.go_back(mark);
            } else {
                peer.begin_anew(mark.map_or(0, |mark| mark.last));
            }
        }
        self.count_what_waits();
        self.presence = Presence::Absent;
        if image && mark.present {
            self.presence = Presence::Present;
            self.frames = mark.frames;
            if mark.stood {
                self.tell(AgentFrame::GoOn, out);
            }
            self.give_what_waits(out);
            let ranks: Vec<Rank> = self.peers.keys().copied().collect();
            for rank in ranks {
                self.make_room(rank, out);
            }
        }
        self.forget_way_unless_kept();
    }

    /// What was a way back at this moment is none once something is delivered.
    fn forget_way_unless_kept(&mut self) {
        if !self.log.keeps() {
            self.boundary = None;
        }
    }

    /// A new process that knows nothing: what the old one received is lost,
    /// what it sent and asked stays sent and asked; but for what it wanted to be
    /// given itself, which would be lost with it, as is what it held: that is told
    /// after all that it asked.
    fn begin_anew(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.log.forget_given();
        self.log.forget_answers();
        if self.asked != self.former {
            self.begin_to_ask_anew(out);
        }
        let rank = self.config.rank;
        for (&to, peer) in &mut self.peers {
            if peer.inside.is_open() {
                out.push(Effect::Complain(Complaint::EndedInsideMessage { rank, to }));
            }
            peer.begin_anew(peer.out.last());
        }
        self.count_what_waits();
        self.presence = Presence::Absent;
        let mark = self.mark(MarkKind::Start);
        self.peers.values_mut().for_each(peer::Peer::remember_from_here);
        self.commit(mark, out);
        self.finish_cut(now, out);
        self.forget_way_unless_kept();
    }

    fn begin_to_ask_anew(&mut self, out: &mut Vec<Effect>) {
        let stays = |ask: &Ask| !matches!(ask, Ask::NextTask | Ask::NextResult | Ask::BeginsAnew);
        self.open.retain(|_, ask| stays(ask));
        // As if it had ended before it asked the last of them.
        while self.open.len() > OPEN_ASKS_MAX {
            self.open.pop_last();
        }
        let request = Request(self.asked.0 + 1);
        (self.asked, self.program_asked, self.former) = (request, request, request);
        self.open.insert(request, Ask::BeginsAnew);
        // In order: the coordinator looks at no question that is older than one it knows.
        out.extend(self.open_asks());
    }

    fn count_what_waits(&mut self) {
        let Self { log, peers, .. } = self;
        for entry in log.waiting() {
            if let What::Piece { from, payload, .. } = &entry.what
                && let Some(peer) = peers.get_mut(from)
            {
                peer.incoming.waiting += cost(payload.len());
            }
        }
    }

    /// Gives a process all that was delivered and not given to it.
    pub(super) fn give_what_waits(&mut self, out: &mut Vec<Effect>) {
        let Self { log, peers, frames, wait, .. } = self;
        log.give(|entry| {
            if let What::Piece { from, payload, .. } = &entry.what
                && let Some(peer) = peers.get_mut(from)
            {
                let cost = cost(payload.len());
                peer.incoming.waiting -= cost;
                peer.incoming.given += cost;
            }
            *frames += 1;
            *wait = None;
            out.push(Effect::ToProgram(frame_of(entry.number, &entry.what)));
        });
        self.look_at_log(out);
        self.tell_all_gone(out);
    }

    // ── snapshots ──────────────────────────────────────────────────────────

    /// Takes part in a snapshot, at once if the log allows it.
    pub(super) fn cut(&mut self, snapshot: Snapshot, out: &mut Vec<Effect>) {
        if snapshot <= self.snapshot || self.away {
            return;
        }
        if let Some(waiting) = self.cutting {
            if snapshot > waiting {
                out.push(Effect::NoCut(waiting));
                self.cutting = Some(snapshot);
            }
            return;
        }
        if self.boundary.is_some() || matches!(self.presence, Presence::Ended { .. }) {
            self.snapshot = snapshot;
            self.give_cut(out);
        } else {
            self.cutting = Some(snapshot);
            out.push(Effect::TakeImage);
        }
    }

    /// A frame of a newer snapshot has come: takes part before it is looked
    /// at. `false`: the frame is thrown away, because that takes a while.
    pub(super) fn cut_before(
        &mut self,
        snapshot: Snapshot,
        from: Rank,
        out: &mut Vec<Effect>,
    ) -> bool {
        self.cut(snapshot, out);
        let done = self.snapshot >= snapshot;
        if !done {
            self.peer(from).incoming.skipped = true;
        }
        done
    }

    fn give_cut(&self, out: &mut Vec<Effect>) {
        out.push(Effect::Cut {
            snapshot: self.snapshot,
            boundary: self.boundary.as_ref().map_or(Boundary(0), |mark| mark.boundary),
            state: self.to_bytes(&super::PipeRest::default()),
        });
    }

    /// The program stands until an image is taken, or none can be.
    pub(super) fn stands_at_boundary(&mut self, out: &mut Vec<Effect>) {
        if self.at_boundary {
            return self.fault("it stands at a boundary already", out);
        }
        self.at_boundary = true;
        if self.log.keeps() {
            out.push(Effect::TakeImage);
        } else {
            self.go_on(out);
        }
    }

    fn go_on(&mut self, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.at_boundary) {
            self.tell(AgentFrame::GoOn, out);
        }
    }

    pub(super) fn image_begun(&mut self) {
        // For a process that has said nothing an image is no better than its
        // beginning.
        if self.presence == Presence::Present || self.boundary.is_none() {
            self.pend(MarkKind::Image);
        }
    }

    /// The process's image is a boundary; and a cut, if one waits for it.
    pub(super) fn imaged(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Some(mark) = self.pending.take_if(|mark| mark.kind == MarkKind::Image) {
            self.commit(mark, out);
        }
        if self.boundary.is_some() {
            self.finish_cut(now, out);
        } else {
            self.miss_cut(now, "it received too much while its image was taken".to_owned(), out);
        }
        self.forget_way_unless_kept();
        self.go_on(out);
    }

    pub(super) fn not_imaged(&mut self, now: Moment, because: String, out: &mut Vec<Effect>) {
        self.pending.take_if(|mark| mark.kind == MarkKind::Image);
        self.miss_cut(now, because, out);
        self.go_on(out);
    }

    pub(super) fn image_lost(&mut self) {
        if self.boundary.take_if(|mark| mark.kind == MarkKind::Image).is_some() {
            self.remembered = 0;
        }
        self.pending.take_if(|mark| mark.kind == MarkKind::Image);
    }

    fn miss_cut(&mut self, now: Moment, because: String, out: &mut Vec<Effect>) {
        let Some(snapshot) = self.cutting.take() else { return };
        self.snapshot = snapshot;
        let rank = self.config.rank;
        out.push(Effect::NoCut(snapshot));
        out.push(Effect::Complain(Complaint::NoCut { rank, snapshot, because }));
        self.after_cut(now, out);
    }

    /// Takes the cut that waited for an image: there is one, or no process any
    /// more of which one could be taken.
    pub(super) fn finish_cut(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Some(snapshot) = self.cutting.take() {
            self.snapshot = snapshot;
            self.give_cut(out);
            self.after_cut(now, out);
        }
    }

    /// Hears what could not be heard while the image was taken.
    fn after_cut(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.say_where_we_are(now, |peer| peer.incoming.skipped, out);
        for (rank, snapshot, end) in std::mem::take(&mut self.deferred) {
            self.peer_ended(rank, snapshot, end, out);
        }
    }
}
