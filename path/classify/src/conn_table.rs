//! Exact match: from a connection's tuple to its index and its step list.
//!
//! One table per lane and netstack, written by the slow path (connection opened, accepted, closed, steps
//! changed) and read once per packet. Remote peers choose what it holds, so the hash is SipHash-1-3 with a
//! secret: nobody can build tuples that collide.

use core::hash::Hasher;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use siphasher::sip::SipHasher13;

use firelane_units::{ConnId, StepListId};

use crate::tuple::Tuple;

/// The secret of a connection table, drawn once per process.
#[derive(Clone, Copy, Debug)]
pub struct TableKey(pub u64, pub u64);

/// The tuple belongs to another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TupleTaken(pub ConnId);

/// From tuple to connection.
pub struct ConnTable {
    table: HashTable<Entry>,
    hasher: SipHasher13,
}

struct Entry {
    tuple: Tuple,
    conn: ConnId,
    steps: StepListId,
}

// What an idle connection costs here.
const _: () = assert!(size_of::<Entry>() == 48);

impl ConnTable {
    /// An empty table with room for `connections`, so that accepting them moves nothing.
    pub fn new(key: TableKey, connections: usize) -> Self {
        let hasher = SipHasher13::new_with_keys(key.0, key.1);
        Self { table: HashTable::with_capacity(connections), hasher }
    }

    /// The connection and step list of `tuple`.
    #[inline]
    pub fn lookup(&self, tuple: &Tuple) -> Option<(ConnId, StepListId)> {
        let found = self.table.find(hash(&self.hasher, tuple), |e| e.tuple == *tuple)?;
        Some((found.conn, found.steps))
    }

    /// Enters a connection. A tuple has one connection at a time.
    pub fn insert(&mut self, tuple: Tuple, conn: ConnId, steps: StepListId) -> Result<(), TupleTaken> {
        let hasher = &self.hasher;
        match self.table.entry(hash(hasher, &tuple), |e| e.tuple == tuple, |e| hash(hasher, &e.tuple)) {
            Slot::Occupied(taken) => Err(TupleTaken(taken.get().conn)),
            Slot::Vacant(free) => {
                free.insert(Entry { tuple, conn, steps });
                Ok(())
            }
        }
    }

    /// Removes `tuple` if it still belongs to `conn`: a connection that lost its tuple to a successor (a SYN
    /// that reuses a TIME_WAIT pair) must not take the successor out.
    pub fn remove(&mut self, tuple: &Tuple, conn: ConnId) -> bool {
        let same = |e: &Entry| e.tuple == *tuple && e.conn == conn;
        match self.table.find_entry(hash(&self.hasher, tuple), same) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Gives a connection another list of steps.
    pub fn set_steps(&mut self, tuple: &Tuple, conn: ConnId, steps: StepListId) -> bool {
        let same = |e: &Entry| e.tuple == *tuple && e.conn == conn;
        match self.table.find_mut(hash(&self.hasher, tuple), same) {
            Some(entry) => {
                entry.steps = steps;
                true
            }
            None => false,
        }
    }

    /// How many connections the table holds.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Every connection, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Tuple, ConnId, StepListId)> {
        self.table.iter().map(|e| (&e.tuple, e.conn, e.steps))
    }
}

#[inline]
fn hash(hasher: &SipHasher13, tuple: &Tuple) -> u64 {
    let mut hasher = *hasher;
    hasher.write(&tuple.to_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;
    use firelane_wire::IpProtocol;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const STEPS: StepListId = StepListId(0);

    fn table() -> ConnTable {
        ConnTable::new(TableKey(1, 2), 0)
    }

    fn tuple(n: u16) -> Tuple {
        Tuple::v4(IpProtocol::TCP, (0x0a00_000a.into(), Port(80)), (0x0a00_0001.into(), Port(n)))
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(commands in prop::collection::vec((0u8..3, 0u16..20, 0u32..4), 0..200)) {
            let (mut table, mut model) = (table(), HashMap::new());
            for (command, n, conn) in commands {
                let (key, conn) = (tuple(n), ConnId(conn));
                match command {
                    0 => {
                        let taken = model.get(&key).copied().map(TupleTaken);
                        prop_assert_eq!(table.insert(key, conn, STEPS).err(), taken);
                        model.entry(key).or_insert(conn);
                    }
                    1 => {
                        let mine = model.get(&key) == Some(&conn);
                        prop_assert_eq!(table.remove(&key, conn), mine);
                        if mine {
                            model.remove(&key);
                        }
                    }
                    _ => prop_assert_eq!(table.lookup(&key).map(|(c, _)| c), model.get(&key).copied()),
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }

    #[test]
    fn steps_change_only_for_their_connection() {
        let mut table = table();
        table.insert(tuple(1), ConnId(7), STEPS).unwrap();
        assert!(!table.set_steps(&tuple(1), ConnId(8), StepListId(3)));
        assert!(table.set_steps(&tuple(1), ConnId(7), StepListId(3)));
        assert_eq!(table.lookup(&tuple(1)), Some((ConnId(7), StepListId(3))));
        assert_eq!(table.lookup(&tuple(1).reversed()), None);
    }

    /// How many of `tuples` share the fullest of `buckets` under `key`.
    fn depth(tuples: &[Tuple], key: TableKey, buckets: u64) -> usize {
        let table = ConnTable::new(key, 0);
        let mut counts = HashMap::new();
        for tuple in tuples {
            *counts.entry(hash(&table.hasher, tuple) % buckets).or_insert(0usize) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    #[test]
    fn r09_tuples_that_were_chosen_without_the_key_spread() {
        let (known, secret) = (TableKey(1, 2), TableKey(0x1234_5678_9abc_def0, 77));
        let all: Vec<Tuple> = (0..1_u32 << 18)
            .map(|n| {
                let (peer, port) = (0x0a00_0000 + (n >> 16), Port(n as u16));
                Tuple::v4(IpProtocol::TCP, (0x0a00_000a.into(), Port(80)), (peer.into(), port))
            })
            .collect();
        // Neighbouring addresses and ports, one per bucket on average.
        assert!(depth(&all[..1 << 16], secret, 1 << 16) <= 16);
        // What collides under another key than the table's.
        let table = ConnTable::new(known, 0);
        let chosen: Vec<Tuple> =
            all.iter().filter(|tuple| hash(&table.hasher, tuple).is_multiple_of(256)).copied().collect();
        assert!(chosen.len() > 900);
        assert_eq!(depth(&chosen, known, 256), chosen.len());
        assert!(depth(&chosen, secret, 1024) <= 16);
    }
}
