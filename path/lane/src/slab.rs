//! A table whose places are reused, and whose keys tell the users of a place apart.
//!
//! Connections live in one: the index is small and stays (the timer wheel and the connection table name it),
//! and the generation makes a command for a connection that is gone miss its successor.

use firelane_frame::read_all_ahead;
use firelane_socket::ConnRef;
use firelane_units::ConnId;

/// Values by index, with a free list through the empty places.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Option<u32>,
    len: usize,
    epoch: Epoch,
}

/// When a value came, as far as anybody has to tell what was there before something from what has come since: the how manieth epoch it
/// was, round and round. Nothing that is told apart lasts until as many as half of all numbers have followed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Epoch(u32);

impl Epoch {
    /// Whether it came before another.
    #[inline]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }
}

#[derive(Debug)]
struct Place<T> {
    /// Counts the users of this place; zero is never used.
    generation: u32,
    /// When its user came: it stands where otherwise nothing would.
    since: Epoch,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Used(T),
    Free { next: Option<u32> },
}

/// Makes room for one more, and for a sixteenth of what there is: a table of a million connections that doubled
/// would waste as much as it uses. (Pieces of this size are moved by their page tables, not copied.)
pub(crate) fn grow<T>(places: &mut Vec<T>) {
    if places.len() == places.capacity() {
        places.reserve_exact((places.len() / 16).max(GROWTH_MIN));
    }
}

const GROWTH_MIN: usize = 64;

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: None, len: 0, epoch: Epoch(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What the places take, used or not.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<T>>()
    }

    /// Puts `value` in a place and names it.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> ConnRef {
        self.len += 1;
        if let Some(index) = self.free {
            let place = &mut self.places[index as usize];
            if let Content::Free { next } = place.content {
                self.free = next;
            }
            place.content = Content::Used(value);
            place.since = self.epoch;
            return ConnRef { conn: ConnId(index), generation: place.generation };
        }
        let index = u32::try_from(self.places.len()).expect("memory ends before 2^32 connections");
        grow(&mut self.places);
        self.places.push(Place { generation: 1, since: self.epoch, content: Content::Used(value) });
        ConnRef { conn: ConnId(index), generation: 1 }
    }

    /// The epoch in which values come.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Another epoch begins: what comes from here on is told from what is there.
    pub(crate) const fn begin_epoch(&mut self) -> Epoch {
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
        self.epoch
    }

    /// The value at an index, and when it came.
    #[inline]
    pub(crate) fn get_dated(&self, conn: ConnId) -> Option<(&T, Epoch)> {
        let Place { since, content, .. } = self.places.get(conn.index())?;
        match content {
            Content::Used(value) => Some((value, *since)),
            Content::Free { .. } => None,
        }
    }

    /// Empties a place.
    #[inline]
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        let place = self.places.get_mut(conn.index())?;
        if let Content::Free { .. } = place.content {
            return None;
        }
        place.generation = place.generation.wrapping_add(1).max(1);
        let content = core::mem::replace(&mut place.content, Content::Free { next: self.free });
        self.free = Some(conn.0);
        self.len -= 1;
        match content {
            Content::Used(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    /// The value at an index, whoever uses it.
    #[inline]
    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        match &mut self.places.get_mut(conn.index())?.content {
            Content::Used(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    /// Begins to fetch what is at an index, whoever uses it.
    #[inline]
    pub(crate) fn look_ahead(&self, conn: ConnId) {
        self.places.get(conn.index()).into_iter().for_each(read_all_ahead);
    }

    /// The value at an index, whoever uses it.
    pub(crate) fn get(&self, conn: ConnId) -> Option<&T> {
        match &self.places.get(conn.index())?.content {
            Content::Used(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    /// The values at two different indices, whoever uses them.
    pub(crate) fn pair_mut(&mut self, one: ConnId, two: ConnId) -> Option<(&mut T, &mut T)> {
        match self.places.get_disjoint_mut([one.index(), two.index()]).ok()? {
            [Place { content: Content::Used(one), .. }, Place { content: Content::Used(two), .. }] => {
                Some((one, two))
            }
            _ => None,
        }
    }

    /// The index of a reference, if its user is still there.
    pub(crate) fn resolve(&self, reference: ConnRef) -> Option<ConnId> {
        let place = self.places.get(reference.conn.index())?;
        let used = matches!(place.content, Content::Used(_));
        (used && place.generation == reference.generation).then_some(reference.conn)
    }

    /// How many places there are, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// What is at an index: `None` beyond the last place, `Some(None)` at a free one.
    pub(crate) fn place(&self, index: u32) -> Option<Option<&T>> {
        self.places.get(index as usize).map(|place| match &place.content {
            Content::Used(value) => Some(value),
            Content::Free { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_the_last_user_of_a_place_finds_nobody() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.remove(a.conn), slab.remove(a.conn)), (Some('a'), None));
        let c = slab.insert('c');
        assert_eq!(c.conn, a.conn, "the place is reused");
        assert_eq!((slab.resolve(a), slab.resolve(c), slab.resolve(b)), (None, Some(c.conn), Some(b.conn)));
        assert_eq!((slab.len(), slab.get(c.conn)), (2, Some(&'c')));
        assert_eq!([0, 1, 2].map(|at| slab.place(at)), [Some(Some(&'c')), Some(Some(&'b')), None]);
    }

    #[test]
    fn what_came_before_an_epoch_is_told_from_what_comes_in_it() {
        let mut slab = Slab { epoch: Epoch(u32::MAX - 1), ..Slab::new() };
        let old = slab.insert('a');
        for _ in 0..4 {
            let gone = slab.insert('b');
            slab.remove(gone.conn);
            let epoch = slab.begin_epoch();
            let new = slab.insert('c');
            let is_before = |it: ConnRef| slab.get_dated(it.conn).is_some_and(|it| it.1.is_before(epoch));
            assert_eq!((new.conn, is_before(old), is_before(new)), (gone.conn, true, false));
            slab.remove(new.conn);
        }
    }
}
