//! The target's end: a guest's state, as it comes from another agent.
//!
//! A stream may come before the event loop expects it, by another way than the
//! coordinator's word: it is held for a while.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gleaner_agent_core::guest::{self, ARRIVAL_WITHIN};
use gleaner_common::id::Fence;
use gleaner_common::program::{self, Handover, HandoverReply};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::close;
use gleaner_move::{AdaptError, Arrival, ArrivalError, Header, Serving, Terms};
use gleaner_shell::clock::Clock;
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Mover;
use super::kept::{Keeping, KeptImage};
use crate::failure::one_line;
use crate::link::peers::Sender;
use crate::link::{LinkEvent, ToEventLoop};

/// Streams that came before they were expected, of one sender: no other's are in
/// their way.
const EARLY_MAX: usize = 16;

/// The most that a rank's endpoint takes: its log and its windows.
const ENDPOINT_BYTES_MAX: u64 = 160 << 20;

const PIECES: usize = 8;

/// Something comes all the time, once it comes.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// What the event loop waits for.
#[derive(Debug)]
pub(crate) struct Expectation {
    pub(crate) fence: Fence,
    /// Where from, and what shows it; none for what is here already.
    pub(crate) from: Option<program::Arrival>,
    /// The most that its image may be.
    pub(crate) bytes_max: u64,
    /// Where an image is kept that it has gone back to.
    pub(crate) directory: PathBuf,
    /// What it may be and use here.
    pub(crate) terms: Terms,
    /// None where nothing can be brought to life.
    pub(crate) mover: Option<Arc<Mover>>,
}

/// All of it is here that must be for bringing it to life. Its memory may still
/// be on its way.
#[derive(Debug)]
pub(crate) struct KnownGuest {
    /// Who stood still by their own will.
    pub(crate) stopped: Vec<i32>,
    /// A rank's endpoint, packed.
    pub(crate) endpoint: Vec<u8>,
    pub(crate) keep: Keep,
    /// The one that it goes back to: its process stands at a boundary.
    pub(crate) image: Option<KeptImage>,
    /// What serves its process's image: to be held until that stands here.
    pub(crate) serving: Option<Serving>,
    /// The guest has stood still since then, by this machine's clock.
    pub(crate) since: Moment,
}

/// What of a guest comes beside its process's image.
#[derive(Debug)]
struct Beside {
    endpoint: Vec<u8>,
    keep: Keep,
    since: Moment,
}

impl Beside {
    fn known(self) -> KnownGuest {
        let Self { endpoint, keep, since } = self;
        KnownGuest { stopped: vec![], endpoint, keep, image: None, serving: None, since }
    }
}

/// Whom the event loop hears of.
#[derive(Clone, Debug)]
struct Teller {
    event_loop: ToEventLoop,
    fence: Fence,
}

impl Teller {
    fn of(expectation: &Expectation, event_loop: &ToEventLoop) -> Self {
        Self { event_loop: event_loop.clone(), fence: expectation.fence }
    }

    fn header(&self, arrival: &Arrival, header: &Header) {
        let (header, memory) = (Box::new(header.clone()), Arc::clone(arrival.memory()));
        self.event_loop.tell(LinkEvent::Header { fence: self.fence, header, memory });
    }

    fn known(&self, known: KnownGuest) {
        self.event_loop.tell(LinkEvent::Known { fence: self.fence, known: Box::new(known) });
    }

    fn whole(&self, bytes: u64) {
        self.event_loop.guest(self.fence, guest::Event::Whole { bytes });
    }

    fn not_coming(&self, error: &TakeError) {
        self.event_loop.guest(self.fence, guest::Event::NotComing(error.to_string()));
    }
}

#[derive(Debug)]
struct Stream {
    what: Handover,
    sender: Sender,
    writer: FrameWriter,
    reader: FrameReader,
    came: Moment,
}

/// All that is on its way here.
#[derive(Debug)]
pub(crate) struct Arrivals {
    event_loop: ToEventLoop,
    expected: BTreeMap<Fence, Expectation>,
    early: Vec<Stream>,
    /// Being taken in: whoever sends hears how it ended.
    taking: BTreeMap<Fence, oneshot::Sender<HandoverReply>>,
}

/// Why it is not here.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error("called off: {0}")]
    CalledOff(String),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("its endpoint takes {0} bytes: expected at most {ENDPOINT_BYTES_MAX}")]
    Endpoint(u64),
    #[error("it stops coming for {} s", STALLED_AFTER.as_secs())]
    Stalled,
    #[error("{}", one_line(.0))]
    Arrival(#[from] ArrivalError),
    #[error("{}", one_line(.0))]
    Adapt(#[from] AdaptError),
    #[error("its image cannot be kept: {0}")]
    Keep(#[source] io::Error),
    #[error("its image cannot be handed to criu: {0}")]
    Serve(#[source] io::Error),
    #[error("guests cannot be restored here")]
    Immobile,
    #[error("it does not fit: {0}")]
    Unsuitable(String),
    #[error("no thread to take it in")]
    Thread,
}

impl Arrivals {
    pub(crate) fn new(event_loop: ToEventLoop) -> Self {
        Self { event_loop, expected: BTreeMap::new(), early: vec![], taking: BTreeMap::new() }
    }

    /// The event loop has a place for it.
    pub(crate) fn expect(&mut self, expectation: Expectation) {
        let fence = expectation.fence;
        tracing::debug!(%fence, "a guest is expected");
        self.expected.insert(fence, expectation);
        let (came, early) =
            std::mem::take(&mut self.early).into_iter().partition(|it| it.what.new == fence);
        self.early = early;
        let came: Vec<Stream> = came;
        for stream in came {
            self.meet(stream);
        }
    }

    /// Somebody sends it.
    pub(crate) fn arrived(
        &mut self,
        what: Handover,
        sender: Sender,
        (writer, reader): (FrameWriter, FrameReader),
    ) {
        let fence = what.new;
        tracing::debug!(%fence, "a guest comes");
        let stream = Stream { what, sender, writer, reader, came: Clock.now() };
        if self.expected.contains_key(&fence) {
            return self.meet(stream);
        }
        self.drop_late();
        let theirs = self.early.iter().filter(|early| early.sender == stream.sender);
        if theirs.count() < EARLY_MAX {
            self.early.push(stream);
        } else {
            refuse(stream);
        }
    }

    /// Is it the one that is expected? Whoever else it is, that may still come.
    fn meet(&mut self, stream: Stream) {
        let fence = stream.what.new;
        let expectation = self.expected.get(&fence);
        let from = expectation.and_then(|expectation| expectation.from.as_ref());
        if is_it(from, &stream.what, &stream.sender)
            && let Some(expectation) = self.expected.remove(&fence)
        {
            return self.begin(expectation, stream);
        }
        tracing::warn!(%fence, sender = ?stream.sender, "not the guest that is expected here");
        refuse(stream);
    }

    /// How it ended, or that it is not wanted any more.
    pub(crate) fn answer(&mut self, fence: Fence, reply: HandoverReply) {
        self.expected.remove(&fence);
        if let Some(answer) = self.taking.remove(&fence) {
            let _ = answer.send(reply);
        }
    }

    /// Takes in what is here already: a rank, and the image it goes back to.
    pub(crate) fn take_here(&self, expectation: Expectation, endpoint: Vec<u8>, image: Vec<u8>) {
        let beside = Beside { endpoint, keep: Keep::SubtaskStart, since: Clock.now() };
        let teller = Teller::of(&expectation, &self.event_loop);
        tokio::spawn(async move {
            match take_whole(&expectation, beside, image, teller.clone()).await {
                Ok(bytes) => teller.whole(bytes),
                Err(error) => teller.not_coming(&error),
            }
        });
    }

    /// Who was not expected in time.
    fn drop_late(&mut self) {
        let now = Clock.now();
        let is_late = |stream: &mut Stream| now.since(stream.came) >= ARRIVAL_WITHIN;
        self.early.extract_if(.., is_late).for_each(refuse);
    }

    fn begin(&mut self, expectation: Expectation, stream: Stream) {
        let fence = expectation.fence;
        self.taking.retain(|_, answer| !answer.is_closed());
        let (answer, answered) = oneshot::channel();
        self.taking.insert(fence, answer);
        let teller = Teller::of(&expectation, &self.event_loop);
        tokio::spawn(async move {
            teller.event_loop.guest(fence, guest::Event::Coming);
            let Stream { what, mut writer, mut reader, came, .. } = stream;
            let mut answered = answered;
            let since = came - what.frozen;
            let taken = tokio::select! {
                taken = take_in(&expectation, what, &mut reader, since, &teller) => taken,
                reply = &mut answered => Err(TakeError::CalledOff(match reply {
                    Ok(HandoverReply::No { reason }) => reason,
                    Ok(HandoverReply::Taken) | Err(_) => "not wanted any more".into(),
                })),
            };
            let reply = match taken {
                Ok(bytes) => {
                    teller.whole(bytes);
                    answered.await.unwrap_or(HandoverReply::No { reason: "called off".into() })
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::info!(%fence, "a guest was not taken in: {reason}");
                    reader.stop(close::DONE);
                    if !matches!(error, TakeError::CalledOff(_)) {
                        teller.not_coming(&error);
                    }
                    HandoverReply::No { reason }
                }
            };
            let _ = writer.send(&reply).await;
            writer.finish();
        });
    }
}

/// Is this what the coordinator has announced, from where it is to come? The reason
/// why not is for the log: who guesses is told nothing.
fn is_it(expected: Option<&program::Arrival>, what: &Handover, sender: &Sender) -> bool {
    expected.is_some_and(|expected| {
        let is_sender = match sender {
            // It has looked who sends it.
            Sender::Coordinator => true,
            Sender::Agent(name) => *name == expected.name,
        };
        is_sender && what.old == expected.old && what.ticket == expected.ticket
    })
}

fn refuse(stream: Stream) {
    let Stream { what, mut writer, mut reader, .. } = stream;
    let reason = format!("attempt {} is not expected here", what.new);
    reader.stop(close::DONE);
    tokio::spawn(async move {
        let _ = writer.send(&HandoverReply::No { reason }).await;
        writer.finish();
    });
}

/// How many bytes it was.
async fn take_in(
    expectation: &Expectation,
    what: Handover,
    reader: &mut FrameReader,
    since: Moment,
    teller: &Teller,
) -> Result<u64, TakeError> {
    let (endpoint, mut rest) = read_endpoint(reader, what.endpoint_bytes).await?;
    let keep = what.keep;
    if keep == Keep::SubtaskStart && rest.is_empty() {
        let more = timeout(STALLED_AFTER, reader.next_raw()).await;
        rest = more.map_err(|_| TakeError::Stalled)??.unwrap_or_default();
    }
    let beside_bytes = endpoint.len() as u64;
    let beside = Beside { endpoint, keep, since };
    let goes_back = keep == Keep::SubtaskStart && !rest.is_empty();
    if keep != Keep::State && !goes_back {
        teller.known(beside.known());
        return Ok(beside_bytes);
    }
    let (pieces, coming) = mpsc::channel(PIECES);
    let ended = begin_taking(expectation, beside, coming, teller.clone())?;
    let passed = pass(rest, reader, &pieces).await;
    // The end of the pieces is the end of the image.
    drop(pieces);
    let taken = ended.await.map_err(|_| TakeError::Thread)?;
    match (taken, passed) {
        (Ok(bytes), _) => Ok(bytes + beside_bytes),
        // The image is short because nothing came any more.
        (Err(TakeError::Arrival(ArrivalError::Short)), Err(error)) | (Err(error), _) => Err(error),
    }
}

/// Takes in an image that is here whole.
async fn take_whole(
    expectation: &Expectation,
    beside: Beside,
    image: Vec<u8>,
    teller: Teller,
) -> Result<u64, TakeError> {
    let (pieces, coming) = mpsc::channel(1);
    let ended = begin_taking(expectation, beside, coming, teller)?;
    let _ = pieces.send(vec![image.into()]).await;
    drop(pieces);
    ended.await.map_err(|_| TakeError::Thread)?
}

/// Starts the thread that takes an image in, with a copy if it is gone back to.
fn begin_taking(
    expectation: &Expectation,
    beside: Beside,
    coming: mpsc::Receiver<Vec<Bytes>>,
    teller: Teller,
) -> Result<oneshot::Receiver<Result<u64, TakeError>>, TakeError> {
    let mover = expectation.mover.clone().ok_or(TakeError::Immobile)?;
    let (done, ended) = oneshot::channel();
    let (fence, bytes_max) = (expectation.fence, expectation.bytes_max);
    let terms = expectation.terms.clone();
    let copy = || Keeping::new(&expectation.directory, fence, bytes_max).map_err(TakeError::Keep);
    let copy = (beside.keep == Keep::SubtaskStart).then(copy).transpose()?;
    std::thread::Builder::new()
        .name("arrival".into())
        .spawn(move || {
            let arrival = Arrival::new(bytes_max).map_err(TakeError::from);
            let taken = arrival.and_then(|arrival| {
                let (beside, serving) = (Some(beside), None);
                Taking { arrival, copy, beside, serving, teller, mover, terms }.run(coming)
            });
            let _ = done.send(taken);
        })
        .map_err(|_| TakeError::Thread)?;
    Ok(ended)
}

/// The endpoint, and what was read beyond it.
async fn read_endpoint(
    reader: &mut FrameReader,
    length: u64,
) -> Result<(Vec<u8>, Vec<u8>), TakeError> {
    if length > ENDPOINT_BYTES_MAX {
        return Err(TakeError::Endpoint(length));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut endpoint = vec![];
    while endpoint.len() < length {
        let piece = timeout(STALLED_AFTER, reader.next_raw()).await;
        let piece = piece.map_err(|_| TakeError::Stalled)??;
        endpoint.extend(piece.ok_or(TakeError::Arrival(ArrivalError::Short))?);
    }
    let rest = endpoint.split_off(length);
    Ok((endpoint, rest))
}

async fn pass(
    rest: Vec<u8>,
    reader: &mut FrameReader,
    pieces: &mpsc::Sender<Vec<Bytes>>,
) -> Result<(), TakeError> {
    let mut next = Some(vec![Bytes::from(rest)]);
    while let Some(piece) = next {
        // Who keeps them has found something wrong, and says what.
        if pieces.send(piece).await.is_err() {
            return Ok(());
        }
        let piece = timeout(STALLED_AFTER, reader.next_chunks()).await;
        next = piece.map_err(|_| TakeError::Stalled)??;
    }
    Ok(())
}

/// What the thread does that takes an image in.
#[derive(Debug)]
struct Taking {
    arrival: Arrival,
    /// A copy of what comes, for going back to it again.
    copy: Option<Keeping>,
    /// Until all is known.
    beside: Option<Beside>,
    serving: Option<Serving>,
    teller: Teller,
    mover: Arc<Mover>,
    terms: Terms,
}

impl Taking {
    /// Tells of its header, then that it can be brought to life, and returns
    /// how many bytes it was.
    fn run(mut self, mut coming: mpsc::Receiver<Vec<Bytes>>) -> Result<u64, TakeError> {
        let mut told = false;
        while let Some(piece) = coming.blocking_recv() {
            self.arrival.take_all(&piece)?;
            if let Some(copy) = &mut self.copy {
                piece
                    .iter()
                    .try_for_each(|bytes| copy.write_all(bytes))
                    .map_err(TakeError::Keep)?;
            }
            if let Some(header) = self.arrival.header()
                && !told
            {
                let fits = header.fingerprint.suits(&self.mover.fingerprint);
                fits.map_err(|error| TakeError::Unsuitable(error.to_string()))?;
                told = true;
                // CRIU begins, and waits for what it is to read.
                self.serving = Some(self.arrival.serve().map_err(TakeError::Serve)?);
                self.teller.header(&self.arrival, header);
            }
            // A copy is one when it is whole.
            if self.arrival.is_known() && (self.copy.is_none() || self.arrival.has_ended()) {
                self.tell()?;
            }
        }
        Ok(self.arrival.finish()?.bytes())
    }

    /// Makes it this place's, and tells of it, once.
    fn tell(&mut self) -> Result<(), TakeError> {
        let Some(beside) = self.beside.take() else { return Ok(()) };
        let stopped = self.arrival.adapt(&self.terms)?;
        let serving = self.serving.take();
        let image = self.copy.take().map(Keeping::finish);
        self.teller.known(KnownGuest { stopped, image, serving, ..beside.known() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::{JobId, SubprogramId, WorkstationId};
    use gleaner_common::program::Ticket;

    use super::*;

    #[test]
    fn only_what_was_announced_is_taken_in_and_only_from_where_it_was_to_come() {
        let expected = program::Arrival {
            from: WorkstationId(1),
            name: "one".into(),
            old: Fence::of(4),
            ticket: Ticket([7; 16]),
        };
        let what = Handover {
            subprogram: SubprogramId { job: JobId(1), index: 0 },
            old: Fence::of(4),
            new: Fence::of(5),
            ticket: Ticket([7; 16]),
            keep: Keep::State,
            endpoint_bytes: 0,
            frozen: Duration::ZERO,
        };
        let is_taken = |what: &Handover, sender| is_it(Some(&expected), what, &sender);
        let agent = |name: &str| Sender::Agent(name.into());
        assert!(is_taken(&what, agent("one")) && is_taken(&what, Sender::Coordinator));
        assert!(!is_taken(&what, agent("two")), "enrolled, and not where it runs");
        let mut almost = [7; 16];
        almost[15] ^= 1;
        for ticket in [[0; 16], almost] {
            let guessed = Handover { ticket: Ticket(ticket), ..what.clone() };
            assert!(!is_taken(&guessed, agent("one")) && !is_taken(&guessed, Sender::Coordinator));
        }
        assert!(!is_taken(&Handover { old: Fence::of(3), ..what.clone() }, agent("one")));
        assert!(!is_it(None, &what, &agent("one")), "what is here already comes from nobody");
    }
}
