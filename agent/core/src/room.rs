//! Is there room for guests' files where they are kept?
//!
//! The promise: nothing is begun on a full file system, where all that is begun
//! fails at once and more is sent for it. One that is almost full does not turn
//! ready and unready with every file. Knows nothing of paths and system calls.

use gleaner_common::units::spoken_size;

/// Once it was too little, so much more than the least must be free: a quarter.
const MORE_TO_RECOVER: u64 = 4;

/// A file system as it is, and how much of it must be free for something to be
/// begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// For people: where it is looked at.
    pub at: String,
    pub bytes_free: u64,
    pub bytes_min: u64,
    /// How many more files there can be; `None` where that is not counted.
    pub files_free: Option<u64>,
    pub files_min: u64,
    /// What was tried there and went wrong: it is read-only, or its disk fails.
    pub trouble: Option<String>,
}

impl Room {
    /// Why nothing is to be begun there, if it was so before, or was not.
    pub fn lacks(&self, before: bool) -> Option<String> {
        let Self { at, bytes_free, bytes_min, files_min, trouble, .. } = self;
        let least = |least: u64| if before { least + least / MORE_TO_RECOVER } else { least };
        if let Some(trouble) = trouble {
            return Some(format!("disk: {at}: {trouble}"));
        }
        if *bytes_free < least(*bytes_min) {
            let (free, least) = (spoken_size(*bytes_free), spoken_size(least(*bytes_min)));
            return Some(format!("disk: {free} free in {at}, expected {least}"));
        }
        let files = self.files_free.filter(|free| *free < least(*files_min))?;
        Some(format!("disk: room for {files} more files in {at}, expected {}", least(*files_min)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes_free: u64, files_free: Option<u64>) -> Room {
        let at = "/data".to_owned();
        Room { at, bytes_free, bytes_min: 100 << 20, files_free, files_min: 100, trouble: None }
    }

    #[test]
    fn what_was_too_little_has_to_become_a_quarter_more() {
        for (mib, before, is_enough) in [
            (100, false, true),
            (99, false, false),
            (100, true, false),
            (124, true, false),
            (125, true, true),
        ] {
            assert_eq!(room(mib << 20, None).lacks(before).is_none(), is_enough, "{mib} {before}");
            let by_files = room(1 << 40, Some(mib));
            assert_eq!(by_files.lacks(before).is_none(), is_enough, "{mib} {before}");
        }
    }

    #[test]
    fn it_says_what_is_there_and_what_was_expected() {
        let told = room(12 << 20, None).lacks(false).unwrap();
        assert_eq!(told, "disk: 12.0 MiB free in /data, expected 100.0 MiB");
        let told = room(1 << 40, Some(3)).lacks(true).unwrap();
        assert_eq!(told, "disk: room for 3 more files in /data, expected 125");
        let trouble = Some("read-only".to_owned());
        let told = Room { trouble, ..room(1 << 40, None) }.lacks(false).unwrap();
        assert_eq!(told, "disk: /data: read-only");
    }
}
