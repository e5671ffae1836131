//! Waiting for a job's end, with a progress bar where somebody looks.
//!
//! A coordinator that restarts meanwhile is waited for: the job outlives it,
//! and so does the waiting.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::JobSummary;
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::backoff::Backoff;
use gleaner_shell::client::{Client, ClientError};
use gleaner_shell::clock::Clock;
use indicatif::{ProgressBar, ProgressStyle};

use crate::ask::{self, Access};
use crate::failure::Refusal;
use crate::output;

const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_LONGEST: Duration = Duration::from_secs(2);

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Watched {
    Ended(JobSummary),
    /// By Ctrl-C; the job goes on.
    Interrupted,
}

/// Waits until a job has ended.
///
/// # Errors
/// No such job, or a coordinator that refuses us for good.
pub(super) async fn until_end(client: &Client, access: &Access, job: JobId) -> Result<Watched> {
    let mut bar = None;
    let watched = tokio::select! {
        ended = follow_on(client, access, job, &mut bar) => Watched::Ended(ended?),
        _ = tokio::signal::ctrl_c() => Watched::Interrupted,
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(watched)
}

async fn follow_on(
    client: &Client,
    access: &Access,
    job: JobId,
    bar: &mut Option<ProgressBar>,
) -> Result<JobSummary> {
    let mut failure = match follow(client, job, bar).await? {
        Followed::Ended(summary) => return Ok(summary),
        Followed::Lost(error) => error,
    };
    loop {
        output::say(&format!("{failure}; waiting for the coordinator"));
        let again = reconnect(Clock, access).await?;
        failure = match follow(&again, job, bar).await? {
            Followed::Ended(summary) => return Ok(summary),
            Followed::Lost(error) => error,
        };
        Clock.sleep(WAIT_FIRST).await;
    }
}

enum Followed {
    Ended(JobSummary),
    /// The connection broke; trying again may help.
    Lost(ClientError),
}

async fn follow(client: &Client, job: JobId, bar: &mut Option<ProgressBar>) -> Result<Followed> {
    let mut rows = match client.rows(&Request::Watch(job)).await {
        Ok(rows) => rows,
        Err(error) => return lost(error),
    };
    let mut latest = None;
    loop {
        match rows.next().await {
            Ok(Some(Reply::Summary(summary))) if summary.state.has_ended() => {
                return Ok(Followed::Ended(summary));
            }
            Ok(Some(Reply::Summary(summary))) => {
                show(bar.get_or_insert_with(|| new_bar(&summary)), &summary);
                latest = Some(summary);
            }
            Ok(Some(Reply::No { reason })) => return Err(Refusal(reason).into()),
            Ok(Some(_)) => return Err(ask::unexpected(&Request::Watch(job))),
            Ok(None) => anyhow::bail!("the coordinator stopped telling of job {job}: {latest:?}"),
            Err(error) => return lost(error),
        }
    }
}

fn lost(error: ClientError) -> Result<Followed> {
    if is_final(&error) { Err(ask::failed(error)) } else { Ok(Followed::Lost(error)) }
}

fn is_final(error: &ClientError) -> bool {
    match error {
        ClientError::Connect(error) => error.is_final(),
        ClientError::NoReply { .. } | ClientError::Stream { .. } => false,
        ClientError::Blob(_) => true,
    }
}

async fn reconnect(clock: Clock, access: &Access) -> Result<Client> {
    let identity = access.load()?;
    for wait in Backoff::new(WAIT_FIRST, WAIT_LONGEST) {
        clock.sleep(wait).await;
        match Client::connect(&identity, access.coordinator.as_deref()).await {
            Ok(client) => return Ok(client),
            Err(error) if is_final(&error) => return Err(ask::failed(error)),
            Err(_) => {}
        }
    }
    unreachable!("the waits have no end")
}

/// Hidden by itself where standard error is no terminal.
fn new_bar(summary: &JobSummary) -> ProgressBar {
    let template = "{prefix} {bar:30} {pos}/{len}  {msg}  {eta} left";
    bar(template, format!("job {}", summary.job), summary.total.into())
}

fn show(bar: &ProgressBar, summary: &JobSummary) {
    bar.set_message(format!(
        "{} running, {} suspended, {} failed, {} retreats",
        summary.running, summary.suspended, summary.counts.failed, summary.counts.retreats
    ));
    bar.set_position(u64::from(summary.counts.ended()));
}

/// A bar for bytes on their way; `quiet` for so few that it would only blink.
pub(super) fn bytes_bar(what: &'static str, bytes: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    bar("{prefix} {bar:30} {bytes}/{total_bytes}  {eta} left", what, bytes)
}

/// A bar for things that are counted.
pub(super) fn count_bar(what: &'static str, many: u64) -> ProgressBar {
    bar("{prefix} {bar:30} {pos}/{len}  {eta} left", what, many)
}

pub(super) fn bar(
    template: &str,
    prefix: impl Into<Cow<'static, str>>,
    length: u64,
) -> ProgressBar {
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|error| unreachable!("the templates are ours: {error}"));
    ProgressBar::new(length).with_style(style).with_prefix(prefix)
}
