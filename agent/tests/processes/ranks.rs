//! Programs of ranks over two agents. What one agent says to the other goes
//! through the test, which is the coordinator of both.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::FromRawFd as _;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Limits, OnBusy, Outcome};
use gleaner_common::program::{Arrival, Destination, Life, ProgramSpec, RankAt, RankOffer, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Finished, Offer, Printed};
use gleaner_program::live::run;
use gleaner_program::{Communicator, Failure, Run};
use gleaner_program_core::address::{
    Communicator as Space, Envelope, PIECE_BYTES_MAX, Rank, Snapshot, Tag,
};
use gleaner_program_core::facts::{End, Stance};
use gleaner_program_core::framing;
use gleaner_program_core::wire::{Answer, Ask, FromRank, ProgramFrame, ToRank, VERSION};
use gleaner_shell::clock::Clock;

use crate::Test;
use crate::agent::Lab;
use crate::coordinator::name_of;
use crate::machine::{LONG, is_root, processes_with, until};
use crate::travels::check_done_again;

pub(crate) const TESTS: &[Test] = &[
    ("ranks_of_two_agents_talk_through_the_coordinator", ring),
    ("ranks_of_two_agents_talk_directly", direct),
    ("ranks_of_agents_that_do_not_reach_each_other_talk_all_the_same", unreachable),
    ("ranks_of_one_agent_talk_without_a_coordinator", without_coordinator),
    ("a_rank_that_writes_garbage_is_ended_for_it_and_its_neighbour_is_not", garbage),
    ("a_rank_that_writes_garbage_and_exits_well_has_failed_all_the_same", garbage_and_exit),
    ("a_rank_that_floods_is_ended_for_it", flood),
    ("a_rank_that_sends_to_nobody_is_ended_for_it", nobody),
    ("a_rank_that_never_reads_holds_its_sender_and_nobody_else", deaf),
    ("a_long_wait_is_told", long_wait),
    ("a_program_goes_back_to_its_snapshot", snapshot),
    ("a_program_that_saves_nothing_goes_back_to_a_snapshot_of_images", snapshot_of_images),
    ("a_newer_life_leaves_nothing_of_the_older", newer_life),
];

pub(crate) const JOB: JobId = JobId(3);

const TICKET: Ticket = Ticket([5; 16]);

/// Of the program that marks a boundary.
pub(crate) const STEPS: u32 = 150;

/// What the test says there is when a rank has arrived, or it is enough.
const PROCESSORS_AFTER: u32 = 9;

/// The program that saves asks something when it has done so much: a test hears
/// it.
const SAVED_BY: u32 = 5;

/// Of the program that marks a boundary: after which step, and when a test
/// hears of it.
pub(crate) const MARKED: u32 = 3;
const MARKED_BY: u32 = 12;

// ── the programs ───────────────────────────────────────────────────────────

/// `processes rank PROGRAM`: one rank.
pub(crate) fn main(program: &str) -> ExitCode {
    let raw: Option<fn(&mut Raw)> = match program {
        "garbage" => Some(|raw| raw.say(&[0xff; 64])),
        "garbage-exit" => Some(|raw| {
            raw.say(&[0xff; 64]);
            std::process::exit(0);
        }),
        "flood" => Some(|raw| {
            for _ in 0..10_000 {
                raw.send(1, PIECE_BYTES_MAX);
            }
        }),
        "nobody" => Some(|raw| raw.send(99, 1)),
        _ => None,
    };
    // Only rank 0 is sick.
    if let Some(act) = raw
        && std::env::var("GLEAN_INDEX").unwrap() == "0"
    {
        let mut raw = Raw::new();
        act(&mut raw);
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
    let alone = Run {
        ranks: 4,
        record: None,
        processors: 0,
        offers: Vec::new(),
        retreats: vec![],
        saved: BTreeMap::new(),
    };
    let ran = run(alone, |comm| match program {
        "ring" => play_ring(comm),
        "deaf" => play_deaf(comm),
        "steps" => play_steps(comm),
        "marks" => play_marks(comm, MARKED_BY),
        "asks-and-marks" => play_marks(comm, MARKED),
        "late" => play_late(comm),
        _ => play_waiting(comm),
    });
    match ran {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn long(rank: u32) -> Vec<u8> {
    (0..1 << 20).map(|at: u32| u8::try_from((at ^ rank) % 251).unwrap()).collect()
}

/// Passes small and big messages round, and adds up.
fn play_ring(comm: &mut Communicator) -> Result<(), Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0..40_u32 {
        let sent = comm.isend(next, 1, &round.to_le_bytes())?;
        assert_eq!(comm.recv(before, 1)?.bytes, round.to_le_bytes());
        comm.wait_sent(&sent)?;
    }
    let sending = comm.isend(next, 2, &long(rank))?;
    let got = comm.recv(before, 2)?;
    assert!(got.bytes == long(before), "rank {rank} got something else");
    comm.wait_sent(&sending)?;
    let sum = comm.allreduce(&[u64::from(rank) + 1], |a, b| a + b)?;
    println!("rank {rank} of {size}: {}", sum[0]);
    Ok(())
}

/// Rank 1 never receives what rank 0 sends it; 2 and 3 talk meanwhile.
fn play_deaf(comm: &mut Communicator) -> Result<(), Failure> {
    match comm.rank() {
        0 => {
            for _ in 0..64 {
                comm.send(1, 5, &long(0))?;
            }
        }
        1 => loop {
            std::thread::sleep(Duration::from_secs(60));
        },
        rank => {
            for _ in 0..50 {
                comm.send(5 - rank, 1, b"x")?;
                comm.recv(5 - rank, 1)?;
            }
        }
    }
    Ok(())
}

/// Two ranks in step, which save after each, until the test has seen enough.
fn play_steps(comm: &mut Communicator) -> Result<(), Failure> {
    let other = 1 - comm.rank();
    let state = comm.restore().and_then(|state| Some(u32::from_le_bytes(state.try_into().ok()?)));
    let mut step = state.unwrap_or(0);
    println!("from {step}");
    let mut last = false;
    while !last {
        // Rank 0 is told that it is enough, and its neighbour by it.
        last = comm.rank() == 0 && step > SAVED_BY && comm.processors()? == PROCESSORS_AFTER;
        comm.send_values(other, 1, &[step, u32::from(last)])?;
        let [theirs, theirs_is_last] = comm.recv_values::<u32>(other, 1)?[..] else {
            return Err("it says something else".into());
        };
        assert_eq!(theirs, step);
        last |= theirs_is_last == 1;
        step += 1;
        comm.save(&step.to_le_bytes())?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Two ranks in step, which save nothing and mark one boundary. Each says when
/// it did a step; one asks something after that many.
fn play_marks(comm: &mut Communicator, asks: u32) -> Result<(), Failure> {
    let other = 1 - comm.rank();
    let mut sum = 0;
    for step in 0..STEPS {
        comm.send(other, 1, &step.to_le_bytes())?;
        let got = u32::from_le_bytes(comm.recv(other, 1)?.bytes.try_into().unwrap());
        assert_eq!(got, step);
        sum += got;
        println!("{step} {}", Clock.wall().0);
        if step == asks && comm.rank() == 1 {
            comm.processors()?;
        }
        if step == MARKED {
            comm.boundary()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("sum {sum}");
    Ok(())
}

/// Rank 1 receives what is sent when somebody has arrived somewhere.
fn play_late(comm: &mut Communicator) -> Result<(), Failure> {
    if comm.rank() == 1 {
        let got = comm.recv(0, 1)?.bytes;
        return Ok(comm.send(0, 1, &got)?);
    }
    while comm.processors()? != PROCESSORS_AFTER {
        std::thread::sleep(Duration::from_millis(20));
    }
    comm.send(1, 1, b"late")?;
    assert_eq!(comm.recv(1, 1)?.bytes, b"late");
    Ok(())
}

/// Waits for rank 0, which sleeps; if that has ended, it is none the wiser.
fn play_waiting(comm: &mut Communicator) -> ! {
    if comm.rank() > 0 {
        let _ = comm.recv(0, 1);
    }
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A program that writes its frames by hand.
struct Raw(std::fs::File);

impl Raw {
    fn new() -> Self {
        let pipes = std::env::var("GLEAN_PIPES").unwrap();
        let number = pipes.split_once(',').unwrap().1.parse().unwrap();
        #[expect(unsafe_code, reason = "the descriptor is inherited by number")]
        // SAFETY: the agent has put it there for this process, and nobody else takes it.
        let file = unsafe { std::fs::File::from_raw_fd(number) };
        let mut raw = Self(file);
        raw.frame(&ProgramFrame::Hello { version: VERSION });
        raw
    }

    /// Goes on if nobody reads any more: it is sick.
    fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    fn frame(&mut self, frame: &ProgramFrame) {
        let mut bytes = vec![];
        framing::encode_whole(frame, &mut bytes).unwrap();
        self.say(&bytes);
    }

    fn send(&mut self, to: u32, bytes: usize) {
        let envelope = Envelope::whole(Space(0), Tag(1));
        self.frame(&ProgramFrame::Send { to: Rank(to), envelope, payload: vec![7; bytes].into() });
    }
}

// ── the site ───────────────────────────────────────────────────────────────

/// Two workstations and what their agents have said.
pub(crate) struct Site {
    pub(crate) labs: Vec<Lab>,
    life: Life,
    ranks: u32,
    pub(crate) on_busy: OnBusy,
    pub(crate) limits: Limits,
    spec: Option<JobSpec>,
    /// Where each rank is.
    pub(crate) at: BTreeMap<u32, RankAt>,
    pub(crate) finished: BTreeMap<u32, Finished>,
    /// Who wants away, with what.
    pub(crate) leaving: BTreeMap<u32, Keep>,
    /// Where it stands until it is told to go.
    pub(crate) arrived: BTreeMap<Fence, (u64, Duration)>,
    /// Who cannot leave, and why.
    pub(crate) stuck: BTreeMap<u32, String>,
    ended: BTreeMap<u32, End>,
    drained: Vec<u32>,
    pub(crate) complaints: Vec<String>,
    waits: Vec<u32>,
    relayed: usize,
    /// Nothing is passed on between the agents.
    relays: bool,
    /// Where each agent is said to be.
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    fence: u32,
    /// How often ranks have asked for processors.
    pub(crate) asked: u32,
    /// The program that saves may come to its end.
    pub(crate) enough: bool,
    /// The ranks' parts of the newest snapshot.
    cuts: BTreeMap<u32, ContentHash>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let mut labs: Vec<Lab> = vec![];
        for number in 1..=2 {
            let mut lab = Lab::of(WorkstationId(number), labs.first());
            let own = std::env::current_exe().unwrap();
            lab.config.guests.readable.push(own.parent().unwrap().into());
            lab.config.guests.uid_base += 50 * (number - 1);
            lab.start();
            labs.push(lab);
        }
        Self {
            labs,
            life: Life(1),
            ranks: 0,
            on_busy: OnBusy::default(),
            limits: Limits::default(),
            spec: None,
            leaving: BTreeMap::new(),
            arrived: BTreeMap::new(),
            stuck: BTreeMap::new(),
            at: BTreeMap::new(),
            finished: BTreeMap::new(),
            ended: BTreeMap::new(),
            drained: vec![],
            complaints: vec![],
            waits: vec![],
            relayed: 0,
            relays: true,
            addresses: vec![vec![]; 2],
            fence: 0,
            asked: 0,
            enough: false,
            cuts: BTreeMap::new(),
        }
    }

    /// Offers a program's ranks, each to the workstation that `place` says.
    pub(crate) fn offer(&mut self, program: &str, ranks: u32, place: impl Fn(u32) -> usize) {
        let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let command = vec![own, "rank".into(), program.into()];
        let mut spec = JobSpec::new(command, IndexRange { first: 0, last: ranks - 1, step: 1 });
        let saves = matches!(program, "steps" | "marks");
        let checkpoint_every = saves.then_some(Duration::from_secs(60));
        spec.program =
            Some(ProgramSpec { ranks_max: ranks, checkpoint_every, ..ProgramSpec::default() });
        (spec.on_busy, spec.limits) = (self.on_busy, self.limits);
        self.spec = Some(spec.clone());
        self.ranks = ranks;
        let floor = Fence::of(self.fence + 1);
        let mut offers = vec![];
        for rank in 0..ranks {
            self.fence += 1;
            let (lab, fence) = (place(rank), Fence::of(self.fence));
            let workstation = WorkstationId(u32::try_from(lab).unwrap() + 1);
            let (name, addresses) = (name_of(workstation), self.addresses[lab].clone());
            let at = RankAt { rank, fence, workstation, name, addresses };
            self.at.insert(rank, at);
            offers.push((lab, fence, rank));
        }
        for lab in &self.labs {
            lab.coordinator.say(CoordinatorFrame::Job { job: JOB, spec: Box::new(spec.clone()) });
            lab.coordinator.say(self.places());
        }
        for (lab, fence, rank) in offers {
            let offer = self.rank_offer(rank, floor);
            self.labs[lab].coordinator.say(CoordinatorFrame::Offer(Offer {
                fence,
                subprogram: SubprogramId { job: JOB, index: rank },
                rank: Some(Box::new(offer)),
                arrival: None,
            }));
        }
    }

    fn rank_offer(&self, rank: u32, floor: Fence) -> RankOffer {
        RankOffer {
            life: self.life,
            ranks: self.ranks,
            first: 0,
            members: self.ranks,
            parent: None,
            snapshot: 0,
            floor,
            cut: self.cuts.get(&rank).copied(),
        }
    }

    /// Has a rank that wants away go to a workstation, up to where it stands
    /// there.
    pub(crate) fn send_to(&mut self, rank: u32, lab: usize) -> RankAt {
        self.fence += 1;
        let (old, fence) = (self.at[&rank].clone(), Fence::of(self.fence));
        let workstation = WorkstationId(u32::try_from(lab).unwrap() + 1);
        let (name, addresses) = (name_of(workstation), self.addresses[lab].clone());
        let to = RankAt { rank, fence, workstation, name, addresses };
        let there = &self.labs[lab].coordinator;
        let spec = Box::new(self.spec.clone().unwrap());
        there.say(CoordinatorFrame::Job { job: JOB, spec });
        there.say(self.places());
        there.say(CoordinatorFrame::Offer(Offer {
            fence,
            subprogram: SubprogramId { job: JOB, index: rank },
            rank: Some(Box::new(self.rank_offer(rank, Fence::of(1)))),
            arrival: Some(Arrival {
                from: old.workstation,
                name: old.name.clone(),
                old: old.fence,
                ticket: TICKET,
            }),
        }));
        let keep = self.leaving[&rank];
        let here = &self.labs[old.workstation.0 as usize - 1].coordinator;
        let destination = Destination { at: to.clone(), ticket: TICKET, ordered: false };
        here.say(CoordinatorFrame::Depart { fence: old.fence, keep, to: destination });
        to
    }

    /// It has arrived: the old one goes, the new one is set going.
    pub(crate) fn settle(&mut self, to: &RankAt) {
        let old = self.at.insert(to.rank, to.clone()).unwrap();
        let here = &self.labs[old.workstation.0 as usize - 1].coordinator;
        here.say(CoordinatorFrame::Cancel { fence: old.fence });
        let there = &self.labs[to.workstation.0 as usize - 1].coordinator;
        there.say(CoordinatorFrame::GoOn { fence: to.fence });
        for lab in &self.labs {
            lab.coordinator.say(self.places());
        }
    }

    fn places(&self) -> CoordinatorFrame {
        let at = self.at.values().cloned().collect();
        CoordinatorFrame::Ranks { job: JOB, life: self.life, at }
    }

    fn tell(&self, rank: u32, what: &ToRank) {
        let RankAt { fence, workstation, .. } = &self.at[&rank];
        let bytes = postcard::to_stdvec(what).unwrap();
        let (fence, life) = (*fence, self.life);
        let to = workstation.0 as usize - 1;
        self.labs[to].coordinator.say(CoordinatorFrame::ToRank { fence, life, bytes });
    }

    /// Is the coordinator of both until something holds.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        // Guests come after everybody else who wants a core.
        let end = Clock.now() + 6 * LONG;
        while !holds(self) {
            assert!(Clock.now() < end, "never: {what}: {:?} {:?}", self.complaints, self.finished);
            for lab in 0..self.labs.len() {
                while let Some(frame) = self.labs[lab].coordinator.next(Duration::from_millis(1)) {
                    self.hear(lab, frame);
                }
            }
        }
    }

    fn hear(&mut self, lab: usize, frame: AgentFrame) {
        match frame {
            AgentFrame::Relay { to, bytes } => {
                self.relayed += 1;
                if !self.relays {
                    return;
                }
                let from = WorkstationId(u32::try_from(lab).unwrap() + 1);
                let to = &self.labs[to.0 as usize - 1];
                to.coordinator.say(CoordinatorFrame::Relayed { from, bytes });
            }
            AgentFrame::FromRank { fence, bytes, .. } => {
                let what: FromRank = postcard::from_bytes(&bytes).unwrap();
                if let Some(rank) = self.rank_of(fence) {
                    self.rank_says(rank, what);
                }
            }
            AgentFrame::Attempt(AttemptEvent::Finished(finished)) => {
                if let Some(rank) = self.rank_of(finished.fence) {
                    self.finished.insert(rank, finished);
                }
            }
            AgentFrame::Attempt(AttemptEvent::WantsAway { fence, keep, .. }) => {
                self.leaving.extend(self.rank_of(fence).map(|rank| (rank, keep)));
            }
            AgentFrame::Attempt(AttemptEvent::Arrived { fence, bytes, frozen }) => {
                self.arrived.insert(fence, (bytes, frozen));
            }
            AgentFrame::Attempt(AttemptEvent::CannotLeave { fence, reason, .. }) => {
                self.stuck.extend(self.rank_of(fence).map(|rank| (rank, reason)));
            }
            AgentFrame::Attempt(
                AttemptEvent::Refused { reason, .. } | AttemptEvent::Retreated { reason, .. },
            ) => panic!("{reason}"),
            _ => {}
        }
    }

    fn rank_of(&self, fence: Fence) -> Option<u32> {
        self.at.values().find(|at| at.fence == fence).map(|at| at.rank)
    }

    fn rank_says(&mut self, rank: u32, what: FromRank) {
        match what {
            FromRank::Ask { request, ask: Ask::Processors } => {
                self.asked += 1;
                let enough = self.enough || !self.arrived.is_empty();
                let count = if enough { PROCESSORS_AFTER } else { 3 };
                let answer = Answer::Processors { count };
                self.tell(rank, &ToRank::Answered { request, answer });
            }
            FromRank::Ended { end, snapshot, sent } => {
                self.ended.insert(rank, end);
                for other in (0..self.ranks).filter(|other| *other != rank) {
                    let last = sent.iter().find(|(to, _)| to.0 == other);
                    let last = last.map_or(0, |(_, last)| *last);
                    let rank = Rank(rank);
                    self.tell(other, &ToRank::PeerEnded { rank, snapshot, end, last });
                }
            }
            FromRank::Cut { snapshot, part, .. } => {
                assert_eq!(snapshot, Snapshot(1));
                self.cuts.insert(rank, part);
            }
            FromRank::Drained => self.drained.push(rank),
            FromRank::Complain(complaint) => self.complaints.push(complaint.to_string()),
            FromRank::Facts { asked: None, facts } => {
                assert!(matches!(facts.stance, Stance::Waits(_)), "{facts:?}");
                self.waits.push(rank);
            }
            FromRank::WhereIs(_) => {
                for lab in &self.labs {
                    lab.coordinator.say(self.places());
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn outcome(&self, rank: u32) -> Option<&Outcome> {
        self.finished.get(&rank).map(|finished| &finished.outcome)
    }

    #[track_caller]
    fn expect_fault(&mut self, part: &str) {
        self.until("rank 0 is ended", |site| site.finished.contains_key(&0));
        let outcome = self.outcome(0).unwrap();
        let Outcome::Fault(what) = outcome else { panic!("{outcome:?}") };
        assert!(what.contains("rank 0") && what.contains(part), "{what}");
    }

    /// The neighbour has noticed nothing; it goes with the program.
    fn end_neighbour(&self) {
        assert_eq!(self.outcome(1), None);
        for lab in &self.labs {
            for fence in self.at.values().map(|at| at.fence) {
                lab.coordinator.say(CoordinatorFrame::Cancel { fence });
            }
        }
        let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        until("all ranks are gone", || processes_with(&format!("{own} rank ")).is_empty());
    }
}

// ── the tests ──────────────────────────────────────────────────────────────

pub(crate) fn printed(finished: &Finished) -> String {
    match &finished.stdout {
        Printed::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Printed::Staged { .. } => panic!("{finished:?}"),
    }
}

#[track_caller]
pub(crate) fn check_ring(site: &mut Site) {
    site.until("all have finished", |site| site.finished.len() == 4);
    for (rank, finished) in &site.finished {
        assert_eq!(finished.outcome, Outcome::Succeeded, "{finished:?}");
        assert_eq!(printed(finished), format!("rank {rank} of 4: 10\n"));
    }
    assert_eq!(site.complaints, Vec::<String>::new());
}

fn ring() {
    let mut site = Site::new();
    site.offer("ring", 4, |rank| rank as usize % 2);
    check_ring(&mut site);
    assert!(site.relayed > 0);
    site.until("all have ended", |site| site.ended.len() == 4);
    assert!(site.ended.values().all(|end| *end == End::ExitCode(0)), "{:?}", site.ended);
    site.until("nobody lacks anything", |site| site.drained.len() == 4);
}

fn direct() {
    let mut site = Site::new();
    site.addresses = site.labs.iter().map(|lab| lab.coordinator.addresses()).collect();
    assert!(site.addresses.iter().all(|known| !known.is_empty()), "{:?}", site.addresses);
    site.relays = false;
    site.offer("ring", 4, |rank| rank as usize % 2);
    check_ring(&mut site);
    let before = site.relayed;
    site.until("all have ended", |site| site.ended.len() == 4);
    site.until("nobody lacks anything", |site| site.drained.len() == 4);
    // Only while the way was being opened.
    assert!(before < 50, "{before} were relayed");
}

fn unreachable() {
    let mut site = Site::new();
    site.addresses = vec![vec!["127.0.0.1:9".parse().unwrap()]; 2];
    site.offer("ring", 4, |rank| rank as usize % 2);
    check_ring(&mut site);
    assert!(site.relayed > 0);
}

fn without_coordinator() {
    let mut site = Site::new();
    site.offer("ring", 2, |_| 0);
    site.until("both have finished", |site| site.finished.len() == 2);
    assert!(site.finished.values().all(|finished| finished.outcome == Outcome::Succeeded));
    assert_eq!(site.relayed, 0);
}

fn garbage() {
    let mut site = Site::new();
    site.offer("garbage", 2, |_| 0);
    site.expect_fault("broke the protocol of its pipes");
    site.end_neighbour();
}

fn garbage_and_exit() {
    let mut site = Site::new();
    site.offer("garbage-exit", 2, |_| 0);
    site.expect_fault("broke the protocol of its pipes");
    site.end_neighbour();
}

fn flood() {
    let mut site = Site::new();
    site.offer("flood", 2, |rank| rank as usize);
    site.expect_fault("floods rank 1");
    site.end_neighbour();
}

fn nobody() {
    let mut site = Site::new();
    site.offer("nobody", 2, |_| 0);
    site.expect_fault("sends to rank 99");
    site.end_neighbour();
}

fn deaf() {
    let mut site = Site::new();
    site.offer("deaf", 4, |rank| rank as usize % 2);
    let talkers = |site: &Site| [2, 3].iter().all(|rank| site.finished.contains_key(rank));
    site.until("the others have talked", talkers);
    assert!([2, 3].iter().all(|rank| site.outcome(*rank) == Some(&Outcome::Succeeded)));
    site.until("the sender is known to wait", |site| site.waits.contains(&0));
    assert_eq!(site.outcome(0), None);
    site.end_neighbour();
}

fn long_wait() {
    let mut site = Site::new();
    site.offer("waiting", 2, |_| 0);
    site.until("a wait is told", |site| !site.waits.is_empty());
    assert!(site.waits.iter().all(|rank| *rank == 1), "{:?}", site.waits);
    site.end_neighbour();
}

fn snapshot() {
    let mut site = Site::new();
    site.offer("steps", 2, |rank| rank as usize);
    site.until("one has saved", |site| site.asked > 0);
    // The other hears of it by the first's messages.
    go_back(&mut site, "steps");
    for finished in site.finished.values() {
        assert_eq!(finished.outcome, Outcome::Succeeded, "{finished:?}");
        let from: u32 = printed(finished).trim().strip_prefix("from ").unwrap().parse().unwrap();
        assert!(from >= SAVED_BY, "{from}");
    }
    assert_eq!(site.complaints, Vec::<String>::new());
}

/// To a snapshot of now.
fn go_back(site: &mut Site, program: &str) {
    site.tell(0, &ToRank::Cut(Snapshot(1)));
    site.until("both have taken part", |site| site.cuts.len() == 2);
    let old: Vec<Fence> = site.at.values().map(|at| at.fence).collect();
    for (lab, fence) in site.labs.iter().zip(old) {
        lab.coordinator.say(CoordinatorFrame::Cancel { fence });
    }
    assert_eq!(site.finished.len(), 0, "the cut was to be in the middle");
    site.life = Life(2);
    site.enough = true;
    site.offer(program, 2, |rank| rank as usize);
    site.until("both have finished", |site| site.finished.len() == 2);
}

fn snapshot_of_images() {
    if !is_root() {
        gleaner_skip::without_lab("images can be taken by root only");
        return;
    }
    let mut site = Site::new();
    site.offer("marks", 2, |rank| rank as usize);
    site.until("one is beyond its boundary", |site| site.asked > 0);
    let died = Clock.wall();
    go_back(&mut site, "marks");
    for finished in site.finished.values() {
        assert_eq!(finished.outcome, Outcome::Succeeded, "{finished:?}");
        check_done_again(&printed(finished), died);
    }
    assert_eq!(site.complaints, Vec::<String>::new());
}

fn newer_life() {
    let mut site = Site::new();
    site.offer("waiting", 2, |rank| rank as usize);
    site.until("a wait is told", |site| !site.waits.is_empty());
    assert!(site.waits.iter().all(|rank| *rank == 1), "{:?}", site.waits);
    let old: Vec<Fence> = site.at.values().map(|at| at.fence).collect();
    for (lab, fence) in site.labs.iter().zip(old) {
        lab.coordinator.say(CoordinatorFrame::Cancel { fence });
    }
    site.life = Life(2);
    site.offer("ring", 4, |rank| rank as usize % 2);
    check_ring(&mut site);
}
