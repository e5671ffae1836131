//! Connections to remote desktops and development servers: is there somebody
//! at the other end?
//!
//! What a client sends by itself (keep-alives, requests for a clock that
//! ticks) is little and steady; what a hand sends is more. Each connection has
//! a bucket that leaks as fast as its kind sends by itself: what overflows is a
//! use. The first look at a connection only counts: whoever connects and goes,
//! such as a watchdog, is nobody.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::time::Moment;

/// What the client of a kind of server sends with nobody at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// At once.
    pub burst_bytes: u64,
    pub bytes_per_minute: u64,
}

/// One connection, as the kernel tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// No other has it, nor will have.
    pub id: u64,
    /// For people: "VNC from 192.0.2.7".
    pub what: String,
    pub received_bytes: u64,
    /// How long nothing has come.
    pub silent: Duration,
    pub allowance: Allowance,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    received_bytes: u64,
    level: f64,
    at: Moment,
}

/// The buckets of all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(BTreeMap<u64, Bucket>);

impl Connections {
    /// Takes in what there is now: who used one, and how long ago.
    pub(super) fn looked(
        &mut self,
        now: Moment,
        present: Vec<Connection>,
    ) -> Vec<(String, Duration)> {
        let mut used = vec![];
        let mut kept = BTreeMap::new();
        for connection in present {
            let mut bucket = self.0.remove(&connection.id).unwrap_or(Bucket {
                received_bytes: connection.received_bytes,
                level: 0.0,
                at: now,
            });
            if bucket.overflows(now, &connection) {
                used.push((connection.what, connection.silent));
            }
            kept.insert(connection.id, bucket);
        }
        self.0 = kept;
        used
    }
}

impl Bucket {
    fn overflows(&mut self, now: Moment, connection: &Connection) -> bool {
        let Allowance { burst_bytes, bytes_per_minute } = connection.allowance;
        let leaked = now.since(self.at).as_secs_f64() * bytes_per_minute as f64 / 60.0;
        let came = connection.received_bytes.saturating_sub(self.received_bytes);
        let level = (self.level - leaked).max(0.0) + came as f64;
        let full = burst_bytes as f64;
        *self = Self { received_bytes: connection.received_bytes, level: level.min(full), at: now };
        level > full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VNC: Allowance = Allowance { burst_bytes: 12, bytes_per_minute: 30 };

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    fn received(id: u64, received_bytes: u64) -> Vec<Connection> {
        let silent = Duration::from_millis(300);
        vec![Connection { id, what: format!("{id}"), received_bytes, silent, allowance: VNC }]
    }

    #[test]
    fn one_key_is_a_use_and_a_keep_alive_is_none() {
        let mut connections = Connections::default();
        assert_eq!(connections.looked(at(0), received(1, 5_000)), []);
        assert_eq!(connections.looked(at(2), received(1, 5_010)), []);
        let used = connections.looked(at(4), received(1, 5_026));
        assert_eq!(used, [("1".to_owned(), Duration::from_millis(300))]);
        assert_eq!(connections.looked(at(6), received(1, 5_026)), []);
    }

    #[test]
    fn what_comes_steadily_and_slowly_is_nobody_for_ever() {
        let mut connections = Connections::default();
        for minute in 0..1_000 {
            assert_eq!(connections.looked(at(minute * 60), received(1, minute * 12)), []);
        }
        // A hand is faster.
        let more = connections.looked(at(60_001), received(1, 1_000 * 12 + 40));
        assert_eq!(more.len(), 1);
    }

    #[test]
    fn whoever_connects_and_goes_is_nobody() {
        let mut connections = Connections::default();
        for id in 0..100 {
            assert_eq!(connections.looked(at(id), received(id, 3_000)), []);
        }
        assert_eq!(connections.0.len(), 1, "what is over is forgotten");
    }
}
