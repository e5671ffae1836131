//! The one task that owns the core: inputs come in, decisions go to the store,
//! and orders leave once they are durable.
//!
//! ```text
//! connections, requests ── Input ──► core.handle ── Batch ──► store's thread
//!         ▲                                                       │
//!         └──────────── outboxes, answers ◄── Released ───────────┘
//! ```
//!
//! The promise: nothing leaves before what it rests on is on the disk, and
//! what leaves does so in the order it was decided. What rests on nothing new
//! leaves at once. One exception, on purpose: a heartbeat is acknowledged
//! whatever the disk does, because a full disk must not stop guests.

mod handle;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::report::JobSummary;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, EnrolRequest, KeyHash, close};
use gleaner_coordinator_core::directory::{
    Directory, Enrolment, RefusedEnrolment, taken_from_agents,
};
use gleaner_coordinator_core::{Answer, Core, Effect, Event, Link, RequestId, Step};
use gleaner_shell::clock::Clock;
use gleaner_shell::identity::key_hash;
use quinn::VarInt;
use tokio::sync::{mpsc, oneshot, watch};

use crate::agents::Agents;
use crate::outbox::NotTaken;
use crate::parts::Unneeded;
use crate::placement::PlacementTimes;
use crate::store::{Batch, FromStore, StoreHealth, Write};

pub(crate) use handle::{BrainHandle, Input, LinkedPeer, Release, Stopping};

/// So many inputs are handled before their decisions go to the store together.
const INPUTS_AT_ONCE: usize = 256;

/// So many revoked keys go into one frame: 800 KB.
const KEYS_AT_ONCE: usize = 50_000;

/// What is to be done once the store has committed what came before.
pub(crate) enum Released {
    Effects(Vec<Effect>),
    Run(Release),
    /// An enrolment revoked this workstation's old keys: close its connections.
    Revoked {
        workstation: WorkstationId,
        keys: Vec<KeyHash>,
    },
    /// The end of one batch.
    End,
}

/// The state of the task. `run` is all there is to do with it.
pub(crate) struct Brain {
    pub(crate) clock: Clock,
    pub(crate) core: Core,
    pub(crate) directory: Arc<RwLock<Directory>>,
    pub(crate) inputs: mpsc::Receiver<Input>,
    pub(crate) batches: std::sync::mpsc::Sender<Batch<Released>>,
    pub(crate) from_store: mpsc::UnboundedReceiver<FromStore<Released>>,
    pub(crate) health: StoreHealth,
    pub(crate) placement: Arc<PlacementTimes>,
    pub(crate) agents: Agents,
    /// Parts of snapshots that may go.
    pub(crate) unneeded: Unneeded,
    pub(crate) revocations: watch::Sender<()>,
    pub(crate) state: BrainState,
}

/// What the brain itself keeps beside the core.
#[derive(Default)]
pub(crate) struct BrainState {
    peers: BTreeMap<Link, LinkedPeer>,
    waiting: BTreeMap<RequestId, oneshot::Sender<Answer>>,
    watched: BTreeMap<JobId, watch::Sender<JobSummary>>,
    next_request: u64,
    /// Batches that the store has not committed yet.
    outstanding: u64,
    /// Decided since the last batch.
    writes: Vec<Write>,
    release: Vec<Released>,
    alarm: Option<(Moment, Pin<Box<tokio::time::Sleep>>)>,
}

impl Brain {
    /// Runs until everybody who could tell it something is gone, or until it
    /// is dropped.
    pub(crate) async fn run(mut self) {
        let mut inputs = Vec::with_capacity(INPUTS_AT_ONCE);
        loop {
            self.wake_if_due();
            self.hand_over();
            let is_due = self.set_alarm();
            tokio::select! {
                biased;
                told = self.from_store.recv() => match told {
                    Some(told) => self.handle_store(told),
                    None => return,
                },
                count = self.inputs.recv_many(&mut inputs, INPUTS_AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                    for input in inputs.drain(..) {
                        self.handle(input);
                    }
                }
                // A timer takes a millisecond at least; this takes none.
                () = tokio::task::yield_now(), if is_due => {}
                () = alarm(&mut self.state.alarm) => self.state.alarm = None,
            }
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Linked { link, peer, hello } => {
                self.state.peers.insert(link, peer);
                self.feed(Event::Heard { from: link, frame: *hello });
            }
            // Frames of a connection that was closed for a reason are dropped.
            Input::Heard { from, frame } if self.state.peers.contains_key(&from) => {
                self.feed(Event::Heard { from, frame: *frame });
            }
            Input::Heard { .. } => {}
            Input::Unlinked(link) => {
                if self.forget(link).is_some() {
                    self.feed(Event::Disconnected(link));
                }
            }
            // Somebody was taken away while they asked.
            Input::Submit { user, reply, .. } if !self.knows(&user) => {
                let _ = reply.send(Answer::No(format!("{user} is not enrolled here")));
            }
            Input::Submit { user, spec, reply } => {
                if let Some(request) = self.await_answer(reply) {
                    self.feed(Event::Submitted { request, user, spec });
                }
            }
            Input::Cancel { job, reply } => {
                if let Some(request) = self.await_answer(reply) {
                    self.feed(Event::CancelAsked { request, job });
                }
            }
            Input::Enrol { token, request, reply } => self.enrol(&token, request, reply),
            Input::Write { writes, then } => {
                self.state.writes.extend(writes);
                self.state.release.push(Released::Run(then));
            }
            Input::Fact(event) => self.feed(*event),
            Input::Revoked { workstation, keys } => {
                if let Some(workstation) = workstation {
                    self.close_revoked(workstation);
                }
                self.tell_of_revoked(keys);
            }
            Input::KeepUsage { then } => {
                let changes = self.core.usage_to_keep(self.clock.now(), self.clock.wall());
                let learned = self.core.learned_to_keep();
                self.state.writes.extend(changes.into_iter().chain(learned).map(Write::Change));
                self.release_or_run(then);
            }
            Input::Watch { job, reply } => self.watch(job, reply),
            Input::Look(question) => {
                let release = question(&self.core, self.clock.now());
                self.release_or_run(release);
            }
        }
    }

    fn knows(&self, user: &str) -> bool {
        self.directory.read().unwrap_or_else(PoisonError::into_inner).is_person(user)
    }

    /// Registers a request; while the disk refuses, answers it and returns
    /// `None`.
    fn await_answer(&mut self, reply: oneshot::Sender<Answer>) -> Option<RequestId> {
        if let Some(trouble) = self.health.trouble() {
            let _ = reply.send(Answer::No(format!(
                "the coordinator cannot write to its disk: {trouble}: nothing was changed, try later"
            )));
            return None;
        }
        self.state.next_request += 1;
        let request = RequestId(self.state.next_request);
        self.state.waiting.insert(request, reply);
        Some(request)
    }

    fn feed(&mut self, event: Event) {
        let is_heartbeat =
            matches!(event, Event::Heard { frame: AgentFrame::Heartbeat { .. }, .. });
        let before = self.clock.now();
        let step = self.core.handle(before, self.clock.wall(), event);
        self.placement.note(step.placed, self.clock.now().since(before));
        if is_heartbeat && step.changes.is_empty() && step.effects.iter().all(is_ack) {
            self.carry_out(step.effects);
        } else {
            self.take(step);
        }
    }

    fn wake_if_due(&mut self) {
        let now = self.clock.now();
        if self.core.deadline().is_some_and(|at| at <= now) {
            let step = self.core.wake(now, self.clock.wall());
            self.placement.note(step.placed, self.clock.now().since(now));
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        self.state.writes.extend(step.changes.into_iter().map(Write::Change));
        if !step.effects.is_empty() {
            self.state.release.push(Released::Effects(step.effects));
        }
    }

    /// An answer that changes nothing must not wait for a disk that refuses.
    fn release_or_run(&mut self, release: Release) {
        if self.health.trouble().is_some() {
            release();
        } else {
            self.state.release.push(Released::Run(release));
        }
    }

    /// Gives what was decided to the store; carries it out at once if there is
    /// nothing to write and nothing being written.
    fn hand_over(&mut self) {
        // Carrying out may find a peer that must be given up, which is a new
        // event.
        while !(self.state.writes.is_empty() && self.state.release.is_empty()) {
            let writes = std::mem::take(&mut self.state.writes);
            let mut release = std::mem::take(&mut self.state.release);
            if writes.is_empty() && self.state.outstanding == 0 {
                self.released(release);
                continue;
            }
            self.state.outstanding += 1;
            release.push(Released::End);
            // A store that is gone tells so through `from_store`.
            let _ = self.batches.send(Batch { writes, release });
        }
    }

    fn handle_store(&mut self, told: FromStore<Released>) {
        match told {
            FromStore::Released(released) => self.released(released),
            FromStore::Refusing(trouble) => {
                let waiting = std::mem::take(&mut self.state.waiting);
                for reply in waiting.into_values() {
                    let _ = reply.send(Answer::No(format!(
                        "the coordinator cannot write to its disk: {trouble}: \
                         it may still do this once it can: look with `glean jobs`"
                    )));
                }
            }
        }
    }

    fn released(&mut self, released: Vec<Released>) {
        for one in released {
            match one {
                Released::Effects(effects) => self.carry_out(effects),
                Released::Run(run) => run(),
                Released::Revoked { workstation, keys } => {
                    self.close_revoked(workstation);
                    self.tell_of_revoked(keys);
                }
                Released::End => self.state.outstanding -= 1,
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, frame } => self.send(to, &frame),
                Effect::Refuse { link, reason } => {
                    if let Some(peer) = self.forget(link) {
                        let frame = CoordinatorFrame::Refused { reason: reason.clone() };
                        // The peer may be gone, or not reading: closing tells
                        // it too.
                        let _ = peer.outbox.put(&frame);
                        peer.outbox.close(&reason);
                    }
                }
                Effect::Replace(link) => {
                    self.close(link, close::REPLACED, "another connection took over");
                }
                Effect::Answer { request, answer } => {
                    if let Some(reply) = self.state.waiting.remove(&request) {
                        let _ = reply.send(answer);
                    }
                }
                Effect::Progress(summary) => self.progress(summary),
                Effect::WentBack { workstation, seen, generation } => tracing::warn!(
                    "{workstation} has seen attempt {seen}, which this store does not know: it \
                     went back to an earlier time; what it gives out is of generation {generation}"
                ),
                Effect::Unknown { workstation, fence } => tracing::warn!(
                    "attempt {fence} at {workstation} is not known here: it is newer than this store"
                ),
                // Should there be too many, the next great sweep finds them.
                Effect::Unneeded(parts) => drop(self.unneeded.try_send(parts)),
            }
        }
    }

    fn send(&mut self, to: Link, frame: &CoordinatorFrame) {
        if self.core.is_overtaken(frame) {
            return;
        }
        let Some(peer) = self.state.peers.get(&to) else { return };
        match peer.outbox.put(frame) {
            // From now on other agents may reach this one through the
            // coordinator.
            Ok(()) if matches!(frame, CoordinatorFrame::Welcome { .. }) => {
                self.agents.enter(to, peer.clone());
                self.tell_all_revoked(peer);
            }
            Ok(()) | Err(NotTaken::Closed) => {}
            Err(NotTaken::Full) => {
                tracing::warn!("{} does not read fast enough: closed", to.workstation);
                self.close(to, close::TOO_SLOW, "does not read fast enough");
                self.feed(Event::Disconnected(to));
            }
            Err(NotTaken::TooLong) => {
                unreachable!("a frame of ours over the limit that submissions are held to")
            }
        }
    }

    fn forget(&mut self, link: Link) -> Option<LinkedPeer> {
        self.agents.leave(link);
        self.state.peers.remove(&link)
    }

    fn close(&mut self, link: Link, code: u32, reason: &str) {
        if let Some(peer) = self.forget(link) {
            peer.outbox.close(reason);
            peer.connection.close(VarInt::from_u32(code), reason.as_bytes());
        }
    }

    fn close_revoked(&mut self, workstation: WorkstationId) {
        let first = Link { workstation, serial: 0 };
        let last = Link { workstation, serial: u64::MAX };
        let links: Vec<_> = self.state.peers.range(first..=last).map(|(link, _)| *link).collect();
        for link in links {
            self.close(link, close::FORBIDDEN, "this identity has been revoked");
            self.feed(Event::Disconnected(link));
        }
    }

    /// Whom a newly connected agent is not to speak with. What does not fit closes
    /// the outbox, which the next frame finds.
    fn tell_all_revoked(&self, peer: &LinkedPeer) {
        let now = self.clock.wall();
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let revoked: Vec<KeyHash> = directory.revoked_agents(now).map(key_hash).collect();
        drop(directory);
        let _ = peer.outbox.put(&CoordinatorFrame::Revoked { all: true, keys: vec![], now });
        for keys in revoked.chunks(KEYS_AT_ONCE) {
            let keys = keys.to_vec();
            let _ = peer.outbox.put(&CoordinatorFrame::Revoked { all: false, keys, now });
        }
    }

    /// Has connections look whether their keys are good still, and tells every
    /// agent of those that are not.
    fn tell_of_revoked(&mut self, keys: Vec<KeyHash>) {
        self.revocations.send_replace(());
        if keys.is_empty() {
            return;
        }
        let frame = CoordinatorFrame::Revoked { all: false, keys, now: self.clock.wall() };
        let links: Vec<Link> = self.state.peers.keys().copied().collect();
        for link in links {
            self.send(link, &frame);
        }
    }

    fn progress(&mut self, summary: JobSummary) {
        let Some(watched) = self.state.watched.get(&summary.job) else { return };
        watched.send_replace(summary);
        if summary.state.has_ended() || watched.receiver_count() == 0 {
            self.state.watched.remove(&summary.job);
        }
    }

    fn watch(&mut self, job: JobId, reply: oneshot::Sender<Option<watch::Receiver<JobSummary>>>) {
        let receiver = self.core.summary(job).map(|summary| {
            let watched =
                self.state.watched.entry(job).or_insert_with(|| watch::Sender::new(summary));
            watched.subscribe()
        });
        self.release_or_run(Box::new(move || drop(reply.send(receiver))));
    }

    fn enrol(
        &mut self,
        token: &[u8],
        request: EnrolRequest,
        reply: oneshot::Sender<Result<Enrolment, RefusedEnrolment>>,
    ) {
        let enrolled = self.directory.write().unwrap_or_else(PoisonError::into_inner).enrol(
            token,
            request.public_key,
            &request.name,
            self.clock.wall(),
        );
        if let Ok(enrolment) = &enrolled {
            self.state.writes.extend(enrolment.records.iter().cloned().map(Write::Record));
            if let Some(workstation) = enrolment.identity.workstation {
                let name = enrolment.identity.name.clone();
                self.feed(Event::Enrolled { workstation, name });
                if !enrolment.replaced.is_empty() {
                    let keys = taken_from_agents(&enrolment.records).map(key_hash).collect();
                    self.state.release.push(Released::Revoked { workstation, keys });
                }
            }
        }
        self.state.release.push(Released::Run(Box::new(move || drop(reply.send(enrolled)))));
    }

    /// True if there is something to do already. A timer that is early is
    /// harmless, so one that is set is only moved when the deadline came
    /// nearer.
    fn set_alarm(&mut self) -> bool {
        let now = self.clock.now();
        let Some(at) = self.core.deadline().filter(|at| *at < Moment::MAX) else { return false };
        if at <= now {
            return true;
        }
        let stands = self.state.alarm.as_ref().is_some_and(|(armed, _)| *armed <= at);
        if !stands {
            // Tokio's timers stand still while the machine sleeps: look again soon.
            let left = at.since(now).min(Duration::from_secs(1));
            self.state.alarm = Some((now + left, Box::pin(tokio::time::sleep(left))));
        }
        false
    }
}

async fn alarm(alarm: &mut Option<(Moment, Pin<Box<tokio::time::Sleep>>)>) {
    match alarm {
        Some((_, sleep)) => sleep.as_mut().await,
        None => std::future::pending().await,
    }
}

fn is_ack(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { frame: CoordinatorFrame::HeartbeatAck { .. }, .. })
}
