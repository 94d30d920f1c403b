//! ARP (RFC 826) with conflict detection (RFC 5227).
//!
//! Reads questions and answers into the neighbour table and answers for usable addresses, if this is the
//! home lane. An answer that nobody here asked for makes no entry; it is news for the other lanes, one of
//! which may have asked. So is an announcement: one of them may go by the station that had the address before.

use core::net::Ipv4Addr;

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId, MacAddr};
use firelane_wire::{ArpOperation, ArpRepr, ArpView, EtherType, EthernetRepr, EthernetView};

use crate::address::AddressState;
use crate::config::LOOPBACK;
use crate::input::Input;
use crate::neighbour::Evidence;
use crate::stack::Ip;

impl Ip {
    /// A frame that carries ARP.
    pub(crate) fn input_arp(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        let packet = match ArpView::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => ArpRepr::parse(&view),
            Err(error) => return Input::Drop(frame, error.into()),
        };
        if link == LOOPBACK || !is_sane(&packet) {
            return Input::Drop(frame, DropReason::BadArp);
        }
        pools.put(frame);
        if !self.is_conflict(now, link, &packet, pools) {
            self.on_arp(now, link, &packet, pools);
        }
        Input::Consumed
    }

    /// RFC 5227 §2.1.1 and §2.4: somebody claims an address of ours, or tests one that we test.
    fn is_conflict(&mut self, now: Instant, link: LinkId, packet: &ArpRepr, pools: &mut Pools) -> bool {
        if self.interfaces.mac(link) == Some(packet.sender_mac) {
            // Our own question, reflected by the link.
            return true;
        }
        let is_probe = packet.is_probe();
        let claimed = if is_probe { packet.target_ip } else { packet.sender_ip };
        let Some(address) = self.addresses.get(claimed.into()).filter(|a| a.link == link) else {
            return false;
        };
        match address.state {
            AddressState::Tentative => self.on_conflict(now, link, claimed.into(), packet.sender_mac),
            // A probe for an address that is used is answered like any question.
            AddressState::Preferred | AddressState::Deprecated if is_probe => return false,
            // RFC 5227 §2.4 (c): the address is kept, and defended at most once in ten seconds. One that nobody gave,
            // but that was chosen by chance, is defended once and then left to the other (RFC 3927 §2.5 (b)); one that another station had
            // before is left to him at once.
            AddressState::Preferred | AddressState::Deprecated if self.interfaces.is_home(link) => {
                if self.gives_up(link, claimed.into()) {
                    self.on_conflict(now, link, claimed.into(), packet.sender_mac);
                } else if self.addresses.may_defend(now, claimed.into()) {
                    self.send_arp_announcement(link, claimed, pools);
                } else if claimed.is_link_local() {
                    self.on_conflict(now, link, claimed.into(), packet.sender_mac);
                }
            }
            // The home lane sees it too, and says what becomes of it.
            AddressState::Preferred | AddressState::Deprecated => {}
            // It is the other's, and he is a neighbour like any.
            AddressState::Duplicate => return false,
        }
        true
    }

    /// RFC 826's reception.
    fn on_arp(&mut self, now: Instant, link: LinkId, packet: &ArpRepr, pools: &mut Pools) {
        let is_for_us =
            self.addresses.get(packet.target_ip.into()).is_some_and(|a| a.link == link && a.is_usable());
        if !packet.sender_ip.is_unspecified() {
            let evidence = match packet.operation {
                ArpOperation::Reply if is_for_us => Evidence::Answer { replace: true },
                // An asker that is not on the link's subnets is answered, and not remembered.
                ArpOperation::Request if is_for_us && self.is_on_link(link, packet.sender_ip) => {
                    Evidence::Question
                }
                _ if packet.sender_ip == packet.target_ip => Evidence::Announcement,
                _ => Evidence::Claim { replace: true },
            };
            self.learn(now, link, packet.sender_ip.into(), Some(packet.sender_mac), evidence);
        }
        let is_home = self.interfaces.is_home(link);
        if packet.operation == ArpOperation::Request && is_for_us && is_home {
            let Some(mac) = self.interfaces.mac(link) else { return };
            self.send_arp(link, packet.sender_mac, &packet.reply_from(mac), pools);
        }
    }

    fn is_on_link(&self, link: LinkId, addr: Ipv4Addr) -> bool {
        self.addresses.on(link).any(|address| address.prefix.contains(addr.into()))
    }

    pub(crate) fn send_arp_request(
        &mut self,
        link: LinkId,
        src: Ipv4Addr,
        target: Ipv4Addr,
        to: Option<MacAddr>,
        pools: &mut Pools,
    ) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        let packet = ArpRepr::request(mac, src, target);
        self.send_arp(link, to.unwrap_or(MacAddr::BROADCAST), &packet, pools);
    }

    pub(crate) fn send_arp_probe(&mut self, link: LinkId, addr: Ipv4Addr, pools: &mut Pools) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        self.send_arp(link, MacAddr::BROADCAST, &ArpRepr::probe(mac, addr), pools);
    }

    pub(crate) fn send_arp_announcement(&mut self, link: LinkId, addr: Ipv4Addr, pools: &mut Pools) {
        let Some(mac) = self.interfaces.mac(link) else { return };
        self.send_arp(link, MacAddr::BROADCAST, &ArpRepr::announcement(mac, addr), pools);
    }

    fn send_arp(&mut self, link: LinkId, dst: MacAddr, packet: &ArpRepr, pools: &mut Pools) {
        // RFC 3927 §2.5: whoever has such an address says so to everybody, that a conflict shows itself sooner.
        let dst = if packet.sender_ip.is_link_local() { MacAddr::BROADCAST } else { dst };
        // Whoever asked asks again if no buffer is free.
        let Some(mut frame) = pools.take(EthernetView::HEADER_LEN + packet.emitted_len()) else { return };
        let header = EthernetRepr { dst, src: packet.sender_mac, ethertype: EtherType::ARP };
        header.emit(frame.append(header.emitted_len()));
        packet.emit(frame.append(packet.emitted_len()));
        frame.meta_mut().ingress = link;
        self.made.messages += 1;
        self.out.push(frame);
    }
}

/// Whether sender and target can be stations, the sender of a probe aside.
fn is_sane(packet: &ArpRepr) -> bool {
    let is_group = |ip: Ipv4Addr| ip.is_multicast() || ip.is_broadcast() || ip.is_loopback();
    packet.sender_mac.is_unicast() && !is_group(packet.sender_ip) && !is_group(packet.target_ip)
}
