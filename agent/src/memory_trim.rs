//! Giving memory back: an agent that waits needs little of what it needed to
//! start, to connect or to run guests.
//!
//! Program pages come back from the page cache when they are needed again.

use std::fs;

use rustix::mm::{Advice, madvise};

/// Gives back what the allocator holds free, and program pages that may not be
/// used again soon. Costs about a millisecond: not for every minute.
#[expect(unsafe_code, reason = "unmapping pages has no safe binding")]
pub(crate) fn trim() {
    // SAFETY: the allocator's own function; any thread may call it.
    unsafe { libc::malloc_trim(0) };
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (start, length) in untouched_program(&maps) {
        // SAFETY: a mapping of a file that cannot be written to and of which
        // no page was ever changed (the loader's relocations would show as
        // anonymous): the same bytes are read from the file when touched.
        let _ = unsafe {
            madvise(std::ptr::without_provenance_mut(start), length, Advice::LinuxDontNeed)
        };
    }
}

/// Mappings of files, read-only and as they are on disk: start and length.
fn untouched_program(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = vec![];
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(mapping) = head_of(line) {
            candidate = mapping;
        } else if let Some(anonymous) = line.strip_prefix("Anonymous:")
            && anonymous.trim() == "0 kB"
        {
            found.extend(candidate.take());
        }
    }
    found
}

/// The head line of a mapping; inside is `None` if it is not a program's.
#[expect(clippy::option_option, reason = "no head, a head of no use, a head of use")]
fn head_of(line: &str) -> Option<Option<(usize, usize)>> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let rights = fields.next()?;
    let path = fields.nth(3).unwrap_or("");
    let wanted = rights.starts_with('r') && !rights.contains(['w', 's']) && path.starts_with('/');
    Some(wanted.then(|| (start, end.saturating_sub(start))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r-xp 00001000 00:1f 42   /usr/bin/glean
Anonymous:             0 kB
3000-4000 r--p 00003000 00:1f 42   /usr/bin/glean
Anonymous:             4 kB
4000-5000 rw-p 00004000 00:1f 42   /usr/bin/glean
Anonymous:             0 kB
5000-6000 r--p 00000000 00:00 0    [vvar]
Anonymous:             0 kB
6000-7000 r--s 00000000 00:1f 43   /dev/shm/x
Anonymous:             0 kB";

    #[test]
    fn only_unchanged_pages_of_files_are_given_back() {
        assert_eq!(untouched_program(SMAPS), [(0x1000, 0x2000)]);
    }

    #[test]
    fn a_program_goes_on_after_giving_back() {
        trim();
        assert!(!fs::read_to_string("/proc/self/smaps").unwrap().is_empty());
    }
}
