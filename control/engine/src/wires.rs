//! Wires between links of one engine: the way out of both, with a rate, a length and faults.
//!
//! A wire is the pair of ends that `drivers/memory` simulates, each end the uplink of its link. The daemon makes one for each
//! of the model's; the conditions change while frames are under way.

use firelane_driver_memory::{Conditions, Control, WireConfig, WireCounters, wire};
use firelane_frame::Capabilities;
use firelane_units::{LinkId, Mtu};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::queue::Queue;

/// A wire between two links. It stays until [`Engine::remove_wire`].
#[derive(Debug)]
pub struct Wire {
    ends: [LinkId; 2],
    directions: [Control; 2],
}

impl Wire {
    /// Sets the conditions of both directions, the first from the first end to the second. What is as it was stays undisturbed.
    pub fn set(&self, conditions: [Conditions; 2]) {
        for (direction, conditions) in self.directions.iter().zip(conditions) {
            if direction.conditions() != conditions {
                direction.set(conditions);
            }
        }
    }

    /// What became of the frames of both directions.
    pub fn counters(&self) -> [WireCounters; 2] {
        [0, 1].map(|side| self.directions[side].counters())
    }
}

impl Engine {
    /// Makes a wire between two links that have no other way out. Each frame is one packet of at most `mtu`: what was to be cut
    /// is cut before. Without a seed its faults are others each time.
    ///
    /// # Errors
    /// A link does not exist or has an uplink; the system has no random number.
    pub fn add_wire(
        &self,
        ends: [LinkId; 2],
        mtu: Mtu,
        seed: Option<u64>,
        [forth, back]: [Conditions; 2],
    ) -> Result<Wire, ChangeError> {
        let mut random = [0; 8];
        if seed.is_none() {
            self.0.fabric.chance.fill(&mut random).map_err(ChangeError::Device)?;
        }
        let seed = seed.unwrap_or(u64::from_le_bytes(random));
        let capabilities = Capabilities::plain(mtu);
        let config = WireConfig { capabilities, seed, forth, back, timed: true, ..WireConfig::default() };
        let (one, two) = wire(config);
        let (Some(forth), Some(back)) = (one.control(), two.control()) else {
            unreachable!("a timed wire has controls");
        };
        self.add_uplink(ends[0], vec![Queue::from(one)])?;
        self.add_uplink(ends[1], vec![Queue::from(two)]).inspect_err(|_| {
            // It was made just above.
            let _ = self.remove_uplink(ends[0]);
        })?;
        Ok(Wire { ends, directions: [forth, back] })
    }

    /// Removes a wire; what is under way is lost.
    ///
    /// # Errors
    /// A lane has failed.
    pub fn remove_wire(&self, wire: &Wire) -> Result<(), ChangeError> {
        wire.ends.iter().try_for_each(|&end| self.remove_uplink(end))
    }
}
