//! The network between hosts: it loses, delays and repeats, and the hosts take
//! what comes from where the coordinator says that its sender is.

use super::*;

impl World {
    pub(super) fn send(&mut self, from: Rank, to: Rank, frame: PeerFrame) {
        let local = &self.ranks_here[&from];
        let (host, fence) = (local.host, local.endpoint.fence());
        let packet = Packet { job: JOB, life: Life(1), to, from, fence, frame };
        match self.hosts[host].route(to) {
            Route::Here => self.after(0, Due::Local { host, packet }),
            Route::To(other) => self.put_on_way(host, other.0 as usize, &packet),
            Route::Unknown { ask } => self.ask_place(host, to, ask),
        }
    }

    pub(super) fn ask_place(&mut self, host: usize, rank: Rank, ask: bool) {
        if ask {
            let us = self.soon();
            self.after(us, Due::Place { host, rank });
        }
    }

    pub(super) fn put_on_way(&mut self, from_host: usize, host: usize, packet: &Packet) {
        let mut bytes = vec![];
        encode_whole(packet, &mut bytes).unwrap();
        let (lose, repeat) =
            if self.is_calm() { (0.0, 0.0) } else { (self.chaos.lose, self.chaos.repeat) };
        let copies = 1 + usize::from(self.random.random_bool(repeat));
        for _ in 0..copies {
            if !self.random.random_bool(lose) {
                let us = self.random.random_range(0..self.chaos.delay_max_us);
                self.after(us, Due::Packet { host, from_host, packet: bytes[4..].to_vec() });
            }
        }
    }

    pub(super) fn packet_arrives(&mut self, host: usize, from_host: usize, bytes: Vec<u8>) {
        if self.cut.contains(&(from_host.min(host), from_host.max(host))) {
            return;
        }
        let packet: Packet = decode(&Bytes::from(bytes)).unwrap();
        self.take(host, from_host, packet);
    }

    fn take(&mut self, host: usize, from_host: usize, packet: Packet) {
        let taken = |peer: usize| self.hosts[host].take(&packet, WorkstationId(peer as u32));
        let others = (0..self.chaos.hosts).filter(|other| *other != from_host);
        for other in others {
            assert_ne!(taken(other), Taken::Here, "{other} speaks for {}", packet.from);
        }
        match taken(from_host) {
            Taken::Here => self.reach(host, packet),
            Taken::Early => {
                self.note("early");
                self.early.push((host, from_host, packet));
            }
            Taken::Elsewhere => self.note("elsewhere"),
            Taken::Late => {}
            Taken::Forged => panic!("{from_host} says what it may not: {packet:?}"),
        }
    }

    /// What waited for the place of its sender.
    pub(super) fn take_early(&mut self, host: usize, rank: Rank) {
        let of = |(at, _, packet): &mut (usize, usize, Packet)| *at == host && packet.from == rank;
        let ready: Vec<_> = self.early.extract_if(.., of).collect();
        for (_, from_host, packet) in ready {
            self.take(host, from_host, packet);
        }
    }

    pub(super) fn reach(&mut self, host: usize, packet: Packet) {
        let Packet { to, from, fence, frame, .. } = packet;
        if self.ranks_here.get(&to).is_none_or(|local| local.host != host) {
            self.hosts[host].lose(to);
        } else {
            self.tell(to, Event::FromPeer { from, fence, frame });
        }
    }
}
