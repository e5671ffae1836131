//! `glean presence`: inside somebody's session, and says how long nobody has
//! used it.
//!
//! It has no rights but its user's, asks the display it was started at, and
//! tells the agent: every two seconds while the session is used, every half
//! minute else. It sleeps until the display tells of a key, where the display
//! can.

mod mutter;
mod wayland;
mod x11;

use std::env;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::mutter::Mutter;
use self::wayland::Wayland;
use self::x11::X11;

/// Who has not been used for so long is at rest.
const REST: Duration = Duration::from_secs(2);

/// How often the same word is said at rest: three times while a word lasts.
const AGAIN: Duration = Duration::from_secs(30);

/// One line of JSON to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The session's id, as the session manager calls it.
    #[serde(default)]
    pub session: Option<String>,
    pub display: String,
    pub idle_ms: u64,
}

/// Why a session cannot be spoken for.
#[derive(Debug, thiserror::Error)]
pub enum PresenceError {
    #[error("there is no display here: neither WAYLAND_DISPLAY nor DISPLAY is set")]
    NoDisplay,
    #[error("{display} does not tell how long nobody has used it: {why}")]
    Mute { display: String, why: String },
}

/// A display that can be asked.
enum Display {
    X11(X11),
    Wayland(Wayland),
    Mutter(Mutter),
}

impl Display {
    /// X11 inside Wayland sees its own windows' keys only: it is not asked there.
    fn open() -> Result<(Self, String), PresenceError> {
        if let Ok(name) = env::var("WAYLAND_DISPLAY") {
            let display = format!("wayland {name}");
            return match Wayland::open() {
                Ok(wayland) => Ok((Self::Wayland(wayland), display)),
                Err(first) => match Mutter::open() {
                    Ok(mutter) => Ok((Self::Mutter(mutter), display)),
                    Err(why) => {
                        Err(PresenceError::Mute { display, why: format!("{first}; {why}") })
                    }
                },
            };
        }
        let name = env::var("DISPLAY").map_err(|_| PresenceError::NoDisplay)?;
        let display = format!("x11 {name}");
        match X11::open() {
            Ok(x11) => Ok((Self::X11(x11), display)),
            Err(why) => Err(PresenceError::Mute { display, why }),
        }
    }

    /// How long nobody has used it. An error is the session's end.
    fn idle(&mut self) -> Result<Duration, String> {
        match self {
            Self::X11(x11) => x11.idle(),
            Self::Wayland(wayland) => wayland.idle(),
            Self::Mutter(mutter) => mutter.idle(),
        }
    }

    /// Waits so long, or until somebody uses it.
    fn wait_for_use(&mut self, span: Duration) -> Result<(), String> {
        match self {
            Self::X11(x11) => x11.wait_for_use(span),
            Self::Wayland(wayland) => wayland.wait_for_use(span),
            Self::Mutter(mutter) => mutter.wait_for_use(span),
        }
    }
}

/// Speaks until the session ends.
///
/// # Errors
/// There is no display, or it cannot be asked.
pub fn run(socket: &Path) -> Result<(), PresenceError> {
    let (mut display, name) = Display::open()?;
    let session = env::var("XDG_SESSION_ID").ok();
    tracing::info!(display = %name, "watching");
    let mut agent = None;
    loop {
        let Ok(idle) = display.idle() else { return Ok(()) };
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let said = Said { session: session.clone(), display: name.clone(), idle_ms };
        if let Err(error) = say(&mut agent, socket, &said) {
            // It may be installed later, or start again.
            tracing::debug!(%error, "no agent listens");
            agent = None;
        }
        let waited = if idle < REST {
            std::thread::sleep(REST);
            Ok(())
        } else {
            display.wait_for_use(AGAIN)
        };
        if waited.is_err() {
            return Ok(());
        }
    }
}

fn say(agent: &mut Option<UnixStream>, socket: &Path, said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let stream = match agent {
        Some(stream) => stream,
        None => agent.insert(UnixStream::connect(socket)?),
    };
    stream.set_write_timeout(Some(REST))?;
    stream.write_all(&line)
}

/// Waits until there is something to read, at most so long.
fn wait_readable(fd: impl std::os::fd::AsFd, span: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let span = rustix::time::Timespec::try_from(span).ok();
    matches!(poll(&mut fds, span.as_ref()), Ok(1..))
}
