//! A log that answers for what it takes in.
//!
//! The promise: [`KeptLog::take_in`] succeeds when everything is on the disk, and
//! otherwise nothing of it counts: what a failure left is taken back before anything
//! else is looked at. Damage is told once, also what came over a segment long after
//! it was written: [`KeptLog::look`] reads them all again.

use std::collections::BTreeSet;
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
    /// What the last call wrote is still to be taken back, and the log to be opened anew.
    failed: bool,
    known: BTreeSet<Damage>,
    /// What of it was not asked for yet.
    untold: Vec<Damage>,
    /// The number of the segment that was looked through last.
    looked_through: u32,
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
        let (known, untold) = (BTreeSet::new(), vec![]);
        let mut log = Self { log, failed: false, known, untold, looked_through: 0 };
        log.learn(damage);
        Ok(log)
    }

    /// Makes segments smaller, so that a test can fill some.
    #[must_use]
    pub fn with_segment_bytes_max(mut self, bytes: u64) -> Self {
        self.log = self.log.with_segment_bytes_max(bytes);
        self
    }

    /// What was found damaged since this was asked last.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.untold)
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

    /// Reads the next of the segments again, because neither the index nor a summary shows
    /// what was damaged since it was written. What is new of that is then told, and does
    /// not count as kept any more.
    ///
    /// # Errors
    /// It cannot be read, or what is damaged cannot be forgotten: the next call goes on
    /// behind it.
    pub fn look(&mut self, disk: &mut dyn Disk) -> Result<(), OpenLogError> {
        let behind = std::mem::take(&mut self.looked_through);
        self.mend(disk)?;
        let Some(next) = self.log.segment_behind(disk, behind)? else { return Ok(()) };
        self.looked_through = next;
        let found = self.log.look(disk, next)?;
        if found.iter().any(|damage| !self.known.contains(damage)) {
            self.failed = true;
            self.mend(disk)?;
        }
        Ok(())
    }

    /// Was the last of the segments not looked through yet? The next call begins anew else.
    pub fn has_more_to_look_through(&self) -> bool {
        self.looked_through > 0
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
            self.learn(damage);
        }
        Ok(())
    }

    fn learn(&mut self, damage: Vec<Damage>) {
        let new = damage.into_iter().filter(|damage| self.known.insert(damage.clone()));
        self.untold.extend(new);
    }
}
