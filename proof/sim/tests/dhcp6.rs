//! DHCPv6's client on a real netstack, beside a router that says what is to be had (RFC 8415, RFC 4861 §4.2): servers that
//! are slow, lost, wrong or two, stations that have the address already, and hosts that come back with a lease.
//!
//! The client's state machine is driven as its task drives it (`services/dhcp/src/v6/task.rs`); servers and the router are
//! a few lines here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use firelane_dhcp::Loss;
use firelane_dhcp::v6::{
    Action, Client, ClientConfig, Message, MessageType, Network, Options, Phase, Wanted,
};
use firelane_driver_memory::{Chance, Conditions, End, Loss as WireLoss};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_ip::{AutoconfConfig, DadConfig, IidKind, RouterFlags};
use firelane_lane::{Control, Notice};
use firelane_sim::{HostConfig, Plug, Random, Sim, StackConfig, StackId, station_mac};
use firelane_units::{DropCounters, Instant, IpPrefix, Mtu};
use firelane_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv6Repr, NdpMessage, NdpRepr, RouterPreference, ethernet, icmpv6,
};

mod datagram;

use datagram::{Socket, World as _};

const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
/// All servers and relays of the link (RFC 8415 §7.1), and all its stations.
const SERVERS_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Options by number (RFC 8415 §21, RFC 3646).
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const STATUS: u16 = 13;
const NAME_SERVERS: u16 = 23;
/// "It is not ours to give" and "it does not belong to this link" (RFC 8415 §21.13).
const NO_ADDRS: u16 = 2;
const NOT_ON_LINK: u16 = 4;
/// A lease: preferred for half of it, asked for again at a quarter and at two fifths.
const TIME: Duration = Duration::from_secs(1200);
const RENEW: f64 = 0.25;
const REBIND: f64 = 0.4;
/// How long a frame is under way.
const WAY: Duration = Duration::from_millis(2);
/// How long an answer may be on its way: its server may have to ask for the station's Ethernet address first, three times a second apart
/// where what it asks is lost (RFC 4861 §10).
const ANSWER: Duration = Duration::from_millis(2_000 + 3 * 2);
const RESOLVER: Ipv6Addr = addr(0x53);

const fn addr(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

/// What a server is like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// It says nothing any more.
    Mute,
    /// It answers with bytes that are no messages, or with messages that are not true.
    Wild,
}

struct Server {
    socket: Socket,
    duid: Vec<u8>,
    manner: Manner,
    pool: Vec<Ipv6Addr>,
    /// To whom, and until when.
    given: BTreeMap<Ipv6Addr, (Vec<u8>, Instant)>,
    declined: BTreeSet<Ipv6Addr>,
    /// The shares of a lease's time after which it is asked for again, of its server and of any, and in which new things
    /// may begin with it.
    shares: [f64; 3],
    heard: Vec<(MessageType, Instant)>,
}

impl Server {
    fn new(sim: &mut Sim, stack: StackId, manner: Manner, pool: &[u16]) -> Self {
        let socket = Socket::v6(sim, stack, SERVER_PORT);
        socket.join(sim, SERVERS_GROUP);
        let duid = vec![0, 3, 0, 1, stack.number];
        let pool = pool.iter().map(|&last| addr(last)).collect();
        let (given, declined) = (BTreeMap::new(), BTreeSet::new());
        let shares = [RENEW, REBIND, 0.5];
        Self { socket, duid, manner, pool, given, declined, shares, heard: Vec::new() }
    }

    fn heard(&self, kind: MessageType) -> Vec<Instant> {
        self.heard.iter().filter(|it| it.0 == kind).map(|it| it.1).collect()
    }

    fn turn(&mut self, sim: &mut Sim, random: &mut Random) {
        while let Some((bytes, from)) = self.socket.take() {
            let asked = Message::parse(&bytes).unwrap();
            let IpAddr::V6(ip) = from.ip() else { panic!("{from}") };
            // Whatever it holds, a client speaks from its address of the link.
            assert!(ip.is_unicast_link_local() && from.port() == CLIENT_PORT, "{from}");
            self.heard.push((asked.kind, sim.now()));
            let answer = match self.manner {
                Manner::Honest => self.answer(sim.now(), &asked).map(|it| it.emit()),
                Manner::Mute => None,
                Manner::Wild => Some(wild(&self.duid, &asked, random)),
            };
            if let Some(answer) = answer {
                self.socket.send(sim, ip, CLIENT_PORT, &answer);
            }
        }
    }

    fn answer(&mut self, now: Instant, asked: &Message) -> Option<Message> {
        use MessageType as M;
        if asked.options.get(SERVER_ID).is_some_and(|server| server != self.duid) {
            return None;
        }
        let client = asked.options.get(CLIENT_ID)?.to_vec();
        let wanted = asked_for(asked);
        let is_free = |it: &Ipv6Addr| {
            let is_others = |(other, until): &(Vec<u8>, Instant)| *other != client && *until > now;
            self.pool.contains(it)
                && !self.declined.contains(it)
                && !self.given.get(it).is_some_and(is_others)
        };
        let given = wanted.filter(is_free);
        match asked.kind {
            M::Solicit => {
                let own = self.given.iter().find(|(it, (id, _))| *id == client && is_free(it));
                let any = || self.pool.iter().copied().find(is_free);
                let offered = given.or(own.map(|it| *it.0)).or_else(any)?;
                Some(gives(asked, M::Advertise, &self.duid, offered, self.shares))
            }
            M::Request | M::Renew | M::Rebind => {
                let Some(given) = given else { return Some(refuses(asked, &self.duid, NO_ADDRS)) };
                self.given.insert(given, (client, now + TIME));
                Some(gives(asked, M::Reply, &self.duid, given, self.shares))
            }
            M::Confirm => {
                let is_here = wanted.is_some_and(|it| it.octets()[..8] == addr(0).octets()[..8]);
                Some(refuses(asked, &self.duid, if is_here { 0 } else { NOT_ON_LINK }))
            }
            M::Decline => {
                self.declined.extend(wanted);
                Some(refuses(asked, &self.duid, 0))
            }
            M::Release => {
                wanted.map(|it| self.given.remove(&it));
                Some(refuses(asked, &self.duid, 0))
            }
            M::InformationRequest => {
                let mut told = answers(asked, M::Reply, &self.duid);
                told.options.add(NAME_SERVERS, RESOLVER.octets());
                Some(told)
            }
            M::Advertise | M::Reply => None,
        }
    }
}

/// The address in the association of a message.
fn asked_for(message: &Message) -> Option<Ipv6Addr> {
    let inner = Options::parse(message.options.get(IA_NA)?.get(12..)?).ok()?;
    inner.get(IA_ADDR)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

fn answers(asked: &Message, kind: MessageType, server: &[u8]) -> Message {
    let mut answer = Message::new(kind, asked.xid);
    answer.options.add(CLIENT_ID, asked.options.get(CLIENT_ID).unwrap_or_default());
    answer.options.add(SERVER_ID, server);
    answer
}

fn refuses(asked: &Message, server: &[u8], status: u16) -> Message {
    let mut answer = answers(asked, MessageType::Reply, server);
    answer.options.add(STATUS, status.to_be_bytes());
    answer
}

fn gives(asked: &Message, kind: MessageType, server: &[u8], given: Ipv6Addr, shares: [f64; 3]) -> Message {
    let [renew, rebind, preferred] = shares;
    let share = |of: f64| (TIME.as_secs_f64() * of) as u32;
    let mut address = given.octets().to_vec();
    [share(preferred), share(1.0)].iter().for_each(|it| address.extend(it.to_be_bytes()));
    let mut inner = Options::default();
    inner.add(IA_ADDR, address);
    let iaid = asked.options.get(IA_NA).and_then(|it| it.get(..4)).unwrap_or(&[0; 4]);
    let mut association = iaid.to_vec();
    [share(renew), share(rebind)].iter().for_each(|it| association.extend(it.to_be_bytes()));
    inner.emit(&mut association);
    let mut answer = answers(asked, kind, server);
    answer.options.add(IA_NA, association);
    answer
}

/// What no honest server says.
fn wild(duid: &[u8], asked: &Message, random: &mut Random) -> Vec<u8> {
    let kinds = [MessageType::Advertise, MessageType::Reply, MessageType::Solicit, MessageType::Request];
    let lies = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, ALL_NODES, "fe80::1".parse().unwrap()];
    let mut said = gives(asked, random.pick(&kinds), duid, random.pick(&lies), [RENEW, REBIND, 0.5]);
    match random.below(4) {
        0 => said.xid = said.xid.wrapping_add(1) & 0x00ff_ffff,
        1 => said.options.remove(CLIENT_ID),
        2 => said.options = Options::default(),
        _ => {}
    }
    let mut bytes = said.emit();
    match random.below(3) {
        0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        1 => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at..].iter_mut().for_each(|byte| *byte = random.bits() as u8);
        }
        _ => {}
    }
    bytes
}

/// A router of the servers' side, which says what is to be had.
struct Router {
    end: End,
    pools: Pools,
    drops: DropCounters,
}

impl Router {
    const NUMBER: u8 = 200;

    fn new(sim: &mut Sim, host: usize) -> Self {
        let plug = Plug { vnic: Some(station_mac(Self::NUMBER)), ..sim.uplink(host) };
        let end = sim.dangle_at(plug, Mtu::ETHERNET);
        let pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 1 });
        Self { end, pools, drops: DropCounters::default() }
    }

    fn says(&mut self, now: Instant, managed: bool, other: bool) {
        let from: Ipv6Addr = "fe80::c8".parse().unwrap();
        let message = NdpMessage::RouterAdvert {
            hop_limit: 0,
            managed,
            other,
            preference: RouterPreference::Medium,
            lifetime: Duration::from_secs(9000),
            reachable: Duration::ZERO,
            retransmit: Duration::ZERO,
        };
        let repr = NdpRepr { message, options: &[] };
        let mut body = vec![0; repr.emitted_len()];
        repr.emit(&mut body);
        icmpv6::fill_checksum(&mut body, from, ALL_NODES);
        let ip = Ipv6Repr {
            hop_limit: 255,
            ..Ipv6Repr::new(from, ALL_NODES, IpProtocol::ICMPV6, body.len() as u16)
        };
        let (dst, src) = (ethernet::group_mac(ALL_NODES.into()), station_mac(Self::NUMBER));
        let mut frame = vec![0; 14 + 40];
        EthernetRepr { dst, src, ethertype: EtherType::IPV6 }.emit(&mut frame);
        ip.emit(&mut frame[14..]);
        frame.extend(body);
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(&frame).expect("the router's pool is large enough"));
        self.end.advance(now);
        self.end.transmit(&mut chain, &mut self.drops);
        assert_eq!(self.drops.total(), 0);
    }
}

/// A station with a client, and what its interface has of it.
struct Station {
    socket: Socket,
    client: Client,
    leased: Option<IpPrefix>,
    is_retired: bool,
    lost: Vec<(Loss, Instant)>,
    begun: Vec<Instant>,
    network: Option<Network>,
}

impl Station {
    fn new(sim: &mut Sim, stack: StackId, seed: u64) -> Self {
        for ip in [stack.ip(false), stack.ip(true)] {
            sim.control(stack.host, || Control::RemoveAddress(stack.netstack, stack.vnic, ip));
        }
        let settings = AutoconfConfig { iid: IidKind::Stable, stateless: true, temporary: false };
        sim.control(stack.host, || Control::SetAutoconf(stack.netstack, stack.vnic, Some(settings)));
        let socket = Socket::v6(sim, stack, CLIENT_PORT);
        let client = Client::new(sim.now(), Self::config(stack, seed), None);
        let (lost, begun) = (Vec::new(), Vec::new());
        Self { socket, client, leased: None, is_retired: false, lost, begun, network: None }
    }

    fn config(stack: StackId, seed: u64) -> ClientConfig {
        ClientConfig { duid: vec![0, 4, 9, 9, stack.number], iaid: stack.number.into(), seed }
    }

    fn set(&self, sim: &mut Sim, change: impl Fn(StackId) -> Control<firelane_sim::Port>) {
        let stack = self.socket.stack;
        sim.control(stack.host, || change(stack));
    }

    fn take_back(&mut self, sim: &mut Sim) {
        self.is_retired = false;
        if let Some(old) = self.leased.take() {
            self.set(sim, |it| Control::RemoveAddress(it.netstack, it.vnic, old.addr()));
        }
    }

    fn on_notice(&mut self, now: Instant, notice: &Notice) {
        let stack = self.socket.stack;
        let is_own = |netstack, link| (netstack, link) == (stack.netstack, stack.vnic);
        match *notice {
            Notice::AddressReady(netstack, link, prefix) if is_own(netstack, link) => {
                self.on_tested(now, prefix, true);
            }
            Notice::DuplicateAddress(netstack, link, prefix, _) if is_own(netstack, link) => {
                self.on_tested(now, prefix, false);
            }
            Notice::RouterFlags(netstack, link, RouterFlags { managed, other }) if is_own(netstack, link) => {
                let wanted = match (managed, other) {
                    (true, _) => Wanted::Addresses,
                    (false, true) => Wanted::Information,
                    (false, false) => Wanted::Nothing,
                };
                self.client.set_wanted(now, wanted);
            }
            _ => {}
        }
    }

    fn on_tested(&mut self, now: Instant, prefix: IpPrefix, is_free: bool) {
        if let IpAddr::V6(addr) = prefix.addr() {
            self.client.on_tested(now, addr, is_free);
        }
    }

    /// Does what is to be done now; when there is more.
    fn turn(&mut self, sim: &mut Sim) -> Option<Instant> {
        let now = sim.now();
        while let Some((bytes, from)) = self.socket.take() {
            assert_eq!(from.port(), SERVER_PORT);
            self.client.on_message(now, &bytes);
        }
        while let Some(action) = self.client.poll(now) {
            self.carry_out(sim, action);
        }
        self.client.poll_at()
    }

    fn carry_out(&mut self, sim: &mut Sim, action: Action) {
        match action {
            Action::Send(bytes) => self.socket.send(sim, SERVERS_GROUP, SERVER_PORT, &bytes),
            Action::Test(lease) => {
                self.take_back(sim);
                self.leased = Some(lease.prefix());
                self.set(sim, |it| Control::AddAddress(it.netstack, it.vnic, lease.prefix()));
            }
            Action::Bound(held) => {
                self.begun.push(sim.now());
                if std::mem::take(&mut self.is_retired) {
                    let prefix = held.lease.prefix();
                    self.set(sim, |it| Control::SetAddress(it.netstack, it.vnic, prefix, false));
                }
            }
            Action::Retire(lease) => {
                self.is_retired = true;
                self.set(sim, |it| Control::SetAddress(it.netstack, it.vnic, lease.prefix(), true));
            }
            Action::Lost(_, why) => {
                self.lost.push((why, sim.now()));
                self.take_back(sim);
            }
            Action::Informed(network) => self.network = Some(network),
        }
    }
}

struct World {
    sim: Sim,
    random: Random,
    stations: Vec<Station>,
    servers: Vec<Server>,
    router: Router,
}

/// The netstacks beside the client's.
const SERVERS: [u8; 2] = [1, 2];
const NEIGHBOUR: u8 = 9;

impl datagram::World for World {
    fn parts(&mut self) -> (&mut Sim, Vec<&Socket>) {
        let Self { sim, stations, servers, .. } = self;
        let sockets = stations.iter().map(|it| &it.socket).chain(servers.iter().map(|it| &it.socket));
        (sim, sockets.collect())
    }

    fn turn(&mut self) -> Option<Instant> {
        let now = self.sim.now();
        for notice in self.sim.notices() {
            self.stations.iter_mut().for_each(|it| it.on_notice(now, &notice));
        }
        let next = self.stations.iter_mut().filter_map(|it| it.turn(&mut self.sim)).min();
        self.servers.iter_mut().for_each(|it| it.turn(&mut self.sim, &mut self.random));
        self.check();
        next
    }
}

impl World {
    /// A host with `clients` stations, and one over a wire with two servers' netstacks, a router, and a neighbour that
    /// has fd00::9.
    fn new(seed: u64, wire: Conditions, clients: &[u8]) -> (Self, [StackId; 2]) {
        let mut sim = Sim::new(seed);
        let hosts = [0, 1].map(|_| sim.host(HostConfig::default(), Mtu::ETHERNET));
        let own = clients.iter().map(|&number| {
            sim.stack(hosts[0], &StackConfig { dad: DadConfig::FAST, ..StackConfig::new(number) })
        });
        let own: Vec<_> = own.collect();
        let servers = SERVERS.map(|number| sim.stack(hosts[1], &StackConfig::new(number)));
        sim.stack(hosts[1], &StackConfig::new(NEIGHBOUR));
        let router = Router::new(&mut sim, hosts[1]);
        let (from, to) = (sim.uplink(hosts[0]), sim.uplink(hosts[1]));
        sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire);
        sim.settle();
        let random = sim.random().fork();
        let stations = own.into_iter().zip(1..);
        let stations = stations.map(|(stack, n)| Station::new(&mut sim, stack, seed * 100 + n)).collect();
        sim.notices();
        (Self { sim, random, stations, servers: Vec::new(), router }, servers)
    }

    fn serve(&mut self, stack: StackId, manner: Manner, pool: &[u16]) {
        let server = Server::new(&mut self.sim, stack, manner, pool);
        self.servers.push(server);
    }

    /// The router speaks until every station has heard it, and lets the client's first wait pass.
    fn route(&mut self, managed: bool, other: bool) {
        for _ in 0..20 {
            let now = self.sim.now();
            self.router.says(now, managed, other);
            self.run(Duration::from_millis(500), |_| false);
        }
    }

    #[track_caller]
    fn run_until(&mut self, span: Duration, done: impl FnMut(&Self) -> bool) {
        let began = self.sim.now();
        assert!(self.run(span, done), "not within {span:?} of {began:?}: {:?}", self.stations[0].client);
    }

    /// Nobody uses what it does not hold, and nobody holds what no server gave.
    fn check(&self) {
        let now = self.sim.now();
        for station in &self.stations {
            if let Some(held) = station.client.held() {
                assert!(now < held.until, "{held:?} at {now:?}");
                assert_eq!(station.leased.map(|it| it.addr()), Some(held.lease.addr.into()));
                let given = self.servers.iter().filter_map(|it| it.given.get(&held.lease.addr));
                let given = given.map(|&(_, until)| until).max();
                // RFC 8415 §18.2.10.1: its time is counted from the answer's arrival, later than the server's.
                assert!(given.is_some_and(|until| held.until <= until + ANSWER), "{held:?} {given:?}");
            }
        }
    }

    fn phase(&self) -> Phase {
        self.stations[0].client.phase()
    }

    fn is_bound(&self) -> bool {
        self.phase() == Phase::Bound
    }

    /// One station, one server, and a lease.
    fn bound(pool: &[u16]) -> Self {
        let (mut world, [first, _]) = Self::new(1, lossy(0.0), &[50]);
        world.serve(first, Manner::Honest, pool);
        world.route(true, false);
        world.run_until(Duration::from_secs(60), Self::is_bound);
        world
    }
}

fn lossy(percent: f64) -> Conditions {
    Conditions { loss: WireLoss::Random(Chance::percent(percent)), delay: WAY, ..Conditions::default() }
}

#[test]
fn a_third_of_all_messages_may_be_lost_before_a_lease_and_a_tenth_while_there_is_one() {
    for seed in 0..20 {
        let (mut world, [first, _]) = World::new(seed, lossy(33.0), &[50, 51]);
        world.serve(first, Manner::Honest, &[50, 51]);
        world.route(true, false);
        world.run_until(TIME, |it| it.stations.iter().all(|it| it.client.held().is_some()));
        world.sim.wire(0).set(&lossy(10.0));
        world.run(5 * TIME, |_| false);
        // Many questions are lost, and no lease is: there is time to ask again.
        for station in &world.stations {
            let lost = &station.lost;
            assert!(station.client.held().is_some() && lost.is_empty(), "seed {seed}: {lost:?}");
        }
    }
}

#[test]
fn what_routers_say_decides_what_is_asked_for() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50]);
    world.serve(first, Manner::Honest, &[50]);
    world.run(Duration::from_secs(100), |_| false);
    world.route(false, false);
    assert_eq!(
        (world.phase(), world.servers[0].heard.len()),
        (Phase::Idle, 0),
        "nobody said that there is DHCPv6"
    );
    world.route(false, true);
    world.run_until(Duration::from_secs(10), |it| it.phase() == Phase::Informed);
    let told = world.stations[0].network.as_ref().map(|it| it.name_servers.clone());
    assert_eq!((told, world.stations[0].leased), (Some(vec![RESOLVER]), None));
    world.route(true, true);
    world.run_until(Duration::from_secs(10), World::is_bound);
    assert_eq!(world.stations[0].leased, Some(IpPrefix::host(addr(50).into())));
    // A router that says less takes nothing away.
    world.route(false, false);
    world.run(3 * TIME, |_| false);
    assert!(world.stations[0].client.held().is_some() && world.stations[0].lost.is_empty());
}

#[test]
fn questions_without_an_answer_are_repeated_ever_more_rarely() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50]);
    world.serve(first, Manner::Mute, &[]);
    world.route(true, false);
    world.run(Duration::from_secs(300), |_| false);
    let heard = world.servers[0].heard(MessageType::Solicit);
    let waits: Vec<_> =
        heard.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64()).collect();
    assert!(waits.len() >= 7, "{waits:?}");
    // RFC 8415 §15: each wait is twice the one before, give or take a tenth of that.
    for pair in waits.windows(2) {
        assert!((1.85..=2.15).contains(&(pair[1] / pair[0])), "{waits:?}");
    }
    assert!((1.0..=1.1).contains(&waits[0]), "{waits:?}");
}

#[test]
fn an_address_that_a_neighbour_has_is_declined_and_another_taken() {
    let world = World::bound(&[NEIGHBOUR.into(), 51]);
    let station = &world.stations[0];
    assert_eq!(station.leased, Some(IpPrefix::host(addr(51).into())));
    assert_eq!((station.lost.len(), station.lost[0].0), (1, Loss::Conflict));
    assert_eq!(world.servers[0].declined, [addr(NEIGHBOUR.into())].into());
}

#[test]
fn a_lease_is_renewed_then_asked_of_everybody_then_retired_and_lost_on_time() {
    let mut world = World::bound(&[50]);
    let last = |world: &World, kind| *world.servers[0].heard(kind).last().unwrap();
    let share = |from: Instant, to: Instant| to.saturating_since(from).as_secs_f64() / TIME.as_secs_f64();
    let asked = last(&world, MessageType::Request);
    world.run_until(TIME, |it| it.stations[0].begun.len() == 2);
    let renewed = last(&world, MessageType::Renew);
    // A little sooner, each station by another time.
    assert!((RENEW - 0.01..=RENEW).contains(&share(asked, renewed)));
    let until = world.stations[0].client.held().unwrap().until;
    // Then its server says nothing any more.
    world.servers[0].manner = Manner::Mute;
    world.run_until(TIME, |it| !it.servers[0].heard(MessageType::Rebind).is_empty());
    let rebound = world.servers[0].heard(MessageType::Rebind)[0];
    assert!((REBIND - 0.015..=REBIND).contains(&share(renewed, rebound)));
    world.run_until(TIME, |it| it.stations[0].is_retired);
    assert!((0.49..0.51).contains(&share(renewed, world.sim.now())), "nothing new begins with it");
    world.run_until(TIME, |it| !it.stations[0].lost.is_empty());
    let station = &world.stations[0];
    assert_eq!((station.lost[0], station.leased), ((Loss::Expired, until), None));
    // And it looks for one again until there is a server.
    world.servers[0].manner = Manner::Honest;
    world.run_until(Duration::from_secs(4000), World::is_bound);
}

#[test]
fn an_address_on_its_way_out_is_retired_and_not_asked_for_again_and_again() {
    let mut world = World::bound(&[50]);
    // The server wants the address back in due time: it may be used, nothing new begins with it, and the rest is the
    // client's to choose.
    world.servers[0].shares = [0.0; 3];
    world.run_until(TIME, |it| it.stations[0].begun.len() == 2);
    world.run(TIME, |_| false);
    assert!(world.stations[0].is_retired && world.stations[0].lost.is_empty());
    let asked = world.servers[0].heard(MessageType::Renew).len();
    assert!((2..=4).contains(&asked), "{asked}");
}

#[test]
fn of_two_servers_the_other_takes_over() {
    let (mut world, [first, second]) = World::new(1, lossy(0.0), &[50]);
    world.serve(first, Manner::Honest, &[50]);
    world.serve(second, Manner::Honest, &[50]);
    world.route(true, false);
    world.run_until(Duration::from_secs(60), World::is_bound);
    let own = world.stations[0].client.held().unwrap().lease.server.clone();
    let granted = |world: &World| world.servers.iter().filter(|it| !it.given.is_empty()).count();
    assert_eq!(granted(&world), 1, "only the one that was asked gives");
    world.servers.iter_mut().filter(|it| it.duid == own).for_each(|it| it.manner = Manner::Mute);
    world.run_until(TIME, |it| it.stations[0].begun.len() == 2);
    let held = world.stations[0].client.held().unwrap();
    assert_eq!((held.lease.addr, granted(&world)), (addr(50), 2));
    assert!(held.lease.server != own && world.stations[0].lost.is_empty());
}

#[test]
fn a_lease_of_before_is_confirmed_and_one_of_another_network_is_not() {
    for (lease_addr, is_kept) in [(addr(50), true), ("fd77::50".parse().unwrap(), false)] {
        let mut world = World::bound(&[50]);
        let mut lease = world.stations[0].client.held().unwrap().lease.clone();
        lease.addr = lease_addr;
        let (now, stack) = (world.sim.now(), world.stations[0].socket.stack);
        // The host comes back, with a client that knows no more than the lease.
        world.stations[0].take_back(&mut world.sim);
        world.stations[0].client = Client::new(now, Station::config(stack, 7), Some((lease, TIME / 2)));
        world.stations[0].client.set_wanted(now, Wanted::Addresses);
        let solicited = world.servers[0].heard(MessageType::Solicit).len();
        world.run_until(Duration::from_secs(60), World::is_bound);
        assert_eq!(world.servers[0].heard(MessageType::Confirm).len(), 1);
        assert_eq!(world.servers[0].heard(MessageType::Solicit).len() == solicited, is_kept);
        assert_eq!(world.stations[0].leased, Some(IpPrefix::host(addr(50).into())));
    }
}

#[test]
fn what_is_given_back_is_the_servers_again() {
    let mut world = World::bound(&[50]);
    let now = world.sim.now();
    world.stations[0].client.release(now);
    world.run_until(Duration::from_secs(10), |it| it.phase() == Phase::Released);
    assert!(world.servers[0].given.is_empty() && world.stations[0].leased.is_none());
    world.run(TIME, |_| false);
    assert_eq!(world.phase(), Phase::Released, "until the operator wants it again");
    let now = world.sim.now();
    world.stations[0].client.refresh(now);
    world.run_until(Duration::from_secs(10), World::is_bound);
}

#[test]
fn a_server_that_says_wild_things_hinders_nobody() {
    for seed in 0..20 {
        let (mut world, [first, second]) = World::new(seed, lossy(0.0), &[50]);
        world.serve(first, Manner::Wild, &[]);
        world.serve(second, Manner::Honest, &[50]);
        world.route(true, false);
        world.run_until(Duration::from_secs(600), World::is_bound);
        world.run(3 * TIME, |_| false);
        let client = &world.stations[0].client;
        assert_eq!(client.held().map(|it| it.lease.addr), Some(addr(50)), "seed {seed}");
        let seen = client.counters();
        assert!(seen.malformed + seen.unasked + seen.unusable + seen.refused > 0, "seed {seed}: {seen:?}");
    }
}
