//! What a lane is built from.

use std::sync::Arc;

use firelane_classify::{SteeringKey, TableKey};
use firelane_frame::PoolsConfig;
use firelane_units::{Instant, LaneId};

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

    /// The key of port choice (RFC 6056).
    pub(crate) fn ports(&self) -> u64 {
        self.word(5) ^ self.word(13)
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
