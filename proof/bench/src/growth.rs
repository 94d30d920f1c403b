//! `growth`: what a segment costs the lanes that have ten connections, ten thousand, or a million.
//!
//! Three pairs of hosts in one process (`two_lanes.rs`). In each round of each pair some connections, taken in an order that
//! scatters them over all that there are, carry a message there and another back; counted are the real time of both lanes' turns and
//! the segments that they sent, acknowledgements by themselves included. Where there are many each has been silent for long when its
//! turn comes, so that nothing of it is in a cache, and of a million each has given its memory back. The peer is the kernel with as
//! many connections over loopback as this process may have descriptors for: how much longer a message there and back takes it than
//! with ten.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use firelane_socket::StreamEnd;

use crate::cpu::Meter;
use crate::peer::Result;
use crate::report::{Samples, Table, Verdict};
use crate::two_lanes::World;

const ROUNDS: usize = 9;
/// Few, many and very many; the growth that is allowed to the latter two.
const SIZES: [usize; 3] = [10, 10_000, 1_000_000];
const ALLOWED: [f64; 2] = [1.5, 3.0];
/// Connections that are busy at a time: all, where there are few.
const BUSY: usize = 10;
/// Such groups in a round.
const GROUPS: usize = 2_000;
/// Virtual time between a message and its answer.
const PACE: Duration = Duration::from_micros(100);
/// The kernel's, which takes two descriptors each.
const KERNEL_MANY: usize = 9_000;
const MESSAGE: [u8; 7] = *b"message";

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut pairs = SIZES.iter().map(|&size| Pair::new(size)).collect::<Result<Vec<_>>>()?;
    let mut kernels = [Kernel::new(SIZES[0])?, Kernel::new(KERNEL_MANY)?];
    let mut costs = SIZES.map(|_| Vec::new());
    let mut trips = [Vec::new(), Vec::new()];
    let (mut per_trip, mut foreign) = (SIZES.map(|_| Samples::default()), Samples::default());
    for _ in 0..ROUNDS {
        let meter = Meter::start(&[std::process::id()]);
        for (pair, (costs, per_trip)) in pairs.iter_mut().zip(costs.iter_mut().zip(&mut per_trip)) {
            let (nanos, segments) = pair.round()?;
            costs.push(nanos / segments);
            per_trip.push(segments / (GROUPS * BUSY) as f64);
        }
        for (kernel, trips) in kernels.iter_mut().zip(&mut trips) {
            trips.push(kernel.round()?);
        }
        foreign.push(meter.stop().foreign());
    }
    // Each round is compared with the same round of ten, so that what slows the machine for a while slows both.
    let growth =
        |costs: &[f64], few: &[f64]| -> Samples { costs.iter().zip(few).map(|(a, b)| a / b).collect() };
    let table =
        Table::begin("growth: a segment with 10, 10,000 and 1,000,000 connections, both lanes in turn");
    for (at, size) in SIZES.iter().enumerate() {
        table.row(&format!("{size} connections"), &costs[at].iter().copied().collect(), "ns a segment");
        table.row("  segments for a message there and back", &per_trip[at], "segments");
    }
    for (at, size) in [SIZES[0], KERNEL_MANY].iter().enumerate() {
        table.row(&format!("kernel, {size}, there and back"), &trips[at].iter().copied().collect(), "ns");
    }
    let grown = [1, 2].map(|at| growth(&costs[at], &costs[0]));
    let kernel = growth(&trips[1], &trips[0]);
    table.row(&format!("kernel, {KERNEL_MANY} beside 10"), &kernel, "times");
    for (at, grown) in grown.iter().enumerate() {
        table.row(&format!("{} beside 10", SIZES[at + 1]), grown, "times");
    }
    table.disturbance(&foreign);
    for (at, grown) in grown.iter().enumerate() {
        table.at_most(&format!("{} beside 10", SIZES[at + 1]), grown.median(), ALLOWED[at], "times");
    }
    let (kernel, [many, very_many]) = (kernel.median(), grown.map(|grown| grown.median()));
    Ok(Verdict {
        name: "growth",
        ratio: kernel / many,
        firelane: format!("{many:.2} times with 10,000, {very_many:.2} with 1,000,000"),
        peer: format!("{kernel:.2} times with {KERNEL_MANY}"),
    })
}

/// An order in which all of `size` have their turn, far from each other.
#[derive(Debug)]
struct Scattered {
    size: usize,
    stride: usize,
    at: usize,
}

impl Scattered {
    fn new(size: usize) -> Self {
        // About the golden section of it, and without a divisor in common.
        let stride =
            (size * 618 / 1000..).find(|&stride| gcd(stride, size) == 1).expect("a prime is among them");
        Self { size, stride, at: 0 }
    }

    fn next(&mut self) -> usize {
        self.at = (self.at + self.stride) % self.size;
        self.at
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Two hosts with so many connections.
struct Pair {
    world: World,
    clients: Vec<StreamEnd>,
    servers: Vec<StreamEnd>,
    order: Scattered,
}

impl Pair {
    fn new(size: usize) -> Result<Self> {
        let mut world = World::new();
        let (mut clients, mut servers) = (Vec::with_capacity(size), Vec::with_capacity(size));
        // The first finds the neighbour, for which no more than a few segments wait.
        world.connect(1, &mut clients, &mut servers)?;
        world.connect(size - 1, &mut clients, &mut servers)?;
        let mut pair = Self { world, clients, servers, order: Scattered::new(size) };
        pair.round()?;
        Ok(pair)
    }

    /// The lanes' time in nanoseconds, and the segments.
    fn round(&mut self) -> Result<(f64, f64)> {
        let (busy, segments) = (self.world.busy, self.world.segments());
        for _ in 0..GROUPS {
            let picked: [usize; BUSY] = std::array::from_fn(|_| self.order.next());
            let all = "no two of a group are the same";
            let mut ours = self.clients.get_disjoint_mut(picked).expect(all);
            let mut theirs = self.servers.get_disjoint_mut(picked).expect(all);
            self.world.exchange(PACE, &mut ours, &mut theirs)?;
        }
        let busy = self.world.busy - busy;
        Ok((busy.as_nanos() as f64, (self.world.segments() - segments) as f64))
    }
}

/// The kernel with so many connections.
struct Kernel {
    ends: Vec<[TcpStream; 2]>,
    order: Scattered,
}

impl Kernel {
    fn new(size: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let connect = || -> Result<[TcpStream; 2]> {
            let ends = [TcpStream::connect(address)?, listener.accept()?.0];
            for end in &ends {
                end.set_nodelay(true)?;
            }
            Ok(ends)
        };
        let ends = (0..size).map(|_| connect()).collect::<Result<_>>()?;
        let mut kernel = Self { ends, order: Scattered::new(size) };
        kernel.round()?;
        Ok(kernel)
    }

    /// Nanoseconds for a message there and back.
    fn round(&mut self) -> Result<f64> {
        let begin = Instant::now();
        for _ in 0..GROUPS {
            let picked: [usize; BUSY] = std::array::from_fn(|_| self.order.next());
            for way in [[0, 1], [1, 0]] {
                for at in picked {
                    self.ends[at][way[0]].write_all(&MESSAGE)?;
                }
                for at in picked {
                    self.ends[at][way[1]].read_exact(&mut [0; MESSAGE.len()])?;
                }
            }
        }
        Ok(begin.elapsed().as_nanos() as f64 / (GROUPS * BUSY) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_a_turn_before_anyone_has_two() {
        for size in SIZES.into_iter().chain([KERNEL_MANY]) {
            let mut order = Scattered::new(size);
            let mut seen: Vec<usize> = (0..size).map(|_| order.next()).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..size));
        }
    }
}
