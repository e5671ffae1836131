//! One claim each.

use gleaner_common::job::{OnBusy, Outcome, Patience, Reaction};
use gleaner_common::program::Destination;
use gleaner_common::reaction::Keep;

use super::super::*;
use super::world::{FENCE, PATIENCE, Setting, TIMEOUT, destination, start};

fn at(s: u64) -> Moment {
    at_ms(s * 1_000)
}

fn at_ms(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

/// One place, and the second it is.
struct Lab {
    place: Place,
    now: Moment,
}

fn setting(reaction: Reaction) -> Setting {
    let patience = Patience::For(PATIENCE);
    let on_busy = OnBusy { reaction, patience, then: Reaction::Retreat };
    let (rank, arrives, inputs) = (false, false, false);
    Setting { on_busy, rank, arrives, inputs, cut: false, moves: true, timeout: false }
}

fn rank(reaction: Reaction) -> Setting {
    Setting { rank: true, ..setting(reaction) }
}

/// A place whose owner is away, and what the guest that enters it has it do.
fn enters(setting: Setting) -> (Lab, Vec<String>) {
    let site = Site { limits: Limits::default(), moves: Ok(()) };
    let mut lab = Lab { place: Place::new(PlaceId(0), Arc::new(site)), now: at(0) };
    lab.owner(Owner::Away);
    let out = lab.place.take(at(0), start(setting));
    (lab, said(&out))
}

/// A guest has run there since second 0.
fn running(setting: Setting) -> Lab {
    enters(setting).0
}

impl Lab {
    fn at(&mut self, now: Moment) -> &mut Self {
        self.now = now;
        self
    }

    fn owner(&mut self, owner: Owner) -> Vec<String> {
        said(&self.place.turned(self.now, owner))
    }

    fn hears(&mut self, event: Event) -> Vec<String> {
        said(&self.place.handle(self.now, event))
    }

    fn keeper(&mut self, event: KeeperEvent) -> Vec<String> {
        said(&self.place.keeper_says(self.now, event))
    }

    fn wakes(&mut self) -> Vec<String> {
        said(&self.place.wake(self.now))
    }

    fn departs(&mut self, keep: Keep, to: u32) -> Vec<String> {
        self.hears(Event::Depart { keep, to: destination(Fence::of(to)) })
    }

    fn looks(&mut self, look: Look) -> Vec<String> {
        self.hears(Event::Looked(look))
    }

    fn exits(&mut self, stays: bool) -> Vec<String> {
        self.hears(Event::Exited { exit: Box::new(Exit::never_ran()), stays })
    }

    /// A guest that migrates is carried away from its owner.
    fn carried(setting: Setting) -> Self {
        let mut lab = running(setting);
        lab.at(at(1)).owner(Owner::Here);
        lab.at(at(2)).departs(Keep::State, 8);
        lab.looks(Look::Steady);
        if setting.rank {
            lab.hears(Event::Packed(Ok(())));
        }
        lab
    }

    /// Its process comes, and its keeper prepares for it.
    fn comes(setting: Setting) -> Self {
        let mut lab = running(Setting { arrives: true, ..setting });
        lab.hears(Event::Coming);
        lab.hears(Event::Header { pipes: if setting.rank { 2 } else { 0 }, lays: false });
        lab
    }

    fn lands(&mut self) -> Vec<String> {
        self.hears(Event::Known { keep: Keep::State });
        self.hears(Event::Whole { bytes: 9 });
        self.keeper(KeeperEvent::ProcessStands { fence: FENCE });
        self.hears(Event::Verified(Ok(Duration::ZERO)))
    }
}

/// What is ordered and said, in short. Who hurries and what is measured has its
/// own claims.
fn said(out: &Out) -> Vec<String> {
    let orders = out.effects.iter().filter_map(order);
    orders.chain(out.words.iter().map(|(_, word)| spoken(word))).collect()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "others are told by their names")]
fn order(effect: &Effect) -> Option<String> {
    let short = match effect {
        Effect::Hurry(..) | Effect::Measure(_) => return None,
        Effect::SpawnKeeper { staged: true, .. } => "spawn staged keeper".into(),
        Effect::SpawnKeeper { staged: false, .. } => "spawn keeper".into(),
        Effect::Launch { begins: true, .. } => "launch, begin rank".into(),
        Effect::Reap { stays: true, .. } => "reap, rank stays".into(),
        Effect::Carry(departure) => format!("carry to {}", departure.to.at.fence),
        Effect::Answer(_, None) => "answer yes".into(),
        Effect::Answer(_, Some(_)) => "answer no".into(),
        Effect::DropEndpoint(_, Some(to)) => format!("endpoint went to {}", to.fence),
        Effect::ImageEnded { done: Ok(()), .. } => "image taken".into(),
        Effect::ImageEnded { done: Err(why), .. } => format!("no image: {why:?}"),
        other => {
            let name = format!("{other:?}");
            name.split(['(', ' ']).next().unwrap().to_lowercase()
        }
    };
    Some(short)
}

fn spoken(word: &Word) -> String {
    match word {
        Word::State(state) => format!("is {state:?}"),
        Word::WantsAway { keep } => format!("wants away: {keep:?}"),
        Word::Departs { keep } => format!("departs: {keep:?}"),
        Word::CannotLeave { reason, .. } => format!("cannot leave: {reason}"),
        Word::Finished { end, .. } => format!("finished: {end:?}"),
        Word::Refused(why) => format!("refused: {why:?}"),
        Word::NotStarted { reason, .. } => format!("not started: {reason}"),
        Word::Retreated { why, suspensions } => format!("retreated: {why:?}, {suspensions}"),
        Word::Stays { .. } => "stays".into(),
        Word::Arrived { .. } => "arrived".into(),
        Word::Lost { .. } => "is lost".into(),
    }
}

const NOTHING: [&str; 0] = [];

// ── the owner ──────────────────────────────────────────────────────────────

#[test]
fn a_guest_retreats_when_the_owner_outstays_its_patience() {
    let mut lab = running(setting(Reaction::Suspend));
    assert_eq!(lab.at(at(10)).owner(Owner::Here), ["freeze", "is Suspended"]);
    assert_eq!(lab.at(at(19)).wakes(), NOTHING);
    assert_eq!(lab.at(at(20)).wakes(), ["kill", "retreated: OwnerStays(10s), 1"]);
    assert!(!lab.place.is_free(), "its processes are still there");
    assert_eq!(lab.at(at(21)).keeper(KeeperEvent::Gone), ["reap"]);
    assert_eq!(lab.exits(false), ["thaw"]);
    assert!(lab.place.is_free());
}

#[test]
fn a_place_takes_nothing_while_its_owner_is_there_or_another_guest_is() {
    let (mut lab, _) = enters(setting(Reaction::Suspend));
    assert_eq!(said(&lab.place.take(at(0), start(rank(Reaction::Renice)))), Vec::<String>::new());
    for owner in [Owner::Here, Owner::Away] {
        let site = Site { limits: Limits::default(), moves: Ok(()) };
        lab = Lab { place: Place::new(PlaceId(0), Arc::new(site)), now: at(0) };
        lab.owner(owner);
        let taken = said(&lab.place.take(at(0), start(setting(Reaction::Renice))));
        assert_eq!(taken.is_empty(), owner == Owner::Here, "{taken:?}");
    }
}

#[test]
fn suspended_time_is_not_run_time() {
    let mut lab = running(Setting { timeout: true, ..setting(Reaction::Suspend) });
    assert_eq!(TIMEOUT, Duration::from_secs(25));
    lab.at(at(20)).owner(Owner::Here);
    assert_eq!(lab.at(at(29)).owner(Owner::Away), ["thaw", "is Running"]);
    assert_eq!(lab.at(at(33)).wakes(), NOTHING);
    assert_eq!(lab.at(at(34)).wakes(), ["kill"]);
    lab.at(at(35)).keeper(KeeperEvent::Gone);
    let exit = Box::new(Exit { outcome: Outcome::Signal(9), ..Exit::never_ran() });
    let out = lab.place.handle(at(35), Event::Exited { exit, stays: false });
    let [(FENCE, Word::Finished { end: End::TimedOut, clock, .. })] = &out.words[..] else {
        panic!("{out:?}")
    };
    let (ran, suspended) = (Duration::from_secs(25), Duration::from_secs(9));
    assert_eq!(*clock, Clock { ran, suspended, suspensions: 1 });
}

#[test]
fn a_guest_whose_keeper_dies_is_lost_and_has_not_failed() {
    let how_it_ends = |outcome| {
        let mut lab = running(setting(Reaction::Suspend));
        lab.keeper(KeeperEvent::Gone);
        let exit = Box::new(Exit { outcome, ..Exit::never_ran() });
        lab.place.handle(at(1), Event::Exited { exit, stays: false }).words
    };
    let lost = how_it_ends(Outcome::Signal(9));
    assert!(matches!(lost[..], [(FENCE, Word::Lost { suspensions: 0, .. })]), "{lost:?}");
    // It has eaten its keeper's memory with its own.
    let memory = how_it_ends(Outcome::OverLimit("memory".into()));
    assert!(matches!(memory[..], [(FENCE, Word::Finished { .. })]), "{memory:?}");
}

#[test]
fn an_end_that_was_told_counts_whatever_becomes_of_the_keeper() {
    let mut lab = running(setting(Reaction::Suspend));
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.keeper(KeeperEvent::Gone);
    let exit = Box::new(Exit { outcome: Outcome::ExitCode(3), ..Exit::never_ran() });
    let words = lab.place.handle(at(1), Event::Exited { exit, stays: false }).words;
    assert!(matches!(words[..], [(FENCE, Word::Finished { end: End::Exited, .. })]), "{words:?}");
}

#[test]
fn a_claim_freezes_even_a_demoted_guest() {
    let mut lab = running(setting(Reaction::Renice));
    assert_eq!(lab.owner(Owner::Here), ["is Demoted"]);
    assert_eq!(lab.owner(Owner::Claims), ["freeze", "is Suspended"]);
    assert_eq!(lab.owner(Owner::Here), ["thaw", "is Demoted"]);
    assert_eq!(lab.owner(Owner::Away), ["is Running"]);
}

#[test]
fn the_next_ones_keeper_is_born_where_nothing_is_frozen() {
    let mut lab = running(rank(Reaction::Suspend));
    lab.at(at(1)).owner(Owner::Here);
    lab.departs(Keep::Nothing, 8);
    lab.keeper(KeeperEvent::Gone);
    lab.owner(Owner::Away);
    assert_eq!(
        lab.exits(true),
        [
            "replug",
            "thaw",
            "spawn keeper",
            "prepare",
            "launch",
            "wants away: Nothing",
            "stays",
            "is Running"
        ]
    );
}

// ── beginning ──────────────────────────────────────────────────────────────

#[test]
fn a_guest_that_is_killed_while_its_files_are_laid_ends_when_they_lie() {
    let with_files = Setting { inputs: true, ..setting(Reaction::Suspend) };
    let (mut lab, entered) = enters(with_files);
    assert_eq!(entered, ["spawn keeper", "prepare", "layinputs"]);
    assert_eq!(lab.hears(Event::Cancel), NOTHING);
    assert_eq!(lab.keeper(KeeperEvent::Gone), NOTHING);
    assert!(!lab.place.is_free(), "somebody is still at its ground");
    assert_eq!(lab.hears(Event::Laid(Ok(()))), ["clearground"]);
    assert!(lab.place.is_free());

    let mut lab = running(with_files);
    assert_eq!(lab.hears(Event::Retreat), ["retreated: Asked, 0"]);
    assert_eq!(lab.hears(Event::Laid(Err("the disk is full".into()))), ["clearground"]);
    assert!(lab.place.is_free());
}

#[test]
fn a_rank_that_is_asked_to_go_has_begun_once_it_was_launched() {
    let mut lab = running(Setting { inputs: true, ..rank(Reaction::Retreat) });
    assert_eq!(lab.hears(Event::Retreat), ["refused: Asked"]);
    let mut lab = running(Setting { inputs: true, ..rank(Reaction::Retreat) });
    lab.hears(Event::Laid(Ok(())));
    lab.owner(Owner::Here);
    lab.hears(Event::Returned);
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(true);
    lab.owner(Owner::Away);
    assert_eq!(lab.hears(Event::Retreat), ["dropendpoint", "retreated: Asked, 0"]);
}

#[test]
fn a_keeper_that_dies_while_files_are_laid_is_replaced() {
    let mut lab = running(Setting { inputs: true, ..setting(Reaction::Suspend) });
    lab.keeper(KeeperEvent::Gone);
    assert_eq!(lab.hears(Event::Laid(Ok(()))), ["spawn keeper", "launch"]);
}

#[test]
fn a_keeper_that_somebody_has_stopped_costs_its_guest_an_attempt_and_no_more() {
    let mut lab = running(setting(Reaction::Suspend));
    let stopped = || KeeperEvent::Stopped { since: at(1) };
    assert_eq!(lab.at(at(10)).keeper(stopped()), NOTHING, "somebody may be looking at it");
    assert_eq!(lab.at(at(11)).keeper(stopped()), ["kill"]);
    assert_eq!(lab.at(at(16)).keeper(stopped()), NOTHING, "once is enough");
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap"]);
    assert_eq!(lab.exits(false), ["is lost"]);
    assert!(lab.place.is_free());
}

#[test]
fn what_comes_to_a_keeper_that_somebody_has_stopped_is_not_waited_for() {
    let mut lab = Lab::comes(setting(Reaction::Migrate));
    assert_eq!(lab.place.deadline(), Some(at(5)), "its keeper is looked at");
    let stopped = || KeeperEvent::Stopped { since: at(1) };
    assert_eq!(lab.at(at(10)).keeper(stopped()), NOTHING);
    let told = lab.at(at(11)).keeper(stopped());
    assert_eq!(told[..2], ["answer no", "dropkeeper"]);
    lab.keeper(KeeperEvent::Gone);
    assert!(lab.place.is_free());
}

#[test]
fn a_keeper_that_dies_between_two_guests_costs_the_second_nothing() {
    let mut lab = running(setting(Reaction::Suspend));
    let unheard = || KeeperEvent::NotBegun { fence: FENCE };
    assert_eq!(lab.keeper(unheard()), NOTHING, "it was made for this one");
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap"]);
    assert_eq!(lab.exits(false), ["is lost"]);

    let mut lab = running(setting(Reaction::Suspend));
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(false);
    let next = lab.place.take(at(1), start(setting(Reaction::Suspend)));
    assert_eq!(said(&next), ["prepare", "launch"]);
    assert_eq!(lab.keeper(unheard()), NOTHING);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["spawn keeper", "launch"]);
    assert_eq!(lab.keeper(unheard()), NOTHING, "once is enough");
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap"]);
}

#[test]
fn what_was_killed_before_it_was_heard_that_it_had_no_keeper_ends() {
    let mut lab = running(setting(Reaction::Retreat));
    assert_eq!(lab.owner(Owner::Here), ["kill", "retreated: OwnerCame, 0"]);
    let failed = KeeperEvent::Failed { reason: "no namespaces".into() };
    assert_eq!(lab.keeper(failed), ["clearground"]);
    assert!(lab.place.is_free());

    let mut lab = running(setting(Reaction::Retreat));
    lab.owner(Owner::Here);
    let failed = Event::Failed { reason: "no such directory".into(), hopeless: false };
    assert_eq!(lab.hears(failed), ["dropkeeper", "clearground"]);
    assert!(!lab.place.is_free(), "its keeper is not gone yet");
    assert_eq!(lab.keeper(KeeperEvent::Gone), NOTHING);
    assert!(lab.place.is_free());
}

// ── leaving ────────────────────────────────────────────────────────────────

/// An admin wants the workstation empty, and nobody is there.
#[test]
fn what_is_ordered_away_leaves_a_workstation_without_its_owner_and_runs_on_if_it_cannot() {
    let ordered = |lab: &mut Lab, to| {
        let to = Destination { ordered: true, ..destination(Fence::of(to)) };
        lab.hears(Event::Depart { keep: Keep::State, to })
    };
    let mut lab = running(setting(Reaction::Migrate));
    let cannot = "cannot leave: its owner has left";
    assert_eq!(lab.at(at(1)).departs(Keep::State, 8), [cannot], "nobody wants it away");
    assert_eq!(ordered(&mut lab, 9), ["freeze", "look", "departs: State"]);
    assert_eq!(lab.looks(Look::Steady), ["carry to #9"]);
    assert_eq!(lab.hears(Event::Cancel), ["kill"]);
    let mut lab = running(setting(Reaction::Migrate));
    ordered(lab.at(at(1)), 9);
    assert_eq!(lab.hears(Event::Stay), ["thaw", "is Running"]);
    assert_eq!(lab.owner(Owner::Here), ["freeze", "wants away: State"], "it does as its job says");
}

#[test]
fn a_guest_that_moves_stands_still_until_it_is_told_what_became_of_it() {
    let mut lab = running(setting(Reaction::Migrate));
    assert_eq!(lab.at(at(1)).owner(Owner::Here), ["freeze", "wants away: State"]);
    assert_eq!(lab.at(at(2)).departs(Keep::State, 8), ["look", "departs: State"]);
    let out = lab.place.handle(at(2), Event::Looked(Look::Steady));
    assert!(
        matches!(&out.effects[..],
        [Effect::Carry(Departure { since, .. }), ..] if *since == at(1)),
        "{out:?}"
    );
    assert_eq!(lab.at(at(3)).departs(Keep::State, 8), NOTHING, "said again");
    assert_eq!(lab.at(at(4)).owner(Owner::Away), NOTHING, "on its way");
    assert_eq!(lab.departs(Keep::State, 9), ["callback", "look", "departs: State"]);
    assert_eq!(lab.looks(Look::Steady), ["carry to #9"]);
    assert_eq!(lab.hears(Event::Cancel), ["kill"]);
}

#[test]
fn a_move_that_comes_to_nothing_leaves_a_suspended_guest_with_the_usual_patience() {
    let mut lab = Lab::carried(setting(Reaction::Migrate));
    assert_eq!(lab.at(at(3)).hears(Event::Stay), ["callback", "is Suspended"]);
    lab.hears(Event::CarryingEnded);
    assert_eq!(lab.place.deadline(), Some(at(5)), "it is measured");
    assert_eq!(lab.at(at(4)).owner(Owner::Away), ["thaw", "is Running"]);
    let anew = lab.at(at(5)).owner(Owner::Here);
    assert_eq!(anew, ["freeze", "wants away: State"], "tried anew");
    lab.at(at(6)).departs(Keep::State, 9);
    lab.looks(Look::Steady);
    let told = lab.at(at(7)).hears(Event::CannotLeave("a socket".into()));
    assert_eq!(told, ["callback", "cannot leave: a socket", "is Suspended"]);
    lab.hears(Event::CarryingEnded);
    assert_eq!(lab.at(at(8)).owner(Owner::Away), ["thaw", "is Running"]);
    let again = lab.at(at(9)).owner(Owner::Here);
    assert_eq!(again, ["freeze", "is Suspended"], "not tried again");
    assert_eq!(lab.at(at(608)).wakes(), NOTHING);
    assert_eq!(lab.at(at(609)).wakes(), ["kill", "retreated: OwnerStays(600s), 3"]);
}

#[test]
fn a_guest_is_thawed_only_when_the_last_carrier_has_let_go() {
    let mut lab = Lab::carried(setting(Reaction::Migrate));
    lab.departs(Keep::State, 9);
    assert_eq!(lab.looks(Look::Steady), ["carry to #9"], "the first has not let go yet");
    assert_eq!(lab.owner(Owner::Away), NOTHING);
    assert_eq!(lab.hears(Event::Stay), ["callback", "is Running"]);
    assert_eq!(lab.hears(Event::CarryingEnded), NOTHING);
    assert_eq!(lab.hears(Event::CarryingEnded), ["thaw"]);
}

#[test]
fn a_carrier_that_lets_go_does_not_thaw_what_its_owner_has_stopped() {
    let mut lab = Lab::carried(setting(Reaction::Migrate));
    lab.hears(Event::Stay);
    assert_eq!(lab.hears(Event::CarryingEnded), NOTHING);
}

#[test]
fn a_halting_guest_runs_on_for_a_moment_and_twice_as_long_each_time() {
    let mut lab = running(setting(Reaction::Migrate));
    lab.at(at(1)).owner(Owner::Here);
    lab.departs(Keep::State, 8);
    let mut now = lab.now;
    for ms in [2, 4, 8, 16, 32, 64, 100, 100] {
        assert_eq!(lab.looks(Look::Between), ["thaw"]);
        now = now + Duration::from_millis(ms);
        assert_eq!(lab.place.deadline(), Some(now), "{ms}");
        assert_eq!(lab.at(now).wakes(), ["freeze", "look"]);
    }
    assert_eq!(lab.looks(Look::Restless), NOTHING);
    now = now + Duration::from_millis(2);
    assert_eq!(lab.at(now).wakes(), ["look"], "frozen all the while");
    assert_eq!(lab.looks(Look::Steady), ["carry to #8"]);
}

#[test]
fn a_guest_that_never_stands_waits_for_its_owner_instead() {
    let mut lab = running(setting(Reaction::Migrate));
    lab.at(at(1)).owner(Owner::Here);
    lab.departs(Keep::State, 8);
    let told = lab.at(at(11)).looks(Look::Restless);
    assert_eq!(told, ["cannot leave: it does not come to a stand", "is Suspended"]);
}

#[test]
fn a_late_packed_belongs_to_an_earlier_question() {
    let mut lab = running(rank(Reaction::Migrate));
    lab.at(at(1)).owner(Owner::Here);
    lab.departs(Keep::State, 8);
    assert_eq!(lab.looks(Look::Steady), ["pack"]);
    assert_eq!(lab.departs(Keep::State, 9), ["stayed", "look", "departs: State"]);
    assert_eq!(lab.looks(Look::Steady), ["pack"]);
    assert_eq!(lab.hears(Event::Packed(Ok(()))), NOTHING, "it was packed for the former place");
    assert_eq!(lab.hears(Event::Packed(Ok(()))), ["carry to #9"]);
}

#[test]
fn a_packed_rank_hears_that_it_stays_before_it_runs() {
    let mut lab = Lab::carried(rank(Reaction::Migrate));
    lab.hears(Event::CarryingEnded);
    lab.owner(Owner::Away);
    assert_eq!(lab.hears(Event::Stay), ["callback", "stayed", "thaw", "is Running"]);
}

#[test]
fn a_rank_that_has_gone_says_where_its_messages_go() {
    let mut lab = Lab::carried(rank(Reaction::Migrate));
    assert_eq!(lab.hears(Event::Cancel), ["kill", "endpoint went to #8"]);
}

#[test]
fn a_rank_that_retreats_returns_its_work_and_leaves_without_its_process() {
    let mut lab = running(rank(Reaction::Retreat));
    assert_eq!(lab.at(at(1)).owner(Owner::Here), ["asktoretreat", "is Demoted"]);
    assert_eq!(lab.hears(Event::Returned), NOTHING);
    assert_eq!(lab.keeper(KeeperEvent::Ended { last: false }), ["reap, rank stays"]);
    assert_eq!(lab.exits(true), ["wants away: Nothing"]);
    assert_eq!(lab.place.guest(), Some((FENCE, GuestState::Leaving)));
    assert_eq!(lab.departs(Keep::Nothing, 8), ["pack", "departs: Nothing"]);
    assert_eq!(lab.hears(Event::Packed(Ok(()))), ["carry to #8"]);
    assert_eq!(lab.hears(Event::Cancel), ["endpoint went to #8"]);
    assert!(lab.place.is_free());
}

#[test]
fn a_rank_that_takes_too_long_to_retreat_loses_its_process() {
    let mut lab = running(rank(Reaction::Retreat));
    lab.at(at(1)).owner(Owner::Here);
    assert_eq!(lab.at(at_ms(1_299)).wakes(), NOTHING);
    assert_eq!(lab.at(at_ms(1_300)).wakes(), ["kill"]);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap, rank stays"]);
    assert_eq!(lab.exits(true), ["wants away: Nothing"]);
}

#[test]
fn a_rank_that_waits_goes_without_its_process_when_that_is_asked_of_it() {
    let mut lab = running(rank(Reaction::Suspend));
    lab.at(at(1)).owner(Owner::Here);
    assert_eq!(lab.departs(Keep::Nothing, 8), ["kill"]);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap, rank stays"]);
    assert_eq!(lab.exits(true), ["thaw", "wants away: Nothing"]);
    assert_eq!(lab.departs(Keep::Nothing, 8), ["pack", "departs: Nothing"]);
    assert_eq!(lab.hears(Event::Packed(Ok(()))), ["carry to #8"]);
}

#[test]
fn an_order_that_another_wish_has_overtaken_is_ignored() {
    let mut lab = running(rank(Reaction::Retreat));
    lab.owner(Owner::Here);
    lab.hears(Event::Returned);
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(true);
    assert_eq!(lab.departs(Keep::State, 8), NOTHING);
    assert_eq!(lab.departs(Keep::Nothing, 9), ["pack", "departs: Nothing"]);
}

#[test]
fn a_rank_whose_process_ends_by_itself_while_its_owner_returns_has_finished() {
    // It had not returned its work: it was done.
    let mut lab = running(rank(Reaction::Retreat));
    lab.owner(Owner::Here);
    assert_eq!(lab.keeper(KeeperEvent::Ended { last: false }), ["reap"]);
    assert_eq!(lab.exits(false), ["finished: Exited"]);
    assert!(lab.place.is_free());
    // What the router has packed meanwhile is not carried.
    let mut lab = running(rank(Reaction::Migrate));
    lab.owner(Owner::Here);
    lab.departs(Keep::State, 8);
    lab.looks(Look::Steady);
    assert_eq!(lab.keeper(KeeperEvent::Ended { last: true }), ["reap", "dropkeeper"]);
    assert_eq!(lab.hears(Event::Packed(Ok(()))), NOTHING);
    assert_eq!(lab.exits(false), ["thaw", "finished: Exited"]);
}

#[test]
fn what_is_done_to_a_guest_that_stands_hurries_and_no_more_than_that() {
    let hurries = |out: Out| {
        let hurry = |effect: &Effect| {
            if let Effect::Hurry(_, hurries) = effect { Some(*hurries) } else { None }
        };
        out.effects.iter().filter_map(hurry).collect::<Vec<_>>()
    };
    let mut lab = running(setting(Reaction::Migrate));
    assert_eq!(hurries(lab.place.turned(at(1), Owner::Here)), [] as [bool; 0]);
    let to = destination(Fence::of(8));
    let depart = Event::Depart { keep: Keep::State, to };
    assert_eq!(hurries(lab.place.handle(at(1), depart)), [true]);
    lab.looks(Look::Steady);
    assert_eq!(hurries(lab.place.handle(at(2), Event::Stay)), [] as [bool; 0]);
    assert_eq!(hurries(lab.place.handle(at(2), Event::CarryingEnded)), [false]);
}

// ── coming ─────────────────────────────────────────────────────────────────

#[test]
fn what_arrives_waits_for_the_word_and_then_does_as_its_job_says() {
    let mut lab = Lab::comes(setting(Reaction::Migrate));
    assert_eq!(lab.place.deadline(), Some(at(5)), "but for a look at its keeper");
    assert_eq!(lab.at(at(50)).lands(), ["answer yes", "arrived"]);
    assert_eq!(lab.owner(Owner::Here), NOTHING, "it stands still");
    assert_eq!(lab.hears(Event::Stay), NOTHING, "that is for what is to leave");
    assert_eq!(lab.hears(Event::GoOn), ["freeze", "goon", "wants away: State"]);
    assert_eq!(lab.hears(Event::GoOn), NOTHING, "told twice, it still wants away");
}

#[test]
fn what_has_landed_and_lost_its_keeper_is_not_set_going() {
    let mut lab = Lab::comes(setting(Reaction::Migrate));
    lab.lands();
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap"]);
    assert_eq!(lab.hears(Event::GoOn), ["is Running"]);
    assert_eq!(lab.exits(false), ["is lost"]);
    // Where it was not let go yet, it still is as it was.
    let mut lab = Lab::comes(setting(Reaction::Migrate));
    lab.lands();
    lab.keeper(KeeperEvent::Gone);
    assert_eq!(lab.exits(false), ["refused: Ended"]);
    assert_eq!(lab.hears(Event::GoOn), NOTHING);
}

#[test]
fn a_rank_speaks_before_its_process_goes_on_and_only_when_it_may() {
    let mut lab = running(Setting { arrives: true, ..rank(Reaction::Migrate) });
    lab.hears(Event::Header { pipes: 2, lays: false });
    assert_eq!(lab.hears(Event::Known { keep: Keep::State }), ["unpack", "land"]);
    lab.hears(Event::Whole { bytes: 9 });
    assert_eq!(lab.keeper(KeeperEvent::ProcessStands { fence: FENCE }), NOTHING);
    assert_eq!(lab.hears(Event::Unpacked(Ok(()))), ["verify"]);
    assert_eq!(lab.hears(Event::Verified(Ok(Duration::ZERO))), ["answer yes", "arrived"]);
    assert_eq!(lab.hears(Event::GoOn), ["setgoing", "goon", "is Running"]);
}

#[test]
fn nothing_that_does_not_come_is_waited_for() {
    let (mut lab, entered) = enters(Setting { arrives: true, ..setting(Reaction::Migrate) });
    assert_eq!(entered, ["spawn staged keeper", "expect"]);
    assert_eq!(lab.at(at(29)).wakes(), NOTHING);
    let why = "refused: NothingCame(30s)";
    assert_eq!(lab.at(at(30)).wakes(), ["answer no", "clearground", why]);
    assert!(lab.place.is_free());
}

#[test]
fn a_kill_during_an_arrival_answers_and_waits_for_a_keeper_that_has_the_process() {
    let mut lab = running(Setting { arrives: true, ..setting(Reaction::Migrate) });
    lab.hears(Event::Coming);
    assert_eq!(lab.hears(Event::Cancel), ["answer no", "clearground"]);
    assert!(lab.place.is_free(), "nobody has anything of it");

    let mut lab = Lab::comes(setting(Reaction::Migrate));
    assert_eq!(lab.hears(Event::Cancel), ["answer no", "kill"]);
    let stands = KeeperEvent::ProcessStands { fence: FENCE };
    assert_eq!(lab.keeper(stands), NOTHING, "too late");
    assert!(!lab.place.is_free());
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["reap"]);
    lab.exits(false);
    assert!(lab.place.is_free());
}

#[test]
fn whoever_sends_a_guest_hears_that_there_is_no_keeper_for_it() {
    let mut lab = running(Setting { arrives: true, ..setting(Reaction::Migrate) });
    let failed = KeeperEvent::Failed { reason: "no namespaces".into() };
    let told = ["answer no", "clearground", "not started: no namespaces"];
    assert_eq!(lab.keeper(failed), told);
    assert!(lab.place.is_free());
}

#[test]
fn what_is_known_of_a_guest_waits_for_the_files_that_did_not_come_along() {
    let mut lab = running(Setting { arrives: true, ..setting(Reaction::Migrate) });
    let header = Event::Header { pipes: 0, lays: true };
    assert_eq!(lab.hears(header), ["receiveprocess", "layrest"]);
    assert_eq!(lab.hears(Event::Known { keep: Keep::State }), NOTHING);
    assert_eq!(lab.hears(Event::Laid(Ok(()))), ["land"]);
}

#[test]
fn a_process_with_the_wrong_pipes_does_not_come() {
    let mut lab = running(Setting { arrives: true, ..rank(Reaction::Migrate) });
    let told = lab.hears(Event::Header { pipes: 1, lays: false });
    let why = "not started: it has 1 pipes: expected 2";
    assert_eq!(told, ["answer no", "dropkeeper", "clearground", why]);
}

// ── images ─────────────────────────────────────────────────────────────────

#[test]
fn an_image_waits_for_the_owner_to_leave_and_is_taken_before_the_guest_runs() {
    let suspends = OnBusy::suspend(Some(PATIENCE), Reaction::Rollback);
    let mut lab = running(Setting { on_busy: suspends, ..rank(Reaction::Suspend) });
    lab.at(at(1)).owner(Owner::Here);
    assert_eq!(lab.hears(Event::ImageWanted), NOTHING);
    assert_eq!(lab.at(at(2)).owner(Owner::Away), ["look", "is Running"], "not thawed");
    assert_eq!(lab.looks(Look::Steady), ["emptypipes"]);
    assert_eq!(lab.hears(Event::PipesEmptied(Ok(()))), ["writeimage"]);
    assert_eq!(lab.hears(Event::ImageWritten(Ok(()))), ["image taken", "thaw"]);
}

#[test]
fn an_image_does_not_thaw_what_its_owner_has_stopped_meanwhile() {
    let suspends = OnBusy::suspend(Some(PATIENCE), Reaction::Rollback);
    let mut lab = running(Setting { on_busy: suspends, ..rank(Reaction::Suspend) });
    assert_eq!(lab.hears(Event::ImageWanted), ["freeze", "look"]);
    lab.looks(Look::Steady);
    assert_eq!(lab.owner(Owner::Here), ["is Suspended"]);
    lab.hears(Event::PipesEmptied(Ok(())));
    assert_eq!(lab.hears(Event::ImageWritten(Ok(()))), ["image taken"]);
    assert_eq!(lab.owner(Owner::Away), ["thaw", "is Running"]);
}

#[test]
fn a_guest_that_departs_waits_for_its_image_and_gives_up_one_that_is_not_being_taken() {
    let mut lab = running(rank(Reaction::Rollback));
    lab.hears(Event::ImageWanted);
    lab.looks(Look::Steady);
    assert_eq!(lab.at(at(1)).owner(Owner::Here), ["wants away: SubtaskStart"]);
    let departs = lab.departs(Keep::SubtaskStart, 8);
    assert_eq!(departs, ["departs: SubtaskStart"], "CRIU is at it");
    lab.hears(Event::PipesEmptied(Ok(())));
    lab.hears(Event::ImageWritten(Ok(())));
    assert_eq!(lab.at(at_ms(1_002)).wakes(), ["look"]);
    assert_eq!(lab.looks(Look::Steady), ["pack"]);
    assert_eq!(lab.hears(Event::ImageWanted), ["no image: NotNow"]);
}

// ── keepers ────────────────────────────────────────────────────────────────

/// The place of a guest that could move, which has ended.
fn left_by_one_that_could_move() -> Lab {
    let (mut lab, entered) = enters(setting(Reaction::Migrate));
    assert_eq!(entered, ["spawn staged keeper", "prepare", "launch"]);
    lab.place.set_open(at(0), true);
    lab.at(at(1)).keeper(KeeperEvent::Ended { last: true });
    lab.exits(false);
    assert_eq!(lab.place.deadline(), None, "it is not gone yet");
    lab.keeper(KeeperEvent::Gone);
    lab
}

#[test]
fn where_one_could_move_a_keeper_waits_for_the_next_and_is_renewed() {
    let mut lab = left_by_one_that_could_move();
    assert_eq!(lab.place.deadline(), Some(at(1)), "at once");
    assert_eq!(lab.wakes(), ["spawn staged keeper"]);
    assert_eq!(lab.place.deadline(), Some(at(601)));
    assert_eq!(lab.at(at(601)).wakes(), ["dropkeeper"]);
    assert_eq!(lab.wakes(), NOTHING);
    lab.keeper(KeeperEvent::Gone);
    assert_eq!(lab.wakes(), ["spawn staged keeper"]);
    let out = lab.place.take(at(601), start(setting(Reaction::Migrate)));
    assert_eq!(said(&out), ["prepare", "launch"], "it is there already");
}

#[test]
fn a_keeper_is_let_go_when_guests_are_not_welcome_for_a_while() {
    let mut lab = left_by_one_that_could_move();
    lab.wakes();
    lab.place.set_open(at(100), false);
    assert_eq!(lab.place.deadline(), Some(at(160)));
    assert_eq!(lab.at(at(160)).wakes(), ["dropkeeper"]);
    lab.keeper(KeeperEvent::Gone);
    assert_eq!(lab.place.deadline(), None, "nobody is welcome");
    lab.place.set_open(at(161), true);
    assert_eq!(lab.at(at(161)).wakes(), ["spawn staged keeper"]);
}

#[test]
fn a_keeper_that_dies_without_a_guest_is_not_made_again() {
    let mut lab = left_by_one_that_could_move();
    lab.wakes();
    lab.keeper(KeeperEvent::Gone);
    assert_eq!(lab.place.deadline(), None);
}

#[test]
fn a_plain_keeper_stays_for_the_next_guest_and_goes_after_a_minute() {
    let mut lab = running(setting(Reaction::Suspend));
    lab.place.set_open(at(0), true);
    lab.at(at(1)).keeper(KeeperEvent::Ended { last: false });
    lab.exits(false);
    let out = lab.place.take(at(1), start(setting(Reaction::Suspend)));
    assert_eq!(said(&out), ["prepare", "launch"]);
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(false);
    assert_eq!(lab.at(at(61)).wakes(), ["dropkeeper"]);
    assert_eq!(lab.place.deadline(), None, "and none is made for nobody");
}

#[test]
fn a_guest_that_could_move_gets_a_keeper_of_its_kind_when_the_other_is_gone() {
    let mut lab = running(setting(Reaction::Suspend));
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(false);
    let out = lab.place.take(at(1), start(setting(Reaction::Migrate)));
    assert_eq!(said(&out), ["dropkeeper", "prepare"]);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["spawn staged keeper", "launch"]);
}

#[test]
fn a_process_that_comes_waits_for_the_keeper_before_its_own() {
    let mut lab = running(setting(Reaction::Suspend));
    lab.keeper(KeeperEvent::Ended { last: false });
    lab.exits(false);
    let comes = Setting { arrives: true, ..setting(Reaction::Migrate) };
    let out = lab.place.take(at(1), start(comes));
    assert_eq!(said(&out), ["dropkeeper", "expect"]);
    assert_eq!(lab.hears(Event::Header { pipes: 0, lays: false }), NOTHING);
    assert_eq!(lab.hears(Event::Known { keep: Keep::State }), NOTHING);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["spawn staged keeper", "receiveprocess", "land"]);
}

#[test]
fn a_keeper_that_dies_before_it_hears_of_a_process_that_comes_is_replaced() {
    let mut lab = left_by_one_that_could_move();
    lab.wakes();
    let comes = Setting { arrives: true, ..setting(Reaction::Migrate) };
    let out = lab.place.take(at(1), start(comes));
    assert_eq!(said(&out), ["expect"]);
    assert_eq!(lab.hears(Event::Header { pipes: 0, lays: false }), ["receiveprocess"]);
    assert_eq!(lab.keeper(KeeperEvent::NotBegun { fence: FENCE }), NOTHING);
    assert_eq!(lab.keeper(KeeperEvent::Gone), ["spawn staged keeper", "receiveprocess"]);
}

#[test]
fn a_place_whose_keeper_is_not_gone_takes_nobody() {
    let mut lab = left_by_one_that_could_move();
    lab.wakes();
    lab.at(at(601)).wakes();
    let out = lab.place.take(at(601), start(setting(Reaction::Migrate)));
    assert_eq!((out, lab.place.is_free()), (Out::default(), false));
    lab.keeper(KeeperEvent::Gone);
    assert!(lab.place.is_free());
}
