//! Images of a rank's process, which it may go back to.
//!
//! ```text
//! wanted ─► its owner is here: waits ─► it halts ─► the router empties its pipes ─► it is written down ─► ended
//!    └─ cannot be ─┴──────────────────────┴───────────────┴─────────────────────────┘
//! ```
//!
//! The promise: an image never makes a guest run that its owner has stopped,
//! and never keeps a place from stopping one.

use std::time::Duration;

use gleaner_common::time::Moment;

use super::departure::{LOOK_AFTER, STANDS_WITHIN};
use super::entry::may_go_back;
use super::{Effect, Guest, Look, NoImage, Process, State, Turn};

/// How far the image is that is wanted of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    None,
    /// The guest was stopped before, for its owner.
    Waits,
    /// It is made to stand since then, and looked at again then; `None` while a
    /// look is taken.
    Halting {
        since: Moment,
        look: Option<Moment>,
    },
    /// It has stood since then; the router, then CRIU is at it.
    Writing {
        since: Moment,
    },
}

impl Image {
    /// Does the guest stand still for it?
    pub(super) fn stands(self) -> bool {
        matches!(self, Self::Halting { .. } | Self::Writing { .. })
    }

    pub(super) fn look_at(self) -> Option<Moment> {
        match self {
            Self::Halting { look, .. } => look,
            Self::None | Self::Waits | Self::Writing { .. } => None,
        }
    }

    pub(super) fn is_looked_at(&mut self) {
        if let Self::Halting { look, .. } = self {
            *look = None;
        }
    }
}

impl Guest {
    /// The router wants an image of this rank's process.
    pub(super) fn image_wanted(&mut self, turn: &mut Turn<'_>) {
        let no_image = match (&self.process, &turn.site.moves) {
            _ if !may_go_back(&self.start.spec) => Some(NoImage::Useless),
            (_, Err(why)) => Some(NoImage::Cannot(format!("nothing moves from here: {why}"))),
            (Process::Alive, Ok(())) if turn.keeper.is_staged() => {
                matches!(self.state, State::Leaving { .. }).then_some(NoImage::NotNow)
            }
            (_, Ok(())) => Some(NoImage::Cannot("it was not started to be moved".to_owned())),
        };
        self.image = Image::Waits;
        if let Some(no_image) = no_image {
            self.end_image(Err(no_image), turn);
        }
    }

    /// One that waits is taken before the guest runs again.
    pub(super) fn image_after_all(&mut self, turn: &mut Turn<'_>) {
        let runs = self.process == Process::Alive && self.stands() == Some(false);
        if self.image == Image::Waits && runs {
            self.image = Image::Halting { since: turn.now, look: None };
            turn.order(Effect::Look(self.start.at));
        }
    }

    /// When it stands, and can be looked into, its pipes are emptied.
    pub(super) fn looked_for_image(&mut self, look: Look, turn: &mut Turn<'_>) {
        let Image::Halting { since, look: None } = self.image else { return };
        let no_image = match look {
            Look::Steady => {
                self.image = Image::Writing { since };
                return turn.order(Effect::EmptyPipes(self.start.at));
            }
            // One of its processes is becoming another program.
            Look::Between | Look::NotBegun => NoImage::NotNow,
            Look::Restless if turn.now < since + STANDS_WITHIN => {
                return self.image = Image::Halting { since, look: Some(turn.now + LOOK_AFTER) };
            }
            Look::Restless => NoImage::Cannot("it does not come to a stand".to_owned()),
            Look::Failed(why) => NoImage::Cannot(format!("cannot look at it: {why}")),
        };
        self.end_image(Err(no_image), turn);
    }

    /// The router has emptied its pipes, or cannot: it is written down.
    pub(super) fn pipes_emptied(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        match (self.image, done) {
            (Image::Writing { .. }, Ok(())) => turn.order(Effect::WriteImage(self.start.at)),
            (_, Ok(())) => {}
            (_, Err(because)) => self.end_image(Err(NoImage::Cannot(because)), turn),
        }
    }

    pub(super) fn image_written(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        if matches!(self.image, Image::Writing { .. }) {
            self.end_image(done.map_err(NoImage::Cannot), turn);
        }
    }

    pub(super) fn end_image(&mut self, done: Result<(), NoImage>, turn: &mut Turn<'_>) {
        let stood = match self.image {
            Image::None => return,
            Image::Waits => Duration::ZERO,
            Image::Halting { since, .. } | Image::Writing { since } => turn.now.since(since),
        };
        self.image = Image::None;
        turn.order(Effect::ImageEnded { at: self.start.at, done, stood });
    }
}
