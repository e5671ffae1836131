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
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;
use gleaner_shell::pool::Pool;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::image::number_in;
use crate::memory::Memory;
use crate::pack::{Outlet, Packer};
use crate::pages::{self, Area, read_map};
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

/// How long it may be silent while memory goes by; who listens gives up after
/// 30 s.
const SPEAKS_EVERY: Duration = Duration::from_secs(3);

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
    pub(crate) areas: VecDeque<Area>,
}

/// Where CRIU comes to with its images.
#[derive(Debug)]
pub(crate) struct Capture(UnixListener);

impl Capture {
    pub(crate) fn listen(memory: &Memory) -> io::Result<Self> {
        memory.listen(SOCKET).map(Self)
    }

    /// Passes on all that comes but its processes' memory, until CRIU has
    /// written everything or is gone. What that says of the memory is returned.
    pub(crate) fn run<W: Outlet>(
        self,
        engine: BorrowedFd<'_>,
        packer: &mut Packer<W>,
        buffers: &Pool,
    ) -> io::Result<Vec<Map>> {
        let Some(control) = self.accept(engine)? else { return Ok(vec![]) };
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        let (files, maps) = (vec![], vec![]);
        let spoken = Clock.now();
        Run { control: Some(control), files, buffers, nowhere, maps, spoken }.run(packer)
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
    /// When something went out while memory went by.
    spoken: Moment,
}

struct Coming {
    pipe: File,
    what: What,
}

/// What is done with a file's bytes.
#[derive(Clone, Copy)]
enum What {
    PassOn,
    /// The bytes are passed on, and kept in the map of that number.
    Keep(usize),
    /// The bytes are what the map of that number says. The first are passed on.
    Memory(usize),
}

/// Which pages a process has, as CRIU says.
#[derive(Debug)]
pub(crate) struct Map {
    process: i32,
    image: Vec<u8>,
    /// The file with the pages: its number, and how CRIU calls it.
    pages: Option<(u16, u64)>,
    passed_on: u64,
    gone_by: u64,
}

impl Map {
    /// What is left to be sent, of a CRIU that has done its work.
    ///
    /// # Errors
    /// The map does not fit what CRIU has written.
    pub(crate) fn left(self) -> io::Result<Option<Left>> {
        let Some((file, name)) = self.pages else { return Ok(None) };
        let odd = || io::Error::other(format!("criu's map of process {} is odd", self.process));
        let (wanted, mut areas) = read_map(&self.image).map_err(|_| odd())?;
        let bytes = areas.iter().map(|area| area.bytes).sum::<u64>();
        if wanted != name || bytes != self.passed_on + self.gone_by {
            return Err(odd());
        }
        pages::skip(&mut areas, self.passed_on);
        Ok(Some(Left { file, process: self.process, areas }))
    }
}

impl Run<'_> {
    fn run<W: Outlet>(mut self, packer: &mut Packer<W>) -> io::Result<Vec<Map>> {
        loop {
            let (asked, ready) = self.wait()?;
            if asked {
                self.take_request(packer)?;
            }
            for number in ready {
                self.take_bytes(number, packer)?;
            }
            if self.control.is_none() && self.files.iter().all(Option::is_none) {
                return Ok(self.maps);
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
            && self.maps.iter().map(|map| map.passed_on).sum::<u64>() >= EARLY_BYTES_MAX
        {
            let gone = splice(&*pipe, None, &self.nowhere, None, CHUNK, SpliceFlags::empty());
            if Clock.now().since(self.spoken) >= SPEAKS_EVERY {
                self.spoken = Clock.now();
                packer.breathe(u16::try_from(number).map_err(io::Error::other)?)?;
            }
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
            What::Memory(map) => self.maps[map].passed_on += length as u64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Value, put};

    /// A process's map of so many pages from 16 pages on, in `pages-1.img`.
    fn map(pages: u64, passed_on: u64, gone_by: u64) -> Map {
        let mut image = vec![0; 8];
        for entry in [&[(1, 1)][..], &[(1, 16 * 4_096), (2, pages)]] {
            let mut message = vec![];
            for (number, value) in entry {
                put(&mut message, *number, Value::Varint(*value));
            }
            image.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
            image.extend_from_slice(&message);
        }
        Map { process: 7, image, pages: Some((4, 1)), passed_on, gone_by }
    }

    #[test]
    fn what_went_by_is_left_to_be_sent() {
        let left = map(3, 4_096, 2 * 4_096).left().unwrap().unwrap();
        let areas = [Area { at: 17 * 4_096, bytes: 2 * 4_096 }].into();
        assert_eq!(left, Left { file: 4, process: 7, areas });
    }

    #[test]
    fn a_map_that_does_not_fit_what_was_written_is_refused() {
        assert!(map(3, 4_096, 4_096).left().is_err());
        let other = Map { pages: Some((4, 2)), ..map(1, 0, 4_096) };
        assert!(other.left().is_err());
        let none = Map { pages: None, ..map(0, 0, 0) };
        assert_eq!(none.left().unwrap(), None);
    }
}
