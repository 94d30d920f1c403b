//! Addresses as programs give and want them (`struct sockaddr`).
//!
//! The checks are Linux's, in its order: a length that cannot be, then one too short for the family, then the family.

use core::ffi::c_void;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use rustix::io::Errno;

use crate::buffers;

const V4_BYTES: usize = size_of::<sockaddr_in>();
const V6_BYTES: usize = size_of::<sockaddr_in6>();
/// What is needed of an IPv6 address: the scope may be missing (RFC 2133 had none), as Linux allows.
const V6_BYTES_MIN: usize = 24;

/// What a program gave as an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    /// Family AF_UNSPEC: `connect` with it dissolves an association. What it is as an address of IPv4, which it once stood for, if it is
    /// as long.
    Unspecified(Option<SocketAddrV4>),
    Address(SocketAddr),
    /// Of a family that is not the internet's.
    Other(sa_family_t),
    /// Too short for its family.
    Short,
}

/// Copies the address at `address` and reads it.
///
/// # Safety
/// It is readable, or among what [`buffers::check`] refuses.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t) -> Result<Given, Errno> {
    if len as usize > size_of::<sockaddr_storage>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    Ok(parse(unsafe { buffers::bytes(address.cast(), len as usize) }?))
}

/// The same, where one without a family is refused whatever state the socket is in.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn read_with_family(address: *const sockaddr, len: socklen_t) -> Result<Given, Errno> {
    // SAFETY: the caller's promise.
    let given = unsafe { read(address, len) }?;
    if (len as usize) < size_of::<sa_family_t>() { Err(Errno::INVAL) } else { Ok(given) }
}

fn parse(bytes: &[u8]) -> Given {
    let Some((family, _)) = bytes.split_first_chunk() else { return Given::Short };
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    let v4 = |bytes: &[u8]| {
        let bytes = bytes.first_chunk::<V4_BYTES>()?;
        Some(SocketAddrV4::new(Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]), port(bytes)))
    };
    match i32::from(sa_family_t::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Given::Unspecified(v4(bytes)),
        libc::AF_INET => v4(bytes).map_or(Given::Short, |address| Given::Address(address.into())),
        libc::AF_INET6 => {
            let Some(head) = bytes.first_chunk::<V6_BYTES_MIN>() else { return Given::Short };
            let ip = head[8..].first_chunk::<16>().map_or(Ipv6Addr::UNSPECIFIED, |&ip| ip.into());
            let flow = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            let scope = bytes[V6_BYTES_MIN..].first_chunk().map_or(0, |&scope| u32::from_ne_bytes(scope));
            Given::Address(SocketAddrV6::new(ip, port(head), flow, scope).into())
        }
        other => Given::Other(other as sa_family_t),
    }
}

/// An address in the form in which programs get it.
pub(crate) struct Shown {
    bytes: [u8; V6_BYTES],
    len: usize,
}

impl Shown {
    /// What a stream shows of who has sent what is read.
    pub(crate) const NONE: Self = Self { bytes: [0; V6_BYTES], len: 0 };

    /// `address` as a socket of family IPv6 (`is_v6`) or IPv4 shows it.
    pub(crate) fn new(address: SocketAddr, is_v6: bool) -> Self {
        let mut bytes = [0; V6_BYTES];
        let (family, len) = if is_v6 { (libc::AF_INET6, V6_BYTES) } else { (libc::AF_INET, V4_BYTES) };
        bytes[..2].copy_from_slice(&(family as sa_family_t).to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) if is_v6 => bytes[8..24].copy_from_slice(&v4.ip().to_ipv6_mapped().octets()),
            SocketAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => {
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        Self { bytes, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Gives `shown` to the program: as much as has room, and how long it is.
///
/// # Safety
/// `len` is valid or refused by [`buffers::check`], and so are as many bytes at `address` as it says.
pub(crate) unsafe fn write(shown: &Shown, address: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    buffers::check_mut(len.cast(), size_of::<socklen_t>())?;
    // SAFETY: the caller's promise.
    let room = unsafe { len.read_unaligned() };
    let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
    let bytes = shown.bytes();
    let shown_bytes = &bytes[..room.min(bytes.len())];
    // SAFETY: checked above.
    unsafe { len.write_unaligned(bytes.len() as socklen_t) };
    // SAFETY: the caller's promise.
    let place = unsafe { buffers::bytes_mut(address.cast::<c_void>(), shown_bytes.len()) }?;
    place.copy_from_slice(shown_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_back() {
        for (text, is_v6) in [("10.1.2.3:80", false), ("[2001:db8::7]:443", true), ("[fe80::1%4]:1", true)] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(parse(Shown::new(address, is_v6).bytes()), Given::Address(address), "{text}");
        }
    }

    #[test]
    fn a_v6_socket_shows_v4_peers_mapped() {
        let shown = Shown::new("10.1.2.3:80".parse().unwrap(), true);
        assert_eq!(parse(shown.bytes()), Given::Address("[::ffff:10.1.2.3]:80".parse().unwrap()));
    }

    #[test]
    fn short_addresses_are_refused_as_linux_refuses_them() {
        let v4 = Shown::new("1.2.3.4:5".parse().unwrap(), false);
        let v6 = Shown::new("[::1]:5".parse().unwrap(), true);
        assert_eq!(parse(&v4.bytes()[..15]), Given::Short);
        assert_eq!(parse(&v6.bytes()[..23]), Given::Short);
        assert!(matches!(parse(&v6.bytes()[..24]), Given::Address(_)), "without a scope");
        assert_eq!(parse(&[]), Given::Short);
        assert_eq!(parse(&[1, 0]), Given::Other(1));
    }
}
