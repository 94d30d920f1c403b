//! libc's socket calls, one each: a preloaded library stands in front of those, and of nothing else.
//!
//! Called by `fused/conn.rs`, which measures single calls that std makes several of at a time.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

fn word(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

const LEN: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

fn done(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(answer: RawFd) -> io::Result<OwnedFd> {
    done(answer)?;
    // SAFETY: the call has just made the descriptor for its caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}

/// `socket` for a stream over IPv4.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers alone.
    owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) })
}

/// `bind`.
pub(crate) fn bind(socket: &OwnedFd, address: SocketAddrV4) -> io::Result<()> {
    let address = word(address);
    // SAFETY: the address lives through the call, and is as long as is said.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), LEN) })
}

/// `connect`.
pub(crate) fn connect(socket: &OwnedFd, address: SocketAddrV4) -> io::Result<()> {
    let address = word(address);
    // SAFETY: as in `bind`.
    done(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), LEN) })
}

/// `listen`.
pub(crate) fn listen(socket: &OwnedFd, backlog: libc::c_int) -> io::Result<()> {
    // SAFETY: it takes numbers alone.
    done(unsafe { libc::listen(socket.as_raw_fd(), backlog) })
}

/// `accept`, without the peer's name.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let nowhere = std::ptr::null_mut();
    // SAFETY: it takes null for who does not want the name.
    owned(unsafe { libc::accept(listener.as_raw_fd(), nowhere, nowhere.cast()) })
}

/// `getsockname`.
pub(crate) fn name(socket: &OwnedFd) -> io::Result<SocketAddrV4> {
    let (mut name, mut len) = (word(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)), LEN);
    // SAFETY: name and length live through the call, and the length is the name's.
    done(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut len) })?;
    let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
    Ok(SocketAddrV4::new(address, u16::from_be(name.sin_port)))
}

/// `send` of one byte.
pub(crate) fn send(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: the byte lives through the call.
    done(unsafe { libc::send(socket.as_raw_fd(), (&raw const BYTE).cast(), 1, 0) } as libc::c_int)
}

static BYTE: u8 = b'x';

/// `recv` of one byte.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<()> {
    let mut byte = 0_u8;
    // SAFETY: there is room for one byte, which lives through the call.
    done(unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, 0) } as libc::c_int)
}
