//! What a wire is like: its configuration, and the conditions that may change while it is in use.
//!
//! Plain values; `direction.rs` gives them their meaning.

use core::time::Duration;
use std::collections::BTreeSet;

use firelane_frame::Capabilities;
use firelane_units::{BitRate, Bytes, Mtu};

use crate::Chance;

/// How to make a wire.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// What both ends say that their device does itself. With segmentation on, frames of up to 64 KiB pass
    /// as they are; off, the sender has to cut them to the MTU.
    pub capabilities: Capabilities,
    /// Frames that a direction without conditions holds; a sender keeps what does not fit.
    pub ring_frames: usize,
    /// The seed of all faults.
    pub seed: u64,
    /// The conditions from the first end to the second.
    pub forth: Conditions,
    /// The conditions from the second end to the first.
    pub back: Conditions,
    /// Simulates time although there are no conditions, so that a [`Control`](crate::Control) can set some
    /// later.
    pub timed: bool,
}

impl Default for WireConfig {
    /// Full speed, all offloads, an MTU of 1,500.
    fn default() -> Self {
        Self {
            capabilities: Capabilities::full(Mtu::ETHERNET),
            ring_frames: 1024,
            seed: 0,
            forth: Conditions::default(),
            back: Conditions::default(),
            timed: false,
        }
    }
}

impl WireConfig {
    /// A simulated wire with the same conditions both ways, whose device does nothing itself: each frame is
    /// one packet of at most 1,500 bytes.
    pub fn simulated(seed: u64, conditions: Conditions) -> Self {
        Self {
            capabilities: Capabilities::plain(Mtu::ETHERNET),
            seed,
            forth: conditions.clone(),
            back: conditions,
            timed: true,
            ..Self::default()
        }
    }

    /// Whether the wire needs a clock.
    pub fn is_timed(&self) -> bool {
        self.timed || self.forth != Conditions::default() || self.back != Conditions::default()
    }
}

/// What happens to frames in one direction. The default is: nothing, at once.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    /// How fast frames leave, one after the other; `None` is at once.
    pub rate: Option<BitRate>,
    /// What may wait to leave, the frame on its way out included. A frame that finds more is dropped; one
    /// that finds nothing is always taken. Without a rate nothing waits.
    pub queue: Bytes,
    /// What may be under way in all, waiting or on the wire: a bound of the memory that a long wire takes. A frame that finds
    /// more is dropped as by a full queue.
    pub flight: Bytes,
    /// From the end of sending to arrival.
    pub delay: Duration,
    /// Up to so much more delay, evenly distributed. It does not reorder.
    pub jitter: Duration,
    /// Which frames are lost.
    pub loss: Loss,
    /// Which packets are marked instead of lost, if their transport is capable (RFC 3168).
    pub mark: Mark,
    /// Which frames are overtaken.
    pub reorder: Reorder,
    /// How many frames arrive twice.
    pub duplicate: Chance,
    /// How many frames arrive with one bit flipped.
    pub corrupt: Chance,
    /// Whether the receiver can tell.
    pub corruption: Corruption,
    /// The largest packet that gets through, smaller than what the device says: a path MTU that nobody
    /// announces.
    pub mtu: Option<Mtu>,
    /// Nothing gets through.
    pub blackhole: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            rate: None,
            queue: Bytes(1 << 20),
            flight: Bytes(u64::MAX),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            mark: Mark::None,
            reorder: Reorder::None,
            duplicate: Chance::NEVER,
            corrupt: Chance::NEVER,
            corruption: Corruption::Shows,
            mtu: None,
            blackhole: false,
        }
    }
}

/// Which frames are lost.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same chance.
    Random(Chance),
    /// In bursts.
    Burst(GilbertElliott),
    /// These and no others, counted from zero when the conditions are set.
    Scripted(BTreeSet<u64>),
}

/// The Gilbert-Elliott model: a wire that is good or bad, and changes before each frame.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// From good to bad.
    pub worsen: Chance,
    /// From bad to good.
    pub recover: Chance,
    /// Loss while good.
    pub loss_good: Chance,
    /// Loss while bad.
    pub loss_bad: Chance,
}

/// Which packets of ECN-capable transports get the mark "congestion experienced".
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Mark {
    /// None.
    #[default]
    None,
    /// Each with the same chance.
    Random(Chance),
    /// Those that find more than this waiting: what a data centre's switch does for DCTCP (RFC 8257 §3.1).
    Above(Bytes),
}

/// Which frames are overtaken by later ones.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Reorder {
    /// None.
    #[default]
    None,
    /// Some take longer.
    Delay {
        /// How many.
        chance: Chance,
        /// How much longer.
        extra: Duration,
    },
    /// Some are held until a number of later ones has passed.
    Positions {
        /// How many.
        chance: Chance,
        /// How many pass.
        later: u32,
        /// When they go on although fewer have passed, counted from when they were due.
        at_most: Duration,
    },
}

/// Whether a receiver can tell that a frame was corrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Corruption {
    /// The transport checksum is complete before the bit is flipped, and must be verified.
    #[default]
    Shows,
    /// The device says that the checksum is good.
    Hidden,
}
