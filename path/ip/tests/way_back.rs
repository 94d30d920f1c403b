//! The headers that are ready and the header that is looked at alone: both come to what the long ways come to.

use crate::common;

use common::{ETHERNET, LINK, Station, exchange, ip};
use firelane_frame::{Checksum, Frame, SegmentKind, Segmentation};
use firelane_ip::{Egress, Input, LOOPBACK, Sent, Upper};
use firelane_units::{Instant, LinkId};
use firelane_wire::Ecn;
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(100);

const US: [&str; 2] = ["10.0.0.1", "fd00::1"];
const PEER: [&str; 2] = ["10.0.0.2", "fd00::2"];

/// A station, its peer, and the way between them, the peer's hardware address known.
fn pair(is_v4: bool) -> (Station, Station, Egress, Egress) {
    let mut us = Station::new(1, &["10.0.0.1/24", "fd00::1/64"]);
    let mut peer = Station::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    let which = usize::from(!is_v4);
    us.send(NOW, PEER[which], b"are you there?", Upper::udp());
    exchange(NOW, &mut [&mut us, &mut peer]);
    peer.send(NOW, US[which], b"yes", Upper::udp());
    exchange(NOW, &mut [&mut us, &mut peer]);
    let there = us.ip.egress(NOW, Some(ip(US[which])), ip(PEER[which])).unwrap();
    let back = peer.ip.egress(NOW, Some(ip(PEER[which])), ip(US[which])).unwrap();
    (us, peer, there, back)
}

fn segment(station: &mut Station, len: usize, is_cut: bool) -> Frame {
    let text: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let mut frame = station.pools.take(len).unwrap();
    frame.append(len).copy_from_slice(&text);
    let meta = frame.meta_mut();
    meta.checksum = Checksum::Partial { start: 0, offset: 16 };
    if is_cut {
        let kind = SegmentKind::TcpV4;
        meta.segmentation = Some(Segmentation { kind, segment_bytes: 1000, header_bytes: 20, ecn: false });
    }
    frame
}

proptest! {
    #[test]
    fn what_leaves_behind_a_front_is_what_would_leave_without(
        is_v4: bool,
        len in prop_oneof![20usize..1_600, 1_440usize..1_490],
        is_cut: bool,
        ecn in prop::sample::select(&[Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested][..]),
        hops in prop::option::of(1u8..),
        dscp in 0u8..64,
        flow_label in 0u32..1 << 20,
    ) {
        let (mut us, _, mut there, _) = pair(is_v4);
        let upper = Upper { hops, dscp, flow_label, ..Upper::tcp(ecn) };
        let front = us.ip.front(&there, upper).expect("the peer is known");
        let (ready, whole) = (segment(&mut us, len, is_cut), segment(&mut us, len, is_cut));
        let by_front = us.ip.send_behind(&front, ready, ecn);
        let ready = us.ip.poll_output();
        let by_egress = us.ip.send(NOW, &mut there, whole, upper, &mut us.pools);
        let whole = us.ip.poll_output();
        prop_assert_eq!(by_front.is_ok(), matches!(by_egress, Sent::Out));
        let look = |frame: &Frame| (frame.as_slice().to_vec(), *frame.meta());
        prop_assert_eq!(ready.as_ref().map(look), whole.as_ref().map(look));
    }

    #[test]
    fn what_came_back_is_what_input_delivers(
        is_v4: bool,
        len in 20usize..200,
        padding in 0usize..20,
        by_loopback in prop::bool::weighted(0.05),
        changes in prop::collection::vec((0usize..60, any::<u8>()), 0..3),
        mends_sum: bool,
    ) {
        let (mut us, mut peer, there, mut back) = pair(is_v4);
        let frame = segment(&mut peer, len, false);
        peer.ip.send(NOW, &mut back, frame, Upper::tcp(Ecn::Capable0), &mut peer.pools);
        let mut bytes = peer.ip.poll_output().unwrap().as_slice().to_vec();
        bytes.resize(bytes.len() + padding, 0);
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if mends_sum && is_v4 {
            bytes[24..26].fill(0);
            let sum = firelane_wire::Sum::of(&bytes[ETHERNET..ETHERNET + 20]).checksum();
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let link = if by_loopback { LOOPBACK } else { LINK };
        let range = us.ip.returned(&there, link, &bytes, ETHERNET);
        let (one, two) = (us.frame(&bytes), us.frame(&bytes));
        let before = us.ip.counts();
        let short = us.ip.input_returned(&there, link, one, ETHERNET);
        let between = us.ip.counts();
        let long = us.ip.input(NOW, link, two, ETHERNET, &mut us.pools);
        prop_assert_eq!(range.is_some(), short.is_ok());
        let Ok(short) = short else {
            prop_assert_eq!(before.v4, between.v4);
            prop_assert_eq!(before.v6, between.v6);
            return Ok(());
        };
        let Input::Deliver(long) = long else { panic!("{long:?}") };
        prop_assert_eq!(range, Some(long.payload.clone()));
        prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
        let after = us.ip.counts();
        let delivered = |counts: &firelane_ip::IpCounts| {
            [counts.v4.received, counts.v4.delivered, counts.v6.received, counts.v6.delivered]
        };
        let [by_short, by_long] = [(&before, &between), (&between, &after)]
            .map(|(from, to)| core::array::from_fn::<u64, 4, _>(|n| delivered(to)[n] - delivered(from)[n]));
        prop_assert_eq!(by_short, by_long);
    }
}

#[test]
fn what_a_peer_sends_is_taken_by_its_header_alone() {
    for is_v4 in [true, false] {
        let (mut us, mut peer, there, mut back) = pair(is_v4);
        let frame = segment(&mut peer, 100, false);
        peer.ip.send(NOW, &mut back, frame, Upper::tcp(Ecn::NotCapable), &mut peer.pools);
        let frame = peer.ip.poll_output().unwrap();
        assert!(us.ip.returned(&there, LINK, frame.as_slice(), ETHERNET).is_some());
        assert!(us.ip.returned(&there, LinkId(8), frame.as_slice(), ETHERNET).is_none(), "another link");
        us.ip.remove_address(LINK, there.src).unwrap();
        assert!(us.ip.returned(&there, LINK, frame.as_slice(), ETHERNET).is_none(), "not ours any more");
        assert!(us.ip.front(&there, Upper::tcp(Ecn::NotCapable)).is_none(), "no way any more");
    }
}

#[test]
fn a_front_ends_with_its_way() {
    let (mut us, _, there, _) = pair(true);
    let front = us.ip.front(&there, Upper::tcp(Ecn::NotCapable)).unwrap();
    assert!(us.ip.is_front_current(&front));
    us.ip.add_address(NOW, LINK, "10.0.9.1/24".parse().unwrap()).unwrap();
    let frame = segment(&mut us, 100, false);
    assert!(!us.ip.is_front_current(&front) && us.ip.send_behind(&front, frame, Ecn::NotCapable).is_err());
}
