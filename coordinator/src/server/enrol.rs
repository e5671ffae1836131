//! A newcomer with a token: checked, written down, and given a certificate.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::wire::{EnrolReply, EnrolRequest, close};
use gleaner_coordinator_core::directory::{Key, TokenRecord};
use gleaner_shell::stream::{FrameReader, FrameWriter};
use quinn::{Connection, VarInt};
use tokio::time::timeout;

use super::Shared;
use crate::brain::Input;

/// How long a newcomer may take to say who it wants to be, and to go.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn serve(
    shared: &Arc<Shared>,
    connection: &Connection,
    (key, token): (Key, TokenRecord),
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    let request: EnrolRequest = match timeout(PATIENCE, reader.expect()).await {
        Ok(Ok(request)) => request,
        Ok(Err(error)) => {
            if connection.close_reason().is_none() {
                shared.limited_log.log(format_args!("the holder of token {}: {error}", token.id));
            }
            return connection
                .close(VarInt::from_u32(close::PROTOCOL), error.to_string().as_bytes());
        }
        Err(_) => {
            return connection
                .close(VarInt::from_u32(close::PROTOCOL), b"no enrolment request within 10 s");
        }
    };
    let reply = enrol(shared, key, &token, request).await;
    if writer.send(&reply).await.is_ok() {
        writer.finish();
        // The newcomer closes once it has read this: it must not be cut off
        // before.
        let _ = timeout(PATIENCE, connection.closed()).await;
    }
    connection.close(VarInt::from_u32(close::DONE), b"");
}

async fn enrol(
    shared: &Arc<Shared>,
    key: Key,
    token: &TokenRecord,
    request: EnrolRequest,
) -> EnrolReply {
    let refused = |reason: String| {
        shared.limited_log.log(format_args!("token {} enrolled nobody: {reason}", token.id));
        EnrolReply::Refused { reason }
    };
    if let Some(trouble) = shared.store_health.trouble() {
        return refused(format!("the coordinator cannot write to its disk: {trouble}: try later"));
    }
    let public_key = request.public_key.clone();
    let asked = shared.brain.ask(|reply| Input::Enrol { token: key, request, reply }).await;
    let identity = match asked {
        Ok(Ok(enrolment)) => enrolment.identity,
        Ok(Err(refusal)) => return refused(refusal.to_string()),
        Err(stopping) => return refused(stopping.to_string()),
    };
    match shared.authority.issue(&public_key, identity.role, &identity.name, identity.validity()) {
        Ok(certificate) => {
            tracing::info!("enrolled {} {}", identity.role.name(), identity.name);
            EnrolReply::Enrolled {
                role: identity.role,
                name: identity.name,
                certificate,
                authority: shared.authority.certificate().to_vec(),
            }
        }
        Err(error) => refused(error.to_string()),
    }
}
