//! Urgent text of a stream, as Linux gives it to programs (MSG_OOB, SO_OOBINLINE; tcp(7), RFC 9293 §3.8.5).
//!
//! The *mark* is the cursor behind the last urgent byte of what TCP brings. The lane shows it before the text, so that no
//! reader passes it unawares. A read ends before the urgent byte; the next one leaves it out, unless the program wants it
//! inline. That byte can be read apart, once, as soon as it is there, whatever lies before it.
//!
//! - U1. A new mark takes the old one's place, whose byte is text then, as in Linux; if the reader stood before that byte, it
//!   is left out for good. (Of several new ones between two looks of the reader the last is known.)
//! - U2. What is urgent goes TCP's way: the writer leaves its joint first, under the send side's owner word, so that what
//!   is written later comes behind it.
//! - U3. The lane is told of a mark before the text is published: segments that carry it say so.

use std::io::{IoSlice, IoSliceMut};

use crate::joint::{Lie, Readable};
use crate::layout::{OOB_INLINE, margin, status};
use crate::owner::Inside;
use crate::stream::{Held, ReadError, Storage, StreamEnd, WriteError, copy_out, place};
use crate::sync::Ordering;

/// In the word `urgent` of a block: the byte before the mark that stands beside it was read apart.
const TAKEN: u64 = 1 << 63;

/// Why there is no urgent byte to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrgentError {
    /// None was announced, it was read before, or it is read with the stream (EINVAL).
    Nothing,
    /// It was announced and has not arrived, and more may come (EAGAIN).
    NotYet,
    /// No more comes.
    Ended,
    /// As of any read.
    Read(ReadError),
}

/// What urgent text does to a look at what can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cut {
    /// The mark that was looked at; zero if there never was any.
    mark: u64,
    /// Bytes that are left out first.
    pub(crate) hole: usize,
    /// How many of the lane's ring follow up to the mark, if a read ends there.
    stop: Option<usize>,
    /// How many follow up to it behind those that are there now, if it lies there.
    further: Option<usize>,
}

impl Cut {
    /// What one read can give.
    #[inline]
    pub(crate) fn of(self, readable: Readable) -> Readable {
        let own = readable.own - self.hole;
        match self.stop {
            Some(stop) => Readable { own: stop, ..Readable::default() },
            None => Readable { own, behind: self.behind(readable), ..readable },
        }
    }

    /// How many of those behind the joint's text lie before the mark.
    fn behind(self, readable: Readable) -> usize {
        readable.behind.min(self.further.unwrap_or(usize::MAX))
    }

    /// Whether a read ends at the mark, with more behind it.
    fn ends(self, readable: Readable) -> bool {
        self.stop.is_some() || self.behind(readable) < readable.behind
    }
}

#[allow(private_bounds)]
impl<M: Storage> StreamEnd<'_, M> {
    fn mark(&self) -> u64 {
        self.rings().margin[margin::MARK].load(Ordering::Acquire)
    }

    fn is_inline(&self) -> bool {
        self.block().file.load(Ordering::Relaxed) & OOB_INLINE != 0
    }

    fn head(&self) -> u64 {
        self.rings().one.head.load(Ordering::Relaxed)
    }

    /// What a look that found `own` bytes of the lane's finds of urgent text. Streams without any pay one look at a line that
    /// they look at anyway.
    #[inline]
    pub(crate) fn cut(&self, own: usize) -> Cut {
        match self.mark() {
            0 => Cut::default(),
            mark => self.cut_at(mark, own),
        }
    }

    #[cold]
    fn cut_at(&self, mark: u64, own: usize) -> Cut {
        let mut hole = self.replaced(mark, own);
        let before = self.before(mark, hole);
        hole += usize::from(!self.is_inline() && before == Some(0) && hole < own);
        let stop = before.filter(|&before| before > 0 && before < own - hole);
        let further = before.and_then(|before| before.checked_sub(own - hole));
        Cut { mark, hole, stop, further }
    }

    /// Whether the next byte was urgent until another one was, and is left out (U1).
    fn replaced(&self, mark: u64, own: usize) -> usize {
        let old = self.block().urgent.load(Ordering::Relaxed) & !TAKEN;
        let is_next = old == self.head().wrapping_add(1);
        usize::from(is_next && old != mark && !self.is_inline() && own > 0)
    }

    /// How much lies before the urgent byte, behind `hole` bytes; `None` if it was passed.
    fn before(&self, mark: u64, hole: usize) -> Option<usize> {
        let ahead = mark.wrapping_sub(self.head().wrapping_add(1 + hole as u64)).cast_signed();
        usize::try_from(ahead).ok()
    }

    /// Passes over what is left out, and remembers the mark (U1). The caller is inside.
    #[inline]
    pub(crate) fn pass(&self, cut: Cut) {
        if cut.mark != 0 {
            self.pass_to(cut);
        }
    }

    #[cold]
    fn pass_to(&self, cut: Cut) {
        let word = &self.block().urgent;
        if word.load(Ordering::Relaxed) & !TAKEN != cut.mark {
            word.store(cut.mark, Ordering::Relaxed);
        }
        if cut.hole > 0 {
            self.rings().one.head.store(self.head().wrapping_add(cut.hole as u64), Ordering::Release);
        }
    }

    /// Text that is there, whatever is urgent of it, without what is left out first (`tcp_stream_is_readable` of Linux).
    pub fn unread_in_all(&self) -> usize {
        self.look().map_or(1, |all| all.total() - self.cut(all.own).hole)
    }

    /// All that is left to read, be it urgent; the peer's end counts as one, so that it be read, too (`tcp_inq_hint` of Linux).
    pub fn unread_with_end(&self) -> usize {
        let text = self.look().map_or(1, |all| all.total() - self.replaced(self.mark(), all.own));
        text + usize::from(self.peer_has_ended(self.status()))
    }

    /// Bytes that are there up to the urgent one, or all (FIONREAD).
    pub fn unread(&self) -> usize {
        let Ok(all) = self.look() else { return 1 };
        let mark = self.mark();
        if mark == 0 || self.is_inline() {
            return all.total();
        }
        let hole = self.replaced(mark, all.own);
        match self.before(mark, hole).filter(|_| self.is_here(mark)) {
            // The joint's text lies behind what is before it of the lane's.
            Some(before) if hole + before < all.own => before,
            Some(before) => before + all.beside,
            None => all.total() - hole,
        }
    }

    /// Whether a read ends at the mark, with more behind it.
    pub fn ends_at_mark(&self) -> bool {
        self.look().is_ok_and(|all| self.cut(all.own).ends(all))
    }

    /// Whether the urgent byte is the next one (SIOCATMARK).
    pub fn is_at_mark(&self) -> bool {
        let mark = self.mark();
        let at = |all: Readable| self.before(mark, self.replaced(mark, all.own)) == Some(0);
        mark != 0 && self.look().is_ok_and(|all| at(all) && (all.own > 0 || all.beside == 0))
    }

    /// Whether the urgent byte is the next one, and here.
    pub fn is_before_urgent(&self) -> bool {
        self.is_at_mark() && self.is_here(self.mark())
    }

    /// Whether the urgent byte is here and was not read (POLLPRI).
    #[inline]
    pub fn has_urgent(&self) -> bool {
        let mark = self.mark();
        mark != 0 && self.is_here(mark) && !self.is_passed(mark) && !self.is_taken(mark)
    }

    fn is_here(&self, mark: u64) -> bool {
        mark <= self.rings().two.tail.load(Ordering::Acquire)
    }

    fn is_passed(&self, mark: u64) -> bool {
        mark <= self.head()
    }

    fn is_taken(&self, mark: u64) -> bool {
        self.block().urgent.load(Ordering::Relaxed) == mark | TAKEN
    }

    /// Reads the urgent byte, or looks at it (MSG_OOB).
    ///
    /// # Errors
    /// Why there is none.
    pub fn read_urgent(&self, peek: bool) -> Result<u8, UrgentError> {
        let busy = |busy| UrgentError::Read(ReadError::Busy(busy));
        let _inside = Inside::enter(&self.block().recv_owner, self.me).map_err(busy)?;
        let mark = self.mark();
        if mark == 0 || self.is_inline() || self.is_passed(mark) || self.is_taken(mark) {
            return Err(UrgentError::Nothing);
        }
        let own = self.look().map_err(|Lie| UrgentError::Read(ReadError::Lie))?.own;
        self.pass(Cut { mark, hole: self.replaced(mark, own), ..Cut::default() });
        if !self.is_here(mark) {
            let ended = status::PEER_CLOSED | status::CLOSED | status::READ_CLOSED;
            return Err(if self.status() & ended != 0 { UrgentError::Ended } else { UrgentError::NotYet });
        }
        let mut byte = [0];
        let ring = place(&self.rings().two);
        if !copy_out(self.memory, ring, mark - 1, 1, &mut [IoSliceMut::new(&mut byte)], 0) {
            return Err(UrgentError::NotYet);
        }
        if !peek {
            self.block().urgent.store(mark | TAKEN, Ordering::Relaxed);
        }
        Ok(byte[0])
    }

    /// As [`StreamEnd::write`], and what was written ends with an urgent byte, of whose cursor the lane is told by `announce`
    /// before it can see it (U2, U3). The caller kicks the lane.
    ///
    /// # Errors
    /// Why nothing was written; the number that `announce` has failed with.
    pub fn write_urgent(
        &self,
        pieces: &[IoSlice<'_>],
        announce: impl FnOnce(u64) -> Result<(), i32>,
    ) -> Result<usize, WriteError> {
        let Some(_inside) = self.enter_to_write(pieces)? else { return Ok(0) };
        if self.lacks().is_some() {
            return Err(WriteError::WouldBlock);
        }
        if let Some(beside) = &self.beside {
            beside.leave();
        }
        let held = Held::take(&self.rings().one.state).ok_or(WriteError::WouldBlock)?;
        match self.write_held(&held, pieces).map_err(|Lie| WriteError::Lie)? {
            0 => Err(WriteError::WouldBlock),
            count => {
                let end = self.rings().one.tail.load(Ordering::Relaxed).wrapping_add(count as u64);
                announce(end).map_err(WriteError::Failed)?;
                self.rings().one.tail.store(end, Ordering::Release);
                Ok(count)
            }
        }
    }
}
