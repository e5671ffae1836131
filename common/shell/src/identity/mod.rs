//! Who somebody is: an Ed25519 key, and a certificate for it signed by the
//! coordinator's own authority.
//!
//! ```text
//! Authority ── issues ──► certificate ─┐
//!     │                                ├─► Identity: what an enrolled machine or user keeps
//!     └─ fingerprint ─► Token ── enrol ┘
//! ```
//!
//! Certificates do not run out in practice and are never judged by the wall
//! clock, which may be wrong: the coordinator's table of keys decides who may
//! come in.

mod authority;
mod enrolled;
mod key;
mod subject;
mod token;

pub use authority::{Authority, IssueError};
pub use enrolled::{Identity, IdentityError};
pub use key::{Fingerprint, fingerprint};
pub use subject::Subject;
pub use token::{ParseTokenError, Token};

pub(crate) use authority::token_certificate;
pub(crate) use enrolled::spki_of;
pub(crate) use key::Key;
pub(crate) use subject::subject_of;

/// The name in the coordinator's certificate. Clients ask for this name
/// wherever the coordinator lives.
pub(crate) const SERVER_NAME: &str = "gleaner-coordinator";

/// The name that agents ask each other for; whom they reach is told by the
/// certificate's subject.
pub(crate) const PEER_NAME: &str = "gleaner-agent";

/// The name in the certificate that a token's holder signs for itself.
pub(crate) const TOKEN_NAME: &str = "gleaner-token";
