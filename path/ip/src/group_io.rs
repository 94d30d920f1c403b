//! IGMP and MLD on the wire, for a listener (RFC 3376, RFC 3810).
//!
//! Between the memberships (`groups.rs`), the state machines that say when to report (`group_reports.rs`) and frames.
//! Every lane knows all memberships; the home lane alone reports and hears queries.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId};
use firelane_wire::group::{self, REPORT_HEADER_LEN};
use firelane_wire::{
    EtherType, EthernetRepr, EthernetView, GroupMessage, GroupProtocol, GroupRecord, GroupVersion,
    IpProtocol, Ipv4Option, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, OldKind, Sum, ethernet, icmpv6, ndp,
};

use crate::config::LOOPBACK;
use crate::egress::is_link_local;
use crate::group_reports::{GroupReports, Record, Say};
use crate::groups::{JoinError, Member, Membership, SourceFilter};
use crate::input::{Delivered, Input};
use crate::ndp::ALL_NODES;
use crate::output::DSCP_CONTROL;
use crate::stack::Ip;

/// Every host of a link (RFC 1112 §4); everybody is in it and nobody reports it.
pub(crate) const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where the routers of the older versions hear who leaves.
const ALL_ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Where routers hear reports (RFC 3376 §4.2.14, RFC 3810 §5.2.14).
const REPORTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const REPORTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// A report stays within the least MTU, with room for its headers.
const REPORT_MAX: usize = 1280 - 40 - HOP_BY_HOP.len();
/// RFC 2113: "look into this", for a router that is not addressed.
const ROUTER_ALERT_V4: [u8; 4] = [148, 4, 0, 0];
/// The same for IPv6 (RFC 2711: 0 is MLD), with the padding of its header.
const HOP_BY_HOP: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

/// The state machine of one protocol on one link.
pub(crate) type LinkReports = (LinkId, GroupProtocol, GroupReports);

impl Ip {
    /// Sets what a member wants to hear of a group; [`SourceFilter::none`] ends its membership. Without a link the
    /// one is taken that leads to the group. Every lane of a netstack is told.
    pub fn set_membership(
        &mut self,
        now: Instant,
        link: Option<LinkId>,
        group: IpAddr,
        member: Member,
        filter: SourceFilter,
        pools: &mut Pools,
    ) -> Result<LinkId, JoinError> {
        let link = link.or_else(|| self.link_to_group(group)).ok_or(JoinError::Link)?;
        if self.interfaces.get(link).is_none() {
            return Err(JoinError::Link);
        }
        self.groups.set(link, group, member, filter).inspect_err(|error| {
            self.refused.groups += u64::from(*error == JoinError::Full);
        })?;
        self.report_change(now, link, group, pools);
        Ok(link)
    }

    /// The link that leads to a group, be it for who joins or for who sends.
    pub fn link_to_group(&self, group: IpAddr) -> Option<LinkId> {
        self.group_link(None, group)
    }

    /// Ends all memberships of a member.
    pub fn leave_groups(&mut self, now: Instant, member: Member, pools: &mut Pools) {
        for (link, group) in self.groups.of(member) {
            // Leaving cannot fail.
            let _ = self.set_membership(now, Some(link), group, member, SourceFilter::none(), pools);
        }
    }

    /// Whether a member has joined a group on `link`, and hears there what came from `source`.
    pub fn hears_group(&self, member: Member, link: LinkId, group: IpAddr, source: IpAddr) -> bool {
        let link = Some(link).filter(|&link| link != LOOPBACK);
        self.groups.hears(link, group, member, source)
    }

    /// Whether anybody here wants what came by `link` from `source` to `group`.
    pub fn is_heard(&self, link: LinkId, group: IpAddr, source: IpAddr) -> bool {
        let link = Some(link).filter(|&link| link != LOOPBACK);
        is_everybodys(group) || self.groups.is_heard(link, group, source)
    }

    /// Whether a member has joined a group on a link, whomever it hears there.
    pub fn has_joined(&self, member: Member, link: LinkId, group: IpAddr) -> bool {
        self.groups.has(Some(link).filter(|&link| link != LOOPBACK), group, member)
    }

    /// Whether anybody here listens to a group on a link.
    pub fn is_member(&self, link: LinkId, group: IpAddr) -> bool {
        let on = Some(link).filter(|&link| link != LOOPBACK);
        is_everybodys(group) || self.groups.is_joined(on, group)
    }

    /// Who is in which group on which link, and how many of us: the memberships of this netstack.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        self.groups.iter()
    }

    fn report_change(&mut self, now: Instant, link: LinkId, group: IpAddr, pools: &mut Pools) {
        if !self.config.group_reports || !self.interfaces.is_home(link) || !is_reported(group) {
            return;
        }
        let wanted = self.groups.wanted(link, group);
        let protocol = protocol_of(group);
        let at = self.reports_at(link, protocol);
        let said = self.reports[at].2.set(now, group, wanted, &mut self.random);
        if let Some(say) = said {
            self.say(link, protocol, &say, pools);
        }
    }

    /// An address has passed its test. Routers do not believe what was reported before there was a link-local one: it is said again
    /// from that (RFC 3590 §4, RFC 3810 §5.2.13).
    pub(crate) fn report_again(&mut self, now: Instant, link: LinkId, addr: IpAddr) {
        if is_link_local(addr)
            && let Some(reports) = mld_of(&mut self.reports, link)
        {
            reports.say_again(now, &mut self.random);
        }
    }

    /// Who is on a link may be another than before, and has not heard to which groups we listen there.
    pub(crate) fn report_groups_again(&mut self, now: Instant, link: LinkId) {
        for (.., reports) in self.reports.iter_mut().filter(|(on, ..)| *on == link) {
            reports.say_all(now, &mut self.random);
        }
    }

    fn reports_at(&mut self, link: LinkId, protocol: GroupProtocol) -> usize {
        let known = self.reports.iter().position(|(on, which, _)| (*on, *which) == (link, protocol));
        known.unwrap_or_else(|| {
            self.reports.push((link, protocol, GroupReports::new()));
            self.reports.len() - 1
        })
    }

    /// When a report is due.
    pub(crate) fn groups_poll_at(&self) -> Option<Instant> {
        if self.config.group_reports && self.own_groups_are != self.addresses.version() {
            return Some(Instant::ZERO);
        }
        self.reports.iter().filter_map(|(.., reports)| reports.poll_at()).min()
    }

    /// Says what is due.
    pub(crate) fn run_groups(&mut self, now: Instant, pools: &mut Pools) {
        if !self.config.group_reports {
            return;
        }
        if core::mem::replace(&mut self.own_groups_are, self.addresses.version()) != self.addresses.version()
        {
            self.follow_own_addresses(now, pools);
        }
        for n in 0..self.reports.len() {
            let (link, protocol, _) = self.reports[n];
            while let Some(say) = self.reports[n].2.poll(now, &mut self.random) {
                self.say(link, protocol, &say, pools);
            }
        }
    }

    /// RFC 4862 §5.4.2: a host listens to the groups in which its own addresses are asked for.
    fn follow_own_addresses(&mut self, now: Instant, pools: &mut Pools) {
        let solicited = self.addresses.iter().filter_map(|address| match address.prefix.addr() {
            IpAddr::V6(addr) => Some((address.link, IpAddr::V6(ndp::solicited_node(addr)))),
            IpAddr::V4(_) => None,
        });
        let wanted: Vec<(LinkId, IpAddr)> =
            solicited.filter(|(link, _)| self.interfaces.is_home(*link)).collect();
        for (link, group) in self.groups.of(Member::Netstack) {
            if !wanted.contains(&(link, group)) {
                let _ = self.set_membership(
                    now,
                    Some(link),
                    group,
                    Member::Netstack,
                    SourceFilter::none(),
                    pools,
                );
            }
        }
        for (link, group) in wanted {
            // A netstack with more addresses than groups answers for them all, and reports some.
            let _ = self.set_membership(now, Some(link), group, Member::Netstack, SourceFilter::any(), pools);
        }
    }

    /// An IGMP message.
    pub(crate) fn input_igmp(&mut self, now: Instant, delivered: Delivered, pools: &mut Pools) -> Input {
        self.counts.v4.group_in += 1;
        match self.on_igmp(now, &delivered) {
            Ok(()) => {
                pools.put(delivered.frame);
                Input::Consumed
            }
            Err(reason) => Input::Drop(delivered.frame, reason),
        }
    }

    fn on_igmp(&mut self, now: Instant, delivered: &Delivered) -> Result<(), DropReason> {
        let message = &delivered.frame.as_slice()[delivered.payload.clone()];
        if !Sum::of(message).is_valid() {
            return Err(DropReason::BadGroup);
        }
        let parsed = GroupMessage::parse_igmp(message)?;
        if let GroupMessage::Query(query) = parsed {
            // RFC 3376 §9.1: from beyond the link, or not meant for routers' ears, is no query.
            let has_alert = query.version == GroupVersion::One || has_router_alert_v4(delivered);
            // RFC 3376 §4.1.12: or to this host alone.
            let is_asked_right = query.group.is_some()
                || delivered.dst == IpAddr::V4(ALL_HOSTS)
                || !delivered.is_broadcast_or_multicast;
            if delivered.ttl != 1 || !has_alert || !is_asked_right {
                return Err(DropReason::BadGroup);
            }
        }
        self.on_group_message(now, delivered.link, GroupProtocol::Igmp, parsed)
    }

    /// An ICMPv6 message of the types 130 to 132 and 143.
    pub(crate) fn on_mld(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let parsed = GroupMessage::parse_mld(message)?;
        // RFC 3810 §6.2, RFC 2710 §3: from the link itself, with the option.
        let is_near = matches!(delivered.src, IpAddr::V6(src) if src.is_unicast_link_local());
        let may_be_nobody = !matches!(parsed, GroupMessage::Query(_)) && delivered.src.is_unspecified();
        if delivered.ttl != 1 || !(is_near || may_be_nobody) || !has_router_alert_v6(delivered) {
            return Err(DropReason::BadGroup);
        }
        self.on_group_message(now, delivered.link, GroupProtocol::Mld, parsed)
    }

    fn on_group_message(
        &mut self,
        now: Instant,
        link: LinkId,
        protocol: GroupProtocol,
        message: GroupMessage<'_>,
    ) -> Result<(), DropReason> {
        if link == LOOPBACK || !self.config.group_reports || !self.interfaces.is_home(link) {
            return Err(DropReason::NotForUs);
        }
        let at = self.reports_at(link, protocol);
        match message {
            GroupMessage::Query(query) => self.reports[at].2.on_query(now, &query, &mut self.random),
            GroupMessage::OldReport(group) => self.reports[at].2.on_old_report(now, group),
            GroupMessage::ForRouters => return Err(DropReason::NotForUs),
        }
        Ok(())
    }

    fn say(&mut self, link: LinkId, protocol: GroupProtocol, say: &Say, pools: &mut Pools) {
        match say {
            Say::Report(records) => {
                let mut rest = &records[..];
                while !rest.is_empty() {
                    let fits = fitting(rest);
                    let (now_said, later) = rest.split_at(fits);
                    self.send_report(link, protocol, now_said, pools);
                    rest = later;
                }
            }
            Say::Old(kind, group) => {
                let dst = match (kind, group) {
                    (OldKind::Leave, IpAddr::V4(_)) => IpAddr::V4(ALL_ROUTERS_V4),
                    (OldKind::Leave, IpAddr::V6(_)) => IpAddr::V6(ALL_ROUTERS_V6),
                    _ => *group,
                };
                let len = group::old_len(protocol);
                self.send_group_message(link, dst, len, pools, |body| group::emit_old(*kind, *group, body));
            }
        }
    }

    fn send_report(&mut self, link: LinkId, protocol: GroupProtocol, records: &[Record], pools: &mut Pools) {
        let records: Vec<GroupRecord<'_>> = records.iter().map(borrowed).collect();
        let len = REPORT_HEADER_LEN + records.iter().map(GroupRecord::emitted_len).sum::<usize>();
        let dst = match protocol {
            GroupProtocol::Igmp => IpAddr::V4(REPORTS_V4),
            GroupProtocol::Mld => IpAddr::V6(REPORTS_V6),
        };
        self.send_group_message(link, dst, len, pools, |body| group::emit_report(protocol, &records, body));
    }

    fn send_group_message(
        &mut self,
        link: LinkId,
        dst: IpAddr,
        len: usize,
        pools: &mut Pools,
        emit: impl FnOnce(&mut [u8]),
    ) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        let headers = EthernetView::HEADER_LEN + Ipv6View::HEADER_LEN + HOP_BY_HOP.len();
        // A report that finds no buffer is said again, or asked for again.
        let Some(mut frame) = pools.take(headers + len) else { return };
        let ethertype = if dst.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = EthernetRepr { dst: ethernet::group_mac(dst), src: mac, ethertype };
        header.emit(frame.append(EthernetView::HEADER_LEN));
        match dst {
            IpAddr::V4(dst) => {
                let src = self.addresses.source_v4(link).unwrap_or(Ipv4Addr::UNSPECIFIED);
                append_igmp(&mut frame, src, dst, len, emit);
            }
            IpAddr::V6(dst) => {
                // RFC 3810 §5.2.13: nobody, while the address is still being tested.
                let own = self.addresses.link_local(link);
                if own.is_none()
                    && let Some(reports) = mld_of(&mut self.reports, link)
                {
                    reports.note_unheard();
                }
                let src = own.unwrap_or(Ipv6Addr::UNSPECIFIED);
                append_mld(&mut frame, src, dst, len, emit);
            }
        }
        frame.meta_mut().ingress = link;
        self.made.messages += 1;
        let counts = self.counts.of(dst);
        counts.sent += 1;
        match dst {
            IpAddr::V4(_) => counts.group_out += 1,
            IpAddr::V6(_) => counts.icmp.sent += 1,
        }
        self.out.push(frame);
    }
}

/// What is reported of a link's groups of IPv6.
fn mld_of(reports: &mut [LinkReports], link: LinkId) -> Option<&mut GroupReports> {
    let of_link = reports.iter_mut().find(|(on, which, _)| (*on, *which) == (link, GroupProtocol::Mld));
    of_link.map(|(.., reports)| reports)
}

fn append_igmp(frame: &mut Frame, src: Ipv4Addr, dst: Ipv4Addr, len: usize, emit: impl FnOnce(&mut [u8])) {
    let header_len = Ipv4View::HEADER_LEN + ROUTER_ALERT_V4.len();
    let mut header = Ipv4Repr::new(src, dst, IpProtocol::IGMP, len as u16);
    (header.ttl, header.dscp) = (1, DSCP_CONTROL);
    let packet = frame.append(header_len);
    header.emit(packet);
    packet[Ipv4View::HEADER_LEN..].copy_from_slice(&ROUTER_ALERT_V4);
    packet[0] = 0x40 | (header_len / 4) as u8;
    packet[2..4].copy_from_slice(&((header_len + len) as u16).to_be_bytes());
    packet[10..12].fill(0);
    let checksum = Sum::of(packet).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let body = frame.append(len);
    emit(body);
    let checksum = Sum::of(body).checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
}

fn append_mld(frame: &mut Frame, src: Ipv6Addr, dst: Ipv6Addr, len: usize, emit: impl FnOnce(&mut [u8])) {
    let mut header = Ipv6Repr::new(src, dst, IpProtocol::HOP_BY_HOP, (HOP_BY_HOP.len() + len) as u16);
    header.hop_limit = 1;
    header.emit(frame.append(Ipv6View::HEADER_LEN));
    frame.append(HOP_BY_HOP.len()).copy_from_slice(&HOP_BY_HOP);
    let body = frame.append(len);
    emit(body);
    icmpv6::fill_checksum(body, src, dst);
}

/// How many records fit one report; at least one, since a filter's sources are bounded.
fn fitting(records: &[Record]) -> usize {
    let mut len = REPORT_HEADER_LEN;
    let fit = records.iter().take_while(|record| {
        len += borrowed(record).emitted_len();
        len <= REPORT_MAX
    });
    fit.count().max(1)
}

fn borrowed(record: &Record) -> GroupRecord<'_> {
    GroupRecord { kind: record.kind, group: record.group, sources: &record.sources }
}

const fn protocol_of(group: IpAddr) -> GroupProtocol {
    if group.is_ipv4() { GroupProtocol::Igmp } else { GroupProtocol::Mld }
}

/// The group that every station is in.
pub fn is_everybodys(group: IpAddr) -> bool {
    group == IpAddr::V4(ALL_HOSTS) || group == IpAddr::V6(ALL_NODES)
}

/// RFC 3376 §6, RFC 3810 §6: all stations' groups and those that do not leave a host are not reported.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(_) => !is_everybodys(group),
        IpAddr::V6(v6) => !is_everybodys(group) && v6.octets()[1] & 15 > 1,
    }
}

fn has_router_alert_v4(delivered: &Delivered) -> bool {
    let packet = &delivered.frame.as_slice()[delivered.l3_offset..];
    let Ok(view) = Ipv4View::parse(packet) else { return false };
    view.options().any(|option| matches!(option, Ok(Ipv4Option::RouterAlert(_))))
}

/// The headers were walked when the packet came, so they are sound.
fn has_router_alert_v6(delivered: &Delivered) -> bool {
    let packet = &delivered.frame.as_slice()[delivered.l3_offset..];
    let Ok(view) = Ipv6View::parse(packet) else { return false };
    if view.next_header() != IpProtocol::HOP_BY_HOP {
        return false;
    }
    let &[_, units, ..] = view.payload() else { return false };
    let mut options = view.payload().get(2..(usize::from(units) + 1) * 8).unwrap_or_default();
    while let &[kind, ref rest @ ..] = options {
        options = match (kind, rest) {
            (0, rest) => rest,
            (5, [2, ..]) => return true,
            (_, &[len, ref rest @ ..]) => rest.get(usize::from(len)..).unwrap_or_default(),
            _ => return false,
        };
    }
    false
}
