//! The proof that this machine can: a small guest is started, written down,
//! and brought to life in another place, where it must go on.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_shell::clock::Clock;
use rustix::event::{PollFd, PollFlags, poll};

use crate::dump::{Dump, DumpError};
use crate::engine::Engine;
use crate::fingerprint::{Fingerprint, of_this_machine};
use crate::guest::Guest;
use crate::image::Terms;
use crate::knowledge::LearnError;
use crate::sink::{AdaptError, Arrival, ArrivalError, Image};
use crate::stage::Stage;
use crate::ward::{Errand, Plot, Ward, WardError};

/// How long the guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Much more than a shell has.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Why nothing can be moved here.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    Learn(#[from] LearnError),
    #[error("cannot make room")]
    Room(#[source] io::Error),
    #[error("a guest cannot be started: {0}")]
    Ward(#[from] WardError),
    #[error("a guest cannot be written down: {0}")]
    Dump(#[from] DumpError),
    #[error("an image does not arrive: {0}")]
    Arrival(#[from] ArrivalError),
    #[error("an image cannot be made this place's: {0}")]
    Adapt(#[from] AdaptError),
    #[error("a moved guest does not go on")]
    Silent,
}

/// Where moves are tried.
#[derive(Clone, Debug)]
pub struct Site {
    pub engine: Engine,
    pub fingerprint: Fingerprint,
    pub knowledge: Vec<u8>,
    /// A version 2 control group that is ours to make others in.
    pub groups: PathBuf,
    /// A directory that is ours to make others in.
    pub home: PathBuf,
    /// What guests may read.
    pub readable: Vec<PathBuf>,
    /// The first of the places' users.
    pub uid_base: u32,
}

impl Site {
    /// # Errors
    /// Not root, or CRIU lacks something of this kernel.
    pub fn new(engine: Engine, groups: &Path, home: &Path) -> Result<Self, LearnError> {
        let readable = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].map(PathBuf::from);
        Ok(Self {
            fingerprint: of_this_machine(&engine),
            knowledge: engine.learn()?,
            engine,
            groups: groups.to_path_buf(),
            home: home.to_path_buf(),
            readable: readable.into(),
            uid_base: 71_000,
        })
    }

    /// A place's plot, with its ground laid.
    ///
    /// # Errors
    /// The directories cannot be made.
    pub fn plot(&self, place: u32) -> io::Result<Plot> {
        let uid = self.uid_base + place;
        let ground = self.home.join(format!("p{place}"));
        for directory in [&ground, &ground.join("work")] {
            fs::create_dir_all(directory)?;
            chown(directory, Some(uid), Some(uid))?;
        }
        let stderr = ground.join("stderr");
        fs::write(&stderr, "")?;
        chown(&stderr, Some(uid), Some(uid))?;
        Ok(Plot {
            group: self.groups.join(format!("p{place}")),
            uid,
            stage: Stage {
                readable: self.readable.clone(),
                writable: vec![],
                ground,
                scratch_bytes_max: 64 << 20,
                knowledge: self.knowledge.clone(),
            },
            file_bytes_max: 1 << 30,
        })
    }

    /// Starts a guest that is to move.
    ///
    /// # Errors
    /// A layer of containment cannot be had.
    pub fn start(&self, place: u32, command: &[&str]) -> Result<Subject, TrialError> {
        let plot = self.plot(place).map_err(TrialError::Room)?;
        let (ends, pipes) = Ends::new().map_err(TrialError::Room)?;
        let stage = [ends[0].as_fd(), ends[1].as_fd()];
        let ward = Ward::open(&plot, &Errand::Start { command, stage })?;
        Ok(Subject { ward, pipes })
    }

    /// Lands an image at another place; it stands still there.
    ///
    /// # Errors
    /// It cannot be restored; nothing of it runs then.
    pub fn land(&self, image: &Image, berth: Berth) -> Result<Subject, TrialError> {
        let stopped = image.adapt(&self.terms(berth.place))?;
        berth.land(&stopped)
    }

    /// What holds for guests at a place.
    pub fn terms(&self, place: u32) -> Terms {
        let uid = self.uid_base + place;
        Terms { uid, gid: uid, limits: Terms::own_limits() }
    }

    /// Makes a place ready for an image that is on its way.
    ///
    /// # Errors
    /// A layer of containment cannot be had.
    pub fn berth(&self, place: u32, arrival: &Arrival) -> Result<Berth, TrialError> {
        let header = arrival.header().ok_or(ArrivalError::Short)?;
        self.berth_for(place, header, arrival.memory())
    }

    /// The same, for an image that lies there already.
    ///
    /// # Errors
    /// A layer of containment cannot be had.
    pub fn berth_for(
        &self,
        place: u32,
        header: &crate::stream::Header,
        memory: &crate::memory::Memory,
    ) -> Result<Berth, TrialError> {
        let plot = self.plot(place).map_err(TrialError::Room)?;
        let (ends, pipes) = Ends::new().map_err(TrialError::Room)?;
        let mut plugs = vec![];
        for plug in &header.plugs {
            // An empty pipe of the usual size takes what one has held.
            (&pipes.to_guest).write_all(&plug.unread).map_err(TrialError::Room)?;
            plugs.push(ends[usize::from(plug.fd != 0)].as_fd());
        }
        let errand = Errand::Land { engine: &self.engine, memory, header, plugs: &plugs };
        let ward = Ward::open(&plot, &errand)?;
        Ok(Berth { subject: Subject { ward, pipes }, place })
    }
}

/// A place that is ready for a guest on its way.
#[derive(Debug)]
pub struct Berth {
    subject: Subject,
    place: u32,
}

impl Berth {
    /// Lands what is known of a guest, served and adapted; the rest may still
    /// be on its way.
    ///
    /// # Errors
    /// It cannot be restored; nothing of it runs then.
    pub fn land(self, stopped: &[i32]) -> Result<Subject, TrialError> {
        self.subject.ward.land(stopped)?;
        Ok(self.subject)
    }
}

/// Our ends of a guest's two pipes.
#[derive(Debug)]
pub struct Ends {
    pub to_guest: File,
    pub from_guest: File,
}

impl Ends {
    /// The guest's ends (to read, to write) and ours.
    fn new() -> io::Result<([OwnedFd; 2], Self)> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (reads, to_guest) = pipe()?;
        let (from_guest, writes) = pipe()?;
        let ours = Self { to_guest: to_guest.into(), from_guest: from_guest.into() };
        Ok(([reads, writes], ours))
    }
}

/// A guest under trial.
#[derive(Debug)]
pub struct Subject {
    pub ward: Ward,
    pub pipes: Ends,
}

impl Subject {
    /// For [`Dump::start`].
    pub fn guest(&self) -> Guest {
        Guest {
            group: self.ward.group().to_path_buf(),
            keeper: self.ward.keeper(),
            root: self.ward.root().unwrap_or(0),
            plugs: self.plugs(),
            left_out: vec![],
        }
    }

    /// A program may have put other things in the pipes' places.
    fn plugs(&self) -> Vec<i32> {
        let root = self.ward.root().unwrap_or(0);
        let is_pipe = |fd: &i32| {
            std::fs::read_link(format!("/proc/{root}/fd/{fd}"))
                .is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"))
        };
        [0, 1].into_iter().filter(is_pipe).collect()
    }

    /// Writes a line to the guest.
    ///
    /// # Errors
    /// It has gone.
    pub fn say(&self, line: &str) -> Result<(), TrialError> {
        (&self.pipes.to_guest)
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|_| TrialError::Silent)
    }

    /// The next line that it writes.
    ///
    /// # Errors
    /// None comes in time.
    pub fn hear(&self) -> Result<String, TrialError> {
        let mut line = vec![];
        loop {
            let mut byte = [0];
            self.read(&mut byte)?;
            match byte {
                [b'\n'] => return Ok(String::from_utf8_lossy(&line).into_owned()),
                [byte] => line.push(byte),
            }
        }
    }

    /// Some of what it writes.
    ///
    /// # Errors
    /// Nothing comes in time.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, TrialError> {
        let timeout =
            rustix::time::Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.pipes.from_guest, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(1..) => match (&self.pipes.from_guest).read(bytes) {
                Ok(length) if length > 0 => Ok(length),
                Ok(_) | Err(_) => Err(TrialError::Silent),
            },
            Ok(0) | Err(_) => Err(TrialError::Silent),
        }
    }
}

/// How a trial went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// From the freeze to the first word from the other place.
    pub moving: Duration,
    pub image_bytes: u64,
}

/// Moves a small guest from one place to another on this machine. Call it from
/// the main thread: its keepers end with the thread.
///
/// # Errors
/// The step that fails.
pub fn trial(site: &Site) -> Result<Tried, TrialError> {
    let subject = site.start(0, &["/bin/cat"])?;
    subject.say("here")?;
    subject.hear()?;
    let begin = Clock.now();
    let dump = Dump::start(&site.engine, &site.fingerprint, &subject.guest())?;
    let mut arrival = Arrival::new(IMAGE_BYTES_MAX)?;
    dump.run(&mut arrival)?;
    let serving = arrival.serve().map_err(TrialError::Room)?;
    let berth = site.berth(1, &arrival)?;
    let stopped = arrival.adapt(&site.terms(1))?;
    let image = arrival.finish()?;
    let moved = berth.land(&stopped)?;
    drop((serving, subject));
    moved.ward.resume()?;
    moved.say("there")?;
    let heard = moved.hear()?;
    let moving = Clock.now().since(begin);
    if heard == "there" {
        Ok(Tried { moving, image_bytes: image.bytes() })
    } else {
        Err(TrialError::Silent)
    }
}
