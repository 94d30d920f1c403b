//! Goodput over paths that lose and reorder, as `make bench B=loss` measures it, in virtual time.

mod endless;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use firelane_driver_memory::{Chance, Conditions, Loss, Reorder};
use firelane_frame::PoolsConfig;
use firelane_sim::{HostConfig, Sim, SocketConfig, StackConfig};
use firelane_units::{BitRate, Bytes, Mtu};

use endless::{Sink, Source};

const WARM_UP: Duration = Duration::from_millis(1500);
const SPAN: Duration = Duration::from_secs(6);
const SEEDS: u64 = 3;
/// What is on the way of a fast and long path holds frames.
const POOLS: PoolsConfig = PoolsConfig { small_slots: 1 << 15, large_slots: 256 };

/// What all senders did.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sent: u64,
    repeated: u64,
    duplicates: u64,
    timeouts: u64,
}

/// A path, and how many connections share it. The queue holds a round trip.
#[derive(Clone, Copy)]
struct Cell {
    millis: u64,
    lost: f64,
    overtaken: f64,
    mbps: u64,
    connections: u32,
}

impl Cell {
    /// Goodput in Mb/s after the beginning, and what the senders did.
    fn run(self, seed: u64) -> (f64, Sums) {
        let mut sim = Sim::new(seed);
        let [from, to] = [1, 2].map(|number| {
            let host = sim.host(HostConfig { pools: POOLS, ..HostConfig::default() }, Mtu::ETHERNET);
            sim.stack(host, &StackConfig::new(number))
        });
        let rate = BitRate::from_mbps(self.mbps);
        let trip = Duration::from_millis(self.millis);
        let queue = Bytes((rate.bps() / 8 * self.millis / 1000).max(100_000));
        let plain = Conditions { rate: Some(rate), queue, delay: trip / 2, ..Conditions::default() };
        let reorder = match self.overtaken {
            0.0 => Reorder::None,
            percent => Reorder::Positions { chance: Chance::percent(percent), later: 5, at_most: trip / 10 },
        };
        let loss = Loss::Random(Chance::percent(self.lost));
        let (a, b) = (sim.uplink(0), sim.uplink(1));
        sim.connect(a, b, Mtu::ETHERNET, Conditions { loss, reorder, ..plain.clone() }, plain);
        let mut sockets = SocketConfig::of(4 << 20);
        sockets.options.keepalive = None;
        let count = Rc::new(RefCell::new(0));
        let sink = Sink {
            v6: false,
            at: to,
            sockets,
            listener: None,
            streams: Vec::new(),
            count: Rc::clone(&count),
        };
        sim.spawn(Box::new(sink));
        sim.settle();
        let all = Rc::new(RefCell::new(vec![None; self.connections as usize]));
        for n in 0..self.connections {
            sim.spawn(Box::new(Source {
                v6: false,
                from,
                to,
                sockets,
                stream: None,
                known: Rc::clone(&all),
                n: n as usize,
            }));
        }
        sim.run_for(WARM_UP);
        let before = *count.borrow();
        sim.run_for(SPAN);
        let mut sums = Sums::default();
        for it in all.borrow().iter().flatten().map(|it| it.tcp) {
            sums.sent += u64::from(it.counts.text_out);
            sums.repeated += u64::from(it.troubles.repeated);
            sums.duplicates += u64::from(it.troubles.duplicates);
            sums.timeouts += u64::from(it.troubles.timeouts);
        }
        let got = *count.borrow() - before;
        (got as f64 * 8e-6 / SPAN.as_secs_f64(), sums)
    }
}

/// The sums of some seeds.
fn sums(cell: Cell) -> (f64, Sums) {
    let mut all = (0.0, Sums::default());
    for seed in 1..=SEEDS {
        let (rate, sums) = cell.run(seed);
        all.0 += rate;
        all.1.sent += sums.sent;
        all.1.repeated += sums.repeated;
        all.1.duplicates += sums.duplicates;
        all.1.timeouts += sums.timeouts;
    }
    all
}

/// Reordering is told from loss: RACK waits (RFC 8985 §6.2), so nothing goes twice for it, and no window is reduced for it.
#[test]
fn what_is_overtaken_costs_a_lossy_path_nothing() {
    for (millis, mbps, connections) in [(10, 100, 4), (100, 400, 8)] {
        let cell = Cell { millis, lost: 1.0, overtaken: 0.0, mbps, connections };
        let (plain, _) = sums(cell);
        let (both, did) = sums(Cell { overtaken: 3.0, ..cell });
        assert!(both > 0.9 * plain, "{millis} ms: {both:.1} of {plain:.1} Mb/s, {did:?}");
        assert!(did.duplicates * 200 < did.sent, "{millis} ms: {did:?}");
    }
}

/// What is lost is repeated, and little else; nothing waits for a time-out while ACKs come.
#[test]
fn losses_are_repeated_once() {
    for (millis, lost) in [(10, 1.0), (100, 1.0), (10, 5.0)] {
        let cell = Cell { millis, lost, overtaken: 0.0, mbps: 400, connections: 4 };
        let (_, did) = sums(cell);
        let expected = did.sent as f64 * lost / 100.0;
        let (least, most) = (0.7 * expected, 1.3 * expected + 20.0);
        assert!((least..most).contains(&(did.repeated as f64)), "{millis} ms {lost} %: {did:?}");
        assert!(did.timeouts * 10 <= did.repeated, "{millis} ms {lost} %: {did:?}");
        assert!(did.duplicates * 20 <= did.repeated, "{millis} ms {lost} %: {did:?}");
    }
}
