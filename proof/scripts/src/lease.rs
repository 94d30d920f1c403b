//! What scripts of both DHCP clients have in common: what comes of a client, and how servers' messages are read from lines.
//!
//! Called by `dhcp4.rs` and `dhcp6.rs`.

use std::fmt::{self, Display};
use std::str::FromStr;

use firelane_dhcp::{Counters, Loss};

use crate::timed::Came;

/// Types of messages by their numbers.
pub(crate) type Kinds = [(u8, &'static str)];

/// What a client sent or did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Did<M> {
    Message(M),
    /// In words.
    Other(String),
}

/// A message of a client's.
pub(crate) trait Sent: Display {
    /// Its type.
    fn kind(&self) -> &'static str;
    /// Whether its number is another one than the last message's.
    fn is_new(&self) -> bool;
    /// Whether the rest is as a line says.
    fn has(&self, line: &Line<'_>) -> bool;
}

/// What a line says of a message.
pub(crate) struct Line<'a>(Vec<&'a str>);

impl<'a> Line<'a> {
    /// What stands behind a word.
    pub(crate) fn value(&self, word: &str) -> Option<&'a str> {
        self.0.get(self.0.iter().position(|it| *it == word)? + 1).copied()
    }

    /// Whether a word stands there.
    pub(crate) fn says(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
}

impl<M: Display> Display for Did<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(sent) => sent.fmt(f),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl<M: Sent> Came for Did<M> {
    /// A message's number is compared if the line says `new` or `same`.
    fn is_as(&self, expected: &str) -> bool {
        let sent = match self {
            Self::Other(what) => return what == expected,
            Self::Message(sent) => sent,
        };
        let line = Line(expected.split_whitespace().collect());
        line.0.first() == Some(&sent.kind())
            && sent.has(&line)
            && (sent.is_new() || !line.says("new"))
            && (!sent.is_new() || !line.says("same"))
    }
}

/// A server's message, as far as lines say what is in it.
pub(crate) trait Answer {
    /// Takes a word, and what belongs to it.
    fn take<'a>(&mut self, word: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String>;
    /// The message.
    fn emit(&self) -> Vec<u8>;
}

/// A server's message, from a line: `begin` makes it of its type.
pub(crate) fn message<A: Answer>(
    text: &str,
    kinds: &Kinds,
    begin: impl FnOnce(u8) -> A,
) -> Result<Vec<u8>, String> {
    let mut words = text.split_whitespace();
    let kind = words.next().ok_or("a message is missing")?;
    if kind == "bytes" {
        let hex = words.next().unwrap_or_default();
        let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        return bytes.ok_or(format!("`{hex}` are no bytes"));
    }
    let kind = kinds.iter().find(|(_, word)| *word == kind).ok_or(format!("`{kind}` is no message"))?.0;
    let mut answer = begin(kind);
    while let Some(word) = words.next() {
        answer.take(word, &mut words)?;
    }
    Ok(answer.emit())
}

/// The type of a client's message.
pub(crate) fn kind_of(kinds: &Kinds, number: u8) -> Result<&'static str, String> {
    let known = kinds.iter().find(|(it, _)| *it == number);
    known.map(|(_, word)| *word).ok_or(format!("a message of type {number}"))
}

/// A value of a fixed length.
pub(crate) fn exact<const N: usize>(value: &[u8]) -> Result<[u8; N], String> {
    value.try_into().map_err(|_| format!("an option of {} bytes", value.len()))
}

/// A number, or an address.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number or address that belongs here"))
}

/// Compares a counter.
pub(crate) fn expect_counter(counters: &Counters, name: &str, count: &str) -> Result<(), String> {
    let value = match name {
        "unasked" => counters.unasked,
        "unusable" => counters.unusable,
        "malformed" => counters.malformed,
        "refused" => counters.refused,
        "declined" => counters.declined,
        _ => return Err(format!("there is no counter `{name}`")),
    };
    if value == number::<u64>(count)? {
        return Ok(());
    }
    Err(format!("expected {name} {count}, got {value}"))
}

/// An address is given up, in words.
pub(crate) fn lost(addr: impl Display, why: Loss) -> String {
    let why = match why {
        Loss::Expired => "expired",
        Loss::Refused => "refused",
        Loss::Conflict => "conflict",
        Loss::Released => "released",
        Loss::Replaced => "replaced",
    };
    format!("lost {addr} {why}")
}
