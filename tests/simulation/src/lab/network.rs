//! The network between agents and their coordinator, as QUIC has it: what goes
//! over a connection comes whole and in order while that lasts. Lost datagrams
//! are sent again, so that frames come late; a direction that is silent for
//! longer than the idle timeout ends the connection, at one end first.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame};
use gleaner_coordinator_core::Link;
use rand::Rng;
use rand::rngs::SmallRng;

use super::bound::IDLE_TIMEOUT;
use super::hosts::HOSTS_MAX;
use super::router::RouterCommand;
use super::usage::AtAgent;
use super::{Happening, Lab, Local, index_of};

/// From an agent to its coordinator, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// One connection, as the network sees it.
#[derive(Debug, Default)]
pub(super) struct Wire {
    up_at: Moment,
    down_at: Moment,
    /// Nothing more comes through.
    pub(super) up_gone: bool,
    pub(super) down_gone: bool,
}

impl Wire {
    fn is_gone(&self) -> bool {
        self.up_gone && self.down_gone
    }
}

/// How it is between a workstation and the coordinator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ways {
    up_silent_until: Moment,
    down_silent_until: Moment,
    lossy_until: Moment,
    loss: f64,
}

impl Ways {
    pub(super) fn lossy(&mut self, until: Moment, loss: f64) {
        (self.lossy_until, self.loss) = (self.lossy_until.max(until), loss);
    }

    pub(super) fn silent(&mut self, ways: &[Way], until: Moment) {
        for way in ways {
            match way {
                Way::Up => self.up_silent_until = self.up_silent_until.max(until),
                Way::Down => self.down_silent_until = self.down_silent_until.max(until),
            }
        }
    }

    pub(super) fn heal(&mut self, now: Moment) {
        for until in [&mut self.up_silent_until, &mut self.down_silent_until, &mut self.lossy_until]
        {
            *until = now.min(*until);
        }
    }

    fn silent_until(&self, way: Way) -> Moment {
        match way {
            Way::Up => self.up_silent_until,
            Way::Down => self.down_silent_until,
        }
    }

    /// A handshake needs both.
    pub(super) fn is_silent(&self, now: Moment) -> bool {
        now < self.up_silent_until.max(self.down_silent_until)
    }

    /// When comes what leaves now and takes so long, where nothing holds it up.
    pub(super) fn passes(
        &self,
        now: Moment,
        takes: Duration,
        way: Way,
        rng: &mut SmallRng,
    ) -> Moment {
        let mut at = (now + takes).max(self.silent_until(way));
        if now < self.lossy_until {
            // Sent again after a time that doubles, as RFC 9002 has it.
            let mut again = Duration::from_millis(30);
            while rng.random_bool(self.loss) && again < Duration::from_secs(8) {
                at = at + again;
                again *= 2;
            }
        }
        at
    }
}

impl Lab {
    pub(super) fn dial(&mut self, id: u32) {
        let index = id as usize - 1;
        let host = &self.hosts[index];
        if host.agent.is_none() || host.link.is_some() {
            return;
        }
        if self.core.is_none() || self.halted.is_some() || host.ways.is_silent(self.now) {
            let after = self.up_to(Duration::from_secs(2));
            return self.plan(after, Happening::Dial(id));
        }
        self.serials += 1;
        let serial = self.serials * HOSTS_MAX + u64::from(host.id - 1);
        let link = Link { workstation: host.identity.workstation, serial };
        self.wires.insert(link, Wire::default());
        self.hosts[index].link = Some(link);
        self.tell(index, Event::LinkUp);
        if self.usage.is_of(index) {
            self.plan_here(index, Duration::ZERO, Local::Usage(AtAgent::Opens));
        }
    }

    pub(super) fn agent_loses(&mut self, link: Link) {
        let index = index_of(link);
        if self.hosts[index].link != Some(link) {
            return;
        }
        self.hosts[index].link = None;
        self.act(index, |core, now| core.take(now, RouterCommand::Down));
        self.usage.agent_loses(index);
        self.tell(index, Event::LinkDown);
        let pause = self.hosts[index].pause();
        let after = self.up_to(pause);
        self.plan(after, Happening::Dial(self.hosts[index].id));
    }

    /// A connection breaks. What is under way may still arrive at the
    /// coordinator; each end notices in its own time.
    pub(super) fn cut(&mut self, link: Link) {
        if self.is_over(link) {
            return;
        }
        let agent = self.up_to(Duration::from_secs(12));
        let coordinator = self.up_to(Duration::from_secs(20));
        self.ends(link, agent, coordinator);
    }

    /// Its authentication fails, and says so to the other end.
    pub(super) fn corrupted(&mut self, index: usize) {
        let Some(link) = self.hosts[index].link.filter(|link| !self.is_over(*link)) else { return };
        let agent = self.up_to(Duration::from_millis(5));
        let coordinator = self.up_to(Duration::from_millis(5));
        self.ends(link, agent, coordinator);
    }

    fn is_over(&self, link: Link) -> bool {
        self.wires.get(&link).is_none_or(Wire::is_gone)
    }

    fn ends(&mut self, link: Link, agent: Duration, coordinator: Duration) {
        let Some(wire) = self.wires.get_mut(&link) else { return };
        (wire.up_gone, wire.down_gone) = (true, true);
        self.plan(agent, Happening::AgentLoses(link));
        self.plan(coordinator, Happening::CoordinatorLoses(link));
    }

    /// Nothing comes through this way for so long. For less than the idle
    /// timeout, what is sent comes when the silence is over.
    pub(super) fn falls_silent(&mut self, index: usize, ways: &[Way], long: Duration) {
        let until = self.now + long;
        self.hosts[index].ways.silent(ways, until);
        let Some(link) = self.hosts[index].link.filter(|_| long >= IDLE_TIMEOUT) else { return };
        if self.is_over(link) {
            return;
        }
        // Whoever hears nothing gives up first. The other end goes on hearing
        // until then, and for another timeout believes what it has heard.
        let (first, then) = (IDLE_TIMEOUT, IDLE_TIMEOUT + self.up_to(IDLE_TIMEOUT));
        let Some(wire) = self.wires.get_mut(&link) else { return };
        match ways {
            [Way::Up] => {
                wire.up_gone = true;
                self.plan(then, Happening::AgentLoses(link));
                self.plan(first, Happening::CoordinatorLoses(link));
            }
            [Way::Down] => {
                wire.down_gone = true;
                self.plan(first, Happening::AgentLoses(link));
                self.plan(then, Happening::CoordinatorLoses(link));
            }
            _ => self.ends(link, first, first),
        }
    }

    // ── frames ─────────────────────────────────────────────────────────────

    pub(super) fn send_up(&mut self, index: usize, mut frame: AgentFrame) {
        self.tells(index, &mut frame);
        let Some(link) = self.hosts[index].link else { return };
        let twice = self.rng.random_bool(self.setting.repeats);
        let arrives = self.arrives(index, Way::Up);
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.up_gone) else { return };
        wire.up_at = wire.up_at.max(arrives);
        let at = wire.up_at;
        self.history.frame(&frame);
        if twice && !matches!(frame, AgentFrame::Hello { .. }) {
            let later = self.up_to(Duration::from_secs(5));
            // How things are is not said again when they are otherwise by then.
            let again = if is_of_now(&frame) { at } else { at + later };
            self.plan_at(again, Happening::Heard(link, frame.clone()));
        }
        self.plan_at(at, Happening::Heard(link, frame));
    }

    pub(super) fn send_down(&mut self, to: Link, frame: CoordinatorFrame) {
        if self.wires.get(&to).is_none_or(|wire| wire.down_gone) {
            return;
        }
        let arrives = self.arrives(index_of(to), Way::Down);
        let wire = self.wires.get_mut(&to).expect("it was there");
        wire.down_at = wire.down_at.max(arrives);
        let at = wire.down_at;
        self.history.frame(&frame);
        if self.rng.random_bool(self.setting.repeats) {
            self.plan_at(at, Happening::Told(to, frame.clone()));
        }
        self.plan_at(at, Happening::Told(to, frame));
    }

    /// When a frame that leaves now comes, if the others before it have come.
    fn arrives(&mut self, index: usize, way: Way) -> Moment {
        let takes = self.delay();
        if takes > Duration::from_secs(1) {
            self.strikes(index);
        }
        self.hosts[index].ways.passes(self.now, takes, way, &mut self.rng)
    }

    pub(super) fn delay(&mut self) -> Duration {
        let late = (!self.calm).then_some(self.setting.late_frames);
        delay(&mut self.rng, late)
    }
}

fn is_of_now(frame: &AgentFrame) -> bool {
    matches!(
        frame,
        AgentFrame::Presence(_)
            | AgentFrame::Missing(_)
            | AgentFrame::Unready(_)
            | AgentFrame::Leaving { .. }
    )
}

/// Mostly a local network's; now and then much worse.
pub(super) fn delay(rng: &mut SmallRng, late: Option<f64>) -> Duration {
    let is_late = late.is_some_and(|late| rng.random_bool(late));
    let longest = match rng.random_range(0..50) {
        _ if is_late => Duration::from_secs(15),
        0 => Duration::from_secs(1),
        _ => Duration::from_millis(2),
    };
    longest.mul_f64(rng.random::<f64>())
}
