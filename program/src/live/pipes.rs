//! The two pipes of a rank's process.

use std::io::IoSlice;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_program_core::framing::{self, FrameReader};
use gleaner_program_core::wire::{AgentFrame, PIPES_VARIABLE, ProgramFrame};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};

use crate::error::Error;

/// What is collected before it is written without being asked to.
const FLUSH_BYTES: usize = 32 << 10;

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
}

impl Pipes {
    pub fn new(read: OwnedFd, write: OwnedFd) -> Self {
        Self { read, write, reader: FrameReader::default(), unwritten: vec![] }
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
            match rustix::io::read(&self.read, spare_capacity(self.reader.space())) {
                Ok(0) => return Err(Error::Lost("the agent has closed the pipe".to_owned())),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(lost(&error)),
            }
        }
    }

    /// The next frame that has been read whole.
    pub(super) fn poll_frame(&mut self) -> Result<Option<AgentFrame>, Error> {
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
