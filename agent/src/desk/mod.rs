//! The desk: the loop that hears everybody and does what the core says.
//!
//! One thread, the worker's first, and it never waits but for the next event:
//! what may take long is the link's. It hears the sensors before anybody else
//! and carries out what touches guests before anything else, so that a
//! keystroke is a frozen guest within microseconds.

mod place;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gleaner_agent_core::desk::{self, Desk as Core, Effect, Event, Exit};
use gleaner_agent_core::occupancy::Observation;
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::Outcome;
use gleaner_common::time::Moment;
use gleaner_shell::clock::{Alarm, Clock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub(crate) use self::place::{Limits, Site};
use self::place::{Place, Told};
use crate::link::{LinkEvent, LinkHandle, LinkOrder, Recorded, since_boot};
use crate::moving::Mover;
use crate::owner::{self, Answer, Asked};
use crate::pause;
use crate::post::{self, Letter};
use crate::sense::{Own, Senses};

/// How often the disk use of guests is looked at.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Memory is given back so long after the start, and after the last keeper.
const THRIFTY_AFTER: Duration = Duration::from_secs(1);

/// How long guests may take to end when the agent stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// We were told to stop, and everything is said.
    Stopped,
    /// The link is gone: a new worker is needed.
    LinkDied,
}

/// Everything the loop works with.
#[derive(Debug)]
pub(crate) struct Desk {
    site: Site,
    core: Core,
    senses: Senses,
    link: LinkHandle,
    places: Vec<Place>,
    alarm: Alarm,
    /// What it is set to.
    alarm_at: Option<Moment>,
    /// Readable when we are told to stop.
    signals: UnixStream,
    /// Events and observations not handled yet.
    queue: VecDeque<Event>,
    /// The connection that frames go to.
    session: u64,
    measure_at: Option<Moment>,
    give_back_at: Option<Moment>,
    give_up_at: Option<Moment>,
    post_died: bool,
    stopping: bool,
    ended: bool,
    missing: Vec<String>,
    /// How ranks ended; the post still reads what they wrote last.
    settling: BTreeMap<Fence, (PlaceId, Exit)>,
    /// Why there is no connection.
    trouble: Option<String>,
    name: String,
    coordinator: String,
}

/// Who we are, for the owner.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) coordinator: String,
    pub(crate) missing: Vec<String>,
}

impl Desk {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new(
        site: Site,
        setup: desk::Setup,
        link: LinkHandle,
        signals: UnixStream,
        known: Known,
    ) -> io::Result<Self> {
        let now = Clock.now();
        let places = setup.facts.places;
        let own = Own {
            guests_cgroup: site.tree.as_ref().map(|tree| tree.guests().to_path_buf()),
            guest_uids: site.config.guest_uids(places),
            cores: setup.facts.cores,
        };
        let (senses, seen) = Senses::open(now, &site.config.senses(), &own)?;
        let (core, effects) = Core::new(now, setup);
        let mut this = Self {
            site,
            core,
            senses,
            link,
            places: (0..places).map(|n| Place::new(PlaceId(n))).collect(),
            alarm: Alarm::new()?,
            alarm_at: None,
            signals,
            queue: VecDeque::new(),
            session: 0,
            measure_at: None,
            give_back_at: Some(now + THRIFTY_AFTER),
            give_up_at: None,
            post_died: false,
            stopping: false,
            ended: false,
            missing: known.missing,
            settling: BTreeMap::new(),
            trouble: None,
            name: known.name,
            coordinator: known.coordinator,
        };
        this.apply(effects);
        this.observe(seen);
        this.settle();
        Ok(this)
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) -> Ended {
        while !self.ended {
            if self.post_died || !self.link.is_alive() {
                return Ended::LinkDied;
            }
            self.turn();
        }
        self.places.clear();
        self.link.stop();
        Ended::Stopped
    }

    /// Waits for something and handles it.
    fn turn(&mut self) {
        // Without an alarm the deadlines pass unheard: look every second then.
        let timeout =
            self.set_alarm().err().map(|_| rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 });
        let keepers: Vec<_> =
            (0..self.places.len()).filter(|at| self.places[*at].keeper().is_some()).collect();
        let (sensed, stopped, linked, heard) = {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.senses.fd(), PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::from_borrowed_fd(self.link.bell.as_fd(), PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            fds.extend(keepers.iter().filter_map(|at| {
                let keeper = self.places[*at].keeper()?;
                Some(PollFd::from_borrowed_fd(keeper.socket(), PollFlags::IN))
            }));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => tracing::error!(%error, "cannot wait for events"),
            }
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let heard: Vec<usize> = keepers
                .iter()
                .zip(&fds[4..])
                .filter(|(_, fd)| ready(fd))
                .map(|(at, _)| *at)
                .collect();
            (ready(&fds[0]), ready(&fds[1]), ready(&fds[2]), heard)
        };
        if sensed {
            let seen = self.senses.ready(Clock.now());
            self.observe(seen);
            self.settle();
        }
        if stopped {
            self.stop();
        }
        for at in heard {
            let mut told = Told::default();
            self.places[at].hear(Clock.now(), &self.site, &mut told);
            self.take(told);
        }
        self.settle();
        if linked {
            for event in self.link.take() {
                self.link_says(event);
            }
        }
        self.settle();
        self.wake();
    }

    fn set_alarm(&mut self) -> io::Result<()> {
        let deadline = self.deadline();
        // An alarm that has rung stays readable until it is set anew.
        if deadline != self.alarm_at || deadline.is_some_and(|at| at <= Clock.now()) {
            self.alarm.set(deadline)?;
            self.alarm_at = deadline;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Moment> {
        [
            self.core.deadline(),
            Some(self.senses.deadline()),
            self.measure_at,
            self.give_back_at,
            self.give_up_at,
        ]
        .into_iter()
        .chain(self.places.iter().map(Place::deadline))
        .flatten()
        .min()
    }

    /// Acts on what is due.
    fn wake(&mut self) {
        let now = Clock.now();
        if self.senses.deadline() <= now {
            let seen = self.senses.wake(now);
            self.observe(seen);
            self.settle();
        }
        if self.core.deadline().is_some_and(|at| at <= now) {
            let effects = self.core.wake(now);
            self.apply(effects);
        }
        let mut told = Told::default();
        let open = !self.stopping && self.core.is_open();
        for place in &mut self.places {
            place.look(now, &self.site, &mut told);
            place.set_open(now, open);
            if place.wake(now) {
                self.give_back_at = Some(now + THRIFTY_AFTER);
            }
        }
        // One at a time: it takes a moment, and an owner may come.
        if let Some(place) = self.places.iter_mut().find(|place| place.wants_keeper()) {
            place.restock(&self.site, &mut told);
        }
        self.take(told);
        if self.give_back_at.is_some_and(|at| at <= now) {
            self.give_back_at = None;
            crate::memory_trim::trim();
        }
        if self.measure_at.is_some_and(|at| at <= now) {
            self.measure_at = None;
            for order in self.places.iter().filter_map(Place::to_measure) {
                self.link.order(order);
            }
            self.queue.extend(self.places.iter().filter_map(Place::weighed));
        }
        if self.give_up_at.is_some_and(|at| at <= now) {
            tracing::warn!("guests did not end in time: stopping without them");
            self.ended = true;
        }
        self.settle();
    }

    fn observe(&mut self, seen: Vec<Observation>) {
        if seen.contains(&Observation::Woke) {
            self.link.order(LinkOrder::Woke);
        }
        self.queue.extend(seen.into_iter().map(Event::Observed));
    }

    fn take(&mut self, told: Told) {
        self.queue.extend(told.events);
        for order in told.orders {
            self.link.order(order);
        }
        for letter in told.letters {
            self.link.post.leave(letter);
        }
        let settling = told.settling.into_iter();
        self.settling.extend(settling.map(|(fence, place, exit)| (fence, (place, exit))));
        for line in told.missing {
            self.lacks(line);
        }
    }

    fn lacks(&mut self, line: String) {
        if !self.missing.contains(&line) {
            tracing::warn!("{line}");
            self.missing.push(line);
        }
    }

    /// Handles what is queued, and what comes of it.
    fn settle(&mut self) {
        while let Some(event) = self.queue.pop_front() {
            let effects = self.core.handle(Clock.now(), event);
            self.apply(effects);
        }
        let present = self.places.iter().any(Place::has_guest);
        if present && self.measure_at.is_none() {
            self.measure_at = Some(Clock.now() + MEASURE_EVERY);
        } else if !present {
            self.measure_at = None;
        }
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        let mut guests_changed = false;
        for effect in effects {
            let mut told = Told::default();
            match effect {
                Effect::Freeze { place, .. } => self.at(place, Place::freeze),
                Effect::Thaw { place, .. } => {
                    self.at(place, |place| place.before_thaw(&mut told));
                    self.take(std::mem::take(&mut told));
                    self.at(place, Place::thaw);
                }
                // A guest is below everything of the owner's from its start: its
                // scheduling class and its group see to it.
                Effect::Demote { .. } | Effect::Restore { .. } => {}
                Effect::AskToRetreat { fence, within, .. } => {
                    self.link.post.leave(Letter::Retreat { fence, within });
                }
                Effect::Kill { place, fence } => {
                    self.at(place, |place| place.kill(fence, &mut told));
                    if !self.core.knows(fence) {
                        self.at(place, |place| place.abandon(fence, &mut told));
                    }
                }
                Effect::Empty { place, fence } => {
                    self.at(place, |place| place.empty(fence, &mut told));
                }
                Effect::Start(start) => {
                    if let Some(place) = self.places.get_mut(usize::from(start.place.0)) {
                        place.start(&self.site, &start, &mut told);
                        guests_changed = true;
                    }
                }
                Effect::Again(start) => {
                    if let Some(place) = self.places.get_mut(usize::from(start.place.0)) {
                        place.again(&self.site, &start, &mut told);
                        guests_changed = true;
                    }
                }
                Effect::Expect(start) => {
                    if let Some(place) = self.places.get_mut(usize::from(start.place.0)) {
                        place.expect(&self.site, &start, &mut told);
                        guests_changed = true;
                    }
                }
                Effect::Go { place, fence } => {
                    if let Some(place) = self.places.get_mut(usize::from(place.0)) {
                        place.go(&self.site, fence, &mut told);
                        guests_changed = true;
                    }
                }
                Effect::Depart(departure) => {
                    if let Some(place) = self.places.get_mut(usize::from(departure.place.0)) {
                        place.depart(&self.site, departure, &mut told);
                    }
                }
                Effect::CallBack { place, fence } => {
                    self.at(place, |place| place.call_back(fence, &mut told));
                }
                Effect::Prepare { job, spec } => self.link.order(LinkOrder::Stage { job, spec }),
                Effect::Discard { job } => self.link.order(LinkOrder::Discard(job)),
                Effect::Abandon { fence } => self.link.order(LinkOrder::Abandon(fence)),
                Effect::Send(frame) => {
                    self.link.order(LinkOrder::Frame { session: self.session, frame });
                }
                Effect::Record(transition) => {
                    tracing::info!(cause = %transition.cause, "{}", transition.reason);
                    self.link.order(LinkOrder::Record(Box::new(Recorded {
                        transition,
                        wall: Clock.wall(),
                        since_boot: since_boot(Clock.now()),
                    })));
                }
                Effect::PersistPause(pause) => {
                    pause::keep(&self.site.config.data, pause.as_ref(), now());
                }
                Effect::ReadyToSleep => self.link.order(LinkOrder::ReadyToSleep),
                Effect::ReadyToStop => self.ended = true,
            }
            self.take(told);
        }
        if guests_changed {
            self.tell_senses();
        }
        let mut told = Told::default();
        for place in &mut self.places {
            place.drop_bare(|fence| self.core.knows(fence), &mut told);
        }
        self.take(told);
    }

    /// The load sensor looks closer while there are guests.
    fn tell_senses(&mut self) {
        let keepers: Vec<u32> = self
            .places
            .iter()
            .filter_map(Place::keeper)
            .map(|keeper| keeper.pid().as_raw_nonzero().get().cast_unsigned())
            .collect();
        self.senses.set_guests(Clock.now(), self.core.has_guests(), &keepers);
    }

    fn at(&mut self, place: PlaceId, act: impl FnOnce(&mut Place)) {
        if let Some(place) = self.places.get_mut(usize::from(place.0)) {
            act(place);
        }
    }

    fn link_says(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up { session, addresses } => {
                self.session = session;
                self.queue.push_back(Event::Reachable(addresses));
                self.queue.push_back(Event::LinkUp);
            }
            LinkEvent::Core(event) => {
                if event == Event::Woke {
                    self.link.order(LinkOrder::Woke);
                }
                self.queue.push_back(event);
            }
            LinkEvent::Laid { place, fence, done } => {
                let (mut told, now) = (Told::default(), Clock.now());
                self.at(place, |place| place.laid(now, fence, done, &mut told));
                self.take(told);
            }
            LinkEvent::Measured { place, fence, bytes } => {
                let over = self
                    .places
                    .get(usize::from(place.0))
                    .and_then(|place| place.measured(fence, bytes));
                self.queue.extend(over);
            }
            LinkEvent::Header { .. }
            | LinkEvent::Known { .. }
            | LinkEvent::Whole { .. }
            | LinkEvent::NotComing { .. }
            | LinkEvent::CarryingEnded { .. }
            | LinkEvent::Imaged { .. } => self.moved(event),
            LinkEvent::Missing(line) => self.lacks(line),
            LinkEvent::Trouble(line) => self.trouble = line,
            LinkEvent::Asked(asked) => self.answer(asked),
            LinkEvent::Post(told) => self.post_says(told),
        }
        // One after another: an answer must show what came before it.
        self.settle();
    }

    /// What the link says of guests that come and go.
    fn moved(&mut self, event: LinkEvent) {
        let (mut told, now) = (Told::default(), Clock.now());
        match event {
            LinkEvent::Header { place, fence, header, memory } => {
                if let Some(place) = self.places.get_mut(usize::from(place.0)) {
                    place.header(now, &self.site, fence, (header, &memory), &mut told);
                }
                self.tell_senses();
            }
            LinkEvent::Known { place, fence, known } => {
                self.at(place, |place| place.known(now, fence, known, &mut told));
            }
            LinkEvent::Whole { place, fence, bytes } => {
                self.at(place, |place| place.whole(now, fence, bytes, &mut told));
            }
            LinkEvent::NotComing { place, fence, reason } => {
                self.at(place, |place| place.not_coming(now, fence, reason, &mut told));
            }
            LinkEvent::CarryingEnded { place, fence } => {
                self.at(place, |place| place.carrying_ended(fence));
            }
            LinkEvent::Imaged { place, fence, done } => {
                self.at(place, |place| place.imaged(now, fence, done, &mut told));
            }
            LinkEvent::Up { .. }
            | LinkEvent::Core(_)
            | LinkEvent::Laid { .. }
            | LinkEvent::Measured { .. }
            | LinkEvent::Missing(_)
            | LinkEvent::Trouble(_)
            | LinkEvent::Asked(_)
            | LinkEvent::Post(_) => {}
        }
        self.take(told);
    }

    fn post_says(&mut self, told: post::Told) {
        match told {
            post::Told::Faulted { fence, what } => {
                self.queue.push_back(Event::Faulted { fence, what });
            }
            post::Told::Settled { fence, fault, stays } => {
                let Some((place, mut exit)) = self.settling.remove(&fence) else { return };
                if stays {
                    self.at(place, |place| place.is_bare(fence));
                }
                if let Some(what) = fault {
                    exit.outcome = Outcome::Fault(what);
                }
                self.queue.push_back(Event::Exited { fence, exit });
            }
            post::Told::Returned(fence) => self.queue.push_back(Event::Returned(fence)),
            post::Told::Packed { fence, packed } => {
                let mut told = Told::default();
                if let Some(place) = self.places.iter_mut().find(|place| place.packs(fence)) {
                    place.packed(&self.site, fence, packed, &mut told);
                }
                self.take(told);
            }
            post::Told::WantsImage(fence) => {
                let mut told = Told::default();
                let place = self.places.iter_mut().find(|place| place.runs(fence));
                if let Some(place) = place {
                    place.take_image(&self.site, fence, &mut told);
                }
                self.take(told);
            }
            post::Told::Emptied { fence, done } => {
                let mut told = Told::default();
                if let Some(place) = self.places.iter_mut().find(|place| place.images(fence)) {
                    place.emptied(&self.site, fence, done, &mut told);
                }
                self.take(told);
            }
            post::Told::HasImage { fence, bytes, image, ends } => {
                let mut told = Told::default();
                if let Some(place) = self.places.iter_mut().find(|place| place.runs(fence)) {
                    place.begin_with_image(&self.site, fence, (bytes, image), &mut told);
                }
                self.take(told);
                // Not before: its process would end by itself.
                drop(ends);
            }
            post::Told::Unpacked { fence, done } => {
                let mut told = Told::default();
                let now = Clock.now();
                if let Some(place) = self.places.iter_mut().find(|it| it.is_inbound(fence)) {
                    place.unpacked(now, fence, done, &mut told);
                }
                self.take(told);
            }
            post::Told::Died => self.post_died = true,
        }
    }

    fn stop(&mut self) {
        // The other end of the pair is the signal handler's: any byte will do.
        let mut bytes = [0; 16];
        let _ = rustix::io::read(&self.signals, &mut bytes);
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        tracing::info!("stopping");
        self.give_up_at = Some(Clock.now() + STOP_WITHIN);
        self.queue.push_back(Event::ShutDown { reason: "the agent is stopping".into() });
        self.settle();
    }

    fn answer(&mut self, asked: Asked) {
        let Asked { command, by, answer } = asked;
        let said = match command {
            owner::Command::Status => Answer::Status(Box::new(self.status())),
            owner::Command::Pause { seconds } => {
                tracing::info!(%by, ?seconds, "paused");
                let pause = pause::pause(by, seconds.map(Duration::from_secs), now());
                self.queue.push_back(Event::Pause(pause));
                Answer::Done
            }
            owner::Command::Resume => {
                tracing::info!(%by, "resumed");
                self.queue.push_back(Event::Resume);
                Answer::Done
            }
            owner::Command::Stop { fence } => {
                let here = self.core.status(Clock.now());
                if here.guests.iter().any(|guest| guest.fence == fence) {
                    self.queue.push_back(Event::Stop { fence, by });
                    Answer::Done
                } else {
                    Answer::No { reason: format!("no guest {fence} is here") }
                }
            }
        };
        self.settle();
        let _ = answer.send(said);
    }

    fn status(&self) -> owner::Status {
        let status = self.core.status(Clock.now());
        let presence = status.presence;
        owner::Status {
            name: self.name.clone(),
            coordinator: self.coordinator.clone(),
            busy: presence.busy,
            verdict: status.verdict,
            reason: presence.reason,
            lasted_s: presence.lasted.as_secs_f64(),
            slots: presence.slots,
            load_1m: presence.load.one,
            load_5m: presence.load.five,
            load_15m: presence.load.fifteen,
            users: presence.users,
            sensors: status
                .sensors
                .iter()
                .map(|(sensor, health)| owner::SensorStatus {
                    sensor: sensor.name().to_owned(),
                    health: health.name().to_owned(),
                    detail: health.trouble().map(str::to_owned),
                })
                .collect(),
            pause: status.pause.map(|pause| owner::PauseStatus {
                by: pause.by,
                until: pause.until.map(|end| end.said),
            }),
            connected: status.connected,
            lease_left_s: status.lease_left.map(|left| left.as_secs_f64()),
            guests: status
                .guests
                .into_iter()
                .map(|guest| owner::GuestStatus {
                    fence: guest.fence,
                    subprogram: guest.subprogram,
                    name: guest.name,
                    place: guest.place.map(|place| place.0),
                    state: guest.state.name().to_owned(),
                    lasted_s: guest.lasted.as_secs_f64(),
                })
                .collect(),
            results_waiting: status.ends_waiting as u64,
            refused: status.refused.or_else(|| self.trouble.clone()),
            missing: self.missing.clone(),
            moves: Mover::status(self.site.mover.as_deref()),
        }
    }
}

fn now() -> pause::Now {
    pause::Now { moment: Clock.now(), wall: Clock.wall() }
}
