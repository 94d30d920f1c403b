//! Link protection: what a VNIC's user may say it is.
//!
//! Called by the lane for each frame that comes from a protected port, when it comes and when it goes on, and for those that go to it if
//! the port's addresses are learned. The kinds and their rules are those of the original's `mac_protect.c`; ingress filtering is
//! RFC 2827. With `ip-nospoof` and no list of addresses, a port may use what its network gave it: see [`Known`].
//! A guard is a replica in each lane; what one lane learns, its caller tells the others.

use core::net::IpAddr;

use firelane_units::{DropReason, Instant, IpPrefix, MacAddr, Port, Protection, Protections};
use firelane_wire::ethernet::group_mac;
use firelane_wire::{
    ArpView, EtherType, Icmpv6View, IpProtocol, NdpEnvelope, NdpMessage, NdpOption, NdpView,
};

use crate::allowance::Allowance;
use crate::dhcp;
use crate::dhcp6::{self, Dhcp6};
use crate::known::{Known, Lease, Lesson, PREFIXES_MAX, Question};

/// How a port is protected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Which kinds.
    pub kinds: Protections,
    /// What `ip-nospoof` allows; if empty, what is learned.
    pub allowed_ips: Vec<IpPrefix>,
    /// The client identifiers that `dhcp-nospoof` allows beside the link's own.
    pub allowed_cids: Vec<Vec<u8>>,
}

/// What a guard looks at in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Source address of the frame.
    pub src: MacAddr,
    /// Its destination address.
    pub dst: MacAddr,
    /// Whether it has a tag.
    pub tagged: bool,
    /// Whether its device or its receiver is to fill a checksum in.
    pub is_unfinished: bool,
    /// What the frame carries.
    pub ethertype: EtherType,
    /// The packet, behind the link header.
    pub l3: &'a [u8],
    /// The transport's part; empty if it cannot be read.
    pub l4: &'a [u8],
    /// Which part of a packet it is.
    pub piece: Piece,
    /// Source and destination; none if it is no IP packet, or malformed.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The transport protocol, or an extension header behind which it was not looked for.
    pub protocol: IpProtocol,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Source and destination port, if the transport has them.
    pub ports: Option<(Port, Port)>,
}

/// Which part of a packet that was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// All of it.
    Whole,
    /// The one with the headers.
    First,
    /// Another one, which says nothing of what it belongs to.
    Later,
}

/// How many frames each kind has stopped, in the order of [`Protection::ALL`].
pub type GuardCounters = [u64; Protection::ALL.len()];

/// A protected port's guard.
#[derive(Clone, Debug)]
pub struct Guard {
    mac: MacAddr,
    rules: Rules,
    known: Known,
    may_teach: [Allowance; 3],
    counters: GuardCounters,
}

/// Who teaches: each for himself, so that who teaches without end keeps nobody else from it.
#[derive(Clone, Copy, Debug)]
enum Teacher {
    /// The port's user.
    User,
    /// Those who answer his questions.
    Servers,
    /// Everybody else on the link.
    Neighbours,
}

/// DHCP's ports (RFC 2131, RFC 8415): who asks, and who answers.
const DHCP_CLIENT: Port = Port(68);
const DHCP_SERVER: Port = Port(67);
const DHCP6_CLIENT: Port = Port(546);
const DHCP6_SERVER: Port = Port(547);

/// Where an IPv6 header says what is behind it.
const NEXT_HEADER: usize = 6;

impl Guard {
    /// A guard of the station `mac`.
    pub fn new(mac: MacAddr, rules: Rules) -> Self {
        let (known, may_teach) = Default::default();
        Self { mac, rules, known, may_teach, counters: [0; Protection::ALL.len()] }
    }

    /// Puts other rules in force; counters and what was learned stay.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// What was stopped.
    pub fn counters(&self) -> GuardCounters {
        self.counters
    }

    /// Judges a frame of the port's user.
    pub fn check(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        let stopped = Protection::ALL.into_iter().find(|&kind| {
            self.rules.kinds.has(kind)
                && !match kind {
                    Protection::MacNospoof => packet.src == self.mac,
                    Protection::Restricted => {
                        matches!(packet.ethertype, EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP)
                    }
                    Protection::IpNospoof => self.may_send(now, packet),
                    Protection::DhcpNospoof => self.is_own_dhcp(packet),
                }
        });
        if let Some(kind) = stopped {
            self.counters[kind as usize] += 1;
            return Err(match kind {
                Protection::MacNospoof => DropReason::MacSpoofed,
                Protection::Restricted => DropReason::Restricted,
                Protection::IpNospoof => DropReason::IpSpoofed,
                Protection::DhcpNospoof => DropReason::DhcpSpoofed,
            });
        }
        Ok(())
    }

    /// Looks at a frame of the port's user that has passed and goes on: what does not leave claims nothing. What it teaches is given to
    /// `taught`, for the other lanes.
    pub fn sent(&mut self, now: Instant, packet: &Packet<'_>, mut taught: impl FnMut(Lesson)) {
        if !self.learns() {
            return;
        }
        let mut learn = |known: &mut Known, lesson| {
            known.learn(now, lesson);
            taught(lesson);
        };
        if let Some(lesson) = self.said(now, packet)
            && self.may_learn(now, Teacher::User, lesson)
        {
            learn(&mut self.known, lesson);
        }
        // A message may give several addresses back.
        let said = question(packet, DHCP6_SERVER).and_then(dhcp6::read);
        let back = said.filter(Dhcp6::gives_back);
        for (address, _) in back.iter().flat_map(Dhcp6::addresses) {
            if self.known.was_given(address.into()) {
                learn(&mut self.known, Lesson::Gone(address.into()));
            }
        }
    }

    /// Looks at a frame for the port's user.
    pub fn see(&mut self, now: Instant, packet: &Packet<'_>, mut taught: impl FnMut(Lesson)) {
        if !self.learns() {
            return;
        }
        let mut learn = |known: &mut Known, lesson| {
            known.learn(now, lesson);
            taught(lesson);
        };
        if let Some(answer) = datagram(packet, (DHCP_SERVER, DHCP_CLIENT)).and_then(dhcp::read)
            && let Some(lesson) = self.known.answered(now, self.mac, &answer)
            && self.may_learn(now, Teacher::Servers, lesson)
        {
            learn(&mut self.known, lesson);
        }
        if let Some(answer) = datagram(packet, (DHCP6_SERVER, DHCP6_CLIENT)).and_then(dhcp6::read)
            && let Some(question) = Question::of(&answer).filter(|_| answer.grants())
        {
            for (address, seconds) in answer.addresses() {
                let lease = Lease::new(now, address.into(), seconds, question);
                if let Some(lesson) = self.known.answers(now, lease)
                    && self.may_learn(now, Teacher::Servers, lesson)
                {
                    learn(&mut self.known, lesson);
                }
            }
        }
        let Some(view) = neighbours(packet) else { return };
        // An advertisement teaches one prefix after the other.
        for _ in 0..PREFIXES_MAX {
            let Some(lesson) = self.known.heard(now, &view) else { return };
            if !self.may_learn(now, Teacher::Neighbours, lesson) {
                return;
            }
            learn(&mut self.known, lesson);
        }
    }

    /// Whether a lesson is not one too many: lanes tell each other of each. That an address is gone is always heard: it was known.
    fn may_learn(&mut self, now: Instant, teacher: Teacher, lesson: Lesson) -> bool {
        matches!(lesson, Lesson::Gone(_)) || self.may_teach[teacher as usize].allow(now)
    }

    /// Learns what another lane's replica was taught. What follows from it here is given to `taught`.
    pub fn learn(&mut self, now: Instant, lesson: Lesson, mut taught: impl FnMut(Lesson)) {
        self.known.learn(now, lesson);
        while let Some(lesson) = self.known.next_early(now) {
            self.known.learn(now, lesson);
            taught(lesson);
        }
    }

    fn learns(&self) -> bool {
        self.rules.kinds.has(Protection::IpNospoof) && self.rules.allowed_ips.is_empty()
    }

    fn is_allowed(&self, now: Instant, address: IpAddr) -> bool {
        if address.is_unspecified() {
            return true;
        }
        match self.rules.allowed_ips.as_slice() {
            [] => self.known.has(now, address),
            list => list.iter().any(|prefix| prefix.contains(address)),
        }
    }

    /// Whether the addresses that a packet claims for its sender are allowed.
    fn may_send(&self, now: Instant, packet: &Packet<'_>) -> bool {
        match (packet.ethertype, packet.addresses) {
            (EtherType::ARP, _) => {
                ArpView::parse(packet.l3).is_ok_and(|arp| self.is_allowed(now, arp.sender_ip().into()))
            }
            (EtherType::IPV4 | EtherType::IPV6, None) => false,
            (_, Some(_)) if hides(packet) => false,
            (_, Some((src, _))) => {
                let may_say = |view: NdpView<'_>| match view.message() {
                    NdpMessage::NeighbourAdvert { target, .. } => self.is_allowed(now, target.into()),
                    NdpMessage::RouterAdvert { .. } => !self.learns() && self.may_announce(&view),
                    NdpMessage::Redirect { .. } => !self.learns(),
                    _ => true,
                };
                self.is_allowed(now, src) && neighbours(packet).is_none_or(may_say)
            }
            (_, None) => true,
        }
    }

    /// Whether a router may speak of the prefixes that it announces: of addresses that it may send from. Who may use what was learned alone
    /// can forward nothing and is no router (RFC 6105); others would learn from it.
    fn may_announce(&self, view: &NdpView<'_>) -> bool {
        view.options().all(|option| match option {
            NdpOption::Prefix(said) => {
                let holds =
                    |it: &IpPrefix| it.prefix_len() <= said.prefix_len && it.contains(said.prefix.into());
                self.rules.allowed_ips.iter().any(holds)
            }
            _ => true,
        })
    }

    /// Whether a question to a DHCP server, if it is one, is asked in the link's own name. Who may only ask does not answer:
    /// a false server would hand out addresses and routers. Clients and servers look at the port where a message arrives, and not at
    /// the one that it comes from.
    fn is_own_dhcp(&self, packet: &Packet<'_>) -> bool {
        let own = |cid: &[u8]| self.rules.allowed_cids.iter().any(|allowed| allowed == cid);
        match packet.ports {
            Some((_, to)) if packet.protocol == IpProtocol::UDP => match to {
                DHCP_CLIENT | DHCP6_CLIENT => false,
                // What the other pieces say nobody here will know.
                DHCP_SERVER | DHCP6_SERVER if packet.piece != Piece::Whole => false,
                DHCP_SERVER => dhcp::read(packet.l4).is_some_and(|it| {
                    let is_own = |cid| dhcp::is_of_hardware(cid, self.mac) || own(cid);
                    it.is_plain && !it.is_reply && it.hardware == self.mac && it.client.is_none_or(is_own)
                }),
                DHCP6_SERVER => dhcp6::read(packet.l4).is_some_and(|it| {
                    let is_own = |duid| dhcp6::is_duid_of(duid, self.mac) || own(duid);
                    it.is_of_client() && it.client().is_some_and(is_own)
                }),
                _ => true,
            },
            _ => !hides(packet),
        }
    }

    /// What the user's own frame teaches: that an answer is due, or that it has claimed an address.
    fn said(&self, now: Instant, packet: &Packet<'_>) -> Option<Lesson> {
        if let Some(text) = question(packet, DHCP_SERVER) {
            return dhcp::read(text).and_then(|question| self.known.asked(now, &question));
        }
        if let Some(text) = question(packet, DHCP6_SERVER) {
            return dhcp6::read(text).and_then(|question| self.known.asked6(now, &question));
        }
        match (packet.addresses, neighbours(packet)?.message()) {
            (Some((src, dst)), NdpMessage::NeighbourSolicit { target })
                if src.is_unspecified() && is_heard(packet, dst) =>
            {
                self.known.claimed(now, target)
            }
            _ => None,
        }
    }
}

/// Whether a test of an address comes to whoever has it, and is believed there: else nobody would ever contradict. That it is not in
/// pieces, be it in one alone, is seen from its header (RFC 6980 §5).
fn is_heard(packet: &Packet<'_>, dst: IpAddr) -> bool {
    let is_plain = packet.l3.get(NEXT_HEADER) == Some(&IpProtocol::ICMPV6.0);
    let is_right = |src, dst| Icmpv6View::parse(packet.l4).is_ok_and(|it| it.is_checksum_valid(src, dst));
    let is_believed = match packet.addresses {
        Some((IpAddr::V6(src), IpAddr::V6(dst))) => is_right(src, dst),
        _ => false,
    };
    !packet.tagged && !packet.is_unfinished && packet.dst == group_mac(dst) && is_plain && is_believed
}

/// Whether nobody can tell what an IPv6 packet says: its transport header is behind more extension headers than are walked, or not in the
/// first piece, where it has to be (RFC 7112, RFC 7113 §3). The same of neighbour discovery in pieces, which hosts ignore (RFC 6980).
fn hides(packet: &Packet<'_>) -> bool {
    if packet.ethertype != EtherType::IPV6 || packet.piece == Piece::Later {
        return false;
    }
    match packet.protocol {
        IpProtocol::HOP_BY_HOP
        | IpProtocol::ROUTING
        | IpProtocol::FRAGMENT
        | IpProtocol::AUTHENTICATION
        | IpProtocol::DESTINATION_OPTIONS => true,
        IpProtocol::UDP => packet.ports.is_none(),
        IpProtocol::ICMPV6 => Icmpv6View::parse(packet.l4)
            .map_or(true, |it| packet.piece == Piece::First && it.is_neighbour_discovery()),
        _ => false,
    }
}

/// A packet's datagram, if it is one to this port of a server: servers do not ask from where.
fn question<'a>(packet: &Packet<'a>, server: Port) -> Option<&'a [u8]> {
    let (_, to) = packet.ports?;
    (packet.protocol == IpProtocol::UDP && to == server).then_some(packet.l4)
}

/// A packet's datagram, if it is one between these ports.
fn datagram<'a>(packet: &Packet<'a>, ports: (Port, Port)) -> Option<&'a [u8]> {
    (packet.protocol == IpProtocol::UDP && packet.ports == Some(ports)).then_some(packet.l4)
}

/// The neighbour discovery message of a packet, if it is one that RFC 4861 does not tell to ignore.
fn neighbours<'a>(packet: &Packet<'a>) -> Option<NdpView<'a>> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = packet.addresses? else { return None };
    if packet.protocol != IpProtocol::ICMPV6 {
        return None;
    }
    let icmp = Icmpv6View::parse(packet.l4).ok().filter(Icmpv6View::is_neighbour_discovery)?;
    NdpView::parse(&NdpEnvelope { src, dst, hop_limit: packet.ttl }, icmp.message()).ok()
}

impl Packet<'_> {
    /// A frame of which nothing is known but its link header.
    pub const fn opaque(src: MacAddr, ethertype: EtherType) -> Self {
        let (l3, l4): (&[u8], &[u8]) = (&[], &[]);
        let (piece, protocol) = (Piece::Whole, IpProtocol::NO_NEXT);
        let (dst, tagged, is_unfinished) = (MacAddr::BROADCAST, false, false);
        let (addresses, ttl, ports) = (None, 0, None);
        Self { src, dst, tagged, is_unfinished, ethertype, l3, l4, piece, addresses, protocol, ttl, ports }
    }
}

#[cfg(test)]
mod tests;
