//! Packets, rules and a netstack for the translator's tests.
#![allow(dead_code, reason = "each test file uses some of it")]

use core::cell::Cell;
use core::net::Ipv4Addr;
use std::collections::VecDeque;

use firelane_frame::{Pools, PoolsConfig};
use firelane_nat::{Arrived, Host, Nat, NatConfig, Outcome, Returned, Tuple};
use firelane_units::{
    Direction, DropReason, FilterPorts, FilterProtocol, Instant, LinkId, NatAction, NatEnd, NatLimits,
    NatPorts, NatRedirect, NatRule, NatTarget, Port, SeqNum,
};
use firelane_wire::{
    Icmpv4Repr, Icmpv4View, IpProtocol, Ipv4Repr, Ipv4View, TcpFlags, TcpOptions, TcpRepr, TcpView, UdpRepr,
    UdpView,
};

pub(crate) const WAN: LinkId = LinkId(1);
pub(crate) const LAN: LinkId = LinkId(2);
pub(crate) const OUTSIDE: &str = "192.0.2.1";
pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;

pub(crate) fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

/// A router with one address on each side, which uses some ports itself.
#[derive(Default)]
pub(crate) struct Router {
    pub(crate) used: Vec<u16>,
    /// What arrives of its own conversations.
    pub(crate) begun: Vec<Tuple>,
    /// From where on it chooses ports.
    pub(crate) chooses_from: Option<Port>,
    /// So often it was asked for the address of a link.
    pub(crate) asked: Cell<u32>,
}

impl Host for Router {
    fn owns(&self, address: Ipv4Addr) -> bool {
        [ip(OUTSIDE), ip("10.0.0.254")].contains(&address)
    }
    fn address_of(&self, link: LinkId) -> Option<Ipv4Addr> {
        self.asked.set(self.asked.get() + 1);
        (link == WAN).then(|| ip(OUTSIDE))
    }
    fn link_of(&self, address: Ipv4Addr) -> Option<LinkId> {
        [(OUTSIDE, WAN), ("10.0.0.254", LAN)]
            .into_iter()
            .find(|(its, _)| ip(its) == address)
            .map(|(_, link)| link)
    }
    fn uses(&self, arrived: &Tuple) -> bool {
        arrived.dst == ip(OUTSIDE) && self.used.contains(&arrived.ports[1])
    }
    fn chooses_from(&self, _: IpProtocol, _: Ipv4Addr) -> Option<Port> {
        self.chooses_from
    }
    fn expects(&self, arrived: &Tuple) -> bool {
        self.uses(arrived)
    }
    fn has_begun(&self, arrived: &Arrived) -> bool {
        self.begun.contains(&arrived.tuple)
    }
}

/// A translator, its router and the time.
pub(crate) struct Net {
    pub(crate) nat: Nat,
    pub(crate) router: Router,
    pub(crate) now: Instant,
    /// Of what is kept.
    pub(crate) pools: Pools,
    /// Why what travelled did not arrive.
    pub(crate) ended: Vec<DropReason>,
}

pub(crate) const fn to_link(ports: NatPorts) -> NatAction {
    NatAction::Map(NatTarget::OfLink, ports)
}

pub(crate) const RANGE: NatPorts = NatPorts::Range(Port(20_000), Port(29_999));

pub(crate) fn from_inside(action: NatAction) -> NatRule<LinkId> {
    let from = NatEnd { prefix: "10.0.0.0/24".parse().ok(), ..NatEnd::default() };
    NatRule { from, ..NatRule::new(WAN, action) }
}

/// `rdr wan 192.0.2.1/32 port PORT -> TO port TO_PORT tcp/udp`.
pub(crate) fn redirect(ports: FilterPorts, to: &str, port: u16, is_range: bool) -> NatRule<LinkId> {
    let action =
        NatAction::Redirect(NatRedirect { address: ip(to), second: None, port: Some(Port(port)), is_range });
    let to = NatEnd { prefix: "192.0.2.1/32".parse().ok(), ports, ..NatEnd::default() };
    NatRule { to, protocol: FilterProtocol::TcpUdp, ..NatRule::new(WAN, action) }
}

impl Net {
    pub(crate) fn new(rules: Vec<NatRule<LinkId>>) -> Self {
        Self::with(rules, NatLimits::default())
    }

    pub(crate) fn with(rules: Vec<NatRule<LinkId>>, limits: NatLimits) -> Self {
        let mut nat = Nat::new((3, 4));
        nat.set(NatConfig { rules, limits });
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 64 });
        Self { nat, router: Router::default(), now: Instant::from_secs(1000), pools, ended: Vec::new() }
    }

    pub(crate) fn pass(&mut self, direction: Direction, link: LinkId, packet: &mut [u8]) -> Outcome {
        self.nat.pass((direction, link), packet, false, &self.router, self.now)
    }

    /// A packet that comes in by a link and leaves by another, as it leaves.
    pub(crate) fn forward(&mut self, from: LinkId, to: LinkId, packet: &[u8]) -> Result<Vec<u8>, Outcome> {
        let mut packet = packet.to_vec();
        for (direction, link) in [(Direction::In, from), (Direction::Out, to)] {
            match self.pass(direction, link, &mut packet) {
                stopped @ (Outcome::Ended(_) | Outcome::Early(_)) => return Err(stopped),
                _ => assert!(is_whole(&packet), "its sums are right after {direction:?}"),
            }
        }
        Ok(packet)
    }

    pub(crate) fn out(&mut self, packet: &[u8]) -> Result<Vec<u8>, Outcome> {
        self.forward(LAN, WAN, packet)
    }

    pub(crate) fn back(&mut self, packet: &[u8]) -> Result<Vec<u8>, Outcome> {
        self.forward(WAN, LAN, packet)
    }

    pub(crate) fn within(&mut self, packet: &[u8]) -> Result<Vec<u8>, Outcome> {
        self.forward(LAN, LAN, packet)
    }

    /// The same of one that may have to wait, and may let others go on: all that leaves, in its order.
    pub(crate) fn travel(&mut self, (from, to): (LinkId, LinkId), packet: &[u8]) -> Vec<Vec<u8>> {
        let entered = self.pass_door(Direction::In, from, packet.to_vec());
        entered.into_iter().flat_map(|packet| self.pass_door(Direction::Out, to, packet)).collect()
    }

    fn pass_door(&mut self, direction: Direction, link: LinkId, packet: Vec<u8>) -> Vec<Vec<u8>> {
        let (mut passed, mut asking) = (Vec::new(), VecDeque::from([(link, packet)]));
        while let Some((link, mut packet)) = asking.pop_front() {
            match self.pass(direction, link, &mut packet) {
                Outcome::Untouched | Outcome::Translated(_) => {
                    assert!(is_whole(&packet), "its sums are right after {direction:?}");
                    passed.push(packet);
                }
                Outcome::Ended(reason) => self.ended.push(reason),
                Outcome::Early(piece) => {
                    let frame = self.pools.copy_of(&packet).unwrap();
                    self.nat.keep(piece, frame, self.now);
                }
            }
            asking.extend(self.returned(direction));
        }
        passed
    }

    /// What has waited.
    fn returned(&mut self, direction: Direction) -> Vec<(LinkId, Vec<u8>)> {
        let mut released = Vec::new();
        while let Some(returned) = self.nat.poll_returned(direction) {
            match returned {
                Returned::Released(link, frame) => released.push((link, frame.as_slice().to_vec())),
                Returned::Ended(_, reason) => self.ended.push(reason),
            }
        }
        released
    }

    /// What has waited for its time ends.
    pub(crate) fn expire(&mut self) {
        self.nat.on_time(self.now);
        let released = Direction::ALL.map(|direction| self.returned(direction));
        assert_eq!(released, [vec![], vec![]], "time releases nothing");
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now += core::time::Duration::from_secs(seconds);
    }
}

pub(crate) type End<'a> = (&'a str, u16);

pub(crate) fn packet(src: &str, dst: &str, protocol: IpProtocol, transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    Ipv4Repr::new(ip(src), ip(dst), protocol, transport.len() as u16).emit(&mut bytes);
    bytes.extend(transport);
    bytes
}

pub(crate) fn udp((src, from): End<'_>, (dst, to): End<'_>, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8 + payload.len()];
    datagram[8..].copy_from_slice(payload);
    let length = datagram.len() as u16;
    UdpRepr { src_port: Port(from), dst_port: Port(to), payload_len: payload.len() as u16 }
        .emit(&mut datagram);
    let pseudo = firelane_wire::Sum::pseudo_v4(ip(src), ip(dst), IpProtocol::UDP, length);
    firelane_wire::udp::fill_checksum(&mut datagram, pseudo);
    packet(src, dst, IpProtocol::UDP, &datagram)
}

/// A packet in pieces of a datagram of this number; `cuts` says where its payload is cut, in units of eight bytes.
pub(crate) fn cut(whole: &[u8], number: u16, cuts: &[usize]) -> Vec<Vec<u8>> {
    let payload = &whole[20..];
    let begins: Vec<_> = [0].into_iter().chain(cuts.iter().map(|units| units * 8)).collect();
    let ends = begins[1..].iter().copied().chain([payload.len()]);
    let piece = |(&begin, end): (&usize, usize)| {
        let mut bytes = [&whole[..20], &payload[begin..end]].concat();
        let (length, more) = (bytes.len() as u16, u16::from(end < payload.len()) << 13);
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..6].copy_from_slice(&number.to_be_bytes());
        bytes[6..8].copy_from_slice(&((begin / 8) as u16 | more).to_be_bytes());
        bytes[10..12].fill(0);
        let sum = firelane_wire::Sum::of(&bytes[..20]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    begins.iter().zip(ends).map(piece).collect()
}

/// The datagram that pieces were cut from, whatever their order; its sums are right if they all are of one.
pub(crate) fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
    let offset = |piece: &Vec<u8>| Ipv4View::parse(piece).unwrap().fragment_offset();
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(offset);
    let view = Ipv4View::parse(&pieces[0]).unwrap();
    let payload: Vec<_> = pieces.iter().flat_map(|piece| piece[20..].to_vec()).collect();
    let ends: std::collections::HashSet<_> = pieces.iter().map(|piece| piece[12..20].to_vec()).collect();
    assert_eq!(ends.len(), 1, "all are between the same two");
    packet(&view.src().to_string(), &view.dst().to_string(), view.protocol(), &payload)
}

pub(crate) fn tcp((src, from): End<'_>, (dst, to): End<'_>, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
    let options = TcpOptions { mss: flags.syn().then_some(1460), ..TcpOptions::default() };
    let repr = TcpRepr {
        src_port: Port(from),
        dst_port: Port(to),
        seq: SeqNum(1),
        ack: flags.ack().then_some(SeqNum(2)),
        flags,
        window: 1000,
        urgent: 0,
        options,
    };
    let mut segment = vec![0; repr.emitted_len()];
    repr.emit(&mut segment);
    segment.extend(payload);
    let pseudo = firelane_wire::Sum::pseudo_v4(ip(src), ip(dst), IpProtocol::TCP, segment.len() as u16);
    firelane_wire::tcp::fill_checksum(&mut segment, pseudo);
    packet(src, dst, IpProtocol::TCP, &segment)
}

pub(crate) fn echo(src: &str, dst: &str, is_answer: bool, id: u16) -> Vec<u8> {
    let data = b"echo";
    let repr = if is_answer {
        Icmpv4Repr::EchoReply { identifier: id, sequence: 1, data }
    } else {
        Icmpv4Repr::EchoRequest { identifier: id, sequence: 1, data }
    };
    let mut message = vec![0; repr.emitted_len()];
    repr.emit(&mut message);
    packet(src, dst, IpProtocol::ICMPV4, &message)
}

/// Port unreachable, about a packet that `from` has got.
pub(crate) fn unreachable(from: &str, about: &[u8]) -> Vec<u8> {
    let to = Ipv4View::parse(about).unwrap().src().to_string();
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&about[..about.len().min(28)]);
    let sum = firelane_wire::Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(from, &to, IpProtocol::ICMPV4, &message)
}

/// What an error quotes.
pub(crate) fn quote(error: &[u8]) -> &[u8] {
    &error[28..]
}

/// Source and destination, with ports or identifiers.
pub(crate) fn ends(bytes: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let view = Ipv4View::parse_quoted(bytes).unwrap();
    let at = |at: usize| u16::from_be_bytes([view.payload()[at], view.payload()[at + 1]]);
    let (from, to) = match view.protocol() {
        IpProtocol::ICMPV4 => (at(4), at(4)),
        _ => (at(0), at(2)),
    };
    ((view.src(), from), (view.dst(), to))
}

/// Its names outside, by what leaves.
pub(crate) fn seen(packet: &[u8]) -> (Ipv4Addr, u16) {
    ends(packet).0
}

/// Whether all sums of a packet are right.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let view = Ipv4View::parse(bytes).unwrap();
    let (src, dst, payload) = (view.src().into(), view.dst().into(), view.payload());
    let is_transport = view.is_fragment()
        || match view.protocol() {
            IpProtocol::TCP => TcpView::parse(payload).unwrap().is_checksum_valid(src, dst),
            IpProtocol::UDP => UdpView::parse(payload).unwrap().is_checksum_valid(src, dst),
            IpProtocol::ICMPV4 => Icmpv4View::parse(payload).unwrap().is_checksum_valid(),
            _ => true,
        };
    view.is_checksum_valid() && is_transport
}
