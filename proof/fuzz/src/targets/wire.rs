//! Every header of `base/wire`: parse, read all of it, write it again.
//!
//! The law is a fixed point: what was parsed and written parses to the same values, and writing those gives
//! the same bytes. Writing into two differently filled buffers shows that every byte is written.

use core::fmt::Debug;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_frame::{Checksum, Pools, PoolsConfig};
use firelane_units::SeqNum;
use firelane_wire::*;

use crate::feedback::{note, note_form};
use crate::input::Input;

/// Writes `repr` before `payload` and reads it back.
fn fixed_point<R: PartialEq + Debug>(
    repr: R,
    payload: &[u8],
    len: impl Fn(&R) -> usize,
    emit: impl Fn(&R, &mut [u8]),
    parse: impl Fn(&[u8]) -> R,
) {
    let write = |repr: &R, fill: u8| {
        let mut bytes = vec![fill; len(repr)];
        emit(repr, &mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    };
    let first = write(&repr, 0xaa);
    assert_eq!(first, write(&repr, 0x55), "emit leaves bytes as they were: {repr:?}");
    let again = parse(&first);
    assert_eq!(again, repr, "written and read back");
    assert_eq!(write(&again, 0), first);
}

/// Ethernet, and a VLAN tag behind it.
pub fn target_ethernet(data: &[u8]) {
    let view = match EthernetView::parse(data) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    let repr = EthernetRepr::parse(&view);
    fixed_point(repr, view.payload(), EthernetRepr::emitted_len, EthernetRepr::emit, |b| {
        EthernetRepr::parse(&EthernetView::parse(b).unwrap())
    });
    if view.ethertype() != EtherType::VLAN {
        return note("untagged");
    }
    match VlanView::parse(view.payload()) {
        Ok(tag) => {
            fixed_point(VlanRepr::parse(&tag), tag.payload(), VlanRepr::emitted_len, VlanRepr::emit, |b| {
                VlanRepr::parse(&VlanView::parse(b).unwrap())
            });
            note(("tag", tag.id().is_some(), tag.drop_eligible()));
        }
        Err(error) => note_form(error),
    }
}

/// ARP.
pub fn target_arp(data: &[u8]) {
    let view = match ArpView::parse(data) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    let repr = ArpRepr::parse(&view);
    note((view.operation() == ArpOperation::Request, repr.is_probe(), repr.is_gratuitous()));
    fixed_point(repr, &[], ArpRepr::emitted_len, ArpRepr::emit, |b| {
        ArpRepr::parse(&ArpView::parse(b).unwrap())
    });
}

/// IPv4 with its options, and what a router changes in place.
pub fn target_ipv4(data: &[u8]) {
    if let Ok(cut) = Ipv4View::parse_quoted(data) {
        note(("quoted", cut.payload().len().min(9)));
    }
    let view = match Ipv4View::parse(data) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    assert_eq!(view.header_len() + view.payload().len(), usize::from(view.total_len()));
    for (count, option) in view.options().enumerate() {
        assert!(count < 40, "options that never end");
        note_form(option.map(drop).map_err(drop));
    }
    let repr = Ipv4Repr::parse(&view);
    fixed_point(repr, view.payload(), Ipv4Repr::emitted_len, Ipv4Repr::emit, |b| {
        Ipv4Repr::parse(&Ipv4View::parse(b).unwrap())
    });
    let mut packet = vec![0; repr.emitted_len()];
    repr.emit(&mut packet);
    packet.extend_from_slice(view.payload());
    let is_valid = |packet: &[u8]| Ipv4View::parse(packet).unwrap().is_checksum_valid();
    assert!(is_valid(&packet), "emit writes a checksum that is right");
    if view.ttl() > 1 {
        ipv4::decrement_ttl(&mut packet);
        assert!(is_valid(&packet) && Ipv4View::parse(&packet).unwrap().ttl() == view.ttl() - 1);
    }
    if view.ecn() != Ecn::NotCapable {
        ipv4::mark_congested(&mut packet);
        assert!(is_valid(&packet) && Ipv4View::parse(&packet).unwrap().ecn() == Ecn::Congested);
    }
    note((view.has_options(), view.is_checksum_valid(), view.is_fragment()));
}

/// IPv6, its extension headers and the fragment header.
pub fn target_ipv6(data: &[u8]) {
    if let Ok(view) = FragmentView::parse(data) {
        let repr = FragmentRepr::parse(&view);
        fixed_point(repr, view.payload(), FragmentRepr::emitted_len, FragmentRepr::emit, |b| {
            FragmentRepr::parse(&FragmentView::parse(b).unwrap())
        });
    }
    let view = match Ipv6View::parse(data) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    assert_eq!(view.payload().len(), usize::from(view.payload_len()));
    fixed_point(Ipv6Repr::parse(&view), view.payload(), Ipv6Repr::emitted_len, Ipv6Repr::emit, |b| {
        Ipv6Repr::parse(&Ipv6View::parse(b).unwrap())
    });
    note_form(ext::walk_hop_by_hop(&view));
    match ext::walk(&view) {
        Ok(chain) => {
            let (offset, end) = (usize::from(chain.offset), 40 + view.payload().len());
            assert!((40..=end).contains(&offset), "the upper layer begins in the packet: {chain:?}");
            assert!(chain.named_at < chain.offset, "{chain:?}");
            assert_eq!(chain.payload(&view).len(), end - offset);
            assert_eq!(data[usize::from(chain.named_at)], chain.upper.0, "{chain:?}");
            note(("walked", offset, is_known(chain.upper), chain.is_fragment()));
        }
        Err(error) => note_form(error),
    }
}

/// The protocol, if it is one that is handled.
pub(super) fn is_known(protocol: IpProtocol) -> Option<u8> {
    let is_named = !protocol.to_string().starts_with("protocol");
    is_named.then_some(protocol.0)
}

/// What an ICMP error quotes.
fn read_quote(quoted: Option<Result<Quoted<'_>, QuoteError>>) {
    match quoted {
        Some(Ok(quoted)) => {
            assert!(quoted.transport().len() >= 8);
            let ports: Option<(_, _)> = quoted.ports();
            let seq: Option<SeqNum> = quoted.seq();
            note(("quoted", is_known(quoted.protocol), ports.is_some(), seq.is_some()));
        }
        Some(Err(error)) => note_form(error),
        None => note("no error"),
    }
}

/// ICMP for IPv4.
pub fn target_icmpv4(data: &[u8]) {
    let Ok(view) = Icmpv4View::parse(data) else { return note("truncated") };
    note(("error", view.is_error(), view.is_checksum_valid()));
    let repr = match Icmpv4Repr::parse(&view) {
        Ok(repr) => repr,
        Err(error) => return note_form(error),
    };
    note((view.kind(), view.code().min(16)));
    note_form(firelane_udp::Fault::of_icmpv4(&repr));
    read_quote(repr.quoted());
    let mut bytes = vec![0xaa; repr.emitted_len()];
    repr.emit(&mut bytes);
    let again = Icmpv4View::parse(&bytes).unwrap();
    assert!(again.is_checksum_valid());
    // The parameter of a message that has none is not kept, so the values agree and the bytes need not.
    assert_eq!(Icmpv4Repr::parse(&again).unwrap(), repr);
    if matches!(repr, Icmpv4Repr::EchoRequest { .. }) {
        icmpv4::answer_echo(&mut bytes);
        let answer = Icmpv4View::parse(&bytes).unwrap();
        assert!(answer.is_checksum_valid() && answer.kind() == 0 && answer.payload() == view.payload());
    }
}

const LOCAL6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// ICMP for IPv6.
pub fn target_icmpv6(data: &[u8]) {
    let Ok(view) = Icmpv6View::parse(data) else { return note("truncated") };
    note(("error", view.is_error(), view.is_neighbour_discovery(), view.is_checksum_valid(LOCAL6, PEER6)));
    let repr = match Icmpv6Repr::parse(&view) {
        Ok(repr) => repr,
        Err(error) => return note_form(error),
    };
    note((view.kind(), view.code().min(16)));
    note_form(firelane_udp::Fault::of_icmpv6(&repr));
    read_quote(repr.quoted());
    let mut bytes = vec![0xaa; repr.emitted_len()];
    repr.emit(&mut bytes);
    icmpv6::fill_checksum(&mut bytes, LOCAL6, PEER6);
    let again = Icmpv6View::parse(&bytes).unwrap();
    assert!(again.is_checksum_valid(LOCAL6, PEER6));
    assert_eq!(Icmpv6Repr::parse(&again).unwrap(), repr);
    if matches!(repr, Icmpv6Repr::EchoRequest { .. }) {
        icmpv6::answer_echo(&mut bytes);
        let answer = Icmpv6View::parse(&bytes).unwrap();
        assert!(answer.is_checksum_valid(PEER6, LOCAL6) && answer.kind() == 129);
    }
}

/// Neighbour discovery. The first byte chooses what is around the message.
pub fn target_ndp(data: &[u8]) {
    let mut input = Input::new(data);
    let around = input.u8();
    let message = input.rest();
    let asked = message.get(8..24).and_then(|b| b.first_chunk::<16>()).map(|b| Ipv6Addr::from(*b));
    let envelope = NdpEnvelope {
        src: if around & 1 == 0 { PEER6 } else { Ipv6Addr::UNSPECIFIED },
        dst: match around >> 1 & 3 {
            0 => LOCAL6,
            1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            _ => ndp::solicited_node(asked.unwrap_or(LOCAL6)),
        },
        hop_limit: if around & 8 == 0 { 255 } else { 254 },
    };
    let view = match NdpView::parse(&envelope, message) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    let options: Vec<NdpOption<'_>> = view.options().collect();
    let (source, target, nonce) =
        (view.options().source_mac(), view.options().target_mac(), view.options().nonce());
    note((message[0], options.len().min(4), source.is_some(), target.is_some(), nonce.is_some()));
    options.iter().for_each(|option| note(core::mem::discriminant(option)));
    let repr = NdpRepr { message: view.message(), options: &options };
    let [mut first, mut second] = [vec![0xaa; repr.emitted_len()], vec![0x55; repr.emitted_len()]];
    repr.emit(&mut first);
    repr.emit(&mut second);
    assert_eq!(first, second, "emit leaves bytes as they were: {repr:?}");
    let again = NdpView::parse(&envelope, &first).expect("what was written is well formed");
    assert_eq!(again.message(), view.message());
    assert_eq!(again.options().collect::<Vec<_>>(), options);
}

/// UDP: the view, and `path/udp` over a frame in every state of its checksum.
pub fn target_udp(data: &[u8]) {
    let mut input = Input::new(data);
    let (around, before) = (input.u8(), input.below(64));
    let bytes = input.rest();
    let v4: (IpAddr, IpAddr) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
    let (src, dst) = if around & 1 == 0 { v4 } else { (PEER6.into(), LOCAL6.into()) };
    let view = UdpView::parse(bytes);
    if let Ok(view) = view {
        fixed_point(UdpRepr::parse(&view), view.payload(), UdpRepr::emitted_len, UdpRepr::emit, |b| {
            UdpRepr::parse(&UdpView::parse(b).unwrap())
        });
    }
    let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: 1 });
    let Some(mut frame) = pools.take(before + bytes.len()) else { return };
    frame.append(before).fill(0xee);
    frame.extend_from_slice(bytes);
    frame.meta_mut().checksum = match around >> 1 & 3 {
        0 => Checksum::Verified,
        1 => Checksum::Partial { start: before as u16, offset: 6 },
        _ => Checksum::Unchecked,
    };
    let checked = frame.meta().checksum.needs_check();
    match firelane_udp::receive(&frame, src, dst, before..before + bytes.len()) {
        Ok(datagram) => {
            let view = view.expect("a datagram that is received has a good header");
            assert!(!checked || view.is_checksum_valid(src, dst));
            assert_eq!(&frame.as_slice()[datagram.payload.clone()], view.payload());
            assert_eq!(datagram.pieces().collect::<Vec<_>>(), core::slice::from_ref(&datagram.payload));
            note(("received", checked, view.checksum() == 0));
        }
        Err(reason) => {
            note(("dropped", reason, view.is_err()));
            let reason_exists = view.map_or(true, |view| checked && !view.is_checksum_valid(src, dst));
            assert!(reason_exists, "dropped for no reason");
        }
    }
}

/// TCP with its options.
pub fn target_tcp(data: &[u8]) {
    let view = match TcpView::parse(data) {
        Ok(view) => view,
        Err(error) => return note_form(error),
    };
    assert_eq!(view.header_len() + view.payload().len(), data.len());
    assert_eq!(view.ack().is_some(), view.flags().ack());
    let repr = TcpRepr::parse(&view);
    let options = repr.options;
    note((options.mss.is_some(), options.window_scale.is_some(), options.sack_permitted));
    note((options.sack.len(), options.timestamps.is_some(), view.option_bytes().len()));
    note(options.fast_open().map(|cookie| cookie.as_slice().len()));
    // Options that a peer packed more densely than Linux does may not all fit: then SACK blocks go, once.
    let mut bytes = vec![0xaa; repr.emitted_len()];
    repr.emit(&mut bytes);
    let mut fitting = TcpRepr::parse(&TcpView::parse(&bytes).unwrap());
    let mut expected = repr;
    // A cookie lies in the blocks' place, and always fits.
    if options.fast_open().is_none() {
        expected.options.sack = options.sack.iter().take(options.sack_room()).collect();
    }
    assert_eq!(fitting, expected);
    fitting.options = expected.options;
    fixed_point(fitting, view.payload(), TcpRepr::emitted_len, TcpRepr::emit, |b| {
        TcpRepr::parse(&TcpView::parse(b).unwrap())
    });
    let v4: (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into());
    note(view.is_checksum_valid(v4.0, v4.1));
}

/// Sums in pieces, with a copy and after a change, against the sum of the whole.
pub fn target_checksum(data: &[u8]) {
    let mut input = Input::new(data);
    let (cut, at, word) = (usize::from(input.u16()), usize::from(input.u16()), input.u16());
    let bytes = input.rest();
    let slow = bytes.chunks(2).fold(0u32, |sum, pair| {
        let sum = sum + (u32::from(pair[0]) << 8) + u32::from(pair.get(1).copied().unwrap_or(0));
        (sum & 0xffff) + (sum >> 16)
    });
    let slow = if slow == 0xffff { 0 } else { slow };
    let folded = |sum: Sum| if sum.folded() == 0xffff { 0 } else { u32::from(sum.folded()) };
    assert_eq!(folded(Sum::of(bytes)), slow);
    let cut = cut % (bytes.len() + 1);
    let (first, second) = bytes.split_at(cut);
    assert_eq!(folded(Sum::of(first).combine_at(cut, Sum::of(second))), slow);
    let mut copy = vec![0; bytes.len()];
    assert_eq!(folded(copy_and_sum(&mut copy, bytes)), slow);
    assert_eq!(copy, bytes);
    if bytes.len() >= 2 {
        let at = at % (bytes.len() / 2) * 2;
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        copy[at..at + 2].copy_from_slice(&word.to_be_bytes());
        let form = |sum: u16| if sum == 0xffff { 0 } else { sum };
        let changed = update16(Sum::of(bytes).checksum(), old, word);
        assert_eq!(form(!changed), form(Sum::of(&copy).folded()), "RFC 1624");
    }
    note((bytes.len().min(70), cut % 2));
}
