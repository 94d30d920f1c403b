//! Messages: several pieces, addresses and control data (`struct msghdr`).

use core::ffi::{c_int, c_uint};
use core::time::Duration;

use libc::{mmsghdr, msghdr, sockaddr_storage, socklen_t, ssize_t, timespec};
use rustix::io::Errno;

use crate::address::{self, Given, Shown};
use crate::answer::count;
use crate::buffers::{self, Sink, Source};
use crate::handlers::Seen;
use crate::real::hooks;
use crate::socket::{self, Held};

use super::control;
use crate::stream::FURTHER;
use crate::wait::Deadline;
use crate::{faults, kept, passing, session};

hooks! {
    /// A message to elsewhere may take sockets of ours along.
    @point fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = match socket::at(fd) {
        Some(s) => Some(buffers::check(message.cast(), size_of::<msghdr>()).and_then(|()| {
            // SAFETY: the caller's promise about the message.
            unsafe { send(s, &*message, flags) }.map(|(bytes, _)| count(bytes))
        })),
        None => {
            // SAFETY: the caller's promise about the message.
            unsafe { hand_out(message) };
            None
        }
    };

    /// A message from elsewhere may bring sockets of ours along.
    @point fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = match socket::at(fd) {
        Some(s) => Some(buffers::check_mut(message.cast(), size_of::<msghdr>()).and_then(|()| {
            // SAFETY: the caller's promise about the message.
            unsafe { receive(s, &mut *message, flags) }.map(count)
        })),
        None if session::is_wanted() => {
            // SAFETY: the caller's arguments.
            let received = unsafe { next::recvmsg(fd, message, flags) };
            if received >= 0 {
                // SAFETY: the kernel has filled the message.
                unsafe { adopt(&*message) };
            }
            Some(Ok(received))
        }
        None => None,
    };

    @point fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int = match socket::at(fd) {
        // SAFETY: the caller's promise about the messages.
        Some(s) => Some(each(messages, n, Some(Seen::now()), |m| unsafe { send(s, &m.msg_hdr, flags) }).map(|(count, _)| count)),
        None => {
            let n = (n as usize).min(libc::UIO_MAXIOV as usize);
            if buffers::check_mut(messages.cast(), n * size_of::<mmsghdr>()).is_ok() {
                // SAFETY: the caller's promise about the messages.
                (0..n).for_each(|index| unsafe { hand_out(&raw const (*messages.add(index)).msg_hdr) });
            }
            None
        }
    };

    @point fn recvmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int, limit: *mut timespec) -> c_int =
        match socket::at(fd) {
            Some(s) => Some(receive_each(s, messages, n, flags, limit)),
            None if session::is_wanted() => {
                // SAFETY: the caller's arguments.
                let received = unsafe { next::recvmmsg(fd, messages, n, flags, limit) };
                for index in 0..usize::try_from(received).unwrap_or(0) {
                    // SAFETY: the kernel has filled as many messages as it says.
                    unsafe { adopt(&(*messages.add(index)).msg_hdr) };
                }
                Some(Ok(received))
            }
            None => None,
        };
}

/// How many bytes were sent, and whether those are all of the message.
///
/// # Safety
/// What the message points to is readable, or among what [`buffers::check`] refuses.
unsafe fn send(socket: Held, message: &msghdr, flags: c_int) -> Result<(usize, bool), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let pieces = buffers::pieces(message.msg_iov, message.msg_iovlen, Errno::MSGSIZE)?;
        let source = Source::new(pieces)?;
        let to: Option<Given> = if message.msg_name.is_null() || message.msg_namelen == 0 {
            None
        } else {
            // What lies behind the longest address is left alone here, and refused by the calls that take a name by itself.
            let len = match message.msg_namelen as i32 {
                ..0 => return Err(Errno::INVAL),
                _ => message.msg_namelen.min(size_of::<sockaddr_storage>() as socklen_t),
            };
            Some(address::read(message.msg_name.cast(), len)?)
        };
        if !socket.is_datagram()
            && let Err(errno) = control::check(message)
        {
            // As in Linux, that there is nobody to send to comes first.
            socket.send(Source::new(&[])?, flags, to)?;
            return Err(errno);
        }
        let sent =
            socket.send_with(source, flags, to, |is_v4| control::read(message, is_v4, socket.is_v6()))?;
        Ok((sent, sent >= source.len()))
    }
}

/// # Safety
/// What the message points to is writable, or among what [`buffers::check`] refuses.
unsafe fn receive(socket: Held, message: &mut msghdr, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let pieces = buffers::pieces(message.msg_iov, message.msg_iovlen, Errno::MSGSIZE)?;
        let mut sink = Sink::new(pieces)?;
        if !message.msg_name.is_null() && (message.msg_namelen as i32) < 0 {
            return Err(Errno::INVAL);
        }
        let (received, fault) = match flags & libc::MSG_ERRQUEUE {
            0 => (socket.receive(&mut sink, flags)?, None),
            _ => faults::take(&socket, &mut sink).map(|(received, fault)| (received, Some(fault)))?,
        };
        if !message.msg_name.is_null() {
            let from = received.from.as_ref().unwrap_or(&Shown::NONE);
            address::write(from, message.msg_name.cast(), &raw mut message.msg_namelen)?;
        }
        let told = received.flags | control::write(message, received.beside, fault.as_ref())?;
        message.msg_flags = told | flags & libc::MSG_CMSG_CLOEXEC;
        Ok(received.bytes)
    }
}

/// Takes over the sockets of ours that came with a message.
///
/// # Safety
/// The message was filled by the kernel.
unsafe fn adopt(message: &msghdr) {
    // SAFETY: the caller's promise.
    unsafe { each_descriptor(message, passing::arrived) };
}

/// Before a message goes elsewhere: sockets of ours that it takes along have copies from now on.
///
/// # Safety
/// What the message points to is readable, or among what [`buffers::check`] refuses.
unsafe fn hand_out(message: *const msghdr) {
    if !session::is_wanted() || buffers::check(message.cast(), size_of::<msghdr>()).is_err() {
        return;
    }
    // SAFETY: the caller's promise.
    let message = unsafe { &*message };
    if buffers::check(message.msg_control, message.msg_controllen).is_ok() {
        // SAFETY: the caller's promise.
        unsafe { each_descriptor(message, kept::forget) };
    }
}

/// Does `with` to each descriptor beside a message.
///
/// # Safety
/// The message's control data are readable.
unsafe fn each_descriptor(message: &msghdr, mut with: impl FnMut(c_int)) {
    if message.msg_controllen == 0 {
        return;
    }
    // SAFETY: the caller's promise: libc's own macros walk what is there.
    unsafe {
        let end = message.msg_control.addr() + message.msg_controllen;
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            let data = libc::CMSG_DATA(header).cast::<c_int>();
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                // A program may say more than there is: the kernel refuses it then.
                let said = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let bytes = said.min(end.saturating_sub(data.addr()));
                for index in 0..bytes / size_of::<c_int>() {
                    with(data.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Does `with` to one message after the other: how many. An error after the first is not told, and stands beside. A message that was
/// not done whole is the last: of a stream, what comes behind it would stand where its rest belongs. So is one behind which a handler
/// has run since `seen`.
fn each(
    messages: *mut mmsghdr,
    n: c_uint,
    seen: Option<Seen>,
    mut with: impl FnMut(&mut mmsghdr) -> Result<(usize, bool), Errno>,
) -> Result<(c_int, Option<Errno>), Errno> {
    let n = (n as usize).min(libc::UIO_MAXIOV as usize);
    buffers::check_mut(messages.cast(), n * size_of::<mmsghdr>())?;
    for index in 0..n {
        if index > 0 && seen.is_some_and(Seen::is_old) {
            return Ok((index as c_int, None));
        }
        // SAFETY: the callers' promise about the messages.
        let message = unsafe { &mut *messages.add(index) };
        match with(message) {
            Ok((bytes, is_whole)) => {
                message.msg_len = bytes as c_uint;
                if !is_whole {
                    return Ok((index as c_int + 1, None));
                }
            }
            Err(errno) if index == 0 => return Err(errno),
            Err(errno) => return Ok((index as c_int, Some(errno))),
        }
    }
    Ok((n as c_int, None))
}

fn receive_each(
    socket: Held,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> Result<c_int, Errno> {
    const SECOND: u32 = 1_000_000_000;
    if !limit.is_null() {
        buffers::check_mut(limit.cast(), size_of::<timespec>())?;
    }
    // SAFETY: the caller's promise about the time.
    let time = unsafe { limit.as_ref() }.map(|t| {
        let seconds = u64::try_from(t.tv_sec).map_err(|_| Errno::INVAL)?;
        let nanos = u32::try_from(t.tv_nsec).ok().filter(|&nanos| nanos < SECOND);
        nanos.map(|nanos| Duration::new(seconds, nanos)).ok_or(Errno::INVAL)
    });
    let end = time.transpose()?.map(Deadline::after);
    let stream = socket.stream().filter(|_| flags & libc::MSG_ERRQUEUE == 0);
    // As in Linux, an error comes before what can still be read.
    match stream.as_ref().map_or(0, |stream| stream.end().take_error()) {
        0 => {}
        error => return Err(Errno::from_raw_os_error(error)),
    }
    let mut first = true;
    let (received, error) = each(messages, n, None, |message| {
        // As Linux does, the time is looked at after each message, not while waiting for one.
        if !first && end.is_some_and(Deadline::has_passed) {
            return Err(Errno::AGAIN);
        }
        let wait = match (first, flags & libc::MSG_WAITFORONE) {
            (true, _) => 0,
            (false, 0) => FURTHER,
            (false, _) => libc::MSG_DONTWAIT,
        };
        first = false;
        // SAFETY: the caller's promise about the messages.
        let received = unsafe { receive(socket, &mut message.msg_hdr, flags & !libc::MSG_WAITFORONE | wait) };
        received.map(|bytes| (bytes, true))
    })?;
    if let (Some(error), Some(stream)) = (error.filter(|&error| error != Errno::AGAIN), stream) {
        stream.end().put_back(error.raw_os_error());
    }
    if let Some(end) = end {
        let left = end.left();
        let seconds = left.as_secs().cast_signed();
        // SAFETY: as it was read.
        unsafe { *limit = timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() } };
    }
    Ok(received)
}
