//! Options that a program sets before there is a connection: what that is told of them once it is there.
//!
//! Kept by `stream.rs`. A connection may wait for ever (for text, or for a peer that says nothing), and its program may set an option as
//! often as it likes meanwhile; the last word counts, and is all that is kept.

use std::collections::VecDeque;

use firelane_lane::StreamOption;

/// Those of a stream, in the order in which they were set.
#[derive(Debug, Default)]
pub(super) struct Later(VecDeque<StreamOption>);

impl Later {
    /// Those that it begins with.
    pub(super) fn of(options: Vec<StreamOption>) -> Self {
        Self(options.into())
    }

    /// One more.
    pub(super) fn put(&mut self, option: StreamOption) {
        self.0.retain(|earlier| !option.overrules(earlier));
        self.0.push_back(option);
    }

    /// The first that it has not been told.
    pub(super) fn first(&self) -> Option<StreamOption> {
        self.0.front().copied()
    }

    /// It has been told that one.
    pub(super) fn drop_first(&mut self) {
        self.0.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Family;

    fn all(mut later: Later) -> Vec<StreamOption> {
        core::iter::from_fn(|| later.first().inspect(|_| later.drop_first())).collect()
    }

    #[test]
    fn the_last_word_about_each_is_told_in_order() {
        let mut later = Later::of(vec![StreamOption::Cork(true)]);
        let dscp = StreamOption::Dscp;
        for option in
            [dscp(Family::V4, 1), StreamOption::Nodelay(true), dscp(Family::V6, 2), dscp(Family::V4, 3)]
        {
            later.put(option);
        }
        assert_eq!(
            all(later),
            [StreamOption::Cork(true), StreamOption::Nodelay(true), dscp(Family::V6, 2), dscp(Family::V4, 3)]
        );
    }

    #[test]
    fn who_sets_one_for_ever_has_one() {
        let mut later = Later::default();
        for n in 0..10_000 {
            later.put(StreamOption::Nodelay(n % 2 == 0));
            later.put(StreamOption::SendBuffer(n));
        }
        assert_eq!(all(later), [StreamOption::Nodelay(false), StreamOption::SendBuffer(9_999)]);
    }
}
