//! Fragments back into datagrams (RFC 791 §3.2, RFC 815, RFC 8200 §4.5).
//!
//! Owns the datagrams that are not complete: the frames of their pieces, in order, within limits of memory,
//! pieces and time, in all and per source: who sends most loses first. A piece that overlaps another condemns its datagram in both versions (RFC 5722,
//! RFC 1858); the condemned keep their place until their time is up, so that what still comes is dropped
//! too. Called by `input_fragment.rs`, which knows headers; this file knows only offsets.
//!
//! First pieces of datagrams that never get whole are what an attacker sends, so one that pushes out another costs a few writes:
//! all datagrams of a version have the same time, so they end in the order in which they began, and a queue does what a sorted
//! tree would, and places and sources that are free are used again.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use core::time::Duration;

use firelane_frame::{Frame, read_all_ahead, read_begin_ahead};
use firelane_units::{DropReason, Instant};
use firelane_wire::{Ecn, IpProtocol};
use hashbrown::HashTable;

use crate::random::Keyed;

mod pieces;
mod queue;

use pieces::Pieces;
pub(crate) use pieces::{Piece, join, put_back};
use queue::{NOWHERE, Neighbours, Of, Queue, Queued};

/// I07: bytes of pools that pieces may hold.
const MEMORY_MAX: u32 = 4 << 20;
/// I08: pieces of one datagram; 64 KiB over links of 576 bytes have 119, and over links of 1,500 bytes and then narrower ones 90.
const PIECES_MAX: usize = 128;
/// Datagrams, condemned ones included.
const DATAGRAMS_MAX: usize = 2048;
/// Of both, one source has at most a quarter: eleven datagrams of 64 KiB at a time.
const SOURCE_MEMORY_MAX: u32 = MEMORY_MAX / 4;
const SOURCE_DATAGRAMS_MAX: u32 = DATAGRAMS_MAX as u32 / 4;
/// The longest datagram (I05).
const DATAGRAM_MAX: u32 = 65_535;
/// How long the rest of a datagram is waited for (I07; RFC 8200 §4.5).
const TIMEOUT_V4: Duration = Duration::from_secs(30);
const TIMEOUT_V6: Duration = Duration::from_secs(60);

/// Which datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) identification: u32,
    /// RFC 791: in IPv4 a part of the name; in IPv6 always the same.
    pub(crate) protocol: IpProtocol,
}

/// What came of a piece.
#[derive(Debug)]
pub(crate) enum Added {
    /// It waits.
    Waiting,
    /// All are there, in order. The congestion field is the datagram's.
    Complete(Vec<Piece>, Ecn),
    /// It is refused.
    Refused(Frame, DropReason),
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    /// The key's hash.
    hash: u64,
    /// The place of its source.
    source: u32,
    neighbours: Neighbours,
    pieces: Pieces,
    /// Bytes of pools that they hold.
    memory: u32,
    received: u32,
    total: Option<u32>,
    is_condemned: bool,
    deadline: Instant,
}

impl Queued for Datagram {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn neighbours_mut(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }
}

/// What one source has of the limits.
#[derive(Clone, Copy, Debug)]
struct Source {
    address: IpAddr,
    hash: u64,
    memory: u32,
    count: u32,
    queue: Queue,
}

/// A datagram whose time was up, without its pieces but the first.
#[derive(Debug)]
pub(crate) struct Expired {
    /// Whom it was for.
    pub(crate) dst: IpAddr,
    /// The first piece, if it came: what an error quotes.
    pub(crate) first: Option<Piece>,
}

/// Datagrams that are not complete.
#[derive(Debug)]
pub(crate) struct Reassembly {
    keyed: Keyed,
    /// In places, of which some are free.
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    /// Those of IPv4 and of IPv6, the first of which is the next of them that is given up, whatever the reason.
    by_age: [Queue; 2],
    /// Likewise.
    sources: Vec<Source>,
    free_sources: Vec<u32>,
    by_address: HashTable<u32>,
    memory: u32,
    held: usize,
    /// Pieces that were given up, to be counted and put back by the caller.
    given_up: Vec<(Frame, DropReason)>,
}

impl Reassembly {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self {
            keyed,
            datagrams: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            by_age: [Queue::default(); 2],
            sources: Vec::new(),
            free_sources: Vec::new(),
            by_address: HashTable::new(),
            memory: 0,
            held: 0,
            given_up: Vec::new(),
        }
    }

    /// Takes a piece.
    pub(crate) fn add(&mut self, now: Instant, key: Key, piece: Piece) -> Added {
        if piece.len() == 0 || (piece.more && !piece.len().is_multiple_of(8)) {
            return Added::Refused(piece.frame, DropReason::BadFragment);
        }
        let name = u64::from(key.identification) << 8 | u64::from(key.protocol.0);
        let hash = hash_of(self.keyed, [key.src, key.dst], name);
        let known = self.by_key.find(hash, |&at| self.datagrams[at as usize].key == key).copied();
        let at = known.unwrap_or_else(|| self.begin(now, key, hash));
        let datagram = &mut self.datagrams[at as usize];
        match datagram.place(&piece) {
            Place::At(nth) => {
                let memory = piece.memory();
                datagram.insert(nth, piece, memory);
                self.sources[datagram.source as usize].memory += memory;
                self.memory += memory;
                self.held += 1;
            }
            Place::Copy => return Added::Refused(piece.frame, DropReason::BadFragment),
            Place::Wrong(reason) => {
                self.condemn(at, reason);
                return Added::Refused(piece.frame, reason);
            }
        }
        if datagram.total == Some(datagram.received) {
            return self.complete(at);
        }
        self.make_room(at);
        Added::Waiting
    }

    /// A datagram begins, and gets a place.
    fn begin(&mut self, now: Instant, key: Key, hash: u64) -> u32 {
        let address_hash = hash_of(self.keyed, [key.src], 0);
        let source = self.find_source(key.src, address_hash);
        if let Some(source) = source
            && self.sources[source as usize].count == SOURCE_DATAGRAMS_MAX
        {
            self.give_up_oldest_of(source, None);
        }
        if self.by_key.len() == DATAGRAMS_MAX {
            self.give_up_oldest(None);
        }
        // The oldest may have been the source's last.
        let source = source.filter(|&source| self.sources[source as usize].count > 0);
        let source = source.unwrap_or_else(|| self.add_source(key.src, address_hash));
        let version = version(&key);
        let at = self.free.pop().unwrap_or_else(|| {
            self.datagrams.push(Datagram::of(key));
            self.datagrams.len() as u32 - 1
        });
        let deadline = now + [TIMEOUT_V4, TIMEOUT_V6][version];
        self.datagrams[at as usize].begin(key, hash, source, deadline);
        self.by_key.insert_unique(hash, at, |&at| self.datagrams[at as usize].hash);
        self.by_age[version].append(&mut self.datagrams, Of::Version, at);
        let source = &mut self.sources[source as usize];
        source.count += 1;
        source.queue.append(&mut self.datagrams, Of::Source, at);
        at
    }

    fn find_source(&self, address: IpAddr, hash: u64) -> Option<u32> {
        self.by_address.find(hash, |&at| self.sources[at as usize].address == address).copied()
    }

    fn add_source(&mut self, address: IpAddr, hash: u64) -> u32 {
        let source = Source { address, hash, memory: 0, count: 0, queue: Queue::default() };
        let at = match self.free_sources.pop() {
            Some(at) => {
                self.sources[at as usize] = source;
                at
            }
            None => {
                self.sources.push(source);
                self.sources.len() as u32 - 1
            }
        };
        self.by_address.insert_unique(hash, at, |&at| self.sources[at as usize].hash);
        at
    }

    fn complete(&mut self, at: u32) -> Added {
        self.end(at);
        let datagram = &mut self.datagrams[at as usize];
        let ecn = datagram.ecn();
        let mut pieces = core::mem::take(&mut datagram.pieces).into_vec();
        match ecn {
            Some(ecn) => Added::Complete(pieces, ecn),
            None => {
                let last = pieces.pop().expect("a complete datagram has pieces");
                let bad = DropReason::BadFragment;
                self.given_up.extend(pieces.into_iter().map(|piece| (piece.frame, bad)));
                Added::Refused(last.frame, bad)
            }
        }
    }

    /// Gives up the oldest datagrams until what is held fits the memory, first the source's own; never
    /// the `newest`, whose pieces are bounded by themselves.
    fn make_room(&mut self, newest: u32) {
        let source = self.datagrams[newest as usize].source;
        while self.sources[source as usize].memory > SOURCE_MEMORY_MAX
            && self.give_up_oldest_of(source, Some(newest))
        {}
        while self.memory > MEMORY_MAX && self.give_up_oldest(Some(newest)) {}
    }

    /// Gives up the source's oldest datagram but `spared`; says whether there was one.
    fn give_up_oldest_of(&mut self, source: u32, spared: Option<u32>) -> bool {
        let queue = self.sources[source as usize].queue;
        let oldest = queue.first_but(&self.datagrams, Of::Source, spared);
        oldest.inspect(|&at| self.give_up_datagram(at)).is_some()
    }

    /// Gives up the oldest datagram but `spared`; says whether there was one.
    fn give_up_oldest(&mut self, spared: Option<u32>) -> bool {
        let oldest = self.oldest(spared);
        if let Some(at) = oldest {
            self.give_up_datagram(at);
            self.look_ahead();
        }
        oldest.is_some()
    }

    /// Where one had to go another one will, soon: what that will touch, which nobody has touched for long, is fetched until then.
    fn look_ahead(&self) {
        let Some(at) = self.oldest(None) else { return };
        let datagram = &self.datagrams[at as usize];
        read_begin_ahead(&self.sources[datagram.source as usize]);
        datagram.pieces.as_slice().first().into_iter().for_each(|piece| piece.frame.read_ahead());
        let (_, behind) = datagram.neighbours[Of::Version as usize];
        self.datagrams.get(behind as usize).into_iter().for_each(read_all_ahead);
    }

    /// The datagram but `spared` whose time is up first.
    fn oldest(&self, spared: Option<u32>) -> Option<u32> {
        let first = self.by_age.map(|queue| queue.first_but(&self.datagrams, Of::Version, spared));
        first.into_iter().flatten().min_by_key(|&at| self.datagrams[at as usize].deadline)
    }

    fn give_up_datagram(&mut self, at: u32) {
        self.end(at);
        self.give_up_pieces(at, DropReason::ReassemblyLimit);
    }

    /// The pieces that it still has are for who asks [`Reassembly::poll_given_up`].
    fn give_up_pieces(&mut self, at: u32, reason: DropReason) {
        let pieces = core::mem::take(&mut self.datagrams[at as usize].pieces);
        pieces.for_each(|piece| self.given_up.push((piece.frame, reason)));
    }

    /// RFC 5722 §4: all its pieces, those that are still to come included.
    fn condemn(&mut self, at: u32, reason: DropReason) {
        self.datagrams[at as usize].is_condemned = true;
        self.release(at);
        self.give_up_pieces(at, reason);
    }

    /// A datagram ends. Its place is free, and what pieces are in it are the caller's to take.
    fn end(&mut self, at: u32) {
        self.release(at);
        let &Datagram { key, hash, source, .. } = &self.datagrams[at as usize];
        take_out(&mut self.by_key, hash, at);
        self.by_age[version(&key)].remove(&mut self.datagrams, Of::Version, at);
        self.free.push(at);
        let its = &mut self.sources[source as usize];
        its.queue.remove(&mut self.datagrams, Of::Source, at);
        its.count -= 1;
        if its.count == 0 {
            take_out(&mut self.by_address, its.hash, source);
            self.free_sources.push(source);
        }
    }

    /// Takes the pieces of a datagram, which leave, out of the books.
    fn release(&mut self, at: u32) {
        let datagram = &mut self.datagrams[at as usize];
        let memory = core::mem::take(&mut datagram.memory);
        self.memory -= memory;
        self.held -= datagram.pieces.as_slice().len();
        self.sources[datagram.source as usize].memory -= memory;
    }

    /// When [`poll`](Self::poll) has something.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let first = self.by_age.into_iter().filter_map(|queue| self.datagrams.get(queue.first as usize));
        first.map(|datagram| datagram.deadline).min()
    }

    /// The next datagram whose time is up.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Expired> {
        let at = self.oldest(None)?;
        let datagram = &self.datagrams[at as usize];
        if datagram.deadline > now {
            return None;
        }
        let dst = datagram.key.dst;
        self.end(at);
        let mut first = None;
        let pieces = core::mem::take(&mut self.datagrams[at as usize].pieces);
        pieces.for_each(|piece| match piece.offset {
            0 => first = Some(piece),
            _ => self.given_up.push((piece.frame, DropReason::ReassemblyLimit)),
        });
        Some(Expired { dst, first })
    }

    /// The next piece that was given up.
    pub(crate) fn poll_given_up(&mut self) -> Option<(Frame, DropReason)> {
        self.given_up.pop()
    }

    /// Pieces that wait.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }
}

/// Which of [`Reassembly::by_age`] it is in.
const fn version(key: &Key) -> usize {
    key.src.is_ipv6() as usize
}

/// Takes a place out, so that its hash does not lead there.
fn take_out(places: &mut HashTable<u32>, hash: u64, at: u32) {
    if let Ok(place) = places.find_entry(hash, |&it| it == at) {
        place.remove();
    }
}

/// A hash that nobody outside can aim, of addresses and another word.
fn hash_of<const N: usize>(keyed: Keyed, addresses: [IpAddr; N], word: u64) -> u64 {
    let mut hasher = keyed.build_hasher();
    for address in addresses {
        match address {
            IpAddr::V4(v4) => hasher.write_u32(v4.to_bits()),
            IpAddr::V6(v6) => hasher.write_u128(v6.to_bits()),
        }
    }
    hasher.write_u64(word);
    hasher.finish()
}

/// Where a piece belongs.
enum Place {
    At(usize),
    /// It is there already.
    Copy,
    Wrong(DropReason),
}

impl Datagram {
    /// In a place that nobody had before.
    const fn of(key: Key) -> Self {
        Self {
            key,
            hash: 0,
            source: NOWHERE,
            neighbours: [(NOWHERE, NOWHERE); 2],
            pieces: Pieces::None,
            memory: 0,
            received: 0,
            total: None,
            is_condemned: false,
            deadline: Instant::ZERO,
        }
    }

    /// Begins where another one has ended, of which all pieces are gone. It is written in place.
    fn begin(&mut self, key: Key, hash: u64, source: u32, deadline: Instant) {
        (self.key, self.hash, self.source, self.deadline) = (key, hash, source, deadline);
        (self.received, self.total, self.is_condemned) = (0, None, false);
        debug_assert!(self.pieces.as_slice().is_empty() && self.memory == 0);
    }

    fn place(&self, piece: &Piece) -> Place {
        const BAD: Place = Place::Wrong(DropReason::BadFragment);
        if self.is_condemned || piece.end() + u32::from(piece.header_len) > DATAGRAM_MAX {
            return BAD;
        }
        let pieces = self.pieces.as_slice();
        let is_last_wrong = match self.total {
            Some(total) => piece.end() > total || (!piece.more && piece.end() != total),
            None => !piece.more && pieces.last().is_some_and(|last| last.end() > piece.end()),
        };
        if is_last_wrong {
            return BAD;
        }
        let at = pieces.partition_point(|other| other.offset < piece.offset);
        if let Some(next) = pieces.get(at) {
            if next.offset == piece.offset && next.more == piece.more && next.bytes() == piece.bytes() {
                return Place::Copy;
            }
            if next.offset < piece.end() {
                return BAD;
            }
        }
        let before = at.checked_sub(1).map(|before| &pieces[before]);
        if before.is_some_and(|before| before.end() > piece.offset) {
            return BAD;
        }
        // Small pieces in large storage are bounded by that: nobody gives up the newest datagram to make room.
        if pieces.len() == PIECES_MAX || self.memory + piece.memory() > MEMORY_MAX {
            return Place::Wrong(DropReason::ReassemblyLimit);
        }
        Place::At(at)
    }

    fn insert(&mut self, at: usize, piece: Piece, memory: u32) {
        self.received += piece.len();
        self.memory += memory;
        if !piece.more {
            self.total = Some(piece.end());
        }
        self.pieces.insert(at, piece);
    }

    /// RFC 3168 §5.3: one mark marks the datagram; a mark beside a piece that cannot be marked is wrong.
    fn ecn(&self) -> Option<Ecn> {
        let pieces = self.pieces.as_slice();
        let any = |ecn: Ecn| pieces.iter().any(|piece| piece.ecn == ecn);
        match (any(Ecn::Congested), any(Ecn::NotCapable)) {
            (true, true) => None,
            (true, false) => Some(Ecn::Congested),
            (false, true) => Some(Ecn::NotCapable),
            (false, false) => pieces.first().map(|piece| piece.ecn),
        }
    }
}

#[cfg(test)]
mod tests;
