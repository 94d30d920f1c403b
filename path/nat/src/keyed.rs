//! Maps by what packets say, hashed with a secret: nobody outside can aim at a place.

use std::collections::HashMap;

use siphasher::sip::SipHasher13;

/// A map with such a hash.
pub(crate) type KeyedMap<K, V> = HashMap<K, V, Keyed>;

/// The hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed(pub(crate) SipHasher13);

impl core::hash::BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}
