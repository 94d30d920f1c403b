//! What links and flows have carried before what is beneath them was made anew.
//!
//! Part of what runs (`works.rs`). The engine counts under numbers of its own, and what is made anew begins with another one at zero: the
//! interface of a link, the device of a VNIC, a flow of what passed either. A link or flow has carried all of it, as long as there
//! is one of that name, and an etherstub what VNICs that are gone have carried over it. `interfaces.rs` and `host/partings.rs`
//! keep here what goes, `host/partings.rs` forgets who does not come again, and `stats.rs` adds the rest.

use std::collections::BTreeMap;

use firelane_api::{LaneReceived, RingStats, Stopped, Traffic};
use firelane_model::{FlowName, LinkName};

/// All that is counted of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) traffic: Traffic,
    pub(crate) stopped: Stopped,
    pub(crate) lanes: Vec<LaneReceived>,
    pub(crate) rings: Vec<RingStats>,
}

impl Carried {
    /// Both together: of what one alone has, as that one has it.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        for ring in &other.rings {
            match self.rings.iter_mut().find(|it| it.ring == ring.ring) {
                Some(own) => *own = own.and(*ring),
                None => self.rings.push(*ring),
            }
        }
        self.rings.sort_by_key(|it| it.ring);
        Self {
            traffic: self.traffic.and(other.traffic),
            stopped: self.stopped.and(other.stopped),
            lanes: joined(self.lanes, &other.lanes),
            rings: self.rings,
        }
    }
}

/// What was received in each lane by both.
pub(crate) fn joined(mut lanes: Vec<LaneReceived>, others: &[LaneReceived]) -> Vec<LaneReceived> {
    for other in others {
        match lanes.iter_mut().find(|it| it.lane == other.lane) {
            Some(lane) => *lane = lane.and(*other),
            None => lanes.push(*other),
        }
    }
    lanes.sort_by_key(|it| it.lane);
    lanes
}

/// What all of them have carried before.
#[derive(Debug, Default)]
pub(crate) struct Before {
    links: BTreeMap<LinkName, Carried>,
    flows: BTreeMap<FlowName, Traffic>,
}

impl Before {
    /// What is beneath a link goes, and has carried `more`.
    pub(crate) fn keep_link(&mut self, name: &LinkName, more: &Carried) {
        let before = self.links.remove(name).unwrap_or_default();
        self.links.insert(name.clone(), before.and(more));
    }

    /// The same of a flow.
    pub(crate) fn keep_flow(&mut self, name: &FlowName, more: Traffic) {
        let before = self.flows.entry(name.clone()).or_default();
        *before = before.and(more);
    }

    /// What a link has carried before, if anything beneath it has ever gone.
    pub(crate) fn of_link(&self, name: &LinkName) -> Option<&Carried> {
        self.links.get(name)
    }

    /// The same of a flow.
    pub(crate) fn of_flow(&self, name: &FlowName) -> Traffic {
        self.flows.get(name).copied().unwrap_or_default()
    }

    /// The link `name` is there no more: what it had carried.
    pub(crate) fn forget_link(&mut self, name: &str) -> Traffic {
        self.links.remove(name).map(|it| it.traffic).unwrap_or_default()
    }

    /// The same of a flow.
    pub(crate) fn forget_flow(&mut self, name: &str) -> Traffic {
        self.flows.remove(name).unwrap_or_default()
    }

    /// A link has another name from here on.
    pub(crate) fn rename_link(&mut self, from: &LinkName, to: &LinkName) {
        if let Some(before) = self.links.remove(from) {
            self.links.insert(to.clone(), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(packets: u64, lane: u16, ring: u16) -> Carried {
        Carried {
            traffic: Traffic { ipackets: packets, ..Traffic::default() },
            stopped: Stopped { ipspoofed: packets, ..Stopped::default() },
            lanes: vec![LaneReceived { lane, ipackets: packets, ..LaneReceived::default() }],
            rings: vec![RingStats { ring, lane, opackets: packets, ..RingStats::default() }],
        }
    }

    #[test]
    fn whatever_goes_is_added_to_what_went_before_and_has_the_links_name() {
        let [old, new]: [LinkName; 2] = ["net0", "wan0"].map(|it| it.parse().unwrap());
        let mut before = Before::default();
        assert_eq!(before.of_link(&old), None);
        before.keep_link(&old, &carried(100, 1, 0));
        before.keep_link(&old, &carried(20, 0, 1));
        before.keep_link(&old, &carried(3, 1, 1));
        before.rename_link(&old, &new);
        assert_eq!(before.of_link(&old), None);
        let kept = before.of_link(&new).unwrap();
        assert_eq!((kept.traffic.ipackets, kept.stopped.ipspoofed), (123, 123));
        let lanes: Vec<_> = kept.lanes.iter().map(|it| (it.lane, it.ipackets)).collect();
        assert_eq!(lanes, [(0, 20), (1, 103)]);
        let rings: Vec<_> = kept.rings.iter().map(|it| (it.ring, it.opackets)).collect();
        assert_eq!(rings, [(0, 100), (1, 23)]);
        assert_eq!(before.forget_link("wan0").ipackets, 123);
        assert_eq!(before.of_link(&new), None);
        assert_eq!(before.forget_link("wan0"), Traffic::default());
    }

    #[test]
    fn a_ring_is_in_the_lane_that_serves_it_now() {
        let rings = carried(1, 3, 0).and(&carried(2, 7, 0)).rings;
        assert_eq!(rings, carried(3, 3, 0).rings);
    }
}
