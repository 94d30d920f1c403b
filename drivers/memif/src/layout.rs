//! Where rings and buffers lie in shared memory: the picture that both ends keep to.
//!
//! A ring: `cookie: u32` at 0, `flags: u16` at 4, `head: u16` at 6, `tail: u16` at 64, descriptors from 128,
//! 16 bytes each: `flags: u16, region: u16, length: u32, offset: u32, metadata: u32`. Head and tail run freely
//! and wrap at 2^16. In a ring to the server the client moves the head behind frames that it has written, and
//! the server the tail behind those that it has read. In a ring to the client the client moves the head behind
//! *empty buffers* that it gives, and the server the tail behind those that it has filled.
//!
//! A client of ours has one region: the rings to the server, those to the client, then as many buffers.

/// The first word of a ring.
pub(crate) const COOKIE: u32 = 0x03E3_1F20;
/// A ring's flag: whoever reads the ring polls and wants no doorbell.
pub(crate) const MASK_INTERRUPT: u16 = 1;
/// A descriptor's flag: the frame goes on in the next one.
pub(crate) const NEXT: u16 = 1;
/// A ring's words before its descriptors.
pub(crate) const RING_HEADER_BYTES: u32 = 128;
/// A descriptor.
pub(crate) const DESC_BYTES: u32 = 16;
/// The largest ring, as libmemif has it.
pub(crate) const LOG2_SIZE_MAX: u8 = 14;
/// A buffer holds at least the shortest frame.
pub(crate) const BUFFER_BYTES_MIN: u16 = 64;
/// Buffers begin on cache lines.
const ALIGN: u32 = 64;

/// A descriptor, copied out of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Desc {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

impl Desc {
    #[inline]
    pub(crate) fn from_words([first, second]: [u64; 2]) -> Self {
        let [f0, f1, r0, r1, l0, l1, l2, l3] = first.to_ne_bytes();
        let [o0, o1, o2, o3, ..] = second.to_ne_bytes();
        Self {
            flags: u16::from_ne_bytes([f0, f1]),
            region: u16::from_ne_bytes([r0, r1]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    #[inline]
    pub(crate) fn to_words(self) -> [u64; 2] {
        let ([f0, f1], [r0, r1]) = (self.flags.to_ne_bytes(), self.region.to_ne_bytes());
        let [l0, l1, l2, l3] = self.length.to_ne_bytes();
        let [o0, o1, o2, o3] = self.offset.to_ne_bytes();
        [
            u64::from_ne_bytes([f0, f1, r0, r1, l0, l1, l2, l3]),
            u64::from_ne_bytes([o0, o1, o2, o3, 0, 0, 0, 0]),
        ]
    }

    #[inline]
    pub(crate) fn continues(&self) -> bool {
        self.flags & NEXT != 0
    }
}

/// The bytes of a ring.
pub(crate) fn ring_bytes(log2_size: u8) -> u64 {
    u64::from(RING_HEADER_BYTES) + (u64::from(DESC_BYTES) << log2_size)
}

/// A client's one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) queues: u16,
    pub(crate) log2_size: u8,
    pub(crate) buffer_bytes: u32,
}

impl Plan {
    /// Its length. Fits 32 bits for every configuration that is allowed and that `is_addressable`.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffers_at() + 2 * u64::from(self.queues) * self.buffers_of_a_ring()
    }

    /// Whether descriptors, which have 32 bits for an offset, reach all of it.
    pub(crate) fn is_addressable(&self) -> bool {
        self.bytes() <= u64::from(u32::MAX)
    }

    fn stride(&self) -> u64 {
        u64::from(self.buffer_bytes.next_multiple_of(ALIGN))
    }

    fn buffers_of_a_ring(&self) -> u64 {
        self.stride() << self.log2_size
    }

    fn buffers_at(&self) -> u64 {
        (2 * u64::from(self.queues) * ring_bytes(self.log2_size)).next_multiple_of(u64::from(ALIGN))
    }

    fn nth(&self, to_server: bool, queue: u16) -> u64 {
        u64::from(queue) + if to_server { 0 } else { u64::from(self.queues) }
    }

    /// Where a ring begins.
    pub(crate) fn ring_at(&self, to_server: bool, queue: u16) -> u32 {
        (self.nth(to_server, queue) * ring_bytes(self.log2_size)) as u32
    }

    /// Where the buffer of a ring's descriptor begins.
    #[inline]
    pub(crate) fn buffer_at(&self, to_server: bool, queue: u16, index: u16) -> u32 {
        let ring = self.buffers_at() + self.nth(to_server, queue) * self.buffers_of_a_ring();
        (ring + u64::from(index) * self.stride()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_descriptor_has_the_formats_bytes() {
        let desc = Desc { flags: 1, region: 2, length: 3, offset: 4 };
        let bytes = desc.to_words().map(u64::to_ne_bytes).concat();
        assert_eq!(bytes[0..2], 1u16.to_ne_bytes());
        assert_eq!(bytes[2..4], 2u16.to_ne_bytes());
        assert_eq!(bytes[4..8], 3u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 4u32.to_ne_bytes());
        assert_eq!(Desc::from_words(desc.to_words()), desc);
    }

    proptest! {
        #[test]
        fn rings_and_buffers_lie_apart_and_inside(
            queues in 1u16..5, log2_size in 1u8..8, buffer_bytes in 64u32..5000,
        ) {
            let plan = Plan { queues, log2_size, buffer_bytes };
            let mut parts = Vec::new();
            for to_server in [true, false] {
                for queue in 0..queues {
                    parts.push((u64::from(plan.ring_at(to_server, queue)), ring_bytes(log2_size)));
                    for index in 0..1u16 << log2_size {
                        let at = plan.buffer_at(to_server, queue, index);
                        prop_assert_eq!(at % ALIGN, 0);
                        parts.push((u64::from(at), u64::from(buffer_bytes)));
                    }
                }
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0);
            }
            let (at, len) = parts[parts.len() - 1];
            prop_assert!(at + len <= plan.bytes() && plan.is_addressable());
        }
    }
}
