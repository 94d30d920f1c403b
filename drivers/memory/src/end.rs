//! An end of a wire: the driver that a lane sees.
//!
//! Owns the choice between the two kinds of wire (rings at full speed, or a simulation under a lock) and the
//! wake-ups between the two ends.

use core::fmt;
use core::task::Waker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane_frame::{
    Capabilities, Chain, Checksum, Driver, FlowTag, Frame, ParcelConsumer, ParcelProducer, Pools,
    SegmentKind, parcel_ring,
};
use firelane_units::{DropCounters, DropReason, Instant};

use crate::bell::Bell;
use crate::chance::Random;
use crate::conditions::{Conditions, WireConfig};
use crate::direction::{Direction, WireCounters};

/// Makes a wire and returns its ends.
pub fn wire(config: WireConfig) -> (End, End) {
    let is_timed = config.is_timed();
    let WireConfig { capabilities, ring_frames, seed, forth, back, .. } = config;
    let (one, two) = if is_timed {
        let mut seeds = Random::new(seed);
        let mut direction = |conditions| Timed::new(Direction::new(seeds.next(), conditions));
        let (forth, back) = (direction(forth), direction(back));
        let now = Instant::ZERO;
        (
            Way::Timed { outward: Arc::clone(&forth), inward: Arc::clone(&back), now },
            Way::Timed { outward: back, inward: forth, now },
        )
    } else {
        let (forth_in, forth_out) = parcel_ring(ring_frames);
        let (back_in, back_out) = parcel_ring(ring_frames);
        (
            Way::Rings { outward: forth_in, inward: back_out },
            Way::Rings { outward: back_in, inward: forth_out },
        )
    };
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let end = |way, mine: usize| End {
        way,
        capabilities,
        bell: Arc::clone(&bells[mine]),
        peer_bell: Arc::clone(&bells[1 - mine]),
        counters: EndCounters::default(),
    };
    (end(one, 0), end(two, 1))
}

/// One end of a wire.
pub struct End {
    way: Way,
    capabilities: Capabilities,
    bell: Arc<Bell>,
    peer_bell: Arc<Bell>,
    counters: EndCounters,
}

/// What went through an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndCounters {
    /// Frames taken from the lane, those included that the wire then lost.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames given to the lane.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
}

enum Way {
    Rings { outward: ParcelProducer, inward: ParcelConsumer },
    Timed { outward: Arc<Timed>, inward: Arc<Timed>, now: Instant },
}

/// A direction that both ends and a control reach.
struct Timed(Mutex<Shared>);

struct Shared {
    direction: Direction,
    /// The receiver sleeps.
    wants_wake: bool,
}

impl Timed {
    fn new(direction: Direction) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Shared { direction, wants_wake: false })))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic elsewhere cannot leave a direction half changed in a way that matters to a simulation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads and changes the conditions of one direction of a simulated wire while it is in use.
#[derive(Clone)]
pub struct Control {
    timed: Arc<Timed>,
    receiver_bell: Arc<Bell>,
}

impl Control {
    /// The conditions.
    pub fn conditions(&self) -> Conditions {
        self.timed.lock().direction.conditions().clone()
    }

    /// Sets all conditions. What has left keeps its time of arrival; what waits leaves at the new rate.
    pub fn set(&self, conditions: Conditions) {
        self.timed.lock().direction.set_conditions(conditions);
        self.receiver_bell.ring();
    }

    /// Changes some conditions.
    pub fn change(&self, f: impl FnOnce(&mut Conditions)) {
        let mut conditions = self.conditions();
        f(&mut conditions);
        self.set(conditions);
    }

    /// What became of the frames of this direction.
    pub fn counters(&self) -> WireCounters {
        self.timed.lock().direction.counters()
    }
}

impl End {
    /// The control of what leaves by this end, if the wire is simulated.
    pub fn control(&self) -> Option<Control> {
        match &self.way {
            Way::Rings { .. } => None,
            Way::Timed { outward, .. } => {
                Some(Control { timed: Arc::clone(outward), receiver_bell: Arc::clone(&self.peer_bell) })
            }
        }
    }

    /// Names who is woken, in place of whoever was before, when this end has asked for it and a frame was sent to it, or when a
    /// full ring has room again.
    pub fn set_waker(&self, waker: Waker) {
        self.bell.set(waker);
    }

    /// What went through.
    pub fn counters(&self) -> EndCounters {
        self.counters
    }

    /// Why the device does not take the frame.
    fn refusal(&self, frame: &Frame) -> Option<DropReason> {
        let Capabilities { checksum_offload, segmentation, udp_segmentation, max_frame, .. } =
            self.capabilities;
        if frame.len() > max_frame {
            return Some(DropReason::TooLong);
        }
        let meta = frame.meta();
        let cuts = meta.segmentation.is_none_or(|cut| match cut.kind {
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => segmentation,
            SegmentKind::Udp => udp_segmentation,
        });
        let sums = checksum_offload || !matches!(meta.checksum, Checksum::Partial { .. });
        (!cuts || !sums).then_some(DropReason::BadOffload)
    }

    /// Drops what the device does not take. A chain without such frames is only looked at.
    fn refuse(&self, chain: &mut Chain, drops: &mut DropCounters) {
        if chain.iter().any(|frame| self.refusal(frame).is_some()) {
            chain.retain(|frame| match self.refusal(frame) {
                Some(reason) => {
                    drops.count(reason);
                    false
                }
                None => true,
            });
        }
    }
}

/// What a sender knew about a frame stays with the sender.
fn forget_sender(frame: &mut Frame) {
    let meta = frame.meta_mut();
    meta.flow = FlowTag::NONE;
    meta.trace = 0;
}

impl Driver for End {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let bytes_before = out.bytes();
        let frames = match &mut self.way {
            Way::Rings { inward, .. } => {
                let frames = inward.pop_into(pools, budget, out, forget_sender);
                if frames > 0 && inward.take_room_wish() {
                    self.peer_bell.ring();
                }
                frames
            }
            Way::Timed { inward, now, .. } => {
                inward.lock().direction.deliver(*now, pools, budget, out, drops)
            }
        };
        self.counters.frames_in += frames as u64;
        self.counters.bytes_in += (out.bytes() - bytes_before).0;
        frames
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        if chain.is_empty() {
            return;
        }
        self.refuse(chain, drops);
        let (frames_before, bytes_before) = (chain.len(), chain.bytes());
        let wake = match &mut self.way {
            Way::Rings { outward, .. } => {
                if outward.is_consumer_gone() {
                    drops.add(DropReason::DeviceRefused, chain.len() as u64);
                    return chain.clear();
                }
                let mut pushed = outward.push_chain(chain);
                // The wish is raised before the last look, so that room made meanwhile is not missed.
                if !chain.is_empty() && outward.wish_room(true) {
                    pushed += outward.push_chain(chain);
                }
                pushed > 0 && outward.take_wake_wish()
            }
            Way::Timed { outward, now, .. } => {
                let mut shared = outward.lock();
                for mut frame in chain.drain() {
                    forget_sender(&mut frame);
                    if let Err(reason) = shared.direction.offer(*now, frame) {
                        drops.count(reason);
                    }
                }
                core::mem::take(&mut shared.wants_wake)
            }
        };
        self.counters.frames_out += (frames_before - chain.len()) as u64;
        self.counters.bytes_out += (bytes_before - chain.bytes()).0;
        if wake {
            self.peer_bell.ring();
        }
    }

    #[inline]
    fn look_ahead(&self, has_begun: bool) {
        if let Way::Rings { outward, .. } = &self.way {
            outward.look_ahead(has_begun);
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        match &mut self.way {
            Way::Rings { inward, .. } => inward.wish_wake(on),
            Way::Timed { inward, now, .. } => {
                let mut shared = inward.lock();
                shared.wants_wake = on;
                shared.direction.has_arrived(*now)
            }
        }
    }

    fn next_event(&self) -> Option<Instant> {
        match &self.way {
            Way::Rings { .. } => None,
            Way::Timed { inward, .. } => inward.lock().direction.next_arrival(),
        }
    }

    fn advance(&mut self, to: Instant) {
        if let Way::Timed { now, .. } = &mut self.way {
            *now = (*now).max(to);
        }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
