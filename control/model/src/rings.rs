//! By how many rings of its device a link receives and sends (`rxrings`, `txrings`).

use crate::value::{TextValue, serde_as_text};

/// How many rings are asked for in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rings {
    /// None but the one that every device has; where there is no device, software alone.
    Software,
    /// All that the device has.
    Hardware,
    /// So many.
    Count(u16),
}

impl Rings {
    /// The original's limit of rings in a group.
    pub const MAX: u16 = 128;
}

impl TextValue for Rings {
    const ALLOWED: &'static str = "sw, hw, or a number from 1 to 128";

    fn read(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("sw") {
            return Some(Self::Software);
        }
        if text.eq_ignore_ascii_case("hw") {
            return Some(Self::Hardware);
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let count = text.parse().ok().filter(|count| is_number && (1..=Self::MAX).contains(count));
        count.map(Self::Count)
    }

    fn write(&self) -> String {
        match self {
            Self::Software => "sw".to_owned(),
            Self::Hardware => "hw".to_owned(),
            Self::Count(count) => count.to_string(),
        }
    }
}

serde_as_text!(Rings);

impl core::str::FromStr for Rings {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text).ok_or(Self::ALLOWED)
    }
}

impl core::fmt::Display for Rings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.write())
    }
}

/// What a link says of its rings, as its user sees them; what is not said is as the device has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkRings {
    /// Those by which it receives.
    pub rx: Option<Rings>,
    /// Those by which it sends.
    pub tx: Option<Rings>,
}

impl LinkRings {
    /// Nothing.
    pub const UNSAID: Self = Self { rx: None, tx: None };

    /// How many rings its device is made with at least.
    pub fn asked(self) -> u16 {
        let count = |it| if let Some(Rings::Count(count)) = it { count } else { 1 };
        count(self.rx).max(count(self.tx))
    }

    /// The first of both that only a device can give, and what is asked of it.
    pub fn of_device(self) -> Option<(&'static str, Rings)> {
        let both = [("rxrings", self.rx), ("txrings", self.tx)];
        both.into_iter().find_map(|(name, it)| it.filter(|&it| it != Rings::Software).map(|it| (name, it)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_read_as_the_original_spells_them() {
        for (text, want) in [
            ("sw", Some(Rings::Software)),
            ("HW", Some(Rings::Hardware)),
            ("1", Some(Rings::Count(1))),
            ("128", Some(Rings::Count(128))),
            ("0", None),
            ("129", None),
            ("-1", None),
            ("+1", None),
            ("", None),
            ("swhw", None),
        ] {
            assert_eq!(Rings::read(text), want, "{text:?}");
            if let Some(rings) = want {
                assert_eq!(Rings::read(&rings.write()), want);
            }
        }
    }

    #[test]
    fn a_device_is_made_with_as_many_as_the_larger_number() {
        let of = |rx: &str, tx: &str| LinkRings { rx: Rings::read(rx), tx: Rings::read(tx) };
        for (rings, asked, first) in [
            (LinkRings::UNSAID, 1, None),
            (of("sw", "sw"), 1, None),
            (of("hw", "3"), 3, Some(("rxrings", Rings::Hardware))),
            (of("sw", "2"), 2, Some(("txrings", Rings::Count(2)))),
        ] {
            assert_eq!((rings.asked(), rings.of_device()), (asked, first), "{rings:?}");
        }
    }
}
