//! Whether the scheduler counts as jobs and workstations do: for tests.

use std::collections::BTreeMap;

use gleaner_common::id::JobId;

use crate::attempt::Attempt;
use crate::core::Core;

impl Core {
    /// Does the scheduler know what jobs hold, and is what it calls free the
    /// pool's room? All is counted anew, for tests.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_places(&self) -> Result<(), String> {
        let mut held: BTreeMap<JobId, u32> = self.jobs.keys().map(|id| (*id, 0)).collect();
        for (fence, attempt) in &self.attempts {
            let placed = self.jobs.get(&attempt.job).and_then(|job| job.fence(attempt.position));
            let counts = if placed == Some(*fence) {
                attempt.holds_place()
            } else {
                attempt.coming.is_some() && !attempt.rides
            };
            let each = self.each(attempt.job);
            *held.entry(attempt.job).or_default() += each * u32::from(counts);
        }
        self.check_riders()?;
        let state = self.schedule.scheduler.state();
        let mut unplaced = 0;
        for (id, held) in held {
            let (size, unfilled) =
                (state.get(id).map_or(0, |it| it.size), self.schedule.unfilled(id));
            unplaced += unfilled;
            if size != held + unfilled {
                return Err(format!(
                    "job {id} has {held} places, {unfilled} more to come, and {size} in the scheduler"
                ));
            }
        }
        if state.running().any(|(id, _)| !self.jobs.contains_key(&id)) {
            return Err("a job that has ended runs in the scheduler".to_owned());
        }
        let (free, room) = (state.free(), self.pool.room());
        if room.saturating_sub(unplaced) == free {
            return Ok(());
        }
        Err(format!("{room} places are free, {unplaced} given away, and {free} in the scheduler"))
    }

    /// Does everybody who shares a place share it with a rank of the same program
    /// that is there?
    fn check_riders(&self) -> Result<(), String> {
        for (fence, rider) in self.attempts.iter().filter(|(_, it)| it.rides) {
            let holds = |it: &Attempt| {
                !it.rides && (it.job, it.workstation) == (rider.job, rider.workstation)
            };
            if !self.attempts.values().any(holds) {
                return Err(format!("attempt {fence} shares the place of nobody"));
            }
        }
        Ok(())
    }
}
