//! Sensors that look from time to time, or wait for others to tell: on the
//! link's thread, so that the event loop, which waits for keystrokes, never
//! waits for them.
//!
//! The promise: each costs next to nothing while nothing changes, can be
//! switched off, and says how it is. What its observations mean is decided in
//! `agent/core`.

mod calls;
mod connections;
mod diag;
mod machine;
mod network;
mod presence;
pub(super) mod room;
mod servers;
mod slice;

use std::sync::Arc;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::occupancy::{Health, Observation, Sensor};

use super::ToEventLoop;
use crate::config::AgentConfig;

/// Where a lookout tells what it sees, and how it is.
#[derive(Clone, Debug)]
struct Teller {
    event_loop: ToEventLoop,
    sensor: Sensor,
    said: Option<Health>,
}

impl Teller {
    fn see(&self, observation: Observation) {
        self.event_loop.core(Event::Observed(observation));
    }

    /// Tells it when it is another than before.
    fn health(&mut self, health: Health) {
        if self.said.as_ref() != Some(&health) {
            let sensor = self.sensor;
            self.see(Observation::Health { sensor, health: health.clone() });
            self.said = Some(health);
        }
    }
}

/// Starts all of them; they end with the link's runtime.
pub(super) fn start(config: &AgentConfig, event_loop: &ToEventLoop) {
    let teller = |sensor| Teller { event_loop: event_loop.clone(), sensor, said: None };
    let off = |sensor: Sensor| {
        let why = format!("switched off: sensors.{sensor}");
        teller(sensor).health(Health::Absent(why));
    };
    let of = &config.sensors;
    if of.connections {
        let guests = config.guest_uids(config.places(u16::MAX));
        let known = Arc::new(servers::Known::new(of));
        tokio::spawn(connections::watch(known, guests, teller(Sensor::Connections)));
    } else {
        off(Sensor::Connections);
    }
    if of.presence {
        let guests = config.guest_uids(config.places(u16::MAX));
        let (path, teller) = (config.presence_socket(), teller(Sensor::Presence));
        tokio::spawn(async move { presence::serve(&path, guests, teller).await });
    } else {
        off(Sensor::Presence);
    }
    let root = || of.root.clone();
    if of.calls {
        tokio::spawn(calls::watch(root(), teller(Sensor::Calls)));
    } else {
        off(Sensor::Calls);
    }
    if of.power {
        tokio::spawn(machine::watch_power(root(), teller(Sensor::Power)));
    } else {
        off(Sensor::Power);
    }
    if of.heat {
        tokio::spawn(machine::watch_heat(root(), teller(Sensor::Heat)));
    } else {
        off(Sensor::Heat);
    }
    if of.slice.is_empty() {
        off(Sensor::Slice);
    } else {
        tokio::spawn(slice::watch(root(), of.slice.clone(), teller(Sensor::Slice)));
    }
    tokio::spawn(network::watch(of.metered, teller(Sensor::Network)));
}
