//! GNOME: Mutter's own idle monitor, over the session's bus.

use std::time::Duration;

use gleaner_shell::clock::Clock;
use tokio::runtime::Runtime;
use zbus::export::futures_core::Stream as _;
use zbus::{Connection, MatchRule, MessageStream};

const SERVICE: &str = "org.gnome.Mutter.IdleMonitor";
const PATH: &str = "/org/gnome/Mutter/IdleMonitor/Core";

pub(super) struct Mutter {
    runtime: Runtime,
    bus: Connection,
    fired: MessageStream,
}

impl Mutter {
    pub(super) fn open() -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("no idle monitor of Mutter: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        let opened = runtime.block_on(async {
            let bus = Connection::session().await?;
            let rule = MatchRule::builder()
                .msg_type(zbus::message::Type::Signal)
                .sender(SERVICE)
                .member("WatchFired")
                .build()?;
            let fired = MessageStream::for_match_rule(rule, &bus, None).await?;
            zbus::Result::Ok((bus, fired))
        });
        let (bus, fired) = opened.map_err(|error| failed(&error))?;
        let mut mutter = Self { runtime, bus, fired };
        mutter.idle()?;
        Ok(mutter)
    }

    pub(super) fn idle(&mut self) -> Result<Duration, String> {
        let ms: u64 = self.call("GetIdletime")?;
        Ok(Duration::from_millis(ms))
    }

    pub(super) fn wait_for_use(&mut self, span: Duration) -> Result<(), String> {
        let watch: u32 = self.call("AddUserActiveWatch")?;
        let Self { runtime, fired, .. } = self;
        let next =
            std::future::poll_fn(|context| std::pin::Pin::new(&mut *fired).poll_next(context));
        let ended = runtime.block_on(async {
            tokio::select! {
                message = next => message.is_none(),
                () = Clock.sleep(span) => false,
            }
        });
        if ended {
            return Err("the session's bus has gone".into());
        }
        self.remove(watch)
    }

    /// A watch that has fired is gone already.
    fn remove(&self, watch: u32) -> Result<(), String> {
        let body = (watch,);
        let call = self.bus.call_method(Some(SERVICE), PATH, Some(SERVICE), "RemoveWatch", &body);
        match self.runtime.block_on(call) {
            Ok(_) | Err(zbus::Error::MethodError(..)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn call<R>(&self, method: &str) -> Result<R, String>
    where
        R: for<'d> zbus::zvariant::DynamicDeserialize<'d>,
    {
        let call = self.bus.call_method(Some(SERVICE), PATH, Some(SERVICE), method, &());
        let reply = self.runtime.block_on(call).map_err(|error| error.to_string())?;
        reply.body().deserialize().map_err(|error| error.to_string())
    }
}
