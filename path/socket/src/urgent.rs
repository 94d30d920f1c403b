//! Urgent text at the reader's end of a stream: where it is, and how a program gets it (RFC 9293 §3.8.5, RFC 6093).
//!
//! TCP tells up to which octet the text is urgent; the *mark* lies behind that octet, and only moves forward. RFC 6093
//! wants the text to stay in the stream, so that is the default, and a program that never asks pays nothing. One that
//! asks ([`RecvEnd::heed_urgent`]) reads no further than to the last urgent octet in one call, and can tell when it
//! stands there; or it has that octet apart from the stream, as Linux does unless SO_OOBINLINE is set.
//!
//! The mark travels in the words that both sides see, as the low 24 bits of its cursor: more than a peer can announce
//! ahead of what was read, as long as the ring holds less than eight megabytes.

use crate::{ReadError, RecvEnd};

/// What a program wants to know of urgent text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UrgentMode {
    /// Nothing: the text is text.
    #[default]
    Ignored,
    /// Where it ends; the octets stay in the stream (SO_OOBINLINE).
    Inline,
    /// The last octet is read apart (MSG_OOB) and left out of the stream.
    OutOfBand,
}

/// Why there is no urgent octet to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrgentError {
    /// None was announced, it was read before, or it is read with the stream (EINVAL).
    Nothing,
    /// It was announced and has not arrived (EAGAIN).
    NotYet,
}

/// The mode, and the mark whose octet was read apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heed(u32);

const MODE: u32 = 3;
const TAKEN: u32 = 4;

impl Heed {
    /// Whether the program asks for nothing.
    #[inline]
    pub(crate) const fn is_idle(self) -> bool {
        self.0 == 0
    }

    const fn mode(self) -> UrgentMode {
        match self.0 & MODE {
            0 => UrgentMode::Ignored,
            1 => UrgentMode::Inline,
            _ => UrgentMode::OutOfBand,
        }
    }

    fn set_mode(&mut self, mode: UrgentMode) {
        self.0 = mode as u32;
    }

    fn has_taken(self, mark: u64) -> bool {
        self.0 & TAKEN != 0 && self.0 >> 8 == mark as u32 & 0xff_ffff
    }

    fn take(&mut self, mark: u64) {
        self.0 = self.0 & MODE | TAKEN | (mark as u32) << 8;
    }
}

impl RecvEnd {
    /// Says what the program wants to know of urgent text from here on.
    pub fn heed_urgent(&mut self, mode: UrgentMode) {
        // Who has read so much without asking may have passed a mark that looks like one to come.
        if self.heed.is_idle() && self.ring.cursor() >= 1 << 23 {
            self.shared().words().forget_mark();
        }
        self.heed.set_mode(mode);
    }

    /// The cursor behind the last urgent octet, if that was not passed.
    fn mark(&self) -> Option<u64> {
        if self.heed.is_idle() {
            return None;
        }
        let mark = self.shared().words().mark(self.ring.cursor());
        mark.filter(|&mark| mark > self.ring.cursor())
    }

    /// How much text is left up to the mark, the last urgent octet included (RFC 9293 MUST-33); `None` if none is
    /// urgent, or nobody asked to know.
    pub fn urgent_left(&self) -> Option<u64> {
        Some(self.mark()? - self.ring.cursor())
    }

    /// Whether the last urgent octet is the next one (SIOCATMARK).
    pub fn is_at_mark(&self) -> bool {
        self.urgent_left() == Some(1)
    }

    /// Whether there is urgent text that was not read (POLLPRI).
    pub fn has_urgent(&self) -> bool {
        self.mark().is_some_and(|mark| !self.heed.has_taken(mark))
    }

    /// Reads the urgent octet apart from the stream, or looks at it (MSG_OOB).
    pub fn read_urgent(&mut self, only_peek: bool) -> Result<u8, UrgentError> {
        let mark = self.mark().filter(|&mark| !self.heed.has_taken(mark)).ok_or(UrgentError::Nothing)?;
        if self.heed.mode() != UrgentMode::OutOfBand {
            return Err(UrgentError::Nothing);
        }
        let mut octet = [0];
        if self.copy_at(mark - 1, &mut octet) == 0 {
            return Err(UrgentError::NotYet);
        }
        if !only_peek {
            self.heed.take(mark);
        }
        Ok(octet[0])
    }

    /// How far the next read goes, and how many octets it leaves out before it begins.
    fn up_to_mark(&self, most: usize) -> (usize, usize) {
        match (self.urgent_left(), self.heed.mode()) {
            (None, _) => (0, most),
            (Some(1), UrgentMode::OutOfBand) => (self.left().min(1), most),
            (Some(1), _) => (0, most),
            (Some(left), _) => (0, most.min(usize::try_from(left - 1).unwrap_or(most))),
        }
    }

    /// As [`RecvEnd::read`], for a program that heeds urgent text.
    #[cold]
    pub(crate) fn read_heeding(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let (hole, most) = self.up_to_mark(to.len());
        self.skip(hole);
        self.read_any(&mut to[..most])
    }

    /// As [`RecvEnd::peek`], for a program that heeds urgent text.
    #[cold]
    pub(crate) fn peek_heeding(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let (hole, most) = self.up_to_mark(to.len());
        self.peek_from(self.ring.cursor() + hole as u64, &mut to[..most])
    }

    /// Octets of the stream that can be read now, without one that is read apart.
    pub(crate) fn available_heeding(&self) -> usize {
        let (hole, _) = self.up_to_mark(1);
        self.left() - hole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StreamConfig, StreamEnd, StreamSlot, stream};
    use firelane_units::{LaneId, NetstackId};
    use proptest::prelude::*;

    fn pair(mode: UrgentMode) -> (StreamEnd, StreamSlot) {
        let rings = StreamConfig { send_capacity: 64, recv_capacity: 64 };
        let (mut end, slot) = stream(rings, LaneId(0), NetstackId(0));
        end.recv.heed_urgent(mode);
        (end, slot)
    }

    fn read(end: &mut StreamEnd) -> Result<Vec<u8>, ReadError> {
        let mut bytes = [0; 64];
        end.recv.read(&mut bytes).map(|count| bytes[..count].to_vec())
    }

    #[test]
    fn who_does_not_ask_reads_text() {
        let (mut end, mut slot) = pair(UrgentMode::Ignored);
        slot.recv.write(b"abcdef");
        slot.shared().words().set_mark(3);
        assert_eq!((end.recv.urgent_left(), end.recv.has_urgent()), (None, false));
        assert_eq!(end.recv.read_urgent(false), Err(UrgentError::Nothing));
        assert_eq!(read(&mut end).unwrap(), b"abcdef");
    }

    #[test]
    fn inline_a_read_stops_before_the_last_urgent_octet() {
        let (mut end, mut slot) = pair(UrgentMode::Inline);
        slot.recv.write(b"abcdef");
        slot.shared().words().set_mark(4);
        assert_eq!((end.recv.urgent_left(), end.recv.is_at_mark()), (Some(4), false));
        assert_eq!(read(&mut end).unwrap(), b"abc");
        assert!(end.recv.is_at_mark() && end.recv.has_urgent());
        assert_eq!(end.recv.read_urgent(false), Err(UrgentError::Nothing));
        assert_eq!(read(&mut end).unwrap(), b"def");
        assert_eq!((end.recv.urgent_left(), end.recv.has_urgent()), (None, false));
    }

    #[test]
    fn out_of_band_the_octet_is_left_out_of_the_stream() {
        let (mut end, mut slot) = pair(UrgentMode::OutOfBand);
        slot.recv.write(b"ab");
        slot.shared().words().set_mark(3);
        assert_eq!(end.recv.read_urgent(false), Err(UrgentError::NotYet));
        assert!(end.recv.has_urgent(), "it was announced");
        slot.recv.write(b"Cd");
        assert_eq!((end.recv.read_urgent(true), end.recv.read_urgent(false)), (Ok(b'C'), Ok(b'C')));
        assert_eq!((end.recv.read_urgent(false), end.recv.has_urgent()), (Err(UrgentError::Nothing), false));
        assert_eq!(read(&mut end).unwrap(), b"ab");
        assert!(end.recv.is_at_mark() && end.recv.is_readable());
        let mut bytes = [0; 4];
        assert_eq!((end.recv.peek(&mut bytes), bytes[0]), (Ok(1), b'd'));
        assert_eq!(read(&mut end).unwrap(), b"d");
        slot.recv.write(b"E");
        slot.shared().words().set_mark(5);
        assert!(end.recv.has_urgent() && end.recv.is_at_mark());
        assert_eq!((end.recv.is_readable(), end.recv.available()), (false, 0));
        assert_eq!(end.recv.read_urgent(false), Ok(b'E'));
        assert_eq!(read(&mut end), Err(ReadError::WouldBlock));
    }

    #[test]
    fn an_error_and_a_mark_share_a_word() {
        let (mut end, slot) = pair(UrgentMode::Inline);
        slot.shared().words().set_mark(9);
        slot.fail(crate::SocketError::Reset);
        assert_eq!(end.recv.urgent_left(), Some(9));
        assert_eq!(read(&mut end), Err(ReadError::Failed(crate::SocketError::Reset)));
        assert_eq!(end.recv.urgent_left(), Some(9));
        assert_eq!(slot.shared().words().error(), None);
    }

    proptest! {
        /// Whatever is urgent, the stream is whole but for octets that are read apart, and no read passes a mark that it
        /// could know.
        #[test]
        fn nothing_else_is_lost(
            steps in proptest::collection::vec((1usize..9, any::<bool>(), 1usize..9), 1..200),
            apart: bool,
        ) {
            let mode = if apart { UrgentMode::OutOfBand } else { UrgentMode::Inline };
            let (mut end, mut slot) = pair(mode);
            let (mut written, mut expected, mut got) = (0u64, Vec::new(), Vec::new());
            for (len, is_urgent, most) in steps {
                let bytes: Vec<u8> = (written..written + len as u64).map(|n| n as u8).collect();
                let len = slot.recv.write(&bytes);
                expected.extend_from_slice(&bytes[..len]);
                written += len as u64;
                // One mark at a time: an octet of an older mark becomes text, as in Linux.
                if is_urgent && len > 0 && end.recv.urgent_left().is_none() {
                    slot.shared().words().set_mark(written);
                    if apart {
                        expected.pop();
                    }
                }
                let at = end.recv.urgent_left();
                let mut piece = vec![0; most];
                if let Ok(count) = end.recv.read(&mut piece) {
                    prop_assert!(at.is_none_or(|left| left == 1 || (count as u64) < left));
                    got.extend_from_slice(&piece[..count]);
                }
            }
            while let Ok(rest) = read(&mut end) {
                got.extend(rest);
            }
            prop_assert_eq!(got, expected);
        }
    }
}
