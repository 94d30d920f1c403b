//! Mixing of words into a hash, for keys that a remote peer does not choose or cannot aim.
//!
//! One multiplication to 128 bits, folded to 64: fast, and even in all bits. It is no message authentication:
//! the connection table, whose entries a peer chooses, uses SipHash.

/// Folds two words into one.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// The high and the low half of an address.
#[inline]
pub(crate) const fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}
