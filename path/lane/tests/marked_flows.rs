//! Flows that tell packets by what is no connection's name, the DS field and the other station's address: what sockets are about to send
//! belongs to them as its packets will, and fused text as its packets would.

use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::Envelope;
use firelane_lane::*;
use firelane_socket::{DatagramEnd, Flags, StreamEnd};
use firelane_units::{BitRate, DsField, Family, FlowId, LaneId, LinkId, Mtu, Priority};
use firelane_world::*;

const WINDOW: Duration = Duration::from_millis(100);
/// Expedited forwarding (RFC 3246), as a code point and as the octet.
const EF: u8 = 46;
const EF_OCTET: u8 = EF << 2;
/// The flow that is asked for, of netstack 1's VNIC.
const FLOW: FlowId = FlowId(9);

fn of_class(octet: u8) -> FlowMatch {
    FlowMatch { dsfield: DsField::new(octet, 0xfc), ..FlowMatch::default() }
}

fn of_station(n: u8) -> FlowMatch {
    FlowMatch { remote_mac: Some(mac(n)), ..FlowMatch::default() }
}

/// A connection of netstack 1 with an address of its own, or with netstack 2.
struct Pair {
    world: World,
    client: StreamEnd,
    server: StreamEnd,
}

fn pair(peer: u16, fuses: bool) -> Pair {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    if fuses {
        [1, 2].into_iter().for_each(|n| world.all(|| Control::SetFusion(FlowId(n), FuseWith::Others)));
    }
    let listener = world.listen(peer, 1, "[::]:80", 8);
    let client = world.connect(1, 0, &format!("10.0.0.{peer}:80"));
    world.run();
    let server = listener.accept().expect("the handshake is over").stream;
    Pair { world, client, server }
}

/// A flow of netstack 1's VNIC, which is a part of it.
fn flow(rule: FlowMatch, maxbw: Option<BitRate>) -> FlowSetup {
    let config = FlowConfig { parent: Some(FlowId(1)), maxbw, priority: Priority::Medium };
    FlowSetup { flow: FLOW, owner: LinkId(1), rule: Some(rule), config, home: Some(LaneId(0)) }
}

impl Pair {
    fn mark(&mut self, dscp: u8) {
        let Self { world, client, server } = self;
        for end in [client, server] {
            let mark = |conn| SocketCommand::SetOption(conn, StreamOption::Dscp(Family::V4, dscp));
            world.command(end, mark);
        }
        world.run();
    }

    fn is_fused(&self) -> bool {
        self.client.shared().words().flags().contains(Flags::FUSED)
    }

    /// What keeps the client from being fused, and whose limit holds for it.
    fn told(&self) -> (Option<Unfused>, Option<LimitedBy>) {
        let conn = self.client.shared().conn().expect("it is there");
        let info = self.world.lanes[0].stream_info(self.world.now, conn).expect("it is there");
        (info.unfused, info.limited)
    }

    /// Writes and reads all the while: how much text has come in each window.
    fn saturate(&mut self, windows: usize) -> Vec<u64> {
        let Self { world, client, server } = self;
        let mut buffer = vec![0; 1 << 16];
        let mut window = || {
            let mut came = 0;
            for _ in 0..400 {
                for _ in 0..2 {
                    let _ = world.write(client, &[7; 1 << 14]);
                    while let Ok(count @ 1..) = world.read(server, &mut buffer) {
                        came += count as u64;
                    }
                }
                world.run_for(WINDOW / 400);
            }
            came
        };
        (0..windows).map(|_| window()).collect()
    }

    /// What its flow has counted of what the client's VNIC sends: wire bytes and fused text.
    fn counted(&mut self) -> u64 {
        self.world.lanes[0].count_fused(0);
        let snapshot = self.world.lanes[0].snapshot();
        let (_, [_, outward]) = snapshot.flows.iter().find(|(id, _)| *id == FLOW).expect("it is there");
        outward.bytes + outward.fused
    }
}

/// Text of so many full segments as the rate lets pass, give or take their headers and acknowledgments.
fn about(rate: BitRate, came: &[u64]) {
    let wanted = rate.bytes_in(WINDOW).0;
    assert!(
        came.iter().all(|it| (wanted * 85 / 100..=wanted * 102 / 100).contains(it)),
        "{came:?} of {wanted}"
    );
}

#[test]
fn streams_wait_for_the_limit_of_what_they_mark_and_nothing_is_lost() {
    let rate = BitRate::from_mbps(40);
    for (peer, fuses) in [(2, false), (2, true), (1, false)] {
        let mut pair = pair(peer, fuses);
        let is_fused = fuses || peer == 1;
        assert_eq!(pair.is_fused(), is_fused);
        pair.world.add_flow(flow(of_class(EF_OCTET), Some(rate)));
        pair.world.run();
        let free = pair.saturate(2)[1];
        assert!(free > 4 * rate.bytes_in(WINDOW).0, "peer {peer}, {fuses}: {free}");
        assert_eq!((pair.told().1, pair.counted()), (None, 0));
        pair.mark(EF);
        assert_eq!(pair.told().1, Some(LimitedBy::Flow(FLOW)));
        about(rate, &pair.saturate(4)[1..]);
        assert!(pair.counted() > 3 * rate.bytes_in(WINDOW).0, "peer {peer}, {fuses}: {}", pair.counted());
        pair.mark(0);
        let counted = pair.counted();
        let free = pair.saturate(2)[1];
        assert!(free > 4 * rate.bytes_in(WINDOW).0, "peer {peer}, {fuses}: {free}");
        assert!(pair.counted() - counted < rate.bytes_in(WINDOW).0, "peer {peer}, {fuses}");
        // The other way round: it has what is not marked.
        pair.world.all(|| Control::RemoveFlow(FLOW));
        pair.world.add_flow(flow(of_class(0), Some(rate)));
        pair.world.run();
        about(rate, &pair.saturate(4)[1..]);
        pair.mark(EF);
        let free = pair.saturate(2)[1];
        assert!(free > 4 * rate.bytes_in(WINDOW).0, "peer {peer}, {fuses}: {free}");
        assert_eq!(pair.is_fused(), is_fused, "a limit is no reason for segments");
        assert_eq!(pair.world.counters().drops.total(), 0, "peer {peer}, {fuses}: the socket waits");
        pair.world.check_conservation();
    }
}

#[test]
fn streams_wait_for_the_limit_of_what_is_for_one_station() {
    let rate = BitRate::from_mbps(40);
    for fuses in [false, true] {
        let mut pair = pair(2, fuses);
        pair.world.add_flow(flow(of_station(3), Some(BitRate::ZERO)));
        pair.world.run();
        assert!(pair.saturate(2)[1] > 4 * rate.bytes_in(WINDOW).0);
        pair.world.all(|| Control::RemoveFlow(FLOW));
        pair.world.add_flow(flow(of_station(2), Some(rate)));
        pair.world.run();
        about(rate, &pair.saturate(4)[1..]);
        assert_eq!((pair.is_fused(), pair.told().1), (fuses, Some(LimitedBy::Flow(FLOW))));
        assert_eq!(pair.world.counters().drops.total(), 0, "{fuses}: the socket waits");
        pair.world.check_conservation();
    }
}

#[test]
fn who_marks_what_a_flow_keeps_from_being_fused_goes_in_segments() {
    for peer in [1, 2] {
        let mut pair = pair(peer, true);
        pair.world.add_flow(flow(of_class(EF_OCTET), None));
        pair.world.all(|| Control::SetFusion(FLOW, FuseWith::Nobody));
        pair.world.run();
        assert_eq!((pair.is_fused(), pair.told().0), (true, None), "peer {peer}");
        pair.mark(EF);
        assert_eq!((pair.is_fused(), pair.told().0), (false, Some(Unfused::Flow(FLOW))), "peer {peer}");
        pair.mark(0);
        assert_eq!((pair.is_fused(), pair.told().0), (true, None), "peer {peer}");
        // One end is enough: its segments would be of the flow.
        let Pair { world, server, .. } = &mut pair;
        world.command(server, |conn| SocketCommand::SetOption(conn, StreamOption::Dscp(Family::V4, EF)));
        world.run();
        assert_eq!((pair.is_fused(), pair.told().0), (false, Some(Unfused::Flow(FLOW))), "peer {peer}");
    }
    let mut pair = pair(2, true);
    pair.world.add_flow(flow(of_station(2), None));
    pair.world.all(|| Control::SetFusion(FLOW, FuseWith::Nobody));
    pair.world.run();
    assert_eq!((pair.is_fused(), pair.told().0), (false, Some(Unfused::Flow(FLOW))));
}

/// How one datagram of netstack 1 is marked.
type Send = fn(&mut World, &mut DatagramEnd, std::net::SocketAddr);

#[test]
fn datagrams_wait_for_the_limit_of_what_they_mark_and_none_is_lost() {
    let plain: Send = |world, end, peer| world.send_to(end, 1, peer, &[1; 1208]);
    let marked: Send = |world, end, peer| {
        let envelope = Envelope { tos: Some(EF_OCTET), ..Envelope::to(peer) };
        world.send_msg(end, 1, envelope, &[1; 1208]);
    };
    for (rule, socket_marks, send) in [
        (of_class(EF_OCTET), true, plain),
        (of_class(EF_OCTET), false, marked),
        (of_class(0), false, plain),
        (of_station(2), false, plain),
    ] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut sender = world.bind(1, 1, 0, "10.0.0.1:9000");
        let mut receiver = world.bind(2, 2, 0, "10.0.0.2:9001");
        let peer = "10.0.0.2:9001".parse().unwrap();
        // They know each other, so that nothing waits for a neighbour.
        world.send_to(&mut sender, 1, peer, b"ready");
        world.run_for(Duration::from_millis(50));
        let mut bytes = [0; 2000];
        while let Ok(Some(_)) = receiver.recv.recv(&mut bytes) {}
        if socket_marks {
            world.set(1, 1, DatagramOption::Packets(Family::V4, PacketOption::TrafficClass(EF_OCTET)));
        }
        world.add_flow(flow(rule, Some(BitRate::from_mbps(1))));
        (0..36).for_each(|_| send(&mut world, &mut sender, peer));
        let mut came = Vec::new();
        for _ in 0..5 {
            world.run_for(Duration::from_millis(100));
            came.push(std::iter::from_fn(|| receiver.recv.recv(&mut bytes).ok().flatten()).count());
        }
        // 1250 bytes of frame each: ten in 100 ms.
        assert_eq!(came.iter().sum::<usize>(), 36, "{rule:?}: {came:?}");
        assert!(came[..3].iter().all(|&count| (9..=12).contains(&count)), "{rule:?}: {came:?}");
        world.check_conservation();
    }
}
