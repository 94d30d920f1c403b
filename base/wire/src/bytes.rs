//! Big-endian loads and stores at constant places of a header's fixed part.
//!
//! A header's fixed part is an array reference, so every access at a constant place is known to be inside
//! and compiles to one load without a check.

/// The two bytes at `at`, in network order.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// The four bytes at `at`, in network order.
#[inline(always)]
pub(crate) const fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The `M` bytes at `at`.
#[inline(always)]
pub(crate) fn array<const M: usize, const N: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    let mut out = [0; M];
    out.copy_from_slice(&header[at..at + M]);
    out
}

/// Writes `value` at `at`.
#[inline(always)]
pub(crate) fn put<const M: usize, const N: usize>(header: &mut [u8; N], at: usize, value: [u8; M]) {
    header[at..at + M].copy_from_slice(&value);
}

/// The fixed part of a buffer that a header is emitted into.
#[inline(always)]
pub(crate) fn fixed<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    buffer.first_chunk_mut().expect("the caller of emit reserved emitted_len() bytes")
}
