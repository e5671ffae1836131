//! How long a guest had better wait for its owner before it moves, from what
//! moves have cost here and how long the owner's visits have lasted.

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::time::Moment;

/// What a move takes whatever its size: to find the way, and CRIU's own time
/// at both ends. Measured on loopback (`glean-bench migrate`).
const FIXED: Duration = Duration::from_millis(100);

/// Bytes a second until a move has been measured: a gigabit network's.
const RATE_GUESS: u64 = 100 << 20;

/// A guest's memory until it has been looked at: a guess.
const BYTES_GUESS: u64 = 64 << 20;

/// How many moves and busy periods are remembered.
const REMEMBERED: usize = 32;

/// Fewer busy periods than this say nothing of the next one: a guess.
const PERIODS_MIN: usize = 5;

/// What is known of moves from here and of the owner's visits.
#[derive(Debug, Default)]
pub(super) struct Experience {
    /// Bytes, and how long they took.
    moves: VecDeque<(u64, Duration)>,
    /// How long the owner was here each time.
    visits: VecDeque<Duration>,
    came: Option<Moment>,
}

fn remember<T>(list: &mut VecDeque<T>, one: T) {
    if list.len() == REMEMBERED {
        list.pop_front();
    }
    list.push_back(one);
}

impl Experience {
    pub(super) fn turned(&mut self, now: Moment, here: bool) {
        match (here, self.came) {
            (true, None) => self.came = Some(now),
            (false, Some(came)) => {
                remember(&mut self.visits, now.since(came));
                self.came = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    pub(super) fn carried(&mut self, bytes: u64, took: Duration) {
        remember(&mut self.moves, (bytes, took));
    }

    /// How long a guest of this size waits, if its job leaves that to us.
    pub(super) fn patience_for(&self, bytes: u64) -> Duration {
        self.patience(self.cost(if bytes == 0 { BYTES_GUESS } else { bytes }))
    }

    /// What it takes to move so much from here.
    fn cost(&self, bytes: u64) -> Duration {
        let carried: u64 = self.moves.iter().map(|(bytes, _)| bytes).sum();
        let carrying: Duration =
            self.moves.iter().map(|(_, took)| took.saturating_sub(FIXED)).sum();
        let rate = if carried == 0 || carrying.is_zero() {
            RATE_GUESS as f64
        } else {
            carried as f64 / carrying.as_secs_f64()
        };
        FIXED + Duration::try_from_secs_f64(bytes as f64 / rate).unwrap_or(Duration::MAX / 4)
    }

    /// How long to wait for the owner before a move that costs so much.
    ///
    /// As long as the move costs: whatever the owner does, waiting and moving
    /// then take at most twice what the better of the two would have taken
    /// (Karlin, Manasse, Rudolph and Sleator 1988, "Competitive snoopy
    /// caching", where the choice is to rent or to buy). Where enough visits
    /// are known, the wait that would have cost least over them, if that is
    /// less (Karlin, Manasse, `McGeoch` and Owicki 1990, "Competitive randomized
    /// algorithms for non-uniform problems", §3): over those visits it is then
    /// at most twice the best as well, and for single ones it may be worse.
    fn patience(&self, cost: Duration) -> Duration {
        if self.visits.len() < PERIODS_MIN {
            return cost;
        }
        let total = |wait: Duration| -> Duration {
            let of = |visit: &Duration| if *visit <= wait { *visit } else { wait + cost };
            self.visits.iter().map(of).sum()
        };
        let shorter = self.visits.iter().copied().filter(|visit| *visit < cost);
        let candidates = shorter.chain([Duration::ZERO]);
        let best = candidates.map(|wait| (total(wait), wait)).min();
        best.filter(|(least, _)| *least < total(cost)).map_or(cost, |(_, wait)| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn visited(visits: &[u64]) -> Experience {
        let mut experience = Experience::default();
        let mut now = Moment::ZERO;
        for visit in visits {
            experience.turned(now, true);
            now = now + seconds(*visit);
            experience.turned(now, false);
            now = now + seconds(1_000);
        }
        experience
    }

    #[test]
    fn nothing_known_of_the_owner_a_guest_waits_as_long_as_its_move_takes() {
        assert_eq!(visited(&[]).patience(seconds(7)), seconds(7));
        assert_eq!(visited(&[1; 4]).patience(seconds(7)), seconds(7));
    }

    #[test]
    fn owners_who_stay_are_not_waited_for_and_those_who_pass_by_are() {
        assert_eq!(visited(&[900; 9]).patience(seconds(7)), Duration::ZERO);
        assert_eq!(visited(&[2; 9]).patience(seconds(7)), seconds(7), "all are outlasted");
        let mostly = [1, 2, 2, 900, 1, 2];
        assert_eq!(visited(&mostly).patience(seconds(7)), seconds(2));
        // Waiting for them would have been best, and is not waited for longer.
        assert_eq!(visited(&[8; 9]).patience(seconds(7)), Duration::ZERO);
    }

    #[test]
    fn over_the_visits_it_was_chosen_by_no_wait_costs_twice_the_best() {
        let cost = seconds(10);
        for seed in 0..500_u64 {
            let visits: Vec<u64> = (0..8)
                .map(|n| (seed.wrapping_mul(6_364_136_223_846_793_005) >> (n * 7)) % 30)
                .collect();
            let wait = visited(&visits).patience(cost);
            let spent: Duration = visits
                .iter()
                .map(|visit| seconds(*visit))
                .map(|visit| if visit <= wait { visit } else { wait + cost })
                .sum();
            let best: Duration = visits.iter().map(|visit| seconds(*visit).min(cost)).sum();
            assert!(spent <= 2 * best, "{visits:?}: {spent:?} {best:?}");
        }
    }

    #[test]
    fn a_move_costs_what_moves_have_cost() {
        let mut experience = Experience::default();
        assert_eq!(experience.cost(RATE_GUESS), FIXED + seconds(1));
        experience.carried(50 << 20, FIXED + seconds(5));
        assert_eq!(experience.cost(20 << 20), FIXED + seconds(2));
    }
}
