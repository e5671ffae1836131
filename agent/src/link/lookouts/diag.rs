//! What the kernel tells of TCP sockets: `sock_diag(7)`.
//!
//! One question and its answers at a time, over one descriptor; the kernel has
//! them ready when the question is asked, so nothing here waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// From `linux/netlink.h`, `sock_diag.h`, `inet_diag.h` and `tcp.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const INET_DIAG_INFO: u16 = 2;
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 72;
const ID_BYTES: usize = 48;
const LAST_DATA_RECV_AT: usize = 52;
const BYTES_RECEIVED_AT: usize = 128;

/// What a socket is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Established = 1,
    Listening = 10,
}

/// The kernel's own name of a socket, given back to it as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    family: u8,
    id: [u8; ID_BYTES],
}

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) name: Name,
    pub(super) uid: u32,
    pub(super) inode: u32,
}

/// What has come over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) bytes: u64,
    pub(super) silent: Duration,
}

impl Name {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|n| self.id[at + n])
    }

    pub(super) fn local_port(&self) -> u16 {
        u16::from_be_bytes(self.bytes(0))
    }

    pub(super) fn remote_port(&self) -> u16 {
        u16::from_be_bytes(self.bytes(2))
    }

    pub(super) fn local(&self) -> IpAddr {
        self.address(4)
    }

    pub(super) fn remote(&self) -> IpAddr {
        self.address(20)
    }

    /// No other socket has had it since the machine started.
    pub(super) fn cookie(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(40))
    }

    fn address(&self, at: usize) -> IpAddr {
        if i32::from(self.family) == libc::AF_INET {
            return Ipv4Addr::from(self.bytes::<4>(at)).into();
        }
        IpAddr::from(Ipv6Addr::from(self.bytes::<16>(at))).to_canonical()
    }
}

/// The question's end of it.
#[derive(Debug)]
pub(super) struct Diag {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Diag {
    pub(super) fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; 16 << 10] })
    }

    /// All TCP sockets that do this.
    pub(super) fn all(&mut self, doing: Doing) -> io::Result<Vec<Socket>> {
        let mut all = vec![];
        for family in [libc::AF_INET, libc::AF_INET6] {
            let family = u8::try_from(family).unwrap_or(0);
            let name = Name { family, id: [0; ID_BYTES] };
            self.ask(name, 0, 1 << doing as u32, NLM_F_REQUEST | NLM_F_DUMP, &mut |message| {
                all.extend(socket(message));
            })?;
        }
        Ok(all)
    }

    /// `None`: it is no more.
    pub(super) fn received(&mut self, name: Name) -> io::Result<Option<Received>> {
        let mut found = None;
        let info = 1 << (INET_DIAG_INFO - 1);
        let asked = self.ask(name, info, u32::MAX, NLM_F_REQUEST, &mut |message| {
            let established = message.get(1) == Some(&(Doing::Established as u8));
            found = received(message).filter(|_| established);
        });
        match asked {
            Ok(()) => Ok(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks, and hands out each answer: a `struct inet_diag_msg` and what follows it.
    fn ask(
        &mut self,
        name: Name,
        extensions: u8,
        states: u32,
        flags: u16,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut question = Vec::with_capacity(HEADER_BYTES + 8 + ID_BYTES);
        question.extend(72_u32.to_ne_bytes());
        question.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        question.extend(flags.to_ne_bytes());
        question.extend(self.sequence.to_ne_bytes());
        question.extend(0_u32.to_ne_bytes());
        let protocol = u8::try_from(libc::IPPROTO_TCP).unwrap_or(0);
        question.extend([name.family, protocol, extensions, 0]);
        question.extend(states.to_ne_bytes());
        question.extend(name.id);
        rustix::net::send(&self.socket, &question, SendFlags::DONTWAIT)?;
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        loop {
            let (length, _) =
                rustix::net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT)?;
            let mut rest = self.buffer.get(..length).unwrap_or_default();
            while let Some((kind, sequence, message, after)) = next_message(rest) {
                rest = after;
                // Of a question that was given up.
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return error_of(message),
                    _ => each(message),
                }
            }
            if !is_dump {
                return Ok(());
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Kind, sequence and content of the first message, and what is behind it.
fn next_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = usize::try_from(word(bytes, 0)?).ok()?;
    let (kind, sequence) = (half(bytes, 4)?, word(bytes, 8)?);
    let message = bytes.get(HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, sequence, message, after))
}

fn error_of(message: &[u8]) -> io::Result<()> {
    match word(message, 0).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn socket(message: &[u8]) -> Option<Socket> {
    let family = *message.first()?;
    let id = *message.get(4..)?.first_chunk()?;
    let (uid, inode) = (word(message, 64)?, word(message, 68)?);
    Some(Socket { name: Name { family, id }, uid, inode })
}

/// Finds the `struct tcp_info` among what follows the message.
fn received(message: &[u8]) -> Option<Received> {
    let mut rest = message.get(MESSAGE_BYTES..)?;
    loop {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let content = rest.get(4..length)?;
        if kind == INET_DIAG_INFO {
            let silent = word(content, LAST_DATA_RECV_AT)?;
            let bytes = content.get(BYTES_RECEIVED_AT..)?.first_chunk()?;
            let silent = Duration::from_millis(silent.into());
            return Some(Received { bytes: u64::from_ne_bytes(*bytes), silent });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// A connection of our own, and what the kernel says of its server's end.
    fn connected(address: &str) -> (Diag, TcpStream, TcpStream, Socket) {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut diag = Diag::open().unwrap();
        let of_port = |socket: &&Socket| socket.name.local_port() == port;
        let listening = diag.all(Doing::Listening).unwrap();
        assert_eq!(listening.iter().filter(of_port).count(), 1);
        let established = diag.all(Doing::Established).unwrap();
        let found = *established.iter().find(of_port).unwrap();
        (diag, client, server, found)
    }

    #[test]
    fn the_kernel_tells_whose_a_connection_is_and_what_has_come_over_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut diag, mut client, mut server, found) = connected(address);
            assert_eq!(found.uid, rustix::process::getuid().as_raw());
            assert_eq!(found.name.remote(), client.local_addr().unwrap().ip());
            assert_eq!(found.name.remote_port(), client.local_addr().unwrap().port());
            let before = diag.received(found.name).unwrap().unwrap();
            client.write_all(&[7; 300]).unwrap();
            server.read_exact(&mut [0; 300]).unwrap();
            let after = diag.received(found.name).unwrap().unwrap();
            assert_eq!(after.bytes - before.bytes, 300);
            assert!(after.silent < Duration::from_secs(5), "{after:?}");
            drop((client, server));
            assert_eq!(diag.received(found.name).unwrap(), None);
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        assert_eq!(next_message(&[0; 15]), None);
        assert_eq!(next_message(&[0; 40]), None);
        assert_eq!(received(&[0; 80]), None);
        assert_eq!(socket(&[0; 60]), None);
        assert!(error_of(&[]).is_err());
    }
}
