//! What a site can choose about its coordinator: one TOML file.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gleaner_common::units;
use gleaner_common::validity::{LIFE, LIFE_MAX};
use gleaner_coordinator_core::shares::{ShareConfig, ShareMistake};
use gleaner_coordinator_core::{Config, Policy, Prices, SchedulerConfig, UnknownPolicy};
use serde::{Deserialize, Serialize};

/// The UDP port that agents, users and the collector dial.
const PORT: u16 = 4433;

/// The coordinator's configuration. A key that is not here is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoordinatorConfig {
    /// Where to listen: one UDP port, by default on every address of the
    /// machine, IPv4 and IPv6.
    pub listen: SocketAddr,
    /// Where the database, the staged files and the authority's key live.
    pub data: PathBuf,
    /// How idle workstations are chosen.
    pub policy: Policy,
    /// For policy likely-longest: for how long a workstation is to stay idle.
    #[serde(with = "units::duration")]
    pub idle_needed: Duration,
    /// How long guests may run without their agent being heard.
    #[serde(with = "units::duration")]
    pub lease: Duration,
    /// How often an agent with guests is to be heard from.
    #[serde(with = "units::duration")]
    pub heartbeat: Duration,
    /// How often an agent without guests is to be heard from.
    #[serde(with = "units::duration")]
    pub heartbeat_without_guests: Duration,
    /// The largest file that may be staged.
    #[serde(with = "units::size")]
    pub blob_bytes_max: u64,
    /// How much may be staged altogether.
    #[serde(with = "units::size")]
    pub blobs_bytes_max: u64,
    /// How much one user may stage within a day.
    #[serde(with = "units::size")]
    pub user_bytes_a_day_max: u64,
    /// How long an ended job is remembered, with its results and files.
    #[serde(with = "units::duration")]
    pub keep_ended: Duration,
    /// How long certificates of agents and users are good; they are renewed when
    /// two thirds of that are over. Who was away for longer enrols again.
    #[serde(with = "units::duration")]
    pub certificate_life: Duration,
    /// Whose turn it is at the next free place.
    pub shares: ShareConfig,
    /// Which job starts when, and on how many places.
    pub scheduler: SchedulerConfig,
    /// What running jobs pay for processors that they are offered; none: nothing.
    pub prices: Option<Prices>,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        let core = Config::default();
        Self {
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
            data: PathBuf::from("/var/lib/gleaner/coordinator"),
            policy: core.policy,
            idle_needed: core.idle_needed,
            lease: core.lease,
            heartbeat: core.heartbeat,
            heartbeat_without_guests: core.heartbeat_without_guests,
            blob_bytes_max: 4 << 30,
            blobs_bytes_max: 64 << 30,
            user_bytes_a_day_max: 32 << 30,
            // Time to come back from a holiday and fetch the results: a guess.
            keep_ended: Duration::from_secs(60 * 86_400),
            certificate_life: LIFE,
            shares: core.shares,
            scheduler: core.scheduler,
            prices: core.prices,
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigMistake {
    #[error(transparent)]
    Shares(#[from] ShareMistake),
    #[error(transparent)]
    Scheduler(#[from] UnknownPolicy),
    #[error("lease = {0:?} is too short: expected at least {LEASE_MIN:?}")]
    LeaseTooShort(Duration),
    #[error(
        "heartbeat = {heartbeat:?} is too seldom: expected at most half the lease of {lease:?}"
    )]
    HeartbeatTooSeldom { heartbeat: Duration, lease: Duration },
    #[error(
        "{key} = {span:?} is out of range: expected at least {HEARTBEAT_MIN:?} and at most {HEARTBEAT_MAX:?}"
    )]
    HeartbeatOutOfRange { key: &'static str, span: Duration },
    #[error(
        "certificate_life = {0:?} is out of range: expected at least {CERTIFICATE_LIFE_MIN:?} and at most {LIFE_MAX:?}"
    )]
    CertificateLife(Duration),
    #[error(
        "prices: nothing is given for less than {least}, and offered for {asked}: expected no less"
    )]
    Prices { asked: u64, least: u64 },
}

/// Certificates count seconds.
const CERTIFICATE_LIFE_MIN: Duration = Duration::from_secs(2);
const LEASE_MIN: Duration = Duration::from_millis(200);
const HEARTBEAT_MIN: Duration = Duration::from_millis(20);
/// A connection that is silent for longer is taken for dead.
const HEARTBEAT_MAX: Duration = Duration::from_secs(20);

impl CoordinatorConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first value that makes no sense beside the others.
    pub fn check(&self) -> Result<(), ConfigMistake> {
        let Self { lease, heartbeat, heartbeat_without_guests, .. } = *self;
        self.shares.check()?;
        self.scheduler.check()?;
        if lease < LEASE_MIN {
            return Err(ConfigMistake::LeaseTooShort(lease));
        }
        for (key, span) in
            [("heartbeat", heartbeat), ("heartbeat_without_guests", heartbeat_without_guests)]
        {
            if !(HEARTBEAT_MIN..=HEARTBEAT_MAX).contains(&span) {
                return Err(ConfigMistake::HeartbeatOutOfRange { key, span });
            }
        }
        if !(CERTIFICATE_LIFE_MIN..=LIFE_MAX).contains(&self.certificate_life) {
            return Err(ConfigMistake::CertificateLife(self.certificate_life));
        }
        if let Some(Prices { asked, least }) = self.prices.filter(|it| it.asked < it.least) {
            return Err(ConfigMistake::Prices { asked: asked.0, least: least.0 });
        }
        if heartbeat > lease / 2 {
            return Err(ConfigMistake::HeartbeatTooSeldom { heartbeat, lease });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_defaults_are_a_good_configuration_and_read_back() {
        let config = CoordinatorConfig::default();
        assert_eq!(config.check(), Ok(()));
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("keep_ended = \"60days\""), "{text}");
        assert_eq!(gleaner_shell::config::parse(Path::new("c.toml"), &text).ok(), Some(config));
    }

    #[test]
    fn every_policy_has_a_name() {
        for (name, policy) in ["last-idle-first", "first-idle-first", "ranked", "likely-longest"]
            .iter()
            .zip(Policy::ALL)
        {
            let text = format!("policy = \"{name}\"\nidle_needed = \"90min\"");
            let config: CoordinatorConfig =
                gleaner_shell::config::parse(Path::new("c.toml"), &text).unwrap();
            assert_eq!((config.policy, config.idle_needed.as_secs()), (policy, 5_400));
        }
    }

    #[test]
    fn a_scheduling_policy_is_chosen_by_name_with_its_parameters() {
        let text = "[scheduler]\npolicy = \"pwa-egs\"\nparameters.kept_free = 2";
        let config: CoordinatorConfig =
            gleaner_shell::config::parse(Path::new("c.toml"), text).unwrap();
        assert_eq!(config.check(), Ok(()));
        let SchedulerConfig { policy, parameters, .. } = config.scheduler;
        assert_eq!((policy.as_str(), parameters.kept_free), ("pwa-egs", 2));
        let text = "scheduler.policy = \"best\"";
        let config: CoordinatorConfig =
            gleaner_shell::config::parse(Path::new("c.toml"), text).unwrap();
        let told = config.check().unwrap_err().to_string();
        assert!(told.starts_with("scheduler.policy = \"best\": there is none"), "{told}");
    }

    #[test]
    fn a_misspelt_key_a_bad_unit_and_an_unknown_policy_are_named() {
        for (text, named) in [
            ("leese = \"10s\"", "unknown field `leese`"),
            ("lease = \"10 parsecs\"", "`10 parsecs` is not a duration"),
            ("policy = \"best\"", "unknown variant `best`"),
        ] {
            let error =
                gleaner_shell::config::parse::<CoordinatorConfig>(Path::new("c.toml"), text)
                    .unwrap_err()
                    .to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_lease_without_room_for_heartbeats_is_refused() {
        let config =
            CoordinatorConfig { lease: Duration::from_secs(5), ..CoordinatorConfig::default() };
        assert!(matches!(config.check(), Err(ConfigMistake::HeartbeatTooSeldom { .. })));
    }

    #[test]
    fn processors_are_not_offered_for_less_than_they_are_given_for() {
        let priced = |asked: u64| -> CoordinatorConfig {
            let text = format!("[prices]\nasked = {asked}\nleast = 700");
            gleaner_shell::config::parse(Path::new("c.toml"), &text).unwrap()
        };
        assert_eq!(priced(900).check(), Ok(()));
        assert_eq!(priced(600).check(), Err(ConfigMistake::Prices { asked: 600, least: 700 }));
    }

    #[test]
    fn a_certificate_that_is_good_for_no_time_or_for_ever_is_refused() {
        for certificate_life in [Duration::ZERO, 2 * LIFE_MAX] {
            let config = CoordinatorConfig { certificate_life, ..CoordinatorConfig::default() };
            assert_eq!(config.check(), Err(ConfigMistake::CertificateLife(certificate_life)));
        }
    }
}
