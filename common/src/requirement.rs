//! What a job asks of a workstation, in words: `memory >= 4GiB && os ~ "debian"`.
//!
//! ```
//! use gleaner_common::requirement::{Attributes, Requirement, Value};
//!
//! let asked: Requirement = r#"memory >= 4GiB && (os ~ "debian" || has("matlab"))"#.parse()?;
//! let mut of = Attributes::from([("memory".to_owned(), Value::Number(8e9))]);
//! assert!(!asked.is_met(&of));
//! of.insert("matlab".to_owned(), Value::Flag(true));
//! assert!(asked.is_met(&of));
//! # Ok::<(), gleaner_common::requirement::RequirementError>(())
//! ```
//!
//! A workstation either meets a requirement or does not: what it does not say
//! of itself meets no comparison, and `has("matlab")` asks whether it says it.
//! There is no third value that a negation would leave undecided.

mod parse;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::parse::RequirementError;

/// The longest requirement, in bytes, and how deep it may be nested.
pub const TEXT_BYTES_MAX: usize = 1_024;
pub const DEPTH_MAX: usize = 16;

/// How many attributes a site adds at most, and how long their names and texts
/// are at most, in bytes.
pub const ATTRIBUTES_MAX: usize = 64;
pub const ATTRIBUTE_BYTES_MAX: usize = 256;

/// What a workstation says of itself, by name: sizes in bytes, counts, names,
/// and what its site or a script of its site has added.
pub type Attributes = BTreeMap<String, Value>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    Flag(bool),
    Number(f64),
    Text(String),
}

/// Conditions that must all hold. It is kept as the text that it was read
/// from, so that what comes over the wire is read, and bounded, anew.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requirement {
    text: String,
    conditions: Vec<Condition>,
}

/// One of the conditions that `&&` joins at the top, and how it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    expression: Expression,
}

#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Has(String),
    Compare { attribute: String, how: Comparison, value: Value },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    /// The text is somewhere in it, in whatever case.
    Contains,
}

/// Why something is no attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("{0} attributes: expected at most {ATTRIBUTES_MAX}")]
    TooMany(usize),
    #[error("attribute `{}`: expected a letter, then letters, digits, `_`, `.` and `-`", .0.escape_debug())]
    Name(String),
    #[error("attribute {0}: expected a number that can be compared")]
    Number(String),
    #[error("attribute {0}: expected a text of at most {ATTRIBUTE_BYTES_MAX} bytes on one line")]
    Text(String),
}

/// Can these be attributes?
///
/// # Errors
/// The first thing that cannot be.
pub fn check(attributes: &Attributes) -> Result<(), AttributeError> {
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(AttributeError::TooMany(attributes.len()));
    }
    for (name, value) in attributes {
        if name.len() > ATTRIBUTE_BYTES_MAX || !parse::is_name(name) {
            return Err(AttributeError::Name(name.chars().take(ATTRIBUTE_BYTES_MAX).collect()));
        }
        match value {
            Value::Number(number) if !number.is_finite() => {
                return Err(AttributeError::Number(name.clone()));
            }
            Value::Text(text)
                if text.len() > ATTRIBUTE_BYTES_MAX || text.contains(char::is_control) =>
            {
                return Err(AttributeError::Text(name.clone()));
            }
            Value::Flag(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }
    Ok(())
}

impl Requirement {
    pub fn is_none(&self) -> bool {
        self.conditions.is_empty()
    }

    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    pub fn is_met(&self, by: &Attributes) -> bool {
        self.conditions.iter().all(|condition| condition.is_met(by))
    }

    /// The conditions that these attributes do not meet.
    pub fn unmet(&self, by: &Attributes) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|condition| !condition.is_met(by))
    }
}

impl Condition {
    pub fn is_met(&self, by: &Attributes) -> bool {
        self.expression.holds(by)
    }
}

impl Expression {
    fn holds(&self, of: &Attributes) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(of)),
            Self::All(parts) => parts.iter().all(|part| part.holds(of)),
            Self::Not(part) => !part.holds(of),
            Self::Has(name) => of.get(name).is_some_and(|value| *value != Value::Flag(false)),
            Self::Compare { attribute, how, value } => {
                of.get(attribute).is_some_and(|is| how.holds(is, value))
            }
        }
    }
}

impl Comparison {
    /// Values of different kinds are unequal, and nothing else.
    fn holds(self, is: &Value, wanted: &Value) -> bool {
        if let (Self::Contains, Value::Text(is), Value::Text(wanted)) = (self, is, wanted) {
            return is.to_lowercase().contains(&wanted.to_lowercase());
        }
        let order = match (is, wanted) {
            (Value::Number(is), Value::Number(wanted)) => is.partial_cmp(wanted),
            (Value::Text(is), Value::Text(wanted)) => Some(is.cmp(wanted)),
            (Value::Flag(is), Value::Flag(wanted)) => Some(is.cmp(wanted)),
            _ => None,
        };
        match self {
            Self::Equal => order.is_some_and(Ordering::is_eq),
            Self::Unequal => order.is_none_or(Ordering::is_ne),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::More => order.is_some_and(Ordering::is_gt),
            Self::MoreOrEqual => order.is_some_and(Ordering::is_ge),
            Self::Contains => false,
        }
    }
}

/// Equal texts read alike.
impl PartialEq for Requirement {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Requirement {}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        Ok(Self { text: text.to_owned(), conditions: parse::conditions(text)? })
    }
}

impl TryFrom<String> for Requirement {
    type Error = RequirementError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        requirement.text
    }
}

#[cfg(test)]
mod tests;
