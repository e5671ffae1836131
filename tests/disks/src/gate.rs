//! Syncs that wait for the test: what may not happen before something is on
//! the disk is seen not to happen.
//!
//! The kernel asks us (`seccomp_unotify(2)`) before a thread that was started
//! behind the gate goes on with `fsync` or `fdatasync`.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Holds the syncs of this thread and of all that it starts from now on.
#[derive(Debug)]
pub struct SyncGate {
    state: Arc<(Mutex<State>, Condvar)>,
    /// Hands the listener over, which only the thread behind the gate gets.
    _keeper: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// So many go on although the gate is closed.
    let_through: u64,
    /// The files whose syncs wait.
    held: Vec<PathBuf>,
    /// How many syncs were let through.
    passed: u64,
}

impl SyncGate {
    /// Puts the calling thread behind an open gate; `None`, said aloud, where
    /// the kernel does not allow it.
    pub fn new() -> Option<Self> {
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let (give, take) = mpsc::channel();
        // Started before the filter, so that it is not behind the gate itself.
        let keeper = std::thread::spawn({
            let state = Arc::clone(&state);
            move || keep(&take, &state)
        });
        match install(&give) {
            Ok(()) => Some(Self { state, _keeper: keeper }),
            Err(error) => {
                gleaner_skip::without_lab(format_args!("syncs cannot be held here: {error}"));
                None
            }
        }
    }

    /// From now on syncs wait.
    pub fn close(&self) {
        self.state().closed = true;
    }

    /// Those that wait go on, and all others.
    pub fn open(&self) {
        self.state().closed = false;
        self.state.1.notify_all();
    }

    /// The next sync goes on, and those behind it wait.
    pub fn let_one_through(&self) {
        self.state().let_through += 1;
        self.state.1.notify_all();
    }

    /// The files whose syncs wait now.
    pub fn held(&self) -> Vec<PathBuf> {
        self.state().held.clone()
    }

    /// How many syncs have been let through.
    pub fn passed(&self) -> u64 {
        self.state().passed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SyncGate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Answers the kernel until nobody is left behind the gate.
fn keep(listeners: &Receiver<OwnedFd>, state: &(Mutex<State>, Condvar)) {
    let Ok(listener) = listeners.recv() else { return };
    while let Some((id, path)) = next(&listener) {
        let mut now = state.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One after another: whoever syncs meanwhile waits in the kernel.
        now.held.push(path);
        while now.closed && now.let_through == 0 {
            now = state.1.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.let_through = now.let_through.saturating_sub(1);
        now.held.clear();
        now.passed += 1;
        drop(now);
        let _ = go_on(&listener, id);
    }
}

#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    call: i32,
    arch: u32,
    instruction: u64,
    arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const CONTINUE: u32 = 1;

/// The next sync, and of which file; `None` when nobody is left who could.
#[expect(unsafe_code, reason = "the kernel's interface has no safe binding")]
fn next(listener: &OwnedFd) -> Option<(u64, PathBuf)> {
    loop {
        let mut ready = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut notification = Notification::default();
        // SAFETY: both point to one whole structure of ours.
        let received = unsafe {
            libc::poll(&raw mut ready, 1, -1);
            if ready.revents & libc::POLLIN == 0 {
                return None;
            }
            libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notification)
        };
        if received == 0 {
            let Notification { id, pid, arguments, .. } = notification;
            let link = format!("/proc/{pid}/fd/{}", arguments[0]);
            return Some((id, std::fs::read_link(link).unwrap_or_default()));
        }
        // Whoever asked was killed meanwhile.
    }
}

#[expect(unsafe_code, reason = "the kernel's interface has no safe binding")]
fn go_on(listener: &OwnedFd, id: u64) -> std::io::Result<()> {
    let mut response = Response { id, value: 0, error: 0, flags: CONTINUE };
    // SAFETY: it points to one whole structure of ours.
    match unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut response) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[expect(unsafe_code, reason = "the kernel's interface has no safe binding")]
#[expect(clippy::cast_possible_truncation, reason = "the kernel's numbers are small")]
#[expect(clippy::cast_sign_loss, reason = "numbers of calls are positive")]
fn install(give: &Sender<OwnedFd>) -> std::io::Result<()> {
    let say = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let is = |call: libc::c_long, jump| {
        say(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jump, 0, call as u32)
    };
    let mut filter = [
        // The call's number is the first field of what a filter sees.
        say(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        is(libc::SYS_fsync, 2),
        is(libc::SYS_fdatasync, 1),
        say(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        say(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until the call has returned, and
    // the descriptor that it gives is nobody else's.
    let listener = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let (filters, flags) =
            (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        let listener = libc::syscall(libc::SYS_seccomp, filters, flags, &raw const program);
        if listener < 0 {
            return Err(std::io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(listener as i32)
    };
    let _ = give.send(listener);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_sync_waits_until_the_gate_is_open() {
        let Some(gate) = SyncGate::new() else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = File::create(&path).unwrap();
        gate.close();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                file.sync_data().unwrap();
                done.store(true, Ordering::SeqCst);
            });
            while gate.held().is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(gate.held(), std::slice::from_ref(&path));
            assert!(!done.load(Ordering::SeqCst) && gate.passed() == 0);
            gate.open();
        });
        assert!(done.load(Ordering::SeqCst));
        file.sync_all().unwrap();
        assert_eq!(gate.passed(), 2);
    }
}
