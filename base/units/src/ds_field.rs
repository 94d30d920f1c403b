//! A value of the differentiated-services field with a mask (RFC 2474 §3): what flows are told apart by.

use core::fmt;

/// A value of the DS field and the bits of it that count, `0x2c:0xfc`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

impl fmt::Display for DsField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:{:#x}", self.value, self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_do_not_count_are_cleared() {
        assert_eq!(DsField::new(0xff, 0), None);
        let field = DsField::new(0x2f, 0xfc).unwrap();
        assert_eq!((field.value(), field.mask(), field.to_string().as_str()), (0x2c, 0xfc, "0x2c:0xfc"));
    }
}
