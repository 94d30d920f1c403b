//! Some of the places in the order in which they were entered: links from each to the next.
//!
//! One goes in at the end and out from anywhere in the same few steps, however many stand in it: what is over leaves no name behind that
//! somebody would have to clear away. Used by [`Places`](crate::Places).

use crate::rooms::Rooms;

/// In the place of a neighbour: there is none.
const NONE: u32 = u32::MAX;
/// The same: the place itself is not in the order.
const OUT: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
}

/// The order.
#[derive(Debug)]
pub(crate) struct Order {
    links: Rooms<Link>,
    first: u32,
    last: u32,
}

impl Order {
    pub(crate) const fn new() -> Self {
        Self { links: Rooms::new(), first: NONE, last: NONE }
    }

    /// There is one more place, which is not in the order: the one behind all that there are.
    pub(crate) fn append(&mut self, at: u32) {
        self.links.push(at, Link { before: OUT, behind: OUT });
    }

    /// The one that has stood in it longest.
    pub(crate) const fn first(&self) -> Option<u32> {
        if self.first == NONE { None } else { Some(self.first) }
    }

    /// It stands at the end from here on. It was not in the order.
    pub(crate) fn enter(&mut self, at: u32) {
        let before = core::mem::replace(&mut self.last, at);
        *self.link(at) = Link { before, behind: NONE };
        match before {
            NONE => self.first = at,
            before => self.link(before).behind = at,
        }
    }

    /// It stands there not at all from here on, if it did.
    pub(crate) fn leave(&mut self, at: u32) {
        let Link { before, behind } = core::mem::replace(self.link(at), Link { before: OUT, behind: OUT });
        match before {
            OUT => return,
            NONE => self.first = behind,
            before => self.link(before).behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => self.link(behind).before = before,
        }
    }

    fn link(&mut self, at: u32) -> &mut Link {
        self.links.get_mut(at).expect("a place has a link")
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.links.allocated_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn who_entered_first_stands_first_whoever_leaves(steps in prop::collection::vec(0..40_u32, 0..300)) {
            let (mut order, mut model) = (Order::new(), Vec::new());
            (0..40).for_each(|at| order.append(at));
            for at in steps {
                if model.contains(&at) {
                    order.leave(at);
                    model.retain(|it| *it != at);
                } else {
                    order.leave(at);
                    order.enter(at);
                    model.push(at);
                }
                prop_assert_eq!(order.first(), model.first().copied());
            }
            for at in model {
                prop_assert_eq!(order.first(), Some(at));
                order.leave(at);
            }
            prop_assert_eq!(order.first(), None);
        }
    }
}
