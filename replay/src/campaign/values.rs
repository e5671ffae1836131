//! The values of a campaign file that are more than a number or a text.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use crate::bag::Workers;
use crate::model::Placement;
use crate::model::RENICE_SHARE;
use gleaner_common::job::{OnBusy, Patience, Reaction};
use gleaner_common::units::{ParseUnitError, parse_duration, written_duration};
use gleaner_coordinator_core::Policy;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// More steps than anybody draws.
const COSTS_MAX: usize = 100_000;

/// Costs of a move, ascending: `["1s", "10s"]`, or
/// `{ from = "1s", to = "100s", step = "1s" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostChoices(pub Vec<Duration>);

impl Serialize for CostChoices {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|cost| written_duration(*cost)))
    }
}

/// One duration, written with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spelt(pub Duration);

impl FromStr for Spelt {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text).map(Self)
    }
}

impl Serialize for Spelt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&written_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Spelt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Spelled::deserialize(from).map(|Spelled(span)| span)
    }
}

impl<'de> Deserialize<'de> for CostChoices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CostChoicesVisitor)
    }
}

struct CostChoicesVisitor;

impl<'de> Visitor<'de> for CostChoicesVisitor {
    type Value = CostChoices;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(
            "costs such as [\"1s\", \"10s\"] or { from = \"1s\", to = \"100s\", step = \"1s\" }",
        )
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CostChoices, A::Error> {
        let mut costs = BTreeSet::new();
        while let Some(Spelled(Spelt(cost))) = list.next_element()? {
            if !costs.insert(cost) {
                return Err(de::Error::custom("a cost is there twice"));
            }
        }
        if costs.is_empty() {
            return Err(de::Error::custom("no costs: expected at least one"));
        }
        Ok(CostChoices(costs.into_iter().collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CostChoices, A::Error> {
        Range::deserialize(de::value::MapAccessDeserializer::new(map))?
            .costs()
            .map_err(de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: Spelled<Spelt>,
    to: Spelled<Spelt>,
    step: Spelled<Spelt>,
}

impl Range {
    fn costs(&self) -> Result<CostChoices, &'static str> {
        let (from, to, step) = (self.from.0.0, self.to.0.0, self.step.0.0);
        if step.is_zero() || to < from {
            return Err("expected costs up from `from` to `to` with a `step` of more than nothing");
        }
        let mut costs = vec![];
        let mut cost = from;
        while cost <= to {
            if costs.len() == COSTS_MAX {
                return Err("too many costs: expected at most 100,000");
            }
            costs.push(cost);
            cost += step;
        }
        Ok(CostChoices(costs))
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(many) => to.serialize_u32(*many),
            Self::All => to.serialize_str(ALL),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WorkersVisitor)
    }
}

const ALL: &str = "all";

struct WorkersVisitor;

impl Visitor<'_> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a number of workers, or \"all\"")
    }

    fn visit_i64<E: de::Error>(self, many: i64) -> Result<Workers, E> {
        u32::try_from(many)
            .map(Workers::Number)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(many), &self))
    }

    fn visit_u64<E: de::Error>(self, many: u64) -> Result<Workers, E> {
        u32::try_from(many)
            .map(Workers::Number)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(many), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
        if text == ALL {
            return Ok(Workers::All);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Who gives a subprogram its workstation: a policy of the core's, or the
/// oracle that knows the future and that no lab can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlacementChoice {
    Core(Policy),
    Oracle,
}

const ORACLE: &str = "oracle";

impl Default for PlacementChoice {
    /// Phalen 1994, §6.4: "strictly in a LIFO manner".
    fn default() -> Self {
        Self::Core(Policy::LastIdleFirst)
    }
}

impl From<PlacementChoice> for Placement {
    fn from(choice: PlacementChoice) -> Self {
        match choice {
            PlacementChoice::Core(policy) => Self::Core(policy),
            PlacementChoice::Oracle => Self::Oracle,
        }
    }
}

/// As in a campaign file: `last-idle-first`.
impl fmt::Display for PlacementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(policy) => f.pad(&policy_name(*policy)),
            Self::Oracle => f.pad(ORACLE),
        }
    }
}

/// The core's own spelling: a policy added there is known here at once.
fn policy_name(policy: Policy) -> String {
    match serde_json::to_value(policy) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a policy is written as {other:?}"),
    }
}

impl FromStr for PlacementChoice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == ORACLE {
            return Ok(Self::Oracle);
        }
        let known = Policy::ALL.into_iter().find(|policy| policy_name(*policy) == text);
        known.map(Self::Core).ok_or_else(|| {
            let mut expected: Vec<String> = Policy::ALL.into_iter().map(policy_name).collect();
            expected.push(ORACLE.to_owned());
            ParseChoiceError::Policy { text: text.to_owned(), expected: expected.join(", ") }
        })
    }
}

/// What a rank does when its workstation turns busy, in words: `migrate`,
/// `rollback`, `retreat`, `suspend`, `suspend 10min then migrate`,
/// `renice 20%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReactionChoice {
    pub on_busy: OnBusy,
    /// How much of a workstation its owner leaves to a demoted rank, for
    /// `renice`.
    pub share: f64,
}

impl Default for ReactionChoice {
    fn default() -> Self {
        Self { on_busy: OnBusy::at_once(Reaction::Migrate), share: RENICE_SHARE }
    }
}

/// As in a campaign file.
impl fmt::Display for ReactionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.on_busy.reaction, self.on_busy.patience) {
            (Reaction::Renice, _) => write!(f, "renice {}%", self.share * 100.0),
            (Reaction::Suspend, Patience::Forever) => f.write_str("suspend"),
            _ => self.on_busy.fmt(f),
        }
    }
}

impl FromStr for ReactionChoice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseChoiceError::Reaction(text.to_owned());
        let at_once = |reaction| Self { on_busy: OnBusy::at_once(reaction), ..Self::default() };
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["renice"] => Ok(at_once(Reaction::Renice)),
            ["renice", share] => {
                let share = share.strip_suffix('%').and_then(|share| share.parse::<f64>().ok());
                let share = share.filter(|share| *share > 0.0 && *share <= 100.0);
                let share = share.ok_or_else(wrong)? / 100.0;
                Ok(Self { share, ..at_once(Reaction::Renice) })
            }
            ["suspend"] => {
                Ok(Self { on_busy: OnBusy::suspend(None, Reaction::Retreat), ..Self::default() })
            }
            _ => {
                let on_busy = text.parse().map_err(|_| wrong())?;
                Ok(Self { on_busy, ..Self::default() })
            }
        }
    }
}

/// Why a text is not one of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseChoiceError {
    #[error("`{text}` is not a policy: expected one of {expected}")]
    Policy { text: String, expected: String },
    #[error(
        "`{0}` is not a reaction: expected migrate, rollback, retreat, suspend, such as \
         `suspend 10min then migrate`, or such as `renice 20%`"
    )]
    Reaction(String),
}

/// What is varied along one axis, in the file's order; the usual value alone
/// if none are named.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices<T>(pub Vec<T>);

impl<T: Default> Default for Choices<T> {
    fn default() -> Self {
        Self(vec![T::default()])
    }
}

impl<T: fmt::Display> Serialize for Choices<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

impl<'de, T: FromStr<Err: fmt::Display> + PartialEq> Deserialize<'de> for Choices<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut found: Vec<T> = vec![];
        for Spelled(value) in Vec::deserialize(from)? {
            if found.contains(&value) {
                return Err(de::Error::custom("the same is there twice"));
            }
            found.push(value);
        }
        if found.is_empty() {
            return Err(de::Error::custom("the list is empty: expected at least one"));
        }
        Ok(Self(found))
    }
}

/// A value that is written as a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spelled<T>(pub T);

impl<T: fmt::Display> Serialize for Spelled<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Spelled<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(SpelledVisitor(PhantomData))
    }
}

/// Parses while the deserializer still knows where the text stands: an error
/// in a list is then placed at its element.
struct SpelledVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for SpelledVisitor<T> {
    type Value = Spelled<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Spelled<T>, E> {
        text.parse().map(Spelled).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaction_is_spoken_as_it_is_read() {
        for text in [
            "migrate",
            "rollback",
            "retreat",
            "suspend",
            "suspend 10m then migrate",
            "suspend 30s then retreat",
            "renice 20%",
        ] {
            assert_eq!(text.parse::<ReactionChoice>().unwrap().to_string(), text);
        }
        assert_eq!("renice".parse::<ReactionChoice>().unwrap().to_string(), "renice 10%");
    }

    #[test]
    fn what_is_no_reaction_is_refused_with_examples() {
        for text in [
            "",
            "flee",
            "suspend 10",
            "suspend 10min then renice",
            "suspend 10min",
            "renice 0%",
            "renice 101%",
            "renice 0.2",
            "migrate now",
        ] {
            let error = text.parse::<ReactionChoice>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a reaction")), "{error}");
        }
    }

    #[test]
    fn every_policy_of_the_core_is_known_and_so_is_the_oracle() {
        for policy in Policy::ALL {
            let choice = PlacementChoice::Core(policy);
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("oracle".parse(), Ok(PlacementChoice::Oracle));
        let error = "lifo".parse::<PlacementChoice>().unwrap_err().to_string();
        assert!(error.contains("expected one of last-idle-first, first-idle-first"), "{error}");
    }
}
