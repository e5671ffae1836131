//! Asking the coordinator: who asks, whom, and what its answers mean here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gleaner_common::id::JobId;
use gleaner_common::report::SubprogramRow;
use gleaner_common::wire::{Reply, Request, close};
use gleaner_shell::client::{Client, ClientError};
use gleaner_shell::clock::Clock;
use gleaner_shell::enrol::renew_if_due;
use gleaner_shell::identity::{Identity, IdentityError};
use jiff::Timestamp;
use quinn::VarInt;

use crate::failure::{Refusal, hinted};
use crate::output;
use crate::values;

/// Where a coordinator keeps its administrator's identity on its own host.
pub const ADMIN: &str = "/var/lib/gleaner/coordinator/admin";

/// Who asks, and whom.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Access {
    /// The directory of the identity to use [default: ~/.config/gleaner, else the coordinator's
    /// own on its host].
    #[arg(long, env = "GLEAN_IDENTITY", value_name = "DIR", hide_env_values = true)]
    pub identity: Option<PathBuf>,
    /// Another address of the coordinator than the one enrolled with.
    #[arg(long, value_name = "HOST:PORT", value_parser = values::address)]
    pub coordinator: Option<String>,
}

impl Access {
    /// The identity to show.
    ///
    /// # Errors
    /// There is none, or it does not read.
    pub fn load(&self) -> Result<Identity> {
        let dir = self.directory()?;
        Identity::load(&dir).map_err(|error| {
            let message = error.to_string();
            if matches!(error, IdentityError::NotEnrolled { .. }) {
                not_enrolled(&message)
            } else if matches!(error, IdentityError::Unreadable { .. }) {
                hinted(message, "an identity is its owner's alone; sudo if it is the coordinator's")
            } else {
                error.into()
            }
        })
    }

    /// Where the identity is kept.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.identity {
            return Ok(dir.clone());
        }
        let own = own_directory();
        let admin = Path::new(ADMIN);
        let candidates = own.iter().map(PathBuf::as_path).chain([admin]);
        let found = candidates.into_iter().find(|dir| dir.join("identity.toml").exists());
        found.map(Path::to_owned).ok_or_else(|| {
            let own = own.as_deref().map(|own| format!("{} or ", own.display()));
            not_enrolled(&format!(
                "not enrolled: no identity in {}{ADMIN}",
                own.unwrap_or_default()
            ))
        })
    }
}

fn not_enrolled(message: &str) -> anyhow::Error {
    hinted(
        message,
        "glean enrol --coordinator HOST:PORT --token T makes one; an admin gives the token, and is \
         root on the coordinator's host",
    )
}

/// Where a user's own identity is kept; `None` for a user without a home.
pub fn own_directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))
        .map(|config| config.join("gleaner"))
}

/// Connects, asks and says goodbye, on a runtime of its own.
///
/// # Errors
/// No identity, no coordinator, or those of the work.
pub fn ask<T>(access: &Access, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let identity = access.load()?;
    runtime()?.block_on(async {
        let client = connect(access, &identity).await?;
        let result = work(&client).await;
        renew(access, &client, &identity).await;
        goodbye(&client).await;
        result
    })
}

/// Renews the identity if two thirds of its certificate's time are over. What
/// was asked is answered, whatever becomes of this.
async fn renew(access: &Access, client: &Client, identity: &Identity) {
    let Ok(dir) = access.directory() else { return };
    let connection = &client.link().connection;
    let renewed = renew_if_due(connection, &dir, identity, Clock::new().wall()).await;
    let until = identity
        .validity()
        .map(|validity| Timestamp::from_second(validity.until.0.div_euclid(1_000_000_000)));
    if let (Err(error), Some(Ok(until))) = (renewed, until) {
        output::say(&format!(
            "glean: this identity runs out at {until} and is not renewed: {error}"
        ));
    }
}

/// Says goodbye without waiting for it to be heard, which takes longer than
/// most commands: one that is lost costs the coordinator its idle timeout.
/// Every answer is in when this is called.
async fn goodbye(client: &Client) {
    client.link().connection.close(VarInt::from_u32(close::DONE), b"");
    // The connection's driver, and then the endpoint's, send it when they run.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

/// # Errors
/// No thread or file descriptor left.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start")
}

/// # Errors
/// See [`ClientError`].
pub async fn connect(access: &Access, identity: &Identity) -> Result<Client> {
    Client::connect(identity, access.coordinator.as_deref()).await.map_err(failed)
}

/// A failure with its next step.
pub fn failed(error: ClientError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => hinted(error.to_string(), hint),
        None => error.into(),
    }
}

/// One request, one reply; "no" is a [`Refusal`].
///
/// # Errors
/// No answer, or "no".
pub async fn one(client: &Client, request: &Request) -> Result<Reply> {
    let reply = client.request(request).await.map_err(failed)?;
    if let Reply::No { reason } = reply { Err(Refusal(reason).into()) } else { Ok(reply) }
}

/// A listing, each row as `pick` takes it.
///
/// # Errors
/// No answer, "no", or a row of another kind.
pub async fn rows<T>(
    client: &Client,
    request: &Request,
    pick: impl Fn(Reply) -> Option<T>,
) -> Result<Vec<T>> {
    let mut rows = vec![];
    let keep = async |row| {
        rows.push(row);
        Ok(())
    };
    every_row(client, request, pick, keep).await?;
    Ok(rows)
}

/// A listing too long to be kept: each row is used as it comes.
///
/// # Errors
/// No answer, "no", a row of another kind, or those of the use.
pub async fn every_row<T>(
    client: &Client,
    request: &Request,
    pick: impl Fn(Reply) -> Option<T>,
    mut take: impl AsyncFnMut(T) -> Result<()>,
) -> Result<()> {
    let mut listing = client.rows(request).await.map_err(failed)?;
    while let Some(reply) = listing.next().await.map_err(failed)? {
        if let Reply::No { reason } = reply {
            return Err(Refusal(reason).into());
        }
        take(pick(reply).ok_or_else(|| unexpected(request))?).await?;
    }
    Ok(())
}

/// As [`every_row`], a table's page of them at a time; at least one, which may
/// be empty.
///
/// # Errors
/// As [`every_row`].
pub(crate) async fn every_page<T>(
    client: &Client,
    request: &Request,
    pick: impl Fn(Reply) -> Option<T>,
    mut take: impl AsyncFnMut(Vec<T>) -> Result<()>,
) -> Result<()> {
    let mut page = vec![];
    let row = async |row| {
        page.push(row);
        if page.len() < PAGE_ROWS { Ok(()) } else { take(std::mem::take(&mut page)).await }
    };
    every_row(client, request, pick, row).await?;
    take(page).await
}

/// A job's subprograms, in order.
///
/// # Errors
/// As [`rows`].
pub async fn subprograms(client: &Client, job: JobId) -> Result<Vec<SubprogramRow>> {
    some_subprograms(client, job, 0, u32::MAX).await
}

/// The subprograms with indexes from `first`, at most so many.
///
/// # Errors
/// As [`rows`].
pub async fn some_subprograms(
    client: &Client,
    job: JobId,
    first: u32,
    count: u32,
) -> Result<Vec<SubprogramRow>> {
    rows(client, &Request::Subprograms { job, first, count }, subprogram).await
}

/// A row of a job's subprograms.
pub fn subprogram(reply: Reply) -> Option<SubprogramRow> {
    if let Reply::Subprogram(row) = reply { Some(*row) } else { None }
}

/// So many rows show how wide a table's columns must be.
const PAGE_ROWS: usize = 1_000;

/// As many requests under way at once as hide the network's delay.
const LANES: usize = 8;

/// Does the work for every item, several at once.
///
/// # Errors
/// The first failure; what is under way is dropped then.
pub async fn each<T>(items: &[T], work: impl AsyncFn(&T) -> Result<()>) -> Result<()> {
    let lane = |first: usize| {
        let work = &work;
        Box::pin(async move {
            for item in items.iter().skip(first).step_by(LANES) {
                work(item).await?;
            }
            anyhow::Ok(())
        })
    };
    tokio::try_join!(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7))?;
    Ok(())
}

/// The coordinator answered another question than the one asked.
pub fn unexpected(request: &Request) -> anyhow::Error {
    let asked = format!("{request:?}");
    let asked = asked.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    anyhow::anyhow!("the coordinator gave an answer that does not fit the request {asked}")
}
