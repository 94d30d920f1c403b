//! How much a netstack's address translation may have made at once, how long that lasts without packets, and who may answer.
//!
//! In the file: `[netstack.web.nat_limits]` with `sessions = 1000`, `udp = 30` and so on; what is not said is as usual, which are the
//! times of RFC 4787, 5382 and 5508. A change holds for what is made, and for what is used, after it.

use core::fmt;
use core::time::Duration;

use firelane_units::NatFiltering;
use serde::{Deserialize, Serialize};

use crate::FieldError;

/// The one that is no number.
const FILTERING: &str = "filtering";

/// The limits of a netstack's address translation, as far as they are said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NatLimits {
    /// Sessions at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Of which one address may have begun so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_source: Option<u32>,
    /// Seconds that a TCP connection lasts which both ends have shown to be theirs (RFC 5382 wants 7440 at least).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_established: Option<u32>,
    /// Seconds that one lasts which begins or ends (RFC 5382 wants 240).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_transitory: Option<u32>,
    /// Seconds that datagrams last (RFC 4787 wants 120, better 300).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<u32>,
    /// Seconds that queries of ICMP last (RFC 5508 wants 60).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<u32>,
    /// Seconds that anything else lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<u32>,
    /// Who may answer (RFC 4787 section 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtering: Option<NatAnswers>,
}

/// Who may answer a mapping, by RFC 4787's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NatAnswers {
    /// Everybody.
    EndpointIndependent,
    /// Every port of an address that was sent to.
    AddressDependent,
    /// Only who was sent to.
    AddressAndPortDependent,
}

impl NatAnswers {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::EndpointIndependent, Self::AddressDependent, Self::AddressAndPortDependent];

    fn words() -> [&'static str; 3] {
        Self::ALL.map(|it| NatFiltering::from(it).word())
    }
}

impl From<NatAnswers> for NatFiltering {
    fn from(answers: NatAnswers) -> Self {
        match answers {
            NatAnswers::EndpointIndependent => Self::Anybody,
            NatAnswers::AddressDependent => Self::Address,
            NatAnswers::AddressAndPortDependent => Self::Port,
        }
    }
}

impl NatLimits {
    /// The most sessions that can be asked for: sixteen times the usual number.
    pub const SESSIONS_MAX: u32 = 1 << 22;
    /// A week.
    pub const SECONDS_MAX: u32 = 7 * 24 * 3600;

    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What holds.
    pub fn in_force(&self) -> firelane_units::NatLimits {
        let usual = firelane_units::NatLimits::default();
        let time = |said: Option<u32>, usual| said.map_or(usual, |it| Duration::from_secs(it.into()));
        let sessions = self.sessions.unwrap_or(usual.sessions);
        firelane_units::NatLimits {
            sessions,
            per_source: self.per_source.unwrap_or(usual.per_source).min(sessions),
            filtering: self.filtering.map_or(usual.filtering, NatFiltering::from),
            tcp_established: time(self.tcp_established, usual.tcp_established),
            tcp_transitory: time(self.tcp_transitory, usual.tcp_transitory),
            udp: time(self.udp, usual.udp),
            icmp: time(self.icmp, usual.icmp),
            other: time(self.other, usual.other),
        }
    }

    /// Says one by its name, or takes back what was said. Whether a number can be is asked of the whole model.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), FieldError> {
        if name == FILTERING {
            let of_word = |word: &str| {
                let known = NatAnswers::ALL.into_iter().find(|it| NatFiltering::from(*it).word() == word);
                known.ok_or_else(|| FieldError::new(FILTERING, word, NatAnswers::words().join(", ")))
            };
            self.filtering = value.map(of_word).transpose()?;
            return Ok(());
        }
        let names = Self::default().numbers().map(|(name, ..)| name);
        let unknown = || FieldError::new("nat_limits", name, format!("{}, {FILTERING}", names.join(", ")));
        let (_, field) = self.fields().into_iter().find(|(it, _)| *it == name).ok_or_else(unknown)?;
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| plain);
            number.ok_or_else(|| FieldError::new(name, text, "a whole number, or usual"))
        };
        *field = value.map(number).transpose()?;
        Ok(())
    }

    /// Each by its name: what holds, what is usual, and what is possible.
    pub fn lines(&self) -> Vec<[String; 4]> {
        let of = |limits: firelane_units::NatLimits| {
            let seconds = |time: Duration| time.as_secs();
            [
                limits.sessions.into(),
                limits.per_source.into(),
                seconds(limits.tcp_established),
                seconds(limits.tcp_transitory),
                seconds(limits.udp),
                seconds(limits.icmp),
                seconds(limits.other),
            ]
        };
        let (is, usual) = (self.in_force(), firelane_units::NatLimits::default());
        let numbers = self.numbers().into_iter().zip(of(is)).zip(of(usual));
        let line = |(((name, _, most), is), usual): (((&str, _, u32), u64), u64)| {
            [name.to_owned(), is.to_string(), usual.to_string(), format!("1-{most}")]
        };
        let [is, usual] = [is, usual].map(|it| it.filtering.word().to_owned());
        let filtering = [FILTERING.to_owned(), is, usual, NatAnswers::words().join(",")];
        numbers.map(line).chain([filtering]).collect()
    }

    fn fields(&mut self) -> [(&'static str, &mut Option<u32>); 7] {
        let names = self.numbers().map(|(name, ..)| name);
        let Self { sessions, per_source, tcp_established, tcp_transitory, udp, icmp, other, .. } = self;
        let fields = [sessions, per_source, tcp_established, tcp_transitory, udp, icmp, other];
        let mut names = names.into_iter();
        fields.map(|field| (names.next().unwrap_or_default(), field))
    }

    fn numbers(&self) -> [(&'static str, Option<u32>, u32); 7] {
        [
            ("sessions", self.sessions, Self::SESSIONS_MAX),
            ("per_source", self.per_source, self.sessions.unwrap_or(Self::SESSIONS_MAX)),
            ("tcp_established", self.tcp_established, Self::SECONDS_MAX),
            ("tcp_transitory", self.tcp_transitory, Self::SECONDS_MAX),
            ("udp", self.udp, Self::SECONDS_MAX),
            ("icmp", self.icmp, Self::SECONDS_MAX),
            ("other", self.other, Self::SECONDS_MAX),
        ]
    }

    /// Numbers that cannot be, each with its field and what is allowed.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&'static str, u32, String)> {
        self.numbers().into_iter().filter_map(|(field, value, most)| {
            let value = value.filter(|value| !(1..=most).contains(value))?;
            Some((field, value, format!("from 1 to {most}")))
        })
    }
}

impl fmt::Display for NatLimits {
    /// `udp=30, filtering=address-dependent`, or `usual`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers =
            self.numbers().into_iter().filter_map(|(field, value, _)| Some((field, value?.to_string())));
        let filtering = self.filtering.map(|it| (FILTERING, NatFiltering::from(it).word().to_owned()));
        let said: Vec<String> =
            numbers.chain(filtering).map(|(field, value)| format!("{field}={value}")).collect();
        f.write_str(if said.is_empty() { "usual" } else { "" })?;
        f.write_str(&said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn read(text: &str) -> Result<NatLimits, String> {
        let text = format!("[netstack.web.nat_limits]\n{text}\n");
        let model = Model::from_toml("f.toml", &text).map_err(|faults| faults[0].to_string())?;
        Ok(model.netstacks["web"].nat_limits)
    }

    #[test]
    fn what_is_not_said_is_as_the_rfcs_have_it() {
        assert_eq!(NatLimits::default().in_force(), firelane_units::NatLimits::default());
        assert_eq!(NatLimits::default().to_string(), "usual");
        let said = read("udp = 30\nsessions = 100\nfiltering = \"endpoint-independent\"").unwrap();
        let limits = said.in_force();
        assert_eq!((limits.udp, limits.icmp), (Duration::from_secs(30), Duration::from_secs(60)));
        assert_eq!((limits.sessions, limits.per_source), (100, 100), "one address has no more than all");
        assert_eq!(limits.filtering, NatFiltering::Anybody);
        assert_eq!(said.to_string(), "sessions=100, udp=30, filtering=endpoint-independent");
        for answers in NatAnswers::ALL {
            let word = NatFiltering::from(answers).word();
            assert_eq!(read(&format!("filtering = \"{word}\"")).unwrap().filtering, Some(answers));
        }
    }

    #[test]
    fn each_is_said_shown_and_taken_back_by_its_name() {
        let mut limits = NatLimits::default();
        let names = limits.lines().into_iter().map(|[name, ..]| name);
        for (nth, name) in names.enumerate() {
            let value = if name == FILTERING { "endpoint-independent" } else { "77" };
            limits.set(&name, Some(value)).unwrap();
            assert_eq!(limits.to_string(), format!("{name}={value}"));
            // One address has no more than all.
            let changed =
                limits.lines().into_iter().zip(NatLimits::default().lines()).filter(|(a, b)| a != b);
            let changed: Vec<_> = changed.map(|([name, is, ..], _)| (name, is)).collect();
            assert_eq!(changed[0], (name.clone(), value.to_owned()));
            assert_eq!(changed.len(), if nth == 0 { 2 } else { 1 }, "{changed:?}");
            limits.set(&name, None).unwrap();
            assert!(limits.is_default());
        }
        for (name, value, told) in [
            ("colour", "1", "nat_limits: \"colour\": sessions, per_source, tcp_established"),
            ("udp", "+5", "udp: \"+5\": a whole number, or usual"),
            ("udp", "", "udp: a whole number"),
            ("filtering", "none", "filtering: \"none\": endpoint-independent, address-dependent"),
        ] {
            let fault = limits.set(name, Some(value)).unwrap_err().to_string();
            assert!(fault.contains(told), "{fault}");
        }
        assert!(limits.is_default());
    }

    #[test]
    fn numbers_that_cannot_be_are_named() {
        for (text, told) in [
            ("udp = 0", "netstack.web.nat_limits.udp: \"0\": from 1 to 604800"),
            (
                "tcp_established = 604801",
                "netstack.web.nat_limits.tcp_established: \"604801\": from 1 to 604800",
            ),
            ("sessions = 5000000", "netstack.web.nat_limits.sessions: \"5000000\": from 1 to 4194304"),
            ("sessions = 10\nper_source = 11", "netstack.web.nat_limits.per_source: \"11\": from 1 to 10"),
            ("filtering = \"none\"", "unknown variant `none`"),
            ("colour = 1", "unknown field `colour`"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(told), "{text}: {fault}");
        }
    }
}
