//! Sequence space against stream cursors: the one place that converts.
//!
//! A stream is counted by 64-bit cursors that begin at zero and never wrap; the wire counts it by 32 bits that
//! begin after the SYN (RFC 9293 §3.4). The SYN lies at cursor -1, text octet `n` at cursor `n`, and the FIN at
//! the cursor where the text ends. A received number means the cursor nearest to one that we know, so any
//! number within 2^31 of it is told apart.

use firelane_units::SeqNum;

/// One direction's numbering, fixed by its initial sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeqSpace {
    first: SeqNum,
}

impl SeqSpace {
    /// The space whose SYN has the number `initial`.
    pub(crate) fn new(initial: SeqNum) -> Self {
        Self { first: initial + 1 }
    }

    /// The number of the SYN.
    pub(crate) fn initial(self) -> SeqNum {
        self.first - 1
    }

    /// The number of the octet (or FIN) at `cursor`.
    #[inline]
    pub(crate) fn seq(self, cursor: u64) -> SeqNum {
        self.first + cursor as u32
    }

    /// The cursor of `seq`, the nearest one to `near`. Negative for what lies before the first octet.
    #[inline]
    pub(crate) fn cursor(self, seq: SeqNum, near: u64) -> i64 {
        near as i64 + i64::from(seq.offset_from(self.seq(near)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_cursors_are_one_to_one(isn: u32, near in 0u64..1 << 40, step in -(1i64 << 31)..1 << 31) {
            let space = SeqSpace::new(SeqNum(isn));
            let cursor = near as i64 + step;
            prop_assert_eq!(space.cursor(space.seq(cursor as u64), near), cursor);
        }
    }

    #[test]
    fn the_syn_lies_before_the_first_octet() {
        let space = SeqSpace::new(SeqNum(u32::MAX));
        assert_eq!(space.initial(), SeqNum(u32::MAX));
        assert_eq!(space.seq(0), SeqNum(0));
        assert_eq!(space.cursor(SeqNum(u32::MAX), 0), -1);
    }
}
