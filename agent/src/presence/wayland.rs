//! Wayland: `ext-idle-notify-v1`. Version 2 can leave inhibitors aside: a film
//! is no hand, and the session manager tells of it.

use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;
use wayland_client::backend::WaylandError;
use wayland_client::globals::{GlobalListContents, registry_queue_init};
use wayland_client::protocol::wl_registry::WlRegistry;
use wayland_client::protocol::wl_seat::{self, WlSeat};
use wayland_client::{Connection, Dispatch, EventQueue, QueueHandle, delegate_noop};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notification_v1::{
    self, ExtIdleNotificationV1,
};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notifier_v1::ExtIdleNotifierV1;

use super::wait_readable;

/// So long after the last use the compositor says that nobody uses it.
const SAID_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Wayland {
    queue: EventQueue<State>,
    state: State,
}

#[derive(Default)]
struct State {
    /// When it was used last; `None`: it is being used.
    used: Option<Moment>,
}

impl Wayland {
    pub(super) fn open() -> Result<Self, String> {
        let connection = Connection::connect_to_env().map_err(|error| error.to_string())?;
        let (globals, mut queue) =
            registry_queue_init::<State>(&connection).map_err(|error| error.to_string())?;
        let handle = queue.handle();
        let notifier: ExtIdleNotifierV1 = globals
            .bind(&handle, 1..=2, ())
            .map_err(|_| "it has no ext-idle-notify-v1".to_owned())?;
        let seat: WlSeat =
            globals.bind(&handle, 1..=1, ()).map_err(|_| "it has no seat".to_owned())?;
        let after_ms = u32::try_from(SAID_AFTER.as_millis()).unwrap_or(u32::MAX);
        if wayland_client::Proxy::version(&notifier) >= 2 {
            notifier.get_input_idle_notification(after_ms, &seat, &handle, ());
        } else {
            notifier.get_idle_notification(after_ms, &seat, &handle, ());
        }
        let mut state = State::default();
        queue.roundtrip(&mut state).map_err(|error| error.to_string())?;
        Ok(Self { queue, state })
    }

    pub(super) fn idle(&mut self) -> Result<Duration, String> {
        self.read(Duration::ZERO)?;
        Ok(self.state.used.map_or(Duration::ZERO, |used| Clock.now().since(used)))
    }

    pub(super) fn wait_for_use(&mut self, span: Duration) -> Result<(), String> {
        let end = Clock.now() + span;
        while self.state.used.is_some() {
            let left = end.since(Clock.now());
            if left.is_zero() {
                break;
            }
            self.read(left)?;
        }
        Ok(())
    }

    /// Takes in what comes, for at most so long.
    fn read(&mut self, span: Duration) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        self.queue.flush().map_err(|error| failed(&error))?;
        if let Some(guard) = self.queue.prepare_read()
            && wait_readable(guard.connection_fd(), span)
        {
            match guard.read() {
                Ok(_) => {}
                Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        self.queue.dispatch_pending(&mut self.state).map_err(|error| failed(&error))?;
        Ok(())
    }
}

impl Dispatch<ExtIdleNotificationV1, ()> for State {
    fn event(
        state: &mut Self,
        _: &ExtIdleNotificationV1,
        event: ext_idle_notification_v1::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        match event {
            ext_idle_notification_v1::Event::Idled => state.used = Some(Clock.now() - SAID_AFTER),
            ext_idle_notification_v1::Event::Resumed => state.used = None,
            _ => {}
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for State {
    fn event(
        _: &mut Self,
        _: &WlRegistry,
        _: wayland_client::protocol::wl_registry::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
    }
}

impl Dispatch<WlSeat, ()> for State {
    fn event(
        _: &mut Self,
        _: &WlSeat,
        _: wl_seat::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
    }
}

delegate_noop!(State: ExtIdleNotifierV1);
