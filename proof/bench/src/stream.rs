//! The two ends of a stream that is measured: an echo of some bytes, blocking or spinning, and bulk.
//!
//! Roles of `peer.rs`, for every stack: by std's calls, which are libc's, so that a preloaded library stands in front
//! of them. What a connection is for stands in its first bytes, so a server serves all kinds for the whole run.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::bulk::{self, Way};
use crate::cpu;
use crate::peer::{self, Result};

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// A request and its answer, each end asleep until there is something to read.
    Blocking,
    /// The same, each end looking all the time.
    Spinning,
    /// Bytes from the client to the server.
    Bulk,
}

impl Use {
    const ALL: [Self; 3] = [Self::Blocking, Self::Spinning, Self::Bulk];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Spinning => "spinning",
            Self::Bulk => "bulk",
        }
    }

    fn parse(word: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|it| it.word() == word);
        found.ok_or_else(|| format!("no connection is for {word:?}").into())
    }
}

/// The most round trips that are timed one by one.
const TRIPS_MAX: usize = 1 << 20;

/// A stream over any stack.
pub(crate) trait Stream: Read + Write {
    /// Sends at once; `looks` if it is not to block.
    fn begin(&self, looks: bool) -> IoResult<()>;
    /// Sends no more.
    fn end(&self) -> IoResult<()>;
}

impl Stream for TcpStream {
    fn begin(&self, looks: bool) -> IoResult<()> {
        self.set_nodelay(true)?;
        self.set_nonblocking(looks)
    }

    fn end(&self) -> IoResult<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn begin(&self, looks: bool) -> IoResult<()> {
        self.set_nonblocking(looks)
    }

    fn end(&self) -> IoResult<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// `ADDR CPU`: serves one connection after the other until the input ends. A path is an AF_UNIX address.
pub(crate) fn play_server(args: &[&str]) -> Result<()> {
    let &[address, on] = args else { return Err("ADDR CPU".into()) };
    cpu::bind_to(on)?;
    if address.starts_with('/') {
        let listener = UnixListener::bind(address)?;
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| _ = serve(stream)));
    } else {
        let listener = TcpListener::bind(address)?;
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| _ = serve(stream)));
    }
    peer::serve(|_| Ok(Vec::new()))
}

/// The server's side of a connection, until the client ends it.
fn serve(mut stream: impl Stream) -> Result<()> {
    let mut what = [0; 8];
    stream.read_exact(&mut what)?;
    let number = u64::from_le_bytes(what);
    let (what, bytes) = (Use::ALL[number as usize & 3], (number >> 2) as usize);
    let mut message = vec![0; bytes];
    stream.begin(what == Use::Spinning)?;
    if what == Use::Bulk {
        return Ok(bulk::serve(&mut stream, &mut message)?);
    }
    loop {
        read_whole(&mut stream, &mut message)?;
        stream.write_all(&message)?;
    }
}

/// `CPU`, then `ADDR USE BYTES MILLIS` is answered with how many round trips, or bytes, came back; nanoseconds; and, of
/// the time of a round trip, median and the thousandth and the hundredth that are longest.
pub(crate) fn play_client(args: &[&str]) -> Result<()> {
    let &[on] = args else { return Err("CPU".into()) };
    cpu::bind_to(on)?;
    // Its pages are there before the first trip.
    let mut trips = vec![1; TRIPS_MAX];
    peer::serve(|words| {
        let &[address, what, bytes, millis] = words else { return Err("ADDR USE BYTES MILLIS".into()) };
        let (what, bytes) = (Use::parse(what)?, bytes.parse()?);
        let span = Duration::from_millis(millis.parse()?);
        if address.starts_with('/') {
            ask(UnixStream::connect(address)?, what, bytes, span, &mut trips)
        } else {
            ask(TcpStream::connect(address)?, what, bytes, span, &mut trips)
        }
    })
}

fn ask(
    mut stream: impl Stream,
    what: Use,
    bytes: usize,
    span: Duration,
    trips: &mut [u32],
) -> Result<Vec<u64>> {
    stream.write_all(&((bytes as u64) << 2 | what as u64).to_le_bytes())?;
    stream.begin(what == Use::Spinning)?;
    let mut message = vec![7; bytes];
    if what == Use::Bulk {
        let (bytes, took) = bulk::run(stream, Way::Up, span, &mut message)?;
        return Ok(vec![bytes, took.as_nanos() as u64, 0, 0, 0]);
    }
    let start = Instant::now();
    let (mut before, mut count) = (start, 0);
    while before - start < span && count < trips.len() {
        stream.write_all(&message)?;
        read_whole(&mut stream, &mut message)?;
        let now = Instant::now();
        trips[count] = (now - before).as_nanos() as u32;
        before = now;
        count += 1;
    }
    let trips = &mut trips[..count];
    trips.sort_unstable();
    let at = |thousandths: usize| trips.get(count * thousandths / 1000).copied().unwrap_or_default().into();
    Ok(vec![count as u64, (before - start).as_nanos() as u64, at(500), at(999), at(990)])
}

/// Reads one message; looks again and again if the stream does not block.
fn read_whole(stream: &mut impl Read, message: &mut [u8]) -> IoResult<()> {
    let mut done = 0;
    while done < message.len() {
        match stream.read(&mut message[done..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
