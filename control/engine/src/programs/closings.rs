//! Closings that can wait: of fused streams, whose other ends know of the end already (`docs/shm.md`, *A segment, and its joints*).
//!
//! Who closes a connection mostly opens the next, and waits for that, so a lane begins connections first, and ends what was closed
//! when it has nothing else to do, or soon ([`TURNS`], [`MANY`]). A worker's own; `mod.rs` asks.

/// So many kicks' turns they wait at the most.
const TURNS: u32 = 16;
/// So many do not wait.
const MANY: usize = 32;

/// Those of a lane.
#[derive(Debug)]
pub(super) struct Closings<T> {
    waiting: Vec<T>,
    /// How many turns the first has waited.
    turns: u32,
}

impl<T> Default for Closings<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), turns: 0 }
    }
}

impl<T> Closings<T> {
    /// One more.
    pub(super) fn put(&mut self, closing: T) {
        self.waiting.push(closing);
    }

    /// Whether there are any.
    pub(super) fn are_there(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those whose time has come, at the end of a turn that had something else to do, or had not.
    pub(super) fn take_due(&mut self, was_busy: bool) -> impl Iterator<Item = T> {
        self.turns += u32::from(self.are_there());
        let are_due = !was_busy || self.turns >= TURNS || self.waiting.len() >= MANY;
        if are_due {
            self.turns = 0;
        }
        let due = if are_due { self.waiting.len() } else { 0 };
        self.waiting.drain(..due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_wait_while_there_is_something_else_and_not_for_ever() {
        let mut closings = Closings::default();
        assert!(!closings.are_there() && closings.take_due(false).next().is_none());
        closings.put(1);
        assert!(closings.take_due(true).next().is_none() && closings.are_there());
        assert_eq!(closings.take_due(false).collect::<Vec<_>>(), [1]);
        closings.put(2);
        let waited = (1..).find(|_| closings.take_due(true).next() == Some(2));
        assert_eq!(waited, Some(TURNS), "it has waited long enough");
        (0..MANY).for_each(|nth| closings.put(nth));
        assert_eq!(closings.take_due(true).count(), MANY);
        closings.put(3);
        assert!(closings.take_due(true).next().is_none(), "the next ones wait as long");
    }
}
