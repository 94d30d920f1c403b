//! Rules of the packet filter out of arbitrary bytes: whatever ipf(5) can say, and few for models.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;

use firelane_model::{IpfRule, LinkName, Model, Netstack, Pool, PoolEntry, PoolNumber, Vnic};
use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterAddresses, FilterEnd, FilterLog, FilterMatch, FilterPorts,
    FilterProtocol, FilterRule, GroupCall, IpPrefix, KeepState, MapKey, PacketTrait, Port, TcpFlagsMatch,
};

use crate::{Dice, name};

/// A rule in which everything that a rule may say is said sooner or later.
pub fn ipf_rule(bytes: &[u8]) -> IpfRule {
    let dice = &mut Dice(bytes);
    let protocol = dice.filter_protocol();
    let number = |number| protocol == FilterProtocol::Number(number);
    let has_ports = protocol == FilterProtocol::TcpUdp || number(6) || number(17);
    let family = match protocol {
        FilterProtocol::Number(1) => Some(true),
        FilterProtocol::Number(58) => Some(false),
        _ => dice.maybe(|dice| dice.below(2) == 0),
    };
    let action = dice.filter_action(number(6));
    let passes = action == FilterAction::Pass;
    let calls = matches!(action, FilterAction::Call(_));
    let log = FilterLog { first: dice.below(2) == 1, body: dice.below(2) == 1 };
    let (set, mask) = (dice.below(256) as u8, dice.below(256) as u8);
    let head = dice.maybe(|dice| NonZeroU32::new(1 + dice.below(9) as u32)).flatten();
    let rule = FilterRule {
        direction: Direction::ALL[dice.below(2)],
        action,
        log: Some(log).filter(|_| action == FilterAction::Log || (dice.below(2) == 1 && !calls)),
        quick: dice.below(2) == 1,
        link: dice.maybe(|dice| name("web", dice.below(200))),
        matching: FilterMatch {
            tos: dice.maybe(|dice| dice.below(256) as u8),
            ttl: dice.maybe(|dice| dice.below(256) as u8),
            protocol,
            from: dice.filter_end(family, has_ports),
            to: dice.filter_end(family, has_ports),
            flags: dice
                .maybe(|_| TcpFlagsMatch { set: set & mask, mask })
                .filter(|it| number(6) && it.mask > 0),
            icmp: dice
                .maybe(|dice| (dice.below(256) as u8, dice.maybe(|dice| dice.below(256) as u8)))
                .filter(|_| number(1) || number(58)),
            with: PacketTrait::ALL
                .into_iter()
                .filter_map(|it| dice.maybe(|dice| (it, dice.below(2) == 1)))
                .collect(),
        },
        keep_state: dice.maybe(Dice::keep_state).filter(|_| passes),
        keep_frags: passes && dice.below(2) == 1,
        head: head.filter(|_| !calls),
        group: dice.maybe(|dice| NonZeroU32::new(10 + dice.below(9) as u32)).flatten(),
    };
    IpfRule::new(rule).expect("nothing in it contradicts itself")
}

impl Dice<'_> {
    fn filter_protocol(&mut self) -> FilterProtocol {
        match self.below(8) {
            0 => FilterProtocol::Any,
            1 => FilterProtocol::TcpUdp,
            2 => FilterProtocol::Number(1),
            3 => FilterProtocol::Number(58),
            4 | 5 => FilterProtocol::Number(6),
            6 => FilterProtocol::Number(17),
            _ => FilterProtocol::Number(self.below(256) as u8),
        }
    }

    fn filter_action(&mut self, is_tcp: bool) -> FilterAction {
        match self.below(9) {
            0..=2 => FilterAction::Pass,
            3 => FilterAction::Count,
            4 => FilterAction::Log,
            5 => FilterAction::Skip(1 + self.below(256) as u16 * 257 % 65_535),
            6 if is_tcp => FilterAction::Block(BlockAnswer::Reset),
            8 => FilterAction::Call(GroupCall {
                map: self.below(256) as u32 * 16_843_009,
                by: [MapKey::Source, MapKey::Destination][self.below(2)],
            }),
            7 => {
                let (code, as_dest) = (self.below(16) as u8, self.below(2) == 1);
                FilterAction::Block(BlockAnswer::Icmp { code, as_dest })
            }
            _ => FilterAction::Block(BlockAnswer::Silent),
        }
    }

    /// An address of the family, if it must have one.
    fn filter_end(&mut self, v4: Option<bool>, has_ports: bool) -> FilterEnd {
        let addresses = match (self.below(4), v4) {
            (1, _) => FilterAddresses::Pool(self.below(256) as u32 * 16_843_009),
            (2 | 3, Some(v4)) => {
                let high = self.below(256) as u8;
                let addr = match v4 {
                    true => IpAddr::V4(Ipv4Addr::new(high, 2, 0, self.below(256) as u8)),
                    false => IpAddr::V6(Ipv6Addr::new(u16::from(high) << 8, 0, 0, 0, 0, 0, 0, 1)),
                };
                let len = self.below(if v4 { 33 } else { 129 }) as u8;
                FilterAddresses::Prefix(IpPrefix::new(addr, len).expect("a length of its family"))
            }
            _ => FilterAddresses::Any,
        };
        let negated = addresses != FilterAddresses::Any && self.below(2) == 1;
        let ports = if has_ports { self.filter_ports() } else { FilterPorts::Any };
        FilterEnd { negated, addresses, ports }
    }

    fn filter_ports(&mut self) -> FilterPorts {
        let kind = self.below(10);
        let mut port = || Port(self.below(256) as u16 * 257);
        let (low, high) = (port(), port());
        let (low, high) = (low.min(high), low.max(high));
        match kind {
            0 => FilterPorts::Any,
            1 => FilterPorts::Equal(low),
            2 => FilterPorts::NotEqual(low),
            3 => FilterPorts::Less(low),
            4 => FilterPorts::Greater(low),
            5 => FilterPorts::AtMost(low),
            6 => FilterPorts::AtLeast(low),
            7 => FilterPorts::Inside(low, high),
            8 => FilterPorts::Outside(low, high),
            _ => FilterPorts::Range(low, high),
        }
    }

    fn keep_state(&mut self) -> KeepState {
        KeepState {
            strict: self.below(2) == 1,
            no_icmp_err: self.below(2) == 1,
            limit: self.maybe(|dice| NonZeroU32::new(1 + dice.below(256) as u32)).flatten(),
            age: self.maybe(|dice| (1 + dice.below(256) as u32, 1 + dice.below(256) as u32)),
        }
    }
}

/// Rules of models: few, but of links, of groups, with pools, and some that skip others. `V` is one of the VNICs.
const RULES: [&str; 12] = [
    "block in all",
    "pass in quick on V proto tcp from any to any port = 80 flags S/SA keep state",
    "pass out all keep state",
    "block in on V all head 1",
    "pass in from pool/1 to any group 1",
    "pass in quick on V from 10.0.0.0/8 to any head 2 group 1",
    "count in all group 2",
    "skip 2 in on V from any to any with frag",
    "skip 1 in all",
    "block return-rst in quick proto tcp from !pool/1 to any",
    "block out quick on V from any to fd00::/8",
    "log first in on V all",
];

/// Gives netstacks filters and pools.
pub(crate) fn roll_filters(model: &mut Model, dice: &mut Dice<'_>) {
    let Model { netstacks, vnics, .. } = model;
    for (name, netstack) in netstacks {
        let own: Vec<_> = vnics.iter().filter(|(_, it)| Vnic::netstack(it) == Some(name)).collect();
        let own: Vec<&LinkName> = own.into_iter().map(|(vnic, _)| vnic).collect();
        roll_filter(netstack, &own, dice);
    }
}

fn roll_filter(netstack: &mut Netstack, own: &[&LinkName], dice: &mut Dice<'_>) {
    let pool = dice.maybe(|dice| {
        Pool::new([0, 1].map(|way| {
            PoolEntry::new(dice.prefix(way), dice.maybe(|dice| 1_795_400_000 + dice.below(200) as u64))
        }))
    });
    netstack.pools.extend(pool.map(|pool| (PoolNumber(1), pool)));
    for _ in 0..dice.below(6) {
        let text = RULES[dice.below(RULES.len())];
        let text = match own.get(dice.below(own.len().max(1))) {
            Some(vnic) => text.replace('V', vnic.as_str()),
            None if text.contains('V') => continue,
            None => text.to_owned(),
        };
        netstack.filter.push(text.parse().expect("every one is a rule"));
    }
}

/// Takes out the rule at fault.
pub(crate) fn drop_rule(netstack: &mut Netstack, rule: &str) -> bool {
    let place = netstack.filter.iter().rposition(|it| it.to_string() == rule);
    place.map(|place| netstack.filter.remove(place)).is_some()
}
