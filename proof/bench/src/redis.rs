//! A `redis-server` and who asks it, for `redis-tap` and `fused-redis`: both unmodified.

use std::ffi::OsStr;
use std::process::Stdio;

use crate::cpu::{self, Meter};
use crate::peer::{self, Place, Result};
use crate::report::Samples;
use crate::scene::Server;

/// Connections that ask at the same time.
const CONNECTIONS: &str = "50";

/// A server and who asks it.
pub(crate) struct Redis<'a> {
    pub(crate) name: &'static str,
    host: &'static str,
    client: Place<'a>,
    server: Server,
    daemon: Option<u32>,
    /// Thousand requests per second.
    pub(crate) wall: Samples,
    /// Thousand per CPU-second of all parties: client, server, and the daemon.
    pub(crate) cpu: Samples,
    /// Thousand per CPU-second of the server.
    pub(crate) served: Samples,
}

impl<'a> Redis<'a> {
    /// Starts the server, and waits until it answers.
    pub(crate) fn start(
        name: &'static str,
        host: &'static str,
        [client, server]: [Place<'a>; 2],
        daemon: Option<u32>,
    ) -> Result<Self> {
        let mut command = server.command(OsStr::new("redis-server"))?;
        command.args(["--bind", host, "--save", "", "--appendonly", "no", "--protected-mode", "no"]);
        let server = Server::start(&mut command)?;
        let side = Self {
            name,
            host,
            client,
            server,
            daemon,
            wall: Samples::default(),
            cpu: Samples::default(),
            served: Samples::default(),
        };
        // The benchmark itself never ends if nobody listens.
        peer::retry(|| side.run("redis-cli", &["ping"]))?;
        Ok(side)
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        let mut command = self.client.command(OsStr::new("timeout"))?;
        command.args(["20", program, "-h", self.host]).args(words);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
    }

    /// So many GETs, each connection with `pipeline` of them under way. What others used of the machine meanwhile.
    pub(crate) fn round(&mut self, requests: u32, pipeline: u32) -> Result<f64> {
        let (before, children) = (cpu::process_time(self.server.pid()), cpu::children_time());
        let meter = Meter::start(&[self.server.pid()].into_iter().chain(self.daemon).collect::<Vec<_>>());
        let (count, pipeline) = (requests.to_string(), pipeline.to_string());
        let words = ["-t", "get", "-q", "-c", CONNECTIONS, "-n", &count, "-P", &pipeline];
        self.run("redis-benchmark", &words)?;
        let mut used = meter.stop();
        let served = cpu::process_time(self.server.pid()).saturating_sub(before);
        used.parties += cpu::children_time().saturating_sub(children);
        let thousands = f64::from(requests) * 1e-3;
        self.wall.push(thousands / used.wall.as_secs_f64());
        self.cpu.push(thousands / used.parties.as_secs_f64());
        self.served.push(thousands / served.as_secs_f64());
        Ok(used.foreign())
    }

    /// Forgets what was measured.
    pub(crate) fn begin(&mut self) {
        (self.wall, self.cpu, self.served) = Default::default();
    }
}
