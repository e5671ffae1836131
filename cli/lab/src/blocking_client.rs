//! Asking the coordinator from a thread that has no runtime: the demo and the
//! benches, which spend their time with terminals and clocks.

use std::path::Path;

use anyhow::{Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::JobSpec;
use gleaner_common::report::{AttemptRow, JobRow, JobSummary};
use gleaner_common::wire::{Printed, Reply, Request};
use gleaner_shell::client::Client;
use gleaner_shell::identity::Identity;
use tokio::runtime::{Builder, Runtime};

/// An open connection, and the runtime it lives on, whose thread keeps it alive
/// while nobody asks.
#[derive(Debug)]
pub struct BlockingClient {
    runtime: Runtime,
    client: Client,
}

impl BlockingClient {
    /// # Errors
    /// See [`Client::connect`].
    pub fn connect(identity: &Path, address: Option<&str>) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let identity = Identity::load(identity)?;
        let client = runtime.block_on(Client::connect(&identity, address))?;
        Ok(Self { runtime, client })
    }

    /// Does something with the connection below.
    pub fn with<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        self.runtime.block_on(work(&self.client))
    }

    /// # Errors
    /// The connection ended, or the answer is no.
    pub fn request(&self, request: &Request) -> Result<Reply> {
        let reply = self.runtime.block_on(self.client.request(request))?;
        if let Reply::No { reason } = reply {
            bail!("{reason}");
        }
        Ok(reply)
    }

    /// # Errors
    /// The connection ended, or the answer is no.
    pub fn rows(&self, request: &Request) -> Result<Vec<Reply>> {
        self.runtime.block_on(async {
            let mut rows = self.client.rows(request).await?;
            let mut found = vec![];
            while let Some(row) = rows.next().await? {
                if let Reply::No { reason } = row {
                    bail!("{reason}");
                }
                found.push(row);
            }
            Ok(found)
        })
    }

    /// # Errors
    /// As for `request`.
    pub fn job(&self, job: JobId) -> Result<JobRow> {
        let reply = self.request(&Request::Job(job))?;
        let Reply::Job(row) = reply else { bail!("asked for job {job} and got {reply:?}") };
        Ok(*row)
    }

    /// A subprogram's attempts, oldest first.
    ///
    /// # Errors
    /// As for `request`.
    pub fn attempts(&self, id: SubprogramId) -> Result<Vec<AttemptRow>> {
        let rows = self.rows(&Request::Attempts(id))?.into_iter();
        let row = |row| if let Reply::Attempt(row) = row { Some(*row) } else { None };
        Ok(rows.filter_map(row).collect())
    }

    /// The little that a subprogram has printed.
    ///
    /// # Errors
    /// As for `request`, or it has printed too much.
    pub fn printed(&self, id: SubprogramId) -> Result<String> {
        let reply = self.request(&Request::Output(id))?;
        let Reply::Output { stdout: Printed::Inline(text), .. } = reply else {
            bail!("asked what {id} has printed and got {reply:?}")
        };
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// # Errors
    /// The job is refused.
    pub fn submit(&self, spec: JobSpec) -> Result<JobId> {
        let reply = self.request(&Request::Submit(Box::new(spec)))?;
        let Reply::Submitted(job) = reply else { bail!("submitted a job and got {reply:?}") };
        Ok(job)
    }

    /// Waits until a job has ended.
    ///
    /// # Errors
    /// The connection ended first.
    pub fn wait(&self, job: JobId) -> Result<JobSummary> {
        self.wait_for(job, |summary| summary.state.has_ended())
    }

    /// Waits until a job is as wanted.
    ///
    /// # Errors
    /// The connection or the job ended first.
    pub fn wait_for(&self, job: JobId, is_so: impl Fn(&JobSummary) -> bool) -> Result<JobSummary> {
        self.runtime.block_on(async {
            let mut rows = self.client.rows(&Request::Watch(job)).await?;
            while let Some(row) = rows.next().await? {
                let Reply::Summary(summary) = row else {
                    bail!("watched job {job} and got {row:?}");
                };
                if is_so(&summary) {
                    return Ok(summary);
                }
            }
            bail!("the coordinator stopped telling of job {job}")
        })
    }
}
