//! `isolation`: what a victim feels of an attacker who has a limit.
//!
//! A request/response client has a VNIC and asks a server on the same virtual switch. The attacker floods the server with
//! small datagrams, ten times as much as his limit, and keeps 1,000 TCP connections full: from a VNIC of his own, and from the
//! victim's own as another flow. In the same run the kernel does it with a bridge, veths and a class of `htb` for each.
//! Unloaded, the generator sends as much to a TAP that nobody reads, so that it takes as much of its CPU.
//!
//! The generator is on CPU 0; the victim, its server and the lane that all share are on CPU 1. The attacker's VNIC and his flow have
//! a lane of their own, as whoever expects no good of them gives them, on CPU 0.

mod noise;

pub(crate) use noise::play as play_noise;

use std::time::Duration;

use crate::cpu::Meter;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};
use crate::scene::Scene;
use crate::stream::Use;

const ROUNDS: usize = ROUNDS_MIN;
const SPAN: Duration = Duration::from_millis(1200);
/// How long an attack lasts before the victim is looked at.
const ONSET: Duration = Duration::from_millis(300);
const REQUEST_BYTES: usize = 64;
/// The attacker's limit, and how many datagrams of 64 bytes are ten times as much.
const LIMIT_MEGABITS: u64 = 10;
const FLOOD_PER_SECOND: u64 = 10 * LIMIT_MEGABITS * 1_000_000 / (8 * 64);
const VICTIM_CPU: &str = "1";
const WANTED_RATE: f64 = 0.97;
const WANTED_TAIL: f64 = 1.2;
/// What is less is no flood of ten times the limit.
const WANTED_ATTACK: f64 = 0.9;
const SERVER_PORT: u16 = 7000;

/// Three stations on a virtual switch of Firelane's, and three on a bridge; and a TAP that nobody reads.
const TOPOLOGY: &[&str] = &[
    "netns add victim",
    "netns add noise",
    "netns add server",
    "link add bridge0 type bridge stp_state 0 mcast_snooping 0",
    "link set bridge0 up",
    "link add kv0 type veth peer name eth0 netns victim",
    "link add kn0 type veth peer name eth0 netns noise",
    "link add ks0 type veth peer name eth0 netns server",
    "link set kv0 master bridge0 up",
    "link set kn0 master bridge0 up",
    "link set ks0 master bridge0 up",
    "-n victim address add 10.1.0.1/24 dev eth0",
    "-n noise address add 10.1.0.3/24 dev eth0",
    "-n server address add 10.1.0.2/24 dev eth0",
    "-n server address add 10.1.0.4/24 dev eth0",
    "-n victim link set eth0 up",
    "-n noise link set eth0 up",
    "-n server link set eth0 up",
    "-n noise tuntap add mode tap name nobody",
    "-n noise address add 10.3.0.1/24 dev nobody",
    "-n noise link set nobody up",
    "-n noise neigh add 10.3.0.2 lladdr 02:08:20:00:00:99 dev nobody nud permanent",
    "-n victim tuntap add mode tap name nobody",
    "-n victim address add 10.3.0.1/24 dev nobody",
    "-n victim link set nobody up",
    "-n victim neigh add 10.3.0.2 lladdr 02:08:20:00:00:99 dev nobody nud permanent",
];
/// A class for what the generator marks (SO_PRIORITY 1:10), and one for the rest.
const CLASSES: &[&str] = &[
    "qdisc add dev eth0 root handle 1: htb default 20",
    "class add dev eth0 parent 1: classid 1:10 htb rate 10mbit",
    "class add dev eth0 parent 1: classid 1:20 htb rate 10gbit",
];
const CONFIG: &str = r#"
[daemon]
cpus = "1"
[etherstub.s1]
mtu = 1500
[vnic.web0]
over = "s1"
netstack = "web"
[vnic.victim0]
over = "s1"
tap = { namespace = "victim", addresses = ["10.2.0.1/24"] }
[vnic.noise0]
over = "s1"
maxbw = "10M"
cpus = "0"
tap = { namespace = "noise", addresses = ["10.2.0.3/24"] }
[vnic.server0]
over = "s1"
tap = { namespace = "server", addresses = ["10.2.0.2/24"] }
[netstack.web.addresses]
"web0/v4" = "10.2.0.10/24"
# What the victim's namespace sends to the server's second address is the attacker's.
[flow.noise]
link = "victim0"
match = { remote_ip = "10.2.0.4" }
maxbw = "10M"
cpus = "0"
"#;
/// Where nobody is.
const NOBODY: &str = "10.3.0.2";

/// One arrangement of victim and attacker.
#[derive(Debug)]
struct Case {
    name: &'static str,
    is_ours: bool,
    /// The attacker's namespace, and whom he attacks.
    noise: &'static str,
    target: &'static str,
    server: &'static str,
    rate: Samples,
    tail: Samples,
    /// Trips and their tails, alone and under attack.
    told: [[Samples; 2]; 2],
    cpus: [Samples; 2],
    /// What the attacker offered of the datagrams that were due, and how many of its connections took text.
    offered: [[Samples; 2]; 2],
}

impl Case {
    fn new(
        name: &'static str,
        is_ours: bool,
        noise: &'static str,
        target: &'static str,
        server: &'static str,
    ) -> Self {
        let [rate, tail] = Default::default();
        Self {
            name,
            is_ours,
            noise,
            target,
            server,
            rate,
            tail,
            told: Default::default(),
            cpus: Default::default(),
            offered: Default::default(),
        }
    }
}

struct World {
    scene: Scene,
    client: Peer,
    server: Peer,
    /// What takes the attack.
    sink: Peer,
    /// From its own namespace, and from the victim's.
    noises: [Peer; 2],
    foreign: Samples,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut world = World::new()?;
    let mut cases = [
        Case::new("two VNICs", true, "noise", "10.2.0.2", "10.2.0.2"),
        Case::new("two stations on the kernel's bridge, htb", false, "noise", "10.1.0.2", "10.1.0.2"),
        Case::new("two flows of one VNIC", true, "victim", "10.2.0.4", "10.2.0.2"),
        Case::new("two classes of one veth, htb", false, "victim", "10.1.0.4", "10.1.0.2"),
    ];
    for _ in 0..ROUNDS {
        for case in &mut cases {
            world.round(case)?;
        }
    }
    Ok(report(&cases, &world.foreign))
}

impl World {
    fn new() -> Result<Self> {
        let scene = Scene::of(&[TOPOLOGY], CONFIG, 1)?;
        peer::ip(&scene.sandbox, &["-n server address add 10.2.0.4/24 dev server0"])?;
        for netns in ["noise", "victim"] {
            CLASSES.iter().try_for_each(|line| peer::tc(&scene.sandbox, netns, line))?;
        }
        let on = VICTIM_CPU;
        let server =
            Peer::start(scene.netns("server"), "stream-server", &[&format!("0.0.0.0:{SERVER_PORT}"), on])?;
        let client = Peer::start(scene.netns("victim"), "stream-client", &[on])?;
        let sink = Peer::start(scene.netns("server"), "wire-sink", &[])?;
        let noise = |netns| Peer::start(Place::Netns(&scene.sandbox, netns), "noise", &[]);
        let noises = [noise("noise")?, noise("victim")?];
        Ok(Self { client, server, sink, noises, scene, foreign: Samples::default() })
    }

    fn round(&mut self, case: &mut Case) -> Result<()> {
        let alone = self.look(case, NOBODY, 0)?;
        let attacked = self.look(case, case.target, 1)?;
        case.rate.push(attacked[0] / alone[0]);
        case.tail.push(attacked[1] / alone[1]);
        Ok(())
    }

    /// Trips per second of the victim and the hundredth that is longest, while the generator sends to `target`.
    fn look(&mut self, case: &mut Case, target: &str, nth: usize) -> Result<[f64; 2]> {
        let noise = &mut self.noises[usize::from(case.noise == "victim")];
        let mut parties = vec![self.client.pid(), self.server.pid(), self.sink.pid(), noise.pid()];
        parties.extend(case.is_ours.then(|| self.scene.daemon()));
        let attack = format!("{target} {FLOOD_PER_SECOND} {}", (ONSET + SPAN + ONSET).as_millis());
        let trips = format!(
            "{}:{SERVER_PORT} {} {REQUEST_BYTES} {}",
            case.server,
            Use::Blocking.word(),
            SPAN.as_millis()
        );
        let client = &mut self.client;
        let meter = Meter::start(&parties);
        let (answer, offered) = std::thread::scope(|scope| {
            let attacks = scope.spawn(move || noise.ask(&attack));
            std::thread::sleep(ONSET);
            let answer = client.ask(&trips);
            let offered = attacks.join().map_err(|_| "the attacker's thread panicked")??;
            Result::Ok((answer?, offered))
        })?;
        let &[sent, due, connections] = offered.as_slice() else {
            return Err("three numbers of the attacker were expected".into());
        };
        case.offered[nth][0].push(sent as f64 / due as f64);
        case.offered[nth][1].push(connections as f64);
        let used = meter.stop();
        let &[count, nanos, _, _, tail] = answer.as_slice() else {
            return Err("five numbers were expected".into());
        };
        let seen = [count as f64 / (nanos as f64 * 1e-9), tail as f64 * 1e-3];
        for (samples, value) in case.told[nth].iter_mut().zip(seen) {
            samples.push(value);
        }
        case.cpus[nth].push(used.busy());
        self.foreign.push(used.foreign());
        Ok(seen)
    }
}

fn report(cases: &[Case], foreign: &Samples) -> Verdict {
    let table = Table::begin(
        "isolation: 64 bytes there and back beside a flood of ten times its limit of 10 Mb/s and 1,000 full connections",
    );
    for case in cases {
        table.fact(case.name, "");
        for (nth, when) in ["alone", "attacked"].into_iter().enumerate() {
            let ([rate, tail], cpus, offered) = (&case.told[nth], &case.cpus[nth], &case.offered[nth]);
            table.row(&format!("  {when}"), rate, "round trips/s");
            table.row(&format!("  {when}, p99"), tail, "us");
            table.row(&format!("  {when}, CPUs busy"), cpus, "CPUs");
            table.row(&format!("  {when}, sent of ten times the limit"), &offered[0], "");
            table.row(&format!("  {when}, its connections that took text"), &offered[1], "of 1,000");
        }
        table.row("  trips, attacked of alone", &case.rate, "");
        table.row("  p99, attacked of alone", &case.tail, "");
    }
    table.disturbance(foreign);
    let of = |ours: bool| cases.iter().filter(move |case| case.is_ours == ours);
    let least = |ours| of(ours).map(|case| case.rate.median()).fold(f64::INFINITY, f64::min);
    let most = |ours| of(ours).map(|case| case.tail.median()).fold(0.0, f64::max);
    // Beside nothing everybody is as fast as alone.
    let sent = of(true).map(|case| case.offered[1][0].median()).fold(f64::INFINITY, f64::min);
    table.at_least("the attack, sent of ten times the limit", sent, WANTED_ATTACK, "");
    table.at_least("trips, attacked of alone, the worse case", least(true), WANTED_RATE, "");
    table.at_most("p99, attacked of alone, the worse case", most(true), WANTED_TAIL, "");
    let told =
        |ours| format!("{} of its trips, p99 {} times as long", number(least(ours)), number(most(ours)));
    Verdict { name: "isolation", ratio: least(true), firelane: told(true), peer: told(false) }
}
