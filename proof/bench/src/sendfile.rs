//! `sendfile`: nginx serves files of 1 MB from connections that stay, by work per CPU-second of all parties.
//!
//! wrk is in a namespace of the kernel's: over a TAP to an unmodified nginx on Firelane, and over a veth pair to one on
//! the kernel.

use crate::duel::Duel;
use crate::nginx::{self, LARGE, Pair};
use crate::peer::{Place, Result};
use crate::report::Verdict;
use crate::scene::{FIRELANE_HOST, Scene, TENANT, WEB};

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let ours = Pair {
        name: "firelane, TAP",
        host: FIRELANE_HOST,
        client: scene.netns(TENANT),
        server: Place::Preloaded(&scene, WEB),
    };
    let duel = Duel { name: "sendfile", title: "files of 1 MB, 16 connections", unit: "files", wanted: 0.8 };
    duel.run(nginx::sides(&scene, ours, LARGE.0, &[])?)
}
