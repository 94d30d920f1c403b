//! The pieces of a datagram, and how they become one frame.
//!
//! Part of the reassembly. Who sends first pieces and nothing else makes as many datagrams as there may be, so one piece needs no
//! memory of its own: what is looked at when it goes would otherwise be spread over twice as many lines.

use firelane_frame::{Chain, Frame, Pools};
use firelane_wire::Ecn;

/// A fragment.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where it lies in the datagram's payload.
    pub(crate) offset: u32,
    /// Where its part of the payload begins in the frame; the part goes to the frame's end.
    pub(crate) start: u16,
    /// Whether more follow.
    pub(crate) more: bool,
    /// Its congestion field.
    pub(crate) ecn: Ecn,
    /// Bytes of the headers of the datagram, as far as they are in each fragment, without Ethernet's.
    pub(crate) header_len: u16,
    /// The frame, cut to the packet's end.
    pub(crate) frame: Frame,
}

impl Piece {
    pub(super) fn len(&self) -> u32 {
        (self.frame.len() - usize::from(self.start)) as u32
    }

    pub(super) fn end(&self) -> u32 {
        self.offset + self.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.frame.as_slice()[usize::from(self.start)..]
    }

    /// Bytes of pools that it holds.
    pub(super) fn memory(&self) -> u32 {
        (self.frame.headroom() + self.frame.len() + self.frame.tailroom()) as u32
    }
}

/// In the order of their offsets.
#[derive(Debug, Default)]
pub(super) enum Pieces {
    #[default]
    None,
    One(Piece),
    Several(Vec<Piece>),
}

impl Pieces {
    pub(super) const fn as_slice(&self) -> &[Piece] {
        match self {
            Self::None => &[],
            Self::One(piece) => core::slice::from_ref(piece),
            Self::Several(pieces) => pieces.as_slice(),
        }
    }

    /// A piece comes before the `nth` of them.
    pub(super) fn insert(&mut self, nth: usize, piece: Piece) {
        match self {
            Self::None => *self = Self::One(piece),
            Self::Several(pieces) => pieces.insert(nth, piece),
            Self::One(_) => {
                let mut pieces = core::mem::take(self).into_vec();
                pieces.insert(nth, piece);
                *self = Self::Several(pieces);
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Piece> {
        match self {
            Self::None => Vec::new(),
            Self::One(piece) => vec![piece],
            Self::Several(pieces) => pieces,
        }
    }

    /// Each of them, in their order.
    #[inline]
    pub(super) fn for_each(self, mut f: impl FnMut(Piece)) {
        match self {
            Self::None => {}
            Self::One(piece) => f(piece),
            Self::Several(pieces) => pieces.into_iter().for_each(f),
        }
    }
}

/// One frame of a datagram's pieces: everything before the first one's part, then all parts. `None` if no
/// buffer is free.
pub(crate) fn join(pieces: &[Piece], pools: &mut Pools) -> Option<Frame> {
    let first = pieces.first()?;
    let headers = &first.frame.as_slice()[..usize::from(first.start)];
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
