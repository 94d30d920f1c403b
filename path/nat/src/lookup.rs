//! A search among thousands of rules that costs what there are kinds of them, and not what there are of them.
//!
//! Rules stand by the parts of a packet's names that they ask for: all that ask for the same parts in one [`Space`], by hash, so a packet
//! is looked up once in each (a tuple space, as the classifier has for flows). Ranges of ports become blocks, as networks are. What
//! cannot be said in this way (other addresses than a network's, ranges of both ports) is not asked for here: whoever searches looks at
//! each rule that is found, and finds the first of the list that is for his packet. Made outside of lanes (`list.rs`), and never changed.

use core::net::Ipv4Addr;

use firelane_table::Index;
use firelane_units::{FilterPorts, FilterProtocol, LinkId};
use firelane_wire::IpProtocol;

use crate::tuple::Tuple;

/// What rules ask for, each in a word: the link, the protocol, both addresses and both ports; or which bits of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Names([u32; 6]);

/// The bit of protocols that have ports, beside the protocol's number.
const HAS_PORTS: u32 = 1 << 8;
/// The bit of a port that there is.
const IS_PORT: u32 = 1 << 16;

/// What a rule asks of packets, as far as a search can begin with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// By which link they come or go.
    pub(crate) link: Option<LinkId>,
    pub(crate) protocol: FilterProtocol,
    /// Networks that source and destination are of, each by its first address and its length.
    pub(crate) ends: [Option<(u32, u8)>; 2],
    pub(crate) ports: [FilterPorts; 2],
    /// It asks for nothing else.
    pub(crate) is_all: bool,
}

impl Default for Ask {
    fn default() -> Self {
        let (protocol, ports) = (FilterProtocol::Any, [FilterPorts::Any; 2]);
        Self { link: None, protocol, ends: [None; 2], ports, is_all: true }
    }
}

/// Bits, and how they are set.
type Bits = (u32, u32);

/// Names of one rule: two ranges of all ports but one make so many.
const NAMES_MAX: usize = 64;

impl Names {
    /// Those of a packet by a link.
    #[inline]
    pub(crate) fn of(link: LinkId, tuple: &Tuple) -> Self {
        let Tuple { src, dst, ports, protocol } = *tuple;
        let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
        let port = |port: u16| if has_ports { IS_PORT | u32::from(port) } else { 0 };
        let protocol = u32::from(protocol.0) | if has_ports { HAS_PORTS } else { 0 };
        Self([link.0, protocol, src.to_bits(), dst.to_bits(), port(ports[0]), port(ports[1])])
    }

    /// Those of whatever an address sends by a link.
    pub(crate) const fn of_source(link: LinkId, src: Ipv4Addr) -> Self {
        Self([link.0, 0, src.to_bits(), 0, 0, 0])
    }

    #[inline]
    fn under(self, mask: Self) -> Self {
        Self(core::array::from_fn(|nth| self.0[nth] & mask.0[nth]))
    }

    /// The names are the operator's, so nobody can aim at a place.
    #[inline]
    fn hash(self) -> u32 {
        const ODD: u64 = 0x517c_c1b7_2722_0a95;
        let [link, protocol, src, dst, from, to] = self.0.map(u64::from);
        let words = [link << 32 | protocol, src << 32 | dst, from << 32 | to];
        let hash = words.iter().fold(0_u64, |hash, word| (hash.rotate_left(26) ^ word).wrapping_mul(ODD));
        (hash >> 32) as u32
    }
}

impl Ask {
    /// Masks and the names under them, one of which each packet has that this is for; and whether those packets alone have them.
    fn names(&self) -> (Vec<(Names, Names)>, bool) {
        let protocol = match self.protocol {
            FilterProtocol::Any => (0, 0),
            FilterProtocol::TcpUdp => (HAS_PORTS, HAS_PORTS),
            FilterProtocol::Number(number) => (0xff, number.into()),
        };
        let link = self.link.map_or((0, 0), |link| (u32::MAX, link.0));
        let [src, dst] = self.ends.map(|end| end.map_or((0, 0), network));
        let [mut from, to] = self.ports.map(blocks);
        let is_all = from.len() * to.len() <= NAMES_MAX;
        if !is_all {
            from = vec![(0, 0)];
        }
        let each = |from: &Bits, to: &Bits| {
            let parts = [link, protocol, src, dst, *from, *to];
            (Names(parts.map(|(mask, _)| mask)), Names(parts.map(|(_, bits)| bits)))
        };
        let names = from.iter().flat_map(|from| to.iter().map(move |to| each(from, to))).collect();
        (names, is_all && self.is_all)
    }
}

fn network((first, length): (u32, u8)) -> Bits {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    (mask, first & mask)
}

/// The ports that a rule asks for, in as few blocks as there can be.
fn blocks(ports: FilterPorts) -> Vec<Bits> {
    const LAST: i32 = u16::MAX as i32;
    let of = |port: firelane_units::Port| i32::from(port.0);
    let none = (1, 0);
    let ranges = match ports {
        FilterPorts::Any => return vec![(0, 0)],
        FilterPorts::Equal(port) => [(of(port), of(port)), none],
        FilterPorts::NotEqual(port) => [(0, of(port) - 1), (of(port) + 1, LAST)],
        FilterPorts::Less(port) => [(0, of(port) - 1), none],
        FilterPorts::Greater(port) => [(of(port) + 1, LAST), none],
        FilterPorts::AtMost(port) => [(0, of(port)), none],
        FilterPorts::AtLeast(port) => [(of(port), LAST), none],
        FilterPorts::Inside(low, high) => [(of(low) + 1, of(high) - 1), none],
        FilterPorts::Outside(low, high) => [(0, of(low) - 1), (of(high) + 1, LAST)],
        FilterPorts::Range(low, high) => [(of(low), of(high)), none],
    };
    let mut blocks = Vec::new();
    for (mut low, high) in ranges {
        while low <= high {
            let fits = |bits: &u32| low % (1 << bits) == 0 && low + (1 << bits) - 1 <= high;
            let bits = (0..=16).rev().find(fits).unwrap_or(0);
            blocks.push((IS_PORT | (0xffff >> bits << bits), IS_PORT | low as u32));
            low += 1 << bits;
        }
    }
    blocks
}

/// Rules by what they ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    /// In the order of their first rules.
    spaces: Vec<Space>,
}

/// The rules that ask for the same parts.
#[derive(Clone, Debug)]
struct Space {
    mask: Names,
    /// The first rule.
    first: u32,
    /// To `places`, by their names.
    index: Index,
    places: Vec<Place>,
}

/// The rules that ask for the same names.
#[derive(Clone, Debug)]
struct Place {
    names: Names,
    /// By their number in the list, in its order.
    rules: Vec<u32>,
    /// The link of the first rule here that asks for nothing else.
    sure: Option<LinkId>,
    /// No search comes to a rule behind these.
    is_full: bool,
}

impl Lookup {
    /// Enters the rule `nth` of a list behind those before it. It is for its own `link`, or for all others, which is not asked for here if
    /// [`Ask::link`] is not.
    pub(crate) fn enter(&mut self, nth: u32, link: LinkId, ask: &Ask) {
        let (names, is_all) = ask.names();
        for (mask, names) in names {
            let place = self.space(mask, nth).place(names);
            // Whoever may come to this one comes to one before it.
            if place.is_full || place.sure == Some(link) {
                continue;
            }
            place.rules.push(nth);
            if is_all {
                // Of two that are for all links but their own one is for each.
                place.is_full = ask.link.is_some() || place.sure.is_some();
                place.sure = place.sure.or(Some(link));
            }
        }
    }

    fn space(&mut self, mask: Names, nth: u32) -> &mut Space {
        let at = self.spaces.iter().position(|space| space.mask == mask).unwrap_or_else(|| {
            self.spaces.push(Space { mask, first: nth, index: Index::default(), places: Vec::new() });
            self.spaces.len() - 1
        });
        &mut self.spaces[at]
    }

    /// Whether no rule is here.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// In how many places a packet is looked up, and how many rules there are at most in one.
    #[cfg(test)]
    pub(crate) fn cost(&self) -> (usize, usize) {
        let most = self.spaces.iter().flat_map(|space| &space.places).map(|place| place.rules.len()).max();
        (self.spaces.len(), most.unwrap_or(0))
    }

    /// The first rule that asks for names which a packet has, and of which `is_it` says so.
    #[inline]
    pub(crate) fn first(&self, names: &Names, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut first = u32::MAX;
        for space in &self.spaces {
            if space.first >= first {
                break;
            }
            let rules = space.find(names.under(space.mask));
            let before = rules.iter().copied().take_while(|&nth| nth < first);
            first = before.into_iter().find(|&nth| is_it(nth)).unwrap_or(first);
        }
        (first != u32::MAX).then_some(first)
    }
}

impl Space {
    fn at(&self, names: Names) -> Option<u32> {
        self.index.find(names.hash(), |at| self.places[at as usize].names == names)
    }

    #[inline]
    fn find(&self, names: Names) -> &[u32] {
        self.at(names).map_or(&[], |at| &self.places[at as usize].rules)
    }

    fn place(&mut self, names: Names) -> &mut Place {
        let at = self.at(names).unwrap_or_else(|| {
            let at = self.places.len() as u32;
            self.index.insert(names.hash(), at);
            self.places.push(Place { names, rules: Vec::new(), sure: None, is_full: false });
            at
        });
        &mut self.places[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;
    use proptest::prelude::*;

    fn ports() -> impl Strategy<Value = FilterPorts> {
        let port = || prop_oneof![0..4_u16, 1000..1004_u16, 65_532..=u16::MAX].prop_map(Port);
        (0..10_u8, port(), port()).prop_map(|(kind, one, other)| match kind {
            0 => FilterPorts::Any,
            1 => FilterPorts::Equal(one),
            2 => FilterPorts::NotEqual(one),
            3 => FilterPorts::Less(one),
            4 => FilterPorts::Greater(one),
            5 => FilterPorts::AtMost(one),
            6 => FilterPorts::AtLeast(one),
            7 => FilterPorts::Inside(one, other),
            8 => FilterPorts::Outside(one, other),
            _ => FilterPorts::Range(one, other),
        })
    }

    proptest! {
        /// Each port that is asked for is in a block, and no other; few blocks are enough.
        #[test]
        fn blocks_are_the_ports_that_are_asked_for(ports in ports(), any: u16) {
            let blocks = blocks(ports);
            prop_assert!(blocks.len() <= 60, "{}", blocks.len());
            for port in (0..8).chain(996..1008).chain(65_528..=u16::MAX).chain([any]) {
                let bits = IS_PORT | u32::from(port);
                let is_in = blocks.iter().any(|&(mask, its)| bits & mask == its);
                prop_assert_eq!(is_in, ports.contains(Port(port)), "{:?} {}", ports, port);
            }
            let has_none = blocks.iter().any(|&(mask, its)| mask == 0 && its == 0);
            prop_assert_eq!(has_none, ports == FilterPorts::Any, "a packet without ports");
        }
    }

    #[test]
    fn a_range_of_both_ports_is_left_to_who_searches() {
        let range = FilterPorts::Range(Port(1), Port(65_534));
        let ask = Ask { ports: [range; 2], ..Ask::default() };
        let (names, is_all) = ask.names();
        assert!(names.len() <= NAMES_MAX && !is_all);
        let (names, is_all) = Ask { ports: [FilterPorts::Equal(Port(1)), range], ..ask }.names();
        assert!(names.len() <= NAMES_MAX && is_all);
    }

    /// What could never be found does not stand in the way of what is.
    #[test]
    fn a_place_keeps_no_rule_that_nobody_would_come_to() {
        let (tuple, links) = (
            Tuple { src: [1; 4].into(), dst: [2; 4].into(), ports: [1, 2], protocol: IpProtocol::UDP },
            [LinkId(1), LinkId(2)],
        );
        let mut lookup = Lookup::default();
        let all = Ask::default();
        (0..100).for_each(|nth| lookup.enter(nth, links[0], &all));
        (100..200).for_each(|nth| lookup.enter(nth, links[1], &all));
        (200..300).for_each(|nth| lookup.enter(nth, links[0], &all));
        assert_eq!(lookup.spaces[0].places[0].rules, [0, 100], "the first of each link");
        let by_other = |link: LinkId| {
            lookup.first(&Names::of(link, &tuple), |nth| (nth / 100 % 2 == 0) != (link == links[0]))
        };
        assert_eq!((by_other(links[1]), by_other(links[0])), (Some(0), Some(100)));
        let mut linked = Lookup::default();
        (0..100).for_each(|nth| linked.enter(nth, links[0], &Ask { link: Some(links[0]), ..all }));
        assert_eq!(linked.spaces[0].places[0].rules, [0]);
    }
}
