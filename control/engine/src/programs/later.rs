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
        self.overrule(option);
        self.0.push_back(option);
    }

    /// It is told this one at once.
    pub(super) fn overrule(&mut self, option: StreamOption) {
        self.0.retain(|earlier| !option.overrules(earlier));
    }

    /// The first that it has not been told, for who tells it.
    pub(super) fn take_first(&mut self) -> Option<StreamOption> {
        self.0.pop_front()
    }

    /// It could not be told that one, and what has come since counts.
    pub(super) fn put_back(&mut self, option: StreamOption) {
        if !self.0.iter().any(|later| later.overrules(&option)) {
            self.0.push_front(option);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Family;

    fn all(mut later: Later) -> Vec<StreamOption> {
        core::iter::from_fn(|| later.take_first()).collect()
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
    fn what_could_not_be_told_is_the_first_again_unless_another_word_has_come() {
        let mut later = Later::of(vec![StreamOption::Cork(true), StreamOption::Nodelay(true)]);
        for next in [StreamOption::Nodelay(false), StreamOption::Cork(false)] {
            let first = later.take_first().unwrap();
            later.put(next);
            later.put_back(first);
        }
        assert_eq!(all(later), [StreamOption::Nodelay(false), StreamOption::Cork(false)]);
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
