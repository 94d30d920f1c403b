//! Groups and broadcasts of a UDP socket: join and leave, and how datagrams to many are sent.
//!
//! Named after `std::net::UdpSocket` where that has a name. A membership is told to every lane of the netstack, since
//! any may get the group's datagrams; what concerns sending goes to the lane in which the socket lives.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use firelane_ip::{LOOPBACK, SourceFilter};
use firelane_lane::{DatagramOption, Join, PacketOption, SocketCommand};
use firelane_units::{Family, LinkId, NetstackId};
use rustix::io::Errno;

use crate::calls::{self, Held};
use crate::registry::Registry;
use crate::udp_socket::UdpSocket;

/// The groups of a socket.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    list: Vec<Joined>,
    /// It has joined one at some time: who closes it does not rely on the list alone.
    had_some: bool,
}

/// Where a socket has joined a group.
#[derive(Clone, Copy, Debug)]
struct Joined {
    group: IpAddr,
    /// The link that its program has named.
    named: Option<LinkId>,
    /// The one by which it hears the group: where none was named, the one that led there at the time. None is unknown.
    link: Option<LinkId>,
}

impl Groups {
    /// The membership that a program means by these. Who has joined under the same name means that; who names no link then any, and
    /// who names one the one that was found for him.
    fn find(&self, group: IpAddr, link: Option<LinkId>) -> Option<Joined> {
        let is_named = |it: &&Joined| it.named == link;
        let is_there = |it: &&Joined| link.is_none() || it.link == link;
        let is_unknown = |it: &&Joined| it.link.is_none();
        let its = || self.list.iter().filter(|it| it.group == group);
        let found = its().find(is_named).or_else(|| its().find(is_there)).or_else(|| its().find(is_unknown));
        found.copied()
    }
}

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
        let mut groups = self.groups();
        let left = groups.find(group, link).ok_or(Errno::ADDRNOTAVAIL)?;
        self.hear(&mut groups, left, SourceFilter::none())
    }

    fn groups(&self) -> Held<'_, Groups> {
        calls::hold(&self.groups)
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
        // Held until all lanes know, so that they hear of what two threads do at once in the order in which it stands here.
        let mut groups = self.groups();
        let lives =
            |it: &Joined| it.link.is_none_or(|it| it == LOOPBACK || self.check_link(Some(it)).is_ok());
        let known = groups.list.iter().find(|it| (it.group, it.named) == (group, link));
        let at = match known.copied().filter(lives) {
            Some(at) => at,
            None => Joined { group, named: link, link: link.or_else(|| self.link_towards(group)) },
        };
        self.hear(&mut groups, at, filter)
    }

    /// Tells all lanes what it wants to hear in one place, and notes whether it is a member there.
    fn hear(&self, groups: &mut Groups, at: Joined, filter: SourceFilter) -> io::Result<()> {
        let stays = filter != SourceFilter::none();
        // A lane that was told is left with the others, even if this call fails.
        groups.had_some |= stays;
        let join = Join { socket: self.socket, group: at.group, link: at.link, filter };
        self.command_all(|| SocketCommand::Join(Box::new(join.clone())))?;
        groups.list.retain(|it| it.group != at.group || (it.link != at.link && it.named != at.named));
        if stays {
            groups.list.push(at);
        }
        Ok(())
    }

    /// The link that leads to a group; none if the lanes are to find it.
    fn link_towards(&self, group: IpAddr) -> Option<LinkId> {
        let id = self.shared.netstack();
        self.engine.fabric.visit(self.shared.lane(), |_, lane| lane.group_link(id, group)).flatten()
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
        if self.groups().had_some {
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
