//! `splice` between a pipe and a socket of ours: by copying through this process.
//!
//! The kernel moves pages, and none is lost whatever ends the call. So bytes are taken out of a socket when they are in the
//! pipe, and out of a pipe when the socket has room for them. We differ: of those, the ones that a connection does not take because it
//! fails at that moment are lost, and what it took before is told. Who else reads from the same end meanwhile can get
//! bytes twice, or in another order than the kernel would give them: splice has no way to hold a pipe still.
//!
//! A call moves one datagram: what a pipe holds is one, as far as the call goes, and one that is received goes into the pipe.
//! We differ: it waits for room there, while the kernel cuts it.

use core::ffi::{c_int, c_short};
use core::time::Duration;

use libc::pollfd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::awaited::Awaited;
use crate::buffers::{Sink, Source};
use crate::handlers::Seen;
use crate::socket::{self, Held, broken_pipe};
use crate::stream::{Stop, Stream, Waiting};
use crate::sys::Manner;
use crate::{names, sys, wait};

/// The flags that there are.
const FLAGS: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
/// A pipe that is writable takes so much without waiting, whatever lies in it.
const PAGE: usize = 4096;
/// How much goes from a pipe to a socket at a time.
const CHUNK: usize = 32 << 10;
/// No datagram is longer.
const DATAGRAM: usize = 64 << 10;

/// Moves up to `len` bytes, if one of the two is ours.
pub(crate) fn splice(
    from: c_int,
    to: c_int,
    has_offset: [bool; 2],
    len: usize,
    flags: u32,
) -> Option<Result<usize, Errno>> {
    let (source, sink) = (socket::at(from), socket::at(to));
    let is_one_ours = source.is_some() || sink.is_some();
    is_one_ours.then(|| {
        if len == 0 {
            return Ok(0);
        }
        if flags & !FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
        let [from_offset, to_offset] = has_offset;
        match (source, sink) {
            (Some(socket), None) => {
                let pipe = Pipe::new(to, OFlags::RDONLY, to_offset, from_offset)?;
                let moves = if socket.is_datagram() { datagram_to_pipe } else { to_pipe };
                moves(&socket, pipe, len, waits && pipe.waits)
            }
            (None, Some(socket)) => {
                let pipe = Pipe::new(from, OFlags::WRONLY, from_offset, to_offset)?;
                let waits = waits && pipe.waits;
                match socket.is_datagram() {
                    true => pipe_to_datagram(&socket, pipe, len, (waits, flags)),
                    false => from_pipe(&socket, pipe, len, waits),
                }
            }
            _ => Err(Errno::INVAL),
        }
    })
}

/// A pipe's end.
#[derive(Clone, Copy)]
struct Pipe {
    fd: c_int,
    /// O_NONBLOCK is not set.
    waits: bool,
    /// The handlers that had run when the call began.
    seen: Seen,
}

impl Pipe {
    /// The pipe behind `fd`, unless it is the other end, which has the mode `other`. A pipe has no place to begin at, and a
    /// socket cannot be asked for one.
    fn new(fd: c_int, other: OFlags, has_offset: bool, socket_has_offset: bool) -> Result<Self, Errno> {
        let seen = Seen::now();
        let flags = rustix::fs::fcntl_getfl(sys::borrow(fd))?;
        let is_pipe = FileType::from_raw_mode(rustix::fs::fstat(sys::borrow(fd))?.st_mode) == FileType::Fifo;
        if is_pipe && has_offset {
            return Err(Errno::SPIPE);
        }
        if flags & OFlags::ACCMODE == other {
            return Err(Errno::BADF);
        }
        if !is_pipe || socket_has_offset {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, waits: !flags.contains(OFlags::NONBLOCK), seen })
    }

    /// Waits for room, or says that there is none.
    fn wait_for_room(self, waits: bool) -> Result<(), Errno> {
        match self.look(libc::POLLOUT, waits)? {
            ready if ready & libc::POLLERR != 0 => Err(broken_pipe(0)),
            ready if ready & libc::POLLOUT == 0 => Err(Errno::AGAIN),
            _ => Ok(()),
        }
    }

    /// What poll(2) says of it, at once or when there is something.
    fn look(self, events: c_short, waits: bool) -> Result<c_short, Errno> {
        let mut entry = [pollfd { fd: self.fd, events, revents: 0 }];
        let mut seen = self.seen;
        loop {
            let (limit, since) = if waits { (None, Some(seen)) } else { (Some(Duration::ZERO), None) };
            match sys::ppoll(&mut entry, limit, Manner::OWN, since) {
                Err(Errno::INTR) => wait::interrupted(&mut seen, true)?,
                looked => return looked.map(|_| entry[0].revents),
            }
        }
    }
}

/// As much as there is, and the pipe has room for. Both are waited for until the first byte has passed.
fn to_pipe(socket: &Held, pipe: Pipe, len: usize, waits: bool) -> Result<usize, Errno> {
    let mut buffer = [0; PAGE];
    let mut done = 0;
    while done < len {
        match one_page(socket, pipe, &mut buffer[..(len - done).min(PAGE)], waits && done == 0, done == 0) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Up to a page; nothing at the stream's end.
fn one_page(
    socket: &Held,
    pipe: Pipe,
    buffer: &mut [u8],
    waits_for_room: bool,
    waits_for_text: bool,
) -> Result<usize, Errno> {
    pipe.wait_for_room(waits_for_room)?;
    let later = if waits_for_text { 0 } else { libc::MSG_DONTWAIT };
    let there = socket.receive(&mut Sink::of(buffer).sink(), libc::MSG_PEEK | later)?.bytes;
    let count = rustix::io::write(sys::borrow(pipe.fd), &buffer[..there])?;
    if count > 0 {
        socket.receive(&mut Sink::of(&mut buffer[..count]).sink(), libc::MSG_DONTWAIT)?;
    }
    Ok(count)
}

/// As much as there is, and the socket takes. A pipe's bytes are waited for until the first has passed; room is, unless the
/// socket does not block.
fn from_pipe(socket: &Held, pipe: Pipe, len: usize, waits: bool) -> Result<usize, Errno> {
    let mut buffer = [0; CHUNK];
    let mut done = 0;
    while done < len && !(done > 0 && pipe.seen.is_old()) {
        let ready = pipe.look(libc::POLLIN, waits && done == 0)?;
        if ready & libc::POLLIN == 0 {
            // Nobody writes any more, or not now.
            let is_over = done > 0 || ready & libc::POLLHUP != 0;
            return if is_over { Ok(done) } else { Err(Errno::AGAIN) };
        }
        let Some(stream) = socket.stream() else { return Err(broken_pipe(0)) };
        let room = match room_in(&stream) {
            Ok(room) => room,
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        };
        let part = &mut buffer[..(len - done).min(CHUNK).min(room)];
        let count = rustix::io::read(sys::borrow(pipe.fd), &mut *part)?;
        if count == 0 {
            return Ok(done);
        }
        let (sent, failed) = send_all(&part[..count], |rest| stream.send(Source::of(rest).source(), 0));
        done += sent;
        if let Some(errno) = failed {
            // The next call is told the error.
            return if done > 0 { Ok(done) } else { Err(errno) };
        }
    }
    Ok(done)
}

/// One datagram. Of a longer one the rest is lost, as with recv(2).
fn datagram_to_pipe(socket: &Held, pipe: Pipe, len: usize, waits: bool) -> Result<usize, Errno> {
    pipe.wait_for_room(waits)?;
    let mut buffer = vec![0; len.min(DATAGRAM)];
    let there = socket.receive(&mut Sink::of(&mut buffer).sink(), 0)?.bytes;
    let mut done = 0;
    while done < there {
        match rustix::io::write(sys::borrow(pipe.fd), &buffer[done..there]) {
            Ok(count) => done += count,
            // It is out of the socket, so it is not given up.
            Err(Errno::AGAIN | Errno::INTR) => sys::nap(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(there)
}

/// One datagram of what there is in the pipe.
fn pipe_to_datagram(
    socket: &Held,
    pipe: Pipe,
    len: usize,
    (waits, flags): (bool, u32),
) -> Result<usize, Errno> {
    let ready = pipe.look(libc::POLLIN, waits)?;
    if ready & libc::POLLIN == 0 {
        return if ready & libc::POLLHUP != 0 { Ok(0) } else { Err(Errno::AGAIN) };
    }
    // What leaves the pipe has somebody to go to.
    names::peer_of(socket).ok_or(Errno::DESTADDRREQ)?;
    let mut buffer = vec![0; len.min(DATAGRAM)];
    let count = rustix::io::read(sys::borrow(pipe.fd), &mut buffer[..])?;
    let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
    socket.send(Source::of(&buffer[..count]).source(), more, None)
}

/// How much a stream takes now; waits for some, unless the socket does not block.
fn room_in(stream: &Stream) -> Result<usize, Errno> {
    if stream.is_deferred() {
        // What is written begins the connection, and waits for that.
        return Ok(stream.end().room());
    }
    let mut wait = Waiting::new(stream, Awaited::Room, 0);
    loop {
        // A write of nothing says whether there could be one.
        let stop = match stream.end().write(&[]) {
            Ok(_) => match stream.end().room() {
                0 => Stop::Wait,
                room => return Ok(room),
            },
            Err(error) => stream.stop_writing(error),
        };
        match stop {
            Stop::Closed => return Err(broken_pipe(0)),
            stop => wait.after(stop, 0)?,
        }
    }
}

/// Sends what there was room for. If somebody else has written meanwhile, it waits: the bytes have left the pipe. How many were sent, and
/// the error that was in the way of the others.
fn send_all(bytes: &[u8], mut send: impl FnMut(&[u8]) -> Result<usize, Errno>) -> (usize, Option<Errno>) {
    let mut done = 0;
    while done < bytes.len() {
        match send(&bytes[done..]) {
            Ok(count) => done += count,
            Err(Errno::AGAIN | Errno::INTR) => sys::nap(),
            Err(errno) => return (done, Some(errno)),
        }
    }
    (done, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_an_error_is_counted() {
        let sent = |answers: &[Result<usize, Errno>]| {
            let mut answers = answers.iter();
            send_all(&[0; 10], |_| *answers.next().unwrap())
        };
        assert_eq!(sent(&[Ok(4), Err(Errno::AGAIN), Ok(6)]), (10, None));
        assert_eq!(sent(&[Ok(4), Err(Errno::CONNRESET)]), (4, Some(Errno::CONNRESET)));
        assert_eq!(sent(&[Err(Errno::PIPE)]), (0, Some(Errno::PIPE)));
    }
}
