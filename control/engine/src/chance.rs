//! Where an engine's random numbers come from: the system, or for a laboratory a seed.
//!
//! Called by `fabric.rs` for the lanes' secrets, and by sockets that draw a port.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The golden ratio in 64 bits: what SplitMix64 steps by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random bytes.
#[derive(Debug)]
pub(crate) struct Chance {
    /// The generator's state, if they come from a seed.
    seeded: Option<AtomicU64>,
}

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { seeded: seed.map(AtomicU64::new) }
    }

    /// Fills `to`.
    ///
    /// # Errors
    /// The system has none to give.
    pub(crate) fn fill(&self, to: &mut [u8]) -> io::Result<()> {
        let Some(state) = &self.seeded else { return getrandom::fill(to).map_err(io::Error::other) };
        for piece in to.chunks_mut(8) {
            let number = mix(state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP));
            piece.copy_from_slice(&number.to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }
}

/// SplitMix64's output function: every bit of the state reaches every bit of the number.
pub(crate) fn mix(state: u64) -> u64 {
    let one = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let two = (one ^ (one >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    two ^ (two >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(chance: &Chance) -> [u8; 20] {
        let mut bytes = [0; 20];
        chance.fill(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_seed_gives_the_same_again_and_the_system_does_not() {
        let (one, same, other) = (Chance::new(Some(1)), Chance::new(Some(1)), Chance::new(Some(2)));
        let first = drawn(&one);
        assert_eq!(first, drawn(&same));
        assert_ne!(first, drawn(&one));
        assert_ne!(first, drawn(&other));
        assert_ne!(drawn(&Chance::new(None)), drawn(&Chance::new(None)));
    }

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut bytes = [0; 16];
        Chance::new(Some(0)).fill(&mut bytes).unwrap();
        assert_eq!(bytes[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        assert_eq!(bytes[8..], 0x6e78_9e6a_a1b9_65f4_u64.to_le_bytes());
    }
}
