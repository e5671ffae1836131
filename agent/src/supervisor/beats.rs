//! The page on which a worker vouches for its guests: for its supervisor, which
//! reads it without asking, and for its keepers, which see only how long the lease
//! lasts.
//!
//! A beat is three stores to memory. The bell is rung only where the supervisor
//! does not look by itself. Decides nothing: see [`gleaner_agent_core::watchdog`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gleaner_agent_core::watchdog::Vouch;
use gleaner_common::time::Moment;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// More than enough for a [`Page`], and what the kernel maps at least.
const PAGE_BYTES: usize = 4_096;

/// Everything that is shared. The lease's end comes first, twice: keepers read it
/// from the file, where nothing says that a number is read as a whole.
#[repr(C)]
struct Page {
    lease_end: AtomicU64,
    /// The same with all its bits the other way round.
    lease_check: AtomicU64,
    /// 0 if no guest runs.
    looked: AtomicU64,
    /// The supervisor sleeps until it is woken.
    wants_bell: AtomicBool,
    /// How often the supervisor has frozen and killed.
    freezes: AtomicU64,
    kills: AtomicU64,
}

/// One worker's page. Both sides of a fork have it.
#[derive(Debug)]
pub(crate) struct Beats {
    page: NonNull<Page>,
    file: OwnedFd,
    bell: OwnedFd,
}

// SAFETY: the page lives as long as this, and is made of atomics.
#[expect(unsafe_code, reason = "a pointer to shared memory")]
unsafe impl Send for Beats {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer to shared memory")]
unsafe impl Sync for Beats {}

impl Beats {
    /// # Errors
    /// No memory, or no descriptors left.
    #[expect(unsafe_code, reason = "mapping memory has no safe binding")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"gleaner-beats", flags)?;
        rustix::fs::ftruncate(&file, PAGE_BYTES as u64)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping that overlaps none, of a file of that length.
        let page = unsafe {
            let anywhere = std::ptr::null_mut();
            rustix::mm::mmap(anywhere, PAGE_BYTES, rights, MapFlags::SHARED, &file, 0)?
        };
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // From now on it changes only through this mapping: keepers can but read it.
        let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let _ = rustix::fs::fcntl_add_seals(&file, seals);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { page, file, bell })
    }

    #[expect(unsafe_code, reason = "a pointer to shared memory")]
    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as this lives, and aligned as every page is.
        // Zeroes, as the kernel gives them, are valid atomics.
        unsafe { self.page.as_ref() }
    }

    // ── the worker's ───────────────────────────────────────────────────────

    /// How long guests may be here at all, as their keepers see it too.
    pub(crate) fn lease_ends(&self, at: Moment) {
        self.page().lease_end.store(at.0, Ordering::SeqCst);
        self.page().lease_check.store(!at.0, Ordering::SeqCst);
    }

    /// Vouches for guests that run, whose lease has been told; or no guest runs.
    pub(crate) fn say(&self, vouch: Option<Vouch>) {
        self.page().looked.store(vouch.map_or(0, |vouch| vouch.looked.0), Ordering::SeqCst);
        if self.page().wants_bell.load(Ordering::SeqCst) {
            // A bell that has rung so often is heard.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// How often guests were frozen, and killed, since nobody vouched for them.
    pub(crate) fn doubted(&self) -> (u64, u64) {
        let page = self.page();
        (page.freezes.load(Ordering::Relaxed), page.kills.load(Ordering::Relaxed))
    }

    /// For keepers.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    // ── the supervisor's ───────────────────────────────────────────────────

    pub(super) fn said(&self) -> Option<Vouch> {
        let looked = Moment(self.page().looked.load(Ordering::SeqCst));
        let lease_end = Moment(self.page().lease_end.load(Ordering::SeqCst));
        (looked > Moment::ZERO).then_some(Vouch { looked, lease_end })
    }

    /// To be said before looking: whatever is said after that look rings.
    pub(super) fn want_bell(&self, wanted: bool) {
        self.page().wants_bell.store(wanted, Ordering::SeqCst);
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn quiet_bell(&self) {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut rung);
    }

    pub(super) fn count_freeze(&self) {
        self.page().freezes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_kill(&self) {
        self.page().kills.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Beats {
    #[expect(unsafe_code, reason = "unmapping memory has no safe binding")]
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; nobody has a reference that outlives this.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Until when guests may be here, as a keeper reads it; `None` while it is being
/// written, or if there is no such page.
pub(crate) fn lease_end_in(file: impl AsFd) -> Option<Moment> {
    let mut bytes = [0; 16];
    let n = rustix::io::pread(file, &mut bytes, 0).ok()?;
    let (end, check) = bytes[..n].split_first_chunk::<8>()?;
    let (end, check) = (u64::from_ne_bytes(*end), u64::from_ne_bytes(check.try_into().ok()?));
    (end == !check).then_some(Moment(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_said_is_read_and_no_keeper_can_change_it() {
        let beats = Beats::new().unwrap();
        assert_eq!((beats.said(), lease_end_in(beats.file())), (None, None));
        let (looked, lease_end) = (Moment(5), Moment(7));
        beats.lease_ends(lease_end);
        beats.say(Some(Vouch { looked, lease_end }));
        assert_eq!(beats.said(), Some(Vouch { looked, lease_end }));
        assert_eq!(lease_end_in(beats.file()), Some(lease_end));
        assert!(rustix::io::pwrite(beats.file(), &[1; 16], 0).is_err());
        beats.say(None);
        assert_eq!(beats.said(), None);
    }

    #[test]
    fn a_lease_is_read_whole_or_not_at_all() {
        let beats = Beats::new().unwrap();
        let (few, many) = (Moment(0), Moment(u64::MAX - 1));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..200_000 {
                    beats.lease_ends(if n % 2 == 0 { few } else { many });
                }
            });
            while !writer.is_finished() {
                let read = lease_end_in(beats.file());
                assert!(read.is_none_or(|end| [few, many].contains(&end)), "{read:?}");
            }
        });
        assert!(lease_end_in(beats.file()).is_some());
    }

    #[test]
    fn the_bell_rings_where_it_is_wanted() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let beats = Beats::new().unwrap();
        let rings = || {
            let mut set = [PollFd::new(&beats.bell, PollFlags::IN)];
            let at_once = Timespec::try_from(Duration::ZERO).unwrap();
            poll(&mut set, Some(&at_once)).unwrap() == 1
        };
        beats.say(None);
        assert!(!rings());
        beats.want_bell(true);
        beats.say(None);
        assert!(rings());
        beats.quiet_bell();
        assert!(!rings());
    }
}
