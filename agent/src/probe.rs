//! The proof that guests can be moved here: a small one is started by the
//! agent's own keeper, written down, and brought to life by another keeper,
//! where it must go on.
//!
//! What it proves holds for the process that asks, with its rights: the agent's
//! worker under its service's restrictions, and nobody with more.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId};
use gleaner_move::stage::GROUND;
use gleaner_move::{
    AdaptError, Arrival, ArrivalError, Dump, DumpError, Engine, Fingerprint, GuestProcess, Header,
    LearnError, Memory, Reach, Terms, of_this_machine,
};
use gleaner_shell::clock::Clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;

use crate::config::GuestsConfig;
use crate::container::cgroup::{CgroupError, PlaceGroup, Tree};
use crate::container::keeper::{
    Keeper, KeeperError, Landing, Order, Program, Report, Sandbox, StartGuest,
};
use crate::container::place_directories::{DirectoriesError, PlaceDirectories, WORK};
use crate::container::tree::clear;

/// How long any one step may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Much more than the small guest has.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Gives a program the pipes that a keeper hands over as its standard input and
/// output.
const WITH_PIPES: &str = "exec \"$@\" <&3 >&4 3<&- 4>&-";

const FENCE: Fence = Fence::of(1);

/// Why nothing can be moved here.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Learn(#[from] LearnError),
    #[error("cannot make room")]
    Room(#[from] io::Error),
    #[error(transparent)]
    Directories(#[from] DirectoriesError),
    #[error(transparent)]
    Group(#[from] CgroupError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error("a keeper says nothing for {} s", PATIENCE.as_secs())]
    NoReport,
    #[error("{0}")]
    CannotStart(String),
    #[error("a guest cannot be written down")]
    Dump(#[from] DumpError),
    #[error("an image does not arrive")]
    Arrival(#[from] ArrivalError),
    #[error("an image cannot be made this place's")]
    Adapt(#[from] AdaptError),
    #[error("a guest says nothing")]
    Silent,
}

/// How the probe went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// From the freeze to the first word from the other place.
    pub moving: Duration,
    pub image_bytes: u64,
}

/// Where moves are tried: in places of its own, which are gone with it.
#[derive(Debug)]
pub struct Probe {
    pub engine: Engine,
    pub fingerprint: Fingerprint,
    pub knowledge: Vec<u8>,
    /// What guests may read.
    pub readable: Vec<PathBuf>,
    guests: GuestsConfig,
    program: Program,
    tree: Tree,
    home: PathBuf,
}

impl Drop for Probe {
    fn drop(&mut self) {
        clear(&self.home);
        self.tree.remove_places();
    }
}

impl Probe {
    /// Nobody else has a place in `tree`, and `home` is the probe's alone.
    /// `program` is what keepers are started as.
    ///
    /// # Errors
    /// This process is not root, or CRIU lacks something of this kernel.
    pub fn new(
        engine: Engine,
        program: Program,
        guests: &GuestsConfig,
        tree: &Tree,
        home: PathBuf,
    ) -> Result<Self, ProbeError> {
        Ok(Self {
            fingerprint: of_this_machine(&engine),
            knowledge: engine.learn()?,
            engine,
            readable: guests.readable.clone(),
            guests: guests.clone(),
            program,
            tree: tree.clone(),
            home,
        })
    }

    /// Moves a small guest from one place to another. Call it from the main
    /// thread: keepers end with the thread that started them.
    ///
    /// # Errors
    /// The step that fails.
    pub fn run(&self) -> Result<Probed, ProbeError> {
        let mut old = self.start(0, &["/bin/cat"])?;
        let said = old.say("here").and_then(|()| old.hear());
        said.map_err(|silent| old.complaint().unwrap_or(silent))?;
        let begin = Clock.now();
        let dump = Dump::start(&self.engine, &self.fingerprint, &old.process())?;
        let mut arrival = Arrival::new(IMAGE_BYTES_MAX)?;
        dump.run(&mut arrival)?;
        let serving = arrival.serve()?;
        let header = arrival.header().ok_or(ArrivalError::Short)?;
        let expecting = self.expect(1, header, arrival.memory())?;
        let stopped = arrival.adapt(&self.terms(1))?;
        let image = arrival.finish()?;
        let new = expecting.land(&stopped)?;
        drop((serving, old));
        new.resume()?;
        new.say("there")?;
        new.hear()?;
        Ok(Probed { moving: Clock.now().since(begin), image_bytes: image.bytes() })
    }

    /// What holds for guests at a place.
    pub fn terms(&self, place: u16) -> Terms {
        let uid = self.uid(place);
        let reach = Reach { readable: self.readable.clone(), writable: vec![] };
        Terms { uid, gid: uid, limits: Terms::own_limits(), reach }
    }

    fn uid(&self, place: u16) -> u32 {
        self.guests.uid(PlaceId(place))
    }

    /// Starts a guest that can move, with pipes as its standard input and output.
    ///
    /// # Errors
    /// A layer of containment cannot be had.
    pub fn start(&self, place: u16, command: &[&str]) -> Result<ProbedGuest, ProbeError> {
        let ([reads, writes], pipes) = pipes()?;
        let mut guest = self.settle(place, pipes)?;
        let command = ["/bin/sh", "-c", WITH_PIPES, "sh"].iter().chain(command);
        let start = StartGuest {
            fence: FENCE,
            fresh: true,
            command: command.map(ToString::to_string).collect(),
            environment: vec![("PATH".into(), crate::container::keeper::PATH.into())],
            directory: PathBuf::from(GROUND).join(WORK),
            pipes: true,
            ..StartGuest::default()
        };
        let along = [reads.as_fd(), writes.as_fd()];
        guest.keeper.send_with(&Order::Start(Box::new(start)), &along)?;
        let report = guest.report()?;
        if matches!(report, Report::Began { .. }) { Ok(guest) } else { Err(unexpected(&report)) }
    }

    /// Makes a place ready for an image that is on its way.
    ///
    /// # Errors
    /// A layer of containment cannot be had.
    pub fn expect(
        &self,
        place: u16,
        header: &Header,
        memory: &Memory,
    ) -> Result<Expecting, ProbeError> {
        let (ends, pipes) = pipes()?;
        let (mut header, mut along) = (header.clone(), vec![memory.as_fd()]);
        for plug in &mut header.plugs {
            // An empty pipe of the usual size takes what one has held.
            (&pipes.to_guest).write_all(&std::mem::take(&mut plug.unread))?;
            along.push(ends[usize::from(plug.fd != 0)].as_fd());
        }
        let guest = self.settle(place, pipes)?;
        let landing = Landing { engine: self.engine.clone(), header };
        guest.keeper.send_with(&Order::Expect(Box::new(landing)), &along)?;
        Ok(Expecting(guest))
    }

    /// A place with its keeper.
    fn settle(&self, place: u16, pipes: Pipes) -> Result<ProbedGuest, ProbeError> {
        let uid = self.uid(place);
        let id = PlaceId(place);
        let directories = PlaceDirectories::prepare(&self.home, id, Some(uid))?;
        let group = self.tree.place(id)?;
        // The agent starts only once this is over.
        group.hurry(true);
        let sandbox = Sandbox {
            directory: directories.root().to_path_buf(),
            uid: Some(uid),
            keeper_uid: self.guests.uid_base,
            readable: self.readable.clone(),
            knowledge: Some(self.knowledge.clone()),
            ..Sandbox::default()
        };
        let (keeper, lacking) = Keeper::spawn(&self.program, Some(&group), true, sandbox)?;
        let mut guest = ProbedGuest { keeper, group, pipes };
        match (lacking, guest.report()?) {
            (None, Report::Ready { .. }) => Ok(guest),
            (Some(lacking), _) => Err(ProbeError::CannotStart(lacking)),
            (None, other) => Err(unexpected(&other)),
        }
    }
}

fn unexpected(report: &Report) -> ProbeError {
    ProbeError::CannotStart(match report {
        Report::CannotStart { why, .. } => why.clone(),
        Report::Ready { .. } | Report::Began { .. } | Report::Ended(_) | Report::Landed { .. } => {
            "the keeper is confused".into()
        }
    })
}

/// A place that is ready for a guest on its way.
#[derive(Debug)]
pub struct Expecting(ProbedGuest);

impl Expecting {
    /// Brings to life what is known of a guest, adapted to this place; it stands
    /// still. The rest of a guest that is served may still be on its way.
    ///
    /// # Errors
    /// The guest cannot be restored; nothing of it runs then.
    pub fn land(self, stopped: &[i32]) -> Result<ProbedGuest, ProbeError> {
        let Self(mut guest) = self;
        guest.keeper.send(&Order::Land { fence: FENCE, stopped: stopped.to_vec() })?;
        let report = guest.report()?;
        if matches!(report, Report::Landed { .. }) { Ok(guest) } else { Err(unexpected(&report)) }
    }
}

/// The probe's ends of a guest's two pipes.
#[derive(Debug)]
struct Pipes {
    to_guest: File,
    from_guest: File,
}

/// The guest's ends (to read, to write) and ours.
fn pipes() -> io::Result<([OwnedFd; 2], Pipes)> {
    let (reads, to_guest) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_guest, writes) = pipe_with(PipeFlags::CLOEXEC)?;
    let ours = Pipes { to_guest: to_guest.into(), from_guest: from_guest.into() };
    Ok(([reads, writes], ours))
}

/// A guest under trial. Dropping it kills it, frozen or not.
#[derive(Debug)]
pub struct ProbedGuest {
    keeper: Keeper,
    group: PlaceGroup,
    pipes: Pipes,
}

impl ProbedGuest {
    fn report(&mut self) -> Result<Report, ProbeError> {
        self.keeper.receive_within(PATIENCE)?.ok_or(ProbeError::NoReport)
    }

    /// Why it was not started, if its keeper says so.
    fn complaint(&mut self) -> Option<ProbeError> {
        self.keeper.receive().ok()?.as_ref().map(unexpected)
    }

    /// For [`Dump::start`].
    pub fn process(&self) -> GuestProcess {
        let root = self.keeper.first_process().unwrap_or(0);
        let is_pipe = |fd: &i32| {
            std::fs::read_link(format!("/proc/{root}/fd/{fd}"))
                .is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"))
        };
        GuestProcess {
            group: self.group.path().to_path_buf(),
            keeper: self.keeper.pid().as_raw_nonzero().get(),
            root,
            // A program may have put other things in the pipes' places.
            plugs: [0, 1].into_iter().filter(is_pipe).collect(),
            left_out: vec![],
        }
    }

    pub fn group(&self) -> &PlaceGroup {
        &self.group
    }

    /// Sets a landed guest going.
    ///
    /// # Errors
    /// The keeper is gone.
    pub fn resume(&self) -> Result<(), KeeperError> {
        self.keeper.send(&Order::Go)
    }

    /// Writes a line to the guest.
    ///
    /// # Errors
    /// The guest has gone.
    pub fn say(&self, line: &str) -> Result<(), ProbeError> {
        let line = format!("{line}\n");
        (&self.pipes.to_guest).write_all(line.as_bytes()).map_err(|_| ProbeError::Silent)
    }

    /// The next line that it writes.
    ///
    /// # Errors
    /// None comes in time.
    pub fn hear(&self) -> Result<String, ProbeError> {
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
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, ProbeError> {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let keeper = self.keeper.socket();
        let mut fds = [&self.pipes.from_guest as &dyn AsFd, &keeper]
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        // A keeper that reports has no guest any more.
        let ready = poll(&mut fds, Some(&timeout)).is_ok() && !fds[0].revents().is_empty();
        match ready.then(|| (&self.pipes.from_guest).read(bytes)) {
            Some(Ok(length)) if length > 0 => Ok(length),
            Some(_) | None => Err(ProbeError::Silent),
        }
    }
}
