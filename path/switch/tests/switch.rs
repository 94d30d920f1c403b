//! The switch as a whole: who gets which frame, with which tag, and that the sums add up.
//!
//! The reference is a list of ports that is searched from the front.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

use firelane_frame::{Frame, Pools, PoolsConfig};
use firelane_switch::{
    Destination, Flooded, GroupFilter, L2, PortConfig, PortCounters, PortError, Role, Switch,
};
use firelane_units::{DropCounters, DropReason, Instant, MacAddr, SwitchPortId, VlanId};
use proptest::prelude::*;

const NOW: Instant = Instant::from_secs(1);
const UPLINK: SwitchPortId = SwitchPortId(0);
const GROUP: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 7]);

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, n])
}

fn vlan(id: u16) -> Option<VlanId> {
    VlanId::new(id)
}

fn station(address: u8, id: u16) -> PortConfig {
    PortConfig {
        role: Role::Station { vlan: vlan(id) },
        addresses: vec![mac(address)],
        groups: GroupFilter::All,
    }
}

fn uplink() -> PortConfig {
    PortConfig { role: Role::Uplink, addresses: vec![], groups: GroupFilter::All }
}

/// Ports 0 (uplink, if asked for), 1 and 2 (no VLAN), 3 and 4 (VLAN 5), 6 (VLAN 6); port n has address n.
fn switch(has_uplink: bool) -> Switch {
    let mut switch = Switch::new();
    if has_uplink {
        switch.add_port(UPLINK, uplink()).unwrap();
    }
    for (port, id) in [(1, 0), (2, 0), (3, 5), (4, 5), (6, 6)] {
        switch.add_port(SwitchPortId(port), station(port as u8, id)).unwrap();
    }
    switch
}

fn pools() -> Pools {
    Pools::new(PoolsConfig { small_slots: 16, large_slots: 0 })
}

/// A frame of 64 bytes with these addresses, and a tag if one is named; VLAN 0 is a priority tag.
fn frame(pools: &mut Pools, src: MacAddr, dst: MacAddr, tag: Option<u16>) -> (Frame, L2) {
    let mut bytes = [dst.0, src.0].concat();
    if let Some(id) = tag {
        bytes.extend_from_slice(&[0x81, 0, (id >> 8) as u8, id as u8]);
    }
    bytes.extend_from_slice(&[0x88, 0xb5]);
    bytes.resize(64, 0xab);
    let l2 = L2 { dst, src, vlan: tag.and_then(VlanId::new), tagged: tag.is_some() };
    (pools.copy_of(&bytes).unwrap(), l2)
}

/// The VLAN identifier of a frame's tag.
fn tag_of(frame: &Frame) -> Option<u16> {
    let bytes = frame.as_slice();
    (bytes[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([bytes[14], bytes[15]]))
}

#[test]
fn where_a_frame_goes() {
    use Destination::{Drop, Flood, Port};
    let port = |n| Port(SwitchPortId(n));
    let link_local = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);
    let not_link_local = MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]);
    // From port, to address, with tag; then with an uplink, and as an etherstub.
    let unknown = Drop(DropReason::UnknownDestination);
    for (from, to, tag, with_uplink, etherstub) in [
        (1, mac(2), None, port(2), port(2)),
        (1, mac(1), None, Drop(DropReason::SamePort), Drop(DropReason::SamePort)),
        (1, mac(3), None, port(0), unknown),
        (3, mac(4), None, port(4), port(4)),
        (3, mac(6), None, port(0), unknown),
        (1, mac(99), None, port(0), unknown),
        (1, MacAddr::ZERO, None, port(0), unknown),
        (1, MacAddr::BROADCAST, None, Flood, Flood),
        (1, GROUP, None, Flood, Flood),
        (1, not_link_local, None, Flood, Flood),
        (1, link_local, None, Drop(DropReason::LinkLocalProtocol), Drop(DropReason::LinkLocalProtocol)),
        (1, mac(2), Some(5), Drop(DropReason::BadVlan), Drop(DropReason::BadVlan)),
        (3, mac(4), Some(5), Drop(DropReason::BadVlan), Drop(DropReason::BadVlan)),
        (1, mac(2), Some(0), Drop(DropReason::BadVlan), Drop(DropReason::BadVlan)),
        (9, mac(2), None, Drop(DropReason::NoPort), Drop(DropReason::NoPort)),
        (5, mac(2), None, Drop(DropReason::NoPort), Drop(DropReason::NoPort)),
        (0, mac(2), None, port(2), Drop(DropReason::NoPort)),
        (0, mac(2), Some(0), port(2), Drop(DropReason::NoPort)),
        (0, mac(3), Some(5), port(3), Drop(DropReason::NoPort)),
        (0, mac(3), None, unknown, Drop(DropReason::NoPort)),
        (0, mac(3), Some(6), unknown, Drop(DropReason::NoPort)),
        (0, mac(99), None, unknown, Drop(DropReason::NoPort)),
        (0, link_local, None, Drop(DropReason::LinkLocalProtocol), Drop(DropReason::NoPort)),
    ] {
        let mut pools = pools();
        let (frame, l2) = frame(&mut pools, mac(200), to, tag);
        for (has_uplink, wanted) in [(true, with_uplink), (false, etherstub)] {
            let decided = switch(has_uplink).forward(NOW, SwitchPortId(from), &l2, &frame);
            assert_eq!(decided, wanted, "from {from} to {to} tag {tag:?} uplink {has_uplink}");
        }
    }
}

#[test]
fn tags_exist_on_the_uplink_only() {
    for (from, to, tag, leaves_with) in [
        (3u32, 99u8, None, Some(5)),
        (1, 99, None, None),
        (3, 4, None, None),
        (0, 3, Some(0xe005), None),
        (0, 1, Some(0xe000), None),
        (0, 1, None, None),
    ] {
        let (mut switch, mut pools) = (switch(true), pools());
        let (mut frame, mut l2) = frame(&mut pools, mac(200), mac(to), tag);
        l2.vlan = tag.and_then(|t| vlan(t & 0xfff));
        let Destination::Port(port) = switch.forward(NOW, SwitchPortId(from), &l2, &frame) else {
            panic!("{to}")
        };
        assert!(switch.deliver(SwitchPortId(from), port, &l2, &mut frame));
        assert_eq!(tag_of(&frame), leaves_with, "from {from} to {to}");
        assert_eq!(frame.as_slice()[..6], mac(to).0);
    }
}

#[test]
fn a_broadcast_reaches_everyone_in_the_vlan_but_its_sender() {
    for (from, tag, wanted) in [
        (1u32, None, vec![0u32, 2]),
        (3, None, vec![0, 4]),
        (6, None, vec![0]),
        (0, None, vec![1, 2]),
        (0, Some(5), vec![3, 4]),
        (0, Some(7), vec![]),
    ] {
        let (mut switch, mut pools, mut drops) = (switch(true), pools(), DropCounters::default());
        let (sent, l2) = frame(&mut pools, mac(200), MacAddr::BROADCAST, tag);
        let from = SwitchPortId(from);
        assert_eq!(switch.forward(NOW, from, &l2, &sent), Destination::Flood);
        let mut got = vec![];
        let flooded =
            switch.flood(from, &l2, sent, &mut pools, &mut drops, |port, frame| got.push((port.0, frame)));
        assert_eq!(flooded, Flooded { delivered: wanted.len(), missed: 0 });
        assert_eq!(got.iter().map(|(port, _)| *port).collect::<Vec<_>>(), wanted);
        for (port, frame) in &got {
            let wanted_tag = if *port == 0 {
                [None, None, None, Some(5), None, None, Some(6)][from.index()]
            } else {
                None
            };
            assert_eq!(tag_of(frame), wanted_tag);
            assert_eq!(switch.counters(SwitchPortId(*port)).unwrap().ipkts, 1);
        }
        assert_eq!(drops.of(DropReason::UnknownDestination), u64::from(wanted.is_empty()));
        drop(got);
        assert_eq!(pools.small.free(), 16, "every copy goes home");
    }
}

#[test]
fn a_filter_keeps_groups_away_and_broadcast_not() {
    let (mut switch, mut pools, mut drops) = (switch(false), pools(), DropCounters::default());
    let other = MacAddr([1, 0, 0x5e, 0, 0, 8]);
    assert!(switch.set_groups(SwitchPortId(2), GroupFilter::only(vec![other, GROUP])));
    assert!(!switch.set_groups(SwitchPortId(9), GroupFilter::All));
    for (dst, wanted) in [
        (GROUP, 1),
        (other, 1),
        (MacAddr([1, 0, 0x5e, 0, 0, 9]), 0),
        (MacAddr([0x33, 0x33, 0xff, 1, 2, 3]), 1),
        (MacAddr([0x33, 0x33, 0xfe, 1, 2, 3]), 0),
        (MacAddr::BROADCAST, 1),
    ] {
        let (sent, l2) = frame(&mut pools, mac(1), dst, None);
        let flooded = switch.flood(SwitchPortId(1), &l2, sent, &mut pools, &mut drops, |_, _| ());
        assert_eq!(flooded.delivered, wanted, "{dst}");
    }
}

#[test]
fn receivers_without_a_buffer_are_counted() {
    let mut switch = switch(false);
    switch.add_port(SwitchPortId(7), station(7, 0)).unwrap();
    let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: 0 });
    let mut drops = DropCounters::default();
    let (sent, l2) = frame(&mut pools, mac(1), MacAddr::BROADCAST, None);
    let flooded =
        switch.flood(SwitchPortId(1), &l2, sent, &mut pools, &mut drops, |port, _| assert_eq!(port.0, 7));
    assert_eq!((flooded, drops.of(DropReason::NoBuffer)), (Flooded { delivered: 1, missed: 1 }, 1));
    let counters = [2, 7].map(|n| switch.counters(SwitchPortId(n)).unwrap());
    assert_eq!(counters.map(|c| (c.ipkts, c.ierrors)), [(0, 1), (1, 0)]);
}

#[test]
fn ports_come_and_go_while_frames_are_on_their_way() {
    let (mut switch, mut pools) = (switch(false), pools());
    let (mut sent, l2) = frame(&mut pools, mac(1), mac(2), None);
    let (one, two) = (SwitchPortId(1), SwitchPortId(2));
    assert_eq!(switch.forward(NOW, one, &l2, &sent), Destination::Port(two));
    assert!(switch.deliver(one, two, &l2, &mut sent));
    switch.refuse(two, &sent);
    let replica = switch.replica();
    let counters = switch.remove_port(two).unwrap();
    assert_eq!(counters, PortCounters { ierrors: 1, ..PortCounters::default() });
    assert!(!switch.deliver(one, two, &l2, &mut sent));
    assert_eq!(switch.forward(NOW, one, &l2, &sent), Destination::Drop(DropReason::UnknownDestination));
    assert_eq!((switch.free_port(), switch.remove_port(two)), (SwitchPortId(0), None));
    switch.add_port(two, station(22, 0)).unwrap();
    assert_eq!((switch.port_of(mac(2), None), switch.port_of(mac(22), None)), (None, Some(two)));
    assert_eq!(replica.port_of(mac(2), None), Some(two));
    assert_eq!(replica.counters(one), Some(PortCounters::default()));
}

#[test]
fn refusals() {
    let mut switch = switch(true);
    let id = SwitchPortId(9);
    let mut two_equal = station(20, 0);
    two_equal.addresses.push(mac(20));
    for (port, config, wanted) in [
        (SwitchPortId(1), station(20, 0), PortError::Exists),
        (id, station(1, 0), PortError::AddressTaken(SwitchPortId(1))),
        (id, two_equal, PortError::AddressTaken(id)),
        (id, uplink(), PortError::SecondUplink(UPLINK)),
        (id, PortConfig { addresses: vec![], ..station(20, 0) }, PortError::NotUnicast),
        (id, PortConfig { addresses: vec![GROUP], ..station(20, 0) }, PortError::NotUnicast),
        (id, PortConfig { addresses: vec![MacAddr::ZERO], ..station(20, 0) }, PortError::NotUnicast),
    ] {
        assert_eq!(switch.add_port(port, config.clone()), Err(wanted), "{config:?}");
        assert_eq!(switch.ports().count(), 6, "nothing is left behind");
    }
    // The same address in another VLAN is another station.
    assert_eq!(switch.add_port(id, station(1, 7)), Ok(()));
}

/// Which ports a frame is shown to, beside those that get it.
fn shown(switch: &mut Switch, pools: &mut Pools, (from, dst, tag): (u32, MacAddr, Option<u16>)) -> Vec<u32> {
    let (sent, l2) = frame(pools, mac(200), dst, tag);
    let (from, mut drops, mut got) = (SwitchPortId(from), DropCounters::default(), vec![]);
    let decided = switch.forward(NOW, from, &l2, &sent);
    let all = |_| true;
    let told = switch.show((from, &l2, decided), &sent, pools, &mut drops, all, |port, copy| {
        assert_eq!(tag_of(&copy), None, "a station's frames carry no tag");
        got.push(port.0);
    });
    assert_eq!((told, drops.total()), (Flooded { delivered: got.len(), missed: 0 }, 0));
    got
}

#[test]
fn who_looks_on_is_shown_what_is_for_others() {
    let (mut switch, mut pools) = (switch(true), pools());
    assert!(!switch.has_onlookers());
    for (port, there) in [(2, true), (4, true), (9, false), (0, false)] {
        assert_eq!(switch.set_onlooker(SwitchPortId(port), true), there, "{port}");
    }
    assert!(switch.set_groups(SwitchPortId(4), GroupFilter::only(vec![])));
    let link_local = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);
    for (sent, wanted) in [
        // From port, to address, with tag.
        ((1, mac(99), None), vec![2]),
        ((1, mac(2), None), vec![]),
        ((2, mac(1), None), vec![]),
        ((0, mac(1), None), vec![2]),
        ((0, mac(99), None), vec![2]),
        ((0, mac(3), Some(5)), vec![4]),
        ((0, mac(99), Some(5)), vec![4]),
        ((3, mac(6), None), vec![4]),
        ((6, mac(99), None), vec![]),
        // All get it, but port 4, which does not listen to the group.
        ((1, GROUP, None), vec![]),
        ((3, GROUP, None), vec![4]),
        ((3, MacAddr::BROADCAST, None), vec![]),
        // What may not pass is shown to nobody.
        ((1, mac(3), Some(5)), vec![]),
        ((1, link_local, None), vec![]),
        ((9, mac(1), None), vec![]),
    ] {
        assert_eq!(shown(&mut switch, &mut pools, sent), wanted, "{sent:?}");
    }
    assert_eq!(pools.small.free(), 16, "every copy goes home");
    assert!(switch.set_onlooker(SwitchPortId(2), false));
    assert_eq!(shown(&mut switch, &mut pools, (1, mac(99), None)), []);
    switch.remove_port(SwitchPortId(4)).unwrap();
    switch.add_port(SwitchPortId(4), station(4, 5)).unwrap();
    assert!(!switch.has_onlookers(), "whoever is attached anew does not look on");
}

proptest! {
    /// A port that looks on sees each frame of its VLAN once, but its own, and none of another VLAN.
    #[test]
    fn who_looks_on_sees_each_frame_of_its_vlan_once(
        onlooker in prop::sample::select(vec![1u32, 2, 3, 4, 6]),
        filters: bool,
        from in prop::sample::select(vec![0u32, 1, 2, 3, 4, 6]),
        to in prop::sample::select(vec![1u8, 2, 3, 4, 6, 99, 255]),
        tag in prop::option::of(prop::sample::select(vec![5u16, 6, 7])),
    ) {
        let (mut switch, mut pools, mut drops) = (switch(true), pools(), DropCounters::default());
        let id = SwitchPortId(onlooker);
        prop_assert!(switch.set_onlooker(id, true));
        if filters {
            switch.set_groups(id, GroupFilter::only(vec![]));
        }
        let tag = tag.filter(|_| from == 0);
        let dst = if to == 255 { GROUP } else { mac(to) };
        let (sent, l2) = frame(&mut pools, mac(200), dst, tag);
        let from = SwitchPortId(from);
        let decided = switch.forward(NOW, from, &l2, &sent);
        let mut seen = 0;
        switch.show((from, &l2, decided), &sent, &mut pools, &mut drops, |_| true, |port, _| {
            seen += u32::from(port == id);
        });
        match decided {
            Destination::Port(port) => seen += u32::from(port == id),
            Destination::Flood => {
                switch.flood(from, &l2, sent, &mut pools, &mut drops, |port, _| seen += u32::from(port == id));
            }
            Destination::Drop(_) => {}
        }
        let vlan_of = |port: u32| [None, None, None, Some(5), Some(5), None, Some(6)][port as usize];
        let in_vlan = if from == UPLINK { tag } else { vlan_of(from.0) };
        let is_its = in_vlan == vlan_of(onlooker) && from != id;
        prop_assert_eq!(seen, u32::from(is_its), "{:?}", decided);
    }
}

proptest! {
    /// Unicast goes where a search of the list of ports would send it; a VLAN is never left; the sums add up.
    #[test]
    fn agrees_with_a_list_of_ports(
        stations in prop::collection::vec((0u8..12, 0u16..3), 1..12),
        removed in prop::collection::vec(any::<bool>(), 12),
        traffic in prop::collection::vec((0u32..13, 0u8..13, prop::option::of(0u16..4)), 1..60),
        has_uplink: bool,
    ) {
        let (mut switch, mut model) = (Switch::new(), vec![]);
        if has_uplink {
            switch.add_port(UPLINK, uplink()).unwrap();
        }
        for (n, (address, id)) in (1u32..).zip(stations) {
            let port = SwitchPortId(n);
            if switch.add_port(port, station(address, id)).is_ok() {
                model.push((port, mac(address), vlan(id)));
            }
        }
        model.retain(|&(port, ..)| !(removed[port.index() - 1] && switch.remove_port(port).is_some()));
        let (mut pools, mut drops) = (pools(), DropCounters::default());
        let (mut arrived, mut copies, mut delivered, mut bytes) = (0u64, 0u64, 0u64, 0u64);
        for (from, to, tag) in traffic {
            let from = SwitchPortId(from);
            let own = model.iter().find(|(port, ..)| *port == from);
            let is_uplink = has_uplink && from == UPLINK;
            let dst = if to == 12 { MacAddr::BROADCAST } else { mac(to) };
            let (mut sent, l2) = frame(&mut pools, mac(100), dst, tag);
            arrived += 1;
            let in_vlan = if is_uplink { l2.vlan } else { own.and_then(|&(_, _, id)| id) };
            let others = || model.iter().filter(|&&(port, _, id)| port != from && id == in_vlan);
            match switch.forward(NOW, from, &l2, &sent) {
                Destination::Port(port) => {
                    prop_assert!(own.is_some() && !l2.tagged || is_uplink);
                    let found = others().find(|&&(_, address, _)| address == dst).map(|&(port, ..)| port);
                    prop_assert_eq!(Some(port), found.or((has_uplink && !is_uplink).then_some(UPLINK)));
                    prop_assert!(switch.deliver(from, port, &l2, &mut sent));
                    delivered += 1;
                    bytes += sent.len() as u64;
                }
                Destination::Flood => {
                    let mut got = vec![];
                    let flooded = switch.flood(from, &l2, sent, &mut pools, &mut drops, |port, frame| {
                        got.push(port);
                        bytes += frame.len() as u64;
                    });
                    copies += (flooded.delivered as u64).saturating_sub(1);
                    delivered += flooded.delivered as u64;
                    let mut wanted: Vec<_> = others().map(|&(port, ..)| port).collect();
                    // A VLAN without stations is not flooded: nobody here is in it but the sender's wire.
                    let is_known = model.iter().any(|&(_, _, id)| id == in_vlan);
                    if has_uplink && !is_uplink && is_known {
                        wanted.insert(0, UPLINK);
                    }
                    prop_assert_eq!(got, wanted);
                }
                Destination::Drop(reason) => {
                    drops.count(reason);
                    let known = others().any(|&(_, address, _)| address == dst);
                    let is_sender = own.is_some() || is_uplink;
                    prop_assert!(!known || !is_sender || l2.tagged && !is_uplink, "{:?}", reason);
                }
            }
        }
        prop_assert_eq!(arrived + copies, delivered + drops.total());
        let sum = |f: fn(PortCounters) -> u64| switch.ports().filter_map(|p| switch.counters(p)).map(f).sum::<u64>();
        prop_assert_eq!(sum(|c| c.ipkts), delivered);
        prop_assert_eq!(sum(|c| c.rbytes), bytes);
        prop_assert_eq!(sum(|c| c.opkts + c.oerrors) + drops.of(DropReason::NoPort), arrived);
    }
}
