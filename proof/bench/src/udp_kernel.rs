//! The kernel's UDP as `udp` measures it: batches by sendmmsg(2) and recvmmsg(2), and the processes that send and receive.
//!
//! A receiver works when it is told to, so one that spins takes nobody's CPU outside of its round.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::kernel::{CLIENT_CPU, SERVER_CPU};
use crate::peer::{self, Result};
use crate::{cpu, udp};

/// How long a receiver that blocks waits before it looks at the time.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

/// Messages of one call, with room for their payloads.
struct Batch {
    _bytes: Vec<u8>,
    _pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

impl Batch {
    fn new(size: usize) -> Self {
        let mut bytes = vec![7u8; size * udp::BATCH];
        let piece = |room: &mut [u8]| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let mut pieces: Vec<_> = bytes.chunks_mut(size).map(piece).collect();
        let message = |piece: &mut libc::iovec| {
            // SAFETY: zeros are a message without name, pieces and control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece, 1);
            message
        };
        let messages = pieces.iter_mut().map(message).collect();
        Self { _bytes: bytes, _pieces: pieces, messages }
    }

    fn send(&mut self, socket: &UdpSocket) -> io::Result<u64> {
        let count = self.messages.len() as u32;
        // SAFETY: the messages point to pieces and bytes that live as long as they do and do not move.
        answer(unsafe { libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count, 0) })
    }

    /// What is there, but at least one.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<u64> {
        let (count, flags) = (self.messages.len() as u32, libc::MSG_WAITFORONE);
        let (fd, messages, never) = (socket.as_raw_fd(), self.messages.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: as in `send`; the bytes are written through the pieces alone.
        answer(unsafe { libc::recvmmsg(fd, messages, count, flags, never) })
    }
}

fn answer(count: i32) -> io::Result<u64> {
    u64::try_from(count).map_err(|_| io::Error::last_os_error())
}

impl udp::Receiver for UdpSocket {
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let (len, peer) = self.recv_from(buffer)?;
        self.send_to(&buffer[..len], peer).map(|_| 1)
    }

    fn sink(&mut self) -> impl FnMut() -> io::Result<u64> {
        let mut batch = Batch::new(udp::SIZE_MAX);
        move || batch.receive(self)
    }

    fn spin(&mut self, on: bool) -> io::Result<()> {
        self.set_nonblocking(on)
    }
}

/// `ADDR`: receives as it is told until the input ends.
pub(crate) fn play_server(args: &[&str]) -> Result<()> {
    let &[address] = args else { return Err("ADDR".into()) };
    cpu::bind(SERVER_CPU)?;
    let socket = UdpSocket::bind(address)?;
    socket.set_read_timeout(Some(SLICE))?;
    udp::serve(socket)
}

/// `ask ADDR SIZE MILLIS spin|block` is answered with round trips and nanoseconds, `flood ADDR SIZE MILLIS` with datagrams
/// and nanoseconds.
pub(crate) fn play_client(_: &[&str]) -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    peer::serve(|words| {
        let &[what, address, size, millis, ref how @ ..] = words else {
            return Err("ask|flood ADDR SIZE MILLIS".into());
        };
        let (address, size): (SocketAddr, usize) = (address.parse()?, size.parse()?);
        let span = Duration::from_millis(millis.parse()?);
        let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.connect(address)?;
        let start = Instant::now();
        let count = match what {
            "ask" => ask(&socket, size, span, how == ["spin"])?,
            "flood" => flood(&socket, size, span)?,
            _ => return Err("ask or flood".into()),
        };
        Ok(vec![count, start.elapsed().as_nanos() as u64])
    })
}

fn ask(socket: &UdpSocket, size: usize, span: Duration, spins: bool) -> Result<u64> {
    socket.set_read_timeout(Some(SLICE))?;
    socket.set_nonblocking(spins)?;
    let (mut message, start, mut count) = (vec![7; size], Instant::now(), 0);
    while start.elapsed() < span {
        // The other side may not be there yet, or no more.
        if socket.send(&message).is_err() {
            continue;
        }
        let asked = Instant::now();
        while asked.elapsed() < SLICE {
            if socket.recv(&mut message).is_ok() {
                count += 1;
                break;
            }
        }
    }
    Ok(count)
}

fn flood(socket: &UdpSocket, size: usize, span: Duration) -> Result<u64> {
    let (mut batch, start, mut count) = (Batch::new(size), Instant::now(), 0);
    while start.elapsed() < span {
        count += batch.send(socket).unwrap_or(0);
    }
    Ok(count)
}
