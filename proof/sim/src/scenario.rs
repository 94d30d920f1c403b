//! A whole world from one number: who is there, how they are connected, what they say, what goes wrong.
//!
//! [`play`] builds it, runs it to its end and checks everything that can be checked. [`for_seeds`] does so for
//! many seeds, or for the one in `FIRELANE_SEED`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_frame::PoolsConfig;
use firelane_ip::DadConfig;
use firelane_lane::Notice;
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenPolicy, TcpConfig, Willing};
use firelane_units::{LaneId, Mtu};

use crate::faults::{random_conditions, random_weather, schedule};
use crate::host::{HostConfig, StackConfig, StackId, station_mac};
use crate::random::Random;
use crate::session::{Client, Ending, Outcome, Plan, Server, Side, SocketConfig};
use crate::sim::{Plug, Sim};

/// How large a world is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// The most hosts beside switches.
    pub hosts: u64,
    /// The most sessions.
    pub sessions: u64,
    /// The most bytes of one session.
    pub bytes: u64,
    /// How long things go wrong.
    pub storm: Duration,
}

impl Scale {
    /// What is over in some milliseconds.
    pub const QUICK: Self = Self { hosts: 4, sessions: 8, bytes: 400_000, storm: Duration::from_secs(10) };
    /// As many hosts as a switch may have, and little to say.
    pub const CROWD: Self = Self { hosts: 50, sessions: 60, bytes: 30_000, storm: Duration::from_secs(4) };

    /// What takes its time.
    pub const LARGE: Self =
        Self { hosts: 50, sessions: 200, bytes: 2_000_000, storm: Duration::from_secs(25) };
}

const PORT: u16 = 80;

/// Everything must have ended so long after the faults: five minutes of patience, and the longest back-off.
const PATIENCE: Duration = Duration::from_secs(500);

/// Plays the world of `seed`, and panics if anything in it is wrong. Answers how it ended.
pub fn play(seed: u64, scale: Scale, test: &str) -> String {
    let mut sim = Sim::new(seed);
    sim.set_replay(test, "");
    let mut random = sim.random().fork();
    let opens_fast = policy(seed);
    let stacks = build(&mut sim, scale, opens_fast, &mut random);
    let plans = people(&mut sim, &stacks, scale, opens_fast, &mut random);
    let weather = random_weather(&mut random);
    let stop = sim.now() + scale.storm;
    sim.set_replay(&format!("{test} --exact --include-ignored"), &format!("{weather:?}"));
    schedule(&mut sim, &weather, stop, &mut random);
    let is_over =
        sim.run_until(stop + PATIENCE, |sim| sim.now() >= stop && sim.is_over() && sim.remains().0 == 0);
    assert!(is_over, "everything ends once the faults have stopped ({weather:?})");
    judge(&sim, &plans, opens_fast);
    sim.check_conservation();
    sim.check_that_nothing_remains();
    sim.check_conservation();
    format!("{:?}\n{}", sim.endings(), sim.describe())
}

/// In every third world connections open fast: with cookies, or where all trust each other.
fn policy(seed: u64) -> Option<FastOpenPolicy> {
    let bits = [0x003, 0x207][(seed / 3 % 2) as usize];
    seed.is_multiple_of(3).then(|| FastOpenPolicy::new(bits))
}

/// Hosts and wires: two hosts back to back, or any number around a switch.
fn build(
    sim: &mut Sim,
    scale: Scale,
    opens_fast: Option<FastOpenPolicy>,
    random: &mut Random,
) -> Vec<StackId> {
    let count = random.within(2..scale.hosts + 1);
    let mtu = random.pick(&[Mtu::ETHERNET, Mtu::ETHERNET, Mtu::ETHERSTUB]);
    let mut stacks = Vec::new();
    for number in 1..=count as u8 {
        let lanes = random.pick(&[1, 1, 2, 4]);
        let host = sim.host(HostConfig { lanes, pools: pools(count) }, mtu);
        let mut config = StackConfig::new(number);
        // Short enough that a test sees its end, long enough to be met by late duplicates.
        config.time_wait = Duration::from_secs(random.within(2..60));
        config.tcp = Arc::new(TcpConfig { fast_open: opens_fast.unwrap_or_default(), ..random_tcp(random) });
        config.dad = random.pick(&[DadConfig::OFF, DadConfig::FAST]);
        stacks.push(sim.stack(host, &config));
    }
    let plug = |sim: &Sim, stack: &StackId, random: &mut Random| {
        let lane = LaneId(random.below(sim.lanes(stack.host) as u64) as u16);
        Plug { lane, ..sim.uplink(stack.host) }
    };
    if count == 2 && random.one_in(2) {
        let (first, second) = (plug(sim, &stacks[0], random), plug(sim, &stacks[1], random));
        wire(sim, first, second, mtu, random);
    } else {
        let lanes = random.pick(&[1, 2]);
        let switch = sim.host(HostConfig { lanes, ..HostConfig::default() }, mtu);
        for stack in &stacks {
            let lane = LaneId(random.below(lanes.into()) as u16);
            let vnic = Some(station_mac(stack.number));
            let port = Plug { host: switch, link: sim.link(switch), vnic, lane };
            let station = plug(sim, stack, random);
            wire(sim, station, port, mtu, random);
        }
    }
    await_addresses(sim, stacks.len());
    stacks
}

/// Netstacks differ in how they answer congestion; they must get along.
fn random_tcp(random: &mut Random) -> TcpConfig {
    let ecn = random.pick(&[Willing::Never, Willing::Passive, Willing::Active]);
    let mut tcp = TcpConfig { ecn, ..TcpConfig::default() };
    if random.one_in(2) {
        tcp.flight.algorithm = random.pick(&Algorithm::ALL);
    }
    tcp
}

/// A host's buffers: a crowd of hosts that say little needs few each.
fn pools(hosts: u64) -> PoolsConfig {
    match hosts {
        0..8 => HostConfig::default().pools,
        _ => PoolsConfig { small_slots: 512, large_slots: 4 },
    }
}

/// Lets hosts test their addresses; nobody else has them, and no change is refused.
fn await_addresses(sim: &mut Sim, stacks: usize) {
    sim.run_for(Duration::from_secs(2));
    let notices = sim.notices();
    let is_ready = |notice: &Notice| matches!(notice, Notice::AddressReady(..));
    assert!(notices.iter().all(is_ready) && notices.len() == 2 * stacks, "{notices:?}");
}

fn wire(sim: &mut Sim, from: Plug, to: Plug, mtu: Mtu, random: &mut Random) {
    let forth: Conditions = random_conditions(random);
    let back = if random.one_in(4) { random_conditions(random) } else { forth.clone() };
    sim.connect(from, to, mtu, forth, back);
}

/// Servers on every host, and clients with their plans.
fn people(
    sim: &mut Sim,
    stacks: &[StackId],
    scale: Scale,
    opens_fast: Option<FastOpenPolicy>,
    random: &mut Random,
) -> BTreeMap<u64, Plan> {
    let sockets = |random: &mut Random| {
        let mut sockets = SocketConfig::of(random.size(2_000..1_000_000) as usize);
        sockets.options.fast_open = opens_fast.is_some();
        sockets.options.fast_open_queue = if opens_fast.is_some() { 4 } else { 0 };
        sockets
    };
    for &stack in stacks {
        for v6 in [false, true] {
            let config = sockets(random);
            sim.spawn(Server::boxed(stack, stack.at(v6, PORT), config));
        }
    }
    sim.settle();
    let mut plans = BTreeMap::new();
    for _ in 0..random.within(1..scale.sessions + 1) {
        let from = random.pick(stacks);
        let others: Vec<StackId> = stacks.iter().copied().filter(|stack| *stack != from).collect();
        let to = random.pick(&others);
        let plan = Plan::random(random, scale.bytes);
        plans.insert(plan.seed, plan);
        let wait = random.micros(0..scale.storm.as_micros() as u64 / 2);
        let remote = to.at(random.one_in(2), PORT);
        let config = sockets(random);
        sim.spawn(Client::boxed(from, remote, plan, config, wait));
    }
    plans
}

/// Whether every session ended as its plan wants. The comparison of bytes has already happened.
fn judge(sim: &Sim, plans: &BTreeMap<u64, Plan>, opens_fast: Option<FastOpenPolicy>) {
    let mut complete: BTreeMap<u64, usize> = BTreeMap::new();
    for ending in sim.endings() {
        let Ending { session, outcome, .. } = ending;
        let Some(plan) = plans.get(session) else {
            // The server's side of a session that was given up before its greeting had arrived.
            assert!(plans.values().any(|plan| plan.abort.is_some()), "{ending:?}");
            continue;
        };
        // RFC 7413 §2.1: a SYN that arrives once more when its connection is over brings its text once more, to a
        // connection that its peer refuses.
        let is_echo = opens_fast.is_some() && ending.side == Side::Server && *outcome != Outcome::Complete;
        if plan.abort.is_none() && !is_echo {
            assert_eq!(*outcome, Outcome::Complete, "{ending:?} of {plan:?}");
            *complete.entry(*session).or_default() += 1;
        }
    }
    for (session, plan) in plans.iter().filter(|(_, plan)| plan.abort.is_none()) {
        assert_eq!(complete.get(session), Some(&2), "both sides of {plan:?} say that it is complete");
    }
}

/// So many seeds for a soak: from `first` on, or from a place of their own for each `PROPTEST_RNG_SEED`, so that each soak plays
/// worlds that none has played.
pub fn fresh_seeds(first: u64, count: u64) -> Range<u64> {
    let first = match std::env::var("PROPTEST_RNG_SEED") {
        Ok(seed) => first + 1_000_000 * seed.parse::<u32>().map_or(1, u64::from),
        Err(_) => first,
    };
    println!("seeds {first}..{}", first + count);
    first..first + count
}

/// Calls `play` for every seed of `seeds`, or for `FIRELANE_SEED` alone.
pub fn for_seeds(seeds: Range<u64>, mut play: impl FnMut(u64)) {
    match std::env::var("FIRELANE_SEED") {
        Ok(seed) => play(seed.parse().expect("FIRELANE_SEED is a number")),
        Err(_) => seeds.for_each(play),
    }
}
