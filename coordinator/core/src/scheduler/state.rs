//! Who waits, who runs on how much, and the ordered indexes over both.
//!
//! The promise: processors are neither created nor lost, and the indexes always
//! agree with the jobs, because a running job changes in `State::change` alone.
//! Each change costs the logarithm of how many jobs there are. Knows nothing
//! of policies, and of processors only how many there are and how fast.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use super::reason::Reason;
use super::request::{Class, Request};
use super::sizes::Sizes;
use super::users::{Kind, User, Users};
use super::work::Progress;

/// What there is to run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resources {
    /// Processors that can be used now: their owners are away.
    pub processors: u32,
    /// As many as there would be if nobody but jobs used any.
    pub all: u32,
    /// How fast one of them is; 1 where that does not matter.
    pub speed: f64,
}

impl Resources {
    /// So many that are always there.
    pub fn steady(processors: u32) -> Self {
        Self { processors, all: processors, speed: 1.0 }
    }
}

/// A place in the queue: by priority, then by age.
pub type Turn = (Reverse<i8>, Moment, JobId);

/// When a running job started: the order of running jobs.
pub(super) type Started = (Moment, JobId);

/// A job that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub request: Box<Request>,
    pub submitted: Moment,
    /// Why, if a policy has looked at it.
    pub reason: Option<Reason>,
    /// How many scans of the queue there had been when it came.
    pub scans_before: u64,
}

/// What an evolving job has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub more: u32,
    /// It was told what can be had, and this is what it makes of it.
    pub is_answer: bool,
}

/// A job that runs.
#[derive(Clone, Debug)]
pub struct Running {
    pub request: Box<Request>,
    pub submitted: Moment,
    pub started: Moment,
    pub size: u32,
    /// Processors set aside for it until it answers.
    pub offered: u32,
    /// Processors that it was asked for and has not given yet.
    pub asked: u32,
    pub want: Option<Want>,
    /// How far it is, as far as its estimate goes.
    pub progress: Progress,
    /// It took or gave less than its sizes say: it is left alone until
    /// something else happens.
    pub has_declined: bool,
}

impl Running {
    pub fn is_negotiable(&self) -> bool {
        self.request.class == Class::Malleable
            && self.asked == 0
            && self.offered == 0
            && !self.has_declined
    }

    /// How many processors it can be asked for.
    pub fn spare(&self) -> u32 {
        let floor = self.request.sizes.min();
        if self.is_negotiable() { self.size.saturating_sub(floor) } else { 0 }
    }

    /// How many more it could use.
    pub fn room(&self) -> u32 {
        let most = self.request.sizes.max();
        if self.is_negotiable() { most.saturating_sub(self.size) } else { 0 }
    }

    /// How many it has too few: owners have taken them, or it needs more than it
    /// did.
    pub fn lack(&self) -> u32 {
        let is_asked = self.asked > 0 || self.offered > 0 || self.has_declined;
        if is_asked { 0 } else { self.request.sizes.min().saturating_sub(self.size) }
    }

    /// Its place in the queue, if it could wait.
    fn turn(&self, job: JobId) -> Turn {
        (Reverse(self.request.priority), self.submitted, job)
    }
}

/// What a running job is in the indexes and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Keys {
    held: u32,
    asked: u32,
    spare: u32,
    room: u32,
    lacks: bool,
    wants: bool,
    end: Option<Moment>,
}

impl Keys {
    fn of(job: &Running) -> Self {
        Self {
            held: job.size + job.offered,
            asked: job.asked,
            spare: job.spare(),
            room: job.room(),
            lacks: job.lack() > 0,
            wants: job.want.is_some() && job.offered == 0,
            end: Some(job.progress.end()),
        }
    }
}

/// What has changed since the last stage.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub arrived: Vec<Turn>,
    /// Anything but an arrival.
    pub other: bool,
    /// Anything but an answer: a new cycle begins.
    pub is_news: bool,
}

/// Everything that policies look at.
#[derive(Debug)]
pub struct State {
    pub(super) resources: Resources,
    waiting: BTreeMap<Turn, Waiting>,
    turns: BTreeMap<JobId, Turn>,
    /// How many of those who wait need so many at least.
    needs: BTreeMap<u32, usize>,
    running: BTreeMap<JobId, Running>,
    by_start: BTreeSet<Started>,
    can_give: BTreeSet<Started>,
    can_take: BTreeSet<Started>,
    lacking: BTreeSet<Started>,
    wanting: BTreeSet<Started>,
    ends: BTreeSet<(Moment, JobId)>,
    declined: Vec<JobId>,
    /// Those that nothing free suits: nobody sees them until that changes.
    aside: BTreeMap<JobId, Waiting>,
    pub(super) users: Users,
    held: u32,
    asked: u32,
    spare: u32,
    pub(super) scans: u64,
    pub(super) changes: Changes,
}

impl State {
    pub(super) fn new(resources: Resources) -> Self {
        Self {
            resources,
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            needs: BTreeMap::new(),
            running: BTreeMap::new(),
            by_start: BTreeSet::new(),
            can_give: BTreeSet::new(),
            can_take: BTreeSet::new(),
            lacking: BTreeSet::new(),
            wanting: BTreeSet::new(),
            ends: BTreeSet::new(),
            declined: vec![],
            aside: BTreeMap::new(),
            users: Users::default(),
            held: 0,
            asked: 0,
            spare: 0,
            scans: 0,
            changes: Changes::default(),
        }
    }

    pub fn resources(&self) -> Resources {
        self.resources
    }

    /// Processors that nobody holds and nobody was offered.
    pub fn free(&self) -> u32 {
        self.resources.processors.saturating_sub(self.held)
    }

    /// Processors that jobs hold or were offered.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Processors that running jobs could be asked for.
    pub fn spare(&self) -> u32 {
        self.spare
    }

    /// Processors that jobs were asked for and have not given yet.
    pub fn releasing(&self) -> u32 {
        self.asked
    }

    /// Those who wait, in turn: by their users' claims first, if these were
    /// told; whose user may have no more is not among them.
    pub fn waiting(&self) -> impl Iterator<Item = (Turn, &Waiting)> {
        let of_users = self.has_users().then(|| self.users.waiting());
        let all = (!self.has_users()).then(|| self.waiting.iter());
        let all = all.into_iter().flatten().map(|(turn, job)| (*turn, job));
        all.chain(self.listed_waiting(of_users.into_iter().flatten()))
    }

    pub fn first_waiting(&self) -> Option<(Turn, &Waiting)> {
        if self.has_users() {
            return self.waiting().next();
        }
        self.waiting.first_key_value().map(|(turn, job)| (*turn, job))
    }

    fn listed_waiting(
        &self,
        turns: impl Iterator<Item = Turn>,
    ) -> impl Iterator<Item = (Turn, &Waiting)> {
        turns.filter_map(|turn| Some((turn, self.waiting.get(&turn)?)))
    }

    /// Have claims of users been told?
    pub fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Users with a job that waits or could grow, in turn.
    pub fn users_in_turn(&self) -> impl Iterator<Item = User> {
        self.users.in_turn()
    }

    /// Those who wait or could use more, as they are in turn: [`State::waiting_at`]
    /// and [`State::get`] tell which it is.
    pub fn claimants(&self) -> impl Iterator<Item = Turn> {
        let of_users = self.has_users().then(|| self.users.claimants());
        let all = (!self.has_users()).then(|| {
            let running = self.can_take().map(|(job, it)| it.turn(job));
            running.chain(self.waiting.keys().copied())
        });
        of_users.into_iter().flatten().chain(all.into_iter().flatten())
    }

    /// How many processors more a job's user may have.
    pub fn places_for(&self, request: &Request) -> u32 {
        match request.user {
            Some(user) if self.has_users() => self.users.places(user),
            Some(_) | None => u32::MAX,
        }
    }

    /// Who waits behind this one.
    pub fn next_waiting(&self, after: Turn) -> Option<(Turn, &Waiting)> {
        self.waiting_behind(after).next()
    }

    /// Everybody behind this one, in turn.
    pub fn waiting_behind(&self, after: Turn) -> impl Iterator<Item = (Turn, &Waiting)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let user = self.user_of(after.2);
        let of_users = user.map(|user| self.users.waiting_behind(user, after));
        let all = user.is_none().then(|| self.waiting.range((Excluded(after), Unbounded)));
        let all = all.into_iter().flatten().map(|(turn, job)| (*turn, job));
        all.chain(self.listed_waiting(of_users.into_iter().flatten()))
    }

    /// The user whose claim a job goes by, if claims were told.
    fn user_of(&self, job: JobId) -> Option<User> {
        if !self.has_users() {
            return None;
        }
        let waiting = || self.waiting.get(self.turns.get(&job)?).map(|it| &it.request);
        let request = waiting().or_else(|| self.running.get(&job).map(|it| &it.request))?;
        request.user
    }

    pub fn waiting_at(&self, turn: Turn) -> Option<&Waiting> {
        self.waiting.get(&turn)
    }

    /// The fewest processors that any of those who wait can start on.
    pub fn least_needed(&self) -> Option<u32> {
        self.needs.first_key_value().map(|(needs, _)| *needs)
    }

    pub fn turn(&self, job: JobId) -> Option<Turn> {
        self.turns.get(&job).copied()
    }

    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// How often the queue was scanned.
    pub fn scans(&self) -> u64 {
        self.scans
    }

    pub fn get(&self, job: JobId) -> Option<&Running> {
        self.running.get(&job)
    }

    /// A job that nothing free suits.
    pub fn aside(&self, job: JobId) -> Option<&Waiting> {
        self.aside.get(&job)
    }

    /// Is there a job that might fit if other workstations were free: one that
    /// stands aside, or runs and could not use what it was given?
    pub fn has_misfits(&self) -> bool {
        !self.aside.is_empty() || !self.declined.is_empty()
    }

    /// Does it wait, run, or stand aside?
    pub fn knows(&self, job: JobId) -> bool {
        self.turns.contains_key(&job)
            || self.running.contains_key(&job)
            || self.aside.contains_key(&job)
    }

    /// The sizes of a job that is known.
    pub fn sizes(&self, job: JobId) -> Option<&Sizes> {
        let waiting = || self.waiting.get(self.turns.get(&job)?).map(|it| &it.request);
        let running = self.running.get(&job).map(|it| &it.request);
        let request = running.or_else(waiting).or_else(|| Some(&self.aside.get(&job)?.request));
        request.map(|request| &request.sizes)
    }

    /// Those who hold fewer than they need, the earliest started first.
    pub fn lacking(&self) -> impl Iterator<Item = (JobId, &Running)> {
        self.listed(&self.lacking)
    }

    /// Those who run, the earliest started first.
    pub fn running(&self) -> impl DoubleEndedIterator<Item = (JobId, &Running)> {
        self.listed(&self.by_start)
    }

    /// Those whose size can be changed now, the earliest started first.
    pub fn negotiable(&self) -> impl DoubleEndedIterator<Item = (JobId, &Running)> {
        self.running().filter(|(_, it)| it.is_negotiable())
    }

    /// The same from behind one on, and then from the first one to it: for whoever
    /// looks at some of them at a time.
    pub fn negotiable_after(
        &self,
        after: Option<(Moment, JobId)>,
    ) -> impl Iterator<Item = ((Moment, JobId), &Running)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let to = after.map(|after| self.by_start.range((Unbounded, Included(after))));
        let around = self.by_start.range((from, Unbounded)).chain(to.into_iter().flatten());
        let found = around.filter_map(|started| Some((*started, self.running.get(&started.1)?)));
        found.filter(|(_, it)| it.is_negotiable())
    }

    /// Those who could give processors, the earliest started first.
    pub fn can_give(&self) -> impl DoubleEndedIterator<Item = (JobId, &Running)> {
        self.listed(&self.can_give)
    }

    /// Those who could use more, the earliest started first.
    pub fn can_take(&self) -> impl DoubleEndedIterator<Item = (JobId, &Running)> {
        self.listed(&self.can_take)
    }

    pub fn can_any_take(&self) -> bool {
        !self.can_take.is_empty()
    }

    /// Those who have asked for more, the earliest started first.
    pub fn wanting(&self) -> impl Iterator<Item = (JobId, Want)> {
        self.listed(&self.wanting).filter_map(|(job, it)| Some((job, it.want?)))
    }

    fn listed<'a>(
        &'a self,
        index: &'a BTreeSet<Started>,
    ) -> impl DoubleEndedIterator<Item = (JobId, &'a Running)> {
        index.iter().filter_map(|(_, job)| Some((*job, self.running.get(job)?)))
    }

    /// When running jobs are expected to end, and with how many processors.
    pub fn ends(&self) -> impl Iterator<Item = (Moment, u32)> {
        let sized = |(end, job): &(Moment, JobId)| Some((*end, self.running.get(job)?.size));
        self.ends.iter().filter_map(sized)
    }

    /// The same with who they are.
    pub fn ending(&self) -> impl Iterator<Item = (Moment, JobId, &Running)> {
        self.ends.iter().filter_map(|(end, job)| Some((*end, *job, self.running.get(job)?)))
    }

    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    pub(super) fn enqueue(&mut self, job: JobId, submitted: Moment, request: Box<Request>) {
        let scans_before = self.scans;
        self.insert(job, Waiting { request, submitted, reason: None, scans_before });
    }

    fn insert(&mut self, job: JobId, waiting: Waiting) {
        let turn = (Reverse(waiting.request.priority), waiting.submitted, job);
        if let Some(user) = waiting.request.user {
            self.users.put(user, turn, Kind::Waiting, true);
        }
        *self.needs.entry(waiting.request.sizes.min()).or_default() += 1;
        self.waiting.insert(turn, waiting);
        self.turns.insert(job, turn);
        self.changes.arrived.push(turn);
    }

    pub(super) fn dequeue(&mut self, job: JobId) -> Option<Waiting> {
        let Some(turn) = self.turns.remove(&job) else { return self.aside.remove(&job) };
        self.changes.other = true;
        let waiting = self.waiting.remove(&turn)?;
        if let Some(user) = waiting.request.user {
            self.users.put(user, turn, Kind::Waiting, false);
        }
        self.needs_no_more(waiting.request.sizes.min());
        Some(waiting)
    }

    /// One that waits has needed so many at least.
    fn needs_no_more(&mut self, least: u32) {
        if let Some(many) = self.needs.get_mut(&least) {
            *many -= 1;
            if *many == 0 {
                self.needs.remove(&least);
            }
        }
    }

    /// Nobody sees this job until all that stand aside are called back.
    pub(super) fn put_aside(&mut self, job: JobId) {
        if let Some(waiting) = self.dequeue(job) {
            self.aside.insert(job, waiting);
        }
    }

    pub(super) fn call_back(&mut self) {
        for (job, waiting) in std::mem::take(&mut self.aside) {
            self.insert(job, waiting);
        }
    }

    /// A job has other sizes from now on.
    pub(super) fn set_sizes(&mut self, job: JobId, sizes: Sizes) {
        let turn = self.turns.get(&job);
        if let Some(waiting) = turn.and_then(|turn| self.waiting.get_mut(turn)) {
            let before = std::mem::replace(&mut waiting.request.sizes, sizes).min();
            *self.needs.entry(waiting.request.sizes.min()).or_default() += 1;
            self.needs_no_more(before);
            self.changes.other = true;
        } else if let Some(waiting) = self.aside.get_mut(&job) {
            waiting.request.sizes = sizes;
            self.changes.other = true;
        } else {
            self.change(job, |it| it.request.sizes = sizes);
        }
    }

    pub(super) fn set_reason(&mut self, turn: Turn, reason: Reason) {
        if let Some(job) = self.waiting.get_mut(&turn) {
            job.reason = Some(reason);
        }
    }

    pub(super) fn begin(&mut self, now: Moment, job: JobId, size: u32) {
        let Some(Waiting { request, submitted, .. }) = self.dequeue(job) else { return };
        let rate = request.rate_on(size, self.resources.speed);
        let progress = Progress::new(now, request.estimate, rate);
        let running = Running {
            request,
            submitted,
            started: now,
            size,
            offered: 0,
            asked: 0,
            want: None,
            progress,
            has_declined: false,
        };
        let after = Keys::of(&running);
        let (user, turn) = (running.request.user, running.turn(job));
        self.running.insert(job, running);
        self.by_start.insert((now, job));
        self.index((now, job), Keys::default(), after);
        self.index_user(user, turn, (false, after.room > 0));
    }

    pub(super) fn end(&mut self, job: JobId) -> Option<Running> {
        let running = self.running.remove(&job)?;
        let started = (running.started, job);
        self.by_start.remove(&started);
        let before = Keys::of(&running);
        self.index(started, before, Keys::default());
        let (user, turn) = (running.request.user, running.turn(job));
        self.index_user(user, turn, (before.room > 0, false));
        Some(running)
    }

    /// Changes a running job and brings the indexes up to date.
    pub(super) fn change<R>(
        &mut self,
        job: JobId,
        change: impl FnOnce(&mut Running) -> R,
    ) -> Option<R> {
        let running = self.running.get_mut(&job)?;
        let (before, started) = (Keys::of(running), (running.started, job));
        let result = change(running);
        let after = Keys::of(running);
        let (user, turn) = (running.request.user, running.turn(job));
        self.index(started, before, after);
        self.index_user(user, turn, (before.room > 0, after.room > 0));
        Some(result)
    }

    /// A running job has another size from now on.
    pub(super) fn resize(&mut self, now: Moment, job: JobId, size: u32) {
        let speed = self.resources.speed;
        self.change(job, |it| {
            if it.size != size {
                it.size = size;
                let rate = it.request.rate_on(size, speed);
                it.progress.enter(now, rate, Duration::ZERO);
            }
        });
    }

    pub(super) fn decline(&mut self, job: JobId) {
        if self.change(job, |it| it.has_declined = true).is_some() {
            self.declined.push(job);
        }
    }

    /// Whoever declined may be asked again.
    pub(super) fn forgive(&mut self) {
        for job in std::mem::take(&mut self.declined) {
            self.change(job, |it| it.has_declined = false);
        }
    }

    fn index(&mut self, started: Started, before: Keys, after: Keys) {
        self.changes.other = true;
        self.held = self.held - before.held + after.held;
        self.asked = self.asked - before.asked + after.asked;
        self.spare = self.spare - before.spare + after.spare;
        put(&mut self.can_give, started, before.spare > 0, after.spare > 0);
        put(&mut self.can_take, started, before.room > 0, after.room > 0);
        put(&mut self.lacking, started, before.lacks, after.lacks);
        put(&mut self.wanting, started, before.wants, after.wants);
        if before.end != after.end {
            let job = started.1;
            before.end.map(|end| self.ends.remove(&(end, job)));
            after.end.map(|end| self.ends.insert((end, job)));
        }
    }

    fn index_user(&mut self, user: Option<User>, turn: Turn, (before, after): (bool, bool)) {
        if let Some(user) = user.filter(|_| before != after) {
            self.users.put(user, turn, Kind::Growing, after);
        }
    }
}

fn put(index: &mut BTreeSet<Started>, key: Started, before: bool, after: bool) {
    match (before, after) {
        (false, true) => _ = index.insert(key),
        (true, false) => _ = index.remove(&key),
        (true, true) | (false, false) => {}
    }
}
