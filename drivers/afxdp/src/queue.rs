//! A lane's share of an interface's queues as a [`Driver`].
//!
//! Usually one socket; more where the NIC has more queues than there are lanes, because a queue without a socket
//! would give its frames to the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, Mtu};
use rustix::event::epoll;

use crate::error::Refused;
use crate::open::{AfXdpConfig, Attachment};
use crate::socket::{Limits, Socket};

/// A lane's sockets on one interface.
#[derive(Debug)]
pub struct AfXdpQueue {
    sockets: Vec<Socket>,
    /// Readable when a socket is.
    set: OwnedFd,
    mtu: Mtu,
    is_virtual: bool,
    busy_poll: bool,
    /// Whose turn it is.
    next: usize,
    _attachment: Arc<Attachment>,
}

impl AfXdpQueue {
    /// Deals the sockets out; with fewer sockets than queues, there are fewer queues.
    pub(crate) fn share_out(
        sockets: Vec<Socket>,
        attachment: Arc<Attachment>,
        config: &AfXdpConfig,
        is_virtual: bool,
    ) -> Result<Vec<Self>, Refused> {
        let failed = |error| Refused::of("epoll", error);
        let count = usize::from(config.queues).min(sockets.len());
        let mut dealt: Vec<Vec<Socket>> = (0..count).map(|_| Vec::new()).collect();
        for (nth, socket) in sockets.into_iter().enumerate() {
            dealt[nth % count].push(socket);
        }
        let make = |sockets: Vec<Socket>| {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
            for socket in &sockets {
                let flags = epoll::EventFlags::IN;
                epoll::add(&set, socket, epoll::EventData::new_u64(0), flags).map_err(failed)?;
            }
            Ok(Self {
                sockets,
                set,
                mtu: config.mtu,
                is_virtual,
                busy_poll: config.busy_poll,
                next: 0,
                _attachment: Arc::clone(&attachment),
            })
        };
        dealt.into_iter().map(make).collect()
    }
}

impl AsFd for AfXdpQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Driver for AfXdpQueue {
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
        let limits = Limits { longest: self.capabilities().max_frame, is_virtual: self.is_virtual };
        let (count, mut frames) = (self.sockets.len(), 0);
        for _ in 0..count {
            let socket = &mut self.sockets[self.next % count];
            self.next = (self.next + 1) % count;
            if self.busy_poll && socket.waiting() == 0 {
                socket.poll_device();
            }
            frames += socket.receive(pools, budget - frames, limits, out, drops);
            // What the device had no room for is tried again.
            let _ = socket.push();
        }
        frames
    }

    /// The first socket sends all, so that order stays.
    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        if let Some(socket) = self.sockets.first_mut() {
            socket.transmit(chain, drops);
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        if on {
            self.sockets.iter().for_each(Socket::wake_receive);
        }
        self.sockets.iter().any(|socket| socket.waiting() > 0)
    }
}
