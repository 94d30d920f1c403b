//! The peer of `switch`: the kernel's bridge between two veth pairs, with a packet socket as generator.
//!
//! The generator (a process of its own) sends chains of frames with `sendmmsg` past the queueing discipline;
//! the kernel carries each through pair, bridge and pair inside that system call, on the same CPU. What the
//! far interface counted is the result. The same frames through a bare pair show what the generator costs.

use std::fs;
use std::time::{Duration, Instant};

use firelane_interop::Sandbox;

use crate::burst::Burst;
use crate::cpu;
use crate::peer::{self, Peer, Place, Result};

const FRAME_BYTES: usize = 64;

/// Two veth pairs with a bridge between their near ends, and a third pair on its own.
const TOPOLOGY: &[&str] = &[
    "link add bridge0 type bridge stp_state 0 mcast_snooping 0",
    "link add left0 type veth peer name left1",
    "link add right0 type veth peer name right1",
    "link add bare0 type veth peer name bare1",
    "link set left1 master bridge0",
    "link set right1 master bridge0",
    "link set right0 address 02:08:20:00:00:02",
    "link set bare1 address 02:08:20:00:00:02",
    "link set bridge0 up",
    "link set left0 up",
    "link set left1 up",
    "link set right0 up",
    "link set right1 up",
    "link set bare0 up",
    "link set bare1 up",
];

/// A bridge and its generator, in a sandbox of their own.
#[derive(Debug)]
pub(crate) struct Bridge {
    sender: Peer,
    _sandbox: Sandbox,
}

/// What one round moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) frames: u64,
    /// CPU time of the one thread that did it.
    pub(crate) busy: Duration,
}

impl Moved {
    pub(crate) fn nanos_per_frame(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.frames.max(1) as f64
    }
}

impl Bridge {
    /// One whose generator, which does all its work, is bound to a CPU.
    pub(crate) fn new(cpu: usize) -> Result<Self> {
        let sandbox = Sandbox::new();
        peer::ip(&sandbox, TOPOLOGY)?;
        let sender = Peer::start(Place::Sandbox(&sandbox), "bridge-sender", &[&cpu.to_string()])?;
        Ok(Self { sender, _sandbox: sandbox })
    }

    /// Frames through pair, bridge and pair.
    pub(crate) fn forward(&mut self, span: Duration) -> Result<Moved> {
        self.send("left0", "right0", span)
    }

    /// Frames through one pair without a bridge.
    pub(crate) fn bare(&mut self, span: Duration) -> Result<Moved> {
        self.send("bare0", "bare1", span)
    }

    fn send(&mut self, from: &str, to: &str, span: Duration) -> Result<Moved> {
        match *self.sender.ask(&format!("{from} {to} {}", span.as_millis()))?.as_slice() {
            [frames, nanos] if frames > 0 => Ok(Moved { frames, busy: Duration::from_nanos(nanos) }),
            _ => Err(format!("no frame came from {from} to {to}").into()),
        }
    }
}

/// The generator, on a CPU: `FROM TO MILLIS` is answered with frames received and nanoseconds of CPU time.
pub(crate) fn play_sender(args: &[&str]) -> Result<()> {
    let &[on] = args else { return Err("CPU".into()) };
    cpu::bind_to(on)?;
    peer::serve(|words| {
        let &[from, to, millis] = words else { return Err("FROM TO MILLIS".into()) };
        let span = Duration::from_millis(millis.parse()?);
        // The destination speaks once, so that a bridge on the way knows where it is.
        Burst::new(to, &frame([2, 8, 0x20, 0, 0, 1], [2, 8, 0x20, 0, 0, 2]))?.send()?;
        let mut burst = Burst::new(from, &frame([2, 8, 0x20, 0, 0, 2], [2, 8, 0x20, 0, 0, 1]))?;
        let [before, _] = received(to)?;
        let (start, busy) = (Instant::now(), cpu::thread_time());
        while start.elapsed() < span {
            burst.send()?;
        }
        let nanos = (cpu::thread_time() - busy).as_nanos() as u64;
        let [after, _] = received(to)?;
        Ok(vec![after - before, nanos])
    })
}

/// A frame of IEEE 802's local experimental EtherType, which no protocol of the far interface's namespace wants.
fn frame(dst: [u8; 6], src: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&src);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// The frames and bytes that an interface of this network namespace has received.
pub(crate) fn received(interface: &str) -> Result<[u64; 2]> {
    let table = fs::read_to_string("/proc/self/net/dev")?;
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let mut words = row.into_iter().flat_map(str::split_whitespace).map_while(|word| word.parse().ok());
    match (words.next(), words.next()) {
        (Some(bytes), Some(packets)) => Ok([packets, bytes]),
        _ => Err(format!("{interface} has no counters").into()),
    }
}
