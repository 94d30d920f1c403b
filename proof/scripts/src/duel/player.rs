//! Walks through an exchange over a world and writes down what comes.

use std::time::Duration;

use firelane_frame::Driver;
use firelane_units::Instant;

use super::exchange::Exchange;
use super::transcript::{Answer, Step, Transcript};
use crate::meeting;
use crate::peer::Peer;
use crate::settings::Settings;
use crate::sockets::Effect;
use crate::station::{Seen, Station};
use crate::text::{Action, Call, Event, When};

/// A stack with a program on it, at the other end of a station's wire.
pub(super) trait World {
    type Wire: Driver;

    fn now(&self) -> Instant;

    fn station(&mut self) -> &mut Station<Self::Wire>;

    /// Lets happen what happens at once, and gives what came.
    fn settle(&mut self) -> Vec<(Instant, Seen)>;

    /// Lets time pass up to `at`, and gives what came.
    fn run_until(&mut self, at: Instant) -> Vec<(Instant, Seen)>;

    /// Makes a call. `Err` is a mistake of the exchange's.
    fn call(&mut self, settings: &Settings, call: &Call) -> Result<(String, Effect), String>;
}

/// Plays `exchange` over `world`.
pub(super) fn play<W: World>(
    world: &mut W,
    exchange: &Exchange,
    settings: &Settings,
) -> Result<Transcript, String> {
    let mut player = Player::new(world, settings);
    for event in &exchange.script.events {
        let line = exchange.line_of(event);
        player.play(event, line).map_err(|what| format!("{}: `{line}`: {what}", exchange.name))?;
    }
    Ok(Transcript(player.steps))
}

/// Plays `exchange` whatever comes of it: a call on a socket that does not exist is left out.
pub(super) fn play_on<W: World>(world: &mut W, exchange: &Exchange, settings: &Settings) {
    let mut player = Player::new(world, settings);
    for event in &exchange.script.events {
        let _ = player.play(event, exchange.line_of(event));
    }
}

struct Player<'a, W> {
    world: &'a mut W,
    settings: &'a Settings,
    peer: Peer,
    /// When the last event happened.
    last: Instant,
    steps: Vec<Step>,
}

impl<'a, W: World> Player<'a, W> {
    fn new(world: &'a mut W, settings: &'a Settings) -> Self {
        let last = world.now();
        Self { world, settings, peer: Peer::new(settings.peer_first), last, steps: Vec::new() }
    }

    fn play(&mut self, event: &Event, line: &str) -> Result<(), String> {
        let When::After(span) = event.when else { return Err("an exchange's times are like +.1".into()) };
        if let Action::Expect(_) | Action::ExpectOther(_) = event.action {
            return Err("an exchange expects nothing".into());
        }
        if let Action::Call(call) = &event.action
            && let "established" | "opened" = call.function.as_str()
        {
            return self.meet(call, event.line);
        }
        let at = self.last + span;
        let came = self.world.run_until(at);
        self.note(came);
        self.last = self.world.now();
        let mut step = Step { line: line.to_owned(), ..Step::default() };
        match &event.action {
            Action::Inject(packet) | Action::InjectBeforeNext(packet) => {
                let now = self.world.now();
                self.peer.inject(self.world.station(), now, packet);
            }
            Action::Call(call) => {
                let (result, effect) = self.world.call(self.settings, call)?;
                match effect {
                    Effect::None => {}
                    Effect::Listens(port) => self.peer.our_port = port,
                    Effect::Connects(ours, peers) => {
                        let is_new = call.arguments.iter().any(|word| word == "new");
                        self.peer.begin(ours, peers, is_new);
                    }
                }
                step.result = Some(result);
            }
            // Waiting is all that silence asks for; what came belongs to the step before.
            Action::Quiet | Action::Expect(_) | Action::ExpectOther(_) => return Ok(()),
        }
        self.steps.push(step);
        let came = self.world.settle();
        self.note(came);
        Ok(())
    }

    /// Plays the lines that a handshake stands for, without what they expect.
    fn meet(&mut self, call: &Call, line: usize) -> Result<(), String> {
        let lines = match call.function.as_str() {
            "established" => meeting::established(call)?,
            _ => meeting::opened(call)?,
        };
        for text in lines {
            let event = Event::parse(line, &text)?;
            if !matches!(event.action, Action::Expect(_)) {
                self.play(&event, &text)?;
            }
        }
        Ok(())
    }

    /// Writes down what came, below the step that it came after.
    fn note(&mut self, came: Vec<(Instant, Seen)>) {
        for (at, seen) in came {
            let after: Duration = at.saturating_since(self.last);
            let answer = match seen {
                Seen::Packet { words, class } => Answer::packet(after, words, class.dscp),
                Seen::Other(words) => Answer::words(after, words),
                Seen::Tcp { bytes, class } => match self.peer.read(self.world.station(), &bytes, class) {
                    Ok(segment) => {
                        let is_zero = bytes.get(4..8) == Some(&[0; 4]);
                        Answer::segment(after, &segment, is_zero)
                    }
                    Err(what) => Answer::words(after, what),
                },
            };
            if let Some(step) = self.steps.last_mut() {
                step.answers.push(answer);
            }
        }
    }
}
