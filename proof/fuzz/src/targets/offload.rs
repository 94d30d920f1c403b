//! A frame behind a virtio-net header, as a TAP delivers it, made fit for a device that can do nothing.
//!
//! The header's numbers come from whoever wrote to the other side, so they may be anything. A frame that is
//! let in ends as frames that fit, complete, and hold the same payload, or is dropped for a reason.

use core::net::IpAddr;

use firelane_frame::{Capabilities, Chain, Checksum, Pools, PoolsConfig, SegmentKind, offload, virtio};
use firelane_units::{DropCounters, Mtu};
use firelane_wire::{EtherType, EthernetView, IpProtocol, Ipv4View, Ipv6View, Sum, UdpView};

use crate::feedback::note;
use crate::input::Input;

/// Ten bytes of virtio-net header, two that choose the device, and the frame; a frame may be made longer by
/// zeroes than the input is.
pub fn target_offload(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(header) = input.take(virtio::HEADER_BYTES).first_chunk::<{ virtio::HEADER_BYTES }>() else {
        return;
    };
    let (device, more) = (input.u8(), usize::from(input.u8()) * 64);
    let bytes = input.rest();
    let mut pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 4 });
    let Some(mut frame) = pools.take(bytes.len() + more) else { return };
    frame.extend_from_slice(bytes);
    frame.append(more).fill(0);
    if device & 0x80 == 0 {
        open(frame.as_mut_slice());
    }
    let Ok((checksum, segmentation)) = virtio::read(header, frame.as_slice()) else {
        return note("refused");
    };
    (frame.meta_mut().checksum, frame.meta_mut().segmentation) = (checksum, segmentation);
    let again = virtio::read(&virtio::write(frame.meta()), frame.as_slice());
    assert_eq!(again, Ok((checksum, segmentation)), "a header that was understood is written as it was read");
    let capabilities = match device % 4 {
        0 => Capabilities::plain(Mtu::new(1500).unwrap()),
        1 => Capabilities::plain(Mtu::new(Mtu::MIN).unwrap()),
        2 => Capabilities { udp_segmentation: false, ..Capabilities::full(Mtu::new(1500).unwrap()) },
        _ => Capabilities { segmentation: false, ..Capabilities::full(Mtu::new(9000).unwrap()) },
    };
    let wire_bytes = frame.wire_bytes();
    assert!(wire_bytes >= frame.len());
    let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
    let whole = frame.as_slice().to_vec();
    chain.push(frame);
    offload::prepare(&mut chain, &capabilities, &mut pools, &mut drops);
    assert!(chain.is_empty() != (drops.total() == 0), "a frame is sent or dropped, not both and not neither");
    drops.iter().for_each(|(reason, _)| note(reason));
    note((chain.len().min(4), device % 4, segmentation.map(|cut| cut.kind as u8)));
    check(&chain, &capabilities, &whole, segmentation.map(|cut| usize::from(cut.header_bytes)));
    let is_honest = match checksum {
        Checksum::Partial { start, offset } => is_open(&whole, usize::from(start), usize::from(offset)),
        _ => false,
    };
    note(("honest", is_honest, segmentation.is_some()));
    if is_honest && !capabilities.checksum_offload {
        for frame in chain.iter() {
            assert_eq!(is_complete(frame.as_slice()), Some(true), "a checksum is wrong");
        }
    }
}

/// Makes lengths and the open checksum those of an honest sender, as far as the frame has them.
fn open(frame: &mut [u8]) {
    let length = frame.len();
    if let [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, _, total @ ..] = frame
        && let Some(total) = total.first_chunk_mut::<2>()
    {
        *total = ((length - 14) as u16).to_be_bytes();
    }
    if let [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, _, _, _, _, payload @ ..] = frame
        && length >= 54
    {
        payload[..2].copy_from_slice(&((length - 54) as u16).to_be_bytes());
    }
    let Some((src, dst, protocol, at)) = transport(frame) else { return };
    let pseudo = Sum::pseudo(src, dst, protocol, (length - at) as u32).folded().to_be_bytes();
    let (sum_at, end) = if protocol == IpProtocol::TCP { (at + 16, at + 20) } else { (at + 6, at + 8) };
    if end <= length {
        frame[sum_at..sum_at + 2].copy_from_slice(&pseudo);
        if protocol == IpProtocol::UDP {
            frame[at + 4..at + 6].copy_from_slice(&((length - at) as u16).to_be_bytes());
        }
    }
}

/// The packet's addresses, transport and where that begins; `None` if there is an option or extension header.
fn transport(frame: &[u8]) -> Option<(IpAddr, IpAddr, IpProtocol, usize)> {
    let ethernet = EthernetView::parse(frame).ok()?;
    let packet = ethernet.payload();
    match ethernet.ethertype() {
        EtherType::IPV4 => {
            let view = Ipv4View::parse(packet).ok()?;
            let is_plain =
                !view.has_options() && !view.is_fragment() && view.payload().len() + 20 == packet.len();
            is_plain.then(|| (view.src().into(), view.dst().into(), view.protocol(), 34))
        }
        EtherType::IPV6 => {
            let view = Ipv6View::parse(packet).ok()?;
            let is_plain = view.payload().len() + 40 == packet.len();
            is_plain.then(|| (view.src().into(), view.dst().into(), view.next_header(), 54))
        }
        _ => None,
    }
}

/// Whether the checksum field holds the pseudo-header's sum, as an honest sender leaves it.
fn is_open(frame: &[u8], start: usize, offset: usize) -> bool {
    let Some((src, dst, protocol, at)) = transport(frame) else { return false };
    let wanted = match protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => return false,
    };
    let is_right_length = protocol == IpProtocol::TCP || UdpView::parse(&frame[at..]).is_ok();
    let pseudo = Sum::pseudo(src, dst, protocol, (frame.len() - at) as u32).folded();
    start == at && offset == wanted && is_right_length && frame[at + offset..][..2] == pseudo.to_be_bytes()
}

/// Whether lengths and checksums of a frame that leaves are right.
fn is_complete(frame: &[u8]) -> Option<bool> {
    let (src, dst, protocol, at) = transport(frame)?;
    let transport = &frame[at..];
    let udp_length = transport.get(4..6)? == (transport.len() as u16).to_be_bytes();
    let pseudo = Sum::pseudo(src, dst, protocol, transport.len() as u32);
    Some(pseudo.combine(Sum::of(transport)).is_valid() && (protocol == IpProtocol::TCP || udp_length))
}

fn check(chain: &Chain, capabilities: &Capabilities, whole: &[u8], header_bytes: Option<usize>) {
    let mut payload = Vec::new();
    for frame in chain.iter() {
        let meta = frame.meta();
        assert!(frame.len() <= capabilities.max_frame);
        if let Some(cut) = meta.segmentation {
            let able = match cut.kind {
                SegmentKind::Udp => capabilities.udp_segmentation,
                SegmentKind::TcpV4 | SegmentKind::TcpV6 => capabilities.segmentation,
            };
            assert!(able, "left to a device that cannot cut");
        }
        assert!(capabilities.checksum_offload || !matches!(meta.checksum, Checksum::Partial { .. }));
        payload.extend_from_slice(frame.as_slice().get(header_bytes.unwrap_or(0)..).unwrap_or_default());
    }
    if header_bytes.is_some() && !chain.is_empty() {
        assert_eq!(payload, whole[header_bytes.unwrap_or(0)..], "the payload is neither lost nor doubled");
    }
}
