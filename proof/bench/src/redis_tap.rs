//! `redis-tap`: redis GET on 50 connections, `redis-benchmark` in a namespace of the kernel's.
//!
//! The server is an unmodified `redis-server`: on Firelane, reached over a TAP, and on the kernel, reached over a veth
//! pair. The figure is requests per CPU-second of all parties: client, server, and the daemon.

use crate::duel::{Duel, Side};
use crate::peer::{Place, Result};
use crate::redis::Redis;
use crate::report::Verdict;
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, SERVER, Scene, TENANT, WEB};

const REQUESTS: u32 = 40_000;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let places = [scene.netns(TENANT), Place::Preloaded(&scene, WEB)];
    let ours = Redis::start("firelane, TAP", FIRELANE_HOST, places, Some(scene.daemon()))?;
    let places = [scene.netns(CLIENT), scene.netns(SERVER)];
    let theirs = Redis::start("kernel, veth", KERNEL_HOST, places, None)?;
    let duel = Duel {
        name: "redis-tap",
        title: "GET, 50 connections, a client of the kernel's",
        unit: "k requests",
        wanted: 1.2,
    };
    duel.run([ours, theirs].map(|redis| Side {
        name: redis.name,
        parties: redis.parties(),
        work: Box::new(move || {
            redis.get(REQUESTS, 1)?;
            Ok(f64::from(REQUESTS) * 1e-3)
        }),
    }))
}
