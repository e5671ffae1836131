//! Whoever works here over the network: connections to remote desktops and
//! development servers.
//!
//! While nobody connects, one small file is read every few seconds: the kernel
//! counts the connections that were taken. A change of it pays a walk over the
//! sockets; connections that matter are then asked for by name, which costs
//! the same on the largest machine.
//!
//! A datagram has no connection: servers that stream over UDP only (games) are
//! not seen here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::occupancy::{Connection, Health, Observation, Sensor};
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

use super::Teller;
use super::diag::{Diag, Doing, Name, Socket};
use super::servers::{Known, Server};
use crate::sense::Reread;

/// While data comes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// While nobody is connected, or all connections have long been silent.
const REST: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(60);

/// A walk over all sockets is made so much later than the last one at least, as
/// a multiple of what that took: a thousandth of a core, on a busy server.
const WALK_FACTOR: u32 = 1_000;

/// More connections than people have; further ones are not looked at.
const CONNECTIONS_MAX: usize = 256;

/// More processes than a look for a socket's owner goes through.
const PROCESSES_MAX: usize = 10_000;

/// A connection that matters.
#[derive(Clone, Debug)]
struct Followed {
    name: Name,
    what: String,
    server: Server,
    /// Who is logged in by it.
    uid: Option<u32>,
}

/// What is known of the machine's connections.
struct Lookout {
    known: Arc<Known>,
    guests: Range<u32>,
    diag: Diag,
    counters: Reread,
    /// How many connections had been taken at the last walk.
    taken: Option<u64>,
    walk_at: Moment,
    /// Listening sockets, by inode: what serves there, if it matters.
    servers: BTreeMap<u32, Option<Server>>,
    followed: Vec<Followed>,
    told: bool,
    users: BTreeSet<u32>,
}

pub(super) async fn watch(known: Arc<Known>, guests: Range<u32>, mut teller: Teller) {
    let opened =
        Diag::open().and_then(|diag| Ok((diag, Reread::open(Path::new("/proc/net/snmp"))?)));
    let (diag, counters) = match opened {
        Ok(opened) => opened,
        Err(error) => return teller.health(Health::Absent(format!("sock_diag: {error}"))),
    };
    let mut lookout = Lookout {
        known,
        guests,
        diag,
        counters,
        taken: None,
        walk_at: Clock.now(),
        servers: BTreeMap::new(),
        followed: vec![],
        told: false,
        users: BTreeSet::new(),
    };
    loop {
        let pause = match lookout.look(Clock.now(), &teller).await {
            Ok(pause) => {
                teller.health(Health::Well);
                pause
            }
            Err(error) => {
                teller.health(Health::Sick(format!("sock_diag: {error}")));
                REST
            }
        };
        Clock.sleep(pause).await;
    }
}

impl Lookout {
    /// Looks once, and says when to look again.
    async fn look(&mut self, now: Moment, teller: &Teller) -> io::Result<Duration> {
        let taken = passive_opens(self.counters.text()?)?;
        if self.taken != Some(taken) && now >= self.walk_at {
            self.walk().await?;
            self.taken = Some(taken);
            self.walk_at = Clock.now() + Clock.now().since(now) * WALK_FACTOR;
        }
        let mut present = vec![];
        let mut kept = vec![];
        for of in std::mem::take(&mut self.followed) {
            let Some(received) = self.diag.received(of.name)? else { continue };
            present.push(Connection {
                id: of.name.cookie(),
                what: of.what.clone(),
                received_bytes: received.bytes,
                silent: received.silent,
                allowance: of.server.allowance,
            });
            kept.push(of);
        }
        self.followed = kept;
        let busy = present.iter().any(|connection| connection.silent < SILENT);
        self.tell(present, teller);
        Ok(if busy { LOOK_EVERY } else { REST })
    }

    fn tell(&mut self, present: Vec<Connection>, teller: &Teller) {
        let users: BTreeSet<u32> = self.followed.iter().filter_map(|of| of.uid).collect();
        if self.users != users {
            self.users.clone_from(&users);
            teller.see(Observation::Users { by: Sensor::Connections, uids: users });
        }
        // The end of the last one is told, too.
        if !present.is_empty() || self.told {
            self.told = !present.is_empty();
            teller.see(Observation::Connections(present));
        }
    }

    /// Finds the connections that matter among all sockets.
    async fn walk(&mut self) -> io::Result<()> {
        let listening = self.diag.all(Doing::Listening)?;
        self.learn(&listening).await;
        let of_port: BTreeMap<u16, &Server> = listening
            .iter()
            .filter_map(|socket| {
                let server = self.servers.get(&socket.inode)?.as_ref()?;
                Some((socket.name.local_port(), server))
            })
            .collect();
        if of_port.is_empty() {
            self.followed.clear();
            return Ok(());
        }
        let all = self.diag.all(Doing::Established)?;
        let chosen = all.iter().filter_map(|socket| {
            let server = *of_port.get(&socket.name.local_port())?;
            (!self.is_guests(socket, &all)).then(|| follow(socket, server))
        });
        self.followed = chosen.take(CONNECTIONS_MAX).collect();
        Ok(())
    }

    /// Does a guest serve there, or is a guest its client?
    fn is_guests(&self, socket: &Socket, all: &[Socket]) -> bool {
        let is_guest = |uid: u32| self.guests.contains(&uid);
        let name = &socket.name;
        is_guest(socket.uid)
            || all.iter().any(|other| {
                is_guest(other.uid)
                    && other.name.local_port() == name.remote_port()
                    && other.name.remote_port() == name.local_port()
                    && other.name.local() == name.remote()
            })
    }

    /// What serves at each listening socket? Whose program it is, is looked up
    /// once for each.
    async fn learn(&mut self, listening: &[Socket]) {
        let here: BTreeSet<u32> = listening.iter().map(|socket| socket.inode).collect();
        self.servers.retain(|inode, _| here.contains(inode));
        let mut unknown = BTreeSet::new();
        for socket in listening {
            if self.servers.contains_key(&socket.inode) {
                continue;
            }
            let by_port = self.known.of_port(socket.name.local_port()).cloned();
            let of_guest = self.guests.contains(&socket.uid);
            if by_port.is_none() && !of_guest {
                unknown.insert(socket.inode);
            }
            self.servers.insert(socket.inode, by_port.filter(|_| !of_guest));
        }
        if unknown.is_empty() {
            return;
        }
        let known = Arc::clone(&self.known);
        let found = tokio::task::spawn_blocking(move || by_program(&known, &unknown)).await;
        self.servers.extend(found.unwrap_or_default());
    }
}

fn follow(socket: &Socket, server: &Server) -> Followed {
    let from = match socket.name.remote() {
        address if address.is_loopback() => "this machine".to_owned(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.to_string(),
    };
    Followed {
        name: socket.name,
        what: format!("{} from {from}", server.name),
        server: server.clone(),
        uid: server.screen.then_some(socket.uid),
    }
}

/// Which of these listening sockets belong to a program that matters? Nobody
/// who is below us: those are guests.
fn by_program(known: &Known, inodes: &BTreeSet<u32>) -> BTreeMap<u32, Option<Server>> {
    let mut found = BTreeMap::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in numbers.take(PROCESSES_MAX) {
        // Most programs do not matter, whatever they have open.
        let Some(server) = server_of(known, process).filter(|_| !is_ours(process)) else {
            continue;
        };
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
        for file in files.flatten() {
            let Ok(target) = std::fs::read_link(file.path()) else { continue };
            let inode = target.to_str().and_then(|target| {
                target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u32>().ok()
            });
            if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                found.insert(inode, Some(server.clone()));
            }
        }
    }
    found
}

fn server_of(known: &Known, process: u32) -> Option<Server> {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .take(3)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    known.of_program(name.trim_end(), &words).cloned()
}

/// Is it the agent, or below it?
fn is_ours(mut process: u32) -> bool {
    while process > 1 {
        if process == std::process::id() {
            return true;
        }
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        process = parent.unwrap_or(0);
    }
    false
}

/// `PassiveOpens` of the kernel's counters: the second of the two lines `Tcp:`
/// has the values for the names in the first.
fn passive_opens(text: &str) -> io::Result<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let value = lines.next().zip(lines.next()).and_then(|(names, values)| {
        let at = names.split_ascii_whitespace().position(|name| name == "PassiveOpens")?;
        values.split_ascii_whitespace().nth(at)?.parse().ok()
    });
    value.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no PassiveOpens is counted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counter_is_read() {
        let text = "Ip: a\nIp: 1\nTcp: RtoMin ActiveOpens PassiveOpens\nTcp: 200 5 42\n";
        assert_eq!(passive_opens(text).unwrap(), 42);
        assert!(passive_opens("Tcp: RtoMin\nTcp: 200\n").is_err());
        let here = std::fs::read_to_string("/proc/net/snmp").unwrap();
        assert!(passive_opens(&here).is_ok(), "{here}");
    }

    #[test]
    fn what_runs_below_us_is_ours() {
        assert!(is_ours(std::process::id()));
        assert!(!is_ours(1));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_ours(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
