//! Who is at each end of a socket, which addresses this host has, of which families names are asked for, and which interface stands behind
//! an address of one link that is a text (RFC 4007 §11).

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::net::Ipv6Addr;
use core::ptr::null_mut;
use std::ffi::CString;

use libc::{
    IF_NAMESIZE, addrinfo, if_nameindex as if_nameindex_entry, ifaddrs, sockaddr, sockaddr_in6, socklen_t,
};
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

    /// Libc resolves names, and AI_ADDRCONFIG is about the families that the program's netstack has addresses of, as the name behind an
    /// address of one link is its interface's.
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, list: *mut *mut addrinfo) -> c_int = {
        let numbered = with_number(node);
        match (with_families(hints, numbered.is_some()), &numbered) {
            (None, None) => None,
            (Some(None), _) => Some(Ok(libc::EAI_NONAME)),
            (asked, _) => {
                let asked = asked.flatten();
                let hints = asked.as_ref().map_or(hints, |asked| &raw const *asked);
                let given = numbered.as_ref().map_or(node, |it| it.as_ptr());
                // SAFETY: the caller's promise about the names and the list, and what is ours lives through the call.
                let told = unsafe { next::getaddrinfo(given, service, hints, list) };
                if told == 0 && numbered.is_some() {
                    // SAFETY: libc has made a list, and the node is a string.
                    unsafe { name_as_asked(*list, node) };
                }
                Some(Ok(told))
            }
        }
    };

    /// Libc's; an address of one link has the name of the netstack's interface behind it.
    fn getnameinfo(
        name: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t, service: *mut c_char,
        service_len: socklen_t, flags: c_int,
    ) -> c_int = link_of(name, len).filter(|_| !host.is_null() && host_len > 0).map(|link| {
        let mut room = [0_u8; HOST_BYTES];
        // SAFETY: the caller's promise about the address and the service, and there is as much room as is told.
        let told = unsafe {
            next::getnameinfo(name, len, room.as_mut_ptr().cast(), HOST_BYTES as socklen_t, service, service_len, flags)
        };
        if told != 0 {
            return Ok(told);
        }
        // SAFETY: the caller's promise about the room.
        let host = unsafe { buffers::bytes_mut(host.cast(), host_len as usize) }?;
        Ok(if show_link(&room, &link, host) { 0 } else { libc::EAI_OVERFLOW })
    });
}

/// As long as a name of a host may be with its zero (NI_MAXHOST).
const HOST_BYTES: usize = 1025;

/// How far an address leads that has an interface beside it. Libc takes the name of an interface behind
/// either, and tells it behind one of a link.
fn reach(ip: Ipv6Addr) -> Option<Reach> {
    let [first, second, ..] = ip.octets();
    match (first, second & 0xf) {
        (0xff, 1) => Some(Reach::Interface),
        (0xff, 2) => Some(Reach::Link),
        _ => ip.is_unicast_link_local().then_some(Reach::Link),
    }
}

/// How far an address leads (RFC 4007 §4).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Interface,
    Link,
}

/// An address of one link with the netstack's number of its interface in place of the name, by which libc would look among the kernel's.
fn with_number(node: *const c_char) -> Option<CString> {
    if node.is_null() || !session::is_wanted() {
        return None;
    }
    // SAFETY: the caller's promise: it is a string.
    let (address, name) = unsafe { CStr::from_ptr(node) }.to_str().ok()?.split_once('%')?;
    reach(address.parse().ok()?)?;
    let index = interfaces::index_of(name.as_bytes())?;
    CString::new(format!("{address}%{index}")).ok()
}

/// The canonical name (AI_CANONNAME) of an address is what was asked for.
///
/// # Safety
/// The list is libc's, and the node a string.
unsafe fn name_as_asked(list: *mut addrinfo, node: *const c_char) {
    // SAFETY: the caller's promise; libc frees the name with the list.
    unsafe {
        let canonical = &mut (*list).ai_canonname;
        if !canonical.is_null() {
            libc::free(canonical.cast::<c_void>());
            *canonical = libc::strdup(node);
        }
    }
}

/// The name of the netstack's interface behind an address of one link.
fn link_of(name: *const sockaddr, len: socklen_t) -> Option<[u8; NAME_BYTES]> {
    if !session::is_wanted() || (len as usize) < size_of::<sockaddr_in6>() {
        return None;
    }
    buffers::check(name.cast_mut().cast(), size_of::<sockaddr_in6>()).ok()?;
    // SAFETY: it was just looked at; and the caller's promise.
    let name = unsafe { name.cast::<sockaddr_in6>().read_unaligned() };
    let is_of_link = || name.sin6_scope_id != 0 && reach(name.sin6_addr.s6_addr.into()) == Some(Reach::Link);
    (c_int::from(name.sin6_family) == libc::AF_INET6 && is_of_link())
        .then(|| interfaces::name_of(name.sin6_scope_id))
        .flatten()
}

/// Writes the host that libc has told, with the name of its interface if it is an address. Whether there was room.
fn show_link(told: &[u8; HOST_BYTES], link: &[u8; NAME_BYTES], host: &mut [u8]) -> bool {
    let text = told.split(|&it| it == 0).next().unwrap_or_default();
    let link = link.split(|&it| it == 0).next().unwrap_or_default();
    let shown = match text.iter().position(|&it| it == b'%') {
        Some(at) => [&text[..=at], link, &[0]].concat(),
        None => [text, &[0]].concat(),
    };
    let place = host.get_mut(..shown.len());
    place.map(|place| place.copy_from_slice(&shown)).is_some()
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
/// addresses; an address that `is_given` is of its own. The inner `None` if there is no such address; `None` if the flag is not set, or there is no netstack.
#[expect(
    clippy::option_option,
    reason = "whether it is answered here, and with which question it goes on, are two things"
)]
fn with_families(hints: *const addrinfo, is_given: bool) -> Option<Option<addrinfo>> {
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
    let (has_v4, has_v6) = if is_given { (true, true) } else { interfaces::families().ok()? };
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
