//! Every header against `etherparse`, an independent reader of the same formats.
//!
//! Two directions: what we emit is read by `etherparse` with the same values, and bytes of any kind (random,
//! or valid with a few bytes changed) are accepted or refused alike and read alike. Where we are stricter on
//! purpose, the test says so and checks that this is the only difference.

mod icmp;
mod link;
mod net;
mod transport;

use proptest::prelude::*;

/// Random bytes up to `length`.
fn bytes(length: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..length)
}

/// The bytes with some overwritten and the end cut off or prolonged.
fn damaged(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4);
    (bytes, changes, 0usize..24, proptest::collection::vec(any::<u8>(), 0..8)).prop_map(
        |(mut bytes, changes, cut, more)| {
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(8)));
            bytes.extend(more);
            for (at, value) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
            }
            bytes
        },
    )
}
