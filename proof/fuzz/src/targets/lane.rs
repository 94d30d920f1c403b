//! The whole receive path: frames of any bytes, and TCP that is nearly right, into a lane with sockets.
//!
//! The station on the uplink answers ARP and neighbour solicitations, so that the netstack talks to it; the
//! input chooses what else it says, and what programs do meanwhile. The laws are those of `lane_world.rs`, and
//! every frame that leaves is well formed.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use firelane_frame::{Checksum, Frame, Pools, PoolsConfig, virtio};
use firelane_lane::{
    Bind, Connect, Control, DatagramKind, LaneMessage, Listen, Sharing, SocketCommand, StreamOptions,
    datagram_lane,
};
use firelane_socket::{DatagramEnd, ListenerEnd, StreamConfig, StreamEnd, datagram, listener, stream};
use firelane_units::{BitRate, FlowId, LaneId, MacAddr, Port, SeqNum, SocketId};
use firelane_wire::*;

use super::frames::{Repair, assert_well_formed};
use super::lane_world::{MAC, NETSTACK, TAP, VNIC, World, secrets};
use crate::feedback::{TRACES, note};
use crate::input::Input;

const PEER_MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 1]);
const RINGS: StreamConfig = StreamConfig { send_capacity: 16_384, recv_capacity: 16_384 };
const STREAMS_MAX: usize = 8;

fn own() -> [IpAddr; 2] {
    [[10, 0, 0, 2].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()]
}

fn peer(v6: bool) -> IpAddr {
    if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, 1].into() } else { [10, 0, 0, 1].into() }
}

/// A connection as the station on the wire sees it.
#[derive(Clone, Copy)]
struct Seen {
    /// The netstack's end and the station's.
    theirs: SocketAddr,
    ours: SocketAddr,
    /// What the netstack expects next, and the end of what it has sent.
    next: SeqNum,
    heard: SeqNum,
    /// The netstack's last timestamp.
    stamp: Option<u32>,
}

struct Scene {
    world: World,
    pools: Pools,
    listener: ListenerEnd,
    dns: DatagramEnd,
    streams: Vec<StreamEnd>,
    seen: Vec<Seen>,
    /// The VNIC has a limit, so what it sends takes its time.
    is_limited: bool,
}

/// A byte that chooses lanes, offloads and limit, and then steps.
pub fn target_lane(data: &[u8]) {
    let mut input = Input::new(data);
    let bits = input.u8();
    let maxbw = (bits & 4 != 0).then(|| BitRate::from_mbps(2));
    let mut scene = Scene::new(World::new(1 + u16::from(bits & 1), bits & 2 != 0, maxbw), maxbw.is_some());
    for _ in 0..150 {
        if input.is_empty() {
            break;
        }
        scene.step(&mut input);
        scene.settle();
    }
    scene.streams.clear();
    scene.world.run_for(Duration::from_secs(300), 3000);
    scene.settle();
}

impl Scene {
    fn new(mut world: World, is_limited: bool) -> Self {
        let (end, slot) = listener(4);
        let listen = Listen {
            socket: SocketId(1),
            local: (Ipv6Addr::UNSPECIFIED, 80).into(),
            v6_only: false,
            shares: false,
            slot,
            rings: RINGS,
            options: StreamOptions::default(),
        };
        for lane in 0..world.lanes.len() {
            let command = SocketCommand::Listen(Box::new(listen.clone()));
            world.message(lane, LaneMessage::Socket(NETSTACK, command));
        }
        let lane = datagram_lane(Port(53), &steering(&world), &secrets().steering());
        let (dns, slot) = datagram(4096, 4096, lane, NETSTACK);
        let local = (Ipv6Addr::UNSPECIFIED, 53).into();
        let bind = Bind {
            socket: SocketId(2),
            local,
            v6_only: false,
            sharing: Sharing::default(),
            remote: None,
            kind: DatagramKind::Udp,
            link: None,
            slot,
        };
        world.message(lane.index(), LaneMessage::Socket(NETSTACK, SocketCommand::Bind(Box::new(bind))));
        let pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 4 });
        let mut scene =
            Self { world, pools, listener: end, dns, streams: Vec::new(), seen: Vec::new(), is_limited };
        scene.settle();
        scene
    }

    fn step(&mut self, input: &mut Input<'_>) {
        if *TRACES {
            eprintln!("{:?} step {:02x?}", self.world.now, input.clone().take(4));
        }
        match input.u8() & 15 {
            0..=2 => self.raw(input, None),
            3 => {
                let header = input.take(virtio::HEADER_BYTES).first_chunk().copied();
                self.raw(input, header);
            }
            4..=8 => self.segment(input),
            9 | 10 => self.syn(input),
            11 => self.world.run_for(Duration::from_micros(input.amount() * 8), 200),
            12 => {
                let until = self.world.run().unwrap_or(self.world.now);
                self.world.now = self.world.now.max(until);
            }
            13 | 14 => self.program(input),
            _ => self.change(input),
        }
    }

    /// Any bytes, repaired as the input says, with what a virtio-net header says about them.
    fn raw(&mut self, input: &mut Input<'_>, header: Option<[u8; virtio::HEADER_BYTES]>) {
        let (len, repair) = (usize::from(input.u16() % 2048), Repair(input.u8()));
        let mut bytes = input.take(len).to_vec();
        repair.apply(&mut bytes, MAC, own());
        let Some(mut frame) = self.pools.copy_of(&bytes) else { return };
        if let Some(header) = header {
            let Ok((checksum, segmentation)) = virtio::read(&header, &bytes) else { return };
            (frame.meta_mut().checksum, frame.meta_mut().segmentation) = (checksum, segmentation);
        }
        self.world.uplink.send(frame);
    }

    /// A new connection to the listener, to a closed port, or to port 53.
    fn syn(&mut self, input: &mut Input<'_>) {
        let (kind, port, v6) = (input.u8(), u16::from(input.u8()), input.flag());
        let to = [80, 80, 81, 53][usize::from(kind & 3)];
        let theirs = SocketAddr::new(own()[usize::from(v6)], to);
        let ours = SocketAddr::new(peer(v6), 40_000 + port);
        let seen = Seen { theirs, ours, next: SeqNum(input.u32()), heard: SeqNum(0), stamp: None };
        let options = TcpOptions { mss: Some(1460), window_scale: Some(kind >> 4), ..TcpOptions::EMPTY };
        let options = TcpOptions { sack_permitted: kind & 4 != 0, ..options };
        let options = TcpOptions { timestamps: (kind & 8 != 0).then_some((1, 0)), ..options };
        self.send_segment(seen, seen.next, None, TcpFlags::SYN, options, 0);
    }

    /// A segment of a connection that was seen, right or nearly so.
    fn segment(&mut self, input: &mut Input<'_>) {
        let (which, shape, bits) = (input.u8(), input.u8(), input.u8());
        if self.seen.is_empty() {
            return;
        }
        let at = usize::from(which) % self.seen.len();
        let seen = self.seen[at];
        let seq = match shape & 7 {
            0..=4 => seen.next,
            5 => seen.next - 1,
            6 => seen.next + u32::from(input.u16()),
            _ => SeqNum(input.u32()),
        };
        let ack = match shape >> 3 & 7 {
            0..=4 => Some(seen.heard),
            5 => Some(seen.heard - u32::from(input.u16())),
            6 => Some(seen.heard + u32::from(input.u8())),
            _ => None,
        };
        let flags = match shape >> 6 {
            0 | 1 => TcpFlags::PSH,
            2 => [TcpFlags::FIN, TcpFlags::RST, TcpFlags::SYN, TcpFlags::FIN][usize::from(bits & 3)],
            _ => TcpFlags::from_bits(u16::from(bits)),
        };
        let text = [0, 0, 1, 700, 1460, 1460, usize::from(input.u8()), 0][usize::from(bits >> 2 & 7)];
        // Its clock never goes back, and it may forget to send it.
        let clock = self.world.now.micros() as u32 + 1;
        let stamps = seen.stamp.filter(|_| bits & 0x80 == 0).map(|stamp| (clock, stamp));
        let options = TcpOptions { timestamps: stamps, ..TcpOptions::EMPTY };
        self.send_segment(seen, seq, ack, flags, options, text);
    }

    fn send_segment(
        &mut self,
        seen: Seen,
        seq: SeqNum,
        ack: Option<SeqNum>,
        flags: TcpFlags,
        options: TcpOptions,
        text: usize,
    ) {
        let (src_port, dst_port) = (Port(seen.ours.port()), Port(seen.theirs.port()));
        let window = 20_000;
        let repr = TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent: 0, options };
        let mut segment = vec![0; repr.emitted_len()];
        repr.emit(&mut segment);
        segment.resize(segment.len() + text, b'x');
        let (src, dst) = (seen.ours.ip(), seen.theirs.ip());
        let pseudo = Sum::pseudo(src, dst, IpProtocol::TCP, segment.len() as u32);
        tcp::fill_checksum(&mut segment, pseudo);
        self.send_packet(src, dst, IpProtocol::TCP, &segment);
    }

    fn send_packet(&mut self, src: IpAddr, dst: IpAddr, protocol: IpProtocol, payload: &[u8]) {
        let len = payload.len() as u16;
        let (ethertype, mut header) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = vec![0; 20];
                Ipv4Repr::new(src, dst, protocol, len).emit(&mut header);
                (EtherType::IPV4, header)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = vec![0; 40];
                Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(src, dst, protocol, len) }.emit(&mut header);
                (EtherType::IPV6, header)
            }
            _ => unreachable!("both ends are of one version"),
        };
        header.extend_from_slice(payload);
        self.send_frame(ethertype, &header);
    }

    fn send_frame(&mut self, ethertype: EtherType, payload: &[u8]) {
        let Some(mut frame) = self.pools.take(14 + payload.len()) else { return };
        EthernetRepr { dst: MAC, src: PEER_MAC, ethertype }.emit(frame.append(14));
        frame.extend_from_slice(payload);
        self.world.uplink.send(frame);
    }

    /// What a program does.
    fn program(&mut self, input: &mut Input<'_>) {
        let (what, which) = (input.u8(), usize::from(input.u8()));
        match what & 15 {
            0..=3 => {
                if let Some(accepted) = self.listener.accept() {
                    note("accepted");
                    self.keep(accepted.stream);
                }
            }
            4 => self.connect(input),
            5 => {
                let mut buffer = [0; 2000];
                if let Ok(Some(got)) = self.dns.recv.recv(&mut buffer) {
                    let _ = self.dns.send.send(got.envelope.peer, &buffer[..got.copied]);
                    note(("datagram", got.len.min(2)));
                    self.kick_dns();
                }
            }
            6 => {
                let to = SocketAddr::new(peer(what & 16 != 0), u16::from(input.u8()).max(1));
                let _ = self.dns.send.send(to, &vec![7; input.amount() as usize % 4000]);
                self.kick_dns();
            }
            _ if !self.streams.is_empty() => {
                let at = which % self.streams.len();
                self.stream(at, what, input);
            }
            _ => {}
        }
    }

    fn keep(&mut self, stream: StreamEnd) {
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
        }
    }

    fn stream(&mut self, at: usize, what: u8, input: &mut Input<'_>) {
        let mut end = self.streams.swap_remove(at);
        let shared = end.shared();
        let (lane, conn) = (shared.lane().index(), shared.conn());
        let mut kick = false;
        let command = match what & 15 {
            7..=9 => {
                kick = end.send.write(&vec![b'y'; input.amount() as usize % 20_000]).is_ok()
                    && end.send.nudge().kick;
                None
            }
            10..=12 => {
                let mut buffer = vec![0; input.amount() as usize % 20_000];
                kick = end.recv.read(&mut buffer).is_ok() && end.recv.nudge().kick;
                None
            }
            13 => {
                end.send.shut();
                conn.map(SocketCommand::Shutdown)
            }
            14 => conn.map(SocketCommand::Close),
            _ => conn.map(SocketCommand::Abort),
        };
        if let (true, Some(conn)) = (kick, conn) {
            self.world.message(lane, LaneMessage::Kick { netstack: NETSTACK, conn });
        }
        let gone = matches!(command, Some(SocketCommand::Close(_) | SocketCommand::Abort(_)));
        if let Some(command) = command {
            self.world.message(lane, LaneMessage::Socket(NETSTACK, command));
        }
        if !gone {
            self.streams.push(end);
        }
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let (lane, v6, port) = (input.below(self.world.lanes.len()), input.flag(), u16::from(input.u8()));
        let (end, slot) = stream(RINGS, LaneId(lane as u16), NETSTACK);
        let remote = SocketAddr::new(peer(v6), port.max(1));
        let connect = Connect { remote, local: None, stream: slot, options: StreamOptions::default() };
        let command = SocketCommand::Connect(Box::new(connect));
        self.world.message(lane, LaneMessage::Socket(NETSTACK, command));
        self.keep(end);
    }

    fn kick_dns(&mut self) {
        if self.dns.send.kick() {
            let lane = self.dns.send.shared().lane().index();
            self.world.message(lane, LaneMessage::KickDatagrams { netstack: NETSTACK, socket: SocketId(2) });
        }
    }

    /// A change of configuration under traffic.
    fn change(&mut self, input: &mut Input<'_>) {
        let bits = input.u8();
        match bits & 7 {
            0 | 1 => {
                let maxbw = (bits & 8 != 0).then(|| BitRate::from_mbps(2 + u64::from(bits >> 4)));
                let home = maxbw.map(|_| LaneId(0));
                self.world.all(|| Control::SetHome(FlowId(VNIC.0), home));
                self.world.all(|| Control::SetMaxbw(FlowId(VNIC.0), maxbw));
            }
            2 if bits >> 3 == 0 => self.world.all(|| Control::RemoveAddress(NETSTACK, VNIC, own()[0])),
            3 => self.world.all(|| Control::AddAddress(NETSTACK, VNIC, "10.0.0.2/24".parse().unwrap())),
            4 if bits >> 3 == 0 => self.world.all(|| Control::RemovePort(TAP)),
            5 if bits >> 3 == 0 => self.world.all(|| Control::RemovePort(VNIC)),
            6 if bits >> 3 == 0 => self.world.all(|| Control::RemoveNetstack(NETSTACK)),
            _ => {}
        }
    }

    /// Lets the lanes fall silent, hears what they say, answers who asks for an address, until nobody asks.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.world.run();
            if self.is_limited {
                self.world.run_for(Duration::from_millis(2), 20);
            }
            self.world.tap.received();
            let said = self.world.uplink.received();
            if said.is_empty() {
                return self.world.check();
            }
            said.iter().for_each(|frame| self.hear(frame));
        }
        panic!("questions without end");
    }

    fn hear(&mut self, frame: &Frame) {
        let is_open = matches!(frame.meta().checksum, Checksum::Partial { .. });
        if *TRACES {
            eprintln!("    {:02x?}", frame.as_slice());
        }
        assert_well_formed(frame.as_slice(), MAC, is_open);
        let ethernet = EthernetView::parse(frame.as_slice()).expect("it is well formed");
        let packet = ethernet.payload();
        match ethernet.ethertype() {
            EtherType::ARP => self.hear_arp(packet),
            EtherType::IPV4 => {
                let view = Ipv4View::parse(packet).expect("it is well formed");
                if !view.is_fragment() {
                    self.hear_transport(
                        view.src().into(),
                        view.dst().into(),
                        view.protocol(),
                        view.payload(),
                    );
                }
            }
            _ => {
                let view = Ipv6View::parse(packet).expect("it is well formed");
                self.hear_transport(view.src().into(), view.dst().into(), view.next_header(), view.payload());
            }
        }
    }

    fn hear_arp(&mut self, packet: &[u8]) {
        let arp = ArpRepr::parse(&ArpView::parse(packet).expect("it is well formed"));
        if arp.operation == ArpOperation::Request && IpAddr::V4(arp.target_ip) == peer(false) {
            let reply = arp.reply_from(PEER_MAC);
            let mut bytes = vec![0; reply.emitted_len()];
            reply.emit(&mut bytes);
            self.send_frame(EtherType::ARP, &bytes);
        }
    }

    fn hear_transport(&mut self, src: IpAddr, dst: IpAddr, protocol: IpProtocol, bytes: &[u8]) {
        match (protocol, src) {
            (IpProtocol::TCP, _) => self.hear_tcp(src, dst, bytes),
            (IpProtocol::ICMPV6, IpAddr::V6(asker)) if bytes.first() == Some(&135) => {
                self.hear_solicitation(asker, bytes);
            }
            _ => {}
        }
    }

    fn hear_tcp(&mut self, src: IpAddr, dst: IpAddr, bytes: &[u8]) {
        let view = TcpView::parse(bytes).expect("it is well formed");
        let theirs = SocketAddr::new(src, view.src_port().0);
        let ours = SocketAddr::new(dst, view.dst_port().0);
        let heard = view.seq() + view.sequence_len();
        let (text, options) = (view.payload().len().min(1461), view.options());
        note(("tcp", view.flags().bits(), text, options.sack.len(), view.window() == 0, src.is_ipv6()));
        let known = self.seen.iter_mut().find(|seen| seen.theirs == theirs && seen.ours == ours);
        match known {
            Some(seen) => {
                seen.heard = heard;
                seen.stamp = view.options().timestamps.map(|(value, _)| value);
                seen.next = view.ack().unwrap_or(seen.next);
            }
            None => {
                let next = view.ack().unwrap_or(SeqNum(1));
                let stamp = view.options().timestamps.map(|(value, _)| value);
                self.seen.push(Seen { theirs, ours, next, heard, stamp });
            }
        }
        if self.seen.len() > STREAMS_MAX {
            self.seen.remove(0);
        }
    }

    fn hear_solicitation(&mut self, asker: Ipv6Addr, bytes: &[u8]) {
        let IpAddr::V6(own) = peer(true) else { unreachable!("the flag asks for IPv6") };
        let target = bytes.get(8..24).and_then(|bytes| bytes.first_chunk::<16>());
        if target != Some(&own.octets()) || asker.is_unspecified() {
            return;
        }
        let message =
            NdpMessage::NeighbourAdvert { target: own, router: false, solicited: true, replace: true };
        let repr = NdpRepr { message, options: &[NdpOption::TargetLinkLayer(PEER_MAC)] };
        let mut advert = vec![0; repr.emitted_len()];
        repr.emit(&mut advert);
        icmpv6::fill_checksum(&mut advert, own, asker);
        self.send_packet(own.into(), asker.into(), IpProtocol::ICMPV6, &advert);
    }
}

fn steering(world: &World) -> firelane_classify::Steering {
    firelane_classify::Steering::even(&world.lanes.iter().map(firelane_lane::Lane::id).collect::<Vec<_>>())
}
