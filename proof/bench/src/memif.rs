//! `memif`: 64-byte frames between a queue of ours and DPDK's testpmd, beside two testpmds.
//!
//! Ours is the server on one CPU, testpmd the client on the other. *In*: testpmd only sends, and each frame is
//! copied out, counted and given back. *Out*: the same frames are sent again and again, and what the ring takes is
//! counted, of which a ring full may lie there at the end.
//! *There and back*: testpmd returns what it gets. The peer is a testpmd in our place, which only receives; it
//! is measured when ours is done, for a socket has one server.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Clock};

use firelane_driver_memif::{MemifConfig, MemifQueue, Role, Standing, open};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_interop::Testpmd;
use firelane_units::{DropCounters, Instant};

use crate::cpu;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::testpmd;

const SPAN: Duration = Duration::from_millis(300);
const CHAIN: usize = 64;
const FRAME_BYTES: usize = 64;
const WANTED_MPPS: f64 = 8.0;
/// How long testpmd may take to start.
const START: Duration = Duration::from_secs(20);

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let folder = Folder::new()?;
    let socket = folder.0.join("memif.sock");
    cpu::bind(1)?;
    let measure = |mode: &str, span: fn(&mut Port) -> f64| -> Result<Samples> {
        let mut port = Port::open(&socket)?;
        let _testpmd = testpmd(&folder.0, "client", mode, 0)?;
        port.await_peer(&folder.0)?;
        span(&mut port);
        Ok((0..ROUNDS_MIN).map(|_| span(&mut port)).collect())
    };
    let inward = measure("txonly", Port::receive)?;
    let out = measure("rxonly", Port::send)?;
    let both = measure("io", Port::send_and_receive)?;
    let peer = two_testpmds(&folder.0)?;
    let table =
        Table::begin("memif: 64-byte frames to and from testpmd, one CPU each, one ring pair of 1,024");
    table.row("testpmd sends, firelane receives", &inward, "Mpps");
    table.row("firelane sends, testpmd receives", &out, "Mpps");
    table.row("there and back, frames that returned", &both, "Mpps");
    table.row("testpmd sends, testpmd receives", &peer, "Mpps");
    let worse = inward.median().min(out.median());
    table.at_least("the slower direction", worse, WANTED_MPPS, "Mpps");
    Ok(Verdict {
        name: "memif",
        ratio: inward.median() / peer.median().max(0.001),
        firelane: format!("{:.1} Mpps received", inward.median()),
        peer: format!("{:.1} Mpps, testpmd", peer.median()),
    })
}

/// What a testpmd counts that receives from another one.
fn two_testpmds(folder: &Path) -> Result<Samples> {
    let _server = testpmd(folder, "server", "rxonly", 1)?;
    let _client = testpmd(folder, "client", "txonly", 0)?;
    let log = folder.join("server.log");
    let begin = Clock::now();
    let samples = |text: &str| -> Vec<f64> {
        let rates = text.lines().filter_map(|line| line.trim().strip_prefix("Rx-pps:"));
        let numbers = rates.filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        numbers.filter(|&rate| rate > 0.0).map(|rate| rate / 1e6).collect()
    };
    loop {
        let found = samples(&fs::read_to_string(&log).unwrap_or_default());
        // The first second is not whole.
        if found.len() > 3 {
            return Ok(found.into_iter().skip(1).collect());
        }
        if begin.elapsed() > START {
            return Err("two testpmds did not talk to each other".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("firelane-bench-memif-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A testpmd on that CPU, at the socket of `folder`.
fn testpmd(folder: &Path, role: &str, mode: &str, cpu: usize) -> Result<Testpmd> {
    let (socket, log) = (folder.join("memif.sock"), File::create(folder.join(format!("{role}.log")))?);
    let device = format!("net_memif0,role={role},id=0,socket={},socket-abstract=no", socket.display());
    let environment = [format!("--lcores=0@{cpu},1@{cpu}"), format!("--vdev={device}")];
    let length = format!("--txpkts={FRAME_BYTES}");
    let options = ["--no-flush-rx", "--total-num-mbufs=8192", "--stats-period=1", &length];
    testpmd::start(128, &environment, mode, &options, [log.try_clone()?.into(), log.into()])
}

/// Our end, as a lane has it.
struct Port {
    queue: MemifQueue,
    pools: Pools,
    drops: DropCounters,
    chain: Chain,
    frame: [u8; FRAME_BYTES],
}

impl Port {
    fn open(socket: &Path) -> Result<Self> {
        let (mut queues, _) = open(&MemifConfig::new(Role::Server, socket))?;
        let mut frame = [0; FRAME_BYTES];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
        Ok(Self {
            queue: queues.remove(0),
            pools: Pools::new(PoolsConfig { small_slots: 4096, large_slots: 0 }),
            drops: DropCounters::default(),
            chain: Chain::with_capacity(CHAIN),
            frame,
        })
    }

    fn await_peer(&mut self, folder: &Path) -> Result<()> {
        let begin = Clock::now();
        while !matches!(self.queue.status().standing(), Standing::Connected { .. }) {
            if begin.elapsed() > START {
                let log = fs::read_to_string(folder.join("client.log")).unwrap_or_default();
                return Err(format!("testpmd does not connect: {log}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.queue.notify(false);
        // Its forwarding begins a little later.
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    /// Calls `step` for a span; millions per second of what it answers.
    fn rate(&mut self, mut step: impl FnMut(&mut Self) -> usize) -> f64 {
        let (begin, mut frames) = (Clock::now(), 0);
        while begin.elapsed() < SPAN {
            self.queue.advance(Instant::ZERO + begin.elapsed());
            for _ in 0..16 {
                frames += step(self);
            }
        }
        frames as f64 / begin.elapsed().as_secs_f64() / 1e6
    }

    fn fetch(&mut self) -> usize {
        let frames = self.queue.receive(&mut self.pools, CHAIN, &mut self.chain, &mut self.drops);
        self.pools.put_all(&mut self.chain);
        frames
    }

    /// Fills the chain up and sends what finds room.
    fn offer(&mut self, chain: &mut Chain) -> usize {
        while chain.len() < CHAIN {
            let Some(frame) = self.pools.copy_of(&self.frame) else { break };
            chain.push(frame);
        }
        let (before, dropped) = (chain.len(), self.drops.total());
        self.queue.transmit(chain, &mut self.drops);
        before - chain.len() - (self.drops.total() - dropped) as usize
    }

    fn receive(&mut self) -> f64 {
        self.rate(Self::fetch)
    }

    fn send(&mut self) -> f64 {
        let mut chain = Chain::with_capacity(CHAIN);
        self.rate(|port| port.offer(&mut chain))
    }

    fn send_and_receive(&mut self) -> f64 {
        let mut chain = Chain::with_capacity(CHAIN);
        self.rate(|port| {
            port.offer(&mut chain);
            port.fetch()
        })
    }
}
