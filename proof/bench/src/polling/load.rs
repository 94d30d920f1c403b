//! The load of `polling`: kernel clients that read, write or ask, and the server on a netstack that serves them.
//!
//! Everybody keeps to a beat instead of going as fast as it can, so that both ways of waiting get the same load and what is
//! saved shows as idle time. Used by `polling/mod.rs`, which counts.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket as KernelSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use firelane::{Incoming, Poller, Ready, Stack, TcpListener, TcpStream as Stream, UdpSocket};

use crate::bulk::Way;
use crate::kernel::{self, CLIENT_CPU};
use crate::peer::{self, Result};
use crate::{cpu, udp};

/// What a program writes at once.
pub(crate) const WRITE_BYTES: usize = 8 << 10;
/// Between two writes of a connection.
pub(crate) const BEAT: Duration = Duration::from_millis(1);
/// Connections of a client, and sockets that ask at once.
pub(crate) const CONNECTIONS: usize = 10;
/// What makes a frame of 66 bytes.
const QUESTION_BYTES: usize = 66 - 42;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(2000);
/// Stands for the time of an answer that has not come.
pub(crate) const NEVER: u64 = u64::MAX;
const LISTENER_KEY: u64 = 0;

/// Serves connections by one thread: reads what comes, and writes to those who ask for it at every beat.
pub(crate) fn serve_streams(stack: &Stack, address: &str) -> Result<()> {
    let listener = TcpListener::bind(stack, address)?;
    listener.set_nonblocking(true)?;
    let poller = Poller::new();
    poller.watch(&listener, LISTENER_KEY, Ready::READABLE)?;
    std::thread::spawn(move || {
        let mut server = Server { listener, poller, streams: BTreeMap::new(), next: LISTENER_KEY + 1 };
        // What fails ends the server, and with it what its clients measure.
        let _ = server.run();
    });
    Ok(())
}

struct Server {
    listener: TcpListener,
    poller: Poller,
    streams: BTreeMap<u64, (Stream, Option<Way>)>,
    next: u64,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        let (mut events, mut room, text) = (Vec::new(), vec![0; 4 * WRITE_BYTES], vec![7; WRITE_BYTES]);
        let mut beat = Instant::now();
        loop {
            let is_writing = self.streams.values().any(|(_, way)| *way == Some(Way::Down));
            self.poller.wait(&mut events, is_writing.then(|| beat.saturating_duration_since(Instant::now())));
            for event in &events {
                match event.key {
                    LISTENER_KEY => self.accept()?,
                    key => self.read(key, &mut room),
                }
            }
            if Instant::now() >= beat {
                beat = Instant::now() + BEAT;
                self.write(&text);
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let key = self.next;
                    self.next += 1;
                    self.poller.watch(&stream, key, Ready::READABLE)?;
                    self.streams.insert(key, (stream, None));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self, key: u64, room: &mut [u8]) {
        let Some((stream, way)) = self.streams.get_mut(&key) else { return };
        loop {
            match stream.read(room) {
                Ok(count @ 1..) => {
                    let first = room[..count].first().copied();
                    way.get_or_insert(if first == Some(Way::Down.byte()) { Way::Down } else { Way::Up });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone.
                Ok(0) | Err(_) => break,
            }
        }
        self.streams.remove(&key);
    }

    /// What finds no room is left out: the client is behind.
    fn write(&mut self, text: &[u8]) {
        for (stream, _) in self.streams.values_mut().filter(|(_, way)| *way == Some(Way::Down)) {
            let _ = stream.write(text);
        }
    }
}

/// Sends datagrams back, as many at once as have come.
pub(crate) fn serve_datagrams(stack: &Stack, address: &str) -> Result<()> {
    let socket = UdpSocket::bind(stack, address)?;
    std::thread::spawn(move || -> io::Result<()> {
        let mut room = vec![vec![0; QUESTION_BYTES]; udp::BATCH];
        loop {
            let mut messages: Vec<_> = room.iter_mut().map(|buffer| Incoming::new(buffer)).collect();
            let count = socket.recv_many(&mut messages)?;
            let from: Vec<_> = messages[..count].iter().map(|it| (it.len, it.envelope)).collect();
            drop(messages);
            for (buffer, (len, envelope)) in room.iter().zip(from) {
                if let Some(envelope) = envelope {
                    socket.send_to(&buffer[..len], envelope.peer)?;
                }
            }
        }
    });
    Ok(())
}

/// `up|down ADDR MILLIS` is answered with the bytes that all connections carried, `ask ADDR SOCKETS MILLIS` with how many
/// questions were asked, the nanoseconds to the median answer and to one in a hundred, and how many were not answered: those come last.
pub(crate) fn play_client() -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    peer::serve(|words| match words {
        ["ask", address, sockets, millis] => {
            let span = Duration::from_millis(millis.parse()?);
            ask(address.parse()?, sockets.parse()?, span)
        }
        [way, address, millis] => {
            let span = Duration::from_millis(millis.parse()?);
            Ok(vec![carry(Way::parse(way)?, address.parse()?, span)?])
        }
        _ => Err("up|down ADDR MILLIS, or ask ADDR SOCKETS MILLIS".into()),
    })
}

fn carry(way: Way, address: SocketAddr, span: Duration) -> Result<u64> {
    let bytes = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..CONNECTIONS {
        let (mut stream, bytes) = (kernel::connect(address)?, Arc::clone(&bytes));
        stream.write_all(&[way.byte()])?;
        stream.set_read_timeout(Some(PATIENCE))?;
        threads.push(std::thread::spawn(move || match way {
            Way::Up => write_at_every_beat(stream, span, &bytes),
            Way::Down => read_all(stream, span, &bytes),
        }));
    }
    for thread in threads {
        thread.join().map_err(|_| "a connection's thread panicked")??;
    }
    Ok(bytes.load(Ordering::Relaxed))
}

fn write_at_every_beat(mut stream: TcpStream, span: Duration, bytes: &AtomicU64) -> io::Result<()> {
    let (start, text) = (Instant::now(), [7; WRITE_BYTES]);
    while start.elapsed() < span {
        stream.write_all(&text)?;
        bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        std::thread::sleep(BEAT);
    }
    Ok(())
}

fn read_all(mut stream: TcpStream, span: Duration, bytes: &AtomicU64) -> io::Result<()> {
    let (start, mut room) = (Instant::now(), [0; WRITE_BYTES]);
    while start.elapsed() < span {
        bytes.fetch_add(stream.read(&mut room)? as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn ask(address: SocketAddr, sockets: usize, span: Duration) -> Result<Vec<u64>> {
    let mut threads = Vec::new();
    for _ in 0..sockets {
        let socket = KernelSocket::bind("0.0.0.0:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        threads.push(std::thread::spawn(move || trips(&socket, span)));
    }
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().map_err(|_| "a socket's thread panicked")??);
    }
    all.sort_unstable();
    let lost = all.iter().filter(|&&nanos| nanos == NEVER).count();
    if lost == all.len() {
        return Err(format!("none of {lost} questions was answered").into());
    }
    let at = |share: f64| all[(all.len() as f64 * share) as usize];
    Ok(vec![all.len() as u64, at(0.5), at(0.99), lost as u64])
}

fn trips(socket: &KernelSocket, span: Duration) -> io::Result<Vec<u64>> {
    let (start, mut question) = (Instant::now(), [7; QUESTION_BYTES]);
    let mut nanos = Vec::new();
    while start.elapsed() < span {
        // An answer that comes late is not taken for the next one's.
        question[..8].copy_from_slice(&nanos.len().to_be_bytes());
        let asked = Instant::now();
        socket.send(&question)?;
        let is_answered = hears(socket, &question)?;
        nanos.push(if is_answered { asked.elapsed().as_nanos() as u64 } else { NEVER });
    }
    Ok(nanos)
}

/// Whether this comes back.
fn hears(socket: &KernelSocket, question: &[u8]) -> io::Result<bool> {
    let mut room = [0; QUESTION_BYTES];
    loop {
        match socket.recv(&mut room) {
            Ok(len) if room[..len] == *question => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
