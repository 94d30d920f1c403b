//! Who is at each end of a socket, which addresses this host has, and of which families names are asked for.

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::ptr::null_mut;

use libc::{IF_NAMESIZE, addrinfo, if_nameindex as if_nameindex_entry, ifaddrs, sockaddr, socklen_t};
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
        buffers::check_mut(list.cast(), size_of::<*mut ifaddrs>())?;
        let made = listed(&interfaces::entries()?)?;
        // SAFETY: the caller's promise about the pointer.
        unsafe { list.write_unaligned(made) };
        Ok(0)
    });

    /// The number of an interface. What the netstack has not is the kernel's.
    fn if_nametoindex(name: *const c_char) -> c_uint = session::is_wanted().then_some(()).and_then(|()| {
        buffers::check(name.cast(), 1).ok()?;
        // SAFETY: the caller's promise: it is a string.
        interfaces::index_of(unsafe { CStr::from_ptr(name) }.to_bytes()).map(Ok)
    });

    /// The name that belongs to a number, in room for IF_NAMESIZE bytes.
    fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char =
        session::is_wanted().then_some(()).and_then(|()| interfaces::name_of(index)).map(|known| {
            // SAFETY: the caller's promise about the room.
            unsafe { buffers::bytes_mut(name.cast(), IF_NAMESIZE) }?.copy_from_slice(&known[..IF_NAMESIZE]);
            Ok(name)
        });

    /// All of them. `if_freenameindex` is libc's, which frees each name and the list.
    fn if_nameindex() -> *mut if_nameindex_entry =
        session::is_wanted().then(|| named(&interfaces::names()?));

    /// Libc resolves names, and AI_ADDRCONFIG is about the families that the program's netstack has addresses of.
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, list: *mut *mut addrinfo) -> c_int =
        with_families(hints).map(|asked| match asked {
            // SAFETY: the caller's promise about the names and the list, and the hints live through the call.
            Some(hints) => Ok(unsafe { next::getaddrinfo(node, service, &raw const hints, list) }),
            None => Ok(libc::EAI_NONAME),
        });
}

/// Numbers and names as a list of the program's own memory, which ends with zeros.
fn named(known: &[(u32, [u8; NAME_BYTES])]) -> Result<*mut if_nameindex_entry, Errno> {
    // SAFETY: a new piece of memory.
    let list: *mut if_nameindex_entry =
        unsafe { libc::calloc(known.len() + 1, size_of::<if_nameindex_entry>()) }.cast();
    if list.is_null() {
        return Err(Errno::NOBUFS);
    }
    for (nth, (index, name)) in known.iter().enumerate() {
        // SAFETY: the name ends with a zero, and the list has a place for each.
        unsafe {
            *list.add(nth) =
                if_nameindex_entry { if_index: *index, if_name: libc::strdup(name.as_ptr().cast()) }
        };
    }
    Ok(list)
}

/// What getaddrinfo(3) is asked, without AI_ADDRCONFIG: of the families that the netstack has instead, as libc does it by the kernel's
/// addresses. The inner `None` if there is no such address; `None` if the flag is not set, or there is no netstack.
#[expect(
    clippy::option_option,
    reason = "whether it is answered here, and with which question it goes on, are two things"
)]
fn with_families(hints: *const addrinfo) -> Option<Option<addrinfo>> {
    let mut asked = if hints.is_null() {
        // SAFETY: zeros are hints: any kind of socket, of any family.
        let any: addrinfo = unsafe { core::mem::zeroed() };
        addrinfo { ai_flags: libc::AI_V4MAPPED | libc::AI_ADDRCONFIG, ..any }
    } else {
        buffers::check(hints.cast_mut().cast(), size_of::<addrinfo>()).ok()?;
        // SAFETY: it was just looked at; and the caller's promise.
        unsafe { hints.read_unaligned() }
    };
    if asked.ai_flags & libc::AI_ADDRCONFIG == 0 || !session::is_wanted() {
        return None;
    }
    let (has_v4, has_v6) = interfaces::families().ok()?;
    asked.ai_flags &= !libc::AI_ADDRCONFIG;
    match (asked.ai_family, has_v4, has_v6) {
        (libc::AF_INET, false, _) | (libc::AF_INET6, _, false) => return Some(None),
        (libc::AF_UNSPEC, true, false) => asked.ai_family = libc::AF_INET,
        (libc::AF_UNSPEC, false, true) => asked.ai_family = libc::AF_INET6,
        _ => {}
    }
    Some(Some(asked))
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
