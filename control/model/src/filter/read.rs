//! One rule out of its tokens: the grammar of ipf(5).
//!
//! ```text
//! [@n] action in|out [log ..] [quick] [on link] [tos n] [ttl n] [proto p] all | from end to end
//!      [flags S/SA] [icmp-type t [code c]] [with|and [not] trait ..] [keep state [(..)]] [keep frags] [head n] [group n]
//! ```
//!
//! What stands before `all` or `from`, and what stands after it, may stand in any order there, each once. Addresses
//! and ports are read in `ends.rs`.

use core::num::NonZeroU32;

use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterEnd, FilterLog, FilterMatch, FilterProtocol, FilterRule,
    GroupCall, KeepState, MapKey, PacketTrait, TcpFlagsMatch,
};

use super::error::RuleError;
use super::tokens::Token;
use super::words;
use crate::LinkName;

type Read<T> = Result<T, RuleError>;

/// The rule that the tokens are, with the place that it asks for.
pub(super) fn rule(tokens: &[Token<'_>]) -> Read<(Option<NonZeroU32>, FilterRule<LinkName>)> {
    let mut words = Words::new(tokens);
    let place = words.place()?;
    let (action, logs) = words.action()?;
    let mut draft = Draft { action, log: logs, ..Draft::of(words.direction()?) };
    draft.head(&mut words)?;
    draft.tail(&mut words)?;
    Ok((place, draft.rule()))
}

/// The tokens that are left.
pub(super) struct Words<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) const fn new(tokens: &'a [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    /// Passes `word` if it comes next.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// The error about the token that comes next.
    pub(super) fn refuse(&self, allowed: impl Into<String>) -> RuleError {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line);
        RuleError::new(line, self.peek().unwrap_or_default(), allowed)
    }

    /// The same where a keyword is expected, which may be one of the original's that we do not follow.
    fn refuse_keyword(&self, allowed: &str) -> RuleError {
        match self.peek().and_then(words::not_followed) {
            Some(why) => self.refuse(format!("not supported: {why}")),
            None => self.refuse(allowed),
        }
    }

    /// What `read` makes of the next token.
    pub(super) fn value<T>(&mut self, allowed: &str, read: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        let value = self.peek().and_then(read).ok_or_else(|| self.refuse(allowed))?;
        self.at += 1;
        Ok(value)
    }

    pub(super) fn expect(&mut self, word: &str, allowed: &str) -> Read<()> {
        if self.take(word) { Ok(()) } else { Err(self.refuse(allowed)) }
    }

    /// Passes the keyword that comes next, and sets what it says, once.
    fn once<T>(&mut self, slot: &mut Option<T>, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<()> {
        if slot.is_some() {
            return Err(self.refuse("it has been said"));
        }
        self.at += 1;
        *slot = Some(read(self)?);
        Ok(())
    }

    fn place(&mut self) -> Read<Option<NonZeroU32>> {
        match self.peek().is_some_and(|word| word.starts_with('@')) {
            true => {
                let allowed = "@ and the place among the rules of its group, from 1";
                self.value(allowed, |word| decimal(&word[1..])).map(Some)
            }
            false => Ok(None),
        }
    }

    fn action(&mut self) -> Read<(FilterAction, Option<FilterLog>)> {
        if self.take("pass") {
            Ok((FilterAction::Pass, None))
        } else if self.take("block") {
            Ok((FilterAction::Block(self.answer()?), None))
        } else if self.take("count") {
            Ok((FilterAction::Count, None))
        } else if self.take("log") {
            Ok((FilterAction::Log, Some(self.log())))
        } else if self.take("skip") {
            let count = self.value("how many rules are left out, from 1 to 65535", decimal)?;
            Ok((FilterAction::Skip(count), None))
        } else if self.take("call") {
            self.expect("now", "now: what is called is called at once")?;
            let allowed = "fr_srcgrpmap/N or fr_dstgrpmap/N, N being the number of a group map";
            Ok((FilterAction::Call(self.value(allowed, group_call)?), None))
        } else {
            Err(self.refuse_keyword("a rule begins with pass, block, count, log, skip or call"))
        }
    }

    fn answer(&mut self) -> Read<BlockAnswer> {
        if self.take("return-rst") {
            return Ok(BlockAnswer::Reset);
        }
        let as_dest = self.take("return-icmp-as-dest");
        if !as_dest && !self.take("return-icmp") {
            return Ok(BlockAnswer::Silent);
        }
        if !self.take("(") {
            return Ok(BlockAnswer::Icmp { code: 0, as_dest });
        }
        let code = self.unreachable_code()?;
        self.expect(")", "a parenthesis closes the code")?;
        Ok(BlockAnswer::Icmp { code, as_dest })
    }

    fn unreachable_code(&mut self) -> Read<u8> {
        let names = words::UNREACHABLE_CODES;
        let allowed = format!("a code from 0 to {}, or one of {}", names.len() - 1, names.join(", "));
        self.value(&allowed, |word| {
            let named = names.iter().position(|name| *name == word);
            let numbered = decimal::<usize>(word).filter(|code| *code < names.len());
            named.or(numbered).and_then(|code| u8::try_from(code).ok())
        })
    }

    fn log(&mut self) -> FilterLog {
        let mut log = FilterLog::default();
        loop {
            if self.take("body") {
                log.body = true;
            } else if self.take("first") {
                log.first = true;
            } else {
                return log;
            }
        }
    }

    fn direction(&mut self) -> Read<Direction> {
        let direction = match self.peek() {
            Some("in") => Direction::In,
            Some("out") => Direction::Out,
            _ => return Err(self.refuse_keyword("in or out")),
        };
        self.at += 1;
        Ok(direction)
    }

    fn protocol(&mut self) -> Read<FilterProtocol> {
        let allowed =
            "a protocol is tcp, udp, tcp/udp, icmp, icmpv6 or another one's name, or a number from 0 to 255";
        self.value(allowed, |word| match word {
            "tcp/udp" | "udp/tcp" => Some(FilterProtocol::TcpUdp),
            _ => words::protocol(word).or_else(|| decimal(word)).map(FilterProtocol::Number),
        })
    }

    fn flags(&mut self) -> Read<TcpFlagsMatch> {
        const ALLOWED: &str = "flags of F, S, R, P, A, U, E and C that are set, and after a slash those that are looked at, such as S/SA";
        self.value(ALLOWED, |word| {
            let (set, mask) = word.split_once('/').map_or((word, "FSRPAU"), |parts| parts);
            Some(TcpFlagsMatch { set: flag_bits(set)?, mask: flag_bits(mask)? })
        })
    }

    fn icmp(&mut self, protocol: FilterProtocol) -> Read<(u8, Option<u8>)> {
        let v6 = protocol == FilterProtocol::Number(58);
        let allowed = words::icmp_types_allowed(v6);
        let kind = self.value(&allowed, |word| words::icmp_type(word, v6).or_else(|| decimal(word)))?;
        if !self.take("code") {
            return Ok((kind, None));
        }
        let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let is_named = !v6 && kind == 3 && !self.peek().is_some_and(is_number);
        let code = match is_named {
            true => self.unreachable_code()?,
            false => self.value("a code from 0 to 255", decimal)?,
        };
        Ok((kind, Some(code)))
    }

    /// `[not] trait`, and more of them, with commas or without.
    fn traits(&mut self, with: &mut Vec<(PacketTrait, bool)>) -> Read<()> {
        loop {
            let negated = self.take("not") || self.take("no");
            let words: Vec<_> = PacketTrait::ALL.iter().map(|it| it.word()).collect();
            let allowed = format!("one of {}, or one of them after not", words.join(", "));
            let named = self.peek().and_then(packet_trait).ok_or_else(|| self.refuse_keyword(&allowed))?;
            match with.iter().find(|(known, _)| *known == named) {
                Some((_, is_so)) if *is_so == negated => {
                    return Err(self.refuse("a packet cannot be so and not so"));
                }
                Some(_) => {}
                None => with.push((named, !negated)),
            }
            self.at += 1;
            let goes_on = self.take(",")
                || self
                    .peek()
                    .is_some_and(|word| packet_trait(word).is_some() || matches!(word, "not" | "no"));
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// `(option, ...)` of `keep state`, if there are any.
    fn state(&mut self) -> Read<KeepState> {
        let mut state = KeepState::default();
        if !self.take("(") {
            return Ok(state);
        }
        loop {
            if self.take("strict") {
                state.strict = true;
            } else if self.take("no-icmp-err") {
                state.no_icmp_err = true;
            } else if self.take("limit") {
                state.limit = Some(self.value("how many states, from 1", decimal)?);
            } else if self.take("age") {
                state.age = Some(self.value("seconds from 1, forward and after a slash back", age)?);
            } else {
                return Err(self.refuse_keyword("one of strict, no-icmp-err, limit N and age F[/R]"));
            }
            if self.take(")") {
                return Ok(state);
            }
            self.expect(",", "a comma before another option, or a parenthesis at the end")?;
        }
    }
}

/// What has been read of a rule.
struct Draft {
    direction: Direction,
    action: FilterAction,
    log: Option<FilterLog>,
    quick: Option<()>,
    link: Option<LinkName>,
    tos: Option<u8>,
    ttl: Option<u8>,
    protocol: Option<FilterProtocol>,
    ends: [FilterEnd; 2],
    flags: Option<TcpFlagsMatch>,
    icmp: Option<(u8, Option<u8>)>,
    with: Vec<(PacketTrait, bool)>,
    keep_state: Option<KeepState>,
    keep_frags: Option<()>,
    head: Option<NonZeroU32>,
    /// Group 0 is the main one.
    group: Option<Option<NonZeroU32>>,
}

impl Draft {
    fn of(direction: Direction) -> Self {
        Self {
            direction,
            action: FilterAction::Pass,
            log: None,
            quick: None,
            link: None,
            tos: None,
            ttl: None,
            protocol: None,
            ends: Default::default(),
            flags: None,
            icmp: None,
            with: Vec::new(),
            keep_state: None,
            keep_frags: None,
            head: None,
            group: None,
        }
    }

    /// Up to the addresses, and these.
    fn head(&mut self, words: &mut Words<'_>) -> Read<()> {
        const ALLOWED: &str = "log, quick, on, tos, ttl or proto, and then all, or from ADDRESS to ADDRESS";
        loop {
            match words.peek() {
                Some("log") => words.once(&mut self.log, |it| Ok(it.log()))?,
                Some("quick") => words.once(&mut self.quick, |_| Ok(()))?,
                Some("on") => {
                    words.once(&mut self.link, |it| it.value(LinkName::ALLOWED, |word| word.parse().ok()))?;
                }
                Some("tos") => words.once(&mut self.tos, |it| it.value("0 to 255, or 0x0 to 0xff", byte))?,
                Some("ttl") => words.once(&mut self.ttl, |it| it.value("0 to 255", decimal))?,
                Some("proto") => words.once(&mut self.protocol, Words::protocol)?,
                Some("all") => {
                    words.at += 1;
                    return Ok(());
                }
                Some("from") => {
                    words.at += 1;
                    let from = words.end()?;
                    words.expect("to", "port, or to and the other address")?;
                    self.ends = [from, words.end()?];
                    return Ok(());
                }
                _ => return Err(words.refuse_keyword(ALLOWED)),
            }
        }
    }

    /// What stands after the addresses.
    fn tail(&mut self, words: &mut Words<'_>) -> Read<()> {
        const ALLOWED: &str =
            "flags, icmp-type, with, keep state, keep frags, head, group, or the end of the rule";
        const GROUP: &str = "a group is a number from 1 to 4294967295";
        let protocol = self.protocol.unwrap_or_default();
        while let Some(word) = words.peek() {
            match word {
                "flags" => words.once(&mut self.flags, Words::flags)?,
                "icmp-type" => words.once(&mut self.icmp, |it| it.icmp(protocol))?,
                "with" | "and" => {
                    words.at += 1;
                    words.traits(&mut self.with)?;
                }
                "keep" => self.keep(words)?,
                "head" => words.once(&mut self.head, |it| it.value(GROUP, decimal))?,
                "group" => words.once(&mut self.group, |it| {
                    it.value(GROUP, |word| decimal::<u32>(word).map(NonZeroU32::new))
                })?,
                _ => return Err(words.refuse_keyword(ALLOWED)),
            }
        }
        Ok(())
    }

    fn keep(&mut self, words: &mut Words<'_>) -> Read<()> {
        words.at += 1;
        match words.peek() {
            Some("state") => words.once(&mut self.keep_state, Words::state),
            Some("frags" | "frag") => words.once(&mut self.keep_frags, |_| Ok(())),
            _ => Err(words.refuse_keyword("keep is followed by state or frags")),
        }
    }

    fn rule(self) -> FilterRule<LinkName> {
        let [from, to] = self.ends;
        let protocol = self.protocol.unwrap_or_default();
        let Self { tos, ttl, flags, icmp, with, .. } = self;
        FilterRule {
            direction: self.direction,
            action: self.action,
            log: self.log,
            quick: self.quick.is_some(),
            link: self.link,
            matching: FilterMatch { tos, ttl, protocol, from, to, flags, icmp, with },
            keep_state: self.keep_state,
            keep_frags: self.keep_frags.is_some(),
            head: self.head,
            group: self.group.flatten(),
        }
    }
}

/// A number in digits alone: no sign, nothing before or after.
pub(super) fn decimal<T: core::str::FromStr>(word: &str) -> Option<T> {
    word.parse().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A function of the original's that rules may call, and its map. Later ones have shorter names.
fn group_call(word: &str) -> Option<GroupCall> {
    let (function, map) = word.split_once('/')?;
    let by = match function {
        "fr_srcgrpmap" | "srcgrpmap" => MapKey::Source,
        "fr_dstgrpmap" | "dstgrpmap" => MapKey::Destination,
        _ => return None,
    };
    Some(GroupCall { map: decimal(map)?, by })
}

fn byte(word: &str) -> Option<u8> {
    match word.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u8::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => decimal(word),
    }
}

/// The bits of flags by their letters, each once.
fn flag_bits(letters: &str) -> Option<u8> {
    letters.chars().try_fold(0, |bits, letter| {
        let bit = 1 << words::TCP_FLAGS.find(letter)?;
        (bits & bit == 0).then_some(bits | bit)
    })
}

fn packet_trait(word: &str) -> Option<PacketTrait> {
    match word {
        "frags" => Some(PacketTrait::Fragment),
        "mcast" => Some(PacketTrait::Multicast),
        _ => PacketTrait::ALL.into_iter().find(|it| it.word() == word),
    }
}

pub(super) fn age(word: &str) -> Option<(u32, u32)> {
    let (forward, back) = word.split_once('/').unwrap_or((word, word));
    let seconds = |word| decimal::<NonZeroU32>(word).map(NonZeroU32::get);
    Some((seconds(forward)?, seconds(back)?))
}
