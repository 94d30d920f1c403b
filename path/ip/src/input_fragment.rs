//! Fragments that arrived: their headers off, their datagram's on (RFC 791, RFC 8200 §4.5, RFC 5722).
//!
//! Between `input_v4.rs` and `input_v6.rs` and the reassembly, which knows only offsets. A datagram that is
//! complete goes the way of one that came whole.

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId};
use firelane_wire::{Ecn, ExtChain, IpProtocol, Ipv4Repr, Ipv4View, Ipv6View, Sum, TimeExceeded, ipv4};

use crate::icmp_error::IcmpError;
use crate::input::{Delivered, Input};
use crate::input_v6::Origin;
use crate::reassembly::{Added, Key, Piece, join, put_back};
use crate::stack::Ip;

/// I09: the least first part of a TCP segment, so that ports and flags are in it (RFC 1858 §3).
const TCP_FIRST_LEAST: u16 = 20;
/// The least first part of a UDP datagram.
const UDP_FIRST_LEAST: u16 = 8;

impl Ip {
    pub(crate) fn input_fragment_v4(
        &mut self,
        now: Instant,
        link: LinkId,
        mut frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        let (header, header_len) = match Ipv4View::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => (Ipv4Repr::parse(&view), view.header_len()),
            Err(error) => return Input::Drop(frame, error.into()),
        };
        if is_tiny(&header) {
            return Input::Drop(frame, DropReason::BadFragment);
        }
        let start = l3_offset + header_len;
        frame.truncate(start + usize::from(header.payload_len));
        let key = Key {
            src: header.src.into(),
            dst: header.dst.into(),
            identification: u32::from(header.identification),
            protocol: header.protocol,
        };
        let piece = Piece {
            offset: u32::from(header.fragment_offset),
            start: start as u16,
            more: header.more_fragments,
            ecn: header.ecn,
            header_len: header_len as u16,
            frame,
        };
        match self.add_piece(now, key, piece, pools) {
            Ok((frame, ecn)) => self.deliver_joined_v4(now, link, frame, l3_offset, ecn, pools),
            Err(input) => input,
        }
    }

    /// A datagram of which all pieces have come: the first piece's header, for the whole.
    fn deliver_joined_v4(
        &mut self,
        now: Instant,
        link: LinkId,
        mut frame: Frame,
        l3_offset: usize,
        ecn: Ecn,
        pools: &mut Pools,
    ) -> Input {
        let packet = &mut frame.as_mut_slice()[l3_offset..];
        let header_len = usize::from(packet[0] & 0x0f) * 4;
        let total_len = packet.len() as u16;
        packet[2..4].copy_from_slice(&total_len.to_be_bytes());
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..header_len]).checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        if ecn == Ecn::Congested {
            ipv4::mark_congested(packet);
        }
        let header = match Ipv4View::parse(packet) {
            Ok(view) => Ipv4Repr::parse(&view),
            Err(error) => return Input::Drop(frame, error.into()),
        };
        let start = l3_offset + header_len;
        let delivered = Delivered {
            frame,
            protocol: header.protocol,
            src: header.src.into(),
            dst: header.dst.into(),
            payload: start..start + usize::from(header.payload_len),
            ecn,
            ttl: header.ttl,
            is_broadcast_or_multicast: !self.is_local(header.dst.into()),
            link,
            l3_offset,
        };
        self.deliver_v4(now, delivered, pools)
    }

    pub(crate) fn input_fragment_v6(
        &mut self,
        now: Instant,
        link: LinkId,
        mut frame: Frame,
        l3_offset: usize,
        chain: &ExtChain,
        pools: &mut Pools,
    ) -> Input {
        let (Ok(view), Some(fragment)) = (Ipv6View::parse(&frame.as_slice()[l3_offset..]), chain.fragment)
        else {
            return Input::Drop(frame, DropReason::BadFragment);
        };
        let key = Key {
            src: view.src().into(),
            dst: view.dst().into(),
            identification: fragment.repr.identification,
            protocol: IpProtocol::FRAGMENT,
        };
        let (ecn, len) = (view.ecn(), Ipv6View::HEADER_LEN + usize::from(view.payload_len()));
        frame.truncate(l3_offset + len);
        let piece = Piece {
            offset: u32::from(fragment.repr.offset),
            start: l3_offset as u16 + chain.offset,
            more: fragment.repr.more,
            ecn,
            header_len: fragment.header_at - Ipv6View::HEADER_LEN as u16,
            frame,
        };
        match self.add_piece(now, key, piece, pools) {
            Ok((frame, ecn)) => self.open_joined_v6(now, link, frame, l3_offset, ecn, pools),
            Err(input) => input,
        }
    }

    /// A datagram of which all pieces have come: the first piece's headers without the fragment header,
    /// for the whole.
    fn open_joined_v6(
        &mut self,
        now: Instant,
        link: LinkId,
        mut frame: Frame,
        l3_offset: usize,
        ecn: Ecn,
        pools: &mut Pools,
    ) -> Input {
        // The first piece's own chain says where its fragment header is.
        let fragment = first_fragment_header(&frame.as_slice()[l3_offset..]);
        let Some((header_at, named_at)) = fragment else {
            return Input::Drop(frame, DropReason::BadFragment);
        };
        let whole = frame.as_mut_slice();
        let next_header = whole[l3_offset + header_at];
        whole[l3_offset + named_at] = next_header;
        // Everything before the fragment header moves up against what is behind it.
        whole.copy_within(..l3_offset + header_at, FRAGMENT_HEADER);
        frame.trim_front(FRAGMENT_HEADER);
        let packet = &mut frame.as_mut_slice()[l3_offset..];
        let payload_len = (packet.len() - Ipv6View::HEADER_LEN) as u16;
        packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        packet[1] = packet[1] & !0x30 | ecn.bits() << 4;
        self.open_v6(now, link, frame, l3_offset, Origin::Reassembly, pools)
    }

    /// Adds a piece; returns the datagram's frame if it was the last.
    fn add_piece(
        &mut self,
        now: Instant,
        key: Key,
        piece: Piece,
        pools: &mut Pools,
    ) -> Result<(Frame, Ecn), Input> {
        let dst = key.dst;
        self.counts.of(dst).fragments += 1;
        let added = self.reassembly.add(now, key, piece);
        self.count_given_up(pools);
        match added {
            Added::Waiting => Err(Input::Held),
            Added::Refused(frame, reason) => Err(Input::Drop(frame, reason)),
            Added::Complete(pieces, ecn) => match join(&pieces, pools) {
                Some(frame) => {
                    self.made.datagrams += 1;
                    self.counts.of(dst).joined += 1;
                    put_back(pieces, pools);
                    Ok((frame, ecn))
                }
                None => Err(self.lose(pieces, pools)),
            },
        }
    }

    /// No buffer for a datagram: all its pieces end here.
    fn lose(&mut self, mut pieces: Vec<Piece>, pools: &mut Pools) -> Input {
        let last = pieces.pop().expect("a complete datagram has pieces");
        for piece in pieces {
            self.give_up(piece.frame, DropReason::NoBuffer, pools);
        }
        Input::Drop(last.frame, DropReason::NoBuffer)
    }

    /// Datagrams whose time is up (RFC 1122 §3.3.2, RFC 8200 §4.5).
    pub(crate) fn expire_fragments(&mut self, now: Instant, pools: &mut Pools) {
        while let Some(expired) = self.reassembly.poll(now) {
            self.counts.of(expired.dst).timed_out += 1;
            let Some(first) = expired.first else { continue };
            let l3_offset = link_header_len(first.frame.as_slice());
            let packet = first.frame.as_slice().get(l3_offset..).unwrap_or_default();
            self.send_error(now, packet, IcmpError::TimeExceeded(TimeExceeded::InReassembly), pools);
            self.give_up(first.frame, DropReason::ReassemblyLimit, pools);
        }
        self.count_given_up(pools);
    }

    fn count_given_up(&mut self, pools: &mut Pools) {
        while let Some((frame, reason)) = self.reassembly.poll_given_up() {
            self.give_up(frame, reason, pools);
        }
    }
}

/// Bytes of IPv6's fragment header.
const FRAGMENT_HEADER: usize = 8;

/// I09: RFC 1858 §3 and RFC 3128: a first part without the whole transport header, or a second part that
/// begins inside of it.
fn is_tiny(header: &Ipv4Repr) -> bool {
    let least = match header.protocol {
        IpProtocol::TCP => TCP_FIRST_LEAST,
        IpProtocol::UDP => UDP_FIRST_LEAST,
        _ => 0,
    };
    match header.fragment_offset {
        0 => header.payload_len < least,
        offset => offset < least,
    }
}

/// Where in a packet its first fragment header is, and the byte that names it.
fn first_fragment_header(packet: &[u8]) -> Option<(usize, usize)> {
    let (mut protocol, mut named_at, mut at) = (IpProtocol(*packet.get(6)?), 6, Ipv6View::HEADER_LEN);
    // The piece was walked when it came, so the chain is sound and short.
    while protocol != IpProtocol::FRAGMENT {
        let &[next, units, ..] = packet.get(at..)? else { return None };
        (protocol, named_at, at) = (IpProtocol(next), at, at + (usize::from(units) + 1) * 8);
    }
    (at + FRAGMENT_HEADER <= packet.len()).then_some((at, named_at))
}

/// Bytes before the IP header of a frame whose pieces were held: Ethernet, and a VLAN tag if there is one.
fn link_header_len(frame: &[u8]) -> usize {
    if frame.get(12..14) == Some(&[0x81, 0x00]) { 18 } else { 14 }
}
