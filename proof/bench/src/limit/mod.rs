//! `limit`: how exact a limit is on the wire, from 1 Mb/s to 10 Gb/s, beside `htb` and `tbf`.
//!
//! A real `firelaned` limits a tenant's VNIC where it sends, another's where it receives, and a netstack from which an
//! unmodified program sends; the kernel limits a veth. All go into one namespace, where the interface is
//! read every few milliseconds (`wire.rs`). Two programs whose connection is fused have no wire: there counts what the
//! receiving one has read, and a limit is one of text. Judged are all windows of 100 ms above 10 Mb/s and of a second below: the one
//! that carries most, from the first frame on, and the one that carries least.

pub(crate) mod wire;

use std::time::Duration;

use crate::cpu::Meter;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};
use crate::scene::{CLIENT, KERNEL_HOST, SERVER, Scene, WEB};
use crate::two_servers::TOPOLOGY;
use wire::{FRAME_BYTES, PORT};

const ROUNDS: usize = ROUNDS_MIN;
/// How long the wire is read before something is sent.
const HEAD_START: Duration = Duration::from_millis(15);
/// How much longer senders send than the wire is read.
const MARGIN: Duration = Duration::from_millis(50);
/// How exact a limit is to be, if two frames are not more.
const EXACT: f64 = 0.01;
const TENANT_HOST: &str = "10.2.0.2";
const NETSTACK_SERVER: &str = "10.2.0.10:7000";
const LOOPBACKS: &[&str] = &["-n client link set lo up", "-n server link set lo up"];
/// The lane has the server's CPU for its home: a source without pause has the client's.
const CONFIG: &str = r#"
[daemon]
cpus = "1"
[etherstub.s1]
mtu = 1500
[vnic.web0]
over = "s1"
netstack = "web"
[vnic.sends0]
over = "s1"
tap = { namespace = "client", addresses = ["10.2.0.1/24"] }
[vnic.takes0]
over = "s1"
tap = { namespace = "server", addresses = ["10.2.0.2/24"] }
[netstack.web.addresses]
"web0/v4" = "10.2.0.10/24"
"#;

/// A limit, as the model and tc write it.
#[derive(Clone, Copy, Debug)]
struct Rate {
    megabits: u32,
    name: &'static str,
}

const RATES: [Rate; 5] = [
    Rate { megabits: 1, name: "1 Mb/s" },
    Rate { megabits: 10, name: "10 Mb/s" },
    Rate { megabits: 100, name: "100 Mb/s" },
    Rate { megabits: 1_000, name: "1 Gb/s" },
    Rate { megabits: 10_000, name: "10 Gb/s" },
];

impl Rate {
    fn bits_per_second(self) -> f64 {
        f64::from(self.megabits) * 1e6
    }

    /// What is judged: 100 ms, at low rates a second.
    fn window(self) -> Duration {
        Duration::from_millis(if self.megabits < 10 { 1000 } else { 100 })
    }

    fn span(self) -> Duration {
        Duration::from_millis(if self.megabits < 10 { 1700 } else { 400 })
    }

    /// How far off a window may be, as a share of the limit: 1 %, or two frames.
    fn allowed(self) -> f64 {
        let due = self.bits_per_second() / 8.0 * self.window().as_secs_f64();
        EXACT.max(2.0 * FRAME_BYTES / due)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    Tcp,
    Udp,
}

impl Traffic {
    const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Who limits, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shaper {
    Sender,
    Receiver,
    Netstack,
    Fused,
    Htb,
    Tbf,
}

impl Shaper {
    const ALL: [Self; 6] = [Self::Sender, Self::Receiver, Self::Netstack, Self::Fused, Self::Htb, Self::Tbf];

    const fn name(self) -> &'static str {
        match self {
            Self::Sender => "VNIC, sending",
            Self::Receiver => "VNIC, receiving",
            Self::Netstack => "netstack's program",
            Self::Fused => "two programs, fused",
            Self::Htb => "kernel htb",
            Self::Tbf => "kernel tbf",
        }
    }

    const fn is_ours(self) -> bool {
        !matches!(self, Self::Htb | Self::Tbf)
    }

    /// Whether there is something to measure: datagrams of one frame do not come to 10 Gb/s, and the programs send bytes.
    const fn does(self, traffic: Traffic, rate: Rate) -> bool {
        match traffic {
            Traffic::Tcp => true,
            Traffic::Udp => rate.megabits <= 1000 && !matches!(self, Self::Netstack | Self::Fused),
        }
    }

    /// Words of tc(8). A token bucket holds a millisecond, the least that it needs at high rates, and its queue as much as ours.
    fn discipline(self, rate: Rate) -> Vec<String> {
        let rate_word = format!("{}mbit", rate.megabits);
        let burst = (rate.megabits * 125).max(3028);
        let line = match self {
            Self::Tbf => format!("qdisc add dev near root tbf rate {rate_word} burst {burst} latency 20ms"),
            _ => format!("class add dev near parent 1: classid 1:1 htb rate {rate_word}"),
        };
        let root = "qdisc add dev near root handle 1: htb default 1".to_owned();
        if self == Self::Htb { vec![root, line] } else { vec![line] }
    }
}

/// One shaper at one rate.
#[derive(Debug)]
struct Cell {
    shaper: Shaper,
    traffic: Traffic,
    rate: Rate,
    above: Samples,
    below: Samples,
    worst: Samples,
    cpus: Samples,
}

struct World {
    scene: Scene,
    source: Peer,
    sink: Peer,
    /// The program on the netstack, and one beside it.
    server: Peer,
    reader: Peer,
    foreign: Samples,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut world = World::new()?;
    let mut cells = Vec::new();
    for (traffic, rate) in
        [Traffic::Tcp, Traffic::Udp].into_iter().flat_map(|it| RATES.map(|rate| (it, rate)))
    {
        for shaper in Shaper::ALL.into_iter().filter(|shaper| shaper.does(traffic, rate)) {
            let [above, below, worst, cpus] = Default::default();
            cells.push(Cell { shaper, traffic, rate, above, below, worst, cpus });
        }
    }
    for _ in 0..ROUNDS {
        for cell in &mut cells {
            world.measure(cell)?;
        }
    }
    Ok(report(&cells, &world.foreign))
}

impl World {
    fn new() -> Result<Self> {
        let scene = Scene::of(&[TOPOLOGY, LOOPBACKS], CONFIG, 1)?;
        let source = Peer::start(scene.netns(CLIENT), "wire-source", &[])?;
        let sink = Peer::start(scene.netns(SERVER), "wire-sink", &[])?;
        let server = Peer::start(Place::Preloaded(&scene, WEB), "stream-server", &[NETSTACK_SERVER, "0"])?;
        let reader = Peer::start(Place::Preloaded(&scene, WEB), "wire-sink", &[])?;
        Ok(Self { scene, source, sink, server, reader, foreign: Samples::default() })
    }

    fn measure(&mut self, cell: &mut Cell) -> Result<()> {
        let Cell { shaper, traffic, rate, .. } = *cell;
        self.limit(shaper, rate)?;
        let mut parties = vec![self.source.pid(), self.sink.pid(), self.server.pid(), self.reader.pid()];
        parties.extend(shaper.is_ours().then(|| self.scene.daemon()));
        let interface = match shaper {
            Shaper::Fused => wire::READ,
            _ if shaper.is_ours() => "takes0",
            _ => "far",
        };
        let host = if shaper.is_ours() { TENANT_HOST } else { KERNEL_HOST };
        let is_served = matches!(shaper, Shaper::Netstack | Shaper::Fused);
        let from = if is_served { NETSTACK_SERVER } else { "" };
        let read = format!("{interface} {} {from}", rate.span().as_millis());
        let send = format!("{} {host}:{PORT} {}", traffic.word(), (rate.span() + MARGIN).as_millis());
        let meter = Meter::start(&parties);
        let source = &mut self.source;
        let sink = if shaper == Shaper::Fused { &mut self.reader } else { &mut self.sink };
        let numbers = std::thread::scope(|scope| {
            let sent = scope.spawn(move || match shaper {
                _ if is_served => Ok(Vec::new()),
                _ => {
                    std::thread::sleep(HEAD_START);
                    source.ask(&send)
                }
            });
            let numbers = sink.ask(&read);
            sent.join().map_err(|_| "a source's thread panicked")??;
            numbers
        })?;
        let used = meter.stop();
        self.lift(shaper)?;
        let samples = if shaper == Shaper::Fused { wire::text(&numbers) } else { wire::samples(&numbers) };
        let errors = wire::errors(&samples, rate.bits_per_second(), rate.window())
            .map_err(|error| format!("{}, {} at {}: {error}", shaper.name(), traffic.word(), rate.name))?;
        cell.above.push(100.0 * errors.above);
        cell.below.push(100.0 * errors.below);
        cell.worst.push(100.0 * errors.worst());
        cell.cpus.push(used.parties.as_secs_f64() / used.wall.as_secs_f64());
        self.foreign.push(used.foreign());
        Ok(())
    }

    fn limit(&self, shaper: Shaper, rate: Rate) -> Result<()> {
        match link(shaper) {
            Some(link) => self.scene.set_maxbw(link, &rate.megabits.to_string()),
            None => shaper.discipline(rate).iter().try_for_each(|line| self.tc(line)),
        }
    }

    fn lift(&self, shaper: Shaper) -> Result<()> {
        match link(shaper) {
            Some(link) => self.scene.reset_maxbw(link),
            None => self.tc("qdisc del dev near root"),
        }
    }

    fn tc(&self, line: &str) -> Result<()> {
        peer::tc(&self.scene.sandbox, CLIENT, line)
    }
}

/// The link whose limit a shaper of ours is.
const fn link(shaper: Shaper) -> Option<&'static str> {
    match shaper {
        Shaper::Sender => Some("sends0"),
        Shaper::Receiver => Some("takes0"),
        Shaper::Netstack | Shaper::Fused => Some("web0"),
        Shaper::Htb | Shaper::Tbf => None,
    }
}

fn report(cells: &[Cell], foreign: &Samples) -> Verdict {
    let table =
        Table::begin("limit: how far the worst window is off the limit on the receiver's wire, in % of it");
    let mut least: Option<(f64, f64, f64)> = None;
    let mut inexact = 0.0;
    for of_rate in cells.chunk_by(|a, b| (a.traffic, a.rate.megabits) == (b.traffic, b.rate.megabits)) {
        let Cell { traffic, rate, .. } = of_rate[0];
        let allowed = 100.0 * rate.allowed();
        table.fact(
            &format!("{} at {}", traffic.word(), rate.name),
            &format!("windows of {} ms, allowed {} %", rate.window().as_millis(), number(allowed)),
        );
        for cell in of_rate {
            table.row(&format!("  {}", cell.shaper.name()), &cell.worst, "% off");
            let [above, below, cpus] = [&cell.above, &cell.below, &cell.cpus].map(|it| number(it.median()));
            table.note(&format!("  at most {above} % above, {below} % below; {cpus} CPUs busy"));
        }
        let of = |ours: bool| {
            of_rate.iter().filter(move |it| it.shaper.is_ours() == ours).map(|it| it.worst.median())
        };
        let (mine, peers) = (of(true).fold(0.0, f64::max), of(false).fold(f64::INFINITY, f64::min));
        inexact += of(true).filter(|&it| it > allowed).count() as f64;
        if least.is_none_or(|(ratio, ..)| peers / mine < ratio) {
            least = Some((peers / mine, mine, peers));
        }
    }
    table.disturbance(foreign);
    let (ratio, mine, peers) = least.unwrap_or_default();
    table.at_most("cells of ours that are off by more than allowed", inexact, 0.0, "");
    table.at_least(
        "the kernel's better one, of our worst, in the worst cell",
        ratio,
        1.0,
        "times as far off",
    );
    Verdict {
        name: "limit",
        ratio,
        firelane: format!("{} % off", number(mine)),
        peer: format!("{} % off", number(peers)),
    }
}
