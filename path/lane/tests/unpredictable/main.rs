//! S14 of the attack list: what a netstack draws for its connections cannot be guessed from what it has drawn for others (RFC 6528,
//! RFC 6056, RFC 7323 §5.4, RFC 6864, RFC 7739).
//!
//! The numbers are those of frames that a lane sends to neighbouring peers at one instant: the worst case, because only the keyed
//! hashes are left. The judge is shown that it rejects what must not be used.

mod judge;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_frame::{Capabilities, Chain, PoolsConfig};
use firelane_ip::{DadConfig, Hearsay};
use firelane_lane::*;
use firelane_socket::{DatagramEnd, StreamConfig, StreamEnd, stream};
use firelane_units::{FlowId, LaneId, LinkId, NetstackId, SocketId};
use firelane_wire::TcpOptions;
use firelane_world::*;

use judge::{Finding, faults, faults_between};

/// How many connections are judged; of a million `make soak` knows.
const MANY: u32 = 100_000;
/// How many are made before their SYNs are read.
const TOGETHER: u32 = 64;
/// Bits of a local port: the upper half of them all.
const PORT_BITS: u32 = 15;
const FIRST_PORT: u16 = 32_768;

/// Netstack 1, and perhaps 2 with the same addresses, each with a gateway that is a wire.
struct Host {
    world: World,
    wires: Vec<RingDriver>,
}

/// What a SYN showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Shown {
    isn: u32,
    clock: u32,
    port: u16,
}

impl Host {
    fn new(secrets: Secrets, lanes: u16, netstacks: u16) -> Self {
        let pools = PoolsConfig { small_slots: 512, large_slots: 8 };
        let mut host = Self { world: World::with_secrets(lanes, pools, secrets), wires: Vec::new() };
        (1..=netstacks).for_each(|n| host.add(n));
        host.world.run();
        host
    }

    fn add(&mut self, n: u16) {
        let (id, world) = (NetstackId(n), &mut self.world);
        let number = u32::from(n);
        let (stub, own, gate) = (LinkId(10 * number), LinkId(10 * number + 1), LinkId(10 * number + 2));
        world.all(|| Control::AddLink(LinkConfig { link: stub, mtu: MTU }));
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, dad: DadConfig::OFF, ..NetstackConfig::new(id) };
        world.all(|| Control::AddNetstack(config.clone()));
        let (far, near) = wire(Capabilities::plain(MTU));
        for (link, mac_end, user, queues) in [
            (own, 1, PortUser::Netstack(id), vec![]),
            (gate, 7, PortUser::Driver { through: LaneId(0) }, vec![near.into()]),
        ] {
            world.add_flow(plain_flow(FlowId(link.0), link, None, None));
            world.add_port(vnic(link.0, stub.0, mac_end, link.0, user), queues);
        }
        self.wires.push(far);
        for (address, any, gateway) in
            [("10.1.0.1/24", "0.0.0.0/0", "10.1.0.7"), ("fd00::1/64", "::/0", "fd00::7")]
        {
            let gateway: IpAddr = gateway.parse().unwrap();
            let (address, any) = (address.parse().unwrap(), any.parse().unwrap());
            world.all(|| Control::AddAddress(id, own, address));
            let route = RouteConfig { gateway: Some(gateway), ..RouteConfig::on_link(any, own) };
            world.all(|| Control::AddRoute(id, route));
        }
        // Each gateway is asked for, and is there.
        let lanes = self.world.lane_ids();
        let begun: Vec<_> = lanes.iter().flat_map(|lane| self.begin(n, *lane, &[peer(0), peer(1)])).collect();
        self.sent(n);
        for gateway in ["10.1.0.7", "fd00::7"] {
            let ip = gateway.parse().unwrap();
            let learned = Box::new(Learned::Neighbour {
                link: own,
                ip,
                mac: Some(mac(7)),
                how: Hearsay::Answer { replace: true },
            });
            for lane in &mut self.world.lanes {
                lane.on_message(self.world.now, LaneMessage::Learned(id, learned.clone()));
            }
        }
        self.end(begun);
        self.sent(n);
    }

    /// What has left by a netstack's gateway, from its IP header on.
    fn sent(&mut self, netstack: u16) -> Vec<Vec<u8>> {
        self.world.run();
        let mut chain = Chain::new();
        self.wires[usize::from(netstack) - 1].rx.pop_into(&mut chain, 1024);
        let bytes = |frame: &firelane_frame::Frame| frame.as_slice()[14..].to_vec();
        chain.iter().filter(|frame| frame.as_slice()[12..14] != [8, 6]).map(bytes).collect()
    }

    /// Connects to each of these, reads the SYNs, and forgets the connections.
    fn connect(&mut self, netstack: u16, remotes: &[SocketAddr]) -> Vec<Shown> {
        let begun = self.begin(netstack, LaneId(0), remotes);
        let shown: Vec<Shown> = self.sent(netstack).iter().map(|packet| read_syn(packet)).collect();
        assert_eq!(shown.len(), remotes.len(), "each connection begins");
        self.end(begun);
        assert_eq!(self.sent(netstack).len(), 0);
        shown
    }

    fn begin(&mut self, netstack: u16, lane: LaneId, remotes: &[SocketAddr]) -> Vec<StreamEnd> {
        let id = NetstackId(netstack);
        let rings = StreamConfig { send_capacity: 4096, recv_capacity: 4096 };
        let mut ends = Vec::new();
        for &remote in remotes {
            let (end, slot) = stream(rings, lane, id);
            let connect = Connect { remote, local: None, stream: slot, options: StreamOptions::default() };
            let command = SocketCommand::Connect(Box::new(connect));
            self.world.lanes[lane.index()].on_message(self.world.now, LaneMessage::Socket(id, command));
            ends.push(end);
        }
        ends
    }

    fn end(&mut self, begun: Vec<StreamEnd>) {
        for end in begun {
            self.world.command(&end, SocketCommand::Abort);
        }
    }

    /// A datagram socket of a lane, with a port that is drawn.
    fn bind(&mut self, netstack: u16, lane: u16, local: IpAddr) -> (DatagramEnd, u16) {
        let end = self.world.bind(netstack, 0, lane, &SocketAddr::new(local, 0).to_string());
        let port = end.recv.shared().local().expect("it has a port").port();
        (end, port)
    }

    fn unbind(&mut self, netstack: u16, lane: u16) {
        let message = LaneMessage::Socket(NetstackId(netstack), SocketCommand::CloseDatagrams(SocketId(0)));
        self.world.lanes[usize::from(lane)].on_message(self.world.now, message);
        self.world.run();
    }

    /// The identifications of datagrams of `len` bytes, one to each of these; of those in pieces, that of each first piece.
    fn identify(&mut self, netstack: u16, lane: u16, peers: &[SocketAddr], len: usize) -> Vec<u32> {
        let any: IpAddr =
            if peers[0].is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let (mut end, _) = self.bind(netstack, lane, any);
        let (text, mut all) = (vec![0; len], Vec::new());
        for some in peers.chunks(TOGETHER as usize / 2) {
            for &peer in some {
                self.world.send_to(&mut end, 0, peer, &text);
            }
            let before = all.len();
            all.extend(self.sent(netstack).iter().filter_map(|packet| identification(packet)));
            assert_eq!(all.len() - before, some.len(), "each datagram leaves");
        }
        self.unbind(netstack, lane);
        all
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

fn read_syn(packet: &[u8]) -> Shown {
    let tcp = &packet[if packet[0] >> 4 == 4 { 20 } else { 40 }..];
    assert_eq!(tcp[13], 2, "a SYN");
    let options = TcpOptions::parse(&tcp[20..usize::from(tcp[12] >> 4) * 4]);
    Shown {
        isn: word(tcp, 4),
        clock: options.timestamps.expect("it has timestamps").0,
        port: u16::from_be_bytes([tcp[0], tcp[1]]),
    }
}

/// Of a datagram's first piece.
fn identification(packet: &[u8]) -> Option<u32> {
    match packet[0] >> 4 {
        4 => (packet[6] & 0x1f == 0 && packet[7] == 0).then(|| word(packet, 4) >> 16),
        _ => (packet[6] == 44 && word(packet, 40) & 0xfff8 == 0).then(|| word(packet, 44)),
    }
}

/// Neighbours of each other, of one family by turns.
fn peer(n: u32) -> SocketAddr {
    let (port, place) = (if n & 2 == 0 { 80 } else { 443 }, n >> 2);
    match n & 1 {
        0 => SocketAddr::new(Ipv4Addr::from(0x6440_0000 + place).into(), port),
        _ => SocketAddr::new(Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(place)).into(), port),
    }
}

/// Secrets of a process that was started for the `n`th time.
fn boot(n: u64) -> Secrets {
    let mut state = n << 32 | 0x5eed;
    Secrets::new(std::array::from_fn(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
    }))
}

#[track_caller]
fn passes(what: &str, found: Vec<Finding>) {
    assert!(found.is_empty(), "{what}: {found:?}");
}

/// The three kinds of numbers of these connections, each for itself and beside the others.
fn judge_all(shown: &[Shown]) {
    let isns: Vec<u32> = shown.iter().map(|it| it.isn).collect();
    let clocks: Vec<u32> = shown.iter().map(|it| it.clock).collect();
    let ports: Vec<u32> = shown.iter().map(|it| u32::from(it.port - FIRST_PORT)).collect();
    passes("initial sequence numbers", faults(&isns, 32));
    passes("timestamps", faults(&clocks, 32));
    passes("local ports", faults(&ports, PORT_BITS));
    passes("sequence numbers and timestamps", faults_between(&isns, &clocks, 32));
    let cut = |values: &[u32]| -> Vec<u32> { values.iter().map(|it| it >> (32 - PORT_BITS)).collect() };
    passes("sequence numbers and ports", faults_between(&cut(&isns), &ports, PORT_BITS));
    passes("timestamps and ports", faults_between(&cut(&clocks), &ports, PORT_BITS));
}

fn judge_connections(count: u32) {
    let mut host = Host::new(boot(1), 1, 1);
    let peers: Vec<SocketAddr> = (0..count).map(peer).collect();
    let shown: Vec<Shown> = peers.chunks(TOGETHER as usize).flat_map(|some| host.connect(1, some)).collect();
    assert_eq!(shown.len(), count as usize);
    judge_all(&shown);
    host.world.check_conservation();
}

#[test]
fn s14_connections_show_nothing_of_each_other() {
    judge_connections(MANY);
}

#[test]
#[ignore = "a million connections, and millions of identifications: make soak"]
fn soak_s14_a_million_connections_show_nothing_of_each_other() {
    judge_connections(1_000_000);
    judge_identifications(1_000_000);
}

/// Of datagrams to one peer the identifications move on by 1 to 8, by chance.
#[test]
fn s14_identifications_move_on_by_chance() {
    judge_identifications(MANY);
}

fn judge_identifications(count: u32) {
    let mut host = Host::new(boot(2), 1, 1);
    for (len, number, bits, to) in [(8, count, 16, 0), (1600, count / 10, 32, 1)] {
        let ids = host.identify(1, 0, &vec![peer(to); number as usize], len);
        let mask = u32::MAX >> (32 - bits);
        let steps: Vec<u32> =
            ids.windows(2).map(|it| it[1].wrapping_sub(it[0]).wrapping_sub(1) & mask).collect();
        assert!(steps.iter().all(|step| *step < 8), "as many as that are left out at the most");
        passes("steps of identifications", faults(&steps, 3));
    }
}

/// Of datagram sockets, the ports (RFC 6056 §3.3; what guards a resolver's questions).
#[test]
fn s14_ports_of_datagrams_are_drawn() {
    let mut host = Host::new(boot(3), 1, 1);
    let ports: Vec<u32> = draw_ports(&mut host, 0, MANY);
    passes("ports of datagrams", faults(&ports, PORT_BITS));
}

fn draw_ports(host: &mut Host, lane: u16, count: u32) -> Vec<u32> {
    let draw = |_| {
        let (_, port) = host.bind(1, lane, Ipv4Addr::UNSPECIFIED.into());
        host.unbind(1, lane);
        u32::from(port - FIRST_PORT)
    };
    (0..count).map(draw).collect()
}

/// The lanes of a netstack have the same keys, and draw different numbers.
#[test]
fn s14_lanes_show_nothing_of_each_other() {
    let mut host = Host::new(boot(4), 2, 1);
    let [one, other] = [0, 1].map(|lane| host.identify(1, lane, &[peer(0); 8], 8));
    assert!(one.iter().all(|id| other.iter().all(|of| id.abs_diff(*of) > 64)), "{one:?} {other:?}");
    let mut host = Host::new(boot(4), 2, 1);
    let all = draw_ports(&mut Host::new(boot(4), 1, 1), 0, 200);
    // Connections have moved the lanes' counts on.
    let same = |ports: &[u32]| {
        let at = |ahead: usize| all.iter().skip(ahead).zip(ports).filter(|(a, b)| a == b).count();
        (0..16).map(at).max()
    };
    // Of those that the first lane would draw alone, half are its own.
    assert!(same(&draw_ports(&mut host, 0, 200)) > Some(50));
    assert!(same(&draw_ports(&mut host, 1, 200)) < Some(5));
}

/// What is shown of itself by a netstack when its process has just begun, or has another number.
fn shown_by(host: &mut Host, netstack: u16) -> Vec<u32> {
    let peers: Vec<SocketAddr> = (0..2).map(peer).collect();
    let mut all = Vec::new();
    for syn in host.connect(netstack, &peers) {
        all.extend([syn.isn, syn.clock, u32::from(syn.port - FIRST_PORT) << 17]);
    }
    all.extend(host.identify(netstack, 0, &[peer(0)], 8).iter().map(|id| id << 16));
    all.extend(host.identify(netstack, 0, &[peer(4)], 8).iter().map(|id| id << 16));
    all.extend(host.identify(netstack, 0, &[peer(1)], 1600));
    let (_, port) = host.bind(netstack, 0, Ipv4Addr::UNSPECIFIED.into());
    all.push(u32::from(port - FIRST_PORT) << 17);
    all
}

/// What one start has shown says nothing of the next one, and what one netstack shows nothing of another with the same addresses.
/// The upper 15 bits of each kind of number are judged over all starts, and so is how they differ between the two netstacks.
#[test]
fn s14_each_start_and_each_netstack_has_keys_of_its_own() {
    const STARTS: u64 = 500;
    let (mut all, mut apart): (Vec<Vec<u32>>, Vec<Vec<u32>>) = Default::default();
    for n in 0..STARTS {
        let mut host = Host::new(boot(100 + n), 1, 2);
        let [one, other] = [1, 2].map(|netstack| shown_by(&mut host, netstack));
        let top = |value: u32| value >> 17;
        apart.push(one.iter().zip(&other).map(|(a, b)| top(a.wrapping_sub(*b))).collect());
        all.push(one.into_iter().map(top).collect());
    }
    for kind in 0..all[0].len() {
        let column = |of: &[Vec<u32>]| -> Vec<u32> { of.iter().map(|row| row[kind]).collect() };
        passes(&format!("{kind} of each start"), faults(&column(&all), 15));
        passes(&format!("{kind} of two netstacks"), faults(&column(&apart), 15));
    }
    // The same start shows the same: it is the keys that decide.
    let again = |netstack| shown_by(&mut Host::new(boot(100), 1, 2), netstack);
    assert_eq!(again(1).into_iter().map(|it| it >> 17).collect::<Vec<u32>>(), all[0]);
    assert_ne!(again(1), again(2));
}

/// What must not be used is rejected, by tests that have to do with its fault.
#[test]
fn s14_the_judge_rejects_what_can_be_guessed() {
    // What it is, its `n`th number, and a test that must reject it.
    type Weak = (&'static str, fn(u32) -> u32, &'static str);
    let weak: [Weak; 7] = [
        ("a counter", |n| n, "frequency"),
        // 4.4BSD: 64,000 for each connection.
        ("a counter in large steps", |n| n.wrapping_mul(64_000), "correlation"),
        ("a counter whose steps spread", |n| n.wrapping_mul(0x9e37_79b9), "pairs of neighbours"),
        ("a clock with some noise", |n| (n << 8).wrapping_add(hash(n) & 0xff), "correlation"),
        ("a linear congruential generator", lcg, "runs of bit 0"),
        ("a hash of every other connection's", |n| hash(n / 2), "serial"),
        ("a hash whose first bit is often set", |n| hash(n) | hash(!n) << 31 & hash(n ^ 77) << 31, "bit 31"),
    ];
    for (name, draw, by) in weak {
        let values: Vec<u32> = (0..100_000).map(draw).collect();
        let found = faults(&values, 32);
        assert!(found.iter().any(|(test, _)| test.contains(by)), "{name}: {found:?}");
    }
    // Ports that follow one another, and such that leave out a thirty-second.
    let ports: Vec<u32> = (0..100_000).map(|n| n % (1 << PORT_BITS)).collect();
    assert!(!faults(&ports, PORT_BITS).is_empty());
    let few: Vec<u32> = (0..100_000).map(|n| hash(n) % 31_744).collect();
    assert!(faults(&few, PORT_BITS).iter().any(|(test, _)| test == "chi-squared of values"));
    // Two kinds of numbers of which one is made from the other.
    let values: Vec<u32> = (0..100_000).map(hash).collect();
    let other: Vec<u32> = values.iter().map(|value| value.wrapping_add(12_345)).collect();
    assert!(!faults_between(&values, &other, 32).is_empty());
    // And what is good passes.
    passes("a hash", faults(&values, 32));
}

/// The generator of ANSI C's example, all of its state.
fn lcg(n: u32) -> u32 {
    // The state after n steps, by squaring.
    let (mut factor, mut add, mut a, mut c, mut left) = (1_u32, 0_u32, 1_103_515_245_u32, 12_345_u32, n);
    while left > 0 {
        if left & 1 == 1 {
            (factor, add) = (factor.wrapping_mul(a), add.wrapping_mul(a).wrapping_add(c));
        }
        (a, c) = (a.wrapping_mul(a), c.wrapping_mul(a.wrapping_add(1)));
        left >>= 1;
    }
    factor.wrapping_mul(7).wrapping_add(add)
}

/// Murmur's finaliser of 64 bits, twice.
fn hash(n: u32) -> u32 {
    let mut word = u64::from(n) + 0x9e37_79b9_7f4a_7c15;
    for _ in 0..2 {
        word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    }
    (word >> 32) as u32
}
