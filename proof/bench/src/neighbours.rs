//! `neighbours`: whether netstacks that do nothing cost those that do something. One thread's connect and accept, which takes its lane
//! several turns, on a daemon's only netstack, and on one among five hundred others of the same lane.

use crate::fused::conn::TIMES;
use crate::peer::{Peer, Place, Result};
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::{FIRELANE_HOST, Scene, WEB};

const ROUNDS: usize = 9;
const NEIGHBOURS: usize = 500;
/// A lane on the CPU that the thread is not on.
const ALONE: &str = r#"
[daemon]
cpus = "1"
[etherstub.s1]
[vnic.web0]
over = "s1"
netstack = "web"
[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
"#;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let neighbours: String = (0..NEIGHBOURS).map(neighbour).collect();
    let scenes = [Scene::of(&[], ALONE, 1)?, Scene::of(&[], &format!("{ALONE}{neighbours}"), 1)?];
    let mut sides = Vec::new();
    for scene in &scenes {
        let peer = Peer::start(Place::Preloaded(scene, WEB), "conn-cases", &["0", FIRELANE_HOST])?;
        sides.push((peer, Samples::default()));
    }
    for _ in 0..ROUNDS {
        for (peer, micros) in &mut sides {
            let nanos = peer.ask("connect-accept")?;
            micros.push(nanos[0] as f64 * 1e-3 / TIMES as f64);
        }
    }
    let table = Table::begin("neighbours: connect and accept, both ends in one thread");
    table.row("the lane's only netstack", &sides[0].1, "us");
    table.row(&format!("beside {NEIGHBOURS} others"), &sides[1].1, "us");
    let [alone, beside] = [0, 1].map(|nth| sides[nth].1.median());
    table.at_most("  of that", beside / alone, 1.15, "times as long");
    Ok(Verdict {
        name: "neighbours",
        ratio: beside / alone,
        firelane: format!("{} us beside {NEIGHBOURS} netstacks", number(beside)),
        peer: format!("{} us alone", number(alone)),
    })
}

/// The configuration of a further netstack, with an address.
fn neighbour(nth: usize) -> String {
    let (subnet, host) = (1 + nth / 200, nth % 200);
    format!(
        "[vnic.n{nth}]\nover = \"s1\"\nnetstack = \"z{nth}\"\n\
         [netstack.z{nth}.addresses]\n\"n{nth}/v4\" = \"10.{subnet}.{host}.1/24\"\n"
    )
}
