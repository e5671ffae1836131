//! What a router of a lab has around it: pipes in memory, and whoever carries out
//! what it wants, in their own time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use gleaner_agent_core::router::{self, IoRequest, Note, PipeRead, RouterEvent, Shell};
use gleaner_common::frame::FrameError;
use gleaner_common::id::Fence;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::endpoint::PipeRest;
use gleaner_program_core::framing::{FrameReader, encode_whole};
use gleaner_program_core::wire::{self, Between, ProgramFrame};

use super::rank::Image;

/// What a pipe takes of frames until somebody reads them.
const PIPE_FRAMES: usize = 6;

/// Both pipes of a rank's process. Either side has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe(Rc<RefCell<InPipes>>);

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct InPipes {
    pub(crate) to_program: VecDeque<wire::AgentFrame>,
    pub(crate) to_agent: VecDeque<ProgramFrame>,
    /// Something has come for the program since somebody looked.
    news: bool,
    /// Its agent has more for it.
    full: bool,
    /// The next to look at our end of it finds it sick.
    sick: bool,
    /// Its agent has let go of it: its program finds its end.
    closed: bool,
}

impl Pipe {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut InPipes) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.with(|pipes| pipes.closed)
    }

    pub(crate) fn sicken(&self) {
        self.with(|pipes| pipes.sick = true);
    }

    pub(crate) fn take_news(&self) -> bool {
        self.with(|pipes| std::mem::take(&mut pipes.news))
    }

    /// Does its agent have to hear it, and has it place for more?
    pub(crate) fn is_ready(&self) -> (bool, bool) {
        self.with(|pipes| (!pipes.to_agent.is_empty(), pipes.full && pipes.to_program.is_empty()))
    }

    fn check(&self, what: &str) -> Result<(), String> {
        let sick = self.with(|pipes| std::mem::take(&mut pipes.sick));
        if sick { Err(what.to_owned()) } else { Ok(()) }
    }
}

/// An agent's side of a pipe: nobody else has it.
#[derive(Debug)]
pub(crate) struct Ends(Pipe);

impl Ends {
    pub(crate) fn of(pipe: &Pipe) -> Self {
        Self(pipe.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut InPipes) -> T) -> T {
        self.0.with(act)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.with(|pipes| (pipes.closed, pipes.news) = (true, true));
    }
}

/// A pipe, as the router uses it.
#[derive(Debug)]
pub(crate) struct RankPipes {
    pipe: Ends,
    taken: VecDeque<ProgramFrame>,
    outbox: VecDeque<wire::AgentFrame>,
}

impl router::Pipes for RankPipes {
    type Error = String;

    fn fill(&mut self) -> Result<PipeRead, String> {
        let before = self.taken.len();
        self.pipe.with(|pipes| self.taken.append(&mut pipes.to_agent));
        Ok(if self.taken.len() > before { PipeRead::Some } else { PipeRead::Nothing })
    }

    fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        Ok(self.taken.pop_front())
    }

    fn cut_off(&self) -> Option<FrameError> {
        None
    }

    fn push(&mut self, frame: &wire::AgentFrame) {
        self.outbox.push_back(frame.clone());
    }

    fn flush(&mut self) {
        let outbox = &mut self.outbox;
        self.pipe.with(|pipes| {
            let place = PIPE_FRAMES.saturating_sub(pipes.to_program.len());
            let written = outbox.drain(..place.min(outbox.len()));
            pipes.to_program.extend(written);
            (pipes.news, pipes.full) = (!pipes.to_program.is_empty(), !outbox.is_empty());
        });
    }

    fn empty(&mut self) -> Result<PipeRest, String> {
        self.pipe.0.check("no such file")?;
        let mut to_program = vec![];
        let mut unread = self.pipe.with(|pipes| std::mem::take(&mut pipes.to_program));
        unread.append(&mut self.outbox);
        for frame in &unread {
            encode_whole(frame, &mut to_program).map_err(|error| error.to_string())?;
        }
        assert!(self.taken.is_empty(), "packed before all of it was heard");
        Ok(PipeRest { to_program, from_program: vec![] })
    }

    fn refill(&mut self, rest: PipeRest) {
        assert!(rest.from_program.is_empty(), "half a frame");
        let mut reader = FrameReader::with_rest(rest.to_program);
        let mut first = VecDeque::new();
        while let Some(frame) = reader.next_frame().expect("they were frames") {
            first.push_back(frame);
        }
        first.append(&mut self.outbox);
        self.outbox = first;
    }
}

/// A machine in trouble hears no more pipes.
const NO_ROOM: &str = "no room to watch it";

/// A direct way to another agent, by its number in the lab.
#[derive(Debug)]
pub(crate) struct Way {
    number: u64,
    batch: Vec<Between>,
    passed: Passed,
}

/// What left by direct ways, and was not taken up yet.
type Passed = Rc<RefCell<Vec<(u64, Vec<Between>)>>>;

impl router::Way for Way {
    fn push(&mut self, frame: &Between) -> Result<(), FrameError> {
        self.batch.push(frame.clone());
        Ok(())
    }

    fn flush(&mut self) -> bool {
        let batch = std::mem::take(&mut self.batch);
        self.passed.borrow_mut().push((self.number, batch));
        true
    }
}

/// What a router wants to be done.
#[derive(Debug)]
pub(crate) enum Order {
    Send(u64, AgentFrame),
    Have(IoRequest<Image>),
    Say(RouterEvent<Surroundings>),
    Pass(u64, Vec<Between>),
}

#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    orders: Vec<Order>,
    passed: Passed,
}

impl Surroundings {
    pub(crate) fn take(&mut self) -> Vec<Order> {
        let passed = std::mem::take(&mut *self.passed.borrow_mut());
        let mut orders = std::mem::take(&mut self.orders);
        orders.extend(passed.into_iter().map(|(number, frames)| Order::Pass(number, frames)));
        orders
    }

    pub(crate) fn way(&self, number: u64) -> Way {
        Way { number, batch: vec![], passed: Rc::clone(&self.passed) }
    }
}

impl Shell for Surroundings {
    type Ends = Ends;
    type Pipes = RankPipes;
    type Slabs = ();
    type Image = Image;
    type Way = Way;

    fn plug(&mut self, _fence: Fence, pipe: Ends, (): &()) -> Result<RankPipes, String> {
        pipe.0.check(NO_ROOM)?;
        Ok(RankPipes { pipe, taken: VecDeque::new(), outbox: VecDeque::new() })
    }

    fn send(&mut self, session: u64, frame: AgentFrame) {
        self.orders.push(Order::Send(session, frame));
    }

    fn have(&mut self, request: IoRequest<Image>) -> bool {
        self.orders.push(Order::Have(request));
        true
    }

    fn say(&mut self, event: RouterEvent<Self>) {
        self.orders.push(Order::Say(event));
    }

    fn note(&mut self, note: Note) {
        // Nothing that agents say to each other is forged or garbled here, and what a
        // rank goes back to is what was kept of it.
        let is_known = match &note {
            Note::HasWayBack(_) => true,
            Note::NotBack { error, .. } => error == NO_ROOM,
            Note::ToRankUnread { .. }
            | Note::BetweenUnread { .. }
            | Note::Unwritten { .. }
            | Note::Forged { .. } => false,
        };
        assert!(is_known, "{note:?}");
    }
}
