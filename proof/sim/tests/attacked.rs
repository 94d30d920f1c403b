//! What a connection keeps of its rate while a neighbour of its hosts sends them anything he likes, and what remains afterwards: in
//! virtual time, so that what counts is what the stack believes, not how fast it is.

mod endless;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use firelane_driver_memory::{Conditions, End};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_lane::StreamInfo;
use firelane_sim::{
    App, Cx, HostConfig, Next, Plug, Random, Sim, SocketConfig, StackConfig, StackId, station_mac,
};
use firelane_units::{BitRate, Bytes, DropCounters, MacAddr, Mtu, Port, SeqNum};
use firelane_wire::checksum::Sum;
use firelane_wire::{
    ArpRepr, EtherType, EthernetRepr, FragmentRepr, Icmpv4Repr, Icmpv4Unreachable, IpProtocol, Ipv4Repr,
    Ipv6Repr, TcpFlags, TcpOptions, TcpRepr, UdpRepr, icmpv6, tcp, udp,
};

use endless::{Sink, Source};

const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(1);
/// Between two frames of the attacker's to each host: 10,000 a second.
const EVERY: Duration = Duration::from_micros(100);
/// After this everything that an attack has made is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
const ATTACKER: u8 = 66;
/// A connection keeps at least so much of its rate, in percent.
const KEPT: u64 = 95;

/// What the attacker sends. Of the connection he knows everything but its sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    Nothing,
    /// Connections that never end their handshake, from any address.
    Syns,
    /// Segments of the connection with these flags.
    Blind(TcpFlags),
    /// Text of the connection.
    Text,
    /// "Your packets are too large", of the connection.
    TooLarge,
    /// "Nobody is there", of the connection.
    Unreachable,
    /// First fragments of packets that never get whole, from any address.
    Fragments,
    /// Datagrams to ports where nobody is.
    Datagrams,
    /// Questions for his address from every other, which go to him alone: sent to all they would take their share of the wire.
    Scan,
    /// "Your address is mine", to its owner alone: who else heard it would believe it, as ARP is, and neighbour discovery.
    Claims,
    /// A header, and then anything.
    Noise,
}

const ATTACKS: [Attack; 14] = [
    Attack::Syns,
    Attack::Blind(TcpFlags::RST),
    Attack::Blind(TcpFlags::SYN),
    Attack::Blind(TcpFlags::FIN),
    Attack::Blind(TcpFlags::EMPTY),
    Attack::Blind(TcpFlags::URG),
    Attack::Text,
    Attack::TooLarge,
    Attack::Unreachable,
    Attack::Fragments,
    Attack::Datagrams,
    Attack::Scan,
    Attack::Claims,
    Attack::Noise,
];

/// One host of the connection, as the attacker sees it.
#[derive(Clone, Copy, Debug)]
struct Victim {
    mac: MacAddr,
    own: SocketAddr,
    peer: SocketAddr,
}

/// Anybody but the two hosts.
fn anybody(random: &mut Random, v6: bool) -> IpAddr {
    let n = random.below(1 << 16) as u16;
    match v6 {
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into(),
        false => Ipv4Addr::from(0xc633_0000 | u32::from(n)).into(),
    }
}

fn frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    EthernetRepr { dst, src: station_mac(ATTACKER), ethertype }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// A packet of either family.
fn packet(from: IpAddr, to: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16;
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0; 20];
            Ipv4Repr::new(from, to, protocol, len).emit(&mut header);
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0; 40];
            // As neighbour discovery wants it.
            Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(from, to, protocol, len) }.emit(&mut header);
            header
        }
        _ => panic!("both are of one family"),
    };
    packet.extend_from_slice(payload);
    packet
}

/// A segment with any sequence numbers.
fn segment(random: &mut Random, from: SocketAddr, to: SocketAddr, flags: TcpFlags, text: &[u8]) -> Vec<u8> {
    let has_ack = flags != TcpFlags::SYN;
    let repr = TcpRepr {
        src_port: Port(from.port()),
        dst_port: Port(to.port()),
        seq: SeqNum(random.bits() as u32),
        ack: has_ack.then(|| SeqNum(random.bits() as u32)),
        flags,
        window: random.bits() as u16,
        urgent: random.bits() as u16,
        options: TcpOptions::default(),
    };
    let mut bytes = vec![0; 20];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(text);
    let pseudo = Sum::pseudo(from.ip(), to.ip(), IpProtocol::TCP, bytes.len() as u32);
    tcp::fill_checksum(&mut bytes, pseudo);
    packet(from.ip(), to.ip(), IpProtocol::TCP, &bytes)
}

/// What a router says of a segment of the victim's that it has not seen: that it is too large for this MTU, or that nobody is there.
fn complaint(random: &mut Random, victim: &Victim, mtu: Option<u16>) -> Vec<u8> {
    let quoted = segment(random, victim.own, victim.peer, TcpFlags::EMPTY, &[]);
    match victim.own.ip() {
        IpAddr::V4(_) => {
            let reasons = [Icmpv4Unreachable::Host, Icmpv4Unreachable::Port, Icmpv4Unreachable::Protocol];
            let other = random.pick(&reasons);
            let reason = mtu.map_or(other, |mtu| Icmpv4Unreachable::FragmentationNeeded { mtu });
            let message = Icmpv4Repr::Unreachable { reason, quoted: &quoted[..28] };
            let mut bytes = vec![0; message.emitted_len()];
            message.emit(&mut bytes);
            packet(anybody(random, false), victim.own.ip(), IpProtocol::ICMPV4, &bytes)
        }
        IpAddr::V6(own) => {
            let (kind, word) = mtu.map_or((1, 0), |mtu| (2, u32::from(mtu)));
            let code = if kind == 1 { random.pick(&[0, 3, 4]) } else { 0 };
            let IpAddr::V6(from) = anybody(random, true) else { panic!("of the same family") };
            packet(
                from.into(),
                own.into(),
                IpProtocol::ICMPV6,
                &icmpv6(from, own, (kind, code), word, &quoted),
            )
        }
    }
}

/// A message of ICMPv6.
fn icmpv6(from: Ipv6Addr, to: Ipv6Addr, (kind, code): (u8, u8), word: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(word.to_be_bytes());
    bytes.extend_from_slice(rest);
    icmpv6::fill_checksum(&mut bytes, from, to);
    bytes
}

/// The first fragment of a packet that has no other.
fn fragment(random: &mut Random, to: IpAddr) -> Vec<u8> {
    let (from, text) = (anybody(random, to.is_ipv6()), [0x66; 1024]);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes = vec![0; 20];
            let whole = Ipv4Repr::new(from, to, IpProtocol::UDP, text.len() as u16);
            let identification = random.bits() as u16;
            Ipv4Repr { identification, dont_fragment: false, more_fragments: true, ..whole }.emit(&mut bytes);
            bytes.extend(text);
            bytes
        }
        _ => {
            let identification = random.bits() as u32;
            let repr = FragmentRepr { next_header: IpProtocol::UDP, offset: 0, more: true, identification };
            let mut bytes = vec![0; repr.emitted_len()];
            repr.emit(&mut bytes);
            bytes.extend(text);
            packet(from, to, IpProtocol::FRAGMENT, &bytes)
        }
    }
}

/// Who asks for the victim's address, and says that he is any neighbour; or who claims the address.
fn neighbour(random: &mut Random, victim: &Victim, is_claim: bool) -> Vec<u8> {
    let n = 100 + random.below(100) as u8;
    match victim.own.ip() {
        IpAddr::V4(own) => {
            let mac = station_mac(ATTACKER);
            let repr = match is_claim {
                true => ArpRepr::announcement(mac, own),
                false => ArpRepr::request(mac, Ipv4Addr::new(10, 0, 0, n), own),
            };
            let mut bytes = vec![0; repr.emitted_len()];
            repr.emit(&mut bytes);
            frame(victim.mac, EtherType::ARP, &bytes)
        }
        IpAddr::V6(own) => {
            let asker = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into());
            // An advertisement of the victim's address that replaces what is known, or a question; either with the own Ethernet address.
            let (from, kind, word, option) = match is_claim {
                true => (own, 136, 1 << 29, 2),
                false => (asker, 135, 0, 1),
            };
            let mut rest = own.octets().to_vec();
            rest.extend([option, 1]);
            rest.extend(station_mac(ATTACKER).0);
            let bytes = icmpv6(from, own, (kind, 0), word, &rest);
            frame(victim.mac, EtherType::IPV6, &packet(from.into(), own.into(), IpProtocol::ICMPV6, &bytes))
        }
    }
}

impl Attack {
    fn frame(self, random: &mut Random, victim: &Victim) -> Vec<u8> {
        let to = victim.own.ip();
        let v6 = to.is_ipv6();
        let stranger = SocketAddr::new(anybody(random, v6), 1024 + random.below(60_000) as u16);
        let bytes = match self {
            Self::Nothing => Vec::new(),
            Self::Syns => segment(random, stranger, victim.own, TcpFlags::SYN, &[]),
            Self::Blind(flags) => segment(random, victim.peer, victim.own, flags, &[]),
            Self::Text => segment(random, victim.peer, victim.own, TcpFlags::PSH, &[0x66; 32]),
            Self::TooLarge => {
                let mtu = random.within(0..1500) as u16;
                complaint(random, victim, Some(mtu))
            }
            Self::Unreachable => complaint(random, victim, None),
            Self::Fragments => fragment(random, to),
            Self::Datagrams => {
                let dst_port = Port(30_000 + random.below(30_000) as u16);
                let mut bytes = vec![0; 8];
                UdpRepr { src_port: Port(9), dst_port, payload_len: 4 }.emit(&mut bytes);
                bytes.extend_from_slice(b"what");
                udp::fill_checksum(&mut bytes, Sum::pseudo(stranger.ip(), to, IpProtocol::UDP, 12));
                packet(stranger.ip(), to, IpProtocol::UDP, &bytes)
            }
            Self::Scan => return neighbour(random, victim, false),
            Self::Claims => return neighbour(random, victim, true),
            Self::Noise => {
                let len = random.within(0..200) as usize;
                let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
                packet(stranger.ip(), to, IpProtocol(random.bits() as u8), &bytes)
            }
        };
        frame(victim.mac, if v6 { EtherType::IPV6 } else { EtherType::IPV4 }, &bytes)
    }
}

/// Sits at the switch of each host.
struct Attacker {
    attack: Attack,
    ends: [End; 2],
    hosts: [StackId; 2],
    known: Rc<RefCell<Vec<Option<StreamInfo>>>>,
    pools: Pools,
    drops: DropCounters,
    random: Random,
    sent: Rc<RefCell<u64>>,
    until: firelane_units::Instant,
}

impl App for Attacker {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        let now = cx.now();
        if now >= self.until || self.attack == Attack::Nothing {
            return Next::Done;
        }
        if let Some(info) = self.known.borrow()[0] {
            let pairs = [(info.local, info.remote), (info.remote, info.local)];
            for ((end, (own, peer)), host) in self.ends.iter_mut().zip(pairs).zip(self.hosts) {
                let victim = Victim { mac: station_mac(host.number), own, peer };
                let bytes = self.attack.frame(&mut self.random, &victim);
                let mut chain = Chain::new();
                chain.push(self.pools.copy_of(&bytes).expect("what was sent came back"));
                end.advance(now);
                end.transmit(&mut chain, &mut self.drops);
                // What he is answered he does not read.
                end.receive(&mut self.pools, usize::MAX, &mut chain, &mut self.drops);
                *self.sent.borrow_mut() += 1;
            }
        }
        Next::Until(now + EVERY)
    }

    fn describe(&self) -> String {
        format!("an attacker: {:?}", self.attack)
    }
}

/// Bytes that arrived in [`SPAN`]; nothing of the attack remains.
fn goodput(attack: Attack, v6: bool) -> u64 {
    let mut sim = Sim::new(7);
    let [from, to] = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig::new(number))
    });
    let plain = Conditions {
        rate: Some(BitRate::from_mbps(100)),
        queue: Bytes(100_000),
        delay: Duration::from_millis(2),
        ..Conditions::default()
    };
    let (a, b) = (sim.uplink(0), sim.uplink(1));
    let wire = sim.connect(a, b, Mtu::ETHERNET, plain.clone(), plain.clone());
    let ends = [a, b]
        .map(|uplink| sim.dangle_at(Plug { vnic: Some(station_mac(ATTACKER)), ..uplink }, Mtu::ETHERNET));
    let mut sockets = SocketConfig::of(1 << 20);
    sockets.options.keepalive = None;
    let (count, sent) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(0)));
    let known = Rc::new(RefCell::new(vec![None]));
    sim.spawn(Box::new(Sink {
        v6,
        at: to,
        sockets,
        listener: None,
        streams: Vec::new(),
        count: Rc::clone(&count),
    }));
    sim.settle();
    sim.spawn(Box::new(Source { v6, from, to, sockets, stream: None, known: Rc::clone(&known), n: 0 }));
    sim.run_for(WARM_UP);
    let random = sim.random().fork();
    sim.spawn(Box::new(Attacker {
        attack,
        ends,
        hosts: [from, to],
        known,
        pools: Pools::new(PoolsConfig { small_slots: 4096, large_slots: 16 }),
        drops: DropCounters::default(),
        random,
        sent: Rc::clone(&sent),
        until: sim.now() + SPAN,
    }));
    let before = *count.borrow();
    sim.run_for(SPAN);
    let got = *count.borrow() - before;
    assert!(attack == Attack::Nothing || *sent.borrow() > 15_000, "{attack:?}: {} frames", sent.borrow());
    // Slowly, because what the connection does meanwhile is of no interest.
    sim.wire(wire).set(&Conditions { rate: Some(BitRate::from_mbps(1)), ..plain });
    sim.run_for(FORGOTTEN);
    let now = sim.now();
    for host in sim.hosts() {
        for lane in host.snapshots(now) {
            assert_eq!(lane.half_open, 0, "{attack:?}");
            assert!(lane.held < 500 && lane.connections <= 1, "{attack:?}: {} frames", lane.held);
        }
    }
    got
}

#[test]
fn a_connection_keeps_its_rate_whatever_a_neighbour_sends() {
    for v6 in [false, true] {
        let alone = goodput(Attack::Nothing, v6);
        assert!(alone > 10_000_000, "{alone} bytes");
        for attack in ATTACKS {
            let kept = goodput(attack, v6) * 100 / alone;
            assert!(kept >= KEPT, "{attack:?}, IPv6 {v6}: {kept} %");
        }
    }
}
