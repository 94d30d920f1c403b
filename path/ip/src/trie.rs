//! The longest-prefix match: a multibit trie with counted bits (tree bitmap, Eatherton, Varghese and Dittia 2004).
//!
//! A node stands for five bits of an address: one word says which prefixes of one to five bits end in it, a half
//! word which nodes follow. What belongs to the bits lies side by side in two arrays, and the number of bits set
//! below one says where. The values of a node that has few are in the node itself: it is half a cache line, and who has it has
//! them. A change writes one node and moves at most 62 neighbours of what it adds or removes, so it
//! costs as much as some look-ups, whatever the number of routes. Owned by `route.rs`, which gives the values a meaning.

use core::marker::PhantomData;

use firelane_frame::read_ahead;

/// An address as a key: its bits, the first one highest.
pub(crate) trait Key: Copy {
    /// Five bits for the node at `depth`, which counts one bit more than the address has: the root's five begin with
    /// a zero, so that it holds the prefix of no bits, and /24, /32, /48 and /64 end in nodes' last bits.
    fn chunk(self, depth: u32) -> u32;
}

impl Key for u32 {
    #[inline]
    fn chunk(self, depth: u32) -> u32 {
        if depth == 0 { self >> 28 } else { (self << (depth - 1)) >> 27 }
    }
}

impl Key for u128 {
    #[inline]
    fn chunk(self, depth: u32) -> u32 {
        let bits = if depth == 0 { self >> 124 } else { (self << (depth - 1)) >> 123 };
        bits as u32
    }
}

/// Bits of an address per node.
const STRIDE: u32 = 5;

/// For each five bits the prefixes of one to five bits that they begin with, as a node's word has them.
const COVERS: [u64; 32] = covers();

const fn covers() -> [u64; 32] {
    let mut table = [0; 32];
    let mut chunk = 0;
    while chunk < 32 {
        let mut len = 1;
        while len <= STRIDE {
            table[chunk as usize] |= 1 << bit(len, chunk);
            len += 1;
        }
        chunk += 1;
    }
    table
}

/// The place of a prefix of `len` bits of `chunk` in a node's word: the shorter ones first.
const fn bit(len: u32, chunk: u32) -> u32 {
    (1 << len) - 2 + (chunk >> (STRIDE - len))
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(align(32))]
struct Node {
    /// Which prefixes end here, and [`FAR`].
    prefixes: u64,
    /// Which chunks go on.
    nodes: u32,
    /// Where the nodes that follow are, in the order of their bits.
    first_node: u32,
    /// The values of the prefixes, in the order of theirs; of a node with more than [`NEAR`], where they are.
    values: [u32; NEAR],
}

const _: () = assert!(size_of::<Node>() == 32, "a node lies in one cache line");

/// How many values a node has room for: most of the Internet's nodes have no more.
const NEAR: usize = 4;
/// The bit of `prefixes` that says that the values are in a run of their own.
const FAR: u64 = 1 << 63;

impl Node {
    /// How many prefixes end before `bit`.
    #[inline]
    const fn nth_value(&self, bit: u32) -> usize {
        (self.prefixes & ((1 << bit) - 1)).count_ones() as usize
    }

    const fn count(&self) -> usize {
        (self.prefixes & !FAR).count_ones() as usize
    }

    #[inline]
    const fn is_far(&self) -> bool {
        self.prefixes & FAR != 0
    }

    #[inline]
    const fn node_at(&self, chunk: u32) -> usize {
        self.first_node as usize + (self.nodes & ((1 << chunk) - 1)).count_ones() as usize
    }
}

/// Runs of values, each in a place of the size that it needs; places that became free are used again.
#[derive(Debug)]
struct Runs<T> {
    all: Vec<T>,
    free: [Vec<u32>; SIZES.len()],
}

/// The sizes of places: a run that grows by one is not moved every time.
const SIZES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

fn size_class(len: usize) -> usize {
    SIZES.partition_point(|&size| size < len)
}

impl<T: Copy + Default> Runs<T> {
    fn new() -> Self {
        Self { all: Vec::new(), free: core::array::from_fn(|_| Vec::new()) }
    }

    fn take(&mut self, class: usize) -> u32 {
        self.free[class].pop().unwrap_or_else(|| {
            let at = self.all.len() as u32;
            self.all.resize(self.all.len() + SIZES[class], T::default());
            at
        })
    }

    /// Puts a value into a run of `len`, `nth` from its beginning; answers where the run is then.
    fn insert(&mut self, first: u32, len: usize, nth: usize, value: T) -> u32 {
        let mut at = first as usize;
        if len == 0 || size_class(len) != size_class(len + 1) {
            let from = at;
            at = self.take(size_class(len + 1)) as usize;
            self.all.copy_within(from..from + len, at);
            self.give_back(from as u32, len);
        }
        self.all.copy_within(at + nth..at + len, at + nth + 1);
        self.all[at + nth] = value;
        at as u32
    }

    /// Takes a value out of a run of `len`.
    fn remove(&mut self, first: u32, len: usize, nth: usize) -> u32 {
        let at = first as usize;
        self.all.copy_within(at + nth + 1..at + len, at + nth);
        if len > 1 && size_class(len) == size_class(len - 1) {
            return first;
        }
        if len == 1 {
            self.give_back(first, 1);
            return 0;
        }
        let to = self.take(size_class(len - 1));
        self.all.copy_within(at..at + len - 1, to as usize);
        self.give_back(first, len);
        to
    }

    fn give_back(&mut self, first: u32, len: usize) {
        if len > 0 {
            self.free[size_class(len)].push(first);
        }
    }

    #[cfg(test)]
    fn allocated_bytes(&self) -> usize {
        self.all.capacity() * size_of::<T>()
    }
}

/// Values by prefix.
#[derive(Debug)]
pub(crate) struct Trie<K> {
    nodes: Runs<Node>,
    values: Runs<u32>,
    len: usize,
    key: PhantomData<K>,
}

/// The root is the first node, alone in its run.
const ROOT: usize = 0;
/// How many keys are looked up side by side: more than the memory answers at once.
pub(crate) const MANY: usize = 64;
/// Nodes on the way to the longest prefix, the root included.
const DEPTH_MAX: usize = 26;

impl<K: Key> Trie<K> {
    pub(crate) fn new() -> Self {
        let mut nodes = Runs::new();
        nodes.all.push(Node::default());
        Self { nodes, values: Runs::new(), len: 0, key: PhantomData }
    }

    /// How many prefixes have a value.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes that it takes.
    #[cfg(test)]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.nodes.allocated_bytes() + self.values.allocated_bytes()
    }

    /// The value of the longest prefix of `key`.
    #[inline]
    pub(crate) fn lookup(&self, key: K) -> Option<u32> {
        let (mut at, mut depth) = (ROOT, 0);
        let mut best = None;
        loop {
            let node = &self.nodes.all[at];
            let chunk = key.chunk(depth);
            let covering = node.prefixes & COVERS[chunk as usize];
            if covering != 0 {
                best = Some((node, 63 - covering.leading_zeros()));
            }
            if node.nodes >> chunk & 1 == 0 {
                break;
            }
            at = node.node_at(chunk);
            depth += STRIDE;
        }
        best.map(|(node, bit)| self.value(node, bit))
    }

    /// The value of the prefix `bit` of a node.
    #[inline]
    fn value(&self, node: &Node, bit: u32) -> u32 {
        let nth = node.nth_value(bit);
        if node.is_far() { self.values.all[node.values[0] as usize + nth] } else { node.values[nth] }
    }

    /// The value of the longest prefix of each of so many keys at most, into the place of its number: a level with all of
    /// them, then the next. The memory answers them side by side, where one key after the other would wait for it at
    /// each level.
    pub(crate) fn lookup_many(&self, keys: &[(usize, K)], found: &mut [Option<u32>; MANY]) {
        let keys = &keys[..keys.len().min(MANY)];
        let (mut at, mut best) = ([ROOT as u32; MANY], [0; MANY]);
        // A bit for each key: whether it has a value, and whether that is a place in the array of values.
        let (mut has, mut is_far) = (0_u64, 0_u64);
        let mut walking: [u8; MANY] = core::array::from_fn(|nth| nth as u8);
        let (mut count, mut depth) = (keys.len(), 0);
        while count > 0 {
            let mut kept = 0;
            for nth in 0..count {
                let walker = usize::from(walking[nth]);
                let node = &self.nodes.all[at[walker] as usize];
                let chunk = keys[walker].1.chunk(depth);
                let covering = node.prefixes & COVERS[chunk as usize];
                if covering != 0 {
                    let nth = node.nth_value(63 - covering.leading_zeros());
                    let far = u64::from(node.is_far()) << walker;
                    (has, is_far) = (has | 1 << walker, is_far & !(1 << walker) | far);
                    best[walker] = if far == 0 { node.values[nth] } else { node.values[0] + nth as u32 };
                }
                if node.nodes >> chunk & 1 != 0 {
                    at[walker] = node.node_at(chunk) as u32;
                    read_ahead(&self.nodes.all[at[walker] as usize]);
                    walking[kept] = walker as u8;
                    kept += 1;
                } else if is_far >> walker & 1 != 0 {
                    read_ahead(&self.values.all[best[walker] as usize]);
                }
            }
            count = kept;
            depth += STRIDE;
        }
        for (walker, ((number, _), best)) in keys.iter().zip(best).enumerate() {
            let value = || if is_far >> walker & 1 != 0 { self.values.all[best as usize] } else { best };
            found[*number] = (has >> walker & 1 != 0).then(value);
        }
    }

    /// The longest prefix of `key` that has no more than `len_max` bits, with its length and its value.
    pub(crate) fn longest(&self, key: K, len_max: u8) -> Option<(u8, u32)> {
        let (mut at, mut depth) = (ROOT, 0);
        let mut best = None;
        loop {
            let node = &self.nodes.all[at];
            let chunk = key.chunk(depth);
            for len in (1..=STRIDE).rev() {
                let (bit, whole) = (bit(len, chunk), depth + len - 1);
                if whole <= u32::from(len_max) && node.prefixes >> bit & 1 != 0 {
                    best = Some((whole as u8, self.value(node, bit)));
                    break;
                }
            }
            depth += STRIDE;
            if node.nodes >> chunk & 1 == 0 || depth > u32::from(len_max) {
                return best;
            }
            at = node.node_at(chunk);
        }
    }

    /// The value of the prefix of exactly `len` bits.
    pub(crate) fn get(&self, key: K, len: u8) -> Option<u32> {
        self.longest(key, len).filter(|&(found, _)| found == len).map(|(_, value)| value)
    }

    /// Gives a prefix a value; answers the one that it had.
    pub(crate) fn insert(&mut self, key: K, len: u8, value: u32) -> Option<u32> {
        let (depth_last, bits) = ends(len);
        let (mut at, mut depth) = (ROOT, 0);
        while depth < depth_last {
            let chunk = key.chunk(depth);
            let node = self.nodes.all[at];
            let nth = node.node_at(chunk) - node.first_node as usize;
            if node.nodes >> chunk & 1 == 0 {
                let count = node.nodes.count_ones() as usize;
                let first = self.nodes.insert(node.first_node, count, nth, Node::default());
                let node = &mut self.nodes.all[at];
                (node.first_node, node.nodes) = (first, node.nodes | 1 << chunk);
            }
            at = self.nodes.all[at].first_node as usize + nth;
            depth += STRIDE;
        }
        let bit = bit(bits, key.chunk(depth));
        if self.nodes.all[at].prefixes >> bit & 1 != 0 {
            return Some(core::mem::replace(self.value_mut(at, bit), value));
        }
        self.insert_value(at, bit, value);
        self.len += 1;
        None
    }

    fn value_mut(&mut self, at: usize, bit: u32) -> &mut u32 {
        let node = &mut self.nodes.all[at];
        let nth = node.nth_value(bit);
        if node.is_far() {
            &mut self.values.all[node.values[0] as usize + nth]
        } else {
            &mut node.values[nth]
        }
    }

    /// Gives the node `at` a value for a prefix that had none.
    fn insert_value(&mut self, at: usize, bit: u32, value: u32) {
        let node = &mut self.nodes.all[at];
        let (nth, count) = (node.nth_value(bit), node.count());
        if count < NEAR {
            node.values.copy_within(nth..count, nth + 1);
            node.values[nth] = value;
        } else {
            if count == NEAR {
                let first = self.values.take(size_class(NEAR));
                self.values.all[first as usize..][..NEAR].copy_from_slice(&node.values);
                (node.values, node.prefixes) = ([first, 0, 0, 0], node.prefixes | FAR);
            }
            node.values[0] = self.values.insert(node.values[0], count, nth, value);
        }
        node.prefixes |= 1 << bit;
    }

    /// Takes the value of a prefix of the node `at` away.
    fn remove_value(&mut self, at: usize, bit: u32) -> u32 {
        let node = &mut self.nodes.all[at];
        let (nth, count) = (node.nth_value(bit), node.count());
        node.prefixes &= !(1 << bit);
        if !node.is_far() {
            let value = node.values[nth];
            node.values.copy_within(nth + 1..count, nth);
            return value;
        }
        let first = node.values[0];
        let value = self.values.all[first as usize + nth];
        let first = self.values.remove(first, count, nth);
        node.values[0] = first;
        if count - 1 == NEAR {
            node.values.copy_from_slice(&self.values.all[first as usize..][..NEAR]);
            node.prefixes &= !FAR;
            self.values.give_back(first, NEAR);
        }
        value
    }

    /// Takes a prefix's value away, and the nodes that nothing ends in any more.
    pub(crate) fn remove(&mut self, key: K, len: u8) -> Option<u32> {
        let (depth_last, bits) = ends(len);
        let mut path = [ROOT; DEPTH_MAX];
        let mut nth_node = 0;
        while (nth_node as u32) * STRIDE < depth_last {
            let node = &self.nodes.all[path[nth_node]];
            let chunk = key.chunk(nth_node as u32 * STRIDE);
            if node.nodes >> chunk & 1 == 0 {
                return None;
            }
            nth_node += 1;
            path[nth_node] = node.node_at(chunk);
        }
        let at = path[nth_node];
        let bit = bit(bits, key.chunk(depth_last));
        if self.nodes.all[at].prefixes >> bit & 1 == 0 {
            return None;
        }
        let value = self.remove_value(at, bit);
        self.len -= 1;
        self.prune(key, &path[..=nth_node]);
        Some(value)
    }

    /// Removes the empty nodes at the end of a path from the root.
    fn prune(&mut self, key: K, path: &[usize]) {
        for nth_node in (1..path.len()).rev() {
            let node = self.nodes.all[path[nth_node]];
            if node.prefixes != 0 || node.nodes != 0 {
                return;
            }
            let parent = self.nodes.all[path[nth_node - 1]];
            let chunk = key.chunk((nth_node as u32 - 1) * STRIDE);
            let nth = parent.node_at(chunk) - parent.first_node as usize;
            let first = self.nodes.remove(parent.first_node, parent.nodes.count_ones() as usize, nth);
            let parent = &mut self.nodes.all[path[nth_node - 1]];
            (parent.first_node, parent.nodes) = (first, parent.nodes & !(1 << chunk));
        }
    }
}

/// The depth of the node in which a prefix ends, and how many of its bits are the node's.
const fn ends(len: u8) -> (u32, u32) {
    let depth = len as u32 / STRIDE * STRIDE;
    (depth, len as u32 + 1 - depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn mask(len: u8) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
    }

    fn mask6(len: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    }

    /// Few bits at several places, so that prefixes nest and addresses hit.
    fn spread(bits: u32) -> u32 {
        bits.rotate_right(3) ^ (bits & 0xff) << 9
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_trying_every_prefix(
            steps in prop::collection::vec((any::<bool>(), 0u32..512, 0u8..=32), 1..300),
            asked in prop::collection::vec(0u32..512, 32),
        ) {
            let (mut trie, mut naive) = (Trie::<u32>::new(), HashMap::new());
            for (n, &(adds, bits, len)) in steps.iter().enumerate() {
                let key = spread(bits) & mask(len);
                if adds {
                    prop_assert_eq!(trie.insert(key, len, n as u32), naive.insert((key, len), n as u32));
                } else {
                    prop_assert_eq!(trie.remove(key, len), naive.remove(&(key, len)));
                }
                prop_assert_eq!(trie.len(), naive.len());
            }
            for &bits in &asked {
                let key = spread(bits);
                let best = (0..=32).rev().find_map(|len| Some((len, *naive.get(&(key & mask(len), len))?)));
                prop_assert_eq!(trie.lookup(key), best.map(|(_, value)| value));
                prop_assert_eq!(trie.longest(key, 128), best);
                let upto = (0..=20).rev().find_map(|len| Some((len, *naive.get(&(key & mask(len), len))?)));
                prop_assert_eq!(trie.longest(key, 20), upto);
            }
            let keys: Vec<_> = asked.iter().enumerate().map(|(nth, &bits)| (MANY - 1 - nth, spread(bits))).collect();
            let mut found = [None; MANY];
            trie.lookup_many(&keys, &mut found);
            for (number, key) in keys {
                prop_assert_eq!(found[number], trie.lookup(key));
            }
            for ((key, len), value) in naive {
                prop_assert_eq!(trie.get(key, len), Some(value));
                prop_assert_eq!(trie.remove(key, len), Some(value));
            }
            prop_assert_eq!(trie.nodes.all[ROOT].nodes, 0, "nothing is left behind");
        }

        #[test]
        fn agrees_with_trying_every_prefix_of_ipv6(
            steps in prop::collection::vec((any::<bool>(), 0u32..512, 0u8..=128), 1..200),
            asked in prop::collection::vec(0u32..512, 16),
        ) {
            let spread = |bits: u32| u128::from(spread(bits)) << 96 | u128::from(bits) << 60 | u128::from(bits & 7);
            let (mut trie, mut naive) = (Trie::<u128>::new(), HashMap::new());
            for (n, &(adds, bits, len)) in steps.iter().enumerate() {
                let key = spread(bits) & mask6(len);
                if adds {
                    prop_assert_eq!(trie.insert(key, len, n as u32), naive.insert((key, len), n as u32));
                } else {
                    prop_assert_eq!(trie.remove(key, len), naive.remove(&(key, len)));
                }
            }
            for &bits in &asked {
                let key = spread(bits);
                let best = (0..=128).rev().find_map(|len| naive.get(&(key & mask6(len), len)).copied());
                prop_assert_eq!(trie.lookup(key), best);
            }
        }
    }

    #[test]
    fn what_is_removed_is_used_again() {
        let mut trie = Trie::<u32>::new();
        let key = |n: u32| n.wrapping_mul(0x9e37_79b1) & !0xff;
        let fill = |trie: &mut Trie<u32>| (0..20_000).for_each(|n| _ = trie.insert(key(n), 24, n));
        fill(&mut trie);
        let bytes = trie.allocated_bytes();
        for _ in 0..3 {
            (0..20_000).for_each(|n| assert_eq!(trie.remove(key(n), 24), Some(n)));
            assert_eq!((trie.len(), trie.lookup(key(5))), (0, None));
            fill(&mut trie);
        }
        assert_eq!(trie.allocated_bytes(), bytes, "the same routes take the same room");
    }
}
