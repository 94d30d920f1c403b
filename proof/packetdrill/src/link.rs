//! The netstack's device: bare IP packets on the outside, Ethernet on the inside.
//!
//! packetdrill knows no link layer. So the device stands for a station that has every address but the netstack's
//! own: it answers ARP (RFC 826) and neighbour solicitations (RFC 4861 §7.2.4) itself, strips Ethernet's header from
//! what leaves and puts one on what comes. Group management and other link-local talk ends here.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, DropReason, Instant, MacAddr, Mtu};
use firelane_wire::{
    ArpOperation, ArpRepr, ArpView, EtherType, EthernetRepr, EthernetView, Icmpv6View, IpProtocol, Ipv4View,
    Ipv6Repr, Ipv6View, NdpEnvelope, NdpMessage, NdpOption, NdpRepr, NdpView, icmpv6,
};

/// The netstack's Ethernet address.
pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 1]);
/// The address of everybody else.
const THEIR_MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 2]);
/// Packets that wait for packetdrill at the most: what it does not fetch is lost as it would be in a socket's queue.
const PACKETS_MAX: usize = 65_536;

/// A packet that left the netstack, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) packet: Vec<u8>,
}

#[derive(Debug)]
struct Queues {
    now: Instant,
    mtu: Mtu,
    /// Our addresses: everybody else's are answered for.
    ours: Vec<IpAddr>,
    frames_in: VecDeque<Vec<u8>>,
    packets_out: VecDeque<Sent>,
}

/// The outer end of the device.
#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Mutex<Queues>>);

/// The lane's end of the device.
#[derive(Debug)]
pub(crate) struct Device(Link);

/// Makes both ends.
pub(crate) fn link(mtu: Mtu) -> (Link, Device) {
    let queues = Queues {
        now: Instant::ZERO,
        mtu,
        ours: Vec::new(),
        frames_in: VecDeque::new(),
        packets_out: VecDeque::new(),
    };
    let link = Link(Arc::new(Mutex::new(queues)));
    (link.clone(), Device(link))
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the device the time.
    pub(crate) fn set_now(&self, now: Instant) {
        self.lock().now = now;
    }

    /// An address is ours.
    pub(crate) fn add_ours(&self, ip: IpAddr) {
        self.lock().ours.push(ip);
    }

    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.lock().ours.contains(&ip)
    }

    /// Whether there is an address of the family.
    pub(crate) fn any_ours(&self, v4: bool) -> bool {
        self.lock().ours.iter().any(|ip| ip.is_ipv4() == v4)
    }

    /// A packet comes for the netstack.
    pub(crate) fn send(&self, packet: &[u8], is_v6: bool) {
        let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        self.lock().push_frame(OUR_MAC, ethertype, packet);
    }

    /// The packet that left first.
    pub(crate) fn receive(&self) -> Option<Sent> {
        self.lock().packets_out.pop_front()
    }

    /// Whether a packet has left.
    pub(crate) fn has_sent(&self) -> bool {
        !self.lock().packets_out.is_empty()
    }

    /// Whether a frame waits for the lane.
    pub(crate) fn is_pending(&self) -> bool {
        !self.lock().frames_in.is_empty()
    }
}

impl Queues {
    fn push_frame(&mut self, dst: MacAddr, ethertype: EtherType, payload: &[u8]) {
        let mut frame = vec![0; 14];
        EthernetRepr { dst, src: THEIR_MAC, ethertype }.emit(&mut frame);
        frame.extend_from_slice(payload);
        self.frames_in.push_back(frame);
    }

    /// A frame leaves the netstack. `None` if packetdrill's queue is full.
    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let ethernet = EthernetView::parse(frame).ok()?;
        let packet = ethernet.payload();
        match ethernet.ethertype() {
            EtherType::ARP => self.on_arp(packet),
            EtherType::IPV4 => {
                let view = Ipv4View::parse(packet).ok()?;
                if view.protocol() == IpProtocol::IGMP {
                    return Some(());
                }
                return self.leave(&packet[..usize::from(view.total_len())]);
            }
            EtherType::IPV6 => {
                let view = Ipv6View::parse(packet).ok()?;
                if self.on_link_talk(&view) {
                    return Some(());
                }
                return self.leave(&packet[..40 + view.payload().len()]);
            }
            _ => {}
        }
        Some(())
    }

    fn leave(&mut self, packet: &[u8]) -> Option<()> {
        if self.packets_out.len() == PACKETS_MAX {
            return None;
        }
        self.packets_out.push_back(Sent { at: self.now, packet: packet.to_vec() });
        Some(())
    }

    fn on_arp(&mut self, bytes: &[u8]) {
        let Ok(view) = ArpView::parse(bytes) else { return };
        let is_question = view.operation() == ArpOperation::Request;
        if is_question && !self.ours.contains(&IpAddr::V4(view.target_ip())) {
            let reply = ArpRepr::parse(&view).reply_from(THEIR_MAC);
            let mut packet = vec![0; reply.emitted_len()];
            reply.emit(&mut packet);
            self.push_frame(view.sender_mac(), EtherType::ARP, &packet);
        }
    }

    /// Whether the packet concerns the link only; questions for neighbours are answered.
    fn on_link_talk(&mut self, view: &Ipv6View<'_>) -> bool {
        if view.next_header() == IpProtocol::HOP_BY_HOP {
            // Multicast listener reports are what a netstack sends with this header.
            return view.dst().is_multicast();
        }
        if view.next_header() != IpProtocol::ICMPV6 {
            return false;
        }
        let Ok(icmp) = Icmpv6View::parse(view.payload()) else { return false };
        if !icmp.is_neighbour_discovery() {
            return false;
        }
        let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: view.hop_limit() };
        let Ok(ndp) = NdpView::parse(&envelope, view.payload()) else { return true };
        if let NdpMessage::NeighbourSolicit { target } = ndp.message()
            && !self.ours.contains(&IpAddr::V6(target))
            && !view.src().is_unspecified()
        {
            self.advertise(target, view.src());
        }
        true
    }

    fn advertise(&mut self, target: Ipv6Addr, to: Ipv6Addr) {
        let message = NdpMessage::NeighbourAdvert { target, router: false, solicited: true, replace: true };
        let options = [NdpOption::TargetLinkLayer(THEIR_MAC)];
        let repr = NdpRepr { message, options: &options };
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        icmpv6::fill_checksum(&mut bytes, target, to);
        let mut header = Ipv6Repr::new(target, to, IpProtocol::ICMPV6, bytes.len() as u16);
        header.hop_limit = 255;
        let mut packet = vec![0; header.emitted_len()];
        header.emit(&mut packet);
        packet.extend_from_slice(&bytes);
        self.push_frame(OUR_MAC, EtherType::IPV6, &packet);
    }
}

impl Driver for Device {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(self.0.lock().mtu)
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let mut queues = self.0.lock();
        let mut count = 0;
        while count < budget
            && let Some(bytes) = queues.frames_in.pop_front()
        {
            match pools.copy_of(&bytes) {
                Some(frame) => {
                    out.push(frame);
                    count += 1;
                }
                None => drops.add(DropReason::NoBuffer, 1),
            }
        }
        count
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        let mut queues = self.0.lock();
        for frame in chain.drain() {
            if queues.take(frame.as_slice()).is_none() {
                drops.add(DropReason::RingFull, 1);
            }
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        on && self.0.is_pending()
    }

    fn advance(&mut self, now: Instant) {
        self.0.set_now(now);
    }
}
