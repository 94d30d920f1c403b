//! What leaves a lane by another way than a driver: items for other lanes, readiness, notices.
//!
//! Filled while somebody is inside; emptied by whoever leaves the perimeter (`host.rs`), who passes everything
//! on to an [`Outlet`]. Frames for one lane, stage and link leave as one chain.

use core::mem;
use std::sync::Arc;

use firelane_filter::Verdict;
use firelane_frame::{Chain, Frame, Terms};
use firelane_ip::{Configured, Resolvers, RouterFlags};
use firelane_socket::{Ready, SocketToken};
use firelane_units::{Bytes, ConnId, IpPrefix, LaneId, LinkId, MacAddr, NetstackId};

use crate::backlog::Backlogs;
use crate::look::Look;
use crate::message::{Fault, FilteredPacket, Frames, LaneMessage, Stage};
use crate::view::Question;

/// Where a lane's outbox is emptied: the engine's squeues and sleepers.
pub trait Outlet<D> {
    /// Puts an item into another lane's squeue with *fill*; gives it back if that is full.
    fn fill(&mut self, lane: LaneId, message: LaneMessage<D>) -> Result<(), LaneMessage<D>>;

    /// Wakes another lane's worker: its backlog was consumed.
    fn wake(&mut self, lane: LaneId);

    /// A socket has become ready for what somebody waits for.
    fn ready(&mut self, token: SocketToken, ready: Ready);

    /// All sockets that have become ready were named: who is woken now finds all of them.
    fn all_ready(&mut self) {}

    /// Something that an operator may want to know.
    fn notice(&mut self, lane: LaneId, notice: Notice);

    /// The programs of two connections may carry their text past the lane, on these terms of each. Whoever serves no programs need not
    /// listen.
    fn join(&mut self, _ends: [SocketToken; 2], _terms: Terms) {}

    /// From now on the program of this connection, and its peer's, may not.
    fn part(&mut self, _token: SocketToken) {}

    /// From now on the program of this connection needs credit for what it carries past the lane, or needs none any more.
    fn limit(&mut self, _token: SocketToken, _is_limited: bool) {}

    /// It has credit for so much more, after [`SocketCommand::Borrow`](crate::SocketCommand::Borrow).
    fn lend(&mut self, _token: SocketToken, _bytes: Bytes) {}

    /// A datagram of this socket's program did not arrive, and it asked to be told
    /// ([`DatagramOption::Faults`](crate::DatagramOption::Faults)). Whoever serves no programs need not listen.
    fn fault(&mut self, _token: SocketToken, _fault: &Fault) {}

    /// A question is answered. Whoever asks nothing need not listen.
    fn answer(&mut self, _question: Question) {}

    /// The same for a question about a netstack's tables.
    fn show(&mut self, _look: Look) {}
}

/// What a lane reports to the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A change could not be applied.
    Refused {
        /// Which change, in words.
        what: &'static str,
        /// Why, in words.
        why: &'static str,
    },
    /// An address passed duplicate address detection.
    AddressReady(NetstackId, LinkId, IpPrefix),
    /// A netstack has configured something by itself; its home lane says so.
    Configured(NetstackId, Configured),
    /// The name servers or search domains that a netstack's routers announce on a link have changed.
    Resolvers(NetstackId, Resolvers),
    /// What the routers of a link say of DHCPv6 has changed.
    RouterFlags(NetstackId, LinkId, RouterFlags),
    /// Somebody else has the address; it is not used.
    DuplicateAddress(NetstackId, LinkId, IpPrefix, MacAddr),
    /// A netstack's filter has met a packet by a rule that asks to be told of it.
    Filtered(NetstackId, Box<FilteredPacket>, Verdict),
}

/// What is to become of connections whose two ends are programs'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    Joined([SocketToken; 2], Terms),
    Parted(SocketToken),
    Limited(SocketToken, bool),
    Lent(SocketToken, Bytes),
}

/// A lane's outbox.
#[derive(Debug)]
pub(crate) struct Outbox<D> {
    pub(crate) messages: Vec<(LaneId, LaneMessage<D>)>,
    /// Listeners to whom connections have come, and these.
    pub(crate) accepted: Vec<(SocketToken, ConnId)>,
    pub(crate) ready: Vec<(SocketToken, Ready)>,
    pub(crate) joins: Vec<Join>,
    pub(crate) faults: Vec<(SocketToken, Fault)>,
    pub(crate) wakes: Vec<LaneId>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) answers: Vec<Question>,
    pub(crate) looks: Vec<Look>,
    /// Items for other lanes that go after the frames.
    pub(crate) later: Vec<(LaneId, LaneMessage<D>)>,
    frames: Vec<Bound>,
    /// How many frames were handed over to each lane.
    handed: Vec<usize>,
    backlogs: Arc<Backlogs>,
}

/// Frames that gather for one place.
#[derive(Debug)]
struct Bound {
    lane: LaneId,
    stage: Stage,
    link: LinkId,
    chain: Chain,
}

impl<D> Outbox<D> {
    pub(crate) fn new(backlogs: Arc<Backlogs>) -> Self {
        Self {
            messages: Vec::new(),
            accepted: Vec::new(),
            ready: Vec::new(),
            joins: Vec::new(),
            faults: Vec::new(),
            wakes: Vec::new(),
            notices: Vec::new(),
            answers: Vec::new(),
            looks: Vec::new(),
            later: Vec::new(),
            frames: Vec::new(),
            handed: vec![0; backlogs.lanes()],
            backlogs,
        }
    }

    /// Hands a frame to `lane`, to go on there at `stage` of `link`.
    pub(crate) fn hand_over(&mut self, lane: LaneId, stage: Stage, link: LinkId, frame: Frame) {
        if let Some(handed) = self.handed.get_mut(lane.index()) {
            *handed = handed.wrapping_add(1);
        }
        let fits = |b: &&mut Bound| b.lane == lane && b.stage == stage && b.link == link;
        // Frames come in runs, so it is mostly the last one.
        if let Some(bound) = self.frames.iter_mut().rev().find(fits) {
            bound.chain.push(frame);
            return;
        }
        let mut chain = self.backlogs.chain();
        chain.push(frame);
        self.frames.push(Bound { lane, stage, link, chain });
    }

    /// How many frames were handed over to `lane` so far.
    pub(crate) fn handed_to(&self, lane: LaneId) -> usize {
        self.handed.get(lane.index()).copied().unwrap_or(0)
    }

    /// Turns the gathered frames into items, and puts behind them what goes later; calls `handed` with each chain's length.
    pub(crate) fn seal(&mut self, from: LaneId, handed: impl FnMut(usize)) {
        self.seal_frames(from, handed);
        self.messages.append(&mut self.later);
    }

    /// Turns the frames into items that were gathered so far: what is put into `messages` after that is behind them.
    pub(crate) fn seal_frames(&mut self, from: LaneId, mut handed: impl FnMut(usize)) {
        for Bound { lane, stage, link, chain } in self.frames.drain(..) {
            handed(chain.len());
            self.messages.push((lane, LaneMessage::Frames(Frames { from, stage, link, chain })));
        }
    }

    /// A socket has become ready, if anybody waits for it.
    pub(crate) fn tell(&mut self, token: Option<SocketToken>, ready: Ready) {
        if let Some(token) = token {
            self.ready.push((token, ready));
        }
    }

    /// Whether there is nothing to pass on.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.frames.is_empty()
            && self.accepted.is_empty()
            && self.ready.is_empty()
            && self.joins.is_empty()
            && self.faults.is_empty()
            && self.wakes.is_empty()
            && self.notices.is_empty()
            && self.answers.is_empty()
            && self.looks.is_empty()
            && self.later.is_empty()
    }

    /// Tells listeners of the connections that have come to them: before anybody else is told anything, so that who hears that he is
    /// connected, and listens there too, finds the connection. The caller takes them out.
    pub(crate) fn tell_listeners(&mut self, outlet: &mut impl Outlet<D>) {
        if !self.accepted.is_empty() {
            self.accepted.iter().for_each(|&(token, _)| outlet.ready(token, Ready::READABLE));
            outlet.all_ready();
        }
    }

    /// Passes readiness, wake-ups and answers on.
    pub(crate) fn pass_on(&mut self, outlet: &mut impl Outlet<D>) {
        // Before the news, so that who is woken finds them.
        for (token, fault) in self.faults.drain(..) {
            outlet.fault(token, &fault);
        }
        for join in self.joins.drain(..) {
            match join {
                Join::Joined(ends, terms) => outlet.join(ends, terms),
                Join::Parted(token) => outlet.part(token),
                Join::Limited(token, is_limited) => outlet.limit(token, is_limited),
                Join::Lent(token, bytes) => outlet.lend(token, bytes),
            }
        }
        for (token, ready) in self.ready.drain(..) {
            outlet.ready(token, ready);
        }
        outlet.all_ready();
        for lane in self.wakes.drain(..) {
            outlet.wake(lane);
        }
        for question in self.answers.drain(..) {
            outlet.answer(question);
        }
        for look in self.looks.drain(..) {
            outlet.show(look);
        }
    }

    /// Passes notices on.
    pub(crate) fn pass_notices_on(&mut self, from: LaneId, outlet: &mut impl Outlet<D>) {
        for notice in self.notices.drain(..) {
            outlet.notice(from, notice);
        }
    }

    /// Takes the items for other lanes; [`Outbox::put_back`] returns the emptied list.
    pub(crate) fn take_messages(&mut self) -> Vec<(LaneId, LaneMessage<D>)> {
        mem::take(&mut self.messages)
    }

    /// Keeps what could not be passed on, and the list's storage.
    pub(crate) fn put_back(&mut self, mut kept: Vec<(LaneId, LaneMessage<D>)>) {
        kept.append(&mut self.messages);
        self.messages = kept;
    }
}
