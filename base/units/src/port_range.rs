//! A range of transport ports, as flow rules pin them.

use core::fmt;
use core::str::FromStr;

use crate::Port;

/// Ports from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortRange {
    first: Port,
    last: Port,
}

impl PortRange {
    /// `None` if `last` comes before `first`.
    pub const fn new(first: Port, last: Port) -> Option<Self> {
        if first.0 <= last.0 { Some(Self { first, last }) } else { None }
    }

    /// The lowest port.
    pub const fn first(self) -> Port {
        self.first
    }

    /// The highest port.
    pub const fn last(self) -> Port {
        self.last
    }

    /// The port, if there is only one.
    pub const fn single(self) -> Option<Port> {
        if self.first.0 == self.last.0 { Some(self.first) } else { None }
    }

    /// How many ports there are beyond the first.
    pub const fn width(self) -> u16 {
        self.last.0 - self.first.0
    }

    /// Whether `port` is one of them.
    pub const fn contains(self, port: Port) -> bool {
        self.first.0 <= port.0 && port.0 <= self.last.0
    }
}

impl From<Port> for PortRange {
    fn from(port: Port) -> Self {
        Self { first: port, last: port }
    }
}

impl fmt::Display for PortRange {
    /// `443` or `8000-8999`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(port) => port.fmt(f),
            None => f.pad(&format!("{}-{}", self.first, self.last)),
        }
    }
}

/// The text is no port from 1 to 65535 and no range of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParsePortRangeError;

impl FromStr for PortRange {
    type Err = ParsePortRangeError;

    fn from_str(text: &str) -> Result<Self, ParsePortRangeError> {
        let port = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|&port| is_number && port != 0).map(Port)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ends = port(first).zip(port(last));
        ends.and_then(|(first, last)| Self::new(first, last)).ok_or(ParsePortRangeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for text in ["1", "443", "8000-8999", "1-65535"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        assert_eq!("80-80".parse::<PortRange>().unwrap().to_string(), "80");
        for text in ["", "0", "0-5", "5-", "-5", "9-8", "+1", "1-2-3", "65536", "1 - 2"] {
            assert_eq!(text.parse::<PortRange>(), Err(ParsePortRangeError), "{text}");
        }
    }

    #[test]
    fn both_ends_are_part_of_it() {
        let range = PortRange::new(Port(10), Port(12)).unwrap();
        let inside: Vec<u16> = (8..15).filter(|&port| range.contains(Port(port))).collect();
        assert_eq!((inside, range.width(), range.single()), (vec![10, 11, 12], 2, None));
    }
}
