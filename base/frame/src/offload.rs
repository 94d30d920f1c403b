//! In software what a device cannot do: completes partial checksums, and cuts large frames.
//!
//! Called by the lane before a chain goes to a driver ([`prepare`]). It needs no header parser: a frame's
//! meta says where headers end and where the checksum is, and a partial checksum field already holds the sum
//! of the pseudo-header, whatever the addresses are (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1). What else
//! changes from segment to segment are a few fields at fixed places.

use firelane_units::{DropCounters, DropReason};

use crate::{Capabilities, Chain, Checksum, Frame, Pools, SegmentKind, Segmentation};

/// Makes the frames of `chain` fit for a device: cuts those that it cannot cut, completes checksums that it
/// cannot complete, drops what it cannot take. Order is kept.
pub fn prepare(chain: &mut Chain, capabilities: &Capabilities, pools: &mut Pools, drops: &mut DropCounters) {
    if chain.iter().all(|frame| is_fit(frame, capabilities)) {
        return;
    }
    for _ in 0..chain.len() {
        let Some(frame) = chain.pop() else { break };
        if let Err(reason) = prepare_frame(frame, capabilities, pools, chain) {
            drops.count(reason);
        }
    }
}

fn prepare_frame(
    mut frame: Frame,
    capabilities: &Capabilities,
    pools: &mut Pools,
    out: &mut Chain,
) -> Result<(), DropReason> {
    if let Some(plan) = frame.meta().segmentation.filter(|_| must_cut(&frame, capabilities)) {
        if usize::from(plan.header_bytes) + usize::from(plan.segment_bytes) > capabilities.max_frame {
            return Err(DropReason::TooLong);
        }
        cut(&frame, pools, out, !capabilities.checksum_offload)?;
        pools.put(frame);
        return Ok(());
    }
    if frame.len() > capabilities.max_frame {
        return Err(DropReason::TooLong);
    }
    if !capabilities.checksum_offload {
        complete_checksum(&mut frame)?;
    }
    out.push(frame);
    Ok(())
}

fn is_fit(frame: &Frame, capabilities: &Capabilities) -> bool {
    let sum_is_open = matches!(frame.meta().checksum, Checksum::Partial { .. });
    frame.len() <= capabilities.max_frame
        && !must_cut(frame, capabilities)
        && (capabilities.checksum_offload || !sum_is_open)
}

fn must_cut(frame: &Frame, capabilities: &Capabilities) -> bool {
    let device_cuts = |cut: Segmentation| match cut.kind {
        SegmentKind::TcpV4 | SegmentKind::TcpV6 => capabilities.segmentation,
        SegmentKind::Udp => capabilities.udp_segmentation,
    };
    frame.meta().segmentation.is_some_and(|cut| !device_cuts(cut) || frame.len() > capabilities.max_frame)
}

/// Completes a partial checksum; does nothing if it is complete. Refuses a frame whose meta points outside
/// of it ([`DropReason::BadOffload`]).
pub fn complete_checksum(frame: &mut Frame) -> Result<(), DropReason> {
    let Checksum::Partial { start, offset } = frame.meta().checksum else { return Ok(()) };
    let covered = frame.as_mut_slice().get_mut(usize::from(start)..).ok_or(DropReason::BadOffload)?;
    let at = usize::from(offset);
    if covered.len() < at + 2 {
        return Err(DropReason::BadOffload);
    }
    // The field itself is summed too: it holds the pseudo-header.
    let sum = !fold(sum(covered));
    // UDP sends zero as all ones (RFC 768); for TCP the two mean the same.
    put_u16(covered, at, if sum == 0 { 0xffff } else { sum });
    frame.meta_mut().checksum = Checksum::Unchecked;
    Ok(())
}

/// Cuts a large frame into frames of one segment each, with complete headers and checksums, behind those of
/// `out`, and returns how many. On failure `out` is as before and the frame is lost for the named reason.
pub fn segment(frame: Frame, pools: &mut Pools, out: &mut Chain) -> Result<usize, DropReason> {
    let count = segments_of(&frame, pools, out)?;
    pools.put(frame);
    Ok(count)
}

/// The same of a frame that its owner keeps, whatever comes of it.
pub fn segments_of(frame: &Frame, pools: &mut Pools, out: &mut Chain) -> Result<usize, DropReason> {
    cut(frame, pools, out, true)
}

fn cut(frame: &Frame, pools: &mut Pools, out: &mut Chain, complete: bool) -> Result<usize, DropReason> {
    let plan = Plan::of(frame).ok_or(DropReason::BadOffload)?;
    let (headers, payload) = frame.as_slice().split_at(plan.header_bytes);
    let mut done = 0;
    for (index, piece) in payload.chunks(plan.segment_bytes).enumerate() {
        let Some(mut part) = pools.take(headers.len() + piece.len()) else {
            (0..done).for_each(|_| drop(out.pop_back()));
            return Err(DropReason::NoBuffer);
        };
        part.extend_from_slice(headers);
        part.extend_from_slice(piece);
        *part.meta_mut() = *frame.meta();
        part.meta_mut().segmentation = None;
        let position =
            Position { index, before: index * plan.segment_bytes, is_last: index + 1 == plan.count };
        plan.fix_headers(part.as_mut_slice(), position);
        if complete {
            complete_checksum(&mut part)?;
        }
        out.push(part);
        done += 1;
    }
    Ok(done)
}

/// Which segment of the frame.
struct Position {
    index: usize,
    /// Payload bytes before it.
    before: usize,
    is_last: bool,
}

/// Where the fields are that differ from segment to segment.
struct Plan {
    kind: SegmentKind,
    header_bytes: usize,
    segment_bytes: usize,
    count: usize,
    network: usize,
    is_v4: bool,
    transport: usize,
    /// The checksum field, from the start of the frame.
    sum_at: usize,
    /// Transport header and payload of the large frame: what its pseudo-header counts.
    transport_bytes: usize,
}

const ETHERTYPE_AT: usize = 12;
const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;

impl Plan {
    /// `None` if meta and bytes contradict each other.
    fn of(frame: &Frame) -> Option<Self> {
        let bytes = frame.as_slice();
        let Segmentation { kind, segment_bytes, header_bytes, .. } = frame.meta().segmentation?;
        let Checksum::Partial { start, offset } = frame.meta().checksum else { return None };
        let (header_bytes, transport) = (usize::from(header_bytes), usize::from(start));
        let (segment_bytes, network) = (usize::from(segment_bytes), network_offset(bytes)?);
        let (transport_header, sum_offset) = match kind {
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => (20, 16),
            SegmentKind::Udp => (8, 6),
        };
        let is_v4 = bytes.get(network)? >> 4 == 4;
        let network_header = if is_v4 { 20 } else { 40 };
        let fits = segment_bytes > 0
            && usize::from(offset) == sum_offset
            && transport >= network + network_header
            && header_bytes >= transport + transport_header
            && header_bytes < bytes.len();
        let kind_agrees = match kind {
            SegmentKind::TcpV4 => is_v4,
            SegmentKind::TcpV6 => !is_v4,
            SegmentKind::Udp => true,
        };
        (fits && kind_agrees).then(|| Self {
            kind,
            header_bytes,
            segment_bytes,
            count: (bytes.len() - header_bytes).div_ceil(segment_bytes),
            network,
            is_v4,
            transport,
            sum_at: transport + sum_offset,
            transport_bytes: bytes.len() - transport,
        })
    }

    fn fix_headers(&self, bytes: &mut [u8], position: Position) {
        let transport_bytes = bytes.len() - self.transport;
        // The pseudo-header's sum, with this segment's length in place of the large frame's (RFC 1624).
        let pseudo = u32::from(get_u16(bytes, self.sum_at))
            + u32::from(!(self.transport_bytes as u16))
            + transport_bytes as u32;
        put_u16(bytes, self.sum_at, fold(u64::from(pseudo)));
        self.fix_network(bytes, position.index);
        match self.kind {
            SegmentKind::Udp => put_u16(bytes, self.transport + 4, transport_bytes as u16),
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => self.fix_tcp(bytes, position),
        }
    }

    /// Length, and in IPv4 identification and header checksum.
    fn fix_network(&self, bytes: &mut [u8], index: usize) {
        let packet_bytes = bytes.len() - self.network;
        let header = &mut bytes[self.network..self.transport];
        if self.is_v4 {
            put_u16(header, 2, packet_bytes as u16);
            let id = get_u16(header, 4).wrapping_add(index as u16);
            put_u16(header, 4, id);
            put_u16(header, 10, 0);
            let header_sum = !fold(sum(header));
            put_u16(header, 10, header_sum);
        } else {
            put_u16(header, 4, (packet_bytes - 40) as u16);
        }
    }

    /// Sequence number and flags: FIN and PSH belong to the last segment, CWR to the first (RFC 3168 §6.1.2).
    fn fix_tcp(&self, bytes: &mut [u8], position: Position) {
        const FIN: u8 = 0x01;
        const PSH: u8 = 0x08;
        const CWR: u8 = 0x80;
        let header = &mut bytes[self.transport..self.header_bytes];
        let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        header[4..8].copy_from_slice(&seq.wrapping_add(position.before as u32).to_be_bytes());
        if position.index > 0 {
            header[13] &= !CWR;
        }
        if !position.is_last {
            header[13] &= !(FIN | PSH);
        }
    }
}

/// Where the network header begins: behind Ethernet and its VLAN tags.
fn network_offset(bytes: &[u8]) -> Option<usize> {
    let mut at = ETHERTYPE_AT;
    while matches!(bytes.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
        at += VLAN_TAG_BYTES;
    }
    Some(at + ETHERNET_BYTES - ETHERTYPE_AT)
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The ones-complement sum of big-endian words (RFC 1071), not folded. An odd last byte is padded with
/// zero. The words are added in the machine's order, four bytes at a time into eight, and swapped once.
fn sum(bytes: &[u8]) -> u64 {
    let mut total = 0u64;
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        let mut lanes = [0u64; 8];
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
            *lane = u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        total += lanes.iter().sum::<u64>();
    }
    for word in chunks.remainder().chunks(2) {
        total += u64::from(u16::from_ne_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
    }
    u64::from(u16::from_be(fold(total)))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
