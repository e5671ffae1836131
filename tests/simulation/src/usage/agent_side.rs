//! An agent's spool on a disk that fails, and what the world knows of both.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_agent_core::occupancy::Transition;
use gleaner_agent_core::spool::{Bounds, Deferred, Exchange, Note, Recorded, Spool};
use gleaner_common::disk::simulated::{DiskCopy, Draws, SimulatedDisk};
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::WallTime;
use gleaner_common::wire::{UsageFrame, UsageReply};

use crate::lab::invariant::holds;

/// An agent's end of the path.
#[derive(Debug)]
pub(crate) struct AgentSide {
    pub(crate) disk: SimulatedDisk,
    spool: Option<Spool>,
    boot: BootId,
    pub(super) bounds: Bounds,
    draws: Draws,
    /// Every transition has a number of its own, which its reason begins with.
    pub(super) appended: u64,
    pub(super) saved: BTreeSet<u64>,
    unsaved: BTreeSet<u64>,
    /// Destroyed with the only disk that had them.
    pub(super) excused: BTreeSet<u64>,
    copy: Option<(DiskCopy, BTreeSet<u64>)>,
    pub(super) flips: usize,
    pub(super) told: usize,
}

impl AgentSide {
    pub(crate) fn new(seed: u64, boot: BootId) -> Self {
        let mut draws = Draws::new(seed);
        let disk = SimulatedDisk::new(draws.any());
        // As they are, or so small that records are cleared away all the time.
        let bounds = if draws.one_in(2) {
            Bounds::default()
        } else {
            Bounds {
                compact_bytes: draws.below(1_000),
                confirmed_kept: usize::try_from(draws.below(20)).unwrap_or_default(),
            }
        };
        Self {
            disk,
            spool: None,
            boot,
            bounds,
            draws,
            appended: 0,
            saved: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            excused: BTreeSet::new(),
            copy: None,
            flips: 0,
            told: 0,
        }
    }

    // ── its process ────────────────────────────────────────────────────────

    /// A new life, unless it lives.
    pub(crate) fn start(&mut self) {
        if self.spool.is_some() {
            return;
        }
        let life = self.drawn_life();
        let opened = Spool::open_within(&mut self.disk, life, self.boot, self.bounds);
        let (spool, notes) = opened.unwrap_or_else(|error| panic!("{error}"));
        self.spool = Some(spool);
        self.hear_notes(&notes);
    }

    pub(crate) fn dies(&mut self) {
        self.spool = None;
        self.unsaved.clear();
    }

    fn drawn_life(&mut self) -> SpoolLife {
        let (high, low) = (self.draws.any().to_le_bytes(), self.draws.any().to_le_bytes());
        let mut life = [0; 16];
        life[..8].copy_from_slice(&high);
        life[8..].copy_from_slice(&low);
        SpoolLife(life)
    }

    /// Keeps a transition under the next number.
    pub(crate) fn append(&mut self, transition: &Transition, wall: WallTime, since_boot: Duration) {
        let Some(spool) = &mut self.spool else { return };
        self.appended += 1;
        let reason = format!("{} {}", self.appended, transition.reason);
        let transition = Transition { reason, ..transition.clone() };
        let recorded = Recorded { transition, wall, since_boot };
        let note = spool.append(&mut self.disk, &recorded);
        self.unsaved.insert(self.appended);
        self.see_what_is_saved(note.as_ref());
    }

    pub(crate) fn save(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        let note = spool.save(&mut self.disk);
        self.see_what_is_saved(note.as_ref());
    }

    pub(crate) fn has_unsaved(&self) -> bool {
        self.spool.as_ref().is_some_and(Spool::has_unsaved)
    }

    /// Is all that it has with the collector, as far as it knows?
    pub(crate) fn is_empty(&self) -> bool {
        self.spool.as_ref().is_some_and(Spool::is_empty)
    }

    fn see_what_is_saved(&mut self, note: Option<&Note>) {
        self.hear_notes(note);
        if !self.has_unsaved() {
            self.saved.append(&mut self.unsaved);
        }
    }

    fn hear_notes<'a>(&mut self, notes: impl IntoIterator<Item = &'a Note>) {
        for note in notes {
            holds!(UsageSequence, !matches!(note, Note::Nonsense { .. }), "{note}");
            self.told += usize::from(note.is_trouble());
        }
    }

    // ── its stream ─────────────────────────────────────────────────────────

    pub(crate) fn next_frame(&mut self, exchange: &mut Exchange) -> Option<UsageFrame> {
        let frame = exchange.next_frame(self.spool.as_mut()?)?;
        if let UsageFrame::Records(records) = &frame {
            for record in records {
                let token = token(&record.reason);
                let is_saved = !self.unsaved.contains(&token);
                holds!(UsageSequence, is_saved, "{token} was sent and not saved");
            }
        }
        Some(frame)
    }

    /// # Errors
    /// The stream is to be given up.
    pub(crate) fn hear(
        &mut self,
        exchange: &mut Exchange,
        reply: UsageReply,
    ) -> Result<(), Deferred> {
        let fresh = self.drawn_life();
        let Some(spool) = &mut self.spool else { return Ok(()) };
        let notes = exchange.hear(&mut self.disk, spool, reply, fresh)?;
        self.hear_notes(&notes);
        self.see_what_is_saved(None);
        Ok(())
    }

    // ── its disk ───────────────────────────────────────────────────────────

    /// The machine loses its power, and its process with it.
    pub(crate) fn loses_power(&mut self) {
        self.dies();
        self.disk.crash();
    }

    pub(crate) fn flip_a_bit(&mut self) {
        self.flips += usize::from(self.disk.flip_a_bit());
    }

    /// An older copy of the disk takes its place: the last that was taken, if there
    /// is one, and otherwise one is taken now. `kept` is what the collector has. False
    /// if nothing went back.
    pub(crate) fn goes_back(&mut self, kept: impl FnOnce() -> BTreeSet<u64>) -> bool {
        let Some((copy, had)) = self.copy.take() else {
            self.copy = Some((self.disk.copy(), self.saved.clone()));
            return false;
        };
        self.dies();
        self.disk.restore(&copy);
        let kept = kept();
        let lost = self.saved.iter().filter(|token| !had.contains(token) && !kept.contains(token));
        self.excused.extend(lost);
        true
    }
}

/// A record's number.
pub(super) fn token(reason: &str) -> u64 {
    let number = reason.split(' ').next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("`{reason}` has no number"))
}
