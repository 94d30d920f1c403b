//! The peer of `attack-cost`: the kernel in a network namespace, with a listener and a connection, behind a veth pair.
//!
//! A sender in another namespace opens the connection and then sends the frames from a packet socket past the queueing discipline: the
//! kernel carries each across the pair and does all that comes of it inside that system call, on the sender's CPU. Frames of as
//! many bytes with an EtherType that nobody wants show what the sender and the pair cost. What the victim answers goes to a station that is
//! not there, and ends at the pair's other side.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use firelane_interop::Sandbox;
use firelane_sim::attack::ATTACKS;
use firelane_sim::station_mac;

use super::{OWN, PEER, PORT, frames};
use crate::burst::Burst;
use crate::cpu;
use crate::peer::{self, Peer, Place, Result};

const TOPOLOGY: &[&str] = &[
    "netns add out",
    "netns add victim",
    "link add far netns out address 2:8:20:0:0:1 type veth peer name near address 2:8:20:0:0:2 netns victim",
    "-n out address add 10.0.0.1/24 dev far",
    "-n victim address add 10.0.0.2/24 dev near",
    "-n out link set far up",
    "-n victim link set near up",
    "-n victim route add default via 10.0.0.1",
];
/// From here on the victim speaks to nobody.
const NOBODY: &[&str] = &["-n victim neighbour replace 10.0.0.1 lladdr 2:8:20:0:0:99 dev near nud permanent"];
const CPU: usize = 1;

/// A victim and a sender.
#[derive(Debug)]
pub(crate) struct Kernel {
    victim: Peer,
    sender: Peer,
    _sandbox: Sandbox,
}

impl Kernel {
    pub(crate) fn new() -> Result<Self> {
        let sandbox = Sandbox::new();
        peer::ip(&sandbox, TOPOLOGY)?;
        let victim = Peer::start(Place::Netns(&sandbox, "victim"), "attack-victim", &[])?;
        let sender = Peer::start(Place::Netns(&sandbox, "out"), "attack-sender", &[&CPU.to_string()])?;
        peer::ip(&sandbox, NOBODY)?;
        Ok(Self { victim, sender, _sandbox: sandbox })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.sender.pid()
    }

    /// What a frame of the `kind`th attack costs the victim, in nanoseconds.
    pub(crate) fn suffer(&mut self, kind: usize, span: Duration) -> Result<f64> {
        let mut cost = |what: &str| -> Result<f64> {
            match *self.sender.ask(&format!("{kind} {what} {}", span.as_millis()))?.as_slice() {
                [frames, nanos] if frames > 0 => Ok(nanos as f64 / frames as f64),
                _ => Err("no frame was sent".into()),
            }
        };
        Ok((cost("attack")? - cost("bare")?).max(1.0))
    }

    /// Whether the connection is there.
    pub(crate) fn check(&mut self) -> Result<()> {
        match *self.victim.ask("alive")?.as_slice() {
            [1] => Ok(()),
            _ => Err("the kernel's connection is gone".into()),
        }
    }
}

/// Listens, has one connection, and says with 1 that it is there.
pub(crate) fn play_victim() -> Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(IpAddr::V4(OWN), PORT))?;
    let mut accepted = None;
    let waiting = listener.try_clone()?;
    let accepting = std::thread::spawn(move || waiting.accept().map(|(stream, _)| stream));
    let mut accepting = Some(accepting);
    peer::serve(|_| {
        if let Some(accepting) = accepting.take() {
            let stream: TcpStream = accepting.join().map_err(|_| "nobody connects")??;
            stream.set_nonblocking(true)?;
            accepted = Some(stream);
        }
        let stream = accepted.as_mut().ok_or("there was no connection")?;
        let silent = stream.read(&mut [0]).err().map(|error| error.kind());
        Ok(vec![u64::from(silent == Some(std::io::ErrorKind::WouldBlock))])
    })
}

/// The generator, on a CPU: `KIND attack|bare MILLIS` is answered with frames sent and nanoseconds of CPU time.
pub(crate) fn play_sender(args: &[&str]) -> Result<()> {
    let &[on] = args else { return Err("CPU".into()) };
    cpu::bind_to(on)?;
    let stream = TcpStream::connect((OWN, PORT))?;
    let port = stream.local_addr()?.port();
    peer::serve(|words| {
        let &[kind, what, millis] = words else { return Err("KIND attack|bare MILLIS".into()) };
        let attack = *ATTACKS.get(kind.parse::<usize>()?).ok_or("no such attack")?;
        let mut frames = frames(attack, SocketAddr::new(IpAddr::V4(PEER), port), station_mac(2));
        if what == "bare" {
            frames.iter_mut().for_each(|frame| frame[12..14].copy_from_slice(&[0x88, 0xb5]));
        }
        let count = frames.len();
        let mut burst = Burst::of("far", frames.into_iter().map(Into::into).collect(), count)?;
        burst.send()?;
        let before = transmitted("far")?;
        let (start, busy) = (Instant::now(), cpu::thread_time());
        let span = Duration::from_millis(millis.parse()?);
        while start.elapsed() < span {
            burst.send()?;
        }
        let nanos = (cpu::thread_time() - busy).as_nanos() as u64;
        Ok(vec![transmitted("far")? - before, nanos])
    })
}

/// The frames that an interface of this network namespace has sent.
fn transmitted(interface: &str) -> Result<u64> {
    let table = std::fs::read_to_string("/proc/self/net/dev")?;
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let count = row.and_then(|row| row.split_whitespace().nth(9)?.parse().ok());
    count.ok_or_else(|| format!("{interface} has no counters").into())
}
