//! Any bytes: no frame, and no sequence of frames, makes a panic, a lost buffer, or work without end.
//!
//! Frames are well-formed ones with a few bytes changed, whose header checksum is then made right, so that
//! they get far; and bytes that mean nothing. They go to a host and to a router, while time passes.

use crate::common;
use crate::craft;

use core::time::Duration;

use common::{LINK, Station};
use craft::*;
use firelane_frame::{Checksum, SegmentKind, Segmentation};
use firelane_ip::{IfConfig, Input, LOOPBACK};
use firelane_units::{Instant, LinkId, Mtu};
use firelane_wire::{ArpRepr, IpProtocol, Ipv4Repr, Ipv6Repr, NdpMessage, NdpOption};
use proptest::prelude::*;

const OTHER: LinkId = LinkId(8);

/// One well-formed frame of each kind.
fn samples() -> Vec<Vec<u8>> {
    let to_other_v4 = "192.0.2.50".parse().unwrap();
    let to_other_v6 = "2001:db8::50".parse().unwrap();
    let quoted_v4 = v4(&Ipv4Repr { src: VICTIM_V4, ..header_v4(IpProtocol::TCP) }, &[1; 20])[L3..].to_vec();
    let quoted_v6 = v6(&Ipv6Repr { src: VICTIM_V6, ..header_v6(IpProtocol::UDP) }, &[1; 20])[L3..].to_vec();
    let part_v4 = |fragment_offset, more_fragments| {
        let header = Ipv4Repr {
            fragment_offset,
            more_fragments,
            dont_fragment: false,
            identification: 7,
            ..header_v4(IpProtocol::UDP)
        };
        v4(&header, &udp(&[2; 16]))
    };
    let part_v6 = |offset: u16, more: u16| {
        let field = (offset | more).to_be_bytes();
        let header = [17, 0, field[0], field[1], 0, 0, 0, 7];
        v6(&header_v6(IpProtocol::FRAGMENT), &[&header[..], &udp(&[2; 16])].concat())
    };
    let router =
        NdpMessage::NeighbourAdvert { target: ATTACKER_V6, router: true, solicited: false, replace: true };
    vec![
        arp(&ArpRepr::request(ATTACKER_MAC, ATTACKER_V4, VICTIM_V4)),
        arp(&ArpRepr::announcement(ATTACKER_MAC, VICTIM_V4)),
        solicit(VICTIM_V6),
        advert(VICTIM_V6, ATTACKER_V6, ATTACKER_MAC, true, true),
        ndp_frame(
            ATTACKER_V6,
            ALL_NODES,
            router,
            &[NdpOption::TargetLinkLayer(ATTACKER_MAC), NdpOption::Mtu(9)],
        ),
        v4(&header_v4(IpProtocol::UDP), &udp(b"x")),
        v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(8, 0, &[3; 40])),
        v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(3, 4, &[&[0, 0, 2, 0][..], &quoted_v4].concat())),
        v4_with_options(&header_v4(IpProtocol(200)), &[7, 7, 4, 0, 0, 0, 0, 0], b"payload"),
        v4(&Ipv4Repr { dst: to_other_v4, ..header_v4(IpProtocol::UDP) }, &udp(&[4; 1300])),
        v4(
            &Ipv4Repr { dst: to_other_v4, dont_fragment: false, ..header_v4(IpProtocol::UDP) },
            &udp(&[4; 1300]),
        ),
        part_v4(0, true),
        part_v4(24, true),
        part_v4(48, false),
        part_v4(65_512, false),
        v6(&header_v6(IpProtocol::UDP), &udp(b"x")),
        v6(&header_v6(IpProtocol::ICMPV6), &icmpv6_message(ATTACKER_V6, VICTIM_V6, 128, 0, &[5; 40])),
        v6(
            &header_v6(IpProtocol::ICMPV6),
            &icmpv6_message(ATTACKER_V6, VICTIM_V6, 2, 0, &[&[0, 0, 5, 0][..], &quoted_v6].concat()),
        ),
        v6(
            &header_v6(IpProtocol(0)),
            &[&[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0x3e, 4, 0, 0, 0, 0][..], &udp(b"x")].concat(),
        ),
        v6(&Ipv6Repr { dst: to_other_v6, ..header_v6(IpProtocol::UDP) }, &udp(&[6; 1300])),
        part_v6(0, 1),
        part_v6(24, 1),
        part_v6(48, 0),
        part_v6(0, 0),
    ]
}

/// A change to a frame.
#[derive(Clone, Debug)]
enum Change {
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Pad(u8),
}

/// What the driver says about a frame.
#[derive(Clone, Copy, Debug)]
enum Meta {
    Plain,
    Verified,
    Partial(u16, u8),
    Cut(u16, u16),
}

#[derive(Clone, Debug)]
struct Step {
    frame: Vec<u8>,
    meta: Meta,
    link: LinkId,
    pause: u64,
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    // Most changes are within the headers.
    let near = (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(i, b)| Change::Byte(i, b));
    let change = prop_oneof![
        8 => near,
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
        1 => any::<u8>().prop_map(Change::Pad),
    ];
    let spoiled = (prop::sample::select(samples()), prop::collection::vec(change, 0..4), any::<bool>())
        .prop_map(|(mut frame, changes, near)| {
            for change in changes {
                match change {
                    Change::Byte(at, byte) if !frame.is_empty() => {
                        let reach = if near { frame.len().min(80) } else { frame.len() };
                        frame[at.index(reach)] = byte;
                    }
                    Change::Byte(..) => {}
                    Change::Cut(at) => frame.truncate(at.index(frame.len() + 1)),
                    Change::Pad(by) => frame.resize(frame.len() + usize::from(by), 0xee),
                }
            }
            if frame.len() >= L3 + 20 && frame[12..14] == [8, 0] {
                repair_v4(&mut frame);
            }
            frame
        });
    prop_oneof![20 => spoiled, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn step() -> impl Strategy<Value = Step> {
    let meta = prop_oneof![
        6 => Just(Meta::Plain),
        1 => Just(Meta::Verified),
        1 => (0u16..100, 0u8..40).prop_map(|(start, offset)| Meta::Partial(start, offset)),
        1 => (0u16..2000, 0u16..200).prop_map(|(segment, headers)| Meta::Cut(segment, headers)),
    ];
    let link = prop::sample::select(vec![LINK, LINK, LINK, OTHER, LOOPBACK, LinkId(99)]);
    let pause = prop_oneof![8 => Just(0u64), 2 => 1u64..1000, 1 => Just(40_000)];
    (frame(), meta, link, pause).prop_map(|(frame, meta, link, pause)| Step { frame, meta, link, pause })
}

fn station(forwarding: bool) -> Station {
    let mut station = victim();
    station.ip.set_forwarding(forwarding);
    let mtu = Mtu::new(1280).unwrap();
    station.ip.add_interface(IfConfig { link: OTHER, mac: VICTIM_MAC, mtu, is_home: true });
    for address in ["192.0.2.1/24", "2001:db8::1/64"] {
        station.ip.add_address(NOW, OTHER, address.parse().unwrap()).unwrap();
    }
    station
}

fn give_step(station: &mut Station, now: Instant, step: &Step) {
    let mut frame = station.frame(&step.frame);
    let meta = frame.meta_mut();
    match step.meta {
        Meta::Plain => {}
        Meta::Verified => meta.checksum = Checksum::Verified,
        Meta::Partial(start, offset) => meta.checksum = Checksum::Partial { start, offset },
        Meta::Cut(segment_bytes, header_bytes) => {
            let kind = SegmentKind::TcpV4;
            meta.segmentation = Some(Segmentation { kind, segment_bytes, header_bytes, ecn: false });
        }
    }
    match station.ip.input(now, step.link, frame, L3, &mut station.pools) {
        Input::Deliver(delivered) => {
            assert!(delivered.payload.end <= delivered.frame.len());
            assert!(delivered.payload.start <= delivered.payload.end);
            station.ip.unreachable_port(now, &delivered, &mut station.pools);
            station.pools.put(delivered.frame);
        }
        Input::Drop(frame, _) => station.pools.put(frame),
        Input::Consumed | Input::Forwarded(_) | Input::Held => {}
    }
}

/// Takes all output; what is for the station itself goes in again. Says how many frames there were.
fn drain(station: &mut Station, now: Instant) -> usize {
    let mut count = 0;
    while let Some(frame) = station.ip.poll_output() {
        count += 1;
        assert!(count < 1000, "a station that talks to itself without end");
        assert!(frame.len() >= L3);
        if frame.meta().ingress == LOOPBACK {
            let again =
                Step { frame: frame.as_slice().to_vec(), meta: Meta::Plain, link: LOOPBACK, pause: 0 };
            station.pools.put(frame);
            give_step(station, now, &again);
        } else {
            station.pools.put(frame);
        }
    }
    while station.ip.poll_event().is_some() {}
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_frames_break_a_host_or_a_router(
        forwarding: bool,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut station = station(forwarding);
        let mut now = NOW;
        let mut sent = 0;
        for step in &steps {
            now += Duration::from_millis(step.pause);
            station.ip.on_timer(now, &mut station.pools);
            give_step(&mut station, now, step);
            sent += drain(&mut station, now);
        }
        // A frame makes an answer, an error, a question; a datagram that is cut, some pieces; an address,
        // its announcements. Nothing multiplies.
        prop_assert!(sent <= 4 * steps.len() + 40, "{sent} frames for {}", steps.len());
        let mut turns = 0;
        while let Some(at) = station.ip.poll_at() {
            turns += 1;
            prop_assert!(turns < 1000, "timers without end");
            now = now.max(at);
            station.ip.on_timer(now, &mut station.pools);
            drain(&mut station, now);
        }
        prop_assert_eq!(station.ip.held_frames(), 0);
        let pools = &mut station.pools;
        let free = (pools.small.free(), pools.large.free());
        prop_assert_eq!(free, (pools.small.slots(), pools.large.slots()), "every buffer is back");
    }
}
