//! RFC 6528 and RFC 7323 §5.4: initial sequence numbers and timestamps that nobody off the path can guess.
//!
//! Owns the keyed functions; the keys are the caller's (random per boot, the same in every lane of a
//! netstack, so that an incarnation opened in another lane still begins after the last one). Called by
//! `handshake` once per connection; [`TimestampClock`] is kept and read per segment.

use core::net::{IpAddr, SocketAddr};

use firelane_units::{Instant, SeqNum};
use siphasher::sip::SipHasher24;

/// The secret of a netstack.
#[derive(Clone)]
pub struct Secret {
    numbers: [u8; 16],
    ports: [u8; 16],
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret from 32 random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        let (numbers, ports) = random.split_at(16);
        let key = |half: &[u8]| core::array::from_fn(|i| half[i]);
        Self { numbers: key(numbers), ports: key(ports) }
    }

    /// What a connection begins with: the initial sequence number, `M + F(local, remote, secret)`, where M ticks every 4 µs
    /// (RFC 6528 §3, RFC 9293 MUST-8 and SHLD-1), and its timestamp clock, whose offset depends on the four-tuple alone, so
    /// that timestamps grow from one incarnation to the next and TIME-WAIT may be reused (RFC 6191). Both are halves of one
    /// keyed hash, of which neither tells anything of the other.
    pub fn numbers(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> (SeqNum, TimestampClock) {
        let word = hash(&self.numbers, local, remote);
        let ticks = (now.micros() / 4) as u32;
        (SeqNum(ticks.wrapping_add(word as u32)), TimestampClock { offset: (word >> 32) as u32 })
    }

    /// Where the search for a local port towards a peer begins: F(local address, remote address and port, secret) of
    /// RFC 6056 §3.3.3.
    pub fn port_offset(&self, local: IpAddr, remote: SocketAddr) -> u32 {
        hash(&self.ports, SocketAddr::new(local, 0), remote) as u32
    }
}

fn hash(key: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> u64 {
    // Two ends of one family; the longest is an IPv6 address and a port.
    let (mut bytes, mut len) = ([0; 36], 0);
    let mut add = |piece: &[u8]| {
        bytes[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    };
    for end in [local, remote] {
        match end.ip() {
            IpAddr::V4(v4) => add(&v4.octets()),
            IpAddr::V6(v6) => add(&v6.octets()),
        }
        add(&end.port().to_be_bytes());
    }
    SipHasher24::new_with_key(key).hash(&bytes[..len])
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use core::time::Duration;
    use proptest::prelude::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(core::array::from_fn(|i| byte.wrapping_mul(31).wrapping_add(i as u8)))
    }

    impl Secret {
        fn initial_sequence(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> SeqNum {
            self.numbers(now, local, remote).0
        }
    }

    fn end(last: u8, port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(10, 0, 0, last).into(), port)
    }

    #[test]
    fn one_tuple_moves_with_the_clock_alone() {
        // RFC 6528 §3: an incarnation begins after the last one, 250,000 numbers per second.
        let (local, remote) = (end(1, 80), end(2, 40_000));
        let now = Instant::from_secs(77);
        let first = secret(1).initial_sequence(now, local, remote);
        let later = secret(1).initial_sequence(now + Duration::from_secs(1), local, remote);
        assert_eq!(later.distance_from(first), 250_000);
    }

    #[test]
    fn secret_tuple_and_direction_matter() {
        let now = Instant::from_secs(1);
        let (a, b) = (end(1, 80), end(2, 40_000));
        let base = secret(1).initial_sequence(now, a, b);
        let v6 = |last| SocketAddr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).into(), 80);
        let others = [
            secret(2).initial_sequence(now, a, b),
            secret(1).initial_sequence(now, b, a),
            secret(1).initial_sequence(now, a, end(2, 40_001)),
            secret(1).initial_sequence(now, a, end(3, 40_000)),
            secret(1).initial_sequence(now, v6(1), v6(2)),
        ];
        assert!(others.iter().all(|&other| other != base));
        assert!(!format!("{:?}", secret(7)).contains(char::is_numeric), "a secret is not printed");
    }

    #[test]
    fn numbers_of_neighbouring_tuples_are_spread_evenly() {
        // S14: 65,536 ports, one instant. Each bit is set half the time, and so is each bit of the difference
        // between neighbours; five standard deviations are 640.
        let now = Instant::from_secs(5);
        for key in 0..4 {
            let secret = secret(key);
            let numbers: Vec<u32> =
                (0..=u16::MAX).map(|port| secret.initial_sequence(now, end(1, 80), end(2, port)).0).collect();
            let offsets: Vec<u32> = (0..=u16::MAX)
                .map(|port| secret.numbers(now, end(1, 80), end(2, port)).1.value(now))
                .collect();
            for values in [numbers, offsets] {
                for bit in 0..32 {
                    let ones = values.iter().filter(|value| *value >> bit & 1 == 1).count();
                    let flips = values.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1).count();
                    assert!(
                        ones.abs_diff(32_768) < 640 && flips.abs_diff(32_768) < 640,
                        "bit {bit}: {ones} {flips}"
                    );
                }
            }
        }
    }

    /// S14: first ports towards neighbouring peers are spread evenly over the range, and one peer's says nothing about
    /// the next one's.
    #[test]
    fn s14_ports_towards_neighbours_are_spread_evenly() {
        const RANGE: u32 = 28_232;
        let ports: Vec<u32> =
            (1..=u16::MAX).map(|port| secret(3).port_offset(end(1, 0).ip(), end(2, port)) % RANGE).collect();
        // 16 buckets of 4096 with a standard deviation of 62.
        let mut buckets = [0u32; 16];
        let mut steps = [0u32; 16];
        ports.iter().for_each(|port| buckets[(port * 16 / RANGE) as usize] += 1);
        ports
            .windows(2)
            .for_each(|pair| steps[((pair[1] + RANGE - pair[0]) % RANGE * 16 / RANGE) as usize] += 1);
        for counts in [buckets, steps] {
            assert!(counts.iter().all(|count| count.abs_diff(4096) < 310), "{counts:?}");
        }
        assert_ne!(
            secret(3).port_offset(end(1, 0).ip(), end(2, 80)),
            secret(4).port_offset(end(1, 0).ip(), end(2, 80))
        );
    }

    #[test]
    fn an_echo_from_the_future_is_refused() {
        let clock = TimestampClock::from_offset(7);
        let now = Instant::from_secs(10);
        assert_eq!(clock.sent_at(clock.value(now).wrapping_add(1), now), None);
        assert_eq!(clock.sent_at(clock.value(now).wrapping_sub(10_001), now), None, "before the epoch");
    }

    proptest! {
        #[test]
        fn an_echo_gives_the_tick_back(offset: u32, sent in 0u64..1 << 50, flight in 0u64..1 << 40) {
            let clock = TimestampClock::from_offset(offset);
            let sent = Instant::from_nanos(sent);
            let now = sent + Duration::from_nanos(flight);
            prop_assert_eq!(clock.sent_at(clock.value(sent), now), Some(TimestampClock::tick_start(sent)));
        }
    }
}
