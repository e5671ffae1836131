//! A handle on the brain's task: what it can be told and asked.

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::job::JobSpec;
use gleaner_common::report::JobSummary;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, EnrolRequest, KeyHash};
use gleaner_coordinator_core::directory::{Enrolment, Key, RefusedEnrolment};
use gleaner_coordinator_core::{Answer, Core, Event, Link};
use tokio::sync::{mpsc, oneshot, watch};

use crate::outbox::Outbox;
use crate::store::Write;

/// Inputs that may wait to be handled; a sender with more waits.
const INPUTS_MAX: usize = 4_096;

/// Something for the brain.
pub(crate) enum Input {
    /// An agent's first frame on a new connection.
    Linked {
        link: Link,
        peer: LinkedPeer,
        hello: Box<AgentFrame>,
    },
    Heard {
        from: Link,
        frame: Box<AgentFrame>,
    },
    Unlinked(Link),
    Submit {
        user: String,
        spec: Box<JobSpec>,
        reply: oneshot::Sender<Answer>,
    },
    Cancel {
        job: JobId,
        reply: oneshot::Sender<Answer>,
    },
    Enrol {
        token: Key,
        request: EnrolRequest,
        reply: oneshot::Sender<Result<Enrolment, RefusedEnrolment>>,
    },
    /// Rows to be written that are not the core's, and what to do then.
    Write {
        writes: Vec<Write>,
        then: Release,
    },
    /// Something that has happened beside the agents and their jobs.
    Fact(Box<Event>),
    /// Keys are worth nothing any more: the connections that show them are to be
    /// closed, and agents to hear of those of other agents.
    Revoked {
        workstation: Option<WorkstationId>,
        keys: Vec<KeyHash>,
    },
    /// The coordinator stops: what users have used is to be written.
    KeepUsage {
        then: Release,
    },
    Watch {
        job: JobId,
        reply: oneshot::Sender<Option<watch::Receiver<JobSummary>>>,
    },
    Look(Question),
}

/// An action to take once everything before it is durable.
pub(crate) type Release = Box<dyn FnOnce() + Send>;

/// A look at the core, and what to do with what it found.
pub(crate) type Question = Box<dyn FnOnce(&Core, Moment) -> Release + Send>;

/// Where an agent's frames go.
#[derive(Clone, Debug)]
pub(crate) struct LinkedPeer {
    pub(crate) outbox: Outbox,
    pub(crate) connection: quinn::Connection,
}

/// The brain is gone: the coordinator stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is stopping")]
pub(crate) struct Stopping;

/// A handle on the brain's task. Clone it freely.
#[derive(Clone, Debug)]
pub(crate) struct BrainHandle(mpsc::Sender<Input>);

impl BrainHandle {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(INPUTS_MAX);
        (Self(sender), receiver)
    }

    pub(crate) async fn tell(&self, input: Input) -> Result<(), Stopping> {
        self.0.send(input).await.map_err(|_| Stopping)
    }

    /// Sends an input that is answered.
    pub(crate) async fn ask<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Result<T, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.tell(input(reply)).await?;
        answer.await.map_err(|_| Stopping)
    }

    /// Writes rows, and returns when they are on the disk.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<(), Stopping> {
        self.ask(|reply| {
            let then = Box::new(move || {
                // Whoever asked may have left.
                let _: Result<(), ()> = reply.send(());
            });
            Input::Write { writes, then }
        })
        .await
    }

    /// Looks something up in the core. The answer waits until all that it may
    /// rest on is durable.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Core, Moment) -> T + Send + 'static,
    ) -> Result<T, Stopping> {
        self.ask(|reply| {
            Input::Look(Box::new(move |core, now| {
                let found = question(core, now);
                // Whoever asked may have left.
                Box::new(move || drop(reply.send(found)))
            }))
        })
        .await
    }
}
