//! How many people are logged in.
//!
//! There need not be a `utmp` (and where there is one, it forgets people):
//! whoever owns a terminal is here. Root counts only on a pseudo-terminal,
//! because unused consoles are root's. Counted when a terminal comes, goes or
//! gets another owner, and once a minute where that cannot be watched.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use gleaner_agent_core::occupancy::{Observation, Sensor};
use gleaner_common::time::Moment;

use super::Own;
use super::filesystem::Pattern;
use crate::config::SensorsConfig;

/// Where no change can be noticed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The sensor.
#[derive(Debug)]
pub(crate) struct Users {
    patterns: Vec<Pattern>,
    guest_uids: Range<u32>,
    look_at: Moment,
    told: Option<BTreeSet<u32>>,
}

impl Users {
    pub(crate) fn new(config: &SensorsConfig, own: &Own) -> Self {
        Self {
            patterns: config.terminals.iter().map(|text| Pattern::new(text)).collect(),
            guest_uids: own.guest_uids.clone(),
            look_at: Moment::ZERO,
            told: None,
        }
    }

    /// Counts, if a terminal has `changed` or a minute has passed, and tells who
    /// is here if that is new.
    pub(crate) fn look(&mut self, now: Moment, changed: bool, seen: &mut Vec<Observation>) {
        if now < self.look_at && !changed {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        let uids = self.owners();
        if self.told.as_ref() != Some(&uids) {
            self.told = Some(uids.clone());
            seen.push(Observation::Users { by: Sensor::Terminals, uids });
        }
    }

    fn owners(&self) -> BTreeSet<u32> {
        let mut owners = BTreeSet::new();
        for pattern in &self.patterns {
            // Consoles have commands before their number.
            let is_pseudo = pattern.matches("0".as_ref());
            let files = pattern.files().unwrap_or_default();
            let uids = files.iter().filter_map(|path| Some(path.metadata().ok()?.uid()));
            owners.extend(uids.filter(|uid| is_pseudo || *uid != 0));
        }
        owners.retain(|uid| !self.guest_uids.contains(uid));
        owners
    }
}
