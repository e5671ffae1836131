//! Writing a stream, packed as much as pays.
//!
//! Packing costs a core's time and saves the link's. Both are measured as we
//! go: packing pays where sending a chunk takes longer than packing it and
//! sending what is left. On a link of 10 Gb/s or within one machine it never
//! does; at 1 Gb/s it does for all but random bytes.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use gleaner_shell::clock::Clock;

use crate::capture::AT_ONCE;
use crate::stream::{CHUNK, Encoding, FILES_MAX, Frame, Header, Kind, MAGIC, Stretch, stretches};

/// One chunk in so many is packed to see what it would bring: 3 % of the
/// packing's cost where it does not pay.
const TRY_EVERY: u32 = 32;

/// From this size on, bytes are handed over instead of being copied: half of
/// what is read at once, so that none keeps in use much more than it is.
const HANDED_BYTES_MIN: usize = AT_ONCE / 2;

/// Where a stream goes.
pub trait Outlet: Write {
    /// Takes bytes as they are. Who can do without a copy overrides it.
    ///
    /// # Errors
    /// As writing them.
    fn hand(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write_all(&bytes)
    }
}

impl Outlet for File {}
impl Outlet for Vec<u8> {}
impl Outlet for io::Sink {}
impl Outlet for &TcpStream {}

impl<W: Outlet> Outlet for &mut W {
    fn hand(&mut self, bytes: Bytes) -> io::Result<()> {
        (**self).hand(bytes)
    }
}

/// Seconds per byte, smoothed over about eight chunks.
#[derive(Clone, Copy, Debug, Default)]
struct Cost(f64);

impl Cost {
    fn learn(&mut self, took: Duration, bytes: usize) {
        let seen = took.as_secs_f64() / bytes.max(1) as f64;
        self.0 = if self.0 == 0.0 { seen } else { self.0 + (seen - self.0) / 8.0 };
    }
}

/// When packing pays.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    sending: Cost,
    packing: Cost,
    /// Packed bytes per byte.
    ratio: f64,
    chunks: u32,
}

impl Balance {
    fn pays(&self) -> bool {
        self.packing.0 > 0.0 && self.packing.0 < self.sending.0 * (1.0 - self.ratio)
    }

    /// Pack the next chunk?
    fn next(&mut self) -> bool {
        self.chunks = self.chunks.wrapping_add(1);
        self.pays() || self.chunks % TRY_EVERY == 2
    }

    fn packed(&mut self, took: Duration, bytes: usize, packed: usize) {
        self.packing.learn(took, bytes);
        let ratio = packed as f64 / bytes.max(1) as f64;
        self.ratio =
            if self.ratio == 0.0 { ratio } else { self.ratio + (ratio - self.ratio) / 8.0 };
    }
}

/// How much went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// How much of the image.
    pub raw_bytes: u64,
    /// How much went over the link.
    pub bytes: u64,
}

/// Writes one stream.
#[derive(Debug)]
pub(crate) struct Packer<W> {
    out: W,
    balance: Balance,
    packed: Vec<u8>,
    /// How many were opened.
    files: u16,
    sent: Sent,
}

/// One file of a stream.
#[derive(Debug)]
pub(crate) struct PackedFile<'a, W> {
    packer: &'a mut Packer<W>,
    number: u16,
}

impl<W: Outlet> Write for PackedFile<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.packer.data(self.number, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Outlet> Packer<W> {
    pub(crate) fn new(mut out: W, header: &Header) -> io::Result<Self> {
        let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
        let length = u32::try_from(header.len()).map_err(io::Error::other)?;
        out.write_all(MAGIC)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&header)?;
        // The other side makes a place ready while the guest is written down.
        out.flush()?;
        let sent = Sent { raw_bytes: 0, bytes: 12 + u64::from(length) };
        Ok(Self { out, balance: Balance::default(), packed: vec![], files: 0, sent })
    }

    /// The new file's number.
    pub(crate) fn open(&mut self, name: &str) -> io::Result<u16> {
        let file = self.files;
        if usize::from(file) >= FILES_MAX {
            return Err(io::Error::other("an image of too many files"));
        }
        self.files += 1;
        self.put(Frame::plain(Kind::Open, file, name.as_bytes()), name.as_bytes())?;
        Ok(file)
    }

    /// To write to an open file.
    pub(crate) fn file(&mut self, number: u16) -> PackedFile<'_, W> {
        PackedFile { packer: self, number }
    }

    pub(crate) fn close(&mut self, file: u16) -> io::Result<()> {
        self.put(Frame::plain(Kind::Close, file, &[]), &[])
    }

    /// All is sent but bytes of the files that are open.
    pub(crate) fn known(&mut self) -> io::Result<()> {
        self.put(Frame::plain(Kind::Known, 0, &[]), &[])?;
        // The other side begins to bring it to life.
        self.out.flush()
    }

    /// Nothing of an open file, so that nobody takes us for gone.
    pub(crate) fn breathe(&mut self, file: u16) -> io::Result<()> {
        self.put(Frame::plain(Kind::Data, file, &[]), &[])?;
        self.out.flush()
    }

    pub(crate) fn data(&mut self, file: u16, bytes: &[u8]) -> io::Result<()> {
        self.data_of(file, bytes, None)
    }

    /// As [`Self::data`], of bytes that need not be copied.
    pub(crate) fn shared_data(&mut self, file: u16, bytes: &Bytes) -> io::Result<()> {
        self.data_of(file, bytes, Some(bytes))
    }

    fn data_of(&mut self, file: u16, bytes: &[u8], all: Option<&Bytes>) -> io::Result<()> {
        self.sent.raw_bytes += bytes.len() as u64;
        for chunk in bytes.chunks(CHUNK) {
            for stretch in stretches(chunk) {
                match stretch {
                    Stretch::Zeroes(length) => self.zeroes(file, length)?,
                    Stretch::Bytes(bytes) => self.bytes(file, bytes, all)?,
                }
            }
        }
        Ok(())
    }

    fn zeroes(&mut self, file: u16, length: usize) -> io::Result<()> {
        let mut frame = Frame::plain(Kind::Data, file, &[]);
        frame.encoding = Encoding::Zeroes;
        frame.raw_length = u32::try_from(length).map_err(io::Error::other)?;
        self.put(frame, &[])
    }

    fn bytes(&mut self, file: u16, bytes: &[u8], all: Option<&Bytes>) -> io::Result<()> {
        let mut frame = Frame::plain(Kind::Data, file, bytes);
        if self.balance.next() {
            let begin = Clock.now();
            let mut room = std::mem::take(&mut self.packed);
            let most = lz4_flex::block::get_maximum_output_size(bytes.len());
            if room.len() < most {
                room.resize(most, 0);
            }
            let packed = lz4_flex::block::compress_into(bytes, &mut room);
            let length = packed.unwrap_or(bytes.len());
            self.balance.packed(Clock.now().since(begin), bytes.len(), length);
            let done = if length < bytes.len() && self.balance.pays() {
                frame.encoding = Encoding::Lz4;
                frame.length = u32::try_from(length).map_err(io::Error::other)?;
                self.put(frame, &room[..length])
            } else {
                self.put_of(frame, bytes, all)
            };
            self.packed = room;
            return done;
        }
        self.put_of(frame, bytes, all)
    }

    fn put(&mut self, frame: Frame, payload: &[u8]) -> io::Result<()> {
        self.put_of(frame, payload, None)
    }

    /// A frame of which the payload may be a part of `all`.
    fn put_of(&mut self, frame: Frame, payload: &[u8], all: Option<&Bytes>) -> io::Result<()> {
        let begin = Clock.now();
        let head = frame.to_bytes();
        match all.filter(|_| payload.len() >= HANDED_BYTES_MIN) {
            Some(all) => {
                self.out.write_all(&head)?;
                self.out.hand(all.slice_ref(payload))?;
            }
            None => write_both(&mut self.out, &head, payload)?,
        }
        if payload.len() >= CHUNK / 16 {
            self.balance.sending.learn(Clock.now().since(begin), payload.len());
        }
        self.sent.bytes += (head.len() + payload.len()) as u64;
        Ok(())
    }

    pub(crate) fn end(mut self) -> io::Result<Sent> {
        let total = self.sent.raw_bytes.to_le_bytes();
        self.put(Frame::plain(Kind::End, 0, &total), &total)?;
        self.out.flush()?;
        Ok(self.sent)
    }

    /// Tells the other side that no more will come, and why.
    pub(crate) fn give_up(mut self, why: &str) {
        let why = &why.as_bytes()[..why.len().min(1_000)];
        // The other side may have gone too.
        let _ = self.put(Frame::plain(Kind::GivenUp, 0, why), why);
        let _ = self.out.flush();
    }
}

fn write_both(out: &mut impl Write, head: &[u8], payload: &[u8]) -> io::Result<()> {
    let wanted = head.len() + payload.len();
    match out.write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]) {
        Ok(written) if written == wanted => Ok(()),
        Ok(written) if written < head.len() => {
            out.write_all(&head[written..])?;
            out.write_all(payload)
        }
        Ok(written) => out.write_all(&payload[written - head.len()..]),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            out.write_all(head)?;
            out.write_all(payload)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_pays_on_a_slow_link_only() {
        let mut balance = Balance::default();
        assert!(!balance.pays(), "nothing is known yet");
        // Packs to half at 1 GB/s.
        balance.packed(Duration::from_millis(1), 1_000_000, 500_000);
        balance.sending.learn(Duration::from_millis(8), 1_000_000);
        assert!(balance.pays(), "1 Gb/s");
        let mut fast = Balance { sending: Cost::default(), ..balance };
        fast.sending.learn(Duration::from_micros(800), 1_000_000);
        assert!(!fast.pays(), "10 Gb/s");
        let mut random = Balance { ratio: 0.0, ..balance };
        random.packed(Duration::from_micros(300), 1_000_000, 1_000_000);
        assert!(!random.pays(), "random bytes");
    }
}
