//! A kernel device that its lane's bell watches: while a limit leaves its frames where they are, it wakes nobody.
//!
//! Around a driver whose descriptor calls for every frame that arrives (`queue.rs`). A flood behind a limit would wake the lane
//! for each frame that it makes room for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use firelane_frame::{Capabilities, Chain, Driver, Pools, Weight};
use firelane_units::{DropCounters, FlowId, Instant};

use crate::bell::{Bell, Hearing};

/// A device and who watches it.
#[derive(Debug)]
pub struct Watched<D> {
    device: D,
    bell: Option<Arc<Bell>>,
    hearing: Hearing,
    /// How its lane knows its calls.
    number: Option<u32>,
}

impl<D: AsFd> Watched<D> {
    pub(crate) const fn new(device: D) -> Self {
        Self { device, bell: None, hearing: Hearing { is_mute: false, is_reminded: false }, number: None }
    }

    /// The device.
    pub(crate) const fn device(&self) -> &D {
        &self.device
    }

    /// Lets the device wake the worker of `bell`, whose lane has no number for it as yet.
    pub(crate) fn watch(&mut self, bell: &Arc<Bell>) -> std::io::Result<()> {
        bell.watch(self.device.as_fd())?;
        (self.bell, self.number) = (Some(Arc::clone(bell)), None);
        if self.hearing != (Hearing { is_mute: false, is_reminded: false }) {
            self.tell_bell();
        }
        Ok(())
    }

    fn set_hearing(&mut self, hearing: Hearing) {
        if self.hearing != hearing {
            self.hearing = hearing;
            self.tell_bell();
        }
    }

    fn tell_bell(&self) {
        if let Some(bell) = &self.bell {
            bell.set_hearing(self.device.as_fd(), self.hearing, self.number);
        }
    }
}

impl<D: AsFd> AsFd for Watched<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl<D: Driver + AsFd> Driver for Watched<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn ring(&self) -> u16 {
        self.device.ring()
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let frames = self.device.receive(pools, budget, out, drops);
        if self.hearing.is_reminded && self.device.is_gone() {
            self.set_hearing(Hearing { is_reminded: false, ..self.hearing });
        }
        frames
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        self.device.transmit(chain, drops);
    }

    fn notify(&mut self, on: bool) -> bool {
        self.device.notify(on)
    }

    fn leave(&mut self, is_left: bool) {
        self.device.leave(is_left);
        self.set_hearing(Hearing { is_mute: is_left, ..self.hearing });
    }

    fn call_as(&mut self, number: u32) {
        self.number = Some(number);
        self.tell_bell();
    }

    fn remind(&mut self, on: bool) {
        self.set_hearing(Hearing { is_reminded: on, ..self.hearing });
    }

    fn can_wait(&self) -> bool {
        self.device.can_wait()
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }

    fn is_drained(&self) -> bool {
        self.device.is_drained()
    }

    fn is_read(&self) -> bool {
        self.device.is_read()
    }

    fn shut_out(&mut self, now: Instant, frame: &[u8], flow: FlowId) -> bool {
        self.device.shut_out(now, frame, flow)
    }

    fn let_in(&mut self, now: Instant, flow: FlowId) {
        self.device.let_in(now, flow);
    }

    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        self.device.turned_away(tell);
    }

    fn next_event(&self) -> Option<Instant> {
        self.device.next_event()
    }

    fn advance(&mut self, now: Instant) {
        self.device.advance(now);
    }
}
