//! Frames on QUIC streams.
//!
//! ```text
//! let (mut writer, mut reader) = stream::open(&connection, Purpose::Agent).await?;
//! writer.queue(&hello)?;          // any number of frames, then
//! writer.flush().await?;          // one write
//! let welcome: CoordinatorFrame = reader.expect().await?;
//! while let Some(frame) = reader.next::<CoordinatorFrame>().await? { .. }
//! ```
//!
//! The side that accepts calls [`read_opening`] on what `accept_bi` gave it.

use std::time::Duration;

use bytes::Bytes;
use gleaner_common::frame::{self, Decoder, FrameError};
use gleaner_common::wire::{Opening, Purpose, VERSION, close};
use quinn::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::endpoint::Ended;

/// How long whoever opened a stream may take to say what it is for.
pub(crate) const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// How much is read at once: memory of a connection that was busy once.
const CHUNK_BYTES: usize = 16 << 10;

/// As many datagrams' bytes are taken at once.
const CHUNKS: usize = 64;

/// Why a stream is of no more use. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Too long, malformed or cut short by the peer.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer finished the stream where another frame was expected.
    #[error("the stream ended where {expected} was expected")]
    Closed { expected: &'static str },
    /// The peer gave the stream up; the code is one of `wire::close`.
    #[error("the other side gave up the stream, code {code}")]
    Reset { code: u32 },
    #[error(transparent)]
    Ended(#[from] Ended),
    /// This side finished it before.
    #[error("the stream is closed already")]
    Finished,
}

impl From<ReadError> for StreamError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Reset { code: code_of(code) },
            ReadError::ConnectionLost(error) => Self::Ended(error.into()),
            ReadError::ClosedStream => Self::Finished,
            ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
                unreachable!("gleaner neither reads out of order nor sends early: {error}")
            }
        }
    }
}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Reset { code: code_of(code) },
            WriteError::ConnectionLost(error) => Self::Ended(error.into()),
            WriteError::ClosedStream => Self::Finished,
            WriteError::ZeroRttRejected => unreachable!("gleaner does not send early: {error}"),
        }
    }
}

fn code_of(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

/// Writes frames, many at once if there are many.
#[derive(Debug)]
pub struct FrameWriter {
    stream: SendStream,
    buffer: Vec<u8>,
}

impl FrameWriter {
    pub fn new(stream: SendStream) -> Self {
        Self { stream, buffer: vec![] }
    }

    /// Puts a frame with those that the next [`Self::flush`] writes.
    ///
    /// # Errors
    /// A frame that is too long; those before it stay queued.
    pub fn queue<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        frame::encode(message, &mut self.buffer)
    }

    /// How many bytes are queued.
    pub fn queued_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Writes what is queued. Waits while the peer does not read. Not safe to
    /// drop half-way: the stream is then of no more use.
    ///
    /// # Errors
    /// The peer gave up the stream, or the connection ended.
    pub async fn flush(&mut self) -> Result<(), StreamError> {
        let written = self.stream.write_all(&self.buffer).await;
        self.buffer.clear();
        self.buffer.shrink_to(CHUNK_BYTES);
        Ok(written?)
    }

    /// Queues one frame and writes it.
    ///
    /// # Errors
    /// As [`Self::queue`] and [`Self::flush`].
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), StreamError> {
        self.queue(message)?;
        self.flush().await
    }

    /// Writes bytes that are no frame, after what is queued.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn send_raw(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.flush().await?;
        Ok(self.stream.write_all(bytes).await?)
    }

    /// As [`Self::send_raw`], without copying them.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn send_bytes(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.flush().await?;
        Ok(self.stream.write_chunk(bytes).await?)
    }

    /// No more follows. What was flushed still arrives, as long as the
    /// connection lives.
    pub fn finish(&mut self) {
        // An error means that the stream is finished or given up already.
        let _ = self.stream.finish();
    }

    /// Gives the stream up: the peer reads no further than it has.
    pub fn reset(&mut self, code: u32) {
        let _ = self.stream.reset(VarInt::from_u32(code));
    }

    /// The stream below, with nothing queued on the way.
    pub fn into_stream(self) -> SendStream {
        self.stream
    }
}

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader {
    stream: RecvStream,
    decoder: Decoder,
}

impl FrameReader {
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, decoder: Decoder::new() }
    }

    /// The next frame; `None` where the peer finished the stream after a whole
    /// one. Dropping it half-way loses nothing: fit for `select!`.
    ///
    /// # Errors
    /// A frame that is too long, malformed or cut short: the stream is lost
    /// then. The peer gave it up, or the connection ended.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StreamError> {
        loop {
            if let Some(message) = self.decoder.next_frame()? {
                return Ok(Some(message));
            }
            if !self.fill().await? {
                self.decoder.finish()?;
                return Ok(None);
            }
        }
    }

    /// The next frame, where there must be one.
    ///
    /// # Errors
    /// As [`Self::next`], or the end of the stream.
    pub async fn expect<T: DeserializeOwned>(&mut self) -> Result<T, StreamError> {
        let expected = || std::any::type_name::<T>().rsplit("::").next().unwrap_or("a message");
        self.next().await?.ok_or_else(|| StreamError::Closed { expected: expected() })
    }

    /// A further frame that has arrived already, without waiting: to handle
    /// all that one datagram brought together.
    ///
    /// # Errors
    /// A frame that is too long or malformed.
    pub fn try_next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StreamError> {
        Ok(self.decoder.next_frame()?)
    }

    /// Bytes after the frames, as they come; `None` at the end of the stream.
    ///
    /// # Errors
    /// The peer gave up the stream, or the connection ended.
    pub async fn next_raw(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        Ok(self.next_chunks().await?.map(|chunks| chunks.concat()))
    }

    /// As [`Self::next_raw`], where they lie: one for each datagram.
    ///
    /// # Errors
    /// As [`Self::next_raw`].
    pub async fn next_chunks(&mut self) -> Result<Option<Vec<Bytes>>, StreamError> {
        let rest = self.decoder.take_rest();
        if !rest.is_empty() {
            return Ok(Some(vec![rest.into()]));
        }
        // All pieces that are here are taken at once.
        let mut chunks = vec![Bytes::new(); CHUNKS];
        let count = self.stream.read_chunks(&mut chunks).await?;
        Ok(count.map(|count| {
            chunks.truncate(count);
            chunks
        }))
    }

    /// Tells the peer that nothing more will be read.
    pub fn stop(&mut self, code: u32) {
        let _ = self.stream.stop(VarInt::from_u32(code));
    }

    /// The stream below and what was read of it beyond the last frame.
    pub fn into_parts(mut self) -> (RecvStream, Vec<u8>) {
        let rest = self.decoder.take_rest();
        (self.stream, rest)
    }

    async fn next_payload(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        loop {
            if let Some(payload) = self.decoder.next_payload()? {
                return Ok(Some(payload));
            }
            if !self.fill().await? {
                self.decoder.finish()?;
                return Ok(None);
            }
        }
    }

    /// Is there more?
    async fn fill(&mut self) -> Result<bool, StreamError> {
        let Some(chunk) = self.stream.read_chunk(CHUNK_BYTES, true).await? else {
            return Ok(false);
        };
        self.decoder.push(&chunk.bytes);
        Ok(true)
    }
}

/// Opens a stream and says what for. The opening is queued: it leaves with the
/// first flush, so that it shares a datagram with what follows.
///
/// # Errors
/// The connection ended.
pub async fn open(
    connection: &Connection,
    purpose: Purpose,
) -> Result<(FrameWriter, FrameReader), StreamError> {
    let (send, recv) = connection.open_bi().await.map_err(Ended::from)?;
    let mut writer = FrameWriter::new(send);
    writer.queue(&Opening::new(purpose))?;
    Ok((writer, FrameReader::new(recv)))
}

/// Why a stream that a peer opened is not served. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    #[error(
        "protocol version {theirs} there and {ours} here: expected the same release of glean on both sides"
    )]
    Version { theirs: u16, ours: u16 },
    #[error("a stream was opened and nothing said within {} s", OPENING_TIMEOUT.as_secs())]
    Silent,
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl OpeningError {
    /// Closes the connection with this as the reason, which the peer's
    /// [`Ended::Refused`] repeats.
    pub fn refuse(&self, connection: &Connection) {
        // From the peer's side, "there" and "here" change places.
        let reason = match self {
            Self::Version { theirs, ours } => {
                Self::Version { theirs: *ours, ours: *theirs }.to_string()
            }
            Self::Silent | Self::Stream(_) => self.to_string(),
        };
        connection.close(VarInt::from_u32(close::PROTOCOL), reason.as_bytes());
    }
}

/// Reads the opening of a stream that the peer opened (`accept_bi`). Waits for
/// the peer: do this in a task of the stream's own.
///
/// # Errors
/// Another version of the protocol (answer with [`OpeningError::refuse`]), or
/// a peer that says nothing or nonsense.
pub async fn read_opening(
    (send, recv): (SendStream, RecvStream),
) -> Result<(Purpose, FrameWriter, FrameReader), OpeningError> {
    let mut reader = FrameReader::new(recv);
    let payload = timeout(OPENING_TIMEOUT, reader.next_payload())
        .await
        .map_err(|_| OpeningError::Silent)??
        .ok_or(StreamError::Closed { expected: "Opening" })?;
    let purpose = read_purpose(&payload)?;
    Ok((purpose, FrameWriter::new(send), reader))
}

/// The version stands first in an opening of any version; only one of ours can
/// be read further.
fn read_purpose(payload: &[u8]) -> Result<Purpose, OpeningError> {
    match postcard::take_from_bytes::<u16>(payload) {
        Ok((theirs, _)) if theirs != VERSION => {
            Err(OpeningError::Version { theirs, ours: VERSION })
        }
        _ => {
            let opening: Opening = frame::decode_payload(payload).map_err(StreamError::Frame)?;
            Ok(opening.purpose)
        }
    }
}
