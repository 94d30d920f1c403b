//! Neighbour discovery (RFC 4861 §7) and its test for duplicate addresses (RFC 4862 §5.4, RFC 7527).
//!
//! The sibling of `arp.rs` for IPv6. Router advertisements go on to `ra.rs`; redirects are not obeyed (A09, C05).

use core::net::Ipv6Addr;

use firelane_frame::Pools;
use firelane_units::{DropReason, Instant, LinkId, MacAddr};
use firelane_wire::ndp::{HOP_LIMIT, solicited_node};
use firelane_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv6Repr, NdpEnvelope, NdpMessage, NdpOption, NdpRepr, NdpView,
    ethernet, icmpv6,
};

use crate::address::AddressState;
use crate::config::LOOPBACK;
use crate::neighbour::Evidence;
use crate::stack::Ip;

/// Everybody on the link.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Every router on the link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// From whom, to whom, on the link and by address.
#[derive(Clone, Copy)]
pub(crate) struct Course {
    pub(crate) link: LinkId,
    pub(crate) dst_mac: MacAddr,
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
}

impl Ip {
    /// A message of types 133 to 137 whose checksum is right, from a station at `from`.
    pub(crate) fn input_ndp(
        &mut self,
        now: Instant,
        link: LinkId,
        envelope: &NdpEnvelope,
        from: MacAddr,
        message: &[u8],
        pools: &mut Pools,
    ) -> Result<(), DropReason> {
        let view = NdpView::parse(envelope, message)?;
        if link == LOOPBACK {
            return Err(DropReason::BadNdp);
        }
        match view.message() {
            NdpMessage::NeighbourSolicit { target } => {
                let nonce = view.options().nonce();
                let source_mac = view.options().source_mac();
                self.on_solicit(now, link, envelope, Question { target, source_mac, nonce, from }, pools)
            }
            NdpMessage::NeighbourAdvert { target, router, solicited, replace } => {
                let mac = view.options().target_mac().filter(|mac| mac.is_unicast());
                self.on_advert(now, link, Claim { target, mac, router, solicited, replace, from });
                Ok(())
            }
            NdpMessage::RouterAdvert { .. } => self.on_router_advert(now, link, envelope, &view, from),
            // We differ: what a netstack is a router for is the operator's to say, and no redirect changes it (C05).
            NdpMessage::RouterSolicit | NdpMessage::Redirect { .. } => Err(DropReason::BadNdp),
        }
    }

    /// RFC 4861 §7.2.3, RFC 4862 §5.4.3.
    fn on_solicit(
        &mut self,
        now: Instant,
        link: LinkId,
        envelope: &NdpEnvelope,
        question: Question<'_>,
        pools: &mut Pools,
    ) -> Result<(), DropReason> {
        let Question { target, source_mac, nonce, from } = question;
        let Some(address) = self.addresses.get(target.into()).filter(|a| a.link == link) else {
            return Err(DropReason::NotForUs);
        };
        let (state, is_usable) = (address.state, address.is_usable());
        let is_test = envelope.src.is_unspecified();
        if !is_usable {
            let is_own = nonce.is_some_and(|nonce| self.addresses.is_looped(target.into(), nonce));
            if is_test && !is_own && state == AddressState::Tentative {
                self.on_conflict(now, link, target.into(), from);
            }
            return Ok(());
        }
        let mac = source_mac.filter(|mac| mac.is_unicast());
        if !is_test && let Some(mac) = mac {
            self.learn(now, link, envelope.src.into(), Some(mac), Evidence::Question);
        }
        if self.interfaces.is_home(link) {
            // RFC 4861 §7.2.4: to everybody if nobody can be named.
            let (dst, dst_mac) = match is_test {
                true => (ALL_NODES, ethernet::group_mac(ALL_NODES.into())),
                false => (envelope.src, mac.unwrap_or(from)),
            };
            let course = Course { link, dst_mac, src: target, dst };
            self.send_advert(course, target, !is_test, pools);
        }
        Ok(())
    }

    /// RFC 4861 §7.2.5, RFC 4862 §5.4.4.
    fn on_advert(&mut self, now: Instant, link: LinkId, claim: Claim) {
        let Claim { target, mac, router, solicited, replace, from } = claim;
        match self.addresses.get(target.into()).filter(|a| a.link == link).map(|a| a.state) {
            Some(state @ (AddressState::Tentative | AddressState::Preferred | AddressState::Deprecated)) => {
                let is_left = state == AddressState::Tentative || self.gives_up(link, target.into());
                // Our own announcement, reflected by the link, names our own Ethernet address.
                if is_left && self.interfaces.mac(link) != Some(from) {
                    self.on_conflict(now, link, target.into(), mac.unwrap_or(from));
                }
            }
            // What is a duplicate here is the other's, and he is a neighbour like any.
            Some(AddressState::Duplicate) | None => {
                let evidence = match (solicited, replace) {
                    (true, replace) => Evidence::Answer { replace },
                    (false, true) => Evidence::Announcement,
                    (false, false) => Evidence::Claim { replace },
                };
                // Without the option, an answer still confirms what is known (RFC 4861 §4.4).
                self.learn(now, link, target.into(), mac, evidence);
                // What was not believed says nothing about routers either.
                if !router && self.neighbours.is_at(link, target.into(), mac) {
                    self.on_no_router(now, link, target);
                }
            }
        }
    }

    /// Asks for a neighbour's address, or one neighbour whether it is still there.
    pub(crate) fn send_solicit(
        &mut self,
        link: LinkId,
        src: Ipv6Addr,
        target: Ipv6Addr,
        to: Option<MacAddr>,
        pools: &mut Pools,
    ) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        let dst = if to.is_some() { target } else { solicited_node(target) };
        let dst_mac = to.unwrap_or_else(|| ethernet::group_mac(dst.into()));
        let message = NdpMessage::NeighbourSolicit { target };
        let options = [NdpOption::SourceLinkLayer(mac)];
        self.send_ndp(Course { link, dst_mac, src, dst }, &NdpRepr { message, options: &options }, pools);
    }

    /// Asks which routers there are (RFC 4861 §6.3.7), from the link-local address if that can be used already.
    pub(crate) fn send_router_solicit(&mut self, link: LinkId, pools: &mut Pools) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        let src = self.addresses.link_local(link);
        let course = Course {
            link,
            dst_mac: ethernet::group_mac(ALL_ROUTERS.into()),
            src: src.unwrap_or(Ipv6Addr::UNSPECIFIED),
            dst: ALL_ROUTERS,
        };
        let option = [NdpOption::SourceLinkLayer(mac)];
        // RFC 4861 §4.1: nobody has no Ethernet address to name.
        let options = if src.is_some() { &option[..] } else { &[] };
        self.send_ndp(course, &NdpRepr { message: NdpMessage::RouterSolicit, options }, pools);
    }

    /// Asks whether anybody has an address that is being tested.
    pub(crate) fn send_dad_solicit(
        &mut self,
        link: LinkId,
        target: Ipv6Addr,
        nonce: [u8; 6],
        pools: &mut Pools,
    ) {
        let dst = solicited_node(target);
        let course =
            Course { link, dst_mac: ethernet::group_mac(dst.into()), src: Ipv6Addr::UNSPECIFIED, dst };
        let message = NdpMessage::NeighbourSolicit { target };
        self.send_ndp(course, &NdpRepr { message, options: &[NdpOption::Nonce(&nonce)] }, pools);
    }

    /// Tells everybody that an address is ours (RFC 4861 §7.2.6).
    pub(crate) fn send_unsolicited_advert(&mut self, link: LinkId, target: Ipv6Addr, pools: &mut Pools) {
        let dst_mac = ethernet::group_mac(ALL_NODES.into());
        self.send_advert(Course { link, dst_mac, src: target, dst: ALL_NODES }, target, false, pools);
    }

    fn send_advert(&mut self, course: Course, target: Ipv6Addr, solicited: bool, pools: &mut Pools) {
        let Some(mac) = self.interfaces.mac(course.link) else { return };
        // RFC 4861 §6.2.2: each interface is a router's or a host's for itself.
        let router = self.forwards(course.link, false);
        let message = NdpMessage::NeighbourAdvert { target, router, solicited, replace: true };
        self.send_ndp(course, &NdpRepr { message, options: &[NdpOption::TargetLinkLayer(mac)] }, pools);
    }

    pub(crate) fn send_ndp(&mut self, course: Course, message: &NdpRepr<'_>, pools: &mut Pools) {
        let Course { link, dst_mac, src, dst } = course;
        let Some(src_mac) = self.interfaces.mac(link) else { return };
        let len = message.emitted_len();
        let mut header = Ipv6Repr::new(src, dst, IpProtocol::ICMPV6, len as u16);
        header.hop_limit = HOP_LIMIT;
        let ethernet = EthernetRepr { dst: dst_mac, src: src_mac, ethertype: EtherType::IPV6 };
        // Whoever asked asks again if no buffer is free.
        let Some(mut frame) = pools.take(ethernet.emitted_len() + header.emitted_len() + len) else { return };
        ethernet.emit(frame.append(ethernet.emitted_len()));
        header.emit(frame.append(header.emitted_len()));
        let body = frame.append(len);
        message.emit(body);
        icmpv6::fill_checksum(body, src, dst);
        frame.meta_mut().ingress = link;
        self.made.messages += 1;
        self.counts.v6.sent += 1;
        self.counts.v6.icmp.sent += 1;
        self.out.push(frame);
    }
}

/// A neighbour solicitation.
#[derive(Clone, Copy)]
struct Question<'a> {
    target: Ipv6Addr,
    source_mac: Option<MacAddr>,
    nonce: Option<&'a [u8]>,
    from: MacAddr,
}

/// A neighbour advertisement.
#[derive(Clone, Copy)]
struct Claim {
    target: Ipv6Addr,
    mac: Option<MacAddr>,
    router: bool,
    solicited: bool,
    replace: bool,
    from: MacAddr,
}
