//! Another certificate before one's own runs out, over the connection that it
//! opened.
//!
//! By the coordinator's clock, which judges it. The key is made here; until its
//! certificate lies beside it on the disk, the agent is who it was.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::BindError;
use gleaner_shell::enrol::{RotateError, renew_if_due, return_to_former_key};
use quinn::Connection;

use super::peers::Peers;

/// How long to wait after a renewal that came to nothing: a third of the life,
/// a month, is left for that. Short lives have less.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
const AGAIN_PARTS: u32 = 20;

/// The wall clock of the coordinator may be set: look again so often.
const LOOK_AGAIN: Duration = Duration::from_secs(3_600);

#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error(transparent)]
    Rotate(#[from] RotateError),
    #[error(transparent)]
    Show(#[from] BindError),
}

/// Renews the identity in the directory whenever it is due, for as long as this
/// connection lasts.
pub(super) async fn keep_renewed(connection: Connection, peers: Peers, dir: &Path) {
    loop {
        let Some(validity) = peers.identity().validity() else { return };
        let left = validity.renew_at().since(peers.revoked().time().await);
        if !left.is_zero() {
            Clock.sleep(left.min(LOOK_AGAIN)).await;
            continue;
        }
        match renew(&connection, &peers, dir).await {
            Ok(true) => {}
            Ok(false) => Clock.sleep(AGAIN_AFTER.min(validity.life() / AGAIN_PARTS)).await,
            Err(error) => {
                tracing::warn!("this agent's certificate is not renewed, trying again: {error}");
                Clock.sleep(AGAIN_AFTER.min(validity.life() / AGAIN_PARTS)).await;
            }
        }
    }
}

async fn renew(connection: &Connection, peers: &Peers, dir: &Path) -> Result<bool, RenewalError> {
    let now = peers.revoked().time().await;
    let Some(new) = renew_if_due(connection, dir, &peers.identity(), now).await? else {
        return Ok(false);
    };
    let until_s = new.validity().map_or(0.0, |validity| validity.until.unix_s());
    tracing::info!(key = %new.fingerprint(), until_s, "this agent's certificate is renewed");
    peers.renewed(Arc::new(new))?;
    Ok(true)
}

/// Shows the key from before the last renewal, if that is good still: a coordinator
/// whose store was brought back from before then knows no other.
pub(super) fn went_back(peers: &Peers, dir: &Path) -> bool {
    match back(peers, dir) {
        Ok(went) => went,
        Err(error) => {
            tracing::warn!("the key of before the last renewal is not taken up again: {error}");
            false
        }
    }
}

fn back(peers: &Peers, dir: &Path) -> Result<bool, RenewalError> {
    let Some(former) = return_to_former_key(dir, &peers.identity(), Clock.wall())? else {
        return Ok(false);
    };
    let key = former.fingerprint();
    peers.renewed(Arc::new(former))?;
    tracing::warn!(
        %key, "the coordinator does not know this agent's key: its store may be from before the \
         last renewal, and the key of then is shown"
    );
    Ok(true)
}
