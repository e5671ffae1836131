//! Who somebody is: an Ed25519 key, and a certificate for it signed by the
//! coordinator's own authority.
//!
//! ```text
//! Authority ── issues ──► certificate ─┐
//!     │                                ├─► Identity: what an enrolled machine or user keeps
//!     └─ fingerprint ─► Token ── enrol ┘
//! ```
//!
//! Certificates run out, and are renewed before ([`Validity`](gleaner_common::validity::Validity)). By whose clock,
//! the coordinator says: its table of keys knows when each ends, and it tells
//! agents the time, for a workstation's own clock may be wrong.

mod authority;
mod enrolled;
mod home;
mod key;
mod subject;
mod token;
mod validity;

pub use authority::{Authority, FILES as AUTHORITY_FILES, IssueError};
pub use enrolled::{Identity, IdentityError};
pub use home::{Home, set_aside};
pub use key::{Fingerprint, fingerprint, key_hash};
pub use subject::Subject;
pub use token::{ParseTokenError, Token};

pub(crate) use authority::token_certificate;
pub(crate) use enrolled::{NEXT_KEY_FILE, forget_former, spki_of};
pub(crate) use key::Key;
pub(crate) use subject::subject_of;
pub(crate) use validity::validity_of;

/// The name in the coordinator's certificate. Clients ask for this name
/// wherever the coordinator lives.
pub(crate) const SERVER_NAME: &str = "gleaner-coordinator";

/// The name that agents ask each other for; whom they reach is told by the
/// certificate's subject.
pub(crate) const PEER_NAME: &str = "gleaner-agent";

/// The name in the certificate that a token's holder signs for itself.
pub(crate) const TOKEN_NAME: &str = "gleaner-token";
