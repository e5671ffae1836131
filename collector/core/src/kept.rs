//! A log that answers for what it takes in.
//!
//! The promise: [`KeptLog::take_in`] succeeds when everything is on the disk, and
//! otherwise nothing of it counts: what a failure left is taken back before anything
//! else is looked at.

use std::path::Path;

use gleaner_common::disk::Disk;
use gleaner_common::usage::{LifeAccount, UsageRecord};

use crate::log::{AppendError, Appended, Log, OpenLogError};
use crate::name::WorkstationName;
use crate::summary::Damage;

/// What came of a workstation at once.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Looked up first.
    pub lives: &'a [LifeAccount],
    pub records: &'a [UsageRecord],
}

#[derive(Debug)]
pub struct KeptLog {
    log: Log,
    /// What the last call wrote is still to be taken back.
    failed: bool,
    damage: Vec<Damage>,
}

impl KeptLog {
    /// # Errors
    /// Those of [`Log::open`].
    pub fn open(
        disk: &mut dyn Disk,
        directory: &Path,
        name: &WorkstationName,
    ) -> Result<Self, OpenLogError> {
        let (log, damage) = Log::open(disk, directory, name)?;
        Ok(Self { log, failed: false, damage })
    }

    /// Makes segments smaller, so that a test can fill some.
    #[must_use]
    pub fn with_segment_bytes_max(mut self, bytes: u64) -> Self {
        self.log = self.log.with_segment_bytes_max(bytes);
        self
    }

    /// What was found damaged since this was asked last.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// Keeps all of it, and answers for each what became of it.
    ///
    /// # Errors
    /// Nothing of it counts as kept.
    pub fn take_in<'a>(
        &mut self,
        disk: &mut dyn Disk,
        arrived: impl IntoIterator<Item = Arrived<'a>>,
    ) -> Result<Vec<Appended>, AppendError> {
        self.mend(disk)?;
        let done = self.write(disk, arrived);
        if done.is_err() {
            self.failed = true;
            // What a full disk has half of is taken back at once, for whoever reads.
            let _ = self.mend(disk);
        }
        done
    }

    fn write<'a>(
        &mut self,
        disk: &mut dyn Disk,
        arrived: impl IntoIterator<Item = Arrived<'a>>,
    ) -> Result<Vec<Appended>, AppendError> {
        let mut answers = vec![];
        for Arrived { lives, records } in arrived {
            let looked_up = self.log.agree(disk, lives)?;
            let appended = self.log.append(disk, records)?;
            answers.push(Appended { kept: looked_up.kept, gone: looked_up.gone, ..appended });
        }
        self.log.sync(disk)?;
        Ok(answers)
    }

    fn mend(&mut self, disk: &mut dyn Disk) -> Result<(), OpenLogError> {
        if self.failed {
            let (log, damage) = self.log.roll_back(disk)?;
            (self.log, self.failed) = (log, false);
            self.damage.extend(damage);
        }
        Ok(())
    }
}
