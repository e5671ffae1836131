//! The spool's files, and where its lives come from: what it decides is in
//! `gleaner-agent-core`.

use std::path::{Path, PathBuf};

use gleaner_agent_core::spool::{self, Deferred, Exchange, Note, OpenError, Recorded};
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::wire::{UsageFrame, UsageReply};
use gleaner_shell::atomic;
use gleaner_shell::disk::Files;

/// Why there is no spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("{}: {source}", directory.display())]
    Open { directory: PathBuf, source: OpenError },
    #[error("no random number for the life of the usage spool: {0}")]
    Life(getrandom::Error),
}

/// Records that wait for the collector, on this machine's disk.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Files,
    spool: spool::Spool,
}

impl Spool {
    /// Opens or makes the spool. Also returns what was found wrong with it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(directory: &Path, boot: BootId) -> Result<(Self, Vec<Note>), SpoolError> {
        let mut files = Files::new(directory, atomic::PRIVATE);
        let failed = |source| SpoolError::Open { directory: directory.to_owned(), source };
        let life = drawn_life().map_err(SpoolError::Life)?;
        let (spool, notes) = spool::Spool::open(&mut files, life, boot).map_err(failed)?;
        Ok((Self { files, spool }, notes))
    }

    pub(crate) fn append(&mut self, recorded: &Recorded) -> Option<Note> {
        self.spool.append(&mut self.files, recorded)
    }

    pub(crate) fn save(&mut self) -> Option<Note> {
        self.spool.save(&mut self.files)
    }

    pub(crate) fn has_unsaved(&self) -> bool {
        self.spool.has_unsaved()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spool.is_empty()
    }

    pub(crate) fn next_frame(&mut self, exchange: &mut Exchange) -> Option<UsageFrame> {
        exchange.next_frame(&mut self.spool)
    }

    pub(crate) fn hear(
        &mut self,
        exchange: &mut Exchange,
        reply: UsageReply,
    ) -> Result<Vec<Note>, Deferred> {
        let fresh = drawn_life().map_err(|error| Deferred(error.to_string()))?;
        exchange.hear(&mut self.files, &mut self.spool, reply, fresh)
    }
}

/// Never twice the same, on no machine.
fn drawn_life() -> Result<SpoolLife, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(SpoolLife(bytes))
}
