//! Creating a TAP: the interface, its queues, its address and state, in any network namespace; and one more queue of it later.
//!
//! Called by the engine when a VNIC's user is a kernel interface, and when a flow of one gets a queue of its own. A TAP lives as long as its descriptors:
//! when the process dies, even by SIGKILL, the kernel removes the interface.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use firelane_units::{IpPrefix, MacAddr, Mtu};

use crate::address;
use crate::discipline;
use crate::door::{self, Door};
use crate::queue::TapQueue;
use crate::sys::{self, IfName, Of};

/// How a TAP is to be made.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// How many queues; each becomes a driver of its own, usually one per lane.
    pub queues: u16,
    /// The largest packet.
    pub mtu: Mtu,
    /// The interface's Ethernet address: the kernel's, as seen by its user.
    pub mac: MacAddr,
    /// Addresses that the interface gets.
    pub addresses: Vec<IpPrefix>,
    /// The network namespace to make it in (a path such as `/run/netns/alice`), else the caller's own.
    pub namespace: Option<PathBuf>,
}

/// Why a TAP could not be made.
#[derive(Debug)]
pub enum OpenError {
    /// The name is empty, longer than 15 bytes, or has a character that interfaces may not have.
    Name(String),
    /// The number of queues is zero or above 256.
    Queues(u16),
    /// The namespace could not be entered.
    Namespace(PathBuf, io::Error),
    /// `/dev/net/tun` refused: no permission, or the name is taken.
    Create(String, io::Error),
    /// The interface was made but could not be set up: which setting, and why.
    Configure(&'static str, io::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "interface name {name:?}: 1 to 15 printable characters without / : %")
            }
            Self::Queues(count) => write!(f, "queues {count}: 1 to 256"),
            Self::Namespace(path, error) => write!(f, "network namespace {}: {error}", path.display()),
            Self::Create(name, error) if error.raw_os_error() == Some(libc::EBUSY) => {
                write!(f, "interface {name:?}: the name is already taken")
            }
            Self::Create(name, error) => write!(f, "TAP {name:?} through /dev/net/tun: {error}"),
            Self::Configure(what, error) => write!(f, "setting the interface's {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Name(_) | Self::Queues(_) => None,
            Self::Namespace(_, error) | Self::Create(_, error) | Self::Configure(_, error) => Some(error),
        }
    }
}

/// Makes the TAP `name` and returns its queues.
///
/// # Errors
/// [`OpenError`] names the setting that failed; nothing is left behind then.
pub fn open(name: &str, config: &TapConfig) -> Result<Vec<TapQueue>, OpenError> {
    let ifname = IfName::new(name).ok_or_else(|| OpenError::Name(name.to_owned()))?;
    if config.queues == 0 || config.queues > 256 {
        return Err(OpenError::Queues(config.queues));
    }
    match &config.namespace {
        None => create(name, ifname, config),
        Some(path) => {
            let file = File::open(path).map_err(|e| OpenError::Namespace(path.clone(), e))?;
            let made = in_namespace(file.as_fd(), || create(name, ifname, config));
            made.map_err(|e| OpenError::Namespace(path.clone(), e))?
        }
    }
}

/// One more queue of the TAP that has this one, wherever that is now and whatever it is called.
pub(crate) fn one_more(queue: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    beside(queue, || {
        let queue = sys::open_queue(sys::name_of(queue)?, Of::Ours)?;
        set_offload(queue.as_fd()).map(|_| queue)
    })
}

/// Does some work in the network namespace where the TAP of a queue is now.
pub(crate) fn beside<T: Send>(
    queue: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let (its, own) = (sys::namespace_of(queue)?, File::open("/proc/thread-self/ns/net")?);
    let which = |it: BorrowedFd<'_>| rustix::fs::fstat(it).map(|it| (it.st_dev, it.st_ino));
    // Who is there already needs no right to go there.
    if which(its.as_fd())? == which(own.as_fd())? { work() } else { in_namespace(its.as_fd(), work)? }
}

/// Does some work in a network namespace. Only a thread's own namespace can change, so the work is done by one that ends afterwards.
fn in_namespace<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(namespace, kind)?;
            Ok(work())
        })?;
        worker.join().expect("the thread that makes a queue does not panic")
    })
}

/// Lets a queue have all offloads that the kernel knows; whether that of datagrams is among them.
fn set_offload(queue: BorrowedFd<'_>) -> io::Result<bool> {
    if sys::set_offload(queue, sys::OFFLOAD_TCP | sys::OFFLOAD_UDP) {
        return Ok(true);
    }
    if sys::set_offload(queue, sys::OFFLOAD_TCP) { Ok(false) } else { Err(io::Error::last_os_error()) }
}

fn create(name: &str, ifname: IfName, config: &TapConfig) -> Result<Vec<TapQueue>, OpenError> {
    let created = |e| OpenError::Create(name.to_owned(), e);
    let of = |nth| if nth == 0 { Of::New } else { Of::Ours };
    let fds: Vec<OwnedFd> = (0..config.queues)
        .map(|nth| sys::open_queue(ifname, of(nth)))
        .collect::<io::Result<_>>()
        .map_err(created)?;
    let mut udp_segmentation = true;
    for fd in &fds {
        udp_segmentation &= set_offload(fd.as_fd()).map_err(|e| OpenError::Configure("offload", e))?;
    }
    configure(name, ifname, config)?;
    // Whoever may make a TAP may often not load programs; then every frame is read, and limits hold all the same.
    let table = fds.first().and_then(|fd| door::hang(fd.as_fd(), config.mtu).ok());
    let door = || table.clone().map(Door::new);
    Ok(fds.into_iter().zip(0..).map(|it| TapQueue::new(it, config.mtu, udp_segmentation, door())).collect())
}

fn configure(name: &str, ifname: IfName, config: &TapConfig) -> Result<(), OpenError> {
    let failed = |what| move |e| OpenError::Configure(what, e);
    let socket = sys::control_socket().map_err(failed("state"))?;
    sys::set_mac(socket.as_fd(), ifname, config.mac).map_err(failed("MAC address"))?;
    sys::set_mtu(socket.as_fd(), ifname, config.mtu).map_err(failed("MTU"))?;
    let has_v6 = config.addresses.iter().any(|a| a.addr().is_ipv6());
    if has_v6 {
        // We give the addresses out, so nobody else can have them: duplicate detection would only delay
        // them by a second. Where the setting cannot be changed, the second is all that is lost.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_dad"), "0");
    }
    let index =
        rustix::net::netdevice::name_to_index(&socket, name).map_err(|e| failed("index")(e.into()))?;
    // A kernel that refuses needs more memory, and that is all.
    let _ = discipline::take_away(index);
    sys::set_up(socket.as_fd(), ifname).map_err(failed("state"))?;
    for prefix in &config.addresses {
        let family = if prefix.addr().is_ipv4() { "IPv4 address" } else { "IPv6 address" };
        address::add(index, *prefix).map_err(failed(family))?;
    }
    Ok(())
}
