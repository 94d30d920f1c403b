//! What went through a switch port, as its user sees it: in is what the user receives.
//!
//! Packets and bytes are what a wire would carry: a frame that stands for many segments is many packets.
//! `dlstat` and `dladm show-link` show these.

use firelane_frame::Frame;

/// One port's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets delivered to the user: IPKTS.
    pub ipkts: u64,
    /// Their bytes: RBYTES.
    pub rbytes: u64,
    /// Frames meant for the user that it did not get: IERRS.
    pub ierrors: u64,
    /// Packets that the user sent: OPKTS.
    pub opkts: u64,
    /// Their bytes: OBYTES.
    pub obytes: u64,
    /// Frames of the user that the switch dropped: OERRS.
    pub oerrors: u64,
}

impl PortCounters {
    #[inline]
    pub(crate) fn received(&mut self, frame: &Frame) {
        self.ipkts += packets(frame);
        self.rbytes += frame.wire_bytes() as u64;
    }

    #[inline]
    pub(crate) fn sent(&mut self, frame: &Frame) {
        self.opkts += packets(frame);
        self.obytes += frame.wire_bytes() as u64;
    }

    /// Takes back what was counted as received, because the user's ring had no room.
    pub(crate) fn refused(&mut self, frame: &Frame) {
        self.ipkts -= packets(frame);
        self.rbytes -= frame.wire_bytes() as u64;
        self.ierrors += 1;
    }

    /// Adds another lane's counters.
    pub fn merge(&mut self, other: &Self) {
        self.ipkts += other.ipkts;
        self.rbytes += other.rbytes;
        self.ierrors += other.ierrors;
        self.opkts += other.opkts;
        self.obytes += other.obytes;
        self.oerrors += other.oerrors;
    }
}

#[inline]
fn packets(frame: &Frame) -> u64 {
    frame.meta().segmentation.map_or(1, |cut| cut.segments(frame.len()) as u64)
}
