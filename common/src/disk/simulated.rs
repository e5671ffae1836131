//! A disk in memory that goes wrong as a seed says, within [`Disk`]'s promise.
//!
//! ```text
//! write_at ─► pending ─ sync ─► durable        crash: pending is lost, kept or torn
//!                                              full: a write ends somewhere, with an error
//! ```
//!
//! A death of the process is nothing at all here: the caller drops what it had in
//! memory and opens anew. [`SimulatedDisk::crash`] is the machine's.

use std::collections::BTreeMap;
use std::io;

use super::Disk;

/// Draws numbers; the same from the same seed (Steele, Lea and Flood 2014, `SplitMix64`).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any().checked_rem(end).unwrap_or(0)
    }

    /// True once in so many.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Clone, Debug)]
struct Write {
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct SimulatedFile {
    durable: Vec<u8>,
    /// What a reader sees.
    current: Vec<u8>,
    pending: Vec<Write>,
    /// Room that is the file's already, beyond its end.
    reserved: u64,
}

impl SimulatedFile {
    fn of(bytes: &[u8]) -> Self {
        Self { durable: bytes.to_vec(), current: bytes.to_vec(), ..Self::default() }
    }

    /// All room that it takes.
    fn bytes(&self) -> u64 {
        self.current.len() as u64 + self.reserved
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let before = self.current.len();
        put(&mut self.current, offset, bytes);
        let grown = (self.current.len() - before) as u64;
        self.reserved = self.reserved.saturating_sub(grown);
        self.pending.push(Write { offset, bytes: bytes.to_vec() });
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

/// What a disk holds for sure: to be restored later.
#[derive(Clone, Debug)]
pub struct DiskCopy(BTreeMap<String, Vec<u8>>);

/// A disk that forgets, fills up, decays and goes back in time.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    files: BTreeMap<String, SimulatedFile>,
    draws: Draws,
    room_bytes: u64,
    syncs_fail: bool,
    /// The machine loses its power after so many operations.
    power_for: Option<u32>,
}

impl SimulatedDisk {
    pub fn new(seed: u64) -> Self {
        let (files, draws) = (BTreeMap::new(), Draws::new(seed));
        Self { files, draws, room_bytes: u64::MAX, syncs_fail: false, power_for: None }
    }

    /// So many bytes are taken.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(SimulatedFile::bytes).sum()
    }

    /// From now on there is room for so many bytes more; `None`: as many as wanted.
    pub fn set_free(&mut self, bytes: Option<u64>) {
        self.room_bytes = bytes.map_or(u64::MAX, |bytes| self.bytes().saturating_add(bytes));
    }

    /// From now on every `sync` fails, or none.
    pub fn set_syncs_fail(&mut self, fail: bool) {
        self.syncs_fail = fail;
    }

    /// So many operations go on, and none after them: whoever sees that calls
    /// [`SimulatedDisk::crash`].
    pub fn lose_power_after(&mut self, operations: u32) {
        self.power_for = Some(operations);
    }

    /// The power does not go after all.
    pub fn keep_power(&mut self) {
        self.power_for = None;
    }

    pub fn has_lost_power(&self) -> bool {
        self.power_for == Some(0)
    }

    fn spend_power(&mut self) -> io::Result<()> {
        match &mut self.power_for {
            None => Ok(()),
            Some(0) => Err(refused()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// The machine loses its power: what was not synced is lost, kept or torn.
    pub fn crash(&mut self) {
        self.power_for = None;
        let Self { files, draws, .. } = self;
        for file in files.values_mut() {
            let mut pending = std::mem::take(&mut file.pending);
            while !pending.is_empty() {
                let at = usize::try_from(draws.below(pending.len() as u64)).unwrap_or(0);
                let write = pending.swap_remove(at);
                survive(&mut file.durable, &write, draws);
            }
            file.current.clone_from(&file.durable);
            file.reserved = 0;
        }
    }

    /// Turns one bit over, somewhere in what lies on the disk. False if there is none.
    pub fn flip_a_bit(&mut self) -> bool {
        let bytes: u64 = self.files.values().map(|file| file.durable.len() as u64).sum();
        let (mut at, bit) = (self.draws.below(bytes), self.draws.below(8));
        for file in self.files.values_mut() {
            let length = file.durable.len() as u64;
            if at >= length {
                at -= length;
                continue;
            }
            let at = usize::try_from(at).unwrap_or(0);
            file.durable[at] ^= 1 << bit;
            // What was written over it since is not the disk's to damage.
            if !file.pending.iter().any(|w| (w.offset..w.offset + w.bytes.len()).contains(&at))
                && let Some(byte) = file.current.get_mut(at)
            {
                *byte ^= 1 << bit;
            }
            return true;
        }
        false
    }

    /// What would outlast a crash now.
    pub fn copy(&self) -> DiskCopy {
        let durable =
            |(name, file): (&String, &SimulatedFile)| (name.clone(), file.durable.clone());
        DiskCopy(self.files.iter().map(durable).collect())
    }

    /// An older copy takes the disk's place. Nobody may have it open meanwhile.
    pub fn restore(&mut self, copy: &DiskCopy) {
        let file = |(name, bytes): (&String, &Vec<u8>)| (name.clone(), SimulatedFile::of(bytes));
        self.files = copy.0.iter().map(file).collect();
    }

    fn free(&self) -> u64 {
        self.room_bytes.saturating_sub(self.bytes())
    }

    fn file(&mut self, name: &str) -> io::Result<&mut SimulatedFile> {
        self.files.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// What a crash leaves of a write.
fn survive(durable: &mut Vec<u8>, write: &Write, draws: &mut Draws) {
    let Write { offset, bytes } = write;
    let length = bytes.len() as u64;
    match draws.below(4) {
        0 => {}
        1 => put(durable, *offset, bytes),
        // The end came, and the beginning did not: another block.
        2 => {
            let from = usize::try_from(draws.below(length)).unwrap_or(0);
            let old = durable.get(*offset..).unwrap_or(&[]).to_vec();
            put(durable, *offset, bytes);
            for at in 0..from {
                durable[offset + at] = old.get(at).copied().unwrap_or(0);
            }
        }
        _ => {
            let to = usize::try_from(draws.below(length)).unwrap_or(0);
            put(durable, *offset, &bytes[..to]);
        }
    }
}

fn refused() -> io::Error {
    io::Error::other("the disk says no")
}

impl Disk for SimulatedDisk {
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.get(name).map(|file| file.current.clone()))
    }

    fn length(&mut self, name: &str) -> io::Result<Option<u64>> {
        Ok(self.files.get(name).map(|file| file.current.len() as u64))
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.spend_power()?;
        let (free, part) = (self.free(), self.draws.any());
        let file = self.file(name)?;
        let length = file.current.len() as u64;
        if offset > length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let offset_in_memory = usize::try_from(offset).map_err(io::Error::other)?;
        let grows = (offset + bytes.len() as u64).saturating_sub(length);
        if grows.saturating_sub(file.reserved) <= free {
            file.write(offset_in_memory, bytes);
            return Ok(());
        }
        let fits = bytes.len() as u64 - grows + free.saturating_add(file.reserved);
        let part = usize::try_from(part % (fits + 1)).unwrap_or(0);
        file.write(offset_in_memory, &bytes[..part.min(bytes.len())]);
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.spend_power()?;
        let (fails, forgets) = (self.syncs_fail, self.draws.one_in(2));
        let file = self.file(name)?;
        if fails {
            // As a kernel that drops what it could not write, and then calls it clean.
            if forgets {
                file.pending.clear();
            }
            return Err(refused());
        }
        for Write { offset, bytes } in std::mem::take(&mut file.pending) {
            put(&mut file.durable, offset, &bytes);
        }
        Ok(())
    }

    fn cut(&mut self, name: &str, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let file = self.file(name)?;
        file.current.truncate(length);
        file.reserved = 0;
        self.sync(name)?;
        self.file(name)?.durable.truncate(length);
        Ok(())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.spend_power()?;
        if bytes.len() as u64 > self.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.syncs_fail && self.draws.one_in(2) {
            return Err(refused());
        }
        self.files.insert(name.to_owned(), SimulatedFile::of(bytes));
        if self.syncs_fail { Err(refused()) } else { Ok(()) }
    }

    fn reserve(&mut self, name: &str, bytes: u64) {
        let free = self.free();
        if let Ok(file) = self.file(name) {
            let more = bytes.saturating_sub(file.reserved);
            file.reserved += more.min(free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seed: u64) -> SimulatedDisk {
        let mut disk = SimulatedDisk::new(seed);
        disk.replace("a", b"one").unwrap();
        disk.write_at("a", 3, b"two").unwrap();
        disk
    }

    #[test]
    fn what_was_synced_outlasts_a_crash_and_nothing_else_need() {
        let mut left = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut disk = written(seed);
            disk.crash();
            left.insert(disk.read("a").unwrap().unwrap());
            let mut disk = written(seed);
            disk.sync("a").unwrap();
            disk.crash();
            assert_eq!(disk.read("a").unwrap().unwrap(), b"onetwo");
        }
        for kind in [&b"one"[..], b"onetwo", b"onet", b"one\0wo"] {
            assert!(left.contains(kind), "{left:?}");
        }
    }

    #[test]
    fn a_full_disk_takes_what_was_set_aside_and_no_more() {
        let mut disk = written(1);
        disk.reserve("a", 2);
        disk.set_free(Some(0));
        disk.write_at("a", 6, b"45").unwrap();
        let error = disk.write_at("a", 8, b"6").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(disk.replace("b", b"x").is_err());
        disk.write_at("a", 0, b"ONE").unwrap();
        assert_eq!(disk.read("a").unwrap().unwrap(), b"ONEtwo45");
    }

    #[test]
    fn nothing_reaches_a_disk_after_its_power() {
        let mut disk = written(1);
        disk.lose_power_after(1);
        disk.write_at("a", 6, b"three").unwrap();
        assert!(disk.has_lost_power());
        assert!(disk.sync("a").is_err() && disk.cut("a", 1).is_err());
        assert!(disk.replace("a", b"x").is_err());
        disk.crash();
        disk.sync("a").unwrap();
        assert!(disk.read("a").unwrap().unwrap().starts_with(b"one"));
    }

    #[test]
    fn an_older_copy_is_what_was_durable_then() {
        let mut disk = written(1);
        let copy = disk.copy();
        disk.sync("a").unwrap();
        assert!(disk.flip_a_bit());
        assert_ne!(disk.read("a").unwrap().unwrap(), b"onetwo");
        disk.restore(&copy);
        assert_eq!(disk.read("a").unwrap().unwrap(), b"one");
    }
}
