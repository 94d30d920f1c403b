//! `redis-tap`: redis GET on 50 connections, `redis-benchmark` in a namespace of the kernel's.
//!
//! The server is an unmodified `redis-server`: on Firelane, reached over a TAP, and on the kernel, reached over a veth
//! pair. The figure is requests per CPU-second of all parties: client, server, and the daemon.

use crate::peer::{Place, Result};
use crate::redis::Redis;
use crate::report::{Samples, Table, Verdict};
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, SERVER, Scene, TENANT};

const ROUNDS: usize = 5;
const REQUESTS: u32 = 40_000;
const WANTED_RATIO: f64 = 1.2;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let daemon = Some(scene.daemon());
    let places = [scene.netns(TENANT), Place::Preloaded(&scene)];
    let mut ours = Redis::start("firelane, TAP", FIRELANE_HOST, places, daemon)?;
    let places = [scene.netns(CLIENT), scene.netns(SERVER)];
    let mut theirs = Redis::start("kernel, veth", KERNEL_HOST, places, None)?;
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        foreign.push(ours.round(REQUESTS, 1)?);
        foreign.push(theirs.round(REQUESTS, 1)?);
    }
    let table = Table::begin("redis-tap: GET, 50 connections, a client of the kernel's");
    for side in [&ours, &theirs] {
        table.row(side.name, &side.wall, "k requests/s");
        table.row(&format!("{}, all parties", side.name), &side.cpu, "k/CPU-s");
    }
    table.disturbance(&foreign);
    let [mine, peers] = [&ours, &theirs].map(|side| side.cpu.median());
    table.at_least("ratio", mine / peers, WANTED_RATIO, "");
    Ok(Verdict {
        name: "redis-tap",
        ratio: mine / peers,
        firelane: format!("{mine:.0} k/CPU-s"),
        peer: format!("{peers:.0} k/CPU-s"),
    })
}
