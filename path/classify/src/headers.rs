//! The headers of a frame, each read once.
//!
//! Owns the walk over Ethernet (IEEE 802.3), one VLAN tag (802.1Q), IPv4 (RFC 791), IPv6 with extension
//! headers (RFC 8200 §4) and the ports of TCP, UDP and SCTP. Called by the lane for every frame that a driver
//! delivers and for every frame that a netstack sends. It judges only what would fool a table: a frame that
//! no station can read is dropped here, a packet that only its receiver can judge is passed on as
//! [`L3::Malformed`] with no protocol and no ports. Checksums are the IP side's.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::{DropReason, MacAddr, Port, VlanId};
use firelane_wire::{EtherType, IpProtocol, TcpFlags};

use crate::tuple::Tuple;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const IPV6_BYTES: usize = 40;
/// How many extension headers are walked: RFC 8200 names seven, and an honest packet repeats one at most.
const EXTENSIONS_MAX: usize = 8;
/// How many bytes of extension headers are walked.
const EXTENSION_BYTES_MAX: usize = 512;

/// The service tag of switches older than IEEE 802.1ad.
const OLD_SERVICE_TAG: EtherType = EtherType(0x9100);

/// What one frame says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address: always one station's.
    pub src: MacAddr,
    /// The VLAN of the tag, if there is one that is not a mere priority tag.
    pub vlan: Option<VlanId>,
    /// Whether the frame has a tag, be it only a priority tag.
    pub tagged: bool,
    /// The EtherType behind the tag.
    pub ethertype: EtherType,
    /// Where the packet begins.
    pub l3_offset: u16,
    /// Network addresses.
    pub l3: L3,
    /// The transport protocol, or the extension header at which the walk gave up; zero without a packet.
    pub protocol: IpProtocol,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// The DS field with its two ECN bits, as one byte (RFC 2474, RFC 3168).
    pub dsfield: u8,
    /// Whether the packet is a piece of one.
    pub fragment: Fragment,
    /// Where the transport header begins, counted from the frame's start; zero if there is none to read.
    pub l4_offset: u16,
    /// Where the packet ends, counted from the frame's start: what follows is padding.
    pub l3_end: u32,
    /// Source and destination port, if the whole transport header is there.
    pub ports: Option<(Port, Port)>,
    /// TCP's flags; empty for other protocols.
    pub tcp_flags: TcpFlags,
}

/// The network layer of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L3 {
    /// IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
    /// Address resolution.
    Arp,
    /// Says it is IPv4 or IPv6, but its lengths contradict each other. Its receiver counts it as
    /// [`DropReason::BadHeader`]; no table is asked about it.
    Malformed,
    /// Anything else.
    Other,
}

/// Whether a packet is a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// A whole packet (an IPv6 "atomic" fragment included, RFC 6946).
    Whole,
    /// The piece with offset zero: its transport header may be read.
    First,
    /// A later piece: what follows the IP header is payload, whatever it looks like (RFC 3128).
    Later,
}

impl Headers {
    /// Reads the headers of `frame`, which begins with its Ethernet header.
    ///
    /// Refused are frames without a whole Ethernet header or tag ([`DropReason::TooShort`]), with a source that
    /// is no station's ([`DropReason::BadSource`]), and with a service tag, a second tag or the reserved VLAN
    /// 4095 ([`DropReason::BadVlan`]): a stacked tag is where VLAN hopping begins, so an inner tag is never
    /// interpreted.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let mut headers = Self::EMPTY;
        headers.read(frame)?;
        Ok(headers)
    }

    /// Reads the headers of `frame` in place of those of another, as [`parse`](Self::parse) does. A lane that keeps
    /// one `Headers` for a chain saves a copy per frame. After an error they describe no frame.
    #[inline]
    pub fn read(&mut self, frame: &[u8]) -> Result<(), DropReason> {
        let ethernet = frame.first_chunk::<ETHERNET_BYTES>().ok_or(DropReason::TooShort)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *ethernet;
        let src = MacAddr([s0, s1, s2, s3, s4, s5]);
        if src.0[0] & 1 != 0 || src == MacAddr::ZERO {
            return Err(DropReason::BadSource);
        }
        self.dst = MacAddr([d0, d1, d2, d3, d4, d5]);
        self.src = src;
        (self.vlan, self.tagged) = (None, false);
        self.ethertype = EtherType(u16::from_be_bytes([t0, t1]));
        self.l3_offset = ETHERNET_BYTES as u16;
        if is_tag(self.ethertype) {
            self.read_tag(frame)?;
        }
        self.forget_packet();
        let packet = &frame[usize::from(self.l3_offset)..];
        let is_good = match self.ethertype {
            EtherType::IPV4 => self.read_v4(packet).is_some(),
            EtherType::IPV6 => self.read_v6(packet).is_some(),
            EtherType::ARP => {
                self.l3 = L3::Arp;
                true
            }
            _ => true,
        };
        if !is_good {
            self.forget_packet();
            self.l3 = L3::Malformed;
        }
        Ok(())
    }

    /// Headers of no frame, for [`read`](Self::read).
    pub const EMPTY: Self = Self {
        dst: MacAddr::ZERO,
        src: MacAddr::ZERO,
        vlan: None,
        tagged: false,
        ethertype: EtherType(0),
        l3_offset: 0,
        l3: L3::Other,
        protocol: IpProtocol(0),
        ttl: 0,
        dsfield: 0,
        fragment: Fragment::Whole,
        l4_offset: 0,
        l3_end: 0,
        ports: None,
        tcp_flags: TcpFlags::EMPTY,
    };

    /// Back to a frame without a packet.
    #[inline]
    fn forget_packet(&mut self) {
        self.l3 = L3::Other;
        (self.protocol, self.ttl, self.dsfield) = (IpProtocol(0), 0, 0);
        (self.fragment, self.ports, self.tcp_flags) = (Fragment::Whole, None, TcpFlags::EMPTY);
        (self.l4_offset, self.l3_end) = (0, 0);
    }

    /// Source and destination address of the packet.
    pub const fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match self.l3 {
            L3::V4 { src, dst } => Some((IpAddr::V4(src), IpAddr::V4(dst))),
            L3::V6 { src, dst } => Some((IpAddr::V6(src), IpAddr::V6(dst))),
            L3::Arp | L3::Malformed | L3::Other => None,
        }
    }

    /// The connection that an arriving packet belongs to: local is its destination.
    ///
    /// `None` for fragments, which reassembly sees first; for protocols without ports; and for IPv6 packets with
    /// IPv4-mapped addresses, which may not appear on a wire and would be taken for IPv4 ones.
    #[inline]
    pub fn tuple(&self) -> Option<Tuple> {
        let (remote_port, local_port) = self.ports?;
        if self.fragment != Fragment::Whole {
            return None;
        }
        match self.l3 {
            L3::V4 { src, dst } => Some(Tuple::v4(self.protocol, (dst, local_port), (src, remote_port))),
            L3::V6 { src, dst } => Tuple::v6(self.protocol, (dst, local_port), (src, remote_port)),
            L3::Arp | L3::Malformed | L3::Other => None,
        }
    }

    fn read_tag(&mut self, frame: &[u8]) -> Result<(), DropReason> {
        if self.ethertype != EtherType::VLAN {
            return Err(DropReason::BadVlan);
        }
        let tag = frame[ETHERNET_BYTES..].first_chunk::<TAG_BYTES>().ok_or(DropReason::TooShort)?;
        let id = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
        self.vlan = VlanId::new(id);
        if self.vlan.is_none() && id != 0 {
            return Err(DropReason::BadVlan);
        }
        self.tagged = true;
        self.ethertype = EtherType(u16::from_be_bytes([tag[2], tag[3]]));
        self.l3_offset += TAG_BYTES as u16;
        if is_tag(self.ethertype) { Err(DropReason::BadVlan) } else { Ok(()) }
    }

    #[inline]
    fn read_v4(&mut self, packet: &[u8]) -> Option<()> {
        let h = packet.first_chunk::<20>()?;
        let header_bytes = usize::from(h[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([h[2], h[3]]));
        if h[0] >> 4 != 4 || header_bytes < 20 || total < header_bytes {
            return None;
        }
        // Padding behind the packet is not part of it; bytes that the packet promises must be there.
        let packet = packet.get(..total)?;
        let piece = u16::from_be_bytes([h[6], h[7]]);
        self.fragment = fragment(piece & 0x1fff, piece & 0x2000 != 0);
        self.ttl = h[8];
        self.dsfield = h[1];
        self.l3_end = u32::from(self.l3_offset) + total as u32;
        self.read_transport(IpProtocol(h[9]), packet, header_bytes);
        self.l3 =
            L3::V4 { src: [h[12], h[13], h[14], h[15]].into(), dst: [h[16], h[17], h[18], h[19]].into() };
        Some(())
    }

    #[inline]
    fn read_v6(&mut self, packet: &[u8]) -> Option<()> {
        let h = packet.first_chunk::<IPV6_BYTES>()?;
        if h[0] >> 4 != 6 {
            return None;
        }
        let total = IPV6_BYTES + usize::from(u16::from_be_bytes([h[4], h[5]]));
        let packet = packet.get(..total)?;
        self.dsfield = h[0] << 4 | h[1] >> 4;
        self.ttl = h[7];
        self.l3_end = u32::from(self.l3_offset) + total as u32;
        let (protocol, at) = self.walk_extensions(IpProtocol(h[6]), packet);
        match at {
            Some(at) => self.read_transport(protocol, packet, at),
            None => self.protocol = protocol,
        }
        let (src, dst) = (h[8..].first_chunk::<16>()?, h[24..].first_chunk::<16>()?);
        self.l3 = L3::V6 { src: (*src).into(), dst: (*dst).into() };
        Some(())
    }

    /// Walks the extension headers (RFC 8200 §4.1) to the transport protocol and its offset. The offset is
    /// `None` if the chain is cut, too long, or out of order: such a packet has no ports, and IP judges it.
    #[inline]
    fn walk_extensions(&mut self, first: IpProtocol, packet: &[u8]) -> (IpProtocol, Option<usize>) {
        let (mut next, mut at, mut fragmented) = (first, IPV6_BYTES, false);
        for nth in 0..=EXTENSIONS_MAX {
            let known = match next {
                IpProtocol::HOP_BY_HOP => nth == 0,
                IpProtocol::FRAGMENT => !fragmented,
                IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS | IpProtocol::AUTHENTICATION => true,
                _ => return (next, Some(at)),
            };
            let Some(&[then, count, o0, o1, ..]) = packet[at..].first_chunk::<8>().filter(|_| known) else {
                return (next, None);
            };
            let bytes = match next {
                IpProtocol::FRAGMENT => {
                    let piece = u16::from_be_bytes([o0, o1]);
                    self.fragment = fragment(piece >> 3, piece & 1 != 0);
                    fragmented = true;
                    8
                }
                IpProtocol::AUTHENTICATION => (usize::from(count) + 2) * 4,
                _ => (usize::from(count) + 1) * 8,
            };
            at += bytes;
            if at > packet.len() || at > IPV6_BYTES + EXTENSION_BYTES_MAX || nth == EXTENSIONS_MAX {
                return (next, None);
            }
            next = IpProtocol(then);
            if self.fragment == Fragment::Later {
                return (next, Some(at));
            }
        }
        (next, None)
    }

    /// Reads the ports, if the packet is no later fragment and the transport header is whole.
    #[inline]
    fn read_transport(&mut self, protocol: IpProtocol, packet: &[u8], at: usize) {
        self.protocol = protocol;
        self.l4_offset = self.l3_offset + at as u16;
        if self.fragment == Fragment::Later {
            return;
        }
        let Some(bytes) = packet.get(at..) else { return };
        match protocol {
            IpProtocol::TCP => {
                let Some(h) = bytes.first_chunk::<20>() else { return };
                let header_bytes = usize::from(h[12] >> 4) * 4;
                if header_bytes < 20 || header_bytes > bytes.len() {
                    return;
                }
                self.ports = Some(ports(h[0..4].first_chunk().expect("four of twenty bytes")));
                self.tcp_flags = TcpFlags::from_bits(u16::from_be_bytes([h[12], h[13]]));
            }
            IpProtocol::UDP => self.ports = bytes.first_chunk::<8>().and_then(|h| h.first_chunk()).map(ports),
            IpProtocol::SCTP => {
                self.ports = bytes.first_chunk::<12>().and_then(|h| h.first_chunk()).map(ports)
            }
            _ => {}
        }
    }
}

const fn is_tag(ethertype: EtherType) -> bool {
    matches!(ethertype, EtherType::VLAN | EtherType::SERVICE_VLAN | OLD_SERVICE_TAG)
}

const fn fragment(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

fn ports(bytes: &[u8; 4]) -> (Port, Port) {
    let [s0, s1, d0, d1] = *bytes;
    (Port(u16::from_be_bytes([s0, s1])), Port(u16::from_be_bytes([d0, d1])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::{self as frames, Ends};
    use firelane_wire::{EthernetView, Ipv4View, Ipv6View, TcpView, UdpView};
    use proptest::prelude::*;

    const PORTS: Option<(Port, Port)> = Some((Port(1234), Port(80)));

    /// The slow reference: what the checked views of `wire` say about the ports of a frame, read header by header.
    fn ports_by_views(frame: &[u8]) -> Option<(Port, Port)> {
        let ethernet = EthernetView::parse(frame).ok()?;
        let (protocol, transport) = match ethernet.ethertype() {
            EtherType::IPV4 => {
                let ip = Ipv4View::parse(ethernet.payload()).ok()?;
                if ip.fragment_offset() != 0 {
                    return None;
                }
                (ip.protocol(), ip.payload())
            }
            EtherType::IPV6 => {
                let ip = Ipv6View::parse(ethernet.payload()).ok()?;
                (ip.next_header(), ip.payload())
            }
            _ => return None,
        };
        match protocol {
            IpProtocol::TCP => TcpView::parse(transport).ok().map(|t| (t.src_port(), t.dst_port())),
            IpProtocol::UDP => UdpView::parse(transport).ok().map(|u| (u.src_port(), u.dst_port())),
            _ => None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever bytes come and wherever they are cut: no panic, and every port was inside the packet.
        #[test]
        fn any_bytes_are_read_or_refused(
            seed in 0usize..frames::samples().len(),
            edits in prop::collection::vec((0usize..120, any::<u8>()), 0..6),
            cut in 0usize..160,
        ) {
            let mut frame = frames::samples()[seed].clone();
            for (at, byte) in edits {
                if let Some(b) = frame.get_mut(at) {
                    *b = byte;
                }
            }
            frame.truncate(cut);
            let Ok(headers) = Headers::parse(&frame) else { return Ok(()) };
            // What was read before leaves no trace.
            let mut reused = Headers::parse(&frames::samples()[cut % frames::samples().len()]).unwrap();
            reused.read(&frame).unwrap();
            prop_assert_eq!(&reused, &headers);
            prop_assert!(usize::from(headers.l3_offset) <= frame.len());
            prop_assert!(headers.l3_end as usize <= frame.len());
            if headers.ports.is_some() {
                prop_assert!(u32::from(headers.l4_offset) + 8 <= headers.l3_end);
                prop_assert!(headers.fragment != Fragment::Later);
            }
            if let Some(tuple) = headers.tuple() {
                prop_assert_eq!(tuple.protocol(), headers.protocol);
            }
            // The views refuse more (a UDP length that lies), and agree where they do not.
            if !headers.tagged && let Some(ports) = ports_by_views(&frame) {
                prop_assert_eq!(headers.ports, Some(ports));
            }
        }
    }

    #[test]
    fn a_plain_frame_says_who_what_and_where() {
        let h = Headers::parse(&frames::tcp_v4(1.into(), 2.into(), 1234, 80)).unwrap();
        assert_eq!((h.dst, h.src, h.vlan, h.tagged), (frames::DST, frames::SRC, None, false));
        assert_eq!(h.l3, L3::V4 { src: 1.into(), dst: 2.into() });
        assert_eq!(
            (h.protocol, h.ports, h.l3_offset, h.l4_offset, h.l3_end),
            (IpProtocol::TCP, PORTS, 14, 34, 54)
        );
        assert!(h.tcp_flags.syn() && h.fragment == Fragment::Whole && h.ttl == 64);
        let v6 = Headers::parse(&frames::tcp_v6(1.into(), 2.into(), 1234, 80)).unwrap();
        assert_eq!((v6.protocol, v6.ports, v6.l4_offset, v6.ttl), (IpProtocol::TCP, PORTS, 54, 64));
        let tuple = v6.tuple().unwrap();
        assert_eq!((tuple.local_port(), tuple.remote_port()), (Port(80), Port(1234)));
    }

    #[test]
    fn frames_that_no_station_can_read_are_dropped_with_the_reason() {
        let good = frames::tcp_v4(1.into(), 2.into(), 1234, 80);
        let with_source = |source: [u8; 6]| {
            let mut frame = good.clone();
            frame[6..12].copy_from_slice(&source);
            frame
        };
        for (name, frame, wanted) in [
            ("13 bytes", good[..13].to_vec(), DropReason::TooShort),
            ("a cut tag", frames::tagged(&good, &[(0x8100, 5)])[..17].to_vec(), DropReason::TooShort),
            ("a group source", with_source([1, 0, 0x5e, 0, 0, 1]), DropReason::BadSource),
            ("a broadcast source", with_source([0xff; 6]), DropReason::BadSource),
            ("a zero source", with_source([0; 6]), DropReason::BadSource),
            ("VLAN 4095", frames::tagged(&good, &[(0x8100, 0x0fff)]), DropReason::BadVlan),
            ("a double tag", frames::tagged(&good, &[(0x8100, 5), (0x8100, 6)]), DropReason::BadVlan),
            (
                "a tag in a priority tag",
                frames::tagged(&good, &[(0x8100, 0), (0x8100, 6)]),
                DropReason::BadVlan,
            ),
            ("a service tag", frames::tagged(&good, &[(0x88a8, 5)]), DropReason::BadVlan),
            ("an old service tag", frames::tagged(&good, &[(0x9100, 5)]), DropReason::BadVlan),
        ] {
            assert_eq!(Headers::parse(&frame), Err(wanted), "{name}");
        }
    }

    #[test]
    fn a_tag_gives_the_vlan_and_a_priority_tag_does_not() {
        let plain = frames::tcp_v4(1.into(), 2.into(), 1234, 80);
        let tagged = Headers::parse(&frames::tagged(&plain, &[(0x8100, 0xe005)])).unwrap();
        assert_eq!((tagged.vlan, tagged.tagged, tagged.ports), (VlanId::new(5), true, PORTS));
        assert_eq!((tagged.l3_offset, tagged.l4_offset), (18, 38));
        let priority = Headers::parse(&frames::tagged(&plain, &[(0x8100, 0xe000)])).unwrap();
        assert_eq!((priority.vlan, priority.tagged, priority.ports), (None, true, PORTS));
    }

    /// What a program of a victim was made to send (NAT slipstreaming) changes nothing about who may reach it.
    #[test]
    fn s15_text_that_looks_like_signalling_is_never_read() {
        let plain = frames::tcp_v4(1.into(), 2.into(), 1234, 5060);
        let text = b"REGISTER sip:evil SIP/2.0\r\nContact: <sip:victim@10.0.0.1:445>\r\n\r\n";
        let with = |text: &[u8]| {
            let mut frame = plain.clone();
            frame.extend_from_slice(text);
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            Headers { l3_end: 0, ..Headers::parse(&frame).expect("a plain frame") }
        };
        let other: Vec<u8> = text.iter().rev().copied().collect();
        assert_eq!(with(text), with(&other));
    }

    #[test]
    fn padding_is_no_part_of_the_packet() {
        let mut frame = frames::udp_v4(1.into(), 2.into(), 1234, 80);
        let end = frame.len() as u32;
        frame.resize(60, 0xaa);
        assert_eq!(Headers::parse(&frame).unwrap().l3_end, end);
    }

    /// RFC 3128 and conformance row I09: ports are believed only where a whole transport header is.
    #[test]
    fn fragments_and_cut_packets_have_no_ports() {
        let ends = Ends::V4(1.into(), 2.into());
        let tcp = frames::tcp(1234, 80);
        for (name, piece, transport, fragment, ports) in [
            ("whole", 0x4000u16, &tcp[..], Fragment::Whole, PORTS),
            ("first", 0x2000, &tcp[..], Fragment::First, PORTS),
            ("tiny first", 0x2000, &tcp[..8], Fragment::First, None),
            ("offset 1 hides the flags", 0x0001, &tcp[8..], Fragment::Later, None),
            ("later, looks like TCP", 0x0100, &tcp[..], Fragment::Later, None),
            ("later, last", 0x2100, &tcp[..], Fragment::Later, None),
            ("cut transport header", 0, &tcp[..19], Fragment::Whole, None),
        ] {
            let mut frame = frames::packet(ends, IpProtocol::TCP, transport);
            frame[20..22].copy_from_slice(&piece.to_be_bytes());
            let h = Headers::parse(&frame).unwrap();
            assert_eq!((h.fragment, h.ports, h.protocol), (fragment, ports, IpProtocol::TCP), "{name}");
            assert_eq!(h.tuple().is_some(), ports.is_some() && fragment == Fragment::Whole, "{name}");
        }
        let mut lies = tcp.clone();
        lies[12] = 0xf0;
        let options_past_the_end = frames::packet(ends, IpProtocol::TCP, &lies);
        assert_eq!(Headers::parse(&options_past_the_end).unwrap().ports, None);
    }

    #[test]
    fn lengths_that_contradict_each_other_are_malformed_and_match_nothing() {
        type Edit = (&'static str, fn(&mut Vec<u8>));
        let v4: [Edit; 5] = [
            ("version 5", |f| f[14] = 0x55),
            ("header of 16", |f| f[14] = 0x44),
            ("header past the total length", |f| f[14] = 0x4f),
            ("total length past the frame", |f| f[16] = 1),
            ("cut header", |f| f.truncate(33)),
        ];
        let v6: [Edit; 3] = [
            ("version 4", |f| f[14] = 0x40),
            ("payload past the frame", |f| f[18] = 1),
            ("cut header", |f| f.truncate(53)),
        ];
        let bases = [frames::tcp_v4(1.into(), 2.into(), 1, 2), frames::tcp_v6(1.into(), 2.into(), 1, 2)];
        for (base, edits) in bases.iter().zip([&v4[..], &v6[..]]) {
            for (name, edit) in edits {
                let mut frame = base.clone();
                edit(&mut frame);
                let h = Headers::parse(&frame).unwrap();
                assert_eq!(
                    (h.l3, h.ports, h.addresses(), h.tuple()),
                    (L3::Malformed, None, None, None),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn extension_headers_are_walked_within_bounds() {
        const OPTIONS: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
        let tcp = frames::tcp(1234, 80);
        let chain = |headers: &[(u8, Vec<u8>)]| {
            let mut bytes = vec![];
            for (n, (_, header)) in headers.iter().enumerate() {
                let at = bytes.len();
                bytes.extend_from_slice(header);
                bytes[at] = headers.get(n + 1).map_or(6, |next| next.0);
            }
            bytes.extend_from_slice(&tcp);
            let first = headers.first().map_or(6, |h| h.0);
            Headers::parse(&frames::packet(Ends::V6(1.into(), 2.into()), IpProtocol(first), &bytes)).unwrap()
        };
        let options = |kind: u8| (kind, OPTIONS.to_vec());
        let long =
            |kind: u8, units: u8| (kind, [&[0, units], &vec![0; usize::from(units) * 8 + 6][..]].concat());
        let fragment = |word: u16| (44, [&[0, 0][..], &word.to_be_bytes(), &[0; 4]].concat());
        let authentication = (51, vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (name, headers, ports, seen) in [
            ("none", vec![], PORTS, Fragment::Whole),
            ("hop by hop", vec![options(0)], PORTS, Fragment::Whole),
            ("all kinds", vec![options(0), options(60), options(43), authentication], PORTS, Fragment::Whole),
            ("eight", vec![options(60); 8], PORTS, Fragment::Whole),
            ("nine", vec![options(60); 9], None, Fragment::Whole),
            ("hop by hop not first", vec![options(60), options(0)], None, Fragment::Whole),
            ("512 bytes", vec![long(60, 63)], PORTS, Fragment::Whole),
            ("520 bytes", vec![long(60, 64)], None, Fragment::Whole),
            ("atomic fragment", vec![fragment(0)], PORTS, Fragment::Whole),
            ("first fragment", vec![fragment(1)], PORTS, Fragment::First),
            ("later fragment", vec![fragment(8)], None, Fragment::Later),
            ("nested fragment", vec![fragment(0), fragment(0)], None, Fragment::Whole),
        ] {
            let h = chain(&headers);
            assert_eq!((h.ports, h.fragment), (ports, seen), "{name}");
            assert_eq!(h.tuple().is_some(), ports.is_some() && seen == Fragment::Whole, "{name}");
        }
        assert_eq!(chain(&[fragment(8)]).protocol, IpProtocol::TCP, "a later piece still has a protocol");
    }

    #[test]
    fn an_ipv6_packet_cannot_claim_an_ipv4_connection() {
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let h = Headers::parse(&frames::tcp_v6(mapped, mapped, 1, 2)).unwrap();
        assert!(h.ports.is_some() && h.tuple().is_none());
    }

    #[test]
    fn every_frame_of_64_kib_is_read() {
        let payload = [frames::tcp(1234, 80), vec![0; 65_535 - 40]].concat();
        let h =
            Headers::parse(&frames::packet(Ends::V4(1.into(), 2.into()), IpProtocol::TCP, &payload)).unwrap();
        assert_eq!((h.ports, h.l3_end), (PORTS, 14 + 65_535));
    }
}
