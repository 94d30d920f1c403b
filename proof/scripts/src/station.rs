//! The script's end of the wire: a station that answers for its address and hands on what else it gets.
//!
//! ARP and neighbour discovery are answered here, so that scripts of other protocols need not mention them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_sim::station_mac;
use firelane_units::{DropCounters, Instant, MacAddr};
use firelane_wire::{
    ArpOperation, ArpRepr, ArpView, Ecn, EtherType, EthernetRepr, EthernetView, FragmentView, Icmpv6View,
    IpProtocol, Ipv4View, Ipv6Repr, Ipv6View, NdpEnvelope, NdpMessage, NdpOption, NdpRepr, NdpView, ethernet,
    icmpv6,
};

use crate::labels::Labels;
use crate::packet::{Envelope, describe};

/// The last byte of the station's addresses, and of the netstack's.
pub(crate) const NUMBER: u8 = 2;
pub(crate) const THEIR_NUMBER: u8 = 1;

/// What came for the script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A TCP segment from the netstack's address to the station's.
    Tcp { bytes: Vec<u8>, class: Class },
    /// Another packet from the netstack's address to the station's, in words.
    Packet { words: String, class: Class },
    /// Anything else, in words.
    Other(String),
}

/// What the IP header said beside the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class {
    pub(crate) ecn: Ecn,
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    /// Its flow label is a new one; over IPv4 there is none.
    pub(crate) relabelled: Option<bool>,
}

/// The station.
pub(crate) struct Station<D> {
    end: D,
    pools: Pools,
    drops: DropCounters,
    is_v6: bool,
    pub(crate) ip: IpAddr,
    pub(crate) theirs: IpAddr,
    their_mac: MacAddr,
    mac: MacAddr,
    /// It has sent something since it was last asked.
    has_spoken: bool,
    /// Answers to its own ARP requests that have come.
    arp_replies: u64,
    /// The flow labels that have come, if the other end is held to them.
    labels: Option<Labels>,
}

/// The address of a station by its number: the simulation's numbering, which every script relies on.
pub(crate) fn address(number: u8, is_v6: bool) -> IpAddr {
    if is_v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, number).into()
    }
}

impl<D: Driver> Station<D> {
    /// At the other end of the wire from station [`THEIR_NUMBER`].
    pub(crate) fn new(end: D, is_v6: bool) -> Self {
        Self {
            end,
            pools: Pools::new(PoolsConfig { small_slots: 256, large_slots: 4 }),
            drops: DropCounters::default(),
            is_v6,
            ip: address(NUMBER, is_v6),
            theirs: address(THEIR_NUMBER, is_v6),
            their_mac: station_mac(THEIR_NUMBER),
            mac: station_mac(NUMBER),
            has_spoken: false,
            arp_replies: 0,
            labels: None,
        }
    }

    /// Whatever comes over IPv6 from here on has its flow's label, or is shown as wrong.
    pub(crate) fn expect_labels(&mut self) {
        self.labels = Some(Labels::default());
    }

    /// Asks for the netstack's Ethernet address. Who answers has dealt with all that came before the question.
    pub(crate) fn ask(&mut self, now: Instant) {
        let request = ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: self.mac,
            sender_ip: Ipv4Addr::new(10, 0, 0, NUMBER),
            target_mac: MacAddr::ZERO,
            target_ip: Ipv4Addr::new(10, 0, 0, THEIR_NUMBER),
        };
        let mut packet = vec![0; request.emitted_len()];
        request.emit(&mut packet);
        self.send_frame(now, MacAddr::BROADCAST, EtherType::ARP, &[&packet]);
    }

    /// How many of its questions were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.arp_replies
    }

    /// Whether it has sent nothing since the last question.
    pub(crate) fn take_silence(&mut self) -> bool {
        !core::mem::take(&mut self.has_spoken)
    }

    /// Sends an IP packet: what it carries, and what is unusual about it.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        protocol: IpProtocol,
        ecn: Ecn,
        payload: &[u8],
    ) {
        let (src, dst) = self.ends(envelope);
        let packet = envelope.wrap((src, dst), protocol, ecn, payload);
        let ethertype = if self.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mac = match () {
            () if envelope.broadcast => MacAddr::BROADCAST,
            () if dst.is_multicast() => ethernet::group_mac(dst),
            () => self.their_mac,
        };
        self.send_frame(now, mac, ethertype, &[&packet]);
    }

    /// Its address moves to another card, and it tells nobody.
    pub(crate) fn moves(&mut self) {
        self.mac = station_mac(NUMBER + 100);
        // What went to the old card was not seen.
        self.labels = self.labels.take().map(|_| Labels::default());
    }

    /// From whom and to whom a packet goes: usually from the station to the netstack.
    pub(crate) fn ends(&self, envelope: &Envelope) -> (IpAddr, IpAddr) {
        let dst = if envelope.to_all { self.everybody() } else { envelope.to.unwrap_or(self.theirs) };
        (envelope.from.unwrap_or(self.ip), dst)
    }

    /// The group that every station of the link belongs to.
    fn everybody(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(_) => Ipv4Addr::new(224, 0, 0, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    fn send_frame(&mut self, now: Instant, dst: MacAddr, ethertype: EtherType, parts: &[&[u8]]) {
        let mut bytes = vec![0; 14];
        EthernetRepr { dst, src: self.mac, ethertype }.emit(&mut bytes);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(&bytes).expect("the station's pool is large enough"));
        self.end.advance(now);
        self.end.transmit(&mut chain, &mut self.drops);
        self.has_spoken = true;
        assert_eq!(self.drops.total(), 0, "the script's wire takes every frame");
    }

    /// What has arrived. Questions for the station's address are answered.
    pub(crate) fn receive(&mut self, now: Instant) -> Vec<Seen> {
        let mut chain = Chain::new();
        self.end.advance(now);
        while self.end.receive(&mut self.pools, 64, &mut chain, &mut self.drops) > 0 {}
        self.end.notify(true);
        let frames: Vec<Vec<u8>> = chain.drain().map(|frame| frame.as_slice().to_vec()).collect();
        frames.iter().filter_map(|frame| self.look_at(now, frame)).collect()
    }

    fn look_at(&mut self, now: Instant, frame: &[u8]) -> Option<Seen> {
        let ethernet = EthernetView::parse(frame).expect("the netstack sends whole frames");
        if ethernet.dst().is_unicast() && ethernet.dst() != self.mac {
            return None;
        }
        let payload = ethernet.payload();
        match ethernet.ethertype() {
            EtherType::ARP => self.on_arp(now, payload),
            EtherType::IPV4 => {
                let Ok(ip) = Ipv4View::parse(payload) else { return other("a bad IPv4 packet") };
                if !ip.is_checksum_valid() {
                    return other("an IPv4 header with a wrong checksum");
                }
                let ends = (ip.src().into(), ip.dst().into());
                if ip.is_fragment() {
                    let (from, len) = (usize::from(ip.fragment_offset()), ip.payload().len());
                    return other(&fragment(from, len, ip.more_fragments()));
                }
                let class = Class { ecn: ip.ecn(), ttl: ip.ttl(), dscp: ip.dscp(), relabelled: None };
                self.on_packet(now, ends, ip.protocol(), class, ip.payload())
            }
            EtherType::IPV6 => {
                let Ok(ip) = Ipv6View::parse(payload) else { return other("a bad IPv6 packet") };
                let ends = (ip.src().into(), ip.dst().into());
                if ip.next_header() == IpProtocol::FRAGMENT
                    && let Ok(piece) = FragmentView::parse(ip.payload())
                {
                    let (from, len) = (usize::from(piece.offset()), piece.payload().len());
                    return other(&fragment(from, len, piece.more()));
                }
                let relabelled = match self.labels.as_mut().map(|labels| labels.note(&ip)).transpose() {
                    Ok(relabelled) => relabelled,
                    Err(what) => return other(&what),
                };
                let class = Class { ecn: ip.ecn(), ttl: ip.hop_limit(), dscp: ip.dscp(), relabelled };
                self.on_packet(now, ends, ip.next_header(), class, ip.payload())
            }
            ethertype => other(&format!("a frame of type {:04x}", ethertype.0)),
        }
    }

    fn on_packet(
        &mut self,
        now: Instant,
        ends: (IpAddr, IpAddr),
        protocol: IpProtocol,
        class: Class,
        payload: &[u8],
    ) -> Option<Seen> {
        if let (IpProtocol::ICMPV6, (IpAddr::V6(src), IpAddr::V6(dst))) = (protocol, ends)
            && let Some(seen) = self.on_icmpv6(now, src, dst, payload)
        {
            return seen;
        }
        if ends != (self.theirs, self.ip) {
            return other(&format!("a packet from {} to {}", ends.0, ends.1));
        }
        match protocol {
            IpProtocol::TCP => Some(Seen::Tcp { bytes: payload.to_vec(), class }),
            protocol => Some(Seen::Packet { words: describe(ends.0, ends.1, protocol, payload), class }),
        }
    }

    fn on_arp(&mut self, now: Instant, bytes: &[u8]) -> Option<Seen> {
        let view = ArpView::parse(bytes).expect("the netstack sends whole ARP packets");
        self.arp_replies += u64::from(view.operation() == ArpOperation::Reply);
        if view.operation() == ArpOperation::Request && IpAddr::V4(view.target_ip()) == self.ip {
            let reply = ArpRepr::parse(&view).reply_from(self.mac);
            let mut packet = vec![0; reply.emitted_len()];
            reply.emit(&mut packet);
            self.send_frame(now, view.sender_mac(), EtherType::ARP, &[&packet]);
        }
        None
    }

    /// Neighbour discovery is answered here; `None` is another message.
    fn on_icmpv6(
        &mut self,
        now: Instant,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        bytes: &[u8],
    ) -> Option<Option<Seen>> {
        let Ok(icmp) = Icmpv6View::parse(bytes) else { return Some(other("a bad ICMPv6 message")) };
        if !icmp.is_neighbour_discovery() {
            return None;
        }
        let envelope = NdpEnvelope { src, dst, hop_limit: 255 };
        let Ok(ndp) = NdpView::parse(&envelope, bytes) else { return Some(other("a bad NDP message")) };
        if let NdpMessage::NeighbourSolicit { target } = ndp.message()
            && IpAddr::V6(target) == self.ip
            && !src.is_unspecified()
        {
            self.advertise(now, target, src);
        }
        Some(None)
    }

    /// Answers a neighbour solicitation.
    fn advertise(&mut self, now: Instant, target: Ipv6Addr, to: Ipv6Addr) {
        let message = NdpMessage::NeighbourAdvert { target, router: false, solicited: true, replace: true };
        let options = [NdpOption::TargetLinkLayer(self.mac)];
        let repr = NdpRepr { message, options: &options };
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        icmpv6::fill_checksum(&mut bytes, target, to);
        let header = ipv6_header(target, to, IpProtocol::ICMPV6, Ecn::NotCapable, bytes.len());
        self.send_frame(now, self.their_mac, EtherType::IPV6, &[&header, &bytes]);
    }
}

/// A piece of a datagram, in the words of a line.
fn fragment(from: usize, len: usize, more: bool) -> String {
    format!("fragment {from}:{}{}", from + len, if more { " more" } else { "" })
}

fn other(what: &str) -> Option<Seen> {
    Some(Seen::Other(what.to_owned()))
}

fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, ecn: Ecn, len: usize) -> Vec<u8> {
    let mut repr = Ipv6Repr::new(src, dst, protocol, len as u16);
    repr.ecn = ecn;
    if protocol == IpProtocol::ICMPV6 {
        repr.hop_limit = 255;
    }
    let mut bytes = vec![0; repr.emitted_len()];
    repr.emit(&mut bytes);
    bytes
}
