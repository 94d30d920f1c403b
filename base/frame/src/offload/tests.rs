//! Tests of the software offload: every checksum is compared with a naive reference over addresses.

use super::*;
use crate::PoolsConfig;
use firelane_units::Mtu;
use proptest::prelude::*;

/// The sum of big-endian words, the slow way.
fn naive(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    v6: bool,
    udp: bool,
    tagged: bool,
    options: usize,
}

fn pseudo_header(packet: &[u8], transport_bytes: usize, udp: bool) -> Vec<u8> {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let mut bytes = addresses.to_vec();
    bytes.extend_from_slice(&[0, if udp { 17 } else { 6 }]);
    bytes.extend_from_slice(&(transport_bytes as u16).to_be_bytes());
    bytes
}

impl Shape {
    fn network(self) -> usize {
        if self.tagged { 18 } else { 14 }
    }

    fn transport(self) -> usize {
        self.network() + if self.v6 { 40 } else { 20 }
    }

    fn headers(self) -> usize {
        self.transport() + if self.udp { 8 } else { 20 + self.options * 4 }
    }

    /// A large frame with a partial checksum, as TCP or the kernel hands it over.
    fn frame(self, pools: &mut Pools, payload: &[u8], segment_bytes: u16) -> Frame {
        let mut bytes = vec![0x02; 12];
        if self.tagged {
            bytes.extend_from_slice(&[0x81, 0, 0, 7]);
        }
        bytes.extend_from_slice(if self.v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let transport_bytes = self.headers() - self.transport() + payload.len();
        let protocol = if self.udp { 17 } else { 6 };
        if self.v6 {
            bytes.extend_from_slice(&[0x60, 0, 0, 0]);
            bytes.extend_from_slice(&(transport_bytes as u16).to_be_bytes());
            bytes.extend_from_slice(&[protocol, 64]);
            bytes.extend((0..32).map(|b| b * 7));
        } else {
            bytes.extend_from_slice(&[0x45, 0]);
            bytes.extend_from_slice(&((20 + transport_bytes) as u16).to_be_bytes());
            bytes.extend_from_slice(&[0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        bytes.extend_from_slice(&[0x9c, 0x40, 0, 80]);
        if self.udp {
            bytes.extend_from_slice(&(transport_bytes as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        } else {
            // Sequence number near its wrap; CWR, ACK, PSH and FIN set.
            bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1]);
            bytes.extend_from_slice(&[(5 + self.options as u8) << 4, 0x99, 1, 0, 0, 0, 0, 0]);
            bytes.extend(std::iter::repeat_n(1, self.options * 4));
        }
        bytes.extend_from_slice(payload);
        let offset = if self.udp { 6 } else { 16 };
        let pseudo = naive(&pseudo_header(&bytes[self.network()..], transport_bytes, self.udp));
        put_u16(&mut bytes, self.transport() + offset, pseudo);
        let mut frame = pools.copy_of(&bytes).unwrap();
        frame.meta_mut().trace = 42;
        frame.meta_mut().checksum =
            Checksum::Partial { start: self.transport() as u16, offset: offset as u8 };
        frame.meta_mut().segmentation = Some(Segmentation {
            kind: match (self.udp, self.v6) {
                (true, _) => SegmentKind::Udp,
                (false, false) => SegmentKind::TcpV4,
                (false, true) => SegmentKind::TcpV6,
            },
            segment_bytes,
            header_bytes: self.headers() as u16,
            ecn: true,
        });
        frame
    }

    /// Checks lengths and checksums of a finished frame, the slow way.
    fn verify(self, bytes: &[u8]) {
        let packet = &bytes[self.network()..];
        let transport = &bytes[self.transport()..];
        if self.v6 {
            assert_eq!(usize::from(get_u16(packet, 4)), transport.len());
        } else {
            assert_eq!(usize::from(get_u16(packet, 2)), packet.len());
            assert_eq!(naive(&packet[..20]), 0xffff, "IPv4 header");
        }
        if self.udp {
            assert_eq!(usize::from(get_u16(transport, 4)), transport.len());
        }
        let mut summed = pseudo_header(packet, transport.len(), self.udp);
        summed.extend_from_slice(transport);
        assert_eq!(naive(&summed), 0xffff, "transport");
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 0usize..=10).prop_map(|(v6, udp, tagged, options)| Shape {
        v6,
        udp,
        tagged,
        options,
    })
}

fn pools() -> Pools {
    Pools::new(PoolsConfig { small_slots: 64, large_slots: 8 })
}

proptest! {
    #[test]
    fn segments_make_the_frame_again(
        shape in shape(),
        payload in prop::collection::vec(any::<u8>(), 1..8000),
        segment_bytes in 200u16..1460,
    ) {
        let mut pools = pools();
        let frame = shape.frame(&mut pools, &payload, segment_bytes);
        let wire_bytes = frame.wire_bytes();
        let mut out = Chain::new();
        let count = segment(frame, &mut pools, &mut out).unwrap();
        prop_assert_eq!(count, payload.len().div_ceil(usize::from(segment_bytes)));
        prop_assert_eq!(out.bytes().0, wire_bytes as u64);
        let mut joined = Vec::new();
        for (index, part) in out.iter().enumerate() {
            let bytes = part.as_slice();
            shape.verify(bytes);
            prop_assert_eq!(part.meta().segmentation, None);
            prop_assert_eq!((part.meta().checksum, part.meta().trace), (Checksum::Unchecked, 42));
            if !shape.v6 {
                let id = get_u16(bytes, shape.network() + 4);
                prop_assert_eq!(id, 0xfffe_u16.wrapping_add(index as u16));
            }
            if !shape.udp {
                let tcp = &bytes[shape.transport()..];
                let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
                prop_assert_eq!(seq, 0xffff_ff00u32.wrapping_add(joined.len() as u32));
                let (first, last) = (index == 0, index + 1 == count);
                let expected = 0x10 | if first { 0x80 } else { 0 } | if last { 0x09 } else { 0 };
                prop_assert_eq!(tcp[13], expected);
            }
            joined.extend_from_slice(&bytes[shape.headers()..]);
        }
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn any_meta_over_any_bytes_is_refused_or_cut_and_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        ethertype in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [0x81, 0]]),
        start: u16, offset in prop::sample::select(vec![6u8, 16, 0, 255]),
        segment_bytes in 0u16..100, header_bytes in 0u16..400,
        kind in prop::sample::select(vec![SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp]),
    ) {
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(12..14) { field.copy_from_slice(&ethertype) }
        let mut pools = Pools::new(PoolsConfig { small_slots: 400, large_slots: 1 });
        let mut frame = pools.copy_of(&bytes).unwrap();
        frame.meta_mut().checksum = Checksum::Partial { start: start % 400, offset };
        frame.meta_mut().segmentation = Some(Segmentation { kind, segment_bytes, header_bytes, ecn: false });
        let mut copy = pools.duplicate(&frame).unwrap();
        let mut out = Chain::new();
        match segment(frame, &mut pools, &mut out) {
            Ok(count) => prop_assert_eq!(count, out.len()),
            Err(reason) => prop_assert_eq!((reason, out.len()), (DropReason::BadOffload, 0)),
        }
        let _ = complete_checksum(&mut copy);
    }

    #[test]
    fn the_sum_is_the_naive_one(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        // Zero and all ones are the same number in ones-complement.
        prop_assert_eq!(sum(&bytes) % 0xffff, u64::from(naive(&bytes)) % 0xffff);
    }
}

#[test]
fn an_exhausted_pool_loses_the_frame_and_leaves_no_half() {
    let mut pools = Pools::new(PoolsConfig { small_slots: 3, large_slots: 1 });
    let shape = Shape { v6: false, udp: false, tagged: false, options: 0 };
    let frame = shape.frame(&mut pools, &[1; 4000], 1000);
    let mut out = Chain::new();
    assert_eq!(segment(frame, &mut pools, &mut out), Err(DropReason::NoBuffer));
    assert!(out.is_empty());
    assert_eq!((pools.small.free(), pools.large.free()), (3, 1));
}

#[test]
fn frames_are_prepared_for_what_the_device_lacks() {
    let shape = Shape { v6: true, udp: false, tagged: false, options: 3 };
    let plain = Capabilities::plain(Mtu::ETHERNET);
    let sums_only = Capabilities { checksum_offload: true, ..plain };
    let (partial, complete) = (Checksum::Partial { start: 54, offset: 16 }, Checksum::Unchecked);
    for (capabilities, frames, checksum) in
        [(Capabilities::full(Mtu::ETHERNET), 2, partial), (sums_only, 4, partial), (plain, 4, complete)]
    {
        let mut pools = pools();
        let mut drops = DropCounters::default();
        let mut chain = Chain::new();
        chain.push(shape.frame(&mut pools, &[9; 3000], 1400));
        let mut small = shape.frame(&mut pools, &[8; 100], 1400);
        small.meta_mut().segmentation = None;
        chain.push(small);
        prepare(&mut chain, &capabilities, &mut pools, &mut drops);
        assert_eq!((chain.len(), drops.total()), (frames, 0));
        assert!(chain.iter().all(|f| f.meta().checksum == checksum));
        for mut frame in chain {
            if frame.meta().segmentation.is_none() {
                complete_checksum(&mut frame).unwrap();
                shape.verify(frame.as_slice());
            }
        }
    }
}

#[test]
fn what_no_device_takes_is_dropped_with_its_reason() {
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let mut chain = Chain::new();
    chain.push(pools.copy_of(&[0; 2000]).unwrap());
    let mut pointing_outside = pools.copy_of(&[0; 60]).unwrap();
    pointing_outside.meta_mut().checksum = Checksum::Partial { start: 50, offset: 9 };
    chain.push(pointing_outside);
    prepare(&mut chain, &Capabilities::plain(Mtu::ETHERNET), &mut pools, &mut drops);
    assert!(chain.is_empty());
    assert_eq!((drops.of(DropReason::TooLong), drops.of(DropReason::BadOffload)), (1, 1));
}
