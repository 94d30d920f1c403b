//! Flow rules of one VNIC or link: which flow a frame belongs to.
//!
//! A rule pins any combination of local and remote address prefix, transport protocol, local and remote port or range
//! of ports, DS field, VLAN, local and remote station. Local and remote are as the host sees them: inward, local is
//! the destination. A rule that pins VLAN and stations alone is for frames of every kind; the others are for packets.
//!
//! **Order.** The rule that pins more bits wins: prefix lengths, 8 for the transport, 16 for each port, 8 for each range
//! of ports, the bits of the DS mask, 12 for the VLAN, 48 for each station, and one for the address family if a
//! prefix names it. Of rules that pin the same, the one with the narrower range of local ports wins, then of remote
//! ports, then the lower one. So a rule that matches a part of what another matches always comes before it. Other
//! rules that pin equally many bits are ordered by what they pin: local address, remote address, local station, remote
//! station, VLAN, transport, local port, remote port, DS field, and last a range of local ports, one of remote ports. Two rules cannot
//! be identical.
//!
//! **Cost.** Rules that pin the same bits share one table, and a lookup probes each table once, the most
//! specific first. So 10,000 flows on local ports cost one probe, ranges of ports a binary search more, and the cost does
//! not depend on what traffic looks like: there is no cache that an attacker's headers could fill (CVE-2019-25076). The
//! number of tables is capped instead.

use hashbrown::HashTable;

use firelane_units::{Direction, FlowId, PortRange};

use crate::headers::Headers;
use crate::pins::{FlowMatch, Key, Mask, Pins, has, ports_of};
use crate::ranges::Ranges;
use crate::word_table::WordTable;

/// How many different sets of pinned bits the rules of one VNIC or link may have: each costs every frame a probe.
pub const MASK_SETS_MAX: usize = 64;

/// Why a rule was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleError {
    /// It pins nothing.
    Empty,
    /// Local and remote address are of different families.
    MixedFamilies,
    /// Another flow has the same attributes.
    Identical(FlowId),
    /// It would need more than [`MASK_SETS_MAX`] tables.
    TooManyMaskSets,
    /// More than [`crate::RANGE_PAIRS_MAX`] rules that are alike but for ranges of local and of remote ports.
    TooManyRangePairs,
}

/// The rules of one VNIC or link.
#[derive(Clone, Debug, Default)]
pub struct FlowRules {
    /// Most specific first.
    sets: Vec<MaskSet>,
}

/// Rules that pin the same bits.
#[derive(Clone, Debug)]
struct MaskSet {
    mask: Mask,
    /// What a packet must have for them to apply.
    needs: u8,
    table: Table,
}

/// The flows of a set.
#[derive(Clone, Debug)]
enum Table {
    /// No rule pins an address, and all keys are told apart by the rest.
    Plain(WordTable),
    /// Addresses count.
    Whole(HashTable<(Key, FlowId)>),
    /// Ranges of ports count.
    Ranges(HashTable<(Key, Ranges)>),
}

impl MaskSet {
    fn new(mask: Mask) -> Self {
        let table = match (mask.is_plain(), mask.ranged.any()) {
            (true, _) => Table::Plain(WordTable::new()),
            (false, false) => Table::Whole(HashTable::new()),
            (false, true) => Table::Ranges(HashTable::new()),
        };
        Self { mask, needs: mask.needs(), table }
    }

    fn get(&self, key: &Key, ranges: [PortRange; 2]) -> Option<FlowId> {
        match &self.table {
            Table::Plain(table) => table.find(key.rest),
            Table::Whole(table) => table.find(key.hash(), |(k, _)| k == key).map(|&(_, flow)| flow),
            Table::Ranges(table) => table.find(key.hash(), |(k, _)| k == key)?.1.get(ranges),
        }
    }

    /// Enters a rule that is not there.
    fn insert(&mut self, key: Key, ranges: [PortRange; 2], flow: FlowId) -> Result<(), RuleError> {
        match &mut self.table {
            Table::Plain(table) => table.insert(key.rest, flow),
            Table::Whole(table) => _ = table.insert_unique(key.hash(), (key, flow), |(k, _)| k.hash()),
            Table::Ranges(table) => {
                let ranged = self.mask.ranged;
                let alike = table.entry(key.hash(), |(k, _)| *k == key, |(k, _)| k.hash());
                let mut alike = alike.or_insert_with(|| (key, Ranges::new(ranged)));
                return alike.get_mut().1.insert(ranges, flow);
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &Key, ranges: [PortRange; 2]) -> Option<FlowId> {
        match &mut self.table {
            Table::Plain(table) => table.remove(key.rest),
            Table::Whole(table) => {
                let ((_, flow), _) = table.find_entry(key.hash(), |(k, _)| k == key).ok()?.remove();
                Some(flow)
            }
            Table::Ranges(table) => {
                let mut alike = table.find_entry(key.hash(), |(k, _)| k == key).ok()?;
                let flow = alike.get_mut().1.remove(ranges)?;
                if alike.get().1.len() == 0 {
                    alike.remove();
                }
                Some(flow)
            }
        }
    }

    fn len(&self) -> usize {
        match &self.table {
            Table::Plain(table) => table.len(),
            Table::Whole(table) => table.len(),
            Table::Ranges(table) => table.iter().map(|(_, ranges)| ranges.len()).sum(),
        }
    }
}

/// The flow of a packet whose addresses count. Out of the way of those that have no such rules.
#[inline(never)]
fn find_whole(
    table: &HashTable<(Key, FlowId)>,
    mask: &Key,
    headers: &Headers,
    direction: Direction,
    rest: u64,
) -> Option<FlowId> {
    let key = Key::of(headers, direction, rest).masked(mask);
    table.find(key.hash(), |(k, _)| *k == key).map(|&(_, flow)| flow)
}

/// The flow of a packet whose port lies in a range.
#[inline(never)]
fn find_in_ranges(
    table: &HashTable<(Key, Ranges)>,
    mask: &Key,
    headers: &Headers,
    direction: Direction,
    rest: u64,
) -> Option<FlowId> {
    let key = Key::of(headers, direction, rest).masked(mask);
    table.find(key.hash(), |(k, _)| *k == key)?.1.find(ports_of(rest))
}

impl FlowRules {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// The flow of the most specific rule that matches. Only whole transport headers match ports (RFC 3128).
    #[inline]
    pub fn lookup(&self, headers: &Headers, direction: Direction) -> Option<FlowId> {
        if self.sets.is_empty() {
            return None;
        }
        let lacks = !has(headers);
        let rest = Key::rest_of(headers, direction);
        for MaskSet { mask: Mask { bits, .. }, needs, table } in &self.sets {
            if needs & lacks != 0 {
                continue;
            }
            let found = match table {
                Table::Plain(table) => table.find(rest & bits.rest),
                Table::Whole(table) => find_whole(table, bits, headers, direction, rest),
                Table::Ranges(table) => find_in_ranges(table, bits, headers, direction, rest),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Adds a rule.
    pub fn insert(&mut self, rule: &FlowMatch, flow: FlowId) -> Result<(), RuleError> {
        let Pins { mask, key, ranges } = rule.compile()?;
        let at = self.sets.binary_search_by_key(&mask.order(), |set| set.mask.order());
        let at = match at {
            Ok(at) => at,
            Err(_) if self.sets.len() == MASK_SETS_MAX => return Err(RuleError::TooManyMaskSets),
            Err(at) => {
                self.sets.insert(at, MaskSet::new(mask));
                at
            }
        };
        let set = &mut self.sets[at];
        if let Some(other) = set.get(&key, ranges) {
            return Err(RuleError::Identical(other));
        }
        set.insert(key, ranges, flow)
    }

    /// Removes the rule with exactly these attributes; its flow, if there was one.
    pub fn remove(&mut self, rule: &FlowMatch) -> Option<FlowId> {
        let Pins { mask, key, ranges } = rule.compile().ok()?;
        let at = self.sets.binary_search_by_key(&mask.order(), |set| set.mask.order()).ok()?;
        let set = &mut self.sets[at];
        let flow = set.remove(&key, ranges)?;
        if set.len() == 0 {
            self.sets.remove(at);
        }
        Some(flow)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.sets.iter().map(MaskSet::len).sum()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// How many tables a lookup probes at most.
    pub fn mask_sets(&self) -> usize {
        self.sets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Fragment, L3};
    use crate::test_frames::{tcp_v4, tcp_v6, udp_v4};
    use proptest::prelude::*;
    use proptest::sample::select;

    use firelane_units::{DsField, IpPrefix, MacAddr, Port, VlanId};
    use firelane_wire::IpProtocol;

    const IN: Direction = Direction::In;
    const OUT: Direction = Direction::Out;

    /// The slow reference: every rule is compared with every packet, attribute by attribute.
    fn matches(rule: &FlowMatch, h: &Headers, direction: Direction) -> bool {
        let turned = |(src, dst)| if direction == IN { (dst, src) } else { (src, dst) };
        let addresses = h.addresses().map(turned);
        let (local_mac, remote_mac) = if direction == IN { (h.dst, h.src) } else { (h.src, h.dst) };
        let ports = h.ports.map(|(s, d)| if direction == IN { (d, s) } else { (s, d) });
        rule.local_ip.is_none_or(|p| addresses.is_some_and(|(local, _)| p.contains(local)))
            && rule.remote_ip.is_none_or(|p| addresses.is_some_and(|(_, remote)| p.contains(remote)))
            && rule.transport.is_none_or(|t| addresses.is_some() && t == h.protocol)
            && rule.local_port.is_none_or(|p| ports.is_some_and(|(local, _)| p.contains(local)))
            && rule.remote_port.is_none_or(|p| ports.is_some_and(|(_, remote)| p.contains(remote)))
            && rule.dsfield.is_none_or(|ds| addresses.is_some() && h.dsfield & ds.mask() == ds.value())
            && rule.vlan.is_none_or(|vlan| h.vlan == Some(vlan))
            && rule.local_mac.is_none_or(|mac| mac == local_mac)
            && rule.remote_mac.is_none_or(|mac| mac == remote_mac)
    }

    /// The rule without prefixes of length zero, and the family that they name.
    fn canonical(rule: &FlowMatch) -> (Option<bool>, FlowMatch) {
        let v4 = rule.local_ip.or(rule.remote_ip).map(|p| p.addr().is_ipv4());
        let counts = |p: &IpPrefix| p.prefix_len() > 0;
        let (local_ip, remote_ip) = (rule.local_ip.filter(counts), rule.remote_ip.filter(counts));
        (v4, FlowMatch { local_ip, remote_ip, ..*rule })
    }

    /// Whether `wide` matches everything that `narrow` matches, and more.
    fn is_within(narrow: &FlowMatch, wide: &FlowMatch) -> bool {
        let ((narrow_v4, narrow), (wide_v4, wide)) = (canonical(narrow), canonical(wide));
        let prefix = |n: Option<IpPrefix>, w: Option<IpPrefix>| match (n, w) {
            (_, None) => true,
            (Some(n), Some(w)) => n.prefix_len() >= w.prefix_len() && w.contains(n.addr()),
            (None, Some(_)) => false,
        };
        let ds = |n: Option<DsField>, w: Option<DsField>| match (n, w) {
            (_, None) => true,
            (Some(n), Some(w)) => n.mask() & w.mask() == w.mask() && n.value() & w.mask() == w.value(),
            (None, Some(_)) => false,
        };
        let range = |n: Option<PortRange>, w: Option<PortRange>| match (n, w) {
            (_, None) => true,
            (Some(n), Some(w)) => w.contains(n.first()) && w.contains(n.last()),
            (None, Some(_)) => false,
        };
        (narrow_v4, narrow) != (wide_v4, wide)
            && (wide_v4.is_none() || wide_v4 == narrow_v4)
            && prefix(narrow.local_ip, wide.local_ip)
            && prefix(narrow.remote_ip, wide.remote_ip)
            && ds(narrow.dsfield, wide.dsfield)
            && (wide.transport.is_none() || wide.transport == narrow.transport)
            && range(narrow.local_port, wide.local_port)
            && range(narrow.remote_port, wide.remote_port)
            && (wide.vlan.is_none() || wide.vlan == narrow.vlan)
            && (wide.local_mac.is_none() || wide.local_mac == narrow.local_mac)
            && (wide.remote_mac.is_none() || wide.remote_mac == narrow.remote_mac)
    }

    fn prefix() -> impl Strategy<Value = Option<IpPrefix>> {
        let texts = vec![
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.0.0.1",
            "10.0.1.1",
            "::/0",
            "fd00::/16",
            "fd00::/64",
            "fd00::1",
            "fd00:0:0:1::1",
            "::ffff:0:0/96",
        ];
        prop::option::weighted(0.4, select(texts).prop_map(|t| t.parse::<IpPrefix>().unwrap().network()))
    }

    fn rule() -> impl Strategy<Value = FlowMatch> {
        let ranges = ["80", "443", "5201", "80-443", "80-90", "400-6000", "1-65535"];
        let ranges = ranges.map(|range| range.parse::<PortRange>().unwrap()).to_vec();
        let port = || prop::option::weighted(0.3, select(ranges.clone()));
        let transport = prop::option::weighted(0.4, select(vec![IpProtocol::TCP, IpProtocol::UDP]));
        let ds = prop::option::weighted(
            0.3,
            select(vec![(0x20, 0xfc), (0x20, 0xe0), (0x28, 0xfc), (0x01, 0x03)])
                .prop_map(|(value, mask)| DsField::new(value, mask).unwrap()),
        );
        let vlan = prop::option::weighted(0.15, (1u16..3).prop_map(|vid| VlanId::new(vid).unwrap()));
        let mac = || prop::option::weighted(0.15, (1u8..3).prop_map(mac));
        let packet = (prefix(), prefix(), transport, port(), port(), ds);
        (packet, vlan, mac(), mac()).prop_map(
            |(
                (local_ip, remote_ip, transport, local_port, remote_port, dsfield),
                vlan,
                local_mac,
                remote_mac,
            )| {
                FlowMatch {
                    local_ip,
                    remote_ip,
                    transport,
                    local_port,
                    remote_port,
                    dsfield,
                    vlan,
                    local_mac,
                    remote_mac,
                }
            },
        )
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn headers() -> impl Strategy<Value = Headers> {
        let port = || select(vec![80u16, 443, 5201, 9]);
        let host = || select(vec![0x0a00_0001u32, 0x0a00_0002, 0x0a00_0101, 0x0b00_0001]);
        let ds = select(vec![0u8, 0x20, 0x28, 0x29, 0x01]);
        let fragment = select(vec![Fragment::Whole, Fragment::Whole, Fragment::Later]);
        let link = (1u8..3, 1u8..3, 0u16..3, prop::bool::weighted(0.1));
        let packet = (0u8..3, host(), host(), port(), port(), ds, fragment);
        (packet, link).prop_map(|((kind, a, b, p, q, ds, fragment), (dst, src, vid, is_arp))| {
            let v6 =
                |n: u32| (0xfd00_u128 << 112 | u128::from(n >> 8 & 1) << 64 | u128::from(n & 0xff)).into();
            let frame = match kind {
                0 => tcp_v4(a.into(), b.into(), p, q),
                1 => udp_v4(a.into(), b.into(), p, q),
                _ => tcp_v6(v6(a), v6(b), p, q),
            };
            let mut headers = Headers::parse(&frame).unwrap();
            headers.dsfield = ds;
            headers.fragment = fragment;
            if fragment == Fragment::Later {
                headers.ports = None;
            }
            (headers.dst, headers.src, headers.vlan) = (mac(dst), mac(src), VlanId::new(vid));
            if is_arp {
                (headers.l3, headers.ports, headers.protocol) = (L3::Arp, None, IpProtocol(0));
                headers.dsfield = 0;
            }
            headers
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn the_answer_is_the_most_specific_of_all_that_match(
            wanted in prop::collection::vec(rule(), 0..16),
            packets in prop::collection::vec(headers(), 1..12),
            removed in prop::collection::vec(any::<bool>(), 16),
        ) {
            let (mut rules, mut model) = (FlowRules::new(), vec![]);
            for (n, rule) in (0..).zip(wanted) {
                match rules.insert(&rule, FlowId(n)) {
                    Ok(()) => model.push((rule, FlowId(n))),
                    Err(RuleError::Identical(other)) => {
                        let same = |r: &FlowMatch| canonical(r) == canonical(&rule);
                        prop_assert!(model.iter().any(|(r, f)| same(r) && *f == other));
                    }
                    Err(_) => {}
                }
            }
            model.retain(|(rule, flow)| {
                let remove = removed[flow.0 as usize];
                if remove {
                    assert_eq!(rules.remove(rule), Some(*flow));
                }
                !remove
            });
            prop_assert_eq!(rules.len(), model.len());
            for (packet, direction) in packets.iter().flat_map(|p| Direction::ALL.map(|d| (p, d))) {
                let all: Vec<_> = model.iter().filter(|(rule, _)| matches(rule, packet, direction)).collect();
                let found = rules.lookup(packet, direction);
                prop_assert_eq!(found.is_some(), !all.is_empty());
                let Some(&(best, _)) = all.iter().find(|(_, flow)| Some(*flow) == found) else {
                    prop_assert!(found.is_none(), "a rule that does not match");
                    continue;
                };
                prop_assert!(!all.iter().any(|(other, _)| is_within(other, best)), "{best:?} hides a narrower");
                prop_assert_eq!(all.iter().map(|(rule, _)| rule.rank()).min(), Some(best.rank()));
            }
        }

        #[test]
        fn a_narrower_rule_comes_first(a in rule(), b in rule()) {
            if let (Some(narrow), Some(wide)) = (a.rank(), b.rank())
                && is_within(&a, &b)
            {
                prop_assert!(narrow < wide);
            }
        }
    }

    fn local_port(port: u16) -> FlowMatch {
        FlowMatch {
            transport: Some(IpProtocol::TCP),
            local_port: Some(Port(port).into()),
            ..FlowMatch::default()
        }
    }

    #[test]
    fn local_is_the_destination_inward_and_the_source_outward() {
        let mut rules = FlowRules::new();
        rules.insert(&local_port(5201), FlowId(1)).unwrap();
        let to_server = Headers::parse(&tcp_v4(1.into(), 2.into(), 40_000, 5201)).unwrap();
        let from_server = Headers::parse(&tcp_v4(2.into(), 1.into(), 5201, 40_000)).unwrap();
        assert_eq!((rules.lookup(&to_server, IN), rules.lookup(&to_server, OUT)), (Some(FlowId(1)), None));
        assert_eq!(
            (rules.lookup(&from_server, IN), rules.lookup(&from_server, OUT)),
            (None, Some(FlowId(1)))
        );
    }

    /// Each pins as many bits as the one behind it.
    #[test]
    fn rules_that_pin_equally_many_bits_are_ordered_by_what_they_pin() {
        let ip = |text: &str| Some(text.parse::<IpPrefix>().unwrap().network());
        let ports = |text: &str| Some(text.parse::<PortRange>().unwrap());
        let none = FlowMatch::default();
        let tcp = FlowMatch { transport: Some(IpProtocol::TCP), ..none };
        let ds = |mask| DsField::new(0x20, mask);
        for (first, second) in [
            (
                FlowMatch { local_ip: ip("10.0.0.0/24"), ..none },
                FlowMatch { remote_ip: ip("10.0.0.0/24"), ..none },
            ),
            (FlowMatch { remote_ip: ip("10.0.0.0/11"), ..none }, FlowMatch { vlan: VlanId::new(9), ..none }),
            (FlowMatch { local_mac: Some(mac(1)), ..none }, FlowMatch { remote_mac: Some(mac(1)), ..none }),
            (
                FlowMatch { vlan: VlanId::new(9), dsfield: ds(0xf0), ..none },
                FlowMatch { dsfield: ds(0xff), ..tcp },
            ),
            (tcp, FlowMatch { dsfield: ds(0xff), ..none }),
            (FlowMatch { local_port: ports("80"), ..tcp }, FlowMatch { remote_port: ports("80"), ..tcp }),
            (
                FlowMatch { remote_port: ports("80"), ..tcp },
                FlowMatch { local_port: ports("1-80"), dsfield: ds(0xff), ..tcp },
            ),
            (FlowMatch { dsfield: ds(0xff), ..tcp }, FlowMatch { local_port: ports("80-90"), ..tcp }),
            (
                FlowMatch { local_port: ports("80-90"), ..tcp },
                FlowMatch { remote_port: ports("80-81"), ..tcp },
            ),
        ] {
            let pinned = |rule: &FlowMatch| rule.compile().unwrap().mask.order().0.0;
            assert_eq!(pinned(&first), pinned(&second), "{first:?} {second:?}");
            assert!(first.rank() < second.rank(), "{first:?} {second:?}");
        }
    }

    #[test]
    fn refusals() {
        let ip = |text: &str| Some(text.parse::<IpPrefix>().unwrap());
        let mut rules = FlowRules::new();
        assert_eq!(rules.insert(&FlowMatch::default(), FlowId(1)), Err(RuleError::Empty));
        let mixed = FlowMatch { local_ip: ip("10.0.0.1"), remote_ip: ip("fd00::/8"), ..FlowMatch::default() };
        assert_eq!(rules.insert(&mixed, FlowId(1)), Err(RuleError::MixedFamilies));
        rules.insert(&local_port(80), FlowId(1)).unwrap();
        assert_eq!(rules.insert(&local_port(80), FlowId(2)), Err(RuleError::Identical(FlowId(1))));
        // Host bits do not make a rule another one.
        let net = |text| FlowMatch { local_ip: ip(text), ..FlowMatch::default() };
        rules.insert(&net("10.0.0.0/24"), FlowId(3)).unwrap();
        assert_eq!(rules.insert(&net("10.0.0.7/24"), FlowId(4)), Err(RuleError::Identical(FlowId(3))));
        assert_eq!(
            (rules.remove(&net("10.0.0.9/24")), rules.remove(&net("10.0.0.9/24"))),
            (Some(FlowId(3)), None)
        );
    }

    /// Tuple-space explosion (CVE-2019-25076): what a look-up costs is the operator's doing alone, whatever headers come.
    #[test]
    fn r10_the_cost_of_a_lookup_is_capped() {
        let mut rules = FlowRules::new();
        for port in 0..10_000 {
            rules.insert(&local_port(port), FlowId(u32::from(port))).unwrap();
        }
        assert_eq!((rules.len(), rules.mask_sets()), (10_000, 1));
        let prefix = |len| FlowMatch {
            local_ip: IpPrefix::new(core::net::Ipv6Addr::LOCALHOST.into(), len),
            ..FlowMatch::default()
        };
        let accepted = (0..=128).filter(|&len| rules.insert(&prefix(len), FlowId(0)).is_ok()).count();
        assert_eq!((accepted, rules.mask_sets()), (MASK_SETS_MAX - 1, MASK_SETS_MAX));
        assert_eq!(rules.insert(&prefix(128), FlowId(0)), Err(RuleError::TooManyMaskSets));
        assert_eq!(
            rules.insert(&local_port(10_000), FlowId(0)),
            Ok(()),
            "a set that exists takes more rules"
        );
    }

    #[test]
    fn a_rule_of_stations_and_vlan_is_for_frames_of_every_kind() {
        let mut rules = FlowRules::new();
        let of_vlan = FlowMatch { vlan: VlanId::new(7), ..FlowMatch::default() };
        let of_station = FlowMatch { remote_mac: Some(mac(9)), ..FlowMatch::default() };
        let packets = FlowMatch { transport: Some(IpProtocol(0)), ..of_vlan };
        rules.insert(&of_vlan, FlowId(1)).unwrap();
        rules.insert(&of_station, FlowId(2)).unwrap();
        rules.insert(&packets, FlowId(3)).unwrap();
        let arp = Headers { l3: L3::Arp, vlan: VlanId::new(7), src: mac(9), dst: mac(1), ..Headers::EMPTY };
        assert_eq!(rules.lookup(&arp, IN), Some(FlowId(2)), "48 bits before 12");
        assert_eq!(rules.lookup(&arp, OUT), Some(FlowId(1)), "what is no packet has no protocol 0");
        assert_eq!(rules.lookup(&Headers { vlan: None, ..arp }, OUT), None);
    }

    #[test]
    fn one_port_comes_before_a_range_and_a_narrow_range_before_a_wide_one() {
        let range = |text: &str| FlowMatch {
            transport: Some(IpProtocol::TCP),
            local_port: Some(text.parse().unwrap()),
            ..FlowMatch::default()
        };
        let mut rules = FlowRules::new();
        for (text, flow) in [("1-65535", 1), ("8000-8999", 2), ("8080", 3), ("8000-8100", 4)] {
            rules.insert(&range(text), FlowId(flow)).unwrap();
        }
        let to = |port| Headers::parse(&tcp_v4(1.into(), 2.into(), 9, port)).unwrap();
        let flow = |rules: &FlowRules, port| rules.lookup(&to(port), IN).map(|flow| flow.0);
        let found = [80, 8000, 8080, 8100, 8101, 8999, 9000].map(|port| flow(&rules, port));
        assert_eq!(found, [1, 4, 3, 4, 2, 2, 1].map(Some));
        assert_eq!(rules.insert(&range("8000-8999"), FlowId(9)), Err(RuleError::Identical(FlowId(2))));
        assert_eq!(rules.remove(&range("8000-8999")), Some(FlowId(2)));
        assert_eq!((flow(&rules, 8500), rules.len(), rules.mask_sets()), (Some(1), 3, 2));
    }
}
