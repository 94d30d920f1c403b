//! A relay with a bad path in it: frames of one device pass a simulated wire on their way to another.
//!
//! The wire is the memory driver's, in real time. The near device is a TAP or the end of a plain memory wire, the
//! far one a TAP; frames are cut to the MTU first, so that the wire loses packets and not bursts. A relay has a
//! thread of its own, which sleeps until a frame comes or the wire delivers one. Used by `loss`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use firelane::{Conditions, Queue, WireConfig, wire};
use firelane_driver_memory::{Control, End};
use firelane_driver_tap::TapQueue;
use firelane_frame::{Capabilities, Chain, Driver, Pools, PoolsConfig, offload};
use firelane_units::{DropCounters, Instant, Mtu};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::peer::Result;

/// Frames that one turn takes from a device.
const BUDGET: usize = 64;
/// The longest sleep, so that a relay notices its end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A relay that runs until its near device is gone, or for as long as the process does.
#[derive(Debug)]
pub(crate) struct Relay {
    forth: Control,
    back: Control,
    _thread: JoinHandle<()>,
}

impl Relay {
    /// A relay between two TAPs.
    pub(crate) fn between(near: TapQueue, far: TapQueue, seed: u64) -> Result<Self> {
        Self::start(Near::Tap(near), far, seed)
    }

    /// A relay between a stack of this process, whose device is returned, and a TAP.
    pub(crate) fn attached(far: TapQueue, seed: u64) -> Result<(Self, Queue)> {
        let capabilities = Capabilities::plain(Mtu::ETHERNET);
        let (stack, relay) = wire(WireConfig { capabilities, ..WireConfig::default() });
        let bell = Arc::new(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        relay.set_waker(Waker::from(Arc::clone(&bell)));
        Ok((Self::start(Near::Wire(relay, bell), far, seed)?, stack.into()))
    }

    fn start(near: Near, far: TapQueue, seed: u64) -> Result<Self> {
        let config = WireConfig { timed: true, ..WireConfig::simulated(seed, Conditions::default()) };
        let (first, second) = wire(config);
        let timed = "a simulated wire has controls";
        let (forth, back) = (first.control().ok_or(timed)?, second.control().ok_or(timed)?);
        let mut works = Works {
            near,
            far,
            ends: (first, second),
            pools: Pools::new(PoolsConfig::default()),
            drops: DropCounters::default(),
            chains: Default::default(),
            start: Clock::now(),
        };
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || {
            loop {
                works.turn();
                works.sleep();
            }
        })?;
        Ok(Self { forth, back, _thread: thread })
    }

    /// Sets what the path is like, from the near device to the far one and back.
    pub(crate) fn set(&self, forth: &Conditions, back: &Conditions) {
        self.forth.set(forth.clone());
        self.back.set(back.clone());
    }
}

/// The device at the sender.
enum Near {
    Tap(TapQueue),
    Wire(End, Arc<Bell>),
}

impl Near {
    fn driver(&mut self) -> &mut dyn Driver {
        match self {
            Self::Tap(queue) => queue,
            Self::Wire(end, _) => end,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tap(queue) => queue.as_fd(),
            Self::Wire(_, bell) => bell.0.as_fd(),
        }
    }
}

/// Wakes a relay.
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // The counter of an eventfd cannot overflow by ones, and nothing else can fail here.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// What the thread of a relay owns.
struct Works {
    near: Near,
    far: TapQueue,
    ends: (End, End),
    pools: Pools,
    drops: DropCounters,
    /// What a device or the wire has yet to take, near to far and back.
    chains: [Chain; 4],
    start: Clock,
}

impl Works {
    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// Moves what there is.
    fn turn(&mut self) {
        let now = self.now();
        let Self { near, far, ends: (first, second), pools, drops, chains, .. } = self;
        first.advance(now);
        second.advance(now);
        let [forth_in, forth_out, back_in, back_out] = chains;
        carry(near.driver(), first, pools, forth_in, drops);
        carry(second, far, pools, forth_out, drops);
        carry(far, second, pools, back_in, drops);
        carry(first, near.driver(), pools, back_out, drops);
    }

    /// Waits for a frame or the wire's next delivery.
    fn sleep(&mut self) {
        if self.near.driver().notify(true) {
            return;
        }
        let now = self.now();
        let next = [self.ends.0.next_event(), self.ends.1.next_event()].into_iter().flatten().min();
        let wait = next.map_or(SLEEP_MAX, |at| at.saturating_since(now).min(SLEEP_MAX));
        if wait.is_zero() {
            return;
        }
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let (near, far) = (self.near.fd(), self.far.as_fd());
        let mut fds =
            [PollFd::from_borrowed_fd(near, PollFlags::IN), PollFd::from_borrowed_fd(far, PollFlags::IN)];
        // A signal or a limit: both mean another turn.
        let _ = poll(&mut fds, Some(&limit));
        if let Near::Wire(_, bell) = &self.near {
            let _ = rustix::io::read(&bell.0, &mut [0; 8]);
        }
    }
}

/// From one device to another, as the other takes frames.
fn carry(
    from: &mut dyn Driver,
    to: &mut dyn Driver,
    pools: &mut Pools,
    chain: &mut Chain,
    drops: &mut DropCounters,
) {
    from.receive(pools, BUDGET, chain, drops);
    if !chain.is_empty() {
        offload::prepare(chain, &to.capabilities(), pools, drops);
        to.transmit(chain, drops);
    }
}
