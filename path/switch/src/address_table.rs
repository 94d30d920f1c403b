//! From station address and VLAN to switch port.
//!
//! Open addressing with linear probing in one array, at most half full: a lookup is a multiplication and, nearly
//! always, one cache line. Only the switch's owner adds addresses, so the hash needs no secret.

use firelane_units::{MacAddr, SwitchPortId, VlanId};

/// A table of station addresses.
#[derive(Clone)]
pub(crate) struct AddressTable {
    slots: Vec<Slot>,
    len: usize,
}

/// Address and VLAN in one word: 48 bits and 12. No VLAN is zero, which no VLAN has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    port: SwitchPortId,
}

const EMPTY: Slot = Slot { key: Key::NOBODY, port: SwitchPortId(u32::MAX) };
const SLOTS_LEAST: usize = 16;

impl Key {
    /// Of a group address, which no station has.
    pub(crate) const NOBODY: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn new(address: MacAddr, vlan: Option<VlanId>) -> Self {
        Self(address.to_u64() << 16 | u64::from(vlan.map_or(0, VlanId::id)))
    }

    #[inline]
    pub(crate) fn hash(self) -> usize {
        // Fibonacci hashing; the low half of an address differs most, the high half of the product mixes most.
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

impl AddressTable {
    pub(crate) fn new() -> Self {
        Self { slots: vec![EMPTY; SLOTS_LEAST], len: 0 }
    }

    /// The port of an address.
    #[inline]
    pub(crate) fn lookup(&self, address: MacAddr, vlan: Option<VlanId>) -> Option<SwitchPortId> {
        let key = Key::new(address, vlan);
        let mask = self.slots.len() - 1;
        let mut at = key.hash() & mask;
        loop {
            let slot = self.slots[at & mask];
            if slot.key == key {
                return Some(slot.port);
            }
            if slot.key == EMPTY.key {
                return None;
            }
            at += 1;
        }
    }

    /// Enters an address that is not in the table.
    pub(crate) fn insert(&mut self, address: MacAddr, vlan: Option<VlanId>, port: SwitchPortId) {
        debug_assert!(address.is_unicast() && self.lookup(address, vlan).is_none());
        if (self.len + 1) * 2 > self.slots.len() {
            let slots = self.slots.len() * 2;
            self.rebuild(slots, |_| true);
        }
        self.place(Slot { key: Key::new(address, vlan), port });
    }

    /// Removes all addresses of a port.
    pub(crate) fn remove_port(&mut self, port: SwitchPortId) {
        self.rebuild(self.slots.len(), |slot| slot.port != port);
    }

    fn rebuild(&mut self, slots: usize, keep: impl Fn(&Slot) -> bool) {
        let old = core::mem::replace(&mut self.slots, vec![EMPTY; slots]);
        self.len = 0;
        for slot in old.into_iter().filter(|slot| slot.key != EMPTY.key && keep(slot)) {
            self.place(slot);
        }
    }

    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = slot.key.hash() & mask;
        while self.slots[at].key != EMPTY.key {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u8..40, 0u8..2, 0u16..4, 0u32..6), 0..150)) {
            let (mut table, mut model) = (AddressTable::new(), HashMap::new());
            for (address, step, vlan, port) in steps {
                let (mac, vlan, port) =
                    (MacAddr([2, 8, 0x20, 0, 0, address]), VlanId::new(vlan), SwitchPortId(port));
                if step == 0 && !model.contains_key(&(mac, vlan)) {
                    table.insert(mac, vlan, port);
                    model.insert((mac, vlan), port);
                } else if address == 0 {
                    table.remove_port(port);
                    model.retain(|_, p| *p != port);
                }
                prop_assert_eq!(table.lookup(mac, vlan), model.get(&(mac, vlan)).copied());
            }
            for (&(mac, vlan), &port) in &model {
                prop_assert_eq!(table.lookup(mac, vlan), Some(port));
            }
            prop_assert_eq!(table.len, model.len());
        }
    }

    #[test]
    fn neighbouring_addresses_spread() {
        let mut table = AddressTable::new();
        for n in 0..1000u32 {
            let [_, a, b, c] = n.to_be_bytes();
            table.insert(MacAddr([2, 8, 0x20, a, b, c]), None, SwitchPortId(n));
        }
        let mask = table.slots.len() - 1;
        let distance = |(at, slot): (usize, &Slot)| at.wrapping_sub(slot.key.hash()) & mask;
        let used = table.slots.iter().enumerate().filter(|(_, slot)| slot.key != EMPTY.key);
        let worst = used.map(distance).max();
        assert!(worst < Some(16), "{worst:?}");
    }
}
