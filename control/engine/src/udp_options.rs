//! Options of a UDP socket: what its packets carry, and how many datagrams it gets at once.
//!
//! Part of the UDP socket; named after `std::net::UdpSocket` where that has a name. Groups are `udp_groups.rs`'s.

use std::io;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use firelane_lane::{DatagramOption, PacketOption};
use firelane_units::Family;

use crate::udp_socket::UdpSocket;

/// What was set, for who asks.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Zero is as the netstack has it.
    hops: AtomicU8,
    pub(crate) broadcasts: AtomicBool,
    pub(crate) group_hops: AtomicU8,
    /// For each family.
    pub(crate) loops: [AtomicBool; 2],
}

impl Default for Kept {
    fn default() -> Self {
        let loops = [(); 2].map(|()| AtomicBool::new(true));
        Self {
            hops: AtomicU8::new(0),
            broadcasts: AtomicBool::new(false),
            group_hops: AtomicU8::new(1),
            loops,
        }
    }
}

impl UdpSocket {
    /// The TTL or hop limit of datagrams to one station; `None` is what their link has.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_hops(&self, hops: Option<NonZeroU8>) -> io::Result<()> {
        self.set_packets(PacketOption::Hops(hops))?;
        self.kept.hops.store(hops.map_or(0, NonZeroU8::get), Ordering::Relaxed);
        Ok(())
    }

    /// As in std.
    ///
    /// # Errors
    /// `InvalidInput` if it is not 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let hops = u8::try_from(ttl).ok().and_then(NonZeroU8::new);
        self.set_hops(Some(hops.ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// As in std: what was set, or the netstack's.
    ///
    /// # Errors
    /// The netstack is gone.
    pub fn ttl(&self) -> io::Result<u32> {
        let set = self.kept.hops.load(Ordering::Relaxed);
        if set != 0 {
            return Ok(set.into());
        }
        let is_v4 = self.local_addr()?.is_ipv4();
        let mut registry = self.engine.registry();
        let its = registry.netstack_mut(self.shared.netstack())?.config.hops;
        Ok(if is_v4 { its.v4 } else { its.v6 }.into())
    }

    /// How long a receive waits at most.
    ///
    /// # Errors
    /// `InvalidInput` for a zero duration, as in std.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_limit.set(timeout)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.read_limit.get())
    }

    /// How long a send waits for room at most.
    ///
    /// # Errors
    /// `InvalidInput` for a zero duration, as in std.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_limit.set(timeout)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.write_limit.get())
    }

    /// The traffic class of datagrams: the octet that TOS was, differentiated services and ECN (RFC 2474, RFC 3168).
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.set_packets(PacketOption::TrafficClass(class))
    }

    /// Whether a datagram that is too large for its way is refused, here and by routers, instead of cut. The program
    /// is told by `EMSGSIZE`.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_dont_fragment(&self, on: bool) -> io::Result<()> {
        self.set_packets(PacketOption::DontFragment(on))
    }

    /// Whether datagrams of one length that come together are received together (UDP_GRO): [`UdpSocket::recv_msg`] says
    /// how long each is. Calls that do not say it must not be used then.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_receive_offload(&self, on: bool) -> io::Result<()> {
        self.set_option(DatagramOption::ReceiveOffload(on))
    }

    /// How many bytes may wait to be received, with 48 for each datagram (SO_RCVBUF).
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_receive_queue(&self, bytes: usize) -> io::Result<()> {
        self.set_option(DatagramOption::ReceiveQueue(bytes))
    }

    /// Packets of both families are like this.
    pub(crate) fn set_packets(&self, option: PacketOption) -> io::Result<()> {
        Family::BOTH
            .into_iter()
            .try_for_each(|family| self.set_option(DatagramOption::Packets(family, option)))
    }
}
