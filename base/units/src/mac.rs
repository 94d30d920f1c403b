//! Ethernet addresses.

use core::fmt;
use core::str::FromStr;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeroes: no address.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether the group bit is set (broadcast included).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether this may be the address of one station: neither a group nor zero.
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// The address as the low 48 bits of an integer, for hashing and comparing.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why an Ethernet address could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six hexadecimal bytes with colons, such as 02:08:20:1:a:b")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    /// Reads six colon-separated bytes of one or two hexadecimal digits (Solaris prints `2:8:20:…`).
    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_round_trips(bytes: [u8; 6]) {
            prop_assert_eq!(MacAddr(bytes).to_string().parse(), Ok(MacAddr(bytes)));
        }
    }

    #[test]
    fn refusals() {
        for text in ["", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:g", "1:2:3:4:5:666", "1:2:3:4:5:+6"] {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError), "{text:?}");
        }
    }

    #[test]
    fn kinds() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 8, 0x20, 0, 0, 1]).is_unicast());
    }
}
