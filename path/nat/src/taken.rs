//! Which ports outside mappings have: a bit for each port of each address and protocol, so that a free one is found among thousands that
//! are not without asking for each.
//!
//! Kept by `mappings.rs`, searched by `outside.rs`. Bits lie in pieces of 1,024 ports, which are there while one of them is taken: an
//! address with a few mappings takes a few hundred bytes, a full one 8 KiB.

use core::net::Ipv4Addr;
use core::ops::RangeInclusive;

use firelane_wire::IpProtocol;
use siphasher::sip::SipHasher13;

use crate::keyed::{Keyed, KeyedMap};

const WORDS: usize = 16;
const WORD_BITS: u16 = u64::BITS as u16;
const PIECE_BITS: u16 = WORDS as u16 * WORD_BITS;

/// Every second port, from an even one on.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// A piece's ports: those that are taken.
type Piece = [u64; WORDS];

/// The ports that are taken.
#[derive(Debug)]
pub(crate) struct TakenPorts(KeyedMap<(IpProtocol, Ipv4Addr, u16), Piece>);

/// Where a port's bit is: its piece, the word in it and the bit in that.
const fn place(port: u16) -> (u16, usize, u64) {
    (port / PIECE_BITS, (port % PIECE_BITS / WORD_BITS) as usize, 1 << (port % WORD_BITS))
}

impl TakenPorts {
    pub(crate) fn new(hasher: SipHasher13) -> Self {
        Self(KeyedMap::with_hasher(Keyed(hasher)))
    }

    pub(crate) fn put(&mut self, protocol: IpProtocol, (address, port): (Ipv4Addr, u16)) {
        let (piece, word, bit) = place(port);
        self.0.entry((protocol, address, piece)).or_default()[word] |= bit;
    }

    pub(crate) fn take(&mut self, protocol: IpProtocol, (address, port): (Ipv4Addr, u16)) {
        let (piece, word, bit) = place(port);
        let key = (protocol, address, piece);
        if let Some(words) = self.0.get_mut(&key) {
            words[word] &= !bit;
            if *words == Piece::default() {
                self.0.remove(&key);
            }
        }
    }

    pub(crate) fn has(&self, protocol: IpProtocol, (address, port): (Ipv4Addr, u16)) -> bool {
        let (piece, word, bit) = place(port);
        self.0.get(&(protocol, address, piece)).is_some_and(|words| words[word] & bit != 0)
    }

    /// The ports of a range that are free and as even as `parity` (0 or 1), in their order.
    pub(crate) fn free(
        &self,
        protocol: IpProtocol,
        address: Ipv4Addr,
        range: RangeInclusive<u16>,
        parity: u16,
    ) -> impl Iterator<Item = u16> {
        let (first, last) = range.into_inner();
        let pieces = first / PIECE_BITS..=last / PIECE_BITS;
        pieces.into_iter().filter(move |_| first <= last).flat_map(move |piece| {
            let words = self.0.get(&(protocol, address, piece)).copied().unwrap_or_default();
            (0..WORDS as u16).zip(words).flat_map(move |(nth, taken)| {
                let begin = piece * PIECE_BITS + nth * WORD_BITS;
                let within = from(first, begin) & !from(last, begin) | bit_of(last, begin);
                ones(!taken & EVEN << parity & within).map(move |bit| begin + bit)
            })
        })
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<((IpProtocol, Ipv4Addr, u16), Piece)>()
    }
}

/// The bits of a word, whose first port is `begin`, from a port's on.
const fn from(port: u16, begin: u16) -> u64 {
    match port.checked_sub(begin) {
        None => u64::MAX,
        Some(bits) if bits >= WORD_BITS => 0,
        Some(bits) => u64::MAX << bits,
    }
}

/// A port's bit, if it is in that word.
const fn bit_of(port: u16, begin: u16) -> u64 {
    match port.checked_sub(begin) {
        Some(bit) if bit < WORD_BITS => 1 << bit,
        _ => 0,
    }
}

/// The places of the ones in a word.
fn ones(mut word: u64) -> impl Iterator<Item = u16> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as u16)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

    fn taken(ports: &BTreeSet<u16>) -> TakenPorts {
        let mut taken = TakenPorts::new(SipHasher13::new_with_keys(1, 2));
        ports.iter().for_each(|&port| taken.put(IpProtocol::UDP, (ADDRESS, port)));
        taken
    }

    proptest! {
        /// The free ones are those of the range and the parity that were not put, or were taken out again.
        #[test]
        fn what_is_free_is_what_a_set_says(
            put in prop::collection::btree_set(any::<u16>(), 0..300),
            out in prop::collection::btree_set(any::<u16>(), 0..100),
            ends in any::<[u16; 2]>(), span in 0..3000_u16, narrow: bool, parity in 0..2_u16,
        ) {
            let mut all = taken(&put);
            out.iter().for_each(|&port| all.take(IpProtocol::UDP, (ADDRESS, port)));
            let (first, last) = if narrow { (ends[0], ends[0].saturating_add(span)) } else { (ends[0], ends[1]) };
            let left: BTreeSet<u16> = put.difference(&out).copied().collect();
            let expected: Vec<u16> = (first..=last).filter(|port| port % 2 == parity && !left.contains(port)).collect();
            let free: Vec<u16> = all.free(IpProtocol::UDP, ADDRESS, first..=last, parity).collect();
            prop_assert_eq!(free, expected);
            prop_assert!(put.iter().all(|&port| all.has(IpProtocol::UDP, (ADDRESS, port)) == left.contains(&port)));
        }
    }

    #[test]
    fn addresses_and_protocols_have_ports_of_their_own_and_memory_goes_with_the_last() {
        let mut all = taken(&BTreeSet::from([7, 1030]));
        assert!(
            !all.has(IpProtocol::TCP, (ADDRESS, 7))
                && !all.has(IpProtocol::UDP, ([203, 0, 113, 2].into(), 7))
        );
        assert_eq!(all.0.len(), 2);
        for port in [7, 1030] {
            all.take(IpProtocol::UDP, (ADDRESS, port));
        }
        assert_eq!(all.0.len(), 0);
    }

    #[test]
    fn the_last_port_is_a_port() {
        let all = taken(&BTreeSet::new());
        let free = |range, parity| all.free(IpProtocol::UDP, ADDRESS, range, parity).collect::<Vec<_>>();
        assert_eq!(free(65_533..=65_535, 1), [65_533, 65_535]);
        assert_eq!((free(0..=0, 0), free(0..=0, 1)), (vec![0], vec![]));
        assert_eq!(free(0..=u16::MAX, 0).len(), 1 << 15);
    }
}
