//! `glean coordinator backup` and `restore`: one file with all that a coordinator
//! must not forget.

use std::path::PathBuf;

use anyhow::Result;
use gleaner_coordinator::{BackupError, CoordinatorError};

use super::daemon::{CoordinatorHome, coordinator_config};
use crate::failure::{Verdict, hinted};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// The file to make; only its owner can read it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace the file if there is one.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub home: CoordinatorHome,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// What `glean coordinator backup` made.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub home: CoordinatorHome,
}

/// # Errors
/// There is nothing to save, or nowhere to.
pub fn backup(args: &BackupArgs) -> Result<Verdict> {
    let config = coordinator_config(&args.home)?;
    let saved = gleaner_coordinator::backup(&config.data, &args.file, args.force);
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
pub fn restore(args: &RestoreArgs) -> Result<Verdict> {
    let config = coordinator_config(&args.home)?;
    let restored = gleaner_coordinator::restore(&config.data, &args.file);
    let restored = restored.map_err(|error| {
        if matches!(error, BackupError::Data(CoordinatorError::InUse { .. })) {
            let hint = "sudo systemctl stop gleaner-coordinator, then again";
            return hinted(error.to_string(), hint);
        }
        error.into()
    })?;
    output::line(&format!("{} rows are back", restored.rows))?;
    if restored.tokens > 0 {
        let tokens = restored.tokens;
        output::line(&format!("{tokens} open tokens are revoked: they may have been used since"))?;
    }
    output::line(
        "who was revoked since the backup is let in again: revoke them anew; \
         who was enrolled or has rotated their key since needs a token for their name",
    )?;
    if let Some(kept) = restored.kept {
        output::line(&format!("what was there is kept in {}", kept.display()))?;
    }
    Ok(Verdict::Yes)
}
