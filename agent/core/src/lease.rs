//! The lease: how long guests may run unheard.
//!
//! One lease covers all guests of a workstation. It runs from when the agent
//! *sent* the last message that the coordinator answered; the coordinator
//! counts from when it *handled* that message, which is later. So the agent's
//! lease always ends first, whatever the network does, and nothing runs here
//! any more when its work is placed elsewhere.
//!
//! Two clocks measure it, and none is exact: an agent's that goes slow makes the
//! lease longer, the coordinator's that goes fast makes it shorter. So the agent
//! counts it shorter by one part in [`DRIFT`], which is enough where neither
//! clock is wrong by more than a hundredth: 0.98 / 0.99 < 1 / 1.01. Oscillators
//! are wrong by a ten-thousandth, and NTP slews by half a thousandth more.
//!
//! Knows nothing of guests.

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::time::Moment;

/// Heartbeats under way whose answer still counts. With more unanswered, the
/// lease has ended long ago.
const IN_FLIGHT_MAX: usize = 64;

/// What a coordinator may ask for; beyond these it is mistaken. A short lease
/// has no floor: to run longer than the coordinator meant would break the
/// promise.
const LEASE_MAX: Duration = Duration::from_secs(3_600);
/// What the agent takes off a lease: a fiftieth.
const DRIFT: u32 = 50;

const HEARTBEAT_MIN: Duration = Duration::from_millis(50);
const HEARTBEAT_MAX: Duration = Duration::from_secs(600);

/// What the coordinator grants with its welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) heartbeat_without_guests: Duration,
}

#[derive(Debug)]
struct Session {
    /// When the hello left.
    greeted: Moment,
    grant: Option<Grant>,
    beaten: Moment,
    in_flight: VecDeque<(u64, Moment)>,
}

/// The agent's side of the lease, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    until: Option<Moment>,
    sequence: u64,
    session: Option<Session>,
}

impl Lease {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A hello leaves now, on a new connection.
    pub(crate) fn greet(&mut self, now: Moment) {
        self.session =
            Some(Session { greeted: now, grant: None, beaten: now, in_flight: VecDeque::new() });
    }

    /// The coordinator answered the hello.
    pub(crate) fn grant(&mut self, grant: Grant) {
        let Some(session) = &mut self.session else { return };
        let grant = Grant {
            lease: grant.lease.min(LEASE_MAX) / DRIFT * (DRIFT - 1),
            heartbeat: grant.heartbeat.clamp(HEARTBEAT_MIN, HEARTBEAT_MAX),
            heartbeat_without_guests: grant
                .heartbeat_without_guests
                .clamp(HEARTBEAT_MIN, HEARTBEAT_MAX),
        };
        session.grant = Some(grant);
        self.until = self.until.max(Some(session.greeted + grant.lease));
    }

    /// A heartbeat leaves now; its sequence number. `None` before a welcome.
    pub(crate) fn beat(&mut self, now: Moment) -> Option<u64> {
        let session = self.session.as_mut().filter(|session| session.grant.is_some())?;
        self.sequence += 1;
        session.beaten = now;
        if session.in_flight.len() == IN_FLIGHT_MAX {
            session.in_flight.pop_front();
        }
        session.in_flight.push_back((self.sequence, now));
        Some(self.sequence)
    }

    /// The coordinator answered a heartbeat. Repeated, invented and earlier
    /// ones change nothing.
    pub(crate) fn acknowledge(&mut self, sequence: u64) {
        let Some(Session { grant: Some(grant), in_flight, .. }) = &mut self.session else { return };
        let Some(&(_, sent)) = in_flight.iter().find(|(number, _)| *number == sequence) else {
            return;
        };
        in_flight.retain(|(number, _)| *number > sequence);
        self.until = self.until.max(Some(sent + grant.lease));
    }

    /// The connection is gone. The lease runs on.
    pub(crate) fn disconnect(&mut self) {
        self.session = None;
    }

    /// Has the coordinator welcomed us on a connection that still stands?
    pub(crate) fn is_welcome(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.grant.is_some())
    }

    /// When the lease ends or ended; `None` if there never was one.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.until
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        self.until.filter(|until| now < *until).map(|until| until.since(now))
    }

    /// When the next heartbeat is due.
    pub(crate) fn beat_due(&self, with_guests: bool) -> Option<Moment> {
        let session = self.session.as_ref()?;
        let grant = session.grant?;
        let gap = if with_guests { grant.heartbeat } else { grant.heartbeat_without_guests };
        Some(session.beaten + gap)
    }

    /// Is a heartbeat under way whose answer would renew the lease?
    pub(crate) fn is_asking(&self, now: Moment) -> bool {
        let Some(Session { grant: Some(grant), in_flight, .. }) = &self.session else {
            return false;
        };
        in_flight.back().is_some_and(|(_, sent)| now < *sent + grant.heartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRANT: Grant = Grant {
        lease: Duration::from_secs(10),
        heartbeat: Duration::from_secs(3),
        heartbeat_without_guests: Duration::from_secs(15),
    };

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    /// At the end of a lease that began then, as the agent counts it.
    fn end(from_s: u64) -> Moment {
        at(from_s) + GRANT.lease.mul_f64(0.98)
    }

    fn granted(s: u64) -> Lease {
        let mut lease = Lease::new();
        lease.greet(at(s));
        lease.grant(GRANT);
        lease
    }

    #[test]
    fn it_runs_from_when_the_answered_message_was_sent() {
        let mut lease = granted(0);
        assert_eq!(lease.until(), Some(end(0)));
        let [first, second, _] = [3, 6, 9].map(|s| lease.beat(at(s)).unwrap());
        lease.acknowledge(second);
        assert_eq!(lease.until(), Some(end(6)), "nobody has answered the third");
        lease.acknowledge(first);
        assert_eq!(lease.until(), Some(end(6)), "a late answer takes nothing back");
        lease.acknowledge(99);
        assert_eq!(lease.until(), Some(end(6)), "an invented answer gives nothing");
    }

    #[test]
    fn it_outlives_its_connection_and_no_answer_of_an_old_one_renews_it() {
        let mut lease = granted(0);
        let old = lease.beat(at(3)).unwrap();
        lease.disconnect();
        assert!(lease.is_valid(at(9)) && !lease.is_valid(end(0)));
        lease.greet(at(8));
        lease.acknowledge(old);
        assert_eq!(lease.until(), Some(end(0)));
        lease.grant(GRANT);
        assert_eq!(lease.until(), Some(end(8)));
    }

    #[test]
    fn without_guests_it_is_renewed_less_often() {
        let lease = granted(0);
        assert_eq!(lease.beat_due(true), Some(at(3)));
        assert_eq!(lease.beat_due(false), Some(at(15)));
        assert_eq!(Lease::new().beat_due(true), None);
    }

    #[test]
    fn a_mad_grant_is_bounded() {
        let mut lease = Lease::new();
        lease.greet(at(0));
        let zero = Duration::ZERO;
        lease.grant(Grant {
            lease: Duration::MAX,
            heartbeat: zero,
            heartbeat_without_guests: zero,
        });
        assert_eq!(lease.until(), Some(at(3_528)));
        assert_eq!(lease.beat_due(true), Some(Moment::ZERO + HEARTBEAT_MIN));
    }

    /// Also one that is granted for an hour is counted on two clocks.
    #[test]
    fn it_ends_first_where_both_clocks_are_wrong_by_a_hundredth() {
        for seconds in [1, 10, 60, 3_600] {
            let mut lease = Lease::new();
            lease.greet(at(0));
            lease.grant(Grant { lease: Duration::from_secs(seconds), ..GRANT });
            let shown = lease.until().unwrap().since(Moment::ZERO);
            let (slow, fast) = (0.99, 1.01);
            assert!(shown.div_f64(slow) < Duration::from_secs(seconds).div_f64(fast));
        }
    }

    proptest! {
        /// The promise itself, over a network that delays, loses and reorders:
        /// whatever the coordinator has handled, its end is not before ours.
        #[test]
        fn the_agents_lease_ends_first(
            beats in proptest::collection::vec((0u64..5_000, 0u64..20_000, 0u64..20_000, any::<bool>()), 1..40),
        ) {
            let ms = |ms: u64| Moment::ZERO + Duration::from_millis(ms);
            let mut lease = granted(0);
            let mut handled_last = ms(1);
            let (mut now, mut answers) = (0, vec![]);
            for (gap, out, back, lost) in beats {
                now += gap;
                let sequence = lease.beat(ms(now)).unwrap();
                if !lost {
                    answers.push((now + out + back, ms(now + out), sequence));
                }
                answers.sort_unstable();
                for (_, handled, sequence) in answers.extract_if(.., |(at, ..)| *at <= now) {
                    handled_last = handled_last.max(handled);
                    lease.acknowledge(sequence);
                }
                prop_assert!(lease.until().unwrap() <= handled_last + GRANT.lease);
            }
        }
    }
}
