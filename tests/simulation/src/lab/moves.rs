//! Links: guests on their way from host to host, and what ranks hear.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{self, ARRIVAL_WITHIN, Departure, GuestAt, Start};
use gleaner_agent_core::router::Arrive;
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::reaction::Keep;
use gleaner_program_core::address::Rank;
use rand::Rng;

use super::place::{KeeperWork, Payload, Process};
use super::rank::RankProcess;
use super::router::RouterCommand;
use super::shell::{Ends, Pipe};
use super::{Lab, Local};

/// What carries a guest away.
#[derive(Debug)]
pub(crate) struct Carrier {
    departure: Departure,
    /// The process that it has in hand.
    pub(super) process: Option<u64>,
    payload: Payload,
    called_back: bool,
}

/// A guest's state, on its way.
#[derive(Debug)]
pub(super) struct Stream {
    /// Nobody, of what comes out of a snapshot.
    source: Option<(u32, u64, Fence)>,
    target: u32,
    new: Fence,
    payload: Payload,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The handover has arrived; is it expected?
    Reaches,
    Header,
    Known,
    Whole,
    /// The target says what comes of it.
    AllHere,
}

/// How long a source waits for its target's word, at most.
const LANDED_WITHIN: Duration = Duration::from_secs(90);

impl Lab {
    // ── the source ─────────────────────────────────────────────────────────

    pub(super) fn send_away(
        &mut self,
        index: usize,
        departure: Departure,
        process: Option<u64>,
        payload: Payload,
    ) {
        self.call_back(index, departure.at.fence);
        let number = self.number();
        let carrier = Carrier { departure, process, payload, called_back: false };
        self.hosts[index].carriers.insert(number, carrier);
        let after = self.up_to(Duration::from_millis(300));
        self.plan_here(index, after, Local::Carries(number));
    }

    pub(super) fn call_back(&mut self, index: usize, fence: Fence) {
        let of = |carrier: &Carrier| carrier.departure.at.fence == fence && !carrier.called_back;
        let carriers = self.hosts[index].carriers.iter_mut().filter(|(_, it)| of(it));
        let called: Vec<u64> = carriers
            .map(|(number, carrier)| {
                carrier.called_back = true;
                *number
            })
            .collect();
        for number in called {
            let after = self.up_to(Duration::from_millis(200));
            self.plan_here(index, after, Local::CarrierEnds { number, cannot: None, taken: false });
        }
    }

    pub(super) fn carries(&mut self, index: usize, number: u64) {
        let Some(carrier) = self.hosts[index].carriers.get(&number) else { return };
        let fence = carrier.departure.at.fence;
        let before =
            |(other, it): (&u64, &Carrier)| *other < number && it.departure.at.fence == fence;
        if self.hosts[index].carriers.iter().any(before) {
            return self.plan_here(index, Duration::from_millis(10), Local::Carries(number));
        }
        let (old, to, keep) = (fence, carrier.departure.to.at.clone(), carrier.departure.keep);
        let (called_back, in_hand, payload) =
            (carrier.called_back, carrier.process, carrier.payload.clone());
        let at = usize::from(carrier.departure.at.place.0);
        if called_back {
            return;
        }
        let process = self.hosts[index].places[at].process.as_ref();
        let is_there =
            in_hand.is_none() || process.is_some_and(|it| Some(it.number) == in_hand && !it.killed);
        let obstacle = keep != Keep::Nothing && self.rng.random_bool(self.setting.obstacles);
        if obstacle || !is_there {
            let cannot = Some("an open socket".to_owned());
            return self.carrier_ends(index, number, cannot, false);
        }
        let target = self.speaks_as(to.workstation);
        if self.hosts[target].agent.is_none() {
            let after = self.up_to(Duration::from_secs(5));
            let ends = Local::CarrierEnds { number, cannot: None, taken: false };
            return self.plan_here(index, after, ends);
        }
        let (host, life) = (self.hosts[index].id, self.hosts[index].incarnation);
        let (source, stage) = (Some((host, life, old)), Stage::Reaches);
        let stream =
            Stream { source, target: self.hosts[target].id, new: to.fence, payload, stage };
        self.streams.insert(number, stream);
        let after = self.up_to(Duration::from_millis(20));
        self.plan_here(target, after, Local::Streams(number));
        let ends = Local::CarrierEnds { number, cannot: None, taken: false };
        self.plan_here(index, LANDED_WITHIN, ends);
    }

    pub(super) fn carrier_ends(
        &mut self,
        index: usize,
        number: u64,
        cannot: Option<String>,
        taken: bool,
    ) {
        let Some(carrier) = self.hosts[index].carriers.remove(&number) else { return };
        let fence = carrier.departure.at.fence;
        if taken {
            self.tell(index, Event::Carried { bytes: 1_000, took: Duration::from_millis(200) });
        }
        if let Some(reason) = cannot {
            self.tell_guest(index, fence, guest::Event::CannotLeave(reason));
        }
        self.tell_guest(index, fence, guest::Event::CarryingEnded);
    }

    // ── the target ─────────────────────────────────────────────────────────

    pub(super) fn expect(&mut self, index: usize, start: &Start) {
        let old = start.arrival.as_ref().map_or(Fence::of(0), |arrival| arrival.old);
        if !self.prepare(index, start) {
            return;
        }
        let fence = start.at.fence;
        self.hosts[index].expected.insert(fence, old);
        if let Some(number) = self.hosts[index].early.remove(&fence) {
            self.streams_on(index, number);
        }
    }

    pub(super) fn expect_snapshot(&mut self, index: usize, start: &Start) {
        let payload = self.guest_at(index, start.at).snapshot.take().expect("it has a snapshot");
        if !self.prepare(index, start) {
            return;
        }
        let (number, target) = (self.number(), self.hosts[index].id);
        let stage = Stage::Header;
        let stream = Stream { source: None, target, new: start.at.fence, payload, stage };
        self.streams.insert(number, stream);
        self.goes_on_later(index, number);
    }

    fn goes_on_later(&mut self, index: usize, number: u64) {
        let long = self.rng.random_bool(0.2);
        let after = self.up_to(Duration::from_millis(if long { 2_000 } else { 50 }));
        self.plan_here(index, after, Local::Streams(number));
    }

    /// The next piece of it comes.
    pub(super) fn streams_on(&mut self, index: usize, number: u64) {
        let Some(stream) = self.streams.get(&number) else { return };
        let (new, stage, source) = (stream.new, stream.stage, stream.source);
        let has_process = stream.payload.image.is_some();
        let keep = stream.payload.keep;
        if stage == Stage::Reaches {
            return self.reaches(index, number);
        }
        if stage != Stage::AllHere && self.breaks(number) {
            self.streams.remove(&number);
            self.hosts[index].taking.remove(&new);
            self.reply(number, source, false);
            let reason = "the stream broke".to_owned();
            return self.tell_guest(index, new, guest::Event::NotComing(reason));
        }
        let (next, event) = match stage {
            Stage::Header if has_process => {
                let spec = self.hosts[index].guest(new).map(|guest| guest.start.spec.clone());
                let lays = spec.is_some_and(|spec| !spec.inputs.is_empty());
                let is_rank = self.streams[&number].payload.packed.is_some();
                let pipes = if is_rank { 2 } else { 0 };
                (Stage::Known, Some(guest::Event::Header { pipes, lays }))
            }
            Stage::Header => (Stage::Known, None),
            Stage::Known => (Stage::Whole, Some(guest::Event::Known { keep })),
            Stage::Whole => (Stage::AllHere, Some(guest::Event::Whole { bytes: 1_000 })),
            Stage::Reaches | Stage::AllHere => return,
        };
        self.streams.get_mut(&number).expect("it was there").stage = next;
        if next == Stage::AllHere && source.is_none() {
            let stream = self.streams.remove(&number);
            self.holds_of(index, new, stage, stream.map(|stream| stream.payload));
        } else {
            let payload = self.streams[&number].payload.clone();
            self.holds_of(index, new, stage, Some(payload));
        }
        if next != Stage::AllHere {
            self.goes_on_later(index, number);
        }
        if let Some(event) = event {
            self.tell_guest(index, new, event);
        }
    }

    /// The container holds what has come until it is asked for.
    fn holds_of(&mut self, index: usize, new: Fence, stage: Stage, payload: Option<Payload>) {
        let Some(at) = self.hosts[index].place_of(new) else { return };
        let guest = self.hosts[index].places[at].guest.as_mut().expect("it is held");
        match stage {
            Stage::Header => guest.header = true,
            Stage::Known => guest.known = payload,
            Stage::Whole => guest.whole = true,
            Stage::Reaches | Stage::AllHere => {}
        }
    }

    fn reaches(&mut self, index: usize, number: u64) {
        let stream = self.streams.get_mut(&number).expect("it was there");
        let (new, source) = (stream.new, stream.source);
        let old = source.map(|(.., old)| old);
        match self.hosts[index].expected.get(&new) {
            Some(expected) if Some(*expected) == old => {
                stream.stage = Stage::Header;
                self.hosts[index].expected.remove(&new);
                self.hosts[index].taking.insert(new, number);
                self.goes_on_later(index, number);
                self.tell_guest(index, new, guest::Event::Coming);
            }
            Some(expected) => panic!("{expected} is expected as {new}, not {old:?}"),
            None => {
                self.hosts[index].early.insert(new, number);
                self.plan_here(index, ARRIVAL_WITHIN, Local::Late(new));
            }
        }
    }

    /// Nobody has expected it.
    pub(super) fn drop_late(&mut self, index: usize, new: Fence) {
        let Some(number) = self.hosts[index].early.remove(&new) else { return };
        let stream = self.streams.remove(&number);
        self.reply(number, stream.and_then(|stream| stream.source), false);
    }

    /// Does its source stop sending, or the way there end?
    fn breaks(&mut self, number: u64) -> bool {
        let stream = &self.streams[&number];
        let (is_last, source) = (stream.stage == Stage::Whole, stream.source);
        let is_sent = source.is_none_or(|(host, life, _)| {
            let host = &self.hosts[host as usize - 1];
            let carrier = host.carriers.get(&number);
            host.incarnation == life && carrier.is_some_and(|carrier| !carrier.called_back)
        });
        // All of it may have been on its way already when its source gave up.
        let by_chance = if is_sent {
            self.setting.obstacles * 0.3
        } else if is_last {
            0.5
        } else {
            1.0
        };
        self.rng.random_bool(by_chance)
    }

    /// The source hears what became of it.
    fn reply(&mut self, number: u64, source: Option<(u32, u64, Fence)>, taken: bool) {
        let Some((host, life, _)) = source else { return };
        let index = host as usize - 1;
        if self.hosts[index].incarnation == life {
            let after = self.up_to(Duration::from_millis(20));
            let ends = Local::CarrierEnds { number, cannot: None, taken };
            self.plan_here(index, after, ends);
        }
    }

    pub(super) fn answer(&mut self, index: usize, at: GuestAt, no: Option<&str>) {
        let fence = at.fence;
        self.hosts[index].expected.remove(&fence);
        if no.is_none() {
            let guest = self.guest_at(index, at);
            guest.landed = true;
            let old = guest.start.arrival.as_ref().map(|arrival| arrival.old);
            self.witness.landed(old);
        }
        let Some(number) = self.hosts[index].taking.remove(&fence) else { return };
        let stream = self.streams.remove(&number);
        self.reply(number, stream.and_then(|stream| stream.source), no.is_none());
    }

    /// Streams to an agent that is gone end at their sources.
    pub(super) fn streams_end(&mut self, id: u32) {
        let to = |stream: &Stream| stream.target == id;
        let ended: Vec<u64> =
            self.streams.iter().filter(|(_, it)| to(it)).map(|(number, _)| *number).collect();
        for number in ended {
            let stream = self.streams.remove(&number);
            self.reply(number, stream.and_then(|stream| stream.source), false);
        }
    }

    pub(super) fn receive_process(&mut self, index: usize, at: GuestAt) {
        let guest = self.guest_at(index, at);
        assert!(guest.header, "{} is received before its header came", at.fence);
        if guest.start.rank.is_some() {
            let pipe = Pipe::default();
            (guest.ours, guest.theirs) = (Some(pipe.clone()), Some(pipe));
        }
        let keeper = self.hosts[index].places[usize::from(at.place.0)].keeper;
        if let Some(keeper) = keeper {
            assert!(keeper.staged, "no stage for what comes");
        } else {
            // The keeper failed to start, as was told.
            let gone = "its keeper is gone".to_owned();
            self.tell_guest(index, at.fence, guest::Event::NotComing(gone));
        }
    }

    pub(super) fn unpack_at(&mut self, index: usize, at: GuestAt) {
        let guest = self.guest_at(index, at);
        let ends = guest.ours.take().unwrap_or_else(|| {
            let pipe = Pipe::default();
            guest.theirs = Some(pipe.clone());
            pipe
        });
        let Payload { keep, packed, .. } = guest.known.clone().expect("nothing is known of it");
        let start = guest.start.clone();
        if keep == Keep::Nothing {
            self.begins_anew(&start);
        }
        self.may_sicken(&ends, 0.05);
        let ends = Ends::of(&ends);
        let (offer, packed) = (start.rank.as_ref(), packed.expect("it is a rank"));
        let (fence, job, rank) = (at.fence, start.subprogram.job, Rank(start.subprogram.index));
        let life = offer.expect("it is a rank").life;
        let (packed, image) = (packed.bytes, packed.image);
        let arrive = Arrive { fence, job, life, rank, keep, packed, image, ends };
        self.command_router(index, RouterCommand::Arrive(Box::new(arrive)));
    }

    pub(super) fn land(&mut self, index: usize, at: GuestAt) {
        assert!(self.guest_at(index, at).known.is_some(), "nothing is known of {}", at.fence);
        let keeper = self.hosts[index].places[usize::from(at.place.0)].keeper;
        let Some(keeper) = keeper else { return };
        let (number, after) = (keeper.number, self.up_to(Duration::from_secs(1)));
        let work = KeeperWork::Lands { fence: at.fence };
        self.plan_here(index, after, Local::Keeper { place: at.place, number, work });
    }

    /// The keeper has restored the process, which is frozen.
    pub(super) fn lands(&mut self, index: usize, at: PlaceId) {
        let (number, now) = (self.number(), self.now);
        let place = &mut self.hosts[index].places[usize::from(at.0)];
        assert!(place.process.is_none(), "it lands beside another: {place:?}");
        let guest = place.guest.as_mut().expect("it lands somewhere");
        let payload = guest.known.as_ref().expect("it is known");
        let image = payload.image.clone().expect("it has a process");
        (guest.runs, guest.before) = (payload.runs, payload.before.clone());
        let rank = image.program.map(|program| {
            RankProcess::new(program, guest.theirs.take().expect("a rank has pipes"))
        });
        place.process = Some(Process {
            rank,
            number,
            fence: guest.fence(),
            subprogram: guest.start.subprogram,
            life: guest.start.rank.as_ref().map(|rank| rank.life),
            begun: true,
            stopped: true,
            killed: false,
            left: image.left,
            since: now,
            outcome: image.outcome,
        });
    }

    pub(super) fn verify(&mut self, index: usize, at: GuestAt) {
        let fails = self.obstacle(0.1);
        let guest = self.guest_at(index, at);
        assert!(guest.whole, "not all of {} is here", at.fence);
        let payload = guest.known.take().expect("nothing is known of it");
        (guest.runs, guest.before) = (payload.runs, payload.before);
        let has_process = self.hosts[index].places[usize::from(at.place.0)].process.is_some();
        assert_eq!(has_process, payload.image.is_some(), "{} is not what came", at.fence);
        let done = if fails {
            Err("bytes are missing".to_owned())
        } else {
            Ok(Duration::from_millis(100))
        };
        self.tell_guest(index, at.fence, guest::Event::Verified(done));
    }

    /// The guest goes on as what it was elsewhere, or in an earlier life.
    pub(super) fn went(&mut self, index: usize, at: GuestAt) {
        let guest = self.guest_at(index, at);
        if guest.start.arrival.is_none() {
            return self.snapshots_with_image += 1;
        }
        assert!(guest.landed, "{} is set going before all of it is here", at.fence);
        if self.witness.went_before(at.fence) {
            return;
        }
        let guest = self.guest_at(index, at).clone();
        self.witness.went(&self.hosts, &guest, self.now);
    }

    pub(super) fn go_on(&mut self, index: usize, at: GuestAt) {
        self.went(index, at);
        let now = self.now;
        let place = &mut self.hosts[index].places[usize::from(at.place.0)];
        let process = place.process.as_mut().filter(|it| it.fence == at.fence && it.stopped);
        let process = process.unwrap_or_else(|| panic!("{} is set going twice", at.fence));
        (process.stopped, process.since) = (false, now);
        self.kick(index, at.fence);
    }

    pub(super) fn replug(&mut self, index: usize, at: GuestAt) {
        let place = &mut self.hosts[index].places[usize::from(at.place.0)];
        assert!(place.process.is_none(), "begun beside itself: {place:?}");
        place.ordered.packed = false;
        let (fence, pipe) = (at.fence, Pipe::default());
        let ends = Ends::of(&pipe);
        let guest = self.guest_at(index, at);
        guest.theirs = Some(pipe);
        let start = guest.start.clone();
        self.begins_anew(&start);
        self.command_router(index, RouterCommand::Again { fence, ends });
    }
}
