//! The gateways of a table's routes, numbered, and what the trie says of a network.
//!
//! A table has a million routes and few gateways. So the trie's word has room for the number of the gateway beside the place
//! of the routes, and who looks up a forwarded flow need not read its route: a hundred bytes among a hundred megabytes. Owned by
//! `route.rs`; `foresight.rs` keeps what it knows of a gateway by its number.

use core::net::IpAddr;
use std::collections::HashMap;

use firelane_units::LinkId;

use crate::random::Keyed;

/// A route's gateway, and the link that the route names.
pub(crate) type Gateway = (IpAddr, Option<LinkId>);

/// Which of a table's gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GatewayId(u16);

impl GatewayId {
    /// There is none, or several, or no number was left: the routes say which.
    pub(crate) const NONE: Self = Self(0);

    /// A number from zero for a table of them; nothing for [`NONE`](Self::NONE).
    #[inline]
    pub(crate) fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// Bits for the place of a network's routes.
pub(crate) const PLACE_BITS: u32 = 21;
/// How many gateways have a number: as many as the rest of the word can name. Flows by others take the long way.
pub(crate) const GATEWAYS_MAX: usize = (1 << (u32::BITS - PLACE_BITS)) - 1;

/// What the trie says of a network: where its routes are, and the gateway if there is only one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    pub(crate) const fn new(place: u32, gateway: GatewayId) -> Self {
        debug_assert!(place >> PLACE_BITS == 0);
        Self(place | (gateway.0 as u32) << PLACE_BITS)
    }

    #[inline]
    pub(crate) const fn from_word(word: u32) -> Self {
        Self(word)
    }

    pub(crate) const fn to_word(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn place(self) -> u32 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }

    #[inline]
    pub(crate) const fn gateway(self) -> GatewayId {
        GatewayId((self.0 >> PLACE_BITS) as u16)
    }
}

/// Gateways by number, each as long as networks are behind it.
#[derive(Debug)]
pub(crate) struct Gateways {
    /// The gateway, and how many networks have it; those without any are free.
    places: Vec<(Gateway, u32)>,
    free: Vec<u16>,
    numbers: HashMap<Gateway, u16, Keyed>,
}

impl Gateways {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { places: Vec::new(), free: Vec::new(), numbers: HashMap::with_hasher(keyed) }
    }

    /// The number of a gateway that one more network has.
    pub(crate) fn take(&mut self, gateway: Option<Gateway>) -> GatewayId {
        let Some(gateway) = gateway else { return GatewayId::NONE };
        if let Some(&nth) = self.numbers.get(&gateway) {
            self.places[usize::from(nth)].1 += 1;
            return GatewayId(nth + 1);
        }
        let nth = match self.free.pop() {
            Some(nth) => nth,
            None if self.places.len() == GATEWAYS_MAX => return GatewayId::NONE,
            None => {
                self.places.push((gateway, 0));
                (self.places.len() - 1) as u16
            }
        };
        self.places[usize::from(nth)] = (gateway, 1);
        self.numbers.insert(gateway, nth);
        GatewayId(nth + 1)
    }

    /// One network less has it.
    pub(crate) fn give_back(&mut self, id: GatewayId) {
        let Some(nth) = id.index() else { return };
        let (gateway, networks) = &mut self.places[nth];
        *networks -= 1;
        if *networks == 0 {
            self.numbers.remove(gateway);
            self.free.push(nth as u16);
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: GatewayId) -> Option<Gateway> {
        self.places.get(id.index()?).map(|(gateway, _)| *gateway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn gateways() -> Gateways {
        Gateways::new(Keyed::new([0; 16], 0))
    }

    fn gateway(n: u32) -> Gateway {
        (IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)), None)
    }

    #[test]
    fn a_number_lasts_as_long_as_networks_have_it() {
        let mut all = gateways();
        assert_eq!((all.take(None), all.get(GatewayId::NONE)), (GatewayId::NONE, None));
        let (one, again, two) =
            (all.take(Some(gateway(1))), all.take(Some(gateway(1))), all.take(Some(gateway(2))));
        assert!(one == again && one != two);
        let by_link = (gateway(1).0, Some(LinkId(7)));
        assert_eq!(all.take(Some(by_link)).index(), Some(2), "by a link it is another");
        all.give_back(one);
        assert_eq!((all.get(one), all.get(two)), (Some(gateway(1)), Some(gateway(2))));
        all.give_back(one);
        all.give_back(GatewayId::NONE);
        assert_eq!(all.take(Some(gateway(3))), one, "a free number is used again");
        assert_eq!((all.get(one), all.take(Some(gateway(1))).index()), (Some(gateway(3)), Some(3)));
    }

    #[test]
    fn there_are_so_many_numbers_and_each_fits_an_entry() {
        let mut all = gateways();
        let place = (1 << PLACE_BITS) - 1;
        for n in 0..GATEWAYS_MAX as u32 {
            let entry = Entry::new(place - n, all.take(Some(gateway(n))));
            let read = Entry::from_word(entry.to_word());
            assert_eq!((read.place(), all.get(read.gateway())), (place - n, Some(gateway(n))));
        }
        assert_eq!(all.take(Some(gateway(9_999))), GatewayId::NONE);
        let entry = Entry::new(place, GatewayId::NONE);
        assert_eq!((entry.place(), entry.gateway()), (place, GatewayId::NONE));
    }
}
