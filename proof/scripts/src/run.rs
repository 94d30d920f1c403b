//! Walks through a script's events.
//!
//! Time goes from one thing that is due to the next, up to the event's own. Packets that come are kept with the
//! time at which they came, until a line expects them; before time goes on, every one of them must be.

use std::collections::VecDeque;
use std::fmt;

use firelane_driver_memory::End;
use firelane_lane::{Control, RouteConfig};
use firelane_sim::{Sim, StackId};
use firelane_units::{Instant, IpPrefix};

use crate::icmp::{About, too_big};
use crate::meeting;
use crate::packet::Envelope;
use crate::peer::Peer;
use crate::segment::Segment;
use crate::settings::{Family, Settings, number};
use crate::sockets::{Effect, Sockets};
use crate::station::{Seen, Station, THEIR_NUMBER};
use crate::text::{Action, Call, Event, Script, When};

/// Where and why a script failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// In which line, from one.
    pub line: usize,
    /// What was expected, and what came.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Runs a script over one family. Nothing happens if the script is not about that family.
pub fn run(script: &Script, family: Family) -> Result<(), Failure> {
    if !script.settings.families.contains(&family) {
        return Ok(());
    }
    let mut runner = Runner::new(&script.settings, family);
    for event in &script.events {
        runner.play(event).map_err(|what| Failure { line: event.line, what })?;
    }
    let line = script.events.last().map_or(0, |event| event.line);
    runner.nothing_waits("the end").map_err(|what| Failure { line, what })
}

struct Runner<'a> {
    settings: &'a Settings,
    sim: Sim,
    station: Station<End>,
    sockets: Sockets,
    start: Instant,
    /// When the last event happened.
    last: Instant,
    seen: VecDeque<(Instant, Seen)>,
    peer: Peer,
}

impl<'a> Runner<'a> {
    fn new(settings: &'a Settings, family: Family) -> Self {
        let mut sim = Sim::new(1);
        let mtu = settings.mtu(family);
        let host = sim.host(settings.host(), mtu);
        let stack: StackId = sim.stack(host, &settings.stack(THEIR_NUMBER));
        let end = sim.dangle(host, mtu);
        let mut station = Station::new(end, family.is_v6());
        station.expect_labels();
        let sockets = Sockets::new(stack, family.is_v6(), station.ip);
        if let Some(congestion) = settings.route_congestion {
            let through = RouteConfig::via(IpPrefix::host(station.ip), station.ip);
            let route = RouteConfig { congestion: Some(congestion), ..through };
            sim.control(host, || Control::AddRoute(stack.netstack, route));
        }
        sim.settle();
        // The announcements of the netstack's addresses.
        station.receive(sim.now());
        let start = sim.now();
        Self {
            settings,
            sim,
            station,
            sockets,
            start,
            last: start,
            seen: VecDeque::new(),
            peer: Peer::new(settings.peer_first),
        }
    }

    fn play(&mut self, event: &Event) -> Result<(), String> {
        let (from, to) = self.due(event.when);
        match &event.action {
            Action::Expect(segment) => self.expect(segment, from, to),
            Action::ExpectOther(words) => self.expect_other(words, from, to),
            Action::Inject(packet) => {
                self.go_to(from)?;
                self.peer.inject(&mut self.station, self.sim.now(), packet);
                self.collect();
                Ok(())
            }
            Action::InjectBeforeNext(packet) => {
                self.go_to(from)?;
                self.peer.inject(&mut self.station, self.sim.now(), packet);
                Ok(())
            }
            Action::Quiet => {
                self.go_to(to)?;
                self.nothing_waits("silence")
            }
            Action::Call(call) => {
                self.go_to(from)?;
                match call.function.as_str() {
                    "established" => self.establish(call, event.line),
                    "opened" => self.open(call, event.line),
                    "toobig" => self.say_too_big(call),
                    "moves" => {
                        self.station.moves();
                        Ok(())
                    }
                    _ => self.call(call),
                }
            }
        }
    }

    /// Plays lines that stand for the call in `line`.
    fn play_lines(&mut self, lines: &[String], line: usize) -> Result<(), String> {
        lines.iter().try_for_each(|text| {
            let event = Event::parse(line, text)?;
            self.play(&event).map_err(|what| format!("in `{text}`: {what}"))
        })
    }

    /// `c = established(80, mss 1000, sack, ts, wscale 7, win 500, rtt .05)`: the peer has opened a connection.
    fn establish(&mut self, call: &Call, line: usize) -> Result<(), String> {
        self.play_lines(&meeting::established(call)?, line)
    }

    /// `c = opened(8080, ...)`: the netstack has opened a connection, with the same words.
    fn open(&mut self, call: &Call, line: usize) -> Result<(), String> {
        self.play_lines(&meeting::opened(call)?, line)
    }

    /// Between which instants an event happens.
    fn due(&self, when: When) -> (Instant, Instant) {
        match when {
            When::After(span) => (self.last + span, self.last + span),
            When::At(span) => (self.start + span, self.start + span),
            When::Within(from, to) => (self.last + from, self.last + to),
        }
    }

    /// Lets time pass to `at`. What has come before must have been expected.
    fn go_to(&mut self, at: Instant) -> Result<(), String> {
        if at > self.sim.now() {
            self.nothing_waits("nothing")?;
            while self.advance(at) {
                self.nothing_waits("nothing")?;
            }
            self.nothing_waits("nothing")?;
        }
        self.last = at;
        Ok(())
    }

    fn nothing_waits(&mut self, expected: &str) -> Result<(), String> {
        let Some((at, seen)) = self.seen.pop_front() else { return Ok(()) };
        let shown = self.show(seen);
        Err(format!("expected {expected}, got {shown} at {}", self.seconds(at)))
    }

    /// One step of time, up to `limit`. Whether there is more before it.
    fn advance(&mut self, limit: Instant) -> bool {
        self.collect();
        match self.sim.next_deadline() {
            Some(at) if at <= limit => {
                self.sim.run_until(at, |_| false);
                self.collect();
                true
            }
            _ => {
                self.sim.run_until(limit, |_| false);
                false
            }
        }
    }

    /// Fetches what came, until nobody has anything to say at this instant.
    fn collect(&mut self) {
        loop {
            self.sim.settle();
            let now = self.sim.now();
            let came = self.station.receive(now);
            let is_silent = self.station.take_silence() && came.is_empty();
            self.seen.extend(came.into_iter().map(|seen| (now, seen)));
            if is_silent {
                return;
            }
        }
    }

    fn seconds(&self, at: Instant) -> String {
        let since = at.saturating_since(self.start);
        let after = at.saturating_since(self.last);
        format!("{:.4} (+{:.4})", since.as_secs_f64(), after.as_secs_f64())
    }

    /// The next packet that comes until `to`, and when it came.
    fn next_seen(&mut self, expected: &str, to: Instant) -> Result<(Instant, Seen), String> {
        let latest = to + self.settings.tolerance;
        self.collect();
        while self.seen.is_empty() && self.advance(latest) {}
        let seen = self.seen.pop_front();
        seen.ok_or_else(|| format!("expected `{expected}`, got nothing until {}", self.seconds(latest)))
    }

    /// A packet came at `at`: is that when it was expected?
    fn note_time(&mut self, what: &str, at: Instant, from: Instant, to: Instant) -> Result<(), String> {
        if at < from || at > to + self.settings.tolerance {
            return Err(format!("`{what}` came at {}, not at {}", self.seconds(at), self.seconds(from)));
        }
        self.last = at;
        Ok(())
    }

    fn expect(&mut self, segment: &Segment, from: Instant, to: Instant) -> Result<(), String> {
        let text = segment.to_string();
        let (at, seen) = self.next_seen(&text, to)?;
        let shown = self.seconds(at);
        let got = match seen {
            Seen::Tcp { bytes, class } => self.peer.read(&self.station, &bytes, class)?,
            Seen::Packet { words: what, .. } | Seen::Other(what) => {
                return Err(format!("expected `{text}`, got {what} at {shown}"));
            }
        };
        let port = segment.port.unwrap_or(self.peer.port);
        if got.port != Some(port) || !segment.matches(&got) {
            let got = self.brief(got, segment);
            return Err(format!("expected `{text}`, got `{got}` at {shown}"));
        }
        self.note_time(&text, at, from, to)
    }

    fn expect_other(&mut self, words: &str, from: Instant, to: Instant) -> Result<(), String> {
        let (at, seen) = self.next_seen(words, to)?;
        let got = self.show(seen);
        if got != words {
            return Err(format!("expected `{words}`, got {got} at {}", self.seconds(at)));
        }
        self.note_time(words, at, from, to)
    }

    /// What came, without what the line does not ask for.
    fn brief(&self, mut got: Segment, expected: &Segment) -> Segment {
        if got.port == Some(expected.port.unwrap_or(self.peer.port)) {
            got.port = expected.port;
        }
        if expected.options.is_none() {
            got.options = None;
        }
        got
    }

    fn show(&mut self, seen: Seen) -> String {
        match seen {
            Seen::Packet { words: what, .. } | Seen::Other(what) => what,
            Seen::Tcp { bytes, class } => match self.peer.read(&self.station, &bytes, class) {
                Ok(mut segment) => {
                    segment.port = segment.port.filter(|&port| port != self.peer.port);
                    format!("`{segment}`")
                }
                Err(what) => what,
            },
        }
    }

    /// `toobig(1220, 1001)`: a router says that its next link carries segments of 1,220 bytes, and quotes the
    /// netstack's segment that begins at 1001.
    fn say_too_big(&mut self, call: &Call) -> Result<(), String> {
        let [mss, seq] = call.arguments.as_slice() else {
            return Err("toobig takes an MSS and a number".into());
        };
        let (peer_port, our_port) = (self.peer.port, self.peer.our_port);
        let ports = (self.peer.flow(peer_port, our_port).our_port, peer_port);
        let message = too_big(self.station.ip.is_ipv6(), About::segment(ports, number(seq)?), number(mss)?);
        self.peer.say(&mut self.station, self.sim.now(), &Envelope::default(), &message);
        self.collect();
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<(), String> {
        let (result, effect) = self.sockets.call(&mut self.sim, self.settings, call)?;
        match effect {
            Effect::None => {}
            Effect::Listens(port) => self.peer.our_port = port,
            Effect::Connects(ours, peers) => {
                let is_new = call.arguments.iter().any(|word| word == "new");
                self.peer.begin(ours, peers, is_new);
            }
        }
        self.collect();
        let expected = match (&call.result, call.function.as_str()) {
            (Some(result), _) => result.as_str(),
            (None, "read" | "write" | "recv") => call.arguments.get(1).map_or("", String::as_str),
            (None, _) => "ok",
        };
        if result == expected {
            return Ok(());
        }
        Err(format!("expected {}() = {expected}, got {result}", call.function))
    }
}
