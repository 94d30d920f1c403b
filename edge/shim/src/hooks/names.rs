//! Who is at each end of a socket, and which addresses this host has.

use core::ffi::c_int;
use core::ptr::null_mut;

use libc::{ifaddrs, sockaddr, socklen_t};
use rustix::io::Errno;

use crate::interfaces::{ADDRESS_BYTES, Entry, NAME_BYTES};
use crate::real::hooks;
use crate::{address, buffers, interfaces, session, socket};

hooks! {
    /// The socket's own address.
    fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address and its length.
        socket::at(fd).map(|s| unsafe { address::write(&s.local()?, name, len) }.map(|()| 0));

    /// The peer's address.
    fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's promise about the address and its length.
        socket::at(fd).map(|s| unsafe { address::write(&s.peer()?, name, len) }.map(|()| 0));

    /// The interfaces of the program's netstack. `freeifaddrs` is libc's, which frees what is given here.
    fn getifaddrs(list: *mut *mut ifaddrs) -> c_int = session::is_wanted().then(|| {
        buffers::check(list.cast(), size_of::<*mut ifaddrs>())?;
        let made = listed(&interfaces::entries()?)?;
        // SAFETY: the caller's promise about the pointer.
        unsafe { list.write_unaligned(made) };
        Ok(0)
    });
}

/// An entry with what it points to.
#[repr(C)]
struct Room {
    entry: ifaddrs,
    name: [u8; NAME_BYTES],
    /// Its address, mask and broadcast address.
    addresses: [Place; 3],
}

/// Room for an address.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Place([u8; ADDRESS_BYTES]);

/// Entries as a list in one piece of the program's own memory, which begins with the first: `free` of that frees all.
fn listed(entries: &[Entry]) -> Result<*mut ifaddrs, Errno> {
    if entries.is_empty() {
        return Ok(null_mut());
    }
    // SAFETY: a new piece of memory.
    let rooms: *mut Room = unsafe { libc::calloc(entries.len(), size_of::<Room>()) }.cast();
    if rooms.is_null() {
        return Err(Errno::NOMEM);
    }
    for (index, entry) in entries.iter().enumerate() {
        // SAFETY: the piece has as many rooms as there are entries, aligned as `calloc` aligns and all zeros, which is a
        // room; nobody else has it yet.
        let room = unsafe { &mut *rooms.add(index) };
        room.name = entry.name;
        let [address, mask, broadcast] = &mut room.addresses;
        address.0 = entry.address;
        room.entry.ifa_name = room.name.as_mut_ptr().cast();
        room.entry.ifa_flags = entry.flags.cast_unsigned();
        room.entry.ifa_addr = address.0.as_mut_ptr().cast();
        for (given, place, pointer) in [
            (&entry.mask, mask, &mut room.entry.ifa_netmask),
            (&entry.broadcast, broadcast, &mut room.entry.ifa_ifu),
        ] {
            if let Some(bytes) = given {
                place.0 = *bytes;
                *pointer = place.0.as_mut_ptr().cast();
            }
        }
        if index + 1 < entries.len() {
            // SAFETY: the next room is in the piece, and begins with its entry.
            room.entry.ifa_next = unsafe { rooms.add(index + 1) }.cast();
        }
    }
    Ok(rooms.cast())
}
