//! The router: what an agent does about the messages of the ranks that run here.
//!
//! Each rank has an endpoint here (`gleaner-program-core`), which decides
//! everything about its messages; the router gives it what comes for it, and
//! carries out what it says. The promise: a program that breaks its pipes, floods
//! or does not read harms nobody but itself, and ranks go on talking whether or
//! not the coordinator can be reached, wherever there is another way. Knows
//! nothing of descriptors, threads or sockets: these are its [`Shell`]'s.
//!
//! One turn is: what is due, what has come, then everything that ranks here
//! say to each other, and last what leaves: into pipes and to other agents.
//!
//! ```text
//!   take, hear, write, wake  ..  settle  ──►  Shell, Pipes, Way  ..  deadline
//! ```

mod command;
mod complaints;
mod imaging;
mod local_rank;
mod moving;
mod outgoing;
mod pace;
mod program;
mod saved_states;
mod shell;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;

use bytes::Bytes;
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::{Life, RankAt};
use gleaner_common::time::Moment;
use gleaner_program_core::address::Rank;
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::directory::{Route, Taken};
use gleaner_program_core::endpoint::{Effect, Endpoint, Event};
use gleaner_program_core::facts::End;
use gleaner_program_core::framing::FrameReader;
use gleaner_program_core::wire::{Begun, Between, FromRank, Packet, PeerFrame, ToRank};

pub use self::command::{Arrive, Begin, Packed, Peer, RouterCommand, RouterEvent};
use self::imaging::Imaging;
use self::local_rank::LocalRank;
use self::outgoing::Outgoing;
use self::program::Program;
pub use self::shell::{Image, IoRequest, Note, PipeRead, Pipes, Shell, Wanted, Way};

/// How much of what comes for ranks that have not begun is held.
const EARLY_MAX: usize = 4_096;

/// How often a pipe is read before others have their turn, unless its program
/// has ended.
const READS_IN_A_ROW: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Router<S: Shell> {
    outgoing: Outgoing<S>,
    own: WorkstationId,
    local_ranks: BTreeMap<Fence, LocalRank<S>>,
    programs: BTreeMap<JobId, Program<S::Slabs>>,
    /// Ranks whose part of a snapshot is being fetched.
    fetching: BTreeMap<Fence, Begin<S::Ends>>,
    /// For ranks that were offered and have not begun.
    early: VecDeque<(Fence, Life, ToRank)>,
    /// What ranks here say to each other.
    todo: VecDeque<(Fence, Event)>,
    effects: Vec<Effect>,
    /// Ranks that may have something to write.
    dirty: Vec<Fence>,
}

impl<S: Shell> Router<S> {
    pub fn new(shell: S) -> Self {
        Self {
            outgoing: Outgoing::new(shell),
            own: WorkstationId(0),
            local_ranks: BTreeMap::new(),
            programs: BTreeMap::new(),
            fetching: BTreeMap::new(),
            early: VecDeque::new(),
            todo: VecDeque::new(),
            effects: vec![],
            dirty: vec![],
        }
    }

    pub fn shell(&mut self) -> &mut S {
        &mut self.outgoing.shell
    }

    /// Where the messages of a program lie that has ranks here.
    pub fn slabs(&self, job: JobId) -> Option<&S::Slabs> {
        self.programs.get(&job).map(|program| &program.slabs)
    }

    /// Whose attempt this is that is here.
    pub fn rank(&self, fence: Fence) -> Option<(JobId, Life, Rank)> {
        self.local_ranks.get(&fence).map(|it| (it.job, it.life, it.rank()))
    }

    /// How many packets for a program wait for the coordinator's word, and how many
    /// spoke for a rank that is not where they came from.
    pub fn early_and_forged(&self, job: JobId) -> (usize, u64) {
        self.programs.get(&job).map(Program::early_and_forged).unwrap_or_default()
    }

    /// Does what it is told. What follows is done by [`Self::settle`].
    pub fn take(&mut self, now: Moment, command: RouterCommand<S>) {
        match command {
            RouterCommand::Up { session, own } => self.up(now, session, own),
            RouterCommand::Down => self.outgoing.down(),
            RouterCommand::Begin(begin) => self.begin(now, *begin),
            RouterCommand::Exited { fence, end, stays } => self.exited(now, fence, end, stays),
            RouterCommand::Dropped(fence) => self.drop_rank(fence),
            RouterCommand::Retreat { fence, within } => {
                if let Some(local_rank) = self.local_ranks.get_mut(&fence) {
                    local_rank.retreats_within = Some(within);
                }
                self.handle(now, fence, Event::Retreat { within });
            }
            RouterCommand::Again { fence, ends } => self.again(now, fence, ends),
            RouterCommand::Depart { fence, keep } => self.depart(now, fence, keep),
            RouterCommand::Image(fence) => self.begin_image(now, fence),
            RouterCommand::Imaged { fence, done, stood } => self.imaged(now, fence, done, stood),
            RouterCommand::Stayed(fence) => self.stayed(now, fence),
            RouterCommand::Left { fence, to, at } => self.has_left(fence, to, at),
            RouterCommand::Arrive(arrive) => self.arrive(*arrive),
            RouterCommand::SetGoing(fence) => self.set_going(now, fence),
            RouterCommand::Ranks { job, life, at } => self.ranks(now, job, life, &at),
            RouterCommand::ToRank { fence, life, bytes } => {
                self.tell_rank(now, fence, life, &bytes);
            }
            RouterCommand::Relayed { from, bytes } => self.relayed(now, from, &bytes),
            RouterCommand::Packets { from, frames } => {
                let at = self.outgoing.number(&from);
                for frame in frames {
                    self.between(now, (&from, at), frame);
                }
            }
            RouterCommand::PeerStreamOpened { at, way } => self.outgoing.opened(at, way),
            RouterCommand::PeerStreamLost(at) => self.peer_stream_lost(now, at),
            RouterCommand::Staged { fence, snapshot, part } => self.staged(fence, snapshot, part),
            RouterCommand::Fetched { fence, part } => self.fetched(now, fence, part),
            RouterCommand::Forget(job) => self.forget(job),
        }
    }

    // ── the event loop ───────────────────────────────────────────────────────────

    fn begin(&mut self, now: Moment, begin: Begin<S::Ends>) {
        if let Some(hash) = begin.cut {
            return self.begin_with_cut(begin, hash);
        }
        let Begin { fence, job, config, life, ends, .. } = begin;
        let rank = config.rank;
        // A rank of a life that is over: its pipes close, its attempt is cancelled.
        let Some(slabs) = self.enter(job, life, rank, fence) else { return };
        let mut local_rank = LocalRank::new(job, life, Endpoint::new(config, fence), slabs);
        if let Err(error) = local_rank.plug(&mut self.outgoing.shell, ends) {
            return self.cannot_watch(fence, rank, error);
        }
        self.local_ranks.insert(fence, local_rank);
        self.is_here(now, job, rank, fence);
        self.hear_early(now, fence);
    }

    fn cannot_watch(&mut self, fence: Fence, rank: Rank, error: impl Display) {
        let what = format!("cannot watch the pipes of {rank}: {error}");
        self.outgoing.shell.say(RouterEvent::Faulted { fence, what });
    }

    /// What the rank was told before it was here.
    fn hear_early(&mut self, now: Moment, fence: Fence) {
        for (of, life, what) in std::mem::take(&mut self.early) {
            if of == fence {
                self.told(now, fence, life, what);
            } else {
                self.early.push_back((of, life, what));
            }
        }
    }

    /// Makes a rank known as ours, and gives where its program's messages lie.
    /// `None`: its life is over.
    fn enter(&mut self, job: JobId, life: Life, rank: Rank, fence: Fence) -> Option<S::Slabs> {
        let own = self.own;
        let program = self.program(job, life)?;
        program.directory.learn(rank, fence, own);
        let slabs = program.slabs.clone();
        if let Some(old) = program.here.insert(rank, fence) {
            self.local_ranks.remove(&old);
        }
        Some(slabs)
    }

    /// The program in this life; `None` if it is over.
    fn program(&mut self, job: JobId, life: Life) -> Option<&mut Program<S::Slabs>> {
        let own = self.own;
        let known = self.programs.get(&job).map(|program| program.life);
        if known.is_some_and(|known| known > life) {
            return None;
        }
        if known != Some(life) {
            self.local_ranks.retain(|_, local_rank| local_rank.job != job);
            self.programs.insert(job, Program::new(life, own));
        }
        self.programs.get_mut(&job)
    }

    /// Tells everybody who had something for the rank that it is here.
    fn is_here(&mut self, now: Moment, job: JobId, rank: Rank, fence: Fence) {
        let missed = self.programs.get_mut(&job).map(|it| it.take_missed(rank)).unwrap_or_default();
        for workstation in missed {
            self.outgoing.pass(now, workstation, &Between::Begun(Begun { job, rank, fence }));
        }
        self.peer_at(job, rank);
    }

    fn peer_at(&mut self, job: JobId, rank: Rank) {
        let of = self
            .local_ranks
            .iter()
            .filter(|(_, local_rank)| local_rank.job == job)
            .map(|(fence, _)| *fence);
        self.todo.extend(of.map(|fence| (fence, Event::PeerAt(rank))));
    }

    /// The process has gone: takes in what it has written last.
    fn exited(&mut self, now: Moment, fence: Fence, end: End, stays: bool) {
        self.fetching.remove(&fence);
        if self.local_ranks.get(&fence).is_some_and(|local_rank| local_rank.arriving.is_some()) {
            // The rank goes on where it came from.
            self.drop_rank(fence);
        }
        while self.read(now, fence, READS_IN_A_ROW) {}
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else {
            let settled = RouterEvent::Settled { fence, fault: None, stays: false };
            return self.outgoing.shell.say(settled);
        };
        local_rank.unplug();
        let (fault, end) = (local_rank.fault.clone(), local_rank.end(end));
        let stays = fault.is_none() && (stays || local_rank.retreated);
        let ignored = local_rank.retreats_within.take().filter(|_| stays && !local_rank.retreated);
        let rank = local_rank.rank();
        if let Some(within) = ignored {
            self.complained(fence, &Complaint::RetreatIgnored { rank, within });
        }
        if fault.is_none() && !stays {
            self.handle(now, fence, Event::Ended(end));
        }
        self.outgoing.shell.say(RouterEvent::Settled { fence, fault, stays });
    }

    fn drop_rank(&mut self, fence: Fence) {
        self.early.retain(|(of, ..)| *of != fence);
        self.fetching.remove(&fence);
        let Some(local_rank) = self.local_ranks.remove(&fence) else { return };
        let Some(program) = self.programs.get_mut(&local_rank.job) else { return };
        if program.here.get(&local_rank.rank()) == Some(&fence) {
            program.here.remove(&local_rank.rank());
            program.directory.lose(local_rank.rank());
        }
    }

    fn forget(&mut self, job: JobId) {
        self.local_ranks
            .retain(|_, local_rank| local_rank.job != job || !local_rank.endpoint.is_ended());
        if !self.local_ranks.values().any(|local_rank| local_rank.job == job) {
            self.programs.remove(&job);
        }
    }

    // ── the coordinator ────────────────────────────────────────────────────

    fn up(&mut self, now: Moment, session: u64, own: WorkstationId) {
        self.own = own;
        self.outgoing.up(session);
        let fences: Vec<Fence> = self.local_ranks.keys().copied().collect();
        for fence in fences {
            let Some(local_rank) = self.local_ranks.get_mut(&fence) else { continue };
            local_rank.doubt_what_was_told(now);
            for said in local_rank.said.iter().chain(&local_rank.cut) {
                self.outgoing.tell(fence, local_rank.life, said);
            }
            let job = local_rank.job;
            self.handle(now, fence, Event::CoordinatorBack);
            // What was on its way through the coordinator is lost.
            let others = self.programs.get(&job).map(|program| program.directory.elsewhere());
            let again = others.into_iter().flatten().map(|rank| (fence, Event::PeerAt(rank)));
            self.todo.extend(again);
        }
    }

    fn ranks(&mut self, now: Moment, job: JobId, life: Life, at: &[RankAt]) {
        for RankAt { workstation, name, addresses, .. } in at {
            self.outgoing.learn(*workstation, name, addresses);
        }
        let Some(program) = self.program(job, life) else { return };
        let mut news = vec![];
        for RankAt { rank, fence, workstation, .. } in at {
            if program.directory.learn(Rank(*rank), *fence, *workstation) {
                news.push(Rank(*rank));
            }
        }
        let early = program.take_early();
        for rank in news {
            self.peer_at(job, rank);
        }
        for (from, packet) in early {
            let at = self.outgoing.number(&from);
            self.packet(now, (&from, at), packet);
        }
    }

    /// What was on its way there is lost.
    fn peer_stream_lost(&mut self, now: Moment, at: WorkstationId) {
        self.outgoing.lost(now, at);
        let of = |program: &Program<S::Slabs>| program.directory.at(at).collect::<Vec<_>>();
        let lost: Vec<_> = self.programs.iter().map(|(job, program)| (*job, of(program))).collect();
        for (job, ranks) in lost {
            for rank in ranks {
                self.peer_at(job, rank);
            }
        }
    }

    fn is_set_going(&self, fence: Fence) -> bool {
        self.local_ranks.get(&fence).is_some_and(|local_rank| local_rank.arriving.is_none())
    }

    fn tell_rank(&mut self, now: Moment, fence: Fence, life: Life, bytes: &[u8]) {
        match postcard::from_bytes::<ToRank>(bytes) {
            Ok(what) if self.is_set_going(fence) => self.told(now, fence, life, what),
            // A rank that has come, but not to stay yet, waits too: a new process of it
            // would be told before it is welcomed.
            Ok(what) => {
                if self.early.len() >= EARLY_MAX {
                    self.early.pop_front();
                }
                self.early.push_back((fence, life, what));
            }
            Err(error) => {
                let error = error.to_string();
                self.outgoing.shell.note(Note::ToRankUnread { error });
            }
        }
    }

    fn told(&mut self, now: Moment, fence: Fence, life: Life, what: ToRank) {
        let Some(local_rank) =
            self.local_ranks.get_mut(&fence).filter(|local_rank| local_rank.life == life)
        else {
            return;
        };
        let event = match what {
            ToRank::Answered { request, answer } => Event::Answered { request, answer },
            ToRank::Ranks(count) => Event::Ranks(count),
            ToRank::PeerEnded { rank, snapshot, end, last } => {
                Event::PeerEnded { rank, snapshot, end, last }
            }
            ToRank::TellFacts { asked } => {
                let facts = local_rank.endpoint.facts();
                let facts = FromRank::Facts { asked: Some(asked), facts };
                return self.outgoing.tell(fence, life, &facts);
            }
            ToRank::Deadlock(waits) => Event::Deadlock(waits),
            ToRank::Negotiate(said) => Event::Negotiate(said),
            ToRank::Cut(snapshot) => {
                // Images are asked for at their own pace.
                let waits = local_rank.pace.deadline().is_some();
                self.handle(now, fence, Event::Cut(snapshot));
                if waits {
                    return;
                }
                // So that the next one goes back less far.
                Event::PleaseSave
            }
        };
        self.handle(now, fence, event);
    }

    // ── other agents ───────────────────────────────────────────────────────

    fn relayed(&mut self, now: Moment, from: WorkstationId, bytes: &[u8]) {
        let mut reader = FrameReader::default();
        reader.push(bytes);
        loop {
            match reader.next_frame::<Between>() {
                Ok(Some(frame)) => self.between(now, (&Peer::Relayed(from), Some(from)), frame),
                Ok(None) => return,
                Err(error) => {
                    let error = error.to_string();
                    return self.outgoing.shell.note(Note::BetweenUnread { error });
                }
            }
        }
    }

    fn between(&mut self, now: Moment, from: (&Peer, Option<WorkstationId>), frame: Between) {
        match (frame, from.1) {
            (Between::Packet(packet), _) => self.packet(now, from, packet),
            (Between::Begun(Begun { job, rank, fence }), Some(at)) => {
                let told = |program: &Program<S::Slabs>| program.directory.is_at(rank, fence, at);
                if self.programs.get(&job).is_some_and(told) {
                    self.peer_at(job, rank);
                }
            }
            // What is sent again then is sent again once the coordinator has told.
            (Between::Begun(_), None) => {}
        }
    }

    /// What another agent says in the name of a rank counts if the coordinator
    /// has told that the rank's attempt is there.
    fn packet(&mut self, now: Moment, (peer, at): (&Peer, Option<WorkstationId>), packet: Packet) {
        let Some(program) = self.programs.get_mut(&packet.job) else { return };
        let taken = at.map_or(Taken::Early, |at| program.directory.take(&packet, at));
        match (taken, program.here.get(&packet.to).copied()) {
            (Taken::Here, Some(to)) => {
                let Packet { from, fence, frame, .. } = packet;
                self.handle(now, to, Event::FromPeer { from, fence, frame });
            }
            // Offered to us and not begun, or gone: it will be sent again.
            (Taken::Here | Taken::Elsewhere, _) => {
                if let Some(at) = at {
                    program.missed(packet.to, at);
                }
            }
            (Taken::Early, _) => program.keep_early(peer, packet),
            (Taken::Late, _) => {}
            (Taken::Forged, _) => {
                let Some(times) = program.count_forged() else { return };
                let (from, job, rank) = (peer.clone(), packet.job, packet.from);
                self.outgoing.shell.note(Note::Forged { from, job, rank, times });
            }
        }
    }

    fn send_to_peer(&mut self, now: Moment, from: Fence, to: Rank, frame: PeerFrame) {
        let Some(local_rank) = self.local_ranks.get(&from) else { return };
        let Some(program) = self.programs.get_mut(&local_rank.job) else { return };
        let rank = local_rank.rank();
        match program.directory.route(to) {
            Route::Here => {
                if let Some(fence) = program.here.get(&to) {
                    let event = Event::FromPeer { from: rank, fence: from, frame };
                    self.todo.push_back((*fence, event));
                }
            }
            Route::To(workstation) => {
                let packet = Packet {
                    job: local_rank.job,
                    life: local_rank.life,
                    to,
                    from: rank,
                    fence: from,
                    frame,
                };
                self.outgoing.pass(now, workstation, &Between::Packet(packet));
            }
            Route::Unknown { ask: true } => {
                self.outgoing.tell(from, local_rank.life, &FromRank::WhereIs(to));
            }
            Route::Unknown { ask: false } => {}
        }
    }

    // ── programs ───────────────────────────────────────────────────────────

    /// A rank has written something: reads it, up to what others can wait for.
    pub fn hear(&mut self, now: Moment, fence: Fence) -> PipeRead {
        let mut heard = PipeRead::Much;
        for _ in 0..READS_IN_A_ROW {
            heard = self.read_once(now, fence);
            // What comes after a read that did not fill its place is told anew.
            if heard != PipeRead::Much {
                break;
            }
        }
        heard
    }

    /// A rank's pipe has place: it is written with all else that leaves.
    pub fn write(&mut self, fence: Fence) {
        self.dirty.push(fence);
    }

    /// Reads so often at most. Is there more?
    fn read(&mut self, now: Moment, fence: Fence, times: usize) -> bool {
        (0..times).all(|_| matches!(self.read_once(now, fence), PipeRead::Much | PipeRead::Some))
    }

    fn read_once(&mut self, now: Moment, fence: Fence) -> PipeRead {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return PipeRead::Nothing };
        let heard = local_rank.fill();
        match &heard {
            Ok(PipeRead::Much | PipeRead::Some) => self.frames(now, fence),
            Ok(PipeRead::Nothing) => {}
            Ok(PipeRead::End) => {
                if let Some(error) = local_rank.is_cut_off() {
                    self.protocol(fence, error.to_string());
                }
            }
            Err(error) => self.protocol(fence, error.to_string()),
        }
        heard.unwrap_or(PipeRead::End)
    }

    fn frames(&mut self, now: Moment, fence: Fence) {
        while let Some(local_rank) = self.local_ranks.get_mut(&fence) {
            match local_rank.next_frame() {
                Ok(Some(frame)) => {
                    local_rank.heard(now, &frame);
                    self.handle(now, fence, Event::FromProgram(frame));
                }
                Ok(None) => return,
                Err(error) => return self.protocol(fence, error.to_string()),
            }
        }
    }

    /// The program has written what cannot be read.
    fn protocol(&mut self, fence: Fence, what: String) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        let rank = local_rank.rank();
        self.complained(fence, &Complaint::Protocol { rank, what });
    }

    fn complained(&mut self, fence: Fence, complaint: &Complaint) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        if !complaint.is_fatal() {
            if local_rank.complaints.adds(complaint) {
                self.outgoing.tell(fence, local_rank.life, &FromRank::Complain(complaint.clone()));
            }
            return;
        }
        if local_rank.fault.is_none() {
            let what = complaint.to_string();
            local_rank.fault = Some(what.clone());
            self.outgoing.shell.say(RouterEvent::Faulted { fence, what });
        }
        // What it was told last is why.
        local_rank.flush();
        local_rank.unplug();
    }

    fn handle(&mut self, now: Moment, fence: Fence, event: Event) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        let mut effects = std::mem::take(&mut self.effects);
        local_rank.endpoint.handle(now, event, &mut effects);
        self.carry_out(now, fence, &mut effects);
        self.effects = effects;
    }

    fn carry_out(&mut self, now: Moment, fence: Fence, effects: &mut Vec<Effect>) {
        for effect in effects.drain(..) {
            let Some(local_rank) = self.local_ranks.get_mut(&fence) else { continue };
            match effect {
                Effect::ToProgram(frame) => {
                    local_rank.give(&frame);
                    if self.dirty.last() != Some(&fence) {
                        self.dirty.push(fence);
                    }
                }
                Effect::Restore(boundary) => local_rank.restore(boundary),
                Effect::ToPeer { to, frame } => self.send_to_peer(now, fence, to, frame),
                Effect::Ask { request, ask } => {
                    self.outgoing.tell(fence, local_rank.life, &FromRank::Ask { request, ask });
                }
                Effect::Keep { boundary, last, state } => {
                    let state = Bytes::copy_from_slice(&state);
                    match local_rank.states.keep(boundary, last, state) {
                        Some(true) => self.todo.push_back((fence, Event::Kept(boundary))),
                        Some(false) => self.todo.push_back((fence, Event::NotKept(boundary))),
                        None => {}
                    }
                }
                Effect::Forget(boundary) => {
                    local_rank.states.forget_before(boundary);
                    local_rank.image.take_if(|kept| kept.boundary < boundary);
                }
                Effect::Complain(complaint) => self.complained(fence, &complaint),
                Effect::Retreated => {
                    local_rank.retreated = true;
                    self.outgoing.shell.say(RouterEvent::Returned(fence));
                }
                Effect::Ended { end, snapshot, sent } => {
                    self.say(fence, FromRank::Ended { end, snapshot, sent });
                }
                Effect::Drained => self.say(fence, FromRank::Drained),
                Effect::Cut { snapshot, boundary, state } => {
                    self.cut(fence, snapshot, boundary, state);
                }
                Effect::NoCut(snapshot) => {
                    self.outgoing.tell(fence, local_rank.life, &FromRank::NoCut(snapshot));
                }
                Effect::Negotiate(said) => {
                    self.outgoing.tell(fence, local_rank.life, &FromRank::Negotiate(said));
                }
                Effect::TakeImage => {
                    if local_rank.imaging == Imaging::Nothing {
                        local_rank.imaging = Imaging::Wanted;
                        self.outgoing.shell.say(RouterEvent::WantsImage(fence));
                    }
                }
            }
        }
    }

    /// Tells the coordinator now and on every connection.
    fn say(&mut self, fence: Fence, what: FromRank) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        self.outgoing.tell(fence, local_rank.life, &what);
        local_rank.said.push(what);
    }

    // ── time ───────────────────────────────────────────────────────────────

    /// When [`Self::wake`] is due. Ask again after every turn.
    pub fn deadline(&self) -> Option<Moment> {
        self.local_ranks.values().filter_map(LocalRank::deadline).min()
    }

    pub fn wake(&mut self, now: Moment) {
        let due = |local_rank: &LocalRank<S>| local_rank.deadline().is_some_and(|at| at <= now);
        let due: Vec<Fence> = self
            .local_ranks
            .iter()
            .filter(|(_, local_rank)| due(local_rank))
            .map(|(fence, _)| *fence)
            .collect();
        for fence in due {
            let Some(local_rank) = self.local_ranks.get_mut(&fence) else { continue };
            if let Some(facts) = local_rank.long_wait(now) {
                self.outgoing.tell(fence, local_rank.life, &facts);
            }
            let mut effects = std::mem::take(&mut self.effects);
            if local_rank.pace.is_due(now) {
                local_rank.endpoint.handle(now, Event::PleaseSave, &mut effects);
            }
            local_rank.endpoint.wake(now, &mut effects);
            self.carry_out(now, fence, &mut effects);
            self.effects = effects;
        }
    }

    /// What ranks say to each other, until all is said; then what leaves.
    pub fn settle(&mut self, now: Moment) {
        while let Some((fence, event)) = self.todo.pop_front() {
            self.handle(now, fence, event);
        }
        for fence in std::mem::take(&mut self.dirty) {
            if let Some(local_rank) = self.local_ranks.get_mut(&fence) {
                local_rank.flush();
            }
        }
        self.outgoing.flush(now);
    }
}

#[cfg(test)]
mod tests;
