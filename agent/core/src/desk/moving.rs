//! The desk and guests that come and go: what the coordinator says of moves,
//! what is told it of them, and how long a guest had better wait for its owner.
//!
//! What is told of a move is told again on every new connection for as long as
//! it holds: whoever did not hear it would wait for ever.

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::program::RankAt;
use gleaner_common::reaction::Keep;
use gleaner_common::time::{Moment, Spoken};
use gleaner_common::wire::{AgentFrame, AttemptEvent};

use super::{Desk, Effect, Out};
use crate::place::{self, ARRIVAL_WITHIN, NotHere};

/// What a move takes whatever its size: to find the way, and CRIU's own time
/// at both ends. Measured on loopback (`glean bench migrate`).
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

    fn carried(&mut self, bytes: u64, took: Duration) {
        remember(&mut self.moves, (bytes, took));
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

impl Desk {
    // ── what the coordinator says ──────────────────────────────────────────

    pub(super) fn depart(
        &mut self,
        now: Moment,
        fence: Fence,
        keep: Keep,
        to: RankAt,
        out: &mut Out,
    ) {
        let Some((attempt, place)) = self.placed(fence) else { return };
        let next = to.fence;
        attempt.to = Some(to);
        let effects = self.places[usize::from(place.0)].depart(now, fence, keep, next);
        if effects.iter().any(|effect| matches!(effect, place::Effect::Depart { .. }))
            && let Some((attempt, _)) = self.placed(fence)
        {
            // Told again until it is known what came of it, also if it was the
            // coordinator's wish: one that begins anew may not know of it.
            let image_bytes = attempt.bytes;
            attempt.word = Some(AttemptEvent::WantsAway { fence, keep, image_bytes });
        }
        self.carry_out(place, effects, Some(now), out);
    }

    pub(super) fn stay_here(&mut self, now: Moment, fence: Fence, out: &mut Out) {
        let Some((attempt, place)) = self.placed(fence) else { return };
        attempt.word = None;
        attempt.to = None;
        let before = self.places[usize::from(place.0)].guest();
        let effects = self.places[usize::from(place.0)].stay_here(now, fence);
        // What changes by more than a word of the coordinator's tells so itself.
        let stands = effects.iter().all(|effect| matches!(effect, place::Effect::CallBack(_)));
        self.carry_out(place, effects, Some(now), out);
        if stands && self.places[usize::from(place.0)].guest() != before {
            self.report_state(place, fence, out);
        }
    }

    // ── what the shell says ────────────────────────────────────────────────

    pub(super) fn coming(&mut self, fence: Fence) {
        if let Some((_, place)) = self.placed(fence) {
            self.places[usize::from(place.0)].coming(fence);
        }
    }

    pub(super) fn landed(
        &mut self,
        now: Moment,
        fence: Fence,
        (bytes, frozen): (u64, Duration),
        out: &mut Out,
    ) {
        let Some((_, place)) = self.placed(fence) else { return };
        if self.places[usize::from(place.0)].landed(now, fence) {
            self.say(AttemptEvent::Arrived { fence, bytes, frozen }, out);
        }
    }

    pub(super) fn cannot_leave(
        &mut self,
        now: Moment,
        fence: Fence,
        reason: String,
        out: &mut Out,
    ) {
        let Some((attempt, place)) = self.placed(fence) else { return };
        attempt.to = None;
        let effects = self.places[usize::from(place.0)].cannot_leave(now, fence, reason);
        self.carry_out(place, effects, Some(now), out);
        self.report_state(place, fence, out);
    }

    pub(super) fn returned(&mut self, fence: Fence) {
        if let Some((_, place)) = self.placed(fence) {
            self.places[usize::from(place.0)].returned(fence);
        }
    }

    pub(super) fn weighed(&mut self, fence: Fence, bytes: u64) {
        let patience = self.patience_for(bytes);
        if let Some((attempt, place)) = self.placed(fence) {
            attempt.bytes = bytes;
            self.places[usize::from(place.0)].weigh(fence, patience);
        }
    }

    pub(super) fn carried(&mut self, bytes: u64, took: Duration) {
        self.experience.carried(bytes, took);
    }

    /// How long a guest of this size waits for its owner, if its job leaves
    /// that to us.
    pub(super) fn patience_for(&self, bytes: u64) -> Duration {
        let bytes = if bytes == 0 { BYTES_GUESS } else { bytes };
        self.experience.patience(self.experience.cost(bytes))
    }

    // ── what is told ───────────────────────────────────────────────────────

    /// Tells the coordinator now, and again on every connection while it holds.
    pub(super) fn say(&mut self, event: AttemptEvent, out: &mut Out) {
        if let Some(attempt) = self.attempts.get_mut(&event.fence()) {
            attempt.word = Some(event.clone());
        }
        self.report(event, out);
    }

    pub(super) fn say_again(&mut self, out: &mut Out) {
        for attempt in self.attempts.values_mut() {
            let Some(word) = attempt.word.clone() else { continue };
            // What needs no answer was perhaps heard, and is said twice at most.
            if matches!(word, AttemptEvent::Stays { .. } | AttemptEvent::CannotLeave { .. }) {
                attempt.word = None;
            }
            out.send(AgentFrame::Attempt(word));
        }
    }

    /// It was never set going here.
    pub(super) fn not_here(&mut self, fence: Fence, why: NotHere, reason: &str, out: &mut Out) {
        let reason = match why {
            NotHere::OwnerCame | NotHere::Asked => format!("not taken in: {reason}"),
            NotHere::NothingCame(within) => format!("nothing came within {}", Spoken(within)),
            NotHere::Ended => "its processes ended before they were set going".to_owned(),
        };
        self.end(AttemptEvent::Refused { fence, reason }, out);
    }

    /// What waits here for a place, and its state for it, waits only so long.
    pub(super) fn overdue_at(&self) -> Option<Moment> {
        self.expected().map(|(_, at)| at).min()
    }

    pub(super) fn refuse_overdue(&mut self, now: Moment, out: &mut Out) {
        let overdue: Vec<_> =
            self.expected().filter(|(_, at)| now >= *at).map(|(fence, _)| fence).collect();
        for fence in overdue {
            let reason = format!("no place became free within {}", Spoken(ARRIVAL_WITHIN));
            self.end(AttemptEvent::Refused { fence, reason }, out);
        }
    }

    /// Attempts that wait for a place while their state is on its way.
    fn expected(&self) -> impl Iterator<Item = (Fence, Moment)> {
        self.waiting.iter().filter_map(|fence| {
            let attempt = self.attempts.get(fence)?;
            attempt.arrival.map(|_| (*fence, attempt.offered + ARRIVAL_WITHIN))
        })
    }

    fn placed(&mut self, fence: Fence) -> Option<(&mut super::Attempt, PlaceId)> {
        let attempt = self.attempts.get_mut(&fence)?;
        let place = attempt.place()?;
        Some((attempt, place))
    }

    pub(super) fn send_away(
        &self,
        place: PlaceId,
        (fence, keep): (Fence, Keep),
        since: Moment,
        out: &mut Out,
    ) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let Some(to) = attempt.to.clone() else { return };
        let subprogram = attempt.subprogram;
        let departure = super::Departure { place, fence, subprogram, keep, to, since };
        out.then.push(Effect::Depart(departure));
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
