//! Opening an interface: the program attached, a socket on every queue, the best way that is offered.
//!
//! Called by the engine. Ways are tried in order: in the interface's driver without copies, in the driver with
//! copies, and, of one with a wire, before the kernel's stack. What was refused on the way is told with the result.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use firelane_units::{MacAddr, Mtu};

use crate::bpf;
use crate::claims::Claims;
use crate::error::{AfXdpError, Refused};
use crate::interface::Interface;
use crate::queue::AfXdpQueue;
use crate::socket::{MTU_MAX, Place, SOCKET_BYTES, Socket};
use crate::sys::{self, Umem};

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of `asm-generic/socket.h`.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// How long a poll of the device may take, in microseconds, and how many frames.
const BUSY_POLL_MICROS: libc::c_int = 20;
const BUSY_POLL_FRAMES: libc::c_int = 64;

/// Which frames are ours; the kernel has the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Claim {
    /// All.
    #[default]
    Everything,
    /// Those for these addresses, and those for groups (broadcast included) if asked for.
    Addresses {
        /// The addresses.
        addresses: BTreeSet<MacAddr>,
        /// Whether groups are ours, too.
        groups: bool,
    },
}

/// Which ways are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wish {
    /// The best that there is.
    #[default]
    Best,
    /// In the interface's driver, or not at all.
    Native,
    /// Before the kernel's stack: slower, on any interface. Of one without a wire, long segments that its senders leave uncut do
    /// not come.
    Generic,
}

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct AfXdpConfig {
    /// Queues that are made: usually one per lane. Each has its share of the NIC's.
    pub queues: u16,
    /// The largest packet.
    pub mtu: Mtu,
    /// Which frames are ours.
    pub claim: Claim,
    /// Which ways are tried.
    pub wish: Wish,
    /// Whether the lane drives the device (preferred busy polling) instead of its interrupts.
    pub busy_poll: bool,
}

impl AfXdpConfig {
    /// Everything, in the best way, on one queue.
    pub fn new(mtu: Mtu) -> Self {
        Self { queues: 1, mtu, claim: Claim::default(), wish: Wish::default(), busy_poll: false }
    }
}

/// Where the program runs, and whether frames are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the interface's driver, which writes into our memory.
    ZeroCopy,
    /// In the interface's driver; the kernel copies.
    Native,
    /// Before the kernel's stack.
    Generic,
}

impl Mode {
    /// The word in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::ZeroCopy => "native, zero-copy",
            Self::Native => "native, copied",
            Self::Generic => "generic",
        }
    }
}

/// What an interface got.
#[derive(Debug)]
pub struct Attached {
    /// How it is attached.
    pub mode: Mode,
    /// The NIC's queues.
    pub queues: u32,
    /// What would have been better, and why it is not so.
    pub refused: Vec<(&'static str, Refused)>,
    /// What somebody has to see to.
    pub notes: Vec<String>,
    /// The addresses whose frames are claimed, if not all are.
    pub claims: Option<Claims>,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AF_XDP, {}, {} queue(s)", self.mode.word(), self.queues)?;
        self.refused.iter().try_for_each(|(way, why)| write!(f, "; not {way}: {why}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// The program on its interface: detached when the last queue is gone, or the process.
#[derive(Debug)]
pub(crate) struct Attachment {
    _link: bpf::Link,
    _sockets: OwnedFd,
}

/// Opens an interface of the calling thread's network namespace.
///
/// # Errors
/// [`AfXdpError`] says what was tried and what the kernel answered. Nothing is left behind then.
pub fn open(name: &str, config: &AfXdpConfig) -> Result<(Vec<AfXdpQueue>, Attached), AfXdpError> {
    if config.queues == 0 || config.queues > 64 {
        return Err(AfXdpError::Queues(config.queues));
    }
    if config.mtu.bytes() > MTU_MAX {
        return Err(AfXdpError::Mtu(config.mtu.bytes()));
    }
    let interface = Interface::find(name)?;
    let ways: &[Mode] = match config.wish {
        Wish::Best => &[Mode::ZeroCopy, Mode::Native, Mode::Generic],
        Wish::Native => &[Mode::ZeroCopy, Mode::Native],
        Wish::Generic => &[Mode::Generic],
    };
    let mut refused = Vec::new();
    for &mode in ways {
        if mode == Mode::Generic && config.wish == Wish::Best && interface.is_virtual {
            refused.push((mode.word(), Refused::Uncut));
            continue;
        }
        match attach(&interface, config, mode) {
            Ok((attachment, sockets, claims)) => {
                let queues = interface.queues;
                let notes = interface.keep_tags().into_iter().collect();
                let made = AfXdpQueue::share_out(
                    sockets,
                    Arc::new(attachment),
                    config,
                    (interface.index, interface.is_virtual),
                );
                let made =
                    made.map_err(|error| AfXdpError::Refused(name.to_owned(), vec![(mode.word(), error)]))?;
                return Ok((made, Attached { mode, queues, refused, notes, claims }));
            }
            Err(why) => refused.push((mode.word(), why)),
        }
    }
    Err(AfXdpError::Refused(name.to_owned(), refused))
}

fn attach(
    interface: &Interface,
    config: &AfXdpConfig,
    mode: Mode,
) -> Result<(Attachment, Vec<Socket>, Option<Claims>), Refused> {
    let map = bpf::socket_map(interface.queues)?;
    let (claims, groups) = match &config.claim {
        Claim::Everything => (None, true),
        Claim::Addresses { addresses, groups } => (Some(Claims::new(addresses)?), *groups),
    };
    let program = bpf::load(&map, claims.as_ref().map(Claims::map), groups)?;
    // Drivers make the queues that sockets need when a program comes.
    let link = bpf::attach(&program, interface.index, mode != Mode::Generic)?;
    let umem = Umem::new(SOCKET_BYTES * interface.queues as usize)
        .map_err(|error| Refused::System("memory for frames", error))?;
    let (umem, mut sockets) = (Arc::new(umem), Vec::<Socket>::new());
    for queue in 0..interface.queues {
        let place = Place { index: interface.index, queue, zero_copy: mode == Mode::ZeroCopy };
        let socket = Socket::open(&umem, queue, place, sockets.first())?;
        if config.busy_poll {
            prefer_busy_poll(&socket)?;
        }
        sockets.push(socket);
    }
    if mode == Mode::ZeroCopy && !sockets.iter().all(Socket::is_zero_copy) {
        return Err(Refused::Unsupported("zero-copy"));
    }
    // Frames come from here on.
    for (queue, socket) in (0..).zip(&sockets) {
        bpf::set_socket(&map, queue, socket.as_fd())?;
    }
    Ok((Attachment { _link: link, _sockets: map }, sockets, claims))
}

fn prefer_busy_poll(socket: &Socket) -> Result<(), Refused> {
    for (option, value) in [
        (SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, BUSY_POLL_MICROS),
        (SO_BUSY_POLL_BUDGET, BUSY_POLL_FRAMES),
    ] {
        sys::set_option(socket.as_fd(), option, value)
            .map_err(|error| Refused::of("preferred busy polling", error))?;
    }
    Ok(())
}
