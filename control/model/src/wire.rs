//! A virtual wire between two virtual switches: how fast it is, how long, and what goes wrong on it.
//!
//! Each direction has conditions of its own. What they do to frames is `drivers/memory`'s matter; here they are words and
//! numbers of the file. A wire is the way out of both its ends, so a switch has one at most.

use core::fmt;
use core::time::Duration;

use firelane_units::BitRate;
use serde::{Deserialize, Serialize};

use crate::LinkName;
use crate::value::{self, TextValue, serde_as_text};

/// A wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WireTable", into = "WireTable")]
pub struct Wire {
    /// The links at its ends.
    pub ends: [LinkName; 2],
    /// What its faults are drawn from; another at each start if there is none.
    pub seed: Option<u32>,
    /// From the first end to the second.
    pub forth: Conditions,
    /// From the second end to the first.
    pub back: Conditions,
}

/// A direction of a wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WireSide {
    /// From the first end to the second.
    Forth,
    /// From the second end to the first.
    Back,
}

impl WireSide {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forth, Self::Back];

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Forth => "forth",
            Self::Back => "back",
        }
    }
}

/// What happens to frames in one direction. The default is: nothing, at once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// How fast frames leave, one after the other; without it, at once.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "10M"))]
    pub rate: Option<BitRate>,
    /// How many bytes may wait for the rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: QueueBytes,
    /// From the end of sending to arrival.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay: Delay,
    /// Up to so much more, evenly distributed; the order stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter: Delay,
    /// How many frames are lost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loss: Share,
    /// How many frames are overtaken by those behind them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reorder: Share,
    /// How many frames arrive twice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub duplicate: Share,
    /// How many frames arrive with a wrong bit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrupt: Share,
}

/// A condition's name, its value, and how a text changes it.
type Word = (&'static str, &'static str, fn(&Conditions) -> String, fn(&mut Conditions, &str) -> bool);

macro_rules! word {
    ($name:ident: $type:ty) => {
        (
            stringify!($name),
            <$type as TextValue>::ALLOWED,
            |it| it.$name.write(),
            |it, text| <$type as TextValue>::read(text).map(|read| it.$name = read).is_some(),
        )
    };
}

/// All conditions, in the order in which a frame meets them.
const WORDS: &[Word] = &[
    ("rate", RATE_ALLOWED, |it| it.rate.map_or_else(|| NO_RATE.to_owned(), value::spell_rate), set_rate),
    word!(queue: QueueBytes),
    word!(loss: Share),
    word!(corrupt: Share),
    word!(delay: Delay),
    word!(jitter: Delay),
    word!(reorder: Share),
    word!(duplicate: Share),
];

/// The word for a rate that is none.
const NO_RATE: &str = "none";
const RATE_ALLOWED: &str =
    "none, or a number with an optional K, M or G (none means Mb/s), such as 10M; 0 lets nothing pass";

fn set_rate(it: &mut Conditions, text: &str) -> bool {
    let rate = if text == NO_RATE { Some(None) } else { BitRate::read(text).map(Some) };
    rate.map(|rate| it.rate = rate).is_some()
}

impl Conditions {
    /// The names of all conditions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(name, ..)| *name)
    }

    /// Every condition with its value, as commands spell both.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, String)> {
        WORDS.iter().map(|(name, _, write, _)| (*name, write(self)))
    }

    /// Sets the condition `name` to what `text` says.
    ///
    /// # Errors
    /// What is allowed; `None` if there is no condition of that name.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Option<&'static str>> {
        let (_, allowed, _, set) = WORDS.iter().find(|(known, ..)| *known == name).ok_or(None)?;
        if set(self, text) { Ok(()) } else { Err(Some(allowed)) }
    }
}

impl fmt::Display for Conditions {
    /// What is not as on a wire without conditions, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::default();
        let differing = self.words().zip(plain.words()).filter(|(is, usual)| is != usual);
        for (nth, ((name, value), _)) in differing.enumerate() {
            write!(f, "{}{name}={value}", if nth == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Wire {
    /// A wire without conditions.
    pub fn new(ends: [LinkName; 2]) -> Self {
        Self { ends, seed: None, forth: Conditions::default(), back: Conditions::default() }
    }

    /// One direction's conditions.
    pub fn side(&self, side: WireSide) -> &Conditions {
        match side {
            WireSide::Forth => &self.forth,
            WireSide::Back => &self.back,
        }
    }

    /// The same, to be changed.
    pub fn side_mut(&mut self, side: WireSide) -> &mut Conditions {
        match side {
            WireSide::Forth => &mut self.forth,
            WireSide::Back => &mut self.back,
        }
    }
}

/// A wire as it stands in the file.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
struct WireTable {
    /// The links at its ends: links, etherstubs, or VNICs without a user, which no other wires join.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    ends: [LinkName; 2],
    /// What its faults are drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    /// The conditions of both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    both: Option<Conditions>,
    /// The conditions from the first end to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forth: Option<Conditions>,
    /// The conditions from the second end to the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back: Option<Conditions>,
}

impl TryFrom<WireTable> for Wire {
    type Error = &'static str;

    fn try_from(table: WireTable) -> Result<Self, Self::Error> {
        let WireTable { ends, seed, both, forth, back } = table;
        if both.is_some() && (forth.is_some() || back.is_some()) {
            return Err("both: stands alone; forth and back say what each direction is like");
        }
        let of = |side: Option<Conditions>| side.or_else(|| both.clone()).unwrap_or_default();
        Ok(Self { ends, seed, forth: of(forth), back: of(back) })
    }
}

impl From<Wire> for WireTable {
    fn from(wire: Wire) -> Self {
        let Wire { ends, seed, forth, back } = wire;
        let said = |it: Conditions| Some(it).filter(|it| !is_default(it));
        match forth == back {
            true => Self { ends, seed, both: said(forth), forth: None, back: None },
            false => Self { ends, seed, both: None, forth: said(forth), back: said(back) },
        }
    }
}

fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// A time on a wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Delay(Duration);

impl Delay {
    /// Longer than any wire; what is under way has to be remembered.
    const MOST: Duration = Duration::from_secs(60);

    /// A time that is known to be short enough.
    pub(crate) const fn of(time: Duration) -> Self {
        Self(time)
    }

    /// As a duration.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

/// Units of time, the finest first.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl TextValue for Delay {
    const ALLOWED: &'static str = "a time with ns, us, ms or s, such as 20ms; at most 60s";

    fn read(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::default());
        }
        let (number, nanos) = UNITS.iter().find_map(|&(unit, nanos)| {
            let number = text.strip_suffix(unit)?;
            number.bytes().next_back()?.is_ascii_digit().then_some((number, nanos))
        })?;
        let thousandths = thousandths(number)?;
        let duration = Duration::from_nanos(thousandths.checked_mul(nanos)? / 1000);
        (duration <= Self::MOST).then_some(Self(duration))
    }

    fn write(&self) -> String {
        let nanos = self.0.as_nanos();
        let Some((unit, whole)) = UNITS.iter().rev().find_map(|&(unit, of)| {
            let of = u128::from(of);
            (nanos > 0 && nanos.is_multiple_of(of)).then(|| (unit, nanos / of))
        }) else {
            return "0".to_owned();
        };
        format!("{whole}{unit}")
    }
}

serde_as_text!(Delay);

/// A share of frames, to a thousandth of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Share(u32);

impl Share {
    const ALL: u32 = 100_000;

    /// Between 0 and 1.
    pub fn probability(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL)
    }
}

impl TextValue for Share {
    const ALLOWED: &'static str =
        "a percentage from 0 to 100, to a thousandth of a percent, such as 1% or 0.005%";

    fn read(text: &str) -> Option<Self> {
        let number = thousandths(text.strip_suffix('%').unwrap_or(text))?;
        u32::try_from(number).ok().filter(|&it| it <= Self::ALL).map(Self)
    }

    fn write(&self) -> String {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        let rest = format!("{rest:03}");
        match rest.trim_end_matches('0') {
            "" => format!("{whole}%"),
            digits => format!("{whole}.{digits}%"),
        }
    }
}

serde_as_text!(Share);

/// A number with up to three decimals, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(decimals) || decimals.len() > 3 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(decimals)
}

/// How much may wait for a wire's rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueueBytes(pub u32);

impl QueueBytes {
    /// What is under way in one direction takes at most four times that.
    const MOST: u32 = 64 << 20;
}

impl Default for QueueBytes {
    /// A mebibyte.
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl TextValue for QueueBytes {
    const ALLOWED: &'static str = "a number of bytes from 0 to 67108864";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&bytes| bytes <= Self::MOST).map(Self)
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

serde_as_text!(QueueBytes);

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::{RefOr, schema::Schema};

    impl utoipa::PartialSchema for super::Wire {
        fn schema() -> RefOr<Schema> {
            super::WireTable::schema()
        }
    }

    impl utoipa::ToSchema for super::Wire {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            super::WireTable::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_read_back(nanos in 0..=60_000_000_000u64, share in 0..=Share::ALL, bytes in 0..=QueueBytes::MOST) {
            let (delay, share, queue) = (Delay(Duration::from_nanos(nanos)), Share(share), QueueBytes(bytes));
            prop_assert_eq!(Delay::read(&delay.write()), Some(delay));
            prop_assert_eq!(Share::read(&share.write()), Some(share));
            prop_assert_eq!(QueueBytes::read(&queue.write()), Some(queue));
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let mut conditions = Conditions::default();
            for name in Conditions::names() {
                let _ = conditions.set(name, &text);
            }
        }
    }

    #[test]
    fn values_are_written_shortest() {
        let mut it = Conditions::default();
        for (name, text, shown) in [
            ("delay", "0.02s", "20ms"),
            ("delay", "1.5ms", "1500us"),
            ("delay", "60s", "60s"),
            ("jitter", "0", "0"),
            ("jitter", "0.5us", "500ns"),
            ("loss", "1", "1%"),
            ("loss", "0.05%", "0.05%"),
            ("reorder", "100%", "100%"),
            ("rate", "1.5", "1500K"),
            ("rate", "none", "none"),
            ("queue", "0", "0"),
        ] {
            assert_eq!(it.set(name, text), Ok(()), "{name}={text}");
            assert!(it.words().any(|word| word == (name, shown.to_owned())), "{name}={text}");
        }
        assert_eq!(it.to_string(), "queue=0,loss=0.05%,delay=60s,jitter=500ns,reorder=100%");
    }

    #[test]
    fn what_is_no_value_is_refused_with_what_is_allowed() {
        let mut it = Conditions::default();
        for (name, text) in [
            ("delay", "20"),
            ("delay", "-1ms"),
            ("delay", "61s"),
            ("delay", "ms"),
            ("delay", "1.2345ms"),
            ("delay", "99999999999999999999s"),
            ("loss", "101%"),
            ("loss", "%"),
            ("loss", "1.0001%"),
            ("duplicate", "x"),
            ("queue", "67108865"),
            ("rate", "fast"),
        ] {
            let refused = it.set(name, text);
            assert!(matches!(refused, Err(Some(allowed)) if !allowed.is_empty()), "{name}={text}");
        }
        assert_eq!(it.set("speed", "1"), Err(None));
        assert_eq!(it, Conditions::default());
    }

    #[test]
    fn a_wire_reads_back_from_its_file() {
        for text in [
            "ends = [\"a0\", \"b0\"]\n",
            "ends = [\"a0\", \"b0\"]\nseed = 7\n\n[both]\nrate = \"10M\"\ndelay = \"20ms\"\nloss = \"1%\"\n",
            "ends = [\"a0\", \"b0\"]\n\n[forth]\nqueue = 1000\n\n[back]\nreorder = \"5%\"\n",
        ] {
            let wire: Wire = toml::from_str(text).unwrap();
            assert_eq!(toml::to_string(&wire).unwrap(), text);
        }
        for (text, why) in [
            ("ends = [\"a0\"]", "ends"),
            ("ends = [\"a0\", \"b0\"]\n[both]\n[back]\n", "stands alone"),
            ("ends = [\"a0\", \"b0\"]\n[both]\nloss = \"2\"\nlag = 1\n", "lag"),
        ] {
            let error = toml::from_str::<Wire>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
