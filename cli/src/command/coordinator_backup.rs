//! `glean coordinator backup` and `restore`: one file with all that a coordinator
//! must not forget.

use std::path::PathBuf;

use anyhow::Result;
use gleaner_coordinator::{BackupError, CoordinatorError};

use super::daemon::{RunCoordinator, coordinator_config};
use crate::failure::{Verdict, hinted};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// The file to make; only its owner can read it.
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    /// Replace the file if there is one.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// What `glean coordinator backup` made.
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
}

/// # Errors
/// There is nothing to save, or nowhere to.
pub fn backup(run: &RunCoordinator, args: &BackupArgs) -> Result<Verdict> {
    let config = coordinator_config(run)?;
    let saved = gleaner_coordinator::backup(&config.data, &args.to, args.force);
    let saved = saved.map_err(|error| {
        if matches!(error, BackupError::Exists { .. }) {
            return hinted(error.to_string(), "--force replaces it");
        }
        error.into()
    })?;
    let (rows, kib, blobs) = (saved.rows, saved.bytes >> 10, config.data.join("blobs"));
    output::line(&format!(
        "saved {rows} rows and the authority: {kib} KiB; staged files are not in it: {}",
        blobs.display()
    ))?;
    Ok(Verdict::Yes)
}

/// # Errors
/// The file is no whole backup, or the coordinator runs.
pub fn restore(run: &RunCoordinator, args: &RestoreArgs) -> Result<Verdict> {
    let config = coordinator_config(run)?;
    let restored = gleaner_coordinator::restore(&config.data, &args.from);
    let restored = restored.map_err(|error| {
        if matches!(error, BackupError::Data(CoordinatorError::InUse { .. })) {
            let hint = "sudo systemctl stop gleaner-coordinator, then again";
            return hinted(error.to_string(), hint);
        }
        error.into()
    })?;
    output::line(&format!("{} rows are back", restored.rows))?;
    if let Some(kept) = restored.kept {
        output::line(&format!("what was there is kept in {}", kept.display()))?;
    }
    Ok(Verdict::Yes)
}
