//! A packet socket as a [`Driver`]: for the near end of a veth pair whose far end is a program's interface.
//!
//! Used by the engine where `/dev/net/tun` may not be opened (an ordinary user in a user namespace of his
//! own may make veth pairs but often no TAP). Frames keep their offload state through the virtio-net header
//! (packet(7), `PACKET_VNET_HDR`), so segments of up to 64 KiB cross whole. The kernel's own stack sees every
//! frame too. It has taken a VLAN tag out of the frame before, and tells it beside.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_frame::virtio::{self, Landing};
use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, DropReason, Mtu};
use rustix::io::Errno;

use crate::sys::{self, Hears};

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    mtu: Mtu,
    landing: Landing,
    is_drained: bool,
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
        Ok(Self { fd, mtu, landing: Landing::default(), is_drained: false })
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
            read.ok()
        })
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        while let Some(frame) = chain.pop() {
            let header = virtio::write(frame.meta());
            let parts = [IoSlice::new(&header), IoSlice::new(frame.as_slice())];
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => {}
                // The socket's send buffer is full: the kernel has not yet let go of earlier frames.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    chain.push_front(frame);
                    return;
                }
                Err(Errno::INVAL | Errno::MSGSIZE) => drops.count(DropReason::BadOffload),
                Err(_) => drops.count(DropReason::DeviceRefused),
            }
        }
    }

    /// Whoever waits for the descriptor is told of frames that are there already, unless the lane knows of them: those that
    /// it had no buffer for.
    fn notify(&mut self, on: bool) -> bool {
        on && self.landing.is_starved()
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }
}
