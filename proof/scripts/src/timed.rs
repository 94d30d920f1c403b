//! Scripts of what has a clock of its own and no connection: clients that lease or choose addresses.
//!
//! The same times, settings and expectations as in packet scripts (`text.rs`, `run.rs`), over whatever [`Played`] is:
//! `dhcp4.rs`, `dhcp6.rs` and `link_local.rs`. Whatever comes must be expected by some line.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use firelane_units::Instant;

use crate::run::Failure;
use crate::text::When;

/// What comes of what is played.
pub(crate) trait Came: Display {
    /// Whether it is what a line says.
    fn is_as(&self, expected: &str) -> bool;
}

/// What is played.
pub(crate) trait Played: Sized {
    type Came: Came;
    /// How late a timer may be.
    const TOLERANCE: Duration;

    /// With the lines that stand before all events, and the time at which it begins.
    fn new(settings: &[&str]) -> Result<(Self, Instant), String>;

    /// When something happens by itself.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what is due by then: what comes of it.
    fn advance(&mut self, now: Instant) -> Result<Vec<Self::Came>, String>;

    /// Somebody else says something.
    fn hear(&mut self, now: Instant, words: &str) -> Result<(), String>;

    /// Its owner wants something, or a test looks.
    fn call(&mut self, now: Instant, words: &str) -> Result<(), String>;
}

/// Plays a script.
pub(crate) fn play<P: Played>(text: &str) -> Result<(), Failure> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let lines: Vec<(usize, &str)> = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).collect();
    let settings: Vec<&str> = lines.iter().map_while(|(_, line)| line.strip_prefix("set ")).collect();
    let at = |line: usize| move |what: String| Failure { line, what };
    let (played, start) = P::new(&settings).map_err(at(1))?;
    let mut player = Player { played, now: start, last: start, came: VecDeque::new() };
    let mut last = 0;
    for &(line, text) in &lines[settings.len()..] {
        last = line;
        player.line(text).map_err(at(line))?;
    }
    if last == 0 {
        return Err(Failure { line: 0, what: "nothing happens".to_owned() });
    }
    player.nothing_waits().map_err(at(last))
}

struct Player<P: Played> {
    played: P,
    now: Instant,
    /// When the last event happened.
    last: Instant,
    came: VecDeque<(Instant, P::Came)>,
}

impl<P: Played> Player<P> {
    fn line(&mut self, text: &str) -> Result<(), String> {
        let (when, words) = text.split_once(char::is_whitespace).ok_or("a time without an event")?;
        let words = words.trim();
        let (from, to) = match When::parse(when)? {
            When::After(span) => (self.last + span, self.last + span),
            When::At(_) => return Err(format!("`{when}`: these times are after the last event: `+{when}`")),
            When::Within(from, to) => (self.last + from, self.last + to),
        };
        if let Some(expected) = words.strip_prefix('>') {
            return self.expect(expected.trim(), from, to);
        }
        self.go_to(to)?;
        match words.strip_prefix('<') {
            Some(said) => self.played.hear(self.now, said.trim())?,
            None if words == "quiet" => {}
            None => self.played.call(self.now, words)?,
        }
        self.collect()
    }

    /// What is due at this instant.
    fn collect(&mut self) -> Result<(), String> {
        let came = self.played.advance(self.now)?;
        self.came.extend(came.into_iter().map(|it| (self.now, it)));
        Ok(())
    }

    /// One step of time, up to `limit`. Whether there is more before it.
    fn step(&mut self, limit: Instant) -> Result<bool, String> {
        let next = self.played.next_deadline().filter(|&next| next <= limit);
        self.now = self.now.max(next.unwrap_or(limit));
        self.collect()?;
        Ok(next.is_some())
    }

    /// Lets time pass. What has come before must have been expected.
    fn go_to(&mut self, at: Instant) -> Result<(), String> {
        self.collect()?;
        while at > self.now {
            self.nothing_waits()?;
            self.step(at)?;
        }
        self.last = at;
        Ok(())
    }

    fn nothing_waits(&mut self) -> Result<(), String> {
        let Some((at, came)) = self.came.pop_front() else { return Ok(()) };
        Err(format!("expected nothing, got `{came}` at {}", self.seconds(at)))
    }

    fn seconds(&self, at: Instant) -> String {
        format!("+{:.3}", at.saturating_since(self.last).as_secs_f64())
    }

    fn expect(&mut self, expected: &str, from: Instant, to: Instant) -> Result<(), String> {
        let latest = to + P::TOLERANCE;
        self.collect()?;
        while self.came.is_empty() && self.now < latest && self.step(latest)? {}
        let Some((at, came)) = self.came.pop_front() else {
            return Err(format!("expected `{expected}`, got nothing until {}", self.seconds(latest)));
        };
        if !came.is_as(expected) {
            return Err(format!("expected `{expected}`, got `{came}` at {}", self.seconds(at)));
        }
        if at < from || at > latest {
            return Err(format!("`{expected}` came at {}", self.seconds(at)));
        }
        self.last = at;
        Ok(())
    }
}
