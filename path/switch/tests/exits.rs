//! Several exits: who lies beyond which is learned, what is for nobody known goes by all, and nobody here is ever thought to be beyond.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

use std::collections::HashMap;
use std::time::Duration;

use firelane_frame::{Frame, Pools, PoolsConfig};
use firelane_switch::{Destination, GroupFilter, L2, Located, PortConfig, Role, Switch};
use firelane_units::{DropCounters, DropReason, Instant, MacAddr, SwitchPortId, VlanId};
use proptest::prelude::*;

const UPLINK: SwitchPortId = SwitchPortId(0);
const TRUNKS: [SwitchPortId; 2] = [SwitchPortId(1), SwitchPortId(2)];
/// Stations 3 and 4 are in no VLAN, 5 in VLAN 5.
const STATIONS: [(u32, u16); 3] = [(3, 0), (4, 0), (5, 5)];
const NOW: Instant = Instant::from_secs(1000);
const UNKNOWN: Destination = Destination::Drop(DropReason::UnknownDestination);

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 8, 0x20, 0, 0, n])
}

fn tagged(role: Role) -> PortConfig {
    PortConfig { role, addresses: vec![], groups: GroupFilter::All }
}

fn switch(trunks: usize) -> Switch {
    let mut switch = Switch::new();
    switch.add_port(UPLINK, tagged(Role::Uplink)).unwrap();
    TRUNKS.iter().take(trunks).for_each(|&id| switch.add_port(id, tagged(Role::Trunk)).unwrap());
    for (port, id) in STATIONS {
        let role = Role::Station { vlan: VlanId::new(id) };
        let config = PortConfig { role, addresses: vec![mac(port as u8)], groups: GroupFilter::All };
        switch.add_port(SwitchPortId(port), config).unwrap();
    }
    switch
}

struct Bench {
    switch: Switch,
    pools: Pools,
    drops: DropCounters,
}

impl Bench {
    fn new(trunks: usize) -> Self {
        let pools = Pools::new(PoolsConfig { small_slots: 16, large_slots: 0 });
        Self { switch: switch(trunks), pools, drops: DropCounters::default() }
    }

    fn frame(&mut self, src: MacAddr, dst: MacAddr, tag: Option<u16>) -> (Frame, L2) {
        let mut bytes = [dst.0, src.0].concat();
        tag.iter().for_each(|id| bytes.extend([&[0x81, 0], id.to_be_bytes().as_slice()].concat()));
        bytes.extend_from_slice(&[0x88, 0xb5]);
        bytes.resize(64, 0xab);
        let l2 = L2 { dst, src, vlan: tag.and_then(VlanId::new), tagged: tag.is_some() };
        (self.pools.copy_of(&bytes).unwrap(), l2)
    }

    /// Who gets a frame, and what tag it has there.
    fn send(
        &mut self,
        now: Instant,
        from: SwitchPortId,
        src: MacAddr,
        dst: MacAddr,
        tag: Option<u16>,
    ) -> Vec<(u32, bool)> {
        let (mut sent, l2) = self.frame(src, dst, tag);
        let is_tagged = |frame: &Frame| frame.as_slice()[12..14] == [0x81, 0];
        match self.switch.forward(now, from, &l2, &sent) {
            Destination::Port(to) => {
                assert!(self.switch.deliver(from, to, &l2, &mut sent));
                vec![(to.0, is_tagged(&sent))]
            }
            Destination::Flood => {
                let mut got = vec![];
                let Self { switch, pools, drops } = self;
                switch.flood(from, &l2, sent, pools, drops, |to, frame| got.push((to.0, is_tagged(&frame))));
                got
            }
            drop => {
                assert_eq!(drop, UNKNOWN);
                vec![]
            }
        }
    }
}

#[test]
fn who_has_spoken_is_found_beyond_his_exit_until_he_was_silent_for_long() {
    let mut it = Bench::new(2);
    let (station, trunk) = (SwitchPortId(3), TRUNKS[0]);
    let far = mac(77);
    assert_eq!(it.send(NOW, station, mac(3), far, None), [(0, false), (1, false), (2, false)]);
    assert_eq!(it.send(NOW, trunk, far, mac(3), None), [(3, false)]);
    assert_eq!(it.send(NOW, station, mac(3), far, None), [(1, false)]);
    assert_eq!(it.send(NOW, UPLINK, mac(88), far, None), [(1, false)]);
    assert!(it.send(NOW, trunk, mac(99), far, None).is_empty(), "he is on that side");
    // In another VLAN he is somebody else.
    assert_eq!(it.send(NOW, SwitchPortId(5), mac(5), far, None), [(0, true), (1, true), (2, true)]);
    let later = |seconds: u64| NOW + Duration::from_secs(seconds);
    assert_eq!(it.send(later(299), station, mac(3), far, None), [(1, false)]);
    assert_eq!(it.send(later(300), station, mac(3), far, None).len(), 3);
    // He has moved.
    it.send(later(301), TRUNKS[1], far, mac(3), None);
    assert_eq!(it.send(later(301), station, mac(3), far, None), [(2, false)]);
    it.switch.remove_port(TRUNKS[1]);
    assert_eq!(it.send(later(301), station, mac(3), far, None), [(0, false), (1, false)]);
}

#[test]
fn a_station_here_is_never_thought_to_be_elsewhere() {
    let mut it = Bench::new(1);
    it.send(NOW, TRUNKS[0], mac(4), MacAddr::BROADCAST, None);
    assert_eq!(it.send(NOW, UPLINK, mac(77), mac(4), None), [(4, false)]);
    it.switch.remove_port(SwitchPortId(4));
    let exits = it.send(NOW, SwitchPortId(3), mac(3), mac(4), None);
    assert_eq!(exits, [(0, false), (1, false)], "what was said of him was not kept");
}

#[test]
fn where_no_station_is_what_comes_by_one_exit_goes_by_the_others_with_its_tag() {
    let mut it = Bench::new(1);
    STATIONS.iter().for_each(|&(port, _)| assert!(it.switch.remove_port(SwitchPortId(port)).is_some()));
    for (dst, tag) in
        [(MacAddr::BROADCAST, None), (MacAddr::BROADCAST, Some(9)), (mac(77), Some(9)), (mac(77), None)]
    {
        assert_eq!(it.send(NOW, UPLINK, mac(88), dst, tag), [(1, tag.is_some())]);
    }
    it.switch.remove_port(UPLINK);
    assert!(it.send(NOW, TRUNKS[0], mac(88), MacAddr::BROADCAST, None).is_empty());
}

#[test]
fn a_stations_port_may_be_an_exit_of_its_vlan() {
    let mut it = Bench::new(0);
    assert!(it.switch.set_exit(SwitchPortId(5), true) && !it.switch.set_exit(UPLINK, true));
    assert!(!it.switch.set_exit(SwitchPortId(9), true));
    assert_eq!(it.send(NOW, UPLINK, mac(88), mac(77), Some(5)), [(5, false)]);
    assert!(it.send(NOW, UPLINK, mac(88), mac(77), Some(6)).is_empty(), "it is not in that one");
    assert_eq!(it.send(NOW, SwitchPortId(5), mac(77), mac(99), None), [(0, true)]);
    assert_eq!(it.send(NOW, SwitchPortId(3), mac(3), mac(99), None), [(0, false)]);
    assert!(it.switch.set_exit(SwitchPortId(5), false) && !it.switch.learns());
    assert!(it.send(NOW, UPLINK, mac(88), mac(77), Some(5)).is_empty());
}

#[test]
fn a_flood_of_invented_stations_costs_copies_and_no_frame() {
    let mut it = Bench::new(1);
    let far = mac(77);
    it.send(NOW, TRUNKS[0], far, mac(3), None);
    for n in 0..100_000u32 {
        let [a, b, c, d] = n.to_be_bytes();
        it.send(NOW, UPLINK, MacAddr([6, a, b, c, d, 1]), mac(3), None);
    }
    let got = it.send(NOW, SwitchPortId(3), mac(3), far, None);
    assert!(got.contains(&(1, false)), "{got:?}");
}

impl Bench {
    /// Whether other replicas are to hear that a station was heard by an exit.
    fn is_news(&mut self, now: Instant, exit: SwitchPortId, station: MacAddr) -> bool {
        self.send(now, exit, station, mac(4), None);
        let news = self.switch.take_news();
        assert!(news.is_none_or(|it| it == Located { station, vlan: None }));
        news.is_some()
    }
}

#[test]
fn replicas_tell_each_other_who_is_new_or_has_moved_and_do_so_again_before_he_is_forgotten() {
    let (mut it, mut other) = (Bench::new(2), Bench::new(2));
    let (station, far) = (SwitchPortId(3), mac(77));
    let later = |seconds: u64| NOW + Duration::from_secs(seconds);
    let times =
        [(0, 0, true), (1, 0, false), (149, 0, false), (150, 0, true), (151, 1, true), (152, 1, false)];
    for (seconds, trunk, is_news) in times {
        assert_eq!(it.is_news(later(seconds), TRUNKS[trunk], far), is_news, "{seconds}");
        if is_news {
            other.switch.locate(later(seconds), TRUNKS[trunk], Located { station: far, vlan: None });
        }
        let got = other.send(later(seconds), station, mac(3), far, None);
        assert_eq!(got, [(TRUNKS[trunk].0, false)], "{seconds}");
    }
    assert!(!other.is_news(later(153), TRUNKS[1], far), "all know it");
    assert!(!it.is_news(later(153), station, mac(3)), "he is here");
    other.switch.locate(later(154), station, Located { station: mac(78), vlan: None });
    other.switch.locate(later(154), TRUNKS[0], Located { station: mac(4), vlan: None });
    assert_eq!(other.send(later(154), station, mac(3), mac(78), None).len(), 3, "that is no exit");
    assert_eq!(other.send(later(154), station, mac(3), mac(4), None), [(4, false)]);
}

#[test]
fn a_flood_of_invented_stations_is_not_told_and_keeps_no_other_exit_from_telling() {
    let mut it = Bench::new(2);
    let mut told = 0;
    for n in 0..10_000u16 {
        let [a, b] = n.to_be_bytes();
        told += usize::from(it.is_news(NOW, UPLINK, MacAddr([6, 1, 2, 3, a, b])));
    }
    assert_eq!(told, 512);
    assert!(it.is_news(NOW, TRUNKS[0], mac(77)));
    // Who could not be told of then is told of once that may be.
    assert!(!it.is_news(NOW, UPLINK, mac(78)));
    assert!(it.is_news(NOW + Duration::from_secs(10), UPLINK, mac(78)));
}

proptest! {
    /// As a table of everything that was heard says it, as long as few speak.
    #[test]
    fn agrees_with_a_list_of_who_was_heard(
        traffic in prop::collection::vec((0u32..6, 0u8..12, 0u8..12, any::<bool>(), 0u64..200), 1..80),
    ) {
        let mut it = Bench::new(2);
        let (mut heard, mut now) = (HashMap::new(), NOW);
        for (from, src, dst, in_vlan, seconds) in traffic {
            now += Duration::from_secs(seconds);
            let is_exit = from < 3;
            let tag = (in_vlan && is_exit).then_some(5);
            let vlan = if is_exit { tag } else { (from == 5).then_some(5) };
            let is_here = |address: u8| STATIONS.iter().find(|&&(port, id)| {
                u32::from(address) == port && vlan == (id != 0).then_some(id)
            });
            if is_exit && is_here(src).is_none() {
                heard.insert((src, vlan), (from, now));
            }
            let got = it.send_if_known(now, from, mac(src), mac(dst), tag);
            let known = heard.get(&(dst, vlan)).filter(|(_, at)| now.saturating_since(*at) < Duration::from_secs(300));
            let wanted: Vec<u32> = match (is_here(dst), known) {
                (Some(&(port, _)), _) => vec![port],
                (None, Some(&(exit, _))) => vec![exit],
                (None, None) => vec![0, 1, 2],
            };
            let wanted: Vec<u32> = wanted.into_iter().filter(|&port| port != from).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}

impl Bench {
    /// Who gets a frame, be it nobody for any reason.
    fn send_if_known(
        &mut self,
        now: Instant,
        from: u32,
        src: MacAddr,
        dst: MacAddr,
        tag: Option<u16>,
    ) -> Vec<u32> {
        let from = SwitchPortId(from);
        let (sent, l2) = self.frame(src, dst, tag);
        if matches!(self.switch.forward(now, from, &l2, &sent), Destination::Drop(_)) {
            return vec![];
        }
        self.send(now, from, src, dst, tag).into_iter().map(|(to, _)| to).collect()
    }
}
