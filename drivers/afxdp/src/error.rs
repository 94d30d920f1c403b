//! Why an interface got no AF_XDP sockets: what was tried, what the kernel said, what to do.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Why one way of attaching was refused.
#[derive(Debug)]
pub enum Refused {
    /// Another XDP program is attached.
    OtherProgram,
    /// No right to load or attach programs, or to open the sockets.
    Permission(&'static str),
    /// The kernel is too old, or was built without it.
    Unsupported(&'static str),
    /// The kernel did not accept the program: its words about it.
    Verifier(String),
    /// There is no wire behind the interface: what programs send comes uncut, and what is longer than a piece of our memory is lost
    /// before the kernel's stack.
    Uncut,
    /// Something else: what was tried, and the error.
    System(&'static str, io::Error),
}

impl Refused {
    /// The kernel's answer to `what`.
    pub(crate) fn of(what: &'static str, error: Errno) -> Self {
        match error {
            Errno::PERM | Errno::ACCESS => Self::Permission(what),
            Errno::NOSYS | Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT => {
                Self::Unsupported(what)
            }
            error => Self::System(what, error.into()),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProgram => f.write_str("another XDP program is attached (ip link show names it)"),
            Self::Permission(what) => {
                write!(f, "{what}: not permitted (CAP_NET_ADMIN and CAP_BPF are needed)")
            }
            Self::Unsupported(what) => write!(f, "{what}: this kernel or this driver does not offer it"),
            Self::Verifier(log) => write!(f, "the kernel's verifier refused the program: {log}"),
            Self::Uncut => f.write_str(
                "there is no wire behind it, so that programs leave their segments uncut, and those would be lost",
            ),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

/// Why there are no sockets.
#[derive(Debug)]
pub enum AfXdpError {
    /// There is no such interface.
    NoInterface(String),
    /// The packet does not fit the memory's pieces.
    Mtu(u16),
    /// A queue count that is not allowed.
    Queues(u16),
    /// Every way was refused: which, and why.
    Refused(String, Vec<(&'static str, Refused)>),
}

impl fmt::Display for AfXdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface(name) => write!(f, "interface {name:?} does not exist"),
            Self::Mtu(mtu) => write!(f, "mtu {mtu}: AF_XDP carries at most {}", crate::socket::MTU_MAX),
            Self::Queues(count) => write!(f, "queues {count}: 1 to 64"),
            Self::Refused(name, ways) => {
                write!(f, "AF_XDP on {name}")?;
                ways.iter().try_for_each(|(way, why)| write!(f, "; {way}: {why}"))
            }
        }
    }
}

impl std::error::Error for AfXdpError {}
