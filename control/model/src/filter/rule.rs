//! A rule as a value of the configuration: read from one line, written as one line.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use firelane_units::{FilterAction, FilterAddresses, FilterEnd, FilterRule, PacketTrait};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::RuleError;
use super::{check, read, tokens, write};
use crate::LinkName;

/// A rule that does not contradict itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IpfRule(FilterRule<LinkName>);

impl IpfRule {
    /// The rule in its one form, or why it contradicts itself.
    pub fn new(mut rule: FilterRule<LinkName>) -> Result<Self, RuleError> {
        check::rule(&rule)?;
        let it = &mut rule.matching;
        for end in [&mut it.from, &mut it.to] {
            if let FilterEnd { addresses: FilterAddresses::Prefix(prefix), .. } = end {
                *prefix = prefix.network();
            }
        }
        let place = |(asked, _): &(PacketTrait, bool)| PacketTrait::ALL.iter().position(|it| it == asked);
        it.with.sort_by_key(place);
        it.with.dedup();
        Ok(Self(rule))
    }

    /// The same rule skipping `count` others; one that would skip none only counts.
    pub(super) fn skipping(self, count: u16) -> Self {
        let action = if count == 0 { FilterAction::Count } else { FilterAction::Skip(count) };
        Self(FilterRule { action, ..self.0 })
    }

    /// What it says.
    pub const fn rule(&self) -> &FilterRule<LinkName> {
        &self.0
    }
}

impl fmt::Display for IpfRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write::rule(&self.0, f)
    }
}

/// The rule that the tokens are, and the place that they ask for; a contradiction is told of the first line.
pub(super) fn of_tokens(tokens: &[tokens::Token<'_>]) -> Result<PlacedRule, RuleError> {
    let (place, rule) = read::rule(tokens)?;
    let first = tokens.first().map_or(1, |token| token.line);
    let rule = IpfRule::new(rule).map_err(|error| RuleError { line: first, ..error })?;
    Ok(PlacedRule { place, rule })
}

impl FromStr for IpfRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let PlacedRule { place, rule } = text.parse()?;
        let allowed = "rules are in the order of the list";
        place.map_or(Ok(rule), |place| Err(RuleError::new(1, format_args!("@{place}"), allowed)))
    }
}

/// A rule with the place that it asks for: before which rule of its group and direction, counted from 1; without one, after
/// all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PlacedRule {
    /// The place.
    pub place: Option<NonZeroU32>,
    /// The rule.
    pub rule: IpfRule,
}

impl fmt::Display for PlacedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.map_or(Ok(()), |place| write!(f, "@{place} "))?;
        self.rule.fmt(f)
    }
}

impl FromStr for PlacedRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut rules = tokens::rules(text);
        let only = rules.next().ok_or_else(|| RuleError::new(1, "", "a rule is missing"))?;
        match rules.next() {
            None => of_tokens(&only),
            Some(second) => Err(RuleError::new(second[0].line, second[0].text, "one text is one rule")),
        }
    }
}

/// Serde's traits of what is one line of text.
macro_rules! serde_as_line {
    ($name:ty, $what:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Line;

                impl serde::de::Visitor<'_> for Line {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                from.deserialize_str(Line)
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                String::schema()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {}
    };
}

pub(super) use serde_as_line;

serde_as_line!(IpfRule, "a rule of ipf.conf, such as \"block in all\"");
serde_as_line!(PlacedRule, "a rule of ipf.conf, such as \"@1 block in all\"");
