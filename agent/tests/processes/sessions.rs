//! An agent on a desktop: a system bus of the test's own, and a logind on it
//! that says what the test tells it to.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use zbus::object_server::SignalEmitter;
use zbus::{ObjectPath, OwnedObjectPath, Variant};

type InhibitorRow = (String, String, String, String, u32, u32);
type SessionRow = (String, u32, String, String, OwnedObjectPath);

const MANAGER: &str = "/org/freedesktop/login1";
const NETWORK: &str = "/org/freedesktop/NetworkManager";
const SESSION: &str = "/org/freedesktop/login1/session/c1";

#[derive(Default)]
struct State {
    inhibitors: Mutex<Vec<InhibitorRow>>,
    /// Our ends of what was given to those who delay sleep.
    delays: Mutex<Vec<OwnedFd>>,
    screen: Mutex<Screen>,
    metered: Mutex<u32>,
}

/// What the session says of itself.
#[derive(Clone, Default)]
struct Screen {
    kind: String,
    seat: String,
    idle: bool,
}

struct Manager(Arc<State>);

#[expect(clippy::unused_self, reason = "methods on the bus have a receiver")]
#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    fn list_sessions(&self) -> Vec<SessionRow> {
        let path = ObjectPath::try_from(SESSION).unwrap().into();
        vec![("c1".into(), 1000, "ann".into(), "seat0".into(), path)]
    }

    fn list_inhibitors(&self) -> Vec<InhibitorRow> {
        self.0.inhibitors.lock().unwrap().clone()
    }

    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::OwnedFd {
        assert_eq!((what, who, mode), ("sleep", "gleaner", "delay"), "{why}");
        let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        self.0.delays.lock().unwrap().push(ours);
        theirs.into()
    }

    #[zbus(signal)]
    async fn prepare_for_sleep(emitter: &SignalEmitter<'_>, begins: bool) -> zbus::Result<()>;
}

struct Session(Arc<State>);

impl Session {
    fn screen(&self) -> Screen {
        self.0.screen.lock().unwrap().clone()
    }
}

#[expect(clippy::unused_self, reason = "properties on the bus have a receiver")]
#[zbus::interface(name = "org.freedesktop.login1.Session")]
impl Session {
    #[zbus(property)]
    fn class(&self) -> String {
        "user".into()
    }

    #[zbus(property)]
    fn locked_hint(&self) -> bool {
        false
    }

    #[zbus(property, name = "Type")]
    fn kind(&self) -> String {
        self.screen().kind
    }

    #[zbus(property)]
    fn state(&self) -> String {
        "active".into()
    }

    #[zbus(property)]
    fn remote(&self) -> bool {
        self.screen().seat.is_empty()
    }

    #[zbus(property)]
    fn seat(&self) -> (String, OwnedObjectPath) {
        (self.screen().seat, ObjectPath::try_from("/").unwrap().into())
    }

    #[zbus(property)]
    fn idle_hint(&self) -> bool {
        self.screen().idle
    }

    #[zbus(property)]
    fn idle_since_hint(&self) -> u64 {
        0
    }

    #[zbus(signal)]
    async fn unlock(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;

    #[zbus(signal)]
    async fn lock(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;
}

/// As much of `NetworkManager` as is asked.
struct Network(Arc<State>);

#[zbus::interface(name = "org.freedesktop.NetworkManager")]
impl Network {
    #[zbus(property)]
    fn metered(&self) -> u32 {
        *self.0.metered.lock().unwrap()
    }
}

/// A bus with a logind.
pub(crate) struct Desktop {
    pub(crate) address: String,
    bus: Child,
    state: Arc<State>,
    /// The path of a remote desktop's session.
    keyboard: Mutex<String>,
    connection: zbus::Connection,
    runtime: tokio::runtime::Runtime,
}

impl Desktop {
    /// `None` where no bus can be had.
    pub(crate) fn start() -> Option<Self> {
        let mut bus = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut address = String::new();
        BufReader::new(bus.stdout.take()?).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(State::default());
        let connection = runtime.block_on(async {
            zbus::connection::Builder::address(address.as_str())
                .serve_at(MANAGER, Manager(Arc::clone(&state)))
                .serve_at(SESSION, Session(Arc::clone(&state)))
                .serve_at(NETWORK, Network(Arc::clone(&state)))
                .name("org.freedesktop.login1")
                .name("org.freedesktop.NetworkManager")
                .build()
                .await
                .unwrap()
        });
        let keyboard = Mutex::default();
        Some(Self { address, bus, state, keyboard, connection, runtime })
    }

    /// Somebody wants the machine undisturbed, or nobody any more.
    pub(crate) fn inhibit(&self, what: &str, who: Option<&str>) {
        let rows = who.map(|who| {
            let row = (what.to_owned(), who.to_owned(), "a film".to_owned());
            (row.0, row.1, row.2, "block".to_owned(), 1000, 4711)
        });
        *self.state.inhibitors.lock().unwrap() = rows.into_iter().collect();
        let mut changed = HashMap::new();
        changed.insert("BlockInhibited", Variant::from(what));
        self.changed(MANAGER, "org.freedesktop.login1.Manager", &changed);
    }

    /// The session's screen is another, or says otherwise of itself.
    pub(crate) fn screen(&self, kind: &str, seat: &str, idle: bool) {
        let screen = Screen { kind: kind.into(), seat: seat.into(), idle };
        *self.state.screen.lock().unwrap() = screen;
        let mut changed = HashMap::new();
        changed.insert("IdleHint", Variant::from(idle));
        self.changed(SESSION, "org.freedesktop.login1.Session", &changed);
    }

    /// As `NMMetered` numbers it: 1 is yes, 4 is a guess that it is not.
    pub(crate) fn metered(&self, metered: u32) {
        *self.state.metered.lock().unwrap() = metered;
        let changed = HashMap::from([("Metered", Variant::from(metered))]);
        self.changed(NETWORK, "org.freedesktop.NetworkManager", &changed);
    }

    fn changed(&self, path: &str, of: &str, changed: &HashMap<&str, Variant<'_>>) {
        self.runtime.block_on(async {
            let body = (of, changed, Vec::<String>::new());
            let interface = "org.freedesktop.DBus.Properties";
            self.connection
                .emit_signal(None::<&str>, path, interface, "PropertiesChanged", &body)
                .await
                .unwrap();
        });
    }

    pub(crate) fn sleep(&self, begins: bool) {
        self.runtime.block_on(async {
            let emitter = SignalEmitter::new(&self.connection, MANAGER).unwrap();
            Manager::prepare_for_sleep(&emitter, begins).await.unwrap();
        });
    }

    pub(crate) fn lock(&self, locked: bool) {
        self.runtime.block_on(async {
            let emitter = SignalEmitter::new(&self.connection, SESSION).unwrap();
            if locked {
                Session::lock(&emitter).await.unwrap();
            } else {
                Session::unlock(&emitter).await.unwrap();
            }
        });
    }

    /// Opens the keyboard of GNOME's remote desktop on this bus; `false` where there
    /// is none.
    pub(crate) fn opens_keyboard(&self) -> bool {
        let asked =
            self.remote_desktop("/org/gnome/Mutter/RemoteDesktop", "", "CreateSession", &());
        let Ok(reply) = asked else { return false };
        let path: OwnedObjectPath = reply.body().deserialize().unwrap();
        let started = self.remote_desktop(path.as_str(), ".Session", "Start", &());
        *self.keyboard.lock().unwrap() = path.to_string();
        started.is_ok()
    }

    /// The letter a, pressed and let go at that keyboard.
    pub(crate) fn press_a_key(&self) {
        let path = self.keyboard.lock().unwrap().clone();
        for pressed in [true, false] {
            let key = (30_u32, pressed);
            self.remote_desktop(&path, ".Session", "NotifyKeyboardKeycode", &key).unwrap();
        }
    }

    fn remote_desktop<B: serde::Serialize + zbus::zvariant::DynamicType>(
        &self,
        path: &str,
        part: &str,
        method: &str,
        body: &B,
    ) -> zbus::Result<zbus::Message> {
        const SERVICE: &str = "org.gnome.Mutter.RemoteDesktop";
        let interface = format!("{SERVICE}{part}");
        let interface = Some(interface.as_str());
        let call = self.connection.call_method(Some(SERVICE), path, interface, method, body);
        self.runtime.block_on(call)
    }

    /// How many delay sleep at this moment: their ends are still open.
    pub(crate) fn delays(&self) -> usize {
        let delays = self.state.delays.lock().unwrap();
        delays
            .iter()
            .filter(|ours| {
                let mut fds = [rustix::event::PollFd::new(ours, rustix::event::PollFlags::IN)];
                let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
                rustix::event::poll(&mut fds, Some(&now)) == Ok(0)
            })
            .count()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        let _ = self.bus.kill();
        let _ = self.bus.wait();
    }
}
