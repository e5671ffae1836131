//! May I use the lab from here, and is it well?

use std::time::Duration;

use anyhow::Result;
use gleaner_agent::doctor::Check;
use gleaner_common::report::{HealthRow, WorkstationRow};
use gleaner_common::time::{Spoken, WallTime};
use gleaner_common::wire::{Reply, Request};
use gleaner_shell::clock::Clock;

use super::finding;
use crate::ask::{self, Access, ask};

/// Clocks further apart than this make times in listings misleading.
const APART_MAX: Duration = Duration::from_secs(5);

pub(super) fn checks(access: &Access) -> Vec<Check> {
    let identity = match access.load() {
        Ok(identity) => identity,
        Err(error) => {
            let (found, repair) = finding(&error);
            let repair = repair.unwrap_or_else(|| "glean enrol --force with a new token".into());
            return vec![Check::sick("identity", found, repair)];
        }
    };
    let who = format!("{} {}, key {}", identity.role.name(), identity.name, identity.fingerprint());
    let mut checks = vec![Check::well("identity", who)];
    let health: Result<(HealthRow, Duration)> = ask(access, async |client| {
        let asked = Clock.now();
        let Reply::Health(row) = ask::one(client, &Request::Health).await? else {
            return Err(ask::unexpected(&Request::Health));
        };
        Ok((*row, Clock.now().since(asked)))
    });
    let address = access.coordinator.as_deref().unwrap_or(&identity.coordinator);
    match health {
        Err(error) => {
            let (found, repair) = finding(&error);
            let repair = repair.unwrap_or_else(|| {
                "does it run there, and does the firewall let UDP through?".into()
            });
            checks.push(Check::sick("coordinator", found, repair));
        }
        Ok((row, round_trip)) => {
            let trust = format!("authority {}", identity.authority_fingerprint());
            checks.push(Check::well(
                "coordinator",
                format!(
                    "{address} answers in {:.1} ms, release {}",
                    round_trip.as_secs_f64() * 1e3,
                    row.version
                ),
            ));
            checks.push(Check::well(
                "trust",
                format!("{trust}; it knows us as {} {}", row.role.name(), row.you),
            ));
            checks.extend(of_lab(&row, Clock.wall()));
            let rows = ask(access, async |client| {
                ask::rows(client, &Request::Workstations, |reply| {
                    if let Reply::Workstation(row) = reply { Some(*row) } else { None }
                })
                .await
            });
            checks.extend(rows.iter().flatten().flat_map(of_workstation));
        }
    }
    checks
}

/// What somebody should see to there.
fn of_workstation(row: &WorkstationRow) -> impl Iterator<Item = Check> + '_ {
    let repair = "see to it there; `glean workstations undrain NAME` has it used again at once";
    row.troubles
        .iter()
        .map(move |what| Check::lacking("workstation", format!("{}: {what}", row.name), repair))
}

fn of_lab(row: &HealthRow, now: WallTime) -> Vec<Check> {
    let apart = now.since(row.wall).max(row.wall.since(now));
    let clock = if apart <= APART_MAX {
        Check::well("clock", format!("within {} of the coordinator's", Spoken(APART_MAX)))
    } else {
        let found = format!("{} from the coordinator's", Spoken(apart));
        Check::lacking("clock", found, "set both by NTP: timedatectl set-ntp true")
    };
    let store = if !row.damage.is_empty() {
        let found = format!("damaged: {}", row.damage);
        Check::sick("store", found, "sudo glean coordinator restore FILE brings a backup back")
    } else if row.store == "well" && !row.went_back.is_empty() {
        let found = format!("it went back to an earlier time: {}", row.went_back);
        let repair = "glean workstations says what is not known any more: submit that again";
        Check::lacking("store", found, repair)
    } else if row.store == "well" {
        Check::well("store", row.store.clone())
    } else {
        Check::sick(
            "store",
            row.store.clone(),
            "make room on the coordinator's disk; it goes on by itself",
        )
    };
    let collector = if row.collector_connected {
        Check::well("collector", "connected")
    } else {
        let repair = "start glean collector; the agents keep their records until then";
        Check::lacking("collector", "not connected", repair)
    };
    let here = format!(
        "{} of {} connected, {} subprograms queued",
        row.connected, row.workstations, row.queued
    );
    let workstations = if row.connected > 0 {
        Check::well("workstations", here)
    } else {
        Check::lacking(
            "workstations",
            here,
            "glean agent install on each; glean workstations lists them",
        )
    };
    vec![clock, store, collector, workstations]
}

#[cfg(test)]
mod tests {
    use gleaner_common::wire::Role;

    use super::*;
    use crate::command::doctor::Health;

    #[test]
    fn what_is_wrong_with_the_lab_is_told_with_its_repair() {
        let row = HealthRow {
            version: "0.1.0".into(),
            you: "ada".into(),
            role: Role::User,
            wall: WallTime::from_unix_s(1_000),
            workstations: 3,
            connected: 0,
            collector_connected: false,
            store: "no space left".into(),
            damage: String::new(),
            went_back: String::new(),
            queued: 9,
            placement_p50_s: 0.0,
            placement_p99_s: 0.0,
            placement_max_s: 0.0,
            rss_bytes: 0,
        };
        let checks = of_lab(&row, WallTime::from_unix_s(990));
        let health: Vec<_> = checks.iter().map(|check| check.health).collect();
        assert_eq!(health, [Health::Lacking, Health::Sick, Health::Lacking, Health::Lacking]);
        assert!(checks.iter().all(|check| check.repair.is_some()));
        let well =
            HealthRow { store: "well".into(), collector_connected: true, connected: 3, ..row };
        let checks = of_lab(&well, WallTime::from_unix_s(1_003));
        assert!(checks.iter().all(|check| check.health == Health::Well), "{checks:?}");
        let damaged = HealthRow { damage: "the row 7 of jobs".into(), ..well.clone() };
        let went_back = HealthRow { went_back: "desk has seen more".into(), ..well };
        for (row, health) in [(damaged, Health::Sick), (went_back, Health::Lacking)] {
            let checks = of_lab(&row, WallTime::from_unix_s(1_003));
            let store = checks.iter().find(|check| check.subject == "store").unwrap();
            assert_eq!(store.health, health, "{checks:?}");
        }
    }
}
