//! A list of CPUs: on which the daemon's lanes run, or those of a link or netstack.

use crate::value::{TextValue, serde_as_text};

/// CPU numbers below this; the kernel's interface has no more.
const CPU_MAX: u16 = 1024;

/// CPUs in the order in which lanes get them; none means that the kernel chooses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cpus(Vec<u16>);

impl Cpus {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|&cpu| usize::from(cpu))
    }

    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of them without the others.
    #[must_use]
    pub fn first_alone(&self) -> Self {
        Self(self.0.iter().copied().take(1).collect())
    }
}

impl TextValue for Cpus {
    const ALLOWED: &'static str =
        "cpus is a list of different CPU numbers and ranges below 1024, such as 0,2-3";

    fn read(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|&cpu| digits && cpu < CPU_MAX)
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            if range.is_empty() || range.clone().any(|cpu| cpus.contains(&cpu)) {
                return None;
            }
            cpus.extend(range);
        }
        Some(Self(cpus))
    }

    fn write(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

serde_as_text!(Cpus);

impl core::str::FromStr for Cpus {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text).ok_or(Self::ALLOWED)
    }
}

impl core::fmt::Display for Cpus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_the_original_spells_them_and_keep_their_order() {
        for (text, want) in [("0", "0"), ("3,0", "3,0"), ("0,2-4", "0,2,3,4"), ("1023", "1023")] {
            let cpus = Cpus::read(text).unwrap();
            assert_eq!(
                (cpus.to_string().as_str(), Cpus::read(&cpus.write())),
                (want, Some(cpus.clone())),
                "{text}"
            );
        }
        for text in ["", ",", "0,", "1,1", "0-2,1", "2-1", "-1", "+1", "1024", "a", "0 1"] {
            assert_eq!(Cpus::read(text), None, "{text:?}");
        }
    }
}
