//! `polling`: what is spared by a lane that looks at its devices by itself under load, instead of being woken for each chain.
//!
//! Five kernel clients, each with a TAP on one etherstub, and a server on a netstack there: three read and two write, ten
//! connections each, 8 KB at a time, at a beat. The same load with `polling=off` of the TAPs, which is one epoll_wait(2) for each
//! chain, and with `polling=auto`: how often the lane slept, how often threads of the server's process were switched, and its
//! CPU time, all per megabyte, so that a busy machine, which carries less, shows the same. And datagrams of 66 bytes there and
//! back: alone, beside that load, and fifty at once.

mod load;

use std::fs;
use std::time::Duration;

use firelane::{Engine, EngineConfig, Polling, TapConfig, VnicConfig, VnicUser, open_tap};
use firelane_interop::Sandbox;
use firelane_tcp::TcpConfig;
use firelane_units::{LinkId, MacAddr, Mtu};

use crate::bulk::Way;
use crate::cpu::{self, Meter};
use crate::kernel::SERVER_CPU;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};

pub(crate) use load::play_client;

const CLIENTS: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];
const READERS: usize = 3;
const STREAMS: &str = "10.2.0.100:5001";
const DATAGRAMS: &str = "10.2.0.100:5002";
const SPAN: Duration = Duration::from_millis(1000);
const ROUNDS: usize = ROUNDS_MIN + 2;

/// What of wake-ups and of context switches is to be spared (the figures of the original's slides).
const WAKES_SPARED: f64 = 0.75;
const SWITCHES_SPARED: f64 = 0.85;

/// In the process of the server. `auto` or `off` says how the TAPs are read; `sleeps` is answered with how often the lane's
/// worker has slept.
pub(crate) fn play_server() -> Result<()> {
    cpu::bind(SERVER_CPU)?;
    let engine = Engine::start(&EngineConfig::default())?;
    let stub = engine.add_link(Mtu::ETHERNET)?;
    let made = CLIENTS.iter().zip(1..).map(|(client, nth)| add_client(&engine, stub, client, nth));
    let taps: Vec<LinkId> = made.collect::<Result<_>>()?;
    let netstack = engine.add_netstack(TcpConfig::default())?;
    let own = engine.add_vnic(stub, &VnicConfig::new(mac(100)), VnicUser::Netstack(netstack))?;
    engine.add_address(own, "10.2.0.100/24".parse()?)?;
    let stack = engine.stack(netstack).ok_or("the netstack was made just above")?;
    load::serve_streams(&stack, STREAMS)?;
    load::serve_datagrams(&stack, DATAGRAMS)?;
    peer::serve(|words| match words {
        ["sleeps"] => Ok(vec![engine.snapshot().lanes.iter().map(|lane| lane.sleeps).sum()]),
        [how] => {
            let polling = if *how == "off" { Polling::Off } else { Polling::Auto };
            taps.iter().try_for_each(|&tap| engine.set_link_polling(tap, polling))?;
            Ok(Vec::new())
        }
        _ => Err("auto, off, or sleeps".into()),
    })
}

fn mac(nth: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, nth])
}

fn add_client(engine: &Engine, stub: LinkId, client: &str, nth: u8) -> Result<LinkId> {
    let config = TapConfig {
        queues: 1,
        mtu: Mtu::ETHERNET,
        mac: mac(nth),
        addresses: vec![format!("10.2.0.{nth}/24").parse()?],
        namespace: Some(format!("/run/netns/{client}").into()),
    };
    let queues = open_tap("tap0", &config)?.into_iter().map(Into::into).collect();
    Ok(engine.add_vnic(stub, &VnicConfig::new(mac(nth)), VnicUser::Device(queues))?)
}

/// How often the threads of a process were switched, because they waited and because others were to run.
fn switches(pid: u32) -> Result<[u64; 2]> {
    let mut sum = [0; 2];
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended since is no server's.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        for (sum, key) in sum.iter_mut().zip(["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"]) {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            *sum += line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or_default();
        }
    }
    Ok(sum)
}

/// Median and ninety-ninth percentile of round trips, in microseconds, and how many of a thousand questions were not answered.
#[derive(Debug, Default)]
struct Trips([Samples; 2], Samples);

impl Trips {
    /// The mean of what several clients have answered.
    fn push(&mut self, answers: &[Vec<u64>]) {
        for (nth, samples) in self.0.iter_mut().enumerate() {
            let micros = answers.iter().map(|it| match it[nth + 1] {
                load::NEVER => f64::INFINITY,
                nanos => nanos as f64 * 1e-3,
            });
            samples.push(micros.sum::<f64>() / answers.len() as f64);
        }
        let [asked, lost] = [0, 3].map(|nth| answers.iter().map(|it| it[nth]).sum::<u64>());
        self.1.push(1e3 * lost as f64 / asked as f64);
    }
}

/// What one way of reading devices has measured.
#[derive(Debug, Default)]
struct Cell {
    carried: Samples,
    busy: Samples,
    /// Per megabyte.
    wakes: Samples,
    waited: Samples,
    preempted: Samples,
    switches: Samples,
    /// Microseconds of CPU per megabyte.
    cost: Samples,
    alone: Trips,
    loaded: Trips,
    crowd: Trips,
}

/// Who takes part.
struct Cast {
    server: Peer,
    clients: Vec<Peer>,
    /// One more of the first client's, who asks while the others carry.
    asker: Peer,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let sandbox = Sandbox::new();
    for client in CLIENTS {
        peer::ip(&sandbox, &[&format!("netns add {client}")])?;
    }
    let server = Peer::start(Place::Sandbox(&sandbox), "polling-server", &[])?;
    let start = |client| Peer::start(Place::Netns(&sandbox, client), "polling-client", &[]);
    let clients = CLIENTS.into_iter().map(start).collect::<Result<_>>()?;
    let mut cast = Cast { server, clients, asker: start(CLIENTS[0])? };
    let mut cells = [("off", Cell::default()), ("auto", Cell::default())];
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for (how, cell) in &mut cells {
            cast.server.ask(how)?;
            foreign.push(cast.carry(cell)?);
            cast.ask(cell)?;
        }
    }
    Ok(report(&cells, &foreign))
}

impl Cast {
    /// Streams of all clients and nothing else; the CPUs that others used.
    fn carry(&mut self, cell: &mut Cell) -> Result<f64> {
        let pid = self.server.pid();
        let mut parties = vec![pid];
        parties.extend(self.clients.iter().map(Peer::pid));
        let (slept, switched) = (self.server.ask("sleeps")?[0], switches(pid)?);
        let before = cpu::process_time(pid);
        let meter = Meter::start(&parties);
        let carried = carry(&mut self.clients, SPAN);
        let used = meter.stop();
        let busy = cpu::process_time(pid).saturating_sub(before).as_secs_f64();
        let now = switches(pid)?;
        let bytes = carried?.iter().flatten().sum::<u64>() as f64;
        let per_megabyte = |count: f64| count / (bytes * 1e-6);
        let [waited, preempted] = [0, 1].map(|nth| per_megabyte((now[nth] - switched[nth]) as f64));
        cell.wakes.push(per_megabyte((self.server.ask("sleeps")?[0] - slept) as f64));
        cell.waited.push(waited);
        cell.preempted.push(preempted);
        cell.switches.push(waited + preempted);
        cell.cost.push(per_megabyte(busy * 1e6));
        cell.busy.push(busy / used.wall.as_secs_f64());
        cell.carried.push(bytes * 8e-9 / used.wall.as_secs_f64());
        Ok(used.foreign())
    }

    /// Datagrams beside the streams: of one client alone, and of all with ten sockets each.
    fn ask(&mut self, cell: &mut Cell) -> Result<()> {
        let millis = SPAN.as_millis() / 2;
        let Self { asker, clients, .. } = self;
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                std::thread::sleep(SPAN / 4);
                asker.ask(&format!("ask {DATAGRAMS} 1 {millis}"))
            });
            carry(clients, SPAN)?;
            asked.join().map_err(|_| "the asker's thread panicked")?
        })?;
        cell.loaded.push(&[asked]);
        cell.alone.push(&[self.clients[0].ask(&format!("ask {DATAGRAMS} 1 {millis}"))?]);
        let command = format!("ask {DATAGRAMS} {} {millis}", load::CONNECTIONS);
        cell.crowd.push(&all(&mut self.clients, |_| command.clone())?);
        Ok(())
    }
}

/// Bytes that the streams of all clients carry within `span`.
fn carry(clients: &mut [Peer], span: Duration) -> Result<Vec<Vec<u64>>> {
    all(clients, |nth| {
        let way = if nth < READERS { Way::Down } else { Way::Up };
        format!("{} {STREAMS} {}", way.word(), span.as_millis())
    })
}

/// Gives each client its command; their answers.
fn all(clients: &mut [Peer], command: impl Fn(usize) -> String) -> Result<Vec<Vec<u64>>> {
    std::thread::scope(|scope| {
        let ask = |(nth, client): (usize, _)| {
            let (client, command): (&mut Peer, _) = (client, command(nth));
            scope.spawn(move || client.ask(&command))
        };
        let asked: Vec<_> = clients.iter_mut().enumerate().map(ask).collect();
        asked
            .into_iter()
            .map(|it| it.join().map_err(|_| "a client's thread panicked".into()).flatten())
            .collect()
    })
}

fn report(cells: &[(&str, Cell); 2], foreign: &Samples) -> Verdict {
    let table = Table::begin(
        "polling: five clients over TAP, a lane that is woken for each chain beside one that looks",
    );
    for (how, cell) in cells {
        let row =
            |what: &str, samples: &Samples, unit: &str| table.row(&format!("{how}: {what}"), samples, unit);
        row("carried", &cell.carried, "Gb/s");
        row("server's CPUs busy", &cell.busy, "CPUs");
        row("server's CPU time", &cell.cost, "us/MB");
        row("wake-ups", &cell.wakes, "/MB");
        row("context switches, it waited", &cell.waited, "/MB");
        row("context switches, preempted", &cell.preempted, "/MB");
        let trips = [("alone", &cell.alone), ("beside the load", &cell.loaded), ("of fifty", &cell.crowd)];
        for (which, Trips([median, late], lost)) in trips {
            row(&format!("datagram {which}, median"), median, "us");
            row(&format!("datagram {which}, p99"), late, "us");
            row(&format!("datagram {which}, not answered"), lost, "of 1,000");
        }
    }
    table.disturbance(foreign);
    let [(_, off), (_, auto)] = cells;
    let over = |of: fn(&Cell) -> &Samples| of(auto).median() / of(off).median();
    table.at_least("wake-ups spared", 1.0 - over(|it| &it.wakes), WAKES_SPARED, "");
    table.at_least("context switches spared", 1.0 - over(|it| &it.switches), SWITCHES_SPARED, "");
    table.at_most("server's CPU time, auto over off", over(|it| &it.cost), 1.0, "");
    table.at_most("datagram alone, auto over off", over(|it| &it.alone.0[0]), 1.0, "");
    table.at_most("beside the load, auto over off", over(|it| &it.loaded.0[0]), 1.0, "");
    table.at_most("beside the load, p99, auto over off", over(|it| &it.loaded.0[1]), 1.0, "");
    table.at_most("of fifty, auto over off", over(|it| &it.crowd.0[0]), 1.0, "");
    table.at_most("of fifty, p99, auto over off", over(|it| &it.crowd.0[1]), 1.0, "");
    let (without, with) = (off.wakes.median(), auto.wakes.median());
    Verdict {
        name: "polling",
        ratio: without / with,
        firelane: format!("{with:.1} wake-ups/MB"),
        peer: format!("{without:.1} wake-ups/MB without"),
    }
}
