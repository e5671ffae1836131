//! placeholder
use crate::config::CollectorConfig;
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {}
/// Runs
/// # Errors
/// x
pub fn run(_config: CollectorConfig) -> Result<(), CollectorError> {
    Ok(())
}
