//! How many people are logged in.
//!
//! There need not be a `utmp` (and where there is one, it forgets people):
//! whoever owns a terminal is here. Root counts only on a pseudo-terminal,
//! because unused consoles are root's.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use gleaner_agent_core::occupancy::Observation;
use gleaner_common::time::Moment;

use super::Own;
use super::filesystem::Pattern;
use crate::config::SensorsConfig;

/// The number only goes into records: a minute is fresh enough.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The sensor.
#[derive(Debug)]
pub(crate) struct Users {
    patterns: Vec<Pattern>,
    guest_uids: Range<u32>,
    look_at: Moment,
    told: Option<u32>,
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

    /// Counts, if a minute has passed, and tells a number that is new.
    pub(crate) fn look(&mut self, now: Moment, seen: &mut Vec<Observation>) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        let users = self.count();
        if self.told != Some(users) {
            self.told = Some(users);
            seen.push(Observation::Users(users));
        }
    }

    fn count(&self) -> u32 {
        let mut owners = BTreeSet::new();
        for pattern in &self.patterns {
            // Consoles have commands before their number.
            let is_pseudo = pattern.matches("0".as_ref());
            let files = pattern.files().unwrap_or_default();
            let uids = files.iter().filter_map(|path| Some(path.metadata().ok()?.uid()));
            owners.extend(uids.filter(|uid| is_pseudo || *uid != 0));
        }
        owners.retain(|uid| !self.guest_uids.contains(uid));
        u32::try_from(owners.len()).unwrap_or(u32::MAX)
    }
}
