//! How much each user may stage in a day.
//!
//! The promise: nobody fills the coordinator's disk for all others. What no job
//! names is removed after a day, so a day's worth is what one user can take up
//! for nothing. Forgotten when the coordinator stops.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_common::units::spoken_size;

const DAY: Duration = Duration::from_secs(86_400);

/// A user has staged enough for today.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{user} has staged {} within a day: expected at most {}", spoken_size(*.bytes), spoken_size(*.most))]
pub(crate) struct RoomTaken {
    user: String,
    bytes: u64,
    most: u64,
}

#[derive(Debug)]
pub(crate) struct StagingRoom {
    most: u64,
    /// What each user has staged since when.
    users: Mutex<BTreeMap<String, (Moment, u64)>>,
}

impl StagingRoom {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, users: Mutex::default() }
    }

    /// So many more bytes of the user's have come.
    pub(crate) fn take(&self, now: Moment, user: &str, bytes: u64) -> Result<(), RoomTaken> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, taken) = users.entry(user.to_owned()).or_insert((now, 0));
        if now.since(*since) >= DAY {
            (*since, *taken) = (now, 0);
        }
        if taken.saturating_add(bytes) > self.most {
            return Err(RoomTaken { user: user.to_owned(), bytes: *taken, most: self.most });
        }
        *taken += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_fills_their_own_room_only_and_it_comes_back_in_a_day() {
        let room = StagingRoom::new(1_000);
        let now = Moment(5);
        room.take(now, "ada", 1_000).unwrap();
        let refused = room.take(now, "ada", 1).unwrap_err().to_string();
        assert!(refused.starts_with("ada has staged 1000 B within a day"), "{refused}");
        room.take(now, "bob", 1_000).unwrap();
        room.take(now + DAY, "ada", 1_000).unwrap();
    }
}
