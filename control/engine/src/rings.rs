//! By how many rings of a link's device frames come and go, changed while they pass.
//!
//! A ring is a queue of the device, served by the lane in which it is. *Fetched:* the device is told to send by its first rings alone;
//! what is in the others already is fetched all the same. *Sent:* each lane sends by one ring at most; with fewer of them
//! lanes hand their frames to another one that sends, and go over to it behind what they have sent themselves
//! (`path/lane/src/moving.rs`).

use firelane_lane::{Control, Lane};
use firelane_units::{LaneId, LinkId};

use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::queue::Queue;
use crate::registry::{Queues, Registry};

/// By how many rings frames are fetched and sent; without a number by as many as there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rings {
    /// By how many they come from the device.
    pub fetched: Option<u16>,
    /// By how many they go to it.
    pub sent: Option<u16>,
}

/// A ring of a link's device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    /// Its number.
    pub ring: u16,
    /// The lane that serves it.
    pub lane: LaneId,
    /// Whether the device sends by it.
    pub fetched: bool,
    /// Whether frames are sent to the device by it.
    pub sent: bool,
}

impl Engine {
    /// Lets frames of a VNIC's device, or of what a link has below, come and go by so many of its rings. Traffic runs on; no
    /// frame is lost.
    ///
    /// # Errors
    /// The link does not exist or has no device, the device has fewer rings, or it cannot be told to use fewer. Then everything
    /// is as before.
    pub fn set_link_rings(&self, link: LinkId, rings: Rings) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let (port, queues) = registry.queues_of(link)?;
        queues.enough_for(rings)?;
        let before = std::mem::replace(&mut queues.rings, rings);
        let chosen = self.0.choose(&mut registry, port);
        let (_, queues) = registry.queues_of(link)?;
        if chosen.is_err() {
            queues.rings = before;
            return chosen;
        }
        self.0.direct(port, queues)?;
        self.0.lend(&mut registry)
    }

    /// Whether a link's device has as many rings as that.
    ///
    /// # Errors
    /// Those of [`set_link_rings`](Self::set_link_rings) that are known before anything is done.
    pub fn check_link_rings(&self, link: LinkId, rings: Rings) -> Result<(), ChangeError> {
        self.0.registry().queues_of(link)?.1.enough_for(rings).map(drop)
    }

    /// The rings of a VNIC's device, or of what a link has below.
    pub fn link_rings(&self, link: LinkId) -> Vec<Ring> {
        let mut registry = self.0.registry();
        let Ok((port, queues)) = registry.queues_of(link) else { return Vec::new() };
        let (fetched, all) = (queues.rings.fetched.unwrap_or(u16::MAX), queues.lanes.len());
        let mut rings = Vec::new();
        for lane in self.0.fabric.lane_ids() {
            let here = self.0.fabric.visit(lane, |_, it| it.rings_of(port)).unwrap_or_default();
            let ring = |(ring, sent)| Ring { ring, lane, fetched: ring < fetched, sent };
            // What is beyond them is set aside for flows.
            rings.extend(here.into_iter().filter(|&(ring, _)| usize::from(ring) < all).map(ring));
        }
        rings.sort_by_key(|it| it.ring);
        rings
    }
}

impl Registry {
    /// The port through which a link has a device, and the device's queues.
    pub(crate) fn queues_of(&mut self, link: LinkId) -> Result<(LinkId, &mut Queues), ChangeError> {
        let port = self.port_of(link)?.ok_or(ChangeError::NoQueues(link))?;
        let queues = self.queues.get_mut(&port).filter(|it| !it.lanes.is_empty());
        Ok((port, queues.ok_or(ChangeError::NoQueues(link))?))
    }
}

impl Queues {
    /// How many there are, if that is enough.
    fn enough_for(&self, rings: Rings) -> Result<u16, ChangeError> {
        let all = self.lanes.len() as u16;
        for (fetched, asked) in [(true, rings.fetched), (false, rings.sent)] {
            if let Some(asked) = asked.filter(|asked| !(1..=all).contains(asked)) {
                return Err(ChangeError::NoRings { fetched, asked, all });
            }
        }
        Ok(all)
    }

    /// The lanes that send by a ring of their own.
    fn senders(&self) -> Vec<LaneId> {
        let mut senders = Vec::new();
        for lane in &self.lanes {
            if !senders.contains(lane) {
                senders.push(*lane);
            }
        }
        senders.truncate(self.rings.sent.map_or(usize::MAX, usize::from));
        senders
    }
}

impl Inner {
    /// Tells each lane where it sends frames for a port's device, and waits until all do. Those that are to have a queue of their own
    /// begin before any other stops: what lanes hand over to one that has none is not on its way then.
    pub(crate) fn direct(&self, port: LinkId, queues: &Queues) -> Result<(), ChangeError> {
        let senders = queues.senders();
        let has_own = |lane: &LaneId| senders.contains(lane) || queues.lent.contains(lane);
        let (own, others): (Vec<_>, Vec<_>) = self.fabric.lane_ids().partition(has_own);
        let mut told = self.tell_lanes(own, |lane| Control::SendThrough(port, lane));
        self.settle(port)?;
        let through = |lane: LaneId| senders[lane.index() % senders.len()];
        told += self.tell_lanes(others, |lane| Control::SendThrough(port, through(lane)));
        if told == 0 {
            return Err(ChangeError::LaneFailed);
        }
        self.settle(port)
    }

    /// A port's queue has come to the lane `to`: lanes without one of their own hand over to it, past the lane that had it.
    pub(crate) fn follow(&self, port: LinkId, to: LaneId) -> Result<(), ChangeError> {
        let sends = |lane: &LaneId| self.fabric.visit(*lane, |_, it: &mut Lane<Queue>| it.sends_by_own(port));
        let others: Vec<_> = self.fabric.lane_ids().filter(|lane| sends(lane) == Some(false)).collect();
        self.tell_lanes(others, |_| Control::SendThrough(port, to));
        self.settle(port)
    }
}
