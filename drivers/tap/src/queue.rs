//! One queue of a TAP as a [`Driver`]: chains in, chains out, one system call per frame.
//!
//! The kernel hands over frames of up to 64 KiB with their segmentation still to do, and takes the same,
//! so a system call moves forty packets' worth.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_frame::virtio::{self, Landing};
use firelane_frame::{Capabilities, Chain, Driver, Frame, Pools, Weight};
use firelane_units::{DropCounters, DropReason, FlowId, Instant, Mtu};
use rustix::io::Errno;

use crate::door::Door;
use crate::handle::TapHandle;
use crate::open;
use crate::spread::Spreader;

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct TapQueue {
    fd: OwnedFd,
    /// Which of the TAP's queues it is.
    ring: u16,
    mtu: Mtu,
    udp_segmentation: bool,
    landing: Landing,
    is_drained: bool,
    /// Somebody has deleted the interface.
    is_gone: bool,
    /// Not of one that is for sending alone.
    is_read: bool,
    /// Where this process may not load programs, there is none.
    door: Option<Door>,
}

impl TapQueue {
    pub(crate) fn new(
        (fd, ring): (OwnedFd, u16),
        mtu: Mtu,
        udp_segmentation: bool,
        door: Option<Door>,
    ) -> Self {
        let landing = Landing::default();
        Self {
            fd,
            ring,
            mtu,
            udp_segmentation,
            landing,
            is_drained: false,
            is_gone: false,
            is_read: true,
            door,
        }
    }

    /// The same queue for another lane to send by, which reads nothing from it. The kernel takes frames from several at a time. At
    /// the door it has lines of its own.
    ///
    /// # Errors
    /// There is no descriptor left for it.
    pub fn for_sending(&self) -> std::io::Result<Self> {
        let door = self.door.as_ref().map(Door::beside);
        let same = Self::new((self.fd.try_clone()?, self.ring), self.mtu, self.udp_segmentation, door);
        Ok(Self { is_read: false, is_drained: true, ..same })
    }

    /// One more queue of the same TAP, which is its ring `ring`: the one after all that it has.
    ///
    /// # Errors
    /// There is no descriptor left for it, the process may not go where the interface is, or the kernel has no more queues for it.
    pub fn one_more(&self, ring: u16) -> std::io::Result<Self> {
        let door = self.door.as_ref().map(Door::beside);
        Ok(Self::new((open::one_more(self.fd.as_fd())?, ring), self.mtu, self.udp_segmentation, door))
    }

    /// A hold on the TAP for who asks after it.
    ///
    /// # Errors
    /// There is no descriptor left for it.
    pub fn handle(&self) -> std::io::Result<TapHandle> {
        Ok(TapHandle::new(self.fd.try_clone()?, self.door.as_ref().map(Door::table)))
    }

    /// What says by which of the TAP's queues its frames come.
    ///
    /// # Errors
    /// There is no descriptor left for it.
    pub fn spreader(&self) -> std::io::Result<Spreader> {
        Ok(Spreader::new(self.fd.try_clone()?))
    }

    /// One write of the header and what follows it: in one piece, which the kernel takes sooner than two, if there is room before the
    /// frame.
    fn send(&self, mut frame: Frame) -> Result<usize, Errno> {
        let header = virtio::write(frame.meta());
        if frame.headroom() < header.len() {
            return rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(frame.as_slice())]);
        }
        frame.prepend(header.len()).copy_from_slice(&header);
        rustix::io::write(&self.fd, frame.as_slice())
    }

    /// Whether frames can end before they are read ([`Driver::shut_out`]).
    pub const fn has_door(&self) -> bool {
        self.door.is_some()
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Driver for TapQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities { udp_segmentation: self.udp_segmentation, ..Capabilities::full(self.mtu) }
    }

    fn ring(&self) -> u16 {
        self.ring
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let Self { fd, landing, is_drained, is_gone, is_read: true, .. } = self else { return 0 };
        *is_drained = false;
        landing.receive(pools, budget, out, drops, |both| {
            let read = rustix::io::read(&*fd, both);
            *is_drained = read == Err(Errno::AGAIN);
            *is_gone = read == Err(Errno::BADFD);
            match read {
                // One that no header can tell is gone, and others may lie behind it.
                Err(Errno::INVAL) => Some((0, None)),
                read => Some((read.ok()?, None)),
            }
        })
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        while let Some(frame) = chain.pop() {
            match self.send(frame) {
                Ok(_) => {}
                Err(Errno::INVAL) => drops.count(DropReason::BadOffload),
                Err(_) => drops.count(DropReason::DeviceRefused),
            }
        }
    }

    /// Whoever waits for the descriptor is told of frames that are there already, unless the lane knows of them: those that
    /// it had no buffer for, or that lie behind what it has refused.
    fn notify(&mut self, on: bool) -> bool {
        on && self.landing.leaves_some()
    }

    /// The kernel queues 1,000 frames, and what a TCP sender has in them it does not send twice.
    fn can_wait(&self) -> bool {
        true
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn is_read(&self) -> bool {
        self.is_read
    }

    fn shut_out(&mut self, now: Instant, frame: &[u8], flow: FlowId) -> bool {
        self.door.as_mut().is_some_and(|door| door.shut_out(now, frame, flow))
    }

    fn let_in(&mut self, now: Instant, flow: FlowId) {
        if let Some(door) = &mut self.door {
            door.let_in(now, flow);
        }
    }

    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        if let Some(door) = &mut self.door {
            door.turned_away(tell);
        }
    }
}
