//! `nginx-close`: wrk asks nginx for 1 KB, with a connection for each request, by work per CPU-second of all parties.
//!
//! On Firelane each has a netstack of its own, both over one etherstub, so that connections are TCP's; on the kernel each
//! has a network namespace of its own, with a veth pair between.

use crate::duel::Duel;
use crate::nginx::{self, Pair, SMALL};
use crate::peer::{Place, Result};
use crate::report::Verdict;
use crate::scene::{FIRELANE_HOST, LOAD, Scene, WEB};

const CLOSE: &[&str] = &["-H", "Connection: close"];

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let ours = Pair {
        name: "firelane, etherstub",
        host: FIRELANE_HOST,
        client: Place::Preloaded(&scene, LOAD),
        server: Place::Preloaded(&scene, WEB),
    };
    let duel = Duel {
        name: "nginx-close",
        title: "1 KB, a connection for each request, 16 at a time",
        unit: "requests",
        wanted: 1.5,
    };
    duel.run(nginx::sides(&scene, ours, SMALL.0, CLOSE)?)
}
