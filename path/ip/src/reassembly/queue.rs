//! Queues of datagrams that lie in places: in the order in which they began, and out of the middle at any time.
//!
//! Part of the reassembly. A datagram stands in two queues, that of all of its IP version and that of its source, so it has a
//! pair of neighbours for each; who goes costs its neighbours a write, however many there are.

/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Which of its queues is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// All of its version.
    Version = 0,
    /// Those of its source.
    Source = 1,
}

/// The places before and behind one in its two queues.
pub(super) type Neighbours = [(u32, u32); 2];

/// What stands in a queue.
pub(super) trait Queued {
    fn neighbours(&self) -> &Neighbours;
    fn neighbours_mut(&mut self) -> &mut Neighbours;
}

/// The first and the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub(super) first: u32,
    last: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NOWHERE, last: NOWHERE }
    }
}

impl Queue {
    /// The one at `at` comes last.
    pub(super) fn append<T: Queued>(&mut self, places: &mut [T], of: Of, at: u32) {
        places[at as usize].neighbours_mut()[of as usize] = (self.last, NOWHERE);
        match self.last {
            NOWHERE => self.first = at,
            last => places[last as usize].neighbours_mut()[of as usize].1 = at,
        }
        self.last = at;
    }

    /// The one at `at`, which is in this queue, leaves it.
    pub(super) fn remove<T: Queued>(&mut self, places: &mut [T], of: Of, at: u32) {
        let (before, behind) = places[at as usize].neighbours()[of as usize];
        match before {
            NOWHERE => self.first = behind,
            before => places[before as usize].neighbours_mut()[of as usize].1 = behind,
        }
        match behind {
            NOWHERE => self.last = before,
            behind => places[behind as usize].neighbours_mut()[of as usize].0 = before,
        }
    }

    /// The first that is not `spared`.
    pub(super) fn first_but<T: Queued>(self, places: &[T], of: Of, spared: Option<u32>) -> Option<u32> {
        let first = match self.first {
            NOWHERE => return None,
            first if Some(first) == spared => places[first as usize].neighbours()[of as usize].1,
            first => first,
        };
        (first != NOWHERE).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Queued for Neighbours {
        fn neighbours(&self) -> &Neighbours {
            self
        }
        fn neighbours_mut(&mut self) -> &mut Neighbours {
            self
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_list(steps in prop::collection::vec(0..8u32, 0..100), spared in prop::option::of(0..8u32)) {
            let mut places = [[(7, 7); 2]; 8];
            let (mut queue, mut model) = (Queue::default(), Vec::new());
            for at in steps {
                // Whoever is in leaves, whoever is not comes last.
                if model.contains(&at) {
                    queue.remove(&mut places, Of::Source, at);
                    model.retain(|&it| it != at);
                } else {
                    queue.append(&mut places, Of::Source, at);
                    model.push(at);
                }
                let first = model.iter().copied().find(|&it| Some(it) != spared);
                prop_assert_eq!(queue.first_but(&places, Of::Source, spared), first);
                let mut in_order = Vec::new();
                let mut next = queue.first;
                while next != NOWHERE {
                    in_order.push(next);
                    next = places[next as usize][1].1;
                }
                prop_assert_eq!(&in_order, &model);
                prop_assert!(places.iter().all(|place| place[0] == (7, 7)), "the other queue is another's");
            }
        }
    }
}
