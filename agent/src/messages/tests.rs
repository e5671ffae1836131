//! Posts of several workstations, and threads as their ranks' processes.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as PipeRead, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use gleaner_agent_core::guest::NoImage;
use gleaner_common::id::WorkstationId;
use gleaner_common::program::{Life, RankAt};
use gleaner_common::reaction::Keep;
use gleaner_common::wire::AgentFrame;
use gleaner_program::Communicator;
use gleaner_program::live::{Live, Pipes};
use gleaner_program_core::address::{Envelope, Rank, Snapshot, Tag};
use gleaner_program_core::endpoint::Config;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::{Ack, Between, FromRank, Packet, PeerFrame, ToRank};
use tokio::sync::mpsc::unbounded_channel;

use super::*;

const JOB: JobId = JobId(1);
const LIFE: Life = Life(1);
const LONG: Duration = Duration::from_secs(60);

/// Workstations 1, 2, .. and somebody who passes on what they relay.
struct Lab {
    posts: Vec<RouterHandle>,
    told: Vec<PipeRead<LinkEvent>>,
    /// Keeps the ways to the coordinator open.
    _frames: Vec<UnboundedSender<(u64, AgentFrame)>>,
    /// What ranks have said when they ended.
    ended: PipeRead<FromRank>,
    over: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

/// A router with a thread of its own.
fn start(
    frames: Frames,
    requests: UnboundedSender<IoRequest>,
    event_loop: ToEventLoop,
) -> RouterHandle {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (handle, watch) = RouterHandle::new(runtime.handle().clone(), frames, requests, event_loop);
    std::thread::spawn(move || runtime.block_on(watch.run()));
    handle
}

fn at(rank: u32, fence: u32, workstation: u32) -> RankAt {
    let (fence, workstation) = (Fence::of(fence), WorkstationId(workstation));
    RankAt { rank, fence, workstation, name: String::new(), addresses: vec![] }
}

impl Lab {
    fn new(workstations: u32) -> Self {
        let (mut posts, mut told, mut frames, mut outgoing) = (vec![], vec![], vec![], vec![]);
        for own in 1..=workstations {
            let (sender, receiver) = unbounded_channel();
            let (requests, _) = unbounded_channel();
            let (event_loop, heard) = ToEventLoop::to_test();
            let handle = start(sender.downgrade(), requests, event_loop);
            handle.deliver(RouterCommand::Up { session: 1, own: WorkstationId(own) });
            posts.push(handle);
            told.push(heard);
            frames.push(sender);
            outgoing.push(receiver);
        }
        let (says, ended) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let (stop, all) = (Arc::clone(&over), posts.clone());
        let relay = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for ((handle, receiver), from) in all.iter().zip(&mut outgoing).zip(1..) {
                    while let Ok((_, frame)) = receiver.try_recv() {
                        handle.waiting().done(&frame);
                        if let AgentFrame::Relay { to, bytes } = frame {
                            all[to.0 as usize - 1].deliver(RouterCommand::Relayed {
                                from: WorkstationId(from),
                                bytes,
                            });
                        } else if let AgentFrame::FromRank { bytes, .. } = frame
                            && let Ok(said @ FromRank::Ended { .. }) = postcard::from_bytes(&bytes)
                        {
                            let _ = says.send(said);
                        }
                    }
                }
                std::thread::yield_now();
            }
        });
        Self { posts, told, _frames: frames, ended, over, relay: Some(relay) }
    }

    /// Where ranks are, for those who ask.
    fn places(&self, at: &[(u32, u32, u32)]) {
        let at: Vec<RankAt> = at
            .iter()
            .map(|(rank, fence, workstation)| self::at(*rank, *fence, *workstation))
            .collect();
        for handle in &self.posts {
            handle.deliver(RouterCommand::Ranks { job: JOB, life: LIFE, at: at.clone() });
        }
    }

    fn begin(&self, workstation: u32, rank: u32, fence: u32, log_bytes_max: u64) -> PipeEnds {
        let (ends, theirs) = pair().unwrap();
        let config = Config {
            rank: Rank(rank),
            ranks: 2,
            first: Rank(0),
            members: 2,
            parent: None,
            ranks_max: 2,
            log_bytes_max,
            snapshot: Snapshot(0),
            floor: Fence::of(0),
        };
        let fence = Fence::of(fence);
        let begin = Begin { fence, job: JOB, life: LIFE, config, cut: None, ends };
        self.handle(workstation).leave(RouterCommand::Begin(Box::new(begin)));
        theirs
    }

    fn handle(&self, workstation: u32) -> &RouterHandle {
        &self.posts[workstation as usize - 1]
    }

    #[track_caller]
    fn told(&self, workstation: u32) -> RouterEvent {
        let event = self.told[workstation as usize - 1].recv_timeout(LONG).unwrap();
        let LinkEvent::Router(told) = event else { panic!("{event:?}") };
        told
    }

    #[track_caller]
    fn depart(&self, workstation: u32, fence: u32, keep: Keep) -> Result<Vec<u8>, String> {
        self.pack(workstation, fence, keep).map(|packed| packed.bytes)
    }

    #[track_caller]
    fn pack(&self, workstation: u32, fence: u32, keep: Keep) -> Result<Packed, String> {
        self.handle(workstation).leave(RouterCommand::Depart { fence: Fence::of(fence), keep });
        let told = self.told(workstation);
        let RouterEvent::Packed { packed, .. } = told else { panic!("{told:?}") };
        packed
    }

    /// Takes rank 1 in.
    #[track_caller]
    fn arrive(&self, workstation: u32, fence: u32, keep: Keep, packed: Vec<u8>) -> PipeEnds {
        self.unpack(workstation, fence, keep, Packed { bytes: packed, image: None }).unwrap()
    }

    #[track_caller]
    fn unpack(
        &self,
        workstation: u32,
        fence: u32,
        keep: Keep,
        packed: Packed,
    ) -> Result<PipeEnds, String> {
        self.take_in((workstation, 1), fence, keep, packed)
    }

    #[track_caller]
    fn take_in(
        &self,
        (workstation, rank): (u32, u32),
        fence: u32,
        keep: Keep,
        packed: Packed,
    ) -> Result<PipeEnds, String> {
        let (ends, theirs) = pair().unwrap();
        let fence = Fence::of(fence);
        let (job, life, rank) = (JOB, LIFE, Rank(rank));
        let Packed { bytes: packed, image } = packed;
        let arrive = Arrive { fence, job, life, rank, keep, packed, image, ends };
        self.handle(workstation).leave(RouterCommand::Arrive(Box::new(arrive)));
        let told = self.told(workstation);
        let RouterEvent::Unpacked { done, .. } = told else { panic!("{told:?}") };
        done.map(|()| theirs)
    }

    /// How many packets wait for the coordinator's word, and how many were forged.
    fn early_and_forged(&self, workstation: u32) -> (usize, u64) {
        self.handle(workstation).0.locked().router.early_and_forged(JOB)
    }

    /// Stands in for rank 1's event loop while its image is taken.
    #[track_caller]
    fn image(&self, workstation: u32, fence: u32, done: Result<KeptImage, NoImage>) {
        let (fence, handle) = (Fence::of(fence), self.handle(workstation));
        assert!(matches!(self.told(workstation), RouterEvent::WantsImage(of) if of == fence));
        handle.leave(RouterCommand::Image(fence));
        let told = self.told(workstation);
        assert!(matches!(&told, RouterEvent::Emptied { done: Ok(()), .. }), "{told:?}");
        handle.leave(RouterCommand::Imaged { fence, done, stood: Duration::from_millis(1) });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.relay.take().unwrap().join();
    }
}

fn connect(ends: PipeEnds) -> Communicator {
    let (live, welcome) = Live::connect(Pipes::new(ends.read, ends.write)).unwrap();
    Communicator::new(Box::new(live), welcome, None)
}

/// A process that does one thing after the other, and nothing in between: it can
/// be taken as frozen.
struct Process {
    act: Option<SyncSender<Act>>,
    done: PipeRead<()>,
    thread: Option<JoinHandle<()>>,
    pipes: (RawFd, RawFd),
}

type Act = Box<dyn FnOnce(&mut Communicator) + Send>;

impl Process {
    fn start(ends: PipeEnds) -> Self {
        let pipes = (ends.read.as_raw_fd(), ends.write.as_raw_fd());
        let (act, acts) = sync_channel::<Act>(0);
        let (say, done) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let mut comm = connect(ends);
            while let Ok(act) = acts.recv() {
                act(&mut comm);
                say.send(()).unwrap();
            }
        });
        Self { act: Some(act), done, thread: Some(thread), pipes }
    }

    #[track_caller]
    fn does(&self, act: impl FnOnce(&mut Communicator) + Send + 'static) {
        self.begins(act);
        self.ends();
    }

    fn begins(&self, act: impl FnOnce(&mut Communicator) + Send + 'static) {
        self.act.as_ref().unwrap().send(Box::new(act)).unwrap();
    }

    #[track_caller]
    fn ends(&self) {
        self.done.recv_timeout(LONG).expect("it does not come to an end");
    }

    /// Gives the frozen process other pipes under the same numbers.
    #[expect(unsafe_code, reason = "what a restore does to a process")]
    fn replug(&self, ends: &PipeEnds) {
        // SAFETY: both numbers are the process's pipes, which stay open under
        // them; nobody uses them at this moment.
        unsafe {
            assert!(libc::dup2(ends.read.as_raw_fd(), self.pipes.0) >= 0);
            assert!(libc::dup2(ends.write.as_raw_fd(), self.pipes.1) >= 0);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.act = None;
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

/// Sends messages with these numbers to rank 1; one is longer than a piece.
fn send(numbers: std::ops::Range<u8>) -> impl FnOnce(&mut Communicator) + Send {
    move |comm| {
        for number in numbers {
            comm.send(1, 7, &vec![number; if number == 1 { 300_000 } else { 1 }]).unwrap();
        }
    }
}

/// Receives just these.
fn receive(numbers: std::ops::Range<u8>) -> impl FnOnce(&mut Communicator) + Send {
    move |comm| {
        for number in numbers {
            let bytes = comm.recv(0, 7).unwrap().bytes;
            let length = if number == 1 { 300_000 } else { 1 };
            assert!(bytes.len() == length && bytes.iter().all(|it| *it == number), "{number}");
        }
    }
}

/// Rank 0 at workstation 1, rank 1 at workstation 2.
fn two(log_bytes_max: u64) -> (Lab, Process, Process) {
    let lab = Lab::new(3);
    lab.places(&[(0, 1, 1), (1, 2, 2)]);
    let [zero, one] =
        [(1, 0, 1), (2, 1, 2)].map(|(at, rank, fence)| lab.begin(at, rank, fence, log_bytes_max));
    (lab, Process::start(zero), Process::start(one))
}

#[test]
fn a_rank_that_moves_misses_nothing_and_hears_nothing_twice() {
    let (lab, zero, one) = two(0);
    zero.does(send(0..3));
    one.does(receive(0..1));
    one.does(|comm| comm.send(0, 8, b"from the old place").unwrap());
    let packed = lab.depart(2, 2, Keep::State).unwrap();
    // To the old place, which is left.
    zero.does(send(3..4));
    let ends = lab.arrive(3, 3, Keep::State, packed);
    one.replug(&ends);
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    lab.handle(2).leave(RouterCommand::Left {
        fence: Fence::of(2),
        to: Fence::of(3),
        at: WorkstationId(3),
    });
    lab.places(&[(1, 3, 3)]);
    one.does(receive(1..4));
    one.does(|comm| comm.send(0, 8, b"from the new place").unwrap());
    zero.does(|comm| {
        assert_eq!(comm.recv(1, 8).unwrap().bytes, b"from the old place");
        assert_eq!(comm.recv(1, 8).unwrap().bytes, b"from the new place");
    });
    zero.does(send(4..6));
    one.does(receive(4..6));
}

/// An enrolled agent says something in the name of rank 0, as a rank of its own
/// that moved would, and as one that stayed; then the coordinator's word comes.
#[test]
fn nobody_speaks_for_a_rank_but_the_agent_that_the_coordinator_names() {
    let (lab, zero, one) = two(0);
    lab.handle(2).deliver(RouterCommand::Ranks {
        job: JOB,
        life: LIFE,
        at: vec![RankAt { name: "third".into(), ..at(9, 9, 3) }],
    });
    let forge = |fence: u32, from: Peer, word: &'static [u8]| {
        let envelope = Envelope::whole(gleaner_program_core::address::Communicator(0), Tag(8));
        let (snapshot, ack) = (Snapshot(0), Ack { received: 0, limit: 1 << 20, lost: false });
        let payload = Bytes::from_static(word);
        let frame = PeerFrame::Data { snapshot, ack, number: 1, envelope, payload };
        let (to, rank, fence) = (Rank(1), Rank(0), Fence::of(fence));
        let packet = Packet { job: JOB, life: LIFE, to, from: rank, fence, frame };
        let frames = vec![Between::Packet(packet)];
        lab.handle(2).deliver(RouterCommand::Packets { from, frames });
    };
    let direct = |name: &str| Peer::Direct(name.into());
    for from in [direct("third"), direct("stranger"), Peer::Relayed(WorkstationId(3))] {
        forge(1, from.clone(), b"forged");
        forge(2, from, b"of an attempt that there is not");
    }
    // One name is known, and is not where rank 0 is; the rest may become known.
    assert_eq!(lab.early_and_forged(2), (4, 2));
    zero.does(|comm| comm.send(1, 8, b"true").unwrap());
    one.does(|comm| assert_eq!(comm.recv(0, 8).unwrap().bytes, b"true"));
    // Nor was anybody persuaded that rank 0 is elsewhere.
    one.does(|comm| comm.send(0, 8, b"secret").unwrap());
    zero.does(|comm| assert_eq!(comm.recv(1, 8).unwrap().bytes, b"secret"));
}

#[test]
fn a_stranger_does_not_take_the_room_of_those_who_come_early() {
    let (lab, _zero, _one) = two(0);
    let frame = PeerFrame::Ack { snapshot: Snapshot(0), ack: Ack::default() };
    let (to, from, fence) = (Rank(1), Rank(0), Fence::of(9));
    let packet = Packet { job: JOB, life: LIFE, to, from, fence, frame };
    for (peer, waiting) in [("stranger", 64), ("moved", 65)] {
        let count = if peer == "moved" { 1 } else { 10_000 };
        let frames = vec![Between::Packet(packet.clone()); count];
        lab.handle(2).deliver(RouterCommand::Packets { from: Peer::Direct(peer.into()), frames });
        assert_eq!(lab.early_and_forged(2), (waiting, 0));
    }
}

/// A name that was taken away and given to another machine.
#[test]
fn a_name_that_was_given_away_speaks_for_its_new_workstation_only() {
    let (lab, _zero, _one) = two(0);
    let named =
        |rank, fence, workstation| RankAt { name: "again".into(), ..at(rank, fence, workstation) };
    let places = vec![named(0, 1, 1), named(9, 9, 7)];
    lab.handle(2).deliver(RouterCommand::Ranks { job: JOB, life: LIFE, at: places });
    let frame = PeerFrame::Ack { snapshot: Snapshot(0), ack: Ack::default() };
    let (to, from, fence) = (Rank(1), Rank(0), Fence::of(1));
    let packet = Packet { job: JOB, life: LIFE, to, from, fence, frame };
    let frames = vec![Between::Packet(packet)];
    lab.handle(2).deliver(RouterCommand::Packets { from: Peer::Direct("again".into()), frames });
    assert_eq!(lab.early_and_forged(2), (0, 1));
}

/// It has begun elsewhere, and its word is quicker than the coordinator's.
#[test]
fn what_comes_before_the_place_of_its_sender_waits_for_it() {
    let (lab, zero, one) = two(0);
    // One that was not welcomed yet would wait at the pipes it has now.
    one.does(|comm| assert_eq!(comm.rank(), 1));
    let packed = lab.depart(2, 2, Keep::State).unwrap();
    let ends = lab.arrive(3, 3, Keep::State, packed);
    one.replug(&ends);
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    one.does(|comm| comm.send(0, 8, b"early").unwrap());
    let begun = Clock.now();
    while lab.early_and_forged(1).0 == 0 {
        assert!(Clock.now().since(begun) < LONG, "nothing has come early");
        std::thread::yield_now();
    }
    lab.places(&[(1, 3, 3)]);
    assert_eq!(lab.early_and_forged(1), (0, 0));
    zero.does(|comm| assert_eq!(comm.recv(1, 8).unwrap().bytes, b"early"));
}

#[test]
fn two_ranks_that_change_places_at_once_find_each_other_again() {
    let (lab, zero, one) = two(0);
    zero.does(send(0..1));
    one.does(receive(0..1));
    let [at_two, at_one] = [(1, 1), (2, 2)].map(|(at, fence)| {
        let bytes = lab.depart(at, fence, Keep::State).unwrap();
        Packed { bytes, image: None }
    });
    let ends = lab.take_in((2, 0), 3, Keep::State, at_two).unwrap();
    zero.replug(&ends);
    let ends = lab.take_in((1, 1), 4, Keep::State, at_one).unwrap();
    one.replug(&ends);
    for (at, fence) in [(2, 3), (1, 4)] {
        lab.handle(at).leave(RouterCommand::SetGoing(Fence::of(fence)));
    }
    // Both say something before they hear where the other is.
    zero.does(send(1..3));
    one.does(|comm| comm.send(0, 8, b"from the new place").unwrap());
    for (at, fence, to, there) in [(1, 1, 3, 2), (2, 2, 4, 1)] {
        let (fence, to, at_new) = (Fence::of(fence), Fence::of(to), WorkstationId(there));
        lab.handle(at).leave(RouterCommand::Left { fence, to, at: at_new });
    }
    lab.places(&[(0, 3, 2), (1, 4, 1)]);
    one.does(receive(1..3));
    zero.does(|comm| assert_eq!(comm.recv(1, 8).unwrap().bytes, b"from the new place"));
    assert_eq!([1, 2].map(|at| lab.early_and_forged(at).1), [0, 0]);
}

#[test]
fn a_rank_that_leaves_and_moves_before_it_ends_has_left_all_the_same() {
    let (lab, _zero, one) = two(0);
    // It ends without waiting for an answer, and here none ever comes.
    one.does(|comm| comm.leave().unwrap());
    let packed = lab.depart(2, 2, Keep::State).unwrap();
    let ends = lab.arrive(3, 3, Keep::State, packed);
    one.replug(&ends);
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    lab.handle(2).leave(RouterCommand::Left {
        fence: Fence::of(2),
        to: Fence::of(3),
        at: WorkstationId(3),
    });
    lab.places(&[(1, 3, 3)]);
    let (fence, end) = (Fence::of(3), End::ExitCode(0));
    lab.handle(3).leave(RouterCommand::Exited { fence, end, stays: false });
    let ended = lab.ended.recv_timeout(LONG).unwrap();
    assert!(matches!(ended, FromRank::Ended { end: End::Left, .. }), "{ended:?}");
}

#[test]
fn a_rank_that_stays_after_all_misses_nothing() {
    let (lab, zero, one) = two(0);
    zero.does(send(0..3));
    one.does(receive(0..1));
    lab.depart(2, 2, Keep::State).unwrap();
    zero.does(send(3..5));
    lab.handle(2).leave(RouterCommand::Stayed(Fence::of(2)));
    one.does(receive(1..5));
    one.does(|comm| comm.send(0, 8, b"still here").unwrap());
    zero.does(|comm| assert_eq!(comm.recv(1, 8).unwrap().bytes, b"still here"));
}

#[test]
fn a_rank_rolled_back_elsewhere_has_its_state_and_the_messages_since() {
    let (lab, zero, one) = two(1 << 20);
    zero.does(send(0..4));
    one.does(receive(0..2));
    one.does(|comm| comm.save(b"two received").unwrap());
    one.does(receive(2..3));
    one.does(|comm| comm.send(0, 8, b"once").unwrap());
    let packed = lab.depart(2, 2, Keep::SubtaskStart).unwrap();
    let ends = lab.arrive(3, 3, Keep::SubtaskStart, packed);
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    lab.handle(2).leave(RouterCommand::Left {
        fence: Fence::of(2),
        to: Fence::of(3),
        at: WorkstationId(3),
    });
    lab.places(&[(1, 3, 3)]);
    let anew = Process::start(ends);
    anew.does(|comm| assert_eq!(comm.restore().as_deref(), Some(&b"two received"[..])));
    anew.does(receive(2..4));
    // Said before: it goes no further.
    anew.does(|comm| comm.send(0, 8, b"once").unwrap());
    anew.does(|comm| comm.send(0, 8, b"more").unwrap());
    zero.does(|comm| {
        assert_eq!(comm.recv(1, 8).unwrap().bytes, b"once");
        assert_eq!(comm.recv(1, 8).unwrap().bytes, b"more");
    });
}

/// Stands at a boundary until its image is there.
fn boundary(comm: &mut Communicator) {
    comm.boundary().unwrap();
}

/// What comes after the image is never read from the old pipes: the thread is
/// as its image would be.
#[test]
fn a_rank_rolled_back_to_its_image_has_what_it_had_not_received_and_the_messages_since() {
    let (lab, zero, one) = two(1 << 20);
    zero.does(send(0..3));
    zero.does(|comm| comm.send(1, 9, b"all").unwrap());
    one.does(receive(0..1));
    // Not being frozen, it must have read all that it will not read again.
    one.does(|comm| assert_eq!(comm.recv(0, 9).unwrap().bytes, b"all"));
    one.begins(boundary);
    lab.image(2, 2, Ok(KeptImage::of(b"image")));
    one.ends();
    zero.does(send(3..4));
    for (from, to, fence) in [(2, 3, 3), (3, 1, 4), (1, 2, 5)] {
        let packed = lab.pack(from, fence - 1, Keep::SubtaskStart).unwrap();
        assert_eq!(packed.image.as_ref().map(|image| image.bytes), Some(5));
        let ends = lab.unpack(to, fence, Keep::SubtaskStart, packed).unwrap();
        one.replug(&ends);
        lab.handle(to).leave(RouterCommand::SetGoing(Fence::of(fence)));
        let left = Fence::of(fence - 1);
        lab.handle(from).leave(RouterCommand::Left {
            fence: left,
            to: Fence::of(fence),
            at: WorkstationId(to),
        });
        lab.places(&[(1, fence, to)]);
    }
    one.does(receive(1..4));
    one.does(|comm| comm.send(0, 8, b"once").unwrap());
    zero.does(|comm| assert_eq!(comm.recv(1, 8).unwrap().bytes, b"once"));
}

#[test]
fn a_rank_without_an_image_goes_on_and_goes_back_to_its_start() {
    let (lab, _zero, one) = two(1 << 20);
    one.begins(boundary);
    lab.image(2, 2, Err(NoImage::Cannot("it holds a socket".into())));
    one.ends();
    let packed = lab.pack(2, 2, Keep::SubtaskStart).unwrap();
    assert!(packed.image.is_none());
    let ends = lab.unpack(3, 3, Keep::SubtaskStart, packed).unwrap();
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    Process::start(ends).does(|comm| assert_eq!(comm.restore(), None));
}

#[test]
fn an_image_does_not_go_along_with_the_process_and_another_is_wanted_there() {
    let (lab, _zero, one) = two(1 << 20);
    one.begins(boundary);
    lab.image(2, 2, Ok(KeptImage::of(b"image")));
    one.ends();
    let packed = lab.pack(2, 2, Keep::State).unwrap();
    assert!(packed.image.is_none());
    let ends = lab.unpack(3, 3, Keep::State, packed).unwrap();
    one.replug(&ends);
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    let refused = lab.depart(3, 3, Keep::SubtaskStart).unwrap_err();
    assert_eq!(refused, "rank 1 cannot go back: no state is kept to go back to");
    lab.handle(3).leave(RouterCommand::Stayed(Fence::of(3)));
    one.begins(|comm| {
        while !comm.wants_state().unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
        boundary(comm);
    });
    lab.image(3, 3, Ok(KeptImage::of(b"another")));
    one.ends();
    assert!(lab.pack(3, 3, Keep::SubtaskStart).unwrap().image.is_some());
}

#[test]
fn a_rank_that_goes_back_to_an_image_is_not_taken_in_without_it() {
    let (lab, _zero, one) = two(1 << 20);
    one.begins(boundary);
    lab.image(2, 2, Ok(KeptImage::of(b"image")));
    one.ends();
    let packed = lab.pack(2, 2, Keep::SubtaskStart).unwrap();
    let without = Packed { image: None, ..packed };
    let refused = lab.unpack(3, 3, Keep::SubtaskStart, without).unwrap_err();
    assert_eq!(refused, "rank 1 comes without its image");
}

#[test]
fn a_rank_of_which_nothing_is_kept_begins_elsewhere_with_what_it_had_not_received() {
    let (lab, zero, one) = two(0);
    zero.does(send(0..1));
    one.does(receive(0..1));
    lab.handle(2).leave(RouterCommand::Retreat { fence: Fence::of(2), within: LONG });
    let packed = lab.depart(2, 2, Keep::Nothing).unwrap();
    zero.does(send(1..3));
    let ends = lab.arrive(3, 3, Keep::Nothing, packed);
    // A new process is welcomed first.
    let (fence, bytes) = (Fence::of(3), postcard::to_stdvec(&ToRank::Ranks(2)).unwrap());
    lab.handle(3).leave(RouterCommand::ToRank { fence, life: LIFE, bytes });
    lab.handle(3).leave(RouterCommand::SetGoing(Fence::of(3)));
    lab.handle(2).leave(RouterCommand::Left {
        fence: Fence::of(2),
        to: Fence::of(3),
        at: WorkstationId(3),
    });
    lab.places(&[(1, 3, 3)]);
    let anew = Process::start(ends);
    anew.does(|comm| assert_eq!((comm.restore(), comm.size()), (None, 2)));
    anew.does(receive(1..3));
}

#[test]
fn a_rank_that_keeps_nothing_cannot_be_rolled_back() {
    let (lab, _zero, one) = two(0);
    one.does(|comm| comm.send(0, 8, b"hello").unwrap());
    let refused = lab.depart(2, 2, Keep::SubtaskStart).unwrap_err();
    assert_eq!(refused, "rank 1 cannot go back: no state is kept to go back to");
    lab.handle(2).leave(RouterCommand::Stayed(Fence::of(2)));
    one.does(|comm| comm.send(0, 8, b"on it goes").unwrap());
}

#[test]
fn what_is_no_packed_rank_is_refused() {
    let lab = Lab::new(1);
    for packed in [vec![], vec![0xff; 100]] {
        let (ends, _theirs) = pair().unwrap();
        let (fence, job, life, rank) = (Fence::of(1), JOB, LIFE, Rank(1));
        let (keep, image) = (Keep::State, None);
        let arrive = Arrive { fence, job, life, rank, keep, packed, image, ends };
        lab.handle(1).leave(RouterCommand::Arrive(Box::new(arrive)));
        let RouterEvent::Unpacked { done, .. } = lab.told(1) else { panic!("no answer") };
        assert!(done.is_err());
    }
}

#[test]
fn a_pipe_that_closes_as_its_rank_is_let_go_keeps_nobody_from_being_heard() {
    let lab = Lab::new(1);
    for fence in 1..=1_000 {
        let PipeEnds { read, write } = lab.begin(1, 0, fence, 0);
        // What was left before is done about first.
        lab.handle(1).deliver(RouterCommand::Forget(JobId(9)));
        // Both wake the router, which may hear of either first.
        let _ = rustix::io::write(&write, b"no frame");
        drop((read, write));
        lab.handle(1).leave(RouterCommand::Dropped(Fence::of(fence)));
    }
    let next = Process::start(lab.begin(1, 0, 1_001, 0));
    next.does(|comm| assert_eq!(comm.rank(), 0));
}
