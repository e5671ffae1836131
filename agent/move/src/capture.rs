//! CRIU's images, taken from it while it writes them.
//!
//! CRIU asks for each image file on a socket and gets rid of it through a pipe
//! ([`crate::socket`]). What is in them is copied once, into the chunk that is
//! sent; the memory of its processes, which is most of it, is let go by but for
//! the first of it ([`crate::pages`] reads it afterwards).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use gleaner_shell::pool::Pool;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::image::number_in;
use crate::memory::Memory;
use crate::pack::{Outlet, Packer};
use crate::pages::{self, Stretch, read_map};
use crate::socket::{next_request, receive_pipe};
use crate::stream::CHUNK;

const SOCKET: &str = "streamer-capture.sock";

/// What is read at once: stays in a core's own cache until it is sent.
pub(crate) const AT_ONCE: usize = 256 << 10;

/// How many of those may be on their way and are used again: what the link has
/// place for ([`gleaner_shell::endpoint`]), and what waits for it.
const ON_THEIR_WAY: usize = 48;

/// Memory that goes out while CRIU still writes: the link takes it without
/// making CRIU wait, fast or slow (its window, and what waits for it).
const EARLY_BYTES_MAX: u64 = 8 << 20;

/// The buffers of one image.
pub(crate) fn buffers() -> Pool {
    Pool::new(AT_ONCE, ON_THEIR_WAY)
}

/// A file that is open still: its bytes are in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) file: u16,
    /// As its own namespace counts.
    pub(crate) process: i32,
    /// What was not sent yet.
    pub(crate) stretches: VecDeque<Stretch>,
}

/// Where CRIU comes to with its images.
#[derive(Debug)]
pub(crate) struct Capture(UnixListener);

impl Capture {
    pub(crate) fn listen(memory: &Memory) -> io::Result<Self> {
        let listener = UnixListener::bind(format!("{}/{SOCKET}", memory.path()))?;
        Ok(Self(listener))
    }

    /// Passes on all that comes but its processes' memory, until CRIU has
    /// written everything or is gone. What is left to be sent is returned.
    pub(crate) fn run<W: Outlet>(
        self,
        engine: BorrowedFd<'_>,
        packer: &mut Packer<W>,
        buffers: &Pool,
    ) -> io::Result<Vec<Left>> {
        let Some(control) = self.accept(engine)? else { return Ok(vec![]) };
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        let (files, maps) = (vec![], vec![]);
        Run { control: Some(control), files, buffers, nowhere, maps, early: 0 }.run(packer)
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

struct Run<'a> {
    /// Until CRIU says that there are no more files.
    control: Option<UnixStream>,
    /// By number; those that are complete are gone.
    files: Vec<Option<Coming>>,
    buffers: &'a Pool,
    /// Where memory goes by to.
    nowhere: File,
    maps: Vec<Map>,
    /// How much memory has gone out.
    early: u64,
}

struct Coming {
    pipe: File,
    what: What,
}

/// What is done with a file's bytes.
#[derive(Clone, Copy)]
enum What {
    PassOn,
    /// They are passed on, and kept in the map of that number.
    Keep(usize),
    /// They are what the map of that number says. The first are passed on.
    Memory(usize),
}

/// Which pages a process has.
struct Map {
    process: i32,
    image: Vec<u8>,
    /// The file with the pages: its number, and how CRIU calls it.
    pages: Option<(u16, u64)>,
    passed_on: u64,
    gone_by: u64,
}

impl Map {
    fn left(self) -> io::Result<Option<Left>> {
        let Some((file, name)) = self.pages else { return Ok(None) };
        let odd = || io::Error::other(format!("criu's map of process {} is odd", self.process));
        let (wanted, mut stretches) = read_map(&self.image).map_err(|_| odd())?;
        let bytes = stretches.iter().map(|stretch| stretch.bytes).sum::<u64>();
        if wanted != name || bytes != self.passed_on + self.gone_by {
            return Err(odd());
        }
        pages::skip(&mut stretches, self.passed_on);
        Ok(Some(Left { file, process: self.process, stretches }))
    }
}

impl Run<'_> {
    fn run<W: Outlet>(mut self, packer: &mut Packer<W>) -> io::Result<Vec<Left>> {
        loop {
            let (asked, ready) = self.wait()?;
            if asked {
                self.take_request(packer)?;
            }
            for number in ready {
                self.take_bytes(number, packer)?;
            }
            if self.control.is_none() && self.files.iter().all(Option::is_none) {
                return self.maps.into_iter().filter_map(|map| map.left().transpose()).collect();
            }
        }
    }

    /// Is there a request, and which files have bytes?
    fn wait(&self) -> io::Result<(bool, Vec<usize>)> {
        let open: Vec<(usize, &File)> = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(number, file)| Some((number, &file.as_ref()?.pipe)))
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
        let Some(control) = &self.control else { return Ok(()) };
        let Some(name) = next_request(control)? else {
            self.control = None;
            return Ok(());
        };
        let pipe = receive_pipe(control)?;
        // Files are numbered as they come, here as in the stream.
        let file = packer.open(&name)?;
        let what = self.what(&name, file);
        self.files.push(Some(Coming { pipe, what }));
        Ok(())
    }

    /// A process's map comes just before its pages. Others speak of memory that
    /// is no process's alone.
    fn what(&mut self, name: &str, file: u16) -> What {
        if let Some(process) = number_in(name, "pagemap-") {
            self.maps.push(Map { process, image: vec![], pages: None, passed_on: 0, gone_by: 0 });
            return What::Keep(self.maps.len() - 1);
        }
        let before = self.files.last().and_then(Option::as_ref);
        let map = before.and_then(|before| match before.what {
            What::Keep(map) => Some(map),
            What::PassOn | What::Memory(_) => None,
        });
        let (Some(map), Some(pages)) = (map, number_in(name, "pages-")) else {
            return What::PassOn;
        };
        self.maps[map].pages = Some((file, pages));
        What::Memory(map)
    }

    /// Takes what a pipe holds, at most so much.
    fn take_bytes<W: Outlet>(&mut self, number: usize, packer: &mut Packer<W>) -> io::Result<()> {
        let Some(Some(Coming { pipe, what })) = self.files.get_mut(number) else { return Ok(()) };
        let what = *what;
        if let What::Memory(map) = what
            && self.early >= EARLY_BYTES_MAX
        {
            let gone = splice(&*pipe, None, &self.nowhere, None, CHUNK, SpliceFlags::empty());
            match gone {
                Ok(0) => self.files[number] = None,
                Ok(length) => self.maps[map].gone_by += length as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
        let mut buffer = self.buffers.take();
        let length = match pipe.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        let name = u16::try_from(number).map_err(io::Error::other)?;
        if length == 0 {
            self.files[number] = None;
            // More of its memory may be to come.
            return if matches!(what, What::Memory(_)) { Ok(()) } else { packer.close(name) };
        }
        match what {
            What::PassOn => {}
            What::Keep(map) => self.maps[map].image.extend_from_slice(&buffer[..length]),
            What::Memory(map) => {
                self.maps[map].passed_on += length as u64;
                self.early += length as u64;
            }
        }
        packer.shared_data(name, &buffer.filled(length))
    }
}

fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(fds, None) {
            Err(Errno::INTR) => {}
            done => return Ok(done.map(|_| ())?),
        }
    }
}
