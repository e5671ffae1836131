//! `glean workstations`: idle or busy, and why.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use gleaner_common::report::WorkstationRow;
use gleaner_common::time::Spoken;
use gleaner_common::units::spoken_size;
use gleaner_common::wire::{Reply, Request};

use super::{machine, show};
use crate::ask::{self, Access, ask};
use crate::failure::Verdict;
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub form: Form,
    #[command(flatten)]
    pub access: Access,
    #[command(subcommand)]
    pub command: Option<WorkstationsCommand>,
}

/// What admins do with workstations.
#[derive(Debug, Subcommand)]
pub enum WorkstationsCommand {
    /// Place nothing new on a workstation; what runs there goes on to its end.
    #[command(after_help = "Examples:
  glean workstations drain ws-042
  glean workstations drain ws-042 --now     guests of jobs that migrate move away at once")]
    Drain(DrainArgs),
    /// Use a workstation again that is drained, rests, or has moved to another machine.
    #[command(after_help = "Example:\n  glean workstations undrain ws-042")]
    Undrain(OneArgs),
    /// Take a workstation's key away: the name is free then.
    #[command(visible_alias = "remove")]
    #[command(after_help = "Example:\n  glean workstations rm ws-042")]
    Rm(OneArgs),
}

#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Move guests elsewhere whose jobs migrate or roll back; the others finish.
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub one: OneArgs,
}

#[derive(Debug, clap::Args)]
pub struct OneArgs {
    /// The workstation's name.
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub access: Access,
}

fn change(command: &WorkstationsCommand) -> Result<Verdict> {
    let (args, request, told) = match command {
        WorkstationsCommand::Drain(DrainArgs { now, one: args }) => {
            let (name, now) = (args.name.clone(), *now);
            let request = Request::WorkstationDrain { name, drained: true, now };
            (args, request, "gets nothing new: glean why tells what still runs there")
        }
        WorkstationsCommand::Undrain(args) => {
            let (name, now) = (args.name.clone(), false);
            let request = Request::WorkstationDrain { name, drained: false, now };
            (args, request, "gets subprograms again")
        }
        WorkstationsCommand::Rm(args) => {
            let request = Request::WorkstationRemove { name: args.name.clone() };
            (args, request, "is let in no more; its name is free")
        }
    };
    ask(&args.access, async |client| ask::one(client, &request).await)?;
    output::say(&format!("workstation {} {told}", args.name));
    Ok(Verdict::Yes)
}

/// # Errors
/// No answer, or, for a change, not an admin.
pub fn run(args: &Args) -> Result<Verdict> {
    if let Some(command) = &args.command {
        return change(command);
    }
    let rows: Vec<WorkstationRow> = ask(&args.access, async |client| {
        ask::rows(client, &Request::Workstations, |reply| {
            if let Reply::Workstation(row) = reply { Some(*row) } else { None }
        })
        .await
    })?;
    if args.form.long {
        rows.iter().flat_map(described).try_for_each(|line| output::line(&line))?;
        return Ok(Verdict::Yes);
    }
    args.form.print(&rows, show::workstations)?;
    Ok(Verdict::Yes)
}

/// A workstation, line by line.
fn described(row: &WorkstationRow) -> Vec<String> {
    let machine = &row.machine;
    let lasted = Spoken(Duration::from_secs_f64(row.lasted_s.max(0.0)));
    let state = format!("{} for {lasted}: {}", row.state.name(), row.reason);
    let physical = match machine.physical_cores {
        0 => String::new(),
        physical => format!(" ({physical} physical)"),
    };
    let (memory, places) = (spoken_size(row.memory_bytes), row.places);
    let of_it = [
        format!("{} guests in {places} places, load {:.2}", row.guests, row.load_1m),
        format!("host {}, {}, kernel {}", machine.hostname, machine.os, row.kernel),
        format!("{}, {} cores{physical}, {memory}", machine.processor, row.cores),
    ];
    let missing = row.missing.iter().map(|line| format!("missing: {line}"));
    let of_it = of_it.into_iter().chain(machine::parts(machine)).chain(missing);
    let indented = of_it.map(|line| format!("    {line}"));
    [format!("{} {}: {state}", row.workstation, row.name)].into_iter().chain(indented).collect()
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::WorkstationId;
    use gleaner_common::machine::{Disk, Machine, Temperature};
    use gleaner_common::report::WorkstationState;

    use super::*;

    #[test]
    fn a_machine_is_described_with_its_parts() {
        let row = WorkstationRow {
            workstation: WorkstationId(3),
            name: "ws-042".into(),
            state: WorkstationState::Busy,
            reason: "load 2.10, over 0.25, `matlab` of uid 1000".into(),
            lasted_s: 75.0,
            cores: 8,
            places: 8,
            slots: 6,
            guests: 1,
            load_1m: 2.1,
            speed: 812.0,
            memory_bytes: 16 << 30,
            kernel: "6.1.0-13-amd64".into(),
            missing: vec!["logind: no system bus".into()],
            machine: Machine {
                hostname: "ws-042".into(),
                os: "Debian GNU/Linux 12".into(),
                processor: "Intel(R) Core(TM) i7-8700".into(),
                physical_cores: 4,
                disks: vec![Disk {
                    path: "/".into(),
                    total_bytes: 100 << 30,
                    free_bytes: 41 << 30,
                }],
                temperatures: vec![Temperature {
                    label: "coretemp Package id 0".into(),
                    celsius: 61.2,
                    critical_celsius: Some(100.0),
                }],
            },
            troubles: vec![],
        };
        insta::assert_snapshot!(described(&row).join("\n"), @r"
        w3 ws-042: busy for 75 s: load 2.10, over 0.25, `matlab` of uid 1000
            1 guests in 8 places, load 2.10
            host ws-042, Debian GNU/Linux 12, kernel 6.1.0-13-amd64
            Intel(R) Core(TM) i7-8700, 8 cores (4 physical), 16.0 GiB
            disks: / 41.0 GiB free of 100.0 GiB
            temperatures: coretemp Package id 0 61 °C, critical from 100
            missing: logind: no system bus
        ");
    }
}
