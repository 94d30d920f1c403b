//! The reasons for which a frame ends without being delivered, forwarded or held.
//!
//! The same word appears in the counter, the trace, the command and the page. A reason belongs to the
//! station that gives the frame up, so `station.word()` names a folder of `path/` or `drivers/`.

use core::fmt;

/// A place on a frame's way, named as its folder is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Station {
    /// `drivers/`: the kernel's or the wire's door.
    Driver,
    /// `path/lane`.
    Lane,
    /// `path/classify`.
    Classify,
    /// `path/flow`.
    Flow,
    /// `path/switch`.
    Switch,
    /// `path/filter`.
    Filter,
    /// `path/nat`.
    Nat,
    /// `path/tunnel`.
    Tunnel,
    /// `path/ip`.
    Ip,
    /// `path/udp`.
    Udp,
    /// `path/tcp`.
    Tcp,
    /// `path/socket`.
    Socket,
}

impl Station {
    /// The word used in folder, counter, trace and command.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Lane => "lane",
            Self::Classify => "classify",
            Self::Flow => "flow",
            Self::Switch => "switch",
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Tunnel => "tunnel",
            Self::Ip => "ip",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Socket => "socket",
        }
    }
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $station:ident $name:ident = $word:literal),* $(,)?) => {
        /// Why a frame was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum DropReason { $($(#[$doc])* $name),* }

        impl DropReason {
            /// Every reason, in the order of the path.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word used in counter, trace and command.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// The station that gives the frame up.
            pub const fn station(self) -> Station {
                match self { $(Self::$name => Station::$station),* }
            }
        }
    };
}

drop_reasons! {
    /// The wire lost it on purpose (a fault that was asked for).
    Driver WireLoss = "wire_loss",
    /// The receiver's ring was full.
    Driver RingFull = "ring_full",
    /// The kernel refused it (interface down, or no memory).
    Driver DeviceRefused = "device_refused",
    /// The virtio-net header contradicts the frame.
    Driver BadOffload = "bad_offload",
    /// A descriptor of the other process leads outside its memory.
    Driver BadDescriptor = "bad_descriptor",
    /// Nobody is at the other end of the shared memory.
    Driver NoPeer = "no_peer",
    /// The frame does not fit the link's MTU and asks for no segmentation.
    Driver TooLong = "rx_long",
    /// No buffer was free.
    Lane NoBuffer = "no_buffer",
    /// The queue of another lane was full.
    Lane LaneFull = "lane_full",
    /// Shorter than an Ethernet header, or than the header that its type promises.
    Classify TooShort = "rx_short",
    /// Source address is a group, broadcast or zero.
    Classify BadSource = "bad_source",
    /// A VLAN tag where none may be, or a reserved identifier.
    Classify BadVlan = "bad_vlan",
    /// Over the flow's, VNIC's or link's limit, with the hold queue full.
    Flow FlowLimit = "flow_limit",
    /// No switch port has the destination address.
    Switch UnknownDestination = "unknown_destination",
    /// The port that the frame came from, or was meant for, was removed meanwhile.
    Switch NoPort = "no_port",
    /// The destination is the port that the frame came from.
    Switch SamePort = "same_port",
    /// The ring of the destination's user is full.
    Switch PortFull = "port_full",
    /// The destination is a VNIC that nobody uses.
    Switch NoUser = "no_user",
    /// A link-local control protocol (BPDU, pause, LLDP) that tenants must not exchange.
    Switch LinkLocalProtocol = "link_local_protocol",
    /// The source address is not the link's own (`protection=mac-nospoof`).
    Switch MacSpoofed = "mac_spoofed",
    /// Neither IPv4 nor IPv6 nor ARP (`protection=restricted`).
    Switch Restricted = "restricted",
    /// An IP address that the link may not use (`protection=ip-nospoof`).
    Switch IpSpoofed = "ip_spoofed",
    /// DHCP in somebody else's name (`protection=dhcp-nospoof`).
    Switch DhcpSpoofed = "dhcp_spoofed",
    /// A rule of the netstack's filter ends it.
    Filter FilterBlocked = "filter_blocked",
    /// A rule would keep state of it, and there is no room for one.
    Filter FilterFull = "filter_full",
    /// It has the names of a state and is outside its window.
    Filter FilterWindow = "filter_window",
    /// A rule of the filter of the socket that it is for ends it.
    Filter FilterSocket = "filter_socket",
    /// It would begin a translated connection, and there is no room for one.
    Nat NatFull = "nat_full",
    /// The same, and who sends it has as many as one may have.
    Nat NatSourceFull = "nat_source_full",
    /// The same, and no port outside is free.
    Nat NatPorts = "nat_ports",
    /// It comes to a mapping from somebody whom nobody inside has sent to.
    Nat NatFiltered = "nat_filtered",
    /// A SYN for a port that is nobody's but may become somebody's (RFC 5382 REQ-4).
    Nat NatUnsolicited = "nat_unsolicited",
    /// A piece of a translated datagram whose first piece has not come in time, or that had no room to wait for it.
    Nat NatFragment = "nat_fragment",
    /// An ICMP error that is damaged, or quotes what is.
    Nat NatBadIcmp = "nat_bad_icmp",
    /// An ICMP message that asks, answers and reports nothing, or a transport's header that is cut off, of somebody whose address is
    /// another outside: it has no names that could be translated.
    Nat NatNameless = "nat_nameless",
    /// An ICMP redirect of what is translated: who follows it goes round the translation.
    Nat NatRedirect = "nat_redirect",
    /// It comes out of a tunnel that there is not: from somebody else, or with another key.
    Tunnel TunnelStranger = "tunnel_stranger",
    /// What is in a tunnel's packet is no packet, is cut off, or is of another protocol than it is said to be.
    Tunnel TunnelBadPacket = "tunnel_bad_packet",
    /// A GRE header with routing, of another version, or cut off.
    Tunnel GreHeader = "gre_header",
    /// GRE that carries neither IPv4 nor IPv6.
    Tunnel GreProtocol = "gre_protocol",
    /// GRE's checksum is wrong, or missing where the tunnel has one.
    Tunnel GreChecksum = "gre_checksum",
    /// GRE's sequence number is older than the last one, or missing where the tunnel has them (RFC 2890).
    Tunnel GreOrder = "gre_order",
    /// Marked as congested on its way through a tunnel, and its transport would not understand (RFC 6040).
    Tunnel TunnelCongested = "tunnel_congested",
    /// Too many tunnels in one another.
    Tunnel TunnelNested = "tunnel_nested",
    /// The way to a tunnel's other end leads into the tunnel, or to this netstack.
    Tunnel TunnelLoop = "tunnel_loop",
    /// The tunnel has no way: its own end is no address of the netstack, or there is no route to the other.
    Tunnel TunnelDown = "tunnel_down",
    /// 6to4 has no other end for such an address (RFC 3056).
    Tunnel TunnelAddress = "tunnel_address",
    /// An EtherType that no netstack handles.
    Ip UnknownEtherType = "unknown_ethertype",
    /// A header field is wrong (version, header length, total length).
    Ip BadHeader = "ip_bad_header",
    /// The header checksum is wrong.
    Ip BadChecksum = "ip_bad_checksum",
    /// The source address may not appear on a wire (loopback, multicast, broadcast, our own).
    Ip Martian = "ip_martian",
    /// Not addressed to this netstack, which does not forward.
    Ip NotForUs = "ip_not_for_us",
    /// IP options, source routing or an extension header that is refused.
    Ip BadOption = "ip_bad_option",
    /// A fragment that overlaps, is too small, reaches past 65,535 or repeats with other data.
    Ip BadFragment = "ip_bad_fragment",
    /// Reassembly memory or pieces ran out, or the time did.
    Ip ReassemblyLimit = "ip_reassembly_limit",
    /// No route to the destination.
    Ip NoRoute = "ip_no_route",
    /// A route says that packets end there, and that nobody is told.
    Ip Blackhole = "ip_blackhole",
    /// A route says that the destination cannot be reached.
    Ip Unreachable = "ip_unreachable",
    /// A route says that the destination is forbidden.
    Ip Prohibited = "ip_prohibited",
    /// Its source is not where it came from, and the interface asks for that.
    Ip ReversePath = "ip_reverse_path",
    /// For another station, by an interface that does not forward.
    Ip NotForwarding = "ip_not_forwarding",
    /// The neighbour did not answer, or its waiting queue was full.
    Ip NeighbourUnresolved = "ip_neighbour_unresolved",
    /// Too large for the way, and it may not be fragmented.
    Ip TooBig = "ip_too_big",
    /// All its hops were made before it could be forwarded.
    Ip HopsExceeded = "ip_hops_exceeded",
    /// No protocol of that number.
    Ip UnknownProtocol = "ip_unknown_protocol",
    /// An ARP packet that is malformed or answers nothing we asked.
    Ip BadArp = "ip_bad_arp",
    /// A neighbour-discovery message that RFC 4861 tells to discard.
    Ip BadNdp = "ip_bad_ndp",
    /// An IGMP or MLD message that RFC 3376 or RFC 3810 tells to ignore.
    Ip BadGroup = "ip_bad_group",
    /// An ICMP message that is malformed, quotes nothing of ours, or must be ignored.
    Ip BadIcmp = "ip_bad_icmp",
    /// The ICMP rate limit was reached.
    Ip IcmpLimit = "ip_icmp_limit",
    /// UDP length or checksum is wrong.
    Udp BadDatagram = "udp_bad_datagram",
    /// No socket on that UDP port.
    Udp NoSocket = "udp_no_socket",
    /// TCP data offset or checksum is wrong, or the ports are zero.
    Tcp BadSegment = "tcp_bad_segment",
    /// A segment for a connection that does not exist.
    Tcp NoConnection = "tcp_no_connection",
    /// Outside the window: answered with an ACK where RFC 9293 says so.
    Tcp OutOfWindow = "tcp_out_of_window",
    /// Text that had arrived before.
    Tcp Duplicate = "tcp_duplicate",
    /// Text ahead of its turn while too many separate pieces already wait.
    Tcp ReassemblyFull = "tcp_reassembly_full",
    /// A segment that RFC 9293 or 5961 tells to discard in this state.
    Tcp Unacceptable = "tcp_unacceptable",
    /// Fewer hops were left of it than its socket's program wants (RFC 5082).
    Tcp FewHops = "tcp_few_hops",
    /// An old duplicate by its timestamp (RFC 7323 PAWS).
    Tcp OldTimestamp = "tcp_old_timestamp",
    /// The listener's queue of finished connections was full.
    Tcp ListenFull = "tcp_listen_full",
    /// Too many half-open connections, of the listener or of the lane, with SYN cookies off.
    Tcp HalfOpenFull = "tcp_half_open_full",
    /// While SYN cookies were out, an ACK that acknowledges none of ours.
    Tcp BadCookie = "tcp_bad_cookie",
    /// Data that arrived for a socket whose reader is gone.
    Tcp NoReader = "tcp_no_reader",
    /// The socket's receive buffer was full.
    Socket BufferFull = "socket_buffer_full",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One counter per reason, and their sum, which is asked for with each chain of frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounters {
    counts: [u64; DropReason::ALL.len()],
    total: u64,
}

impl Default for DropCounters {
    fn default() -> Self {
        Self { counts: [0; DropReason::ALL.len()], total: 0 }
    }
}

impl DropCounters {
    /// Counts one frame.
    pub fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts `frames` frames.
    pub fn add(&mut self, reason: DropReason, frames: u64) {
        self.counts[reason as usize] += frames;
        self.total += frames;
    }

    /// How many frames ended for `reason`.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// How many frames ended for any reason.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Every reason that happened, with its count, in the order of the path.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.of(r))).filter(|&(_, n)| n > 0)
    }

    /// Adds another lane's counters.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: HashSet<_> = DropReason::ALL.iter().map(|r| r.word()).collect();
        assert_eq!(words.len(), DropReason::ALL.len());
        for (position, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, position);
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(reason.word().bytes().all(plain), "{reason}");
        }
    }

    #[test]
    fn counters_add_up() {
        let mut a = DropCounters::default();
        a.count(DropReason::FlowLimit);
        a.add(DropReason::NoRoute, 3);
        let mut b = a.clone();
        b.merge(&a);
        assert_eq!((b.of(DropReason::NoRoute), b.total()), (6, 8));
        assert_eq!(b.iter().count(), 2);
    }
}
