use super::*;
use gleaner_common::job::{Limits, OnBusy, Patience, Reaction};

const PATIENCE: Duration = Duration::from_secs(10);

fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

fn terms(reaction: Reaction) -> Terms {
    let on_busy = OnBusy { reaction, patience: Patience::For(PATIENCE), then: Reaction::Retreat };
    Terms { on_busy, timeout: Some(Duration::from_secs(25)), limits: Limits::default() }
}

/// A place where attempt 7 has run since second 0.
fn running(reaction: Reaction) -> Place {
    let mut place = Place::new();
    assert_eq!(place.turned(at(0), Owner::Away), []);
    assert_eq!(place.take(at(0), Fence(7), entry(reaction, false)), [Effect::Start(Fence(7))]);
    place
}

fn entry(reaction: Reaction, rank: bool) -> Entry {
    Entry { terms: terms(reaction), rank, arrives: false }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Turned(Owner),
    Take,
    Expect,
    Landed,
    Depart(Fence),
    Stay,
    GoOn,
    CannotLeave,
    Exited,
    Retreat,
    Cancel,
    OverLimit,
    /// Nothing happens for that long.
    Patience,
}

const STEPS: [Step; 16] = [
    Step::Turned(Owner::Away),
    Step::Turned(Owner::Here),
    Step::Turned(Owner::Claims),
    Step::Take,
    Step::Expect,
    Step::Landed,
    Step::Depart(Fence(8)),
    Step::Depart(Fence(9)),
    Step::Stay,
    Step::GoOn,
    Step::CannotLeave,
    Step::Exited,
    Step::Retreat,
    Step::Cancel,
    Step::OverLimit,
    Step::Patience,
];

/// What the outside has seen of the only guest of a place.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what can be seen of a guest")]
struct Witness {
    entered: bool,
    frozen: bool,
    demoted: bool,
    /// Came from elsewhere and was not set going.
    held: bool,
    /// On its way.
    carried: bool,
    killed: bool,
    gone: bool,
    told: u32,
    cancelled: bool,
}

impl Witness {
    fn runs(&self) -> bool {
        self.entered && !self.frozen && !self.held && !self.killed && !self.gone
    }

    fn see(&mut self, effects: &[Effect], step: Step) {
        for effect in effects {
            match effect {
                Effect::Start(_) => self.entered = true,
                Effect::Again(_) => {
                    assert!(self.gone && !self.carried, "begun again beside itself");
                    *self = Self {
                        entered: true,
                        told: self.told,
                        cancelled: self.cancelled,
                        ..Self::default()
                    };
                }
                Effect::Expect(_) => (self.entered, self.held) = (true, true),
                Effect::Go(_) => {
                    assert!(self.held && !self.killed, "set going twice");
                    self.held = false;
                }
                Effect::Freeze(_) => self.frozen = true,
                Effect::Thaw(_) => {
                    assert!(!self.carried, "thawed on its way");
                    assert!(self.frozen && !self.killed && !self.gone);
                    self.frozen = false;
                }
                Effect::Demote(_) | Effect::AskToRetreat { .. } => self.demoted = true,
                Effect::Restore(_) => self.demoted = false,
                Effect::WantsAway { .. } => assert!(!self.runs(), "asks while it runs"),
                Effect::Depart { .. } => {
                    assert!(!self.runs() && !self.carried && !self.killed || self.gone);
                    self.carried = true;
                }
                Effect::CallBack(_) => {
                    assert!(self.carried);
                    self.carried = false;
                }
                Effect::Stays(_) => assert!(!self.carried),
                Effect::CannotLeave { .. } => self.carried = false,
                Effect::Kill(_) | Effect::Empty(_) => {
                    assert!(!self.killed && !self.gone);
                    // Only who may undo the work undoes what is on its way.
                    let may = matches!(step, Step::Cancel | Step::Retreat | Step::OverLimit);
                    assert!(may || !self.carried, "killed on its way");
                    self.killed = true;
                }
                Effect::Retreat { .. } | Effect::Finish { .. } | Effect::Refuse { .. } => {
                    self.told += 1;
                }
            }
        }
    }
}

/// One guest and every order of six things that can happen to it.
fn try_all(reaction: Reaction, then: Reaction, rank: bool) {
    let mut terms = terms(reaction);
    terms.on_busy.then = then;
    // The first step is one of the two ways in.
    for (arrives, path) in [false, true]
        .into_iter()
        .flat_map(|way| (0..STEPS.len().pow(5)).map(move |path| (way, path)))
    {
        let (mut place, mut now, mut owner) = (Place::new(), at(0), Owner::Away);
        let mut seen = Witness::default();
        let _ = place.turned(now, Owner::Away);
        let entry = Entry { terms, rank, arrives };
        seen.see(&place.take(now, Fence(1), entry), Step::Take);
        let mut choices = path;
        for _ in 0..5 {
            let step = STEPS[choices % STEPS.len()];
            choices /= STEPS.len();
            let fence = Fence(1);
            let effects = match step {
                Step::Turned(turned) => {
                    owner = turned;
                    place.turned(now, turned)
                }
                // No attempt is taken twice: the desk sees to it.
                Step::Take | Step::Expect => vec![],
                Step::Landed => {
                    // Only what was expected and has not gone lands.
                    if seen.held && !seen.killed && !seen.gone {
                        let _ = place.landed(now, fence);
                    }
                    vec![]
                }
                Step::Depart(to) => {
                    let keep = if rank { Keep::Nothing } else { Keep::State };
                    // Nobody asks a rank to leave with less before it says so.
                    if rank && !(seen.gone && place.guest().is_some()) {
                        vec![]
                    } else {
                        place.depart(now, fence, keep, to)
                    }
                }
                Step::Stay => place.stay(now, fence),
                Step::GoOn => place.go_on(now, fence),
                Step::CannotLeave if rank || !seen.carried => vec![],
                Step::CannotLeave => {
                    seen.carried = false;
                    place.cannot_leave(now, fence, "a socket".into())
                }
                // Nobody ends twice.
                Step::Exited if seen.gone => vec![],
                Step::Exited => {
                    seen.gone = true;
                    place.exited(now, fence)
                }
                Step::Retreat => place.retreat(now),
                Step::Cancel => {
                    seen.cancelled |= place.guest().is_some();
                    place.cancel(now, fence)
                }
                Step::OverLimit => place.over_limit(now, fence, "memory".into()),
                Step::Patience => {
                    now = now + Duration::from_secs(700);
                    place.wake(now)
                }
            };
            seen.see(&effects, step);
            if seen.runs() {
                assert_ne!(owner, Owner::Claims, "path {path}: runs against a claim");
                let may = reaction == Reaction::Renice || rank;
                assert!(owner == Owner::Away || seen.demoted && may, "path {path}");
            }
            let ended = seen.told + u32::from(seen.cancelled);
            assert!(ended <= 1, "path {path}: ended {ended} times");
            let here = place.guest().is_some();
            assert!(here != (ended == 1), "path {path}: here {here}, ended {ended}");
            assert!(place.is_free() || !seen.gone || here, "path {path}: held by nobody");
        }
    }
}

#[test]
fn no_order_of_events_lets_a_guest_share_run_twice_or_end_twice() {
    for reaction in [Reaction::Renice, Reaction::Suspend, Reaction::Retreat] {
        try_all(reaction, Reaction::Retreat, false);
    }
}

#[test]
fn no_order_of_events_lets_what_moves_run_on_its_way_or_be_destroyed_before_it_is_there() {
    try_all(Reaction::Migrate, Reaction::Retreat, false);
    try_all(Reaction::Suspend, Reaction::Migrate, false);
}

#[test]
fn no_order_of_events_loses_a_rank_that_leaves_without_its_process() {
    try_all(Reaction::Retreat, Reaction::Retreat, true);
}

#[test]
fn a_guest_retreats_when_the_owner_outstays_its_patience() {
    let mut place = running(Reaction::Suspend);
    assert_eq!(place.turned(at(10), Owner::Here), [Effect::Freeze(Fence(7))]);
    assert_eq!(place.wake(at(19)), []);
    let why = Why::OwnerStays(PATIENCE);
    let retreat = Effect::Retreat { fence: Fence(7), why, suspensions: 1 };
    assert_eq!(place.wake(at(20)), [Effect::Kill(Fence(7)), retreat]);
    assert!(!place.is_free(), "its processes are still there");
    assert_eq!(place.exited(at(21), Fence(7)), []);
    assert!(place.is_free());
}

#[test]
fn suspended_time_is_not_run_time() {
    let mut place = running(Reaction::Suspend);
    let _ = place.turned(at(20), Owner::Here);
    assert_eq!(place.turned(at(29), Owner::Away), [Effect::Thaw(Fence(7))]);
    assert_eq!(place.wake(at(33)), []);
    assert_eq!(place.wake(at(34)), [Effect::Kill(Fence(7))]);
    let clock =
        Clock { ran: Duration::from_secs(25), suspended: Duration::from_secs(9), suspensions: 1 };
    let finish = Effect::Finish { fence: Fence(7), end: End::TimedOut, clock };
    assert_eq!(place.exited(at(35), Fence(7)), [finish]);
}

#[test]
fn a_claim_freezes_even_a_demoted_guest() {
    let mut place = running(Reaction::Renice);
    assert_eq!(place.turned(at(1), Owner::Here), [Effect::Demote(Fence(7))]);
    assert_eq!(
        place.turned(at(2), Owner::Claims),
        [Effect::Freeze(Fence(7)), Effect::Restore(Fence(7)),]
    );
    let back = [Effect::Demote(Fence(7)), Effect::Thaw(Fence(7))];
    assert_eq!(place.turned(at(3), Owner::Here), back);
    assert_eq!(place.turned(at(4), Owner::Away), [Effect::Restore(Fence(7))]);
}

#[test]
fn a_guest_that_moves_stands_still_until_it_is_told_what_became_of_it() {
    let (fence, keep) = (Fence(7), Keep::State);
    let mut place = running(Reaction::Migrate);
    let wants = [Effect::Freeze(fence), Effect::WantsAway { fence, keep }];
    assert_eq!(place.turned(at(1), Owner::Here), wants);
    let depart = Effect::Depart { fence, keep, since: at(1) };
    assert_eq!(place.depart(at(2), fence, keep, Fence(8)), std::slice::from_ref(&depart));
    assert_eq!(place.depart(at(3), fence, keep, Fence(8)), [], "said again");
    assert_eq!(place.turned(at(4), Owner::Away), [], "on its way");
    let elsewhere = [Effect::CallBack(fence), depart];
    assert_eq!(place.depart(at(5), fence, keep, Fence(9)), elsewhere);
    assert_eq!(place.cancel(at(6), fence), [Effect::Kill(fence)]);
}

#[test]
fn a_move_that_comes_to_nothing_leaves_a_suspended_guest_with_the_usual_patience() {
    let (fence, keep) = (Fence(7), Keep::State);
    let mut place = running(Reaction::Migrate);
    let _ = place.turned(at(1), Owner::Here);
    let _ = place.depart(at(2), fence, keep, Fence(8));
    assert_eq!(place.stay(at(3), fence), [Effect::CallBack(fence)]);
    assert_eq!(place.guest(), Some((fence, GuestState::Suspended)));
    assert_eq!(place.deadline(), Some(at(603)));
    assert_eq!(place.turned(at(4), Owner::Away), [Effect::Thaw(fence)]);
    assert_eq!(place.turned(at(5), Owner::Here).len(), 2, "tried anew");
    let _ = place.depart(at(6), fence, keep, Fence(9));
    let told = place.cannot_leave(at(7), fence, "a socket".into());
    assert_eq!(told, [Effect::CannotLeave { fence, keep, reason: "a socket".into() }]);
    assert_eq!(place.turned(at(8), Owner::Away), [Effect::Thaw(fence)]);
    assert_eq!(place.turned(at(9), Owner::Here), [Effect::Freeze(fence)], "not tried again");
    let effects = place.wake(at(700));
    assert!(matches!(effects[..], [Effect::Kill(_), Effect::Retreat { .. }]), "{effects:?}");
}

#[test]
fn what_arrives_waits_for_the_word_and_then_does_as_its_job_says() {
    let mut place = Place::new();
    let _ = place.turned(at(0), Owner::Away);
    let entry = Entry { arrives: true, ..entry(Reaction::Migrate, false) };
    assert_eq!(place.take(at(0), Fence(8), entry), [Effect::Expect(Fence(8))]);
    place.coming(Fence(8));
    assert_eq!(place.deadline(), None);
    assert!(place.landed(at(50), Fence(8)));
    assert_eq!(place.turned(at(51), Owner::Here), [], "it stands still");
    let (fence, keep) = (Fence(8), Keep::State);
    let on = [Effect::Freeze(fence), Effect::WantsAway { fence, keep }, Effect::Go(fence)];
    assert_eq!(place.stay(at(52), fence), [], "that is for what is to leave");
    assert_eq!(place.go_on(at(52), fence), on);
    assert_eq!(place.go_on(at(53), fence), [], "told twice, it still wants away");
}

#[test]
fn nothing_that_does_not_come_is_waited_for() {
    let mut place = Place::new();
    let _ = place.turned(at(0), Owner::Away);
    let entry = Entry { arrives: true, ..entry(Reaction::Migrate, false) };
    let _ = place.take(at(0), Fence(8), entry);
    let fence = Fence(8);
    let why = NotHere::NothingCame(ARRIVAL_WITHIN);
    assert_eq!(place.wake(at(30)), [Effect::Kill(fence), Effect::Refuse { fence, why }]);
}

#[test]
fn a_rank_that_retreats_returns_its_work_and_leaves_without_its_process() {
    let mut place = Place::new();
    let _ = place.turned(at(0), Owner::Away);
    let fence = Fence(7);
    let _ = place.take(at(0), fence, entry(Reaction::Retreat, true));
    let ask = Effect::AskToRetreat { fence, within: RETREAT_WITHIN };
    assert_eq!(place.turned(at(1), Owner::Here), [ask]);
    place.returned(fence);
    let wants = Effect::WantsAway { fence, keep: Keep::Nothing };
    assert_eq!(place.exited(at(1), fence), [wants]);
    assert_eq!(place.guest(), Some((fence, GuestState::Leaving)));
    assert_eq!(place.depart(at(2), fence, Keep::Nothing, Fence(8)).len(), 1);
    assert_eq!(place.cancel(at(3), fence), []);
    assert!(place.is_free());
}

#[test]
fn a_rank_that_waits_goes_without_its_process_when_that_is_asked_of_it() {
    let mut place = Place::new();
    let _ = place.turned(at(0), Owner::Away);
    let fence = Fence(7);
    let _ = place.take(at(0), fence, entry(Reaction::Suspend, true));
    assert_eq!(place.turned(at(1), Owner::Here), [Effect::Freeze(fence)]);
    let depart = |place: &mut Place| place.depart(at(2), fence, Keep::Nothing, Fence(8));
    assert_eq!(depart(&mut place), [Effect::Empty(fence)]);
    let wants = Effect::WantsAway { fence, keep: Keep::Nothing };
    assert_eq!(place.exited(at(2), fence), [wants]);
    let departs = Effect::Depart { fence, keep: Keep::Nothing, since: at(1) };
    assert_eq!(depart(&mut place), [departs]);
}

#[test]
fn an_order_that_another_wish_has_overtaken_is_ignored() {
    let mut place = Place::new();
    let _ = place.turned(at(0), Owner::Away);
    let fence = Fence(7);
    let _ = place.take(at(0), fence, entry(Reaction::Retreat, true));
    let _ = place.turned(at(1), Owner::Here);
    place.returned(fence);
    let _ = place.exited(at(1), fence);
    assert_eq!(place.depart(at(2), fence, Keep::State, Fence(8)), []);
    assert_eq!(place.depart(at(2), fence, Keep::Nothing, Fence(9)).len(), 1);
}
