//! Reasons to lend nothing though nobody is here: the battery, a network that
//! is paid for by what it carries, heat.

use std::collections::BTreeMap;

use super::Sensor;

/// How far it must cool down before guests come again.
const COOLER_BY: f32 = 5.0;

/// Where the machine's power comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// `None`: no adapter tells.
    pub mains: Option<bool>,
    /// A battery of the machine itself is being emptied.
    pub discharging: bool,
    pub percent: Option<u8>,
}

/// A temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// Such as `x86_pkg_temp`.
    pub zone: String,
    pub celsius: f32,
}

/// Why it is closed, by who says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(BTreeMap<Sensor, String>);

impl Closing {
    pub(super) fn first(&self) -> Option<&str> {
        self.0.values().next().map(String::as_str)
    }

    pub(super) fn powered(&mut self, power: Power) {
        let Power { mains, discharging, percent } = power;
        let left = percent.map_or(String::new(), |percent| format!(", {percent} %"));
        let on_battery = discharging && mains != Some(true);
        self.set(Sensor::Power, on_battery.then(|| format!("on battery{left}")));
    }

    pub(super) fn metered(&mut self, by: Option<&str>) {
        self.set(Sensor::Network, by.map(|by| format!("the network is metered, says {by}")));
    }

    pub(super) fn heated(&mut self, heat: &Heat, celsius_max: f32) {
        let closed = self.0.contains_key(&Sensor::Heat);
        let limit = if closed { celsius_max - COOLER_BY } else { celsius_max };
        let Heat { zone, celsius } = heat;
        let why = || format!("{zone} has {celsius:.0} °C, over {celsius_max:.0}");
        self.set(Sensor::Heat, (*celsius > limit).then(why));
    }

    /// A sensor that cannot tell any more closes nothing.
    pub(super) fn forget(&mut self, sensor: Sensor) {
        self.0.remove(&sensor);
    }

    fn set(&mut self, sensor: Sensor, why: Option<String>) {
        match why {
            Some(why) => self.0.insert(sensor, why),
            None => self.0.remove(&sensor),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_battery_that_is_emptied_without_mains_closes() {
        let mut closing = Closing::default();
        let cases = [
            (None, false, None),
            (Some(true), true, None),
            (Some(false), false, None),
            (Some(false), true, Some("on battery, 57 %")),
            (None, true, Some("on battery, 57 %")),
        ];
        for (mains, discharging, why) in cases {
            closing.powered(Power { mains, discharging, percent: Some(57) });
            assert_eq!(closing.first(), why, "{mains:?} {discharging}");
        }
    }

    #[test]
    fn heat_closes_until_it_is_well_below_the_limit() {
        let mut closing = Closing::default();
        let mut is_closed = |celsius| {
            closing.heated(&Heat { zone: "cpu".into(), celsius }, 90.0);
            closing.first().is_some()
        };
        assert_eq!(
            [89.0, 90.5, 88.0, 85.5, 84.0, 88.0].map(&mut is_closed),
            [false, true, true, true, false, false]
        );
    }
}
