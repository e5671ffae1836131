//! Attempts that move: never two that run, and never none for good.

use gleaner_common::fingerprint::{Fingerprint, Version};
use gleaner_common::id::Generation;
use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::program::{Arrival, Destination, Handover, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::report::SubprogramState;
use gleaner_program_core::wire::ToRank;

use super::*;

const WANTS: Keep = Keep::State;

pub(super) fn machine(kernel: &str) -> Fingerprint {
    Fingerprint {
        architecture: "x86_64".into(),
        kernel: kernel.into(),
        criu: Version { major: 4, minor: 1, patch: 1 },
        processor: "Xeon".into(),
        features: [].into(),
        system: "Debian 13".into(),
        root: [1; 16],
    }
}

/// What one workstation was sent last of a move: the old and the new attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) from: u32,
    pub(super) old: Fence,
    pub(super) to: u32,
    pub(super) new: Fence,
    pub(super) ticket: Ticket,
}

impl Site {
    pub(super) fn connect_machine(&mut self, id: u32, kernel: &str) -> Vec<Offered> {
        self.connect_as(id, 1, machine(kernel))
    }

    pub(super) fn connect_as(&mut self, id: u32, cores: u16, machine: Fingerprint) -> Vec<Offered> {
        self.enrol(id);
        let fingerprint = Some(Box::new(machine));
        let facts = Facts { cores, places: cores, speed: 100.0, fingerprint, ..Facts::default() };
        self.now = self.now + Duration::from_millis(1);
        self.hello(link(id, 1), Incarnation(1), facts, presence(false, cores), vec![])
    }

    /// One subprogram that runs on host1, and other workstations alike.
    pub(super) fn with_guest(others: u32) -> (Self, JobId, Fence) {
        let mut site = Self::new(Config::default());
        site.connect_machine(1, "6.12.1");
        let (job, offered) = site.submit(1, 0);
        let (_, _, fence) = only(&offered);
        site.started(1, fence);
        for id in 2..2 + others {
            site.connect_machine(id, "6.12.1");
        }
        (site, job, fence)
    }

    fn turns_busy(&mut self, id: u32) {
        self.hear(id, AgentFrame::Presence(presence(true, 1)));
    }

    fn wants_away(&mut self, id: u32, fence: Fence, keep: Keep) {
        self.turns_busy(id);
        self.hear_of(id, AttemptEvent::WantsAway { fence, keep, image_bytes: 5 });
    }

    /// The move that the last step began.
    pub(super) fn begun(&self) -> Option<Move> {
        let (to, offer) = self.sent().find_map(|(to, frame)| {
            let CoordinatorFrame::Offer(offer) = frame else { return None };
            offer.arrival.is_some().then_some((to, offer))
        })?;
        let (from, old, at) = self.sent().find_map(|(from, frame)| {
            let CoordinatorFrame::Depart { fence, to, .. } = frame else { return None };
            Some((from, *fence, to.clone()))
        })?;
        let (from_id, name) = (WorkstationId(from), format!("host{from}"));
        let Destination { at, ticket, .. } = at;
        let arrival = Arrival { from: from_id, name, old, ticket };
        assert_eq!(offer.arrival, Some(arrival));
        assert_eq!((at.fence, at.workstation.0), (offer.fence, to));
        assert_eq!(at.name, format!("host{to}"));
        Some(Move { from, old, to, new: offer.fence, ticket })
    }

    #[track_caller]
    pub(super) fn move_away(&mut self, id: u32, fence: Fence) -> Move {
        self.wants_away(id, fence, WANTS);
        self.begun().expect("a move begins")
    }

    pub(super) fn arrives(&mut self, Move { to, new, .. }: Move) {
        let frozen = Duration::from_millis(80);
        self.hear_of(to, AttemptEvent::Arrived { fence: new, bytes: 1_000, frozen });
    }

    pub(super) fn is_refused(&mut self, Move { to, new, .. }: Move) {
        self.hear_of(
            to,
            AttemptEvent::Refused {
                fence: new,
                reason: "no room".into(),
                blame: Blame::Workstation,
            },
        );
    }

    #[track_caller]
    pub(super) fn check_row(&self, job: JobId, at: u32, state: SubprogramState, moves: u32) {
        let row = self.core.subprogram_row(subprogram(job, 0)).unwrap();
        let seen = (row.workstation.as_deref(), row.state, row.moves);
        assert_eq!(seen, (Some(format!("host{at}").as_str()), state, moves));
    }
}

#[test]
fn a_guest_that_has_arrived_runs_and_the_old_one_is_destroyed() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    assert_eq!((begun.from, begun.old, begun.to), (1, old, 2));
    site.check_row(job, 1, SubprogramState::Suspended, 0);
    site.arrives(begun);
    site.check_sent(1, &CoordinatorFrame::Cancel { fence: old });
    site.check_sent(2, &CoordinatorFrame::GoOn { fence: begun.new });
    let end = site.last.changes.iter().find_map(|change| {
        let Change::Attempt(attempt) = change else { return None };
        attempt.end.clone().filter(|_| attempt.fence == old)
    });
    assert_eq!(end.unwrap().1, "moved to host2");
    let progress = site.progress();
    assert_eq!((progress.counts.moves, progress.moved_bytes), (1, 1_000));
    assert_eq!(progress.frozen, Duration::from_millis(80));
    site.check_row(job, 2, SubprogramState::Running, 1);
    site.finished(2, begun.new, Outcome::Succeeded);
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
}

#[test]
fn only_what_was_ordered_is_carried() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    let [one, two] = [1, 2].map(WorkstationId);
    let what = Handover {
        subprogram: subprogram(job, 0),
        old,
        new: begun.new,
        ticket: begun.ticket,
        keep: WANTS,
        endpoint_bytes: 0,
        frozen: Duration::ZERO,
    };
    assert!(site.core.carries(one, two, &what));
    assert!(!site.core.carries(two, one, &what));
    assert!(!site.core.carries(two, two, &what), "from somebody else");
    assert!(!site.core.carries(one, two, &Handover { old: Fence::of(77), ..what.clone() }));
    assert!(!site.core.carries(one, two, &Handover { ticket: Ticket([0; 16]), ..what.clone() }));
    site.arrives(begun);
    assert!(!site.core.carries(one, two, &what), "it is there");
}

#[test]
fn an_arrival_told_again_is_answered_again_and_counted_once() {
    let (mut site, _, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    site.arrives(begun);
    site.arrives(begun);
    assert_eq!(site.last.changes, []);
    site.check_sent(2, &CoordinatorFrame::GoOn { fence: begun.new });
}

#[test]
fn without_a_target_it_waits_for_one() {
    let (mut site, job, old) = Site::with_guest(0);
    site.wants_away(1, old, WANTS);
    assert_eq!(site.begun(), None);
    let why = site.core.why_subprogram(site.now, subprogram(job, 0)).unwrap();
    assert!(why.iter().any(|line| line.contains("none is free")), "{why:?}");
    site.connect_machine(2, "6.12.1");
    assert!(site.begun().is_some());
}

#[test]
fn an_unsuitable_workstation_is_not_chosen_and_why_says_so() {
    let (mut site, job, old) = Site::with_guest(0);
    site.connect_machine(2, "6.1.0");
    site.wants_away(1, old, WANTS);
    assert_eq!(site.begun(), None);
    let why = site.core.why_subprogram(site.now, subprogram(job, 0)).unwrap();
    let expected = "not to host2: older kernel: 6.12.1 here, 6.1.0 there";
    assert!(why.iter().any(|line| line == expected), "{why:?}");
    let why = site.core.why_job(site.now, job).unwrap();
    let expected = format!("subprogram {job}.0 wants to leave host1: {expected}");
    assert!(why.contains(&expected), "{why:?}");
    // Without its state it may go anywhere.
    site.wants_away(1, old, Keep::Nothing);
    assert_eq!(site.begun().unwrap().to, 2);
}

#[test]
fn where_moves_are_switched_off_why_says_so() {
    let (mut site, job, old) = Site::with_guest(0);
    let missing = vec!["sandbox: x".into(), Facts::no_moves("moves.enabled is false")];
    let facts = Facts { cores: 1, places: 1, speed: 100.0, missing, ..Facts::default() };
    site.enrol(2);
    site.hello(link(2, 1), Incarnation(1), facts, presence(false, 1), vec![]);
    site.wants_away(1, old, WANTS);
    assert_eq!(site.begun(), None);
    let why = site.core.why_subprogram(site.now, subprogram(job, 0)).unwrap();
    let expected = "not to host2: it restores no images (moves.enabled is false)";
    assert!(why.iter().any(|line| line == expected), "{why:?}");
}

#[test]
fn what_may_go_back_to_an_image_goes_where_that_fits_and_else_anywhere() {
    let (mut site, _, old) = Site::with_guest(1);
    // This workstation turned idle last, and would come first.
    site.connect_machine(3, "6.1.5");
    site.wants_away(1, old, Keep::SubtaskStart);
    let begun = site.begun().expect("a move begins");
    assert_eq!(begun.to, 2);
    site.is_refused(begun);
    assert_eq!(site.begun().map(|begun| begun.to), Some(3));
}

#[test]
fn a_refused_move_is_tried_elsewhere_three_times_and_then_its_agent_decides() {
    let (mut site, job, old) = Site::with_guest(4);
    let mut begun = site.move_away(1, old);
    let mut tried = vec![];
    for _ in 0..2 {
        tried.push(begun.to);
        site.is_refused(begun);
        site.check_sent(begun.to, &CoordinatorFrame::Acknowledge { fence: begun.new });
        begun = site.begun().expect("another target");
        assert!(!tried.contains(&begun.to), "{tried:?}");
    }
    site.is_refused(begun);
    assert_eq!(site.begun(), None);
    site.check_sent(1, &CoordinatorFrame::Stay { fence: old });
    let notes = site.core.job_row(job).unwrap().notes;
    assert!(notes[0].contains("found no place to move to"), "{notes:?}");
    site.check_row(job, 1, SubprogramState::Suspended, 0);
}

#[test]
fn an_owner_who_leaves_in_time_keeps_the_guest() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    site.hear_of(1, AttemptEvent::Stays { fence: old, keep: WANTS });
    site.check_sent(begun.to, &CoordinatorFrame::Cancel { fence: begun.new });
    site.check_row(job, 1, SubprogramState::Running, 0);
    // What had crossed it comes to nothing.
    site.arrives(begun);
    site.check_sent(begun.to, &CoordinatorFrame::Cancel { fence: begun.new });
    site.check_row(job, 1, SubprogramState::Running, 0);
}

#[test]
fn what_cannot_be_carried_stays_and_its_user_is_told_why() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    let reason = "an open socket".to_owned();
    site.hear_of(1, AttemptEvent::CannotLeave { fence: old, keep: WANTS, reason });
    site.check_sent(begun.to, &CoordinatorFrame::Cancel { fence: begun.new });
    let note = format!("subprogram {job}.0 cannot leave host1: an open socket");
    assert_eq!(site.core.job_row(job).unwrap().notes, [note]);
    site.check_row(job, 1, SubprogramState::Suspended, 0);
}

#[test]
fn a_lost_target_is_no_loss() {
    let (mut site, job, old) = Site::with_guest(2);
    let begun = site.move_away(1, old);
    site.heartbeat(1);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    site.hello(link(begun.to, 2), Incarnation(2), facts, presence(true, 1), vec![]);
    let next = site.begun().expect("another target");
    assert_ne!(next.to, begun.to);
    assert_eq!(site.core.summary(job).unwrap().counts.lost, 0);
}

#[test]
fn a_source_that_dies_leaves_the_state_that_was_under_way() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    site.hello(link(1, 2), Incarnation(2), facts, presence(true, 1), vec![]);
    assert_eq!(site.offers(), [], "it is not begun a second time");
    site.arrives(begun);
    site.check_sent(2, &CoordinatorFrame::GoOn { fence: begun.new });
    site.check_row(job, 2, SubprogramState::Running, 1);
    assert_eq!(site.core.summary(job).unwrap().counts.moves, 1);
}

#[test]
fn a_source_that_gives_its_guest_up_leaves_the_state_that_was_under_way() {
    let (mut site, job, old) = Site::with_guest(2);
    let begun = site.move_away(1, old);
    assert_eq!(site.retreated(1, old), [], "it is not begun a second time");
    site.check_sent(1, &CoordinatorFrame::Acknowledge { fence: old });
    site.arrives(begun);
    site.check_sent(begun.to, &CoordinatorFrame::GoOn { fence: begun.new });
    site.check_row(job, begun.to, SubprogramState::Running, 1);
    assert_eq!(site.core.summary(job).unwrap().counts.retreats, 1);
}

#[test]
fn a_source_that_dies_and_a_state_that_does_not_come_begin_anew() {
    let (mut site, job, old) = Site::with_guest(2);
    let begun = site.move_away(1, old);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    site.hello(link(1, 2), Incarnation(2), facts, presence(true, 1), vec![]);
    site.is_refused(begun);
    let (_, again, _) = only(&site.offers());
    assert_eq!(again, subprogram(job, 0));
}

#[test]
fn a_guest_that_ends_or_is_cancelled_while_it_moves_is_awaited_no_more() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    site.cancel(job);
    site.check_sent(1, &CoordinatorFrame::Cancel { fence: old });
    site.check_sent(2, &CoordinatorFrame::Cancel { fence: begun.new });
    assert_eq!((site.core.attempts.len(), site.core.moves.len()), (0, 0));
}

#[test]
fn a_broken_connection_loses_no_order() {
    let (mut site, _, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    let facts = |site: &Site, id| site.core.pool.get(WorkstationId(id)).unwrap().facts.clone();
    let (one, two) = (facts(&site, 1), facts(&site, 2));
    let held = vec![(old, GuestState::Leaving)];
    site.hello(link(1, 2), Incarnation(1), one, presence(true, 1), held);
    let depart = site.sent().any(|(to, frame)| {
        to == 1 && matches!(frame, CoordinatorFrame::Depart { fence, .. } if *fence == old)
    });
    assert!(depart, "{:#?}", site.last.effects);
    site.hello(link(2, 2), Incarnation(1), two, presence(false, 1), vec![]);
    let offer = site.sent().any(|(to, frame)| {
        to == 2
            && matches!(frame, CoordinatorFrame::Offer(offer)
                if offer.fence == begun.new && offer.arrival.is_some())
    });
    assert!(offer, "{:#?}", site.last.effects);
}

#[test]
fn a_new_life_of_the_coordinator_goes_on_with_a_move() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    let record = site.core.jobs[&job].record().clone();
    let attempts = site.core.attempts.iter().map(|(fence, attempt)| crate::AttemptRecord {
        fence: *fence,
        replica: 0,
        subprogram: subprogram(job, 0),
        workstation: attempt.workstation,
        placed: attempt.placed,
        end: None,
        coming: attempt.coming,
        arrived: attempt.arrived,
    });
    let restored = Restored {
        workstations: vec![(WorkstationId(1), "host1".into()), (WorkstationId(2), "host2".into())],
        jobs: vec![record],
        attempts: attempts.collect(),
        fences_below: Fence::of(10_000),
        ..Restored::default()
    };
    site.core = Core::restore(site.now, site.wall(), Config::default(), restored);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let held = vec![(old, GuestState::Leaving)];
    site.hello(link(1, 1), Incarnation(1), facts.clone(), presence(true, 1), held);
    let held = vec![(begun.new, GuestState::Waiting)];
    site.hello(link(2, 1), Incarnation(1), facts, presence(false, 1), held);
    site.arrives(begun);
    site.check_sent(1, &CoordinatorFrame::Cancel { fence: old });
    site.check_sent(2, &CoordinatorFrame::GoOn { fence: begun.new });
}

impl Site {
    /// An agent that nothing else is asked of has seen what the store does not know.
    fn goes_back(&mut self) {
        self.enrol(9);
        let newest = self.core.fences.floor();
        let generation = Generation(newest.generation.0 + 1);
        let frame = AgentFrame::Hello {
            incarnation: Incarnation(1),
            boot: BootId::default(),
            facts: Box::default(),
            presence: presence(true, 0),
            held: vec![],
            seen: Fence { generation, number: 1 },
        };
        self.handle(Event::Heard { from: link(9, 1), frame });
    }

    /// It is connected again, and holds this one, which has not begun.
    fn returns_holding(&mut self, id: u32, waiting: Fence) {
        let facts = self.core.pool.get(WorkstationId(id)).unwrap().facts.clone();
        self.handle(Event::Disconnected(link(id, 1)));
        let held = vec![(waiting, GuestState::Waiting)];
        self.hello(link(id, 1), Incarnation(1), facts, presence(false, 1), held);
        let is_kept = |frame: &CoordinatorFrame| matches!(frame, CoordinatorFrame::Welcome { keep, .. } if keep.contains(&waiting));
        assert!(!self.sent().any(|(to, frame)| to == id && is_kept(frame)), "it is let go of");
    }
}

/// It was counted as set going, where its agent had let go of it: its job waited for ever.
#[test]
fn what_arrives_just_as_the_store_goes_back_is_not_set_going_and_moves_again() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    site.goes_back();
    site.returns_holding(2, begun.new);
    site.arrives(begun);
    site.check_sent(2, &CoordinatorFrame::Cancel { fence: begun.new });
    site.check_row(job, 1, SubprogramState::Suspended, 0);
    let again = site.pass_heard(PAST_LEASE);
    let (to, _, new) = only(&again);
    assert!(to == 2 && new > begun.new, "{again:?}");
    site.arrives(Move { new, ..begun });
    site.check_row(job, 2, SubprogramState::Running, 1);
}

#[test]
fn what_starts_just_as_the_store_goes_back_starts_again_when_that_is_settled() {
    let mut site = Site::with_idle(1);
    let (job, offered) = site.submit(1, 0);
    let (_, _, fence) = only(&offered);
    site.goes_back();
    site.returns_holding(1, fence);
    site.started(1, fence);
    site.check_sent(1, &CoordinatorFrame::Cancel { fence });
    let (_, _, new) = only(&site.pass_heard(PAST_LEASE));
    assert!(new > fence);
    site.started(1, new);
    site.check_row(job, 1, SubprogramState::Running, 0);
    let row = site.core.subprogram_row(subprogram(job, 0)).unwrap();
    assert_eq!((row.failures, row.retreats, row.lost), (0, 0, 0), "it had not begun");
}

#[test]
fn everybody_hears_where_a_rank_has_moved_and_not_before() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.enrol(3);
    site.connect(3, 1, 1);
    let (id, _, old) = offered[0];
    site.wants_away(id, old, Keep::Nothing);
    let begun = site.begun().unwrap();
    let offer = &site.rank_offers()[0];
    assert_eq!((offer.life.0, offer.ranks, offer.cut), (1, 2, None));
    assert_eq!(site.places(offered[1].0), [], "it has not moved yet");
    assert_eq!(site.places(3).len(), 2, "who takes it in must know the others");
    site.arrives(begun);
    assert_eq!(site.places(offered[1].0), [(0, begun.new.number, 3)]);
    assert_eq!(site.core.job_row(job).unwrap().life, 1);
}

#[test]
fn a_rank_that_came_hears_of_those_that_ended_from_the_next_life_too() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.enrol(3);
    site.connect(3, 1, 1);
    let (id, _, old) = offered[0];
    site.wants_away(id, old, Keep::Nothing);
    let begun = site.begun().unwrap();
    site.end_well(offered[1]);
    site.arrives(begun);
    let ended = |told: &(u32, ToRank)| told.0 == 3 && matches!(told.1, ToRank::PeerEnded { .. });
    assert!(site.told().iter().any(ended));
    site.restart(job);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let held = vec![(begun.new, GuestState::Waiting)];
    site.hello(link(3, 2), Incarnation(1), facts, presence(false, 1), held);
    let frozen = Duration::from_millis(80);
    let again = AttemptEvent::Arrived { fence: begun.new, bytes: 1_000, frozen };
    site.handle(Event::Heard { from: link(3, 2), frame: AgentFrame::Attempt(again) });
    site.check_sent(3, &CoordinatorFrame::GoOn { fence: begun.new });
    assert!(site.told().iter().any(ended), "{:?}", site.told());
}

#[test]
fn a_rank_that_had_come_and_never_went_on_takes_its_program_back() {
    let (mut site, job, offered) = Site::with_ranks(2);
    site.enrol(3);
    site.connect(3, 1, 1);
    let (id, _, old) = offered[0];
    site.wants_away(id, old, Keep::Nothing);
    let begun = site.begun().unwrap();
    site.arrives(begun);
    // Also if the coordinator is another by then.
    site.restart(job);
    let facts = Facts { cores: 1, places: 1, ..Facts::default() };
    let held = vec![(begun.new, GuestState::Waiting)];
    site.hello(link(3, 2), Incarnation(1), facts, presence(false, 1), held);
    let refused = AttemptEvent::Refused {
        fence: begun.new,
        reason: "its lease ended".into(),
        blame: Blame::Workstation,
    };
    site.handle(Event::Heard { from: link(3, 2), frame: AgentFrame::Attempt(refused) });
    assert_eq!(site.core.job_row(job).unwrap().life, 2);
}

#[test]
fn a_rank_that_left_without_its_process_returns_its_tasks() {
    use gleaner_program_core::address::{Request, Task};
    use gleaner_program_core::wire::{Answer, Ask, FromRank};
    let (mut site, _, offered) = Site::with_ranks(2);
    let ask = |request, ask| FromRank::Ask { request: Request(request), ask };
    site.say(offered[1], &ask(1, Ask::PutTask { task: vec![7] }));
    site.say(offered[0], &ask(1, Ask::NextTask));
    site.say(offered[1], &ask(2, Ask::NextTask));
    let (id, _, old) = offered[0];
    site.wants_away(id, old, Keep::Nothing);
    assert_eq!(site.begun(), None, "it may have to wait until the other has ended");
    let answer = Answer::Task { task: Task(0), bytes: vec![7] };
    let said = ToRank::Answered { request: Request(2), answer };
    assert!(site.told().contains(&(offered[1].0, said)), "{:?}", site.told());
}

#[test]
fn an_owner_who_leaves_after_a_refused_move_keeps_the_guest() {
    let (mut site, job, old) = Site::with_guest(1);
    let begun = site.move_away(1, old);
    site.hear(begun.to, AgentFrame::Presence(presence(true, 1)));
    site.is_refused(begun);
    assert_eq!(site.begun(), None, "nobody else is there");
    // The agent knows of a move under way, and waits for a frame.
    site.hear(1, AgentFrame::Presence(presence(false, 1)));
    site.check_sent(1, &CoordinatorFrame::Stay { fence: old });
    site.hear_of(1, AttemptEvent::Resumed { fence: old });
    site.check_row(job, 1, SubprogramState::Running, 0);
    assert_eq!(site.core.moves.len(), 0);
}

#[test]
fn the_only_suitable_workstation_is_tried_again_and_not_for_ever() {
    let (mut site, _, old) = Site::with_guest(1);
    site.connect_machine(3, "6.1.0");
    let mut begun = site.move_away(1, old);
    for _ in 0..2 {
        site.is_refused(begun);
        assert_eq!(site.begun(), None, "it rests");
        begun = (0..40)
            .find_map(|_| {
                site.pass(Duration::from_millis(500));
                site.begun()
            })
            .expect("once more");
        assert_eq!(begun.to, 2);
        for id in 1..=3 {
            site.heartbeat(id);
        }
    }
    site.is_refused(begun);
    site.check_sent(1, &CoordinatorFrame::Stay { fence: old });
}

/// As those of a source that means harm.
#[test]
fn images_that_are_refused_rest_their_target_for_a_moment_however_many_come() {
    let (mut site, _, old) = Site::with_guest(1);
    let mut begun = site.move_away(1, old);
    for refused in 1..=9 {
        site.is_refused(begun);
        if refused % 3 == 0 {
            site.check_sent(1, &CoordinatorFrame::Stay { fence: old });
            site.wants_away(1, old, WANTS);
        }
        begun = (0..4)
            .find_map(|_| {
                for id in [1, 2] {
                    site.heartbeat(id);
                }
                site.pass(Duration::from_millis(500));
                site.begun()
            })
            .expect("it is tried again within two seconds");
    }
}

#[test]
fn a_workstation_without_room_keeps_nothing_from_being_tried_again() {
    let (mut site, _, old) = Site::with_guest(2);
    site.turns_busy(3);
    let begun = site.move_away(1, old);
    assert_eq!(begun.to, 2);
    site.is_refused(begun);
    let again = (0..40).find_map(|_| {
        site.pass(Duration::from_millis(500));
        let begun = site.begun();
        for id in 1..=3 {
            site.heartbeat(id);
        }
        begun
    });
    assert_eq!(again.expect("once more").to, 2);
}

#[test]
fn a_move_that_a_new_life_of_the_coordinator_knows_nothing_of_begins_anew() {
    let (mut site, job, old) = Site::with_guest(2);
    let begun = site.move_away(1, old);
    site.is_refused(begun);
    let next = site.begun().unwrap();
    site.hear(next.to, AgentFrame::Presence(presence(true, 1)));
    site.is_refused(next);
    site.restart(job);
    let facts = |kernel| {
        let fingerprint = Some(Box::new(machine(kernel)));
        Facts { cores: 1, places: 1, speed: 100.0, fingerprint, ..Facts::default() }
    };
    let held = vec![(old, GuestState::Leaving)];
    site.hello(link(1, 2), Incarnation(1), facts("6.12.1"), presence(true, 1), held);
    let wants = AttemptEvent::WantsAway { fence: old, keep: WANTS, image_bytes: 5 };
    site.handle(Event::Heard { from: link(1, 2), frame: AgentFrame::Attempt(wants) });
    site.hello(link(2, 2), Incarnation(1), facts("6.12.1"), presence(false, 1), vec![]);
    assert_eq!(site.begun().unwrap().old, old);
}

#[test]
fn a_rank_without_a_process_goes_on_where_its_owner_has_left() {
    let (mut site, job, offered) = Site::with_ranks(1);
    let (id, _, old) = offered[0];
    site.wants_away(id, old, Keep::Nothing);
    assert_eq!(site.begun(), None, "there is no other");
    site.hear(id, AgentFrame::Presence(presence(false, 1)));
    site.check_sent(id, &CoordinatorFrame::Stay { fence: old });
    site.hear_of(id, AttemptEvent::Stays { fence: old, keep: WANTS });
    site.check_row(job, id, SubprogramState::Running, 0);
    assert_eq!(site.core.job_row(job).unwrap().life, 1, "the others go on as well");
}

/// An admin empties host1: its owner is away all the while.
fn drain(site: &mut Site, drained: bool) {
    let workstation = WorkstationId(1);
    site.handle(Event::Drained { workstation, drained, now: true });
}

/// As `with_guest`, of a job that migrates.
fn migrating(others: u32) -> (Site, JobId, Fence) {
    let mut site = Site::new(Config::default());
    site.connect_machine(1, "6.12.1");
    let mut spec = JobSpec::new(vec!["x".into()], IndexRange::count_of(1).unwrap());
    spec.on_busy = OnBusy::at_once(Reaction::Migrate);
    let (job, offered) = site.submit_spec(spec);
    let (_, _, fence) = only(&offered);
    site.started(1, fence);
    for id in 2..2 + others {
        site.connect_machine(id, "6.12.1");
    }
    (site, job, fence)
}

#[test]
fn what_can_leave_a_drained_workstation_does_so_at_once() {
    let (mut site, job, fence) = migrating(1);
    drain(&mut site, true);
    let ordered = site.sent().any(|(to, frame)| {
        matches!(frame, CoordinatorFrame::Depart { fence: old, to: at, .. }
            if to == 1 && *old == fence && at.ordered)
    });
    assert!(ordered, "{:#?}", site.last.effects);
    let moved = site.begun().unwrap();
    assert_eq!(moved.to, 2);
    site.arrives(moved);
    site.check_row(job, 2, SubprogramState::Running, 1);
    let why = site.core.why_workstation(site.now, WorkstationId(1)).unwrap();
    assert_eq!(why[0], "drained: an admin wants nothing placed here");
}

#[test]
fn what_is_to_leave_runs_on_until_there_is_a_place_and_what_cannot_leave_finishes() {
    let (mut site, _, fence) = migrating(0);
    drain(&mut site, true);
    assert_eq!(site.begun(), None);
    assert!(site.sent().next().is_none(), "it is not stopped: {:?}", site.last.effects);
    let why = site.core.why_subprogram(site.now, subprogram(JobId(1), 0)).unwrap();
    assert_eq!(why[1], "it waits for a workstation to move to: none is free");
    site.connect_machine(2, "6.12.1");
    assert_eq!(site.begun().map(|it| (it.old, it.to)), Some((fence, 2)));
    // A job that retreats has nothing to take along.
    let (mut site, _, fence) = Site::with_guest(1);
    drain(&mut site, true);
    assert_eq!(site.begun(), None);
    let why = site.core.why_workstation(site.now, WorkstationId(1)).unwrap();
    assert_eq!(why[0], "drained: nothing new is placed, guests that finish or leave: 1");
    site.turns_busy(1);
    let why = site.core.why_workstation(site.now, WorkstationId(1)).unwrap();
    assert_eq!(why[0], "busy: pts/3, 2.0 s ago; drained");
    site.finished(1, fence, Outcome::Succeeded);
    assert_eq!(site.accepted().len(), 1);
}

#[test]
fn a_workstation_that_is_wanted_again_keeps_what_has_not_left() {
    let (mut site, ..) = migrating(0);
    drain(&mut site, true);
    drain(&mut site, false);
    site.connect_machine(2, "6.12.1");
    assert_eq!(site.begun(), None);
}

#[test]
fn of_guests_that_are_to_leave_the_one_that_has_waited_longest_goes_first() {
    let (mut site, _, first) = Site::with_guest(0);
    site.connect_machine(2, "6.12.1");
    let (_, offered) = site.submit(1, 0);
    let (id, _, second) = only(&offered);
    site.started(id, second);
    assert!(first < second, "the second was placed later");
    site.wants_away(2, second, WANTS);
    site.wants_away(1, first, WANTS);
    for (workstation, goes) in [(3, second), (4, first)] {
        site.connect_machine(workstation, "6.12.1");
        let begun = site.begun().expect("something is free");
        assert_eq!((begun.old, begun.to), (goes, workstation));
    }
}
