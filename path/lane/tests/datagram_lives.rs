//! A game of datagram sockets that come, speak, are given peers and go, under limits that change, kept in
//! whichever lane: what each of them sends arrives in its order and once, what does not arrive was dropped for a reason, and nothing is left of who has gone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use firelane_lane::*;
use firelane_socket::DatagramEnd;
use firelane_units::{BitRate, FlowId, LaneId, Mtu, NetstackId, SocketId};
use firelane_world::*;
use proptest::prelude::*;

/// Ports of sockets, of which each netstack has no more than one at a time.
const PORTS: u16 = 4;

/// A limit that nothing here reaches, in kb/s.
const FREE: u64 = 10_000_000;

/// One of the two netstacks, and one of its ports.
type Who = (u16, u16);

#[derive(Clone, Debug)]
enum Step {
    Open(Who),
    /// What it has queued goes first.
    Close(Who),
    /// So many datagrams of so many octets, to that port of the other netstack.
    Send(Who, u8, u16, u16),
    /// It hears that port of the other netstack alone, or all.
    Connect(Who, Option<u16>),
    /// What a netstack's VNIC sends and gets in kb/s.
    Limit(u16, u64),
    /// A turn of a lane, without what it has for others.
    Turn(u16),
    Exchange,
    /// So many milliseconds.
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || (1..=2u16, 0..PORTS);
    let step = prop_oneof![
        4 => who().prop_map(Step::Open),
        2 => who().prop_map(Step::Close),
        8 => (who(), 1..8u8, 0..1400u16, 0..PORTS).prop_map(|(who, count, len, to)| Step::Send(who, count, len, to)),
        2 => (who(), prop::option::of(0..PORTS)).prop_map(|(who, peer)| Step::Connect(who, peer)),
        2 => (1..=2u16, 100..20_000u64).prop_map(|(of, kbps)| Step::Limit(of, kbps)),
        4 => (0..4u16).prop_map(Step::Turn),
        3 => Just(Step::Exchange),
        2 => (0..30u16).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

/// A socket that somebody has open.
struct Open {
    number: u32,
    end: DatagramEnd,
    /// The last datagram that it has got of each other.
    last: BTreeMap<u32, u32>,
}

struct Game {
    world: World,
    open: BTreeMap<Who, Open>,
    /// How many sockets there have been, and how many datagrams each has sent.
    numbers: u32,
    sent: BTreeMap<u32, u32>,
    got: u64,
}

/// The address of a port, as sockets of both families name it.
fn address((netstack, port): Who) -> SocketAddr {
    match port % 2 {
        0 => SocketAddr::from(([10, 0, 0, netstack as u8], 5000 + port)),
        _ => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, netstack], 5000 + port)),
    }
}

impl Game {
    /// Each VNIC's limit is kept in one of these lanes.
    fn new(lanes: u16, homes: [u16; 2]) -> Self {
        let world = two_stacks(lanes, Mtu::ETHERNET);
        let mut game = Self { world, open: BTreeMap::new(), numbers: 0, sent: BTreeMap::new(), got: 0 };
        for (of, home) in (1..).zip(homes) {
            game.limit(of, FREE);
            game.world.all(|| Control::SetHome(FlowId(of.into()), Some(LaneId(home % lanes))));
        }
        game
    }

    fn limit(&mut self, of: u16, kbps: u64) {
        self.world.all(|| Control::SetMaxbw(FlowId(of.into()), Some(BitRate::from_bps(kbps * 1000))));
    }

    fn tell(&mut self, who: Who, command: impl FnOnce(SocketId) -> SocketCommand) {
        let Some(it) = self.open.get(&who) else { return };
        let (lane, command) = (it.end.send.shared().lane(), command(SocketId(it.number)));
        let now = self.world.now;
        self.world.lanes[lane.index()].on_message(now, LaneMessage::Socket(NetstackId(who.0), command));
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Open(who) if !self.open.contains_key(&who) => {
                self.numbers += 1;
                let (number, local) = (self.numbers, format!("[::]:{}", 5000 + who.1));
                let end = self.world.bind(who.0, number, 0, &local);
                self.open.insert(who, Open { number, end, last: BTreeMap::new() });
            }
            Step::Open(_) => {}
            Step::Close(who) => {
                self.read(who);
                self.tell(who, SocketCommand::CloseDatagrams);
                self.open.remove(&who);
            }
            Step::Send(who, count, len, to) => {
                let Some(it) = self.open.get_mut(&who) else { return };
                let (peer, sent) = (address((3 - who.0, to)), self.sent.entry(it.number).or_default());
                for _ in 0..count {
                    let mut text = vec![0; 8 + usize::from(len)];
                    text[..4].copy_from_slice(&it.number.to_be_bytes());
                    text[4..8].copy_from_slice(&(*sent + 1).to_be_bytes());
                    *sent += u32::from(self.world.offer_to(&mut it.end, it.number, peer, &text));
                }
            }
            Step::Connect(who, peer) => {
                let remote = peer.map(|port| address((3 - who.0, port)));
                let outcome = Arc::new(OnceLock::new());
                self.tell(who, |socket| {
                    SocketCommand::ConnectDatagrams(Box::new(ConnectDatagrams {
                        socket,
                        remote,
                        link: None,
                        outcome,
                    }))
                });
            }
            Step::Limit(of, kbps) => self.limit(of, kbps),
            Step::Turn(lane) => {
                let lane = usize::from(lane) % self.world.lanes.len();
                let now = self.world.now;
                self.world.lanes[lane].turn(now, Idle::Sleeps);
            }
            Step::Exchange => _ = self.world.exchange(),
            Step::Wait(millis) => self.world.run_for(Duration::from_millis(millis.into())),
        }
        let all: Vec<_> = self.open.keys().copied().collect();
        all.into_iter().for_each(|who| self.read(who));
    }

    /// What has come for a socket.
    fn read(&mut self, who: Who) {
        let Some(it) = self.open.get_mut(&who) else { return };
        let mut buffer = [0; 2000];
        let mut told = 0;
        while told < 1000 {
            match it.end.recv.recv(&mut buffer) {
                Ok(Some(got)) => {
                    let word = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
                    let (from, number) = (word(0), word(4));
                    assert!(got.copied >= 8 && number <= self.sent[&from]);
                    let last = it.last.insert(from, number);
                    assert!(last < Some(number), "{number} of {from} after {last:?}");
                    self.got += 1;
                }
                Ok(None) => return,
                // A peer has nobody there.
                Err(_) => told += 1,
            }
        }
        panic!("the socket of {who:?} is told of errors without end");
    }

    /// All close, limits are none any more, and what is under way arrives or ends.
    fn end(&mut self) {
        (1..=2).for_each(|of| self.limit(of, FREE));
        self.world.run_for(Duration::from_secs(70));
        for who in (1..=2).flat_map(|netstack| (0..PORTS).map(move |port| (netstack, port))) {
            self.play(&Step::Close(who));
        }
        self.world.run_for(Duration::from_secs(70));
        self.world.check_conservation();
        let snapshots: Vec<_> = self.world.lanes.iter().map(|lane| lane.snapshot()).collect();
        assert_eq!(snapshots.iter().map(|it| it.held).sum::<u64>(), 0);
        for lane in 0..snapshots.len() as u16 {
            assert_eq!(self.world.ask(lane, None).0.len(), 0, "nothing is left of any");
        }
        let of = |netstack, count: fn(&UdpCounters) -> u64| -> u64 {
            let its =
                self.world.lanes.iter().map(|lane| lane.netstack_counters(NetstackId(netstack)).unwrap());
            its.map(|it| count(&it.udp)).sum()
        };
        let sum = |count: fn(&UdpCounters) -> u64| of(1, count) + of(2, count);
        let offered: u64 = self.sent.values().map(|&it| u64::from(it)).sum();
        assert_eq!(sum(|it| it.received), self.got);
        assert_eq!(
            sum(|it| it.sent) + sum(|it| it.unsendable),
            offered,
            "each is sent, or its program was told"
        );
        assert!(self.got + self.world.counters().drops.total() >= sum(|it| it.sent));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_sockets_send_arrives_in_order_and_nothing_is_left_of_them(
        lanes in 1u16..5, homes: [u16; 2], steps in steps(),
    ) {
        let mut game = Game::new(lanes, homes);
        steps.iter().for_each(|step| game.play(step));
        game.end();
    }
}

/// Two limits let what they hold go at the same instant, and what the first holds comes to the second.
#[test]
fn what_two_limits_release_at_once_keeps_its_order() {
    let mut game = Game::new(1, [0, 0]);
    let (from, to) = ((1, 2), (2, 2));
    let steps = [
        Step::Open(from),
        Step::Open(to),
        Step::Send(from, 2, 770, 3),
        Step::Limit(2, 536),
        Step::Wait(5),
        Step::Send(from, 2, 1310, 2),
    ];
    steps.iter().for_each(|step| game.play(step));
    game.end();
}
