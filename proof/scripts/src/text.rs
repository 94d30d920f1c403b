//! A script's text: settings first, then events, one per line.
//!
//! Everything that can be wrong with a line is found here, with its number, before anything runs.

use std::fmt;
use std::time::Duration;

use crate::packet::Packet;
use crate::segment::Segment;
use crate::settings::Settings;

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) settings: Settings,
    pub(crate) events: Vec<Event>,
}

/// What is wrong with a script's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// In which line, from one.
    pub line: usize,
    /// What.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) line: usize,
    pub(crate) when: When,
    pub(crate) action: Action,
}

/// When an event happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// So long after the last one.
    After(Duration),
    /// So long after the beginning.
    At(Duration),
    /// Between two spans after the last one.
    Within(Duration, Duration),
}

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The peer sends a segment.
    Inject(Packet),
    /// The peer sends a segment, and the next one arrives in the same turn of the lane.
    InjectBeforeNext(Packet),
    /// The netstack must send this segment.
    Expect(Segment),
    /// The netstack must send what these words describe.
    ExpectOther(String),
    /// The netstack must have sent nothing.
    Quiet,
    /// A call.
    Call(Call),
}

/// A call: `name = function(arguments) = result`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) name: Option<String>,
    pub(crate) function: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) result: Option<String>,
}

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut script = Self { settings: Settings::default(), events: Vec::new() };
        for (n, raw) in text.lines().enumerate() {
            let line = raw.split("//").next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let number = n + 1;
            script.take(number, line).map_err(|what| ParseError { line: number, what })?;
        }
        if script.events.is_empty() {
            return Err(ParseError { line: text.lines().count(), what: "nothing happens".into() });
        }
        Ok(script)
    }

    fn take(&mut self, line: usize, text: &str) -> Result<(), String> {
        if let Some(setting) = text.strip_prefix("set ") {
            if !self.events.is_empty() {
                return Err("a setting stands before all events".into());
            }
            return self.settings.take(setting.trim());
        }
        self.events.push(Event::parse(line, text)?);
        Ok(())
    }
}

impl Event {
    pub(crate) fn parse(line: usize, text: &str) -> Result<Self, String> {
        let (when, action) = text.split_once(char::is_whitespace).ok_or("a time without an event")?;
        Ok(Self { line, when: When::parse(when)?, action: Action::parse(action.trim())? })
    }
}

impl When {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match (text.strip_prefix('+'), text.split_once('~')) {
            (Some(_), Some((from, to))) => {
                let strip = |part: &str| span(part.strip_prefix('+').unwrap_or(part));
                let (from, to) = (strip(from)?, strip(to)?);
                if from <= to {
                    Ok(Self::Within(from, to))
                } else {
                    Err(format!("`{text}` ends before it begins"))
                }
            }
            (Some(after), None) => Ok(Self::After(span(after)?)),
            (None, _) => Ok(Self::At(span(text)?)),
        }
    }
}

/// Seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no time in seconds"))?;
    let micros = (seconds * 1e6).round();
    if micros.is_finite() && (0.0..1e13).contains(&micros) {
        Ok(Duration::from_micros(micros as u64))
    } else {
        Err(format!("`{text}` is no time that a script can wait"))
    }
}

impl Action {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(segment) = text.strip_prefix("<<") {
            return Ok(Self::InjectBeforeNext(Packet::parse(segment)?));
        }
        if let Some(segment) = text.strip_prefix('<') {
            return Ok(Self::Inject(Packet::parse(segment)?));
        }
        if let Some(segment) = text.strip_prefix('>') {
            let words = segment.trim();
            if ["udp ", "icmp ", "fragment "].iter().any(|word| words.starts_with(word)) {
                return Ok(Self::ExpectOther(words.to_owned()));
            }
            return Ok(Self::Expect(Segment::parse(segment)?));
        }
        if text == "quiet" {
            return Ok(Self::Quiet);
        }
        Call::parse(text).map(Self::Call)
    }
}

impl Call {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a packet nor a call");
        let (head, rest) = text.split_once('(').ok_or_else(wrong)?;
        let (inner, tail) = rest.rsplit_once(')').ok_or_else(wrong)?;
        let (name, function) = match head.split_once('=') {
            Some((name, function)) => (Some(name.trim().to_owned()), function.trim()),
            None => (None, head.trim()),
        };
        let result = match tail.trim() {
            "" => None,
            tail => Some(tail.strip_prefix('=').ok_or_else(wrong)?.trim().to_owned()),
        };
        let arguments = inner.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
        Ok(Self { name, function: function.to_owned(), arguments: arguments.collect(), result })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inject(packet) => write!(f, "< {packet:?}"),
            Self::InjectBeforeNext(packet) => write!(f, "<< {packet:?}"),
            Self::Expect(segment) => write!(f, "> {segment}"),
            Self::ExpectOther(words) => write!(f, "> {words}"),
            Self::Quiet => f.write_str("quiet"),
            Self::Call(call) => write!(f, "{}({})", call.function, call.arguments.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_settings_and_events() {
        let text = "// about\nset mss 1000\n\n0 l = listen(80) // here\n+.1 < S 0:0(0)\n+0~+.2 > S. 0:0(0) ack 1 <...>\n1.5 read(c, 10) = again\n+1 quiet\n";
        let script = Script::parse(text).unwrap();
        let lines: Vec<usize> = script.events.iter().map(|event| event.line).collect();
        assert_eq!(lines, [4, 5, 6, 7, 8]);
        let ms = Duration::from_millis;
        assert_eq!(script.events[1].when, When::After(ms(100)));
        assert_eq!(script.events[2].when, When::Within(ms(0), ms(200)));
        assert_eq!(script.events[3].when, When::At(ms(1500)));
        let Action::Call(call) = &script.events[3].action else { panic!("a call") };
        assert_eq!((call.function.as_str(), call.arguments.len()), ("read", 2));
        assert_eq!(call.result.as_deref(), Some("again"));
        assert_eq!(script.events[4].action, Action::Quiet);
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, line, what) in [
            ("", 0, "nothing"),
            ("\n+0", 2, "without an event"),
            ("+x quiet", 1, "`x`"),
            ("+1~+.5 quiet", 1, "ends before"),
            ("+0 quiet\nset mss 5", 2, "before all"),
            ("+0 dance", 1, "`dance`"),
            ("+0 > S 0:0(0)\n+0 > Q 0:0(0)", 2, "`Q`"),
            ("set tempo 5\n+0 quiet", 1, "`tempo 5`"),
            ("+-1 quiet", 1, "`-1`"),
        ] {
            let error = Script::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.what.contains(what), "{text:?}: {error}");
        }
    }
}
