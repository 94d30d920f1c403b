//! packetdrill's plug-in interface: the table of functions, and one entry point for each.
//!
//! The table is `void *userdata` and 32 functions in packetdrill's order, each of which gets `userdata` first. Failure is
//! -1 and errno, as of the system call of that name. A panic ends the process, as it must not cross into C.

#![allow(clippy::missing_safety_doc)] // Said once, for all of them, at `Interface`.

use core::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_ulong, c_void};
use core::time::Duration;
use std::sync::Arc;

use libc::{
    epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval, useconds_t,
};

use crate::errno::{Errno, Sys, fail};
use crate::host::{self, set_errno};
use crate::memory;
use crate::options::Options;
use crate::plugin::Plugin;
use crate::stream::Received;

/// Seconds since 1970 at which virtual time begins, so that times look like times.
const EPOCH: i64 = 1_000_000_000;

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// packetdrill's `struct packetdrill_interface`.
        ///
        /// Safety of every call: `userdata` is what the table holds, and pointers are valid as the system call of the same
        /// name demands.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Interface {
            /// The plug-in's own.
            pub userdata: *mut c_void,
            $($(#[$doc])* pub $name: unsafe extern "C" fn(*mut c_void $(, $argument: $type)*) $(-> $result)?,)*
        }

        impl Interface {
            fn new(userdata: *mut c_void) -> Self {
                Self { userdata, $($name: entry::$name,)* }
            }

            /// The functions' names in the table's order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

table! {
    /// Ends the plug-in.
    free();
    /// socket(2).
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    /// bind(2).
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    /// listen(2).
    listen(fd: c_int, backlog: c_int) -> c_int;
    /// accept(2).
    accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    /// connect(2).
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    /// read(2).
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    /// readv(2).
    readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    /// recv(2).
    recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    /// recvfrom(2).
    recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t) -> ssize_t;
    /// recvmsg(2).
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    /// write(2).
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    /// writev(2).
    writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    /// send(2).
    send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    /// sendto(2).
    sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t) -> ssize_t;
    /// sendmsg(2).
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    /// fcntl(2). Variadic in C: on Linux' calling conventions its one argument comes as a fixed one would.
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    /// ioctl(2), variadic as well.
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_int) -> c_int;
    /// close(2).
    close(fd: c_int) -> c_int;
    /// shutdown(2).
    shutdown(fd: c_int, how: c_int) -> c_int;
    /// getsockopt(2).
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    /// setsockopt(2).
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    /// poll(2).
    poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    /// A packet for the stack.
    netdev_send(buffer: *const c_void, count: size_t) -> c_int;
    /// The next packet of the stack; a count of zero is "none comes".
    netdev_receive(buffer: *mut c_void, count: *mut size_t, time_usecs: *mut c_longlong) -> c_int;
    /// usleep(3).
    usleep(span: useconds_t) -> c_int;
    /// gettimeofday(2).
    gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int;
    /// epoll_create(2).
    epoll_create(size: c_int) -> c_int;
    /// epoll_ctl(2).
    epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    /// epoll_wait(2).
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;
    /// pipe(2).
    pipe(ends: *mut c_int) -> c_int;
    /// splice(2).
    splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: size_t,
        flags: u32) -> c_int;
}

/// What packetdrill looks up in the library: makes a plug-in from `--so_flags` and fills the table.
///
/// Options that cannot be used end the process with a line that says which: packetdrill has no way to be told.
///
/// # Safety
/// `flags` is null or a C string; `interface` points to room for the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let text = match flags.is_null() {
        true => "".into(),
        // SAFETY: not null, and the caller says that it is a C string.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy(),
    };
    let options: Options = match text.parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("firelane: --so_flags: {error}");
            std::process::exit(2);
        }
    };
    let plugin = Arc::into_raw(Arc::new(Plugin::new(options)));
    // SAFETY: the caller says that there is room for the table.
    unsafe { interface.write(Interface::new(plugin.cast_mut().cast())) };
}

/// The plug-in behind `userdata`.
unsafe fn plugin<'a>(userdata: *mut c_void) -> &'a Plugin {
    // SAFETY: `userdata` is the pointer that `packetdrill_interface_init` made, and `free` was not called.
    unsafe { &*userdata.cast::<Plugin>() }
}

/// A call's result in C.
fn answer<T>(result: Sys<T>, value: impl FnOnce(T) -> i64) -> i64 {
    match result {
        Ok(result) => value(result),
        Err(Errno(number)) => {
            set_errno(number);
            -1
        }
    }
}

fn status(result: Sys<()>) -> c_int {
    answer(result, |()| 0) as c_int
}

fn number(result: Sys<c_int>) -> c_int {
    answer(result, i64::from) as c_int
}

fn count(result: Sys<usize>) -> ssize_t {
    answer(result, |count| count as i64) as ssize_t
}

/// The entry points, in the table's order.
mod entry {
    use super::*;

    pub(super) unsafe extern "C" fn free(userdata: *mut c_void) {
        // SAFETY: the pointer came from `Arc::into_raw`, and packetdrill frees once.
        let plugin = unsafe { Arc::from_raw(userdata.cast::<Plugin>()) };
        plugin.end();
    }

    pub(super) unsafe extern "C" fn socket(
        userdata: *mut c_void,
        domain: c_int,
        kind: c_int,
        protocol: c_int,
    ) -> c_int {
        // SAFETY: `Interface`.
        number(unsafe { plugin(userdata) }.socket(domain, kind, protocol))
    }

    pub(super) unsafe extern "C" fn bind(
        userdata: *mut c_void,
        fd: c_int,
        address: *const sockaddr,
        len: socklen_t,
    ) -> c_int {
        // SAFETY: `Interface`.
        let (plugin, address) = unsafe { (plugin(userdata), memory::address(address, len)) };
        status(address.and_then(|address| plugin.bind(fd, address)))
    }

    pub(super) unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
        // SAFETY: `Interface`.
        status(unsafe { plugin(userdata) }.listen(fd, backlog))
    }

    pub(super) unsafe extern "C" fn accept(
        userdata: *mut c_void,
        fd: c_int,
        address: *mut sockaddr,
        len: *mut socklen_t,
    ) -> c_int {
        // SAFETY: `Interface`.
        let accepted = unsafe { plugin(userdata) }.accept(fd);
        number(accepted.and_then(|(fd, remote)| {
            // SAFETY: `Interface`.
            unsafe { memory::put_address(address, len, Some(remote)) }?;
            Ok(fd)
        }))
    }

    pub(super) unsafe extern "C" fn connect(
        userdata: *mut c_void,
        fd: c_int,
        address: *const sockaddr,
        len: socklen_t,
    ) -> c_int {
        // SAFETY: `Interface`.
        let (plugin, address) = unsafe { (plugin(userdata), memory::address(address, len)) };
        status(address.and_then(|address| plugin.connect(fd, address)))
    }

    /// A read into one buffer; what was thrown away (MSG_TRUNC) needs no room.
    unsafe fn receive(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
    ) -> Sys<Received> {
        // SAFETY: `Interface`.
        let received = unsafe { plugin(userdata) }.read(fd, len, flags)?;
        // SAFETY: `Interface`; no more than `len` bytes were read.
        unsafe { memory::put(buffer, &received.bytes) }?;
        Ok(received)
    }

    pub(super) unsafe extern "C" fn read(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        count(unsafe { receive(userdata, fd, buffer, len, 0) }.map(|received| received.len))
    }

    pub(super) unsafe extern "C" fn readv(
        userdata: *mut c_void,
        fd: c_int,
        vectors: *const iovec,
        vector_count: c_int,
    ) -> ssize_t {
        let vector_count = vector_count as usize;
        let read = || {
            // SAFETY: `Interface`.
            let room = unsafe { memory::room(vectors, vector_count) }?;
            // SAFETY: `Interface`.
            let received = unsafe { plugin(userdata) }.read(fd, room, 0)?;
            // SAFETY: `Interface`.
            unsafe { memory::scatter(vectors, vector_count, &received.bytes) }?;
            Ok(received.len)
        };
        count(read())
    }

    pub(super) unsafe extern "C" fn recv(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        count(unsafe { receive(userdata, fd, buffer, len, flags) }.map(|received| received.len))
    }

    pub(super) unsafe extern "C" fn recvfrom(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        let received = unsafe { receive(userdata, fd, buffer, len, flags) };
        count(received.and_then(|received| {
            // SAFETY: `Interface`.
            unsafe { memory::put_address(from, from_len, received.from) }?;
            Ok(received.len)
        }))
    }

    pub(super) unsafe extern "C" fn recvmsg(
        userdata: *mut c_void,
        fd: c_int,
        message: *mut msghdr,
        flags: c_int,
    ) -> ssize_t {
        let read = || {
            // SAFETY: `Interface`.
            let message = unsafe { memory::message(message) }?;
            // SAFETY: `Interface`.
            let room = unsafe { memory::room(message.msg_iov, message.msg_iovlen) }?;
            // SAFETY: `Interface`.
            let received = unsafe { plugin(userdata) }.read(fd, room, flags)?;
            // SAFETY: `Interface`.
            unsafe { memory::scatter(message.msg_iov, message.msg_iovlen, &received.bytes) }?;
            // SAFETY: `Interface`.
            unsafe { memory::put_address(message.msg_name.cast(), &mut message.msg_namelen, received.from) }?;
            // No option asks for control messages.
            message.msg_controllen = 0;
            message.msg_flags = if received.is_cut { libc::MSG_TRUNC } else { 0 };
            Ok(received.len)
        };
        count(read())
    }

    pub(super) unsafe extern "C" fn write(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *const c_void,
        len: size_t,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        unsafe { send(userdata, fd, buffer, len, 0) }
    }

    pub(super) unsafe extern "C" fn writev(
        userdata: *mut c_void,
        fd: c_int,
        vectors: *const iovec,
        vector_count: c_int,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        let (plugin, bytes) = unsafe { (plugin(userdata), memory::gather(vectors, vector_count as usize)) };
        count(bytes.and_then(|bytes| plugin.write(fd, &bytes, 0, None)))
    }

    pub(super) unsafe extern "C" fn send(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *const c_void,
        len: size_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: `Interface`.
        let (plugin, bytes) = unsafe { (plugin(userdata), memory::bytes(buffer, len)) };
        count(bytes.and_then(|bytes| plugin.write(fd, bytes, flags, None)))
    }

    pub(super) unsafe extern "C" fn sendto(
        userdata: *mut c_void,
        fd: c_int,
        buffer: *const c_void,
        len: size_t,
        flags: c_int,
        to: *const sockaddr,
        to_len: socklen_t,
    ) -> ssize_t {
        let write = || {
            // SAFETY: `Interface`.
            let (plugin, bytes) = unsafe { (plugin(userdata), memory::bytes(buffer, len)?) };
            let to = match to.is_null() {
                true => None,
                // SAFETY: `Interface`.
                false => Some(unsafe { memory::address(to, to_len) }?),
            };
            plugin.write(fd, bytes, flags, to)
        };
        count(write())
    }

    pub(super) unsafe extern "C" fn sendmsg(
        userdata: *mut c_void,
        fd: c_int,
        message: *const msghdr,
        flags: c_int,
    ) -> ssize_t {
        let write = || {
            // SAFETY: `Interface`; the header is only read.
            let message = unsafe { memory::message(message.cast_mut()) }?;
            // SAFETY: `Interface`.
            let bytes = unsafe { memory::gather(message.msg_iov, message.msg_iovlen) }?;
            let to = match message.msg_name.is_null() {
                true => None,
                // SAFETY: `Interface`.
                false => Some(unsafe { memory::address(message.msg_name.cast(), message.msg_namelen) }?),
            };
            // SAFETY: `Interface`.
            unsafe { plugin(userdata) }.write(fd, &bytes, flags, to)
        };
        count(write())
    }

    pub(super) unsafe extern "C" fn fcntl(
        userdata: *mut c_void,
        fd: c_int,
        command: c_int,
        argument: c_long,
    ) -> c_int {
        // SAFETY: `Interface`.
        number(unsafe { plugin(userdata) }.fcntl(fd, command, argument))
    }

    pub(super) unsafe extern "C" fn ioctl(
        userdata: *mut c_void,
        fd: c_int,
        request: c_ulong,
        argument: *mut c_int,
    ) -> c_int {
        // SAFETY: `Interface`.
        let value = unsafe { plugin(userdata) }.ioctl(fd, request);
        // SAFETY: the requests that are known write one number.
        status(value.and_then(|value| unsafe { memory::put(argument.cast(), &value.to_ne_bytes()) }))
    }

    pub(super) unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
        // SAFETY: `Interface`.
        status(unsafe { plugin(userdata) }.close(fd))
    }

    pub(super) unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
        // SAFETY: `Interface`.
        status(unsafe { plugin(userdata) }.shutdown(fd, how))
    }

    pub(super) unsafe extern "C" fn getsockopt(
        userdata: *mut c_void,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int {
        let get = || {
            // SAFETY: `Interface`.
            let bytes = unsafe { plugin(userdata) }.get_option(fd, level, name)?;
            if len.is_null() {
                return fail(libc::EFAULT);
            }
            // SAFETY: not null, and `Interface`.
            let room = unsafe { len.read() };
            if i32::try_from(room).is_err() {
                return fail(libc::EINVAL);
            }
            let taken = bytes.len().min(room as usize);
            // SAFETY: `Interface`; no more than the caller has room for.
            unsafe { memory::put(value, &bytes[..taken]) }?;
            // SAFETY: as above.
            unsafe { len.write(taken as socklen_t) };
            Ok(())
        };
        status(get())
    }

    pub(super) unsafe extern "C" fn setsockopt(
        userdata: *mut c_void,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> c_int {
        // SAFETY: `Interface`.
        let (plugin, bytes) = unsafe { (plugin(userdata), memory::bytes(value, len as usize)) };
        status(bytes.and_then(|bytes| plugin.set_option(fd, level, name, bytes)))
    }

    pub(super) unsafe extern "C" fn poll(
        userdata: *mut c_void,
        entries: *mut pollfd,
        entry_count: nfds_t,
        timeout: c_int,
    ) -> c_int {
        let poll = || {
            // SAFETY: `Interface`.
            let mut list = unsafe { memory::poll_entries(entries, entry_count as usize) }?;
            // SAFETY: `Interface`.
            let ready = unsafe { plugin(userdata) }.poll(&mut list, timeout)?;
            // SAFETY: `Interface`; they were read from there.
            unsafe { memory::put_poll_entries(entries, &list) };
            Ok(ready as c_int)
        };
        number(poll())
    }

    pub(super) unsafe extern "C" fn netdev_send(
        userdata: *mut c_void,
        buffer: *const c_void,
        len: size_t,
    ) -> c_int {
        // SAFETY: `Interface`.
        let (plugin, packet) = unsafe { (plugin(userdata), memory::bytes(buffer, len)) };
        status(packet.and_then(|packet| plugin.inject(packet)))
    }

    pub(super) unsafe extern "C" fn netdev_receive(
        userdata: *mut c_void,
        buffer: *mut c_void,
        len: *mut size_t,
        time_usecs: *mut c_longlong,
    ) -> c_int {
        // SAFETY: `Interface`.
        let next = unsafe { plugin(userdata) }.next_packet();
        let (micros, packet) = match &next {
            Some((at, packet)) => (at.micros() as i64, packet.as_slice()),
            // An empty packet: packetdrill has no time-out and would otherwise ask for ever.
            None => (0, &[][..]),
        };
        let put = || {
            if len.is_null() || time_usecs.is_null() {
                return fail(libc::EFAULT);
            }
            // SAFETY: not null, and `Interface`.
            let room = unsafe { len.read() };
            if packet.len() > room {
                return fail(libc::EMSGSIZE);
            }
            // SAFETY: `Interface`; the packet fits.
            unsafe { memory::put(buffer, packet) }?;
            // SAFETY: as above.
            unsafe { len.write(packet.len()) };
            // SAFETY: not null, and `Interface`.
            unsafe { time_usecs.write(EPOCH * 1_000_000 + micros) };
            Ok(())
        };
        status(put())
    }

    pub(super) unsafe extern "C" fn usleep(userdata: *mut c_void, span: useconds_t) -> c_int {
        // SAFETY: `Interface`.
        unsafe { plugin(userdata) }.sleep(Duration::from_micros(span.into()));
        0
    }

    pub(super) unsafe extern "C" fn gettimeofday(
        userdata: *mut c_void,
        time: *mut timeval,
        _zone: *mut c_void,
    ) -> c_int {
        // SAFETY: `Interface`.
        let micros = unsafe { plugin(userdata) }.ask_time().micros() as i64;
        if !time.is_null() {
            let now = timeval { tv_sec: EPOCH + micros / 1_000_000, tv_usec: micros % 1_000_000 };
            // SAFETY: not null, and `Interface`.
            unsafe { time.write(now) };
        }
        0
    }

    pub(super) unsafe extern "C" fn epoll_create(userdata: *mut c_void, size: c_int) -> c_int {
        // SAFETY: `Interface`.
        number(unsafe { plugin(userdata) }.epoll_create(size))
    }

    pub(super) unsafe extern "C" fn epoll_ctl(
        userdata: *mut c_void,
        epoll: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> c_int {
        // SAFETY: `Interface`.
        let (plugin, event) = unsafe { (plugin(userdata), memory::event(event)) };
        status(plugin.epoll_control(epoll, op, fd, event))
    }

    pub(super) unsafe extern "C" fn epoll_wait(
        userdata: *mut c_void,
        epoll: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> c_int {
        // SAFETY: `Interface`.
        let found = unsafe { plugin(userdata) }.epoll_wait(epoll, max, timeout);
        // SAFETY: `Interface`; there are `max` of them at the most.
        number(found.and_then(|found| unsafe { memory::put_events(events, &found) }))
    }

    pub(super) unsafe extern "C" fn pipe(_userdata: *mut c_void, ends: *mut c_int) -> c_int {
        status(host::pipe().and_then(|pair| {
            let bytes: Vec<u8> = pair.into_iter().flat_map(i32::to_ne_bytes).collect();
            // SAFETY: `Interface`: there is room for two descriptors.
            unsafe { memory::put(ends.cast(), &bytes) }
        }))
    }

    pub(super) unsafe extern "C" fn splice(
        userdata: *mut c_void,
        from: c_int,
        from_offset: *mut i64,
        to: c_int,
        to_offset: *mut i64,
        len: size_t,
        _flags: u32,
    ) -> c_int {
        if !from_offset.is_null() || !to_offset.is_null() {
            return number(fail(libc::ESPIPE));
        }
        // SAFETY: `Interface`.
        let moved = unsafe { plugin(userdata) }.splice(from, to, len);
        number(moved.map(|moved| moved as c_int))
    }
}
