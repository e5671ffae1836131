//! The receiving end of a stream: bytes in, image files in memory out.
//!
//! The promise: what is not complete and as it was taken never ends well: memory
//! may reach CRIU before it was checked, and nothing runs before all of it was.
//! A peer's bytes can make no file outside of the image's directory, nor more of
//! it than was agreed. Memory in use beside the image is one frame, and what is
//! lent to those who read ([`crate::serve`]).

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use crate::image::{Terms, is_stopped, number_in};
use crate::memory::Memory;
use crate::pack::Outlet;
use crate::serve::{IncomingFile, IncomingFiles, Serving};
use crate::stream::{
    CHUNK, Encoding, FILES_MAX, Frame, HEADER_BYTES_MAX, Header, Kind, MAGIC, is_image_name,
};
use crate::vetting::{Claims, Refusal, VetError, vet, vet_name};

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
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
}

impl From<ArrivalError> for io::Error {
    fn from(error: ArrivalError) -> Self {
        Self::other(error)
    }
}

/// What is still to come of a frame.
#[derive(Clone, Copy, Debug)]
struct Body {
    file: u16,
    left: usize,
    /// The checksum of what has come.
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
    /// By number; those that are complete are gone.
    files: Vec<Option<Arc<IncomingFile>>>,
    incoming: IncomingFiles,
    bytes: u64,
    known: bool,
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
            incoming: IncomingFiles::default(),
            bytes: 0,
            known: false,
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

    /// Is all there but memory of its processes? Then it can be made this
    /// place's, served, and brought to life while that comes.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// As [`Image::adapt`], once it is known.
    ///
    /// # Errors
    /// What came is no image.
    pub fn adapt(&self, terms: &Terms) -> Result<Vec<i32>, AdaptError> {
        let root = self.header.as_ref().map_or(0, |header| header.root);
        adapt(&self.memory, root, terms)
    }

    /// Gives CRIU the files, as long as what is returned is held, once the guest's
    /// own files are laid; the image is to be known and adapted by then. What
    /// comes later goes to CRIU as it comes.
    ///
    /// # Errors
    /// No more threads, or no more descriptors.
    pub fn serve(&self) -> io::Result<Serving> {
        Serving::start(&self.memory, &self.incoming)
    }

    /// Has the last byte come?
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// # Errors
    /// Something is missing.
    pub fn finish(mut self) -> Result<Image, ArrivalError> {
        let header = self.header.take().filter(|_| self.ended).ok_or(ArrivalError::Short)?;
        Ok(Image { header, memory: Arc::clone(&self.memory), bytes: self.bytes })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The bytes are not what a sender of ours sends; nothing of them is of use then.
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
        self.coming(body.file)?.put(&mut own).map_err(ArrivalError::Keep)?;
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

    fn coming(&self, file: u16) -> Result<&Arc<IncomingFile>, ArrivalError> {
        let coming = self.files.get(usize::from(file)).and_then(Option::as_ref);
        coming.ok_or(ArrivalError::Malformed("bytes of no file"))
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
                let coming = self.files.get_mut(usize::from(frame.file)).and_then(Option::take);
                let coming = coming.ok_or(ArrivalError::Malformed("a file closed twice"))?;
                self.incoming.close(&coming);
                Ok(())
            }
            Kind::Known | Kind::End if frame.file != 0 => {
                Err(ArrivalError::Malformed("the end of one file"))
            }
            Kind::Known if !self.files.iter().flatten().all(|coming| coming.is_memory()) => {
                Err(ArrivalError::Malformed("more than memory is left to come"))
            }
            Kind::Known => {
                self.known = true;
                Ok(())
            }
            Kind::End if !self.known => Err(ArrivalError::Malformed("an end before all is known")),
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
        let next = usize::from(number) == self.files.len() && self.files.len() < FILES_MAX;
        if !next || self.known {
            return Err(ArrivalError::Malformed("a file's number"));
        }
        vet_name(name)?;
        let file = self.memory.create(name).map_err(ArrivalError::Keep)?;
        self.files.push(Some(self.incoming.open(name, file)));
        Ok(())
    }

    /// Bytes that are packed, or none at all.
    fn data(&mut self, frame: Frame, payload: &[u8]) -> Result<(), ArrivalError> {
        self.agree(frame.raw_length)?;
        if frame.encoding == Encoding::Zeroes {
            let coming = self.coming(frame.file)?;
            return coming.put_zeroes(frame.raw_length.into()).map_err(ArrivalError::Keep);
        }
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.resize(CHUNK, 0);
        let length = lz4_flex::block::decompress_into(payload, &mut unpacked)
            .map_err(|_| ArrivalError::Damaged)?;
        let bytes = &unpacked[..length];
        if length != frame.raw_length as usize || crc32c::crc32c(bytes) != frame.checksum {
            return Err(ArrivalError::Damaged);
        }
        let kept = self.coming(frame.file)?.put(&mut [IoSlice::new(bytes)]);
        kept.map_err(ArrivalError::Keep)?;
        self.unpacked = unpacked;
        Ok(())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // Who reads what does not come must not wait for it.
        self.incoming.close_all();
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
    /// What a stranger may have made of it.
    #[error("refused: {0}")]
    Refused(Refusal),
}

impl From<VetError> for AdaptError {
    fn from(error: VetError) -> Self {
        match error {
            VetError::Read(name, source) => Self::Change(name, source),
            VetError::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl Image {
    /// An image that lies in memory already.
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
    /// What came is no image of a guest.
    pub fn adapt(&self, terms: &Terms) -> Result<Vec<i32>, AdaptError> {
        adapt(&self.memory, self.header.root, terms)
    }
}

fn adapt(memory: &Memory, root: i32, terms: &Terms) -> Result<Vec<i32>, AdaptError> {
    let mut stopped = vec![];
    let failed = |name: &str| {
        let name = name.to_owned();
        move |error| AdaptError::Change(name, error)
    };
    let names = memory.names().map_err(failed("the image"))?;
    vet(&names, &mut |name| memory.read(name), Claims { root, reach: &terms.reach })?;
    for name in names {
        if name.starts_with("timens-") {
            memory.remove(&name).map_err(failed(&name))?;
        }
        if !Terms::concern(&name) {
            continue;
        }
        let was = memory.read(&name).map_err(failed(&name))?;
        if is_stopped(&was)
            && let Some(pid) = number_in(&name, "core-")
        {
            stopped.push(pid);
        }
        let becomes = terms.apply(&name, &was);
        let becomes = becomes.map_err(|_| AdaptError::Malformed(name.clone()))?;
        memory.replace(&name, &becomes).map_err(failed(&name))?;
    }
    Ok(stopped)
}

#[cfg(test)]
mod tests;
