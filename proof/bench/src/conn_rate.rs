//! `conn-rate`: connect, one byte each way, close, as often as it goes, beside the kernel over loopback.
//!
//! Two stacks over a memory wire, 64 addresses on each side, the program of each on its lane's thread (as in
//! `wire_tcp.rs`); 256 connections are under way at once. The client closes first, so each connection ends in a
//! record of TIME-WAIT that lives its whole minute. The kernel's client and server are two processes with epoll;
//! the server has 64 addresses, too, and the client's is the kernel's to choose, which is its shortest way.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use firelane::{Event, ListenConfig, Poller, Ready, Stack, StreamConfig, TcpListener, TcpStream};
use firelane_interop::Sandbox;
use rustix::event::epoll;

use crate::kernel::{CLIENT_CPU, SERVER_CPU};
use crate::peer::{Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::wire_tcp::{Cpus, Pair, Used, some};
use crate::{alloc, cpu, kernel, peer};

const ROUNDS: usize = ROUNDS_MIN;
const SPAN: Duration = Duration::from_millis(1000);
/// Addresses on each side.
const ADDRESSES: u8 = 64;
/// Connections under way at once.
const AT_ONCE: usize = 256;
const PORT: u16 = 80;
const KERNEL_ADDRESS: &str = "0.0.0.0:5003";
const KERNEL_PORT: u16 = 5003;
/// What a connection may hold: much more than its byte.
const RINGS: StreamConfig = StreamConfig { send_capacity: 512, recv_capacity: 512 };

const WANTED: f64 = 400_000.0;
const WANTED_RATIO: f64 = 4.0;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut kernel = Kernel::new()?;
    let addresses = |net: u8| (1..=ADDRESSES).map(|n| format!("10.0.{net}.{n}/16")).collect::<Vec<_>>();
    let mut pair = Pair::with_addresses(&addresses(1), &addresses(2))?;
    let (mut wall, mut in_turn, mut peer_wall, mut peer_cpu) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let (mut foreign, mut allocations) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let used = round(&mut pair, Cpus::Two)?;
        foreign.push(used.foreign);
        wall.push(used.count as f64 / used.wall.as_secs_f64());
        let before = alloc::allocations();
        let used = round(&mut pair, Cpus::One)?;
        // The phase before the measured one allocates as much per connection.
        allocations.push((alloc::allocations() - before) as f64 / used.count as f64);
        in_turn.push(used.count as f64 / used.busy.as_secs_f64());
        let used = kernel.round()?;
        foreign.push(used.foreign);
        peer_wall.push(used.count as f64 / used.wall.as_secs_f64());
        peer_cpu.push(used.count as f64 / used.busy.as_secs_f64());
    }
    let waiting = pair.client.stack.engine().snapshot().time_wait;
    let table = Table::begin("conn-rate: connect, a byte each way, close, beside kernel loopback");
    table.row("a CPU for each lane, firelane", &wall, "/s");
    table.row("a CPU for each process, kernel", &peer_wall, "/s");
    table.row("both lanes in turn, firelane", &in_turn, "/CPU-s");
    table.row("both processes, kernel", &peer_cpu, "/CPU-s");
    table.row("one lane of two in turn", &in_turn.map(|it| 2.0 * it), "/CPU-s");
    table.row("allocations per connection, at most", &allocations, "both ends");
    table.fact("records in TIME-WAIT at the end", &waiting.to_string());
    table.disturbance(&foreign);
    let (lane, both, peer) = (2.0 * in_turn.median(), in_turn.median(), peer_cpu.median());
    table.at_least("connections per lane's CPU-second", lane, WANTED, "/CPU-s");
    table.at_least("per CPU-second beside the kernel", both / peer, WANTED_RATIO, "times");
    Ok(Verdict {
        name: "conn-rate",
        ratio: both / peer,
        firelane: format!("{:.0} k/CPU-s", both * 1e-3),
        peer: format!("{:.0} k/CPU-s", peer * 1e-3),
    })
}

/// One round on two stacks.
fn round(pair: &mut Pair, cpus: Cpus) -> Result<Used> {
    let mut server = Server::new(&pair.server.stack)?;
    let mut client = Client::new(&pair.client.stack);
    pair.play(SPAN, cpus, move || client.run(), move || server.run())
}

/// The program that answers: a byte for a byte, until the peer closes.
struct Server {
    listener: TcpListener,
    streams: Places,
}

impl Server {
    fn new(stack: &Stack) -> Result<Self> {
        let address = SocketAddr::from(([0, 0, 0, 0], PORT));
        let config = ListenConfig { backlog: 4096, rings: RINGS, ..ListenConfig::default() };
        let listener = TcpListener::bind_with(stack, address, config)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, streams: Places::default() })
    }

    fn run(&mut self) -> Result<u64> {
        while let Some((stream, _)) = some(self.listener.accept())? {
            self.streams.add(stream, Ready::READABLE)?;
        }
        self.streams.wait();
        while let Some(place) = self.streams.events.pop() {
            let mut byte = [0];
            let Some(stream) = self.streams.get(place.key) else { continue };
            match stream.try_read(&mut byte) {
                Ok(1) => {
                    stream.try_write(&byte)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => self.streams.remove(place.key),
            }
        }
        Ok(0)
    }
}

/// The program that asks.
struct Client {
    stack: Stack,
    streams: Places,
    /// Which places have asked.
    asked: Vec<bool>,
    next: usize,
}

impl Client {
    fn new(stack: &Stack) -> Self {
        Self { stack: stack.clone(), streams: Places::default(), asked: vec![false; AT_ONCE], next: 0 }
    }

    /// How many connections have had their byte and were closed.
    fn run(&mut self) -> Result<u64> {
        while self.streams.len() < AT_ONCE {
            self.next += 1;
            let host = |net: u8, n: usize| [10, 0, net, (n % usize::from(ADDRESSES)) as u8 + 1];
            let local = SocketAddr::from((host(1, self.next), 0));
            let remote = SocketAddr::from((host(2, self.next / usize::from(ADDRESSES)), PORT));
            let stream = TcpStream::begin_from(&self.stack, Some(local), remote, RINGS)?;
            self.streams.add(stream, Ready::READABLE | Ready::WRITABLE)?;
        }
        let mut done = 0;
        self.streams.wait();
        while let Some(place) = self.streams.events.pop() {
            let (Some(stream), Some(asked)) =
                (self.streams.get(place.key), self.asked.get_mut(place.key as usize))
            else {
                continue;
            };
            if !*asked {
                *asked = is_written(stream.try_write(&[7]))?;
            } else if some(stream.try_read(&mut [0]))? == Some(1) {
                *asked = false;
                self.streams.remove(place.key);
                done += 1;
            }
        }
        Ok(done)
    }
}

/// Connections behind one poller, in places that are used again.
#[derive(Default)]
struct Places {
    poller: Poller,
    events: Vec<Event>,
    places: Vec<Option<TcpStream>>,
    free: Vec<usize>,
}

impl Places {
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn add(&mut self, stream: TcpStream, interest: Ready) -> Result<()> {
        let place = self.free.pop().unwrap_or(self.places.len());
        self.poller.watch(&stream, place as u64, interest)?;
        if place == self.places.len() {
            self.places.push(Some(stream));
        } else {
            self.places[place] = Some(stream);
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Option<&TcpStream> {
        self.places.get(usize::try_from(key).ok()?)?.as_ref()
    }

    fn remove(&mut self, key: u64) {
        let Ok(place) = usize::try_from(key) else { return };
        if self.places.get_mut(place).and_then(Option::take).is_some() {
            self.free.push(place);
        }
    }

    fn wait(&mut self) {
        self.poller.wait(&mut self.events, Some(Duration::ZERO));
    }
}

/// Whether the byte is on its way; not while the handshake lasts.
fn is_written(result: io::Result<usize>) -> Result<bool> {
    match result {
        Ok(count) => Ok(count == 1),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The peer: processes over the loopback of a sandbox.
struct Kernel {
    server: Peer,
    client: Peer,
    _sandbox: Sandbox,
}

impl Kernel {
    fn new() -> Result<Self> {
        let sandbox = Sandbox::new();
        let place = Place::Sandbox(&sandbox);
        let server = Peer::start(place, "conn-server", &[])?;
        let client = Peer::start(place, "conn-client", &[])?;
        Ok(Self { server, client, _sandbox: sandbox })
    }

    fn round(&mut self) -> Result<Used> {
        let meter = cpu::Meter::start(&[self.server.pid(), self.client.pid()]);
        let answer = self.client.ask(&SPAN.as_millis().to_string())?;
        let &[count, nanos] = answer.as_slice() else {
            return Err("a count and a time were expected".into());
        };
        let used = meter.stop();
        Ok(Used { count, wall: Duration::from_nanos(nanos), busy: used.parties, foreign: used.foreign() })
    }
}

/// Serves until the input ends.
pub(crate) fn play_server(_: &[&str]) -> Result<()> {
    cpu::bind(SERVER_CPU)?;
    let listener = kernel::listen(KERNEL_ADDRESS.parse()?)?;
    std::thread::spawn(move || serve(&listener).expect("an epoll loop ends with its process"));
    peer::serve(|_| Ok(Vec::new()))
}

/// The listener's place among the streams.
const LISTENER: u64 = u64::MAX;

fn serve(listener: &KernelListener) -> io::Result<()> {
    let mut streams = Streams::new()?;
    listener.set_nonblocking(true)?;
    epoll::add(&streams.epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    loop {
        for place in streams.wait()? {
            if place == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    streams.add(stream, epoll::EventFlags::IN)?;
                }
                continue;
            }
            let mut byte = [0];
            let Some(stream) = streams.get(place) else { continue };
            match stream.read(&mut byte) {
                Ok(1) => drop(stream.write(&byte)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => streams.remove(place),
            }
        }
    }
}

/// `MILLIS` is answered with connections and nanoseconds.
pub(crate) fn play_client(_: &[&str]) -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    let mut next = 0u64;
    peer::serve(|words| {
        let &[millis] = words else { return Err("MILLIS".into()) };
        let span = Duration::from_millis(millis.parse()?);
        let mut streams = Streams::new()?;
        for _ in 0..AT_ONCE {
            begin(&mut streams, &mut next)?;
        }
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < span {
            for place in streams.wait()? {
                let Some(stream) = streams.get(place) else { continue };
                match stream.read(&mut [0]) {
                    Ok(_) => {
                        streams.remove(place);
                        done += 1;
                        begin(&mut streams, &mut next)?;
                    }
                    // Edge-triggered: the first event is that it may write.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => drop(stream.write(&[7])?),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(vec![done, start.elapsed().as_nanos() as u64])
    })
}

fn begin(streams: &mut Streams, next: &mut u64) -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    *next += 1;
    let address = SocketAddr::from(([127, 0, 0, (*next % u64::from(ADDRESSES)) as u8 + 1], KERNEL_PORT));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match connect(&fd, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    streams
        .add(KernelStream::from(fd), epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET)
}

/// Connections behind one epoll descriptor, in places that are used again.
struct Streams {
    epoll: OwnedFd,
    places: Vec<Option<KernelStream>>,
    free: Vec<usize>,
}

impl Streams {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, places: Vec::new(), free: Vec::new() })
    }

    fn add(&mut self, stream: KernelStream, interest: epoll::EventFlags) -> io::Result<()> {
        let place = self.free.pop().unwrap_or(self.places.len());
        epoll::add(&self.epoll, stream.as_fd(), epoll::EventData::new_u64(place as u64), interest)?;
        if place == self.places.len() {
            self.places.push(Some(stream));
        } else {
            self.places[place] = Some(stream);
        }
        Ok(())
    }

    fn get(&mut self, place: u64) -> Option<&mut KernelStream> {
        self.places.get_mut(usize::try_from(place).ok()?)?.as_mut()
    }

    fn remove(&mut self, place: u64) {
        let Ok(place) = usize::try_from(place) else { return };
        if self.places.get_mut(place).and_then(Option::take).is_some() {
            self.free.push(place);
        }
    }

    fn wait(&self) -> io::Result<impl Iterator<Item = u64> + use<>> {
        let mut events = Vec::with_capacity(256);
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        Ok(events.into_iter().map(|event: epoll::Event| event.data.u64()))
    }
}
