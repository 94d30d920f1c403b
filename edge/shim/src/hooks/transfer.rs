//! Bytes in and out, without control data.

use core::ffi::{c_int, c_void};

use libc::{iovec, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::address::Shown;
use crate::answer::count;
use crate::buffers::{self, Sink, Source};
use crate::real::hooks;
use crate::{address, copying, socket, splicing};

hooks! {
    @point fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t = read_into(fd, buffer, len);

    @point fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t =
        read_into(fd, buffer, len).filter(|_| len <= room);

    @point fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t = receive(fd, buffer, len, flags);

    @point fn __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t =
        receive(fd, buffer, len, flags).filter(|_| len <= room);

    @point fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, name: *mut sockaddr, name_len: *mut socklen_t,
    ) -> ssize_t = receive_from(fd, buffer, len, flags, name, name_len);

    @point fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int,
        name: *mut sockaddr, name_len: *mut socklen_t,
    ) -> ssize_t = receive_from(fd, buffer, len, flags, name, name_len).filter(|_| len <= room);

    @point fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t =
        send_to(fd, buffer, len, 0, core::ptr::null(), 0);

    @point fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        send_to(fd, buffer, len, flags, core::ptr::null(), 0);

    @point fn sendto(
        fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, name: *const sockaddr, name_len: socklen_t,
    ) -> ssize_t = send_to(fd, buffer, len, flags, name, name_len);

    @point fn readv(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t = read_pieces(fd, pieces, n, 0);

    @point fn writev(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t = write_pieces(fd, pieces, n, 0);

    @point fn preadv2(fd: c_int, pieces: *const iovec, n: c_int, offset: off64_t, flags: c_int) -> ssize_t =
        at_no_offset(offset).and_then(|()| read_pieces(fd, pieces, n, flags));

    @point fn preadv64v2(fd: c_int, pieces: *const iovec, n: c_int, offset: off64_t, flags: c_int) -> ssize_t =
        at_no_offset(offset).and_then(|()| read_pieces(fd, pieces, n, flags));

    @point fn pwritev2(fd: c_int, pieces: *const iovec, n: c_int, offset: off64_t, flags: c_int) -> ssize_t =
        at_no_offset(offset).and_then(|()| write_pieces(fd, pieces, n, flags));

    @point fn pwritev64v2(fd: c_int, pieces: *const iovec, n: c_int, offset: off64_t, flags: c_int) -> ssize_t =
        at_no_offset(offset).and_then(|()| write_pieces(fd, pieces, n, flags));

    /// Copies from a file to a socket: the pages pass through the program's memory once.
    fn sendfile(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t =
        copy_file(to, from, offset, len);

    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t =
        copy_file(to, from, offset, len);

    /// Copies between a pipe and a socket.
    @point fn splice(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, len: size_t, flags: u32,
    ) -> ssize_t = {
        let has_offset = [from_offset, to_offset].map(|offset| !offset.is_null());
        splicing::splice(from, to, has_offset, len, flags).map(|result| result.map(count))
    };
}

/// The kernel takes a count of pieces as unsigned.
fn size(n: c_int) -> Result<usize, Errno> {
    usize::try_from(n).map_err(|_| Errno::INVAL)
}

/// preadv2(2) and its kin are `readv` and `writev` at offset -1 alone: at another the descriptor behind a socket is refused as any socket.
fn at_no_offset(offset: off64_t) -> Option<()> {
    (offset == -1).then_some(())
}

/// The flags of a socket's call for those of preadv2(2). What is about files changes nothing, as in Linux.
fn message_flags(flags: c_int) -> Result<c_int, Errno> {
    /// Of Linux 6.18.
    const RWF_NOSIGNAL: c_int = 0x100;
    const OF_FILES: c_int =
        libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | libc::RWF_NOAPPEND;
    if flags & !(OF_FILES | libc::RWF_NOWAIT | RWF_NOSIGNAL) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let meaning = |flag, message| if flags & flag != 0 { message } else { 0 };
    Ok(meaning(libc::RWF_NOWAIT, libc::MSG_DONTWAIT) | meaning(RWF_NOSIGNAL, libc::MSG_NOSIGNAL))
}

/// `flags` are those of preadv2(2).
fn read_pieces(fd: c_int, pieces: *const iovec, n: c_int, flags: c_int) -> Option<Result<ssize_t, Errno>> {
    socket::at(fd).map(|s| {
        // SAFETY: the caller's promise about the pieces.
        let mut sink = unsafe { Sink::new(buffers::pieces(pieces, size(n)?, Errno::INVAL)?) }?;
        if sink.len() == 0 {
            return Ok(0);
        }
        s.receive(&mut sink, message_flags(flags)?).map(|received| count(received.bytes))
    })
}

/// `flags` are those of pwritev2(2).
fn write_pieces(fd: c_int, pieces: *const iovec, n: c_int, flags: c_int) -> Option<Result<ssize_t, Errno>> {
    socket::at(fd).map(|s| {
        // SAFETY: the caller's promise about the pieces.
        let source = unsafe { Source::new(buffers::pieces(pieces, size(n)?, Errno::INVAL)?) }?;
        // Unlike write(2) of nothing, which may be a datagram.
        if source.len() == 0 {
            return Ok(0);
        }
        s.send(source, message_flags(flags)?, None).map(count)
    })
}

/// read(2): nothing is read at once, of whatever socket, as in System V; recv(2) waits until there is something.
fn read_into(fd: c_int, buffer: *mut c_void, len: size_t) -> Option<Result<ssize_t, Errno>> {
    if len == 0 { socket::at(fd).map(|_| Ok(0)) } else { receive(fd, buffer, len, 0) }
}

fn receive(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> Option<Result<ssize_t, Errno>> {
    let socket = socket::at(fd)?;
    let piece = [iovec { iov_base: buffer, iov_len: len.min(isize::MAX as usize) }];
    // SAFETY: the caller's promise about the buffer.
    let sink = unsafe { Sink::new(&piece) };
    Some(sink.and_then(|mut sink| socket.receive(&mut sink, flags)).map(|received| count(received.bytes)))
}

fn receive_from(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> Option<Result<ssize_t, Errno>> {
    let socket = socket::at(fd)?;
    let piece = [iovec { iov_base: buffer, iov_len: len.min(isize::MAX as usize) }];
    // SAFETY: the caller's promise about the buffer.
    let sink = unsafe { Sink::new(&piece) };
    Some(sink.and_then(|mut sink| {
        let received = socket.receive(&mut sink, flags)?;
        if !name.is_null() {
            // SAFETY: the caller's promise about the address and its length.
            unsafe { address::write(received.from.as_ref().unwrap_or(&Shown::NONE), name, name_len) }?;
        }
        Ok(count(received.bytes))
    }))
}

fn send_to(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    name: *const sockaddr,
    name_len: socklen_t,
) -> Option<Result<ssize_t, Errno>> {
    let socket = socket::at(fd)?;
    let piece = [iovec { iov_base: buffer.cast_mut(), iov_len: len.min(isize::MAX as usize) }];
    // SAFETY: the caller's promise about the buffer.
    let source = unsafe { Source::new(&piece) };
    Some(source.and_then(|source| {
        // SAFETY: the caller's promise about the address.
        let to = if name.is_null() { None } else { Some(unsafe { address::read(name, name_len) }?) };
        socket.send(source, flags, to).map(count)
    }))
}

fn copy_file(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> Option<Result<ssize_t, Errno>> {
    if socket::at(from).is_some() {
        // A socket cannot be mapped, which is what the kernel asks of the source.
        return Some(Err(Errno::INVAL));
    }
    let socket = socket::at(to)?;
    let copied = if offset.is_null() {
        copying::send_file(socket, from, None, len)
    } else {
        buffers::check_mut(offset.cast(), size_of::<off64_t>()).and_then(|()| {
            // SAFETY: the caller's promise about the offset.
            let begin = u64::try_from(unsafe { offset.read_unaligned() }).map_err(|_| Errno::INVAL)?;
            let copied = copying::send_file(socket, from, Some(begin), len)?;
            // SAFETY: as it was read.
            unsafe { offset.write_unaligned((begin + copied as u64) as off64_t) };
            Ok(copied)
        })
    };
    Some(copied.map(count))
}
