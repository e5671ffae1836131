//! CRIU's images, taken from it while it writes them.
//!
//! CRIU asks for each image file on a socket and gets rid of it through a
//! pipe: `--stream`, made for criu-image-streamer, whose part we play. Pages go
//! from the frozen guest into those pipes without being copied; here they are
//! copied once, into the chunk that is sent.
//!
//! Source: CRIU 4.1, `criu/img-streamer.c`, `images/img-streamer.proto`.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use gleaner_shell::pool::Pool;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::memory::Memory;
use crate::pack::{Outlet, Packer};
use crate::stream::{CHUNK, is_image_name};
use crate::wire::{Value, fields};

const SOCKET: &str = "streamer-capture.sock";

/// The longest request: a file's name.
const REQUEST_BYTES_MAX: usize = 256;

/// What is read at once: stays in a core's own cache until it is sent.
pub(crate) const AT_ONCE: usize = 256 << 10;

/// How many of those may be on their way and are used again: what the link has
/// place for ([`gleaner_shell::endpoint`]), and what waits for it.
const ON_THEIR_WAY: usize = 48;

/// Where CRIU comes to with its images.
#[derive(Debug)]
pub(crate) struct Capture(UnixListener);

impl Capture {
    pub(crate) fn listen(memory: &Memory) -> io::Result<Self> {
        let listener = UnixListener::bind(format!("{}/{SOCKET}", memory.path()))?;
        Ok(Self(listener))
    }

    /// Passes on all that comes, until CRIU has written everything or is gone.
    pub(crate) fn run<W: Outlet>(
        self,
        engine: BorrowedFd<'_>,
        packer: &mut Packer<W>,
    ) -> io::Result<()> {
        let Some(control) = self.accept(engine)? else { return Ok(()) };
        Run { control: Some(control), files: vec![], buffers: Pool::new(AT_ONCE, ON_THEIR_WAY) }
            .run(packer)
    }

    /// `None` if CRIU ends without a word.
    fn accept(&self, engine: BorrowedFd<'_>) -> io::Result<Option<UnixStream>> {
        loop {
            let mut fds = [
                PollFd::new(&self.0, PollFlags::IN),
                PollFd::from_borrowed_fd(engine, PollFlags::IN),
            ];
            wait(&mut fds)?;
            if !fds[0].revents().is_empty() {
                return self.0.accept().map(|(control, _)| Some(control));
            }
            if !fds[1].revents().is_empty() {
                return Ok(None);
            }
        }
    }
}

struct Run {
    /// Until CRIU says that there are no more files.
    control: Option<UnixStream>,
    /// By number; those that are complete are gone.
    files: Vec<Option<File>>,
    buffers: Pool,
}

impl Run {
    fn run<W: Outlet>(mut self, packer: &mut Packer<W>) -> io::Result<()> {
        loop {
            let (asked, ready) = self.wait()?;
            if asked {
                self.take_request(packer)?;
            }
            for number in ready {
                self.pass_on(number, packer)?;
            }
            if self.control.is_none() && self.files.iter().all(Option::is_none) {
                return Ok(());
            }
        }
    }

    /// Is there a request, and which files have bytes?
    fn wait(&self) -> io::Result<(bool, Vec<usize>)> {
        let open: Vec<(usize, &File)> = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(number, file)| Some((number, file.as_ref()?)))
            .collect();
        let mut fds: Vec<PollFd<'_>> = self
            .control
            .iter()
            .map(AsFd::as_fd)
            .chain(open.iter().map(|(_, file)| file.as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        wait(&mut fds)?;
        let mut spoken = fds.iter().map(|fd| !fd.revents().is_empty());
        let asked = self.control.is_some() && spoken.next() == Some(true);
        let ready = open.iter().zip(spoken).filter(|(_, spoken)| *spoken);
        Ok((asked, ready.map(|((number, _), _)| *number).collect()))
    }

    fn take_request<W: Outlet>(&mut self, packer: &mut Packer<W>) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let mut size = [0; 4];
        match control.read_exact(&mut size) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.control = None;
                return Ok(());
            }
            done => done?,
        }
        let size = u32::from_le_bytes(size) as usize;
        let mut message = vec![0; size.min(REQUEST_BYTES_MAX)];
        control.read_exact(&mut message)?;
        let confused = || io::Error::other("criu asks for what is no image file");
        let name = fields(&message)
            .map_err(|_| confused())?
            .into_iter()
            .find_map(|field| match field {
                (1, Value::Bytes(name)) => std::str::from_utf8(name).ok(),
                _ => None,
            })
            .filter(|name| is_image_name(name) && size <= REQUEST_BYTES_MAX)
            .ok_or_else(confused)?;
        let pipe = File::from(receive_pipe(control)?);
        // Fewer turns for the big ones; what the kernel refuses is no loss.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, CHUNK);
        // Files are numbered as they come, here as in the stream.
        packer.open(name)?;
        self.files.push(Some(pipe));
        Ok(())
    }

    /// Takes what a pipe holds, at most so much.
    fn pass_on<W: Outlet>(&mut self, number: usize, packer: &mut Packer<W>) -> io::Result<()> {
        let Some(Some(file)) = self.files.get_mut(number) else { return Ok(()) };
        let name = u16::try_from(number).map_err(io::Error::other)?;
        let mut buffer = self.buffers.take();
        match file.read(&mut buffer) {
            Ok(0) => {
                self.files[number] = None;
                packer.close(name)
            }
            Ok(length) => packer.shared_data(name, &buffer.filled(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The pipe comes with one byte that means nothing.
fn receive_pipe(control: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        control,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    ancillary
        .drain()
        .find_map(|message| {
            let RecvAncillaryMessage::ScmRights(mut fds) = message else { return None };
            fds.next()
        })
        .ok_or_else(|| io::Error::other("criu sends no pipe with its request"))
}

fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(fds, None) {
            Err(Errno::INTR) => {}
            done => return Ok(done.map(|_| ())?),
        }
    }
}
