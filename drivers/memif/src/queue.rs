//! One ring pair as a [`Driver`].
//!
//! A lane owns it. Without a session, what is to be sent is dropped as `no_peer`; a reader that has stopped reading
//! is waited for during [`PATIENCE`], then its frames are dropped as `ring_full`, so that it costs no CPU.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, DropReason, Instant, Mtu};

use crate::receive::Fault;
use crate::seat::{Interface, MemifStatus};
use crate::session::Pair;

/// How long a full ring is retried without any progress. A reader that is off its CPU comes back in a few
/// milliseconds.
const PATIENCE: Duration = Duration::from_millis(10);

/// A ring pair of a memif.
#[derive(Debug)]
pub struct MemifQueue {
    interface: Arc<Interface>,
    index: usize,
    mtu: Mtu,
    epoch: u64,
    pair: Option<Pair>,
    wants_notice: bool,
    now: Instant,
    moved_at: Instant,
}

impl MemifQueue {
    pub(crate) fn new(interface: Arc<Interface>, index: usize, mtu: Mtu) -> Self {
        Self {
            interface,
            index,
            mtu,
            epoch: 0,
            pair: None,
            wants_notice: true,
            now: Instant::ZERO,
            moved_at: Instant::ZERO,
        }
    }

    /// Who is at the other end.
    pub fn status(&self) -> MemifStatus {
        MemifStatus(Arc::clone(&self.interface.shared))
    }

    /// Takes part in the session that runs now.
    #[inline]
    fn refresh(&mut self) {
        if self.interface.shared.seats[self.index].epoch() != self.epoch {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        let shared = &self.interface.shared;
        shared.hand_back(self.pair.take());
        (self.epoch, self.pair) = shared.seats[self.index].take();
        // A fault shows again when the lane first looks.
        let _ = self.pair.as_mut().map(|pair| pair.receiver.notify(self.wants_notice));
    }

    #[cold]
    fn accuse(&mut self, fault: Fault) {
        self.interface.shared.hand_back(self.pair.take());
        self.interface.shared.accuse(self.epoch, fault);
    }
}

impl Drop for MemifQueue {
    fn drop(&mut self) {
        self.interface.shared.hand_back(self.pair.take());
    }
}

impl AsFd for MemifQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.interface.shared.seats[self.index].descriptor()
    }
}

impl Driver for MemifQueue {
    fn ring(&self) -> u16 {
        self.index as u16
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(self.mtu)
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        self.refresh();
        let longest = self.capabilities().max_frame;
        let Some(pair) = &mut self.pair else { return 0 };
        match pair.receiver.receive(pools, budget, longest, out, drops) {
            Ok(frames) => frames,
            Err(fault) => {
                self.accuse(fault);
                0
            }
        }
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        self.refresh();
        let result = match &mut self.pair {
            Some(pair) => pair.sender.transmit(chain, drops).map_err(Some),
            None => Err(None),
        };
        let reason = match result {
            Ok(sent) => {
                if sent.any {
                    self.moved_at = self.now;
                }
                if sent.wants_bell {
                    self.interface.shared.ask_doorbell(self.index);
                }
                if self.now.saturating_since(self.moved_at) < PATIENCE {
                    return;
                }
                DropReason::RingFull
            }
            Err(fault) => {
                let _ = fault.map(|fault| self.accuse(fault));
                DropReason::NoPeer
            }
        };
        drops.add(reason, chain.len() as u64);
        chain.clear();
    }

    fn notify(&mut self, on: bool) -> bool {
        self.refresh();
        self.wants_notice = on;
        match self.pair.as_mut().map(|pair| pair.receiver.notify(on)) {
            Some(Ok(waiting)) => waiting,
            Some(Err(fault)) => {
                self.accuse(fault);
                false
            }
            None => false,
        }
    }

    fn advance(&mut self, now: Instant) {
        self.now = now;
    }
}
