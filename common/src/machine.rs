//! What a workstation is made of, as its agent saw it when it started.

use serde::{Deserialize, Serialize};

/// The most disks, and the most temperatures, that are listed of one machine.
pub const PARTS_MAX: usize = 32;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub hostname: String,
    /// "Debian GNU/Linux 12"
    pub os: String,
    /// "Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz"
    pub processor: String,
    /// Without hyper-threads; 0 if nobody knows.
    pub physical_cores: u16,
    pub disks: Vec<Disk>,
    pub temperatures: Vec<Temperature>,
}

/// A local file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Where it is mounted.
    pub path: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// What a sensor of the machine measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// "coretemp Package id 0"
    pub label: String,
    pub celsius: f32,
    /// From here on the machine protects itself.
    pub critical_celsius: Option<f32>,
}

impl Machine {
    /// The sensor that is closest to its limit, or the hottest.
    pub fn hottest(&self) -> Option<&Temperature> {
        let left = |of: &Temperature| of.critical_celsius.unwrap_or(f32::MAX) - of.celsius;
        self.temperatures
            .iter()
            .min_by(|a, b| left(a).total_cmp(&left(b)).then(b.celsius.total_cmp(&a.celsius)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_part_is_the_one_closest_to_its_limit() {
        let part = |label: &str, celsius, critical_celsius| Temperature {
            label: label.into(),
            celsius,
            critical_celsius,
        };
        let mut machine = Machine::default();
        assert_eq!(machine.hottest(), None);
        machine.temperatures = vec![part("a", 40.0, None), part("b", 70.0, None)];
        assert_eq!(machine.hottest().unwrap().label, "b");
        machine.temperatures.push(part("disk", 55.0, Some(60.0)));
        machine.temperatures.push(part("core", 80.0, Some(100.0)));
        assert_eq!(machine.hottest().unwrap().label, "disk");
    }
}
