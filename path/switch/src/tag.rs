//! Setting and stripping a VLAN tag (IEEE 802.1Q) in place.
//!
//! The addresses move by four bytes; the packet stays where it is. Offsets in the frame's meta that count from its
//! beginning move with it.

use firelane_frame::{Checksum, Frame};
use firelane_units::VlanId;
use firelane_wire::EtherType;

const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Sets a tag behind the addresses.
pub(crate) fn push(frame: &mut Frame, vlan: VlanId) {
    frame.prepend(TAG);
    let bytes = frame.as_mut_slice();
    bytes.copy_within(TAG..TAG + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    bytes[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&vlan.id().to_be_bytes());
    shift(frame, |offset| offset + TAG as u16);
}

/// Strips the tag behind the addresses, which the caller has seen.
pub(crate) fn pop(frame: &mut Frame) {
    frame.as_mut_slice().copy_within(0..ADDRESSES, TAG);
    frame.trim_front(TAG);
    shift(frame, |offset| offset.saturating_sub(TAG as u16));
}

fn shift(frame: &mut Frame, by: impl Fn(u16) -> u16) {
    let meta = frame.meta_mut();
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start = by(*start);
    }
    if let Some(cut) = &mut meta.segmentation {
        cut.header_bytes = by(cut.header_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_frame::{Pools, PoolsConfig, SegmentKind, Segmentation};

    #[test]
    fn a_tag_is_set_and_stripped_without_a_trace() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: 0 });
        let plain: Vec<u8> = (0..60).collect();
        let mut frame = pools.copy_of(&plain).unwrap();
        let cut = Segmentation { kind: SegmentKind::TcpV4, segment_bytes: 3, header_bytes: 54, ecn: false };
        frame.meta_mut().segmentation = Some(cut);
        frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
        let before = *frame.meta();
        push(&mut frame, VlanId::new(0x123).unwrap());
        assert_eq!(frame.as_slice()[..12], plain[..12]);
        assert_eq!(frame.as_slice()[12..16], [0x81, 0x00, 0x01, 0x23]);
        assert_eq!(frame.as_slice()[16..], plain[12..]);
        assert_eq!(frame.meta().checksum, Checksum::Partial { start: 38, offset: 16 });
        assert_eq!(frame.meta().segmentation.map(|cut| cut.header_bytes), Some(58));
        pop(&mut frame);
        assert_eq!((frame.as_slice(), *frame.meta()), (&plain[..], before));
    }
}
