//! What went through a switch port, as its user sees it: in is what the user receives.
//!
//! Packets and bytes are what a wire would carry: a frame that stands for many segments is many packets.
//! `dlstat` and `dladm show-link` show these.

use firelane_frame::Weight;

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
    pub(crate) fn received(&mut self, weight: Weight) {
        self.ipkts += weight.packets;
        self.rbytes += weight.bytes;
    }

    #[inline]
    pub(crate) fn sent(&mut self, weight: Weight) {
        self.opkts += weight.packets;
        self.obytes += weight.bytes;
    }

    /// Takes back what was counted as received, because the user's ring had no room.
    pub(crate) fn refused(&mut self, weight: Weight) {
        self.ipkts -= weight.packets;
        self.rbytes -= weight.bytes;
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
