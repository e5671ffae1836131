//! Image files as CRIU asks for them, while the last of them still come.
//!
//! ```text
//! stream ──► Arrival ──► files in memory ──► Serving ──► CRIU's pipes
//!               └── bytes of a file that CRIU reads already ──► its pipe
//! ```
//!
//! Processes are made while their memory is on its way, and it is not kept
//! here in between. What does not come is not there for CRIU either: it gives
//! up, and nothing of the guest runs. Nor does it where [`Serving::failure`] says
//! so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use memmap2::MmapMut;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::pipe::{IoSliceRaw, SpliceFlags, splice, vmsplice};

use crate::image::number_in;
use crate::memory::Memory;
use crate::socket::{next_request, receive_pipe, reply};

const SOCKET: &str = "streamer-serve.sock";

/// Who connects here says that CRIU may read: the guest's files are laid.
const LAID: &str = "files-laid.sock";

/// What an empty pipe of the usual size takes at once.
const FITS: u64 = 64 << 10;

/// What is lent to a pipe at once.
const PIECE: usize = 128 << 10;

static ZEROES: [u8; PIECE] = [0; PIECE];

/// Is there somebody who hands out this directory's files?
pub(crate) fn is_served(memory: &Memory) -> bool {
    memory.has(SOCKET)
}

/// Lets CRIU go on.
pub(crate) fn let_read(memory: &Memory) -> io::Result<()> {
    UnixStream::connect(format!("{}/{LAID}", memory.path())).map(drop)
}

/// The files of which bytes still come, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct IncomingFiles(Arc<Mutex<BTreeMap<String, Arc<IncomingFile>>>>);

/// A file of which bytes still come.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    name: String,
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the file.
    bytes: u64,
    ended: bool,
    reader: Reader,
}

/// Who gets what comes instead of the file.
#[derive(Debug, Default)]
enum Reader {
    #[default]
    Nobody,
    Here(Loan),
    /// The reader has ended, and says itself why.
    Gone,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IncomingFiles {
    pub(crate) fn open(&self, name: &str, file: File) -> Arc<IncomingFile> {
        let name = name.to_owned();
        let coming = Arc::new(IncomingFile { name: name.clone(), file, state: Mutex::default() });
        lock(&self.0).insert(name, Arc::clone(&coming));
        coming
    }

    /// No more of it will come.
    pub(crate) fn close(&self, coming: &Arc<IncomingFile>) {
        coming.end();
        lock(&self.0).retain(|_, other| !Arc::ptr_eq(other, coming));
    }

    /// No more of any of them will come.
    pub(crate) fn close_all(&self) {
        lock(&self.0).values().for_each(|coming| coming.end());
    }

    fn find(&self, name: &str) -> Option<Arc<IncomingFile>> {
        lock(&self.0).get(name).cloned()
    }
}

impl IncomingFile {
    /// Is it some process's memory? All else is to be made this place's before
    /// CRIU sees it.
    pub(crate) fn is_memory(&self) -> bool {
        number_in::<u64>(&self.name, "pages-").is_some()
    }

    /// The next bytes.
    pub(crate) fn put(&self, bytes: &mut [IoSlice<'_>]) -> io::Result<()> {
        let State { bytes: kept, reader, .. } = &mut *lock(&self.state);
        match reader {
            Reader::Nobody => keep(&self.file, kept, bytes),
            Reader::Here(loan) => {
                let lent = bytes.iter().try_for_each(|bytes| loan.put(bytes));
                reader.unless_gone(lent)
            }
            Reader::Gone => Ok(()),
        }
    }

    /// So many zeroes come next.
    pub(crate) fn put_zeroes(&self, mut count: u64) -> io::Result<()> {
        let State { bytes: kept, reader, .. } = &mut *lock(&self.state);
        match reader {
            Reader::Nobody => {
                *kept += count;
                self.file.set_len(*kept)
            }
            Reader::Here(loan) => {
                let mut lent = Ok(());
                while count > 0 && lent.is_ok() {
                    let some = ZEROES.len().min(usize::try_from(count).unwrap_or(usize::MAX));
                    lent = loan.put(&ZEROES[..some]);
                    count -= some as u64;
                }
                reader.unless_gone(lent)
            }
            Reader::Gone => Ok(()),
        }
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        // The pipe's end is the file's. Who is gone misses nothing.
        if let Reader::Here(mut loan) = std::mem::take(&mut state.reader) {
            let _ = loan.lend();
        }
    }

    /// Gives what is there, and then lets what comes be given at once.
    fn give(&self, kept: &File, pipe: File) -> io::Result<()> {
        let mut given = 0;
        loop {
            let mut state = lock(&self.state);
            if !matches!(state.reader, Reader::Nobody) {
                return Err(io::Error::other("it was asked for before"));
            }
            let there = state.bytes;
            if there == given {
                if !state.ended {
                    state.reader = Reader::Here(Loan::new(pipe)?);
                }
                return Ok(());
            }
            drop(state);
            give_pages(kept, &mut given, there, &pipe)?;
        }
    }
}

impl Reader {
    fn unless_gone(&mut self, lent: io::Result<()>) -> io::Result<()> {
        match lent {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                *self = Self::Gone;
                Ok(())
            }
            done => done,
        }
    }
}

/// A pipe, and memory that is lent to it: writer and reader of a pipe keep each
/// other out while they copy, and here only the reader does.
#[derive(Debug)]
struct Loan {
    pipe: File,
    /// Lent in turn. There are more of them than the pipe has place for, so the
    /// next is always one that has been read.
    pieces: Vec<MmapMut>,
    next: usize,
    filled: usize,
}

impl Loan {
    fn new(pipe: File) -> io::Result<Self> {
        let count = rustix::pipe::fcntl_getpipe_size(&pipe)? / PIECE + 2;
        let pieces = (0..count).map(|_| MmapMut::map_anon(PIECE)).collect::<io::Result<_>>()?;
        Ok(Self { pipe, pieces, next: 0, filled: 0 })
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = &mut self.pieces[self.next][self.filled..];
            let (some, rest) = bytes.split_at(bytes.len().min(room.len()));
            room[..some.len()].copy_from_slice(some);
            self.filled += some.len();
            bytes = rest;
            // Whole ones only, but for the last: that is what the count rests on.
            if self.filled == PIECE {
                self.lend()?;
            }
        }
        Ok(())
    }

    /// Lends what is filled.
    #[expect(unsafe_code, reason = "memory is shared with whoever reads the pipe")]
    fn lend(&mut self) -> io::Result<()> {
        let mut lent = 0;
        while lent < self.filled {
            let piece = &self.pieces[self.next][lent..self.filled];
            let slices = [IoSliceRaw::from_slice(piece)];
            // SAFETY: the piece is not written to before all of it was read, or
            // else unmapped, which leaves its pages to the pipe.
            match unsafe { vmsplice(&self.pipe, &slices, SpliceFlags::empty()) } {
                Ok(taken) => lent += taken,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.next = (self.next + 1) % self.pieces.len();
        self.filled = 0;
        Ok(())
    }
}

/// Writes at a file's end, which is `kept`.
fn keep(file: &File, kept: &mut u64, mut bytes: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwritev(file, bytes, *kept) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                *kept += written as u64;
                IoSlice::advance_slices(&mut bytes, written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Puts a file's pages into a pipe as they are, up to a length that it has.
fn give_pages(file: &File, given: &mut u64, there: u64, pipe: &File) -> io::Result<()> {
    while *given < there {
        let more = usize::try_from(there - *given).unwrap_or(usize::MAX);
        match splice(file, Some(given), pipe, None, more, SpliceFlags::empty()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// As long as it is held, CRIU can come for its files, once.
#[derive(Debug)]
pub struct Serving {
    listeners: [UnixListener; 2],
    failure: Failure,
}

/// Why a file was not given as it is, if one was not: CRIU does not notice all of
/// that.
#[derive(Clone, Debug, Default)]
struct Failure(Arc<OnceLock<String>>);

impl Failure {
    /// Who reads may go at any time, and says itself why.
    fn note(&self, name: &str, done: io::Result<()>) {
        if let Err(error) = done
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = self.0.set(format!("cannot hand {name} to criu: {error}"));
        }
    }

    /// Gives a file in a thread of its own.
    fn give_apart(&self, name: &str, give: impl FnOnce() -> io::Result<()> + Send + 'static) {
        let (failure, of) = (self.clone(), name.to_owned());
        let thread = thread::Builder::new().name("image".into());
        let spawned = thread.spawn(move || failure.note(&of, give()));
        self.note(name, spawned.map(drop));
    }
}

impl Serving {
    pub(crate) fn start(memory: &Arc<Memory>, incoming: &IncomingFiles) -> io::Result<Self> {
        let (laid, engine) = (memory.listen(LAID)?, memory.listen(SOCKET)?);
        let listeners = [laid.try_clone()?, engine.try_clone()?];
        let failure = Failure::default();
        let (memory, incoming, told) = (Arc::clone(memory), incoming.clone(), failure.clone());
        // The thread ends with CRIU, or when nobody comes any more.
        thread::Builder::new().name("images".into()).spawn(move || {
            // Who does not come wants nothing.
            let came = || Some((engine.accept().ok()?.0, laid.accept().ok()?));
            if let Some((control, _)) = came() {
                told.note("its image", serve(&control, &memory, &incoming, &told));
            }
        })?;
        Ok(Self { listeners, failure })
    }

    /// Why what has landed must not go on, if it must not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.0.get().map(String::as_str)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for listener in &self.listeners {
            let _ = shutdown(listener, Shutdown::Both);
        }
    }
}

fn serve(
    control: &UnixStream,
    memory: &Memory,
    incoming: &IncomingFiles,
    failure: &Failure,
) -> io::Result<()> {
    while let Some(name) = next_request(control)? {
        let coming = incoming.find(&name);
        let file = match memory.open(&name) {
            // Many are there only where there is something to say.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                reply(control, false)?;
                continue;
            }
            file => file?,
        };
        reply(control, true)?;
        let pipe = receive_pipe(control)?;
        let bytes = file.metadata()?.len();
        match coming {
            Some(coming) => failure.give_apart(&name, move || coming.give(&file, pipe)),
            None if bytes <= FITS => failure.note(&name, give_pages(&file, &mut 0, bytes, &pipe)),
            // CRIU may ask for another before it has read this one.
            None => {
                failure.give_apart(&name, move || give_pages(&file, &mut 0, bytes, &pipe));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
