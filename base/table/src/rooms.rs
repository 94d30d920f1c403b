//! A list that grows and moves nothing of what it has: items in rooms, each as large as all before it together.
//!
//! The large rooms are in large pages. Used by `places.rs` for what stands in the places, and by `order.rs` for their links.

use firelane_frame::prefer_large_pages;

/// Items in the first room; a power of two.
const FIRST_ROOM: usize = 16;

/// The list.
#[derive(Debug)]
pub(crate) struct Rooms<T>(Vec<Vec<T>>);

impl<T> Rooms<T> {
    /// Nothing, without memory.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends the item that is `at` from here on: as many are there already.
    pub(crate) fn push(&mut self, at: u32, item: T) {
        let (room, _) = home(at);
        if room == self.0.len() {
            let mut next = Vec::with_capacity(FIRST_ROOM << room);
            prefer_large_pages(&mut next);
            self.0.push(next);
        }
        self.0[room].push(item);
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        let (room, nth) = home(at);
        self.0.get(room)?.get(nth)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let (room, nth) = home(at);
        self.0.get_mut(room)?.get_mut(nth)
    }

    /// The items in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.0.iter().map(|room| room.capacity() * size_of::<T>()).sum()
    }
}

/// The room that an item is in, and the how manieth it is there.
#[inline]
const fn home(at: u32) -> (usize, usize) {
    let nth = at as usize + FIRST_ROOM;
    let room = nth.ilog2();
    ((room - FIRST_ROOM.ilog2()) as usize, nth - (1 << room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_one_room_and_rooms_are_full_before_the_next() {
        let mut behind = (0, 0);
        for at in 0..100_000 {
            assert_eq!(home(at), behind, "{at}");
            let (room, nth) = behind;
            behind = if nth + 1 == FIRST_ROOM << room { (room + 1, 0) } else { (room, nth + 1) };
        }
        assert_eq!(home(u32::MAX), (28, 15), "the last place that a number names");
    }
}
