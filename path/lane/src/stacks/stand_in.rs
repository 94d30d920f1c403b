//! Stands in for `path/ip`: addresses that are on the link, neighbours whose MAC ends as their address does.
//!
//! Enough to run connections between netstacks of one process; no ARP, no ICMP, no routes, no fragments.
use core::net::IpAddr;
use core::ops::Range;
use firelane_classify::Headers;
use firelane_frame::{Chain, Frame, Pools};
use firelane_units::*;
use firelane_wire::{Ecn, EtherType, IpProtocol};

pub(crate) struct IpConfig;
#[derive(Clone, Copy, Debug)]
pub(crate) struct Egress {
    pub(crate) link: LinkId,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) mtu: Mtu,
    mac: MacAddr,
}
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteError;
pub(crate) struct Delivered {
    pub(crate) frame: Frame,
    pub(crate) protocol: IpProtocol,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) payload: Range<usize>,
    pub(crate) ecn: Ecn,
}
pub(crate) enum Input {
    Deliver(Delivered),
    #[allow(dead_code)]
    Consumed,
    Drop(DropReason, Frame),
}
pub(crate) struct Ip {
    links: Vec<(LinkId, MacAddr, Mtu)>,
    addresses: Vec<(LinkId, IpPrefix)>,
    out: Chain,
}
impl Ip {
    pub(crate) fn new(_: IpConfig) -> Self {
        Self { links: vec![], addresses: vec![], out: Chain::new() }
    }
    pub(crate) fn add_interface(&mut self, link: LinkId, mac: MacAddr, mtu: Mtu) {
        self.links.push((link, mac, mtu));
    }
    pub(crate) fn remove_interface(&mut self, link: LinkId) {
        self.links.retain(|l| l.0 != link);
    }
    pub(crate) fn add_address(&mut self, link: LinkId, address: IpPrefix) {
        self.addresses.push((link, address));
    }
    pub(crate) fn input(&mut self, _now: Instant, _link: LinkId, frame: Frame, h: &Headers) -> Input {
        let Some((src, dst)) = h.addresses() else { return Input::Drop(DropReason::UnknownEtherType, frame) };
        if !self.addresses.iter().any(|a| a.1.addr() == dst) {
            return Input::Drop(DropReason::NotForUs, frame);
        }
        let payload = usize::from(h.l4_offset)..h.l3_end as usize;
        Input::Deliver(Delivered { frame, protocol: h.protocol, src, dst, payload, ecn: Ecn::NotCapable })
    }
    pub(crate) fn egress(
        &mut self,
        _now: Instant,
        src: Option<IpAddr>,
        dst: IpAddr,
    ) -> Result<Egress, RouteError> {
        let (link, address) = self.addresses.iter().find(|a| a.1.contains(dst)).ok_or(RouteError)?;
        let (_, _, mtu) = self.links.iter().find(|l| l.0 == *link).ok_or(RouteError)?;
        let last = match dst {
            IpAddr::V4(a) => a.octets()[3],
            IpAddr::V6(a) => a.octets()[15],
        };
        let mac = MacAddr([2, 8, 0x20, 0, 0, last]);
        Ok(Egress { link: *link, src: src.unwrap_or(address.addr()), dst, mtu: *mtu, mac })
    }
    pub(crate) fn send(
        &mut self,
        _now: Instant,
        e: &Egress,
        protocol: IpProtocol,
        _ecn: Ecn,
        mut frame: Frame,
    ) {
        let Some(&(_, our, _)) = self.links.iter().find(|l| l.0 == e.link) else { return };
        let len = frame.len();
        let shift = 14 + if e.dst.is_ipv4() { 20 } else { 40 };
        let meta = frame.meta_mut();
        if let firelane_frame::Checksum::Partial { start, .. } = &mut meta.checksum {
            *start += shift;
        }
        if let Some(cut) = &mut meta.segmentation {
            cut.header_bytes += shift;
        }
        let et = match (e.src, e.dst) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                let h = frame.prepend(20);
                h.fill(0);
                h[0] = 0x45;
                h[2..4].copy_from_slice(&((len + 20) as u16).to_be_bytes());
                h[8] = 64;
                h[9] = protocol.0;
                h[12..16].copy_from_slice(&s.octets());
                h[16..20].copy_from_slice(&d.octets());
                let c = firelane_wire::checksum::sum(h).checksum();
                h[10..12].copy_from_slice(&c.to_be_bytes());
                EtherType::IPV4
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                let h = frame.prepend(40);
                h.fill(0);
                h[0] = 0x60;
                h[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                h[6] = protocol.0;
                h[7] = 64;
                h[8..24].copy_from_slice(&s.octets());
                h[24..40].copy_from_slice(&d.octets());
                EtherType::IPV6
            }
            _ => return,
        };
        let h = frame.prepend(14);
        h[..6].copy_from_slice(&e.mac.0);
        h[6..12].copy_from_slice(&our.0);
        h[12..14].copy_from_slice(&et.0.to_be_bytes());
        frame.meta_mut().ingress = e.link;
        self.out.push(frame);
    }
    pub(crate) fn poll_output(&mut self, to: &mut Chain) {
        to.append(&mut self.out);
    }
    pub(crate) fn is_current(&self, _: &Egress) -> bool {
        true
    }
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        None
    }
    pub(crate) fn on_timer(&mut self, _: Instant, _: &mut Pools) {}
}
