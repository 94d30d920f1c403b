//! A datagram that arrived: its header and checksum are checked once (RFC 768, RFC 1122 §4.1.3.4, RFC 8200 §8.1).
//!
//! Called by the lane for every packet that `ip` delivers with protocol 17. The frame keeps the bytes;
//! what is returned are places in it.

use core::net::IpAddr;
use core::ops::Range;

use firelane_frame::{Frame, SegmentKind};
use firelane_units::{DropReason, Port};
use firelane_wire::UdpView;

/// A datagram in its frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The sender's port; zero if nobody can answer.
    pub src_port: Port,
    /// The receiver's port, never zero.
    pub dst_port: Port,
    /// Where its payload is in the frame.
    pub payload: Range<usize>,
    /// Bytes per piece if the frame stands for several datagrams.
    piece: Option<usize>,
}

impl Datagram {
    /// The payload of every datagram that the frame stands for: one, or several if the sender's kernel
    /// left it to us to cut them.
    pub fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.payload;
        let piece = self.piece.unwrap_or(usize::MAX);
        // An empty datagram is a datagram too: the first piece is always given.
        core::iter::successors(Some(start), move |&at| at.checked_add(piece).filter(|&next| next < end))
            .map(move |at| at..end.min(at.saturating_add(piece)))
    }
}

/// Checks the UDP datagram that is the IP payload `at` of `frame`, from `src` to `dst`.
///
/// # Errors
/// [`DropReason::BadDatagram`] if lengths, destination port or checksum are wrong; a checksum that is absent
/// is right over IPv4 only.
#[inline]
pub fn receive(frame: &Frame, src: IpAddr, dst: IpAddr, at: Range<usize>) -> Result<Datagram, DropReason> {
    let start = at.start;
    let bytes = frame.as_slice().get(at).ok_or(DropReason::BadDatagram)?;
    let view = UdpView::parse(bytes)?;
    let meta = frame.meta();
    // A sender on this host may leave the field open (it holds the pseudo-header's sum), and a device may
    // have verified it; in both cases the bytes did not change since.
    if meta.checksum.needs_check() && !view.is_checksum_valid(src, dst) {
        return Err(DropReason::BadDatagram);
    }
    let piece = meta
        .segmentation
        .filter(|cut| cut.kind == SegmentKind::Udp && cut.segment_bytes > 0)
        .map(|cut| usize::from(cut.segment_bytes));
    let payload = start + UdpView::HEADER_LEN..start + bytes.len();
    Ok(Datagram { src_port: view.src_port(), dst_port: view.dst_port(), payload, piece })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChecksumWork, encode};
    use core::net::SocketAddr;
    use firelane_frame::{Checksum, Pools, PoolsConfig, Segmentation};

    const BAD: DropReason = DropReason::BadDatagram;

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        let (a, b) = if v6 { ("[fd00::1]:7", "[fd00::2]:9") } else { ("10.0.0.1:7", "10.0.0.2:9") };
        (a.parse().unwrap(), b.parse().unwrap())
    }

    fn datagram(v6: bool, payload: &[u8]) -> Frame {
        let mut frame = Pools::new(PoolsConfig { small_slots: 1, large_slots: 1 }).copy_of(payload).unwrap();
        let (src, dst) = ends(v6);
        encode(&mut frame, src, dst, ChecksumWork::Compute).unwrap();
        frame
    }

    fn received(frame: &Frame, v6: bool) -> Result<Datagram, DropReason> {
        let (src, dst) = ends(v6);
        receive(frame, src.ip(), dst.ip(), 0..frame.len())
    }

    /// U01 of the conformance table, on both versions of IP.
    #[test]
    fn u01_malformed_datagrams_are_dropped() {
        for v6 in [false, true] {
            assert_eq!(received(&datagram(v6, b"abc"), v6).err(), None);
            for (what, spoil) in [
                ("length below 8", (|d| d[5] = 7) as fn(&mut [u8])),
                ("length above the payload", |d| d[5] += 1),
                ("length below the payload", |d| d[5] -= 1),
                ("length zero", |d| d[4..6].fill(0)),
                ("destination port zero", |d| d[2..4].fill(0)),
                ("a flipped bit", |d| d[8] ^= 1),
            ] {
                let mut frame = datagram(v6, b"abc");
                spoil(frame.as_mut_slice());
                assert_eq!(received(&frame, v6), Err(BAD), "{what}, v6 {v6}");
            }
        }
    }

    #[test]
    fn no_checksum_is_right_over_ipv4_only() {
        for v6 in [false, true] {
            let mut frame = datagram(v6, b"abc");
            frame.as_mut_slice()[6..8].fill(0);
            assert_eq!(received(&frame, v6).is_err(), v6);
        }
    }

    #[test]
    fn a_checksum_is_computed_unless_somebody_answers_for_it() {
        for (state, dropped) in [
            (Checksum::Unchecked, true),
            (Checksum::Verified, false),
            (Checksum::Partial { start: 0, offset: 6 }, false),
        ] {
            let mut frame = datagram(true, b"abc");
            frame.as_mut_slice()[6] ^= 0x10;
            frame.meta_mut().checksum = state;
            assert_eq!(received(&frame, true).is_err(), dropped, "{state:?}");
        }
    }

    #[test]
    fn a_datagram_cut_anywhere_is_dropped() {
        let whole = datagram(false, b"abcdef");
        let (src, dst) = ends(false);
        for end in 0..whole.len() {
            assert_eq!(receive(&whole, src.ip(), dst.ip(), 0..end), Err(BAD), "{end}");
        }
        // A range that is not in the frame is an error too, no panic.
        assert_eq!(receive(&whole, src.ip(), dst.ip(), 0..whole.len() + 1), Err(BAD));
    }

    #[test]
    fn a_large_frame_is_as_many_datagrams_as_its_sender_meant() {
        let pieces = |payload: usize, segment_bytes: u16| {
            let mut frame = datagram(false, &vec![1; payload]);
            let kind = SegmentKind::Udp;
            frame.meta_mut().segmentation =
                Some(Segmentation { kind, segment_bytes, header_bytes: 42, ecn: false });
            received(&frame, false).unwrap().pieces().map(|at| (at.start, at.end)).collect::<Vec<_>>()
        };
        assert_eq!(pieces(2500, 1000), [(8, 1008), (1008, 2008), (2008, 2508)]);
        assert_eq!(pieces(2000, 1000), [(8, 1008), (1008, 2008)]);
        assert_eq!(pieces(10, 1000), [(8, 18)]);
        assert_eq!(pieces(10, 0), [(8, 18)]);
        assert_eq!(received(&datagram(false, b""), false).unwrap().pieces().next(), Some(8..8));
    }
}
