//! Where the records of a boot come from, told by its id.
//!
//! The kernel's boot ids are random UUIDs (version 4). An import has no boot
//! id to keep, so it makes one that cannot be the kernel's: a UUID of version
//! 8 (RFC 9562, §5.8) that begins with the source's name, the rest being a
//! hash of what the run of records is. Equal content has an equal id.

use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;

use crate::name::WorkstationName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An agent of ours: each record carries the moment of its transition.
    Agent,
    /// Imported from rwho: each record carries the time of a snapshot.
    Rwho,
    /// Imported from CSV that named no boot; the moments are taken as exact.
    Csv,
    /// Made up by an owner model; the moments are exact.
    Generated,
    /// Imported from a trace of states or availability that others published;
    /// the moments are taken as exact.
    Trace,
}

impl Origin {
    pub(crate) fn of(boot: BootId) -> Self {
        let is_ours = boot.0[6] >> 4 == 8 && boot.0[8] >> 6 == 0b10;
        let imported = [Self::Rwho, Self::Csv, Self::Trace, Self::Generated];
        let imported = imported.into_iter().find(|o| boot.0.starts_with(&o.tag()));
        imported.filter(|_| is_ours).unwrap_or(Self::Agent)
    }

    /// The id of the run of a workstation's records that began at `start`.
    pub(crate) fn boot(self, name: &WorkstationName, start: WallTime) -> BootId {
        self.boot_of(&format!("gleaner import 1 {self:?} {name} {}", start.0))
    }

    /// The same for the runs that began at one moment: the first, counted from
    /// 0, is as if it were alone.
    pub(crate) fn nth_boot(self, name: &WorkstationName, start: WallTime, nth: u64) -> BootId {
        match nth {
            0 => self.boot(name, start),
            _ => self.boot_of(&format!("gleaner import 1 {self:?} {name} {} {nth}", start.0)),
        }
    }

    /// The same for a made-up run: another seed makes another one.
    pub(crate) fn seeded_boot(self, name: &WorkstationName, start: WallTime, seed: u64) -> BootId {
        self.boot_of(&format!("gleaner owners 1 {self:?} {name} {} {seed}", start.0))
    }

    fn boot_of(self, what: &str) -> BootId {
        let hash = blake3::hash(what.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        id[..4].copy_from_slice(&self.tag());
        id[6] = id[6] & 0x0f | 0x80;
        id[8] = id[8] & 0x3f | 0x80;
        BootId(id)
    }

    fn tag(self) -> [u8; 4] {
        match self {
            Self::Agent => *b"boot",
            Self::Rwho => *b"rwho",
            Self::Csv => *b"csv.",
            Self::Generated => *b"gen.",
            Self::Trace => *b"trac",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_collector_core::samples::name;

    #[test]
    fn an_import_is_known_by_its_boot_id() {
        let at = WallTime::from_unix_s;
        for origin in [Origin::Rwho, Origin::Csv, Origin::Trace, Origin::Generated] {
            let boot = origin.boot(&name("ada"), at(5));
            assert_eq!(Origin::of(boot), origin);
            assert_eq!(boot, origin.boot(&name("ada"), at(5)));
            assert_ne!(boot, origin.boot(&name("ada"), at(6)));
            assert_ne!(boot, origin.boot(&name("bob"), at(5)));
            let nth = |nth| origin.nth_boot(&name("ada"), at(5), nth);
            assert_eq!((nth(0), Origin::of(nth(1))), (boot, origin));
            assert_ne!(nth(1), boot);
            assert_ne!(nth(1), nth(2));
            let seeded = |seed| origin.seeded_boot(&name("ada"), at(5), seed);
            assert_eq!(Origin::of(seeded(1)), origin);
            assert_ne!(seeded(1), seeded(2));
        }
    }

    #[test]
    fn a_boot_id_of_the_kernels_is_an_agents() {
        let boot: BootId = "72776868-7b1c-4d4e-9c3a-000102030405".parse().unwrap();
        assert_eq!(Origin::of(boot), Origin::Agent);
        let looks_like_rwho: BootId = "7277686f-7b1c-4d4e-9c3a-000102030405".parse().unwrap();
        assert_eq!(Origin::of(looks_like_rwho), Origin::Agent);
    }
}
