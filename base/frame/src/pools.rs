//! A lane's two pools: small slots for ordinary frames, large ones for frames that stand for many segments.
//!
//! A flood of small frames must not use up what bulk transfer needs, so neither pool helps out the other.

use crate::{Chain, Frame, Pool, PoolConfig};

/// The size of a lane's pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolsConfig {
    /// How many ordinary frames (up to 1,920 bytes).
    pub small_slots: u32,
    /// How many large frames (up to 66,432 bytes).
    pub large_slots: u32,
}

impl PoolsConfig {
    /// An Ethernet frame with an MTU of 1,500 and headroom fit twice the usual cache page.
    pub const SMALL_SLOT_BYTES: u32 = 2048;
    /// The longest IP packet (65,535) with link headers and headroom.
    pub const LARGE_SLOT_BYTES: u32 = 65 * 1024;
}

impl Default for PoolsConfig {
    /// 8,192 small frames (16 MiB) and 1,024 large ones (65 MiB), of which only used ones take memory.
    fn default() -> Self {
        Self { small_slots: 8192, large_slots: 1024 }
    }
}

/// A lane's pools.
#[derive(Debug)]
pub struct Pools {
    /// Slots of 2 KiB.
    pub small: Pool,
    /// Slots of 65 KiB.
    pub large: Pool,
}

impl Pools {
    /// Pools of these sizes.
    pub fn new(config: PoolsConfig) -> Self {
        let PoolsConfig { small_slots, large_slots } = config;
        Self {
            small: Pool::new(PoolConfig { slots: small_slots, slot_bytes: PoolsConfig::SMALL_SLOT_BYTES }),
            large: Pool::new(PoolConfig { slots: large_slots, slot_bytes: PoolsConfig::LARGE_SLOT_BYTES }),
        }
    }

    /// Whether there are no slots of one size left.
    pub fn is_any_empty(&mut self) -> bool {
        self.small.free() == 0 || self.large.free() == 0
    }

    /// An empty frame with headroom and room for `len_needed` bytes. `None` if no slot is free, or none is
    /// that large.
    #[inline]
    pub fn take(&mut self, len_needed: usize) -> Option<Frame> {
        if len_needed <= self.small.frame_capacity() {
            self.small.take()
        } else if len_needed <= self.large.frame_capacity() {
            self.large.take()
        } else {
            None
        }
    }

    /// A frame that holds `content`.
    pub fn copy_of(&mut self, content: &[u8]) -> Option<Frame> {
        let mut frame = self.take(content.len())?;
        frame.extend_from_slice(content);
        Some(frame)
    }

    /// A second frame with the same bytes and meta.
    pub fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.copy_of(frame.as_slice())?;
        *copy.meta_mut() = *frame.meta();
        Some(copy)
    }

    /// The same, if it leaves a quarter of its pool to frames that are no copies: of one frame there may be hundreds.
    pub fn spare_copy(&mut self, frame: &Frame) -> Option<Frame> {
        let pool = if frame.len() <= self.small.frame_capacity() { &mut self.small } else { &mut self.large };
        if pool.has_free(pool.slots() / 4) { self.duplicate(frame) } else { None }
    }

    /// Takes a frame home, without an atomic operation if it is from here.
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        if self.small.owns(&frame) {
            self.small.put(frame);
        } else {
            self.large.put(frame);
        }
    }

    /// Takes all frames of a chain home.
    pub fn put_all(&mut self, chain: &mut Chain) {
        while let Some(frame) = chain.pop() {
            self.put(frame);
        }
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self::new(PoolsConfig::default())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_length_decides_the_pool_and_neither_helps_the_other() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: 1 });
        let small = pools.take(1514).unwrap();
        assert!(pools.take(1514).is_none(), "the large slot is not for small frames");
        let large = pools.take(65_535 + 18).unwrap();
        assert!(large.tailroom() >= 65_553);
        assert!(pools.take(100_000).is_none());
        pools.put(small);
        pools.put(large);
        assert_eq!((pools.small.free(), pools.large.free()), (1, 1));
    }

    #[test]
    fn a_duplicate_has_the_same_bytes_and_meta() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 2, large_slots: 0 });
        let mut frame = pools.copy_of(b"content").unwrap();
        frame.meta_mut().trace = 7;
        let copy = pools.duplicate(&frame).unwrap();
        assert_eq!((copy.as_slice(), copy.meta()), (frame.as_slice(), frame.meta()));
        assert!(pools.duplicate(&frame).is_none(), "both slots are used");
    }
}
