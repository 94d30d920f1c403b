//! Which lane owns a connection: an indirection table of 128 entries, as NICs have for RSS.
//!
//! A lane looks here before it looks for the connection. The table is small enough to copy to every lane
//! whenever lanes are added or removed; entries move, hashes do not. Flows with lanes of their own come before the entries
//! ([`FlowLanes`]). Connections stay where they began, so a steering remembers which lanes there were before until nothing is left
//! that began by that: a lane that lacks what a packet is for asks the next one.

use std::sync::Arc;

use firelane_units::LaneId;

use crate::flow_lanes::FlowLanes;

/// How many entries the table has.
pub const STEERING_ENTRIES: usize = 128;

/// From hash to lane.
#[derive(Clone, Debug)]
pub struct Steering {
    entries: [LaneId; STEERING_ENTRIES],
    /// Not all entries are of one lane.
    is_spread: bool,
    /// Flows with lanes of their own, if there are any.
    flows: Option<Arc<FlowLanes>>,
    /// Things may be elsewhere than they would begin now: also in these lanes, which had them before.
    is_settling: bool,
    former: Vec<LaneId>,
    /// How often flows have changed and settled: who was told of the last change has this number.
    version: u32,
}

impl Steering {
    /// All connections in one lane.
    pub const fn single(lane: LaneId) -> Self {
        Self {
            entries: [lane; STEERING_ENTRIES],
            is_spread: false,
            flows: None,
            is_settling: false,
            former: Vec::new(),
            version: 0,
        }
    }

    /// Entries dealt to `lanes` in turn. No lanes means lane zero.
    pub fn even(lanes: &[LaneId]) -> Self {
        let mut steering = Self::single(LaneId(0));
        for (entry, &lane) in steering.entries.iter_mut().zip(lanes.iter().cycle()) {
            *entry = lane;
        }
        steering.look();
        steering
    }

    /// The same, with other lanes that may have things soon: whoever knows of it asks them as well. All lanes are told before the
    /// first begins anything elsewhere, so none takes what it lacks for nobody's.
    #[must_use]
    pub fn prepared(&self, flows: Option<&FlowLanes>) -> Self {
        let joining = flows.map(FlowLanes::lanes).unwrap_or_default();
        let former = self.lanes().into_iter().chain(joining).collect();
        Self { is_settling: true, former, version: self.version + 1, ..self.clone() }
    }

    /// The same for what begins from now on by these flows; what began before is found where it is.
    #[must_use]
    pub fn followed_by(&self, flows: Option<Arc<FlowLanes>>) -> Self {
        Self { flows, is_settling: true, former: self.lanes(), version: self.version + 1, ..self.clone() }
    }

    /// The same when nothing is left that began before.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self { is_settling: false, former: Vec::new(), version: self.version + 1, ..self.clone() }
    }

    /// Whether things may be elsewhere than they would begin now.
    #[inline]
    pub const fn is_settling(&self) -> bool {
        self.is_settling
    }

    /// Which of the steerings of its netstack it is.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The flows with lanes of their own.
    #[inline]
    pub fn flows(&self) -> Option<&FlowLanes> {
        self.flows.as_deref()
    }

    /// Every lane that this sends something to, or did before it was settled: each once, in order.
    pub fn lanes(&self) -> Vec<LaneId> {
        let flows = self.flows.iter().flat_map(|flows| flows.lanes());
        let mut lanes: Vec<_> = flows.chain(self.former.iter().copied()).chain(self.entries).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// The lane that is asked next for what `me` has not, where `first` was asked first: they go round in the order of their numbers,
    /// whichever of the steerings each of them knows, and nobody is asked after all were.
    pub fn next_to_ask(&self, me: LaneId, first: LaneId) -> Option<LaneId> {
        let lanes = self.lanes();
        let next = lanes.iter().find(|&&lane| lane > me).or(lanes.first()).copied()?;
        let way = |lane: LaneId| lane.0.wrapping_sub(first.0);
        (way(next) > way(me)).then_some(next)
    }

    /// Whether a lane has entries: only some flows may have the others.
    pub fn has_entries(&self, lane: LaneId) -> bool {
        self.entries.contains(&lane)
    }

    /// The lane of a symmetric hash that no flow has an own one for.
    #[inline]
    pub const fn lane_of(&self, hash: u32) -> LaneId {
        self.entries[Self::entry_of(hash)]
    }

    /// The entry that a hash falls into.
    #[inline]
    pub const fn entry_of(hash: u32) -> usize {
        hash as usize % STEERING_ENTRIES
    }

    /// The lane of what has no ports: ARP, neighbour discovery, ICMP and fragments.
    pub const fn home(&self) -> LaneId {
        self.entries[0]
    }

    /// Gives an entry to another lane.
    ///
    /// # Panics
    /// If `entry` is not below [`STEERING_ENTRIES`].
    pub const fn set(&mut self, entry: usize, lane: LaneId) {
        self.entries[entry] = lane;
        self.look();
    }

    const fn look(&mut self) {
        let mut entry = 1;
        self.is_spread = false;
        while entry < STEERING_ENTRIES {
            self.is_spread |= self.entries[entry].0 != self.entries[0].0;
            entry += 1;
        }
    }

    /// The lane of everything, if it is one: nobody has to hash anything then.
    #[inline]
    pub const fn only(&self) -> Option<LaneId> {
        if self.is_spread || self.flows.is_some() { None } else { Some(self.entries[0]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_get_equal_shares() {
        for lanes in [1u16, 2, 3, 4] {
            let ids: Vec<_> = (0..lanes).map(LaneId).collect();
            let steering = Steering::even(&ids);
            for id in ids {
                let share = steering.entries.iter().filter(|&&l| l == id).count();
                assert!(share.abs_diff(STEERING_ENTRIES / usize::from(lanes)) <= 1, "{share} of {lanes}");
            }
        }
    }

    #[test]
    fn an_entry_moves_alone() {
        let mut steering = Steering::even(&[LaneId(0)]);
        steering.set(5, LaneId(9));
        assert_eq!(steering.lane_of(5 + 128), LaneId(9));
        assert_eq!((steering.lane_of(4), steering.home()), (LaneId(0), LaneId(0)));
        assert_eq!(Steering::even(&[]).entries, Steering::single(LaneId(0)).entries);
    }

    #[test]
    fn whoever_lacks_something_asks_all_lanes_that_may_have_it_and_each_once() {
        let flow = |lane| {
            let mut flows = FlowLanes::new();
            let rule =
                crate::FlowMatch { local_port: Some("80".parse().unwrap()), ..crate::FlowMatch::default() };
            flows.insert(&rule, firelane_units::FlowId(0), vec![LaneId(lane)]).unwrap();
            Some(Arc::new(flows))
        };
        let plain = Steering::single(LaneId(1));
        assert_eq!((plain.next_to_ask(LaneId(1), LaneId(1)), plain.only()), (None, Some(LaneId(1))));
        let [four, six] = [4, 6].map(|lane| plain.followed_by(flow(lane)));
        let steering = four.followed_by(flow(6)).followed_by(None);
        assert_eq!((steering.version(), steering.only()), (3, Some(LaneId(1))));
        for first in [1, 4, 6] {
            let mut asked = vec![LaneId(first)];
            while let Some(next) = steering.next_to_ask(asked[asked.len() - 1], LaneId(first)) {
                asked.push(next);
            }
            asked.sort();
            assert_eq!(asked, steering.lanes(), "from {first}");
        }
        assert_eq!(steering.lanes(), [1, 4, 6].map(LaneId));
        // Who knows of fewer lanes, or was asked although he is none of them, passes it on as well.
        assert_eq!(four.next_to_ask(LaneId(4), LaneId(1)), None);
        assert_eq!(six.next_to_ask(LaneId(4), LaneId(4)), Some(LaneId(6)));
        assert_eq!(six.next_to_ask(LaneId(4), LaneId(6)), None);
        // Who is told beforehand sends nothing anywhere else as yet, and asks there all the same.
        let prepared = plain.prepared(flow(4).as_deref());
        assert!(prepared.is_settling() && prepared.flows().is_none());
        assert_eq!(prepared.lanes(), [1, 4].map(LaneId));
        let settled = steering.settled();
        assert_eq!((settled.is_settling(), settled.lanes()), (false, vec![LaneId(1)]));
    }
}
