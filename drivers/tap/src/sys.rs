//! The ioctls of `/dev/net/tun` and of network interfaces, and a BPF map in our memory. The only unsafe code of this driver.
//!
//! Called by `open.rs` and `door.rs`. Every function wraps one system call, checks its result and returns the
//! error with the call's name; none keeps a pointer. Layouts: `linux/if_tun.h`, `linux/if.h`,
//! `linux/bpf.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use firelane_units::{MacAddr, Mtu};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNGETIFF: libc::Ioctl = 0x8004_54d2;
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8;
const TUNSETSTEERINGEBPF: libc::Ioctl = 0x8004_54e0;
const TUNSETFILTEREBPF: libc::Ioctl = 0x8004_54e1;

/// `IFF_TUN_EXCL`: no TAP that is there already.
const IFF_TUN_EXCL: libc::c_int = 0x8000;

/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN`.
pub(crate) const OFFLOAD_TCP: libc::c_ulong = 0x0f;
/// `TUN_F_USO4 | TUN_F_USO6` (Linux 6.2 and later).
pub(crate) const OFFLOAD_UDP: libc::c_ulong = 0x60;

/// An interface's name as the kernel takes it: at most 15 bytes.
#[derive(Clone, Copy)]
pub(crate) struct IfName([libc::c_char; libc::IFNAMSIZ]);

impl IfName {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let fits = !name.is_empty() && name.len() < libc::IFNAMSIZ;
        let plain = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':' && b != b'%');
        if !fits || !plain || name == "." || name == ".." {
            return None;
        }
        let mut chars = [0; libc::IFNAMSIZ];
        for (to, from) in chars.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        Some(Self(chars))
    }

    /// The same as text; the kernel has names that are none.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().map(|it| it.cast_unsigned()).take_while(|&it| it != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn request(name: IfName) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name.0;
    request
}

/// Runs an ioctl whose argument is a pointer to `argument`.
fn ioctl<T>(fd: BorrowedFd<'_>, code: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: every `code` used in this file takes a pointer to the type that its caller passes, and the
    // kernel keeps no pointer after the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whose TAP a queue is to be of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// A new one, which is made.
    New,
    /// The one of this name, which is ours.
    Ours,
}

/// Opens a queue of the TAP `name`, one of several. Without being told that it shall be new, the kernel makes us one more user of a
/// TAP that somebody has or keeps.
pub(crate) fn open_queue(name: IfName, of: Of) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let exclusive = if of == Of::New { IFF_TUN_EXCL } else { 0 };
    let wanted = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE | exclusive;
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_flags = wanted as libc::c_short;
    ioctl(fd.as_fd(), TUNSETIFF, &mut ifreq)?;
    let mut header_bytes = firelane_frame::virtio::HEADER_BYTES as libc::c_int;
    ioctl(fd.as_fd(), TUNSETVNETHDRSZ, &mut header_bytes)?;
    Ok(fd)
}

/// The name that the interface of a queue has now.
pub(crate) fn name_of(queue: BorrowedFd<'_>) -> io::Result<IfName> {
    let mut ifreq = request(IfName([0; libc::IFNAMSIZ]));
    ioctl(queue, TUNGETIFF, &mut ifreq)?;
    Ok(IfName(ifreq.ifr_name))
}

/// The network namespace in which the interface of a queue is now.
pub(crate) fn namespace_of(queue: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: TUNGETDEVNETNS takes no argument and answers with a new descriptor (close-on-exec) that nobody else owns.
    unsafe {
        let raw = libc::ioctl(queue.as_raw_fd(), TUNGETDEVNETNS);
        if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(raw)) }
    }
}

/// Tells the kernel which offloads this side takes; false if it does not know one of them.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, flags: libc::c_ulong) -> bool {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, flags) == 0 }
}

/// A socket to send interface ioctls through.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn set_mac(socket: BorrowedFd<'_>, name: IfName, mac: MacAddr) -> io::Result<()> {
    let mut ifreq = request(name);
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (to, from) in address.sa_data.iter_mut().zip(mac.0) {
        *to = from.cast_signed();
    }
    ifreq.ifr_ifru.ifru_hwaddr = address;
    ioctl(socket, libc::SIOCSIFHWADDR, &mut ifreq)
}

pub(crate) fn set_mtu(socket: BorrowedFd<'_>, name: IfName, mtu: Mtu) -> io::Result<()> {
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_mtu = mtu.bytes().into();
    ioctl(socket, libc::SIOCSIFMTU, &mut ifreq)
}

pub(crate) fn set_up(socket: BorrowedFd<'_>, name: IfName) -> io::Result<()> {
    let mut ifreq = request(name);
    ioctl(socket, libc::SIOCGIFFLAGS, &mut ifreq)?;
    // SAFETY: SIOCGIFFLAGS has just filled `ifru_flags`.
    let flags = unsafe { ifreq.ifr_ifru.ifru_flags };
    ifreq.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    ioctl(socket, libc::SIOCSIFFLAGS, &mut ifreq)
}

/// Words of `struct ethtool_cmd`.
const ETHTOOL_CMD_WORDS: usize = 11;
const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_SSET: u32 = 2;

/// Sets the speed that an interface says it has.
pub(crate) fn set_speed(socket: BorrowedFd<'_>, name: IfName, mbps: u32) -> io::Result<()> {
    let mut command = [0_u32; ETHTOOL_CMD_WORDS];
    command[0] = ETHTOOL_GSET;
    ethtool(socket, name, &mut command)?;
    command[0] = ETHTOOL_SSET;
    let [[low_a, low_b], [high_a, high_b]] = [mbps as u16, (mbps >> 16) as u16].map(u16::to_ne_bytes);
    let [_, _, duplex, port] = command[3].to_ne_bytes();
    command[3] = u32::from_ne_bytes([low_a, low_b, duplex, port]);
    let [_, _, crossover, control] = command[7].to_ne_bytes();
    command[7] = u32::from_ne_bytes([high_a, high_b, crossover, control]);
    ethtool(socket, name, &mut command)
}

fn ethtool(socket: BorrowedFd<'_>, name: IfName, command: &mut [u32; ETHTOOL_CMD_WORDS]) -> io::Result<()> {
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SIOCETHTOOL reads and writes the command as well, which is as long as it says and outlives the call.
    ioctl(socket, libc::SIOCETHTOOL, &mut ifreq)
}

/// The first 64 bytes of `union bpf_attr`.
type Attributes = [u64; 8];

/// bpf(2) for commands that answer with a descriptor.
fn bpf(command: libc::c_int, attributes: &Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the attributes, as long as is said, and what they point to, which outlives the call. It
    // answers with a new descriptor (close-on-exec) that nobody else owns.
    unsafe {
        let raw = libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of::<Attributes>());
        if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(raw as RawFd)) }
    }
}

/// Two words of attributes in one, in the order in which they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// A map with one value of so many bytes, which [`Table::of`] can map.
pub(crate) fn table_map(bytes: usize) -> io::Result<OwnedFd> {
    const MAP_CREATE: libc::c_int = 0;
    const TYPE_ARRAY: u32 = 2;
    const MMAPABLE: u32 = 1 << 10;
    // Type, bytes of a key; bytes of a value, entries; flags.
    bpf(MAP_CREATE, &[pair(TYPE_ARRAY, 4), pair(bytes as u32, 1), pair(MMAPABLE, 0), 0, 0, 0, 0, 0])
}

/// Loads a program that looks at frames.
pub(crate) fn load_program(code: &[u64]) -> io::Result<OwnedFd> {
    const PROG_LOAD: libc::c_int = 5;
    const TYPE_SOCKET_FILTER: u32 = 1;
    let license = c"Apache-2.0";
    // Type, instructions, where they are, licence.
    let what = pair(TYPE_SOCKET_FILTER, code.len() as u32);
    bpf(PROG_LOAD, &[what, code.as_ptr() as u64, license.as_ptr() as u64, 0, 0, 0, 0, 0])
}

/// Lets a program look at each frame that the kernel sends by the TAP of this queue. The TAP keeps it.
pub(crate) fn set_filter(queue: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut descriptor: libc::c_int = program.as_raw_fd();
    ioctl(queue, TUNSETFILTEREBPF, &mut descriptor)
}

/// Lets a program choose the queue of each frame that the kernel sends by the TAP of this queue; without one, the kernel
/// chooses. The TAP keeps it.
pub(crate) fn set_steering(queue: BorrowedFd<'_>, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut descriptor: libc::c_int = program.map_or(-1, |it| it.as_raw_fd());
    ioctl(queue, TUNSETSTEERINGEBPF, &mut descriptor)
}

/// A map's value in this process' memory.
#[derive(Debug)]
pub(crate) struct Table {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is reached through atomics only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// Maps the value of a map of [`table_map`], of so many bytes.
    pub(crate) fn of(map: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, map, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, words: bytes / size_of::<AtomicU64>() })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, that long, and lives as long as this; everybody uses it as atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the mapping of `Table::of`, which nobody uses any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["alice0", "a", "fifteen-chars-1"] {
            assert!(IfName::new(good).is_some(), "{good}");
        }
        for bad in ["", "sixteen-chars-12", "a/b", "a b", "..", "a%d", "a:1"] {
            assert!(IfName::new(bad).is_none(), "{bad}");
        }
    }
}
