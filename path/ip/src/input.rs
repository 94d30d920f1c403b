//! A frame that has reached the netstack: which protocol, and is it in order.

use core::net::IpAddr;
use core::ops::Range;

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId};
use firelane_wire::{Ecn, EtherType, IpProtocol};

use crate::adjacency::Adjacency;
use crate::counts::packets;
use crate::stack::Ip;

/// What became of a frame.
#[derive(Debug)]
pub enum Input {
    /// It is for a transport.
    Deliver(Delivered),
    /// It was for this station itself, and is done with.
    Consumed,
    /// It was for another station, and is on its way; all whole packets of its flow may take the same.
    Forwarded(Option<Adjacency>),
    /// It waits for the rest of its datagram, or on its way onward for a neighbour.
    Held,
    /// It ends here.
    Drop(Frame, DropReason),
}

/// A whole datagram for a transport.
#[derive(Debug)]
pub struct Delivered {
    /// The frame that holds it, from Ethernet on.
    pub frame: Frame,
    /// The transport.
    pub protocol: IpProtocol,
    /// Who sent it.
    pub src: IpAddr,
    /// Who it is for.
    pub dst: IpAddr,
    /// Where in the frame the transport's header and payload are.
    pub payload: Range<usize>,
    /// Its congestion field.
    pub ecn: Ecn,
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// Whether it was sent to many: such are not answered with errors, and not for TCP.
    pub is_broadcast_or_multicast: bool,
    /// By which link it came.
    pub link: LinkId,
    /// Where in the frame the IP header is.
    pub(crate) l3_offset: usize,
}

impl Delivered {
    /// Its traffic class: the octet that TOS was, of the IP header (RFC 2474, RFC 3168).
    pub fn traffic_class(&self) -> u8 {
        match (self.dst, self.frame.as_slice().get(self.l3_offset..)) {
            (IpAddr::V4(_), Some(&[_, tos, ..])) => tos,
            (IpAddr::V6(_), Some(&[high, low, ..])) => high << 4 | low >> 4,
            _ => 0,
        }
    }
}

impl Ip {
    /// Takes a frame that arrived by `link` for this netstack, whose network header is at `l3_offset`.
    #[inline]
    pub fn input(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        if self.interfaces.get(link).is_none() {
            return Input::Drop(frame, DropReason::NotForUs);
        }
        let bytes = frame.as_slice();
        let ethertype = l3_offset.checked_sub(2).and_then(|at| bytes.get(at..)?.first_chunk());
        let Some(&ethertype) = ethertype else { return Input::Drop(frame, DropReason::BadHeader) };
        match EtherType(u16::from_be_bytes(ethertype)) {
            EtherType::IPV4 => {
                self.counts.v4.received += packets(&frame);
                self.input_v4(now, link, frame, l3_offset, pools)
            }
            EtherType::IPV6 => {
                self.counts.v6.received += packets(&frame);
                self.input_v6(now, link, frame, l3_offset, pools)
            }
            EtherType::ARP => self.input_arp(now, link, frame, l3_offset, pools),
            _ => Input::Drop(frame, DropReason::UnknownEtherType),
        }
    }
}
