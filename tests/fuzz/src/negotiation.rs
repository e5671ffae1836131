//! What a rank and its agent may say of what the program has.

use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Presence};
use gleaner_coordinator_core::{Config, Core, Effect, Event, Link, RequestId, Restored};
use gleaner_program_core::address::{Negotiation, Rank};
use gleaner_program_core::negotiation::talk::{Choice, Limits, Talk};
use gleaner_program_core::negotiation::{
    Change, Obligation, Outcome, Party, Said, Statement, Template, Why,
};
use gleaner_program_core::wire::FromRank;
use serde::{Deserialize, Serialize};

const WITHIN: Duration = Duration::from_secs(10);
const LIMITS: Limits =
    Limits { within_max: WITHIN, repeat: Duration::from_secs(2), repeats_max: 3, rounds_max: 4 };

/// What happens to one side.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    Hears(Said),
    Accepts,
    Rejects,
    Offers(Template),
    Waits(u8),
}

/// One side of a negotiation, to which the other says anything. What it has
/// come to, it stays.
///
/// # Panics
/// It ends twice, or a mandatory shrink is declined.
pub fn talks(bytes: &[u8]) {
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let role = if kind & 1 == 0 { Party::Coordinator } else { Party::Job };
    let obligation = if kind & 2 == 0 { Obligation::Voluntary } else { Obligation::Mandatory };
    let template = Template::processors(WITHIN, Change::Shrink { by: 3 }, obligation);
    let must = template.is_mandatory() && role == Party::Coordinator;
    let mut now = Moment(1);
    let number = (role, Negotiation(1));
    let (mut talk, _) = Talk::open(now, number, LIMITS, (template, kind & 4 != 0));
    let mut ended: Option<Outcome> = None;
    while let Ok((step, left)) = postcard::take_from_bytes::<Step>(rest) {
        rest = left;
        let _ = match step {
            Step::Hears(said) => talk.hear(now, &said),
            Step::Accepts => talk.say(now, Choice::Accept(None)),
            Step::Rejects => talk.say(now, Choice::Reject(Why::Unwanted)),
            Step::Offers(template) => talk.say(now, Choice::Counter(template)),
            Step::Waits(seconds) => {
                now = now + Duration::from_secs(u64::from(seconds));
                talk.wake(now)
            }
        };
        if let Some(before) = &ended {
            assert_eq!(talk.outcome(), Some(before), "it ended twice");
        }
        ended = talk.outcome().cloned();
        let is_declined = matches!(ended, Some(Outcome::Declined(_)));
        assert!(!(must && is_declined), "it had to be");
    }
}

const AT: Link = Link { workstation: WorkstationId(1), serial: 1 };

/// A workstation whose rank says anything of its program to a coordinator.
///
/// # Panics
/// It takes down the core, or the core's own promises with it.
pub fn ranks(bytes: &[u8]) {
    let (mut now, wall) = (Moment(1_000_000_000), WallTime(0));
    let mut core = Core::restore(now, wall, Config::default(), Restored::default());
    let Some(fence) = placed(&mut core, now, wall) else {
        unreachable!("an idle workstation got no rank")
    };
    let mut rest = bytes;
    while let Ok((said, left)) = postcard::take_from_bytes::<FromRank>(rest) {
        rest = left;
        let written = postcard::to_stdvec(&said).unwrap_or_default();
        let frame = AgentFrame::FromRank { fence, life: Life(1), bytes: written };
        let _ = core.handle(now, wall, Event::Heard { from: AT, frame });
        now = now + Duration::from_secs(1);
        if core.deadline().is_some_and(|due| due <= now) {
            let _ = core.wake(now, wall);
        }
    }
}

/// The only rank of a program that may have many more, running.
fn placed(core: &mut Core, now: Moment, wall: WallTime) -> Option<Fence> {
    let workstation = AT.workstation;
    let _ = core.handle(now, wall, Event::Enrolled { workstation, name: "hostile".to_owned() });
    let facts = Facts { cores: 8, places: 8, ..Facts::default() };
    let presence = Presence {
        busy: false,
        reason: String::new(),
        lasted: Duration::ZERO,
        slots: 8,
        load: LoadAverages::default(),
        users: 0,
    };
    let (incarnation, boot, held) = (Incarnation(1), BootId::default(), vec![]);
    let hello = AgentFrame::Hello {
        incarnation,
        boot,
        facts: Box::new(facts),
        presence,
        held,
        seen: gleaner_common::id::Fence::default(),
    };
    let _ = core.handle(now, wall, Event::Heard { from: AT, frame: hello });
    let indexes = IndexRange { first: 0, last: 0, step: 1 };
    let mut spec = JobSpec::new(vec!["work".to_owned()], indexes);
    let program = ProgramSpec { increases: true, ranks_max: 64, ..ProgramSpec::default() };
    spec.program = Some(program);
    let (request, user) = (RequestId(1), "ada".to_owned());
    let step = core.handle(now, wall, Event::Submitted { request, user, spec: Box::new(spec) });
    let fence = step.effects.iter().find_map(|effect| {
        let Effect::Send { frame: CoordinatorFrame::Offer(offer), .. } = effect else {
            return None;
        };
        Some(offer.fence)
    })?;
    let started = AttemptEvent::Started { fence, waited: Duration::ZERO };
    let frame = AgentFrame::Attempt(started);
    let _ = core.handle(now, wall, Event::Heard { from: AT, frame });
    Some(fence)
}

pub(crate) mod seeds {
    use gleaner_program_core::address::Request;
    use gleaner_program_core::negotiation::Status;
    use gleaner_program_core::wire::Ask;
    use serde::Serialize;

    use super::{
        Change, FromRank, Negotiation, Obligation, Party, Rank, Said, Statement, Step, Template,
        WITHIN,
    };

    fn bytes(steps: &[impl Serialize]) -> Vec<u8> {
        let one = |step| postcard::to_stdvec(step).unwrap_or_else(|error| panic!("{error}"));
        steps.iter().flat_map(one).collect()
    }

    fn said(opener: Party, round: u32, statement: Statement) -> Said {
        Said { opener, negotiation: Negotiation(1), round, statement }
    }

    pub(crate) fn talks() -> Vec<Vec<u8>> {
        let shrink = Template::processors(WITHIN, Change::Shrink { by: 3 }, Obligation::Mandatory);
        let agreed = shrink.clone().all(Status::Accepted);
        let accept = Statement::Accept { agreed, first: None };
        let steps = [
            Step::Waits(1),
            Step::Hears(said(Party::Coordinator, 1, Statement::CounterOffer(shrink.clone()))),
            Step::Offers(shrink),
            Step::Hears(said(Party::Coordinator, 3, accept)),
            Step::Accepts,
            Step::Hears(said(Party::Coordinator, 5, Statement::Noted)),
            Step::Rejects,
        ];
        (0..8).map(|kind| [&[kind], bytes(&steps).as_slice()].concat()).collect()
    }

    pub(crate) fn ranks() -> Vec<Vec<u8>> {
        let grow = Template::processors(WITHIN, Change::Grow { by: 3 }, Obligation::Voluntary);
        let first = Some(Rank(1));
        let accept = Statement::Accept { agreed: grow.clone().all(Status::Accepted), first };
        let ask = |number, ask| FromRank::Ask { request: Request(number), ask };
        let steps = [
            ask(1, Ask::Negotiates),
            ask(2, Ask::Negotiate(said(Party::Job, 0, Statement::Offer(grow)))),
            ask(3, Ask::Negotiate(said(Party::Job, 2, accept.clone()))),
            FromRank::Negotiate(said(Party::Coordinator, 1, accept)),
            ask(4, Ask::Spawn { count: 2 }),
        ];
        vec![bytes(&steps)]
    }
}
