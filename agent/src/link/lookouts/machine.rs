//! Mains or battery, and how hot it is: a few small files of `/sys`, read now
//! and then.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Heat, Observation, Power};
use gleaner_shell::clock::Clock;

use super::Teller;

const POWER_EVERY: Duration = Duration::from_secs(10);
const HEAT_EVERY: Duration = Duration::from_secs(20);

/// Where there is nothing to look at; a device may be plugged in.
const ABSENT_EVERY: Duration = Duration::from_secs(600);

pub(super) async fn watch_power(root: PathBuf, mut teller: Teller) {
    let mut before = None;
    loop {
        let mut pause = ABSENT_EVERY;
        match power(&root.join("sys/class/power_supply")) {
            Ok(Some(power)) => {
                pause = POWER_EVERY;
                teller.health(Health::Well);
                if before.replace(power) != Some(power) {
                    teller.see(Observation::Power(power));
                }
            }
            Ok(None) => teller.health(Health::Absent("no battery and no adapter".into())),
            Err(error) => teller.health(Health::Absent(format!("power_supply: {error}"))),
        }
        Clock.sleep(pause).await;
    }
}

pub(super) async fn watch_heat(root: PathBuf, mut teller: Teller) {
    let mut before = None;
    loop {
        let mut pause = ABSENT_EVERY;
        match hottest(&root.join("sys/class/thermal")) {
            Some(heat) => {
                pause = HEAT_EVERY;
                teller.health(Health::Well);
                // Within a degree it is the same.
                let degrees = heat.celsius.round();
                if before.replace(degrees) != Some(degrees) {
                    teller.see(Observation::Heat(heat));
                }
            }
            None => teller.health(Health::Absent("no thermal zone".into())),
        }
        Clock.sleep(pause).await;
    }
}

/// `None`: nothing here supplies power that we could tell of. A mouse's battery
/// (its scope is a device) is not the machine's.
fn power(directory: &Path) -> io::Result<Option<Power>> {
    let (mut power, mut found) = (Power::default(), false);
    for supply in std::fs::read_dir(directory)?.flatten() {
        let value = |name: &str| {
            let text = std::fs::read_to_string(supply.path().join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        if value("scope").is_some_and(|scope| scope == "Device") {
            continue;
        }
        match value("type").as_deref() {
            Some("Mains" | "USB" | "USB_C" | "USB_PD" | "Wireless") => {
                let online = value("online").is_some_and(|online| online != "0");
                power.mains = Some(power.mains.unwrap_or(false) || online);
            }
            Some("Battery" | "UPS") => {
                power.discharging |= value("status").is_some_and(|it| it == "Discharging");
                let percent = value("capacity").and_then(|percent| percent.parse().ok());
                power.percent = percent.or(power.percent);
            }
            Some(_) | None => continue,
        }
        found = true;
    }
    Ok(found.then_some(power))
}

/// The hottest of all zones that can be read.
fn hottest(directory: &Path) -> Option<Heat> {
    let zones = std::fs::read_dir(directory).ok()?.flatten();
    let heats = zones.filter_map(|zone| {
        let name = zone.file_name().to_str()?.to_owned();
        if !name.starts_with("thermal_zone") {
            return None;
        }
        let value = |file: &str| std::fs::read_to_string(zone.path().join(file)).ok();
        let millis: i32 = value("temp")?.trim().parse().ok()?;
        let zone = value("type").map_or(name, |kind| kind.trim().to_owned());
        Some(Heat { zone, celsius: millis as f32 / 1_000.0 })
    });
    heats.max_by(|one, other| one.celsius.total_cmp(&other.celsius))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel's, with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn a_laptops_battery_is_told_from_a_mouses() {
        let laptop = tree(&[
            ("AC/type", "Mains\n"),
            ("AC/online", "0\n"),
            ("BAT0/type", "Battery\n"),
            ("BAT0/status", "Discharging\n"),
            ("BAT0/capacity", "57\n"),
            ("hidpp_battery_0/type", "Battery\n"),
            ("hidpp_battery_0/scope", "Device\n"),
            ("hidpp_battery_0/status", "Discharging\n"),
            ("hidpp_battery_0/capacity", "5\n"),
        ]);
        let on_battery = Power { mains: Some(false), discharging: true, percent: Some(57) };
        assert_eq!(power(laptop.path()).unwrap(), Some(on_battery));
        std::fs::write(laptop.path().join("AC/online"), "1\n").unwrap();
        assert_eq!(power(laptop.path()).unwrap().unwrap().mains, Some(true));
        let desk = tree(&[("m/type", "Battery\n"), ("m/scope", "Device\n")]);
        assert_eq!(power(desk.path()).unwrap(), None);
        assert!(power(&desk.path().join("none")).is_err());
    }

    #[test]
    fn the_hottest_zone_is_told_by_its_name() {
        let zones = tree(&[
            ("thermal_zone0/type", "acpitz\n"),
            ("thermal_zone0/temp", "27800\n"),
            ("thermal_zone1/type", "x86_pkg_temp\n"),
            ("thermal_zone1/temp", "91000\n"),
            ("thermal_zone2/type", "iwlwifi_1\n"),
            ("cooling_device0/type", "Processor\n"),
        ]);
        let heat = Heat { zone: "x86_pkg_temp".into(), celsius: 91.0 };
        assert_eq!(hottest(zones.path()), Some(heat));
        assert_eq!(hottest(&zones.path().join("none")), None);
    }
}
