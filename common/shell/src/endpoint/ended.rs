//! Why a connection ended, in words for people.

use gleaner_common::wire::close;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;

/// Why a connection ended or never began. Each is one line that reads after
/// "the coordinator at HOST:PORT: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    #[error("the token has expired")]
    TokenExpired,
    #[error("the token is not known here or has been used")]
    TokenUnknown,
    #[error("this identity has been revoked")]
    Revoked,
    #[error(
        "this identity's certificate has run out, for it was not renewed in time: enrol again \
         under the same name, with a token from `glean token create`"
    )]
    RunOut,
    #[error("this identity is not known here, though its certificate is from this authority")]
    IdentityUnknown,
    #[error("unknown certificate: it was signed by another authority than this coordinator's")]
    CertificateUnknown,
    /// We refused them.
    #[error("its certificate was not signed by the authority that this side trusts")]
    WrongAuthority,
    #[error("no certificate was shown")]
    NoCertificate,
    #[error("it does not speak gleaner's protocol")]
    NotGleaner,
    #[error("the TLS handshake failed: {alert}")]
    Handshake { alert: String },
    /// The peer closed with a reason, one of `wire::close`.
    #[error("{reason}")]
    Refused { code: u32, reason: String },
    #[error("closed in good order")]
    Done,
    #[error("another connection of the same identity took over")]
    Replaced,
    #[error("it restarted and has forgotten this connection")]
    Restarted,
    #[error("nothing was heard of it for too long")]
    Silent,
    #[error("this side closed the connection")]
    Here,
    #[error("the connection broke: {detail}")]
    Broken { detail: String },
}

impl Ended {
    /// The next step, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TokenExpired | Self::TokenUnknown => {
                Some("ask an admin for a new one: `glean token create`")
            }
            Self::Revoked | Self::IdentityUnknown | Self::CertificateUnknown => {
                Some("enrol again with a new token from `glean token create`")
            }
            Self::WrongAuthority => Some(
                "is this the right coordinator? If it was set up anew, enrol again with a new token",
            ),
            Self::NotGleaner => Some("is the port right?"),
            // It says so itself: agents' logs have no second line.
            Self::RunOut
            | Self::NoCertificate
            | Self::Handshake { .. }
            | Self::Refused { .. }
            | Self::Done
            | Self::Replaced
            | Self::Restarted
            | Self::Silent
            | Self::Here
            | Self::Broken { .. } => None,
        }
    }

    /// Will trying again with the same credentials be refused again?
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::TokenExpired
                | Self::TokenUnknown
                | Self::Revoked
                | Self::RunOut
                | Self::IdentityUnknown
                | Self::CertificateUnknown
                | Self::WrongAuthority
                | Self::NotGleaner
        )
    }
}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ConnectionClosed(close) => refused_by_peer(close.error_code),
            ConnectionError::TransportError(error) => refused_here(error.code, &error.reason),
            ConnectionError::ApplicationClosed(close) => {
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                let code = u32::try_from(close.error_code.into_inner()).unwrap_or(u32::MAX);
                closed(code, reason)
            }
            ConnectionError::Reset => Self::Restarted,
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::LocallyClosed => Self::Here,
            ConnectionError::VersionMismatch => Self::NotGleaner,
            ConnectionError::CidsExhausted => Self::Broken { detail: error.to_string() },
        }
    }
}

fn closed(code: u32, reason: String) -> Ended {
    match code {
        close::DONE => Ended::Done,
        close::REPLACED => Ended::Replaced,
        _ if reason.is_empty() => Ended::Refused { code, reason: format!("closed, code {code}") },
        _ => Ended::Refused { code, reason },
    }
}

/// The peer's alert; `endpoint::verify` decides which it sends.
fn refused_by_peer(code: TransportErrorCode) -> Ended {
    match alert(code) {
        Some(AlertDescription::UnsupportedCertificate) => Ended::TokenExpired,
        Some(AlertDescription::CertificateExpired) => Ended::RunOut,
        Some(AlertDescription::CertificateUnknown) => Ended::TokenUnknown,
        Some(AlertDescription::CertificateRevoked) => Ended::Revoked,
        Some(AlertDescription::AccessDenied) => Ended::IdentityUnknown,
        Some(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            Ended::CertificateUnknown
        }
        Some(AlertDescription::CertificateRequired) => Ended::NoCertificate,
        Some(AlertDescription::NoApplicationProtocol) => Ended::NotGleaner,
        Some(other) => Ended::Handshake { alert: format!("{other:?}") },
        None => Ended::Broken { detail: code.to_string() },
    }
}

fn refused_here(code: TransportErrorCode, reason: &str) -> Ended {
    match alert(code) {
        Some(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::DecryptError,
        ) => Ended::WrongAuthority,
        Some(AlertDescription::NoApplicationProtocol) => Ended::NotGleaner,
        Some(AlertDescription::CertificateRequired) => Ended::NoCertificate,
        Some(_) => Ended::Handshake { alert: reason.to_owned() },
        None => Ended::Broken { detail: format!("{code}, {reason}") },
    }
}

/// QUIC carries TLS alerts as 0x100 plus the alert (RFC 9001 §4.8).
fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let code = u64::from(code).checked_sub(0x100)?;
    u8::try_from(code).ok().map(AlertDescription::from)
}
