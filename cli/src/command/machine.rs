//! A workstation's machine in words.

use gleaner_common::machine::{Disk, Machine, Temperature};
use gleaner_common::units::spoken_size;

pub(crate) fn disk(disk: &Disk) -> String {
    let (free, total) = (spoken_size(disk.free_bytes), spoken_size(disk.total_bytes));
    format!("{} {free} free of {total}", disk.path)
}

pub(crate) fn temperature(of: &Temperature) -> String {
    let critical = of.critical_celsius.map(|celsius| format!(", critical from {celsius:.0}"));
    format!("{} {:.0} °C{}", of.label, of.celsius, critical.unwrap_or_default())
}

/// One line for each kind of part that there is.
pub(crate) fn parts(machine: &Machine) -> Vec<String> {
    let list = |name: &str, all: Vec<String>| {
        (!all.is_empty()).then(|| format!("{name}: {}", all.join("; ")))
    };
    let disks = machine.disks.iter().map(disk).collect();
    let temperatures = machine.temperatures.iter().map(temperature).collect();
    [list("disks", disks), list("temperatures", temperatures)].into_iter().flatten().collect()
}
