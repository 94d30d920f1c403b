//! Numbers that nobody outside can guess, from the netstack's secret (RFC 6864, RFC 5927, CVE-2021-45486).
//!
//! Owns the keyed hash behind every table whose keys come from the network, and the sequence that spreads
//! timers and identifications. It has no source of randomness of its own: the engine gives the secret.

use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;

use siphasher::sip::SipHasher13;

/// A hash that an attacker cannot aim.
#[derive(Clone, Copy)]
pub(crate) struct Keyed {
    key: [u8; 16],
}

impl core::fmt::Debug for Keyed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Keyed(..)")
    }
}

impl Keyed {
    /// The hash for one purpose: others with another `purpose` say nothing about it.
    pub(crate) fn new(secret: [u8; 16], purpose: u64) -> Self {
        let half = |which: u64| {
            let mut hasher = SipHasher13::new_with_key(&secret);
            (purpose, which).hash(&mut hasher);
            hasher.finish().to_be_bytes()
        };
        let (high, low) = (half(0), half(1));
        Self { key: core::array::from_fn(|i| if i < 8 { high[i] } else { low[i - 8] }) }
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.key)
    }
}

/// A sequence of numbers.
#[derive(Debug)]
pub(crate) struct Random {
    keyed: Keyed,
    drawn: u64,
}

impl Random {
    /// The sequence of one replica, of which those of others say nothing.
    pub(crate) const fn new(keyed: Keyed, replica: u16) -> Self {
        Self { keyed, drawn: (replica as u64) << 48 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.keyed.hash_one(self.drawn)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// An instant of `span`, its beginning and end included.
    pub(crate) fn within(&mut self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos + 1))
    }

    /// Between half of `span` and one and a half (RFC 4861 §6.3.2: MIN_ and MAX_RANDOM_FACTOR).
    pub(crate) fn around(&mut self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(nanos / 2 + self.below(nanos.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_differ_and_seeds_repeat() {
        let draw = |secret, purpose| Random::new(Keyed::new([secret; 16], purpose), 0).draw();
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
        let replica = |n| Random::new(Keyed::new([1; 16], 1), n).draw();
        assert_eq!((replica(0), replica(1) != replica(0)), (draw(1, 1), true));
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(Keyed::new([7; 16], 0), 0);
        let span = Duration::from_secs(30);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            let around = random.around(span);
            assert!(around >= span / 2 && around < span * 3 / 2);
        }
    }
}
