//! Sizes: a count of bytes, a link's MTU, a connection's MSS.
//!
//! Three numbers that are easily confused are three types. `Mtu` and `Mss` are valid when they exist.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A count of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// The difference, or zero if `rhs` is larger.
    pub const fn saturating_sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl From<usize> for Bytes {
    fn from(n: usize) -> Self {
        Self(n as u64)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

/// The largest packet (layer 3, without the Ethernet header) that a link carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mtu(u16);

impl Mtu {
    /// The smallest MTU that a link may have (RFC 791: every host accepts 576-byte packets).
    pub const MIN: u16 = 576;
    /// Ethernet's.
    pub const ETHERNET: Self = Self(1500);
    /// An etherstub's default (Solaris: 9000, settable 576 to 9000).
    pub const ETHERSTUB: Self = Self(9000);

    /// `Some` if `bytes` is at least [`Mtu::MIN`].
    pub const fn new(bytes: u16) -> Option<Self> {
        if bytes >= Self::MIN { Some(Self(bytes)) } else { None }
    }

    /// The MTU in bytes.
    pub const fn bytes(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The most payload that one TCP segment carries, without options (RFC 9293 §3.7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mss(u16);

impl Mss {
    /// The least MSS that we send with, whatever a peer announces: smaller ones only serve attacks
    /// (CVE-2019-11479).
    pub const FLOOR: u16 = 88;
    /// What an IPv4 peer that announces nothing accepts (RFC 9293 MUST-15).
    pub const DEFAULT_V4: Self = Self(536);
    /// What an IPv6 peer that announces nothing accepts (RFC 9293 MUST-15).
    pub const DEFAULT_V6: Self = Self(1220);

    /// The MSS `bytes`, raised to [`Mss::FLOOR`] if it is lower.
    pub const fn clamped(bytes: u16) -> Self {
        if bytes < Self::FLOOR { Self(Self::FLOOR) } else { Self(bytes) }
    }

    /// The MSS in bytes.
    pub const fn bytes(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_below_576_does_not_exist() {
        assert_eq!(Mtu::new(575), None);
        assert_eq!(Mtu::new(576).map(Mtu::bytes), Some(576));
    }

    #[test]
    fn a_tiny_mss_is_raised_to_the_floor() {
        assert_eq!(Mss::clamped(0).bytes(), Mss::FLOOR);
        assert_eq!(Mss::clamped(1460).bytes(), 1460);
    }
}
