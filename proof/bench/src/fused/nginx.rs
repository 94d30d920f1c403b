//! `fused-nginx-close`: wrk asks nginx for 1 KB, with a connection for each request, both in the same place.

use crate::cpu::ANYWHERE;
use crate::nginx::{Nginx, SMALL};
use crate::peer::Result;
use crate::report::Verdict;

use super::Contest;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let contest = Contest {
        name: "fused-nginx-close",
        title: "1 KB, a connection for each request, 16 at a time",
        unit: "requests/s",
        wanted: 3.0,
    };
    contest.run(
        |scene, side, nth| Nginx::start(scene, side.place, side.host, nth, side.place, ANYWHERE),
        |nginx, side| Ok(nginx.wrk(side.place, SMALL.0, "1", &["-H", "Connection: close"])?.per_second),
    )
}
