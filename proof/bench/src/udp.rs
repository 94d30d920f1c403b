//! `udp`: datagrams per second one way and round trips of one datagram, of 64, 1,400 and 8,192 bytes.
//!
//! Two stacks over a wire of memory, one lane and its program on each CPU, beside two processes over the kernel's
//! loopback; and a kernel client over TAP to a Firelane server, beside veth to a kernel server. Everybody sends and
//! receives 32 datagrams a call; counted is what was received. On the wire and on loopback who asks and who answers spin; over
//! TAP and veth they block, and the figure is per CPU-second of all parties.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use firelane::{Envelope, Incoming, Outgoing, UdpSocket};
use firelane_interop::Sandbox;

use crate::cpu::Meter;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::two_servers::{FIRELANE_ADDRESS, KERNEL_ADDRESS, TOPOLOGY, tap_stack};
use crate::udp_kernel::SLICE;
use crate::wire_tcp::{Cpus, Pair, some};

/// Datagrams of one call.
pub(crate) const BATCH: usize = 32;
/// Room for the largest.
pub(crate) const SIZE_MAX: usize = 8192;
const SIZES: [usize; 3] = [64, 1400, SIZE_MAX];
const SPAN: Duration = Duration::from_millis(200);
/// How much longer a receiver works than its sender.
const MARGIN: Duration = Duration::from_millis(60);
const LOOPBACK_ADDRESS: &str = "127.0.0.1:5001";

/// Who receives, by the calls of its stack.
pub(crate) trait Receiver {
    /// Sends one back.
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<u64>;
    /// Receives what is there, call by call.
    fn sink(&mut self) -> impl FnMut() -> io::Result<u64>;
    /// Whether calls return at once.
    fn spin(&mut self, on: bool) -> io::Result<()>;
}

/// `echo spin|block MILLIS` and `sink spin|block MILLIS` are answered with how many and nanoseconds.
pub(crate) fn serve(mut receiver: impl Receiver) -> Result<()> {
    let mut buffer = vec![0; SIZE_MAX];
    peer::serve(|words| match words {
        ["echo", how, millis] => {
            receiver.spin(*how == "spin")?;
            during(millis, || receiver.echo(&mut buffer))
        }
        ["sink", how, millis] => {
            receiver.spin(*how == "spin")?;
            during(millis, receiver.sink())
        }
        _ => Err("echo|sink spin|block MILLIS".into()),
    })
}

fn during(millis: &str, mut act: impl FnMut() -> io::Result<u64>) -> Result<Vec<u64>> {
    let (span, start, mut count) = (Duration::from_millis(millis.parse()?), Instant::now(), 0);
    while start.elapsed() < span {
        count += some(act())?.unwrap_or(0);
    }
    Ok(vec![count, start.elapsed().as_nanos() as u64])
}

impl Receiver for UdpSocket {
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let (len, peer) = self.recv_from(buffer)?;
        self.send_to(&buffer[..len], peer).map(|_| 1)
    }

    fn sink(&mut self) -> impl FnMut() -> io::Result<u64> {
        let mut room = vec![vec![0; SIZE_MAX]; BATCH];
        move || receive_many(self, &mut room)
    }

    fn spin(&mut self, on: bool) -> io::Result<()> {
        self.set_nonblocking(on)
    }
}

fn receive_many(socket: &UdpSocket, room: &mut [Vec<u8>]) -> io::Result<u64> {
    let mut messages: Vec<_> = room.iter_mut().map(|buffer| Incoming::new(buffer)).collect();
    socket.recv_many(&mut messages).map(|count| count as u64)
}

/// What one way of a size has measured: million per second one way, and microseconds of a round trip; or both per
/// CPU-second of all parties.
#[derive(Debug, Default)]
struct Cell {
    one_way: Samples,
    /// The share of what was sent one way that did not come.
    lost: Samples,
    trips: Samples,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let sandbox = Sandbox::new();
    peer::ip(&sandbox, TOPOLOGY)?;
    let mut pair = Pair::with_addresses(&["10.0.0.1/24".into()], &["10.0.0.2/24".into()])?;
    let mut loopback = Kernel {
        server: Peer::start(Place::Sandbox(&sandbox), "udp-server", &[LOOPBACK_ADDRESS])?,
        client: Peer::start(Place::Sandbox(&sandbox), "udp-client", &[])?,
        address: LOOPBACK_ADDRESS,
        how: "spin",
    };
    let client = || Peer::start(Place::Netns(&sandbox, "client"), "udp-client", &[]);
    let server = Peer::start(Place::Sandbox(&sandbox), "udp-tap-server", &[])?;
    let mut tap = Kernel { server, client: client()?, address: FIRELANE_ADDRESS, how: "block" };
    let server = Peer::start(Place::Netns(&sandbox, "server"), "udp-server", &[KERNEL_ADDRESS])?;
    let mut veth = Kernel { server, client: client()?, address: KERNEL_ADDRESS, how: "block" };
    let mut foreign = Samples::default();
    let mut cells: Vec<[Cell; 4]> = SIZES.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS_MIN {
        for (&size, [wire, memory, near, far]) in SIZES.iter().zip(&mut cells) {
            over_wire(&mut pair, size, wire, &mut foreign)?;
            loopback.round(size, memory, Per::Second, &mut foreign)?;
            tap.round(size, near, Per::CpuSecond, &mut foreign)?;
            veth.round(size, far, Per::CpuSecond, &mut foreign)?;
        }
    }
    Ok(report(&cells, &foreign))
}

/// What a rate is taken by.
#[derive(Clone, Copy)]
enum Per {
    Second,
    CpuSecond,
}

/// Two processes, of which the client is the kernel's.
struct Kernel {
    server: Peer,
    client: Peer,
    address: &'static str,
    how: &'static str,
}

impl Kernel {
    fn round(&mut self, size: usize, cell: &mut Cell, per: Per, foreign: &mut Samples) -> Result<()> {
        let (address, millis, how) = (self.address, SPAN.as_millis(), self.how);
        let longer = (SPAN + MARGIN).as_millis();
        let flood = format!("flood {address} {size} {millis}");
        let [received, sent] = self.both(&format!("sink {how} {longer}"), &flood, per, foreign)?;
        cell.one_way.push(received * 1e-6);
        if sent == 0.0 {
            return Err(format!("nothing was sent to {address}").into());
        }
        cell.lost.push(1.0 - received / sent);
        let ask = format!("ask {address} {size} {millis} {how}");
        let [_, trips] = self.both(&format!("echo {how} {longer}"), &ask, per, foreign)?;
        cell.trips.push(trips * 1e-6);
        Ok(())
    }

    /// Rates of server and client.
    fn both(&mut self, server: &str, client: &str, per: Per, foreign: &mut Samples) -> Result<[f64; 2]> {
        let meter = Meter::start(&[self.server.pid(), self.client.pid()]);
        let (receiver, sender) = (&mut self.server, &mut self.client);
        let answers = std::thread::scope(|scope| {
            let receiver = scope.spawn(move || receiver.ask(server));
            let sent = sender.ask(client);
            [receiver.join().map_err(|_| "a receiver's thread panicked".into()).flatten(), sent]
        });
        let used = meter.stop();
        foreign.push(used.foreign());
        let [received, sent] = answers;
        let span = match per {
            // What was sent in the span is what was received then and shortly after.
            Per::Second => SPAN,
            Per::CpuSecond => used.parties,
        };
        let rate = |answer: Vec<u64>| answer.first().map(|&count| count as f64 / span.as_secs_f64());
        let none = || "a count was expected";
        Ok([rate(received?).ok_or_else(none)?, rate(sent?).ok_or_else(none)?])
    }
}

/// Both ways of a size over the wire.
fn over_wire(pair: &mut Pair, size: usize, cell: &mut Cell, foreign: &mut Samples) -> Result<()> {
    let there: SocketAddr = "10.0.0.2:5001".parse()?;
    let server = UdpSocket::bind(&pair.server.stack, there)?;
    let client = UdpSocket::bind(&pair.client.stack, "10.0.0.1:5002")?;
    server.set_nonblocking(true)?;
    client.set_nonblocking(true)?;
    let payload = vec![7; size];
    let message = Outgoing { envelope: Envelope::to(there), payload: &payload };
    let messages = [message; BATCH];
    let mut room = vec![vec![0; SIZE_MAX]; BATCH];
    let sent = AtomicU64::new(0);
    let send = || {
        let count = some(client.send_many(&messages))?.unwrap_or(0);
        sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(0)
    };
    let receive = || Ok(some(receive_many(&server, &mut room))?.unwrap_or(0));
    let used = pair.play(SPAN, Cpus::Two, send, receive)?;
    foreign.push(used.foreign);
    cell.one_way.push(used.count as f64 * 1e-6 / used.wall.as_secs_f64());
    let mut received = used.count;
    while let Some(count) = some(receive_many(&server, &mut room))? {
        received += count;
    }
    cell.lost.push(1.0 - received as f64 / sent.into_inner() as f64);
    let mut buffer = vec![0; size];
    let (mut waits, mut answer) = (None::<Instant>, vec![0; size]);
    let ask = || {
        let got = some(client.recv_from(&mut answer))?.is_some();
        if got || waits.is_none_or(|since| since.elapsed() > SLICE) {
            waits = Some(Instant::now());
            some(client.send_to(&payload, there))?;
        }
        Ok(u64::from(got))
    };
    let reply = || {
        if let Some((len, from)) = some(server.recv_from(&mut buffer))? {
            some(server.send_to(&buffer[..len], from))?;
        }
        Ok(0)
    };
    let used = pair.play(SPAN, Cpus::Two, ask, reply)?;
    foreign.push(used.foreign);
    cell.trips.push(used.count as f64 * 1e-6 / used.wall.as_secs_f64());
    Ok(())
}

fn report(cells: &[[Cell; 4]], foreign: &Samples) -> Verdict {
    let table = Table::begin("udp: datagrams, over a memory wire beside loopback, and over TAP beside veth");
    let mut worst: Option<(f64, f64, f64, String)> = None;
    for (size, [wire, loopback, tap, veth]) in SIZES.iter().zip(cells) {
        for (ours, theirs, names, unit) in [
            (wire, loopback, ["wire", "kernel loopback"], "M/s"),
            (tap, veth, ["TAP", "kernel veth"], "M/CPU-s"),
        ] {
            for (what, mine, peers) in
                [("one way", &ours.one_way, &theirs.one_way), ("there and back", &ours.trips, &theirs.trips)]
            {
                table.row(&format!("{size} bytes {what}, {}", names[0]), mine, unit);
                table.row(&format!("{size} bytes {what}, {}", names[1]), peers, unit);
                let (mine, peers) = (mine.median(), peers.median());
                let ratio = mine / peers;
                table.note(&format!("{ratio:.2} of the kernel's"));
                if what == "one way" {
                    for (name, lost) in names.into_iter().zip([&ours.lost, &theirs.lost]) {
                        table.row(&format!("  lost of what was sent, {name}"), lost, "");
                    }
                }
                if worst.as_ref().is_none_or(|(lowest, ..)| ratio < *lowest) {
                    worst =
                        Some((ratio, mine, peers, format!("{unit}, {size} bytes {what} over {}", names[0])));
                }
            }
        }
        let trip = |cell: &Cell| cell.trips.map(|millions| 1.0 / millions);
        table.row(&format!("{size} bytes, a round trip, wire"), &trip(wire), "us");
        table.row(&format!("{size} bytes, a round trip, kernel loopback"), &trip(loopback), "us");
    }
    table.disturbance(foreign);
    let (ratio, mine, peers, what) = worst.unwrap_or_default();
    Verdict { name: "udp", ratio, firelane: format!("{mine:.4} {what}"), peer: format!("{peers:.4}") }
}

/// A Firelane stack on a TAP in the client's namespace, receiving as it is told until the input ends.
pub(crate) fn play_tap_server() -> Result<()> {
    let stack = tap_stack()?;
    let socket = UdpSocket::bind(&stack, FIRELANE_ADDRESS)?;
    socket.set_read_timeout(Some(SLICE))?;
    serve(socket)
}
