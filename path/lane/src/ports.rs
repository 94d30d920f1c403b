//! The link side's tables: ports, the switches that they are attached to, the driver queues behind them.
//!
//! A replica per lane, changed by message. A port is named by a link identifier, which the engine mints so that every look-up is an
//! index.

use firelane_classify::FlowRules;
use firelane_frame::{Arrival, Capabilities, Chain, Driver, Weight};
use firelane_switch::Switch;
use firelane_table::Minted;
use firelane_units::{Direction, FlowId, Instant, LaneId, LinkId, Mtu, SwitchPortId};

use crate::copies::Copies;
use crate::counters::{PortCounters, PortTraffic, RingTraffic};
use crate::message::{FuseWith, PortKind, PortUser};
use crate::moving::Leaving;
use crate::poll::Polling;

/// A port of a link's switch: an uplink, a VNIC, or the end of a wire.
pub(crate) struct Port {
    pub(crate) id: LinkId,
    /// The link whose switch it is attached to.
    pub(crate) over: LinkId,
    pub(crate) kind: PortKind,
    pub(crate) user: PortUser,
    pub(crate) at_switch: SwitchPortId,
    /// The queue of the driver by which this lane sends. It may fetch from more of them.
    pub(crate) queue: Option<usize>,
    /// Frames for the driver that wait until those before them are past, while its queues move (`moving.rs`).
    pub(crate) kept: Option<Chain>,
    /// A queue of it that is about to go to another lane.
    pub(crate) leaving: Option<Leaving>,
    /// Whether its queues, those to come as well, are read without having called.
    pub(crate) polling: Polling,
    pub(crate) rules: FlowRules,
    /// Whether a guard looks at its frames.
    pub(crate) guarded: bool,
    pub(crate) counters: PortCounters,
    /// What it had counted inward when another ring became the one by which this lane sends.
    pub(crate) settled: PortTraffic,
    /// What rings have carried here that were lent to this lane, and are not any more, or that have ended.
    pub(crate) given_back: Vec<(u16, RingTraffic)>,
}

impl Port {
    /// Which way a frame goes for the rules and limits of the port's flows, if it goes `direction` for the port's user.
    /// An uplink's user is the wire, and its flows are the link's: what the wire sends is inward for them.
    pub(crate) fn side(&self, direction: Direction) -> Direction {
        match self.kind {
            PortKind::Uplink => direction.turned(),
            PortKind::Vnic { .. } | PortKind::Trunk { .. } => direction,
        }
    }

    /// The flow of what no rule matches; `None` for an uplink, whose link's limit is the VNICs' parent.
    pub(crate) fn default_flow(&self) -> Option<FlowId> {
        match self.kind {
            PortKind::Uplink => None,
            PortKind::Vnic { flow, .. } | PortKind::Trunk { flow } => Some(flow),
        }
    }
}

/// A link's switch.
pub(crate) struct SwitchedLink {
    pub(crate) switch: Switch,
    pub(crate) mtu: Mtu,
    pub(crate) uplink: Option<LinkId>,
    /// From the switch's ports to ours.
    pub(crate) ports: Vec<Option<LinkId>>,
}

impl SwitchedLink {
    pub(crate) fn port(&self, at: SwitchPortId) -> Option<LinkId> {
        self.ports.get(at.index()).copied().flatten()
    }
}

/// A driver queue of this lane.
pub(crate) struct Queue<D> {
    pub(crate) driver: D,
    pub(crate) port: LinkId,
    /// What waits to be sent.
    pub(crate) tx: Chain,
    pub(crate) capabilities: Capabilities,
    /// How far the frames of `tx` have been made fit for the device.
    pub(crate) prepared: usize,
    /// It was asked to notify, and nothing has been fetched since.
    pub(crate) notifies: bool,
    /// The port is over its limit until then, and its frames stay in the device's ring.
    pub(crate) not_before: Option<Instant>,
    /// Whether it is read without having called.
    pub(crate) polling: Polling,
    /// One that is not polled had frames when it was asked to notify.
    pub(crate) has_more: bool,
    pub(crate) stay: Stay,
    /// What is made of its frames for many.
    pub(crate) copies: Copies,
    /// What was fetched from it, and what was sent by it before its lane sent by it last.
    pub(crate) traffic: RingTraffic,
    /// The chain that was fetched last, by its number.
    chain: u32,
}

/// How long a queue is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stay {
    /// Until something else is said.
    Stays,
    /// It is on its way to another lane, and nothing more is fetched from it.
    Leaves,
    /// Until what is in it has been fetched.
    Ends,
}

impl<D: Driver> Queue<D> {
    pub(crate) fn new(driver: D, port: LinkId) -> Self {
        let capabilities = driver.capabilities();
        Self {
            driver,
            port,
            tx: Chain::new(),
            capabilities,
            prepared: 0,
            notifies: false,
            not_before: None,
            polling: Polling::default(),
            has_more: false,
            stay: Stay::Stays,
            copies: Copies::default(),
            traffic: RingTraffic::default(),
            chain: 0,
        }
    }

    /// Counts a chain that was fetched, whatever becomes of its frames.
    pub(crate) fn count_fetched(&mut self, chain: &Chain, arrival: Arrival) {
        let mut weight = Weight::NONE;
        chain.iter().for_each(|frame| weight += frame.weight());
        self.chain = self.chain.wrapping_add(1);
        self.traffic.fetched.count(weight, arrival, self.chain);
    }

    /// Turns notifications on or off; answers whether frames are waiting already. A device whose port is over its limit stays
    /// quiet: nobody would fetch.
    pub(crate) fn notify(&mut self, on: bool) -> bool {
        let wanted = on && self.not_before.is_none() && self.stay == Stay::Stays;
        if on {
            self.driver.leave(!wanted);
        }
        let has_more = self.driver.notify(wanted);
        // Who finds frames there need not be notified of them.
        self.notifies = wanted && !has_more;
        has_more && wanted
    }
}

/// Frames that may wait for a device before forwarded ones are dropped: a device that takes nothing must not
/// use up the lane's buffers.
pub(crate) const TX_QUEUE_MAX: usize = 1024;

/// Frames waiting for a device above which this host's own sockets wait: back-pressure first, loss last.
pub(crate) const TX_QUEUE_BUSY: usize = 256;

/// Values by a dense identifier, which is the place of a queue.
#[derive(Debug)]
pub(crate) struct Dense<T>(Vec<Option<T>>);

impl<T> Dense<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_mut()
    }

    /// Puts a value in; gives it back if the place is taken.
    pub(crate) fn insert(&mut self, index: usize, value: T) -> Result<(), T> {
        if self.get(index).is_some() {
            return Err(value);
        }
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(value);
        Ok(())
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        self.0.get_mut(index)?.take()
    }

    /// How many places there are, empty ones included.
    pub(crate) fn places(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

/// Which lane limits a flow, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowPlace {
    pub(crate) owner: LinkId,
    pub(crate) rule: Option<firelane_classify::FlowMatch>,
    pub(crate) home: Option<LaneId>,
    /// With whom its connections may be fused.
    pub(crate) fuses: FuseWith,
}

/// The lane that keeps a flow's limit, if it is another than this.
#[inline]
pub(crate) fn home_elsewhere(places: &Minted<FlowPlace>, here: LaneId, flow: FlowId) -> Option<LaneId> {
    places.get(flow.0)?.home.filter(|&home| home != here)
}
