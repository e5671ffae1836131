//! The receiving end of a stream: bytes in, image files in memory out.
//!
//! The promise: what is handed over is complete and as it was taken. A peer's
//! bytes can make no file outside of the image's directory, nor more of it
//! than was agreed. Memory in use beside the image is one frame.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use crate::image::{Terms, is_stopped};
use crate::memory::Memory;
use crate::stream::{
    CHUNK, Encoding, FILES_MAX, Frame, HEADER_BYTES_MAX, Header, Kind, MAGIC, is_image_name,
};

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
            pending: Vec::with_capacity(2 * CHUNK),
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
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), ArrivalError> {
        while !bytes.is_empty() {
            if self.ended {
                return Err(ArrivalError::Malformed("something after the end"));
            }
            // Whole frames straight from the caller's bytes, the rest by copy.
            if self.pending.is_empty() && self.header.is_some() {
                let used = self.take_frame(bytes)?;
                if used > 0 {
                    bytes = &bytes[used..];
                    continue;
                }
            }
            let wanted = self.wanted()?.saturating_sub(self.pending.len()).max(1);
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            self.advance()?;
        }
        Ok(())
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
        match self.pending.first_chunk::<{ Frame::BYTES }>() {
            None => Ok(Frame::BYTES),
            Some(head) => {
                let frame = Frame::from_bytes(head).ok_or(ArrivalError::Malformed("a frame"))?;
                Ok(Frame::BYTES + frame.length as usize)
            }
        }
    }

    fn advance(&mut self) -> Result<(), ArrivalError> {
        if self.pending.len() < self.wanted()? {
            return Ok(());
        }
        if self.header.is_none() {
            if self.pending.get(..8) != Some(MAGIC) {
                return Err(ArrivalError::Malformed("another beginning"));
            }
            if self.pending.len() > 12 {
                let header = postcard::from_bytes(&self.pending[12..])
                    .map_err(|_| ArrivalError::Malformed("its header"))?;
                self.header = Some(header);
                self.pending.clear();
            }
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let used = self.take_frame(&pending)?;
        self.pending = pending;
        self.pending.drain(..used);
        Ok(())
    }

    /// Takes the frame that `bytes` begin with; 0 if it is not all there.
    fn take_frame(&mut self, bytes: &[u8]) -> Result<usize, ArrivalError> {
        let Some((head, rest)) = bytes.split_first_chunk::<{ Frame::BYTES }>() else {
            return Ok(0);
        };
        let frame = Frame::from_bytes(head).ok_or(ArrivalError::Malformed("a frame"))?;
        let Some(payload) = rest.get(..frame.length as usize) else { return Ok(0) };
        self.obey(frame, payload)?;
        Ok(Frame::BYTES + payload.len())
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

    fn data(&mut self, frame: Frame, payload: &[u8]) -> Result<(), ArrivalError> {
        let length = u64::from(frame.raw_length);
        self.bytes += length;
        if self.bytes > self.bytes_max {
            return Err(ArrivalError::TooBig(self.bytes_max));
        }
        let Some(Some(arriving)) = self.files.get_mut(usize::from(frame.file)) else {
            return Err(ArrivalError::Malformed("bytes of no file"));
        };
        let bytes = match frame.encoding {
            Encoding::Raw => payload,
            Encoding::Zeroes => {
                arriving.bytes += length;
                return Ok(());
            }
            Encoding::Lz4 => {
                self.unpacked.resize(CHUNK, 0);
                let unpacked = lz4_flex::block::decompress_into(payload, &mut self.unpacked)
                    .map_err(|_| ArrivalError::Damaged)?;
                &self.unpacked[..unpacked]
            }
        };
        if bytes.len() as u64 != length || crc32c::crc32c(bytes) != frame.checksum {
            return Err(ArrivalError::Damaged);
        }
        arriving.file.write_all_at(bytes, arriving.bytes).map_err(ArrivalError::Keep)?;
        arriving.bytes += length;
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
