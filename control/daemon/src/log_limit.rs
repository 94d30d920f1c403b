//! How much of the log one user can fill by what his programs do, and by who comes in his name.
//!
//! Used by `programs.rs`, whose thread writes the lines and serves everybody: each costs it time, and the log room that is others' as well.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::Level;

/// So many lines of a level are written of a user, and then none until the time is over.
const LINES: u32 = 10;
/// The time.
const TIME: Duration = Duration::from_secs(1);

/// What was written of users, by level.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(BTreeMap<(u32, Level), Written>);

#[derive(Debug)]
struct Written {
    until: Instant,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Whether there is room for another line of a user's. If not it is counted.
    pub(crate) fn has_room(&mut self, user: u32, level: Level) -> bool {
        self.has_room_at(user, level, Instant::now())
    }

    fn has_room_at(&mut self, user: u32, level: Level, now: Instant) -> bool {
        self.0.retain(|_, it| it.left_out > 0 || now < it.until);
        let new = Written { until: now + TIME, lines: 0, left_out: 0 };
        let written = self.0.entry((user, level)).or_insert(new);
        let has_room = written.lines < LINES;
        written.lines += u32::from(has_room);
        written.left_out += u64::from(!has_room);
        has_room
    }

    /// When it is time to say what was left out, if something was.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.0.values().filter(|it| it.left_out > 0).map(|it| it.until).min()
    }

    /// Says what was left out, when it is time.
    pub(crate) fn tell(&mut self) {
        if self.0.is_empty() {
            return;
        }
        for (user, level, left_out) in self.take_left_out(Instant::now()) {
            let text = format_args!("user {user}: {left_out} more lines about programs are left out");
            if level == Level::INFO { tracing::info!("{text}") } else { tracing::warn!("{text}") }
        }
    }

    fn take_left_out(&mut self, now: Instant) -> Vec<(u32, Level, u64)> {
        let is_over = |_: &_, it: &mut Written| it.left_out > 0 && it.until <= now;
        let over = self.0.extract_if(.., is_over);
        over.map(|((user, level), it)| (user, level, it.left_out)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_some_lines_and_then_a_number() {
        let (mut limit, begin) = (LogLimit::default(), Instant::now());
        let say = |limit: &mut LogLimit, user, at| limit.has_room_at(user, Level::WARN, begin + at);
        let written = (0..1000).filter(|_| say(&mut limit, 7, Duration::ZERO)).count();
        assert_eq!(written, LINES as usize);
        assert!(say(&mut limit, 8, Duration::ZERO), "another has his own");
        assert!(limit.has_room_at(7, Level::INFO, begin), "and so has another level");
        assert_eq!((limit.alarm(), limit.take_left_out(begin)), (Some(begin + TIME), vec![]));
        let left_out = (7, Level::WARN, 1000 - u64::from(LINES));
        assert_eq!(limit.take_left_out(begin + TIME), [left_out]);
        assert_eq!(limit.alarm(), None);
        assert!(say(&mut limit, 7, TIME), "then it begins anew");
        assert_eq!(limit.0.len(), 1, "what is over is forgotten");
    }
}
