//! What arrives at an interface, sampled while traffic runs, and who sends and receives that traffic.
//!
//! The counters of the receiver's interface are read every few milliseconds, in its own namespace, so that every shaper is
//! measured at the same place by the same means: neither at the sender, whose buffers fill first, nor by what a program
//! has read, which a retransmission holds up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::bulk::{WRITE_BYTES, Way};
use crate::kernel::{self, CLIENT_CPU, SERVER_CPU};
use crate::peer::{self, Result};
use crate::stream::Use;
use crate::{bridge, cpu};

/// Where the kernel's programs listen, in a namespace with several addresses.
pub(crate) const PORT: u16 = 5001;
/// A frame of the interfaces that are measured, which have an MTU of 1,500.
pub(crate) const FRAME_BYTES: f64 = 1514.0;
/// What a TCP segment with timestamps carries before its data.
const TCP_HEADERS: f64 = 66.0;
/// A datagram that fills a frame.
const DATAGRAM_BYTES: usize = 1472;

/// How often the counters are read.
const PERIOD: Duration = Duration::from_millis(5);
/// A reading that took longer, because the reader was put aside, says nothing of when it was.
const READING_MAX: Duration = Duration::from_micros(200);
/// How long a call of a source may block.
const SLICE: Duration = Duration::from_millis(20);
/// What a sender needs until its window is open.
const WARM_UP: Duration = Duration::from_millis(100);

/// Stands for an interface where what the connection's reader has read is to be sampled.
pub(crate) const READ: &str = "-";

/// What a wire had carried at an instant of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    /// Bytes with the headers of every packet.
    pub(crate) bytes: f64,
}

/// How far windows are off the limit, as shares of it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Errors {
    /// The window that carries most, from the first frame on.
    pub(crate) above: f64,
    /// The window that carries least, as soon as the sender is warm.
    pub(crate) below: f64,
}

impl Errors {
    /// The worse of both.
    pub(crate) fn worst(&self) -> f64 {
        self.above.max(self.below)
    }
}

/// The samples of what the sink has answered.
pub(crate) fn samples(numbers: &[u64]) -> Vec<Sample> {
    let sample = |of: &[u64]| {
        let (packets, bytes) = (of[1] as f64, of[2] as f64);
        // A frame that stands for many segments is counted by the kernel with the headers of one. All segments are full,
        // and datagrams are as long as they.
        let bytes = (bytes - packets * TCP_HEADERS) * FRAME_BYTES / (FRAME_BYTES - TCP_HEADERS);
        Sample { at: Duration::from_nanos(of[0]), bytes }
    };
    numbers.chunks_exact(3).map(sample).collect()
}

/// The same of what a program has read, which has no headers.
pub(crate) fn text(numbers: &[u64]) -> Vec<Sample> {
    let sample = |of: &[u64]| Sample { at: Duration::from_nanos(of[0]), bytes: of[2] as f64 };
    numbers.chunks_exact(3).map(sample).collect()
}

/// How exact a limit was in every window of this length.
pub(crate) fn errors(samples: &[Sample], bits_per_second: f64, window: Duration) -> Result<Errors> {
    let silent = samples.first().ok_or("nothing was sampled")?.bytes;
    let begin = samples.iter().position(|it| it.bytes > silent).ok_or("nothing was sent")?.saturating_sub(1);
    let warm = samples[begin].at + WARM_UP;
    let mut worst: Option<Errors> = None;
    for (nth, from) in samples.iter().enumerate().skip(begin) {
        let end = from.at + window - PERIOD / 2;
        let Some(to) = samples[nth..].iter().find(|it| it.at >= end) else { break };
        let due = bits_per_second / 8.0 * (to.at - from.at).as_secs_f64();
        let error = (to.bytes - from.bytes) / due - 1.0;
        let all = worst.get_or_insert_default();
        all.above = all.above.max(error);
        if from.at >= warm {
            all.below = all.below.max(-error);
        }
    }
    worst.ok_or_else(|| "no window was sampled from its begin to its end".into())
}

/// `INTERFACE MILLIS` is answered with nanoseconds, packets and bytes of each reading. What comes to `PORT` is taken
/// meanwhile, and with a third word, an address, a connection takes what a server there sends; instead of an interface's counters
/// its own may be sampled ([`READ`]).
pub(crate) fn play_sink() -> Result<()> {
    cpu::bind(SERVER_CPU)?;
    let listener = kernel::listen(SocketAddr::from(([0, 0, 0, 0], PORT)))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || swallow(stream, &AtomicU64::new(0)));
        }
    });
    // Datagrams need a receiver, or their sender would be told that there is none; nobody reads them.
    let _datagrams = UdpSocket::bind(("0.0.0.0", PORT))?;
    peer::serve(|words| {
        let (&[interface, millis], from) = words.split_first_chunk().ok_or("INTERFACE MILLIS [ADDR]")?;
        let span = Duration::from_millis(millis.parse()?);
        let stream = match from.first() {
            None => None,
            // Only calls of libc reach a netstack; what goes through the kernel chooses its congestion control.
            Some(address) if interface == READ => Some(begin_down(TcpStream::connect(address)?)?),
            Some(address) => Some(begin_down(kernel::connect(address.parse()?)?)?),
        };
        let reader = match &stream {
            None => None,
            Some(stream) => Some((stream.try_clone()?, stream.try_clone()?)),
        };
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let counters = || match interface {
            READ => Ok([0, read.load(Ordering::Relaxed)]),
            _ => bridge::received(interface),
        };
        let numbers = sample(counters, span, || {
            if let Some((mut asking, reading)) = reader {
                asking.write_all(&[Way::Down.byte()])?;
                std::thread::spawn(move || swallow(reading, &counted));
            }
            Ok(())
        });
        stream.map(|stream| stream.shutdown(std::net::Shutdown::Both)).transpose()?;
        numbers
    })
}

/// Reads the counters for a while, after traffic was asked for.
fn sample(
    counters: impl Fn() -> Result<[u64; 2]>,
    span: Duration,
    ask: impl FnOnce() -> Result<()>,
) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let start = Instant::now();
    let mut read = || -> Result<()> {
        let before = start.elapsed();
        let [packets, bytes] = counters()?;
        let after = start.elapsed();
        if after - before <= READING_MAX {
            numbers.extend([(before + after).as_nanos() as u64 / 2, packets, bytes]);
        }
        Ok(())
    };
    read()?;
    ask()?;
    while start.elapsed() < span {
        std::thread::sleep(PERIOD);
        read()?;
    }
    Ok(numbers)
}

/// Tells a `stream-server`, which waits for what it is to do.
fn begin_down(mut stream: TcpStream) -> Result<TcpStream> {
    stream.write_all(&((WRITE_BYTES as u64) << 2 | Use::Bulk as u64).to_le_bytes())?;
    Ok(stream)
}

/// Reads until there is nothing more, or the connection is reset, and counts.
fn swallow(mut stream: TcpStream, read: &AtomicU64) {
    let mut buffer = vec![0; WRITE_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        read.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// `tcp|udp ADDR MILLIS`: sends as fast as it may, and is answered with nothing.
pub(crate) fn play_source() -> Result<()> {
    cpu::bind(CLIENT_CPU)?;
    peer::serve(|words| {
        let &[what, address, millis] = words else { return Err("tcp|udp ADDR MILLIS".into()) };
        let (address, span): (SocketAddr, _) = (address.parse()?, Duration::from_millis(millis.parse()?));
        let start = Instant::now();
        if what == "udp" {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(address)?;
            socket.set_write_timeout(Some(SLICE))?;
            let datagram = [7; DATAGRAM_BYTES];
            while start.elapsed() < span {
                // A full queue and a full device are what a limit looks like from here.
                let _ = socket.send(&datagram);
            }
            return Ok(Vec::new());
        }
        let mut stream = kernel::connect(address)?;
        stream.set_write_timeout(Some(SLICE))?;
        // What has not left at the end would take seconds at a low rate.
        sockopt::set_socket_linger(stream.as_fd(), Some(Duration::ZERO))?;
        let buffer = vec![7; WRITE_BYTES];
        while start.elapsed() < span {
            match stream.write(&buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rate(bytes_per_sample: impl Fn(u64) -> f64) -> Vec<Sample> {
        let mut sum = 0.0;
        let sample = |n: u64| {
            sum += bytes_per_sample(n);
            Sample { at: PERIOD * n as u32, bytes: sum }
        };
        (0..200).map(sample).collect()
    }

    #[test]
    fn windows_are_judged_from_the_first_frame_and_missed_only_when_warm() {
        let window = Duration::from_millis(100);
        // 8 Mb/s are 5,000 bytes in each period.
        let exact = at_rate(|n| if n < 4 { 0.0 } else { 5000.0 });
        let errors_of = |samples: &[Sample]| errors(samples, 8e6, window).unwrap();
        assert!(errors_of(&exact).worst() < 1e-9);
        let burst = errors_of(&at_rate(|n| match n {
            0..4 => 0.0,
            4 => 55_000.0,
            _ => 5000.0,
        }));
        assert!((burst.above - 0.5).abs() < 1e-9 && burst.below < 1e-9, "{burst:?}");
        let slow = errors_of(&at_rate(|n| if n < 8 { 0.1 } else { 5000.0 }));
        assert!(slow.below < 1e-9, "{slow:?}");
        let gap = errors_of(&at_rate(|n| if n == 60 { 0.0 } else { 5000.0 }));
        assert!((gap.below - 0.05).abs() < 1e-9, "{gap:?}");
        assert!(errors(&at_rate(|_| 0.0), 8e6, window).is_err());
    }

    #[test]
    fn large_frames_count_as_their_segments() {
        // One frame for ten segments, and ten frames of one.
        let large = samples(&[0, 1, 66 + 14_480]);
        let small = samples(&[0, 10, 15_140]);
        assert_eq!(large, small);
    }
}
