//! `shim-rtt`: 64 bytes there and back, one connection, both sides blocking.
//!
//! A kernel client over TAP to a preloaded server, beside the kernel's client and server over veth; and two preloaded
//! programs through TCP, beside kernel loopback. Every side has its best placement: client and server each on a CPU of
//! its own, both on one, or where the scheduler puts them, and the daemon on the server's CPU, where the kernel's own
//! part of the work is. The figure is round trips per second; what they cost all parties in CPU time stands beside it.

use std::time::Duration;

use crate::cpu::{Meter, PLACEMENTS, bind_process};
use crate::peer::{Peer, Place, Result};
use crate::report::{Samples, Table, Verdict};
use crate::rr::REQUEST_BYTES;
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, SERVER, Scene, TENANT, WEB};
use crate::stream::Use;

const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_millis(150);
const WANTED_RATIO: f64 = 0.75;

/// One pair of programs and what it has measured, for each placement.
struct Pair<'a> {
    name: &'static str,
    /// The daemon's process, if it carries the bytes.
    daemon: Option<u32>,
    host: &'static str,
    places: [Place<'a>; 2],
    port: u16,
    rates: [Samples; 3],
    costs: [Samples; 3],
}

impl<'a> Pair<'a> {
    fn new(
        name: &'static str,
        daemon: Option<u32>,
        host: &'static str,
        places: [Place<'a>; 2],
        port: u16,
    ) -> Self {
        Self { name, daemon, host, places, port, rates: Default::default(), costs: Default::default() }
    }

    fn round(&mut self, placement: usize, foreign: &mut Samples) -> Result<()> {
        let [client_cpu, server_cpu] = PLACEMENTS[placement].1;
        let address = format!("{}:{}", self.host, self.port);
        self.port += 1;
        let server = Peer::start(self.places[1], "stream-server", &[&address, server_cpu])?;
        let mut client = Peer::start(self.places[0], "stream-client", &[client_cpu])?;
        if let Some(daemon) = self.daemon {
            bind_process(daemon, server_cpu)?;
        }
        let trips = format!("{address} {} {REQUEST_BYTES}", Use::Blocking.word());
        client.ask(&format!("{trips} {}", SPAN.as_millis() / 4))?;
        let parties: Vec<u32> = [client.pid(), server.pid()].into_iter().chain(self.daemon).collect();
        let meter = Meter::start(&parties);
        let answer = client.ask(&format!("{trips} {}", SPAN.as_millis()))?;
        let used = meter.stop();
        let &[count, nanos, ..] = answer.as_slice() else {
            return Err("a count and a time were expected".into());
        };
        foreign.push(used.foreign());
        self.rates[placement].push(count as f64 / (nanos as f64 * 1e-9));
        self.costs[placement].push(used.parties.as_secs_f64() * 1e6 / count as f64);
        Ok(())
    }

    /// The rate where it is best.
    fn best(&self, table: &Table) -> f64 {
        for (nth, (placement, _)) in PLACEMENTS.iter().enumerate() {
            table.row(&format!("{}, {placement}", self.name), &self.rates[nth], "round trips/s");
            table.row(&format!("{}, CPU of all parties", self.name), &self.costs[nth], "us a trip");
        }
        self.rates.iter().map(Samples::median).fold(0.0, f64::max)
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    // What two programs are faster by when they are fused is another benchmark's.
    scene.tell(&["ipadm", "set-prop", "-t", "-p", "_fusion=off", "-N", "web", "tcp"])?;
    let daemon = Some(scene.daemon());
    let mut pairs = [
        Pair::new(
            "TAP, preloaded server",
            daemon,
            FIRELANE_HOST,
            [scene.netns(TENANT), Place::Preloaded(&scene, WEB)],
            7000,
        ),
        Pair::new("veth, kernel", None, KERNEL_HOST, [scene.netns(CLIENT), scene.netns(SERVER)], 7000),
        Pair::new("two preloaded programs", daemon, FIRELANE_HOST, [Place::Preloaded(&scene, WEB); 2], 8000),
        Pair::new("loopback, kernel", None, "127.0.0.1", [scene.netns(SERVER); 2], 8000),
    ];
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for placement in 0..PLACEMENTS.len() {
            for pair in &mut pairs {
                pair.round(placement, &mut foreign)?;
            }
        }
    }
    let table = Table::begin("shim-rtt: 64 bytes there and back, blocking, each side at its best placement");
    let [tap, veth, shm, loopback] = pairs.each_ref().map(|pair| pair.best(&table));
    table.disturbance(&foreign);
    table.at_least("over TAP, of veth", tap / veth, WANTED_RATIO, "");
    table.at_least("two preloaded programs, of loopback", shm / loopback, WANTED_RATIO, "");
    Ok(Verdict {
        name: "shim-rtt",
        ratio: (tap / veth).min(shm / loopback),
        firelane: format!("{:.1} us TAP, {:.1} us programs", 1e6 / tap, 1e6 / shm),
        peer: format!("{:.1} us veth, {:.1} us loopback", 1e6 / veth, 1e6 / loopback),
    })
}
