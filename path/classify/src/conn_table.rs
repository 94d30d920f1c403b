//! Exact match: from a connection's tuple to its index.
//!
//! One table per lane and netstack, written by the slow path (connection opened, accepted, closed) and read once
//! per packet. Remote peers choose what it holds, so the hash is SipHash-1-3 with a secret: nobody can build
//! tuples that collide.
//!
//! An entry is an index and 32 bits of the hash, no tuple: the connection has that, and its owner answers whether
//! a connection has a given one. The bits of the hash make that question right nearly always, and let the table
//! grow without a look at any connection. Where a tuple leads to is known before anything was read, so the connections of a
//! chain are found side by side ([`ConnTable::foresee`]).
//!
//! In front of it stand the connections that were found last, by a hash that costs little and has no secret: a peer
//! whose tuples collide there makes its own packets take the table, and no worse.

use core::cell::Cell;
use firelane_table::Index;
use firelane_units::ConnId;
use siphasher::sip::SipHasher13;

use crate::tuple::Tuple;

/// The secret of a connection table, drawn once per process.
#[derive(Clone, Copy, Debug)]
pub struct TableKey(pub u64, pub u64);

/// The tuple belongs to another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TupleTaken(pub ConnId);

/// From tuple to connection.
pub struct ConnTable {
    table: Index,
    hasher: SipHasher13,
    /// The last one found for each place; every one of them is in the table.
    recent: Box<[Cell<Option<Entry>>; RECENT]>,
}

/// How many connections are found without the table: more than talk within one round trip of a busy lane, and few
/// enough for the innermost cache.
const RECENT: usize = 512;

/// One of them, under the hash that costs little.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    conn: ConnId,
}

/// Where a tuple's connection will be looked for.
#[derive(Clone, Copy, Debug)]
pub enum Sought {
    /// It was found lately.
    Found(ConnId),
    /// It stands under the tuple's hash. Whether it has the tuple nobody has asked as yet.
    Likely(ConnId),
    /// Under this hash.
    Under(u32),
}

impl ConnTable {
    /// An empty table with room for `connections`, so that accepting them moves nothing.
    pub fn new(key: TableKey, connections: usize) -> Self {
        let hasher = SipHasher13::new_with_keys(key.0, key.1);
        let recent = Box::new([const { Cell::new(None) }; RECENT]);
        Self { table: Index::with_room(connections), hasher, recent }
    }

    /// The connection of `tuple`. `is_named` answers whether a connection of the table has that tuple.
    #[inline]
    pub fn lookup(&self, tuple: &Tuple, is_named: impl Fn(ConnId) -> bool) -> Option<ConnId> {
        let (recent, mixed) = self.recent(tuple);
        if let Some(found) = recent.get()
            && found.hash == mixed
            && is_named(found.conn)
        {
            return Some(found.conn);
        }
        self.lookup_under(hash(&self.hasher, tuple), tuple, is_named)
    }

    /// The same under the hash of `tuple`, which [`ConnTable::foresee`] has told.
    #[inline]
    pub fn lookup_under(
        &self,
        hash: u32,
        tuple: &Tuple,
        is_named: impl Fn(ConnId) -> bool,
    ) -> Option<ConnId> {
        let found = self.table.find(hash, |conn| is_named(ConnId(conn))).map(ConnId)?;
        self.remember(tuple, found);
        Some(found)
    }

    /// The next look-up of the tuple finds this connection of the table, which has it, without the table.
    #[inline]
    pub fn remember(&self, tuple: &Tuple, conn: ConnId) {
        let (recent, mixed) = self.recent(tuple);
        recent.set(Some(Entry { hash: mixed, conn }));
    }

    /// Where the connection of `tuple` will be looked for; begins to fetch the table's part of it.
    #[inline]
    pub fn foresee(&self, tuple: &Tuple) -> Sought {
        let (recent, mixed) = self.recent(tuple);
        if let Some(found) = recent.get().filter(|found| found.hash == mixed) {
            return Sought::Found(found.conn);
        }
        let hash = hash(&self.hasher, tuple);
        self.table.touch(hash);
        Sought::Under(hash)
    }

    /// The same once the table's part of it is near: which connection it probably is. Who uses it asks whether it has the tuple; until
    /// then it is not remembered by that, because nobody would forget it again when it ends.
    #[inline]
    pub fn foreseen(&self, at: Sought) -> Sought {
        match at {
            Sought::Under(hash) => {
                self.table.find(hash, |_| true).map_or(at, |conn| Sought::Likely(ConnId(conn)))
            }
            Sought::Found(_) | Sought::Likely(_) => at,
        }
    }

    /// Where a tuple stands if it was found lately, and by what hash.
    #[inline]
    fn recent(&self, tuple: &Tuple) -> (&Cell<Option<Entry>>, u32) {
        let mixed = tuple.mixed();
        (&self.recent[(mixed >> 32) as usize % RECENT], mixed as u32)
    }

    /// Enters a connection. A tuple has one connection at a time.
    pub fn insert(
        &mut self,
        tuple: &Tuple,
        conn: ConnId,
        is_named: impl Fn(ConnId) -> bool,
    ) -> Result<(), TupleTaken> {
        self.recent(tuple).0.set(None);
        let hash = hash(&self.hasher, tuple);
        match self.table.find(hash, |conn| is_named(ConnId(conn))) {
            Some(taken) => Err(TupleTaken(ConnId(taken))),
            None => {
                self.table.insert(hash, conn.0);
                Ok(())
            }
        }
    }

    /// Removes `tuple` if it still belongs to `conn`: a connection that lost its tuple to a successor (a SYN
    /// that reuses a TIME_WAIT pair) must not take the successor out.
    pub fn remove(&mut self, tuple: &Tuple, conn: ConnId) -> bool {
        let is_gone = self.table.remove(hash(&self.hasher, tuple), conn.0);
        if is_gone {
            self.recent(tuple).0.set(None);
        }
        is_gone
    }

    /// The connection that stands in the `nth` slot: `None` behind the last slot, `Some(None)` at one that is free. Who takes all out of
    /// a table into which nothing comes meets each of them ([`Index::slot`]).
    pub fn slot(&self, nth: usize) -> Option<Option<ConnId>> {
        self.table.slot(nth).map(|conn| conn.map(ConnId))
    }

    /// How many connections the table holds.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many bytes the table takes.
    pub fn allocated_bytes(&self) -> usize {
        self.table.allocated_bytes() + size_of_val(&*self.recent)
    }
}

#[inline]
fn hash(hasher: &SipHasher13, tuple: &Tuple) -> u32 {
    hasher.hash(&tuple.to_bytes()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;
    use firelane_wire::IpProtocol;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn table() -> ConnTable {
        ConnTable::new(TableKey(1, 2), 0)
    }

    fn tuple(n: u16) -> Tuple {
        Tuple::v4(IpProtocol::TCP, (0x0a00_000a.into(), Port(80)), (0x0a00_0001.into(), Port(n)))
    }

    fn likely(at: Sought) -> Option<ConnId> {
        match at {
            Sought::Found(conn) | Sought::Likely(conn) => Some(conn),
            Sought::Under(_) => None,
        }
    }

    /// In these tests a connection's index tells its tuple: four connections may want each.
    fn has(n: u16) -> impl Fn(ConnId) -> bool {
        move |conn| conn.0 / 4 == u32::from(n)
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(commands in prop::collection::vec((0u8..3, 0u16..20, 0u32..4), 0..200)) {
            let (mut table, mut model) = (table(), HashMap::new());
            for (command, n, which) in commands {
                let (key, conn) = (tuple(n), ConnId(u32::from(n) * 4 + which));
                match command {
                    0 => {
                        let taken = model.get(&key).copied().map(TupleTaken);
                        prop_assert_eq!(table.insert(&key, conn, has(n)).err(), taken);
                        model.entry(key).or_insert(conn);
                    }
                    1 => {
                        let mine = model.get(&key) == Some(&conn);
                        prop_assert_eq!(table.remove(&key, conn), mine);
                        if mine {
                            model.remove(&key);
                        }
                    }
                    _ => {
                        let foreseen = likely(table.foreseen(table.foresee(&key))).filter(|&conn| has(n)(conn));
                        prop_assert_eq!(foreseen, model.get(&key).copied());
                        if let Sought::Under(hash) = table.foresee(&key) {
                            prop_assert_eq!(table.lookup_under(hash, &key, has(n)), model.get(&key).copied());
                        }
                        if let Some(conn) = foreseen {
                            table.remember(&key, conn);
                        }
                        prop_assert_eq!(table.lookup(&key, has(n)), model.get(&key).copied());
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }

    #[test]
    fn who_shares_a_hash_is_told_apart_by_name() {
        let mut table = table();
        let (mine, other) = (ConnId(4), ConnId(5));
        table.insert(&tuple(1), mine, |_| false).unwrap();
        table.insert(&tuple(1), other, |_| false).expect("the one that is there says it is another's");
        assert_eq!(table.lookup(&tuple(1), |conn| conn == other), Some(other));
        assert_eq!(table.lookup(&tuple(1), |_| false), None);
        assert!(table.remove(&tuple(1), mine));
        assert_eq!(table.lookup(&tuple(1), |_| true), Some(other));
        assert_eq!(table.lookup(&tuple(1).reversed(), |_| true), None);
    }

    /// Whoever is foreseen under a hash that another tuple has is not remembered by that tuple: it may be somebody else's by then.
    #[test]
    fn what_was_only_foreseen_is_not_found_when_it_has_gone() {
        let mut seen = HashMap::new();
        let of = |n: u32| {
            let (peer, port) = (0x0a00_0000 + (n >> 16), Port(n as u16));
            Tuple::v4(IpProtocol::TCP, (0x0a00_000a.into(), Port(80)), (peer.into(), port))
        };
        let mut table = table();
        let two = (0..1_u32 << 19).map(of).find_map(|it| {
            let other = seen.insert(hash(&table.hasher, &it), it)?;
            Some((other, it))
        });
        let (one, other) = two.expect("so many have a pair with one hash");
        table.insert(&one, ConnId(7), |_| false).unwrap();
        assert_eq!(likely(table.foreseen(table.foresee(&other))), Some(ConnId(7)), "it may be this one");
        assert!(table.remove(&one, ConnId(7)));
        // The place of the one that has gone is another netstack's, whose connection has the same names.
        assert!(table.is_empty());
        assert_eq!(likely(table.foreseen(table.foresee(&other))), None);
        assert_eq!(table.lookup(&other, |_| true), None);
    }

    #[test]
    fn a_large_table_grows_by_what_it_holds() {
        let mut table = table();
        for n in 0..20_000 {
            table.insert(&tuple(n), ConnId(u32::from(n) * 4), has(n)).unwrap();
        }
        assert!((0..20_000).all(|n| table.lookup(&tuple(n), has(n)) == Some(ConnId(u32::from(n) * 4))));
        assert!(table.allocated_bytes() <= 20_000 * 32, "{}", table.allocated_bytes());
    }

    /// How many of `tuples` share the fullest of `buckets` under `key`.
    fn depth(tuples: &[Tuple], key: TableKey, buckets: u32) -> usize {
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
