//! A `redis-server` and who asks it, for `redis-tap` and `fused-redis`: both unmodified.

use std::ffi::OsStr;
use std::process::Stdio;

use crate::cpu::{self, PLACEMENTS};
use crate::duel::Rates;
use crate::peer::{self, Place, Result};
use crate::report::Samples;
use crate::scene::Server;

/// Of the first placement's server.
const PORT: usize = 6379;
/// Connections that ask at the same time.
const CONNECTIONS: &str = "50";

/// A server and who asks it.
pub(crate) struct Redis<'a> {
    pub(crate) name: &'static str,
    host: &'static str,
    client: Place<'a>,
    client_cpu: &'static str,
    port: String,
    server: Server,
    pub(crate) daemon: Option<u32>,
    /// In thousands.
    pub(crate) rates: Rates,
    /// Thousand per CPU-second of the server.
    pub(crate) served: Samples,
}

impl<'a> Redis<'a> {
    /// Starts the server at a placement, with a port of its own, and waits until it answers.
    pub(crate) fn start(
        name: &'static str,
        host: &'static str,
        [client, server]: [Place<'a>; 2],
        daemon: Option<u32>,
        placement: usize,
    ) -> Result<Self> {
        let [client_cpu, server_cpu] = PLACEMENTS[placement].1;
        let port = (PORT + placement).to_string();
        let mut command = server.command_on(server_cpu, OsStr::new("redis-server"))?;
        command.args(["--bind", host, "--port", &port]);
        command.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
        let server = Server::start(&mut command)?;
        let (rates, served) = Default::default();
        let side = Self { name, host, client, client_cpu, port, server, daemon, rates, served };
        // The benchmark itself never ends if nobody listens.
        peer::retry(|| side.run("redis-cli", &["ping"]))?;
        // What is asked for is there: three bytes.
        side.run("redis-benchmark", &["-t", "set", "-q", "-n", "1"])?;
        Ok(side)
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        let mut command = self.client.command_on(self.client_cpu, OsStr::new("timeout"))?;
        command.args(["20", program, "-h", self.host, "-p", &self.port]).args(words);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
    }

    /// Measures such GETs. What others used of the machine meanwhile.
    pub(crate) fn round(&mut self, requests: u32, pipeline: u32) -> Result<f64> {
        let before = cpu::process_time(self.server.pid());
        let thousands = f64::from(requests) * 1e-3;
        let mut rates = std::mem::take(&mut self.rates);
        let foreign = rates.measure(&self.parties(), || {
            self.get(requests, pipeline)?;
            Ok(thousands)
        });
        self.rates = rates;
        let served = cpu::process_time(self.server.pid()).saturating_sub(before);
        self.served.push(thousands / served.as_secs_f64());
        foreign
    }

    /// The server's process.
    pub(crate) fn server(&self) -> u32 {
        self.server.pid()
    }

    fn parties(&self) -> Vec<u32> {
        [self.server.pid()].into_iter().chain(self.daemon).collect()
    }

    /// So many GETs, each connection with `pipeline` of them under way.
    pub(crate) fn get(&self, requests: u32, pipeline: u32) -> Result<()> {
        let (count, pipeline) = (requests.to_string(), pipeline.to_string());
        self.run("redis-benchmark", &["-t", "get", "-q", "-c", CONNECTIONS, "-n", &count, "-P", &pipeline])
    }

    /// Forgets what was measured.
    pub(crate) fn begin(&mut self) {
        (self.rates, self.served) = Default::default();
    }
}
