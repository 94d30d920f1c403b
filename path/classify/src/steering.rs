//! Which lane owns a connection: an indirection table of 128 entries, as NICs have for RSS.
//!
//! A lane looks here before it looks for the connection. The table is small enough to copy to every lane
//! whenever lanes are added or removed; entries move, hashes do not.

use firelane_units::LaneId;

/// How many entries the table has.
pub const STEERING_ENTRIES: usize = 128;

/// From hash to lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steering {
    entries: [LaneId; STEERING_ENTRIES],
    /// Not all entries are of one lane.
    is_spread: bool,
}

impl Steering {
    /// All connections in one lane.
    pub const fn single(lane: LaneId) -> Self {
        Self { entries: [lane; STEERING_ENTRIES], is_spread: false }
    }

    /// Entries dealt to `lanes` in turn. No lanes means lane zero.
    pub fn even(lanes: &[LaneId]) -> Self {
        let mut steering = Self::single(LaneId(0));
        for (entry, &lane) in steering.entries.iter_mut().zip(lanes.iter().cycle()) {
            *entry = lane;
        }
        steering.look();
        steering
    }

    /// The lane of a symmetric hash.
    #[inline]
    pub const fn lane_of(&self, hash: u32) -> LaneId {
        self.entries[Self::entry_of(hash)]
    }

    /// The entry that a hash falls into.
    #[inline]
    pub const fn entry_of(hash: u32) -> usize {
        hash as usize % STEERING_ENTRIES
    }

    /// The lane of what has no ports: ARP, neighbour discovery, ICMP and fragments.
    pub const fn home(&self) -> LaneId {
        self.entries[0]
    }

    /// Gives an entry to another lane.
    ///
    /// # Panics
    /// If `entry` is not below [`STEERING_ENTRIES`].
    pub const fn set(&mut self, entry: usize, lane: LaneId) {
        self.entries[entry] = lane;
        self.look();
    }

    const fn look(&mut self) {
        let mut entry = 1;
        self.is_spread = false;
        while entry < STEERING_ENTRIES {
            self.is_spread |= self.entries[entry].0 != self.entries[0].0;
            entry += 1;
        }
    }

    /// The lane of everything, if it is one: nobody has to hash anything then.
    #[inline]
    pub const fn only(&self) -> Option<LaneId> {
        if self.is_spread { None } else { Some(self.entries[0]) }
    }

    /// The lane of every entry.
    pub const fn entries(&self) -> &[LaneId; STEERING_ENTRIES] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_get_equal_shares() {
        for lanes in [1u16, 2, 3, 4] {
            let ids: Vec<_> = (0..lanes).map(LaneId).collect();
            let steering = Steering::even(&ids);
            for id in ids {
                let share = steering.entries().iter().filter(|&&l| l == id).count();
                assert!(share.abs_diff(STEERING_ENTRIES / usize::from(lanes)) <= 1, "{share} of {lanes}");
            }
        }
    }

    #[test]
    fn an_entry_moves_alone() {
        let mut steering = Steering::even(&[LaneId(0)]);
        steering.set(5, LaneId(9));
        assert_eq!(steering.lane_of(5 + 128), LaneId(9));
        assert_eq!((steering.lane_of(4), steering.home()), (LaneId(0), LaneId(0)));
        assert_eq!(Steering::even(&[]), Steering::single(LaneId(0)));
    }
}
