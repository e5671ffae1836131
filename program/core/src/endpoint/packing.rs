//! An endpoint as bytes: at a move, and in a snapshot.

use gleaner_common::id::Fence;
use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

use super::{Effect, Endpoint, earliest};
use crate::wire::VERSION;

/// What was in a frozen program's pipes and has to be there again when its
/// process goes on elsewhere, before anything newer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeRest {
    /// Written by the agent and not read by the program, from the middle of a
    /// frame on if need be.
    pub to_program: Vec<u8>,
    /// The beginning of a frame that the program had not written to its end.
    pub from_program: Vec<u8>,
}

/// Why bytes are not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("an endpoint of version {theirs}: expected {VERSION}")]
    Version { theirs: u16 },
    #[error("an endpoint that does not read: {0}")]
    Malformed(String),
    #[error("an endpoint that contradicts itself: {0}")]
    Inconsistent(&'static str),
}

impl Endpoint {
    /// Packs the endpoint for a move, with what was in its program's pipes.
    /// From now on it is away: it answers nobody, until [`Event::Stayed`]
    /// (another host could not take it) or its end here.
    ///
    /// [`Event::Stayed`]: super::Event::Stayed
    pub fn pack(&mut self, rest: &PipeRest) -> Vec<u8> {
        let bytes = self.to_bytes(rest);
        self.away = true;
        bytes
    }

    /// Unpacks an endpoint that was packed for a move. It begins with
    /// [`Event::Arrived`](super::Event::Arrived), once its process is restored
    /// and the rest is in its pipes.
    ///
    /// # Errors
    /// Bytes of another version, or that are no endpoint.
    pub fn unpack(bytes: &[u8], fence: Fence) -> Result<(Self, PipeRest), UnpackError> {
        let (version, rest) = postcard::take_from_bytes::<u16>(bytes).map_err(malformed)?;
        if version != VERSION {
            return Err(UnpackError::Version { theirs: version });
        }
        let (mut endpoint, pipes): (Self, PipeRest) =
            postcard::from_bytes(rest).map_err(malformed)?;
        endpoint.check().map_err(UnpackError::Inconsistent)?;
        endpoint.fence = fence;
        Ok((endpoint, pipes))
    }

    /// Unpacks a cut, after all of the program has gone back to its snapshot.
    /// Frames of attempts before `floor`, the first that was given out since,
    /// are of the time that did not happen. It begins with
    /// [`Event::Arrived`](super::Event::Arrived) and
    /// [`Event::RolledBack`](super::Event::RolledBack).
    ///
    /// # Errors
    /// As [`Endpoint::unpack`].
    pub fn restore(bytes: &[u8], fence: Fence, floor: Fence) -> Result<Self, UnpackError> {
        let (mut endpoint, _) = Self::unpack(bytes, fence)?;
        endpoint.config.floor = floor;
        for peer in endpoint.peers.values_mut() {
            peer.fence = peer.fence.max(floor);
        }
        Ok(endpoint)
    }

    pub(super) fn to_bytes(&self, rest: &PipeRest) -> Vec<u8> {
        let written = postcard::to_stdvec(&VERSION)
            .and_then(|version| postcard::to_extend(&(self, rest), version));
        written.unwrap_or_else(|error| unreachable!("an endpoint that does not serialise: {error}"))
    }

    pub(super) fn arrived(&mut self, now: Moment, out: &mut Vec<Effect>) {
        self.away = false;
        self.tick = None;
        self.say_where_we_are(now, crate::peer::Peer::is_known, out);
        for peer in self.peers.values_mut() {
            peer.incoming.restart_clock(now);
            earliest(&mut self.tick, peer.incoming.ack_at());
        }
        self.ask_again(out);
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn malformed(error: postcard::Error) -> UnpackError {
    UnpackError::Malformed(error.to_string())
}
