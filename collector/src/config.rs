//! The collector's configuration file.

use std::path::PathBuf;

use serde::Deserialize;

/// `collector.toml`. Every key may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectorConfig {
    /// Where the logs are kept.
    pub data_dir: PathBuf,
    /// Key, certificate and the coordinator's address, from enrolment.
    pub identity_dir: PathBuf,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self {
            data_dir: "/var/lib/gleaner/collector/usage".into(),
            identity_dir: "/var/lib/gleaner/collector/identity".into(),
        }
    }
}
