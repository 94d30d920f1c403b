//! What the lanes of a world drive: rings, wires, and devices that do what only some devices do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use firelane_driver_memory::End;
use firelane_frame::{Capabilities, Chain, Driver, FrameConsumer, FrameProducer, Pools, Weight, frame_ring};
use firelane_units::{DropCounters, FlowId, Instant};

/// One end of an in-process wire at full speed.
pub struct RingDriver {
    /// What it receives.
    pub rx: FrameConsumer,
    /// What it sends.
    pub tx: FrameProducer,
    /// What the device does itself.
    pub capabilities: Capabilities,
}

/// Both ends of one.
pub fn wire(capabilities: Capabilities) -> (RingDriver, RingDriver) {
    let (a_tx, b_rx) = frame_ring(1024);
    let (b_tx, a_rx) = frame_ring(1024);
    (RingDriver { rx: a_rx, tx: a_tx, capabilities }, RingDriver { rx: b_rx, tx: b_tx, capabilities })
}

/// What the lanes of these tests drive: a ring at full speed, or a simulated wire.
pub enum AnyDriver {
    /// A ring at full speed.
    Ring(RingDriver),
    /// A simulated wire.
    Wire(End),
    /// One that shuts conversations out.
    Doored(Doored),
    /// One that gives copies.
    Copying(Copying),
    /// One that only its descriptor tells of.
    Kernel(KernelDevice),
    /// A ring for sending alone.
    Lent(RingDriver),
}

/// A ring as a device of the kernel shows it: a descriptor tells of frames, nobody else does, and there is room for many.
pub struct KernelDevice {
    /// The ring.
    pub ring: RingDriver,
    /// Whether it tells again of frames that it has told of.
    pub is_reminded: bool,
    /// What the lane has done with it.
    pub told: Arc<Told>,
    is_drained: bool,
}

/// What a lane has done with a device.
#[derive(Debug, Default)]
pub struct Told {
    /// How often it was read.
    pub reads: AtomicU64,
    /// By which number it calls.
    pub number: AtomicU32,
    /// Its frames are left where they are, so it tells nobody.
    pub is_left: AtomicBool,
}

impl KernelDevice {
    /// One with nothing in it.
    pub fn new(ring: RingDriver) -> Self {
        Self { ring, is_reminded: false, told: Arc::default(), is_drained: false }
    }
}

/// A ring of another's frames, which are received as copies, as long as there are buffers for them.
pub struct Copying(pub RingDriver);

impl Copying {
    fn receive(&mut self, pools: &mut Pools, budget: usize, out: &mut Chain) -> usize {
        let (mut came, mut count) = (Chain::new(), 0);
        while count < budget && pools.small.free() > 0 && self.0.rx.pop_into(&mut came, 1) == 1 {
            let frame = came.pop().expect("it came");
            out.push(pools.copy_of(frame.as_slice()).expect("there is a buffer"));
            count += 1;
        }
        count
    }
}

/// A ring whose device shuts conversations out, told by their ports.
pub struct Doored {
    /// The ring.
    pub ring: RingDriver,
    shut: BTreeMap<[u8; 4], FlowId>,
    told: Vec<(FlowId, Weight)>,
}

impl Doored {
    /// One that shuts nobody out.
    pub fn new(ring: RingDriver) -> Self {
        Self { ring, shut: BTreeMap::new(), told: Vec::new() }
    }

    fn receive(&mut self, pools: &mut Pools, budget: usize, out: &mut Chain) -> usize {
        let (mut came, mut count) = (Chain::new(), 0);
        while count < budget && self.ring.rx.pop_into(&mut came, 1) == 1 {
            let frame = came.pop().expect("it came");
            match ports_of(frame.as_slice()).and_then(|ports| self.shut.get(&ports)) {
                Some(&flow) => {
                    self.told.push((flow, frame.weight()));
                    pools.put(frame);
                }
                None => {
                    out.push(frame);
                    count += 1;
                }
            }
        }
        count
    }
}

fn ports_of(frame: &[u8]) -> Option<[u8; 4]> {
    frame.get(34..38)?.try_into().ok()
}

impl From<RingDriver> for AnyDriver {
    fn from(ring: RingDriver) -> Self {
        Self::Ring(ring)
    }
}

impl Driver for AnyDriver {
    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Ring(ring) => ring.capabilities(),
            Self::Wire(wire) => wire.capabilities(),
            Self::Doored(doored) => doored.ring.capabilities(),
            Self::Copying(copying) => copying.0.capabilities(),
            Self::Kernel(device) => device.ring.capabilities(),
            Self::Lent(ring) => ring.capabilities(),
        }
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        match self {
            Self::Ring(ring) => ring.receive(pools, budget, out, drops),
            Self::Wire(wire) => wire.receive(pools, budget, out, drops),
            Self::Doored(doored) => doored.receive(pools, budget, out),
            Self::Copying(copying) => copying.receive(pools, budget, out),
            Self::Kernel(device) => {
                device.told.reads.fetch_add(1, Ordering::Relaxed);
                let count = device.ring.receive(pools, budget, out, drops);
                device.is_drained = count < budget;
                count
            }
            Self::Lent(_) => 0,
        }
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        match self {
            Self::Ring(ring) => ring.transmit(chain, drops),
            Self::Wire(wire) => wire.transmit(chain, drops),
            Self::Doored(doored) => doored.ring.transmit(chain, drops),
            Self::Copying(copying) => copying.0.transmit(chain, drops),
            Self::Kernel(device) => device.ring.transmit(chain, drops),
            Self::Lent(ring) => ring.transmit(chain, drops),
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        match self {
            Self::Ring(ring) => ring.notify(on),
            Self::Wire(wire) => wire.notify(on),
            Self::Doored(doored) => doored.ring.notify(on),
            Self::Copying(copying) => copying.0.notify(on),
            Self::Kernel(_) | Self::Lent(_) => false,
        }
    }

    fn is_read(&self) -> bool {
        !matches!(self, Self::Lent(_))
    }

    fn call_as(&mut self, number: u32) {
        if let Self::Kernel(device) = self {
            device.told.number.store(number, Ordering::Relaxed);
        }
    }

    fn leave(&mut self, is_left: bool) {
        if let Self::Kernel(device) = self {
            device.told.is_left.store(is_left, Ordering::Relaxed);
        }
    }

    fn remind(&mut self, on: bool) {
        if let Self::Kernel(device) = self {
            device.is_reminded = on;
        }
    }

    fn can_wait(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    fn is_drained(&self) -> bool {
        matches!(self, Self::Kernel(KernelDevice { is_drained: true, .. }) | Self::Lent(_))
    }

    fn next_event(&self) -> Option<Instant> {
        match self {
            Self::Ring(ring) => ring.next_event(),
            Self::Wire(wire) => wire.next_event(),
            Self::Doored(_) | Self::Copying(_) | Self::Kernel(_) | Self::Lent(_) => None,
        }
    }

    fn shut_out(&mut self, _: Instant, frame: &[u8], flow: FlowId) -> bool {
        let Self::Doored(doored) = self else { return false };
        ports_of(frame).is_some_and(|ports| {
            doored.shut.insert(ports, flow);
            true
        })
    }

    fn let_in(&mut self, _: Instant, flow: FlowId) {
        if let Self::Doored(doored) = self {
            doored.shut.retain(|_, shut| *shut != flow);
        }
    }

    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        if let Self::Doored(doored) = self {
            doored.told.drain(..).for_each(|(flow, weight)| tell(flow, weight));
        }
    }

    fn advance(&mut self, now: Instant) {
        match self {
            Self::Ring(ring) => ring.advance(now),
            Self::Wire(wire) => wire.advance(now),
            Self::Doored(_) | Self::Copying(_) | Self::Kernel(_) | Self::Lent(_) => {}
        }
    }
}

impl Driver for RingDriver {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, _: &mut Pools, budget: usize, out: &mut Chain, _: &mut DropCounters) -> usize {
        self.rx.pop_into(out, budget)
    }

    fn transmit(&mut self, chain: &mut Chain, _: &mut DropCounters) {
        self.tx.push_chain(chain);
    }

    fn notify(&mut self, on: bool) -> bool {
        self.rx.wish_wake(on)
    }
}
