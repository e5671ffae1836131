//! QUIC endpoints: everybody dials the coordinator's one UDP port, and both
//! sides prove who they are before the first stream opens.
//!
//! TLS 1.3 only, no resumption (so that a revoked key is refused at its next
//! connection), connections survive a change of address, and after a restart
//! of the coordinator its peers hear at once that their connections are gone.
//!
//! A client's `connect` returns before the server has judged its certificate
//! (TLS 1.3 needs no answer for that). A refusal arrives with the first read,
//! as [`Ended`] in a `StreamError`: show that to people.

mod crypto;
mod dial;
mod ended;
mod peers;
mod serve;
mod transport;
mod verify;

pub use dial::{ConnectError, Credentials, Link, client_config, client_endpoint, connect, resolve};
pub use ended::Ended;
pub use peers::{PeerError, dial_peer, listen_to_peers, peer_subject, peers_config};
pub use serve::{BindError, peer_spki, serve};
pub use transport::IDLE_TIMEOUT;
pub use verify::{Admission, Admit, AdmitPeer, PeerStanding};
