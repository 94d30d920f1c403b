//! What a bulk connection carries, the same over every stack: a byte that says which way, then bytes.
//!
//! Up: the client writes for a while and ends its side; the server answers how many bytes came. Down: the server
//! writes until the client, which counts, has had enough. So the receiver counts in both directions.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::time::{Duration, Instant};

use crate::peer::Result;
use crate::report::Samples;
use crate::stream::Stream;

/// Bytes per read and write.
pub(crate) const WRITE_BYTES: usize = 128 << 10;

/// Which way the bytes go, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Up,
    Down,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Up, Self::Down];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|way| way.word() == word)
            .ok_or_else(|| format!("no way is {word:?}").into())
    }

    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Up => b'U',
            Self::Down => b'D',
        }
    }
}

/// The server's side of one connection, over any stack.
pub(crate) fn serve(stream: &mut (impl Read + Write), buffer: &mut [u8]) -> IoResult<()> {
    let mut way = [0];
    stream.read_exact(&mut way)?;
    if way[0] == Way::Down.byte() {
        loop {
            stream.write_all(buffer)?;
        }
    }
    let mut bytes = 0u64;
    loop {
        match stream.read(buffer) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.write_all(&bytes.to_be_bytes())
}

/// The client's side, over libc's sockets: bytes that arrived, and how long that took.
pub(crate) fn run(
    mut stream: impl Stream,
    way: Way,
    span: Duration,
    buffer: &mut [u8],
) -> Result<(u64, Duration)> {
    let start = Instant::now();
    stream.write_all(&[way.byte()])?;
    let mut bytes = 0;
    match way {
        Way::Up => {
            while start.elapsed() < span {
                stream.write_all(buffer)?;
            }
            stream.end()?;
            let mut count = [0; 8];
            stream.read_exact(&mut count)?;
            bytes = u64::from_be_bytes(count);
        }
        Way::Down => {
            while start.elapsed() < span {
                match stream.read(buffer)? {
                    0 => return Err("the server ended the connection".into()),
                    count => bytes += count as u64,
                }
            }
        }
    }
    Ok((bytes, start.elapsed()))
}

/// Rates of several rounds.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Gb per second of wall time.
    pub(crate) wall: Samples,
    /// Gb per second of CPU time, all parties and both CPUs.
    pub(crate) cpu: Samples,
    /// CPUs that were busy for it.
    pub(crate) cpus: Samples,
}

impl Rates {
    pub(crate) fn push(&mut self, bytes: u64, wall: Duration, busy: Duration) {
        let gigabits = bytes as f64 * 8e-9;
        self.wall.push(gigabits / wall.as_secs_f64());
        self.cpu.push(gigabits / busy.as_secs_f64());
        self.cpus.push(busy.as_secs_f64() / wall.as_secs_f64());
    }
}
