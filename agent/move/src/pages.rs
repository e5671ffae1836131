//! Pages of a guest that stands still, read from where they are.
//!
//! CRIU writes them down before most of what it needs to make processes again.
//! Pages are let go by and read when all else is sent: the other side can begin
//! meanwhile, and since the guest stands still, they are the same.
//!
//! Source: CRIU 4.1, `images/pagemap.proto`, `criu/include/pagemap.h`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use gleaner_shell::pool::Pool;

use crate::capture::AT_ONCE;
use crate::image::entries;
use crate::inside;
use crate::wire::{Malformed, Value, fields};

/// These pages are in the image, of an entry's flags.
const PRESENT: u64 = 1 << 2;

/// The most areas that the kernel reads at once.
const AREAS_MAX: usize = 1_024;

/// A part of somebody's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// What a `pagemap-12.img` says: which pages file it speaks of, and what that
/// holds, in its order.
///
/// # Errors
/// The bytes are no such file.
pub(crate) fn read_map(image: &[u8]) -> Result<(u64, VecDeque<Area>), Malformed> {
    let number = |entry: &[u8], wanted: u32| {
        let found = fields(entry)?.into_iter().find_map(|field| match field {
            (number, Value::Varint(value)) if number == wanted => Some(value),
            _ => None,
        });
        Ok::<_, Malformed>(found)
    };
    let mut entries = entries(image)?.into_iter();
    let head = entries.next().ok_or(Malformed)?;
    let pages_id = number(head, 1)?.ok_or(Malformed)?;
    let areas = entries.map(|entry| {
        let (at, pages) = (number(entry, 1)?, number(entry, 2)?);
        // Others are elsewhere, which nobody has asked for.
        if number(entry, 4)?.is_some_and(|flags| flags & PRESENT == 0) {
            return Err(Malformed);
        }
        let bytes = pages.and_then(|pages| pages.checked_mul(page())).ok_or(Malformed)?;
        Ok(Area { at: at.ok_or(Malformed)?, bytes })
    });
    Ok((pages_id, areas.collect::<Result<_, _>>()?))
}

/// Reads them, one buffer after the other.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    pid: i32,
    process: &'a OwnedFd,
    left: VecDeque<Area>,
    buffers: &'a Pool,
    /// For what its owner may not read either.
    forced: Option<File>,
}

impl<'a> Pages<'a> {
    /// Reads the pages of a process that stands still, as we number it and as it was opened, into
    /// buffers of [`AT_ONCE`].
    pub(crate) fn new(
        (pid, process): (i32, &'a OwnedFd),
        left: VecDeque<Area>,
        buffers: &'a Pool,
    ) -> Self {
        Self { pid, process, left, buffers, forced: None }
    }

    /// The next of them; `None` after the last.
    ///
    /// # Errors
    /// The process is gone, or we may not.
    pub(crate) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut buffer = self.buffers.take();
        let mut filled = 0;
        while filled < buffer.len().min(AT_ONCE) && !self.left.is_empty() {
            filled += self.read(&mut buffer[filled..])?;
        }
        // As long as it lives, its number is nobody else's.
        if !inside::lives(self.process)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((filled > 0).then(|| buffer.filled(filled)))
    }

    /// Some of what is next, not nothing.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut room = into.len() as u64;
        let wanted: Vec<Area> = self
            .left
            .iter()
            .take(AREAS_MAX)
            .map_while(|area| {
                let bytes = area.bytes.min(room);
                room -= bytes;
                (bytes > 0).then_some(Area { bytes, ..*area })
            })
            .collect();
        let read = match read_memory(self.pid, &wanted, into) {
            Ok(read @ 1..) => read,
            // Mapped, but not to be read: as a debugger does.
            Ok(0) | Err(_) => self.read_forced(into)?,
        };
        skip(&mut self.left, read as u64);
        Ok(read)
    }

    fn read_forced(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(area) = self.left.front() else { return Ok(0) };
        let memory = match &mut self.forced {
            Some(memory) => memory,
            none => none.insert(File::open(format!("/proc/{}/mem", self.pid))?),
        };
        let length = usize::try_from(area.bytes.min(page())).unwrap_or(0).min(into.len());
        memory.read_exact_at(&mut into[..length], area.at)?;
        Ok(length)
    }
}

/// Without the first bytes.
pub(crate) fn skip(areas: &mut VecDeque<Area>, mut bytes: u64) {
    while let Some(area) = areas.front_mut() {
        let some = area.bytes.min(bytes);
        bytes -= some;
        *area = Area { at: area.at + some, bytes: area.bytes - some };
        if area.bytes > 0 {
            return;
        }
        areas.pop_front();
    }
}

/// How much could be read, of the first ones.
#[expect(unsafe_code, reason = "reading another process's memory has no safe binding")]
fn read_memory(pid: i32, from: &[Area], into: &mut [u8]) -> io::Result<usize> {
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(0);
    let theirs: Vec<libc::iovec> = from
        .iter()
        .map(|area| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(length(area.at)),
            iov_len: length(area.bytes),
        })
        .collect();
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel writes to `into` alone, and at most its length; their
    // addresses mean nothing in this process.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            &raw const ours,
            1,
            theirs.as_ptr(),
            theirs.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put;

    const SIZE: usize = 4_096;

    fn image(head: u64, entries: &[(u64, u64, Option<u64>)]) -> Vec<u8> {
        let mut image = vec![0; 8];
        let mut append = |entry: &[u8]| {
            image.extend_from_slice(&u32::try_from(entry.len()).unwrap().to_le_bytes());
            image.extend_from_slice(entry);
        };
        let mut first = vec![];
        put(&mut first, 1, Value::Varint(head));
        append(&first);
        for (at, pages, flags) in entries {
            let mut entry = vec![];
            put(&mut entry, 1, Value::Varint(*at));
            put(&mut entry, 2, Value::Varint(*pages));
            if let Some(flags) = flags {
                put(&mut entry, 4, Value::Varint(*flags));
            }
            append(&entry);
        }
        image
    }

    #[test]
    fn a_map_says_what_lies_where() {
        let map = image(7, &[(0x1000, 2, Some(PRESENT)), (0x9000, 1, None)]);
        let (pages, mut areas) = read_map(&map).unwrap();
        assert_eq!(pages, 7);
        let last = Area { at: 0x9000, bytes: 4_096 };
        assert_eq!(areas, [Area { at: 0x1000, bytes: 8_192 }, last]);
        skip(&mut areas, 4_096);
        assert_eq!(areas, [Area { at: 0x2000, bytes: 4_096 }, last]);
        skip(&mut areas, 4_096);
        assert_eq!(areas, [last]);
        skip(&mut areas, u64::MAX);
        assert!(areas.is_empty());
    }

    #[test]
    fn a_map_of_what_is_not_there_is_refused() {
        assert_eq!(read_map(&image(1, &[(0, 1, Some(1))])), Err(Malformed));
        assert_eq!(read_map(&image(1, &[(0, u64::MAX, None)])), Err(Malformed));
        let whole = image(1, &[(0x1000, 1, None)]);
        assert_eq!(read_map(&whole[..whole.len() - 1]), Err(Malformed));
        assert_eq!(read_map(&[]), Err(Malformed));
    }

    #[test]
    fn memory_is_read_as_it_lies_there_forbidden_pages_too() {
        use memmap2::MmapMut;
        let mut map = MmapMut::map_anon(16 * SIZE).unwrap();
        for (at, byte) in map.iter_mut().enumerate() {
            *byte = u8::try_from(at * 7 % 251).unwrap();
        }
        let before = map.to_vec();
        let base = map.as_ptr().addr() as u64;
        let page =
            |first: u64, pages: u64| Area { at: base + first * page(), bytes: pages * page() };
        // SAFETY: nobody touches the mapping while it is shut.
        #[expect(unsafe_code, reason = "shutting a page has no safe binding")]
        unsafe {
            let shut = map.as_mut_ptr().add(5 * SIZE).cast();
            assert_eq!(libc::mprotect(shut, SIZE, libc::PROT_NONE), 0);
        }
        let buffers = Pool::new(3 * SIZE, 4);
        let areas = [page(1, 2), page(4, 4), page(15, 1)].into();
        let own = i32::try_from(std::process::id()).unwrap();
        let process = inside::open_process(own).unwrap();
        let mut pages = Pages::new((own, &process), areas, &buffers);
        let mut read = vec![];
        while let Some(bytes) = pages.next().unwrap() {
            read.extend_from_slice(&bytes);
        }
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "as above")]
        unsafe {
            let shut = map.as_mut_ptr().add(5 * SIZE).cast();
            libc::mprotect(shut, SIZE, libc::PROT_READ);
        }
        let at = |page: usize| page * SIZE;
        let wanted = [&before[at(1)..at(3)], &before[at(4)..at(8)], &before[at(15)..]].concat();
        assert!(read == wanted, "{} of {} bytes", read.len(), wanted.len());
    }

    #[test]
    fn who_is_gone_has_no_memory() {
        let buffers = Pool::new(SIZE, 1);
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let process = inside::open_process(i32::try_from(child.id()).unwrap()).unwrap();
        child.wait().unwrap();
        // Whoever has that number now.
        let own = i32::try_from(std::process::id()).unwrap();
        let here = Area { at: std::ptr::from_ref(&own).addr() as u64, bytes: 4 };
        let mut pages = Pages::new((own, &process), [here].into(), &buffers);
        assert_eq!(pages.next().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
