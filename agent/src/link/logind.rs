//! The desktop's sessions, as logind tells of them over the system bus: lock
//! and unlock, new sessions, whoever wants the machine undisturbed, and sleep.
//!
//! The promise: a bus that is missing, sick or slow is a line in the owner's
//! status and never anything the event loop waits for. What the sessions mean for
//! busy and idle is decided in `agent/core`.
//!
//! Idle hints are believed only where they say idle of a session that nothing
//! else hears: desktops set them late or never.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::occupancy::{Health, Observation, Screen, Sensor};
use gleaner_common::time::WallTime;
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zbus::export::futures_core::Stream as _;
use zbus::{Connection, MatchRule, Message, MessageStream, OwnedFd, OwnedObjectPath, OwnedVariant};

use super::ToEventLoop;

const SERVICE: &str = "org.freedesktop.login1";
const MANAGER: &str = "/org/freedesktop/login1";
const MANAGER_INTERFACE: &str = "org.freedesktop.login1.Manager";
const SESSION_INTERFACE: &str = "org.freedesktop.login1.Session";
const PROPERTIES_INTERFACE: &str = "org.freedesktop.DBus.Properties";

const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// How many signals may wait for us; a burst is a session that begins.
const SIGNALS_MAX: NonZero<usize> = NonZero::new(64).unwrap();

const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// The link's hold on the listener.
#[derive(Debug)]
pub(super) struct Sessions {
    /// `None` where nobody listens.
    ready: Option<UnboundedSender<()>>,
}

impl Sessions {
    pub(super) fn start(wanted: bool, event_loop: ToEventLoop) -> Self {
        if !wanted {
            tell_health(&event_loop, Health::Absent("switched off: sensors.sessions".into()));
            return Self { ready: None };
        }
        if !Path::new(SYSTEM_BUS).exists() && std::env::var_os("DBUS_SYSTEM_BUS_ADDRESS").is_none()
        {
            tell_health(&event_loop, Health::Absent(format!("no system bus at {SYSTEM_BUS}")));
            return Self { ready: None };
        }
        let (ready, to_sleep) = unbounded_channel();
        tokio::spawn(listen_for_ever(event_loop, to_sleep));
        Self { ready: Some(ready) }
    }

    /// All guests are stopped: the machine may sleep.
    pub(super) fn ready_to_sleep(&self) {
        if let Some(ready) = &self.ready {
            let _ = ready.send(());
        }
    }
}

fn tell_health(event_loop: &ToEventLoop, health: Health) {
    observe(event_loop, Observation::Health { sensor: Sensor::Sessions, health });
}

fn observe(event_loop: &ToEventLoop, observation: Observation) {
    event_loop.core(Event::Observed(observation));
}

async fn listen_for_ever(event_loop: ToEventLoop, mut to_sleep: UnboundedReceiver<()>) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    loop {
        let mut listener = Listener::new(event_loop.clone());
        let why = match listener.listen(&mut to_sleep).await {
            Ok(()) => "the system bus closed the connection".to_owned(),
            Err(error) => error.to_string(),
        };
        // A hold that nobody can be heard to release must not last for ever.
        listener.release_all();
        let health = if listener.was_well {
            backoff.reset();
            Health::Sick(format!("logind: {why}"))
        } else {
            Health::Absent(format!("logind does not answer: {why}"))
        };
        tell_health(&event_loop, health);
        Clock.sleep(backoff.next().unwrap_or(RETRY_MAX)).await;
    }
}

/// What is known over one connection.
struct Listener {
    event_loop: ToEventLoop,
    was_well: bool,
    held: BTreeMap<String, String>,
    /// Sessions of people, by their paths on the bus.
    sessions: BTreeMap<String, Session>,
    /// Keeps the machine from sleeping until our guests are stopped.
    awake: Option<OwnedFd>,
}

/// A session of somebody's.
struct Session {
    id: String,
    uid: u32,
    name: String,
    locked: bool,
    /// What was told of its screen, if it has one.
    screen: Option<Screen>,
}

impl Listener {
    fn new(event_loop: ToEventLoop) -> Self {
        Self {
            event_loop,
            was_well: false,
            held: BTreeMap::new(),
            sessions: BTreeMap::new(),
            awake: None,
        }
    }

    async fn listen(&mut self, to_sleep: &mut UnboundedReceiver<()>) -> zbus::Result<()> {
        let bus = Connection::system().await?;
        let rule =
            MatchRule::builder().msg_type(zbus::message::Type::Signal).sender(SERVICE).build()?;
        let mut signals = MessageStream::for_match_rule(rule, &bus, Some(SIGNALS_MAX)).await?;
        self.look_at_sessions(&bus, false).await?;
        self.look_at_inhibitors(&bus).await?;
        self.stay_awake(&bus).await;
        tell_health(&self.event_loop, Health::Well);
        self.was_well = true;
        loop {
            let signal = tokio::select! {
                signal = std::future::poll_fn(|context| Pin::new(&mut signals).poll_next(context)) => signal,
                _ = to_sleep.recv() => {
                    self.awake = None;
                    continue;
                }
            };
            let Some(signal) = signal.transpose()? else { return Ok(()) };
            self.hear(&bus, &signal).await?;
        }
    }

    async fn hear(&mut self, bus: &Connection, signal: &Message) -> zbus::Result<()> {
        let header = signal.header();
        let member = header.member().map_or("", |member| member.as_str());
        match member {
            "PrepareForSleep" => {
                let begins: bool = signal.body().deserialize()?;
                self.event_loop.core(if begins { Event::AboutToSleep } else { Event::Woke });
                if !begins {
                    self.stay_awake(bus).await;
                }
            }
            "SessionNew" | "SessionRemoved" => {
                self.look_at_sessions(bus, member == "SessionNew").await?;
            }
            "Lock" | "Unlock" => {
                if let Some(path) = header.path() {
                    self.locked(path.as_str(), member == "Lock");
                }
            }
            "PropertiesChanged" => {
                let path = header.path().map_or("", |path| path.as_str());
                if path == MANAGER {
                    self.look_at_inhibitors(bus).await?;
                } else {
                    let (_, changed, _): (String, BTreeMap<String, OwnedVariant>, Vec<String>) =
                        signal.body().deserialize()?;
                    let locked =
                        changed.get("LockedHint").and_then(|hint| bool::try_from(hint).ok());
                    if let Some(locked) = locked {
                        self.locked(path, locked);
                    }
                    if ["IdleHint", "State", "Type"].iter().any(|name| changed.contains_key(*name))
                    {
                        self.look_at_screen(bus, path).await;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn locked(&mut self, path: &str, locked: bool) {
        let Some(session) = self.sessions.get_mut(path) else { return };
        if std::mem::replace(&mut session.locked, locked) != locked {
            let session = session.name.clone();
            observe(&self.event_loop, Observation::Locked { session, locked });
        }
    }

    /// Has it a screen, and what does it say of itself?
    async fn look_at_screen(&mut self, bus: &Connection, path: &str) {
        let Some(session) = self.sessions.get_mut(path) else { return };
        let asked = call(bus, path, PROPERTIES_INTERFACE, "GetAll", &(SESSION_INTERFACE,)).await;
        // One that ends while we ask has no screen any more.
        let properties: BTreeMap<String, OwnedVariant> = asked.unwrap_or_default();
        let screen = screen_of(session.uid, &session.name, &properties);
        if session.screen != screen {
            session.screen.clone_from(&screen);
            observe(&self.event_loop, Observation::Screen { id: session.id.clone(), screen });
        }
    }

    fn tell_users(&self) {
        let uids = self.sessions.values().map(|session| session.uid).collect();
        observe(&self.event_loop, Observation::Users { by: Sensor::Sessions, uids });
    }

    /// Which sessions of people are there? A new one is somebody at the machine.
    async fn look_at_sessions(&mut self, bus: &Connection, news: bool) -> zbus::Result<()> {
        type Row = (String, u32, String, String, OwnedObjectPath);
        let rows: Vec<Row> = call(bus, MANAGER, MANAGER_INTERFACE, "ListSessions", &()).await?;
        let here: BTreeSet<&str> = rows.iter().map(|row| row.4.as_str()).collect();
        let (event_loop, before) = (self.event_loop.clone(), self.sessions.len());
        self.sessions.retain(|path, session| {
            let stays = here.contains(path.as_str());
            if !stays && session.screen.is_some() {
                observe(&event_loop, Observation::Screen { id: session.id.clone(), screen: None });
            }
            stays
        });
        let mut changed = self.sessions.len() != before;
        for (id, uid, login, local_rank, path) in rows {
            if self.sessions.contains_key(path.as_str()) {
                continue;
            }
            let property = |name| property(bus, path.as_str(), SESSION_INTERFACE, name);
            // A session may end while we ask; a greeter's is nobody's.
            let Ok(class) = property("Class").await else { continue };
            if String::try_from(class).is_ok_and(|class| class != "user") {
                continue;
            }
            let hint = property("LockedHint").await.ok();
            let locked = hint.is_some_and(|hint| bool::try_from(hint).unwrap_or(false));
            let where_from = if local_rank.is_empty() { "remote".to_owned() } else { local_rank };
            let session = format!("session {id} of {login} ({where_from})");
            if news {
                let source = format!("new {session}");
                observe(&self.event_loop, Observation::Input { source, ago: Duration::ZERO });
            }
            if locked {
                let session = session.clone();
                observe(&self.event_loop, Observation::Locked { session, locked });
            }
            let session = Session { id, uid, name: session, locked, screen: None };
            self.sessions.insert(path.to_string(), session);
            self.look_at_screen(bus, path.as_str()).await;
            changed = true;
        }
        if changed {
            self.tell_users();
        }
        Ok(())
    }

    /// Who wants the machine undisturbed? Not who merely delays its sleep.
    async fn look_at_inhibitors(&mut self, bus: &Connection) -> zbus::Result<()> {
        type Row = (String, String, String, String, u32, u32);
        let rows: Vec<Row> = call(bus, MANAGER, MANAGER_INTERFACE, "ListInhibitors", &()).await?;
        let now: BTreeMap<String, String> = rows
            .into_iter()
            .filter(|(what, _, _, mode, ..)| {
                mode.starts_with("block") && what.split(':').any(|what| what == "idle")
            })
            .map(|(_, who, why, _, uid, pid)| {
                (format!("{uid}/{pid}/{who}/{why}"), format!("{who}: {why}"))
            })
            .collect();
        for (id, what) in now.iter().filter(|(id, _)| !self.held.contains_key(*id)) {
            let (id, what) = (id.clone(), what.clone());
            observe(&self.event_loop, Observation::Held { id, what });
        }
        let before = std::mem::replace(&mut self.held, now);
        for id in before.into_keys().filter(|id| !self.held.contains_key(id)) {
            observe(&self.event_loop, Observation::Released { id });
        }
        Ok(())
    }

    fn release_all(&mut self) {
        for (id, _) in std::mem::take(&mut self.held) {
            observe(&self.event_loop, Observation::Released { id });
        }
        for session in std::mem::take(&mut self.sessions).into_values() {
            if session.screen.is_some() {
                observe(&self.event_loop, Observation::Screen { id: session.id, screen: None });
            }
        }
        self.tell_users();
    }

    /// Sleep is to wait until our guests are stopped: a few seconds, logind's
    /// own limit for it. Without the right to ask for it, we are told too late.
    async fn stay_awake(&mut self, bus: &Connection) {
        let asked = ("sleep", "gleaner", "stops guests before the machine sleeps", "delay");
        match call::<_, OwnedFd>(bus, MANAGER, MANAGER_INTERFACE, "Inhibit", &asked).await {
            Ok(awake) => self.awake = Some(awake),
            Err(error) => tracing::warn!(%error, "sleep will come without notice"),
        }
    }
}

/// What logind tells of a session that has a screen. One that is closing is left
/// over: its user has logged out.
fn screen_of(uid: u32, name: &str, of: &BTreeMap<String, OwnedVariant>) -> Option<Screen> {
    let text = |name| of.get(name).and_then(|value| <&str>::try_from(value).ok());
    let is = |name| of.get(name).and_then(|value| bool::try_from(value).ok()).unwrap_or(false);
    let kind = text("Type").filter(|kind| ["x11", "wayland", "mir"].contains(kind))?;
    if text("State") == Some("closing") {
        return None;
    }
    let seat =
        of.get("Seat").and_then(|seat| <(String, OwnedObjectPath)>::try_from(seat.clone()).ok());
    let since = of.get("IdleSinceHint").and_then(|since| u64::try_from(since).ok());
    let hint = is("IdleHint").then(|| {
        let since = i64::try_from(since.unwrap_or(0)).unwrap_or(0).saturating_mul(1_000);
        Clock.wall().since(WallTime(since))
    });
    Some(Screen {
        uid,
        what: format!("{name}, {kind}"),
        seat: seat.is_some_and(|(seat, _)| !seat.is_empty()) && !is("Remote"),
        hint,
    })
}

async fn call<B, R>(
    bus: &Connection,
    path: &str,
    interface: &str,
    method: &str,
    body: &B,
) -> zbus::Result<R>
where
    B: serde::Serialize + zbus::zvariant::DynamicType,
    R: for<'d> zbus::zvariant::DynamicDeserialize<'d>,
{
    let reply = bus.call_method(Some(SERVICE), path, Some(interface), method, body).await?;
    reply.body().deserialize()
}

async fn property(
    bus: &Connection,
    path: &str,
    interface: &str,
    name: &str,
) -> zbus::Result<OwnedVariant> {
    call(bus, path, PROPERTIES_INTERFACE, "Get", &(interface, name)).await
}
