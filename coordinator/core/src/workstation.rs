//! One workstation as the core sees it: its connection, its owner's presence,
//! its lease and the attempts there.
//!
//! The promise: an attempt is given up only when its agent's lease has ended
//! for certain. Knows nothing of other workstations or of jobs' queues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::{Fence, JobId};
use gleaner_common::program::Life;
use gleaner_common::requirement::Attributes;
use gleaner_common::time::Moment;
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{Facts, Presence};

use crate::core::Config;
use crate::job::Position;
use crate::needs;
use crate::placement::Candidate;
use crate::speaker::{Contact, Speakers};

/// The longest text that is kept of what an agent says.
const TEXT_BYTES_MAX: usize = 200;
const MISSING_MAX: usize = 100;
/// A directory with a longer path is not offered: cut, it would be another.
const SHARED_BYTES_MAX: usize = 1_000;

/// How many attempts may wait at an agent beside those that run: agents
/// refuse when 64 wait, and before a job's files are there all of them do.
pub(crate) const AHEAD_MAX: usize = 48;

/// How long past the end of its lease an attempt is given up: nothing runs by
/// then even if the agent was slow to stop it.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// How long a workstation that refused or retreated gets nothing new, unless it
/// tells of its owner before: the news of why is under way. Doubled with every
/// refusal until something starts there, up to a minute or so: what it lacks, a
/// full disk perhaps, may take somebody to repair.
const REST: Duration = Duration::from_secs(1);
const REST_DOUBLED_MAX: u32 = 6;

/// For so long it is told that another machine was refused.
const COPY_TOLD_FOR: Duration = Duration::from_secs(3_600);

/// May something be placed here, and if not, why not?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Idle, with a free place.
    Free,
    /// Idle, with a guest at every place.
    Full,
    /// An admin wants nothing new there.
    Drained,
    /// Its owner is here.
    Busy,
    /// Idle, but nothing can be started there: its disk is full, perhaps.
    Unready,
    /// Idle, but no core is free of the owner.
    NoSlots,
    /// Refused or returned something just now.
    Resting,
    /// Connected, but not heard from.
    Silent,
    /// Its agent said that it is about to sleep or stop.
    Leaving,
    /// Not connected.
    Away,
}

impl Standing {
    pub(crate) const COUNT: usize = 10;
}

/// A connection that has said hello.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) serial: u64,
    /// The jobs whose spec was sent on this connection.
    pub(crate) specs_sent: BTreeSet<JobId>,
    /// The programs whose ranks' places were sent on it, each with its life.
    pub(crate) ranks_sent: BTreeMap<JobId, Life>,
}

/// An attempt here: what it asks for, and how long it is expected to have that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) asked: Amounts,
    pub(crate) expected: Option<Duration>,
}

/// Another machine with the same identity.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) host: String,
    /// When it was refused first, and last.
    pub(crate) since: Moment,
    pub(crate) seen: Moment,
}

impl Copy {
    pub(crate) fn is_told(&self, now: Moment) -> bool {
        now.since(self.seen) < COPY_TOLD_FOR
    }
}

/// What is expected of the guests here, in the time of one core.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    known: Duration,
    /// Attempts of jobs of which nothing has ended yet.
    unknown: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Workstation {
    pub(crate) name: String,
    pub(crate) session: Option<Session>,
    /// Since when the agent is connected, or away; `None`: since before this
    /// life of the coordinator.
    pub(crate) since: Option<Moment>,
    pub(crate) facts: Facts,
    /// What jobs' requirements see of it.
    pub(crate) attributes: Attributes,
    /// The owner's presence as last told; `None` if it never was.
    pub(crate) presence: Option<Presence>,
    /// When that presence began.
    pub(crate) present_since: Moment,
    pub(crate) heard: Moment,
    /// When the lease of all attempts here ends, as the coordinator counts.
    pub(crate) lease_until: Moment,
    pub(crate) silent: bool,
    pub(crate) drained: bool,
    /// An admin has taken it away; what is left is what runs there still.
    pub(crate) removed: bool,
    /// Which machine it is, where several have its identity.
    pub(crate) speakers: Speakers,
    /// Another machine that has shown the same identity.
    pub(crate) copy: Option<Copy>,
    /// Attempts here that the store does not know: it went back in time.
    pub(crate) unknown: BTreeSet<Fence>,
    pub(crate) leaving: Option<String>,
    /// Until when nothing new is placed here after a refusal or retreat, and
    /// why.
    pub(crate) rest: Option<(Moment, String)>,
    /// The same for what fails here and works elsewhere: news of its owner say nothing
    /// of that.
    pub(crate) blamed: Option<(Moment, String)>,
    /// Refusals since a guest started here; those of one rest count as one.
    refusals: u32,
    attempts: BTreeMap<Fence, Guest>,
    /// Those of them that share the place of another one: they take nothing
    /// themselves.
    riders: BTreeSet<Fence>,
    /// What the others take together.
    taken: Amounts,
    /// Ranks that ended here, of which others may still need something.
    pub(crate) undelivered: BTreeSet<(JobId, Position)>,
    backlog: Backlog,
}

impl Workstation {
    pub(crate) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn attempts(&self) -> impl ExactSizeIterator<Item = Fence> + '_ {
        self.attempts.keys().copied()
    }

    pub(crate) fn riders(&self) -> impl ExactSizeIterator<Item = Fence> + '_ {
        self.riders.iter().copied()
    }

    pub(crate) fn set_rides(&mut self, fence: Fence, rides: bool) {
        if rides {
            self.riders.insert(fence);
        } else {
            self.riders.remove(&fence);
        }
        self.count_taken();
    }

    /// Are there more guests than places, whatever owners do?
    pub(crate) fn is_overfull(&self) -> bool {
        !self.facts.lends().covers(self.taken)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.presence.as_ref().is_none_or(|presence| presence.busy)
    }

    /// What guests may take here side by side: as much as is lent, less the cores
    /// that its owner needs. The agent counts alike.
    pub(crate) fn capacity(&self) -> Amounts {
        let slots = self.presence.as_ref().map_or(0, |presence| presence.slots);
        let needed = self.facts.cores.saturating_sub(slots);
        let cores = if slots == 0 { 0 } else { self.facts.places.saturating_sub(needed) };
        Amounts { cores, ..self.facts.lends() }
    }

    /// What of that no guest has.
    pub(crate) fn free(&self) -> Amounts {
        self.capacity().minus(self.taken)
    }

    /// How many guests that ask for so much would find it free.
    pub(crate) fn room_for(&self, asked: Amounts) -> u32 {
        self.free().count_of(self.facts.lends().part(asked))
    }

    /// Will one, when all that is here has ended?
    pub(crate) fn would_have_free(&self, asked: Amounts) -> bool {
        self.capacity().covers(self.facts.lends().part(asked))
    }

    /// Would a guest that asks for so much find it free?
    pub(crate) fn has_free(&self, asked: Amounts) -> bool {
        self.free().covers(self.facts.lends().part(asked))
    }

    /// Notes that a job's spec is sent on the present connection; true if it
    /// was already.
    pub(crate) fn mark_spec_sent(&mut self, job: JobId) -> bool {
        self.session.as_mut().is_none_or(|session| !session.specs_sent.insert(job))
    }

    pub(crate) fn standing(&self, now: Moment) -> Standing {
        if self.session.is_none() {
            Standing::Away
        } else if self.leaving.is_some() {
            Standing::Leaving
        } else if self.is_busy() {
            Standing::Busy
        } else if self.drained || self.removed {
            Standing::Drained
        } else if self.silent {
            Standing::Silent
        } else if self.facts.unready.is_some() {
            Standing::Unready
        } else if self.is_resting(now) {
            Standing::Resting
        } else if self.capacity().cores == 0 {
            Standing::NoSlots
        } else if self.has_room() {
            Standing::Free
        } else {
            Standing::Full
        }
    }

    fn has_room(&self) -> bool {
        let free = self.free();
        free.cores > 0 && free.memory_bytes > 0 && free.disk_bytes > 0
    }

    /// Since when the workstation is idle, as far as can be seen.
    pub(crate) fn idle_since(&self) -> Option<Moment> {
        let in_sight = self.session.is_some() && self.leaving.is_none();
        (in_sight && !self.is_busy()).then_some(self.present_since)
    }

    /// How many more cores guests may have at once.
    pub(crate) fn room(&self, standing: Standing) -> u32 {
        if standing == Standing::Free { self.free().cores.into() } else { 0 }
    }

    /// How many cores guests would have if no owner ever came; `None` if it has
    /// never said what it has.
    pub(crate) fn places_known(&self) -> Option<u32> {
        match self.facts.cores {
            _ if self.removed => Some(0),
            0 => None,
            _ => Some(self.facts.places.into()),
        }
    }

    /// What a policy looks at, with the `risk` as it needs it.
    pub(crate) fn candidate(&self, risk: f32) -> Candidate {
        Candidate {
            idle_since: self.present_since,
            idle_for: self.heard.since(self.present_since),
            load_1m: self.presence.as_ref().map_or(f32::NAN, |presence| presence.load.one),
            speed: self.facts.speed,
            risk,
        }
    }

    /// How long until a guest sent ahead would find a core, one core's worth of
    /// the work that is here; `None` if that is not known or enough waits.
    pub(crate) fn wait_ahead(&self) -> Option<Duration> {
        let cores = u32::from(self.capacity().cores);
        let holders = self.attempts.len() - self.riders.len();
        let ahead = holders.saturating_sub(cores as usize);
        let is_known = cores > 0 && self.backlog.unknown == 0 && ahead < AHEAD_MAX;
        is_known.then(|| self.backlog.known / cores)
    }

    /// An attempt is placed here. The first one gives the agent a lease's time
    /// to be heard: without guests it is heard from less often than a lease
    /// lasts, and renews its lease before it starts anything.
    pub(crate) fn take(&mut self, now: Moment, lease: Duration, fence: Fence, guest: Guest) {
        if self.attempts.is_empty() {
            self.lease_until = self.lease_until.max(now + lease);
        }
        match guest.work() {
            Some(work) => self.backlog.known += work,
            None => self.backlog.unknown += 1,
        }
        self.attempts.insert(fence, guest);
        self.count_taken();
    }

    pub(crate) fn remove(&mut self, fence: Fence) {
        self.riders.remove(&fence);
        let Some(guest) = self.attempts.remove(&fence) else { return };
        match guest.work() {
            Some(work) => self.backlog.known -= work,
            None => self.backlog.unknown -= 1,
        }
        self.count_taken();
    }

    /// They are few; and what they take changes with what the agent lends.
    fn count_taken(&mut self) {
        let lends = self.facts.lends();
        let holders = self.attempts.iter().filter(|(fence, _)| !self.riders.contains(fence));
        let parts = holders.map(|(_, guest)| lends.part(guest.asked));
        self.taken = parts.fold(Amounts::default(), Amounts::plus);
    }

    /// A message that the agent's lease may run from was handled.
    pub(crate) fn renew(&mut self, now: Moment, lease: Duration) {
        self.heard = now;
        self.silent = false;
        self.lease_until = self.lease_until.max(now + lease);
    }

    pub(crate) fn learn_facts(&mut self, mut facts: Facts) {
        let missing = std::mem::take(&mut facts.missing);
        clip(&mut facts.kernel);
        facts.unready.iter_mut().for_each(clip);
        facts.shared_directories.truncate(MISSING_MAX);
        facts.shared_directories.retain(|path| path.len() <= SHARED_BYTES_MAX);
        self.attributes = needs::attributes(&self.name, &facts);
        self.facts = facts;
        self.learn_missing(missing);
        self.count_taken();
    }

    pub(crate) fn learn_missing(&mut self, mut missing: Vec<String>) {
        missing.truncate(MISSING_MAX);
        missing.iter_mut().for_each(clip);
        self.facts.missing = missing;
    }

    /// What could not be started may be now, or nothing can any more.
    pub(crate) fn learn_unready(&mut self, mut why: Option<String>) {
        why.iter_mut().for_each(clip);
        self.facts.unready = why;
    }

    /// The owner's presence was told. A presence that goes on keeps its
    /// beginning, which a late message would blur.
    pub(crate) fn learn_presence(&mut self, now: Moment, mut presence: Presence) {
        clip(&mut presence.reason);
        if self.presence.as_ref().is_none_or(|before| before.busy != presence.busy) {
            self.present_since = now - presence.lasted;
        }
        self.heard = now;
        self.leaving = None;
        self.rest = None;
        self.presence = Some(presence);
    }

    pub(crate) fn learn_load(&mut self, slots: u16, load: LoadAverages) {
        if let Some(presence) = &mut self.presence {
            presence.slots = slots;
            presence.load = load;
        }
    }

    /// How its speaker was heard so far, for when another wants to be. `stops`: it was
    /// given something that is to stop, and may not have.
    pub(crate) fn contact(
        &self,
        now: Moment,
        (beat, quiet_beat): (Duration, Duration),
        stops: bool,
    ) -> Contact {
        let has_attempts = !self.attempts.is_empty();
        let beats = if has_attempts { beat } else { quiet_beat };
        let is_heard = self.session.is_some() && now.since(self.heard) <= beats * 2;
        let may_run = has_attempts || stops;
        let lease_until = if may_run { self.lease_until + GRACE } else { Moment::ZERO };
        Contact { is_heard, heard: self.heard, lease_until }
    }

    /// A copy of it was refused.
    pub(crate) fn see_copy(&mut self, now: Moment, mut host: String) {
        clip(&mut host);
        let before = self.copy.take().filter(|copy| copy.is_told(now));
        let since = before.map_or(now, |copy| copy.since);
        self.copy = Some(Copy { host, since, seen: now });
    }

    /// An admin wants it to be used again, whatever was held against it.
    pub(crate) fn forgive(&mut self) {
        self.speakers.forgive();
        self.copy = None;
        (self.rest, self.blamed) = (None, None);
        self.refusals = 0;
    }

    pub(crate) fn leave(&mut self, mut reason: String) {
        clip(&mut reason);
        self.leaving = Some(reason);
    }

    fn is_resting(&self, now: Moment) -> bool {
        let rests = [&self.rest, &self.blamed];
        rests.into_iter().flatten().any(|(until, _)| now < *until)
    }

    /// The workstation returned work: it gets nothing new for a moment.
    pub(crate) fn rest(&mut self, now: Moment, mut reason: String) {
        clip(&mut reason);
        self.rest = Some((now + REST, reason));
    }

    /// The workstation never started what it was given.
    pub(crate) fn rest_from_refusal(&mut self, now: Moment, reason: String) {
        let is_another = self.rest.as_ref().is_none_or(|(until, _)| now >= *until);
        self.rest(now, reason);
        if let Some((until, _)) = &mut self.rest {
            *until = now + REST * 2u32.pow(self.refusals.min(REST_DOUBLED_MAX));
        }
        self.refusals += u32::from(is_another);
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refusals > 0
    }

    pub(crate) fn has_finished_something(&mut self) {
        self.refusals = 0;
    }

    pub(crate) fn lease_has_ended(&self, now: Moment) -> bool {
        now >= self.lease_until + GRACE
    }

    /// When something becomes true here by itself.
    pub(crate) fn due(&self, config: &Config) -> Option<Moment> {
        let lease = (!self.attempts.is_empty()).then(|| self.lease_until + GRACE);
        let is_awaited = self.session.is_some() && !self.silent || !self.undelivered.is_empty();
        let silence = (self.attempts.is_empty() && is_awaited).then(|| self.silent_from(config));
        let rest = self.rest.as_ref().map(|(until, _)| *until);
        let blamed = self.blamed.as_ref().map(|(until, _)| *until);
        [lease, silence, rest, blamed].into_iter().flatten().min()
    }

    /// When an agent without guests that was not heard from counts as silent.
    pub(crate) fn silent_from(&self, config: &Config) -> Moment {
        self.heard + config.heartbeat_without_guests + config.lease
    }
}

impl Guest {
    fn work(self) -> Option<Duration> {
        Some(self.expected?.saturating_mul(self.asked.cores.into()))
    }
}

/// Cuts an agent's text down to what is kept of it.
pub(crate) fn clip(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}
