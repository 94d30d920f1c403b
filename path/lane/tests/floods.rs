//! Floods against a listener from sources that nobody can reach back: R01, R02 and R08 of the attack list.

use std::net::Ipv4Addr;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Frame, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_socket::ListenerEnd;
use firelane_units::{DropReason, FlowId, LaneId, LinkId, Mtu, NetstackId, Port, SeqNum};
use firelane_wire::{
    ArpRepr, ArpView, EtherType, EthernetRepr, EthernetView, IpProtocol, Ipv4Repr, Ipv4View, TcpFlags,
    TcpOptions, TcpRepr, TcpView, tcp,
};
use firelane_world::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const SERVICE: Port = Port(80);
/// An iteration of the flood: what fits a ring.
const BATCH: usize = 500;

/// A netstack behind a wire whose other end is the test: the gateway to everybody.
pub(crate) struct Target {
    pub(crate) world: World,
    outside: RingDriver,
    pools: Pools,
    random: u64,
}

/// A segment for the service, or one that it sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) peer: (Ipv4Addr, Port),
    pub(crate) seq: SeqNum,
    pub(crate) ack: Option<SeqNum>,
    pub(crate) flags: TcpFlags,
    pub(crate) options: TcpOptions,
}

impl Target {
    pub(crate) fn new(lanes: u16) -> Self {
        let mut world = World::new(lanes);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
        let (inside, outside) = wire(Capabilities::plain(Mtu::ETHERNET));
        let (kind, user) = (PortKind::Uplink, PortUser::Driver { through: LaneId(0) });
        world.add_port(PortConfig { id: LinkId(0), over: LinkId(0), kind, user }, vec![inside.into()]);
        let id = NetstackId(1);
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, ..NetstackConfig::new(id) };
        world.all(|| Control::AddNetstack(config.clone()));
        world.add_flow(plain_flow(FlowId(1), LinkId(1), None, None));
        world.add_port(vnic(1, 0, 1, 1, PortUser::Netstack(id)), vec![]);
        world.all(|| Control::AddAddress(id, LinkId(1), "10.0.0.1/24".parse().expect("a prefix")));
        let destination = "0.0.0.0/0".parse().expect("a prefix");
        let route = RouteConfig::via(destination, GATEWAY.into());
        world.all(|| Control::AddRoute(id, route));
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 16 });
        let mut target = Self { world, outside, pools, random: 1 };
        target.world.run_for(Duration::from_secs(3));
        target.segments();
        // Every lane has asked for the gateway before the flood, so that no answer has to wait for it.
        for _ in 0..16 {
            let peer = target.nobody();
            let syn = target.syn(peer);
            target.send(syn);
            target.segments();
        }
        target
    }

    fn random(&mut self) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }

    /// An address that answers nothing, and a port.
    fn nobody(&mut self) -> (Ipv4Addr, Port) {
        let n = self.random();
        (Ipv4Addr::from_bits(0x1000_0000 | n >> 4), Port(self.random() as u16 | 1))
    }

    fn push(&mut self, frame: Frame) {
        let mut chain = Chain::new();
        chain.push(frame);
        self.outside.tx.push_chain(&mut chain);
        assert!(chain.is_empty(), "the batches fit the ring");
    }

    fn frame(&mut self, ethertype: EtherType, payload: &[u8]) -> Frame {
        let mut bytes = vec![0; 14];
        EthernetRepr { dst: mac(1), src: mac(9), ethertype }.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        self.pools.copy_of(&bytes).expect("the test's pool is large enough")
    }

    pub(crate) fn send(&mut self, segment: Segment) {
        let Segment { peer: (ip, port), seq, ack, flags, options } = segment;
        let (window, urgent) = (65_535, 0);
        let repr = TcpRepr { src_port: port, dst_port: SERVICE, seq, ack, flags, window, urgent, options };
        let mut packet = vec![0; 20 + repr.emitted_len()];
        let header = Ipv4Repr::new(ip, HOST, IpProtocol::TCP, repr.emitted_len() as u16);
        header.emit(&mut packet);
        repr.emit(&mut packet[20..]);
        tcp::fill_checksum(&mut packet[20..], header.pseudo_header());
        let frame = self.frame(EtherType::IPV4, &packet);
        self.push(frame);
    }

    /// Lets the lanes work; what came out. Questions for the gateway's address are answered.
    pub(crate) fn segments(&mut self) -> Vec<Segment> {
        let mut segments = Vec::new();
        loop {
            self.world.run();
            let mut chain = Chain::new();
            self.outside.rx.pop_into(&mut chain, usize::MAX);
            if chain.is_empty() {
                return segments;
            }
            while let Some(frame) = chain.pop() {
                let ethernet = EthernetView::parse(frame.as_slice()).expect("a frame");
                if ethernet.ethertype() == EtherType::ARP {
                    let asked = ArpRepr::parse(&ArpView::parse(ethernet.payload()).expect("ARP"));
                    if asked.target_ip == GATEWAY {
                        let mut answer = vec![0; 28];
                        asked.reply_from(mac(9)).emit(&mut answer);
                        let answer = self.frame(EtherType::ARP, &answer);
                        self.push(answer);
                    }
                } else if ethernet.ethertype() == EtherType::IPV4 {
                    let ip = Ipv4View::parse(ethernet.payload()).expect("a packet");
                    let view = TcpView::parse(ip.payload()).expect("a segment");
                    let (peer, seq, ack) = ((ip.dst(), view.dst_port()), view.seq(), view.ack());
                    let (flags, options) = (view.flags(), view.options());
                    segments.push(Segment { peer, seq, ack, flags, options });
                }
                self.pools.put(frame);
            }
        }
    }

    pub(crate) fn syn(&mut self, peer: (Ipv4Addr, Port)) -> Segment {
        let seq = SeqNum(self.random());
        let options = TcpOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((self.random(), 0)),
            ..TcpOptions::EMPTY
        };
        Segment { peer, seq, ack: None, flags: TcpFlags::SYN, options }
    }

    pub(crate) fn sum(&self, of: impl Fn(&Snapshot) -> u64) -> u64 {
        self.world.lanes.iter().map(|lane| of(&lane.snapshot())).sum()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.world.counters().drops.of(reason)
    }
}

/// The third segment of a handshake whose second was `answer`.
pub(crate) fn third(syn: &Segment, answer: &Segment) -> Segment {
    let stamps = syn.options.timestamps.zip(answer.options.timestamps);
    let timestamps = stamps.map(|((mine, _), (theirs, _))| (mine.wrapping_add(1), theirs));
    let options = TcpOptions { timestamps, ..TcpOptions::EMPTY };
    Segment { seq: syn.seq + 1, ack: Some(answer.seq + 1), flags: TcpFlags::ACK, options, ..*syn }
}

fn accepted(listener: &ListenerEnd) -> usize {
    std::iter::from_fn(|| listener.accept()).count()
}

/// R01: beyond the half-open limit a flood of SYNs costs nothing, and whoever answers is served.
#[test]
fn r01_a_syn_flood_keeps_nobody_out() {
    for lanes in [1, 2] {
        let mut target = Target::new(lanes);
        let listener = target.world.listen(1, 1, "10.0.0.1:80", 64);
        let (mut sent, mut served) = (0, 0);
        for round in 0..8 {
            for _ in 0..BATCH {
                let peer = target.nobody();
                let syn = target.syn(peer);
                target.send(syn);
            }
            let client = (Ipv4Addr::new(192, 0, 2, 1), Port(30_000 + round));
            let syn = target.syn(client);
            target.send(syn);
            sent += BATCH as u64 + 1;
            let answers = target.segments();
            assert_eq!(answers.len(), BATCH + 1, "every SYN is answered");
            let answer = answers.iter().find(|answer| answer.peer == client).expect("so is the client's");
            target.send(third(&syn, answer));
            assert_eq!(target.segments().len(), 0);
            served += accepted(&listener);
            // 500 SYNs in half a millisecond: a million in a second.
            target.world.run_for(Duration::from_micros(500));
        }
        assert_eq!(served, 8, "every client was served");
        let half_open = target.sum(|it| it.half_open as u64);
        assert!(half_open <= u64::from(lanes) * 1024, "{half_open}");
        let cookies = |it: &Snapshot| it.syn.cookies_sent - it.syn.cookies_accepted + it.half_open as u64;
        assert_eq!(target.sum(cookies), sent - 8, "each SYN was one or the other");
        assert_eq!(target.sum(|it| it.syn.cookies_failed), 0);
        target.world.check_conservation();
        target.world.run_for(Duration::from_secs(70));
        assert_eq!(target.sum(|it| it.half_open as u64), 0, "the flood has left nothing behind");
    }
}

/// R02: a flood of ACKs with guessed cookies, and of FINs and RSTs for nobody, makes no state and is counted.
#[test]
fn r02_guesses_and_strays_leave_no_state() {
    let mut target = Target::new(1);
    let _listener = target.world.listen(1, 1, "10.0.0.1:80", 64);
    // Cookies must be out, or no ACK is looked at as one.
    let mut opened = 0;
    while target.sum(|it| it.syn.cookies_sent) == 0 {
        for _ in 0..BATCH {
            let peer = target.nobody();
            let syn = target.syn(peer);
            target.send(syn);
        }
        opened += target.segments().len();
    }
    let before = target.sum(|it| it.half_open as u64);
    let flags = [TcpFlags::ACK, TcpFlags::ACK | TcpFlags::FIN, TcpFlags::RST, TcpFlags::RST | TcpFlags::ACK];
    for _ in 0..20 {
        for n in 0..BATCH {
            let (peer, flags) = (target.nobody(), flags[n % flags.len()]);
            let ack = flags.contains(TcpFlags::ACK).then_some(SeqNum(target.random()));
            let (seq, options) = (SeqNum(target.random()), TcpOptions::EMPTY);
            target.send(Segment { peer, seq, ack, flags, options });
        }
        let answers = target.segments();
        assert!(answers.iter().all(|answer| answer.flags.contains(TcpFlags::RST)), "resets at most");
    }
    let half = 20 * BATCH as u64 / 2;
    assert_eq!((target.sum(|it| it.syn.cookies_failed), target.dropped(DropReason::BadCookie)), (half, half));
    assert_eq!(target.dropped(DropReason::Unacceptable), half, "a RST is no cookie");
    assert_eq!(target.sum(|it| it.syn.cookies_accepted + it.connections as u64 + it.time_wait as u64), 0);
    assert_eq!((target.sum(|it| it.half_open as u64), opened % BATCH), (before, 0));
    target.world.check_conservation();
}

/// What is old earns an ending connection's acknowledgment as often as challenges go in a second, and its peer's FIN each time.
#[test]
fn a_connection_in_time_wait_does_not_answer_a_flood() {
    let mut target = Target::new(1);
    let listener = target.world.listen(1, 1, "10.0.0.1:80", 8);
    let syn = target.syn((Ipv4Addr::new(192, 0, 2, 1), Port(5000)));
    target.send(syn);
    let answer = target.segments()[0];
    let ack = third(&syn, &answer);
    target.send(ack);
    target.segments();
    let server = listener.accept().expect("the handshake is over").stream;
    target.world.command(&server, SocketCommand::Close);
    assert!(target.segments()[0].flags.contains(TcpFlags::FIN));
    let fin = Segment { ack: ack.ack.map(|ack| ack + 1), flags: TcpFlags::FIN | TcpFlags::ACK, ..ack };
    target.send(fin);
    assert_eq!((target.segments().len(), target.sum(|it| it.time_wait as u64)), (1, 1));
    let mut answers = 0;
    for _ in 0..8 {
        (0..BATCH).for_each(|_| target.send(Segment { seq: fin.seq - 1000, flags: TcpFlags::ACK, ..fin }));
        answers += target.segments().len();
    }
    assert!((500..1600).contains(&answers), "{answers} of {}", 8 * BATCH);
    for _ in 0..3 {
        target.send(fin);
        assert_eq!(target.segments().len(), 1, "its acknowledgment was lost");
    }
    // Where nobody listens any more a SYN opens nothing, and leaves it there for the next FIN.
    drop(listener);
    target.world.run();
    target.send(Segment { seq: fin.seq + 9, ack: None, flags: TcpFlags::SYN, ..fin });
    target.send(fin);
    let answers = target.segments();
    assert!(answers.last().is_some_and(|it| it.flags == TcpFlags::ACK), "{answers:?}");
    assert_eq!(target.sum(|it| it.time_wait as u64), 1);
    target.world.check_conservation();
}

/// R08: with the accept queue full, SYNs and last ACKs are dropped, not answered with a RST, and who tries again
/// after the program has accepted is served.
#[test]
fn r08_a_full_accept_queue_drops_and_does_not_reset() {
    let mut target = Target::new(1);
    let listener = target.world.listen(1, 1, "10.0.0.1:80", 2);
    let peers: Vec<_> = (0..4).map(|n| (Ipv4Addr::new(192, 0, 2, 1), Port(5000 + n))).collect();
    let syns: Vec<Segment> = peers.iter().map(|&peer| target.syn(peer)).collect();
    syns.iter().for_each(|&syn| target.send(syn));
    let answers = target.segments();
    assert_eq!(answers.len(), 4, "nothing waits yet");
    for (syn, answer) in syns.iter().zip(&answers) {
        target.send(third(syn, answer));
    }
    let late = target.syn((Ipv4Addr::new(192, 0, 2, 2), Port(5000)));
    target.send(late);
    assert_eq!(target.segments().len(), 0, "neither SYN-ACK nor RST");
    assert_eq!((target.dropped(DropReason::ListenFull), target.sum(|it| it.half_open as u64)), (3, 2));
    assert_eq!(accepted(&listener), 2);
    // The SYN-ACKs come again, and so do the ACKs.
    target.world.run_for(Duration::from_millis(1100));
    let again = target.segments();
    assert_eq!(again.len(), 2);
    for answer in &again {
        let syn = syns.iter().find(|syn| syn.peer == answer.peer).expect("a known peer");
        target.send(third(syn, answer));
    }
    assert_eq!((target.segments().len(), accepted(&listener)), (0, 2));
    target.world.check_conservation();
}

/// Who has answered believes to be connected, and may wait for the service to speak first.
#[test]
fn whose_last_ack_found_the_queue_full_hears_that_the_listener_is_gone() {
    for is_removed in [false, true] {
        let mut target = Target::new(1);
        let _listener = target.world.listen(1, 1, "10.0.0.1:80", 1);
        let syns = [5000, 5001, 5002].map(|port| target.syn((Ipv4Addr::new(192, 0, 2, 1), Port(port))));
        syns.iter().for_each(|&syn| target.send(syn));
        let answers = target.segments();
        for (syn, answer) in syns.iter().zip(&answers).take(2) {
            target.send(third(syn, answer));
        }
        assert_eq!((target.segments().len(), target.sum(|it| it.half_open as u64)), (0, 2));
        if is_removed {
            target.world.all(|| Control::RemoveNetstack(NetstackId(1)));
        } else {
            let unlisten = SocketCommand::Unlisten(firelane_units::SocketId(1));
            let now = target.world.now;
            target.world.lanes[0].on_message(now, LaneMessage::Socket(NetstackId(1), unlisten));
        }
        target.world.run();
        let resets = target.segments();
        let told = resets.iter().map(|it| (it.peer.1.0, it.flags.contains(TcpFlags::RST)));
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        assert_eq!(told, [(5000, true), (5001, true)], "not the third one, which has said nothing as yet");
        assert_eq!(target.sum(|it| it.half_open as u64), 0);
        target.world.check_conservation();
    }
}
