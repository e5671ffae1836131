//! X11: the screen saver's clock, and an alarm on it where the server has one.

use std::time::Duration;

use x11rb::connection::Connection as _;
use x11rb::protocol::screensaver::ConnectionExt as _;
use x11rb::protocol::sync::{ConnectionExt as _, CreateAlarmAux, Int64, TESTTYPE, VALUETYPE};
use x11rb::rust_connection::RustConnection;

use super::wait_readable;

/// Where there is no alarm.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The alarm rings when the clock falls below this: somebody has used it.
const RINGS_BELOW_MS: u32 = 1_000;

pub(super) struct X11 {
    connection: RustConnection,
    root: u32,
    has_alarm: bool,
}

impl X11 {
    pub(super) fn open() -> Result<Self, String> {
        let (connection, screen) = x11rb::connect(None).map_err(|error| error.to_string())?;
        let root = connection.setup().roots.get(screen).ok_or("it has no screen")?.root;
        let mut x11 = Self { connection, root, has_alarm: false };
        x11.idle()?;
        x11.has_alarm = x11.set_alarm().is_ok();
        Ok(x11)
    }

    pub(super) fn idle(&mut self) -> Result<Duration, String> {
        let asked = self.connection.screensaver_query_info(self.root);
        let info = asked.map_err(|error| error.to_string())?.reply();
        let info = info.map_err(|error| error.to_string())?;
        Ok(Duration::from_millis(info.ms_since_user_input.into()))
    }

    pub(super) fn wait_for_use(&mut self, span: Duration) -> Result<(), String> {
        // What has rung already was answered by the last word.
        while self.rings()? {}
        let span = if self.has_alarm { span } else { LOOK_EVERY };
        wait_readable(self.connection.stream(), span);
        self.rings().map(drop)
    }

    fn rings(&mut self) -> Result<bool, String> {
        let event = self.connection.poll_for_event().map_err(|error| error.to_string())?;
        Ok(event.is_some())
    }

    fn set_alarm(&self) -> Result<(), Box<dyn std::error::Error>> {
        self.connection.sync_initialize(3, 1)?.reply()?;
        let counters = self.connection.sync_list_system_counters()?.reply()?.counters;
        let idle = counters.iter().find(|counter| counter.name == b"IDLETIME");
        let alarm = CreateAlarmAux::new()
            .counter(idle.ok_or("it has no such clock")?.counter)
            .value_type(VALUETYPE::ABSOLUTE)
            .value(Int64 { hi: 0, lo: RINGS_BELOW_MS })
            .test_type(TESTTYPE::NEGATIVE_TRANSITION)
            .delta(Int64 { hi: 0, lo: 0 })
            .events(1);
        let id = self.connection.generate_id()?;
        self.connection.sync_create_alarm(id, &alarm)?.check()?;
        Ok(())
    }
}
