//! What agents order at their places, and how that goes.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::{
    self, Departure, Exit, GuestAt, KeeperEvent, Left, Look, NoImage, Start,
};
use gleaner_agent_core::router::Begin;
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::Outcome;
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{GuestState, Printed};
use gleaner_program_core::facts::End;
use rand::Rng;

use super::host::DISK_BYTES_MAX;
use super::place::{Guest, Keeper, KeeperWork, Place, Process};
use super::rank::{Image, RankProcess};
use super::router::RouterCommand;
use super::shell::{Ends, Pipe};
use super::{Lab, Local};

/// What is to become of an ended guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reap {
    pub(super) at: GuestAt,
    pub(super) endpoint: bool,
    pub(super) stays: bool,
    pub(super) discard: bool,
}

impl Lab {
    fn place(&mut self, index: usize, at: PlaceId) -> &mut Place {
        &mut self.hosts[index].places[usize::from(at.0)]
    }

    /// The guest that an order is for: no order is for one that is not there.
    #[track_caller]
    pub(super) fn guest_at(&mut self, index: usize, at: GuestAt) -> &mut Guest {
        let guest = self.place(index, at.place).guest.as_mut();
        let guest = guest.filter(|guest| guest.start.at == at);
        assert!(guest.is_some(), "{} is not there", at.fence);
        guest.expect("it is there")
    }

    pub(super) fn tell_guest(&mut self, index: usize, fence: Fence, event: guest::Event) {
        self.tell(index, Event::Guest(fence, event));
    }

    fn fails_to(&mut self, index: usize, fence: Fence, reason: &str) {
        let reason = reason.to_owned();
        self.tell_guest(index, fence, guest::Event::Failed { reason, hopeless: false });
    }

    // ── its group ──────────────────────────────────────────────────────────

    pub(super) fn freeze(&mut self, index: usize, at: GuestAt) {
        let longest = match self.rng.random_range(0..100) {
            0 => Duration::from_secs(15),
            1..=20 => Duration::from_millis(200),
            _ => Duration::from_millis(2),
        };
        let (now, after) = (self.now, self.up_to(longest));
        self.place(index, at.place).freeze(now, after);
    }

    pub(super) fn thaw(&mut self, index: usize, at: GuestAt) {
        let now = self.now;
        let place = self.place(index, at.place);
        let number = place.process.as_ref().filter(|it| !it.killed).map(|it| it.number);
        let is_written = number.is_some() && place.ordered.written == number;
        assert!(!is_written, "thawed while it is written down: {place:?}");
        let works = place.thaw(now);
        let (fence, keeper) = (place.process.as_ref().map(|it| it.fence), place.keeper);
        let in_hand = |carrier: &super::moves::Carrier| carrier.process == number;
        let is_carried = number.is_some() && self.hosts[index].carriers.values().any(in_hand);
        assert!(!is_carried, "{fence:?} is thawed while it is carried");
        for work in works {
            self.keeper_will(index, at.place, keeper, work, Duration::from_millis(2));
        }
        if let Some(fence) = fence {
            self.kick(index, fence);
        }
    }

    pub(super) fn hurry(&mut self, index: usize, at: GuestAt, hurries: bool) {
        let before = std::mem::replace(&mut self.place(index, at.place).hurries, hurries);
        assert_ne!(before, hurries, "{} hurries twice", at.fence);
    }

    pub(super) fn kill(&mut self, index: usize, at: GuestAt) {
        let now = self.now;
        let place = self.place(index, at.place);
        place.account(now);
        if let Some(process) = &mut place.process {
            assert!(!process.killed, "{} is killed twice", at.fence);
            process.killed = true;
        }
        let Some(keeper) = &mut place.keeper else {
            let is_told = self.hosts[index].supervisor.will_tell(at.place);
            assert!(is_told, "nobody tells of the end: {at:?}");
            return;
        };
        keeper.dying = true;
        let number = keeper.number;
        let long = self.rng.random_bool(0.05);
        let after = self.up_to(Duration::from_millis(if long { 2_000 } else { 20 }));
        self.plan_here(index, after, Local::KeeperDies { place: at.place, number });
    }

    /// Looks as the container does, and at once.
    pub(super) fn look(&mut self, index: usize, at: GuestAt) {
        let is_between = self.rng.random_bool(0.1);
        let fails = self.rng.random_bool(0.002);
        let agent = self.hosts[index].agent.as_ref().expect("it asks");
        let leaves = agent
            .status(self.hosts[index].clock.reads(self.now))
            .guests
            .into_iter()
            .any(|guest| guest.fence == at.fence && guest.state == GuestState::Leaving);
        let now = self.now;
        let place = self.place(index, at.place);
        // One that has ended is not there either, but is known to have begun.
        let is_gone = place.process.is_none();
        let begun = place.process.as_ref().is_some_and(|process| process.begun);
        let staged = place.keeper.is_some_and(|keeper| keeper.staged);
        let look = match (place.stands(now), is_between) {
            _ if fails => Look::Failed("no such file".to_owned()),
            _ if staged && is_gone => Look::Between,
            _ if staged && !begun => Look::NotBegun,
            (false, _) => Look::Restless,
            (true, true) => Look::Between,
            (true, false) => Look::Steady,
        };
        place.ordered.runs_on = look == Look::Between && leaves && !place.ordered.imaging;
        self.tell_guest(index, at.fence, guest::Event::Looked(look));
    }

    pub(super) fn measure(&mut self, index: usize, at: GuestAt) {
        let fence = at.fence;
        let bytes = self.rng.random_range(1..100 << 20);
        self.tell(index, Event::Weighed { fence, bytes });
        let keeper = self.place(index, at.place).keeper;
        if let Some(since) = keeper.and_then(|keeper| keeper.stopped) {
            self.tell(index, Event::Keeper(at.place, KeeperEvent::Stopped { since }));
        }
        let is_over = self.fails(0.05);
        let disk_bytes = if is_over { DISK_BYTES_MAX + 1 } else { DISK_BYTES_MAX };
        let after = self.up_to(Duration::from_millis(50));
        let measured = Event::Guest(fence, guest::Event::Measured { disk_bytes });
        self.plan_here(index, after, Local::Tell(measured));
    }

    // ── its keeper ─────────────────────────────────────────────────────────

    pub(super) fn spawn_keeper(&mut self, index: usize, at: PlaceId, staged: bool) {
        assert!(!staged || self.hosts[index].moves(), "a stage where nothing moves");
        let (fails, number) = (self.breaks_down(0.005), self.number());
        let dies = self.fails(0.1).then(|| self.up_to(self.setting.work_max));
        let place = self.place(index, at);
        assert!(place.frozen.is_none(), "a keeper is born frozen: {place:?}");
        assert!(place.keeper.is_none() && place.process.is_none(), "two keepers: {place:?}");
        if fails {
            let failed = KeeperEvent::Failed { reason: "out of processes".to_owned() };
            return self.tell(index, Event::Keeper(at, failed));
        }
        place.keeper = Some(Keeper { number, staged, dying: false, stopped: None });
        if let Some(after) = dies {
            self.plan_here(index, after, Local::KeeperDies { place: at, number });
        }
    }

    pub(super) fn drop_keeper(&mut self, index: usize, at: PlaceId) {
        let long = self.rng.random_bool(0.05);
        let after = self.up_to(Duration::from_millis(if long { 2_000 } else { 20 }));
        let now = self.now;
        let place = self.place(index, at);
        place.account(now);
        if let Some(process) = &mut place.process {
            process.killed = true;
        }
        // The keeper may have failed to start, or have died with its supervisor's word:
        // that was told and not yet heard.
        if let Some(Keeper { number, dying, .. }) = &mut place.keeper {
            *dying = true;
            let number = *number;
            self.plan_here(index, after, Local::KeeperDies { place: at, number });
        }
    }

    /// The keeper works in its own time, if it is there and not frozen then.
    pub(super) fn keeper_will(
        &mut self,
        index: usize,
        place: PlaceId,
        keeper: Option<Keeper>,
        work: KeeperWork,
        longest: Duration,
    ) {
        let Some(Keeper { number, .. }) = keeper else { return };
        let after = self.up_to(longest);
        self.plan_here(index, after, Local::Keeper { place, number, work });
    }

    pub(super) fn keeper_works(
        &mut self,
        index: usize,
        at: PlaceId,
        number: u64,
        work: KeeperWork,
    ) {
        let now = self.now;
        let (fails, cannot) = (self.breaks_down(0.01), self.obstacle(0.3));
        let place = self.place(index, at);
        let Some(keeper) = place.keeper.filter(|keeper| keeper.number == number) else { return };
        if keeper.stopped.is_some() {
            return;
        }
        if place.stands(now) {
            return place.waits.push(work);
        }
        let said = match work {
            KeeperWork::Begins | KeeperWork::Lands { .. } if keeper.dying => return,
            KeeperWork::Begins => {
                let Some(process) = &mut place.process else { return };
                let fence = process.fence;
                if !fails {
                    (process.begun, process.since) = (true, now);
                    return self.kick(index, fence);
                }
                place.process = None;
                let why = "out of processes".to_owned();
                KeeperEvent::CannotStart { fence, why, hopeless: false }
            }
            KeeperWork::Ended { fence, outcome } => {
                if let Some(guest) = place.guest.as_mut().filter(|it| it.fence() == fence) {
                    guest.ended = Some(outcome);
                }
                KeeperEvent::Ended { last: keeper.staged }
            }
            KeeperWork::Lands { fence } if cannot => {
                let why = "criu fails".to_owned();
                KeeperEvent::CannotStart { fence, why, hopeless: false }
            }
            KeeperWork::Lands { fence } => {
                self.lands(index, at);
                KeeperEvent::ProcessStands { fence }
            }
        };
        self.tell(index, Event::Keeper(at, said));
    }

    pub(super) fn keeper_dies(&mut self, index: usize, at: PlaceId, number: u64) {
        let place = self.place(index, at);
        if place.keeper.is_none_or(|keeper| keeper.number != number) {
            return;
        }
        place.clear();
        if self.hosts[index].hears() {
            self.tell(index, Event::Keeper(at, KeeperEvent::Gone));
        } else {
            self.hosts[index].supervisor.ended(at);
        }
    }

    /// A process has run to its end.
    pub(super) fn exits(&mut self, index: usize, at: usize) {
        let host = &mut self.hosts[index];
        let place = &mut host.places[at];
        let Some(process) = place.process.take() else { return };
        let (fence, outcome, keeper) = (process.fence, process.outcome, place.keeper);
        let retreated = process.rank.as_ref().is_some_and(|rank| rank.retreated);
        if !retreated {
            self.witness.exited(fence, host.incarnation, &outcome);
        }
        let work = KeeperWork::Ended { fence, outcome };
        let at = PlaceId(u16::try_from(at).expect("few places"));
        self.keeper_will(index, at, keeper, work, Duration::from_millis(2));
    }

    // ── a guest that begins ────────────────────────────────────────────────

    pub(super) fn prepare(&mut self, index: usize, start: &Start) -> bool {
        self.witness.begins(start.at.fence);
        if self.breaks_down(0.005) {
            self.fails_to(index, start.at.fence, "no space left");
            return false;
        }
        let place = self.place(index, start.at.place);
        assert!(place.process.is_none(), "two guests: {place:?}");
        let before = place.guest.take().filter(|guest| guest.start.at == start.at);
        let mut guest = Guest::new(start);
        if let Some(before) = before {
            (guest.runs, guest.before) = (before.runs, before.before);
            guest.landed = before.landed;
            (guest.ours, guest.theirs) = (before.ours, before.theirs);
        }
        (place.guest, place.ordered) = (Some(guest), super::place::Ordered::default());
        true
    }

    pub(super) fn lay(&mut self, index: usize, at: GuestAt) {
        let fails = self.breaks_down(0.01);
        let after = self.up_to(Duration::from_millis(300));
        self.plan_here(index, after, Local::Laid { at, fails });
    }

    pub(super) fn laid(&mut self, index: usize, at: GuestAt, fails: bool) {
        let place = self.place(index, at.place);
        if let Some(guest) = place.guest.as_mut().filter(|guest| guest.start.at == at) {
            guest.laid = !fails;
        }
        let done = if fails { Err("no space left".to_owned()) } else { Ok(()) };
        self.tell_guest(index, at.fence, guest::Event::Laid(done));
    }

    pub(super) fn launch(&mut self, index: usize, at: GuestAt, begins: bool) {
        if !self.hosts[index].places[usize::from(at.place.0)].holds(at.fence) {
            // The place could not be made ready, as was told.
            return;
        }
        let number = self.number();
        let start = self.guest_at(index, at).start.clone();
        let (mut left, mut outcome) = (self.work(start.subprogram.job), self.outcome());
        if self.hosts[index].id <= self.setting.black_holes {
            (left, outcome) = (Duration::from_millis(3), Outcome::ExitCode(28));
        }
        if begins {
            self.begins(index, &start);
        }
        let program = start.rank.is_some().then(|| self.rank_process(&start));
        let now = self.now;
        let place = self.place(index, at.place);
        assert!(place.process.is_none(), "two processes: {place:?}");
        let guest = place.guest.as_mut().expect("it was there");
        assert!(guest.laid || start.spec.inputs.is_empty(), "{} without its files", at.fence);
        guest.runs += 1;
        let Some(keeper) = place.keeper else {
            if self.hosts[index].supervisor.will_tell(at.place) {
                let not_begun = KeeperEvent::NotBegun { fence: at.fence };
                return self.tell(index, Event::Keeper(at.place, not_begun));
            }
            return self.fails_to(index, at.fence, "its keeper is gone");
        };
        let rank = program.map(|program| {
            RankProcess::new(program, guest.theirs.take().expect("a rank has pipes"))
        });
        place.process = Some(Process {
            rank,
            number,
            fence: at.fence,
            subprogram: start.subprogram,
            life: start.rank.as_ref().map(|rank| rank.life),
            begun: false,
            stopped: false,
            killed: false,
            left,
            since: now,
            outcome,
        });
        // On a machine that is busy, much happens before a process has begun.
        let soon = Duration::from_millis(if self.rng.random_bool(0.1) { 4_000 } else { 5 });
        self.keeper_will(index, at.place, Some(keeper), KeeperWork::Begins, soon);
        if start.rank.is_some() && self.fails(0.1) {
            let after = self.up_to(self.setting.work_max);
            self.plan_here(index, after, Local::Faults(number));
        }
        self.tell(index, Event::Started(at.fence));
    }

    /// Its router has no endpoint of the rank yet.
    fn begins(&mut self, index: usize, start: &Start) {
        let (fence, id, pipe) = (start.at.fence, start.subprogram, Pipe::default());
        let rank = start.rank.as_ref().expect("only ranks begin");
        if self.cuts.begins(&self.store, (id, fence), rank.life, rank.cut) {
            self.gives_up(id.job, rank.life);
        }
        let begin = Box::new(Begin::new(start, rank, Ends::of(&pipe)));
        self.guest_at(index, start.at).theirs = Some(pipe);
        self.command_router(index, RouterCommand::Begin(begin));
    }

    // ── a guest that ends ──────────────────────────────────────────────────

    pub(super) fn reap(&mut self, index: usize, reap: Reap) {
        let Reap { at, endpoint, stays, discard } = reap;
        let (is_collected, staged) = (self.rng.random_bool(0.1), self.fails(0.1));
        let fence = at.fence;
        let guest = self.guest_at(index, at);
        let ended = guest.ended.take();
        let place = self.place(index, at.place);
        assert!(place.process.is_none(), "reaped alive: {place:?}");
        place.ordered = super::place::Ordered::default();
        let never_ran = ended.is_none() && place.keeper.is_some();
        if !endpoint {
            place.guest = None;
        }
        let outcome = ended.unwrap_or(Outcome::Signal(9));
        let end = match outcome {
            Outcome::Succeeded => End::ExitCode(0),
            Outcome::ExitCode(code) => End::ExitCode(code),
            Outcome::Signal(_)
            | Outcome::TimedOut
            | Outcome::OverLimit(_)
            | Outcome::CannotStart(_)
            | Outcome::Fault(_) => End::Signal(9),
        };
        let printed = Printed::Inline(fence.to_string().into_bytes());
        let left = Left { stdout: printed, ..Left::default() };
        let mut exit = Exit { outcome, cpu: Duration::from_secs(1), left: Some(left.clone()) };
        if never_ran {
            exit = Exit::never_ran();
        } else if is_collected && !discard {
            exit.left = None;
            let collected = if staged {
                Event::CollectingFailed { fence, reason: "no space left".to_owned() }
            } else {
                Event::Collected { fence, left }
            };
            let after = self.up_to(Duration::from_secs(2));
            self.plan_here(index, after, Local::Tell(collected));
        }
        if endpoint {
            let rank = self.hosts[index].router.core().rank(fence);
            if let Some((job, life, _)) = rank.filter(|_| end != End::ExitCode(0) && !stays) {
                self.failed.insert((job, life));
            }
            self.hosts[index].router.settling.insert(fence, Box::new(exit));
            self.command_router(index, RouterCommand::Exited { fence, end, stays });
        } else {
            let exit = Box::new(exit);
            self.tell_guest(index, fence, guest::Event::Exited { exit, stays: false });
        }
    }

    pub(super) fn clear_ground(&mut self, index: usize, at: GuestAt) {
        let place = self.place(index, at.place);
        // What is killed runs no more, and may not be gone yet.
        let alive = place.process.as_ref().is_some_and(|process| !process.killed);
        assert!(!alive, "its ground is cleared under it: {place:?}");
        if let Some(guest) = &mut place.guest {
            guest.laid = false;
        }
    }

    // ── leaving, and images ────────────────────────────────────────────────

    pub(super) fn pack(&mut self, index: usize, at: GuestAt, keep: Keep) {
        let now = self.now;
        let place = self.place(index, at.place);
        let stands = place.standing(now).is_some();
        // A keeper that is no stage is not looked into: what is packed goes nowhere.
        let staged = place.keeper.is_some_and(|keeper| keeper.staged);
        assert!(stands == place.process.is_some() || !staged, "packed while it runs: {place:?}");
        assert!(!place.ordered.packed, "packed twice: {place:?}");
        place.ordered.packed = true;
        let rank = place.process.as_ref().and_then(|it| it.rank.as_ref());
        if let Some(pipe) = rank.map(|rank| rank.pipe.clone()).filter(|_| keep == Keep::State) {
            self.may_sicken(&pipe, 0.1);
        }
        self.command_router(index, RouterCommand::Depart { fence: at.fence, keep });
    }

    pub(super) fn carry(&mut self, index: usize, departure: Departure) {
        let (at, keep) = (departure.at, departure.keep);
        let now = self.now;
        let packed = self.guest_at(index, at).packed.take();
        let place = self.place(index, at.place);
        let staged = place.keeper.is_some_and(|keeper| keeper.staged);
        let without_process = place.process.is_none();
        if keep == Keep::State && (!staged || without_process) {
            let reason = "it was not started to be moved".to_owned();
            self.tell_guest(index, at.fence, guest::Event::CannotLeave(reason));
            return self.tell_guest(index, at.fence, guest::Event::CarryingEnded);
        }
        // A keeper that is no stage is not looked into, and may not have begun it.
        let is_still = place.stands(now);
        let process = place.process.as_ref().filter(|it| it.begun || !staged);
        let stands = process.filter(|it| is_still && !it.killed).map(|it| it.number);
        assert!(stands.is_some() != without_process, "carried while it runs: {place:?}");
        assert!(!without_process || packed.is_some(), "nothing is carried: {place:?}");
        let guest = place.guest.as_ref().expect("it is there");
        assert_eq!(packed.is_some(), guest.start.rank.is_some(), "carried without its rank");
        let image = match (keep, &place.process) {
            (Keep::State, Some(process)) => Some(process.image()),
            _ => packed.as_ref().and_then(|packed| packed.image.clone()),
        };
        let (runs, mut before) = (guest.runs, guest.before.clone());
        before.insert(at.fence);
        let payload = super::place::Payload { keep, image, packed, runs, before };
        self.send_away(index, departure, stands, payload);
    }

    pub(super) fn empty_pipes(&mut self, index: usize, at: GuestAt) {
        let now = self.now;
        let place = self.place(index, at.place);
        let number = place.standing(now).map(|it| it.number);
        assert!(number.is_some(), "its pipes are emptied while it runs: {place:?}");
        place.ordered.written = number;
        self.command_router(index, RouterCommand::Image(at.fence));
    }

    pub(super) fn write_image(&mut self, index: usize, at: GuestAt) {
        let now = self.now;
        let place = self.place(index, at.place);
        let process = place.standing(now).expect("it stands to be written down");
        assert_eq!(place.ordered.written, Some(process.number), "not what was emptied");
        let image = Box::new(process.image());
        let number = process.number;
        let after = self.up_to(Duration::from_millis(300));
        self.plan_here(index, after, Local::ImageWritten { at, number, image });
    }

    pub(super) fn image_written(&mut self, index: usize, at: GuestAt, number: u64, image: Image) {
        let fails = self.obstacle(0.3);
        let place = self.place(index, at.place);
        let is_there = place.process.as_ref().is_some_and(|it| it.number == number && !it.killed);
        let Some(guest) = place.guest.as_mut().filter(|guest| guest.start.at == at) else { return };
        let done = if is_there && !fails {
            guest.image = Some(image);
            Ok(())
        } else {
            Err("criu fails".to_owned())
        };
        if place.ordered.written == Some(number) {
            place.ordered.written = None;
        }
        self.tell_guest(index, at.fence, guest::Event::ImageWritten(done));
    }

    pub(super) fn image_ended(
        &mut self,
        index: usize,
        at: GuestAt,
        done: Result<(), NoImage>,
        stood: Duration,
    ) {
        let place = self.place(index, at.place);
        assert!(std::mem::take(&mut place.ordered.imaging), "an image ended twice: {place:?}");
        let image = self.guest_at(index, at).image.take();
        self.place(index, at.place).ordered.written = None;
        let gone = || NoImage::Cannot("it is gone".to_owned());
        let done = done.and_then(|()| image.ok_or_else(gone));
        self.images += u64::from(done.is_ok());
        self.command_router(index, RouterCommand::Imaged { fence: at.fence, done, stood });
    }
}
