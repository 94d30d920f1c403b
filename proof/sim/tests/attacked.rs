//! What a connection keeps of its rate while a neighbour of its hosts sends them anything he likes, and what remains afterwards: in
//! virtual time, so that what counts is what the stack believes, not how fast it is.

mod endless;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use firelane_driver_memory::{Conditions, End};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_lane::StreamInfo;
use firelane_sim::attack::{ATTACKS, Attack, STATION, Victim};
use firelane_sim::{
    App, Cx, HostConfig, Next, Plug, Random, Sim, SocketConfig, StackConfig, StackId, station_mac,
};
use firelane_units::{BitRate, Bytes, DropCounters, Mtu};

use endless::{Sink, Source};

const WARM_UP: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(1);
/// Between two frames of the attacker's to each host: 10,000 a second.
const EVERY: Duration = Duration::from_micros(100);
/// After this everything that an attack has made is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// A connection keeps at least so much of its rate, in percent.
const KEPT: u64 = 95;

/// Sits at the switch of each host.
struct Attacker {
    attack: Option<Attack>,
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
        let Some(attack) = self.attack.filter(|_| now < self.until) else { return Next::Done };
        if let Some(info) = self.known.borrow()[0] {
            let pairs = [(info.local, info.remote), (info.remote, info.local)];
            for ((end, (own, peer)), host) in self.ends.iter_mut().zip(pairs).zip(self.hosts) {
                let victim = Victim { mac: station_mac(host.number), own, peer };
                let bytes = attack.frame(&mut self.random, &victim);
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
fn goodput(attack: Option<Attack>, v6: bool) -> u64 {
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
        .map(|uplink| sim.dangle_at(Plug { vnic: Some(station_mac(STATION)), ..uplink }, Mtu::ETHERNET));
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
    assert!(attack.is_none() || *sent.borrow() > 15_000, "{attack:?}: {} frames", sent.borrow());
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
        let alone = goodput(None, v6);
        assert!(alone > 10_000_000, "{alone} bytes");
        for attack in ATTACKS {
            let kept = goodput(Some(attack), v6) * 100 / alone;
            assert!(kept >= KEPT, "{attack:?}, IPv6 {v6}: {kept} %");
        }
    }
}
