//! RFC 6528 and RFC 7323 §5.4: initial sequence numbers and timestamps that nobody off the path can guess.
//!
//! Owns the keyed functions; the keys are the caller's (random per boot, the same in every lane of a
//! netstack, so that an incarnation opened in another lane still begins after the last one). Called by
//! `handshake` once per connection; [`TimestampClock`] is kept and read per segment.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use firelane_units::{Instant, SeqNum};
use siphasher::sip::SipHasher24;

/// The secret of a netstack.
#[derive(Clone)]
pub struct Secret {
    sequence: [u8; 16],
    timestamp: [u8; 16],
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret from 32 random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        let (sequence, timestamp) = random.split_at(16);
        let key = |half: &[u8]| core::array::from_fn(|i| half[i]);
        Self { sequence: key(sequence), timestamp: key(timestamp) }
    }

    /// The initial sequence number: `M + F(local, remote, secret)`, where M ticks every 4 µs
    /// (RFC 6528 §3, RFC 9293 MUST-8 and SHLD-1).
    pub fn initial_sequence(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> SeqNum {
        let ticks = (now.micros() / 4) as u32;
        SeqNum(ticks.wrapping_add(hash(&self.sequence, local, remote)))
    }

    /// The timestamp clock of a connection. Its offset depends on the four-tuple alone, so timestamps grow
    /// from one incarnation to the next and TIME-WAIT may be reused (RFC 6191).
    pub fn timestamp_clock(&self, local: SocketAddr, remote: SocketAddr) -> TimestampClock {
        TimestampClock { offset: hash(&self.timestamp, local, remote) }
    }
}

fn hash(key: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> u32 {
    let mut hasher = SipHasher24::new_with_key(key);
    for end in [local, remote] {
        match end.ip() {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        hasher.write(&end.port().to_be_bytes());
    }
    hasher.finish() as u32
}

/// A connection's timestamp clock: one tick per millisecond from a secret offset (RFC 7323 §5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampClock {
    offset: u32,
}

impl TimestampClock {
    /// A clock with a given offset, for an incarnation that must continue another one's.
    pub const fn from_offset(offset: u32) -> Self {
        Self { offset }
    }

    /// The value to send.
    pub const fn value(self, now: Instant) -> u32 {
        (now.millis() as u32).wrapping_add(self.offset)
    }

    /// The start of the tick in which `at` lies: instants of one tick have the same timestamp.
    pub const fn tick_start(at: Instant) -> Instant {
        Instant::from_millis(at.millis())
    }

    /// When the segment left whose timestamp the peer echoes: the start of that tick. `None` if the value
    /// lies in the future, which no honest peer's does.
    pub const fn sent_at(self, echoed: u32, now: Instant) -> Option<Instant> {
        let ticks = self.value(now).wrapping_sub(echoed) as u64;
        if ticks > u32::MAX as u64 / 2 || ticks > now.millis() {
            return None;
        }
        Some(Instant::from_millis(now.millis() - ticks))
    }
}
