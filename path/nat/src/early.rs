//! Pieces that have overtaken the first one of their datagram and wait for it, within limits of time, datagrams, pieces and memory, in
//! all and per source (RFC 4787 REQ-14a).
//!
//! Owns the frames of such pieces. Few datagrams wait at a time, and in one row, in which they stand as they began: who looks for one
//! looks at all of them. A datagram that has lost a piece is of use to nobody, so who makes room gives up whole datagrams, the
//! oldest first: of the source that has more than its share before those of all. Called by `pieces.rs`, which knows headers.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;

use firelane_frame::Frame;
use firelane_units::{DropReason, Instant, LinkId};

use crate::pieces::Datagram;

/// How long the first piece is waited for. What overtakes it does so by the difference of two queues or two ways, which is less than a
/// second even by satellite, unless the first piece waits for a neighbour's answer somewhere: that is asked for three times, a
/// second apart (RFC 4861 §10). It is a tenth of the time that whoever puts the datagram together waits for the rest.
pub(crate) const LASTS: Duration = Duration::from_secs(3);
/// Pieces of one datagram, as many as reassembly takes: 64 KiB over links of 576 bytes have 119.
const PIECES_MAX: usize = 128;
/// What all sources have together: half of the pools' bytes that reassembly may hold, for there are two directions.
const OF_ALL: Share = Share { datagrams: 256, memory: 2 << 20 };
/// What one has of it: a quarter, which is five datagrams of 64 KiB in pieces of 1,500 bytes, or one in pieces of 9,000.
const OF_SOURCE: Share = Share { datagrams: OF_ALL.datagrams / 4, memory: OF_ALL.memory / 4 };

/// A piece that has waited, for whoever has given it.
#[derive(Debug)]
pub enum Returned {
    /// The first piece of its datagram has passed: this one, which came in or goes out by the link, is asked about again.
    Released(LinkId, Frame),
    /// It ends.
    Ended(Frame, DropReason),
}

/// How much waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    datagrams: usize,
    /// Bytes of pools.
    memory: usize,
}

/// A datagram whose first piece has not come.
#[derive(Debug)]
struct Waiting {
    datagram: Datagram,
    until: Instant,
    /// In the order in which they came.
    pieces: Vec<(LinkId, Frame)>,
    /// Bytes of pools that they hold.
    memory: usize,
}

/// Such datagrams, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct Early(VecDeque<Waiting>);

impl Waiting {
    /// Whether it is of a source, if one is asked for.
    fn is_of(&self, source: Option<Ipv4Addr>) -> bool {
        source.is_none_or(|source| source == self.datagram.src)
    }
}

impl Early {
    /// Keeps a piece. What has no room any more is told to `give_up`.
    pub(crate) fn keep(
        &mut self,
        datagram: Datagram,
        (link, frame): (LinkId, Frame),
        now: Instant,
        mut give_up: impl FnMut(Frame),
    ) {
        let memory = frame.headroom() + frame.len() + frame.tailroom();
        let nth = self.place_of(&datagram).unwrap_or_else(|| {
            self.0.push_back(Waiting { datagram, until: now + LASTS, pieces: Vec::new(), memory: 0 });
            self.0.len() - 1
        });
        let waiting = &mut self.0[nth];
        if waiting.pieces.len() == PIECES_MAX {
            return give_up(frame);
        }
        waiting.pieces.push((link, frame));
        waiting.memory += memory;
        for (source, most) in [(Some(datagram.src), OF_SOURCE), (None, OF_ALL)] {
            while self.exceeds(source, most)
                && let Some(oldest) = self.0.iter().position(|it| it.is_of(source))
            {
                self.remove(oldest).into_iter().for_each(|(_, frame)| give_up(frame));
            }
        }
    }

    /// The first piece of a datagram has come: those that wait for it, in the order in which they came.
    pub(crate) fn take(&mut self, datagram: &Datagram) -> Vec<(LinkId, Frame)> {
        self.place_of(datagram).map_or_else(Vec::new, |nth| self.remove(nth))
    }

    /// Gives up what has waited up to `now`; all of it, if there is no such time.
    pub(crate) fn expire(&mut self, now: Option<Instant>, mut give_up: impl FnMut(Frame)) {
        while self.0.front().is_some_and(|it| now.is_none_or(|now| it.until <= now)) {
            self.remove(0).into_iter().for_each(|(_, frame)| give_up(frame));
        }
    }

    /// When the next one has waited long enough: all wait equally long.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.0.front().map(|it| it.until)
    }

    /// How many pieces wait.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|it| it.pieces.len()).sum()
    }

    /// The bytes that it takes, beside frames.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let pieces: usize = self.0.iter().map(|it| it.pieces.capacity()).sum();
        self.0.capacity() * size_of::<Waiting>() + pieces * size_of::<(LinkId, Frame)>()
    }

    fn place_of(&self, datagram: &Datagram) -> Option<usize> {
        self.0.iter().position(|it| it.datagram == *datagram)
    }

    fn exceeds(&self, source: Option<Ipv4Addr>, most: Share) -> bool {
        let nothing = Share { datagrams: 0, memory: 0 };
        let its = self.0.iter().filter(|it| it.is_of(source));
        let has = its
            .fold(nothing, |sum, it| Share { datagrams: sum.datagrams + 1, memory: sum.memory + it.memory });
        has.datagrams > most.datagrams || has.memory > most.memory
    }

    fn remove(&mut self, nth: usize) -> Vec<(LinkId, Frame)> {
        let pieces = self.0.remove(nth).map_or_else(Vec::new, |it| it.pieces);
        if self.0.is_empty() {
            // All memory goes with the last one.
            self.0 = VecDeque::new();
        }
        pieces
    }
}
