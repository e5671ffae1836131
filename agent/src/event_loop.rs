//! The loop that hears everybody and does what the core says.
//!
//! One thread, the worker's first, and it never waits but for the next event:
//! what may take long is the link's. It hears the sensors before anybody else
//! and carries out what touches guests before anything else, so that a
//! keystroke is a frozen guest within microseconds. Decides nothing: where an
//! event waits for another, the core has a state for that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gleaner_agent_core::agent::{self, Agent, Event};
use gleaner_agent_core::guest::{self, Effect, Exit, KeeperEvent};
use gleaner_agent_core::occupancy::Observation;
use gleaner_agent_core::spool::Recorded;
use gleaner_agent_core::watchdog::{self, BEAT_EVERY, UNREAD_MAX, Vouch};
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::Outcome;
use gleaner_common::program::HandoverReply;
use gleaner_common::time::{Moment, Spoken};
use gleaner_shell::clock::{Alarm, Clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::container::{Answers, Container, Reap, Site};
use crate::link::{LinkEvent, LinkHandle, LinkOrder, since_boot};
use crate::messages::{RouterCommand, RouterEvent};
use crate::moving::Mover;
use crate::owner::{self, Answer, Asked};
use crate::pause;
use crate::sense::{Own, Senses};

/// Memory is given back so long after the start, and after the last keeper.
const TRIM_AFTER: Duration = Duration::from_secs(1);

/// How long guests may take to end when the agent stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// We were told to stop, and everything is said.
    Stopped,
    /// The link is gone: a new worker is needed.
    LinkDied,
}

/// Everything the loop works with.
#[derive(Debug)]
pub(crate) struct EventLoop {
    site: Site,
    core: Agent,
    senses: Senses,
    link: LinkHandle,
    places: Vec<Container>,
    alarm: Alarm,
    /// What it is set to.
    alarm_at: Option<Moment>,
    /// Readable when we are told to stop.
    signals: UnixStream,
    /// What was said last of guests that run, and of the lease.
    vouched: Option<Vouch>,
    lease_told: Option<Moment>,
    /// How often the supervisor has frozen and killed in this one's stead.
    doubted: (u64, u64),
    /// Events and observations not handled yet.
    queue: VecDeque<Event>,
    /// The connection that frames go to.
    session: u64,
    trim_at: Option<Moment>,
    give_up_at: Option<Moment>,
    router_died: bool,
    stopping: bool,
    ended: bool,
    missing: Vec<String>,
    /// How ranks ended; the router still reads what they wrote last.
    settling: BTreeMap<Fence, Exit>,
    /// Why there is no connection.
    trouble: Option<String>,
    name: String,
    coordinator: String,
}

/// Who we are, for the owner.
#[derive(Debug)]
pub(crate) struct OwnerInfo {
    pub(crate) name: String,
    pub(crate) coordinator: String,
    pub(crate) missing: Vec<String>,
}

impl EventLoop {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new(
        site: Site,
        setup: agent::Setup,
        link: LinkHandle,
        signals: UnixStream,
        info: OwnerInfo,
    ) -> io::Result<Self> {
        let now = Clock.now();
        let places = setup.facts.places;
        let own = Own {
            guests_cgroup: site.tree.as_ref().map(|tree| tree.guests().to_path_buf()),
            guest_uids: site.config.guest_uids(places),
            cores: setup.facts.cores,
            load_cgroup: site.config.cgroup.load.clone(),
        };
        let (senses, seen) = Senses::open(now, &site.config.sensors, &own)?;
        let (core, effects) = Agent::new(now, setup);
        let mut this = Self {
            site,
            core,
            senses,
            link,
            places: (0..agent::seats(places)).map(|n| Container::new(PlaceId(n))).collect(),
            alarm: Alarm::new()?,
            alarm_at: None,
            signals,
            vouched: None,
            lease_told: None,
            doubted: (0, 0),
            queue: VecDeque::new(),
            session: 0,
            trim_at: Some(now + TRIM_AFTER),
            give_up_at: None,
            router_died: false,
            stopping: false,
            ended: false,
            missing: info.missing,
            settling: BTreeMap::new(),
            trouble: None,
            name: info.name,
            coordinator: info.coordinator,
        };
        this.apply(effects);
        this.observe(seen);
        this.settle();
        Ok(this)
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) -> LoopEnd {
        while !self.ended {
            if self.router_died || !self.link.is_alive() {
                return LoopEnd::LinkDied;
            }
            self.turn();
        }
        self.places.clear();
        self.link.stop();
        LoopEnd::Stopped
    }

    /// Waits for something and handles it.
    fn turn(&mut self) {
        // Without an alarm the deadlines pass unheard: look every second then.
        let timeout = self.set_alarm().err().map(|_| Timespec { tv_sec: 1, tv_nsec: 0 });
        let (sensed, stopped, linked, heard) = {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.senses.fd(), PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::from_borrowed_fd(self.link.bell.as_fd(), PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            let mut watched = vec![];
            for (at, place) in self.places.iter().enumerate() {
                fds.extend(place.watched().inspect(|_| watched.push(at)));
            }
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => tracing::error!(%error, "cannot wait for events"),
            }
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let heard = watched.into_iter().zip(&fds[4..]).filter(|(_, fd)| ready(fd));
            let heard: BTreeSet<usize> = heard.map(|(at, _)| at).collect();
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
            self.hear(at);
        }
        self.settle();
        if linked {
            for event in self.link.take() {
                self.link_says(event);
            }
        }
        self.settle();
        self.wake();
        self.vouch();
    }

    fn hear(&mut self, at: usize) {
        let mut answers = Answers::default();
        self.places[at].hear(&mut answers);
        self.take(answers);
    }

    /// What has been seen so far is done with. If there is nothing more, guests may run
    /// on that word for a while; otherwise the next turn is at once.
    fn vouch(&mut self) {
        self.tell_lease();
        if !self.core.runs_guests() {
            self.say(None);
        } else if watchdog::is_news(self.vouched, self.vouch_of(Clock.now()))
            && let Some(looked) = self.look()
        {
            self.say(self.vouch_of(looked));
        }
    }

    /// Before a guest runs, somebody must know of it: a worker can be stopped at any
    /// moment. That none runs any more is said only once it is so.
    fn vouch_before(&mut self) {
        self.tell_lease();
        if self.vouched.is_none() && self.core.runs_guests() {
            // With its owner unheard it begins frozen, until that is done with.
            let looked = self.look().unwrap_or(Clock.now() - UNREAD_MAX);
            self.say(self.vouch_of(looked));
        }
    }

    fn vouch_of(&self, looked: Moment) -> Option<Vouch> {
        Some(Vouch { looked, lease_end: self.core.lease_end()? })
    }

    /// Have the sensors nothing to say? The time is from before the look: whoever is
    /// stopped between the two has looked when it says, or later.
    fn look(&self) -> Option<Moment> {
        let looked = Clock.now();
        let mut sensors = [PollFd::from_borrowed_fd(self.senses.fd(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        (poll(&mut sensors, Some(&at_once)) == Ok(0)).then_some(looked)
    }

    fn say(&mut self, vouch: Option<Vouch>) {
        let Some(beats) = &self.site.beats else { return };
        if vouch == self.vouched {
            return;
        }
        beats.say(vouch);
        let before = std::mem::replace(&mut self.doubted, beats.doubted());
        if self.doubted != before {
            let silent = self.vouched.map_or(Duration::ZERO, |said| Clock.now().since(said.looked));
            let (silent, killed) = (Spoken(silent), self.doubted.1 > before.1);
            tracing::warn!(%silent, killed, "the supervisor froze guests nobody vouched for");
        }
        self.vouched = vouch;
    }

    fn tell_lease(&mut self) {
        let lease = self.core.lease_end();
        if let Some((beats, end)) = self.site.beats.as_ref().zip(lease)
            && self.lease_told != lease
        {
            beats.lease_ends(end);
            self.lease_told = lease;
        }
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
        let beats_at = self.vouched.map(|said| said.looked + BEAT_EVERY);
        let senses_at = Some(self.senses.deadline());
        [self.core.deadline(), senses_at, beats_at, self.trim_at, self.give_up_at]
            .into_iter()
            .chain(self.places.iter().map(Container::deadline))
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
        for at in 0..self.places.len() {
            if self.places[at].deadline().is_some_and(|end| end <= now) {
                self.hear(at);
            }
        }
        if self.trim_at.is_some_and(|at| at <= now) {
            self.trim_at = None;
            crate::memory_trim::trim();
        }
        if self.give_up_at.is_some_and(|at| at <= now) {
            tracing::warn!("guests did not end in time: stopping without them");
            self.ended = true;
        }
        self.settle();
        self.tell_senses();
    }

    fn observe(&mut self, seen: Vec<Observation>) {
        if seen.contains(&Observation::Woke) {
            self.link.order(LinkOrder::Woke);
        }
        self.queue.extend(seen.into_iter().map(Event::Observed));
    }

    fn take(&mut self, answers: Answers) {
        self.queue.extend(answers.events);
        for order in answers.orders {
            self.link.order(order);
        }
        for command in answers.commands {
            self.link.router.leave(command);
        }
        self.settling.extend(answers.settling);
        for line in answers.missing {
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
            if may_lack_room(&event) {
                self.link.order(LinkOrder::LookAtRoom);
            }
            let effects = self.core.handle(Clock.now(), event);
            self.apply(effects);
        }
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        self.vouch_before();
        for effect in effects {
            let mut answers = Answers::default();
            self.carry_out(effect, &mut answers);
            self.take(answers);
        }
    }

    /// Has the containers, the link and the router do it: one function for each effect.
    fn carry_out(&mut self, effect: Effect, answers: &mut Answers) {
        let Self { places, site, .. } = self;
        match effect {
            Effect::Freeze(it) => at(places, it.place).freeze(),
            Effect::Thaw(it) => at(places, it.place).thaw(),
            Effect::Hurry(it, hurries) => at(places, it.place).hurry(hurries),
            Effect::Kill(it) => at(places, it.place).kill(),
            Effect::SpawnKeeper { place, staged } => {
                at(places, place).spawn_keeper(site, staged, answers);
            }
            Effect::DropKeeper(place) => {
                at(places, place).kill();
                self.trim_at = Some(Clock.now() + TRIM_AFTER);
            }
            Effect::Prepare(start) => at(places, start.at.place).prepare(site, &start, answers),
            Effect::LayInputs(it) => at(places, it.place).lay_inputs(it.fence, answers),
            Effect::Launch { at: it, begins } => {
                at(places, it.place).launch(site, it, begins, answers);
            }
            Effect::Reap { at: it, endpoint, stays, discard } => {
                at(places, it.place).reap(site, Reap { at: it, endpoint, stays, discard }, answers);
            }
            Effect::ClearGround(it) => at(places, it.place).clear_directories(it, answers),
            Effect::Look(it) => at(places, it.place).look(it, answers),
            Effect::Measure(it) => at(places, it.place).measure(it.fence, answers),

            Effect::Expect(start) => at(places, start.at.place).expect(site, &start, answers),
            Effect::ExpectSnapshot(start) => {
                at(places, start.at.place).expect_snapshot(site, &start, answers);
            }
            Effect::ReceiveProcess(it) => at(places, it.place).receive_process(site, it, answers),
            Effect::LayRest(it) => at(places, it.place).lay_rest(it, answers),
            Effect::Unpack(it) => at(places, it.place).unpack(it, answers),
            Effect::Land(it) => at(places, it.place).land(it, answers),
            Effect::Verify(it) => at(places, it.place).verify(it, answers),
            Effect::Answer(it, no) => {
                let reply = no.map_or(HandoverReply::Taken, |reason| HandoverReply::No { reason });
                answers.orders.push(LinkOrder::Answer { fence: it.fence, reply });
            }
            Effect::SetGoing(it) => answers.commands.push(RouterCommand::SetGoing(it.fence)),
            Effect::GoOn(it) => at(places, it.place).go_on(),

            Effect::AskToRetreat { at: it, within } => {
                answers.commands.push(RouterCommand::Retreat { fence: it.fence, within });
            }
            Effect::Pack(it, keep) => {
                answers.commands.push(RouterCommand::Depart { fence: it.fence, keep });
            }
            Effect::Stayed(it) => answers.commands.push(RouterCommand::Stayed(it.fence)),
            Effect::Carry(departure) => {
                at(places, departure.at.place).carry(site, departure, answers);
            }
            Effect::CallBack(it) => answers.orders.push(LinkOrder::CallBack(it.fence)),
            Effect::DropEndpoint(it, to) => {
                let fence = it.fence;
                answers.commands.push(match to {
                    Some(to) => RouterCommand::Left { fence, to: to.fence, at: to.workstation },
                    None => RouterCommand::Dropped(fence),
                });
            }
            Effect::Replug(it) => at(places, it.place).replug(it, answers),

            Effect::EmptyPipes(it) => answers.commands.push(RouterCommand::Image(it.fence)),
            Effect::WriteImage(it) => at(places, it.place).write_image(site, it, answers),
            Effect::ImageEnded { at: it, done, stood } => {
                let done = at(places, it.place).taken_image(it, done);
                answers.commands.push(RouterCommand::Imaged { fence: it.fence, done, stood });
            }

            Effect::Stage { job, spec } => answers.orders.push(LinkOrder::Stage { job, spec }),
            Effect::Discard { job } => answers.orders.push(LinkOrder::Discard(job)),
            Effect::Abandon { fence } => answers.orders.push(LinkOrder::Abandon(fence)),
            Effect::Send(frame) => {
                answers.orders.push(LinkOrder::Frame { session: self.session, frame });
            }
            Effect::Record(transition) => {
                tracing::info!(cause = %transition.cause, "{}", transition.reason);
                let (wall, since_boot) = (Clock.wall(), since_boot(Clock.now()));
                let record = Recorded { transition, wall, since_boot };
                answers.orders.push(LinkOrder::Record(Box::new(record)));
            }
            Effect::PersistPause(pause) => {
                pause::keep(&self.site.config.data, pause.as_ref(), now());
            }
            Effect::ReadyToSleep => answers.orders.push(LinkOrder::ReadyToSleep),
            Effect::ReadyToStop => self.ended = true,
        }
    }

    /// The load sensor looks closer while there are guests.
    fn tell_senses(&mut self) {
        let keepers: Vec<u32> = self
            .places
            .iter()
            .filter_map(Container::keeper)
            .map(|keeper| keeper.pid().as_raw_nonzero().get().cast_unsigned())
            .collect();
        self.senses.set_guests(Clock.now(), self.core.has_guests(), &keepers);
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
            LinkEvent::Header { fence, header, memory } => {
                self.with(fence, |place, answers| place.header(fence, (header, memory), answers));
            }
            LinkEvent::Known { fence, known } => {
                self.with(fence, |place, answers| place.known(fence, known, answers));
            }
            LinkEvent::Imaged { fence, done } => {
                self.with(fence, |place, answers| place.image_written(fence, done, answers));
            }
            LinkEvent::Missing(line) => self.lacks(line),
            LinkEvent::Trouble(line) => self.trouble = line,
            LinkEvent::Asked(asked) => self.answer(asked),
            LinkEvent::Router(event) => self.router_says(event),
            LinkEvent::RouterDied => self.router_died = true,
        }
        // One after another: an answer must show what came before it.
        self.settle();
    }

    fn router_says(&mut self, event: RouterEvent) {
        match event {
            RouterEvent::Faulted { fence, what } => self.guest(fence, guest::Event::Faulted(what)),
            RouterEvent::Settled { fence, fault, stays } => {
                let Some(mut exit) = self.settling.remove(&fence) else { return };
                if let Some(what) = fault {
                    exit.outcome = Outcome::Fault(what);
                }
                self.guest(fence, guest::Event::Exited { exit: Box::new(exit), stays });
            }
            RouterEvent::Returned(fence) => self.guest(fence, guest::Event::Returned),
            RouterEvent::Packed { fence, packed } => {
                self.with(fence, |place, answers| place.packed(fence, packed, answers));
            }
            RouterEvent::WantsImage(fence) => self.guest(fence, guest::Event::ImageWanted),
            RouterEvent::Emptied { fence, done } => {
                self.guest(fence, guest::Event::PipesEmptied(done));
            }
            RouterEvent::HasImage { fence, bytes, image, ends } => {
                let snapshot = (bytes, image, ends);
                self.with(fence, |place, answers| place.has_image(fence, snapshot, answers));
            }
            RouterEvent::Unpacked { fence, done } => {
                self.guest(fence, guest::Event::Unpacked(done));
            }
        }
    }

    /// Where this guest is.
    fn with(&mut self, fence: Fence, act: impl FnOnce(&mut Container, &mut Answers)) {
        let mut answers = Answers::default();
        if let Some(place) = self.places.iter_mut().find(|place| place.holds(fence)) {
            act(place, &mut answers);
        }
        self.take(answers);
    }

    fn guest(&mut self, fence: Fence, event: guest::Event) {
        self.queue.push_back(Event::Guest(fence, event));
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
                let present = self.core.status(Clock.now()).pause;
                match pause::not_shortened(present.as_ref(), &pause.by, Some(&pause)) {
                    Ok(()) => {
                        self.queue.push_back(Event::Pause(pause));
                        Answer::Done
                    }
                    Err(reason) => Answer::No { reason },
                }
            }
            owner::Command::Resume => {
                tracing::info!(%by, "resumed");
                let present = self.core.status(Clock.now()).pause;
                match pause::not_shortened(present.as_ref(), &by, None) {
                    Ok(()) => {
                        self.queue.push_back(Event::Resume);
                        Answer::Done
                    }
                    Err(reason) => Answer::No { reason },
                }
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
            unready: status.unready,
            refused: status.refused.or_else(|| self.trouble.clone()),
            missing: self.missing.clone(),
            moves: Mover::status(self.site.mover.as_deref()),
        }
    }
}

/// Is it what a full disk leads to?
fn may_lack_room(event: &Event) -> bool {
    let failed = |event: &guest::Event| {
        matches!(event, guest::Event::Failed { .. } | guest::Event::Laid(Err(_)))
            || matches!(event, guest::Event::Exited { exit, .. } if !exit.outcome.is_success())
    };
    matches!(
        event,
        Event::StagingFailed { .. }
            | Event::CollectingFailed { .. }
            | Event::Keeper(_, KeeperEvent::Failed { .. } | KeeperEvent::CannotStart { .. })
    ) || matches!(event, Event::Guest(_, event) if failed(event))
}

/// The core names no place but its own.
fn at(places: &mut [Container], place: PlaceId) -> &mut Container {
    &mut places[usize::from(place.0)]
}

fn now() -> pause::Now {
    pause::Now { moment: Clock.now(), wall: Clock.wall() }
}
