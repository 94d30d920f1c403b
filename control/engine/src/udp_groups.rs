//! Groups and broadcasts of a UDP socket: join and leave, and how datagrams to many are sent.
//!
//! Named after `std::net::UdpSocket` where that has a name. A membership is told to every lane of the netstack, since
//! any may get the group's datagrams; what concerns sending goes to the lane in which the socket lives.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use firelane_ip::SourceFilter;
use firelane_lane::{DatagramOption, Join, PacketOption, SocketCommand};
use firelane_units::{Family, LinkId, NetstackId};
use rustix::io::Errno;

use crate::calls::{self, Held};
use crate::registry::Registry;
use crate::udp_socket::UdpSocket;

impl UdpSocket {
    /// Hears what is sent to `group` on `link`; without a link on the one that leads there.
    ///
    /// # Errors
    /// The address is no group, or the netstack does not have the link.
    pub fn join_multicast(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        self.set_multicast_filter(group, link, SourceFilter::any())
    }

    /// Hears no more what is sent to `group` on `link`.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`]; `AddrNotAvailable` if it has not joined the group there.
    pub fn leave_multicast(&self, group: IpAddr, link: Option<LinkId>) -> io::Result<()> {
        let joined = self.joined();
        // Who leaves the choice of a link means the one where it has joined, and a link that was left to be chosen is any.
        let is_it = |it: &&(IpAddr, Option<LinkId>)| {
            it.0 == group && (it.1 == link || link.is_none() || it.1.is_none())
        };
        let (_, link) = *joined.iter().find(is_it).ok_or(Errno::ADDRNOTAVAIL)?;
        drop(joined);
        self.set_multicast_filter(group, link, SourceFilter::none())
    }

    /// The groups that it has joined, each with the link that was named.
    fn joined(&self) -> Held<'_, Vec<(IpAddr, Option<LinkId>)>> {
        calls::hold(&self.joined)
    }

    /// Hears what is sent to `group` by those that `filter` names (RFC 3678: the full-state interface).
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`]; a source is of the other family, or there are more than 64.
    pub fn set_multicast_filter(
        &self,
        group: IpAddr,
        link: Option<LinkId>,
        filter: SourceFilter,
    ) -> io::Result<()> {
        let is_sane = |source: &IpAddr| source.is_ipv4() == group.is_ipv4() && !source.is_multicast();
        if !group.is_multicast() || !filter.sources.iter().all(is_sane) {
            return Err(Errno::INVAL.into());
        }
        if filter.sources.len() > SOURCES_MAX {
            return Err(Errno::NOBUFS.into());
        }
        self.check_link(link)?;
        let stays = filter != SourceFilter::none();
        let join = Join { socket: self.socket, group, link, filter };
        self.command_all(|| SocketCommand::Join(Box::new(join.clone())))?;
        let mut joined = self.joined();
        joined.retain(|it| *it != (group, link));
        if stays {
            joined.push((group, link));
        }
        Ok(())
    }

    /// As in std: the link is the one that has the address `interface`; an unspecified one leaves the choice.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`].
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.join_multicast((*group).into(), self.link_of(*interface)?)
    }

    /// As in std.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`].
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.leave_multicast((*group).into(), self.link_of(*interface)?)
    }

    /// As in std: `interface` is one more than the link's number, and zero leaves the choice.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.join_multicast((*group).into(), interface.checked_sub(1).map(LinkId))
    }

    /// As in std.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.leave_multicast((*group).into(), interface.checked_sub(1).map(LinkId))
    }

    /// How many routers a datagram to a group may pass; one unless said otherwise.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_multicast_ttl(&self, hops: u8) -> io::Result<()> {
        self.set_packets(PacketOption::MulticastHops(hops))?;
        self.kept.group_hops.store(hops, Ordering::Relaxed);
        Ok(())
    }

    /// As in std.
    ///
    /// # Errors
    /// `InvalidInput` above 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.set_multicast_ttl(u8::try_from(ttl).map_err(|_| io::ErrorKind::InvalidInput)?)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(self.kept.group_hops.load(Ordering::Relaxed).into())
    }

    /// Whether members of a group in this netstack hear what this socket sends to it; they do unless said otherwise.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        Family::BOTH.into_iter().try_for_each(|family| self.set_loop(family, on))
    }

    /// As in std.
    ///
    /// # Errors
    /// As [`UdpSocket::set_multicast_loop`].
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.set_loop(Family::V4, on)
    }

    /// As in std.
    ///
    /// # Errors
    /// As [`UdpSocket::set_multicast_loop`].
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.set_loop(Family::V6, on)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        Ok(self.kept.loops[0].load(Ordering::Relaxed))
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        Ok(self.kept.loops[1].load(Ordering::Relaxed))
    }

    fn set_loop(&self, family: Family, on: bool) -> io::Result<()> {
        self.set_option(DatagramOption::Packets(family, PacketOption::MulticastLoop(on)))?;
        self.kept.loops[usize::from(family == Family::V6)].store(on, Ordering::Relaxed);
        Ok(())
    }

    /// By which link datagrams to groups leave; `None` leaves the choice.
    ///
    /// # Errors
    /// The netstack does not have the link.
    pub fn set_multicast_link(&self, link: Option<LinkId>) -> io::Result<()> {
        self.check_link(link)?;
        self.set_packets(PacketOption::MulticastLink(link, None))
    }

    /// Whether datagrams may be sent to broadcast addresses.
    ///
    /// # Errors
    /// The lane has failed.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.set_option(DatagramOption::Broadcast(on))?;
        self.kept.broadcasts.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.kept.broadcasts.load(Ordering::Relaxed))
    }

    /// The memberships of a socket that closes.
    pub(crate) fn leave_all(&self) {
        if !self.joined().is_empty() {
            // A lane that has failed has no members.
            let _ = self.command_all(|| SocketCommand::LeaveGroups(self.socket));
        }
    }

    pub(crate) fn set_option(&self, option: DatagramOption) -> io::Result<()> {
        // Datagrams lie in the ring as soon as they are sent, and must not overtake it.
        self.change(SocketCommand::SetDatagramOption(self.socket, option))
    }

    fn command_all(&self, command: impl Fn() -> SocketCommand) -> io::Result<()> {
        let id = self.shared.netstack();
        let lanes = self.engine.registry().netstack_mut(id)?.all_lanes();
        self.engine.fabric.tell_lanes(id, &lanes, command)
    }

    fn check_link(&self, link: Option<LinkId>) -> io::Result<()> {
        let Some(link) = link else { return Ok(()) };
        check_link(&self.engine.registry(), self.shared.netstack(), link)
    }

    fn link_of(&self, interface: Ipv4Addr) -> io::Result<Option<LinkId>> {
        if interface.is_unspecified() {
            return Ok(None);
        }
        let mut registry = self.engine.registry();
        let netstack = registry.netstack_mut(self.shared.netstack())?;
        let its = netstack.addresses.iter().find(|(_, prefix)| prefix.addr() == IpAddr::V4(interface));
        its.map(|(link, _)| Some(*link)).ok_or_else(|| Errno::NODEV.into())
    }
}

/// Whether `netstack` has `link`.
pub(crate) fn check_link(registry: &Registry, netstack: NetstackId, link: LinkId) -> io::Result<()> {
    let vnic = registry.vnics.get(&link).filter(|vnic| vnic.netstack == Some(netstack));
    vnic.map(|_| ()).ok_or_else(|| Errno::NODEV.into())
}

/// Sources of one filter, as in `path/ip`.
const SOURCES_MAX: usize = 64;
