//! What netstacks of this lane are about to get: frames, and beside them what is known of each.
//!
//! Filled by `links.rs` at the end of a frame's way, emptied by the netstacks (`stacks/inbound.rs`), which look at all
//! of it before they take the first. Frames move on; what is known of them stays where it was written.

use std::vec;

use firelane_classify::{Headers, Sought};
use firelane_frame::Frame;
use firelane_units::{LaneId, LinkId, NetstackId};

use crate::stacks::Foreseen;

/// What is known of a frame for a netstack of this lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) netstack: NetstackId,
    pub(crate) link: LinkId,
    pub(crate) headers: Headers,
    /// What a look ahead has found of its forwarded flow.
    pub(crate) foreseen: Option<Foreseen>,
    /// Where it has looked for its connection.
    pub(crate) sought: Option<Sought>,
    /// Other lanes have not what it is for: the one that was asked first. Of a piece: the one whose filter has let it through.
    pub(crate) asked: Option<LaneId>,
}

impl Arrival {
    const NONE: Self = Self {
        netstack: NetstackId(0),
        link: LinkId(0),
        headers: Headers::EMPTY,
        foreseen: None,
        sought: None,
        asked: None,
    };
}

/// Frames for netstacks of this lane.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    frames: Vec<Frame>,
    /// Of the frame with the same number; behind them the places of earlier ones, which are written again.
    known: Vec<Arrival>,
}

impl Arrivals {
    #[inline]
    pub(crate) fn push(&mut self, netstack: NetstackId, link: LinkId, frame: Frame, headers: &Headers) {
        let nth = self.frames.len();
        if nth == self.known.len() {
            self.known.push(Arrival::NONE);
        }
        // Written where it stays, field by field: made elsewhere and moved here, its move would wait for its fields.
        let known = &mut self.known[nth];
        (known.netstack, known.link, known.foreseen, known.sought) = (netstack, link, None, None);
        known.asked = None;
        known.headers = *headers;
        self.frames.push(frame);
    }

    /// The same of one that `first` and perhaps others were asked for in vain.
    pub(crate) fn push_asked(
        &mut self,
        (netstack, first): (NetstackId, LaneId),
        link: LinkId,
        frame: Frame,
        headers: &Headers,
    ) {
        self.push(netstack, link, frame, headers);
        self.known[self.frames.len() - 1].asked = Some(first);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// All of them, in order, and what is known of each.
    #[inline]
    pub(crate) fn take(&mut self) -> (vec::Drain<'_, Frame>, &mut [Arrival]) {
        let count = self.frames.len();
        (self.frames.drain(..), &mut self.known[..count])
    }
}
