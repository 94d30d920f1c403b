//! What a lane is built from.

use core::hash::Hasher;
use std::sync::Arc;

use firelane_classify::{SteeringKey, TableKey};
use firelane_frame::PoolsConfig;
use firelane_units::{Instant, LaneId, NetstackId};
use siphasher::sip::SipHasher24;

use crate::backlog::Backlogs;

/// A lane's identity and sizes.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Which lane it is; dense from zero.
    pub id: LaneId,
    /// The sizes of its buffer pools.
    pub pools: PoolsConfig,
    /// The process' secrets; the same in every lane.
    pub secrets: Secrets,
    /// What every lane has fetched and nobody consumed; one object for all lanes.
    pub backlogs: Arc<Backlogs>,
    /// How many connections to make room for at the start.
    pub connections: usize,
    /// The instant at which it begins.
    pub start: Instant,
}

impl LaneConfig {
    /// Default sizes for lane `id`.
    pub fn new(id: LaneId, secrets: Secrets, backlogs: Arc<Backlogs>, start: Instant) -> Self {
        Self { id, pools: PoolsConfig::default(), secrets, backlogs, connections: 1024, start }
    }
}

/// Random keys, drawn once per process: what a peer must not be able to compute. Lanes share them, so that
/// they agree where a connection belongs and which initial sequence number it has.
#[derive(Clone, Copy)]
pub struct Secrets([u8; Self::BYTES]);

impl Secrets {
    /// How many random bytes they are drawn from.
    pub const BYTES: usize = 160;

    /// Secrets from random bytes.
    pub const fn new(random: [u8; Self::BYTES]) -> Self {
        Self(random)
    }

    /// The secrets of one netstack. Another one, which may be another tenant's and have the same addresses, must not learn this one's
    /// numbers by making some of its own (RFC 6528, RFC 6056). Steering is the lanes' and shows on no wire: it stays the same.
    pub(crate) fn of(&self, netstack: NetstackId) -> Self {
        let mut own = *self;
        let (_, keys) = own.0.split_at_mut(Self::STEERING);
        for (n, word) in (0..).zip(keys.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.derived(u64::from(netstack.0), n).to_le_bytes());
        }
        own
    }

    /// How many of the bytes steer.
    const STEERING: usize = 32;

    /// A word that tells nothing of the secrets or of other words. Cookies of Fast Open have the same key and longer texts.
    fn derived(&self, purpose: u64, n: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.fast_open());
        hasher.write_u64(purpose);
        hasher.write_u64(n);
        hasher.finish()
    }

    /// The key of the symmetric hash.
    pub fn steering(&self) -> SteeringKey {
        SteeringKey(core::array::from_fn(|n| self.word(n)))
    }

    /// The key of the connection tables.
    pub(crate) fn table(&self) -> TableKey {
        TableKey(self.word(4), self.word(5))
    }

    /// The key of initial sequence numbers and timestamp clocks (RFC 6528).
    pub(crate) fn sequence(&self) -> [u8; 32] {
        self.part(48)
    }

    /// The key of the TIME-WAIT table.
    pub(crate) fn time_wait(&self) -> [u8; 16] {
        self.part(80)
    }

    /// The key of SYN cookies (RFC 4987).
    pub(crate) fn cookie(&self) -> [u8; 16] {
        self.part(128)
    }

    /// The key of Fast Open cookies (RFC 7413).
    pub(crate) fn fast_open(&self) -> [u8; 16] {
        self.part(144)
    }

    /// The key of the challenge budget.
    pub(crate) fn challenge(&self) -> [u8; 16] {
        self.part(96)
    }

    /// The key from which the ports of datagram sockets are drawn (RFC 6056 §3.3).
    pub(crate) fn ports(&self) -> [u8; 16] {
        const PORTS: u64 = u64::MAX;
        let [a, b] = [0, 1].map(|n| self.derived(PORTS, n).to_le_bytes());
        core::array::from_fn(|at| if at < 8 { a[at] } else { b[at - 8] })
    }

    /// What spreads datagrams over sockets that share an address.
    pub(crate) fn spread(&self) -> u64 {
        self.word(4) ^ self.word(12)
    }

    /// The keys of the filter's tables.
    pub(crate) fn filter(&self) -> [(u64, u64); 2] {
        [(4, 14), (5, 15)].map(|(a, b)| (self.word(a) ^ self.word(b), self.word(a + 4) ^ self.word(b)))
    }

    /// The key of address translation's tables and ports.
    pub(crate) fn nat(&self) -> (u64, u64) {
        (self.word(6) ^ self.word(12), self.word(7) ^ self.word(13))
    }

    /// What a netstack's IP side draws by chance.
    pub(crate) fn ip(&self) -> [u8; 16] {
        self.part(112)
    }

    fn word(&self, n: usize) -> u64 {
        u64::from_le_bytes(self.part(n * 8))
    }

    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.0[at..].first_chunk().expect("the offsets above lie within the secret bytes")
    }
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S14: of the secrets that two netstacks have nothing is the same but how their frames are steered.
    #[test]
    fn s14_netstacks_have_keys_of_their_own() {
        let all = Secrets::new(core::array::from_fn(|at| at as u8));
        let [one, other] = [0, 1].map(|id| all.of(NetstackId(id)));
        assert_eq!((one.steering().0, one.ports()), (all.steering().0, all.of(NetstackId(0)).ports()));
        let words = |secrets: &Secrets| -> Vec<u64> { (4..20).map(|n| secrets.word(n)).collect() };
        let mut seen: Vec<u64> = [&all, &one, &other].into_iter().flat_map(words).collect();
        seen.extend(
            [one.ports(), other.ports()].map(|key| u64::from_le_bytes(*key.first_chunk().expect("16"))),
        );
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((count, seen.len()), (50, 50));
    }
}
