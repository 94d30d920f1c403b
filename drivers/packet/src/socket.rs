//! A packet socket as a [`Driver`]: for the near end of a veth pair whose far end is a program's interface.
//!
//! Used by the engine where `/dev/net/tun` may not be opened (an ordinary user in a user namespace of his
//! own may make veth pairs but often no TAP). Frames keep their offload state through the virtio-net header
//! (packet(7), `PACKET_VNET_HDR`), so segments of up to 64 KiB cross whole. The kernel's own stack sees every
//! frame too. It has taken a VLAN tag out of the frame before, and tells it beside.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use firelane_frame::virtio::{self, Landing};
use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, DropReason, Instant, Mtu};
use rustix::io::Errno;

use crate::sys::{self, Hears};

/// How long a frame that the kernel refuses is tried again: its queue may be full.
const PATIENCE: Duration = Duration::from_millis(10);
/// When that was in vain, nothing is waited for during so long: who can make frames that are always refused holds up nobody else for more than a
/// hundredth of the time.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    mtu: Mtu,
    landing: Landing,
    is_drained: bool,
    now: Instant,
    /// Since when the kernel refuses the frame that is next.
    refused_at: Option<Instant>,
    /// Until when nothing is waited for: it has been, in vain.
    impatient_until: Instant,
}

impl PacketSocket {
    /// Opens a socket on the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface does not exist, or the process has no `CAP_NET_RAW` there.
    pub fn open(name: &str, mtu: Mtu) -> io::Result<Self> {
        Self::hearing(name, mtu, Hears::Everything)
    }

    /// The same for frames for groups alone (IEEE 802 section 8.2), broadcast included.
    ///
    /// # Errors
    /// As of [`PacketSocket::open`].
    pub fn of_groups(name: &str, mtu: Mtu) -> io::Result<Self> {
        Self::hearing(name, mtu, Hears::Groups)
    }

    fn hearing(name: &str, mtu: Mtu, hears: Hears) -> io::Result<Self> {
        let fd = sys::open(index_of(name)?, hears)?;
        let (now, impatient_until) = (Instant::ZERO, Instant::ZERO);
        Ok(Self {
            fd,
            mtu,
            landing: Landing::default(),
            is_drained: false,
            now,
            refused_at: None,
            impatient_until,
        })
    }

    /// Whether to wait with the frame that is next and was refused. The kernel says the same of a queue that is full, which passes, and of what a
    /// rule of its own drops, or the other end of a veth pair, which does not.
    fn waits(&mut self) -> bool {
        let since = *self.refused_at.get_or_insert(self.now);
        if self.now < self.impatient_until {
            return false;
        }
        let waits = self.now.saturating_since(since) < PATIENCE;
        if !waits {
            self.impatient_until = self.now + IMPATIENCE;
        }
        waits
    }
}

pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let probe = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&probe, name)?)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Driver for PacketSocket {
    fn capabilities(&self) -> Capabilities {
        Capabilities { udp_segmentation: false, ..Capabilities::full(self.mtu) }
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let Self { fd, landing, is_drained, .. } = self;
        *is_drained = false;
        landing.receive(pools, budget, out, drops, |both| {
            // That the interface was switched off meanwhile is told before the frames that have come since.
            let read = match sys::receive(fd, both) {
                Err(Errno::NETDOWN) => sys::receive(fd, both),
                read => read,
            };
            *is_drained = read == Err(Errno::AGAIN);
            match read {
                // One that no header can tell is gone, and others may lie behind it.
                Err(Errno::INVAL) => Some((0, None)),
                read => read.ok(),
            }
        })
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        while let Some(frame) = chain.pop() {
            let header = virtio::write(frame.meta());
            let parts = [IoSlice::new(&header), IoSlice::new(frame.as_slice())];
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => {}
                // The socket's send buffer is full: the kernel has not yet let go of earlier frames.
                Err(Errno::AGAIN) => {
                    chain.push_front(frame);
                    return;
                }
                Err(Errno::NOBUFS) if self.waits() => {
                    chain.push_front(frame);
                    return;
                }
                Err(Errno::INVAL | Errno::MSGSIZE) => drops.count(DropReason::BadOffload),
                Err(_) => drops.count(DropReason::DeviceRefused),
            }
            self.refused_at = None;
        }
    }

    /// Whoever waits for the descriptor is told of frames that are there already, unless the lane knows of them: those that
    /// it had no buffer for, or that lie behind what it has refused.
    fn notify(&mut self, on: bool) -> bool {
        on && self.landing.leaves_some()
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn advance(&mut self, now: Instant) {
        self.now = now;
    }
}
