//! The door to the outside: what a driver must do, and what its device can.
//!
//! A driver moves chains between its device and a lane, and takes every notification decision from the
//! lane. Called by `path/lane` only, which knows drivers through this trait and is generic over it: there
//! is no dynamic dispatch per frame.

use firelane_units::{DropCounters, FlowId, Instant, Mtu};

use crate::{Chain, Pools, Weight};

/// What a device does itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The largest packet.
    pub mtu: Mtu,
    /// Completes a partial checksum.
    pub checksum_offload: bool,
    /// Cuts large TCP frames.
    pub segmentation: bool,
    /// Cuts large UDP frames.
    pub udp_segmentation: bool,
    /// The longest frame that it takes, link headers included; more than the MTU asks for only if it cuts.
    pub max_frame: usize,
}

/// Ethernet's header with one VLAN tag.
const LINK_HEADER_MAX: usize = 18;
/// The longest IP packet.
const PACKET_MAX: usize = 65_535;

impl Capabilities {
    /// A device that does nothing itself.
    pub const fn plain(mtu: Mtu) -> Self {
        Self {
            mtu,
            checksum_offload: false,
            segmentation: false,
            udp_segmentation: false,
            max_frame: mtu.bytes() as usize + LINK_HEADER_MAX,
        }
    }

    /// A device that completes checksums and cuts frames of up to 64 KiB.
    pub const fn full(mtu: Mtu) -> Self {
        Self {
            mtu,
            checksum_offload: true,
            segmentation: true,
            udp_segmentation: true,
            max_frame: PACKET_MAX + LINK_HEADER_MAX,
        }
    }
}

/// A way in and out.
pub trait Driver {
    /// What the device does itself. It may change (an MTU that shrinks); the lane asks once per turn.
    fn capabilities(&self) -> Capabilities;

    /// Which of its device's rings it is; the rings of a device are numbered from zero.
    fn ring(&self) -> u16 {
        0
    }

    /// Appends up to `budget` received frames to `out` and returns how many. What the driver itself drops
    /// is counted in `drops`.
    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize;

    /// Sends from the front of `chain`. Frames that the device refuses are dropped and counted; when it is
    /// full, the rest stays in the chain.
    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters);

    /// Begins to fetch the memory that [`Driver::transmit`] will use, because its turn is near. Asked twice for a turn: with
    /// `has_begun` what the first time has fetched can be asked.
    fn look_ahead(&self, has_begun: bool) {
        let _ = has_begun;
    }

    /// Asks for a wake-up when frames arrive, or takes the wish back. Returns whether frames are waiting
    /// already: then no wake-up comes and the lane must not sleep.
    fn notify(&mut self, on: bool) -> bool;

    /// Frames are left in the device until further notice (`is_left`), so that nobody need be woken for those that arrive
    /// meanwhile; or are not any more.
    fn leave(&mut self, is_left: bool) {
        let _ = is_left;
    }

    /// From now on the device's calls are known by this number, if it can be told from others'.
    fn call_as(&mut self, number: u32) {
        let _ = number;
    }

    /// Whether frames that are left in the device wake the lane again each time that it sleeps, or only those that arrive
    /// after it has read.
    fn remind(&mut self, on: bool) {
        let _ = on;
    }

    /// Whether the device has room for what arrives while a lane under load pauses between two looks.
    fn can_wait(&self) -> bool {
        false
    }

    /// Whether the last [`Driver::receive`] saw that nothing is left, and the device wakes the lane for whatever comes
    /// after it. Then there is no need to look once more before the lane sleeps.
    fn is_drained(&self) -> bool {
        false
    }

    /// Whether the last [`Driver::receive`] saw that the device is gone for good. Its descriptor tells that of itself without end, so
    /// nobody is to be reminded of it.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether frames come from it at all: not from one that is lent to a lane for what that one sends.
    fn is_read(&self) -> bool {
        true
    }

    /// Lets frames of the conversation that `frame` is of end before they are read, where the device can: its flow's limit
    /// would drop them anyway. Whether that conversation is out then.
    fn shut_out(&mut self, now: Instant, frame: &[u8], flow: FlowId) -> bool {
        let _ = (now, frame, flow);
        false
    }

    /// Lets the conversations of a flow in again.
    fn let_in(&mut self, now: Instant, flow: FlowId) {
        let _ = (now, flow);
    }

    /// Tells what was shut out since this was last asked, flow by flow.
    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        let _ = tell;
    }

    /// When the device will have something to do by itself: a simulated wire's next delivery.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Tells a device that has no clock of its own what time it is.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }
}
