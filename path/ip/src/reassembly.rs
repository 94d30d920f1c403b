//! Fragments back into datagrams (RFC 791 §3.2, RFC 815, RFC 8200 §4.5).
//!
//! Owns the datagrams that are not complete: the frames of their pieces, in order, within limits of memory,
//! pieces and time, in all and per source: who sends most loses first. A piece that overlaps another condemns its datagram in both versions (RFC 5722,
//! RFC 1858); the condemned keep their place until their time is up, so that what still comes is dropped
//! too. Called by `input_fragment.rs`, which knows headers; this file knows only offsets.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropReason, Instant};
use firelane_wire::{Ecn, IpProtocol};
use hashbrown::HashMap;

use crate::random::Keyed;

/// I07: bytes of pools that pieces may hold.
const MEMORY_MAX: usize = 4 << 20;
/// I08: pieces of one datagram; 64 KiB over links of 1,280 bytes have 54.
const PIECES_MAX: usize = 64;
/// Datagrams, condemned ones included.
const DATAGRAMS_MAX: usize = 2048;
/// Of both, one source has at most a quarter: eleven datagrams of 64 KiB at a time.
const SOURCE_MEMORY_MAX: usize = MEMORY_MAX / 4;
const SOURCE_DATAGRAMS_MAX: usize = DATAGRAMS_MAX / 4;
/// The longest datagram (I05).
const DATAGRAM_MAX: u32 = 65_535;
/// How long the rest of a datagram is waited for (I07; RFC 8200 §4.5).
const TIMEOUT_V4: Duration = Duration::from_secs(30);
const TIMEOUT_V6: Duration = Duration::from_secs(60);

/// Which datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) identification: u32,
    /// RFC 791: in IPv4 a part of the name; in IPv6 always the same.
    pub(crate) protocol: IpProtocol,
}

/// A fragment.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where it lies in the datagram's payload.
    pub(crate) offset: u32,
    /// Where its part of the payload begins in the frame; the part goes to the frame's end.
    pub(crate) start: usize,
    /// Whether more follow.
    pub(crate) more: bool,
    /// Its congestion field.
    pub(crate) ecn: Ecn,
    /// Bytes of the headers of the datagram, as far as they are in each fragment, without Ethernet's.
    pub(crate) header_len: usize,
    /// The frame, cut to the packet's end.
    pub(crate) frame: Frame,
}

impl Piece {
    fn len(&self) -> u32 {
        (self.frame.len() - self.start) as u32
    }

    fn end(&self) -> u32 {
        self.offset + self.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.frame.as_slice()[self.start..]
    }

    /// Bytes of pools that it holds.
    fn memory(&self) -> usize {
        self.frame.headroom() + self.frame.len() + self.frame.tailroom()
    }
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
    pieces: Vec<Piece>,
    received: u32,
    total: Option<u32>,
    is_condemned: bool,
    deadline: Instant,
    serial: u64,
}

/// What one source has of the limits.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    memory: usize,
    datagrams: usize,
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
    table: HashMap<Key, Datagram, Keyed>,
    /// By deadline: the first is the next that is given up, whatever the reason.
    ages: BTreeMap<(Instant, u64), Key>,
    /// The same by source.
    ages_by_source: BTreeSet<(IpAddr, Instant, u64)>,
    shares: HashMap<IpAddr, Share, Keyed>,
    serial: u64,
    memory: usize,
    held: usize,
    /// Pieces that were given up, to be counted and put back by the caller.
    given_up: Vec<(Frame, DropReason)>,
}

impl Reassembly {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self {
            table: HashMap::with_hasher(keyed),
            ages: BTreeMap::new(),
            ages_by_source: BTreeSet::new(),
            shares: HashMap::with_hasher(keyed),
            serial: 0,
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
        if !self.table.contains_key(&key) {
            self.begin(now, key);
        }
        let datagram = self.table.get_mut(&key).expect("the datagram was just begun");
        match datagram.place(&piece) {
            Place::At(at) => {
                let memory = piece.memory();
                datagram.insert(at, piece);
                self.memory += memory;
                self.held += 1;
                self.share(key.src).memory += memory;
            }
            Place::Copy => return Added::Refused(piece.frame, DropReason::BadFragment),
            Place::Wrong(reason) => {
                self.condemn(&key, reason);
                return Added::Refused(piece.frame, reason);
            }
        }
        if self.table.get(&key).is_some_and(|datagram| datagram.total == Some(datagram.received)) {
            return self.complete(&key);
        }
        self.make_room(&key);
        Added::Waiting
    }

    fn begin(&mut self, now: Instant, key: Key) {
        if self.share(key.src).datagrams == SOURCE_DATAGRAMS_MAX {
            self.give_up_oldest_of(key.src, None);
        }
        if self.table.len() == DATAGRAMS_MAX {
            self.give_up_oldest(None);
        }
        let timeout = if key.src.is_ipv4() { TIMEOUT_V4 } else { TIMEOUT_V6 };
        self.serial += 1;
        let datagram = Datagram {
            pieces: Vec::new(),
            received: 0,
            total: None,
            is_condemned: false,
            deadline: now + timeout,
            serial: self.serial,
        };
        self.share(key.src).datagrams += 1;
        self.ages.insert((datagram.deadline, datagram.serial), key);
        self.ages_by_source.insert((key.src, datagram.deadline, datagram.serial));
        self.table.insert(key, datagram);
    }

    fn complete(&mut self, key: &Key) -> Added {
        let datagram = self.remove(key).expect("the datagram is in the table");
        match datagram.ecn() {
            Some(ecn) => Added::Complete(datagram.pieces, ecn),
            None => {
                let mut pieces = datagram.pieces;
                let last = pieces.pop().expect("a complete datagram has pieces");
                let bad = DropReason::BadFragment;
                self.given_up.extend(pieces.into_iter().map(|piece| (piece.frame, bad)));
                Added::Refused(last.frame, bad)
            }
        }
    }

    /// Gives up the oldest datagrams until what is held fits the memory, first the source's own; never
    /// `newest`, whose pieces are bounded by themselves.
    fn make_room(&mut self, newest: &Key) {
        while self.share(newest.src).memory > SOURCE_MEMORY_MAX
            && self.give_up_oldest_of(newest.src, Some(newest))
        {}
        while self.memory > MEMORY_MAX && self.give_up_oldest(Some(newest)) {}
    }

    fn share(&mut self, src: IpAddr) -> &mut Share {
        self.shares.entry(src).or_default()
    }

    /// Gives up the source's oldest datagram but `spared`; says whether there was one.
    fn give_up_oldest_of(&mut self, src: IpAddr, spared: Option<&Key>) -> bool {
        let of_source = self.ages_by_source.range((src, Instant::ZERO, 0)..);
        let keys = of_source.take_while(|age| age.0 == src).map(|age| self.ages[&(age.1, age.2)]);
        let oldest = keys.into_iter().find(|key| Some(key) != spared);
        oldest.is_some_and(|key| self.give_up_datagram(&key))
    }

    /// Gives up the oldest datagram but `spared`; says whether there was one.
    fn give_up_oldest(&mut self, spared: Option<&Key>) -> bool {
        let oldest = self.ages.values().find(|&key| Some(key) != spared).copied();
        oldest.is_some_and(|key| self.give_up_datagram(&key))
    }

    fn give_up_datagram(&mut self, key: &Key) -> bool {
        let datagram = self.remove(key).expect("ages name datagrams that exist");
        let reason = DropReason::ReassemblyLimit;
        self.given_up.extend(datagram.pieces.into_iter().map(|piece| (piece.frame, reason)));
        true
    }

    /// RFC 5722 §4: all its pieces, those that are still to come included.
    fn condemn(&mut self, key: &Key, reason: DropReason) {
        let Some(datagram) = self.table.get_mut(key) else { return };
        datagram.is_condemned = true;
        let pieces = core::mem::take(&mut datagram.pieces);
        self.release(key.src, &pieces);
        self.given_up.extend(pieces.into_iter().map(|piece| (piece.frame, reason)));
    }

    fn remove(&mut self, key: &Key) -> Option<Datagram> {
        let datagram = self.table.remove(key)?;
        self.ages.remove(&(datagram.deadline, datagram.serial));
        self.ages_by_source.remove(&(key.src, datagram.deadline, datagram.serial));
        self.release(key.src, &datagram.pieces);
        let share = self.share(key.src);
        share.datagrams -= 1;
        if share.datagrams == 0 {
            self.shares.remove(&key.src);
        }
        Some(datagram)
    }

    /// Takes pieces that leave out of the books.
    fn release(&mut self, src: IpAddr, pieces: &[Piece]) {
        let memory: usize = pieces.iter().map(Piece::memory).sum();
        self.memory -= memory;
        self.held -= pieces.len();
        self.share(src).memory -= memory;
    }

    /// When [`poll`](Self::poll) has something.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.ages.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next datagram whose time is up.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Expired> {
        let (&(at, _), &key) = self.ages.first_key_value()?;
        if at > now {
            return None;
        }
        let mut pieces = self.remove(&key)?.pieces;
        let has_first = pieces.first().is_some_and(|piece| piece.offset == 0);
        let first = has_first.then(|| pieces.remove(0));
        let reason = DropReason::ReassemblyLimit;
        self.given_up.extend(pieces.into_iter().map(|piece| (piece.frame, reason)));
        Some(Expired { dst: key.dst, first })
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

/// Where a piece belongs.
enum Place {
    At(usize),
    /// It is there already.
    Copy,
    Wrong(DropReason),
}

impl Datagram {
    fn place(&self, piece: &Piece) -> Place {
        const BAD: Place = Place::Wrong(DropReason::BadFragment);
        if self.is_condemned || piece.end() + piece.header_len as u32 > DATAGRAM_MAX {
            return BAD;
        }
        let is_last_wrong = match self.total {
            Some(total) => piece.end() > total || (!piece.more && piece.end() != total),
            None => !piece.more && self.pieces.last().is_some_and(|last| last.end() > piece.end()),
        };
        if is_last_wrong {
            return BAD;
        }
        let at = self.pieces.partition_point(|other| other.offset < piece.offset);
        if let Some(next) = self.pieces.get(at) {
            if next.offset == piece.offset && next.more == piece.more && next.bytes() == piece.bytes() {
                return Place::Copy;
            }
            if next.offset < piece.end() {
                return BAD;
            }
        }
        let before = at.checked_sub(1).map(|before| &self.pieces[before]);
        if before.is_some_and(|before| before.end() > piece.offset) {
            return BAD;
        }
        if self.pieces.len() == PIECES_MAX {
            return Place::Wrong(DropReason::ReassemblyLimit);
        }
        Place::At(at)
    }

    fn insert(&mut self, at: usize, piece: Piece) {
        self.received += piece.len();
        if !piece.more {
            self.total = Some(piece.end());
        }
        self.pieces.insert(at, piece);
    }

    /// RFC 3168 §5.3: one mark marks the datagram; a mark beside a piece that cannot be marked is wrong.
    fn ecn(&self) -> Option<Ecn> {
        let any = |ecn: Ecn| self.pieces.iter().any(|piece| piece.ecn == ecn);
        match (any(Ecn::Congested), any(Ecn::NotCapable)) {
            (true, true) => None,
            (true, false) => Some(Ecn::Congested),
            (false, true) => Some(Ecn::NotCapable),
            (false, false) => self.pieces.first().map(|piece| piece.ecn),
        }
    }
}

/// One frame of a datagram's pieces: everything before the first one's part, then all parts. `None` if no
/// buffer is free.
pub(crate) fn join(pieces: &[Piece], pools: &mut Pools) -> Option<Frame> {
    let first = pieces.first()?;
    let headers = &first.frame.as_slice()[..first.start];
    let len = headers.len() + pieces.iter().map(|piece| piece.bytes().len()).sum::<usize>();
    let mut frame = pools.take(len)?;
    frame.extend_from_slice(headers);
    for piece in pieces {
        frame.extend_from_slice(piece.bytes());
    }
    frame.meta_mut().ingress = first.frame.meta().ingress;
    Some(frame)
}

/// Puts the frames of pieces back.
pub(crate) fn put_back(pieces: Vec<Piece>, pools: &mut Pools) {
    let mut frames: Chain = pieces.into_iter().map(|piece| piece.frame).collect();
    pools.put_all(&mut frames);
}
