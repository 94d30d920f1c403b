//! Flow rules of one VNIC: which flow a packet belongs to.
//!
//! A rule pins any combination of local and remote address prefix, transport protocol, local and remote port
//! and DS field. Local and remote are as the VNIC's user sees them: inward, local is the destination.
//!
//! **Order.** The rule that pins more bits wins: prefix lengths, 8 for the transport, 16 for each port, the bits
//! of the DS mask, and one for the address family if a prefix names it. So a rule that matches a part of what
//! another matches always comes before it. Rules that pin equally many bits are ordered by what they pin: local
//! address, remote address, transport, local port, remote port, DS field. Two rules cannot be identical.
//!
//! **Cost.** Rules that pin the same bits share one table, and a lookup probes each table once, the most
//! specific first. So 10,000 flows on local ports cost one probe, and the cost does not depend on what traffic
//! looks like: there is no cache that an attacker's headers could fill (CVE-2019-25076). The number of tables is
//! capped instead.

use core::cmp::Reverse;
use core::net::IpAddr;

use hashbrown::HashTable;

use firelane_units::{Direction, FlowId, IpPrefix, Port};
use firelane_wire::IpProtocol;

use crate::headers::{Headers, L3};
use crate::mix::{fold, halves};
use crate::tuple::mapped;
use crate::word_table::WordTable;

/// How many different sets of pinned bits one VNIC's rules may have: each costs every frame a probe.
pub const MASK_SETS_MAX: usize = 64;

/// What a flow's packets have in common. Absent attributes match everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowMatch {
    /// The local address.
    pub local_ip: Option<IpPrefix>,
    /// The remote address.
    pub remote_ip: Option<IpPrefix>,
    /// The transport protocol.
    pub transport: Option<IpProtocol>,
    /// The local port.
    pub local_port: Option<Port>,
    /// The remote port.
    pub remote_port: Option<Port>,
    /// The DS field.
    pub dsfield: Option<DsField>,
}

/// A value of the DS field and the bits of it that count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DsField {
    value: u8,
    mask: u8,
}

impl DsField {
    /// `None` if the mask is empty. Bits of `value` outside the mask are cleared.
    pub const fn new(value: u8, mask: u8) -> Option<Self> {
        if mask == 0 { None } else { Some(Self { value: value & mask, mask }) }
    }

    /// The value, within the mask.
    pub const fn value(self) -> u8 {
        self.value
    }

    /// The bits that count.
    pub const fn mask(self) -> u8 {
        self.mask
    }
}

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
}

/// The rules of one VNIC.
#[derive(Clone, Default)]
pub struct FlowRules {
    /// Most specific first.
    sets: Vec<MaskSet>,
}

/// Rules that pin the same bits.
#[derive(Clone)]
struct MaskSet {
    mask: Mask,
    table: Table,
}

/// The flows of a set.
#[derive(Clone)]
enum Table {
    /// No rule pins an address, and all keys are told apart by the rest.
    Plain(WordTable),
    /// Addresses count.
    Whole(HashTable<(Key, FlowId)>),
}

impl MaskSet {
    fn new(mask: Mask) -> Self {
        let is_plain = mask.bits.local | mask.bits.remote == 0;
        let table = if is_plain { Table::Plain(WordTable::new()) } else { Table::Whole(HashTable::new()) };
        Self { mask, table }
    }

    fn get(&self, key: &Key) -> Option<FlowId> {
        match &self.table {
            Table::Plain(table) => table.find(key.rest),
            Table::Whole(table) => table.find(key.hash(), |(k, _)| k == key).map(|&(_, flow)| flow),
        }
    }

    /// Enters a key that is not there.
    fn insert(&mut self, key: Key, flow: FlowId) {
        match &mut self.table {
            Table::Plain(table) => table.insert(key.rest, flow),
            Table::Whole(table) => _ = table.insert_unique(key.hash(), (key, flow), |(k, _)| k.hash()),
        }
    }

    fn remove(&mut self, key: &Key) -> Option<FlowId> {
        match &mut self.table {
            Table::Plain(table) => table.remove(key.rest),
            Table::Whole(table) => {
                let ((_, flow), _) = table.find_entry(key.hash(), |(k, _)| k == key).ok()?.remove();
                Some(flow)
            }
        }
    }

    fn len(&self) -> usize {
        match &self.table {
            Table::Plain(table) => table.len(),
            Table::Whole(table) => table.len(),
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

/// Which bits of a packet are pinned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Mask {
    bits: Key,
    family: Family,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    Any,
    V4,
    V6,
}

/// A packet's values, the pinned bits of them, or their mask. IPv4 addresses are in mapped form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    local: u128,
    remote: u128,
    /// Protocol, local port, remote port and DS field, from high to low.
    rest: u64,
}

impl FlowRules {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// The flow of the most specific rule that matches. Only IP packets belong to flows, and only whole
    /// transport headers match ports (RFC 3128).
    #[inline]
    pub fn lookup(&self, headers: &Headers, direction: Direction) -> Option<FlowId> {
        if self.sets.is_empty() {
            return None;
        }
        let family = match headers.l3 {
            L3::V4 { .. } => Family::V4,
            L3::V6 { .. } => Family::V6,
            L3::Arp | L3::Malformed | L3::Other => return None,
        };
        let has_ports = headers.ports.is_some();
        let rest = Key::rest_of(headers, direction);
        for MaskSet { mask: Mask { bits, family: wanted }, table } in &self.sets {
            let is_family = *wanted == Family::Any || *wanted == family;
            if !is_family || (!has_ports && bits.rest & PORTS != 0) {
                continue;
            }
            let found = match table {
                Table::Plain(table) => table.find(rest & bits.rest),
                Table::Whole(table) => find_whole(table, bits, headers, direction, rest),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Adds a rule.
    pub fn insert(&mut self, rule: &FlowMatch, flow: FlowId) -> Result<(), RuleError> {
        let (mask, key) = rule.compile()?;
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
        if let Some(other) = set.get(&key) {
            return Err(RuleError::Identical(other));
        }
        set.insert(key, flow);
        Ok(())
    }

    /// Removes the rule with exactly these attributes; its flow, if there was one.
    pub fn remove(&mut self, rule: &FlowMatch) -> Option<FlowId> {
        let (mask, key) = rule.compile().ok()?;
        let at = self.sets.binary_search_by_key(&mask.order(), |set| set.mask.order()).ok()?;
        let set = &mut self.sets[at];
        let flow = set.remove(&key)?;
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

impl FlowMatch {
    /// Splits the rule into which bits it pins and to what.
    fn compile(&self) -> Result<(Mask, Key), RuleError> {
        if *self == Self::default() {
            return Err(RuleError::Empty);
        }
        let family = match (self.local_ip.map(family), self.remote_ip.map(family)) {
            (None, None) => Family::Any,
            (Some(a), Some(b)) if a != b => return Err(RuleError::MixedFamilies),
            (Some(named), _) | (None, Some(named)) => named,
        };
        let port = |port: Option<Port>| port.map_or((0, 0), |p| (p.0, u16::MAX));
        let ((local_port, local_mask), (remote_port, remote_mask)) =
            (port(self.local_port), port(self.remote_port));
        let (protocol, protocol_mask) = self.transport.map_or((0, 0), |t| (t.0, u8::MAX));
        let (ds, ds_mask) = self.dsfield.map_or((0, 0), |ds| (ds.value, ds.mask));
        let mask = Key {
            local: self.local_ip.map_or(0, mask_bits),
            remote: self.remote_ip.map_or(0, mask_bits),
            rest: pack(protocol_mask, local_mask, remote_mask, ds_mask),
        };
        let key = Key {
            local: self.local_ip.map_or(0, |p| bits(p.addr())),
            remote: self.remote_ip.map_or(0, |p| bits(p.addr())),
            rest: pack(protocol, local_port, remote_port, ds),
        };
        Ok((Mask { bits: mask, family }, key.masked(&mask)))
    }
}

impl Mask {
    /// How many bits are pinned.
    fn pinned(&self) -> u32 {
        let named = u32::from(self.family != Family::Any);
        // The mapped form's first 96 bits are pinned by the family already.
        let address = |mask: u128| match self.family {
            Family::V4 => (mask as u32).count_ones(),
            Family::Any | Family::V6 => mask.count_ones(),
        };
        named + address(self.bits.local) + address(self.bits.remote) + self.bits.rest.count_ones()
    }

    /// What the tables are sorted by: the first is the most specific.
    fn order(&self) -> Reverse<(u32, Self)> {
        Reverse((self.pinned(), *self))
    }
}

impl Key {
    /// What a packet pins beside its addresses.
    #[inline]
    fn rest_of(headers: &Headers, direction: Direction) -> u64 {
        let (src, dst) = headers.ports.map_or((0, 0), |(s, d)| (s.0, d.0));
        let (local, remote) = match direction {
            Direction::In => (dst, src),
            Direction::Out => (src, dst),
        };
        pack(headers.protocol.0, local, remote, headers.dsfield)
    }

    /// All values of a packet.
    #[inline]
    fn of(headers: &Headers, direction: Direction, rest: u64) -> Self {
        let (src, dst) = match headers.l3 {
            L3::V4 { src, dst } => (mapped(src), mapped(dst)),
            L3::V6 { src, dst } => (src.to_bits(), dst.to_bits()),
            L3::Arp | L3::Malformed | L3::Other => (0, 0),
        };
        let (local, remote) = match direction {
            Direction::In => (dst, src),
            Direction::Out => (src, dst),
        };
        Self { local, remote, rest }
    }

    #[inline]
    const fn masked(&self, mask: &Self) -> Self {
        Self {
            local: self.local & mask.local,
            remote: self.remote & mask.remote,
            rest: self.rest & mask.rest,
        }
    }

    /// Only the operator chooses what a table holds, so the constants need not be secret.
    #[inline]
    const fn hash(&self) -> u64 {
        let rest = self.rest ^ 0x8ebc_6af0_9c88_c6e3;
        let [local_high, local_low] = halves(self.local);
        let [remote_high, remote_low] = halves(self.remote);
        let a = fold(local_low ^ 0x9e37_79b9_7f4a_7c15, local_high ^ 0xd1b5_4a32_d192_ed03);
        let b = fold(remote_low ^ 0xa076_1d64_78bd_642f, remote_high ^ 0xe703_7ed1_a0b4_28db);
        fold(a ^ b.rotate_left(32), rest)
    }
}

/// The port bits of [`pack`].
const PORTS: u64 = pack(0, u16::MAX, u16::MAX, 0);

#[inline]
const fn pack(protocol: u8, local_port: u16, remote_port: u16, dsfield: u8) -> u64 {
    (protocol as u64) << 40 | (local_port as u64) << 24 | (remote_port as u64) << 8 | dsfield as u64
}

const fn family(prefix: IpPrefix) -> Family {
    if prefix.addr().is_ipv4() { Family::V4 } else { Family::V6 }
}

const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => mapped(a),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The prefix's mask on the mapped form. Length zero pins the family only, as every such prefix does.
fn mask_bits(prefix: IpPrefix) -> u128 {
    let width = if prefix.addr().is_ipv4() { 32 } else { 128 };
    match prefix.prefix_len() {
        0 => 0,
        len => u128::MAX << (width - u32::from(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Fragment;
    use crate::test_frames::{tcp_v4, tcp_v6, udp_v4};
    use proptest::prelude::*;
    use proptest::sample::select;

    const IN: Direction = Direction::In;
    const OUT: Direction = Direction::Out;

    /// The slow reference: every rule is compared with every packet, attribute by attribute.
    fn matches(rule: &FlowMatch, h: &Headers, direction: Direction) -> bool {
        let Some((src, dst)) = h.addresses() else { return false };
        let (local, remote) = if direction == IN { (dst, src) } else { (src, dst) };
        let ports = h.ports.map(|(s, d)| if direction == IN { (d, s) } else { (s, d) });
        rule.local_ip.is_none_or(|p| p.contains(local))
            && rule.remote_ip.is_none_or(|p| p.contains(remote))
            && rule.transport.is_none_or(|t| t == h.protocol)
            && rule.local_port.is_none_or(|p| ports.is_some_and(|(local, _)| local == p))
            && rule.remote_port.is_none_or(|p| ports.is_some_and(|(_, remote)| remote == p))
            && rule.dsfield.is_none_or(|ds| h.dsfield & ds.mask() == ds.value())
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
        (narrow_v4, narrow) != (wide_v4, wide)
            && (wide_v4.is_none() || wide_v4 == narrow_v4)
            && prefix(narrow.local_ip, wide.local_ip)
            && prefix(narrow.remote_ip, wide.remote_ip)
            && ds(narrow.dsfield, wide.dsfield)
            && (wide.transport.is_none() || wide.transport == narrow.transport)
            && (wide.local_port.is_none() || wide.local_port == narrow.local_port)
            && (wide.remote_port.is_none() || wide.remote_port == narrow.remote_port)
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
        let port = || prop::option::weighted(0.3, select(vec![Port(80), Port(443), Port(5201)]));
        let transport = prop::option::weighted(0.4, select(vec![IpProtocol::TCP, IpProtocol::UDP]));
        let ds = prop::option::weighted(
            0.3,
            select(vec![(0x20, 0xfc), (0x20, 0xe0), (0x28, 0xfc), (0x01, 0x03)])
                .prop_map(|(value, mask)| DsField::new(value, mask).unwrap()),
        );
        (prefix(), prefix(), transport, port(), port(), ds).prop_map(
            |(local_ip, remote_ip, transport, local_port, remote_port, dsfield)| FlowMatch {
                local_ip,
                remote_ip,
                transport,
                local_port,
                remote_port,
                dsfield,
            },
        )
    }

    fn headers() -> impl Strategy<Value = Headers> {
        let port = || select(vec![80u16, 443, 5201, 9]);
        let host = || select(vec![0x0a00_0001u32, 0x0a00_0002, 0x0a00_0101, 0x0b00_0001]);
        let ds = select(vec![0u8, 0x20, 0x28, 0x29, 0x01]);
        let fragment = select(vec![Fragment::Whole, Fragment::Whole, Fragment::Later]);
        (0u8..3, host(), host(), port(), port(), ds, fragment).prop_map(|(kind, a, b, p, q, ds, fragment)| {
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
                let remove = removed[flow.index()];
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
            }
        }

        #[test]
        fn a_narrower_rule_comes_first(a in rule(), b in rule()) {
            if let (Ok((narrow, _)), Ok((wide, _))) = (a.compile(), b.compile())
                && is_within(&a, &b)
            {
                prop_assert!(narrow.order() < wide.order());
            }
        }
    }

    fn local_port(port: u16) -> FlowMatch {
        FlowMatch { transport: Some(IpProtocol::TCP), local_port: Some(Port(port)), ..FlowMatch::default() }
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
}
