//! One connection to the coordinator: frames both ways, as they come.

use std::net::SocketAddr;
use std::sync::Arc;

use gleaner_agent_core::agent::Event;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Purpose};
use gleaner_shell::endpoint::Ended;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use quinn::Connection;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};

use super::revoked::Revoked;
use super::{LinkEvent, ToEventLoop};
use crate::messages::{RouterCommand, RouterHandle};

/// How much leaves with one write, more or less.
const BATCH_BYTES: usize = 256 << 10;

/// Why a connection is no more.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// We were told to stop, and all is said.
    Stopped,
    /// The coordinator had welcomed us on it.
    Welcomed(String),
    /// The coordinator would not have us.
    Refused(String),
    /// Its table of keys does not have ours, which its authority has certified.
    Unknown(String),
    Lost(String),
}

impl SessionEnd {
    /// Will it be the same until a person has seen to it?
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Unknown(_))
    }
}

impl From<StreamError> for SessionEnd {
    fn from(error: StreamError) -> Self {
        let why = error.to_string();
        match error {
            StreamError::Ended(Ended::IdentityUnknown) => Self::Unknown(why),
            StreamError::Ended(_)
            | StreamError::Frame(_)
            | StreamError::Closed { .. }
            | StreamError::Reset { .. }
            | StreamError::Finished => Self::Lost(why),
        }
    }
}

/// Which connection it is, and where other agents may reach us meanwhile.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) session: u64,
    pub(super) addresses: Vec<SocketAddr>,
}

pub(super) async fn serve(
    connection: &Connection,
    Greeting { session, addresses }: Greeting,
    to: Hearers<'_>,
    outgoing: &mut UnboundedReceiver<(u64, AgentFrame)>,
    stopped: &mut watch::Receiver<bool>,
    wake: &Arc<Notify>,
) -> SessionEnd {
    let (writer, reader) = match stream::open(connection, Purpose::Agent).await {
        Ok(ends) => ends,
        Err(error) => return error.into(),
    };
    to.event_loop.tell(LinkEvent::Up { session, addresses });
    let mut answer = Answer::default();
    let end = tokio::select! {
        Err(error) = listen(reader, session, to, &mut answer) => error.into(),
        said = speak(writer, session, outgoing, to.router) => match said {
            // The event loop has no more to say: it is over.
            Ok(()) => return SessionEnd::Stopped,
            Err(error) => error.into(),
        },
        () = wake.notified() => SessionEnd::Lost("the machine has slept".to_owned()),
        () = gone(stopped) => return SessionEnd::Stopped,
    };
    match (answer, end) {
        (Answer { welcomed: true, .. }, SessionEnd::Unknown(why) | SessionEnd::Lost(why)) => {
            SessionEnd::Welcomed(why)
        }
        (Answer { refused: Some(reason), .. }, _) => SessionEnd::Refused(reason),
        (_, end) => end,
    }
}

/// What the coordinator said to our greeting.
#[derive(Debug, Default)]
struct Answer {
    welcomed: bool,
    refused: Option<String>,
}

impl Answer {
    fn hear(&mut self, frame: &CoordinatorFrame) {
        self.welcomed |= matches!(frame, CoordinatorFrame::Welcome { .. });
        if let CoordinatorFrame::Refused { reason } = frame {
            self.refused = Some(reason.clone());
        }
    }
}

/// Resolves a while after the stop, if the queue's end has not told before.
async fn gone(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

async fn listen(
    mut reader: FrameReader,
    session: u64,
    to: Hearers<'_>,
    answer: &mut Answer,
) -> Result<(), StreamError> {
    loop {
        let first: CoordinatorFrame = reader.expect().await?;
        let mut batch = vec![first];
        while let Some(frame) = reader.try_next()? {
            batch.push(frame);
        }
        for frame in &batch {
            answer.hear(frame);
        }
        let for_event_loop: Vec<_> =
            batch.into_iter().filter_map(|frame| to.sort(session, frame)).collect();
        to.event_loop
            .tell_all(for_event_loop.into_iter().map(|frame| LinkEvent::Core(Event::Frame(frame))));
    }
}

/// Who hears what the coordinator says.
#[derive(Clone, Copy)]
pub(super) struct Hearers<'a> {
    pub(super) event_loop: &'a ToEventLoop,
    pub(super) router: &'a RouterHandle,
    pub(super) revoked: &'a Revoked,
}

impl Hearers<'_> {
    /// Hands the router what is for its ranks, and the port for other agents what
    /// is for that; gives back what is for the event loop.
    fn sort(self, session: u64, frame: CoordinatorFrame) -> Option<CoordinatorFrame> {
        let (command, back) = match frame {
            CoordinatorFrame::Ranks { job, life, at } => {
                (RouterCommand::Ranks { job, life, at }, None)
            }
            CoordinatorFrame::Relayed { from, bytes } => {
                (RouterCommand::Relayed { from, bytes }, None)
            }
            CoordinatorFrame::ToRank { fence, life, bytes } => {
                (RouterCommand::ToRank { fence, life, bytes }, None)
            }
            CoordinatorFrame::Forget { job } => (RouterCommand::Forget(job), Some(frame)),
            CoordinatorFrame::Revoked { all, keys, now } => {
                self.revoked.hear(all, keys, now);
                return None;
            }
            CoordinatorFrame::Welcome { workstation, .. } => {
                (RouterCommand::Up { session, own: workstation }, Some(frame))
            }
            CoordinatorFrame::HeartbeatAck { .. }
            | CoordinatorFrame::Job { .. }
            | CoordinatorFrame::Offer(_)
            | CoordinatorFrame::Cancel { .. }
            | CoordinatorFrame::Acknowledge { .. }
            | CoordinatorFrame::Refused { .. }
            | CoordinatorFrame::Depart { .. }
            | CoordinatorFrame::Stay { .. }
            | CoordinatorFrame::GoOn { .. }
            | CoordinatorFrame::GiveBack { .. }
            | CoordinatorFrame::Riders { .. } => return Some(frame),
        };
        self.router.deliver(command);
        back
    }
}

async fn speak(
    mut writer: FrameWriter,
    session: u64,
    outgoing: &mut UnboundedReceiver<(u64, AgentFrame)>,
    router: &RouterHandle,
) -> Result<(), StreamError> {
    loop {
        let Some(mut next) = outgoing.recv().await else {
            writer.finish();
            return Ok(());
        };
        loop {
            let (of, frame) = next;
            router.waiting().done(&frame);
            // Said to a connection that is gone: the next one's Hello tells anew.
            if of == session {
                writer.queue(&frame)?;
            }
            if writer.queued_bytes() >= BATCH_BYTES {
                break;
            }
            let Ok(more) = outgoing.try_recv() else { break };
            next = more;
        }
        writer.flush().await?;
    }
}
