//! The attacker: datagrams at a given rate, and 1,000 connections that are kept full.
//!
//! Datagrams go out in bursts of equal distance. Both carry a mark that tells `htb` their class and says nothing to others.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::cpu;
use crate::kernel::CLIENT_CPU;
use crate::limit::wire::PORT;
use crate::peer::{self, Result};

const CONNECTIONS: usize = 1000;
/// So many datagrams at once.
const BURST: u64 = 32;
/// With its headers, a frame of 64 bytes.
const DATAGRAM_BYTES: usize = 22;
const WRITE_BYTES: usize = 16 << 10;
/// How many connections get a chance to write after each burst.
const WRITES: usize = 8;
/// The class of `htb` for the attacker: 1:10.
const CLASS: u32 = 0x1_0010;

/// `ADDR PER_SECOND MILLIS` is answered with the datagrams that were offered, those that were due, and how many connections took text.
pub(crate) fn play() -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    peer::serve(|words| {
        let &[address, rate, millis] = words else { return Err("ADDR PER_SECOND MILLIS".into()) };
        let target = SocketAddr::V4(SocketAddrV4::new(address.parse::<Ipv4Addr>()?, PORT));
        attack(target, rate.parse()?, Duration::from_millis(millis.parse()?))
    })
}

fn attack(target: SocketAddr, rate: u64, span: Duration) -> Result<Vec<u64>> {
    let datagrams = UdpSocket::bind("0.0.0.0:0")?;
    mark(&datagrams)?;
    datagrams.set_nonblocking(true)?;
    datagrams.connect(target)?;
    let mut connections = (0..CONNECTIONS).map(|_| connect(target)).collect::<Result<Vec<_>>>()?;
    let buffer = vec![7; WRITE_BYTES];
    let (start, mut sent, mut next) = (Instant::now(), 0, 0);
    let mut has_taken = [false; CONNECTIONS];
    while start.elapsed() < span {
        let due = (start.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        if sent + BURST > due {
            std::hint::spin_loop();
            continue;
        }
        for _ in 0..BURST {
            // What its own socket or device refuses has been offered all the same.
            let _ = datagrams.send(&buffer[..DATAGRAM_BYTES]);
        }
        sent += BURST;
        for _ in 0..WRITES {
            match connections[next].write(&buffer) {
                Ok(_) => has_taken[next] = true,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {}
                Err(_) => connections[next] = connect(target)?,
            }
            next = (next + 1) % CONNECTIONS;
        }
    }
    let due = (span.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
    Ok(vec![sent, due, has_taken.into_iter().filter(|&it| it).count() as u64])
}

fn mark(socket: impl AsFd) -> Result<()> {
    // SAFETY: the kernel reads one integer from a live value.
    let failed = unsafe {
        use std::os::fd::AsRawFd;
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            std::ptr::from_ref(&CLASS).cast(),
            size_of::<u32>() as libc::socklen_t,
        ) < 0
    };
    if failed { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

/// Begins a connection, which is reset at its end: nobody waits for what is left.
fn connect(target: SocketAddr) -> Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    mark(&socket)?;
    sockopt::set_tcp_congestion(&socket, "cubic")?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    match rustix::net::connect(&socket, &target) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}
