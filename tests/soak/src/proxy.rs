//! Between agents and coordinator: a relay of datagrams that drops, doubles, delays
//! and corrupts as many of them as it is told to.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::schedule::Weather;

/// Is asked at least so often whether it is to end.
const NAP: Duration = Duration::from_millis(50);

/// A delayed datagram comes at most so much later: within a heartbeat, so that order
/// is what it costs and no lease.
const DELAY_MS_MAX: u64 = 400;

/// As much as UDP carries.
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// How many in a hundred meet what, and how many have.
#[derive(Debug, Default)]
pub struct Settings {
    percent: [AtomicU8; 4],
    met: [AtomicU64; 4],
    passed: AtomicU64,
    stop: AtomicBool,
}

impl Settings {
    pub fn set(&self, weather: Weather, percent: u8) {
        self.percent[weather as usize].store(percent, Ordering::Relaxed);
    }

    pub fn is_fine(&self, weather: Weather) -> bool {
        self.percent[weather as usize].load(Ordering::Relaxed) == 0
    }

    /// How many datagrams were relayed, and how many of them met what.
    pub fn counts(&self) -> (u64, [u64; 4]) {
        let met = self.met.each_ref().map(|count| count.load(Ordering::Relaxed));
        (self.passed.load(Ordering::Relaxed), met)
    }

    fn draws(&self, weather: Weather, random: &mut StdRng) -> bool {
        let percent = self.percent[weather as usize].load(Ordering::Relaxed);
        let drawn = percent > 0 && random.random_range(0..100) < percent;
        if drawn {
            self.met[weather as usize].fetch_add(1, Ordering::Relaxed);
        }
        drawn
    }
}

/// The relay, in a thread of its own.
#[derive(Debug)]
pub struct Proxy {
    pub settings: Arc<Settings>,
    thread: JoinHandle<Result<()>>,
}

impl Proxy {
    /// In the network of the calling thread.
    ///
    /// # Errors
    /// The address is taken.
    pub fn start(listen: SocketAddr, to: SocketAddr, seed: u64) -> Result<Self> {
        let socket =
            UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        socket.set_nonblocking(true)?;
        let settings = Arc::new(Settings::default());
        let mut relay = Relay {
            settings: Arc::clone(&settings),
            random: StdRng::seed_from_u64(seed),
            socket,
            to,
            clients: BTreeMap::new(),
            known: BTreeMap::new(),
            next: 0,
            delayed: BinaryHeap::new(),
        };
        Ok(Self { settings, thread: std::thread::spawn(move || relay.run()) })
    }

    /// # Errors
    /// What it died of.
    pub fn stop(self) -> Result<()> {
        self.settings.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the proxy died"))?
    }
}

/// Who has not been heard for so long is forgotten: agents that begin anew have other
/// ports, by the thousand.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Who it is, and what speaks for it.
struct Client {
    from: SocketAddr,
    socket: UdpSocket,
    heard: Moment,
}

/// When it is due, and where.
type Delayed = (Moment, Towards, usize, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Towards {
    Coordinator,
    Agent,
}

struct Relay {
    settings: Arc<Settings>,
    random: StdRng,
    socket: UdpSocket,
    to: SocketAddr,
    /// By a number that no two have.
    clients: BTreeMap<usize, Client>,
    known: BTreeMap<SocketAddr, usize>,
    next: usize,
    delayed: BinaryHeap<Reverse<Delayed>>,
}

impl Relay {
    fn run(&mut self) -> Result<()> {
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        while !self.settings.stop.load(Ordering::Relaxed) {
            let ready = self.wait()?;
            while let Some((length, from)) = nothing_yet(self.socket.recv_from(&mut room))? {
                let client = self.client(from)?;
                self.pass(Towards::Coordinator, client, room[..length].to_vec());
            }
            for client in ready {
                while let Some(length) = self.hear(client, &mut room)? {
                    self.pass(Towards::Agent, client, room[..length].to_vec());
                }
            }
            self.send_delayed();
            self.forget();
        }
        Ok(())
    }

    /// Gives the clients to whom something is sent.
    fn wait(&self) -> Result<Vec<usize>> {
        let due = self.delayed.peek().map(|Reverse((at, ..))| at.since(Clock.now()));
        let nap = due.unwrap_or(NAP).min(NAP);
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let sockets = self.clients.values().map(|client| &client.socket).chain([&self.socket]);
        let mut sockets: Vec<_> =
            sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut sockets, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = self.clients.keys().zip(&sockets).filter(|(_, it)| !it.revents().is_empty());
        Ok(ready.map(|(client, _)| *client).collect())
    }

    fn hear(&self, client: usize, room: &mut [u8]) -> Result<Option<usize>> {
        self.clients.get(&client).map_or(Ok(None), |it| nothing_yet(it.socket.recv(room)))
    }

    fn forget(&mut self) {
        let now = Clock.now();
        self.clients.retain(|_, client| now.since(client.heard) < FORGOTTEN_AFTER);
        let clients = &self.clients;
        self.known.retain(|_, client| clients.contains_key(client));
    }

    fn client(&mut self, from: SocketAddr) -> Result<usize> {
        let heard = Clock.now();
        if let Some(known) = self.known.get(&from) {
            self.clients.entry(*known).and_modify(|client| client.heard = heard);
            return Ok(*known);
        }
        let socket = UdpSocket::bind((self.to.ip(), 0))?;
        socket.connect(self.to)?;
        socket.set_nonblocking(true)?;
        self.next += 1;
        self.clients.insert(self.next, Client { from, socket, heard });
        self.known.insert(from, self.next);
        Ok(self.next)
    }

    fn pass(&mut self, towards: Towards, client: usize, mut bytes: Vec<u8>) {
        self.settings.passed.fetch_add(1, Ordering::Relaxed);
        let settings = Arc::clone(&self.settings);
        if settings.draws(Weather::Drops, &mut self.random) {
            return;
        }
        if settings.draws(Weather::Corrupts, &mut self.random) && !bytes.is_empty() {
            let at = self.random.random_range(0..bytes.len());
            bytes[at] ^= 1 << self.random.random_range(0..8);
        }
        if settings.draws(Weather::Doubles, &mut self.random) {
            self.send(towards, client, &bytes);
        }
        if settings.draws(Weather::Delays, &mut self.random) {
            let delay = Duration::from_millis(self.random.random_range(1..DELAY_MS_MAX));
            self.delayed.push(Reverse((Clock.now() + delay, towards, client, bytes)));
        } else {
            self.send(towards, client, &bytes);
        }
    }

    fn send_delayed(&mut self) {
        while let Some(Reverse((at, ..))) = self.delayed.peek()
            && *at <= Clock.now()
            && let Some(Reverse((_, towards, client, bytes))) = self.delayed.pop()
        {
            self.send(towards, client, &bytes);
        }
    }

    /// Who cannot be reached misses it, as everywhere.
    fn send(&self, towards: Towards, client: usize, bytes: &[u8]) {
        let Some(client) = self.clients.get(&client) else { return };
        let _ = match towards {
            Towards::Coordinator => client.socket.send(bytes),
            Towards::Agent => self.socket.send_to(bytes, client.from),
        };
    }
}

/// `None` if nothing is there; also if the other end said that nobody listens.
fn nothing_yet<T>(read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if NOTHING.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

const NOTHING: [io::ErrorKind; 5] = [
    io::ErrorKind::WouldBlock,
    io::ErrorKind::Interrupted,
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of a hundred datagrams, sent one after the other.
    fn relayed(weather: Weather) -> Vec<Vec<u8>> {
        let behind = UdpSocket::bind("127.0.0.1:0").unwrap();
        behind.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = Proxy::start(free, behind.local_addr().unwrap(), 1).unwrap();
        proxy.settings.set(weather, 50);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..100 {
            client.send_to(&[number; 8], free).unwrap();
        }
        let (mut found, mut room) = (vec![], [0; 100]);
        while let Ok(length) = behind.recv(&mut room) {
            found.push(room[..length].to_vec());
        }
        let (passed, met) = proxy.settings.counts();
        assert_eq!(passed, 100);
        assert!((20..80).contains(&met[weather as usize]), "{met:?}");
        proxy.stop().unwrap();
        found
    }

    #[test]
    fn what_is_dropped_doubled_delayed_and_corrupted_is_so() {
        let sent: Vec<Vec<u8>> = (0..100).map(|number| vec![number; 8]).collect();
        assert!((20..80).contains(&relayed(Weather::Drops).len()));
        assert!((120..180).contains(&relayed(Weather::Doubles).len()));
        let delayed = relayed(Weather::Delays);
        assert_ne!(delayed, sent);
        assert_eq!(delayed.len(), 100);
        let corrupted = relayed(Weather::Corrupts).into_iter().zip(&sent);
        assert!((20..80).contains(&corrupted.filter(|(came, sent)| came != *sent).count()));
    }
}
