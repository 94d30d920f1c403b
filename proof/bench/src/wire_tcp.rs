//! `wire-tcp`: two Firelane stacks over a wire of memory, one lane each on its own CPU and thread, beside two
//! processes over the kernel's loopback.
//!
//! Each lane's thread runs the program, too: a turn of the lane, then the sockets (`Worker::run_once`). Both
//! sides spin, as a busy lane does. Bulk is counted by the receiver; request/response by who asks.

use std::io::{ErrorKind, Result as IoResult};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use firelane::{
    Event, Poller, Ran, Ready, Stack, StreamConfig, TcpListener, TcpStream, WireConfig, Worker, wire,
};
use firelane_driver_memory::End;
use firelane_interop::Sandbox;

use crate::bulk::{self, Rates, Way};
use crate::cpu::{self, Meter};
use crate::kernel::{CLIENT_CPU, SERVER_CPU};
use crate::peer::{Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::rr;

const ROUNDS: usize = ROUNDS_MIN;
const SPAN: Duration = Duration::from_millis(1000);
/// What a new connection may take to become fast.
const WARM_UP_SPAN: Duration = Duration::from_millis(100);
/// How long anything may take that should be immediate.
const PATIENCE: Duration = Duration::from_secs(5);
const WANTED_GBPS: f64 = 20.0;
const WANTED_MILLIONS: f64 = 2.0;
const BULK_ADDRESS: &str = "127.0.0.1:5001";
const RR_ADDRESS: &str = "127.0.0.1:5002";

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut kernel = Kernel::new()?;
    let mut pair = Pair::new()?;
    let (mut bulk, mut peer_bulk) = (Rates::default(), Rates::default());
    let (mut asked, mut peer_asked) = (rr::Rates::default(), rr::Rates::default());
    let (mut bulk_in_turn, mut asked_in_turn) = (Samples::default(), Samples::default());
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        let used = pair.bulk(SPAN, Cpus::Two)?;
        foreign.push(used.foreign);
        bulk.push(used.count, used.wall, used.busy);
        let used = kernel.bulk(SPAN)?;
        foreign.push(used.foreign);
        peer_bulk.push(used.count, used.wall, used.busy);
        let used = pair.request(SPAN, Cpus::Two)?;
        foreign.push(used.foreign);
        asked.push(used.count, used.wall, used.busy);
        let used = kernel.request(SPAN)?;
        foreign.push(used.foreign);
        peer_asked.push(used.count, used.wall, used.busy);
        let used = pair.bulk(SPAN / 4, Cpus::One)?;
        bulk_in_turn.push(used.count as f64 * 8e-9 / used.busy.as_secs_f64());
        let used = pair.request(SPAN / 4, Cpus::One)?;
        asked_in_turn.push(used.count as f64 * 1e-6 / used.busy.as_secs_f64());
    }
    let table = Table::begin(
        "wire-tcp: two stacks over a memory wire, one lane each, beside kernel loopback (cubic)",
    );
    table.row("bulk, firelane", &bulk.wall, "Gb/s");
    table.row("bulk, kernel", &peer_bulk.wall, "Gb/s");
    table.row("bulk, firelane, per CPU-second of both", &bulk.cpu, "Gb/CPU-s");
    table.row("bulk, kernel, per CPU-second of both", &peer_bulk.cpu, "Gb/CPU-s");
    table.row("64 x 64 bytes, firelane", &asked.wall, "M/s per lane");
    table.row("64 x 64 bytes, kernel", &peer_asked.wall, "M/s");
    table.row("64 x 64 bytes, firelane, per CPU-s of both", &asked.cpu, "M/CPU-s");
    table.row("64 x 64 bytes, kernel, per CPU-s of both", &peer_asked.cpu, "M/CPU-s");
    table.row("bulk, firelane, lanes in turn on one CPU", &bulk_in_turn, "Gb/CPU-s");
    table.row("64 x 64 bytes, lanes in turn on one CPU", &asked_in_turn, "M/CPU-s");
    table.disturbance(&foreign);
    let (gigabits, millions) = (bulk.wall.median(), asked.wall.median());
    table.at_least("bulk", gigabits, WANTED_GBPS, "Gb/s");
    table.at_least("requests with their answers, per lane", millions, WANTED_MILLIONS, "M/s");
    let (peer_gigabits, peer_millions) = (peer_bulk.wall.median(), peer_asked.wall.median());
    let ratios = [gigabits / peer_gigabits, millions / peer_millions];
    table.note(&format!(
        "bulk {:.2} times the kernel's, request/response {:.2} times; the smaller counts",
        ratios[0], ratios[1]
    ));
    Ok(Verdict {
        name: "wire-tcp",
        ratio: ratios[0].min(ratios[1]),
        firelane: format!("{gigabits:.1} Gb/s and {millions:.2} M requests/s"),
        peer: format!("{peer_gigabits:.1} Gb/s and {peer_millions:.2} M requests/s"),
    })
}

/// What a round moved, and what it used.
pub(crate) struct Used {
    pub(crate) count: u64,
    pub(crate) wall: Duration,
    pub(crate) busy: Duration,
    pub(crate) foreign: f64,
}

/// The peer: processes over the loopback of a sandbox.
struct Kernel {
    bulk: [Peer; 2],
    request: [Peer; 2],
    _sandbox: Sandbox,
}

impl Kernel {
    fn new() -> Result<Self> {
        let sandbox = Sandbox::new();
        let place = Place::Sandbox(&sandbox);
        let bulk =
            [Peer::start(place, "bulk-server", &[BULK_ADDRESS])?, Peer::start(place, "bulk-client", &[])?];
        let request =
            [Peer::start(place, "rr-server", &[RR_ADDRESS])?, Peer::start(place, "rr-client", &[])?];
        Ok(Self { bulk, request, _sandbox: sandbox })
    }

    fn bulk(&mut self, span: Duration) -> Result<Used> {
        let command = format!("{} {BULK_ADDRESS} {}", Way::Up.word(), span.as_millis());
        Self::round(&mut self.bulk, &command)
    }

    fn request(&mut self, span: Duration) -> Result<Used> {
        let command = format!("{RR_ADDRESS} {} {}", rr::CONNECTIONS, span.as_millis());
        Self::round(&mut self.request, &command)
    }

    fn round(peers: &mut [Peer; 2], command: &str) -> Result<Used> {
        let meter = Meter::start(&peers.each_ref().map(Peer::pid));
        let answer = peers[1].ask(command)?;
        let &[count, nanos] = answer.as_slice() else {
            return Err("a count and a time were expected".into());
        };
        let used = meter.stop();
        Ok(Used { count, wall: Duration::from_nanos(nanos), busy: used.parties, foreign: used.foreign() })
    }
}

/// A stack whose only lane is run by whoever holds this.
pub(crate) struct Side {
    pub(crate) stack: Stack,
    worker: Worker,
}

impl Side {
    pub(crate) fn new(end: End, mac: &str, addresses: &[String]) -> Result<Self> {
        let mut builder = Stack::builder().driven().interface(end).mac(mac)?;
        for address in addresses {
            builder = builder.address(address)?;
        }
        let stack = builder.build()?;
        let worker = stack.engine().workers().pop().ok_or("a stack has a lane")?;
        Ok(Self { stack, worker })
    }

    /// A turn of the lane, without sleep.
    pub(crate) fn turn(&mut self) {
        assert_ne!(self.worker.run_once(Some(Duration::ZERO)), Ran::Failed, "the lane is in service");
    }
}

/// `None` for what would block.
pub(crate) fn some<T>(result: IoResult<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Two stacks on one wire.
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    next_port: u16,
}

/// A program that sends back what arrives, as the kernel's peer does with epoll.
struct Bounce<'a> {
    streams: &'a [TcpStream],
    poller: Poller,
    events: Vec<Event>,
}

impl<'a> Bounce<'a> {
    fn new(streams: &'a [TcpStream]) -> Result<Self> {
        let poller = Poller::new();
        for (key, stream) in streams.iter().enumerate() {
            poller.watch(stream, key as u64, Ready::READABLE)?;
        }
        Ok(Self { streams, poller, events: Vec::new() })
    }

    /// How many messages went back.
    fn run(&mut self) -> Result<u64> {
        let (mut message, mut bounced) = ([0; rr::REQUEST_BYTES], 0);
        self.poller.wait(&mut self.events, Some(Duration::ZERO));
        for event in &self.events {
            let stream = &self.streams[event.key as usize];
            if some(stream.try_read(&mut message))? == Some(rr::REQUEST_BYTES) {
                stream.try_write(&message)?;
                bounced += 1;
            }
        }
        Ok(bounced)
    }
}

/// A program's part of a turn: what it got done, in the unit that is counted.
pub(crate) trait Program: FnMut() -> Result<u64> + Send {}

impl<F: FnMut() -> Result<u64> + Send> Program for F {}

impl Pair {
    fn new() -> Result<Self> {
        Self::with_addresses(&["10.0.0.1/24".to_owned()], &["10.0.0.2/24".to_owned()])
    }

    /// Two stacks with addresses of the caller's choice.
    pub(crate) fn with_addresses(client: &[String], server: &[String]) -> Result<Self> {
        let (one, two) = wire(WireConfig::default());
        let client = Side::new(one, "02:08:20:00:00:01", client)?;
        let server = Side::new(two, "02:08:20:00:00:02", server)?;
        Ok(Self { client, server, next_port: 1024 })
    }

    /// Connections, the client's end and the server's.
    fn connect(&mut self, count: usize) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
        self.next_port += 1;
        let address = SocketAddr::from(([10, 0, 0, 2], self.next_port));
        let listener = TcpListener::bind(&self.server.stack, address)?;
        listener.set_nonblocking(true)?;
        let asked =
            (0..count).map(|_| TcpStream::begin(&self.client.stack, address, StreamConfig::default()));
        let clients = asked.collect::<IoResult<Vec<_>>>()?;
        let mut servers = Vec::with_capacity(count);
        let start = Instant::now();
        while servers.len() < count {
            self.client.turn();
            self.server.turn();
            servers.extend(some(listener.accept())?.map(|(stream, _)| stream));
            if start.elapsed() > PATIENCE {
                return Err("the connections do not come about".into());
            }
        }
        clients.iter().chain(&servers).try_for_each(|stream| stream.set_nodelay(true))?;
        Ok((clients, servers))
    }

    /// One connection, client to server.
    fn bulk(&mut self, span: Duration, cpus: Cpus) -> Result<Used> {
        let (clients, servers) = self.connect(1)?;
        let (content, mut buffer) = (vec![0; bulk::WRITE_BYTES], vec![0; bulk::WRITE_BYTES]);
        let send = || some(clients[0].try_write(&content)).map(|_| 0);
        let receive = || Ok(some(servers[0].try_read(&mut buffer))?.unwrap_or_default() as u64);
        let used = self.play(span, cpus, send, receive)?;
        clients[0].abort();
        Ok(used)
    }

    /// Many connections, one request at a time on each.
    fn request(&mut self, span: Duration, cpus: Cpus) -> Result<Used> {
        let (clients, servers) = self.connect(rr::CONNECTIONS)?;
        for stream in &clients {
            stream.try_write(&[7; rr::REQUEST_BYTES])?;
        }
        let (mut asking, mut answering) = (Bounce::new(&clients)?, Bounce::new(&servers)?);
        let used = self.play(span, cpus, || asking.run(), || answering.run().map(|_| 0))?;
        clients.iter().for_each(TcpStream::abort);
        Ok(used)
    }

    /// Runs a program on each side.
    pub(crate) fn play(
        &mut self,
        span: Duration,
        cpus: Cpus,
        client: impl Program,
        server: impl Program,
    ) -> Result<Used> {
        let meter = Meter::start(&[std::process::id()]);
        let phase = AtomicU8::new(WARM_UP);
        let (one, two) = (&mut self.client, &mut self.server);
        let (counts, wall) = std::thread::scope(|scope| {
            let phase = &phase;
            let threads = match cpus {
                Cpus::Two => vec![
                    scope.spawn(move || run_on(CLIENT_CPU, phase, &mut [(one, &mut { client })])),
                    scope.spawn(move || run_on(SERVER_CPU, phase, &mut [(two, &mut { server })])),
                ],
                Cpus::One => {
                    let both = move || {
                        run_on(SERVER_CPU, phase, &mut [(one, &mut { client }), (two, &mut { server })])
                    };
                    vec![scope.spawn(both)]
                }
            };
            std::thread::sleep(WARM_UP_SPAN);
            let start = Instant::now();
            phase.store(MEASURED, Ordering::Release);
            std::thread::sleep(span);
            phase.store(OVER, Ordering::Release);
            let wall = start.elapsed();
            let counts: Vec<_> =
                threads.into_iter().map(|thread| thread.join().map_err(|_| "a program panicked")).collect();
            (counts, wall)
        });
        let (mut count, mut busy) = (0, Duration::ZERO);
        for result in counts {
            let (counted, used) = result??;
            count += counted;
            busy += used;
        }
        if count == 0 {
            return Err("nothing moved in a round".into());
        }
        Ok(Used { count, wall, busy, foreign: meter.stop().foreign() })
    }
}

/// How many CPUs the two lanes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cpus {
    /// They take turns on one: what a lane costs, whatever else the machine does.
    One,
    /// One each.
    Two,
}

/// The phases of a round.
const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// Runs lanes and their programs on one CPU until the round is over: what was counted in the phase that is
/// measured, and the CPU time of that.
fn run_on(
    cpu: usize,
    phase: &AtomicU8,
    sides: &mut [(&mut Side, &mut dyn FnMut() -> Result<u64>)],
) -> Result<(u64, Duration)> {
    cpu::bind(cpu)?;
    let (mut count, mut start, mut seen) = (0, cpu::thread_time(), WARM_UP);
    loop {
        for (side, program) in &mut *sides {
            side.turn();
            count += program()?;
        }
        match phase.load(Ordering::Acquire) {
            OVER => return Ok((count, cpu::thread_time() - start)),
            now if now != seen => (count, start, seen) = (0, cpu::thread_time(), now),
            _ => {}
        }
    }
}
