//! Driver queues that move from lane to lane while frames pass: none is lost, and those of a conversation keep their order.
//!
//! Called by `lane.rs` for [`crate::Control::GiveQueue`] and [`crate::Control::SendThrough`], and for what lanes tell each other
//! about it. The engine moves one queue after the other and waits until all lanes have settled.
//!
//! *From the device.* A lane that is to give a queue away fetches no more from it and sends a fence to every lane, which sends it
//! back behind what it has made of the frames before. When all are back, no frame of the queue is on its way to another
//! lane's device, and the queue follows: the lane that takes it goes on with the next frame.
//!
//! *Ended.* A queue by which the device sends nothing more is read until it is empty, and is gone.
//!
//! *Lent.* A device that takes frames from several lanes at a time has the same queue once more in lanes that have none of its own,
//! for what they send: it is read by nobody and moves nowhere.
//!
//! *To the device.* What waited for the device goes with its queue. A lane whose frames take another way from now on keeps
//! them back and sends a fence after those of the old way; when the fence has come to the lane that has the queue, nothing
//! is on the old way any more, and what was kept back goes on.
//!
//! *One step.* A lane goes on with what others hand to it as it comes, for it cannot know what they have handed on before. So a lane
//! begins to send by a queue of its own only while all others hand over to lanes that have one and keep it: who tells the lanes
//! lets them follow a queue as soon as it has moved, then lets those begin that are to have one, and those stop that are not
//! after that; it waits each time until all have settled.

use core::mem;

use firelane_frame::{Chain, Driver, Frame};
use firelane_units::{DropReason, LaneId, LinkId};

use crate::common::Common;
use crate::control::Refusal;
use crate::counters::{RingCounters, RingTraffic};
use crate::links::Links;
use crate::message::{LaneMessage, PortUser, Stage};
use crate::poll::Polling;
use crate::ports::{Queue, Stay, TX_QUEUE_MAX};

/// A driver's queue on its way to another lane.
pub struct MovingQueue<D> {
    queue: Queue<D>,
    from: LaneId,
    /// The lane whose worker its device wakes.
    wakes: LaneId,
}

impl<D> MovingQueue<D> {
    /// The driver, whose notifications somebody has to turn to the lane that it comes to.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.queue.driver
    }

    /// The lane that has given it away.
    pub fn from(&self) -> LaneId {
        self.from
    }

    /// The lane whose worker its device wakes.
    pub fn wakes(&self) -> LaneId {
        self.wakes
    }

    /// From now on its device wakes the worker of `lane`.
    pub fn set_wakes(&mut self, lane: LaneId) {
        self.wakes = lane;
    }
}

impl<D> core::fmt::Debug for MovingQueue<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MovingQueue")
            .field("port", &self.queue.port)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// What lanes send each other behind frames, to know that these are past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The device's port.
    pub(crate) port: LinkId,
    /// The lane that waits for it.
    pub(crate) of: LaneId,
    pub(crate) behind: Behind,
}

/// Behind which frames a fence goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    /// Those for the device that take the old way.
    Sent,
    /// Those that were fetched from the device.
    Fetched,
}

/// A queue that is about to be given away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    to: LaneId,
    place: usize,
    /// How many fences are under way.
    fences: usize,
}

impl<D: Driver> Links<D> {
    /// Gives one of a port's queues to another lane. One that frames are not sent by goes first.
    pub(crate) fn give_queue(
        &mut self,
        common: &mut Common<D>,
        id: LinkId,
        to: LaneId,
    ) -> Result<(), Refusal> {
        let sends = self.ports.get(id.0).ok_or("no such port")?.queue;
        let is_read = |&place: &usize| self.queues.get(place).is_some_and(|it| it.driver.is_read());
        let place = self.spare_queue(id, true).or(sends.filter(is_read)).ok_or("no queue here")?;
        let port = self.ports.get_mut(id.0).ok_or("no such port")?;
        if to == common.id || port.leaving.is_some() {
            return Err("a queue goes to one other lane at a time");
        }
        let others =
            (0..common.backlogs.lanes()).map(|lane| LaneId(lane as u16)).filter(|&it| it != common.id);
        let fence = Fence { port: id, of: common.id, behind: Behind::Fetched };
        let before = common.outbox.later.len();
        common.outbox.later.extend(others.map(|lane| (lane, LaneMessage::Fence(fence))));
        port.leaving = Some(Leaving { to, place, fences: common.outbox.later.len() - before });
        if let Some(queue) = self.queues.get_mut(place) {
            queue.stay = Stay::Leaves;
            queue.notify(false);
        }
        Ok(())
    }

    /// The frames that were fetched from a queue are past: it goes to its new lane.
    fn send_off(&mut self, common: &mut Common<D>, id: LinkId, Leaving { to, place, .. }: Leaving) {
        self.changed();
        self.settle_sent(id);
        let Some((port, mut queue)) = self.ports.get_mut(id.0).zip(self.queues.remove(place)) else {
            return;
        };
        if port.queue == Some(place) {
            port.queue = None;
            port.user = PortUser::Driver { through: to };
        }
        // It is told to call by the lane that gets it.
        (queue.notifies, queue.has_more, queue.not_before) = (false, false, None);
        queue.stay = Stay::Stays;
        queue.driver.leave(false);
        queue.driver.notify(false);
        self.count_unpolled();
        common.counters.handed += queue.tx.len() as u64;
        let moving = MovingQueue { queue, from: common.id, wakes: common.id };
        // What is handed over for the device in what is left of this turn goes behind it, not between it and what it brings.
        let Common { id, outbox, backlogs, .. } = common;
        outbox.seal_frames(*id, |frames| backlogs.add(*id, frames));
        outbox.messages.push((to, LaneMessage::Queue(Box::new(moving))));
    }

    /// One more lane has nothing of a queue's frames on its way.
    fn await_fetched(&mut self, common: &mut Common<D>, id: LinkId) {
        let Some(port) = self.ports.get_mut(id.0) else { return };
        let Some(leaving) = &mut port.leaving else { return };
        leaving.fences -= 1;
        if leaving.fences == 0 {
            let leaving = *leaving;
            port.leaving = None;
            self.send_off(common, id, leaving);
        }
    }

    /// Takes a queue that another lane has given, or one that could not be taken there.
    pub(crate) fn take_queue(&mut self, common: &mut Common<D>, moving: MovingQueue<D>) {
        self.changed();
        let MovingQueue { mut queue, from, .. } = moving;
        self.came_back += u64::from(from == common.id);
        common.counters.taken += queue.tx.len() as u64;
        let id = queue.port;
        let Some(port) = self.ports.get_mut(id.0) else {
            return common.drop_chain(&mut queue.tx, DropReason::NoPort);
        };
        if queue.polling == Polling::Off {
            queue.driver.remind(true);
        }
        match port.queue.and_then(|place| self.queues.get_mut(place)) {
            // All that is sent from this lane keeps one order.
            Some(sending) => {
                sending.tx.append(&mut queue.tx);
                queue.prepared = 0;
            }
            None => {
                port.settled = port.counters.inward;
                let before = mem::replace(&mut port.user, PortUser::Driver { through: common.id });
                if let PortUser::Driver { through } = before {
                    self.keep_back(common, id, through);
                }
            }
        }
        let place = self.queues.add(queue);
        if let Some(port) = self.ports.get_mut(id.0) {
            port.queue.get_or_insert(place);
        }
        self.count_unpolled();
    }

    /// Frames for a port go to the lane `through` from now on; if that is this one, by its own queue.
    pub(crate) fn send_through(
        &mut self,
        common: &mut Common<D>,
        id: LinkId,
        through: LaneId,
    ) -> Result<(), Refusal> {
        self.changed();
        // Who has one that is lent to it may have another to read alone.
        let own = self.spare_queue(id, false).or_else(|| self.spare_queue(id, true));
        let port = self.ports.get_mut(id.0).ok_or("no such port")?;
        let PortUser::Driver { through: before } = port.user else { return Err("the port has no driver") };
        port.user = PortUser::Driver { through };
        match port.queue {
            Some(place) if through != common.id => {
                self.settle_sent(id);
                self.send_elsewhere(common, id, place, through);
            }
            Some(_) => {}
            None => {
                port.queue = own.filter(|_| through == common.id);
                if before != through {
                    self.keep_back(common, id, before);
                }
            }
        }
        Ok(())
    }

    /// No more is sent by the queue at `place`. What waits for its device goes the new way, before what comes after it.
    fn send_elsewhere(&mut self, common: &mut Common<D>, id: LinkId, place: usize, through: LaneId) {
        let Some((port, queue)) = self.ports.get_mut(id.0).zip(self.queues.get_mut(place)) else {
            return;
        };
        port.queue = None;
        queue.prepared = 0;
        while let Some(frame) = queue.tx.pop() {
            // It is counted where it is sent.
            port.counters.inward.uncount(frame.weight(), frame.meta().arrival);
            queue.traffic.sent.uncount(frame.weight(), frame.meta().arrival);
            common.hand_over(through, Stage::Deliver, id, frame);
        }
        port.settled = port.counters.inward;
    }

    /// Puts what was sent from this lane to the account of the ring by which that was done.
    fn settle_sent(&mut self, id: LinkId) {
        let Some(port) = self.ports.get_mut(id.0) else { return };
        if let Some(queue) = port.queue.and_then(|place| self.queues.get_mut(place)) {
            queue.traffic.sent.merge(&port.counters.inward.since(&port.settled));
        }
        port.settled = port.counters.inward;
    }

    /// Keeps frames back until those before them have come through the lane `before`.
    fn keep_back(&mut self, common: &mut Common<D>, id: LinkId, before: LaneId) {
        let Some(port) = self.ports.get_mut(id.0) else { return };
        if before != common.id && port.kept.is_none() {
            port.kept = Some(Chain::new());
            common
                .outbox
                .later
                .push((before, LaneMessage::Fence(Fence { port: id, of: common.id, behind: Behind::Sent })));
        }
    }

    /// The rings that are here, and what they have carried.
    pub(crate) fn rings(&self) -> Vec<RingCounters> {
        let ring = |place: usize| {
            let queue = self.queues.get(place)?;
            let port = self.ports.get(queue.port.0)?;
            let (mut traffic, sends) = (queue.traffic, port.queue == Some(place));
            if sends {
                traffic.sent.merge(&port.counters.inward.since(&port.settled));
            }
            let (ring, is_lent) = (queue.driver.ring(), !queue.driver.is_read());
            Some(RingCounters { port: queue.port, ring, sends, is_lent, traffic })
        };
        let given_back = self.ports.iter().flat_map(|port| {
            let id = port.id;
            let ring = move |&(ring, traffic): &(u16, RingTraffic)| RingCounters {
                port: id,
                ring,
                sends: false,
                is_lent: true,
                traffic,
            };
            port.given_back.iter().map(ring)
        });
        (0..self.queues.places()).filter_map(ring).chain(given_back).collect()
    }

    /// A fence has come: it goes on, or has come back and somebody has waited for it.
    pub(crate) fn pass_fence(&mut self, common: &mut Common<D>, fence: Fence) {
        let Fence { port: id, of, behind } = fence;
        if behind == Behind::Fetched {
            return match of == common.id {
                true => self.await_fetched(common, id),
                false => common.outbox.later.push((of, LaneMessage::Fence(fence))),
            };
        }
        let Some(port) = self.ports.get_mut(id.0) else { return };
        if of != common.id {
            let next = match (port.queue, port.user) {
                (None, PortUser::Driver { through }) if through != common.id => through,
                _ => of,
            };
            return common.outbox.later.push((next, LaneMessage::Fence(fence)));
        }
        let mut kept = port.kept.take().unwrap_or_default();
        self.changed();
        while let Some(frame) = kept.pop() {
            self.resume(common, Stage::Deliver, id, frame);
        }
    }
}

impl<D> Links<D> {
    /// A frame for a device whose queue moves.
    pub(crate) fn keep(&mut self, common: &mut Common<D>, to: LinkId, frame: Frame) {
        let Some(port) = self.ports.get_mut(to.0) else {
            return common.drop_frame(frame, DropReason::NoPort);
        };
        match &mut port.kept {
            Some(kept) if kept.len() < TX_QUEUE_MAX => kept.push(frame),
            _ => {
                port.counters.inward.dropped += 1;
                common.drop_frame(frame, DropReason::PortFull);
            }
        }
    }

    /// The driver of one of a port's queues that are here.
    pub(crate) fn driver_of(&self, id: LinkId) -> Option<&D> {
        self.queues.iter().find(|queue| queue.port == id).map(|queue| &queue.driver)
    }

    /// Whether frames for a port's driver go by a queue that is here.
    pub(crate) fn sends_by_own(&self, id: LinkId) -> bool {
        self.ports.get(id.0).is_some_and(|port| port.queue.is_some())
    }

    /// Whether no queue of a port is about to go and nothing is kept back for it.
    pub(crate) fn is_settled(&self, id: LinkId) -> bool {
        self.ports.get(id.0).is_none_or(|port| port.kept.is_none() && port.leaving.is_none())
    }

    /// How many frames are kept back.
    pub(crate) fn kept(&self) -> usize {
        self.ports.iter().filter_map(|port| port.kept.as_ref()).map(Chain::len).sum()
    }
}

impl<D: Driver> Links<D> {
    /// The last queue of a port here by which nothing is sent: of those that are read, or of those that are lent.
    pub(crate) fn spare_queue(&self, id: LinkId, is_read: bool) -> Option<usize> {
        let sends = self.ports.get(id.0)?.queue;
        let is_its = |queue: &Queue<D>| queue.port == id && queue.driver.is_read() == is_read;
        let is_spare = |&place: &usize| sends != Some(place) && self.queues.get(place).is_some_and(is_its);
        (0..self.queues.places()).rev().find(is_spare)
    }

    /// What was lent to this lane for a port ends; nothing is sent by it any more.
    pub(crate) fn give_back(&mut self, id: LinkId) -> Result<(), Refusal> {
        let place = self.spare_queue(id, false).ok_or("nothing is lent, or it is sent by")?;
        self.forget_queue(place);
        Ok(())
    }

    /// A ring of a port's device ends when what is in it has been fetched.
    pub(crate) fn end_queue(&mut self, id: LinkId, ring: u16) -> Result<(), Refusal> {
        let sends = self.ports.get(id.0).ok_or("no such port")?.queue;
        let is_it =
            |queue: &Queue<D>| queue.port == id && queue.driver.is_read() && queue.driver.ring() == ring;
        let place = (0..self.queues.places()).find(|&it| self.queues.get(it).is_some_and(is_it));
        let place = place.filter(|_| sends != place).ok_or("no such ring here, or it is sent by")?;
        if let Some(queue) = self.queues.get_mut(place) {
            queue.stay = Stay::Ends;
        }
        Ok(())
    }

    /// A queue is gone, by which nothing is sent; what it has carried stays known.
    pub(crate) fn forget_queue(&mut self, place: usize) {
        self.changed();
        let Some(queue) = self.queues.remove(place) else { return };
        let Some(port) = self.ports.get_mut(queue.port.0) else { return };
        let ring = queue.driver.ring();
        match port.given_back.iter_mut().find(|(known, _)| *known == ring) {
            Some((_, traffic)) => traffic.merge(&queue.traffic),
            None => port.given_back.push((ring, queue.traffic)),
        }
        self.count_unpolled();
    }

    /// How many queues of a port are here that are read.
    pub(crate) fn queues_of(&self, id: LinkId) -> usize {
        self.queues.iter().filter(|queue| queue.port == id && queue.driver.is_read()).count()
    }
}
