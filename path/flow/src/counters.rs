//! What passed, waited and was dropped in one direction of a flow.
//!
//! Frames are what the path handles; packets and bytes are what a wire would carry, where a frame that stands
//! for many segments is many packets, each with its headers. `flowstat` shows packets and bytes. Every frame that
//! arrived has passed, is held or was dropped: a test adds them up.

use firelane_frame::{Frame, Weight};

/// One direction's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that were asked for.
    pub arrived: u64,
    /// Frames that passed, at once or after being held.
    pub passed: u64,
    /// Frames that had to wait first.
    pub held: u64,
    /// Frames that were dropped at the limit: IERRS or OERRS.
    pub dropped: u64,
    /// Packets of the frames that passed: IPKTS or OPKTS.
    pub packets: u64,
    /// Wire bytes of the frames that passed: RBYTES or OBYTES.
    pub bytes: u64,
    /// Wire bytes of the frames that were dropped.
    pub dropped_bytes: u64,
    /// Text that went from ring to ring, in no packet.
    pub fused: u64,
}

impl Counters {
    #[inline]
    pub(crate) fn pass(&mut self, weight: Weight) {
        self.pass_all(1, weight);
    }

    /// So many frames pass.
    #[inline]
    pub(crate) fn pass_all(&mut self, frames: u64, weight: Weight) {
        self.passed += frames;
        self.packets += weight.packets;
        self.bytes += weight.bytes;
    }

    pub(crate) fn drop(&mut self, frame: &Frame) {
        self.dropped += 1;
        self.dropped_bytes += frame.wire_bytes() as u64;
    }

    /// Adds another lane's counters.
    pub fn merge(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.passed += other.passed;
        self.held += other.held;
        self.dropped += other.dropped;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped_bytes += other.dropped_bytes;
        self.fused += other.fused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_frame::{Pools, PoolsConfig, SegmentKind, Segmentation};

    #[test]
    fn a_large_frame_counts_as_its_segments() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: 1 });
        let mut frame = pools.take(54 + 3000).unwrap();
        frame.append(54 + 3000);
        let cut =
            Segmentation { kind: SegmentKind::TcpV4, segment_bytes: 1460, header_bytes: 54, ecn: false };
        frame.meta_mut().segmentation = Some(cut);
        let mut counters = Counters::default();
        counters.pass(frame.weight());
        assert_eq!((counters.passed, counters.packets, counters.bytes), (1, 3, 3000 + 3 * 54));
        counters.drop(&frame);
        let mut sum = counters;
        sum.merge(&counters);
        assert_eq!((sum.dropped, sum.dropped_bytes, sum.bytes), (2, 6324, 6324));
    }
}
