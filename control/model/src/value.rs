//! Quantities and names as they stand in the file: one text or number per value.
//!
//! A value that can be read from text implements [`TextValue`]; serde then reads it from a string or an
//! integer and refuses with what is allowed. Fields of types from `base/units`, which knows nothing about
//! serde, say `#[serde(with = "crate::value")]`, or `crate::value::option` if they may be absent.

use core::fmt;
use core::marker::PhantomData;
use core::net::IpAddr;

use firelane_units::{BitRate, DsField, IpPrefix, MacAddr, Mtu, Port, PortRange, Priority, VlanId};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is one word of text.
pub(crate) trait TextValue: Sized {
    /// What is allowed, as one line.
    const ALLOWED: &'static str;
    /// Whether the file shows it as a number.
    const NUMBER: bool = false;
    /// Reads the text.
    fn read(text: &str) -> Option<Self>;
    /// The text that reads back as this value.
    fn write(&self) -> String;
}

/// Serializes a value as its text or number.
pub(crate) fn serialize<T: TextValue, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let text = value.write();
    match text.parse::<u64>() {
        Ok(number) if T::NUMBER => to.serialize_u64(number),
        _ => to.serialize_str(&text),
    }
}

/// Reads a value from a text or an integer.
pub(crate) fn deserialize<'de, T: TextValue, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(ValueVisitor(PhantomData))
}

struct ValueVisitor<T>(PhantomData<T>);

impl<T: TextValue> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::ALLOWED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text).ok_or_else(|| E::custom(refusal(&format!("{text:?}"), T::ALLOWED)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::read(&number.to_string()).ok_or_else(|| E::custom(refusal(&number.to_string(), T::ALLOWED)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::read(&number.to_string()).ok_or_else(|| E::custom(refusal(&number.to_string(), T::ALLOWED)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::read(&number.to_string()).ok_or_else(|| E::custom(refusal(&number.to_string(), T::ALLOWED)))
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<T, E> {
        Err(E::custom(refusal(&is.to_string(), T::ALLOWED)))
    }
}

/// `value: what is allowed`, the value cut so that a hostile file does not fill the screen.
pub(crate) fn refusal(value: &str, allowed: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...: {allowed}", &value[..end]),
        None => format!("{value}: {allowed}"),
    }
}

/// The same for a field that may be absent.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Serializer, TextValue};

    /// Serializes a value that is present (an absent one is skipped by its field).
    pub(crate) fn serialize<T: TextValue, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    /// A value, so that serde reads what may be none.
    struct Present<T>(T);

    impl<'de, T: TextValue> Deserialize<'de> for Present<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            super::deserialize(from).map(Self)
        }
    }

    /// Reads a value that is present, or the word that JSON has for none.
    pub(crate) fn deserialize<'de, T: TextValue, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<Present<T>>::deserialize(from)?.map(|Present(value)| value))
    }
}

/// The same for a list.
pub(crate) mod list {
    use super::{Deserializer, PhantomData, Serialize, Serializer, TextValue, fmt};
    use serde::de::{DeserializeSeed, SeqAccess, Visitor};

    struct One<'a, T>(&'a T);

    impl<T: TextValue> Serialize for One<'_, T> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            super::serialize(self.0, to)
        }
    }

    /// Serializes every element.
    pub(crate) fn serialize<T: TextValue, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(One))
    }

    struct Seed<T>(PhantomData<T>);

    impl<'de, T: TextValue> DeserializeSeed<'de> for Seed<T> {
        type Value = T;
        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
            super::deserialize(from)
        }
    }

    struct ListVisitor<T>(PhantomData<T>);

    impl<'de, T: TextValue> Visitor<'de> for ListVisitor<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list; {}", T::ALLOWED)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = seq.next_element_seed(Seed(PhantomData))? {
                values.push(value);
            }
            Ok(values)
        }
    }

    /// Reads a list.
    pub(crate) fn deserialize<'de, T: TextValue, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// Gives a [`TextValue`] of this crate serde's traits and, for the API, the schema of a string.
macro_rules! serde_as_text {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                crate::value::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::value::deserialize(from)
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
pub(crate) use serde_as_text;

impl TextValue for BitRate {
    const ALLOWED: &'static str =
        "a rate is a number with an optional K, M or G (none means Mb/s), such as 50M; 0 lets nothing pass";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        let bits = self.bps();
        match bits {
            _ if bits.is_multiple_of(1_000_000_000) && bits > 0 => format!("{}G", bits / 1_000_000_000),
            _ if bits.is_multiple_of(1_000_000) => format!("{}M", bits / 1_000_000),
            _ if bits.is_multiple_of(1_000) => format!("{}K", bits / 1_000),
            _ => format!("{}.{:03}K", bits / 1_000, bits % 1_000),
        }
    }
}

/// The rate as files and commands spell it, shortest and exact: `50M`, `1200K`.
pub fn spell_rate(rate: BitRate) -> String {
    rate.write()
}

impl TextValue for Mtu {
    const ALLOWED: &'static str = "an mtu is a number of bytes from 576 to 65535";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::new)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for VlanId {
    const ALLOWED: &'static str = "a VLAN identifier is a number from 1 to 4094";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::new)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for Port {
    const ALLOWED: &'static str = "a port is a number from 1 to 65535";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&port| port != 0).map(Self)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for PortRange {
    const ALLOWED: &'static str = "a port is a number from 1 to 65535, or a range such as 8000-8999";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for Priority {
    const ALLOWED: &'static str = "a priority is low, medium or high";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.word().to_owned()
    }
}

impl TextValue for DsField {
    const ALLOWED: &'static str = "a dsfield is 0xVV or 0xVV:0xMM, value and mask from 0x01 to 0xff";

    fn read(text: &str) -> Option<Self> {
        let byte = |text: &str| {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
            let plain = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|&byte| plain && byte != 0)
        };
        let (value, mask) = text.split_once(':').unwrap_or((text, "0xff"));
        Self::new(byte(value)?, byte(mask)?).filter(|field| field.value() != 0)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for IpPrefix {
    const ALLOWED: &'static str = "an IP address or prefix, such as 10.0.0.1 or fd00::/64";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for IpAddr {
    const ALLOWED: &'static str = "an IP address, such as 10.0.0.1 or fd00::1";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for MacAddr {
    const ALLOWED: &'static str = "a MAC address is six hexadecimal bytes with colons, such as 2:8:20:1:a:b";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rates_read_back_to_the_bit(bits in 0..10_000_000_000_000u64) {
            let rate = BitRate::from_bps(bits);
            prop_assert_eq!(BitRate::read(&rate.write()), Some(rate));
        }
    }

    #[test]
    fn rates_are_written_shortest() {
        for (bits, text) in [
            (0, "0M"),
            (50_000_000, "50M"),
            (1_200_000, "1200K"),
            (2_000_000_000, "2G"),
            (1_200_001, "1200.001K"),
        ] {
            assert_eq!(BitRate::from_bps(bits).write(), text);
        }
        assert_eq!(BitRate::read("0.001K"), Some(BitRate::from_bps(1)));
        assert_eq!(BitRate::read("0"), Some(BitRate::ZERO));
    }

    #[test]
    fn a_long_value_is_cut() {
        let text = refusal(&"x".repeat(1000), "short");
        assert!(text.len() < 100 && text.ends_with("...: short"));
    }
}
