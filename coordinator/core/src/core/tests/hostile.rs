//! Nothing an agent says makes the core panic or lose count.

use proptest::prelude::*;

use gleaner_common::id::ContentHash;
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_common::reaction::Keep;
use gleaner_program_core::address::{Negotiation, Rank, Request, Snapshot, Task};
use gleaner_program_core::facts::{End, RankFacts, Stance};
use gleaner_program_core::negotiation::{
    Change, Obligation, Party, Said, Statement, Template, Why,
};
use gleaner_program_core::wire::{Ask, FromRank, Wait};

use super::*;
use crate::job::Whereabouts;
use crate::placement::Policy;

#[derive(Clone, Debug)]
enum Turn {
    Hello { id: u32, serial: u64, incarnation: u64, held: Vec<u32>, slots: u16, places: u16 },
    Disconnect { id: u32, serial: u64 },
    Beat { id: u32, serial: u64, slots: u16 },
    Presence { id: u32, serial: u64, busy: bool, slots: u16 },
    Attempt { id: u32, serial: u64, fence: u32, kind: u8 },
    Leave { id: u32, serial: u64 },
    FromRank { id: u32, serial: u64, fence: u32, life: u32, said: FromRank },
    Junk { id: u32, serial: u64, fence: u32, bytes: Vec<u8> },
    Submit { count: u32, retries: u32, replicas: u8 },
    SubmitProgram { ranks: u32, more: u32, every: bool },
    Cancel(u32),
    Pass(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    let id = 1u32..5;
    let serial = 1u64..4;
    prop_oneof![
        (
            id.clone(),
            serial.clone(),
            1u64..3,
            proptest::collection::vec(0u32..30, 0..5),
            0u16..4,
            0u16..4
        )
            .prop_map(|(id, serial, incarnation, held, slots, places)| Turn::Hello {
                id,
                serial,
                incarnation,
                held,
                slots,
                places
            }),
        (id.clone(), serial.clone()).prop_map(|(id, serial)| Turn::Disconnect { id, serial }),
        (id.clone(), serial.clone(), 0u16..4).prop_map(|(id, serial, slots)| Turn::Beat {
            id,
            serial,
            slots
        }),
        (id.clone(), serial.clone(), any::<bool>(), 0u16..4)
            .prop_map(|(id, serial, busy, slots)| Turn::Presence { id, serial, busy, slots }),
        (id.clone(), serial.clone(), 0u32..20, 0u8..13)
            .prop_map(|(id, serial, fence, kind)| Turn::Attempt { id, serial, fence, kind }),
        (id.clone(), serial.clone(), 0u32..20, 1u32..3, said()).prop_map(
            |(id, serial, fence, life, said)| Turn::FromRank { id, serial, fence, life, said }
        ),
        (id.clone(), serial.clone(), 0u32..20, proptest::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(id, serial, fence, bytes)| Turn::Junk { id, serial, fence, bytes }),
        (1u32..4, 0u32..3, any::<bool>()).prop_map(|(ranks, more, every)| Turn::SubmitProgram {
            ranks,
            more,
            every
        }),
        (id, serial).prop_map(|(id, serial)| Turn::Leave { id, serial }),
        (1u32..9, 0u32..3, 1u8..4).prop_map(|(count, retries, replicas)| Turn::Submit {
            count,
            retries,
            replicas
        }),
        (1u32..4).prop_map(Turn::Cancel),
        (0u64..15_000).prop_map(Turn::Pass),
    ]
}

fn said() -> impl Strategy<Value = FromRank> {
    let task = (0u64..3).prop_map(Task);
    let ask = prop_oneof![
        (0u32..5).prop_map(|count| Ask::Spawn { count }),
        Just(Ask::Leave),
        Just(Ask::BeginsAnew),
        Just(Ask::Processors),
        Just(Ask::NextTask),
        Just(Ask::NextResult),
        Just(Ask::Negotiates),
        negotiation().prop_map(Ask::Negotiate),
        Just(Ask::CloseBag),
        Just(Ask::PutTask { task: vec![1] }),
        task.clone().prop_map(|task| Ask::ReturnTask { task }),
        task.prop_map(|task| Ask::Done { task, result: vec![2] }),
    ];
    let snapshot = (0u32..4).prop_map(Snapshot);
    let facts = (0u32..4, any::<bool>()).prop_map(|(rank, waits)| RankFacts {
        rank: Rank(rank),
        stance: if waits { Stance::Waits(Wait::Room { to: Rank(0) }) } else { Stance::Active },
        sent: vec![(Rank(9), u64::MAX)],
        received: vec![],
    });
    prop_oneof![
        (0u64..9, ask).prop_map(|(n, ask)| FromRank::Ask { request: Request(n), ask }),
        (proptest::option::of(0u64..6), facts)
            .prop_map(|(asked, facts)| FromRank::Facts { asked, facts }),
        snapshot.clone().prop_map(|snapshot| FromRank::Ended {
            end: End::ExitCode(0),
            snapshot,
            sent: vec![(Rank(77), 3)],
        }),
        Just(FromRank::Drained),
        negotiation().prop_map(FromRank::Negotiate),
        (0u32..9).prop_map(|rank| FromRank::WhereIs(Rank(rank))),
        snapshot.clone().prop_map(FromRank::NoCut),
        snapshot.prop_map(|snapshot| FromRank::Cut {
            snapshot,
            part: ContentHash([7; 32]),
            size_bytes: u64::MAX,
        }),
    ]
}

/// What an agent could say that lets its rank say anything.
fn negotiation() -> impl Strategy<Value = Said> {
    let by = prop_oneof![0u32..6, Just(u32::MAX)];
    let change = (any::<bool>(), by)
        .prop_map(|(grows, by)| if grows { Change::Grow { by } } else { Change::Shrink { by } });
    let obligation = prop_oneof![Just(Obligation::Voluntary), Just(Obligation::Mandatory)];
    let within = prop_oneof![Just(Duration::MAX), Just(Duration::ZERO), Just(s(1))];
    let template =
        (within, change, obligation, 0usize..3).prop_map(|(within, change, obligation, times)| {
            let one = Template::processors(within, change, obligation);
            Template { items: one.items.repeat(times), ..one }
        });
    let statement = (template, 0u8..7).prop_map(|(template, kind)| match kind {
        0 => Statement::Offer(template),
        1 => Statement::CounterOffer(template),
        2 => Statement::FinalOffer(template),
        3 => Statement::Accept { agreed: template, first: Some(Rank(u32::MAX)) },
        4 => Statement::Enforce(template),
        5 => Statement::Reject(Why::TooFew { available: u32::MAX }),
        _ => Statement::Noted,
    });
    let round = prop_oneof![0u32..4, Just(u32::MAX)];
    (any::<bool>(), 0u64..4, round, statement).prop_map(|(is_job, number, round, statement)| {
        let opener = if is_job { Party::Job } else { Party::Coordinator };
        Said { opener, negotiation: Negotiation(number), round, statement }
    })
}

fn event(kind: u8, fence: Fence) -> AttemptEvent {
    let reason = "x".repeat(usize::from(kind) * 100);
    match kind {
        0 => AttemptEvent::Started { fence, waited: Duration::MAX },
        1 => AttemptEvent::Suspended { fence },
        2 => AttemptEvent::Demoted { fence },
        3 => AttemptEvent::Resumed { fence },
        4 => AttemptEvent::Retreated { fence, reason, suspensions: u32::MAX },
        5 => AttemptEvent::Refused { fence, reason, blame: Blame::Workstation },
        6 => {
            let mut end = finished(fence, Outcome::Succeeded, Duration::MAX);
            end.stdout = Printed::Inline(vec![u8::try_from(fence.number % 3).unwrap()]);
            AttemptEvent::Finished(end)
        }
        7 => AttemptEvent::WantsAway { fence, keep: Keep::Nothing, image_bytes: u64::MAX },
        8 => AttemptEvent::WantsAway { fence, keep: Keep::State, image_bytes: 0 },
        9 => AttemptEvent::Arrived { fence, bytes: u64::MAX, frozen: Duration::MAX },
        10 => AttemptEvent::CannotLeave { fence, keep: Keep::Nothing, reason },
        11 => AttemptEvent::Stays { fence, keep: Keep::Nothing },
        12 => AttemptEvent::Lost { fence, reason, suspensions: u32::MAX },
        _ => AttemptEvent::Finished(finished(fence, Outcome::ExitCode(1), Duration::ZERO)),
    }
}

fn play(site: &mut Site, turn: Turn) {
    let heard = |id, serial, frame| Event::Heard { from: link(id, serial), frame };
    match turn {
        Turn::Hello { id, serial, incarnation, held, slots, places } => {
            let held = held.into_iter().map(|fence| (Fence::of(fence), GuestState::Suspended));
            let facts = Facts { cores: 2, places, speed: f32::NAN, ..Facts::default() };
            let incarnation = Incarnation(incarnation);
            let presence = presence(false, slots);
            site.hello(link(id, serial), incarnation, facts, presence, held.collect());
        }
        Turn::Disconnect { id, serial } => {
            site.handle(Event::Disconnected(link(id, serial)));
        }
        Turn::Beat { id, serial, slots } => {
            let load = LoadAverages { one: f32::INFINITY, ..LoadAverages::default() };
            let frame = AgentFrame::Heartbeat { sequence: u64::MAX, slots, load };
            site.handle(heard(id, serial, frame));
        }
        Turn::Presence { id, serial, busy, slots } => {
            let frame = AgentFrame::Presence(presence(busy, slots));
            site.handle(heard(id, serial, frame));
        }
        Turn::Attempt { id, serial, fence, kind } => {
            let frame = AgentFrame::Attempt(event(kind, Fence::of(fence)));
            site.handle(heard(id, serial, frame));
        }
        Turn::FromRank { id, serial, fence, life, said } => {
            let bytes = postcard::to_stdvec(&said).unwrap();
            let (fence, life) = (Fence::of(fence), Life(life));
            site.handle(heard(id, serial, AgentFrame::FromRank { fence, life, bytes }));
        }
        Turn::Junk { id, serial, fence, bytes } => {
            let (fence, life) = (Fence::of(fence), Life(1));
            site.handle(heard(id, serial, AgentFrame::FromRank { fence, life, bytes }));
        }
        Turn::SubmitProgram { ranks, more, every } => {
            let spec = ProgramSpec {
                ranks_max: ranks + more,
                checkpoint_every: every.then_some(s(2)),
                increases: more == 2,
                ..ProgramSpec::default()
            };
            site.submit_program(ranks, spec);
        }
        Turn::Leave { id, serial } => {
            site.handle(heard(id, serial, AgentFrame::Leaving { reason: "é".repeat(300) }));
        }
        Turn::Submit { count, retries, replicas } => {
            let indexes = IndexRange::count_of(count).unwrap();
            let spec = JobSpec::new(vec!["/bin/true".into()], indexes);
            site.submit_spec(JobSpec { retries, replicas, ..spec });
        }
        Turn::Cancel(job) => {
            site.cancel(JobId(job));
        }
        Turn::Pass(ms) => {
            site.pass(Duration::from_millis(ms));
        }
    }
}

/// Every subprogram is in one place, and every count says so.
fn check_counts(core: &Core) {
    let mut queued = 0;
    for (id, job) in &core.jobs {
        let summary = job.summary();
        let mut seen = [0u32; 3];
        for position in 0..job.total() {
            seen[match job.whereabouts(position) {
                Whereabouts::Queued { .. } => 0,
                Whereabouts::Placed(fence) => {
                    let attempt = &core.attempts[&fence];
                    let of = job.first_position(attempt.position);
                    assert_eq!((attempt.job, of), (*id, position));
                    1
                }
                Whereabouts::Ended => 2,
            }] += 1;
        }
        let ended = summary.counts.succeeded + summary.counts.failed + summary.counts.cancelled;
        assert_eq!(seen, [summary.queued, summary.running + summary.suspended, ended]);
        if job.replicas().is_none() {
            assert_eq!(seen[0], job.queued());
        }
        assert_eq!(core.queues.jobs().any(|queued| queued == *id), job.queued() > 0);
        queued += u64::from(job.queued());
        check_replicas(job);
        for (position, history) in job.ended_ranks() {
            assert_eq!(core.ended_ranks.get(&history.last.fence), Some(&(*id, *position)));
        }
    }
    let over = core.jobs.values().map(|job| job.ended_ranks().len()).sum::<usize>();
    assert_eq!(core.ended_ranks.len(), over);
    let with_places = core.attempts.values().filter(|attempt| !attempt.rides);
    assert_eq!(core.shares.running("ann") as usize, with_places.count());
    for (old, moving) in &core.moves {
        assert!(core.attempts[old].coming.is_none());
        assert_eq!(core.residence.waits(*old), moving.new.is_none());
        if let Some(new) = moving.new {
            assert_eq!(core.attempts[&new].coming.map(|coming| coming.old), Some(*old));
        }
    }
    assert_eq!(core.queued(), queued);
    assert_eq!(core.timers.len(), core.timer_of.len());
    assert!(core.timer_of.keys().all(|id| core.jobs.contains_key(id)));
    let undelivered = core.pool.ids().flat_map(|id| &core.pool.get(id).unwrap().undelivered);
    assert!(undelivered.into_iter().all(|(id, _)| core.jobs.contains_key(id)));
    let mut placed = 0;
    for id in core.pool.ids() {
        for fence in core.attempts_at(id) {
            assert_eq!(core.attempts[&fence].workstation, id);
            placed += 1;
        }
    }
    assert_eq!(placed, core.attempts.len());
}

/// What is under way of a replicated subprogram is on different workstations.
fn check_replicas(job: &crate::job::Job) {
    let Some(replicas) = job.replicas() else { return };
    for subprogram in replicas.begun() {
        let mut trails: Vec<_> = vec![];
        for position in replicas.of(subprogram) {
            let mut trail = replicas.trail(position).to_vec();
            trail.sort_unstable();
            trail.dedup();
            trails.extend(trail);
        }
        let all = trails.len();
        trails.sort_unstable();
        trails.dedup();
        assert_eq!(trails.len(), all, "one workstation has a hand in two replicas: {job:?}");
    }
}

proptest! {
    #[test]
    fn no_words_of_an_agent_make_it_panic_or_lose_count(
        policy in 0..Policy::ALL.len(),
        turns in proptest::collection::vec(turn(), 1..80),
    ) {
        let policy = Policy::ALL[policy];
        let mut site = Site::new(Config { policy, ..Config::default() });
        // One of them is never heard, so nobody knows what is too large.
        for id in [1, 2, 3, 99] {
            site.enrol(id);
        }
        for turn in turns {
            play(&mut site, turn);
            check_counts(&site.core);
            for job in site.core.jobs().collect::<Vec<_>>() {
                prop_assert!(!site.core.why_job(site.now, job).unwrap().is_empty());
            }
            for id in site.core.workstations().collect::<Vec<_>>() {
                prop_assert!(!site.core.why_workstation(site.now, id).unwrap().is_empty());
            }
        }
    }
}

#[test]
fn who_is_not_enrolled_or_says_hello_twice_is_refused() {
    let mut site = Site::with_idle(1);
    site.connect(9, 1, 1);
    assert!(matches!(&site.last.effects[..], [Effect::Refuse { link: l, .. }] if *l == link(9, 1)));
    site.connect(1, 1, 1);
    assert!(matches!(&site.last.effects[..], [Effect::Refuse { link: l, .. }] if *l == link(1, 1)));
}

#[test]
fn a_job_that_is_wrong_is_answered_with_what_is_wrong() {
    let mut site = Site::with_idle(1);
    let spec = Box::new(JobSpec::new(vec![], IndexRange::count_of(1).unwrap()));
    site.handle(Event::Submitted { request: RequestId(3), user: "ann".into(), spec });
    assert_eq!(site.answer(), Some(Answer::No("the job has no command".into())));
    assert_eq!(site.last.changes, []);
}

/// All that an agent can say of an attempt.
const KINDS: std::ops::RangeInclusive<u8> = 0..=12;

impl Site {
    /// Nothing comes of it, and nobody else hears of it.
    #[track_caller]
    fn says_in_vain(&mut self, id: u32, fence: Fence) {
        for kind in KINDS {
            self.hear_of(id, event(kind, fence));
            assert_eq!(self.last.changes, [], "{id} says {kind} of {fence}");
            let answers = self.last.effects.iter().all(|effect| {
                let Effect::Send { to, frame } = effect else { return false };
                let is_answer = matches!(
                    frame,
                    CoordinatorFrame::Acknowledge { .. } | CoordinatorFrame::Cancel { .. }
                );
                to.workstation.0 == id && is_answer
            });
            assert!(answers, "{id} says {kind} of {fence}: {:?}", self.last.effects);
        }
    }
}

#[test]
fn results_are_taken_only_from_the_agent_that_the_fence_was_given_to() {
    let (mut site, job, old) = Site::with_guest(2);
    site.says_in_vain(3, old);
    let begun = site.move_away(1, old);
    let target = begun.to;
    let stranger = 5 - target;
    for fence in [old, begun.new] {
        site.says_in_vain(stranger, fence);
    }
    // The source does not speak for what is on its way, nor the target for what it
    // was.
    site.says_in_vain(1, begun.new);
    site.says_in_vain(target, old);
    site.arrives(begun);
    for (id, fence) in [(1, old), (1, begun.new), (target, old), (stranger, begun.new)] {
        site.says_in_vain(id, fence);
    }
    site.check_row(job, target, gleaner_common::report::SubprogramState::Running, 1);
    // Nor does it hold what it says it holds.
    site.reconnect(stranger, 2, &[old, begun.new]);
    let keeps = site.sent().find_map(|(_, frame)| {
        let CoordinatorFrame::Welcome { keep, .. } = frame else { return None };
        Some(keep.clone())
    });
    assert_eq!(keeps, Some(vec![]));
    site.finished(target, begun.new, Outcome::Succeeded);
    assert_eq!(site.accepted(), [subprogram(job, 0)]);
}

proptest! {
    #[test]
    fn nothing_is_taken_in_the_name_of_a_rank_from_another_agent(said in said(), rank in 0..2usize) {
        let mut site = Site::with_idle(3);
        let (_, offered) = site.submit_program(2, ProgramSpec::default());
        for (id, _, fence) in &offered {
            site.started(*id, *fence);
        }
        let stranger = (1..=3).find(|id| offered.iter().all(|(at, ..)| at != id)).unwrap();
        let other = offered[1 - rank].0;
        let bytes = postcard::to_stdvec(&said).unwrap();
        for id in [stranger, other] {
            let (fence, life, bytes) = (offered[rank].2, Life(1), bytes.clone());
            site.hear(id, AgentFrame::FromRank { fence, life, bytes });
            prop_assert_eq!(&site.last.changes, &vec![]);
            prop_assert_eq!(&site.last.effects, &vec![]);
        }
    }
}
