//! `glean fetch`: what a job left in `$GLEAN_OUTPUT`.
//!
//! A file appears under its name when it is whole and its content is what its
//! hash says; one that is there already with that content is not fetched again.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::is_inside;
use gleaner_common::units::spoken_size;
use gleaner_common::wire::{OutputFile, Reply, Request};
use gleaner_shell::blob;
use gleaner_shell::client::Client;

use super::watch;
use crate::ask::{self, Access, ask};
use crate::failure::{Refusal, Verdict};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number.
    #[arg(value_name = "JOB")]
    pub job: JobId,
    /// Where to: files come to DIR/<index>/<path>.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    #[command(flatten)]
    pub access: Access,
}

/// # Errors
/// No answer, no such job, or files that cannot be had or written.
pub fn run(args: &Args) -> Result<Verdict> {
    check_writable(&args.out)?;
    let files = ask(&args.access, async |client| fetch(client, args.job, &args.out).await)?;
    Ok(Verdict::from(files > 0))
}

/// Could files come to this directory? It is made when the first one does.
///
/// # Errors
/// What is in the way, before anything is asked or run for it.
pub(super) fn check_writable(dir: &Path) -> Result<()> {
    let here = |it| if it == Path::new("") { Path::new(".") } else { it };
    let there = dir.ancestors().map(here).find(|it| it.symlink_metadata().is_ok());
    let there = there.with_context(|| format!("there is no {}", dir.display()))?;
    if !there.is_dir() {
        bail!("{} is no directory: expected one for what comes back", there.display());
    }
    rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .with_context(|| format!("cannot write to {}", there.display()))
}

/// Fetches everything, and says what that was. Returns the number of files.
///
/// # Errors
/// As [`run`].
pub(super) async fn fetch(client: &Client, job: JobId, to: &Path) -> Result<usize> {
    let files = list(client, job, to).await?;
    let bytes: u64 = files.iter().map(|(_, file)| file.size_bytes).sum();
    let bar = watch::bytes_bar("fetching", bytes, false);
    ask::each(&files, async |(path, file)| {
        let fetched = one(client, path, file).await;
        fetched.with_context(|| format!("cannot fetch {}", path.display()))?;
        bar.inc(file.size_bytes);
        Ok(())
    })
    .await?;
    bar.finish_and_clear();
    match files.len() {
        0 => output::say(&format!("job {job} has left no files yet")),
        1 => output::say(&format!("1 file, {}, is in {}", spoken_size(bytes), to.display())),
        many => {
            output::say(&format!("{many} files, {}, are in {}", spoken_size(bytes), to.display()));
        }
    }
    Ok(files.len())
}

/// Every file there is, and where it is to be.
async fn list(client: &Client, job: JobId, to: &Path) -> Result<Vec<(PathBuf, OutputFile)>> {
    let rows = ask::subprograms(client, job).await?;
    let bar = watch::count_bar("looking", rows.len() as u64);
    let files = RefCell::new(vec![]);
    ask::each(&rows, async |row| {
        let left = outputs(client, row.subprogram).await?;
        let home = to.join(row.subprogram.index.to_string());
        files.borrow_mut().extend(left.into_iter().map(|file| (home.join(&file.path), file)));
        bar.inc(1);
        Ok(())
    })
    .await?;
    bar.finish_and_clear();
    Ok(files.into_inner())
}

/// What a subprogram left; nothing while it has not ended.
async fn outputs(client: &Client, id: SubprogramId) -> Result<Vec<OutputFile>> {
    let request = Request::Output(id);
    let outputs = match ask::one(client, &request).await {
        Ok(Reply::Output { outputs, .. }) => outputs,
        Ok(_) => return Err(ask::unexpected(&request)),
        Err(error) if error.is::<Refusal>() => vec![],
        Err(error) => return Err(error),
    };
    if let Some(file) = outputs.iter().find(|file| !is_inside(&file.path)) {
        bail!("{id} left `{}`: expected a path inside its directory", file.path);
    }
    Ok(outputs)
}

async fn one(client: &Client, path: &Path, file: &OutputFile) -> Result<()> {
    if let Ok((hash, _)) = blob::hash_file(path).await
        && hash == file.hash
    {
        return Ok(());
    }
    let parent = path.parent().context("it has no directory")?;
    fs::create_dir_all(parent)?;
    let part = tempfile::Builder::new().prefix(".glean-part-").tempfile_in(parent)?;
    let sink = tokio::fs::File::from_std(part.reopen()?);
    client.get(file.hash, sink).await.map_err(ask::failed)?;
    let mode = if file.executable { 0o755 } else { 0o644 };
    fs::set_permissions(part.path(), fs::Permissions::from_mode(mode))?;
    part.persist(path)?;
    Ok(())
}
