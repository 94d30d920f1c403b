//! The caller's memory: addresses, buffers, messages and events behind raw pointers.
//!
//! Every function here trusts its pointers as the kernel's calls would; `abi.rs` alone uses them. What the kernel refuses
//! (a null pointer, a length that is too short) is refused with the same number.

use core::ffi::{c_int, c_void};
use core::{mem, slice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{epoll_event, iovec, msghdr, pollfd, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::calls::{Address, PollEntry};
use crate::errno::{Sys, fail};

/// The length of `sockaddr_in6` before it had a scope (`SIN6_LEN_RFC2133`).
const OLD_IN6_LEN: usize = 24;
/// The most vectors that a call takes (`UIO_MAXIOV`).
const VECTORS_MAX: usize = 1024;

/// The bytes at `pointer`.
///
/// # Safety
/// `len` bytes at `pointer` can be read, unless `len` is zero or the pointer null.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Sys<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null, and the caller says that it can be read.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), len) })
}

/// Copies `from` to `pointer`, which may be null if there is nothing to copy.
///
/// # Safety
/// `from.len()` bytes at `pointer` can be written.
pub(crate) unsafe fn put(pointer: *mut c_void, from: &[u8]) -> Sys<()> {
    if from.is_empty() {
        return Ok(());
    }
    if pointer.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null, and the caller says that it can be written; `from` is Rust's and cannot overlap it.
    unsafe { pointer.cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    Ok(())
}

/// Reads a `struct sockaddr`.
///
/// # Safety
/// `len` bytes at `pointer` can be read.
pub(crate) unsafe fn address(pointer: *const sockaddr, len: socklen_t) -> Sys<Address> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { self::bytes(pointer.cast(), len as usize) }?;
    let Some(family) = bytes.get(..2) else { return fail(libc::EINVAL) };
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(u16::from_ne_bytes([family[0], family[1]])) {
        libc::AF_UNSPEC => Ok(Address::None),
        libc::AF_INET if bytes.len() >= mem::size_of::<sockaddr_in>() => {
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Ok(Address::Some(SocketAddr::new(ip.into(), port(bytes))))
        }
        libc::AF_INET6 if bytes.len() >= OLD_IN6_LEN => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[8..24]);
            Ok(Address::Some(SocketAddr::new(Ipv6Addr::from(octets).into(), port(bytes))))
        }
        libc::AF_INET | libc::AF_INET6 => fail(libc::EINVAL),
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// An address as the kernel lays it out.
fn address_bytes(address: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(mem::size_of::<sockaddr_in6>());
    let mut begin = |family: i32, port: u16| {
        out.extend((family as u16).to_ne_bytes());
        out.extend(port.to_be_bytes());
    };
    match address {
        SocketAddr::V4(v4) => {
            begin(libc::AF_INET, v4.port());
            put_v4(&mut out, v4);
        }
        SocketAddr::V6(v6) => {
            begin(libc::AF_INET6, v6.port());
            put_v6(&mut out, v6);
        }
    }
    out
}

fn put_v4(out: &mut Vec<u8>, address: SocketAddrV4) {
    out.extend(address.ip().octets());
    out.resize(mem::size_of::<sockaddr_in>(), 0);
}

fn put_v6(out: &mut Vec<u8>, address: SocketAddrV6) {
    out.extend([0; 4]);
    out.extend(address.ip().octets());
    out.resize(mem::size_of::<sockaddr_in6>(), 0);
}

/// Writes an address, cut to the room that `len` says, and its full length to `len`. No address has length zero.
///
/// # Safety
/// `pointer` is null, or `len` points to a length and `pointer` to as many bytes.
pub(crate) unsafe fn put_address(
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    address: Option<SocketAddr>,
) -> Sys<()> {
    if pointer.is_null() {
        return Ok(());
    }
    if len.is_null() {
        return fail(libc::EFAULT);
    }
    let bytes = address.map(address_bytes).unwrap_or_default();
    // SAFETY: not null, and the caller says that it points to a length.
    let room = unsafe { len.read() } as usize;
    // SAFETY: no more than the room that the caller named.
    unsafe { put(pointer.cast(), &bytes[..bytes.len().min(room)]) }?;
    // SAFETY: as above.
    unsafe { len.write(bytes.len() as socklen_t) };
    Ok(())
}

/// The vectors of a call.
///
/// # Safety
/// `count` vectors at `pointer` can be read.
unsafe fn vectors<'a>(pointer: *const iovec, count: usize) -> Sys<&'a [iovec]> {
    if count > VECTORS_MAX {
        return fail(libc::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not null, and the caller says that they can be read.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// What the vectors hold, in one piece.
///
/// # Safety
/// `count` vectors at `pointer` can be read, and what they name.
pub(crate) unsafe fn gather(pointer: *const iovec, count: usize) -> Sys<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise.
    for vector in unsafe { vectors(pointer, count) }? {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { bytes(vector.iov_base, vector.iov_len) }?);
    }
    Ok(all)
}

/// How much room the vectors have.
///
/// # Safety
/// `count` vectors at `pointer` can be read.
pub(crate) unsafe fn room(pointer: *const iovec, count: usize) -> Sys<usize> {
    // SAFETY: the caller's promise.
    Ok(unsafe { vectors(pointer, count) }?.iter().map(|vector| vector.iov_len).sum())
}

/// Spreads `from` over the vectors.
///
/// # Safety
/// `count` vectors at `pointer` can be read, and what they name can be written.
pub(crate) unsafe fn scatter(pointer: *const iovec, count: usize, from: &[u8]) -> Sys<()> {
    let mut rest = from;
    // SAFETY: the caller's promise.
    for vector in unsafe { vectors(pointer, count) }? {
        let (now, later) = rest.split_at(rest.len().min(vector.iov_len));
        // SAFETY: the caller's promise; no more than the vector's length.
        unsafe { put(vector.iov_base, now) }?;
        rest = later;
    }
    Ok(())
}

/// The message header of a call.
///
/// # Safety
/// `pointer` is null or points to a message header that nobody else uses meanwhile.
pub(crate) unsafe fn message<'a>(pointer: *mut msghdr) -> Sys<&'a mut msghdr> {
    // SAFETY: null is refused, and the rest is the caller's promise.
    unsafe { pointer.as_mut() }.map_or(fail(libc::EFAULT), Ok)
}

/// The entries of poll(2).
///
/// # Safety
/// `count` entries at `pointer` can be read.
pub(crate) unsafe fn poll_entries(pointer: *const pollfd, count: usize) -> Sys<Vec<PollEntry>> {
    // SAFETY: as many bytes as that many entries have.
    unsafe { bytes(pointer.cast(), count * mem::size_of::<pollfd>()) }?;
    let entry = |n| {
        // SAFETY: the caller says that there are `count` of them.
        let pollfd { fd, events, .. } = unsafe { pointer.add(n).read() };
        PollEntry { fd, events, revents: 0 }
    };
    Ok((0..count).map(entry).collect())
}

/// Writes what poll(2) found.
///
/// # Safety
/// The entries were read from `pointer`, and can be written.
pub(crate) unsafe fn put_poll_entries(pointer: *mut pollfd, entries: &[PollEntry]) {
    for (n, entry) in entries.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { (*pointer.add(n)).revents = entry.revents };
    }
}

/// The event of epoll_ctl(2).
///
/// # Safety
/// `pointer` is null or points to an event.
pub(crate) unsafe fn event(pointer: *const epoll_event) -> Option<(u32, u64)> {
    // SAFETY: not null, and the caller says that it points to an event; the structure is packed, so it is copied.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() }).map(|event| (event.events, event.u64))
}

/// Writes what epoll_wait(2) found.
///
/// # Safety
/// As many events at `pointer` can be written.
pub(crate) unsafe fn put_events(pointer: *mut epoll_event, events: &[(u32, u64)]) -> Sys<c_int> {
    if pointer.is_null() {
        return fail(libc::EFAULT);
    }
    for (n, &(events, data)) in events.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { pointer.add(n).write_unaligned(epoll_event { events, u64: data }) };
    }
    Ok(events.len() as c_int)
}
