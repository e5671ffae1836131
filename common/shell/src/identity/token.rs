//! Enrolment tokens: what an admin gives to a newcomer.
//!
//! `glean-` and 58 letters and digits: a secret, from which both sides derive
//! one Ed25519 key, and the fingerprint of the authority, by which the newcomer
//! knows that it talks to the right coordinator. The coordinator keeps the
//! public key only.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD_NOCASE;

use super::{Fingerprint, Key, fingerprint};

const PREFIX: &str = "glean-";
const SECRET_BYTES: usize = 20;
const BYTES: usize = SECRET_BYTES + 16;

/// The context of the derivation, as BLAKE3 asks for; changing it makes all
/// tokens worthless.
const CONTEXT: &str = "gleaner 2026-11-21 key of an enrolment token";

/// Why a text is not a token. The text itself is a secret and not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTokenError {
    #[error("this is not a token: expected `glean-` and 58 letters and digits")]
    Form,
    #[error("the token is cut or too long: {found} characters after `glean-`, expected 58")]
    Length { found: usize },
}

/// A one-time secret. `Display` shows it, `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: [u8; SECRET_BYTES],
    authority: Fingerprint,
}

impl Token {
    /// A new token for an authority. The role, expiry and use are the
    /// coordinator's to remember, by [`Self::spki`].
    ///
    /// # Errors
    /// No randomness.
    pub fn create(authority: Fingerprint) -> Result<Self, getrandom::Error> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(Self { secret, authority })
    }

    /// Names the token without giving it away: eight hexadecimal digits.
    pub fn id(&self) -> String {
        let mut digits = fingerprint(&self.spki()).to_string();
        digits.truncate(8);
        digits
    }

    /// Its public key as `SubjectPublicKeyInfo` in DER, which the coordinator
    /// admits while the token is open.
    pub fn spki(&self) -> Vec<u8> {
        self.key().spki()
    }

    /// Whom the newcomer will believe.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    pub(crate) fn key(&self) -> Key {
        Key::from_seed(&blake3::derive_key(CONTEXT, &self.secret))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        bytes[..SECRET_BYTES].copy_from_slice(&self.secret);
        bytes[SECRET_BYTES..].copy_from_slice(&self.authority.0);
        f.write_str(PREFIX)?;
        f.write_str(&BASE32_NOPAD_NOCASE.encode(&bytes).to_ascii_lowercase())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id())
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let body = text.trim().strip_prefix(PREFIX).ok_or(ParseTokenError::Form)?;
        if body.len() != BASE32_NOPAD_NOCASE.encode_len(BYTES) {
            return Err(ParseTokenError::Length { found: body.chars().count() });
        }
        let bytes =
            BASE32_NOPAD_NOCASE.decode(body.as_bytes()).map_err(|_| ParseTokenError::Form)?;
        let (secret, authority) = bytes.split_at(SECRET_BYTES);
        Ok(Self {
            secret: secret.try_into().map_err(|_| ParseTokenError::Form)?,
            authority: Fingerprint(authority.try_into().map_err(|_| ParseTokenError::Form)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::create(fingerprint(b"an authority")).unwrap()
    }

    #[test]
    fn a_token_reads_back_with_the_same_key_and_authority() {
        let token = token();
        let read: Token = format!(" {token}\n").parse().unwrap();
        assert_eq!(read, token);
        assert_eq!(read.spki(), token.spki());
        assert_eq!(token.to_string().len(), PREFIX.len() + 58);
        assert_eq!(
            token.to_string().to_ascii_uppercase().parse::<Token>(),
            Err(ParseTokenError::Form)
        );
    }

    #[test]
    fn what_is_no_token_is_refused_without_repeating_it() {
        let whole = token().to_string();
        let cut = &whole[..whole.len() - 3];
        assert_eq!(cut.parse::<Token>(), Err(ParseTokenError::Length { found: 55 }));
        assert_eq!("hello".parse::<Token>(), Err(ParseTokenError::Form));
        assert_eq!(
            whole.replacen("glean-", "glean-!", 1)[..whole.len()].parse::<Token>(),
            Err(ParseTokenError::Form)
        );
    }

    #[test]
    fn debug_output_keeps_the_secret() {
        let token = token();
        assert_eq!(format!("{token:?}"), format!("Token({})", token.id()));
    }
}
