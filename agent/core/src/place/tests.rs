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
    assert_eq!(place.take(at(0), Fence(7), terms(reaction)), [Effect::Start(Fence(7))]);
    place
}

#[derive(Clone, Copy)]
enum Step {
    Turned(Owner),
    Take(Fence),
    Exited(Fence),
    Retreat,
    Cancel(Fence),
    OverLimit(Fence),
    /// Nothing happens for that long.
    Patience,
}

const STEPS: [Step; 10] = [
    Step::Turned(Owner::Away),
    Step::Turned(Owner::Here),
    Step::Turned(Owner::Claims),
    Step::Take(Fence(1)),
    Step::Take(Fence(2)),
    Step::Exited(Fence(1)),
    Step::Retreat,
    Step::Cancel(Fence(1)),
    Step::OverLimit(Fence(1)),
    Step::Patience,
];

/// What the outside has seen of a place.
#[derive(Default)]
struct Witness {
    /// Who runs, and whether demoted.
    runs: Option<(Fence, bool)>,
    demoted: bool,
    started: Vec<Fence>,
    killed: Vec<Fence>,
    told: Vec<Fence>,
}

impl Witness {
    fn see(&mut self, effects: Vec<Effect>, path: usize) {
        for effect in effects {
            match effect {
                Effect::Start(fence) => {
                    assert_eq!(self.runs, None, "path {path}");
                    self.started.push(fence);
                    (self.runs, self.demoted) = (Some((fence, false)), false);
                }
                Effect::Freeze(_) => self.runs = None,
                Effect::Thaw(fence) => self.runs = Some((fence, self.demoted)),
                Effect::Demote(fence) => {
                    self.demoted = true;
                    self.runs = self.runs.map(|_| (fence, true));
                }
                Effect::Restore(fence) => {
                    self.demoted = false;
                    self.runs = self.runs.map(|_| (fence, false));
                }
                Effect::Kill(fence) => {
                    assert!(!self.killed.contains(&fence), "path {path}");
                    self.killed.push(fence);
                    self.runs = None;
                }
                Effect::Retreat { fence, .. } | Effect::Finish { fence, .. } => {
                    self.told.push(fence);
                    self.runs = None;
                }
            }
        }
    }
}

#[test]
fn no_five_steps_let_a_guest_share_run_twice_or_end_twice() {
    for reaction in [Reaction::Renice, Reaction::Suspend, Reaction::Retreat] {
        for path in 0..STEPS.len().pow(5) {
            let (mut place, mut now, mut owner) = (Place::new(), at(0), Owner::Away);
            let (mut seen, mut cancelled) = (Witness::default(), vec![]);
            let _ = place.turned(now, Owner::Away);
            let mut choices = path;
            for _ in 0..5 {
                let step = STEPS[choices % STEPS.len()];
                choices /= STEPS.len();
                let effects = match step {
                    Step::Turned(turned) => {
                        owner = turned;
                        place.turned(now, turned)
                    }
                    // No attempt is taken twice: the desk sees to it.
                    Step::Take(fence) if seen.started.contains(&fence) => vec![],
                    Step::Take(fence) => place.take(now, fence, terms(reaction)),
                    // Nobody exits that never started.
                    Step::Exited(fence) => place.exited(now, fence),
                    Step::Retreat => place.retreat(now),
                    Step::Cancel(fence) => {
                        cancelled.extend(place.guest().filter(|(here, _)| *here == fence));
                        place.cancel(now, fence)
                    }
                    Step::OverLimit(fence) => place.over_limit(now, fence, "memory".into()),
                    Step::Patience => {
                        now = now + PATIENCE;
                        place.wake(now)
                    }
                };
                seen.see(effects, path);
                match (owner, seen.runs) {
                    (Owner::Claims, runs) => assert_eq!(runs, None, "path {path}"),
                    (Owner::Here, Some((_, demoted))) => {
                        assert!(demoted && reaction == Reaction::Renice, "path {path}");
                    }
                    (Owner::Here, None) | (Owner::Away, _) => {}
                }
            }
            let mut ended: Vec<Fence> = seen.told.clone();
            ended.extend(cancelled.iter().map(|(fence, _)| *fence));
            ended.sort_unstable();
            assert!(ended.is_sorted_by(|a, b| a < b), "ended twice on path {path}");
            for fence in seen.started {
                let here = place.guest().is_some_and(|(here, _)| here == fence);
                assert!(here != ended.contains(&fence), "{fence} on path {path}");
            }
        }
    }
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
fn a_guest_that_would_have_to_move_returns_its_work() {
    for reaction in [Reaction::Migrate, Reaction::Rollback, Reaction::Retreat] {
        let mut place = running(reaction);
        let why = Why::OwnerCame;
        let retreat = Effect::Retreat { fence: Fence(7), why, suspensions: 0 };
        assert_eq!(place.turned(at(1), Owner::Here), [Effect::Kill(Fence(7)), retreat]);
    }
}
