//! The kernel's TCP as a peer: a bulk server and client, and a request/response server and client.
//!
//! All with cubic per socket: the default of many machines, bbr without fq, halves the kernel's figure and
//! would be an unfair peer. Servers serve one connection after the other on one thread, so that its CPU time can
//! be read as long as the process lives. `bulk.rs` says what a bulk connection carries.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::sockopt;

use crate::bulk::{self, Way};
use crate::peer::{self, Result};
use crate::{cpu, rr};

/// The CPU of servers; clients have CPU 0.
pub(crate) const SERVER_CPU: usize = 1;
/// The CPU of clients.
pub(crate) const CLIENT_CPU: usize = 0;

const CONGESTION: &str = "cubic";

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_tcp_congestion(&fd, CONGESTION)?;
    Ok(fd)
}

/// Listens with cubic.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = socket(address)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, 1024)?;
    Ok(TcpListener::from(fd))
}

/// Connects with cubic.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let fd = socket(address)?;
    rustix::net::connect(&fd, &address)?;
    Ok(TcpStream::from(fd))
}

/// `ADDR`: serves bulk connections until the input ends.
pub(crate) fn play_bulk_server(args: &[&str]) -> Result<()> {
    let &[address] = args else { return Err("ADDR".into()) };
    cpu::bind(SERVER_CPU)?;
    let listener = listen(address.parse()?)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; bulk::WRITE_BYTES];
        for mut stream in listener.incoming().flatten() {
            // A client that has what it wanted resets the connection.
            let _ = bulk::serve(&mut stream, &mut buffer);
        }
    });
    peer::serve(|_| Ok(Vec::new()))
}

/// `WAY ADDR MILLIS` is answered with bytes and nanoseconds.
pub(crate) fn play_bulk_client(_: &[&str]) -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    let mut buffer = vec![0; bulk::WRITE_BYTES];
    peer::serve(|words| {
        let &[way, address, millis] = words else { return Err("WAY ADDR MILLIS".into()) };
        let span = Duration::from_millis(millis.parse()?);
        let stream = connect(address.parse()?)?;
        let (bytes, took) = bulk::run(stream, Way::parse(way)?, span, &mut buffer)?;
        Ok(vec![bytes, took.as_nanos() as u64])
    })
}

/// `ADDR`: echoes requests until the input ends.
pub(crate) fn play_rr_server(args: &[&str]) -> Result<()> {
    let &[address] = args else { return Err("ADDR".into()) };
    cpu::bind(SERVER_CPU)?;
    let listener = listen(address.parse()?)?;
    std::thread::spawn(move || echo(&listener).expect("an epoll loop ends with its process"));
    peer::serve(|_| Ok(Vec::new()))
}

fn echo(listener: &TcpListener) -> io::Result<()> {
    let mut streams = Poller::new()?;
    listener.set_nonblocking(true)?;
    epoll::add(&streams.epoll, listener, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
    loop {
        for place in streams.wait()? {
            if place == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    streams.add(stream)?;
                }
                continue;
            }
            let mut request = [0; rr::REQUEST_BYTES];
            let Some(stream) = streams.get(place) else { continue };
            match read_whole(stream, &mut request) {
                Ok(true) => stream.write_all(&request)?,
                Ok(false) => {}
                Err(_) => streams.remove(place),
            }
        }
    }
}

/// `ADDR CONNECTIONS MILLIS` is answered with requests and nanoseconds.
pub(crate) fn play_rr_client(_: &[&str]) -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    peer::serve(|words| {
        let &[address, connections, millis] = words else { return Err("ADDR CONNECTIONS MILLIS".into()) };
        let (address, connections): (SocketAddr, usize) = (address.parse()?, connections.parse()?);
        let span = Duration::from_millis(millis.parse()?);
        let mut streams = Poller::new()?;
        for _ in 0..connections {
            streams.add(connect(address)?)?;
        }
        let request = [7; rr::REQUEST_BYTES];
        for stream in streams.streams.iter_mut().flatten() {
            stream.write_all(&request)?;
        }
        let (start, mut requests) = (Instant::now(), 0);
        while start.elapsed() < span {
            for place in streams.wait()? {
                let stream = streams.get(place).ok_or("a place without a connection")?;
                if read_whole(stream, &mut [0; rr::REQUEST_BYTES])? {
                    requests += 1;
                    stream.write_all(&request)?;
                }
            }
        }
        Ok(vec![requests, start.elapsed().as_nanos() as u64])
    })
}

/// Reads one message, which comes in one piece; `false` if there was none.
fn read_whole(stream: &mut TcpStream, message: &mut [u8]) -> io::Result<bool> {
    match stream.read(message) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) if count < message.len() => {
            stream.set_nonblocking(false)?;
            stream.read_exact(&mut message[count..])?;
            stream.set_nonblocking(true)?;
            Ok(true)
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Connections behind one epoll descriptor.
struct Poller {
    epoll: OwnedFd,
    streams: Vec<Option<TcpStream>>,
}

impl Poller {
    fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, streams: Vec::new() })
    }

    fn add(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let place = epoll::EventData::new_u64(self.streams.len() as u64);
        epoll::add(&self.epoll, stream.as_fd(), place, epoll::EventFlags::IN)?;
        self.streams.push(Some(stream));
        Ok(())
    }

    fn get(&mut self, place: u64) -> Option<&mut TcpStream> {
        self.streams.get_mut(usize::try_from(place).ok()?)?.as_mut()
    }

    fn remove(&mut self, place: u64) {
        if let Some(stream) = usize::try_from(place).ok().and_then(|place| self.streams.get_mut(place)) {
            *stream = None;
        }
    }

    /// Looks who has something to read, again and again while there are connections, as our lanes do; only without any it sleeps.
    fn wait(&self) -> io::Result<impl Iterator<Item = u64> + use<>> {
        let mut events = Vec::with_capacity(256);
        let limit = self.streams.iter().any(Option::is_some).then(Timespec::default);
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref())?;
        Ok(events.into_iter().map(|event: epoll::Event| event.data.u64()))
    }
}
