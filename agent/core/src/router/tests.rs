use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use gleaner_common::frame::FrameError;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::address::{Communicator, Envelope, Request, Snapshot, Tag};
use gleaner_program_core::endpoint::{Config, PipeRest};
use gleaner_program_core::wire::{self, Ask, ProgramFrame, VERSION};

use super::*;

const JOB: JobId = JobId(1);
const LIFE: Life = Life(1);
const OWN: WorkstationId = WorkstationId(1);
const OTHER: WorkstationId = WorkstationId(2);
const HERE: Fence = Fence::of(1);
const NOW: Moment = Moment(1_000_000_000);

/// What a program has written, and what its agent has written back.
#[derive(Clone, Debug, Default)]
struct Pipe(Rc<RefCell<(VecDeque<ProgramFrame>, Vec<wire::AgentFrame>)>>);

impl Pipe {
    fn says(&self, frame: ProgramFrame) {
        self.0.borrow_mut().0.push_back(frame);
    }
}

#[derive(Debug)]
struct InMemory {
    pipe: Pipe,
    taken: VecDeque<ProgramFrame>,
}

impl Pipes for InMemory {
    type Error = Infallible;

    fn fill(&mut self) -> Result<PipeRead, Infallible> {
        let mut frames = std::mem::take(&mut self.pipe.0.borrow_mut().0);
        let nothing = frames.is_empty();
        self.taken.append(&mut frames);
        Ok(if nothing { PipeRead::Nothing } else { PipeRead::Some })
    }

    fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        Ok(self.taken.pop_front())
    }

    fn cut_off(&self) -> Option<FrameError> {
        None
    }

    fn push(&mut self, frame: &wire::AgentFrame) {
        self.pipe.0.borrow_mut().1.push(frame.clone());
    }

    fn flush(&mut self) {}

    fn empty(&mut self) -> Result<PipeRest, Infallible> {
        Ok(PipeRest::default())
    }

    fn refill(&mut self, _rest: PipeRest) {}
}

#[derive(Clone, Debug)]
struct NoImages;

impl Image for NoImages {
    fn bytes(&self) -> u64 {
        0
    }
}

/// A direct way: whoever looks sees what went over it.
#[derive(Clone, Debug, Default)]
struct Direct(Rc<RefCell<Vec<Between>>>);

impl Way for Direct {
    fn push(&mut self, frame: &Between) -> Result<(), FrameError> {
        self.0.borrow_mut().push(frame.clone());
        Ok(())
    }

    fn flush(&mut self) -> bool {
        true
    }
}

/// Keeps all that the router asks for.
#[derive(Debug, Default)]
struct Desk {
    sent: Vec<AgentFrame>,
    wanted: Vec<WorkstationId>,
    said: Vec<RouterEvent<Desk>>,
}

impl Shell for Desk {
    type Ends = Pipe;
    type Pipes = InMemory;
    type Slabs = ();
    type Image = NoImages;
    type Way = Direct;

    fn plug(&mut self, _: Fence, pipe: Pipe, (): &()) -> Result<InMemory, Infallible> {
        Ok(InMemory { pipe, taken: VecDeque::new() })
    }

    fn send(&mut self, _session: u64, frame: AgentFrame) {
        self.sent.push(frame);
    }

    fn have(&mut self, request: IoRequest<NoImages>) -> bool {
        if let IoRequest::PeerStream(wanted) = request {
            self.wanted.push(wanted.at);
        }
        true
    }

    fn say(&mut self, event: RouterEvent<Self>) {
        self.said.push(event);
    }

    fn note(&mut self, note: Note) {
        panic!("{note:?}");
    }
}

/// Rank 0 is here, and rank 1 at another workstation.
struct World {
    router: Router<Desk>,
    pipe: Pipe,
    now: Moment,
}

impl World {
    fn new() -> Self {
        let (router, pipe) = (Router::new(Desk::default()), Pipe::default());
        let mut world = Self { router, pipe: pipe.clone(), now: NOW };
        let config = Config {
            rank: Rank(0),
            ranks: 2,
            first: Rank(0),
            members: 2,
            parent: None,
            ranks_max: 2,
            log_bytes_max: 0,
            snapshot: Snapshot(0),
            floor: Fence::of(0),
        };
        let begin = Begin { fence: HERE, job: JOB, life: LIFE, config, cut: None, ends: pipe };
        world.take(RouterCommand::Up { session: 1, own: OWN });
        world.take(RouterCommand::Begin(Box::new(begin)));
        world.place(OTHER, &["10.0.0.2:1"]);
        world.says(ProgramFrame::Hello { version: VERSION });
        world
    }

    fn take(&mut self, command: RouterCommand<Desk>) {
        self.router.take(self.now, command);
        self.router.settle(self.now);
    }

    /// The coordinator says where rank 1 is, and where that answers.
    fn place(&mut self, workstation: WorkstationId, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let (fence, name) = (Fence::of(2), "other".to_owned());
        let at = vec![RankAt { rank: 1, fence, workstation, name, addresses }];
        self.take(RouterCommand::Ranks { job: JOB, life: LIFE, at });
    }

    fn says(&mut self, frame: ProgramFrame) {
        self.pipe.says(frame);
        self.router.hear(self.now, HERE);
        self.router.settle(self.now);
    }

    fn sends(&mut self) {
        let envelope = Envelope::whole(Communicator(0), Tag(0));
        let payload = Bytes::from_static(b"hello");
        self.says(ProgramFrame::Send { to: Rank(1), envelope, payload });
    }

    /// How many frames for agents went to the coordinator since this was asked.
    fn relayed(&mut self) -> usize {
        let sent = std::mem::take(&mut self.router.shell().sent);
        sent.iter().filter(|frame| matches!(frame, AgentFrame::Relay { to: OTHER, .. })).count()
    }
}

#[test]
fn what_is_said_before_a_direct_way_is_open_goes_round_and_the_way_is_wanted_once() {
    let mut world = World::new();
    assert_eq!(world.router.shell().wanted, [], "nobody has said anything");
    world.sends();
    world.sends();
    assert_eq!(world.relayed(), 2);
    assert_eq!(world.router.shell().wanted, [OTHER]);
    let way = Direct::default();
    world.take(RouterCommand::PeerStreamOpened { at: OTHER, way: way.clone() });
    world.sends();
    assert_eq!((world.relayed(), way.0.borrow().len()), (0, 1));
}

#[test]
fn a_direct_way_that_was_lost_is_wanted_again_a_while_later_and_not_before() {
    let mut world = World::new();
    world.sends();
    world.take(RouterCommand::PeerStreamLost(OTHER));
    for (after, wanted) in [(0, 1), (4_900, 1), (5_100, 2)] {
        world.now = NOW + Duration::from_millis(after);
        world.sends();
        assert_eq!(world.router.shell().wanted.len(), wanted, "after {after} ms");
    }
    assert!(world.relayed() >= 4, "meanwhile the coordinator passes it on");
}

#[test]
fn what_a_process_wrote_last_is_passed_on_when_it_has_ended() {
    let mut world = World::new();
    let envelope = Envelope::whole(Communicator(0), Tag(0));
    let payload = Bytes::from_static(b"last");
    world.pipe.says(ProgramFrame::Send { to: Rank(1), envelope, payload });
    let end = End::ExitCode(0);
    world.take(RouterCommand::Exited { fence: HERE, end, stays: false });
    let sent = std::mem::take(&mut world.router.shell().sent);
    let has_it = |frame: &AgentFrame| {
        let AgentFrame::Relay { bytes, .. } = frame else { return false };
        bytes.windows(4).any(|part| part == b"last")
    };
    assert!(sent.iter().any(has_it), "{sent:?}");
}

#[test]
fn other_addresses_of_an_agent_are_tried_at_once() {
    let mut world = World::new();
    world.sends();
    world.take(RouterCommand::PeerStreamLost(OTHER));
    world.place(OTHER, &["10.0.0.2:2"]);
    world.sends();
    assert_eq!(world.router.shell().wanted, [OTHER, OTHER]);
}

#[test]
fn an_agent_without_an_address_is_spoken_to_through_the_coordinator() {
    let mut world = World::new();
    world.place(OTHER, &[]);
    world.sends();
    assert_eq!((world.relayed(), world.router.shell().wanted.len()), (1, 0));
}

#[test]
fn what_ranks_say_while_nobody_is_connected_is_not_kept_by_the_router() {
    let mut world = World::new();
    world.take(RouterCommand::Down);
    world.sends();
    assert_eq!(world.relayed(), 0);
    world.take(RouterCommand::Up { session: 2, own: OWN });
    assert_eq!(world.relayed(), 1, "its endpoint sends it again");
}

#[test]
fn a_rank_that_asked_to_leave_has_left_when_its_process_ends_well_and_only_then() {
    for (code, left) in [(0, true), (1, false)] {
        let mut world = World::new();
        world.says(ProgramFrame::Ask { request: Request(1), ask: Ask::Leave });
        let end = End::ExitCode(code);
        world.take(RouterCommand::Exited { fence: HERE, end, stays: false });
        let expected = if left { End::Left } else { end };
        let ended = world.router.shell().sent.iter().any(|frame| {
            let AgentFrame::FromRank { bytes, .. } = frame else { return false };
            let said = postcard::from_bytes(bytes).unwrap();
            matches!(said, FromRank::Ended { end, .. } if end == expected)
        });
        assert!(ended, "{:?}", world.router.shell().sent);
    }
}
