//! The receiving end of a stream: bytes in, image files in memory out.
//!
//! The promise: what is handed over is complete and as it was taken. A peer's
//! bytes can make no file outside of the image's directory, nor more of it
//! than was agreed. Memory in use beside the image is one frame.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use rustix::io::Errno;

use crate::image::{Terms, is_stopped};
use crate::memory::Memory;
use crate::pack::Outlet;
use crate::stream::{
    CHUNK, Encoding, FILES_MAX, Frame, HEADER_BYTES_MAX, Header, Kind, MAGIC, is_image_name,
};

/// The most that are written at once: the kernel's own bound.
const CHUNKS_MAX: usize = 1_024;

/// Why a stream is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    #[error("not an image: {0}")]
    Malformed(&'static str),
    #[error("damaged on its way: a checksum is wrong")]
    Damaged,
    #[error("more than the {0} bytes agreed upon")]
    TooBig(u64),
    #[error("the other side gave up: {0}")]
    GivenUp(String),
    #[error("it ended before its end")]
    Short,
    #[error("cannot keep it in memory")]
    Keep(#[source] io::Error),
}

impl From<ArrivalError> for io::Error {
    fn from(error: ArrivalError) -> Self {
        Self::other(error)
    }
}

/// One file on its way.
#[derive(Debug)]
struct Arriving {
    file: File,
    bytes: u64,
}

/// What is still to come of a frame.
#[derive(Clone, Copy, Debug)]
struct Body {
    file: u16,
    left: usize,
    /// Of what has come.
    checksum: u32,
    wanted: u32,
}

/// An image on its way. Write the stream's bytes into it, in pieces of any
/// size; [`Self::finish`] when there are no more.
#[derive(Debug)]
pub struct Arrival {
    memory: Arc<Memory>,
    bytes_max: u64,
    header: Option<Header>,
    files: Vec<Option<Arriving>>,
    bytes: u64,
    ended: bool,
    /// What has come of the next part.
    pending: Vec<u8>,
    /// The frame whose raw bytes are coming.
    body: Option<Body>,
    unpacked: Vec<u8>,
}

/// An image that is there, whole.
#[derive(Debug)]
pub struct Image {
    pub header: Header,
    memory: Arc<Memory>,
    bytes: u64,
}

impl Arrival {
    /// # Errors
    /// Not root, or no memory.
    pub fn new(bytes_max: u64) -> Result<Self, ArrivalError> {
        Ok(Self {
            memory: Arc::new(Memory::new().map_err(ArrivalError::Keep)?),
            bytes_max,
            header: None,
            files: vec![],
            bytes: 0,
            ended: false,
            pending: vec![],
            body: None,
            unpacked: vec![],
        })
    }

    /// What is coming, once its first bytes are there. Whether to take it can
    /// be decided now.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// The directory that is being filled: a keeper can be made ready with it
    /// meanwhile.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Has the last byte come?
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// # Errors
    /// Something is missing.
    pub fn finish(self) -> Result<Image, ArrivalError> {
        match self.header {
            Some(header) if self.ended => {
                Ok(Image { header, memory: self.memory, bytes: self.bytes })
            }
            _ => Err(ArrivalError::Short),
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// They are not what a sender of ours sends; nothing of it is of use then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), ArrivalError> {
        self.take_all(&[bytes])
    }

    /// As [`Self::take`], of bytes that lie in several places.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_all(&mut self, chunks: &[impl AsRef<[u8]>]) -> Result<(), ArrivalError> {
        let mut chunks: VecDeque<&[u8]> = chunks.iter().map(AsRef::as_ref).collect();
        loop {
            while chunks.pop_front_if(|chunk| chunk.is_empty()).is_some() {}
            let Some(first) = chunks.front_mut() else { return Ok(()) };
            if self.ended {
                return Err(ArrivalError::Malformed("something after the end"));
            }
            // The bulk goes straight from the caller's bytes to its file.
            if let Some(body) = self.body {
                self.take_body(body, &mut chunks)?;
            } else {
                let used = self.take_part(first)?;
                *first = &first[used..];
            }
        }
    }

    /// Takes some of a frame's raw bytes.
    fn take_body(
        &mut self,
        mut body: Body,
        chunks: &mut VecDeque<&[u8]>,
    ) -> Result<(), ArrivalError> {
        let mut own = vec![];
        while body.left > 0
            && own.len() < CHUNKS_MAX
            && let Some(chunk) = chunks.pop_front()
        {
            let (bytes, rest) = chunk.split_at(chunk.len().min(body.left));
            body.checksum = crc32c::crc32c_append(body.checksum, bytes);
            body.left -= bytes.len();
            own.push(IoSlice::new(bytes));
            if !rest.is_empty() {
                chunks.push_front(rest);
            }
        }
        self.keep(body.file, &mut own)?;
        let wrong = body.left == 0 && body.checksum != body.wanted;
        self.body = (body.left > 0).then_some(body);
        if wrong { Err(ArrivalError::Damaged) } else { Ok(()) }
    }

    /// Takes some of what has to be there as a whole: the header, a frame's
    /// head, or a small or packed frame.
    fn take_part(&mut self, bytes: &[u8]) -> Result<usize, ArrivalError> {
        let wanted = self.wanted()?.saturating_sub(self.pending.len()).max(1);
        let used = wanted.min(bytes.len());
        self.pending.extend_from_slice(&bytes[..used]);
        self.advance()?;
        Ok(used)
    }

    /// How many pending bytes the next step needs.
    fn wanted(&self) -> Result<usize, ArrivalError> {
        if self.header.is_none() {
            let Some(length) = self.pending.get(8..12) else { return Ok(12) };
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            if length > HEADER_BYTES_MAX {
                return Err(ArrivalError::Malformed("its header is too long"));
            }
            return Ok(12 + length);
        }
        let Some(head) = self.pending.first_chunk::<{ Frame::BYTES }>() else {
            return Ok(Frame::BYTES);
        };
        let frame = Frame::from_bytes(head).ok_or(ArrivalError::Malformed("a frame"))?;
        Ok(Frame::BYTES + if frame.is_bulk() { 0 } else { frame.length as usize })
    }

    fn advance(&mut self) -> Result<(), ArrivalError> {
        if self.pending.len() < self.wanted()? {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let used = match (&self.header, pending.split_first_chunk::<{ Frame::BYTES }>()) {
            (None, _) => self.take_header(&pending)?,
            (Some(_), None) => 0,
            (Some(_), Some((head, payload))) => {
                let frame = Frame::from_bytes(head).ok_or(ArrivalError::Malformed("a frame"))?;
                if frame.is_bulk() {
                    self.agree(frame.raw_length)?;
                    let (file, left) = (frame.file, frame.length as usize);
                    self.body = Some(Body { file, left, checksum: 0, wanted: frame.checksum });
                } else {
                    self.obey(frame, payload)?;
                }
                pending.len()
            }
        };
        self.pending = pending;
        self.pending.drain(..used);
        Ok(())
    }

    fn take_header(&mut self, pending: &[u8]) -> Result<usize, ArrivalError> {
        if pending.get(..8) != Some(MAGIC) {
            return Err(ArrivalError::Malformed("another beginning"));
        }
        if pending.len() == 12 {
            return Ok(0);
        }
        let header = postcard::from_bytes(&pending[12..]);
        self.header = Some(header.map_err(|_| ArrivalError::Malformed("its header"))?);
        Ok(pending.len())
    }

    /// Is there room for so many more?
    fn agree(&mut self, bytes: u32) -> Result<(), ArrivalError> {
        self.bytes += u64::from(bytes);
        if self.bytes > self.bytes_max {
            return Err(ArrivalError::TooBig(self.bytes_max));
        }
        Ok(())
    }

    /// The next bytes of a file.
    fn keep(&mut self, file: u16, mut bytes: &mut [IoSlice<'_>]) -> Result<(), ArrivalError> {
        let arriving = self.arriving(file)?;
        while !bytes.is_empty() {
            match rustix::io::pwritev(&arriving.file, bytes, arriving.bytes) {
                Ok(0) => return Err(ArrivalError::Keep(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    arriving.bytes += written as u64;
                    IoSlice::advance_slices(&mut bytes, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(ArrivalError::Keep(error.into())),
            }
        }
        Ok(())
    }

    fn arriving(&mut self, file: u16) -> Result<&mut Arriving, ArrivalError> {
        let arriving = self.files.get_mut(usize::from(file)).and_then(Option::as_mut);
        arriving.ok_or(ArrivalError::Malformed("bytes of no file"))
    }

    fn obey(&mut self, frame: Frame, payload: &[u8]) -> Result<(), ArrivalError> {
        if frame.kind == Kind::Data {
            return self.data(frame, payload);
        }
        if crc32c::crc32c(payload) != frame.checksum {
            return Err(ArrivalError::Damaged);
        }
        match frame.kind {
            Kind::Open => self.open(frame.file, payload),
            Kind::Close => {
                let file = self.files.get_mut(usize::from(frame.file)).and_then(Option::take);
                let Some(Arriving { file, bytes }) = file else {
                    return Err(ArrivalError::Malformed("a file closed twice"));
                };
                // Zeroes at its end were never written.
                file.set_len(bytes).map_err(ArrivalError::Keep)
            }
            Kind::End if payload == self.bytes.to_le_bytes() => {
                self.ended = true;
                if self.files.iter().any(Option::is_some) {
                    return Err(ArrivalError::Malformed("a file without an end"));
                }
                Ok(())
            }
            Kind::End => Err(ArrivalError::Short),
            Kind::GivenUp => {
                Err(ArrivalError::GivenUp(String::from_utf8_lossy(payload).into_owned()))
            }
            Kind::Data => unreachable!("taken above"),
        }
    }

    fn open(&mut self, number: u16, name: &[u8]) -> Result<(), ArrivalError> {
        let name = std::str::from_utf8(name).ok().filter(|name| is_image_name(name));
        let name = name.ok_or(ArrivalError::Malformed("a file's name"))?;
        if usize::from(number) != self.files.len() || self.files.len() >= FILES_MAX {
            return Err(ArrivalError::Malformed("a file's number"));
        }
        let file = self.memory.create(name).map_err(ArrivalError::Keep)?;
        self.files.push(Some(Arriving { file, bytes: 0 }));
        Ok(())
    }

    /// Bytes that are packed, or none at all.
    fn data(&mut self, frame: Frame, payload: &[u8]) -> Result<(), ArrivalError> {
        self.agree(frame.raw_length)?;
        if frame.encoding == Encoding::Zeroes {
            self.arriving(frame.file)?.bytes += u64::from(frame.raw_length);
            return Ok(());
        }
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.resize(CHUNK, 0);
        let length = lz4_flex::block::decompress_into(payload, &mut unpacked)
            .map_err(|_| ArrivalError::Damaged)?;
        let bytes = &unpacked[..length];
        if length != frame.raw_length as usize || crc32c::crc32c(bytes) != frame.checksum {
            return Err(ArrivalError::Damaged);
        }
        self.keep(frame.file, &mut [IoSlice::new(bytes)])?;
        self.unpacked = unpacked;
        Ok(())
    }
}

impl Write for Arrival {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Outlet for Arrival {}

/// Why an image cannot be made this place's.
#[derive(Debug, thiserror::Error)]
pub enum AdaptError {
    #[error("cannot change {0}")]
    Change(String, #[source] io::Error),
    #[error("{0} is not what CRIU writes")]
    Malformed(String),
}

impl Image {
    /// One that lies in memory already.
    pub(crate) fn there(header: Header, memory: Memory) -> Self {
        Self { header, memory: Arc::new(memory), bytes: 0 }
    }

    /// The directory with its files: for the keeper, which restores it.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it this place's: its user, no rights, its limits, no clocks but
    /// the keeper's. Who stood still by their own will is returned: they must
    /// not be set going.
    ///
    /// # Errors
    /// It is not an image.
    pub fn adapt(&self, terms: &Terms) -> Result<Vec<i32>, AdaptError> {
        let mut stopped = vec![];
        let failed = |name: &str| {
            let name = name.to_owned();
            move |error| AdaptError::Change(name, error)
        };
        for name in self.memory.names().map_err(failed("the image"))? {
            if name.starts_with("timens-") {
                self.memory.remove(&name).map_err(failed(&name))?;
            }
            if !Terms::concern(&name) {
                continue;
            }
            let was = self.memory.read(&name).map_err(failed(&name))?;
            if is_stopped(&was)
                && let Some(pid) = pid_in(&name)
            {
                stopped.push(pid);
            }
            let becomes = terms.apply(&name, &was);
            let becomes = becomes.map_err(|_| AdaptError::Malformed(name.clone()))?;
            self.memory.replace(&name, &becomes).map_err(failed(&name))?;
        }
        Ok(stopped)
    }
}

/// 12 of `core-12.img`.
fn pid_in(name: &str) -> Option<i32> {
    name.strip_prefix("core-")?.strip_suffix(".img")?.parse().ok()
}

#[cfg(test)]
mod tests;
