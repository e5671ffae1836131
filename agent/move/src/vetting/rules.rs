//! What a message may consist of, and the walk that finds what it may not.
//!
//! A message with a field that is not listed, twice where it may be there once,
//! or with a number that is not expected, is refused: what CRIU would make of
//! it, older forms and newer ones included, need not be known.

use crate::wire::{Malformed, Value, read_field};

/// What is wrong with an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("is not what CRIU writes")]
    Malformed,
    #[error("is in no guest's image")]
    Foreign,
    #[error("is missing")]
    Missing,
    #[error("is there more than {0} times")]
    TooMany(usize),
    #[error("is {found}: expected {expected}")]
    Number { found: u64, expected: String },
    #[error("is {0} bytes: expected at most {1}")]
    TooLong(usize, usize),
    #[error("is {path}, which a guest may not {act}")]
    OutOfReach { path: String, act: &'static str },
    #[error("names {0}, which is not in the image")]
    Dangling(u64),
    #[error("differs from the whole image's: a namespace of its own")]
    Namespace,
}

impl From<Malformed> for Wrong {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// What a field's value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// CRIU takes the low half of a longer one: that would be another number.
    Number,
    Wide,
    /// A negative one has all of its upper bits set.
    Signed,
    Is(&'static [u64]),
    UpTo(u64),
    /// No bits but these.
    Bits(u64),
    /// So many bytes at most.
    Bytes(usize),
    Exactly(usize),
    Message(&'static [Field]),
}

pub(super) const YES_OR_NO: Kind = Kind::Is(&[0, 1]);

/// A field that a message may or must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    number: u32,
    name: &'static str,
    kind: Kind,
    least: usize,
    most: usize,
}

/// There, once.
pub(super) const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, least: 1, most: 1 }
}

pub(super) const fn maybe(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, least: 0, most: 1 }
}

pub(super) const fn times(number: u32, name: &'static str, kind: Kind, count: usize) -> Field {
    Field { number, name, kind, least: count, most: count }
}

pub(super) const fn many(number: u32, name: &'static str, kind: Kind, most: usize) -> Field {
    Field { number, name, kind, least: 0, most }
}

/// Which field it is, the outermost first, and what is wrong with it.
pub(super) type Fault = (Vec<String>, Wrong);

fn fault(name: &str, wrong: impl Into<Wrong>) -> Fault {
    (vec![name.to_owned()], wrong.into())
}

/// Does a message follow the rules, and those inside of it?
pub(super) fn check(mut message: &[u8], rules: &'static [Field]) -> Result<(), Fault> {
    let mut counts = vec![0; rules.len()];
    while !message.is_empty() {
        let (number, value) = read_field(&mut message).map_err(|wrong| (vec![], wrong.into()))?;
        let at = rules.iter().position(|rule| rule.number == number);
        let Some(at) = at else { return Err(fault(&format!("field {number}"), Wrong::Foreign)) };
        let rule = &rules[at];
        counts[at] += 1;
        if counts[at] > rule.most {
            return Err(fault(rule.name, Wrong::TooMany(rule.most)));
        }
        check_value(value, rule)?;
    }
    let missing = rules.iter().zip(counts).find(|(rule, count)| *count < rule.least);
    missing.map_or(Ok(()), |(rule, _)| Err(fault(rule.name, Wrong::Missing)))
}

fn check_value(value: Value<'_>, rule: &Field) -> Result<(), Fault> {
    let wrong = match (rule.kind, value) {
        (Kind::Message(rules), Value::Bytes(message)) => {
            return check(message, rules).map_err(|(mut path, wrong)| {
                path.insert(0, rule.name.to_owned());
                (path, wrong)
            });
        }
        (Kind::Bytes(most), Value::Bytes(bytes)) if bytes.len() > most => {
            Some(Wrong::TooLong(bytes.len(), most))
        }
        (Kind::Exactly(length), Value::Bytes(bytes)) if bytes.len() != length => {
            Some(Wrong::TooLong(bytes.len(), length))
        }
        (Kind::Bytes(_) | Kind::Exactly(_), Value::Bytes(_)) => None,
        (kind, Value::Varint(number)) => unexpected(kind, number),
        (_, Value::Bytes(_) | Value::Fixed(_)) => Some(Wrong::Malformed),
    };
    wrong.map_or(Ok(()), |wrong| Err(fault(rule.name, wrong)))
}

fn unexpected(kind: Kind, found: u64) -> Option<Wrong> {
    const MOST: u64 = 0xffff_ffff;
    /// Of 32 bits, with the sign that makes it one of 64.
    const LEAST: u64 = 0xffff_ffff_8000_0000;
    let (is_it, expected) = match kind {
        Kind::Wide => return None,
        Kind::Number => (found <= MOST, "32 bits".to_owned()),
        Kind::Signed => (found <= MOST / 2 || found >= LEAST, "32 bits with a sign".to_owned()),
        Kind::Is(these) => {
            let all: Vec<String> = these.iter().map(u64::to_string).collect();
            (these.contains(&found), all.join(" or "))
        }
        Kind::UpTo(most) => (found <= most, format!("at most {most}")),
        Kind::Bits(bits) => (found & !bits == 0, format!("no bits but {bits:#x}")),
        Kind::Bytes(_) | Kind::Exactly(_) | Kind::Message(_) => return Some(Wrong::Malformed),
    };
    (!is_it).then_some(Wrong::Number { found, expected })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put;

    const INNER: &[Field] = &[maybe(1, "policy", Kind::Is(&[0, 5]))];
    const OUTER: &[Field] = &[
        one(1, "uid", Kind::Number),
        maybe(2, "thread", Kind::Message(INNER)),
        many(3, "groups", Kind::Signed, 2),
        maybe(4, "name", Kind::Bytes(3)),
    ];

    fn said(fields: &[(u32, Value<'_>)]) -> String {
        let mut message = vec![];
        for (number, value) in fields {
            put(&mut message, *number, *value);
        }
        match check(&message, OUTER) {
            Ok(()) => "well".into(),
            Err((path, wrong)) => format!("{} {wrong}", path.join(".")),
        }
    }

    #[test]
    fn only_what_is_listed_passes() {
        use Value::{Bytes, Fixed, Varint};
        let uid = (1, Varint(0));
        assert_eq!(said(&[uid]), "well");
        assert_eq!(said(&[uid, (3, Varint(u64::MAX)), (3, Varint(1)), (4, Bytes(b"abc"))]), "well");
        assert_eq!(said(&[]), "uid is missing");
        assert_eq!(said(&[uid, uid]), "uid is there more than 1 times");
        assert_eq!(said(&[uid, (9, Varint(0))]), "field 9 is in no guest's image");
        assert_eq!(said(&[uid, (4, Bytes(b"abcd"))]), "name is 4 bytes: expected at most 3");
        assert_eq!(said(&[(1, Fixed(&[0; 4]))]), "uid is not what CRIU writes");
        let inner = [8, 1];
        assert_eq!(said(&[uid, (2, Bytes(&inner))]), "thread.policy is 1: expected 0 or 5");
    }

    #[test]
    fn a_number_is_not_taken_for_its_lower_half() {
        let long = Value::Varint(1 << 32);
        assert_eq!(said(&[(1, long)]), "uid is 4294967296: expected 32 bits");
        assert!(said(&[(1, Value::Varint(0)), (3, long)]).starts_with("groups is"));
    }
}
