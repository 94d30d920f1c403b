//! The virtio-net header that travels before every frame of a TAP or a packet socket (virtio 1.2 §5.1.6).
//!
//! It carries what the two sides left undone: a checksum to complete, a large segment to cut. Here it
//! becomes a frame's [`FrameMeta`] and back. A header that contradicts its
//! frame is refused: it comes from the kernel, but its numbers come from whoever wrote to a packet socket.

use crate::{Checksum, FrameMeta, SegmentKind, Segmentation};

/// `sizeof(struct virtio_net_hdr)`, without `num_buffers`.
pub const HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// As many segments as a frame of 64 KiB has at most, if each has 36 bytes: the least of a TCP that keeps to 48 with its options. What is cut
/// smaller takes a lane's buffers for nothing.
const SEGMENTS_MAX: usize = 1_820;

/// The header contradicts the frame that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadOffload;

/// Reads the header before `frame` into the two fields of its metadata that offload concerns.
///
/// # Errors
/// [`BadOffload`] if a position lies outside the frame or of any transport header, the kind is unknown, or segments would
/// be empty or too many.
pub fn read(
    header: &[u8; HEADER_BYTES],
    frame: &[u8],
) -> Result<(Checksum, Option<Segmentation>), BadOffload> {
    let [flags, gso, _, _, size_lo, size_hi, start_lo, start_hi, offset_lo, offset_hi] = *header;
    let start = u16::from_le_bytes([start_lo, start_hi]);
    let offset = u16::from_le_bytes([offset_lo, offset_hi]);
    let checksum = if flags & FLAG_NEEDS_CSUM != 0 {
        if usize::from(start) + usize::from(offset) + 2 > frame.len() {
            return Err(BadOffload);
        }
        // Every transport's field is in its header's first bytes.
        Checksum::Partial { start, offset: u8::try_from(offset).map_err(|_| BadOffload)? }
    } else if flags & FLAG_DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::Unchecked
    };
    if gso == GSO_NONE {
        return Ok((checksum, None));
    }
    let Checksum::Partial { start, .. } = checksum else { return Err(BadOffload) };
    let segment_bytes = u16::from_le_bytes([size_lo, size_hi]);
    Ok((checksum, Some(segmentation(gso, segment_bytes, start, frame)?)))
}

fn segmentation(gso: u8, segment_bytes: u16, l4: u16, frame: &[u8]) -> Result<Segmentation, BadOffload> {
    let kind = match gso & !GSO_ECN {
        GSO_TCPV4 => SegmentKind::TcpV4,
        GSO_TCPV6 => SegmentKind::TcpV6,
        GSO_UDP_L4 => SegmentKind::Udp,
        _ => return Err(BadOffload),
    };
    // `hdr_len` of the kernel is only a hint, so the header's end is read from the frame.
    let l4_bytes = match kind {
        SegmentKind::Udp => 8,
        SegmentKind::TcpV4 | SegmentKind::TcpV6 => {
            let data_offset = frame.get(usize::from(l4) + 12).ok_or(BadOffload)?;
            u16::from(data_offset >> 4) * 4
        }
    };
    let header_bytes = l4.checked_add(l4_bytes).ok_or(BadOffload)?;
    let l4_is_whole = kind == SegmentKind::Udp || l4_bytes >= 20;
    if segment_bytes == 0 || !l4_is_whole || usize::from(header_bytes) > frame.len() {
        return Err(BadOffload);
    }
    let cut = Segmentation { kind, segment_bytes, header_bytes, ecn: gso & GSO_ECN != 0 };
    if cut.segments(frame.len()) > SEGMENTS_MAX { Err(BadOffload) } else { Ok(cut) }
}

/// The header that tells the kernel what `meta` leaves to it.
pub fn write(meta: &FrameMeta) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            header[0] = FLAG_NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_le_bytes());
            header[8..10].copy_from_slice(&u16::from(offset).to_le_bytes());
        }
        Checksum::Verified => header[0] = FLAG_DATA_VALID,
        Checksum::Unchecked => {}
    }
    if let Some(cut) = meta.segmentation {
        let kind = match cut.kind {
            SegmentKind::TcpV4 => GSO_TCPV4,
            SegmentKind::TcpV6 => GSO_TCPV6,
            SegmentKind::Udp => GSO_UDP_L4,
        };
        header[1] = if cut.ecn { kind | GSO_ECN } else { kind };
        header[2..4].copy_from_slice(&cut.header_bytes.to_le_bytes());
        header[4..6].copy_from_slice(&cut.segment_bytes.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp_frame() -> Vec<u8> {
        let mut frame = vec![0; 2000];
        frame[34 + 12] = 8 << 4;
        frame
    }

    fn meta(checksum: Checksum, segmentation: Option<Segmentation>) -> FrameMeta {
        FrameMeta { checksum, segmentation, ..FrameMeta::default() }
    }

    #[test]
    fn what_is_written_reads_back() {
        let cut = |kind, header_bytes| Segmentation { kind, segment_bytes: 1448, header_bytes, ecn: false };
        let partial = Checksum::Partial { start: 34, offset: 16 };
        for (checksum, segmentation) in [
            (Checksum::Unchecked, None),
            (Checksum::Verified, None),
            (partial, None),
            (partial, Some(cut(SegmentKind::TcpV4, 66))),
            (partial, Some(cut(SegmentKind::TcpV6, 66))),
            (Checksum::Partial { start: 34, offset: 6 }, Some(cut(SegmentKind::Udp, 42))),
        ] {
            let header = write(&meta(checksum, segmentation));
            assert_eq!(read(&header, &tcp_frame()), Ok((checksum, segmentation)));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let frame = tcp_frame();
        let good = write(&meta(
            Checksum::Partial { start: 34, offset: 16 },
            Some(Segmentation {
                kind: SegmentKind::TcpV4,
                segment_bytes: 1448,
                header_bytes: 66,
                ecn: false,
            }),
        ));
        let with = |position: usize, value: u8| {
            let mut header = good;
            header[position] = value;
            header
        };
        assert_eq!(read(&good, &frame[..40]), Err(BadOffload), "checksum field beyond the frame");
        assert_eq!(read(&with(0, 0), &frame), Err(BadOffload), "segmentation without a checksum to complete");
        assert_eq!(read(&with(1, 9), &frame), Err(BadOffload), "unknown kind");
        assert_eq!(read(&with(7, 0xff), &frame), Err(BadOffload), "start beyond the frame");
        assert_eq!(read(&with(9, 1), &frame), Err(BadOffload), "a field beyond every transport's header");
        let mut zero_size = with(4, 0);
        zero_size[5] = 0;
        assert_eq!(read(&zero_size, &frame), Err(BadOffload), "segments of no bytes");
        let mut tiny = with(4, 8);
        tiny[5] = 0;
        assert!(read(&tiny, &frame).is_ok(), "a few of eight bytes");
        let long = [frame.clone(), vec![0; 60_000]].concat();
        assert_eq!(read(&tiny, &long), Err(BadOffload), "thousands of them");
        let mut short_header = tcp_frame();
        short_header[46] = 4 << 4;
        assert_eq!(read(&good, &short_header), Err(BadOffload), "TCP header below 20 bytes");
    }
}
