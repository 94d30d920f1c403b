//! `splice` between a pipe and a stream of ours: by copying through this process.
//!
//! The kernel moves pages, and none is lost whatever ends the call. So bytes are taken out of a socket when they are in the
//! pipe, and out of a pipe when the socket has room for them. Who else reads from the same end meanwhile can get
//! bytes twice, or in another order than the kernel would give them: splice has no way to hold a pipe still.

use core::ffi::{c_int, c_short};
use core::time::Duration;

use libc::pollfd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::buffers::{Sink, Source};
use crate::socket::{self, Held, broken_pipe};
use crate::stream::{Stop, Stream, Waiting};
use crate::sys;

/// The flags that there are.
const FLAGS: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
/// A pipe that is writable takes so much without waiting, whatever lies in it.
const PAGE: usize = 4096;
/// How much goes from a pipe to a socket at a time.
const CHUNK: usize = 32 << 10;

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
                to_pipe(&socket, pipe, len, waits && pipe.waits)
            }
            (None, Some(socket)) => {
                let pipe = Pipe::new(from, OFlags::WRONLY, from_offset, to_offset)?;
                from_pipe(&socket, pipe, len, waits)
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
}

impl Pipe {
    /// The pipe behind `fd`, unless it is the other end, which has the mode `other`. A pipe has no place to begin at, and a
    /// socket cannot be asked for one.
    fn new(fd: c_int, other: OFlags, has_offset: bool, socket_has_offset: bool) -> Result<Self, Errno> {
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
        Ok(Self { fd, waits: !flags.contains(OFlags::NONBLOCK) })
    }

    /// What poll(2) says of it, at once or when there is something.
    fn look(self, events: c_short, waits: bool) -> Result<c_short, Errno> {
        let mut entry = [pollfd { fd: self.fd, events, revents: 0 }];
        sys::ppoll(&mut entry, (!waits).then_some(Duration::ZERO), None)?;
        Ok(entry[0].revents)
    }
}

/// As much as there is, and the pipe has room for. Both are waited for until the first byte has passed.
fn to_pipe(socket: &Held, pipe: Pipe, len: usize, waits: bool) -> Result<usize, Errno> {
    if socket.is_datagram() {
        return Err(Errno::INVAL);
    }
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
    let ready = pipe.look(libc::POLLOUT, waits_for_room)?;
    if ready & libc::POLLERR != 0 {
        return Err(broken_pipe(0));
    }
    if ready & libc::POLLOUT == 0 {
        return Err(Errno::AGAIN);
    }
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
    if socket.is_datagram() {
        return Err(Errno::INVAL);
    }
    let mut buffer = [0; CHUNK];
    let mut done = 0;
    while done < len {
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
        done += send_all(&stream, &part[..count])?;
    }
    Ok(done)
}

/// How much a stream takes now; waits for some, unless the socket does not block.
fn room_in(stream: &Stream) -> Result<usize, Errno> {
    let mut wait = Waiting::new(stream, false, 0);
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
            stop => wait.after(stop)?,
        }
    }
}

/// Sends what there was room for. If somebody else has written meanwhile, it waits: the bytes have left the pipe.
fn send_all(stream: &Stream, bytes: &[u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match stream.send(Source::of(&bytes[done..]).source(), 0) {
            Ok(count) => done += count,
            Err(Errno::AGAIN | Errno::INTR) => sys::nap(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
