//! A datagram that leaves: the header before a payload, with its checksum computed, known or left to the
//! device (RFC 768, RFC 2675 §4 does not apply: no jumbograms).
//!
//! Called by the lane, which takes the payload from a socket's queue with [`append_payload`], and then hands
//! the frame to `ip`.

use core::fmt;
use core::net::SocketAddr;

use firelane_frame::{Checksum, Frame};
use firelane_units::Port;
use firelane_wire::{IpProtocol, Sum, UdpRepr, UdpView, copy_and_sum, udp};

/// The largest payload over IPv4: a packet of 65,535 bytes without the IP header and ours.
pub const MAX_PAYLOAD_V4: usize = 65_535 - 20 - UdpView::HEADER_LEN;

/// The largest payload over IPv6, whose header is not part of its payload length.
pub const MAX_PAYLOAD_V6: usize = 65_535 - UdpView::HEADER_LEN;

/// The largest payload that can be sent to `peer`.
pub const fn max_payload(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => MAX_PAYLOAD_V4,
        SocketAddr::V6(_) => MAX_PAYLOAD_V6,
    }
}

/// A payload is longer than any datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("longer than any datagram")
    }
}

impl core::error::Error for TooLong {}

/// How the checksum is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumWork {
    /// Sum the payload in the frame.
    Compute,
    /// The payload's sum is known: [`append_payload`] returned it.
    Payload(Sum),
    /// Leave it to the egress, which completes it over the whole datagram. Not for a packet that will be
    /// fragmented.
    Egress {
        /// Bytes of the headers that will be put before the UDP header (IP and Ethernet): the frame's meta
        /// says where the UDP header will be once they are there.
        headers: u16,
    },
}

/// Appends a payload that lies in two pieces of a ring, and sums it on the way.
///
/// # Panics
/// If there is less tailroom.
#[inline]
pub fn append_payload(frame: &mut Frame, first: &[u8], second: &[u8]) -> Sum {
    let (front, back) = frame.append(first.len() + second.len()).split_at_mut(first.len());
    copy_and_sum(front, first).combine_at(first.len(), copy_and_sum(back, second))
}

/// Puts a UDP header before the payload that `frame` holds. On an error the frame is as before.
///
/// # Panics
/// If the two addresses are of different versions, or there is no headroom.
#[inline]
pub fn encode(
    frame: &mut Frame,
    src: SocketAddr,
    dst: SocketAddr,
    work: ChecksumWork,
) -> Result<(), TooLong> {
    assert_eq!(src.is_ipv4(), dst.is_ipv4(), "a datagram's ends are of one version of IP");
    let payload_len = frame.len();
    if payload_len > max_payload(dst) {
        return Err(TooLong);
    }
    let repr =
        UdpRepr { src_port: Port(src.port()), dst_port: Port(dst.port()), payload_len: payload_len as u16 };
    let length = (UdpView::HEADER_LEN + payload_len) as u32;
    let pseudo = Sum::pseudo(src.ip(), dst.ip(), IpProtocol::UDP, length);
    let header = frame.prepend(UdpView::HEADER_LEN);
    repr.emit(header);
    let mut state = Checksum::Unchecked;
    match work {
        ChecksumWork::Compute => udp::fill_checksum(frame.as_mut_slice(), pseudo),
        ChecksumWork::Payload(sum) => udp::fill_checksum_with(header, pseudo, sum),
        ChecksumWork::Egress { headers } => {
            udp::fill_partial(header, pseudo);
            state = Checksum::Partial { start: headers, offset: udp::CHECKSUM_OFFSET as u8 };
        }
    }
    frame.meta_mut().checksum = state;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receive;
    use firelane_frame::{Pools, PoolsConfig, offload};
    use proptest::prelude::*;

    fn pools() -> Pools {
        Pools::new(PoolsConfig { small_slots: 4, large_slots: 4 })
    }

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        let (a, b) = if v6 { ("[fd00::1]:7", "[fd00::2]:9") } else { ("10.0.0.1:7", "10.0.0.2:9") };
        (a.parse().unwrap(), b.parse().unwrap())
    }

    /// The datagram as each of the three ways makes its checksum.
    fn three_ways(first: &[u8], second: &[u8], v6: bool) -> Vec<Frame> {
        let mut pools = pools();
        let (src, dst) = ends(v6);
        let mut frames: Vec<_> = (0..3).map(|_| pools.take(first.len() + second.len()).unwrap()).collect();
        let sums: Vec<_> = frames.iter_mut().map(|frame| append_payload(frame, first, second)).collect();
        assert!(sums.iter().all(|other| *other == sums[0]));
        let ways =
            [ChecksumWork::Compute, ChecksumWork::Payload(sums[0]), ChecksumWork::Egress { headers: 4 }];
        for (frame, work) in frames.iter_mut().zip(ways) {
            encode(frame, src, dst, work).unwrap();
        }
        // The egress sees the frame with the headers that were put before it.
        frames[2].prepend(4).fill(0xee);
        offload::complete_checksum(&mut frames[2]).unwrap();
        frames[2].trim_front(4);
        frames
    }

    proptest! {
        #[test]
        fn the_three_ways_write_the_same_datagram(
            payload in prop::collection::vec(any::<u8>(), 0..3000), cut: prop::sample::Index, v6: bool,
        ) {
            let (src, dst) = ends(v6);
            let (first, second) = payload.split_at(cut.index(payload.len() + 1));
            let frames = three_ways(first, second, v6);
            prop_assert_eq!(&frames[0].as_slice()[8..], &payload);
            prop_assert_eq!(frames[0].as_slice(), frames[1].as_slice());
            prop_assert_eq!(frames[0].as_slice(), frames[2].as_slice());
            let datagram = receive(&frames[0], src.ip(), dst.ip(), 0..payload.len() + 8).unwrap();
            prop_assert_eq!((datagram.src_port, datagram.dst_port), (Port(7), Port(9)));
            prop_assert_eq!(datagram.payload, 8..payload.len() + 8);
        }
    }

    /// RFC 768, RFC 8200 §8.1: a checksum of zero would say that there is none.
    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones() {
        for v6 in [false, true] {
            // What would be the checksum of nothing, as text, makes the checksum zero.
            let sum: [u8; 2] = three_ways(&[0; 2], &[], v6)[0].as_slice()[6..8].try_into().unwrap();
            for frame in three_ways(&sum, &[], v6) {
                assert_eq!(frame.as_slice()[6..], [0xff, 0xff, sum[0], sum[1]]);
                let (src, dst) = ends(v6);
                assert!(receive(&frame, src.ip(), dst.ip(), 0..10).is_ok());
            }
        }
    }

    #[test]
    fn the_largest_payload_and_one_byte_more() {
        let mut pools = pools();
        for (v6, most) in [(false, 65_507), (true, 65_527)] {
            let (src, dst) = ends(v6);
            assert_eq!(max_payload(dst), most);
            let mut frame = pools.take(most + 1).unwrap();
            frame.append(most + 1).fill(1);
            let before = frame.headroom();
            assert_eq!(encode(&mut frame, src, dst, ChecksumWork::Compute), Err(TooLong));
            assert_eq!((frame.len(), frame.headroom()), (most + 1, before));
            frame.truncate(most);
            assert_eq!(encode(&mut frame, src, dst, ChecksumWork::Compute), Ok(()));
            assert!(receive(&frame, src.ip(), dst.ip(), 0..frame.len()).is_ok());
        }
    }

    #[test]
    #[should_panic(expected = "one version of IP")]
    fn ends_of_two_versions_are_our_own_bug() {
        let mut frame = pools().take(0).unwrap();
        encode(&mut frame, ends(false).0, ends(true).1, ChecksumWork::Compute).unwrap();
    }
}
