//! Text that a service echoes while something happens to the lanes that carry it: every byte comes back.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use firelane::TcpStream;

/// A megabyte, another one for each seed.
pub(crate) fn text(seed: u32) -> Vec<u8> {
    (0..1_000_000u32).map(|n| (n.wrapping_mul(seed + 3) % 251) as u8).collect()
}

/// Sends text to a service that echoes it, and compares every byte.
pub(crate) fn exchange(mut stream: TcpStream, sent: &[u8]) {
    let mut writing = stream.clone();
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writing.write_all(sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut received).unwrap();
    });
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}
