//! A frame: the bytes of one Ethernet frame in a pool's slot, with room before and after them.
//!
//! Stations trim and prepend headers in place; the bytes do not move. Dropping a frame returns its slot.
//! Asking for more room than there is is our own bug and panics.

use core::fmt;
use core::ops::AddAssign;

use crate::ahead::read_begin_ahead;
use crate::meta::FrameMeta;
use crate::pool::{Head, Slot};

/// What a frame is on a medium, as counters and limits count it: a frame that will be cut is many packets, each with
/// its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    /// How many packets.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

impl Weight {
    /// Of no frame.
    pub const NONE: Self = Self { packets: 0, bytes: 0 };
}

impl AddAssign for Weight {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The owner of a slot, and of the part of it that is in use.
pub struct Frame(Slot);

const _: () = assert!(size_of::<Option<Frame>>() == 8);

impl Frame {
    #[inline]
    pub(crate) fn in_slot(slot: Slot) -> Self {
        Self(slot)
    }

    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        &self.0
    }

    #[inline]
    pub(crate) fn into_slot(self) -> Slot {
        self.0
    }

    #[inline]
    fn head(&self) -> &Head {
        self.0.head()
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.0.head_mut()
    }

    /// Begins to fetch what is known of the frame, which its way home needs: nobody has touched it for long.
    #[inline]
    pub fn read_ahead(&self) {
        read_begin_ahead(self.head());
    }

    /// How many bytes are in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    /// Whether no byte is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head().len == 0
    }

    /// The bytes in use.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        let &Head { start, len, .. } = self.head();
        &self.0.bytes()[start as usize..start as usize + len as usize]
    }

    /// The bytes in use.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let &Head { start, len, .. } = self.head();
        &mut self.0.bytes_mut()[start as usize..start as usize + len as usize]
    }

    /// Room before the bytes.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.head().start as usize
    }

    /// Room behind the bytes.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.len() - self.headroom() - self.len()
    }

    /// Takes `n` bytes of headroom into use and returns them. They hold whatever was there.
    ///
    /// # Panics
    /// If there is less headroom.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.headroom(), "prepend of {n} into {} bytes of headroom", self.headroom());
        let head = self.head_mut();
        head.start -= n as u32;
        head.len += n as u32;
        &mut self.as_mut_slice()[..n]
    }

    /// Takes `n` bytes of tailroom into use and returns them. They hold whatever was there.
    ///
    /// # Panics
    /// If there is less tailroom.
    #[inline]
    pub fn append(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.tailroom(), "append of {n} into {} bytes of tailroom", self.tailroom());
        let before = self.len();
        self.head_mut().len += n as u32;
        &mut self.as_mut_slice()[before..]
    }

    /// Appends a copy of `bytes`.
    ///
    /// # Panics
    /// If there is less tailroom.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.append(bytes.len()).copy_from_slice(bytes);
    }

    /// Gives the first `n` bytes up to the headroom.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn trim_front(&mut self, n: usize) {
        assert!(n <= self.len(), "trim of {n} from {} bytes", self.len());
        let head = self.head_mut();
        head.start += n as u32;
        head.len -= n as u32;
    }

    /// Keeps the first `len` bytes; does nothing if there are fewer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.head_mut().len = len as u32;
        }
    }

    /// Empties the frame, with all room but `headroom` behind its beginning, and forgets its meta.
    ///
    /// # Panics
    /// If the slot is smaller than the headroom.
    pub fn reset(&mut self, headroom: usize) {
        assert!(headroom <= self.0.len(), "headroom of {headroom} in {} bytes", self.0.len());
        let head = self.head_mut();
        (head.start, head.len, head.meta) = (headroom as u32, 0, FrameMeta::default());
    }

    /// What is known beside the bytes.
    #[inline]
    pub fn meta(&self) -> &FrameMeta {
        &self.head().meta
    }

    /// What is known beside the bytes.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut FrameMeta {
        &mut self.head_mut().meta
    }

    /// The bytes that this frame is on a medium: a frame that will be cut counts the headers of every
    /// segment.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        self.meta().segmentation.map_or(self.len(), |cut| cut.wire_bytes(self.len()))
    }

    /// What it is on a medium. Who counts it at several places weighs it once.
    #[inline]
    pub fn weight(&self) -> Weight {
        let len = self.len();
        match self.meta().segmentation {
            None => Weight { packets: 1, bytes: len as u64 },
            Some(cut) => Weight { packets: cut.segments(len) as u64, bytes: cut.wire_bytes(len) as u64 },
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("meta", self.meta())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use crate::{HEADROOM, Pool, PoolConfig};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_as_a_deque_of_bytes(steps in prop::collection::vec((0u8..4, 0usize..40), 0..100)) {
            let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 512 });
            let mut frame = pool.take().unwrap();
            let mut model: VecDeque<u8> = VecDeque::new();
            prop_assert_eq!((frame.headroom(), frame.tailroom()), (HEADROOM, 512 - HEADROOM));
            for (fill, (step, n)) in steps.into_iter().enumerate() {
                let fill = fill as u8;
                match step {
                    0 if n <= frame.headroom() => {
                        frame.prepend(n).fill(fill);
                        (0..n).for_each(|_| model.push_front(fill));
                    }
                    1 if n <= frame.tailroom() => {
                        frame.append(n).fill(fill);
                        model.extend(std::iter::repeat_n(fill, n));
                    }
                    2 if n <= frame.len() => {
                        frame.trim_front(n);
                        model.drain(..n);
                    }
                    3 => {
                        frame.truncate(n);
                        model.truncate(n);
                    }
                    _ => {}
                }
                prop_assert_eq!(frame.as_slice(), model.make_contiguous());
                prop_assert_eq!(frame.headroom() + frame.len() + frame.tailroom(), 512);
            }
        }
    }

    #[test]
    #[should_panic(expected = "tailroom")]
    fn there_is_no_room_beyond_the_slot() {
        let mut pool = Pool::new(PoolConfig { slots: 1, slot_bytes: 256 });
        pool.take().unwrap().append(129);
    }
}
