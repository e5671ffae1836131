//! What the router has around it: pipes that are heard on the link's runtime,
//! the link's queues, and the event loop.

use std::io;

use gleaner_agent_core::router::{Image, Note, Shell};
use gleaner_common::id::Fence;
use gleaner_common::wire::AgentFrame;
use tokio::sync::mpsc::UnboundedSender;

use super::outgoing::{Frames, PeerStream, Waiting};
use super::pipe_watch::PipeWatch;
use super::pipes::PipeEnds;
use super::rank_pipes::RankPipes;
use super::slabs::Slabs;
use super::{IoRequest, RouterEvent};
use crate::link::{LinkEvent, ToEventLoop};
use crate::moving::KeptImage;

#[derive(Debug)]
pub(crate) struct RouterShell {
    pub(super) frames: Frames,
    pub(super) requests: UnboundedSender<IoRequest>,
    pub(super) waiting: Waiting,
    pub(super) watch: PipeWatch,
    pub(super) event_loop: ToEventLoop,
}

impl Image for KeptImage {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Shell for RouterShell {
    type Ends = PipeEnds;
    type Pipes = RankPipes;
    type Slabs = Slabs;
    type Image = KeptImage;
    type Way = PeerStream;

    fn plug(&mut self, fence: Fence, ends: PipeEnds, slabs: &Slabs) -> io::Result<RankPipes> {
        RankPipes::new(self.watch.clone(), fence, ends, slabs.clone())
    }

    fn send(&mut self, session: u64, frame: AgentFrame) {
        let Some(frames) = self.frames.upgrade() else { return };
        if self.waiting.begin(&frame) {
            // An error means that the link is ending.
            let _ = frames.send((session, frame));
        }
    }

    fn have(&mut self, request: IoRequest) -> bool {
        // An error means that the link is ending.
        self.requests.send(request).is_ok()
    }

    fn say(&mut self, event: RouterEvent) {
        self.event_loop.tell(LinkEvent::Router(event));
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::ToRankUnread { error } => {
                tracing::warn!(%error, "cannot read what a rank is told");
            }
            Note::BetweenUnread { error } => {
                tracing::warn!(%error, "cannot read what an agent says");
            }
            Note::Unwritten { error } => tracing::error!(%error, "cannot write what a rank says"),
            Note::Forged { from, job, rank, times } => {
                tracing::warn!(%from, %job, %rank, times, "an agent speaks for a rank that is not there");
            }
            Note::HasWayBack(rank) => tracing::info!("{rank} can go back to an image"),
            Note::NotBack { rank, error } => {
                // With its pipes closed its process ends, and the program with it.
                tracing::warn!(%rank, %error, "a rank cannot go back to its snapshot");
            }
        }
    }
}
