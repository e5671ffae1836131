//! Somebody who keeps the lab busy, whatever becomes of it: submits, changes their
//! mind, asks again where no answer came, and at the end compares all answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::{JobState, SubprogramState};
use gleaner_common::time::Moment;
use gleaner_common::wire::{Printed, Reply, Request};
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_shell::clock::Clock;

use crate::jobs::Job;
use crate::settled::{Settled, Told};

/// How often the user looks at their jobs.
const LOOK: Duration = Duration::from_millis(200);

/// How long after no answer they dial again.
const AGAIN: Duration = Duration::from_millis(300);

/// What a user needs.
#[derive(Clone, Debug)]
pub struct Means {
    pub seed: u64,
    pub identity: PathBuf,
    pub address: String,
    /// The guests' program.
    pub guest: Vec<u8>,
    /// So many subprograms are to be unfinished at any time.
    pub unfinished: u32,
}

/// A job that the coordinator said it has.
#[derive(Clone, Debug)]
struct Submitted {
    id: JobId,
    job: Job,
    /// When its user knew that it was accepted.
    at: Moment,
    /// When its user knew that it had.
    ended: Option<Moment>,
}

#[derive(Debug, Default)]
struct Shared {
    jobs: Mutex<Vec<Submitted>>,
    /// By the numbers of jobs: they may have been cancelled.
    cancelled: Mutex<BTreeSet<u64>>,
    asks: Mutex<VecDeque<Request>>,
    enough: AtomicBool,
    stop: AtomicBool,
}

/// The user, in a thread of their own.
#[derive(Debug)]
pub struct User {
    means: Means,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl User {
    /// In the network of the calling thread.
    pub fn start(means: Means) -> Self {
        let shared = Arc::new(Shared::default());
        let mut at_work =
            AtWork { means: means.clone(), shared: Arc::clone(&shared), client: None, next: 0 };
        let thread = std::thread::spawn(move || at_work.run());
        Self { means, shared, thread }
    }

    /// Asks for something as soon as somebody answers.
    pub fn ask(&self, request: Request) {
        locked(&self.shared.asks).push_back(request);
    }

    /// Nothing more is submitted.
    pub fn submits_no_more(&self) {
        self.shared.enough.store(true, Ordering::Relaxed);
    }

    /// The jobs that have not ended, as far as is known, and what was asked for and
    /// is not done.
    pub fn open(&self) -> usize {
        let jobs = locked(&self.shared.jobs).iter().filter(|job| job.ended.is_none()).count();
        jobs + locked(&self.shared.asks).len()
    }

    /// The coordinator's store is as it was then: what it accepted since is not known
    /// any more, and what has ended since may have to run again.
    pub fn went_back(&self, to: Moment) {
        let mut jobs = locked(&self.shared.jobs);
        jobs.retain(|job| job.at < to);
        jobs.iter_mut().for_each(|job| job.ended = job.ended.filter(|ended| *ended < to));
    }

    /// # Errors
    /// The user has died, or the coordinator does not tell.
    pub fn settle(self) -> Result<Settled> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the user died"))?;
        let jobs = std::mem::take(&mut *locked(&self.shared.jobs));
        let cancelled = std::mem::take(&mut *locked(&self.shared.cancelled));
        let client = BlockingClient::connect(&self.means.identity, Some(&self.means.address))?;
        let accepted: BTreeMap<_, _> = jobs.into_iter().map(|it| (it.id, it.job)).collect();
        Ok(Settled::judge(&told(&client, self.means.seed)?, &accepted, &cancelled))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct AtWork {
    means: Means,
    shared: Arc<Shared>,
    client: Option<BlockingClient>,
    next: u64,
}

impl AtWork {
    fn run(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            // Nobody answers, or not in time: that is what is tried here.
            let pause = if self.look().is_ok() { LOOK } else { AGAIN };
            std::thread::sleep(pause);
        }
    }

    fn look(&mut self) -> Result<()> {
        let client = match self.client.take() {
            Some(client) => client,
            None => BlockingClient::connect(&self.means.identity, Some(&self.means.address))?,
        };
        self.carry_out_asks(&client)?;
        self.look_at_jobs(&client)?;
        self.change_minds(&client)?;
        self.submit(&client)?;
        self.client = Some(client);
        Ok(())
    }

    fn carry_out_asks(&self, client: &BlockingClient) -> Result<()> {
        let first = || locked(&self.shared.asks).front().cloned();
        while let Some(request) = first() {
            answer(client, &request)?;
            locked(&self.shared.asks).pop_front();
        }
        Ok(())
    }

    fn look_at_jobs(&self, client: &BlockingClient) -> Result<()> {
        let open = |job: &&Submitted| job.ended.is_none();
        let ids: Vec<_> = locked(&self.shared.jobs).iter().filter(open).map(|job| job.id).collect();
        for id in ids {
            // One that is not there will not end; at the end it counts as lost.
            if let Reply::Job(row) = answer(client, &Request::Job(id))?
                && row.summary.state.has_ended()
            {
                let mut jobs = locked(&self.shared.jobs);
                jobs.iter_mut()
                    .filter(|job| job.id == id)
                    .for_each(|job| job.ended = Some(Clock.now()));
            }
        }
        Ok(())
    }

    fn change_minds(&self, client: &BlockingClient) -> Result<()> {
        let (now, cancelled) = (Clock.now(), locked(&self.shared.cancelled).clone());
        let is_due = |job: &&Submitted| {
            let after = job.job.cancelled_after.filter(|_| !cancelled.contains(&job.job.number));
            job.ended.is_none() && after.is_some_and(|after| now.since(job.at) > after)
        };
        let due: Vec<_> = locked(&self.shared.jobs).iter().filter(is_due).cloned().collect();
        for job in due {
            // Also if no answer comes.
            locked(&self.shared.cancelled).insert(job.job.number);
            answer(client, &Request::Cancel(job.id))?;
        }
        Ok(())
    }

    fn submit(&mut self, client: &BlockingClient) -> Result<()> {
        while !self.shared.enough.load(Ordering::Relaxed)
            && self.unfinished() < self.means.unfinished
        {
            let hash = client.with(async |client| client.put_bytes(&self.means.guest).await)?;
            // Whatever comes of this one, its number is used: two jobs have no name in common.
            let job = Job::draw(self.means.seed, self.next);
            self.next += 1;
            let spec = job.spec(hash, self.means.guest.len() as u64);
            match answer(client, &Request::Submit(Box::new(spec)))? {
                Reply::Submitted(id) => {
                    let at = Clock.now();
                    let submitted = Submitted { id, job, at, ended: None };
                    locked(&self.shared.jobs).push(submitted);
                }
                // Full disks are a reason.
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn unfinished(&self) -> u32 {
        let jobs = locked(&self.shared.jobs);
        jobs.iter().filter(|job| job.ended.is_none()).map(|job| job.job.subprograms()).sum()
    }
}

/// "No" is an answer here too.
fn answer(client: &BlockingClient, request: &Request) -> Result<Reply> {
    Ok(client.with(async |client| client.request(request).await)?)
}

/// All jobs of this soak that the coordinator knows, with what they have printed.
fn told(client: &BlockingClient, seed: u64) -> Result<Vec<Told>> {
    let mut all = vec![];
    for row in client.rows(&Request::Jobs)? {
        let Reply::Job(row) = row else { continue };
        let Some(job) = Job::named(seed, &row.name) else { continue };
        let (id, mut subprograms) = (row.job, vec![]);
        let stuck = (row.summary.state == JobState::Running)
            .then(|| format!("{:?}; {:?}", row.summary, client.rows(&Request::WhyJob(id))));
        for row in
            client.rows(&Request::Subprograms { job: id, first: 0, count: job.subprograms() })?
        {
            let Reply::Subprogram(row) = row else { continue };
            let has_ended = row.state == SubprogramState::Succeeded;
            let printed = if has_ended { printed(client, row.subprogram)? } else { String::new() };
            subprograms.push((*row, printed));
        }
        all.push(Told { id, job, stuck, subprograms });
    }
    Ok(all)
}

fn printed(client: &BlockingClient, id: SubprogramId) -> Result<String> {
    match client.request(&Request::Output(id))? {
        Reply::Output { stdout: Printed::Inline(bytes), .. } => {
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        other => bail!("asked what {id} has printed and got {other:?}"),
    }
}
