//! The benchmarks of TCP Fusion: two unmodified programs whose connections go past the daemon, beside the same programs
//! over the kernel's loopback, over AF_UNIX where a socket may be either, and with both ends on one CPU.
//!
//! Where one connection is measured (`bulk.rs`, `rtt.rs`, `java.rs`), every side has its best placement: client and server each on
//! a CPU of its own, both on one, or where the scheduler puts them. Programs with many connections of their own (`redis.rs`,
//! `pgbench.rs`, `nginx.rs`) are put where the scheduler likes, on both sides. The kernel's TCP has cubic, which serves it best (`scene.rs`).

pub(crate) mod bulk;
pub(crate) mod conn;
pub(crate) mod java;
pub(crate) mod nginx;
pub(crate) mod pgbench;
pub(crate) mod redis;
pub(crate) mod rtt;

use crate::cpu::{Meter, PLACEMENTS, Used};
use crate::peer::{Peer, Place, Result};
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::{FIRELANE_HOST, SERVER, Scene, WEB};
use crate::stream::Use;

/// Both ends in the same place, by the kernel or past it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    pub(crate) place: Place<'a>,
    pub(crate) host: &'static str,
    /// Who is party to what its programs do.
    daemon: Option<u32>,
}

impl Side<'_> {
    /// Measures `work` of these processes, and of the daemon where it takes part.
    pub(crate) fn measure<T>(&self, pids: &[u32], work: impl FnOnce() -> Result<T>) -> Result<(T, Used)> {
        let parties: Vec<u32> = pids.iter().copied().chain(self.daemon).collect();
        let meter = Meter::start(&parties);
        let done = work()?;
        Ok((done, meter.stop()))
    }
}

/// Fused, and the kernel's loopback.
pub(crate) fn sides(scene: &Scene) -> [Side<'_>; 2] {
    [
        Side {
            name: "fused",
            place: Place::Preloaded(scene, WEB),
            host: FIRELANE_HOST,
            daemon: Some(scene.daemon()),
        },
        Side { name: "kernel loopback", place: scene.netns(SERVER), host: "127.0.0.1", daemon: None },
    ]
}

/// A program's own benchmark of a server that is on the same side, for both sides in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// How many times the kernel's rate.
    pub(crate) wanted: f64,
}

impl Contest {
    /// Starts the server of each side, the first and the second, and asks each for its `rate` five times.
    pub(crate) fn run<T>(
        self,
        start: impl Fn(&Scene, Side<'_>, usize) -> Result<T>,
        rate: impl Fn(&T, Side<'_>) -> Result<f64>,
    ) -> Result<Verdict> {
        const ROUNDS: usize = 5;
        let Self { name, title, unit, wanted } = self;
        let scene = Scene::start(1)?;
        let mut all = Vec::new();
        for (nth, side) in sides(&scene).into_iter().enumerate() {
            all.push((side, start(&scene, side, nth)?, Samples::default(), Samples::default()));
        }
        for _ in 0..ROUNDS {
            for (side, server, rates, busy) in &mut all {
                let meter = Meter::start(&[]);
                rates.push(rate(server, *side)?);
                let used = meter.stop();
                busy.push(used.machine.as_secs_f64() / used.wall.as_secs_f64());
            }
        }
        let table = Table::begin(&format!("{name}: {title}, client and server in the same place"));
        for (side, _, rates, busy) in &all {
            table.row(side.name, rates, unit);
            table.row("  CPU time of the whole machine", busy, "CPUs");
        }
        let [ours, theirs] = [0, 1].map(|nth| all[nth].2.median());
        table.at_least("of kernel loopback", ours / theirs, wanted, "times");
        let told = |rate| format!("{} {unit}", number(rate));
        Ok(Verdict { name, ratio: ours / theirs, firelane: told(ours), peer: told(theirs) })
    }
}

/// The two, and AF_UNIX, each with a server and its client at each placement.
pub(crate) fn streams(scene: &Scene) -> Result<[Streams<'_>; 3]> {
    let [fused, loopback] = sides(scene);
    let unix = Side { name: "AF_UNIX", place: Place::Sandbox(&scene.sandbox), host: "", daemon: None };
    let folder = scene.sandbox.folder();
    Ok([
        Streams::start(fused, |nth| format!("{}:{}", fused.host, 7000 + nth))?,
        Streams::start(loopback, |nth| format!("{}:{}", loopback.host, 7000 + nth))?,
        Streams::start(unix, |nth| folder.join(format!("socket-{nth}")).display().to_string())?,
    ])
}

/// A side's ends of streams.
#[derive(Debug)]
pub(crate) struct Streams<'a> {
    pub(crate) side: Side<'a>,
    /// At each placement: client, server, address.
    pairs: Vec<(Peer, Peer, String)>,
}

impl<'a> Streams<'a> {
    fn start(side: Side<'a>, address: impl Fn(usize) -> String) -> Result<Self> {
        let mut pairs = Vec::new();
        for (nth, (_, [client_cpu, server_cpu])) in PLACEMENTS.iter().enumerate() {
            let address = address(nth);
            let server = Peer::start(side.place, "stream-server", &[&address, server_cpu])?;
            let client = Peer::start(side.place, "stream-client", &[client_cpu])?;
            pairs.push((client, server, address));
        }
        Ok(Self { side, pairs })
    }

    /// One connection, for so long: what `stream.rs` measures of it, and what it took of the CPUs.
    pub(crate) fn ask(
        &mut self,
        placement: usize,
        what: Use,
        bytes: usize,
        millis: u32,
    ) -> Result<([u64; 5], Used)> {
        let (client, server, address) = &mut self.pairs[placement];
        let command = format!("{address} {} {bytes} {millis}", what.word());
        let (answer, used) = self.side.measure(&[client.pid(), server.pid()], || client.ask(&command))?;
        Ok((answer.try_into().map_err(|_| "five numbers were expected")?, used))
    }
}

/// A command in front of `program` that binds it to a CPU; empty for `any`.
pub(crate) fn bound_to(cpu: &str) -> Vec<&str> {
    if cpu == "any" { Vec::new() } else { vec!["taskset", "-c", cpu] }
}

/// What was measured at each placement.
pub(crate) type Placed = [Samples; PLACEMENTS.len()];

/// The placement with the least median of those that were measured, and that median.
pub(crate) fn least(placed: &Placed) -> (usize, f64) {
    let measured = placed.iter().map(Samples::median).enumerate().filter(|&(_, median)| median > 0.0);
    measured.min_by(|one, two| one.1.total_cmp(&two.1)).unwrap_or_default()
}

/// The placement with the greatest median, and that median.
pub(crate) fn greatest(placed: &Placed) -> (usize, f64) {
    placed
        .iter()
        .map(Samples::median)
        .enumerate()
        .max_by(|one, two| one.1.total_cmp(&two.1))
        .unwrap_or_default()
}
