//! Between the neighbour table and the wire: what is learned, whom to ask, what to claim.
//!
//! Chooses between ARP and neighbour discovery, frees frames that waited, and tells the other lanes.

use core::net::IpAddr;

use firelane_frame::{Frame, Pools};
use firelane_units::{Instant, LinkId, MacAddr};
use firelane_wire::{EthernetView, Ipv6View, Quoted};

use crate::event::{ErrorKind, Hearsay, IpEvent, Said, TransportError};
use crate::icmp_error::IcmpError;
use crate::icmpv4::ports_of;
use crate::neighbour::Evidence;
use crate::stack::Ip;

impl Ip {
    /// Somebody's address was heard.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        mac: Option<MacAddr>,
        evidence: Evidence,
    ) {
        let mut learnt = self.neighbours.learn(now, (link, ip), mac, evidence);
        let suspects = self.suspects.len();
        if suspects > 0 {
            self.suspects.retain(|suspect| *suspect != (link, ip));
        }
        // Whoever left a gateway because it was silent may come back.
        let is_better_way = learnt.is_new && self.routes.is_from_router(link, ip);
        if learnt.changed || is_better_way || self.suspects.len() < suspects {
            self.begin_generation();
        }
        let is_needed = match evidence {
            Evidence::Hearsay(_) => false,
            // What is believed of these is news; the rest is nobody's.
            Evidence::Answer { .. } | Evidence::Claim { replace: false } => learnt.is_news,
            // Another lane may have found a gateway silent that is as it ever was here.
            _ => learnt.is_news || self.may_be_suspect(link, ip),
        };
        // What is not told is asked for by the lane that needs it.
        if is_needed && self.news.allow(now, (link, ip)) {
            let how = match evidence {
                Evidence::Answer { .. } => Hearsay::Answer { replace: !learnt.only_confirms },
                _ => Hearsay::Claim,
            };
            self.tell(IpEvent::NeighbourLearned { link, ip, mac, how });
        }
        let Some(mac) = mac else { return };
        while let Some(mut frame) = learnt.released.pop() {
            frame.as_mut_slice()[..6].copy_from_slice(&mac.0);
            self.out.push(frame);
        }
    }

    /// Asks for a neighbour's address: everybody, or the one who had it.
    pub(crate) fn ask(&mut self, link: LinkId, ip: IpAddr, to: Option<MacAddr>, pools: &mut Pools) {
        let asker = self.asker(link, ip);
        match (ip, asker) {
            (IpAddr::V4(target), Some(IpAddr::V4(src))) => {
                self.send_arp_request(link, src, target, to, pools)
            }
            (IpAddr::V6(target), Some(IpAddr::V6(src))) => self.send_solicit(link, src, target, to, pools),
            // Without an address nobody can answer; the table gives up after its three tries.
            _ => {}
        }
    }

    /// The address to ask from, on the link: over IPv6 that from which the packet comes that waits, which the neighbour will answer
    /// (RFC 4861 §7.2.2), else best in the target's subnet.
    fn asker(&self, link: LinkId, ip: IpAddr) -> Option<IpAddr> {
        let waits_from = self.neighbours.first_waiting(link, ip).filter(|_| ip.is_ipv6()).and_then(|frame| {
            let packet = Ipv6View::parse(frame.as_slice().get(EthernetView::HEADER_LEN..)?).ok()?;
            Some(IpAddr::V6(packet.src()))
        });
        self.addresses
            .on(link)
            .filter(|a| a.is_usable() && a.prefix.addr().is_ipv4() == ip.is_ipv4())
            .max_by_key(|a| (waits_from == Some(a.prefix.addr()), a.prefix.contains(ip)))
            .map(|a| a.prefix.addr())
    }

    /// Asks whether anybody has an address that is being tested.
    pub(crate) fn probe(&mut self, link: LinkId, addr: IpAddr, nonce: [u8; 6], pools: &mut Pools) {
        match addr {
            IpAddr::V4(addr) => self.send_arp_probe(link, addr, pools),
            IpAddr::V6(addr) => self.send_dad_solicit(link, addr, nonce, pools),
        }
    }

    /// Tells everybody that an address is ours.
    pub(crate) fn announce(&mut self, link: LinkId, addr: IpAddr, pools: &mut Pools) {
        match addr {
            IpAddr::V4(addr) => self.send_arp_announcement(link, addr, pools),
            IpAddr::V6(addr) => self.send_unsolicited_advert(link, addr, pools),
        }
    }

    /// Somebody else has `addr`: it is not used from here on.
    pub(crate) fn on_conflict(&mut self, now: Instant, link: LinkId, addr: IpAddr, mac: MacAddr) {
        let home = self.interfaces.is_home(link).then_some(now);
        if let Some(prefix) = self.addresses.on_duplicate(link, addr, home) {
            self.begin_generation();
            self.tell(IpEvent::DuplicateAddress(link, prefix, mac));
            self.on_own_duplicate(now, link, addr);
        }
    }

    /// Whether an address of ours that is used is given up to who claims it: somebody else had it before us. The home lane does so.
    pub(crate) fn gives_up(&self, link: LinkId, addr: IpAddr) -> bool {
        self.interfaces.is_home(link) && self.addresses.is_contested(addr)
    }

    /// The next hop of a frame that waited does not answer: its sender is told.
    pub(crate) fn on_unresolved(&mut self, now: Instant, frame: &Frame, pools: &mut Pools) {
        let packet = &frame.as_slice()[EthernetView::HEADER_LEN..];
        let quoted = match packet.first().map(|byte| byte >> 4) {
            Some(4) => Quoted::parse_v4(packet),
            _ => Quoted::parse_v6(packet),
        };
        let Ok(quoted) = quoted else { return };
        if !self.is_local(quoted.src) {
            self.send_error(now, packet, IcmpError::HostUnreachable, pools);
        } else if let Some(ports) = ports_of(&quoted) {
            self.tell(IpEvent::TransportError(TransportError {
                protocol: quoted.protocol,
                src: quoted.src,
                dst: quoted.dst,
                ports,
                seq: quoted.seq(),
                kind: ErrorKind::HostUnreachable,
                said: Said::by_ourselves(quoted.src, quoted.text()),
            }));
        }
    }
}
