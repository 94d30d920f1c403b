//! What is known about a frame beside its bytes: where it entered, which checksums are still open, whether
//! it stands for several segments, and what the classifier found.
//!
//! The checksum and segmentation words say the same as a virtio-net header does (virtio 1.2, 5.1.6), so a
//! TAP driver translates and nothing more. Filled by drivers, `classify` and the protocols.

use firelane_units::{FlowId, LinkId};

/// Facts that travel with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameMeta {
    /// The link by which the frame entered the path: a driver's link for a frame that was received, the
    /// VNIC for a frame that a netstack sends.
    pub ingress: LinkId,
    /// The flow that it was classified to.
    pub flow: FlowTag,
    /// The number under which somebody follows it on its way through this engine; zero if nobody does.
    pub trace: u32,
    /// How it came into the path.
    pub arrival: Arrival,
    /// What is known about its transport checksum.
    pub checksum: Checksum,
    /// How to cut it, if it stands for several segments.
    pub segmentation: Option<Segmentation>,
}

impl Default for FrameMeta {
    fn default() -> Self {
        Self {
            ingress: LinkId(0),
            flow: FlowTag::NONE,
            trace: 0,
            arrival: Arrival::Local,
            checksum: Checksum::Unchecked,
            segmentation: None,
        }
    }
}

const _: () = assert!(size_of::<FrameMeta>() == 24);

/// How a frame came into the path: what shows that lanes poll under load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// This host made it.
    #[default]
    Local,
    /// It was in the first chain after a device's notification.
    Notified,
    /// It was fetched while the device's notifications were off.
    Polled,
}

/// An optional flow in four bytes. The identifier `u32::MAX` cannot be tagged; the engine never mints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTag(u32);

impl FlowTag {
    /// No flow.
    pub const NONE: Self = Self(u32::MAX);

    /// The tag of `flow`.
    pub const fn new(flow: FlowId) -> Self {
        Self(flow.0)
    }

    /// The flow, if there is one.
    pub const fn id(self) -> Option<FlowId> {
        if self.0 == u32::MAX { None } else { Some(FlowId(self.0)) }
    }
}

impl Default for FlowTag {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<FlowId> for FlowTag {
    fn from(flow: FlowId) -> Self {
        Self::new(flow)
    }
}

/// The state of a frame's transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Inward: nobody has verified it. Outward: it is complete in the frame.
    #[default]
    Unchecked,
    /// Known to be good; need not be computed.
    Verified,
    /// The field holds the sum of the pseudo-header only; whoever puts the frame on a medium completes it.
    Partial {
        /// Where the transport header begins, from the start of the frame.
        start: u16,
        /// Where the checksum field is, from `start`.
        offset: u8,
    },
}

impl Checksum {
    /// Whether a receiver must compute the sum: it is neither verified nor left open by a sender on this
    /// host.
    pub const fn needs_check(self) -> bool {
        matches!(self, Self::Unchecked)
    }
}

/// How a large frame is cut into segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    /// The protocols in its headers.
    pub kind: SegmentKind,
    /// Payload bytes per segment.
    pub segment_bytes: u16,
    /// Everything before the payload, from Ethernet to transport.
    pub header_bytes: u16,
    /// The sender uses ECN: CWR belongs to the first segment only (RFC 3168 §6.1.2).
    pub ecn: bool,
}

impl Segmentation {
    /// How many segments a frame of `frame_len` bytes becomes, at least one.
    pub fn segments(&self, frame_len: usize) -> usize {
        let payload = frame_len.saturating_sub(usize::from(self.header_bytes));
        payload.div_ceil(usize::from(self.segment_bytes.max(1))).max(1)
    }

    /// The bytes that a frame of `frame_len` bytes becomes on the wire: every segment repeats the headers.
    pub fn wire_bytes(&self, frame_len: usize) -> usize {
        frame_len + (self.segments(frame_len) - 1) * usize::from(self.header_bytes)
    }
}

/// What a large frame is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either.
    Udp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_holds_a_flow_or_none() {
        assert_eq!(FlowTag::NONE.id(), None);
        assert_eq!(FlowTag::from(FlowId(0)).id(), Some(FlowId(0)));
        assert_eq!(FrameMeta::default().flow.id(), None);
    }

    #[test]
    fn every_segment_repeats_the_headers_on_the_wire() {
        let cut =
            Segmentation { kind: SegmentKind::TcpV4, segment_bytes: 1000, header_bytes: 54, ecn: false };
        for (payload, segments) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (3000, 3)] {
            assert_eq!(cut.segments(54 + payload), segments);
            assert_eq!(cut.wire_bytes(54 + payload), payload + segments * 54);
        }
    }
}
