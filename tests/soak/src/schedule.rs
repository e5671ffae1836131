//! Which faults there are and when: all of it drawn from a seed, before anything is
//! known of how the lab does. Equal seeds give equal schedules.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Who can be killed or stopped; hosts by their number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Worker(usize),
    Supervisor(usize),
    Keeper(usize),
    Coordinator,
    Collector,
}

/// Whose disk can be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disk {
    Host(usize),
    Coordinator,
    Collector,
}

/// What does not arrive if a link works one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    ToCoordinator,
    FromCoordinator,
}

/// What happens to datagrams between agents and coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    Drops,
    Doubles,
    Delays,
    Corrupts,
}

impl Weather {
    pub const ALL: [Self; 4] = [Self::Drops, Self::Doubles, Self::Delays, Self::Corrupts];
}

/// One fault. What lasts has its length with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; who has no supervisor is started again after so long.
    Kill(Victim, Duration),
    /// SIGSTOP, and SIGCONT after so long.
    Stop(Victim, Duration),
    Cut(usize, Duration),
    /// The link goes down and comes up so many times, each for so long.
    Flap(usize, u8, Duration),
    OneWay(usize, Way, Duration),
    /// To so many in a hundred.
    Weather(Weather, u8, Duration),
    FullDisk(Disk, Duration),
    /// The owner types so many keys, half a second apart.
    Owner(usize, u8),
    /// Nothing new starts there; with `now`, what can move does.
    Drain {
        host: usize,
        now: bool,
        span: Duration,
    },
    /// The host gets another address.
    Address(usize),
    /// A backup of the coordinator's store is made while it runs.
    Backup,
    /// The coordinator is killed, goes back to the last backup, and starts after so long.
    Restore(Duration),
    /// The process's wall clock is so many seconds wrong, and right after so long.
    Jump(Victim, i64, Duration),
}

impl Fault {
    /// The name under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Kill(victim, _) => match victim {
                Victim::Worker(_) => "kill worker",
                Victim::Supervisor(_) => "kill supervisor",
                Victim::Keeper(_) => "kill keeper",
                Victim::Coordinator => "kill coordinator",
                Victim::Collector => "kill collector",
            },
            Self::Stop(victim, _) => match victim {
                Victim::Worker(_) => "stop worker",
                Victim::Supervisor(_) => "stop supervisor",
                Victim::Keeper(_) => "stop keeper",
                Victim::Coordinator => "stop coordinator",
                Victim::Collector => "stop collector",
            },
            Self::Cut(..) => "cut",
            Self::Flap(..) => "flap",
            Self::OneWay(_, Way::ToCoordinator, _) => "one way: nothing to the coordinator",
            Self::OneWay(_, Way::FromCoordinator, _) => "one way: nothing from the coordinator",
            Self::Weather(Weather::Drops, ..) => "datagrams dropped",
            Self::Weather(Weather::Doubles, ..) => "datagrams doubled",
            Self::Weather(Weather::Delays, ..) => "datagrams delayed",
            Self::Weather(Weather::Corrupts, ..) => "datagrams corrupted",
            Self::FullDisk(Disk::Host(_), _) => "full disk: workstation",
            Self::FullDisk(Disk::Coordinator, _) => "full disk: coordinator",
            Self::FullDisk(Disk::Collector, _) => "full disk: collector",
            Self::Owner(..) => "owner",
            Self::Drain { now: false, .. } => "drain",
            Self::Drain { now: true, .. } => "drain now",
            Self::Address(_) => "change of address",
            Self::Backup => "backup",
            Self::Restore(_) => "restored from a backup",
            Self::Jump(Victim::Coordinator, ..) => "clock jumps: coordinator",
            Self::Jump(Victim::Collector, ..) => "clock jumps: collector",
            Self::Jump(..) => "clock jumps: worker",
        }
    }
}

/// An endless row of faults, with the pause before each.
#[derive(Debug)]
pub struct Schedule {
    random: StdRng,
    hosts: usize,
    drawn: u64,
}

/// Between two faults of one host, on average: as many hosts have as many times more
/// of them, and several last at a time.
const PAUSE_MS: std::ops::Range<u64> = 600..8_000;

/// In every second row of so many faults coordinator and collector live through all of
/// them, so that what they hold can be seen to grow or not.
const ERA: u64 = 1_000;

/// How long a process stands still: from less than anybody notices to five leases.
const STOPPED_S: (f64, f64) = (0.1, 15.0);

/// How long all else lasts: from less than a heartbeat to three leases.
const LASTS_S: (f64, f64) = (0.2, 10.0);

/// How many seconds a clock is wrong: up to two days.
const JUMP_S: (f64, f64) = (1.0, 172_800.0);

/// Until somebody who died is started again.
const BACK_S: (f64, f64) = (0.05, 4.0);

impl Schedule {
    pub fn new(seed: u64, hosts: usize) -> Self {
        Self { random: StdRng::seed_from_u64(seed), hosts, drawn: 0 }
    }

    /// Equally often in each part of the range, by its logarithm.
    fn span(&mut self, (least, most): (f64, f64)) -> Duration {
        let power = self.random.random_range(least.ln()..most.ln());
        Duration::from_secs_f64(power.exp())
    }

    fn fault(&mut self) -> Fault {
        let host = self.random.random_range(0..self.hosts);
        let lasts = self.span(LASTS_S);
        match self.random.random_range(0..100) {
            0..26 => self.kill(host),
            26..40 => self.stop(host),
            40..45 => Fault::Cut(host, lasts),
            45..48 => self.jump(host),
            48..52 => Fault::Flap(host, self.random.random_range(2..6), lasts / 10),
            52..60 if self.random.random() => Fault::OneWay(host, Way::ToCoordinator, lasts),
            52..60 => Fault::OneWay(host, Way::FromCoordinator, lasts),
            60..72 => {
                let weather = Weather::ALL[self.random.random_range(0..Weather::ALL.len())];
                Fault::Weather(weather, self.random.random_range(1..50), lasts)
            }
            72..79 => Fault::FullDisk(self.disk(host), lasts),
            79..94 => Fault::Owner(host, self.random.random_range(1..8)),
            94..96 => Fault::Drain { host, now: self.random.random(), span: lasts },
            96 => Fault::Address(host),
            97..99 => Fault::Backup,
            _ => Fault::Restore(self.span(BACK_S)),
        }
    }

    /// The last host is never hit by these: its agent lives through everything else.
    fn mortal(&self, host: usize) -> usize {
        if host + 1 == self.hosts { 0 } else { host }
    }

    fn kill(&mut self, host: usize) -> Fault {
        let back = self.span(BACK_S);
        let victim = match self.random.random_range(0..13) {
            0..4 => Victim::Worker(self.mortal(host)),
            4..6 => Victim::Supervisor(self.mortal(host)),
            6..10 => Victim::Keeper(host),
            10 => Victim::Coordinator,
            _ => Victim::Collector,
        };
        Fault::Kill(victim, back)
    }

    fn stop(&mut self, host: usize) -> Fault {
        let lasts = self.span(STOPPED_S);
        let victim = match self.random.random_range(0..7) {
            0..5 => Victim::Worker(host),
            5 => Victim::Supervisor(host),
            _ => Victim::Coordinator,
        };
        Fault::Stop(victim, lasts)
    }

    fn jump(&mut self, host: usize) -> Fault {
        let (far, lasts) = (self.span(JUMP_S).as_secs().cast_signed(), self.span(STOPPED_S));
        let seconds = if self.random.random() { far } else { -far };
        let victim = match self.random.random_range(0..4) {
            0..2 => Victim::Worker(host),
            2 => Victim::Coordinator,
            _ => Victim::Collector,
        };
        Fault::Jump(victim, seconds, lasts)
    }

    fn disk(&mut self, host: usize) -> Disk {
        match self.random.random_range(0..7) {
            0..5 => Disk::Host(host),
            5 => Disk::Coordinator,
            _ => Disk::Collector,
        }
    }
}

/// What happens instead where coordinator and collector are to live.
fn spared(fault: Fault) -> Fault {
    match fault {
        Fault::Kill(victim @ (Victim::Coordinator | Victim::Collector), span) => {
            Fault::Stop(victim, span)
        }
        Fault::Restore(_) => Fault::Backup,
        other => other,
    }
}

impl Iterator for Schedule {
    type Item = (Duration, Fault);

    fn next(&mut self) -> Option<Self::Item> {
        let pause = Duration::from_millis(self.random.random_range(PAUSE_MS));
        let fault = self.fault();
        let spares = self.drawn / ERA % 2 == 1;
        self.drawn += 1;
        Some((pause.div_f64(self.hosts as f64), if spares { spared(fault) } else { fault }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn equal_seeds_give_equal_schedules_and_others_do_not() {
        let first = |seed| Schedule::new(seed, 4).take(500).collect::<Vec<_>>();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }

    #[test]
    fn a_thousand_faults_are_of_every_kind_and_hit_every_host() {
        let faults: Vec<_> = Schedule::new(1, 4).take(1_000).map(|(_, fault)| fault).collect();
        let kinds: BTreeSet<_> = faults.iter().map(Fault::kind).collect();
        assert_eq!(kinds.len(), 28, "{kinds:?}");
        let cut = faults
            .iter()
            .filter_map(|it| if let Fault::Cut(host, _) = it { Some(host) } else { None });
        assert_eq!(cut.collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn who_is_to_be_seen_growing_is_not_killed() {
        let faults: Vec<_> = Schedule::new(3, 4).take(4_000).map(|(_, fault)| fault).collect();
        let kills = |of: &[Fault]| {
            let victim = |it: &Fault| match it {
                Fault::Kill(victim, _) => Some(*victim),
                Fault::Restore(_) => Some(Victim::Coordinator),
                _ => None,
            };
            of.iter().filter_map(victim).collect::<BTreeSet<_>>()
        };
        let central = [Victim::Coordinator, Victim::Collector];
        assert!(central.iter().all(|it| kills(&faults[..1_000]).contains(it)));
        assert!(central.iter().all(|it| !kills(&faults[1_000..2_000]).contains(it)));
        let all = kills(&faults);
        assert!(all.contains(&Victim::Worker(2)) && all.contains(&Victim::Keeper(3)));
        assert!(!all.contains(&Victim::Worker(3)) && !all.contains(&Victim::Supervisor(3)));
    }
}
