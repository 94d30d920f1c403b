//! Pieces of datagrams: the first one has the ports and decides, the others share its fate.
//!
//! A piece that overtakes the first one waits for it (RFC 4787 REQ-14), where its addresses are such that it may get others: what concerns
//! nobody goes on at once. It is kept until the first one has passed and follows it then, or ends with it; `early.rs` says within which
//! limits. A flood of such pieces takes nothing from whole packets, nor from datagrams whose pieces come in order (REQ-14a), which are
//! remembered elsewhere.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;

use firelane_frame::Frame;
use firelane_table::Recent;
use firelane_units::{Direction, DropReason, Instant, LinkId};
use firelane_wire::IpProtocol;

use crate::early::{Early, Returned};
use crate::packet::Packet;
use crate::sessions::NatRef;
use crate::tuple::Tuple;
use crate::{Host, Nat, Outcome};

/// For how long a datagram is known: as long as reassembly waits (RFC 1122 §3.3.2).
const LASTS: Duration = Duration::from_secs(60);

/// What all pieces of a datagram say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    pub(crate) src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: IpProtocol,
    number: u16,
}

/// What became of a datagram's first piece, and becomes of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It has the ends that this session gives.
    Translated(NatRef),
    /// It went on as it was.
    Untouched,
    /// It ended.
    Ended(DropReason),
}

/// A piece that has overtaken the first one of its datagram: of which, and which way it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlyPiece {
    datagram: Datagram,
    direction: Direction,
    link: LinkId,
}

/// The datagrams of one direction that are known by one of their pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Those whose first pieces have come.
    fates: Recent<Datagram, Fate>,
    /// Those whose have not.
    early: Early,
    /// Pieces that have waited, for whoever has given them.
    returned: VecDeque<Returned>,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { fates: Recent::new(LASTS), early: Early::default(), returned: VecDeque::new() }
    }
}

impl Datagram {
    pub(crate) const fn new(tuple: &Tuple, number: u16) -> Self {
        Self { src: tuple.src, dst: tuple.dst, protocol: tuple.protocol, number }
    }
}

impl Pieces {
    fn keep(&mut self, datagram: Datagram, piece: (LinkId, Frame), now: Instant) {
        let returned = &mut self.returned;
        self.early.keep(datagram, piece, now, |frame| returned.push_back(given_up(frame)));
    }

    /// The other pieces of a datagram will come.
    fn remember(&mut self, datagram: Datagram, fate: Fate, now: Instant) {
        self.fates.keep(datagram, fate, now, |other| other.src == datagram.src);
    }

    /// The first piece of a datagram has come: those that have waited for it go back.
    fn release(&mut self, datagram: Datagram, fate: Fate) {
        let pieces = self.early.take(&datagram).into_iter();
        self.returned.extend(pieces.map(|(link, frame)| match fate {
            Fate::Ended(reason) => Returned::Ended(frame, reason),
            Fate::Translated(_) | Fate::Untouched => Returned::Released(link, frame),
        }));
    }

    /// Gives up what has waited up to `now`; all of it, if there is no such time.
    fn give_up(&mut self, now: Option<Instant>) {
        let returned = &mut self.returned;
        self.early.expire(now, |frame| returned.push_back(given_up(frame)));
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        self.fates.expire(now);
        self.give_up(Some(now));
    }

    /// When time has something to do, or what comes back is to be fetched: at once.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        if self.returned.is_empty() { self.early.poll_at() } else { Some(Instant::ZERO) }
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.early.allocated_bytes()
    }
}

/// A piece that nobody has translated, and nobody will; none ends for another reason with this word.
const fn given_up(frame: Frame) -> Returned {
    Returned::Ended(frame, DropReason::NatFragment)
}

impl Nat {
    /// Keeps a piece of which [`pass`](Self::pass) has said that it is early. It comes back by [`poll_returned`](Self::poll_returned): behind
    /// the first one of its datagram, at the latest when its time is up ([`poll_at`](Self::poll_at)), or at once if it has no room. Others may
    /// come back in its place.
    pub fn keep(&mut self, piece: EarlyPiece, frame: Frame, now: Instant) {
        let EarlyPiece { datagram, direction, link } = piece;
        self.counts.early += 1;
        self.pieces[direction.index()].keep(datagram, (link, frame), now);
    }

    /// The next piece of a direction that has waited, in the order in which they came. To be asked for behind each
    /// packet that has passed or was kept, and behind [`on_time`](Self::on_time) and [`give_up_pieces`](Self::give_up_pieces).
    #[inline]
    pub fn poll_returned(&mut self, direction: Direction) -> Option<Returned> {
        let returned = self.pieces[direction.index()].returned.pop_front()?;
        if let Returned::Ended(_, reason) = returned {
            self.counts.ended += 1;
            self.counts.given_up += u64::from(reason == DropReason::NatFragment);
        }
        Some(returned)
    }

    /// Ends all that waits.
    pub fn give_up_pieces(&mut self) {
        self.pieces.iter_mut().for_each(|pieces| pieces.give_up(None));
    }

    /// How many frames it has.
    pub fn waiting(&self) -> usize {
        self.pieces.iter().map(|pieces| pieces.early.len() + pieces.returned.len()).sum()
    }

    /// A later piece of a datagram.
    pub(crate) fn pass_later(
        &mut self,
        (direction, link): (Direction, LinkId),
        datagram: Datagram,
        packet: &Packet,
        bytes: &mut [u8],
        host: &impl Host,
        now: Instant,
    ) -> Result<Outcome, DropReason> {
        match self.pieces[direction.index()].fates.find(&datagram, now) {
            Some(Fate::Ended(reason)) => return Err(reason),
            Some(Fate::Untouched) => return Ok(Outcome::Untouched),
            Some(Fate::Translated(known)) => {
                let known = self.sessions.known(known);
                if let Some((session, way)) =
                    known.and_then(|(at, way)| Some((self.sessions.get_mut(at)?, way)))
                {
                    packet.rewrite(bytes, &session.ends_of(way), false);
                    return Ok(Outcome::Translated(None));
                }
            }
            None => {}
        }
        // A session that has ended was another datagram's of the same number.
        match self.concerns((direction, link), &packet.tuple, host) {
            true => Ok(Outcome::Early(EarlyPiece { datagram, direction, link })),
            false => Ok(Outcome::Untouched),
        }
    }

    /// The first piece of a datagram, of which `passed` was said: the others share its fate.
    pub(crate) fn pass_first(
        &mut self,
        (direction, link): (Direction, LinkId),
        datagram: Datagram,
        packet: &Packet,
        passed: Result<Outcome, DropReason>,
        host: &impl Host,
        now: Instant,
    ) -> Result<Outcome, DropReason> {
        let fate = match passed {
            Ok(Outcome::Translated(Some(known))) => Fate::Translated(known),
            // An ICMP error is never so long that it has others (RFC 1812 §4.3.2.3).
            Ok(Outcome::Translated(None)) => Fate::Ended(DropReason::NatBadIcmp),
            Ok(_) => Fate::Untouched,
            Err(reason) => Fate::Ended(reason),
        };
        let is_asked_for = fate != Fate::Untouched || self.concerns((direction, link), &packet.tuple, host);
        let pieces = &mut self.pieces[direction.index()];
        if is_asked_for {
            pieces.remember(datagram, fate, now);
        }
        pieces.release(datagram, fate);
        // No session is that of all pieces.
        passed.map(|outcome| match outcome {
            Outcome::Translated(_) => Outcome::Translated(None),
            outcome => outcome,
        })
    }

    /// Whether a packet between such addresses may get others here, if its ports are the right ones.
    fn concerns(&self, (direction, link): (Direction, LinkId), tuple: &Tuple, host: &impl Host) -> bool {
        match direction {
            Direction::Out => {
                self.is_mapped_source(link, tuple.src, host)
                    // A server inside, and somebody who has asked one.
                    || (self.sessions.of_source(tuple.dst) > 0 && self.rules.is_server(tuple.src))
            }
            // From outside, or from another inside (RFC 4787 REQ-9).
            Direction::In => self.rules.is_translated(link, tuple, host),
        }
    }
}
