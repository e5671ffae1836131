//! Direct ways between agents: what goes over one comes in order, if it comes,
//! and the way may end at any moment, which its source notices later.

use std::time::Duration;

use gleaner_agent_core::router::{IoRequest, Peer, RouterCommand, Wanted};
use gleaner_common::id::WorkstationId;
use gleaner_common::time::Moment;
use gleaner_program_core::wire::Between;
use rand::Rng;

use super::network::Way;
use super::rank::Image;
use super::{Happening, Lab, Local};

#[derive(Debug)]
pub(super) struct DirectWay {
    /// Hosts, in these lives of their agents.
    source: (usize, u64),
    target: (usize, u64),
    at: WorkstationId,
    /// Whatever comes later comes after what was sent before.
    busy_until: Moment,
}

impl Lab {
    pub(super) fn router_has(&mut self, index: usize, request: IoRequest<Image>) {
        match request {
            IoRequest::PeerStream(wanted) => {
                let after = self.up_to(Duration::from_millis(100));
                self.plan_here(index, after, Local::WayOpens(wanted));
            }
            IoRequest::Stage { fence, snapshot, bytes, image } => {
                let after = self.up_to(Duration::from_secs(1));
                let part = Box::new((bytes, image));
                self.plan_here(index, after, Local::Stages { fence, snapshot, part });
            }
            IoRequest::Fetch { fence, hash } => {
                let after = self.up_to(Duration::from_secs(1));
                self.plan_here(index, after, Local::Fetched { fence, hash });
            }
        }
    }

    pub(super) fn way_opens(&mut self, index: usize, wanted: &Wanted) {
        let (target, now) = (self.speaks_as(wanted.at), self.now);
        let named = format!("host{}", wanted.at.0);
        let fails = self.rng.random_bool(0.2);
        let host = &self.hosts[target];
        let apart = self.apart.get(&pair(index, target)).is_some_and(|until| now < *until);
        let silent = apart || host.ways.is_silent(now) || self.hosts[index].ways.is_silent(now);
        if fails || silent || !host.is_up() || named != wanted.name {
            let lost = RouterCommand::PeerStreamLost(wanted.at);
            return self.act(index, |core, now| core.take(now, lost));
        }
        let life = |index: usize| (index, self.hosts[index].incarnation);
        let (source, target, at) = (life(index), life(target), wanted.at);
        let number = self.number();
        self.ways.insert(number, DirectWay { source, target, at, busy_until: now });
        let way = self.hosts[index].router.surroundings().way(number);
        self.act(index, |core, now| core.take(now, RouterCommand::PeerStreamOpened { at, way }));
        let longest = if self.calm { 600 } else { 60 };
        let after = self.up_to(Duration::from_secs(longest));
        self.plan(after, Happening::WayEnds(number));
    }

    /// A router has handed something to a direct way, which may have ended.
    pub(super) fn pass(&mut self, number: u64, frames: Vec<Between>) {
        let takes = self.delay();
        let Some(way) = self.ways.get_mut(&number) else { return };
        let ((source, _), (target, incarnation)) = (way.source, way.target);
        let passes = self.hosts[target].ways.passes(self.now, takes, Way::Down, &mut self.rng);
        way.busy_until = way.busy_until.max(passes);
        let at = way.busy_until;
        let name = format!("host{}", self.hosts[source].identity.workstation.0);
        let (host, from) = (self.hosts[target].id, Peer::Direct(name.into()));
        let what = Local::Packets { way: number, from, frames };
        self.plan_at(at, Happening::Here { host, incarnation, what });
    }

    /// What is under way on one that has ended is lost, or is not.
    pub(super) fn packets_come(
        &mut self,
        index: usize,
        number: u64,
        from: Peer,
        frames: Vec<Between>,
    ) {
        let is_open = self.ways.contains_key(&number);
        if is_open || self.over_ways.contains(&number) {
            self.act(index, |core, now| core.take(now, RouterCommand::Packets { from, frames }));
        }
    }

    /// It breaks, and its source hears of it in its own time.
    pub(super) fn way_ends(&mut self, number: u64) {
        let Some(DirectWay { source, at, .. }) = self.ways.remove(&number) else { return };
        if self.rng.random_bool(0.5) {
            self.over_ways.insert(number);
        }
        if self.hosts[source.0].incarnation == source.1 {
            let after = self.up_to(Duration::from_secs(if self.calm { 1 } else { 30 }));
            self.plan_here(source.0, after, Local::WayLost(at));
        }
    }

    /// It does not reach one of the others for so long.
    pub(super) fn agents_part(&mut self, index: usize, which: f64, long: Duration) {
        let others = self.hosts.len() - 1;
        let Some(nth) = (1..=others).find(|nth| which * others as f64 <= *nth as f64) else {
            return;
        };
        let apart = pair(index, (index + nth) % self.hosts.len());
        self.apart.insert(apart, self.now + long);
        self.end_ways(|way| pair(way.source.0, way.target.0) == apart);
    }

    /// Ways from and to an agent that is gone end.
    pub(super) fn ways_end(&mut self, index: usize) {
        self.end_ways(|way| way.source.0 == index || way.target.0 == index);
    }

    fn end_ways(&mut self, of: impl Fn(&DirectWay) -> bool) {
        let ended: Vec<u64> =
            self.ways.iter().filter(|(_, way)| of(way)).map(|(number, _)| *number).collect();
        for number in ended {
            self.way_ends(number);
        }
    }
}

/// Two hosts, whichever of them calls the other.
fn pair(one: usize, other: usize) -> [usize; 2] {
    [one.min(other), one.max(other)]
}
