//! `neighbours`: whether netstacks and devices that do nothing cost those that do something. One thread's connect and accept, which takes
//! its lane several turns, in a lane of its own, beside five hundred other netstacks, and beside three hundred TAPs.

use crate::fused::conn::TIMES;
use crate::peer::{Peer, Place, Result};
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::{FIRELANE_HOST, Scene, TENANT, WEB};

const ROUNDS: usize = 9;
const NETSTACKS: usize = 500;
const TAPS: usize = 300;
const WANTED: f64 = 1.2;
const NAMESPACE: &[&str] = &["netns add alice"];
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
    let netstacks: String = (0..NETSTACKS).map(netstack).collect();
    let taps: String = (0..TAPS).map(tap).collect();
    let scenes = [
        ("alone", Scene::of(&[], ALONE, 1)?),
        ("beside 500 netstacks", Scene::of(&[], &format!("{ALONE}{netstacks}"), 1)?),
        ("beside 300 TAPs", Scene::of(&[NAMESPACE], &format!("{ALONE}{taps}"), 1)?),
    ];
    let mut sides = Vec::new();
    for (_, scene) in &scenes {
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
    let medians = [0, 1, 2].map(|nth| sides[nth].1.median());
    let ratios = medians.map(|median| median / medians[0]);
    for (nth, ((what, _), (_, micros))) in scenes.iter().zip(&sides).enumerate() {
        table.row(what, micros, "us");
        if nth > 0 {
            table.at_most("  of that alone", ratios[nth], WANTED, "times as long");
        }
    }
    let worst = ratios[1].max(ratios[2]);
    Ok(Verdict {
        name: "neighbours",
        ratio: worst,
        firelane: format!("{} us in the worse company", number(worst * medians[0])),
        peer: format!("{} us alone", number(medians[0])),
    })
}

/// The configuration of a further netstack, with an address.
fn netstack(nth: usize) -> String {
    format!(
        "[vnic.n{nth}]\nover = \"s1\"\nnetstack = \"z{nth}\"\n\
         [netstack.z{nth}.addresses]\n\"n{nth}/v4\" = \"{}\"\n",
        address(nth)
    )
}

/// The same of a further TAP.
fn tap(nth: usize) -> String {
    format!(
        "[vnic.t{nth}]\nover = \"s1\"\ntap = {{ namespace = \"{TENANT}\", addresses = [\"{}\"] }}\n",
        address(nth)
    )
}

fn address(nth: usize) -> String {
    format!("10.{}.{}.1/24", 1 + nth / 200, nth % 200)
}
