//! Some of a table's places, each once: those that need be visited, where the others need not.
//!
//! Used for netstacks (`stacks/shards.rs`) and driver queues (`queues.rs`), of which a lane may have a thousand, and a turn is about few.

/// Marked places.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    places: Vec<usize>,
    is_in: Vec<bool>,
}

impl Marked {
    /// There are so many places now.
    pub(crate) fn grow(&mut self, places: usize) {
        self.is_in.resize(places.max(self.is_in.len()), false);
        self.places.reserve(self.is_in.len());
    }

    /// Marks a place.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub(crate) fn put(&mut self, place: usize) {
        if !core::mem::replace(&mut self.is_in[place], true) {
            self.places.push(place);
        }
    }

    /// Those that are marked, in the order in which they were.
    #[inline]
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Only those stay marked of which this is true.
    #[inline]
    pub(crate) fn retain(&mut self, stays: impl Fn(usize) -> bool) {
        let Self { places, is_in } = self;
        places.retain(|&place| {
            is_in[place] = stays(place);
            is_in[place]
        });
    }

    /// Hands out all of them; none is marked afterwards.
    #[inline]
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = usize> {
        let Self { places, is_in } = self;
        places.drain(..).inspect(|&place| is_in[place] = false)
    }
}
