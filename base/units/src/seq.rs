//! TCP sequence numbers: 32 bits that wrap.
//!
//! They are no integers: "before" and "after" mean something only for two numbers less than 2^31 apart
//! (RFC 9293 §3.4), so there is no `Ord` and no plain arithmetic.

use core::fmt;
use core::ops::{Add, Sub};

/// A TCP sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether `self` comes before `other` in the half circle around it.
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes after `other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// `self` is `other` or before it.
    pub const fn at_or_before(self, other: Self) -> bool {
        !other.before(self)
    }

    /// `self` is `other` or after it.
    pub const fn at_or_after(self, other: Self) -> bool {
        !self.before(other)
    }

    /// How far `self` lies after `earlier`, around the circle.
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The signed distance from `other` to `self`: negative if `self` is before it.
    pub const fn offset_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    fn add(self, rhs: u32) -> Self {
        Self(self.0.wrapping_add(rhs))
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;
    fn sub(self, rhs: u32) -> Self {
        Self(self.0.wrapping_sub(rhs))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_total_within_half_the_circle(a: u32, step in 1u32..1 << 31) {
            let (a, b) = (SeqNum(a), SeqNum(a) + step);
            prop_assert!(a.before(b) && b.after(a) && !b.before(a));
            prop_assert_eq!(b.distance_from(a), step);
            prop_assert_eq!(b - step, a);
            prop_assert_eq!(a.offset_from(b), -(step as i64) as i32);
        }
    }

    #[test]
    fn the_wrap_is_no_edge() {
        assert!(SeqNum(u32::MAX).before(SeqNum(0)));
        assert!(SeqNum(5).at_or_before(SeqNum(5)) && SeqNum(5).at_or_after(SeqNum(5)));
    }
}
