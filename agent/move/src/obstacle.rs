//! What keeps a guest from being moved: one line that names the process and
//! the thing it holds.
//!
//! CRIU's log says which kind of thing it cannot write down, seldom which one.
//! The guest still stands there, so `/proc` is asked for the rest.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use gleaner_common::units::spoken_size;
use serde::{Deserialize, Serialize};

use crate::guest::{Process, ProcessTree};
use crate::knowledge::KNOWLEDGE_FILE;
use crate::{inside, ipc};

/// Devices that are the same everywhere.
const PLAIN_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// What a process holds that cannot move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Hold {
    /// A connection to somewhere that knows nothing of the move.
    #[error("holds a {protocol} socket to {to}")]
    Connection { protocol: String, to: String },
    /// A socket whose other end is outside of the guest, or of a rare kind.
    #[error("holds {0}")]
    Socket(String),
    #[error("holds the device {0}")]
    Device(String),
    /// A deleted file too big to go along.
    #[error("holds the deleted file {path} of {}", spoken_size(*.bytes))]
    Deleted { path: String, bytes: u64 },
    /// A file, pipe or terminal shared with a process that stays.
    #[error("shares {0} with a process that stays")]
    Outside(String),
    /// A kernel object that has no form outside of it.
    #[error("holds {0}")]
    Kernel(String),
    /// The process's parent has ended, so it belongs to nobody who moves.
    #[error("was left behind by its parent")]
    LeftBehind,
    /// The workstation's own network, which stays.
    #[error("uses the workstation's own network")]
    Network,
    /// The guest was not started on a stage of its own ([`crate::stage`]).
    #[error("was not started in a way that can be moved")]
    Unprepared,
    /// Another process looks into it.
    #[error("is being debugged")]
    Traced,
    /// In CRIU's words.
    #[error("cannot be written down: {0}")]
    Other(String),
}

/// Why a guest cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{} {hold}", named(.process.as_ref()))]
pub struct Obstacle {
    /// The process's number in the guest, and its name.
    pub process: Option<(i32, String)>,
    pub hold: Hold,
}

fn named(process: Option<&(i32, String)>) -> String {
    process.map_or_else(|| "it".to_owned(), |(pid, name)| format!("process {pid} ({name})"))
}

impl Obstacle {
    pub(crate) fn left_behind(stray: &Process) -> Self {
        Self::of(stray, Hold::LeftBehind)
    }

    /// What must not even be tried. CRIU's messenger in a guest comes back to
    /// it over the guest's network: where it cannot, the guest does not survive
    /// the attempt (seen with CRIU 4.1.1 and a Landlock scope in between).
    ///
    /// Nor what CRIU would leave behind and say nothing ([`crate::ipc`]).
    ///
    /// Nor what cannot be restored from a stream: private huge pages, of which
    /// CRIU 4.1.1 reads the content by its place in a file.
    pub(crate) fn before_trying(root: &Process, tree: &ProcessTree) -> Option<Self> {
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        if network(&root.pid.to_string()) == network("self") {
            return Some(Self::of(root, Hold::Network));
        }
        let knowledge = format!("/proc/{}/root{KNOWLEDGE_FILE}", root.pid);
        if fs::metadata(knowledge).is_err() {
            return Some(Self::of(root, Hold::Unprepared));
        }
        let ipc = inside::open_process(root.pid).and_then(|process| ipc::found_in(&process));
        if let Ok(Some(what)) = ipc {
            return Some(Self::of(root, Hold::Kernel(what.to_owned())));
        }
        let huge = |process: &&Process| {
            let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid));
            maps.unwrap_or_default().lines().any(is_private_huge)
        };
        let holder = tree.processes.iter().find(huge)?;
        Some(Self::of(holder, Hold::Kernel("huge pages of its own".to_owned())))
    }

    fn of(process: &Process, hold: Hold) -> Self {
        Self { process: Some((process.inner, process.name.clone())), hold }
    }

    /// What CRIU's log (and what it printed before it had one) and the frozen tree
    /// say.
    pub(crate) fn find(log: &str, printed: &str, tree: &ProcessTree) -> Self {
        let complaint = Complaint::read(log, printed);
        let found = tree.processes.iter().find_map(|process| {
            let hold = holds_of(process).into_iter().find(|one| complaint.is_about(one))?;
            Some(Self::of(process, hold))
        });
        found.unwrap_or(Self { process: None, hold: Hold::Other(complaint.words) })
    }
}

/// CRIU's first error in a log, without where in CRIU it is said; or what it
/// printed before it had one.
pub(crate) fn first_error(log: &str, printed: &str) -> String {
    Complaint::read(log, printed).words
}

/// What CRIU complains of.
struct Complaint {
    /// CRIU's first error, without where in CRIU it is said.
    words: String,
    /// All of its errors.
    errors: String,
}

impl Complaint {
    fn read(log: &str, printed: &str) -> Self {
        let mut errors: Vec<&str> = log
            .lines()
            .chain(printed.lines())
            .filter_map(|line| line.split_once("Error ("))
            .filter_map(|(_, rest)| rest.split_once("): ").map(|(_, words)| words.trim()))
            // Said on every machine that lacks a right which is not needed, and where
            // `Engine::learn` has taken one away.
            .filter(|words| !words.starts_with("rlimit: ") && !words.contains("/loginuid "))
            .collect();
        errors.dedup();
        let first = printed.lines().map(str::trim).find(|line| !line.is_empty());
        let words = errors.first().copied().or(first).unwrap_or("criu says no reason").to_owned();
        Self { words, errors: errors.join("\n") }
    }

    fn says(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.errors.contains(part))
    }

    fn is_about(&self, hold: &Hold) -> bool {
        match hold {
            Hold::Connection { .. } => {
                self.says(&["onnected TCP", "inet:", "socket", "tcp", "TCP"])
            }
            Hold::Socket(_) => self.says(&["ocket", "unix:", "netlink", "sk "]),
            Hold::Device(_) => self.says(&["of that type", "device", "mmap", "map", "mnt"]),
            Hold::Deleted { .. } => self.says(&["ghost", "unlinked", "deleted", "link"]),
            Hold::Kernel(_) => {
                self.says(&["of that type", "nknown", "nsupported", "io_uring", "anon"])
            }
            Hold::Traced => self.says(&["trace", "seize"]),
            Hold::Outside(_)
            | Hold::LeftBehind
            | Hold::Network
            | Hold::Unprepared
            | Hold::Other(_) => true,
        }
    }
}

/// Everything of a process that might not move, the surest first.
fn holds_of(process: &Process) -> Vec<Hold> {
    let mut holds = vec![];
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    if tracer.is_some_and(|pid| pid.trim() != "0") {
        holds.push(Hold::Traced);
    }
    let sockets = Sockets::read(process.pid);
    let mut descriptors: Vec<i32> = fs::read_dir(format!("/proc/{}/fd", process.pid))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    descriptors.sort_unstable();
    holds.extend(descriptors.iter().filter_map(|fd| hold_of(process.pid, *fd, &sockets)));
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
    holds.extend(maps.lines().filter_map(mapped_device));
    holds
}

/// A line of `maps`: `7f0000000000-7f0000200000 rw-p 00000000 00:11 30  /anon_hugepage (deleted)`.
fn is_private_huge(line: &str) -> bool {
    let rights = line.split_whitespace().nth(1).unwrap_or_default();
    rights.ends_with('p') && line.contains("/anon_hugepage")
}

fn hold_of(pid: i32, fd: i32, sockets: &Sockets) -> Option<Hold> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let target = fs::read_link(&path).ok()?.to_string_lossy().into_owned();
    if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
        return sockets.hold(inode);
    }
    if let Some(kind) = target.strip_prefix("anon_inode:") {
        let kind = kind.trim_matches(['[', ']']);
        let known = ["eventfd", "eventpoll", "signalfd", "timerfd", "inotify", "pidfd"];
        return (!known.contains(&kind)).then(|| Hold::Kernel(format!("a kernel object: {kind}")));
    }
    let about = fs::metadata(&path).ok()?;
    let kind = about.file_type();
    if let Some(path) = target.strip_suffix(" (deleted)") {
        return kind
            .is_file()
            .then(|| Hold::Deleted { path: path.to_owned(), bytes: about.size() });
    }
    if kind.is_char_device() || kind.is_block_device() {
        return (!PLAIN_DEVICES.contains(&target.as_str())).then_some(Hold::Device(target));
    }
    None
}

/// `7f..-7f.. rw-s 00000000 00:06 5   /dev/fuse`
fn mapped_device(line: &str) -> Option<Hold> {
    let path = line.get(line.find("/dev/")?..)?;
    let harmless = path.starts_with("/dev/shm/") || PLAIN_DEVICES.contains(&path);
    (!harmless).then(|| Hold::Device(path.to_owned()))
}

/// The sockets of a process's network.
struct Sockets {
    tables: Vec<(&'static str, String)>,
}

impl Sockets {
    fn read(pid: i32) -> Self {
        let table = |name: &'static str| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
            (name, text.unwrap_or_default())
        };
        let names = ["tcp", "tcp6", "udp", "udp6", "unix", "netlink", "packet", "raw", "icmp"];
        Self { tables: names.map(table).into() }
    }

    fn hold(&self, inode: &str) -> Option<Hold> {
        let row = self.tables.iter().find_map(|(name, text)| {
            let row = text.lines().skip(1).find(|row| {
                let column = match *name {
                    "unix" => 6,
                    "packet" => 8,
                    _ => 9,
                };
                row.split_whitespace().nth(column) == Some(inode)
            })?;
            Some((*name, row))
        });
        match row {
            Some((name @ ("tcp" | "tcp6" | "udp" | "udp6"), row)) => connection(name, row),
            Some(("unix", row)) => {
                let path = row.split_whitespace().nth(7);
                let to = path.map_or(String::new(), |path| format!(" at {path}"));
                Some(Hold::Socket(format!("a Unix socket{to}")))
            }
            Some((name, _)) => Some(Hold::Socket(format!("a {name} socket"))),
            // The socket is of another network than its process's.
            None => Some(Hold::Socket("a socket of another network".into())),
        }
    }
}

/// A row of `/proc/net/tcp`: `0: 0100007F:1F90 0200000A:0050 01 ..`. One that
/// is connected to nobody can move.
fn connection(name: &str, row: &str) -> Option<Hold> {
    let to = read_address(row.split_whitespace().nth(2)?)?;
    let protocol = if name.starts_with("tcp") { "TCP" } else { "UDP" };
    (to.port() != 0).then(|| Hold::Connection { protocol: protocol.to_owned(), to: to.to_string() })
}

/// `0100007F:1F90`: each word of the address in this machine's own order.
fn read_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<u32> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    match words.as_slice() {
        [word] => Some((Ipv4Addr::from(word.to_ne_bytes()), port).into()),
        [_, _, _, _] => {
            let mut bytes = [0; 16];
            for (at, word) in words.iter().enumerate() {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
            }
            Some((Ipv6Addr::from(bytes), port).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_of_its_own_are_seen_in_a_map() {
        let line = "7f0000000000-7f0000200000 rw-p 00000000 00:11 30  /anon_hugepage (deleted)";
        assert!(is_private_huge(line));
        assert!(!is_private_huge(&line.replace("rw-p", "rw-s")), "shared memory has a file");
        assert!(!is_private_huge("7f0000000000-7f0000200000 rw-p 00000000 00:00 0"));
    }

    #[test]
    fn an_address_is_read_as_the_kernel_writes_it() {
        assert_eq!(read_address("0100007F:0050").unwrap().to_string(), "127.0.0.1:80");
        let six = "00000000000000000000000001000000:1F90";
        assert_eq!(read_address(six).unwrap().to_string(), "[::1]:8080");
        assert_eq!(read_address("xyz"), None);
    }

    #[test]
    fn a_connection_is_named_by_its_other_end() {
        let row = "   1: 0100007F:C350 0100000A:0050 01 00000000:00000000 00:00000000 00000000";
        let hold = connection("tcp", row).unwrap();
        let obstacle = Obstacle { process: Some((7, "fft".into())), hold };
        assert_eq!(obstacle.to_string(), "process 7 (fft) holds a TCP socket to 10.0.0.1:80");
        let listening = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000";
        assert_eq!(connection("tcp", listening), None);
    }

    #[test]
    fn the_first_error_that_matters_is_quoted() {
        let log = "(00.01) Error (criu/util.c:1533): rlimit: Can't setup\n\
                   (00.01) Error (criu/proc.c:7): Can't open 0/loginuid on procfs: Read-only\n\
                   (00.02) Warn  (criu/x.c:1): harmless\n\
                   (00.03)      3: Error (criu/files.c:9): Can't dump file 5 of that type\n\
                   (00.04) Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
        assert_eq!(Complaint::read(log, "").words, "Can't dump file 5 of that type");
        assert_eq!(Complaint::read("", "").words, "criu says no reason");
        let printed = "\nCRIU needs to have CAP_SYS_ADMIN:\nsetcap\n";
        assert_eq!(Complaint::read("", printed).words, "CRIU needs to have CAP_SYS_ADMIN:");
        assert_eq!(Complaint::read(log, printed).words, "Can't dump file 5 of that type");
    }

    #[test]
    fn only_devices_of_one_machine_are_held() {
        let line = "7f0-7f1 rw-s 00000000 00:06 5                          /dev/fuse";
        assert_eq!(mapped_device(line), Some(Hold::Device("/dev/fuse".into())));
        let shared = "7f0-7f1 rw-s 00000000 00:06 5                          /dev/shm/x";
        assert_eq!(mapped_device(shared), None);
        assert_eq!(mapped_device("7f0-7f1 rw-p 00000000 00:00 0   [heap]"), None);
    }
}
