//! A place and the images of its rank, which it may go back to.
//!
//! ```text
//! wanted ─► its owner is here: waits ─► it halts ─► the post empties its pipes ─► it is written down ─► goes on
//!    └─ cannot be ─┴──────────────────────┴───────────────┴─────────────────────────┘
//! ```
//!
//! The promise: an image never makes a guest run that its owner has stopped,
//! and never keeps a place from stopping one.

use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

use super::leaving::{LOOK_AFTER, STANDS_WITHIN};
use super::{Place, Site, Told, may_go_back};
use crate::link::LinkOrder;
use crate::moving::{KeptImage, ToKeep};
use crate::post::{Letter, NoImage};

/// An image that is wanted of the guest.
#[derive(Debug)]
pub(super) struct Imaging {
    fence: Fence,
    /// It is made to stand since then.
    since: Moment,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its owner came before.
    Waits,
    /// It is looked at again then.
    Halts { look: Moment },
    /// The post, then CRIU is at it.
    Stands,
}

impl Place {
    /// The post wants an image of this rank.
    pub(crate) fn take_image(&mut self, site: &Site, fence: Fence, told: &mut Told) {
        let leaves = self.standing.is_some() || self.leaving.is_some() || self.carried.is_some();
        let guest = self.guest.as_ref().filter(|guest| guest.fence == fence);
        let goes_back = guest.is_some_and(|it| may_go_back(&it.spec));
        let no_image = match self.process(site, fence) {
            _ if !goes_back => Some(NoImage::Useless),
            Err(because) => Some(NoImage::Cannot(because)),
            Ok(_) => leaves.then_some(NoImage::NotNow),
        };
        let now = Clock.now();
        self.imaging = Some(Imaging { fence, since: now, stage: Stage::Waits });
        if let Some(no_image) = no_image {
            return self.end_image(now, fence, Err(no_image), told);
        }
        if !self.frozen {
            self.halt_for_image(now);
            self.look_for_image(now, told);
        }
    }

    /// Is this rank's image wanted here?
    pub(crate) fn images(&self, fence: Fence) -> bool {
        self.imaging.as_ref().is_some_and(|imaging| imaging.fence == fence)
    }

    /// The guest would go on: not before its image is taken, if one is wanted.
    pub(super) fn image_comes_first(&mut self) -> bool {
        let Some(imaging) = &self.imaging else { return false };
        if imaging.stage == Stage::Waits {
            self.halt_for_image(Clock.now());
        }
        true
    }

    /// What is being taken is waited for, what is not is not wanted now. Is it
    /// to be waited for?
    pub(super) fn image_before_leaving(&mut self, now: Moment, told: &mut Told) -> bool {
        let Some(imaging) = &self.imaging else { return false };
        let waits = imaging.stage == Stage::Waits;
        if waits {
            let fence = imaging.fence;
            self.end_image(now, fence, Err(NoImage::NotNow), told);
        }
        !waits
    }

    fn halt_for_image(&mut self, now: Moment) {
        if let Some(imaging) = &mut self.imaging {
            (imaging.since, imaging.stage) = (now, Stage::Halts { look: now });
        }
        if let Some(group) = &self.group {
            let done = group.freeze().map_err(|error| error.to_string());
            self.complain("freeze", done);
        }
    }

    pub(super) fn look_for_image_at(&self) -> Option<Moment> {
        match self.imaging.as_ref()?.stage {
            Stage::Halts { look } => Some(look),
            Stage::Waits | Stage::Stands => None,
        }
    }

    /// When it stands, and can be looked into, its pipes are emptied.
    pub(super) fn look_for_image(&mut self, now: Moment, told: &mut Told) {
        if self.look_for_image_at().is_none_or(|look| now < look) {
            return;
        }
        let Some(Imaging { fence, since, .. }) = self.imaging else { return };
        let no_image = match self.is_steady(fence) {
            Ok(true) => {
                told.letters.push(Letter::Image(fence));
                return self.stage(Stage::Stands);
            }
            // One of its processes is becoming another program.
            Ok(false) if self.is_between() => NoImage::NotNow,
            Ok(false) if now < since + STANDS_WITHIN => {
                return self.stage(Stage::Halts { look: now + LOOK_AFTER });
            }
            Ok(false) => NoImage::Cannot("it does not come to a stand".to_owned()),
            Err(error) => NoImage::Cannot(format!("cannot look at it: {error}")),
        };
        self.end_image(now, fence, Err(no_image), told);
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(imaging) = &mut self.imaging {
            imaging.stage = stage;
        }
    }

    /// The post has emptied its pipes, or cannot: it is written down.
    pub(crate) fn emptied(
        &mut self,
        site: &Site,
        fence: Fence,
        done: Result<(), String>,
        told: &mut Told,
    ) {
        let (place, directory) = (self.id, site.config.data.clone());
        let disk = self.guest.as_ref().map_or(0, |guest| guest.limits.disk_bytes_max);
        match done.and_then(|()| self.process(site, fence)) {
            Ok((process, mover)) => {
                let bytes_max = disk;
                let keep = ToKeep { place, fence, process, mover, directory, bytes_max };
                told.orders.push(LinkOrder::Keep(Box::new(keep)));
            }
            Err(because) => {
                self.end_image(Clock.now(), fence, Err(NoImage::Cannot(because)), told);
            }
        }
    }

    /// It was written down.
    pub(crate) fn imaged(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<KeptImage, String>,
        told: &mut Told,
    ) {
        if self.images(fence) {
            self.end_image(now, fence, done.map_err(NoImage::Cannot), told);
        }
    }

    /// It goes on, unless its owner has come.
    fn end_image(
        &mut self,
        now: Moment,
        fence: Fence,
        done: Result<KeptImage, NoImage>,
        told: &mut Told,
    ) {
        let Some(imaging) = self.imaging.take() else { return };
        let stood = now.since(imaging.since);
        if let Ok(image) = &done {
            tracing::debug!(%fence, bytes = image.bytes, ?stood, "an image is kept");
        }
        told.letters.push(Letter::Imaged { fence, done, stood });
        if !self.frozen && imaging.stage != Stage::Waits {
            self.thaw();
        }
    }
}
