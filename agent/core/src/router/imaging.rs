//! Images of ranks' processes: where a program that does not save goes back to.
//!
//! ```text
//! program   router                        event loop
//! Boundary ─► TakeImage ─ WantsImage ─► freezes it
//!             empties its pipes ◄─ Image ┘
//!             ImageBegun ─── Emptied ──► writes it down
//!    GoOn ◄─ Imaged ◄──────── Imaged ──┘ thaws it
//! ```

use std::time::Duration;

use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use gleaner_program_core::address::Boundary;
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::endpoint::{Back, Event, PipeRest};

use super::local_rank::LocalRank;
use super::shell::{Note, Shell};
use super::{Router, RouterEvent};
use crate::guest::NoImage;

/// An image to go back to.
#[derive(Clone, Debug)]
pub(super) struct Kept<I> {
    pub(super) boundary: Boundary,
    /// What was in the pipes then.
    pub(super) rest: PipeRest,
    pub(super) image: I,
}

/// What is about an image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Imaging {
    #[default]
    Nothing,
    Wanted,
    /// The pipes were emptied: the boundary it will be, and what was in them.
    Begun(Boundary, PipeRest),
}

impl<S: Shell> Router<S> {
    /// The process stands still.
    pub(super) fn begin_image(&mut self, now: Moment, fence: Fence) {
        // What the program has written whole is handled, and what follows from
        // it: all that is before the boundary.
        while self.read(now, fence, 1) {}
        self.settle(now);
        let done = self.empty_for_image(fence);
        if done.is_ok() {
            self.handle(now, fence, Event::ImageBegun);
        }
        self.outgoing.shell.say(RouterEvent::Emptied { fence, done });
    }

    fn empty_for_image(&mut self, fence: Fence) -> Result<(), String> {
        let local_rank = self.local_ranks.get_mut(&fence).ok_or("there is no such rank here")?;
        if let Some(fault) = &local_rank.fault {
            return Err(fault.clone());
        }
        let rest = local_rank.empty_pipes().map_err(|error| error.to_string())?.clone();
        local_rank.imaging = Imaging::Begun(local_rank.endpoint.next_boundary(), rest);
        // The process that is here reads it all the same, before what is newer.
        local_rank.refill_pipes();
        Ok(())
    }

    /// The image is there, or why there is none; the process stood so long.
    pub(super) fn imaged(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<S::Image, NoImage>,
        stood: Duration,
    ) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        let begun = std::mem::take(&mut local_rank.imaging);
        match done {
            Ok(image) => {
                local_rank.pace.taken(now, stood);
                local_rank.no_image = None;
                // First: a snapshot may be waiting for it.
                let before = local_rank.image.take();
                if let Imaging::Begun(boundary, rest) = begun {
                    local_rank.image = Some(Kept { boundary, rest, image });
                }
                self.handle(now, fence, Event::Imaged);
                let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
                if way_back(local_rank).is_err() {
                    local_rank.image = before;
                } else if before.is_none() {
                    self.outgoing.shell.note(Note::HasWayBack(local_rank.rank()));
                }
            }
            Err(NoImage::NotNow) => {
                local_rank.pace.not_now(now);
                let because = "its owner is here".to_owned();
                self.handle(now, fence, Event::NotImaged { because });
            }
            Err(NoImage::Useless) => {
                let because = "it has saved no state".to_owned();
                self.handle(now, fence, Event::NotImaged { because });
            }
            Err(NoImage::Cannot(because)) => {
                local_rank.pace.cannot(now);
                local_rank.no_image = Some(because.clone());
                let rank = local_rank.rank();
                self.complained(fence, &Complaint::NoImage { rank, because: because.clone() });
                self.handle(now, fence, Event::NotImaged { because });
            }
        }
    }

    /// A rank that has come with its process, but without the image that it
    /// might go back to, wants another.
    pub(super) fn miss_image(&mut self, now: Moment, fence: Fence) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        if !matches!(local_rank.endpoint.way_back(), Some((_, Back::Image))) {
            return;
        }
        local_rank.pace.not_now(now);
        if local_rank.image.is_none() {
            self.handle(now, fence, Event::ImageLost);
        }
    }
}

/// How the rank goes back: to an image, or with what it has saved.
pub(super) fn way_back<S: Shell>(
    local_rank: &LocalRank<S>,
) -> Result<Option<Kept<S::Image>>, String> {
    let rank = local_rank.rank();
    match local_rank.endpoint.way_back() {
        Some((_, Back::Process | Back::Nothing)) => Ok(None),
        Some((boundary, Back::Image)) => {
            let kept = local_rank.image.as_ref().filter(|kept| kept.boundary == boundary);
            let kept = kept.ok_or_else(|| format!("{rank} cannot go back: its image is gone"))?;
            Ok(Some(kept.clone()))
        }
        None => Err(match &local_rank.no_image {
            Some(because) => format!("{rank} cannot go back: no image is kept of it: {because}"),
            None => format!("{rank} cannot go back: no state is kept to go back to"),
        }),
    }
}
