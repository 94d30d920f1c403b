//! `loss`: goodput over paths that lose and reorder, beside the kernel through the same relay.
//!
//! Both senders send to kernel receivers in one namespace, each over a relay (`relay.rs`) with a wire of the same
//! conditions, at the same time, so that whatever else the machine does disturbs both alike. The kernel's sender
//! is in a namespace of its own behind a TAP (cubic, without what it remembers of earlier connections); Firelane's
//! stack is in the relay's process. A cell is a path; its figure is what arrives in a span after the beginning,
//! summed over some connections because losses are few. Where frames are lost and overtaken at once, the figures are
//! shown but count for nothing: a sender that takes reductions back which real losses had caused is faster there.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use firelane::{Conditions, Stack, StreamConfig, TapConfig, TapQueue, TcpStream, open_tap};
use firelane_driver_memory::{Chance, Loss, Reorder};
use firelane_interop::Sandbox;
use firelane_units::{BitRate, Bytes, MacAddr, Mtu};

use crate::cpu::Meter;
use crate::kernel;
use crate::peer::{self, Peer, Place, Result};
use crate::relay::Relay;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};

const ROUNDS: usize = ROUNDS_MIN;
/// Slow start and the first losses are not what the figure is about.
const WARM_UP: Duration = Duration::from_millis(1500);
const SPAN: Duration = Duration::from_millis(3000);
const WANTED_RATIO: f64 = 0.95;
const PATIENCE: Duration = Duration::from_secs(10);

const FIRELANE_SINK: &str = "10.8.0.2:5001";
const KERNEL_SINK: &str = "10.9.0.2:5001";
const TOPOLOGY: &[&str] = &["netns add near", "netns add far"];

/// A path, and how many connections share it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    name: &'static str,
    round_trip: Duration,
    /// Frames lost and frames overtaken, in parts of 100,000.
    lost: u32,
    overtaken: u32,
    rate: BitRate,
    connections: u32,
}

impl Cell {
    const fn new(
        name: &'static str,
        millis: u64,
        lost: u32,
        overtaken: u32,
        mbps: u64,
        connections: u32,
    ) -> Self {
        let (round_trip, rate) = (Duration::from_millis(millis), BitRate::from_mbps(mbps));
        Self { name, round_trip, lost, overtaken, rate, connections }
    }

    /// Data forth, acknowledgements back. The queue holds a round trip, as a router's should.
    fn conditions(&self) -> (Conditions, Conditions) {
        let queue = self.rate.bps() / 8 * self.round_trip.as_millis() as u64 / 1000;
        let plain = Conditions {
            rate: Some(self.rate),
            queue: Bytes(queue.max(100_000)),
            delay: self.round_trip / 2,
            ..Conditions::default()
        };
        let part = |parts: u32| Chance::of(f64::from(parts) / 1e5);
        let reorder = match self.overtaken {
            0 => Reorder::None,
            parts => Reorder::Positions { chance: part(parts), later: 5, at_most: self.round_trip / 10 },
        };
        let loss = if self.lost == 0 { Loss::None } else { Loss::Random(part(self.lost)) };
        (Conditions { loss, reorder, ..plain.clone() }, plain)
    }

    fn words(&self) -> String {
        let Self { round_trip, lost, overtaken, rate, connections, .. } = *self;
        let span = WARM_UP + SPAN + SPAN / 4;
        format!(
            "{} {lost} {overtaken} {} {connections} {}",
            round_trip.as_millis(),
            rate.bps() / 1_000_000,
            span.as_millis()
        )
    }

    fn of(words: &[&str]) -> Result<(Self, Duration)> {
        let &[millis, lost, overtaken, mbps, connections, span] = words else {
            return Err("MILLIS LOST OVERTAKEN MBPS CONNECTIONS SPAN".into());
        };
        let (lost, overtaken, connections) = (lost.parse()?, overtaken.parse()?, connections.parse()?);
        let cell = Self::new("", millis.parse()?, lost, overtaken, mbps.parse()?, connections);
        Ok((cell, Duration::from_millis(span.parse()?)))
    }
}

const CELLS: &[Cell] = &[
    Cell::new("10 ms, 0.1 % lost", 10, 100, 0, 400, 4),
    Cell::new("10 ms, 1 % lost", 10, 1_000, 0, 400, 8),
    Cell::new("10 ms, 5 % lost", 10, 5_000, 0, 400, 16),
    Cell::new("10 ms, 3 % overtaken", 10, 0, 3_000, 100, 1),
    Cell::new("10 ms, 1 % lost, 3 % overtaken", 10, 1_000, 3_000, 400, 8),
    Cell::new("100 ms, 0.1 % lost", 100, 100, 0, 400, 16),
    Cell::new("100 ms, 1 % lost", 100, 1_000, 0, 400, 32),
    Cell::new("100 ms, 5 % lost", 100, 5_000, 0, 400, 64),
    Cell::new("100 ms, 3 % overtaken", 100, 0, 3_000, 100, 1),
    Cell::new("100 ms, 1 % lost, 3 % overtaken", 100, 1_000, 3_000, 400, 32),
];

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let sandbox = Sandbox::new();
    peer::ip(&sandbox, TOPOLOGY)?;
    let mut relay = Peer::start(Place::Sandbox(&sandbox), "loss-relay", &[])?;
    let mut sink = Peer::start(Place::Netns(&sandbox, "far"), "loss-sink", &[FIRELANE_SINK, KERNEL_SINK])?;
    let mut source = Peer::start(Place::Netns(&sandbox, "near"), "loss-source", &[])?;
    let mut rates: Vec<_> = CELLS.iter().map(|cell| (cell, Samples::default(), Samples::default())).collect();
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for (cell, ours, theirs) in &mut rates {
            let words = cell.words();
            relay.ask(&words)?;
            source.ask(&format!("{KERNEL_SINK} {words}"))?;
            let (start, meter) = (Instant::now(), Meter::start(&[relay.pid(), source.pid(), sink.pid()]));
            std::thread::sleep(WARM_UP);
            let (before, from) = (sink.ask("count")?, Instant::now());
            std::thread::sleep(SPAN);
            let (after, took) = (sink.ask("count")?, from.elapsed().as_secs_f64());
            let rate = |n: usize| (after[n] - before[n]) as f64 * 8e-6 / took;
            foreign.push(meter.stop().foreign());
            ours.push(rate(0));
            theirs.push(rate(1));
            // Senders stop by themselves; what they had under way must not meet the next cell.
            let rest = WARM_UP + SPAN + SPAN / 4 + 4 * cell.round_trip;
            std::thread::sleep(rest.saturating_sub(start.elapsed()));
        }
    }
    Ok(report(&rates, &foreign))
}

fn report(rates: &[(&Cell, Samples, Samples)], foreign: &Samples) -> Verdict {
    let table = Table::begin(
        "loss: goodput to a kernel receiver over a bad path, beside the kernel through the same relay",
    );
    let mut worst: Option<(f64, f64, f64)> = None;
    for (cell, ours, theirs) in rates {
        table.row(&format!("{}, firelane", cell.name), ours, "Mb/s");
        table.row(&format!("{}, kernel", cell.name), theirs, "Mb/s");
        let (mine, peers) = (ours.median(), theirs.median());
        let ratio = mine / peers;
        if cell.lost > 0 && cell.overtaken > 0 {
            table.note(&format!("{}: {ratio:.2} of the kernel's; counts for nothing", cell.name));
            continue;
        }
        table.at_least(&format!("{}, ratio", cell.name), ratio, WANTED_RATIO, "");
        if worst.is_none_or(|(lowest, ..)| ratio < lowest) {
            worst = Some((ratio, mine, peers));
        }
    }
    table.disturbance(foreign);
    let (ratio, mine, peers) = worst.unwrap_or_default();
    Verdict { name: "loss", ratio, firelane: format!("{mine:.2} Mb/s"), peer: format!("{peers:.2} Mb/s") }
}

fn tap(name: &str, namespace: &str, address: &str, last: u8) -> Result<TapQueue> {
    let config = TapConfig {
        queues: 1,
        mtu: Mtu::ETHERNET,
        mac: MacAddr([2, 8, 0x20, 1, 0, last]),
        addresses: vec![address.parse()?],
        namespace: Some(PathBuf::from("/run/netns").join(namespace)),
    };
    open_tap(name, &config)?.pop().ok_or_else(|| "a TAP has a queue".into())
}

/// Both relays, and Firelane's sender. A cell's words set the path and let the sender begin.
pub(crate) fn play_relay() -> Result<()> {
    let kernel =
        Relay::between(tap("near0", "near", "10.9.0.1/24", 1)?, tap("far0", "far", "10.9.0.2/24", 2)?, 1)?;
    let (firelane, device) = Relay::attached(tap("far1", "far", "10.8.0.2/24", 3)?, 1)?;
    let stack =
        Stack::builder().interface(device).mac("02:08:20:01:00:04")?.address("10.8.0.1/24")?.build()?;
    let sink: SocketAddr = FIRELANE_SINK.parse()?;
    peer::serve(|words| {
        let (cell, span) = Cell::of(words)?;
        let (forth, back) = cell.conditions();
        kernel.set(&forth, &back);
        firelane.set(&forth, &back);
        let until = Instant::now() + span;
        for _ in 0..cell.connections {
            let stack = stack.clone();
            std::thread::spawn(move || {
                let rings = StreamConfig { send_capacity: 4 << 20, ..StreamConfig::default() };
                if let Ok(mut stream) = TcpStream::connect_with(&stack, sink, rings, PATIENCE) {
                    let _ = stream.set_write_timeout(Some(until.saturating_duration_since(Instant::now())));
                    write_until(&mut stream, until);
                    stream.abort();
                }
            });
        }
        Ok(Vec::new())
    })
}

/// The kernel's sender: `ADDR` and a cell's words.
pub(crate) fn play_source() -> Result<()> {
    // What is remembered of earlier connections to the same address would start later ones with their threshold.
    std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
    peer::serve(|words| {
        let (address, words) = words.split_first().ok_or("ADDR and a cell")?;
        let address: SocketAddr = address.parse()?;
        let (cell, span) = Cell::of(words)?;
        let until = Instant::now() + span;
        for _ in 0..cell.connections {
            std::thread::spawn(move || {
                if let Ok(mut stream) = kernel::connect(address) {
                    let _ = stream.set_write_timeout(Some(until.saturating_duration_since(Instant::now())));
                    write_until(&mut stream, until);
                    // With unsent text left, this resets the connection.
                    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                }
            });
        }
        Ok(Vec::new())
    })
}

fn write_until(stream: &mut impl Write, until: Instant) {
    let buffer = vec![0; 64 << 10];
    while Instant::now() < until {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The receivers: counts what arrives at each of `args`' addresses, in their order.
pub(crate) fn play_sink(args: &[&str]) -> Result<()> {
    let counts: Vec<Arc<AtomicU64>> = args.iter().map(|_| Arc::default()).collect();
    for (address, count) in args.iter().zip(&counts) {
        let listener: KernelListener = kernel::listen(address.parse()?)?;
        let count = Arc::clone(count);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 256 << 10];
                    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                        count.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                });
            }
        });
    }
    peer::serve(|_| Ok(counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()))
}
