//! The network between hosts: it loses, delays and repeats, and the hosts
//! forward.

use super::*;

impl World {
    pub(super) fn send(&mut self, from: Rank, to: Rank, frame: PeerFrame) {
        let local = &self.ranks_here[&from];
        let (host, fence) = (local.host, local.endpoint.fence());
        let at = WorkstationId(host as u32);
        let packet = Packet { job: JOB, life: Life(1), to, from, fence, at, hops: 0, frame };
        match self.hosts[host].route(to) {
            Route::Here => self.after(0, Due::Local { host, packet }),
            Route::To(other) => self.put_on_way(host, other.0 as usize, &packet),
            Route::Unknown { ask } => self.ask_place(host, to, ask),
            Route::Lost => {}
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
        let mut packet: Packet = decode(&Bytes::from(bytes)).unwrap();
        let (route, notice) = self.hosts[host].forward(&mut packet);
        if let Some(notice) = notice {
            self.note("forwarded");
            let gleaner_program_core::wire::Notice::Moved { rank, .. } = notice else { panic!() };
            let us = self.soon();
            self.after(us, Due::Place { host: packet.at.0 as usize, rank });
        }
        match route {
            Route::Here => self.reach(host, packet),
            Route::To(other) => self.put_on_way(host, other.0 as usize, &packet),
            Route::Unknown { ask } => self.ask_place(host, packet.to, ask),
            Route::Lost => {}
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
