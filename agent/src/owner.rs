//! The owner's own controls: a local socket that knows who asks.
//!
//! No password and no root: whoever has a login here may ask, pause and
//! resume, and the kernel says who it is. Guests may not. One request and one
//! answer per connection, each a line of JSON, so that any tool can ask.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_common::id::{Fence, SubprogramId};
use serde::{Deserialize, Serialize};

/// The longest request, and how long one may take.
pub const REQUEST_BYTES_MAX: u64 = 4 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that a client reads.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// What an owner may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    Status,
    /// No guests for so long; `None`: until resumed.
    Pause {
        seconds: Option<u64>,
    },
    Resume,
    /// This guest must go.
    Stop {
        fence: Fence,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Status(Box<Status>),
    Done,
    /// What was wrong with the request.
    No {
        reason: String,
    },
}

/// Why busy or idle, and who runs what here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The workstation's name at the coordinator.
    pub name: String,
    pub coordinator: String,
    pub busy: bool,
    /// "busy: pts/3, 2.0 s ago"
    pub verdict: String,
    pub reason: String,
    /// How long it has been so.
    pub lasted_s: f64,
    pub slots: u16,
    pub load_1m: f32,
    pub load_5m: f32,
    pub load_15m: f32,
    pub users: u32,
    pub sensors: Vec<SensorStatus>,
    pub pause: Option<PauseStatus>,
    pub connected: bool,
    pub lease_left_s: Option<f64>,
    pub guests: Vec<GuestStatus>,
    /// Results that the coordinator has not acknowledged yet.
    pub results_waiting: u64,
    /// Why nothing new is begun here, whoever is idle.
    #[serde(default)]
    pub unready: Option<String>,
    /// Why there is no connection, or why the coordinator wants nothing of this
    /// workstation.
    pub refused: Option<String>,
    /// What is missing here, one line each.
    pub missing: Vec<String>,
    pub moves: MovesStatus,
}

/// Can guests be moved from and to here?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovesStatus {
    pub possible: bool,
    /// What was tried, or why not.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SensorStatus {
    pub sensor: String,
    /// "well", "degraded", "sick" or "absent"
    pub health: String,
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PauseStatus {
    pub by: String,
    /// "17:40"; `None`: until resumed.
    pub until: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestStatus {
    pub fence: Fence,
    pub subprogram: SubprogramId,
    pub name: String,
    pub place: Option<u16>,
    pub state: String,
    pub lasted_s: f64,
}

/// Why the agent did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no agent runs here: nothing listens at {path}")]
    NoAgent { path: PathBuf },
    #[error("cannot ask the agent at {path}: {source}")]
    Ask { path: PathBuf, source: io::Error },
    #[error("the agent at {path} answers what is no answer: expected the same release of glean")]
    Malformed { path: PathBuf },
}

/// Asks the agent of this machine.
///
/// # Errors
/// No agent, or no sensible answer within a few seconds.
pub fn ask(path: &Path, command: &Command) -> Result<Answer, AskError> {
    let failed = |source: io::Error| {
        if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
            AskError::NoAgent { path: path.to_path_buf() }
        } else {
            AskError::Ask { path: path.to_path_buf(), source }
        }
    };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = serde_json::to_vec(command).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer).map_err(failed)?;
    serde_json::from_str(&answer).map_err(|_| AskError::Malformed { path: path.to_path_buf() })
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    /// The login of who asks.
    pub(crate) by: String,
    pub(crate) answer: tokio::sync::oneshot::Sender<Answer>,
}

/// Opens the socket to everybody on this machine.
///
/// # Errors
/// The directory or the socket cannot be made.
pub(crate) fn listen(path: &Path) -> io::Result<tokio::net::UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // Only one agent gets here (it holds the lock on its data): a socket that
    // is there belongs to one that is no more.
    let _ = std::fs::remove_file(path);
    let listener = tokio::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Serves one connection. `is_guest` tells guests' user numbers.
pub(crate) async fn serve(
    mut stream: tokio::net::UnixStream,
    is_guest: impl Fn(u32) -> bool,
    ask: impl FnOnce(Asked),
) {
    let answer = match tokio::time::timeout(PATIENCE, answer_to(&mut stream, is_guest, ask)).await {
        Ok(answer) => answer,
        Err(_) => no("no whole request came within 5 s: expected one line of JSON"),
    };
    let Ok(mut line) = serde_json::to_vec(&answer) else { return };
    line.push(b'\n');
    // Whoever does not read their answer goes without.
    let _ = tokio::time::timeout(PATIENCE, async {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &line).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
    })
    .await;
}

fn no(reason: impl Into<String>) -> Answer {
    Answer::No { reason: reason.into() }
}

async fn answer_to(
    stream: &mut tokio::net::UnixStream,
    is_guest: impl Fn(u32) -> bool,
    ask: impl FnOnce(Asked),
) -> Answer {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
    let uid = match stream.peer_cred() {
        Ok(peer) => peer.uid(),
        Err(error) => return no(format!("cannot tell who asks: {error}")),
    };
    if is_guest(uid) {
        return no("guests may not ask");
    }
    let mut line = vec![];
    let mut reader = tokio::io::BufReader::with_capacity(512, stream.take(REQUEST_BYTES_MAX + 1));
    if let Err(error) = reader.read_until(b'\n', &mut line).await {
        return no(format!("cannot read the request: {error}"));
    }
    if line.len() as u64 > REQUEST_BYTES_MAX {
        return no(format!("the request is longer than {REQUEST_BYTES_MAX} bytes"));
    }
    let command = match serde_json::from_slice(&line) {
        Ok(command) => command,
        Err(error) => return no(format!("not a request: {error}")),
    };
    let (answer, answered) = tokio::sync::oneshot::channel();
    ask(Asked { command, by: login_of(uid), answer });
    answered.await.unwrap_or_else(|_| no("the agent is stopping"))
}

/// The login of a user number, or the number.
pub(crate) fn login_of(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
            (number.parse() == Ok(uid)).then(|| name.to_owned())
        })
        .unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends raw bytes to a server whose agent pauses for whoever asks.
    fn exchange(request: &[u8], guests: bool) -> Answer {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("agent.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = listen(&path).unwrap();
            let server = async {
                let (stream, _) = listener.accept().await.unwrap();
                serve(
                    stream,
                    |_| guests,
                    |asked| {
                        let reason = format!("{:?} by {}", asked.command, asked.by);
                        let _ = asked.answer.send(Answer::No { reason });
                    },
                )
                .await;
            };
            let path = path.clone();
            let request = request.to_vec();
            let client = tokio::task::spawn_blocking(move || {
                let mut stream = UnixStream::connect(path).unwrap();
                let _ = stream.write_all(&request);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).unwrap();
                serde_json::from_str(&line).unwrap()
            });
            tokio::join!(server, client).1.unwrap()
        })
    }

    #[track_caller]
    fn refused(answer: Answer, why: &str) {
        let Answer::No { reason } = answer else { panic!("{answer:?}") };
        assert!(reason.contains(why), "{reason}");
    }

    #[test]
    fn bad_requests_are_refused_with_the_reason() {
        refused(exchange(b"", false), "not a request");
        refused(exchange(b"status\n", false), "not a request");
        refused(exchange(b"{\"shutdown\":{}}\n", false), "unknown variant `shutdown`");
        refused(exchange(b"{\"pause\":{\"seconds\":-1}}\n", false), "not a request");
        refused(exchange(&[b'x'; 9_000], false), "longer than 4096 bytes");
        refused(exchange(b"\"status\"\n", true), "guests may not");
    }

    #[test]
    fn who_asks_is_known_by_name() {
        refused(
            exchange(b"\"status\"\n", false),
            &format!("Status by {}", login_of(rustix::process::getuid().as_raw(),)),
        );
        assert_eq!(login_of(0), "root");
        assert_eq!(login_of(4_000_000_000), "uid 4000000000");
    }

    #[test]
    fn without_an_agent_that_is_said() {
        let error = ask(Path::new("/nonexistent/agent.sock"), &Command::Status).unwrap_err();
        assert!(error.to_string().starts_with("no agent runs here"), "{error}");
    }
}
