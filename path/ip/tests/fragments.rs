//! Fragments: what is cut comes together again, in any order, and bad pieces are refused (I05 to I10, V05
//! to V07).

use crate::common;

use common::{LINK, Station, exchange, ip};
use firelane_ip::{DadConfig, Sent, Upper};
use firelane_units::{DropReason, Instant, Mtu};
use firelane_wire::{
    Ecn, EtherType, EthernetRepr, FragmentRepr, Icmpv4Repr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr,
    Ipv6View,
};
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(1);

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Two stations that know each other's addresses.
fn pair(a: &[&str], b: &[&str]) -> (Station, Station) {
    let (mut a, mut b) = (Station::new(1, a), Station::new(2, b));
    let to = b.ip.addresses().next().unwrap().prefix.addr().to_string();
    let _ = a.send(NOW, &to, &[0; 8], Upper::udp());
    exchange(NOW, &mut [&mut a, &mut b]);
    b.delivered.clear();
    (a, b)
}

#[test]
fn an_echo_of_64_kib_comes_back_whole() {
    let (mut a, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
    let data = data(65_507);
    let request = Icmpv4Repr::EchoRequest { identifier: 1, sequence: 2, data: &data };
    let mut bytes = vec![0; request.emitted_len()];
    request.emit(&mut bytes);
    let upper = Upper { protocol: IpProtocol::ICMPV4, ..Upper::udp() };
    assert!(matches!(a.send(NOW, "10.0.0.2", &bytes, upper), Sent::Out));
    let wire = exchange(NOW, &mut [&mut a, &mut b]);
    assert_eq!(wire.len(), 90, "45 fragments each way");
    assert!(wire.iter().all(|frame| frame.len() <= 1514));
    let answer = a.delivered.pop().expect("the answer is handed on, whole");
    assert_eq!(&answer.frame.as_slice()[answer.payload][8..], &data[..]);
    assert_eq!((a.ip.made().datagrams, a.drops.as_slice()), (1, &[][..]));
    assert_eq!((b.drops.len(), a.ip.held_frames(), b.ip.held_frames()), (0, 0, 0));
}

#[test]
fn a_payload_that_must_not_be_cut_is_refused() {
    let (mut a, _) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
    let sent = a.send(NOW, "10.0.0.2", &data(1481), Upper::tcp(Ecn::NotCapable));
    assert!(matches!(sent, Sent::Drop(frame, DropReason::TooBig) if frame.len() == 1481));
    assert!(matches!(a.send(NOW, "10.0.0.2", &data(1480), Upper::tcp(Ecn::NotCapable)), Sent::Out));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reassembly_gives_the_original_for_any_order(
        len in 1481usize..20_000,
        swaps in proptest::collection::vec(any::<prop::sample::Index>(), 32),
        v6: bool,
    ) {
        let (mut a, mut b) = if v6 {
            pair(&["fd00::1/64"], &["fd00::2/64"])
        } else {
            pair(&["10.0.0.1/24"], &["10.0.0.2/24"])
        };
        let sent = data(len);
        let to = if v6 { "fd00::2" } else { "10.0.0.2" };
        prop_assert!(matches!(a.send(NOW, to, &sent, Upper::udp()), Sent::Out));
        let mut frames = a.outputs(NOW);
        for (i, swap) in swaps.iter().enumerate() {
            let (i, j) = (i % frames.len(), swap.index(frames.len()));
            frames.swap(i, j);
        }
        for (i, frame) in frames.iter().enumerate() {
            let result = b.input_bytes(NOW, frame);
            prop_assert_eq!(result, if i + 1 == frames.len() { "deliver" } else { "held" });
        }
        let delivered = b.delivered.pop().unwrap();
        prop_assert_eq!(&delivered.frame.as_slice()[delivered.payload.clone()], &sent[..]);
        prop_assert_eq!((delivered.src, delivered.dst.to_string()), (a.ip.addresses().next().unwrap().prefix.addr(), to.to_string()));
        prop_assert_eq!(b.ip.held_frames(), 0);
    }
}

/// A fragment by hand: offset and length in bytes.
fn piece_v4(id: u16, offset: u16, content: &[u8], more: bool, ecn: Ecn, protocol: IpProtocol) -> Vec<u8> {
    let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let mut header = Ipv4Repr::new(src, dst, protocol, content.len() as u16);
    header.identification = id;
    header.dont_fragment = false;
    header.more_fragments = more;
    header.fragment_offset = offset;
    header.ecn = ecn;
    let mut bytes = vec![0; 34];
    EthernetRepr { dst: common::mac(2), src: common::mac(1), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    header.emit(&mut bytes[14..]);
    bytes.extend_from_slice(content);
    bytes
}

fn udp(id: u16, offset: u16, len: usize, more: bool) -> Vec<u8> {
    piece_v4(id, offset, &vec![offset as u8; len], more, Ecn::NotCapable, IpProtocol::UDP)
}

fn piece_v6(id: u32, offset: u16, len: usize, more: bool) -> Vec<u8> {
    let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let header = Ipv6Repr::new(src, dst, IpProtocol::FRAGMENT, 8 + len as u16);
    let fragment = FragmentRepr { next_header: IpProtocol::UDP, offset, more, identification: id };
    let mut bytes = vec![0; 62];
    EthernetRepr { dst: common::mac(2), src: common::mac(1), ethertype: EtherType::IPV6 }.emit(&mut bytes);
    header.emit(&mut bytes[14..]);
    fragment.emit(&mut bytes[54..]);
    bytes.extend(std::iter::repeat_n(offset as u8, len));
    bytes
}

/// What becomes of each piece, and what waits in the end.
fn run(pieces: &[Vec<u8>]) -> (Vec<&'static str>, usize) {
    let (_, mut b) = pair(&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/24", "fd00::2/64"]);
    let results = pieces.iter().map(|piece| b.input_bytes(NOW, piece)).collect();
    (results, b.ip.held_frames())
}

#[test]
fn i05_past_the_end_frees_the_whole_datagram() {
    let (results, held) = run(&[udp(1, 0, 1480, true), udp(1, 65_520, 24, false), udp(1, 1480, 8, false)]);
    assert_eq!((results, held), (vec!["held", "drop", "drop"], 0));
}

#[test]
fn i06_v05_an_overlap_condemns_the_datagram_with_all_that_follows() {
    for (first, second) in [((0, 24), (16, 24)), ((16, 24), (8, 16)), ((8, 8), (0, 24)), ((0, 24), (8, 8))] {
        let v4 = |(offset, len): (u16, usize)| udp(1, offset, len, true);
        let (results, held) = run(&[v4(first), v4(second), udp(1, 48, 8, false), udp(2, 0, 8, true)]);
        assert_eq!((results, held), (vec!["held", "drop", "drop", "held"], 1), "{first:?} {second:?}");
        let v6 = |(offset, len): (u16, usize)| piece_v6(1, offset, len, true);
        let (results, held) = run(&[v6(first), v6(second), piece_v6(1, 48, 8, false)]);
        assert_eq!((results, held), (vec!["held", "drop", "drop"], 0), "{first:?} {second:?}");
    }
}

#[test]
fn i10_an_exact_copy_is_dropped_alone_and_one_with_other_data_condemns() {
    let (results, _) = run(&[udp(1, 0, 24, true), udp(1, 0, 24, true), udp(1, 24, 8, false)]);
    assert_eq!(results, ["held", "drop", "deliver"]);
    let other = piece_v4(1, 0, &[9; 24], true, Ecn::NotCapable, IpProtocol::UDP);
    let (results, held) = run(&[udp(1, 0, 24, true), other, udp(1, 24, 8, false)]);
    assert_eq!((results, held), (vec!["held", "drop", "drop"], 0));
}

#[test]
fn i10_the_congestion_fields_of_pieces_become_one() {
    for (first, second, whole) in [
        (Ecn::Capable0, Ecn::Congested, Some(Ecn::Congested)),
        (Ecn::Congested, Ecn::Capable1, Some(Ecn::Congested)),
        (Ecn::NotCapable, Ecn::Congested, None),
        (Ecn::NotCapable, Ecn::NotCapable, Some(Ecn::NotCapable)),
    ] {
        let (_, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
        b.input_bytes(NOW, &piece_v4(1, 0, &[0; 24], true, first, IpProtocol::UDP));
        b.input_bytes(NOW, &piece_v4(1, 24, &[0; 9], false, second, IpProtocol::UDP));
        assert_eq!(b.delivered.pop().map(|delivered| delivered.ecn), whole);
        assert_eq!(b.ip.held_frames(), 0);
    }
}

#[test]
fn i09_a_transport_header_is_in_the_first_piece() {
    let tcp = |offset, len, more| piece_v4(1, offset, &vec![0; len], more, Ecn::NotCapable, IpProtocol::TCP);
    for (piece, result) in [
        (tcp(0, 16, true), "drop"),
        (tcp(8, 16, true), "drop"),
        (tcp(0, 24, true), "held"),
        (udp(1, 0, 0, true), "drop"),
        (udp(1, 0, 12, true), "drop"),
        (udp(1, 8, 0, false), "drop"),
    ] {
        assert_eq!(run(&[piece]).0, [result]);
    }
}

/// RFC 8200 §4.5: pieces meet that have source, destination and number in common; what else differs in them is the first one's to say.
#[test]
fn pieces_of_ipv6_meet_by_source_destination_and_number_alone() {
    let (_, mut b) = pair(&["fd00::1/64"], &["fd00::2/64", "fd00::3/64"]);
    let changed = |at: usize, value: u8| {
        let mut piece = piece_v6(1, 24, 8, false);
        piece[at] = value;
        piece
    };
    assert_eq!(b.input_bytes(NOW, &piece_v6(1, 0, 24, true)), "held");
    // The last bytes of the source, the destination and the number.
    for (name, piece) in
        [("source", changed(37, 9)), ("destination", changed(53, 3)), ("number", changed(61, 2))]
    {
        assert_eq!(b.input_bytes(NOW, &piece), "held", "another {name}");
    }
    // Another next header, and destination options in front that the first one does not have.
    let mut last = changed(54, 6);
    last.splice(54..54, [44, 0, 1, 4, 0, 0, 0, 0]);
    (last[19], last[20]) = (last[19] + 8, 60);
    assert_eq!(b.input_bytes(NOW, &last), "deliver");
    let whole = b.delivered.pop().unwrap();
    assert_eq!((whole.protocol, whole.payload.clone()), (IpProtocol::UDP, 54..86));
    let view = Ipv6View::parse(&whole.frame.as_slice()[14..]).unwrap();
    assert_eq!((view.next_header(), view.payload_len()), (IpProtocol::UDP, 32));
    assert_eq!(view.payload(), [&[0; 24][..], &[24; 8]].concat());
    assert_eq!(b.ip.held_frames(), 3);
}

#[test]
fn v07_a_piece_that_is_not_a_multiple_of_8_is_reported() {
    let (_, mut b) = pair(&["fd00::1/64"], &["fd00::2/64"]);
    assert_eq!(b.input_bytes(NOW, &piece_v6(1, 0, 12, true)), "drop");
    let out = b.outputs(NOW);
    assert_eq!((out.len(), out[0][54], out[0][55], out[0][61]), (1, 4, 0, 4), "parameter problem, pointer 4");
}

#[test]
fn v06_an_atomic_fragment_does_not_mix_with_others_of_its_number() {
    let (results, held) =
        run(&[piece_v6(1, 0, 24, true), piece_v6(1, 0, 16, false), piece_v6(1, 24, 8, false)]);
    assert_eq!((results, held), (vec!["held", "deliver", "deliver"], 0));
}

/// A first piece from one of many sources.
fn first_from(source: u8, id: u16) -> Vec<u8> {
    let mut frame = udp(id, 0, 1480, true);
    frame[29] = source;
    // The checksum follows the source, which was 10.0.0.1.
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    let new = firelane_wire::checksum::update16(sum, 1, source.into());
    frame[24..26].copy_from_slice(&new.to_be_bytes());
    frame
}

fn roomy() -> Station {
    let (_, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
    b.pools = firelane_frame::Pools::new(firelane_frame::PoolsConfig { small_slots: 4096, large_slots: 4 });
    b
}

#[test]
fn i07_memory_is_bounded_and_the_oldest_goes_first() {
    let mut b = roomy();
    for id in 0..3000 {
        assert_eq!(b.input_bytes(NOW, &first_from(10 + (id % 8) as u8, id)), "held");
    }
    assert_eq!(b.ip.held_frames(), 2048);
    assert_eq!(b.ip.take_drops().of(DropReason::ReassemblyLimit), 952);
    // The newest are still there, the oldest are not.
    assert_eq!(b.input_bytes(NOW, &first_from(10 + 7, 2999)), "drop", "a copy");
    assert_eq!(b.input_bytes(NOW, &first_from(10, 0)), "held", "new again");
}

#[test]
fn i07_one_source_pushes_out_only_its_own() {
    let mut b = roomy();
    assert_eq!(b.input_bytes(NOW, &first_from(50, 7)), "held");
    for id in 0..3000 {
        assert_eq!(b.input_bytes(NOW, &udp(id, 0, 1480, true)), "held");
    }
    assert_eq!(b.ip.held_frames(), 1 + 512);
    assert_eq!(b.ip.take_drops().of(DropReason::ReassemblyLimit), 3000 - 512);
    assert_eq!(b.input_bytes(NOW, &first_from(50, 7)), "drop", "a copy: the other's is still there");
    assert_eq!(b.input_bytes(NOW, &udp(2999, 1480, 8, false)), "deliver", "the newest is, too");
    assert_eq!(b.input_bytes(NOW, &udp(0, 1480, 8, false)), "held", "the oldest is not");
    let due = NOW + std::time::Duration::from_secs(30);
    b.ip.on_timer(due, &mut b.pools);
    assert_eq!(b.ip.held_frames(), 1, "an error to the other, whose Ethernet address is not known");
    // The share is free again.
    for id in 0..512 {
        assert_eq!(b.input_bytes(due, &udp(id, 0, 1480, true)), "held");
    }
    assert_eq!(b.ip.held_frames(), 1 + 512);
}

#[test]
fn i07_large_pieces_of_one_source_are_bounded_by_their_memory() {
    let mut b = roomy();
    // Several pieces each: the limit is on memory, not on datagrams.
    for id in 0..200 {
        for part in 0..8 {
            assert_eq!(b.input_bytes(NOW, &udp(id, part * 1480, 1480, true)), "held");
        }
    }
    assert_eq!(b.ip.held_frames(), 512, "1 MiB in buffers of 2 KiB");
}

#[test]
fn i08_pieces_are_bounded() {
    let (_, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
    let results: Vec<_> = (1..=129).rev().map(|i| b.input_bytes(NOW, &udp(1, i * 16, 8, true))).collect();
    assert_eq!(results.iter().filter(|&&result| result == "held").count(), 128);
    assert_eq!((results[128], b.ip.held_frames()), ("drop", 0));
}

/// The least packets that everybody takes (RFC 791 §3.1) are of 576 bytes.
#[test]
fn the_largest_datagram_arrives_over_the_narrowest_links() {
    let mut b = roomy();
    let (piece, whole) = (552, 65_508);
    let results: Vec<_> = (0..whole)
        .step_by(piece)
        .map(|begin| {
            b.input_bytes(NOW, &udp(1, begin as u16, piece.min(whole - begin), begin + piece < whole))
        })
        .collect();
    let (last, before) = results.split_last().unwrap();
    assert_eq!((results.len(), *last), (119, "deliver"));
    assert!(before.iter().all(|&result| result == "held"));
    assert_eq!(b.ip.held_frames(), 0);
}

#[test]
fn time_ends_a_datagram_and_its_sender_is_told_if_the_first_piece_came() {
    for (offset, answers) in [(0u16, 1), (1480, 0)] {
        let (_, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
        b.input_bytes(NOW, &udp(1, offset, 1480, true));
        let due = NOW + std::time::Duration::from_secs(30);
        b.ip.on_timer(due, &mut b.pools);
        assert_eq!(b.ip.held_frames(), 0);
        assert_eq!(b.ip.take_drops().of(DropReason::ReassemblyLimit), 1);
        let out: Vec<_> =
            b.outputs(due).into_iter().filter(|f| f[23] == 1 && f[12] == 8 && f[13] == 0).collect();
        assert_eq!(out.len(), answers);
        assert!(out.iter().all(|frame| frame[34..36] == [11, 1]));
    }
}

/// RFC 8200 §4.5: of IPv6 after sixty seconds, and no sooner.
#[test]
fn time_ends_a_datagram_of_ipv6_after_a_minute() {
    for (offset, answers) in [(0, 1), (1448, 0)] {
        let (_, mut b) = pair(&["fd00::1/64"], &["fd00::2/64"]);
        assert_eq!(b.input_bytes(NOW, &piece_v6(1, offset, 1448, true)), "held");
        let mut out = Vec::new();
        for (seconds, held) in [(59, 1), (60, 0)] {
            let at = NOW + std::time::Duration::from_secs(seconds);
            b.ip.on_timer(at, &mut b.pools);
            assert_eq!(b.ip.held_frames(), held, "after {seconds} s");
            out = b.outputs(at);
        }
        assert_eq!(b.ip.take_drops().of(DropReason::ReassemblyLimit), 1);
        // ICMPv6 behind a plain header: time exceeded, in reassembly.
        let told = out.iter().filter(|frame| frame[20] == 58 && frame[54..56] == [3, 1]).count();
        assert_eq!(told, answers);
    }
}

#[test]
fn fragments_that_wait_for_a_neighbour_all_leave_in_order() {
    let mut a = Station::bare(1, DadConfig::OFF, true, 1500);
    a.ip.add_address(NOW, LINK, "10.0.0.1/24".parse().unwrap()).unwrap();
    let mut b = Station::new(2, &["10.0.0.2/24"]);
    assert!(matches!(a.send(NOW, "10.0.0.2", &data(60_000), Upper::udp()), Sent::Held));
    exchange(NOW, &mut [&mut a, &mut b]);
    let delivered = b.delivered.pop().unwrap();
    assert_eq!(&delivered.frame.as_slice()[delivered.payload], &data(60_000)[..]);
    assert_eq!(delivered.src, ip("10.0.0.1"));
}

/// A program's own limit (IPV6_MTU) holds for the first packets to a station, too, and only the way itself makes it void.
#[test]
fn a_way_that_its_user_has_narrowed_stays_so_until_the_neighbour_is_known() {
    let (mut a, mut b) = (Station::new(1, &["fd00::1/64"]), Station::new(2, &["fd00::2/64"]));
    let mut egress = a.ip.egress(NOW, None, ip("fd00::2")).unwrap();
    egress.mtu = Mtu::new(1280).unwrap();
    for _ in 0..2 {
        let frame = a.frame(&data(1400));
        let sent = a.ip.send(NOW, &mut egress, frame, Upper::udp(), &mut a.pools);
        assert!(matches!(sent, Sent::Held) && egress.mtu.bytes() == 1280);
    }
    assert_eq!(exchange(NOW, &mut [&mut a, &mut b]).iter().filter(|it| it.len() > 300).count(), 2);
    assert_eq!((a.ip.counts().v6.pieces, b.delivered.len()), (4, 2));
    a.ip.decide_anew();
    let frame = a.frame(&data(1400));
    assert!(matches!(a.ip.send(NOW, &mut egress, frame, Upper::udp(), &mut a.pools), Sent::Out));
    assert_eq!(egress.mtu, Mtu::ETHERNET);
}

#[test]
fn what_is_cut_is_what_the_rfcs_say() {
    let (mut a, _) = pair(&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/24"]);
    assert!(matches!(a.send(NOW, "10.0.0.2", &data(3000), Upper::udp()), Sent::Out));
    let frames = a.outputs(NOW);
    let views: Vec<_> = frames.iter().map(|frame| Ipv4View::parse(&frame[14..]).unwrap()).collect();
    let shape: Vec<_> =
        views.iter().map(|v| (v.fragment_offset(), v.payload().len(), v.more_fragments())).collect();
    assert_eq!(shape, [(0, 1480, true), (1480, 1480, true), (2960, 40, false)]);
    assert!(views.iter().all(|v| v.is_checksum_valid() && v.identification() == views[0].identification()));
    let mut b = Station::new(2, &["fd00::2/64"]);
    assert!(matches!(a.send(NOW, "fd00::2", &data(3000), Upper::udp()), Sent::Held));
    let frames = exchange(NOW, &mut [&mut a, &mut b]);
    let lens: Vec<_> = frames[2..].iter().map(|f| Ipv6View::parse(&f[14..]).unwrap().payload_len()).collect();
    assert_eq!(lens, [1456, 1456, 8 + 104]);
}

#[test]
fn a_piece_behind_the_last_one_condemns() {
    for pieces in
        [[(24, 8, false), (32, 8, true)], [(32, 8, true), (24, 8, false)], [(24, 8, false), (40, 8, false)]]
    {
        let frames = pieces.map(|(offset, len, more)| udp(1, offset, len, more));
        assert_eq!(run(&frames), (vec!["held", "drop"], 0), "{pieces:?}");
    }
}

#[test]
fn what_condemned_datagrams_held_is_free_again() {
    let (_, mut b) = pair(&["10.0.0.1/24"], &["10.0.0.2/24"]);
    // Twice what one source may hold passes through; nothing of it stays to push out the last datagram.
    for id in 0..511u16 {
        for offset in [0, 1480, 8] {
            b.input_bytes(NOW, &udp(id, offset, 1480, true));
        }
        b.ip.take_drops();
    }
    assert_eq!(b.input_bytes(NOW, &udp(9999, 0, 1480, true)), "held");
    assert_eq!(b.ip.take_drops().of(DropReason::ReassemblyLimit), 0);
    assert_eq!(b.input_bytes(NOW, &udp(3, 1480, 8, false)), "drop", "the condemned are remembered");
}

proptest! {
    /// RFC 8021: however small a router says that its link is, a packet that fits 1,280 bytes has no fragment header, and what
    /// has one is not alone.
    #[test]
    fn rfc8021_no_fragment_is_the_only_one(claimed in 576u16..1600, len in 1_100usize..1_600) {
        let (mut a, _) = pair(&["fd00::1/64"], &["fd00::2/64"]);
        a.ip.confirm_path_mtu(NOW, ip("fd00::2"), Mtu::new(claimed).unwrap());
        let _ = a.send(NOW, "fd00::2", &data(len), Upper::udp());
        let frames = a.outputs(NOW);
        let pieces = frames.iter().filter(|frame| Ipv6View::parse(&frame[14..]).unwrap().next_header() == IpProtocol::FRAGMENT);
        let fits = 40 + len <= usize::from(claimed.clamp(1280, 1500));
        prop_assert_eq!((frames.len(), pieces.count()), if fits { (1, 0) } else { (2, 2) });
    }
}
