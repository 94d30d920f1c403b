//! A shard's IP side and its books: every frame that goes into IP is accounted for when it comes out.
//!
//! IP keeps frames (for a neighbour's answer, for the rest of a datagram), makes some (questions, errors, fragments)
//! and consumes some (answers, pieces of a datagram). It does not say which for each call; what is inside is
//! counted here, and what has left without coming out was consumed.

use core::mem;

use firelane_frame::{Chain, Frame};
use firelane_ip::{
    Adjacency, Delivered, Egress, Front, Input, Ip, IpConfig, LOOPBACK, Made, Sent, Upper, Usual,
};
use firelane_units::{DropCounters, DropReason, LinkId};
use firelane_wire::Ecn;

use crate::common::Common;
use crate::watch::Sight;

/// The IP side of a shard.
#[derive(Debug)]
pub(crate) struct IpSide {
    pub(crate) core: Ip,
    /// Frames that went in and have not come out.
    inside: u64,
    made: Made,
    /// Frames that were taken out since the books were closed.
    taken: u64,
    /// Where the last frame that was put in is on its way to, for the other packets of its flow.
    adjacency: Option<Adjacency>,
    /// Frames that IP gave up, by reason.
    drops: DropCounters,
    /// A call was made since the books were closed.
    is_open: bool,
}

impl IpSide {
    pub(crate) fn new(config: IpConfig) -> Self {
        Self {
            core: Ip::new(config),
            inside: 0,
            made: Made::default(),
            taken: 0,
            adjacency: None,
            drops: DropCounters::default(),
            is_open: false,
        }
    }

    /// A frame for this netstack. `Some` if it is for a transport.
    #[inline]
    pub(crate) fn input<D>(
        &mut self,
        common: &mut Common<D>,
        link: LinkId,
        frame: Frame,
        l3_offset: u16,
    ) -> Option<Delivered> {
        let trace = frame.meta().trace;
        match self.core.input(common.now, link, frame, usize::from(l3_offset), &mut common.pools) {
            Input::Deliver(packet) => return Some(packet),
            Input::Drop(frame, reason) => {
                self.drops.count(reason);
                common.drop_frame(frame, reason);
            }
            Input::Forwarded(adjacency) => {
                common.see(trace, Sight::Forwarded);
                self.inside += 1;
                self.adjacency = adjacency;
            }
            Input::Consumed => {
                common.see(trace, Sight::Consumed);
                self.inside += 1;
            }
            Input::Held => {
                common.see(trace, Sight::Kept);
                self.inside += 1;
            }
        }
        self.is_open = true;
        None
    }

    /// Where the packet that was just put in has gone, if others of its flow may go there too.
    pub(crate) fn take_adjacency(&mut self) -> Option<Adjacency> {
        self.adjacency.take()
    }

    /// A packet of a forwarded flow; gives the frame back if it has to be looked at.
    #[inline]
    pub(crate) fn pass_on(&mut self, adjacency: &Adjacency, frame: Frame) -> Result<(), Frame> {
        self.core.pass_on(adjacency, frame)?;
        self.is_open = true;
        self.inside += 1;
        Ok(())
    }

    /// The same with a frame that was looked at.
    #[inline]
    pub(crate) fn pass_usual(&mut self, adjacency: &Adjacency, usual: Usual, frame: Frame) {
        self.core.pass_usual(adjacency, usual, frame);
        self.is_open = true;
        self.inside += 1;
    }

    /// A transport's payload on its way, or why it ends here.
    #[inline]
    pub(crate) fn send<D>(
        &mut self,
        common: &mut Common<D>,
        egress: &mut Egress,
        frame: Frame,
        upper: Upper,
    ) -> Result<(), DropReason> {
        let sent = self.core.send(common.now, egress, frame, upper, &mut common.pools);
        self.on_sent(common, sent)
    }

    /// The same by a way that was found just now, maybe in somebody else's name.
    pub(crate) fn send_found<D>(
        &mut self,
        common: &mut Common<D>,
        egress: &mut Egress,
        frame: Frame,
        upper: Upper,
    ) -> Result<(), DropReason> {
        let sent = self.core.send_found(common.now, egress, frame, upper, &mut common.pools);
        self.on_sent(common, sent)
    }

    #[inline]
    fn on_sent<D>(&mut self, common: &mut Common<D>, sent: Sent) -> Result<(), DropReason> {
        common.counters.originated += 1;
        self.is_open = true;
        match sent {
            Sent::Out | Sent::Held => {
                self.inside += 1;
                Ok(())
            }
            Sent::Drop(frame, reason) => {
                self.drops.count(reason);
                common.drop_frame(frame, reason);
                Err(reason)
            }
        }
    }

    /// The same behind a connection's ready headers; gives the frame back if it has to be looked at.
    #[inline]
    pub(crate) fn send_behind<D>(
        &mut self,
        common: &mut Common<D>,
        front: &Front,
        frame: Frame,
        ecn: Ecn,
    ) -> Result<(), Frame> {
        self.core.send_behind(front, frame, ecn)?;
        common.counters.originated += 1;
        self.is_open = true;
        self.inside += 1;
        Ok(())
    }

    /// Does what is due.
    pub(crate) fn on_time<D>(&mut self, common: &mut Common<D>) {
        if self.core.poll_at().is_some_and(|at| at <= common.now) {
            self.core.on_timer(common.now, &mut common.pools);
            self.is_open = true;
        }
    }

    /// Says that something was asked of `core` directly, so that the books are closed again.
    pub(crate) fn touch(&mut self) {
        self.is_open = true;
    }

    /// Whether frames may be ready.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// A frame that was ready has been taken out, and is accounted for.
    pub(crate) fn take_out(&mut self) {
        self.taken += 1;
    }

    /// One that was taken out is among those that are ready again.
    pub(crate) fn put_back(&mut self) {
        self.is_open = true;
        self.inside += 1;
    }

    /// Takes the frames that are ready: those for the wire into `out`, those for this netstack itself into
    /// `loops`. Closes the books.
    pub(crate) fn collect<D>(&mut self, common: &mut Common<D>, out: &mut Chain, loops: &mut Vec<Frame>) {
        if !mem::take(&mut self.is_open) {
            return;
        }
        let ready = self.core.output();
        let left = ready.len() as u64;
        if ready.iter().any(|frame| frame.meta().ingress == LOOPBACK) {
            while let Some(frame) = ready.pop() {
                if frame.meta().ingress == LOOPBACK { loops.push(frame) } else { out.push(frame) }
            }
        } else {
            out.append(ready);
        }
        let drops = self.core.take_drops();
        let dropped = drops.total();
        if dropped > 0 {
            common.counters.drops.merge(&drops);
            self.drops.merge(&drops);
        }
        let made = total(self.core.made()) - total(mem::replace(&mut self.made, self.core.made()));
        common.counters.originated += made;
        let held = self.core.held_frames() as u64;
        let gone = left + dropped + held + mem::take(&mut self.taken);
        debug_assert!(self.inside + made >= gone, "IP gives out what was put in or made there");
        common.counters.delivered += (self.inside + made).saturating_sub(gone);
        self.inside = held;
    }

    /// Frames that it gave up.
    pub(crate) const fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Frames inside.
    pub(crate) fn held(&self) -> u64 {
        self.inside
    }
}

const fn total(made: Made) -> u64 {
    made.messages + made.fragments + made.datagrams
}
