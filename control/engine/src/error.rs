//! What callers of the engine are told: failed changes, and socket failures as `std::io` errors.

use std::fmt;
use std::io;
use std::net::IpAddr;

use firelane_classify::{MASK_SETS_MAX, RANGE_PAIRS_MAX, RuleError};
use firelane_socket::SocketError;
use firelane_units::{FlowId, LinkId, MacAddr, NetstackId};

use crate::fabric::EnterError;

/// Why a change to an engine was refused. Nothing has changed then.
#[derive(Debug)]
pub enum ChangeError {
    /// There is no such link or VNIC.
    NoLink(LinkId),
    /// There is no such flow.
    NoFlow(FlowId),
    /// There is no such netstack.
    NoNetstack(NetstackId),
    /// There are as many netstacks as there are numbers for them.
    ManyNetstacks,
    /// VNICs are still attached to the link.
    LinkBusy(LinkId),
    /// The VNIC has a user already.
    VnicBusy(LinkId),
    /// Another VNIC of the link has the address.
    MacTaken(MacAddr),
    /// The link has an uplink already.
    HasUplink(LinkId),
    /// The link has no wire whose traffic it could have flows of: an etherstub's VNICs have them.
    NoWire(LinkId),
    /// A flow's attributes contradict each other, are those of another flow, or would cost every frame too much.
    Rule(RuleError),
    /// The VNIC has no netstack, so it has no addresses.
    NoUser(LinkId),
    /// The netstack has the address: the operator's, a lease's, or one that it made itself.
    AddressTaken(IpAddr),
    /// Another tunnel of the netstack has the same two ends, protocol and key.
    TunnelTaken(LinkId),
    /// A device or the kernel refused.
    Device(io::Error),
    /// A TAP could not be made.
    Tap(firelane_driver_tap::OpenError),
    /// As many captures as may run do.
    ManyCaptures(usize),
    /// Somebody traces already.
    Tracing,
    /// Somebody counts steps already.
    Metering,
    /// A lane cannot run on that CPU; these are those of this process.
    NoCpu {
        /// Which.
        cpu: usize,
        /// Where lanes may run.
        usable: Vec<usize>,
    },
    /// The link has no device whose queues lanes of its own could serve.
    NoQueues(LinkId),
    /// The link's device has not as many rings.
    NoRings {
        /// For frames that are fetched, or for those that are sent.
        fetched: bool,
        /// How many were asked for.
        asked: u16,
        /// How many it has.
        all: u16,
    },
    /// The link's device sends by all its rings.
    FixedRings {
        /// How many were asked for.
        asked: u16,
        /// How many there are.
        all: u16,
    },
    /// The link's device could not be told by which rings it is to send.
    Spread(io::Error),
    /// There is no lane left for that CPU: an engine has as many for those that want their own as it was made with.
    NoLane(usize),
    /// The netstack's connections are in lanes that it has no more of: it gets others when it is made anew.
    FixedLanes {
        /// How many lanes of its own it has.
        own: usize,
        /// For how many CPUs it was asked.
        asked: usize,
    },
    /// The netstack's lane on that CPU serves others as well, and cannot go to another one without them.
    SharedLane(usize),
    /// The flow is of a netstack and names no local ports, or what tells packets and no sockets: no lane could be told by it.
    NoService,
    /// What passes a device is in one lane of its flow's; for so many CPUs it was asked.
    OneLane(usize),
    /// A lane is out of service after a fault of ours.
    LaneFailed,
}

/// What is wrong with a flow's attributes.
fn fmt_rule(rule: &RuleError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match rule {
        RuleError::Identical(id) => write!(f, "flow {id} has identical attributes"),
        RuleError::Empty => f.write_str("a flow needs an attribute"),
        RuleError::MixedFamilies => f.write_str("local and remote address of one family"),
        RuleError::TooManyMaskSets => {
            write!(f, "a link's flows may be of {MASK_SETS_MAX} different kinds")
        }
        RuleError::TooManyRangePairs => write!(
            f,
            "{RANGE_PAIRS_MAX} flows at most that are alike but for ranges of local and remote ports"
        ),
    }
}

fn fmt_no_cpu(cpu: usize, usable: &[usize], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let usable = usable.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    write!(f, "CPU {cpu} does not exist, is off line or is not for this process, which has {usable}")
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLink(id) => write!(f, "there is no link {id}"),
            Self::NoFlow(id) => write!(f, "there is no flow {id}"),
            Self::NoNetstack(id) => write!(f, "there is no netstack {id}"),
            Self::ManyNetstacks => write!(f, "there are 65,535 netstacks, and no number is left for another"),
            Self::LinkBusy(id) => write!(f, "link {id} still has VNICs or a wire"),
            Self::VnicBusy(id) => write!(f, "VNIC {id} has a user"),
            Self::MacTaken(mac) => write!(f, "MAC address {mac} is already in use"),
            Self::HasUplink(id) => write!(f, "link {id} already has an uplink"),
            Self::NoWire(id) => write!(f, "link {id} has no wire; its VNICs may have flows"),
            Self::Rule(rule) => fmt_rule(rule, f),
            Self::NoUser(id) => write!(f, "VNIC {id} has no netstack"),
            Self::AddressTaken(addr) => {
                write!(f, "the netstack has address {addr} already; `ipadm show-addr` shows by what")
            }
            Self::TunnelTaken(id) => write!(f, "tunnel {id} has the same ends"),
            Self::Device(error) => write!(f, "device: {error}"),
            Self::Tap(error) => error.fmt(f),
            Self::ManyCaptures(most) => write!(f, "{most} captures run already"),
            Self::Tracing => f.write_str("a trace runs already"),
            Self::Metering => f.write_str("steps are counted already"),
            Self::NoCpu { cpu, usable } => fmt_no_cpu(*cpu, usable, f),
            Self::NoQueues(id) => write!(f, "link {id} has no device whose queues a lane could serve"),
            Self::NoRings { all, .. } => {
                write!(
                    f,
                    "its device was made with so many rings: {all}; who is made anew gets as many as are asked for"
                )
            }
            Self::FixedRings { all, .. } => {
                write!(f, "its device sends by all its {all} rings, and cannot be told otherwise")
            }
            Self::Spread(error) => {
                write!(f, "its device could not be told by which rings to send: {error}")
            }
            Self::NoLane(cpu) => write!(f, "no lane is left for CPU {cpu}"),
            Self::FixedLanes { own, asked } => {
                write!(
                    f,
                    "the netstack has {own} lanes of its own, not {asked}, and gets others when it is made anew"
                )
            }
            Self::SharedLane(cpu) => {
                write!(
                    f,
                    "the lane on CPU {cpu} serves other links or netstacks, too, and cannot go without them"
                )
            }
            Self::NoService => f.write_str(
                "a flow of a netstack has lanes of its own by its local_port, and by addresses and a transport beside it",
            ),
            Self::OneLane(asked) => {
                write!(f, "what passes a device is in one lane of its flow's, not in {asked}")
            }
            Self::LaneFailed => f.write_str("a lane is out of service"),
        }
    }
}

impl std::error::Error for ChangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) | Self::Spread(error) => Some(error),
            Self::Tap(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ChangeError {
    fn from(error: io::Error) -> Self {
        Self::Device(error)
    }
}

impl From<firelane_driver_tap::OpenError> for ChangeError {
    fn from(error: firelane_driver_tap::OpenError) -> Self {
        Self::Tap(error)
    }
}

impl From<EnterError> for ChangeError {
    fn from(_: EnterError) -> Self {
        Self::LaneFailed
    }
}

impl From<ChangeError> for io::Error {
    fn from(error: ChangeError) -> Self {
        io::Error::other(error)
    }
}

/// A socket's failure as the error number that POSIX has for it.
pub(crate) fn io_error(error: SocketError) -> io::Error {
    use rustix::io::Errno;
    let number = match error {
        SocketError::Refused => Errno::CONNREFUSED,
        SocketError::Reset => Errno::CONNRESET,
        SocketError::TimedOut => Errno::TIMEDOUT,
        SocketError::HostUnreachable => Errno::HOSTUNREACH,
        SocketError::NetworkUnreachable => Errno::NETUNREACH,
        SocketError::Aborted => Errno::CONNABORTED,
        SocketError::NoPort | SocketError::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        SocketError::AddressInUse => Errno::ADDRINUSE,
        SocketError::MessageTooLong => Errno::MSGSIZE,
        SocketError::NoBuffers => Errno::NOBUFS,
        SocketError::BroadcastDenied | SocketError::Prohibited => Errno::ACCESS,
        SocketError::ProtocolUnreachable => Errno::NOPROTOOPT,
        SocketError::BadParameter => Errno::PROTO,
        SocketError::BrokenPipe => Errno::PIPE,
    };
    number.into()
}

/// The lane that a socket lives in is out of service.
pub(crate) fn lane_failed() -> io::Error {
    rustix::io::Errno::NETDOWN.into()
}

/// The number of an error, as programs' words have it.
pub(crate) fn number_of(error: &io::Error) -> u64 {
    error.raw_os_error().unwrap_or_default().unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_error_has_its_number() {
        let numbers: Vec<_> = SocketError::ALL.into_iter().map(|e| io_error(e).raw_os_error()).collect();
        assert!(numbers.iter().all(Option::is_some));
        assert_eq!(io_error(SocketError::Refused).kind(), io::ErrorKind::ConnectionRefused);
    }
}
