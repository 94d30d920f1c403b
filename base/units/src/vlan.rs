//! IEEE 802.1Q VLAN identifiers.

use core::fmt;

/// A VLAN identifier, 1 to 4094 (0 is a priority tag and 4095 is reserved).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VlanId(u16);

impl VlanId {
    /// `Some` if `id` is between 1 and 4094.
    pub const fn new(id: u16) -> Option<Self> {
        if id >= 1 && id <= 4094 { Some(Self(id)) } else { None }
    }

    /// The identifier as a number.
    pub const fn id(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_identifiers_do_not_exist() {
        assert_eq!(VlanId::new(0), None);
        assert_eq!(VlanId::new(4095), None);
        assert_eq!(VlanId::new(4094).map(VlanId::id), Some(4094));
    }
}
