//! `redis-tap`: redis GET on 50 connections, `redis-benchmark` in a namespace of the kernel's.
//!
//! The server is an unmodified `redis-server`: on Firelane, reached over a TAP, and on the kernel, reached over a veth
//! pair. The figure is requests per CPU-second of all parties: client, server, and the daemon.

use crate::duel::{self, Duel, Side};
use crate::peer::{Place, Result};
use crate::redis::Redis;
use crate::report::Verdict;
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, SERVER, Scene, TENANT, WEB};

const REQUESTS: u32 = 40_000;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let (far, near) = (scene.netns(TENANT), Place::Preloaded(&scene, WEB));
    let daemon = Some(scene.daemon());
    let ours = duel::at_each_placement(|nth| {
        Ok(side(Redis::start("firelane, TAP", FIRELANE_HOST, [far, near], daemon, nth)?))
    })?;
    let places = [scene.netns(CLIENT), scene.netns(SERVER)];
    let theirs = duel::at_each_placement(|nth| {
        Ok(side(Redis::start("kernel, veth", KERNEL_HOST, places, None, nth)?))
    })?;
    let duel = Duel {
        name: "redis-tap",
        title: "GET, 50 connections, a client of the kernel's",
        unit: "k requests",
        wanted: 1.2,
    };
    duel.run([ours, theirs])
}

/// Whose work are so many requests.
fn side(redis: Redis<'_>) -> Side<'_> {
    Side {
        name: redis.name,
        servers: vec![redis.server()],
        daemon: redis.daemon,
        work: Box::new(move || {
            redis.get(REQUESTS, 1)?;
            Ok(f64::from(REQUESTS) * 1e-3)
        }),
    }
}
