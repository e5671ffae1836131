//! Ends that the coordinator has acknowledged, kept for a while: one whose store
//! went back in time does not know of them any more, and would have the work done
//! again.

use std::collections::VecDeque;

use gleaner_common::id::{Fence, Generation, SubprogramId};
use gleaner_common::wire::{AttemptEvent, Printed, UNKNOWN_MAX};

/// As many as a day of a busy workstation brings, with what they printed: a guess.
const ENDS_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

/// The latest ends, the oldest first, and the generation that knows of each.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    ends: VecDeque<(AttemptEvent, Generation)>,
    bytes: usize,
    /// Whose the latest attempts are or were.
    taken: VecDeque<(Fence, SubprogramId)>,
}

impl Delivered {
    pub(super) fn took(&mut self, fence: Fence, subprogram: SubprogramId) {
        self.taken.push_back((fence, subprogram));
        if self.taken.len() > UNKNOWN_MAX {
            self.taken.pop_front();
        }
    }

    /// Whose those are that such a coordinator knows nothing of.
    pub(super) fn whose_unknown(
        &self,
        generation: Generation,
        newest: Fence,
    ) -> Vec<(Fence, SubprogramId)> {
        let taken = self.taken.iter().copied();
        taken.filter(|(fence, _)| is_unknown(*fence, generation, newest)).collect()
    }

    pub(super) fn keep(&mut self, end: AttemptEvent, known_to: Generation) {
        self.bytes += bytes(&end);
        self.ends.push_back((end, known_to));
        while self.ends.len() > ENDS_MAX || self.bytes > BYTES_MAX {
            let Some((oldest, _)) = self.ends.pop_front() else { return };
            self.bytes -= bytes(&oldest);
        }
    }

    /// The end of this attempt, to be told again.
    pub(super) fn take(&mut self, fence: Fence) -> Option<AttemptEvent> {
        self.take_those(|end, _| end.fence() == fence).pop()
    }

    /// Those that a coordinator of this generation, which knows of none after
    /// `newest`, has not heard.
    pub(super) fn take_unknown(
        &mut self,
        generation: Generation,
        newest: Fence,
    ) -> Vec<AttemptEvent> {
        self.take_those(|end, known_to| {
            known_to != generation && is_unknown(end.fence(), generation, newest)
        })
    }

    fn take_those(
        &mut self,
        which: impl Fn(&AttemptEvent, Generation) -> bool,
    ) -> Vec<AttemptEvent> {
        let all = std::mem::take(&mut self.ends).into_iter();
        let (taken, left): (Vec<_>, Vec<_>) = all.partition(|(end, at)| which(end, *at));
        self.ends = left.into();
        self.bytes = self.ends.iter().map(|(end, _)| bytes(end)).sum();
        taken.into_iter().map(|(end, _)| end).collect()
    }
}

/// Does a coordinator of this generation, which knows of none after `newest`, not know it?
fn is_unknown(fence: Fence, generation: Generation, newest: Fence) -> bool {
    newest < fence && fence.generation < generation
}

/// What an end takes up beyond its own size.
fn bytes(end: &AttemptEvent) -> usize {
    let printed = |printed: &Printed| match printed {
        Printed::Inline(bytes) => bytes.len(),
        Printed::Staged { .. } => 0,
    };
    match end {
        AttemptEvent::Finished(it) => {
            let paths: usize = it.outputs.iter().map(|file| file.path.len() + 64).sum();
            printed(&it.stdout) + printed(&it.stderr) + paths
        }
        AttemptEvent::Refused { reason, .. }
        | AttemptEvent::Retreated { reason, .. }
        | AttemptEvent::Lost { reason, .. } => reason.len(),
        AttemptEvent::Started { .. }
        | AttemptEvent::Suspended { .. }
        | AttemptEvent::Demoted { .. }
        | AttemptEvent::Resumed { .. }
        | AttemptEvent::WantsAway { .. }
        | AttemptEvent::Arrived { .. }
        | AttemptEvent::CannotLeave { .. }
        | AttemptEvent::Stays { .. } => 0,
    }
}
