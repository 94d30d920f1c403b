//! Addresses that a NIC has from its factory, by slots, and which of them a VNIC gets.
//!
//! Called by `control/api`, before a plan is made, and by whoever shows slots. What a device has is told by its driver; nothing
//! here makes an address up.

use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

use firelane_units::MacAddr;

/// A slot's number, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FactorySlot(NonZeroU16);

impl FactorySlot {
    /// Which numbers there are.
    pub const ALLOWED: &'static str = "a slot is a number from 1";
    /// That of a device's own permanent address.
    pub const OWN: Self = Self(NonZeroU16::MIN);

    /// The slot with this number, if it is one.
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0.get()
    }

    /// That of the address of a device's virtual function: they follow the device's own, in their order.
    pub fn of_function(function: u32) -> Option<Self> {
        u16::try_from(function).ok()?.checked_add(2).and_then(Self::new)
    }
}

impl fmt::Display for FactorySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FactorySlot {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_plain.then(|| text.parse().ok()).flatten();
        number.and_then(Self::new).ok_or(Self::ALLOWED)
    }
}

/// An address of a device, in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FactoryMac {
    /// Where it is.
    pub slot: FactorySlot,
    /// The address.
    pub mac: MacAddr,
    /// The device's virtual function that has it: frames for it never reach the device itself.
    pub function: Option<u32>,
}

/// Why no slot is had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FactoryError {
    /// The device has no address from its factory.
    NotSupported,
    /// It has no such slot, but these.
    NoSuchSlot(Vec<FactorySlot>),
    /// The slot's address is in use.
    Used,
    /// All are.
    AllUsed,
}

/// The slot for who asks for `wanted`, or for any: the lowest that is free.
///
/// # Errors
/// There is none for him.
pub fn choose_slot(
    slots: &[FactoryMac],
    wanted: Option<FactorySlot>,
    is_used: impl Fn(&FactoryMac) -> bool,
) -> Result<FactorySlot, FactoryError> {
    if slots.is_empty() {
        return Err(FactoryError::NotSupported);
    }
    let is_free = |it: &&FactoryMac| it.function.is_none() && !is_used(it);
    let Some(wanted) = wanted else {
        let free = slots.iter().filter(is_free).map(|it| it.slot).min();
        return free.ok_or(FactoryError::AllUsed);
    };
    let asked = slots.iter().find(|it| it.slot == wanted);
    let asked = asked.ok_or_else(|| FactoryError::NoSuchSlot(slots.iter().map(|it| it.slot).collect()))?;
    if is_free(&asked) { Ok(wanted) } else { Err(FactoryError::Used) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(number: u16) -> FactorySlot {
        FactorySlot::new(number).unwrap()
    }

    fn has(number: u16, function: Option<u32>) -> FactoryMac {
        FactoryMac { slot: slot(number), mac: MacAddr([0, 1, 2, 3, 4, number as u8]), function }
    }

    #[test]
    fn slots_are_numbers_from_one() {
        assert_eq!("1".parse(), Ok(FactorySlot::OWN));
        assert_eq!("65535".parse(), Ok(slot(65535)));
        for bad in ["", "0", "+1", "-1", " 1", "one", "65536"] {
            assert_eq!(bad.parse::<FactorySlot>(), Err(FactorySlot::ALLOWED), "{bad:?}");
        }
        assert_eq!(FactorySlot::of_function(0), Some(slot(2)));
        assert_eq!(FactorySlot::of_function(65_533), Some(slot(65_535)));
        assert_eq!(FactorySlot::of_function(65_534), None);
    }

    #[test]
    fn who_asks_gets_a_slot_or_the_reason() {
        let (own, function) = (has(1, None), has(3, Some(1)));
        let both = [own, function];
        for (slots, used, wanted, want) in [
            (&both[..0], vec![], None, Err(FactoryError::NotSupported)),
            (&both[..0], vec![], Some(1), Err(FactoryError::NotSupported)),
            (&both[..1], vec![], None, Ok(1)),
            (&both[..1], vec![], Some(1), Ok(1)),
            (&both[..1], vec![], Some(2), Err(FactoryError::NoSuchSlot(vec![slot(1)]))),
            (&both[..1], vec![1], Some(1), Err(FactoryError::Used)),
            (&both[..1], vec![1], None, Err(FactoryError::AllUsed)),
            (&both[..], vec![], Some(3), Err(FactoryError::Used)),
            (&both[..], vec![1], None, Err(FactoryError::AllUsed)),
            (&both[..], vec![], Some(2), Err(FactoryError::NoSuchSlot(vec![slot(1), slot(3)]))),
        ] {
            let got = choose_slot(slots, wanted.map(slot), |it| used.contains(&it.slot.number()));
            assert_eq!(got.map(FactorySlot::number), want, "{wanted:?} of {slots:?}, used {used:?}");
        }
    }

    proptest! {
        /// Whatever a device has, a slot that is given is one of its own and was free, and the lowest such if any would do.
        #[test]
        fn a_slot_that_is_given_is_there_and_free(
            known in prop::collection::btree_map(1u16..40, any::<bool>(), 0..12),
            used in prop::collection::btree_set(1u16..40, 0..12),
            wanted in prop::option::of(1u16..40),
        ) {
            let slots: Vec<_> = known.iter().map(|(n, f)| has(*n, f.then_some(0))).collect();
            let free: Vec<_> = known.iter().filter(|(n, f)| !**f && !used.contains(n)).map(|it| *it.0).collect();
            let got = choose_slot(&slots, wanted.map(slot), |it| used.contains(&it.slot.number()));
            match (wanted, got) {
                (None, Ok(it)) => prop_assert_eq!(Some(&it.number()), free.first()),
                (Some(wanted), Ok(it)) => {
                    prop_assert_eq!(it.number(), wanted);
                    prop_assert!(free.contains(&wanted));
                }
                (_, Err(FactoryError::NotSupported)) => prop_assert!(slots.is_empty()),
                (None, Err(why)) => prop_assert!(why == FactoryError::AllUsed && free.is_empty()),
                (Some(wanted), Err(FactoryError::Used)) => {
                    prop_assert!(known.contains_key(&wanted) && !free.contains(&wanted));
                }
                (Some(wanted), Err(why)) => {
                    prop_assert!(matches!(why, FactoryError::NoSuchSlot(_)));
                    prop_assert!(!known.contains_key(&wanted));
                }
            }
        }
    }
}
