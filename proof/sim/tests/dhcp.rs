//! DHCP's client and addresses of the link alone on a real netstack: servers that are slow, lost, wrong or two, stations
//! that have the address already, and what is on the wire (RFC 2131, RFC 3927, RFC 5227).
//!
//! The client's state machine is driven as its task drives it (`services/dhcp/src/task.rs`); servers are a few lines here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use firelane_dhcp::v4::{Action, Client, ClientConfig, Message, MessageType, Phase};
use firelane_dhcp::{LinkLocal, Loss, Step};
use firelane_driver_memory::{Chance, Conditions, Loss as WireLoss};
use firelane_ip::DadConfig;
use firelane_lane::{Control, Notice};
use firelane_sim::{HostConfig, Random, Sim, StackConfig, StackId, station_mac};
use firelane_units::{Instant, IpPrefix, MacAddr, Mtu};

mod datagram;

use datagram::{Socket, World as _};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Options by number (RFC 2132).
const MASK: u8 = 1;
const REQUESTED: u8 = 50;
const LEASE_TIME: u8 = 51;
const SERVER_ID: u8 = 54;
/// A lease.
const TIME: Duration = Duration::from_secs(1200);

const fn addr(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn prefix(addr: Ipv4Addr, len: u8) -> IpPrefix {
    IpPrefix::new(addr.into(), len).unwrap()
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
    own: Ipv4Addr,
    manner: Manner,
    pool: Vec<Ipv4Addr>,
    /// To whom, and until when.
    given: BTreeMap<Ipv4Addr, (MacAddr, Instant)>,
    declined: BTreeSet<Ipv4Addr>,
    heard: Vec<(MessageType, Instant)>,
}

impl Server {
    fn new(sim: &mut Sim, stack: StackId, manner: Manner, pool: &[u8]) -> Self {
        let socket = Socket::for_everybody(sim, stack, SERVER_PORT);
        let pool = pool.iter().map(|&last| addr(last)).collect();
        let (given, declined) = (BTreeMap::new(), BTreeSet::new());
        Self { socket, own: addr(stack.number), manner, pool, given, declined, heard: Vec::new() }
    }

    fn heard(&self, kind: MessageType) -> Vec<Instant> {
        self.heard.iter().filter(|it| it.0 == kind).map(|it| it.1).collect()
    }

    fn turn(&mut self, sim: &mut Sim, random: &mut Random) {
        while let Some((bytes, from)) = self.socket.take() {
            let asked = Message::parse(&bytes).unwrap();
            assert!(!asked.is_reply && from.port() == CLIENT_PORT);
            self.heard.push((asked.kind, sim.now()));
            let to = if asked.client.is_unspecified() { Ipv4Addr::BROADCAST } else { asked.client };
            let answer = match self.manner {
                Manner::Honest => self.answer(sim.now(), &asked).map(|it| it.emit()),
                Manner::Mute => None,
                Manner::Wild => Some(wild(&asked, random)),
            };
            if let Some(answer) = answer {
                self.socket.send(sim, to, CLIENT_PORT, &answer);
            }
        }
    }

    fn answer(&mut self, now: Instant, asked: &Message) -> Option<Message> {
        let option =
            |code| Some(Ipv4Addr::from(<[u8; 4]>::try_from(asked.options.get(&code)?.as_slice()).ok()?));
        let wanted = option(REQUESTED).or(Some(asked.client).filter(|it| !it.is_unspecified()));
        if option(SERVER_ID).is_some_and(|server| server != self.own) {
            return None;
        }
        let is_free = |it: &Ipv4Addr| {
            let is_others = |&(mac, until): &(MacAddr, Instant)| mac != asked.mac && until > now;
            self.pool.contains(it)
                && !self.declined.contains(it)
                && !self.given.get(it).is_some_and(is_others)
        };
        let given = wanted.filter(is_free);
        let (kind, yours) = match asked.kind {
            MessageType::Discover => {
                let own = self.given.iter().find(|(it, (mac, _))| *mac == asked.mac && is_free(it));
                let any = || self.pool.iter().copied().find(is_free);
                (MessageType::Offer, given.or(own.map(|it| *it.0)).or_else(any)?)
            }
            MessageType::Request => match given {
                Some(given) => (MessageType::Ack, given),
                // Another server's address is that server's to judge, as long as it is there.
                None => return None,
            },
            MessageType::Decline => {
                self.declined.extend(wanted);
                return None;
            }
            _ => return None,
        };
        if kind == MessageType::Ack {
            self.given.insert(yours, (asked.mac, now + TIME));
        }
        Some(answer(asked, kind, self.own, yours))
    }
}

fn answer(asked: &Message, kind: MessageType, server: Ipv4Addr, yours: Ipv4Addr) -> Message {
    let mut answer = Message::request(kind, asked.xid, asked.mac);
    (answer.is_reply, answer.yours) = (true, yours);
    answer.options.insert(SERVER_ID, server.octets().to_vec());
    answer.options.insert(MASK, vec![255, 255, 255, 0]);
    answer.options.insert(LEASE_TIME, (TIME.as_secs() as u32).to_be_bytes().to_vec());
    answer
}

/// What no honest server says.
fn wild(asked: &Message, random: &mut Random) -> Vec<u8> {
    let kinds = [MessageType::Offer, MessageType::Ack, MessageType::Nak, MessageType::Discover];
    let lies = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::LOCALHOST, Ipv4Addr::new(224, 0, 0, 1)];
    let mut said = answer(asked, random.pick(&kinds), addr(66), random.pick(&lies));
    match random.below(4) {
        0 => said.xid = said.xid.wrapping_add(1),
        1 => said.mac = station_mac(99),
        2 => said.options.retain(|_, _| false),
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

/// A station with a client, and what its interface has of it.
struct Station {
    socket: Socket,
    client: Client,
    link_local: Option<LinkLocal>,
    leased: Option<IpPrefix>,
    local: Option<IpPrefix>,
    lost: Vec<(Loss, Instant)>,
    begun: Vec<Instant>,
}

impl Station {
    fn new(sim: &mut Sim, stack: StackId, seed: u64, with_link_local: bool) -> Self {
        for ip in [stack.ip(false), stack.ip(true)] {
            sim.control(stack.host, || Control::RemoveAddress(stack.netstack, stack.vnic, ip));
        }
        let mac = station_mac(stack.number);
        let id = vec![255, 0, 0, 0, stack.number];
        let config = ClientConfig { mac, id, host_name: None, link_local: with_link_local, seed };
        let client = Client::new(sim.now(), config, None);
        let link_local = with_link_local.then(|| LinkLocal::new(mac));
        let socket = Socket::for_everybody(sim, stack, CLIENT_PORT);
        let (lost, begun) = (Vec::new(), Vec::new());
        Self { socket, client, link_local, leased: None, local: None, lost, begun }
    }

    fn give(&self, sim: &mut Sim, prefix: IpPrefix) {
        let stack = self.socket.stack;
        sim.control(stack.host, || Control::AddAddress(stack.netstack, stack.vnic, prefix));
    }

    fn take(&self, sim: &mut Sim, prefix: IpPrefix) {
        let stack = self.socket.stack;
        sim.control(stack.host, || Control::RemoveAddress(stack.netstack, stack.vnic, prefix.addr()));
    }

    fn on_notice(&mut self, now: Instant, notice: &Notice) {
        let (&netstack, &link, prefix, is_free) = match notice {
            Notice::AddressReady(netstack, link, prefix) => (netstack, link, prefix, true),
            Notice::DuplicateAddress(netstack, link, prefix, _) => (netstack, link, prefix, false),
            _ => return,
        };
        let stack = self.socket.stack;
        if (netstack, link) == (stack.netstack, stack.vnic)
            && let IpAddr::V4(addr) = prefix.addr()
        {
            self.client.on_tested(now, addr, is_free);
            self.link_local.iter_mut().for_each(|it| it.on_tested(now, addr, is_free));
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
            match action {
                Action::Broadcast(bytes) => self.socket.send(sim, Ipv4Addr::BROADCAST, SERVER_PORT, &bytes),
                Action::Unicast(server, bytes) => self.socket.send(sim, server, SERVER_PORT, &bytes),
                Action::Test(lease) => {
                    let old = self.leased.replace(lease.prefix().unwrap());
                    old.into_iter().for_each(|old| self.take(sim, old));
                    self.give(sim, lease.prefix().unwrap());
                }
                Action::Bound(_) => self.begun.push(now),
                Action::Lost(_, why) => {
                    self.lost.push((why, now));
                    self.leased.take().into_iter().for_each(|old| self.take(sim, old));
                }
            }
        }
        let phase = self.client.phase();
        let mut steps = Vec::new();
        let later = self.link_local.as_mut().and_then(|own| {
            own.follow(now, phase);
            steps.extend(std::iter::from_fn(|| own.poll(now)));
            own.poll_at()
        });
        for step in steps {
            match step {
                Step::Try(prefix) => {
                    self.local = Some(prefix);
                    self.give(sim, prefix);
                }
                Step::Drop(prefix) => {
                    self.local = None;
                    self.take(sim, prefix);
                }
            }
        }
        [self.client.poll_at(), later].into_iter().flatten().min()
    }
}

struct World {
    sim: Sim,
    random: Random,
    stations: Vec<Station>,
    servers: Vec<Server>,
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
    /// A host with `clients` stations, and one over a wire with two servers' netstacks and a neighbour that has
    /// 10.0.0.9.
    fn new(seed: u64, wire: Conditions, clients: &[u8], with_link_local: bool) -> (Self, [StackId; 2]) {
        let mut sim = Sim::new(seed);
        let hosts = [0, 1].map(|_| sim.host(HostConfig::default(), Mtu::ETHERNET));
        let own = clients.iter().map(|&number| {
            let dad = if with_link_local { DadConfig::SLOW } else { DadConfig::FAST };
            sim.stack(hosts[0], &StackConfig { dad, ..StackConfig::new(number) })
        });
        let own: Vec<_> = own.collect();
        let servers = SERVERS.map(|number| sim.stack(hosts[1], &StackConfig::new(number)));
        sim.stack(hosts[1], &StackConfig::new(NEIGHBOUR));
        let (from, to) = (sim.uplink(hosts[0]), sim.uplink(hosts[1]));
        sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire);
        sim.settle();
        let random = sim.random().fork();
        let stations = own.into_iter().zip(1..);
        let stations = stations
            .map(|(stack, n)| Station::new(&mut sim, stack, seed * 100 + n, with_link_local))
            .collect();
        sim.notices();
        (Self { sim, random, stations, servers: Vec::new() }, servers)
    }

    fn serve(&mut self, stack: StackId, manner: Manner, pool: &[u8]) {
        let server = Server::new(&mut self.sim, stack, manner, pool);
        self.servers.push(server);
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
                assert!(given.is_some_and(|until| held.until <= until), "{held:?} {given:?}");
            }
        }
    }

    fn phase(&self) -> Phase {
        self.stations[0].client.phase()
    }
}

fn lossy(percent: f64) -> Conditions {
    let delay = Duration::from_millis(2);
    Conditions { loss: WireLoss::Random(Chance::percent(percent)), delay, ..Conditions::default() }
}

#[test]
fn a_third_of_all_messages_may_be_lost_before_a_lease_and_a_tenth_while_there_is_one() {
    for seed in 0..20 {
        let (mut world, [first, _]) = World::new(seed, lossy(33.0), &[50, 51], false);
        world.serve(first, Manner::Honest, &[50, 51]);
        world.run_until(Duration::from_secs(1200), |it| {
            it.stations.iter().all(|it| it.client.held().is_some())
        });
        world.sim.wire(0).set(&lossy(10.0));
        world.run(5 * TIME, |_| false);
        // Many questions are lost, and no lease is: there is time to ask again.
        for station in &world.stations {
            assert!(
                station.client.held().is_some() && station.lost.is_empty(),
                "seed {seed}: {:?}",
                station.lost
            );
        }
        world.sim.check_conservation();
    }
}

#[test]
fn questions_without_an_answer_are_repeated_after_4_8_16_32_and_64_seconds() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50], false);
    world.serve(first, Manner::Honest, &[]);
    world.run(Duration::from_secs(400), |_| false);
    let heard = world.servers[0].heard(MessageType::Discover);
    let waits: Vec<_> =
        heard.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_secs_f64()).collect();
    assert!(waits.len() >= 8, "{waits:?}");
    for (n, wait) in waits.iter().enumerate() {
        let middle = [4.0, 8.0, 16.0, 32.0][..].get(n).copied().unwrap_or(64.0);
        assert!((wait - middle).abs() <= 1.1, "{waits:?}");
    }
}

#[test]
fn an_address_that_a_neighbour_has_is_declined_and_another_taken() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50], false);
    world.serve(first, Manner::Honest, &[NEIGHBOUR, 51]);
    world.run_until(Duration::from_secs(60), |it| it.phase() == Phase::Bound);
    let station = &world.stations[0];
    assert_eq!(station.leased.map(|it| it.addr()), Some(addr(51).into()));
    assert_eq!((station.lost.len(), station.lost[0].0), (1, Loss::Conflict));
    assert_eq!(world.servers[0].declined, [addr(NEIGHBOUR)].into());
    let discovered = *world.servers[0].heard(MessageType::Discover).last().unwrap();
    // RFC 2131 §3.1 step 5: not sooner than after ten seconds.
    let waited = discovered.saturating_since(station.lost[0].1);
    assert!(waited >= Duration::from_secs(10), "{waited:?}");
}

#[test]
fn a_lease_is_renewed_then_asked_of_everybody_then_lost_on_time() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50], false);
    world.serve(first, Manner::Honest, &[50]);
    world.run_until(Duration::from_secs(60), |it| it.phase() == Phase::Bound);
    let asked = |world: &World| world.servers[0].heard(MessageType::Request);
    // At half of the time it asks its server, which gives as much again.
    let began = *asked(&world).last().unwrap();
    world.run_until(TIME, |it| it.stations[0].begun.len() == 2);
    let renewed = *asked(&world).last().unwrap();
    let at = renewed.saturating_since(began).as_secs_f64() / TIME.as_secs_f64();
    assert!((0.48..=0.5).contains(&at), "{at}");
    // Then nothing passes any more.
    let until = world.stations[0].client.held().unwrap().until;
    world.sim.wire(0).set(&Conditions { blackhole: true, ..Conditions::default() });
    world.run_until(TIME, |it| it.phase() == Phase::Rebinding);
    let left = until.saturating_since(world.sim.now()).as_secs_f64() / TIME.as_secs_f64();
    assert!((0.125..=0.15).contains(&left), "{left}");
    world.run_until(TIME, |it| !it.stations[0].lost.is_empty());
    let station = &world.stations[0];
    assert_eq!((station.lost[0], station.leased), ((Loss::Expired, until), None));
    // And it looks for one again until there is a server.
    world.sim.wire(0).set(&lossy(0.0));
    world.run_until(Duration::from_secs(200), |it| it.phase() == Phase::Bound);
}

#[test]
fn of_two_servers_the_other_takes_over() {
    let (mut world, [first, second]) = World::new(1, lossy(0.0), &[50], false);
    world.serve(first, Manner::Honest, &[50]);
    world.serve(second, Manner::Honest, &[50]);
    world.run_until(Duration::from_secs(60), |it| it.phase() == Phase::Bound);
    let own = world.stations[0].client.held().unwrap().lease.server;
    let granted = |world: &World| world.servers.iter().filter(|it| !it.given.is_empty()).count();
    assert_eq!(granted(&world), 1, "only the one that was asked gives");
    world.servers.iter_mut().filter(|it| it.own == own).for_each(|it| it.manner = Manner::Mute);
    world.run_until(TIME, |it| it.stations[0].begun.len() == 2);
    let held = world.stations[0].client.held().unwrap();
    assert_eq!((held.lease.addr, granted(&world)), (addr(50), 2));
    assert!(held.lease.server != own && world.stations[0].lost.is_empty());
}

#[test]
fn a11_a_server_that_says_wild_things_hinders_nobody() {
    for seed in 0..20 {
        let (mut world, [first, second]) = World::new(seed, lossy(0.0), &[50], false);
        world.serve(first, Manner::Wild, &[]);
        world.serve(second, Manner::Honest, &[50]);
        world.run_until(Duration::from_secs(600), |it| it.phase() == Phase::Bound);
        world.run(3 * TIME, |_| false);
        let client = &world.stations[0].client;
        assert_eq!(client.held().map(|it| it.lease.addr), Some(addr(50)), "seed {seed}");
        let seen = client.counters();
        let wild = world.servers[0].heard.len() as u64;
        let refused = seen.malformed + seen.unasked + seen.unusable;
        assert!(refused > 0 && refused <= wild + 20, "seed {seed}: {seen:?} of {wild}");
    }
}

/// The addresses of the link alone that the stations use.
fn locals(world: &World) -> Vec<Ipv4Addr> {
    world.stations.iter().filter_map(|it| it.link_local.as_ref()?.in_use()).collect()
}

#[test]
fn without_a_server_stations_talk_by_addresses_of_the_link_until_one_comes() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50, 51], true);
    world.run_until(Duration::from_secs(40), |it| locals(it).len() == 2);
    let own = locals(&world);
    assert!(own.iter().all(|it| it.is_link_local()) && own[0] != own[1]);
    // A datagram from one to the other, by no more than those addresses.
    let [from, to] = [0, 1].map(|n| world.stations[n].socket.stack);
    let mut sockets = [from, to].map(|stack| Socket::for_everybody(&mut world.sim, stack, 7000));
    sockets[0].send(&mut world.sim, own[1], 7000, b"are you there");
    world.sim.run_for(Duration::from_secs(1));
    assert_eq!(sockets[1].take(), Some((b"are you there".to_vec(), SocketAddr::new(own[0].into(), 7000))));
    // RFC 3927 §1.9: not beside an address that a server gave.
    world.serve(first, Manner::Honest, &[52]);
    world.run_until(Duration::from_secs(200), |it| it.stations.iter().any(|it| it.client.held().is_some()));
    world.run(Duration::from_secs(1), |_| false);
    let leased = world.stations.iter().filter(|it| it.client.held().is_some());
    leased.for_each(|it| assert_eq!(it.local, None));
}

#[test]
fn an_address_of_the_link_that_somebody_has_is_not_taken_and_one_in_use_is_defended_once() {
    let (mut world, [first, _]) = World::new(1, lossy(0.0), &[50], true);
    // A neighbour has what this station would try first.
    let mut chooser = LinkLocal::new(station_mac(50));
    chooser.set_wanted(Instant::ZERO, true);
    let Some(Step::Try(taken)) = chooser.poll(Instant::from_secs(100)) else { panic!("it chooses") };
    let claim = |world: &mut World, prefix: IpPrefix| {
        world.sim.control(first.host, || Control::AddAddress(first.netstack, first.vnic, prefix));
    };
    let release = |world: &mut World, prefix: IpPrefix| {
        world.sim.control(first.host, || Control::RemoveAddress(first.netstack, first.vnic, prefix.addr()));
    };
    claim(&mut world, taken);
    world.run_until(Duration::from_secs(40), |it| locals(it).len() == 1);
    let own = locals(&world)[0];
    assert_ne!(IpAddr::from(own), taken.addr());
    // Another station announces it: it is defended (§2.5 b), once in ten seconds.
    world.run(Duration::from_secs(30), |_| false);
    claim(&mut world, prefix(own, 16));
    release(&mut world, prefix(own, 16));
    world.run(Duration::from_secs(20), |_| false);
    assert_eq!(locals(&world), [own]);
    // Who announces it again at once gets it, and this station takes another.
    for _ in 0..2 {
        claim(&mut world, prefix(own, 16));
        world.run(Duration::from_secs(1), |_| false);
        release(&mut world, prefix(own, 16));
    }
    world.run_until(Duration::from_secs(40), |it| locals(it).first().is_some_and(|it| *it != own));
}
