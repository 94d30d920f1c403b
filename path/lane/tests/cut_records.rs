//! Records of several datagrams (UDP_SEGMENT) at a limit: as many of them leave as it has room for, the rest later, and none is lost.

use std::time::Duration;

use firelane_frame::Envelope;
use firelane_lane::*;
use firelane_socket::{DatagramEnd, SocketError};
use firelane_units::{BitRate, DropReason, FlowId, LaneId, Mtu, NetstackId, SocketId};
use firelane_world::*;

const PEERS: [&str; 2] = ["10.0.0.2:9", "10.0.0.1:9"];
const SEGMENT: usize = 1400;
/// What a limit counts of a datagram.
const FRAME: u64 = SEGMENT as u64 + 42;
/// Forty datagrams, of which the last is short.
const RECORD: usize = 39 * SEGMENT + 700;

/// A client whose VNIC has a limit at home in the last lane, and a server that it knows; the client is in lane 0.
struct Pair {
    world: World,
    client: DatagramEnd,
    server: DatagramEnd,
    peer: Envelope,
    /// The first byte of each datagram that has come, and its length.
    came: Vec<(u8, usize)>,
}

impl Pair {
    fn new(lanes: u16, peer: &str, mbps: u64) -> Self {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let server = world.bind(if peer == PEERS[0] { 2 } else { 1 }, 1, 0, peer);
        let mut client = world.bind_large(1, 2, "10.0.0.1:0");
        let peer = Envelope::to(peer.parse().unwrap());
        world.send_msg(&mut client, 2, peer, b"the neighbour's address is asked for");
        world.run_for(Duration::from_millis(10));
        let mut pair = Self { world, client, server, peer, came: Vec::new() };
        pair.receive();
        assert_eq!(pair.came.drain(..).len(), 1);
        pair.world.all(|| Control::SetHome(FlowId(1), Some(LaneId(lanes - 1))));
        pair.limit(mbps);
        pair
    }

    fn limit(&mut self, mbps: u64) {
        self.world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(mbps))));
    }

    /// A record whose datagrams begin with their numbers.
    fn send(&mut self, from: u8, len: usize) {
        let mut text = vec![0; len];
        for (number, datagram) in (from..).zip(text.chunks_mut(SEGMENT)) {
            datagram[0] = number;
        }
        let envelope = Envelope { segment: SEGMENT as u16, ..self.peer };
        self.world.send_msg(&mut self.client, 2, envelope, &text);
    }

    fn receive(&mut self) {
        let mut to = [0; 1 << 16];
        while let Ok(Some(datagram)) = self.server.recv.recv(&mut to) {
            self.came.push((to[0], datagram.len));
        }
    }

    /// Time passes, in steps of a millisecond.
    fn run_for(&mut self, millis: u64) {
        for _ in 0..millis {
            self.world.run_for(Duration::from_millis(1));
            self.receive();
        }
    }
}

#[test]
fn none_is_lost_and_the_limit_is_exact() {
    for (lanes, peer) in [(1, PEERS[0]), (1, PEERS[1]), (2, PEERS[0]), (2, PEERS[1])] {
        for mbps in [1, 10, 100] {
            let case = format!("{mbps} Mb/s, {lanes} lanes, to {peer}");
            let mut pair = Pair::new(lanes, peer, mbps);
            let before = pair.world.udp(1).sent;
            for record in 0..5 {
                pair.send(record * 40, RECORD);
            }
            let rate = BitRate::from_mbps(mbps);
            let half = rate.time_for(firelane_units::Bytes(100 * FRAME));
            pair.run_for(half.as_millis() as u64);
            let in_half = pair.came.len() as u64;
            assert!(in_half.abs_diff(100) <= 3, "{case}: {in_half} in the time of 100");
            pair.run_for(half.as_millis() as u64 * 2 + 100);
            let expected: Vec<_> = (0..200).map(|n| (n, if n % 40 == 39 { 700 } else { SEGMENT })).collect();
            assert_eq!(pair.came, expected, "{case}");
            assert_eq!(pair.world.counters().drops.of(DropReason::FlowLimit), 0, "{case}");
            assert_eq!(pair.world.udp(1).sent - before, 200, "{case}");
            pair.world.check_conservation();
        }
    }
}

/// A record of which some have left is as others: it goes on when the limit is lifted, and ends with its socket.
#[test]
fn what_is_left_follows_what_becomes_of_limit_and_socket() {
    for (is_lifted, arrive) in [(true, 40), (false, 0)] {
        let mut pair = Pair::new(1, PEERS[0], 1);
        pair.send(0, RECORD);
        pair.run_for(100);
        let before = pair.came.len();
        assert!((5..15).contains(&before), "{before}");
        pair.limit(0);
        pair.run_for(1000);
        let stopped = pair.came.len();
        assert!(stopped <= before + 1, "{stopped}");
        if is_lifted {
            pair.world.all(|| Control::SetMaxbw(FlowId(1), None));
        } else {
            let close = SocketCommand::CloseDatagrams(SocketId(2));
            let now = pair.world.now;
            pair.world.lanes[0].on_message(now, LaneMessage::Socket(NetstackId(1), close));
        }
        pair.run_for(100_000);
        assert_eq!(pair.came.len(), if is_lifted { arrive } else { stopped });
        pair.world.check_conservation();
    }
}

/// What cannot be cut is refused as a whole, before a part of it leaves.
#[test]
fn what_cannot_be_cut_is_refused_as_a_whole() {
    let mut pair = Pair::new(1, PEERS[0], 1);
    let envelope = Envelope { segment: 1473, ..pair.peer };
    pair.world.send_msg(&mut pair.client, 2, envelope, &[0; 5000]);
    pair.run_for(1000);
    assert_eq!(pair.client.send.shared().words().take_error(), Some(SocketError::MessageTooLong));
    assert_eq!((pair.came, pair.world.udp(1).unsendable), (vec![], 4));
}
