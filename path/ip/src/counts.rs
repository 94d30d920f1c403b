//! What one netstack's IP has counted in one lane, by version: the numbers of RFC 4293 and of `netstat -s`.
//!
//! Raised by the files that see a packet come, go or change. A large frame counts as the packets that it is on the
//! wire. What ended for a reason is counted under its `DropReason` and not again here.

use core::net::IpAddr;

use firelane_frame::Frame;

/// The numbers of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyCounts {
    /// Packets that arrived, those in error included (`InReceives`).
    pub received: u64,
    /// Packets given to a protocol of this station (`InDelivers`).
    pub delivered: u64,
    /// Packets of others that were sent on (`OutForwDatagrams`).
    pub forwarded: u64,
    /// Packets that protocols of this station wanted sent (`OutRequests`).
    pub sent: u64,
    /// Fragments that had to be put together (`ReasmReqds`).
    pub fragments: u64,
    /// Datagrams that were put together (`ReasmOKs`).
    pub joined: u64,
    /// Datagrams whose time was up before all had come (`ReasmTimeout`).
    pub timed_out: u64,
    /// Datagrams that were cut (`OutFragOKs`).
    pub cut: u64,
    /// The pieces that came of it (`OutFragCreates`).
    pub pieces: u64,
    /// ICMP's messages.
    pub icmp: IcmpCounts,
    /// Reports of, and questions about, groups: those that arrived (IPv4 only: IPv6's are ICMP).
    pub group_in: u64,
    /// And those that left.
    pub group_out: u64,
}

/// ICMP's numbers of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcmpCounts {
    /// Messages that arrived (`InMsgs`).
    pub received: u64,
    /// Of those, the ones that were not obeyed (`InErrors`).
    pub bad: u64,
    /// Of those, echo requests that were answered (`InEchos`).
    pub echoes: u64,
    /// Of those, errors about packets of ours (`InDestUnreachs` and its like).
    pub errors_in: u64,
    /// Messages that left (`OutMsgs`).
    pub sent: u64,
    /// Of those, errors about packets of others.
    pub errors_out: u64,
    /// Messages that the limits kept back (`OutDrops`).
    pub limited: u64,
}

/// Both versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpCounts {
    /// IPv4.
    pub v4: FamilyCounts,
    /// IPv6.
    pub v6: FamilyCounts,
}

impl IpCounts {
    /// Those of an address' version.
    #[inline]
    pub(crate) const fn of(&mut self, addr: IpAddr) -> &mut FamilyCounts {
        self.version(addr.is_ipv4())
    }

    #[inline]
    pub(crate) const fn version(&mut self, is_v4: bool) -> &mut FamilyCounts {
        if is_v4 { &mut self.v4 } else { &mut self.v6 }
    }

    /// Adds another lane's.
    pub fn merge(&mut self, other: &Self) {
        self.v4.merge(&other.v4);
        self.v6.merge(&other.v6);
    }
}

impl FamilyCounts {
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.delivered += other.delivered;
        self.forwarded += other.forwarded;
        self.sent += other.sent;
        self.fragments += other.fragments;
        self.joined += other.joined;
        self.timed_out += other.timed_out;
        self.cut += other.cut;
        self.pieces += other.pieces;
        self.group_in += other.group_in;
        self.group_out += other.group_out;
        self.icmp.merge(&other.icmp);
    }
}

impl IcmpCounts {
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.bad += other.bad;
        self.echoes += other.echoes;
        self.errors_in += other.errors_in;
        self.sent += other.sent;
        self.errors_out += other.errors_out;
        self.limited += other.limited;
    }
}

/// The packets that a frame is on the wire.
#[inline]
pub(crate) fn packets(frame: &Frame) -> u64 {
    frame.meta().segmentation.map_or(1, |cut| cut.segments(frame.len()) as u64)
}
