//! An endpoint is packed for a move or a snapshot, and unpacked.

use std::collections::BTreeMap;

use gleaner_common::id::Fence;
use gleaner_common::time::Moment;

use super::{Config, Effect, Endpoint, LOG_BYTES_MAX, OPEN_ASKS_MAX, earliest};
use crate::address::{RANKS_MAX, Rank, cost, window};
use crate::log::Log;
use crate::packed::{
    self, COUNT_MAX, Mark, PackedEndpoint, PipeRest, Presence, UnpackError, What, ensure,
};
use crate::peer::Peer;
use crate::wire::LIST_MAX;

impl Endpoint {
    /// Packs the endpoint for a move, with what was in its program's pipes.
    /// From now on it is away: it answers nobody, until [`Event::Stayed`]
    /// (another host could not take it) or its end here.
    ///
    /// [`Event::Stayed`]: super::Event::Stayed
    pub fn pack(&mut self, rest: &PipeRest) -> Vec<u8> {
        let bytes = self.to_bytes(rest);
        self.away = true;
        bytes
    }

    /// Unpacks an endpoint that was packed for a move. It begins with
    /// [`Event::Arrived`](super::Event::Arrived), once its process is restored
    /// and the rest is in its pipes.
    ///
    /// # Errors
    /// Bytes of another version, or that are no endpoint.
    pub fn unpack(bytes: &[u8], fence: Fence) -> Result<(Self, PipeRest), UnpackError> {
        let (packed, rest) = packed::decode(bytes)?;
        let mut endpoint = Self::try_from(packed).map_err(UnpackError::Inconsistent)?;
        endpoint.fence = fence;
        Ok((endpoint, rest))
    }

    /// Unpacks a cut, after all of the program has gone back to its snapshot.
    /// Frames of attempts before `floor`, the first that was given out since,
    /// are of the time that did not happen. It begins with
    /// [`Event::Arrived`](super::Event::Arrived) and
    /// [`Event::RolledBack`](super::Event::RolledBack).
    ///
    /// # Errors
    /// As [`Endpoint::unpack`].
    pub fn restore(bytes: &[u8], fence: Fence, floor: Fence) -> Result<Self, UnpackError> {
        let (mut endpoint, _) = Self::unpack(bytes, fence)?;
        endpoint.config.floor = floor;
        for peer in endpoint.peers.values_mut() {
            peer.fence = peer.fence.max(floor);
        }
        Ok(endpoint)
    }

    pub(super) fn to_bytes(&self, rest: &PipeRest) -> Vec<u8> {
        packed::encode(&PackedEndpoint::from(self), rest)
    }

    pub(super) fn arrived(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.away = false;
        self.tick = None;
        self.say_where_we_are(now, Peer::is_known, out);
        for peer in self.peers.values_mut() {
            peer.incoming.restart_clock(now);
            earliest(&mut self.tick, peer.incoming.ack_at());
        }
        self.ask_again(out);
    }

    /// What must hold at any time; for tests and for what comes from outside.
    ///
    /// # Errors
    /// Names what does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        self.config.check()?;
        self.log.check()?;
        self.peers.values().try_for_each(Peer::check)?;
        self.check_waiting()?;
        let ranks_max = self.config.ranks_max;
        ensure(self.peers.keys().all(|rank| rank.0 < ranks_max), "a peer that can be no rank")?;
        ensure(self.asked >= self.program_asked, "the program has asked more than the rank")?;
        let its_former = "its program has asked less than a former process";
        ensure(self.program_asked >= self.former, its_former)?;
        [&self.boundary, &self.pending]
            .into_iter()
            .flatten()
            .try_for_each(|m| self.check_mark(m))?;
        ensure(
            self.asked.0.max(self.boundaries).max(self.frames) <= COUNT_MAX,
            "too high a count",
        )?;
        let (its_own, of_former) = (self.open_of_process(), self.open.len());
        let is_bounded = its_own <= OPEN_ASKS_MAX && of_former - its_own <= OPEN_ASKS_MAX + 1;
        ensure(is_bounded, "too many questions are open")?;
        ensure(self.open.keys().all(|of| *of <= self.asked), "a question is open and not asked")?;
        ensure(self.unreceived.len() <= LIST_MAX, "too long a list of what was not received")?;
        ensure(self.cutting.is_none_or(|at| at > self.snapshot), "it waits for a cut it has had")?;
        ensure(self.window == window(ranks_max), "the window is not the job's")
    }

    fn check_waiting(&self) -> Result<(), &'static str> {
        let known = self.log.senders().all(|from| self.peers.contains_key(&from));
        ensure(known, "the log has something of nobody")?;
        let waiting = what_waits(&self.log);
        let counted = |(rank, peer): (&Rank, &Peer)| {
            peer.incoming.waiting == waiting.get(rank).copied().unwrap_or_default()
        };
        ensure(self.peers.iter().all(counted), "what waits for the program does not add up")?;
        let present = self.presence == Presence::Present;
        ensure(!present || waiting.is_empty(), "something waits for a program that is there")
    }

    fn check_mark(&self, mark: &Mark) -> Result<(), &'static str> {
        ensure(mark.boundary.0 <= self.boundaries, "a boundary that was not reached")?;
        ensure(mark.frames <= COUNT_MAX, "too high a count")?;
        ensure(mark.asked <= self.asked, "at a boundary more was asked than now")?;
        ensure(self.former <= mark.asked, "a boundary of a former process")?;
        self.log.check_mark(mark)?;
        mark.peers.iter().try_for_each(|(rank, progress)| {
            let peer = self.peers.get(rank).ok_or("a boundary knows a peer that is none")?;
            peer.check_progress(*progress)
        })
    }
}

impl Config {
    fn check(&self) -> Result<(), &'static str> {
        let Self { rank, ranks, first, members, ranks_max, .. } = *self;
        ensure((1..=RANKS_MAX).contains(&ranks_max), "a program of too many ranks, or of none")?;
        ensure(rank.0 < ranks_max && ranks <= ranks_max, "a rank beyond the last")?;
        ensure(self.log_bytes_max <= LOG_BYTES_MAX, "it would keep too much")?;
        let end = first.0.checked_add(members);
        ensure(end.is_some_and(|end| end <= ranks_max), "it began with ranks beyond the last")
    }
}

impl From<&Endpoint> for PackedEndpoint {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            config: endpoint.config,
            presence: endpoint.presence,
            peers: endpoint.peers.iter().map(|(&rank, peer)| (rank, peer.pack())).collect(),
            log: endpoint.log.pack(),
            snapshot: endpoint.snapshot,
            cutting: endpoint.cutting,
            deferred: endpoint.deferred.clone(),
            boundary: endpoint.boundary.clone(),
            pending: endpoint.pending.clone(),
            boundaries: endpoint.boundaries,
            asked: endpoint.asked,
            program_asked: endpoint.program_asked,
            former: endpoint.former,
            open: endpoint.open.clone(),
            frames: endpoint.frames,
            wait: endpoint.wait,
            at_boundary: endpoint.at_boundary,
            unreceived: endpoint.unreceived.clone(),
        }
    }
}

impl TryFrom<PackedEndpoint> for Endpoint {
    type Error = &'static str;

    fn try_from(packed: PackedEndpoint) -> Result<Self, &'static str> {
        let window = window(packed.config.ranks_max);
        let log = Log::unpack(packed.config.log_bytes_max, packed.log);
        let waiting = what_waits(&log);
        let mut peers = BTreeMap::new();
        for (rank, peer) in packed.peers {
            let waits = waiting.get(&rank).copied().unwrap_or_default();
            peers.insert(rank, Peer::unpack(window, waits, peer)?);
        }
        let has_way_back = packed.boundary.is_some() || packed.pending.is_some();
        let remembered = peers.values().map(Peer::remembers).sum();
        let endpoint = Self {
            presence: packed.presence,
            peers,
            log,
            snapshot: packed.snapshot,
            cutting: packed.cutting,
            deferred: packed.deferred,
            boundary: packed.boundary,
            pending: packed.pending,
            boundaries: packed.boundaries,
            asked: packed.asked,
            program_asked: packed.program_asked,
            former: packed.former,
            open: packed.open,
            frames: packed.frames,
            wait: packed.wait,
            at_boundary: packed.at_boundary,
            unreceived: packed.unreceived,
            remembered: if has_way_back { remembered } else { 0 },
            ..Self::new(packed.config, packed.config.floor)
        };
        endpoint.check()?;
        Ok(endpoint)
    }
}

/// The cost of what waits for the program, of each rank.
fn what_waits(log: &Log) -> BTreeMap<Rank, u64> {
    let mut waiting = BTreeMap::new();
    for entry in log.waiting() {
        if let What::Piece { from, payload, .. } = &entry.what {
            *waiting.entry(*from).or_default() += cost(payload.len());
        }
    }
    waiting
}
