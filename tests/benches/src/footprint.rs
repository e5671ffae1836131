//! What an enrolled agent costs its workstation while nothing happens.

use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_lab::{HostOptions, cgroup};

use crate::process::pss_bytes;
use crate::record::Record;
use crate::{Args, Progress, idle_lab};

/// Long enough for the handshake and the first quiet period to be over.
const SETTLE: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let span = Duration::from_secs(args.seconds.unwrap_or(60).max(1));
    let progress = Progress::new(args, "footprint", span.as_secs() + SETTLE.as_secs());
    let lab = idle_lab(1, |options| {
        options.host = HostOptions { whole_machine: true, ..HostOptions::default() };
        options.network = true;
    })?;
    let host = &lab.hosts[0];
    let agent = host.cgroup.as_ref().context("footprint needs cgroups")?.join("agent");
    progress.sleep(SETTLE);
    let (before, clock) = (cgroup::cpu_us(&agent), gleaner_shell::clock::Clock::new());
    let start = clock.now();
    progress.sleep(span);
    let used = cgroup::cpu_us(&agent) - before;
    let lasted = clock.now().since(start).as_secs_f64();
    let processes = cgroup::processes(&agent);
    let pss: u64 = processes.iter().map(|pid| pss_bytes(*pid)).sum();
    let memory = Record::value("footprint", "memory of an idle agent", "byte", pss as f64)
        .with("pss_bytes", pss)
        .with("processes", processes.len())
        .at_most("value", 6.0 * 1024.0 * 1024.0);
    let fraction = used as f64 / 1e6 / lasted;
    let cpu = Record::value("footprint", "CPU of an idle agent", "core", fraction)
        .with("cpu_fraction", fraction)
        .with("seconds", lasted)
        .at_most("value", 0.0001);
    Ok(vec![memory, cpu])
}
