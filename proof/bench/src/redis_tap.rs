//! `redis-tap`: redis GET on 50 connections, `redis-benchmark` in a namespace of the kernel's.
//!
//! The server is an unmodified `redis-server`: on Firelane, reached over a TAP, and on the kernel, reached over a veth
//! pair. The figure is requests per CPU-second of all parties: client, server, and the daemon.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cpu::{self, Meter};
use crate::peer::{Place, Result};
use crate::report::{Samples, Table, Verdict};
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, SERVER, Scene, Server, TENANT};

const ROUNDS: usize = 5;
const REQUESTS: u32 = 40_000;
const CONNECTIONS: &str = "50";
const WANTED_RATIO: f64 = 1.2;
const PATIENCE: Duration = Duration::from_secs(10);

/// A server and who asks it.
struct Side<'a> {
    name: &'static str,
    host: &'static str,
    client: Place<'a>,
    server: Server,
    daemon: Option<u32>,
    wall: Samples,
    cpu: Samples,
}

impl<'a> Side<'a> {
    fn start(
        name: &'static str,
        host: &'static str,
        [client, server]: [Place<'a>; 2],
        daemon: Option<u32>,
    ) -> Result<Self> {
        let mut command = server.command(OsStr::new("redis-server"))?;
        command.args(["--bind", host, "--save", "", "--appendonly", "no", "--protected-mode", "no"]);
        let server = Server::start(&mut command)?;
        let side =
            Self { name, host, client, server, daemon, wall: Samples::default(), cpu: Samples::default() };
        let deadline = Instant::now() + PATIENCE;
        // The benchmark itself never ends if nobody listens.
        while side.run("redis-cli", &["ping"]).is_err() {
            if Instant::now() > deadline {
                return Err(format!("{name}: redis-server does not answer").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(side)
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        let mut command = self.client.command(OsStr::new("timeout"))?;
        command.args(["20", program, "-h", self.host]).args(words);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
    }

    fn round(&mut self, foreign: &mut Samples) -> Result<()> {
        let parties: Vec<u32> = [self.server.pid()].into_iter().chain(self.daemon).collect();
        let children = cpu::children_time();
        let meter = Meter::start(&parties);
        let requests = REQUESTS.to_string();
        self.run("redis-benchmark", &["-t", "get", "-q", "-c", CONNECTIONS, "-n", &requests])?;
        let mut used = meter.stop();
        used.parties += cpu::children_time().saturating_sub(children);
        foreign.push(used.foreign());
        self.wall.push(f64::from(REQUESTS) * 1e-3 / used.wall.as_secs_f64());
        self.cpu.push(f64::from(REQUESTS) * 1e-3 / used.parties.as_secs_f64());
        Ok(())
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let daemon = Some(scene.daemon());
    let places = [scene.netns(TENANT), Place::Preloaded(&scene)];
    let mut ours = Side::start("firelane, TAP", FIRELANE_HOST, places, daemon)?;
    let places = [scene.netns(CLIENT), scene.netns(SERVER)];
    let mut theirs = Side::start("kernel, veth", KERNEL_HOST, places, None)?;
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        ours.round(&mut foreign)?;
        theirs.round(&mut foreign)?;
    }
    let table = Table::begin("redis-tap: GET, 50 connections, a client of the kernel's");
    for side in [&ours, &theirs] {
        table.row(side.name, &side.wall, "k requests/s");
        table.row(&format!("{}, all parties", side.name), &side.cpu, "k/CPU-s");
    }
    table.disturbance(&foreign);
    let [mine, peers] = [&ours, &theirs].map(|side| side.cpu.median());
    table.at_least("ratio", mine / peers, WANTED_RATIO, "");
    Ok(Verdict {
        name: "redis-tap",
        ratio: mine / peers,
        firelane: format!("{mine:.0} k/CPU-s"),
        peer: format!("{peers:.0} k/CPU-s"),
    })
}
