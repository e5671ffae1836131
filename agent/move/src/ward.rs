//! A keeper of the least kind: one place, one guest, everything that shuts a
//! guest in. For trying out and measuring moves without an agent, and to show
//! that what comes out of a move is shut in as what went into it.
//!
//! It is forked and goes on in this program's memory, so there is nothing to
//! execute and it can be used from any program. It dies with its [`Ward`].

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions};

use crate::engine::Engine;
use crate::inside::check;
use crate::knowledge::KNOWLEDGE_FILE;
use crate::landing::{self, RestoreError};
use crate::memory::Memory;
use crate::stage::{DEVICES, GROUND, Stage};
use crate::stream::Header;

const LANDLOCK: ABI = ABI::V6;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The place: who a guest runs as, and where.
#[derive(Clone, Debug)]
pub struct Plot {
    /// A version 2 control group of its own; made if it is not there.
    pub group: PathBuf,
    pub uid: u32,
    pub stage: Stage,
    /// The biggest file that a guest may write.
    pub file_bytes_max: u64,
}

/// What the ward is there for.
#[derive(Debug)]
pub enum Errand<'a> {
    /// Start a program: these are its descriptors 0 and 1, and 2 is a file on
    /// its ground.
    Start { command: &'a [&'a str], stage: [BorrowedFd<'a>; 2] },
    /// Take in a guest, when it is told to.
    Land { engine: &'a Engine, memory: &'a Memory, header: &'a Header, plugs: &'a [BorrowedFd<'a>] },
}

/// Why a ward has no guest.
#[derive(Debug, thiserror::Error)]
pub enum WardError {
    #[error("cannot make a place")]
    Make(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("it is gone")]
    Gone,
}

/// One running keeper with its guest. Dropping it kills both.
#[derive(Debug)]
pub struct Ward {
    control: UnixStream,
    /// Ends when the keeper has.
    parent: Pid,
    keeper: Pid,
    group: PathBuf,
}

impl Ward {
    /// Makes the place; for [`Errand::Start`] the guest runs when this returns.
    ///
    /// # Errors
    /// Not root, or a layer that cannot be had here.
    pub fn open(plot: &Plot, errand: &Errand<'_>) -> Result<Self, WardError> {
        fs::create_dir_all(&plot.group).map_err(WardError::Make)?;
        fs::write(plot.group.join("cgroup.freeze"), "0").map_err(WardError::Make)?;
        let (ours, theirs) = UnixStream::pair().map_err(WardError::Make)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(WardError::Make)?;
        let (parent, keeper) =
            fork_keeper(plot, errand, &ours, &theirs).map_err(WardError::Make)?;
        drop(theirs);
        let ward = Self { control: ours, parent, keeper, group: plot.group.clone() };
        ward.hear()?;
        Ok(ward)
    }

    /// Makes the guest's processes, which stand still.
    ///
    /// # Errors
    /// CRIU cannot.
    pub fn land(&self, stopped: &[i32]) -> Result<(), WardError> {
        let stopped = postcard::to_stdvec(stopped).map_err(io::Error::other);
        self.say(&stopped.map_err(WardError::Make)?)?;
        self.hear()
    }

    /// Sets a landed guest going.
    ///
    /// # Errors
    /// The ward is gone.
    pub fn resume(&self) -> Result<(), WardError> {
        self.say(&[])?;
        self.hear()
    }

    /// The keeper's number.
    pub fn keeper(&self) -> i32 {
        self.keeper.as_raw_nonzero().get()
    }

    /// The guest's first process.
    pub fn root(&self) -> Option<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.keeper());
        fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
    }

    pub fn group(&self) -> &Path {
        &self.group
    }

    fn say(&self, message: &[u8]) -> Result<(), WardError> {
        let length = u32::try_from(message.len()).unwrap_or(0).to_le_bytes();
        (&self.control).write_all(&[&length, message].concat()).map_err(|_| WardError::Gone)
    }

    fn hear(&self) -> Result<(), WardError> {
        let answer = receive(&self.control).map_err(|_| WardError::Gone)?;
        if answer.is_empty() {
            return Ok(());
        }
        Err(WardError::Refused(String::from_utf8_lossy(&answer).into_owned()))
    }
}

impl Ward {
    /// Kills the guest and the keeper, frozen or not, without waiting.
    pub fn kill(&self) {
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        self.kill();
        // The first process of a namespace takes all with it.
        let _ = rustix::process::kill_process(self.keeper, rustix::process::Signal::KILL);
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(Some(self.parent), WaitOptions::empty())
        {}
        let _ = fs::write(self.group.join("cgroup.freeze"), "0");
        let _ = fs::remove_dir(&self.group);
    }
}

fn receive(mut from: &UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut message)?;
    Ok(message)
}

fn answer(mut to: &UnixStream, message: &str) -> io::Result<()> {
    let length = u32::try_from(message.len()).unwrap_or(0).to_le_bytes();
    to.write_all(&[&length, message.as_bytes()].concat())
}

/// The keeper is the first process of new namespaces. Its parent stays outside
/// of them, only to be waited for.
#[expect(unsafe_code, reason = "forking without executing")]
fn fork_keeper(
    plot: &Plot,
    errand: &Errand<'_>,
    ours: &UnixStream,
    theirs: &UnixStream,
) -> io::Result<(Pid, Pid)> {
    let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNET;
    // SAFETY: plain system calls. The children are copies of this thread; the C
    // library's fork keeps its allocator usable there. They never return.
    let parent = unsafe {
        let parent = libc::fork();
        if parent == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if let Err(error) = check(libc::unshare(spaces)) {
                let _ = answer(theirs, &format!("namespaces: {error}"));
                libc::_exit(1);
            }
            let keeper = libc::fork();
            if keeper == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // By itself, so that this comes before all else that it says;
                // its parent might be slower. `/proc` is still its maker's.
                let own = fs::read_link("/proc/self").unwrap_or_default();
                let _ = answer(theirs, &own.to_string_lossy());
                if let Err(error) = keep(plot, errand, theirs) {
                    let _ = answer(theirs, &error);
                }
                libc::_exit(1)
            }
            if let Err(error) = check(keeper) {
                let _ = answer(theirs, &format!("fork: {error}"));
                libc::_exit(1);
            }
            libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
            while libc::waitpid(keeper, std::ptr::null_mut(), 0) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
            libc::_exit(0)
        }
        parent
    };
    check(parent)?;
    let parent = Pid::from_raw(parent).ok_or(io::ErrorKind::NotFound)?;
    let named = String::from_utf8_lossy(&receive(ours).unwrap_or_default()).into_owned();
    let keeper: Option<i32> = named.parse().ok();
    keeper.and_then(Pid::from_raw).map(|keeper| (parent, keeper)).ok_or_else(|| {
        let _ = rustix::process::waitpid(Some(parent), WaitOptions::empty());
        io::Error::other(named)
    })
}

/// The keeper's life.
fn keep(plot: &Plot, errand: &Errand<'_>, control: &UnixStream) -> Result<(), String> {
    let step = |name: &'static str| move |error: io::Error| format!("{name}: {error}");
    fs::write(plot.group.join("cgroup.procs"), "0").map_err(step("control group"))?;
    close_but(&needed(errand), control).map_err(step("descriptors"))?;
    rustix::process::setsid().map_err(|error| format!("session: {error}"))?;
    raise_loopback().map_err(step("loopback device"))?;
    plot.stage.enter().map_err(step("root directory"))?;
    limit(plot.file_bytes_max).map_err(|error| format!("limits: {error}"))?;
    match errand {
        Errand::Start { command, stage } => {
            restrict(plot, None).map_err(step("Landlock"))?;
            give_up_rights(plot.uid).map_err(step("rights"))?;
            start(command, *stage).map_err(step("start"))?;
        }
        Errand::Land { engine, memory, header, plugs } => {
            landing::settle_in(header).map_err(|error| full(&error))?;
            restrict(plot, Some(memory)).map_err(step("Landlock"))?;
            let restoring = landing::begin(engine, memory, header, plugs);
            let restoring = restoring.map_err(|error| full(&error))?;
            let _ = answer(control, "");
            let stopped = receive(control).map_err(step("orders"))?;
            let stopped: Vec<i32> = postcard::from_bytes(&stopped).unwrap_or_default();
            landing::lay_ground(memory, plot.uid, plot.uid).map_err(|error| full(&error))?;
            let landed =
                restoring.finish(memory, header, &stopped).map_err(|error| full(&error))?;
            give_up_rights(plot.uid).map_err(step("rights"))?;
            let _ = answer(control, "");
            receive(control).map_err(step("orders"))?;
            landed.resume();
        }
    }
    // A guest's pipes end with the guest, not with us.
    close_but(&[], control).map_err(step("descriptors"))?;
    let _ = answer(control, "");
    reap(control);
    Ok(())
}

fn full(error: &RestoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// What an errand is done with.
fn needed(errand: &Errand<'_>) -> Vec<RawFd> {
    match errand {
        Errand::Start { stage, .. } => stage.iter().map(BorrowedFd::as_raw_fd).collect(),
        Errand::Land { memory, plugs, .. } => {
            plugs.iter().map(BorrowedFd::as_raw_fd).chain([memory.as_fd().as_raw_fd()]).collect()
        }
    }
}

/// A copied process has everything that its maker had open.
fn close_but(keep: &[RawFd], control: &UnixStream) -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2 && !keep.contains(fd) && *fd != control.as_raw_fd())
        .collect();
    for fd in open {
        // SAFETY: nobody in this process uses them any more.
        #[expect(unsafe_code, reason = "descriptors that belong to copied values")]
        unsafe {
            libc::close(fd);
        }
    }
    Ok(())
}

/// A session of its own, so that it can be restored as one.
fn start(command: &[&str], stage: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let [program, arguments @ ..] = command else { return Err(io::ErrorKind::NotFound.into()) };
    let [stdin, stdout] = stage;
    // Opened in here: a file that another namespace's mount leads to cannot move.
    let stderr = fs::OpenOptions::new().append(true).open(format!("{GROUND}/stderr"))?;
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(Stdio::from);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(format!("{GROUND}/work"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
    command.stdin(own(stdin)?).stdout(own(stdout)?).stderr(stderr);
    #[expect(unsafe_code, reason = "a session of its own between fork and exec")]
    // SAFETY: plain system calls.
    unsafe {
        command.pre_exec(|| {
            check(libc::setsid())?;
            // What close-on-exec does not: the guest has three descriptors.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    command.spawn().map(drop)
}

fn limit(file_bytes_max: u64) -> rustix::io::Result<()> {
    let set = |resource, most| {
        rustix::process::setrlimit(resource, Rlimit { current: most, maximum: most })
    };
    set(Resource::Core, Some(0))?;
    set(Resource::Fsize, Some(file_bytes_max))
}

/// For good: the place's user, no right, the lowest scheduling class.
#[expect(unsafe_code, reason = "changing the user of the process has no safe binding")]
fn give_up_rights(uid: u32) -> io::Result<()> {
    // SAFETY: plain system calls; this process has one thread.
    unsafe {
        let priority: libc::sched_param = std::mem::zeroed();
        check(libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority))?;
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(uid, uid, uid))?;
        check(libc::setresuid(uid, uid, uid))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0))
    }
}

/// As for every guest, and for CRIU: its images, what it knows of the kernel,
/// and the listing of the root directory, in which there is nothing to hide.
/// No scope for abstract sockets: the network is the guest's own, and CRIU's
/// messenger in the guest comes to it over one.
fn restrict(plot: &Plot, memory: Option<&Memory>) -> io::Result<()> {
    let failed = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(failed)?
        .scope(Scope::Signal)
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    let owned =
        |paths: &[PathBuf], access: BitFlags<AccessFs>| -> Vec<(PathBuf, BitFlags<AccessFs>)> {
            paths.iter().map(|path| (path.clone(), access)).collect()
        };
    let mut grants = owned(&plot.stage.readable, read);
    grants.extend(owned(&plot.stage.writable, all));
    grants.extend([GROUND, "/tmp", "/dev/shm"].map(|path| (path.into(), all)));
    grants.extend([("/proc".into(), read), ("/".into(), AccessFs::ReadDir.into())]);
    grants.extend(DEVICES.map(|path| (path.into(), read | AccessFs::WriteFile)));
    if memory.is_some() {
        grants.push((KNOWLEDGE_FILE.into(), AccessFs::ReadFile.into()));
    }
    for (path, access) in grants {
        let Ok(fd) = PathFd::new(&path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
        rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(failed)?;
    }
    if let Some(memory) = memory {
        rules = rules.add_rule(PathBeneath::new(memory.as_fd(), all)).map_err(failed)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    let status = rules.restrict_self().map_err(failed)?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(io::Error::other("not in this kernel"));
    }
    Ok(())
}

/// Buries the dead until the ward is dropped.
fn reap(control: &UnixStream) {
    while let Ok(_) | Err(rustix::io::Errno::INTR) =
        rustix::process::waitpid(None, WaitOptions::empty())
    {}
    // Nobody left: stays for whoever looks at the place.
    let _ = receive(control);
}

#[expect(unsafe_code, reason = "interface flags are set by an ioctl without a safe binding")]
fn raise_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeroes is a valid ifreq; the request only reads it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request))
    }
}
