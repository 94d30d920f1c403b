//! The classifier, which reads a frame's headers at once, against the checked views, which read one by one.
//!
//! The views refuse more than the classifier does (checksums, lengths of the upper layer); what they accept
//! the classifier must have read the same way, and what it believes must lie in the frame.

use firelane_classify::{Fragment, Headers, L3, SteeringKey};
use firelane_units::DropReason;
use firelane_wire::*;

use super::wire::is_known;
use crate::feedback::{note, note_form};

/// A frame.
pub fn target_classify(data: &[u8]) {
    let headers = match Headers::parse(data) {
        Ok(headers) => headers,
        Err(reason) => {
            note(reason);
            return check_refused(data, reason);
        }
    };
    let mut reused = Headers::EMPTY;
    reused.read(data).unwrap();
    assert_eq!(reused, headers, "what was read before leaves no trace");
    let ethernet = EthernetView::parse(data).expect("the classifier refuses what has no Ethernet header");
    assert_eq!((headers.dst, headers.src), (ethernet.dst(), ethernet.src()));
    let mut payload = ethernet.payload();
    if headers.tagged {
        let tag = VlanView::parse(payload).expect("the tag is whole");
        assert_eq!((headers.vlan, headers.ethertype), (tag.id(), tag.ethertype()));
        payload = tag.payload();
    } else {
        assert_eq!((headers.vlan, headers.ethertype), (None, ethernet.ethertype()));
    }
    assert_eq!(usize::from(headers.l3_offset), data.len() - payload.len());
    check_places(data, &headers);
    note_form((core::mem::discriminant(&headers.l3), headers.fragment, headers.tagged));
    note((
        is_known(headers.protocol),
        headers.ports.is_some(),
        headers.l4_offset - headers.l3_offset.min(headers.l4_offset),
    ));
    match headers.l3 {
        L3::V4 { .. } => check_v4(&headers, payload),
        L3::V6 { .. } => check_v6(&headers, payload),
        L3::Malformed if headers.ethertype == EtherType::IPV4 => {
            assert!(Ipv4View::parse(payload).is_err(), "a good packet is called malformed");
        }
        L3::Malformed => assert!(Ipv6View::parse(payload).is_err(), "a good packet is called malformed"),
        L3::Arp | L3::Other => {}
    }
    check_tuple(&headers);
}

/// A refused frame has the fault that it was refused for.
fn check_refused(data: &[u8], reason: DropReason) {
    let ethernet = EthernetView::parse(data);
    match reason {
        DropReason::TooShort => {
            assert!(ethernet.is_err() || VlanView::parse(ethernet.unwrap().payload()).is_err());
        }
        DropReason::BadSource => {
            let src = ethernet.map_or([1; 6], |view| view.src().0);
            assert!(src[0] & 1 == 1 || src == [0; 6]);
        }
        DropReason::BadVlan => {
            let ethertype = ethernet.unwrap().ethertype().0;
            assert!(matches!(ethertype, 0x8100 | 0x88a8 | 0x9100), "{ethertype:#x}");
        }
        other => panic!("refused for {other}"),
    }
}

/// Offsets lie in the frame, and in order.
fn check_places(data: &[u8], headers: &Headers) {
    let (l3, l4, end) = (u32::from(headers.l3_offset), u32::from(headers.l4_offset), headers.l3_end);
    assert!(l3 as usize <= data.len() && end as usize <= data.len());
    assert!(l4 == 0 || (l3 < l4 && l4 <= end), "{headers:?}");
    if headers.ports.is_some() {
        assert!(l4 + 8 <= end && headers.fragment != Fragment::Later);
    }
}

fn check_v4(headers: &Headers, packet: &[u8]) {
    let view = Ipv4View::parse(packet).expect("the classifier read it as IPv4");
    assert_eq!(headers.l3, L3::V4 { src: view.src(), dst: view.dst() });
    assert_eq!((headers.protocol, headers.ttl), (view.protocol(), view.ttl()));
    assert_eq!(headers.dsfield, view.dscp() << 2 | view.ecn().bits());
    assert_eq!(headers.l3_end, u32::from(headers.l3_offset) + u32::from(view.total_len()));
    assert_eq!(usize::from(headers.l4_offset - headers.l3_offset), view.header_len());
    assert_eq!(headers.fragment, fragment(view.fragment_offset(), view.more_fragments()));
    check_ports(headers, view.payload());
}

fn check_v6(headers: &Headers, packet: &[u8]) {
    let view = Ipv6View::parse(packet).expect("the classifier read it as IPv6");
    assert_eq!(headers.l3, L3::V6 { src: view.src(), dst: view.dst() });
    assert_eq!((headers.ttl, headers.dsfield), (view.hop_limit(), view.dscp() << 2 | view.ecn().bits()));
    assert_eq!(headers.l3_end, u32::from(headers.l3_offset) + 40 + u32::from(view.payload_len()));
    // Where `ip` finds an upper layer the classifier finds the same, or it gave the packet no ports. An
    // authentication header, which `ip` does not read, is an upper layer to it and a step to the classifier.
    let Ok(chain) = ext::walk(&view) else { return };
    if chain.upper == IpProtocol::AUTHENTICATION || headers.l4_offset == 0 {
        return note(("given up", is_known(chain.upper)));
    }
    assert_eq!((headers.protocol, headers.l4_offset), (chain.upper, headers.l3_offset + chain.offset));
    let found = chain.fragment.map_or(Fragment::Whole, |f| fragment(f.repr.offset, f.repr.more));
    assert_eq!(headers.fragment, found);
    check_ports(headers, chain.payload(&view));
}

fn fragment(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

fn check_ports(headers: &Headers, transport: &[u8]) {
    if headers.fragment == Fragment::Later {
        assert_eq!(headers.ports, None);
        return;
    }
    let by_view = match headers.protocol {
        IpProtocol::TCP => TcpView::parse(transport).ok().map(|tcp| {
            assert_eq!(headers.tcp_flags, tcp.flags());
            (tcp.src_port(), tcp.dst_port())
        }),
        IpProtocol::UDP => UdpView::parse(transport).ok().map(|udp| (udp.src_port(), udp.dst_port())),
        _ => None,
    };
    if by_view.is_some() {
        assert_eq!(headers.ports, by_view);
    }
}

fn check_tuple(headers: &Headers) {
    let Some(tuple) = headers.tuple() else { return };
    assert!(headers.fragment == Fragment::Whole && headers.ports.is_some());
    assert_eq!(tuple.protocol(), headers.protocol);
    // The hash is symmetric: both directions of a connection meet in one lane.
    let mut back = *headers;
    back.ports = headers.ports.map(|(src, dst)| (dst, src));
    back.l3 = match headers.l3 {
        L3::V4 { src, dst } => L3::V4 { src: dst, dst: src },
        L3::V6 { src, dst } => L3::V6 { src: dst, dst: src },
        other => other,
    };
    let key = SteeringKey([1, 2, 3, 4]);
    let returned = back.tuple().expect("its other direction is a tuple too");
    assert_eq!(tuple.symmetric_hash(&key), returned.symmetric_hash(&key));
}
