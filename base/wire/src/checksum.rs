//! The Internet checksum (RFC 1071): full, in one pass with a copy, and incremental (RFC 1624).
//!
//! A [`Sum`] is a ones'-complement sum that is not folded yet; sums of parts add up, so a segment's sum is
//! pseudo-header + header + payload, each taken where it is cheapest. Words are added in the machine's own
//! byte order (RFC 1071 §2 (B)) and turned round once, at the end. Called for every header that is
//! verified or emitted in software; `path/tcp` copies payload with [`copy_and_sum`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// A ones'-complement sum of 16-bit words.
///
/// Two sums are equal if they have the same checksum. The accumulator has room for 2^31 additions, so no
/// packet overflows it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`; an odd last byte is padded with a zero.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.len() < SHORT { Self(sum_short(bytes)) } else { Self(sum_blocks(bytes)) }
    }

    /// The sum of a header of constant even size, without a loop.
    #[inline(always)]
    pub fn of_fixed<const N: usize>(header: &[u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4)) };
        let (words, _) = header.as_chunks::<4>();
        Self(words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum())
    }

    /// The pseudo-header of TCP, UDP or ICMPv6 (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1). Both versions sum
    /// the same things, so either serves; the two addresses are of one version.
    #[inline]
    pub fn pseudo(src: IpAddr, dst: IpAddr, protocol: IpProtocol, length: u32) -> Self {
        let address = |address| match address {
            IpAddr::V4(v4) => Self::of_fixed(&v4.octets()),
            IpAddr::V6(v6) => Self::of_fixed(&v6.octets()),
        };
        address(src).combine(address(dst)).add_u16(u16::from(protocol.0)).add_u32(length)
    }

    /// The pseudo-header over IPv4; `length` is that of the transport header with its payload.
    #[inline]
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, length: u16) -> Self {
        Self::pseudo(src.into(), dst.into(), protocol, u32::from(length))
    }

    /// The pseudo-header over IPv6; `length` is that of the transport header with its payload.
    #[inline]
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, length: u32) -> Self {
        Self::pseudo(src.into(), dst.into(), protocol, length)
    }

    /// Adds a part that begins at an even offset.
    #[inline]
    #[must_use]
    pub const fn combine(self, part: Self) -> Self {
        Self(self.0 + part.0)
    }

    /// Adds a part that begins at `offset`: at an odd one its bytes change places.
    #[inline]
    #[must_use]
    pub const fn combine_at(self, offset: usize, part: Self) -> Self {
        if offset.is_multiple_of(2) {
            self.combine(part)
        } else {
            Self(self.0 + part.folded_native().swap_bytes() as u64)
        }
    }

    /// Adds one 16-bit word.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0 + word.to_be() as u64)
    }

    /// Adds two 16-bit words.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, words: u32) -> Self {
        Self(self.0 + words.to_be() as u64)
    }

    /// The sum as 16 bits, not complemented: what a checksum field holds while the rest of the sum is left
    /// to the device (`Checksum::Partial`).
    #[inline]
    pub const fn folded(self) -> u16 {
        u16::from_be(self.folded_native())
    }

    /// The value of the checksum field: the complement of the sum.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The value of UDP's checksum field, where zero means "none" (RFC 768).
    #[inline]
    pub const fn checksum_nonzero(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether a sum over a whole message with its checksum field (and pseudo-header) is right.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.folded_native() == 0xffff
    }

    #[inline]
    const fn folded_native(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }
}

impl PartialEq for Sum {
    /// Zero has two forms in ones' complement; they are one value.
    fn eq(&self, other: &Self) -> bool {
        let form = |sum: Self| if sum.folded() == 0xffff { 0 } else { sum.folded() };
        form(*self) == form(*other)
    }
}

impl Eq for Sum {}

/// The sum of `bytes`, as [`Sum::of`].
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    Sum::of(bytes)
}

/// Copies `src` to `dst` and sums it in the same pass.
///
/// # Panics
/// If the lengths differ, as `copy_from_slice` does.
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    assert_eq!(dst.len(), src.len(), "source and destination have the same length");
    if src.len() < SHORT {
        dst.copy_from_slice(src);
        return Sum(sum_short(src));
    }
    Sum(copy_and_sum_blocks(dst, src))
}

/// The checksum after one 16-bit word under it changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(0).add_u16(!checksum).add_u16(!old).add_u16(new).checksum()
}

/// The checksum after two 16-bit words under it changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub const fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    Sum(0).add_u16(!checksum).add_u32(!old).add_u32(new).checksum()
}

/// Bytes that one step of the vector loop takes: four 128-bit registers.
const BLOCK: usize = 64;

/// Below this the lanes' start and end cost more than they save.
const SHORT: usize = 256;

/// Blocks after which the 32-bit lanes are emptied; they could hold twice as many.
const FLUSH: usize = 32_768;

/// Sixteen pairs of 32-bit accumulators that the compiler keeps in vector registers.
///
/// `whole` adds 32-bit words and wraps; `high` adds their upper halves and does not. The sum of the lower
/// halves is what `whole` holds besides `high << 16`, exactly, since it does not reach 2^32 either. That
/// is one operation per word less than widening to 64 bits.
#[derive(Default)]
struct Lanes {
    whole: [u32; BLOCK / 4],
    high: [u32; BLOCK / 4],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<4>();
        for ((whole, high), &word) in self.whole.iter_mut().zip(&mut self.high).zip(words) {
            let word = u32::from_ne_bytes(word);
            *whole = whole.wrapping_add(word);
            *high = high.wrapping_add(word >> 16);
        }
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        let lane = |(&whole, &high): (&u32, &u32)| {
            u64::from(high) + u64::from(whole.wrapping_sub(high.wrapping_shl(16)))
        };
        self.whole.iter().zip(&self.high).map(lane).sum()
    }
}

/// The sum of whole blocks, at most [`FLUSH`]. Not inlined: code around it makes the compiler give up the
/// vector registers.
#[inline(never)]
fn sum_lanes(blocks: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = Lanes::default();
    for block in blocks {
        lanes.add(block);
    }
    lanes.total()
}

/// As [`sum_lanes`], with a copy. Each block is loaded once, for both.
#[inline(never)]
fn copy_and_sum_lanes(to: &mut [[u8; BLOCK]], from: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = Lanes::default();
    for (to, from) in to.iter_mut().zip(from) {
        let block = *from;
        *to = block;
        lanes.add(&block);
    }
    lanes.total()
}

fn sum_blocks(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<BLOCK>();
    blocks.chunks(FLUSH).map(sum_lanes).sum::<u64>() + sum_short(tail)
}

fn copy_and_sum_blocks(dst: &mut [u8], src: &[u8]) -> u64 {
    let (to, to_tail) = dst.as_chunks_mut::<BLOCK>();
    let (from, from_tail) = src.as_chunks::<BLOCK>();
    let mut total = sum_short(from_tail);
    to_tail.copy_from_slice(from_tail);
    for (to, from) in to.chunks_mut(FLUSH).zip(from.chunks(FLUSH)) {
        total += copy_and_sum_lanes(to, from);
    }
    total
}

/// The sum of few bytes, widening each word to 64 bits.
#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    total += u64::from(u32::from_ne_bytes(last));
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word: RFC 1071's words added one at a time with an end-around carry.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        sum as u16
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..600),
            proptest::collection::vec(prop_oneof![Just(0xff), Just(0), any::<u8>()], 0..5000),
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_sum_as_the_definition_says(bytes in bytes(), skip in 0usize..9) {
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(Sum::of(bytes).folded(), naive(bytes));
            prop_assert_eq!(sum(bytes).checksum(), !naive(bytes));
        }

        #[test]
        fn copying_sums_the_same(bytes in bytes()) {
            let mut copy = vec![0xa5; bytes.len()];
            let sum = copy_and_sum(&mut copy, &bytes);
            prop_assert_eq!(&copy, &bytes);
            prop_assert_eq!(sum.folded(), naive(&bytes));
        }

        #[test]
        fn parts_add_up_wherever_they_are_cut(bytes in bytes(), cut: proptest::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let (head, tail) = bytes.split_at(cut);
            let whole = Sum::of(head).combine_at(cut, Sum::of(tail));
            prop_assert_eq!(whole.folded(), naive(&bytes));
        }

        #[test]
        fn updating_equals_summing_again(mut words in proptest::collection::vec(any::<u16>(), 4..40),
                                         at: proptest::sample::Index, new: u32) {
            let field = |words: &[u16]| {
                let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
                !naive(&bytes)
            };
            // A header is never all zero, which is the one case where the two forms of zero differ.
            words[0] = 0x4500;
            let before = field(&words);
            let at = 1 + at.index(words.len() - 2);
            let old = (u32::from(words[at]) << 16) | u32::from(words[at + 1]);
            let old16 = words[at];
            words[at] = (new >> 16) as u16;
            prop_assert_eq!(update16(before, old16, (new >> 16) as u16), field(&words));
            words[at + 1] = new as u16;
            prop_assert_eq!(update32(before, old, new), field(&words));
        }

        #[test]
        fn pseudo_headers_sum_as_if_they_were_bytes(src: [u8; 16], dst: [u8; 16], p: u8, length: u16) {
            let mut v6 = Vec::new();
            v6.extend(src);
            v6.extend(dst);
            v6.extend(u32::from(length).to_be_bytes());
            v6.extend([0, 0, 0, p]);
            let sum = Sum::pseudo_v6(src.into(), dst.into(), IpProtocol(p), u32::from(length));
            prop_assert_eq!(sum.folded(), naive(&v6));

            let head = |a: [u8; 16]| Ipv4Addr::new(a[0], a[1], a[2], a[3]);
            let mut v4 = Vec::new();
            v4.extend(head(src).octets());
            v4.extend(head(dst).octets());
            v4.extend([0, p]);
            v4.extend(length.to_be_bytes());
            let sum = Sum::pseudo_v4(head(src), head(dst), IpProtocol(p), length);
            prop_assert_eq!(sum.folded(), naive(&v4));
        }

        #[test]
        fn a_message_with_its_checksum_is_valid(mut bytes in proptest::collection::vec(any::<u8>(), 4..200),
                                                flip: proptest::sample::Index, bit in 0u8..8) {
            bytes[0] |= 1;
            bytes[2..4].fill(0);
            let checksum = Sum::of(&bytes).checksum();
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(Sum::of(&bytes).is_valid());
            let at = flip.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(!Sum::of(&bytes).is_valid(), "a single flipped bit is always found");
        }
    }

    #[test]
    fn more_than_the_lanes_hold_is_summed_exactly() {
        let bytes = vec![0xff; BLOCK * (FLUSH * 2 + 1) + 13];
        assert_eq!(Sum::of(&bytes).folded(), naive(&bytes));
        let mut copy = vec![0; bytes.len()];
        assert_eq!(copy_and_sum(&mut copy, &bytes).folded(), naive(&bytes));
    }

    #[test]
    fn known_sums() {
        // RFC 1071 §3's example.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).folded(), 0xddf2);
        // RFC 1624 §4's example: the first method gives 0xffff here, equation 3 gives zero.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(Sum::ZERO.checksum(), 0xffff);
        assert_eq!(Sum::ZERO.add_u16(0xffff).checksum_nonzero(), 0xffff);
        assert_eq!(Sum::ZERO.add_u16(0xffff), Sum::ZERO);
        assert_ne!(Sum::ZERO.add_u16(1), Sum::ZERO);
    }
}
