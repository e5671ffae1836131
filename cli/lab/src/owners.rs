//! The owners of a lab: they come, type for a while, and go.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use gleaner_common::id::JobId;
use gleaner_common::report::JobRow;
use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::blocking_client::BlockingClient;
use crate::cgroup::FrozenWatch;
use crate::host::{LabHost, is_keeper};
use crate::lab::Lab;
use crate::{cgroup, wait};

/// One owner's day, drawn from a seed.
#[derive(Debug)]
struct Owner {
    random: StdRng,
    next: Moment,
    keys_left: u32,
}

/// What an owner's return did to the guests.
#[derive(Clone, Copy, Debug)]
pub enum Return {
    /// Nobody was running there.
    NoGuests,
    /// All guests were stopped this long after the key was typed.
    Stopped(Duration),
}

impl Return {
    /// How long after the key all guests had stopped, if there were any.
    pub fn stopped(&self) -> Option<Duration> {
        match self {
            Self::NoGuests => None,
            Self::Stopped(after) => Some(*after),
        }
    }
}

/// The owners of a lab's hosts, one each.
#[derive(Debug)]
pub struct Owners(Vec<Owner>);

impl Owners {
    pub fn new(hosts: usize, seed: u64) -> Self {
        let seeds = (0..hosts as u64).map(|host| seed.wrapping_mul(1_000).wrapping_add(host));
        Self(seeds.map(|seed| Owner::new(seed, Clock.now())).collect())
    }

    /// Nobody comes.
    pub fn none() -> Self {
        Self(vec![])
    }

    /// Lets them come and go until a job has ended, which is `seen` with all
    /// returns so far every time that it is asked after, the last time included.
    ///
    /// # Errors
    /// The lab fails, or `seen` does.
    pub fn until_end(
        &mut self,
        (lab, client): (&mut Lab, &BlockingClient),
        job: JobId,
        every: Duration,
        mut seen: impl FnMut(&Lab, &JobRow, &[Return]) -> Result<()>,
    ) -> Result<(JobRow, Vec<Return>)> {
        let (mut returns, mut look) = (vec![], Clock.now());
        loop {
            for (owner, host) in self.0.iter_mut().zip(&mut lab.hosts) {
                returns.extend(owner.act(host, Clock.now())?);
            }
            if Clock.now() >= look {
                look = Clock.now() + every;
                let row = client.job(job)?;
                seen(lab, &row, &returns)?;
                if row.summary.state.has_ended() {
                    return Ok((row, returns));
                }
            }
            std::thread::sleep(TICK);
        }
    }
}

/// How often the owners are asked whether they type.
const TICK: Duration = Duration::from_millis(20);

impl Owner {
    fn new(seed: u64, now: Moment) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let next = now + Duration::from_millis(random.random_range(1_000..5_000));
        Self { random, next, keys_left: 0 }
    }

    /// Types what is due; tells of a return (the first key of a visit).
    fn act(&mut self, host: &mut LabHost, now: Moment) -> Result<Option<Return>> {
        if now < self.next {
            return Ok(None);
        }
        let returns = self.keys_left == 0;
        if returns {
            // Two short visits for every long one, which outlasts the patience.
            self.keys_left =
                if self.random.random_bool(0.33) { 6 } else { self.random.random_range(1..3) };
        }
        self.keys_left -= 1;
        self.next = now
            + Duration::from_millis(match self.keys_left {
                0 => self.random.random_range(4_000..9_000),
                _ => self.random.random_range(400..900),
            });
        if returns { Ok(Some(come_back(host)?)) } else { host.type_key().map(|()| None) }
    }
}

/// An owner who waits for the guests to stop does not leave: where others have
/// all cores, that may take longer than the quiet period.
const TYPES_AGAIN: Duration = Duration::from_secs(1);

/// Types one key and waits until no guest of that host runs.
fn come_back(host: &mut LabHost) -> Result<Return> {
    let mut running = running_guests(host);
    let typed = Clock.now();
    host.type_key()?;
    if running.is_empty() {
        return Ok(Return::NoGuests);
    }
    let fact = format!("the guests of {} stop when its owner types", host.name);
    let (mut typed_last, mut done) = (typed, Ok(()));
    wait::spin_until(&fact, wait::PATIENCE, || {
        running.retain_mut(|guest| !guest.has_stopped());
        if Clock.now().since(typed_last) >= TYPES_AGAIN {
            (typed_last, done) = (Clock.now(), host.type_key());
        }
        running.is_empty() || done.is_err()
    })?;
    done?;
    Ok(Return::Stopped(Clock.now().since(typed)))
}

/// Something that runs until it is seen stopped.
enum Running {
    Place { frozen: FrozenWatch, guests: Vec<u32> },
    Process(u32),
}

impl Running {
    fn has_stopped(&mut self) -> bool {
        match self {
            Self::Place { frozen, guests } => {
                frozen.is_frozen() || guests.iter().all(|pid| is_stopped(*pid))
            }
            Self::Process(pid) => is_stopped(*pid),
        }
    }
}

fn running_guests(host: &LabHost) -> Vec<Running> {
    if host.cgroup.is_none() {
        let guests = guests_by_parent(host);
        return guests.into_iter().filter(|pid| !is_stopped(*pid)).map(Running::Process).collect();
    }
    let place = |path: &Path| {
        let mut guests = cgroup::processes(path);
        guests.retain(|pid| !is_keeper(*pid) && !is_stopped(*pid));
        let mut frozen = FrozenWatch::new(path).ok()?;
        (!guests.is_empty() && !frozen.is_frozen()).then_some(Running::Place { frozen, guests })
    };
    host.places().iter().filter_map(|path| place(path)).collect()
}

/// Without cgroups: the processes below the keepers below the agent.
fn guests_by_parent(host: &LabHost) -> Vec<u32> {
    let Some(agent) = host.agent.as_ref().and_then(crate::daemon::Daemon::pid) else {
        return vec![];
    };
    let mut found = vec![];
    let mut open = vec![(agent, false)];
    while let Some((pid, kept)) = open.pop() {
        let kept_below = kept || is_keeper(pid);
        if kept && !is_keeper(pid) {
            found.push(pid);
        }
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        open.extend(
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(|pid| (pid, kept_below)),
        );
    }
    found
}

/// Is this process stopped by a signal, dead, or gone?
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, None | Some('T' | 'Z' | 'X'))
}
