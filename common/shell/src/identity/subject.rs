//! Whom a certificate is for: the name and the role that the authority wrote
//! into it.
//!
//! Just enough of DER (X.690) to find the subject in a certificate (RFC 5280
//! §4.1) that has been verified before. Anything unexpected is nobody.

use gleaner_common::wire::Role;

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
/// The version, the only field that is tagged like this before the subject.
const VERSION: u8 = 0xa0;

/// `2.5.4.3` and `2.5.4.11`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const UNIT_NAME: &[u8] = &[0x55, 0x04, 0x0b];

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub role: Role,
    pub name: String,
}

/// Reads the subject of a certificate in DER whose signature holds.
pub(crate) fn subject_of(certificate: &[u8]) -> Option<Subject> {
    let mut rest = fields_of(certificate)?;
    // Serial number, algorithm, issuer and validity.
    for _ in 0..4 {
        rest = take_any(rest)?.2;
    }
    let (mut names, _) = take(rest, SEQUENCE)?;
    let (mut name, mut role) = (None, None);
    while !names.is_empty() {
        let (set, after) = take(names, SET)?;
        let (pair, _) = take(set, SEQUENCE)?;
        let (kind, value) = take(pair, OBJECT_ID)?;
        let (text, _) = take(value, UTF8_STRING)?;
        let text = std::str::from_utf8(text).ok()?;
        let slot = match kind {
            COMMON_NAME => &mut name,
            UNIT_NAME => &mut role,
            _ => return None,
        };
        // Said twice is ambiguous.
        if slot.replace(text).is_some() {
            return None;
        }
        names = after;
    }
    Some(Subject { role: role?.parse().ok()?, name: name?.to_owned() })
}

/// What the authority has signed, from the serial number on.
pub(super) fn fields_of(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (fields, _) = take(certificate, SEQUENCE)?;
    Some(take(fields, VERSION).map_or(fields, |(_, after)| after))
}

/// The content of the first element, which must be of this kind, and the rest.
pub(super) fn take(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = take_any(bytes)?;
    (found == kind).then_some((content, rest))
}

pub(super) fn take_any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |value, digit| value << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

#[cfg(test)]
mod tests {
    use super::super::Authority;
    use super::*;

    fn certificate(role: Role, name: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        authority.issue_identity(role, name, "lab:4433").unwrap().certificate
    }

    #[test]
    fn name_and_role_are_read_as_they_were_written() {
        for name in ["ws1", "ws_1.lab.example.org", &"n".repeat(300), "\u{e9}t\u{e9} 1"] {
            let subject = Subject { role: Role::Agent, name: (*name).to_owned() };
            assert_eq!(subject_of(&certificate(Role::Agent, name)), Some(subject));
        }
    }

    #[test]
    fn a_name_cannot_say_another_role() {
        let name = "ann\u{31}\u{0e}\u{30}\u{0c}\u{06}\u{03}U\u{04}\u{0b}\u{0c}\u{05}agent";
        let subject = subject_of(&certificate(Role::User, name)).unwrap();
        assert_eq!(subject.role, Role::User);
    }

    #[test]
    fn what_is_cut_short_or_spoilt_is_nobody_or_somebody_but_no_panic() {
        let whole = certificate(Role::Agent, "ws1");
        for length in 0..whole.len() {
            let _ = subject_of(&whole[..length]);
        }
        assert_eq!(subject_of(&whole[..40]), None);
        for at in 0..whole.len() {
            let mut spoilt = whole.clone();
            spoilt[at] ^= 0xff;
            let _ = subject_of(&spoilt);
        }
    }
}
