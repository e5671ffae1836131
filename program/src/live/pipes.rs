//! The two pipes of a rank's process.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_program_core::address::{Envelope, Rank};
use gleaner_program_core::framing::{self, APART_BYTES_MIN, FrameReader};
use gleaner_program_core::wire::{AgentFrame, PIPE_BYTES_MAX, PIPES_VARIABLE, ProgramFrame};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};
use rustix::pipe::{IoSliceRaw, SpliceFlags};

use super::arriving::Piece;
use crate::error::Error;

/// What is collected before it is written without being asked to.
const FLUSH_BYTES: usize = 32 << 10;

/// How much is read of what follows a big piece: the head of the next one.
const HEAD_BYTES: usize = 64;

/// How many heads are kept as they were lent: a pipe has 256 slots
/// ([`PIPE_BYTES_MAX`] and a page in each).
const HEADS: usize = 2 * PIPE_BYTES_MAX / 4_096;

/// How often it is looked whether the agent has read what it was lent.
const LENT_LOOK: Duration = Duration::from_millis(1);

/// Why this process cannot talk with an agent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{PIPES_VARIABLE} is `{0}`: expected two file descriptors, such as `3,4`")]
    NotPipes(String),
    #[error("the pipes of this process were taken before")]
    Taken,
    #[error("the agent refused: {0}")]
    Refused(String),
    #[error("the agent began with {0}")]
    Unexpected(String),
    #[error(transparent)]
    Lost(#[from] Error),
}

/// Reads the agent's frames and writes the program's.
#[derive(Debug)]
pub struct Pipes {
    read: OwnedFd,
    write: OwnedFd,
    reader: FrameReader,
    unwritten: Vec<u8>,
    heads: Heads,
    /// A big piece was read to its end: there may be another behind it.
    after_big: bool,
}

/// Heads of pieces that are lent to the agent together with these.
#[derive(Debug)]
struct Heads {
    /// More of them than a pipe has slots, so that the next is always one that
    /// was read.
    rows: Vec<[u8; HEAD_BYTES]>,
    next: usize,
}

impl Heads {
    /// `None`: it is longer than heads are.
    fn keep(&mut self, head: &[u8]) -> Option<&[u8]> {
        if self.rows.is_empty() {
            self.rows.resize(HEADS, [0; HEAD_BYTES]);
        }
        let row = &mut self.rows[self.next];
        row.get_mut(..head.len())?.copy_from_slice(head);
        self.next = (self.next + 1) % HEADS;
        Some(&row[..head.len()])
    }
}

/// What has been read.
#[derive(Debug)]
pub(super) enum Came {
    Frame(AgentFrame),
    /// The payload of the piece is to be read with [`Pipes::read_payload`], before all else.
    Piece(Piece),
}

impl Pipes {
    pub fn new(read: OwnedFd, write: OwnedFd) -> Self {
        Self {
            read,
            write,
            reader: FrameReader::default(),
            unwritten: vec![],
            heads: Heads { rows: vec![], next: 0 },
            after_big: false,
        }
    }

    /// The pipes that the agent has given this process; once.
    ///
    /// # Errors
    /// The variable does not name two pipes.
    pub fn inherited() -> Result<Self, ConnectError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let text = std::env::var(PIPES_VARIABLE).unwrap_or_default();
        let wrong = || ConnectError::NotPipes(text.clone());
        let (read, write) = text.split_once(',').ok_or_else(wrong)?;
        let (read, write): (RawFd, RawFd) =
            (read.parse().map_err(|_| wrong())?, write.parse().map_err(|_| wrong())?);
        if read < 3 || write < 3 || read == write {
            return Err(wrong());
        }
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(ConnectError::Taken);
        }
        let (read, write) = (inherited_pipe(read), inherited_pipe(write));
        Ok(Self::new(read.ok_or_else(wrong)?, write.ok_or_else(wrong)?))
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unwritten.len()
    }

    /// Writes a frame, soon: with the next flush, or when there is much.
    pub(super) fn write(&mut self, frame: &ProgramFrame) -> Result<(), Error> {
        let apart = framing::encode(frame, &mut self.unwritten).map_err(|error| lost(&error))?;
        if apart.is_empty() && self.unwritten.len() < FLUSH_BYTES {
            return Ok(());
        }
        self.write_all(&apart)
    }

    /// Writes a piece of a message, soon, or with `lend` at once and without a
    /// copy: its bytes must not change before the agent has read them.
    pub(super) fn write_piece(
        &mut self,
        to: Rank,
        envelope: Envelope,
        payload: &[u8],
        lend: bool,
    ) -> Result<(), Error> {
        let apart = framing::encode_send(to, envelope, payload, &mut self.unwritten)
            .map_err(|error| lost(&error))?;
        if apart.is_empty() && self.unwritten.len() < FLUSH_BYTES {
            return Ok(());
        }
        if lend { self.lend_all(apart) } else { self.write_all(apart) }
    }

    /// Lends what is unwritten, and these bytes, with one call: an agent that
    /// finds a head finds its piece, too.
    #[expect(unsafe_code, reason = "a pipe refers to the pages that it is lent")]
    fn lend_all(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        let Some(mut head) = self.heads.keep(&unwritten) else {
            self.unwritten = unwritten;
            self.flush()?;
            return self.lend_all(bytes);
        };
        while !head.is_empty() || !bytes.is_empty() {
            let slices = [head, bytes].map(IoSliceRaw::from_slice);
            // SAFETY: the slices are whole and readable for the whole call. The
            // pages that the pipe refers to afterwards are kept by the kernel; who
            // called us, and the heads, keep them as they are until the agent has
            // read them.
            let lent =
                unsafe { rustix::pipe::vmsplice(&self.write, &slices, SpliceFlags::empty()) };
            match lent {
                Ok(lent) => {
                    let of_head = lent.min(head.len());
                    (head, bytes) = (&head[of_head..], &bytes[lent - of_head..]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for(&self.write, PollFlags::OUT, None).map(|_| ())?,
                // This machine does not lend, or not this memory.
                Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::FAULT) => {
                    unwritten.drain(..unwritten.len() - head.len());
                    self.unwritten = unwritten;
                    return self.write_all(bytes);
                }
                Err(error) => return Err(lost(&error)),
            }
        }
        unwritten.clear();
        self.unwritten = unwritten;
        Ok(())
    }

    /// Waits until the agent has read all that was written, or never will.
    pub(super) fn wait_until_read(&self) {
        while rustix::io::ioctl_fionread(&self.write).is_ok_and(|unread| unread > 0) {
            let mut fds = [PollFd::from_borrowed_fd(self.write.as_fd(), PollFlags::empty())];
            let timeout = Timespec::try_from(LENT_LOOK).ok();
            // Nobody reads any more.
            if rustix::event::poll(&mut fds, timeout.as_ref()).is_ok_and(|gone| gone > 0) {
                return;
            }
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.unwritten.is_empty() { Ok(()) } else { self.write_all(&Bytes::new()) }
    }

    fn write_all(&mut self, apart: &[u8]) -> Result<(), Error> {
        let (mut head, mut tail) = (&self.unwritten[..], apart);
        while !head.is_empty() || !tail.is_empty() {
            match rustix::io::writev(&self.write, &[IoSlice::new(head), IoSlice::new(tail)]) {
                Ok(written) => {
                    let of_head = written.min(head.len());
                    (head, tail) = (&head[of_head..], &tail[written - of_head..]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for(&self.write, PollFlags::OUT, None).map(|_| ())?,
                Err(error) => return Err(lost(&error)),
            }
        }
        self.unwritten.clear();
        Ok(())
    }

    /// Reads what is there, or waits for it that long (`None`: for ever).
    /// `false`: there was nothing.
    pub(super) fn fill(&mut self, patience: Option<Duration>) -> Result<bool, Error> {
        if !wait_for(&self.read, PollFlags::IN, patience)? {
            return Ok(false);
        }
        loop {
            // A big piece is read as little as possible, so that its payload is read to
            // where it belongs. If something else comes, the next call has it.
            let read = if std::mem::take(&mut self.after_big) {
                let mut head = [0; HEAD_BYTES];
                let read = rustix::io::read(&self.read, &mut head);
                self.reader.push(&head[..read.unwrap_or(0)]);
                read
            } else {
                rustix::io::read(&self.read, spare_capacity(self.reader.space()))
            };
            match read {
                Ok(0) => return Err(closed()),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(lost(&error)),
            }
        }
    }

    /// The next frame that has been read whole, or the head of a big piece.
    pub(super) fn poll(&mut self) -> Result<Option<Came>, Error> {
        let head = self.reader.next_head(APART_BYTES_MIN).map_err(|error| lost(&error))?;
        if let Some(AgentFrame::Deliver { number, from, envelope, payload: bytes }) = head {
            // The payload is shorter than a frame.
            let bytes = usize::try_from(bytes).unwrap_or(0);
            return Ok(Some(Came::Piece(Piece { number, from, envelope, bytes })));
        }
        Ok(self.poll_frame()?.map(Came::Frame))
    }

    /// Appends the next bytes to `into`, and waits until they are there.
    pub(super) fn read_payload(&mut self, into: &mut Vec<u8>, bytes: usize) -> Result<(), Error> {
        let end = into.len() + bytes;
        into.reserve(bytes);
        into.extend_from_slice(self.reader.take(bytes));
        // What comes behind it is most often the head of another.
        let mut head = [0; HEAD_BYTES];
        let mut behind = 0;
        while into.len() < end {
            let missing = end - into.len();
            match read_some(&self.read, into, missing, &mut head) {
                Ok(0) => return Err(closed()),
                Ok(read) => behind = read.saturating_sub(missing),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for(&self.read, PollFlags::IN, None).map(|_| ())?,
                Err(error) => return Err(lost(&error)),
            }
        }
        self.reader.push(&head[..behind]);
        self.after_big = behind == 0;
        Ok(())
    }

    fn poll_frame(&mut self) -> Result<Option<AgentFrame>, Error> {
        self.reader.next_frame().map_err(|error: FrameError| lost(&error))
    }

    /// Waits for the next frame.
    pub(super) fn next_frame(&mut self) -> Result<AgentFrame, Error> {
        loop {
            if let Some(frame) = self.poll_frame()? {
                return Ok(frame);
            }
            self.fill(None)?;
        }
    }
}

/// Appends at most so many bytes, and reads what is behind them to another place.
#[expect(unsafe_code, reason = "a vector's spare capacity has no bytes before it is read to")]
fn read_some(
    fd: &OwnedFd,
    into: &mut Vec<u8>,
    bytes_max: usize,
    behind: &mut [u8],
) -> rustix::io::Result<usize> {
    let slice = |begin: *mut u8, bytes| libc::iovec { iov_base: begin.cast(), iov_len: bytes };
    let spare = into.spare_capacity_mut();
    let bytes_max = bytes_max.min(spare.len());
    let slices =
        [slice(spare.as_mut_ptr().cast(), bytes_max), slice(behind.as_mut_ptr(), behind.len())];
    // SAFETY: both are memory of that length that is ours alone to write to.
    let read = unsafe { libc::readv(fd.as_raw_fd(), slices.as_ptr(), 2) };
    let read = usize::try_from(read).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })?;
    // SAFETY: the call has written so many bytes of the spare capacity.
    unsafe { into.set_len(into.len() + read.min(bytes_max)) };
    Ok(read)
}

fn closed() -> Error {
    Error::Lost("the agent has closed the pipe".to_owned())
}

/// Waits until there is something to read or place to write. Never relies on
/// the pipe being non-blocking: that is lost when a restored process gets new
/// pipes.
fn wait_for(fd: &OwnedFd, flags: PollFlags, patience: Option<Duration>) -> Result<bool, Error> {
    let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
    loop {
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) if patience.is_none() => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(lost(&error)),
        }
    }
}

fn lost(error: &dyn std::error::Error) -> Error {
    Error::Lost(error.to_string())
}

/// Takes a descriptor that this process was started with, if it is a pipe;
/// programs that it starts do not get it.
#[expect(unsafe_code, reason = "an inherited descriptor has no owner yet")]
fn inherited_pipe(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the agent has opened this number for nobody but us, as its
    // variable says, and our caller comes here once. If that is a lie, the
    // number is of no pipe, or not open, and we let go of it unclosed.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let is_pipe = rustix::fs::fstat(&fd)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    if is_pipe && rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).is_ok() {
        return Some(fd);
    }
    let _ = fd.into_raw_fd();
    None
}
