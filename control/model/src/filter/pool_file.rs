//! `ippool.conf`: pools and their networks, or every entry that is wrong.
//!
//! ```text
//! table role = ipf type = tree number = 13
//!     { 10.0.0.0/8; !10.1.0.0/16; 192.0.2.0/255.255.255.0; 192.0.2.9 ttl 300; };
//! group-map in role = ipf number = 1010 group = 1020
//!     { 198.51.100.1/32; 203.0.113.0/24, group = 1030; };
//! ```
//!
//! White space and ends of lines mean nothing, `#` begins a comment. Trees and hash tables are the same here, so `size` and `seed`
//! are read and have no effect. `ttl` is ours. The longest network of an address decides: with `!` it is not in the
//! pool. A group map has a group of rules for each of its networks: the one that is said with it, or the map's. What the original knows
//! and we do not follow (other roles) is refused.

use core::fmt;
use core::net::Ipv4Addr;
use core::num::NonZeroU32;
use std::collections::BTreeMap;

use firelane_units::{Direction, IpPrefix};

use super::error::RuleError;
use super::pool::{MapGroup, PoolNumber, network_and_group};
use super::read::decimal;
use super::tokens::Token;
use crate::FileError;
use crate::limits::{MODEL_TEXT_MAX, POOLED_MAX};
use crate::value::{TextValue, serde_as_text};

/// The faults of one file that are shown.
const FAULTS_SHOWN_MAX: usize = 100;

/// A network that is to come into a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolMember {
    /// The network, without host bits.
    pub network: IpPrefix,
    /// It ends so many seconds after it came; nothing is without end.
    pub ttl: Option<u32>,
    /// Its addresses are not in the pool, whatever larger network they are of.
    pub is_exception: bool,
    /// The group of rules that a map has for its addresses.
    pub group: Option<MapGroup>,
}

impl PoolMember {
    /// A network as `ippool` has it: an address, or one with the length of its prefix or its mask.
    pub fn network(text: &str) -> Option<IpPrefix> {
        if let Ok(network) = text.parse::<IpPrefix>() {
            return Some(network.network());
        }
        let (address, mask) = text.split_once('/')?;
        let (address, mask) = (address.parse::<Ipv4Addr>().ok()?, u32::from(mask.parse::<Ipv4Addr>().ok()?));
        let length = u8::try_from(mask.leading_ones()).ok()?;
        // Ones after a zero are no mask.
        (mask.checked_shl(length.into()).unwrap_or(0) == 0)
            .then(|| IpPrefix::new(address.into(), length).map(|it| it.network()))?
    }

    /// A time to live in seconds.
    pub fn ttl(text: &str) -> Option<u32> {
        decimal(text).filter(|&seconds| seconds > 0)
    }
}

impl fmt::Display for PoolMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_exception { "!" } else { "" })?;
        self.network.fmt(f)?;
        self.group.map_or(Ok(()), |group| write!(f, " {group}"))?;
        self.ttl.map_or(Ok(()), |ttl| write!(f, " ttl {ttl}"))
    }
}

impl TextValue for PoolMember {
    const ALLOWED: &'static str = "[!]ADDRESS[/LENGTH or MASK] [in|out group N] [ttl SECONDS]";

    fn read(text: &str) -> Option<Self> {
        let (is_exception, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (network, ttl) = match text.split_once(" ttl ") {
            Some((network, ttl)) => (network, Some(Self::ttl(ttl)?)),
            None => (text, None),
        };
        let (network, group) = network_and_group(network, is_exception)?;
        Some(Self { network: Self::network(network)?, ttl, is_exception, group })
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

serde_as_text!(PoolMember);

/// The pools of a file.
pub type PoolFile = BTreeMap<PoolNumber, Vec<PoolMember>>;

/// Reads `text`, the file called `name`. Errs with the first hundred things that are wrong.
pub fn read_pools(name: &str, text: &str) -> Result<PoolFile, Vec<FileError>> {
    let fault = |line, message: String| FileError { file: name.to_owned(), line, message };
    if text.len() > MODEL_TEXT_MAX {
        return Err(vec![fault(1, format!("the file has more than {MODEL_TEXT_MAX} bytes"))]);
    }
    let mut reader = Reader { tokens: tokens(text), at: 0, faults: Vec::new(), pools: PoolFile::new() };
    while reader.peek().is_some() && reader.faults.len() < FAULTS_SHOWN_MAX {
        if let Err(error) = reader.table() {
            reader.faults.push(error);
            break;
        }
    }
    reader.faults.truncate(FAULTS_SHOWN_MAX);
    if reader.faults.is_empty() {
        return Ok(reader.pools);
    }
    Err(reader.faults.into_iter().map(|error| fault(error.line, error.to_string())).collect())
}

/// Every word and mark of a file.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let said = text.split_once('#').map_or(text, |(said, _)| said);
        for word in said.split_whitespace() {
            let mut rest = word;
            while let Some(at) = rest.find(['{', '}', ';', '=', ',', '!']) {
                tokens.extend([&rest[..at], &rest[at..=at]].map(|text| Token { text, line }));
                rest = &rest[at + 1..];
            }
            tokens.push(Token { text: rest, line });
        }
    }
    tokens.retain(|token| !token.text.is_empty());
    tokens
}

/// Which groups a table's networks lead to, if it is a group map, and the group of those that say none.
type Map = Option<(Direction, Option<NonZeroU32>)>;

/// What a group is.
const GROUP: &str = "a group is a number from 1 to 4294967295";

struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    faults: Vec<RuleError>,
    pools: PoolFile,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    /// The error about what comes next.
    fn refuse(&self, allowed: &str) -> RuleError {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line);
        RuleError::new(line, self.peek().unwrap_or_default(), allowed)
    }

    fn expect(&mut self, word: &str) -> Result<(), RuleError> {
        if self.peek() != Some(word) {
            return Err(self.refuse(&format!("{word:?} comes here")));
        }
        self.at += 1;
        Ok(())
    }

    /// The word after `= `, as `read` reads it.
    fn value<T>(&mut self, allowed: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, RuleError> {
        self.expect("=")?;
        let value = self.peek().and_then(read).ok_or_else(|| self.refuse(allowed))?;
        self.at += 1;
        Ok(value)
    }

    fn table(&mut self) -> Result<(), RuleError> {
        let map = match self.peek() {
            Some("group-map") => Some(self.direction()?),
            Some("table") | None => {
                self.expect("table")?;
                None
            }
            Some(_) => return Err(self.refuse("table or group-map")),
        };
        let (mut number, mut group) = (None, None);
        while let Some(word) = self.peek().filter(|word| *word != "{") {
            self.at += 1;
            let is = |wanted: &'static [&str]| move |word: &str| wanted.contains(&word).then_some(());
            match word {
                "role" => self.value("ipf: pools are the filter's", is(&["ipf"]))?,
                "group" if map.is_some() && group.is_none() => {
                    group = Some(self.value(GROUP, decimal::<NonZeroU32>)?);
                }
                "type" if map.is_none() => self.value("tree, pool or hash", is(&["tree", "pool", "hash"]))?,
                "number" | "name" if number.is_none() => {
                    number = Some(self.value(PoolNumber::ALLOWED, PoolNumber::read)?);
                }
                "size" | "seed" => drop(self.value("a number", decimal::<u32>)?),
                _ => {
                    self.at -= 1;
                    let allowed = match map {
                        None => "role, type, number, size or seed, each once, and then {",
                        Some(_) => "role, number, group, size or seed, each once, and then {",
                    };
                    return Err(self.refuse(allowed));
                }
            }
        }
        let number = number.ok_or_else(|| self.refuse("number = N comes before {"))?;
        self.expect("{")?;
        self.entries(number, map.map(|direction| (direction, group)))?;
        self.expect("}")?;
        self.expect(";")
    }

    /// Whose packets a group map is about.
    fn direction(&mut self) -> Result<Direction, RuleError> {
        self.at += 1;
        let direction = match self.peek() {
            Some("in") => Direction::In,
            Some("out") => Direction::Out,
            _ => return Err(self.refuse("in or out")),
        };
        self.at += 1;
        Ok(direction)
    }

    /// What stands between braces. An entry that is wrong is noted, and the next one is read.
    fn entries(&mut self, number: PoolNumber, map: Map) -> Result<(), RuleError> {
        let mut members = Vec::new();
        while let Some(word) = self.peek().filter(|word| *word != "}") {
            if word == ";" || word == "," {
                self.at += 1;
                continue;
            }
            if members.len() > POOLED_MAX {
                return Err(self.refuse(&format!("more than {POOLED_MAX} networks")));
            }
            match self.entry(word, map) {
                Ok(member) => members.push(member),
                Err(error) => {
                    self.faults.push(error);
                    self.at += 1;
                    while self.peek().is_some_and(|word| !matches!(word, ";" | "," | "}")) {
                        self.at += 1;
                    }
                }
            }
        }
        self.pools.entry(number).or_default().append(&mut members);
        Ok(())
    }

    fn entry(&mut self, word: &str, map: Map) -> Result<PoolMember, RuleError> {
        let is_exception = word == "!" && map.is_none();
        if is_exception {
            self.at += 1;
        }
        let network = self.peek().and_then(PoolMember::network);
        let network =
            network.ok_or_else(|| self.refuse("an address, with the length of its prefix or a mask"))?;
        self.at += 1;
        let mut ttl = None;
        if self.peek() == Some("ttl") {
            self.at += 1;
            ttl = self.peek().and_then(PoolMember::ttl);
            ttl.ok_or_else(|| self.refuse("seconds, from 1 to 4294967295"))?;
            self.at += 1;
        }
        let group = match map {
            Some((direction, group)) => Some(MapGroup { direction, group: self.group(group)? }),
            None => None,
        };
        match (self.peek(), map) {
            (Some(";" | "," | "}") | None, _) => Ok(PoolMember { network, ttl, is_exception, group }),
            (Some(_), None) => Err(self.refuse("ttl SECONDS, ; or }")),
            (Some(_), Some(_)) => Err(self.refuse("ttl SECONDS, a comma and group = N, ; or }")),
        }
    }

    /// `, group = N` of a map's network, which needs it if the map has none.
    fn group(&mut self, of_map: Option<NonZeroU32>) -> Result<NonZeroU32, RuleError> {
        let has_own =
            self.peek() == Some(",") && self.tokens.get(self.at + 1).is_some_and(|it| it.text == "group");
        if has_own {
            self.at += 2;
            return self.value(GROUP, decimal::<NonZeroU32>);
        }
        of_map.ok_or_else(|| self.refuse("a comma and group = N, which the map does not say for all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        read_pools("f", text).expect_err(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tables_are_read_however_they_are_written() {
        let text = "# mine\ntable role = ipf type = tree number = 13\n\t{ 10.1.2.3/8; 192.0.2.0/255.255.255.0;\n fd00::1; };\n\
                    table role=ipf type=hash number=2 size=31 seed = 7 {1.1.1.1/32,! 1.0.0.0/8,!2.2.2.2 ttl 300}; table number = 0 { };";
        let pools = read_pools("f", text).unwrap();
        let said: Vec<_> = pools
            .iter()
            .map(|(number, members)| {
                format!("{number}: {}", members.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(
            said,
            [
                "0: ",
                "2: 1.1.1.1/32 !1.0.0.0/8 !2.2.2.2/32 ttl 300",
                "13: 10.0.0.0/8 192.0.2.0/24 fd00::1/128"
            ]
        );
        let maps = "group-map in role = ipf number = 1010\n\t{ 1.1.1.1/32, group = 1020; 3.3.0.0/16 ttl 60, group = 1030; };\n\
                    group-map out number=5 group = 7 size = 31 { 4.4.0.0/16, 5.0.0.0/8,group=8, fd00::/8; };";
        let said: Vec<_> = read_pools("f", maps)
            .unwrap()
            .into_iter()
            .map(|(number, members)| {
                format!(
                    "{number}: {}",
                    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                "5: 4.4.0.0/16 out group 7, 5.0.0.0/8 out group 8, fd00::/8 out group 7",
                "1010: 1.1.1.1/32 in group 1020, 3.3.0.0/16 in group 1030 ttl 60",
            ]
        );
        assert_eq!(read_pools("f", " # nothing\n").unwrap(), PoolFile::new());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let table = |entries: &str| format!("table role = ipf type = tree number = 1\n{{ {entries} }};");
        assert_eq!(
            faults(&table(
                "1.1.1.1/33; 2.2.2.2;\n!!3.3.3.3; 4.4.4.4 ttl 0; 5.5.5.5 6.6.6.6; 1.1.1.1/255.0.255.0;"
            )),
            [
                "f:2: \"1.1.1.1/33\": an address, with the length of its prefix or a mask",
                "f:3: \"!\": an address, with the length of its prefix or a mask",
                "f:3: \"0\": seconds, from 1 to 4294967295",
                "f:3: \"6.6.6.6\": ttl SECONDS, ; or }",
                "f:3: \"1.1.1.1/255.0.255.0\": an address, with the length of its prefix or a mask",
            ]
        );
        for (text, wanted) in [
            ("tabel", "f:1: \"tabel\": table or group-map"),
            ("group-map number = 1", "f:1: \"number\": in or out"),
            (
                "group-map in number = 1 type = tree",
                "f:1: \"type\": role, number, group, size or seed, each once, and then {",
            ),
            (
                "table number = 1 group = 2",
                "f:1: \"group\": role, type, number, size or seed, each once, and then {",
            ),
            ("group-map in number = 1 group = 0", "f:1: \"0\": a group is a number from 1 to 4294967295"),
            (
                "group-map in number = 1 group = 2 group = 3",
                "f:1: \"group\": role, number, group, size or seed, each once, and then {",
            ),
            ("group-map in group = 2 { };", "f:1: \"{\": number = N comes before {"),
            (
                "group-map in number = 1\n{ 1.1.1.1; };",
                "f:2: \";\": a comma and group = N, which the map does not say for all",
            ),
            ("group-map in number = 1\n{ 1.1.1.1, group 2; };", "f:2: \"2\": \"=\" comes here"),
            (
                "group-map in number = 1\n{ 1.1.1.1, group = x; };",
                "f:2: \"x\": a group is a number from 1 to 4294967295",
            ),
            (
                "group-map in number = 1 group = 2\n{ !1.1.1.1; };",
                "f:2: \"!\": an address, with the length of its prefix or a mask",
            ),
            (
                "group-map in number = 1 group = 2\n{ 1.1.1.1 2.2.2.2; };",
                "f:2: \"2.2.2.2\": ttl SECONDS, a comma and group = N, ; or }",
            ),
            ("table role = auth", "f:1: \"auth\": ipf: pools are the filter's"),
            ("table type = dstlist", "f:1: \"dstlist\": tree, pool or hash"),
            ("table number = x", "f:1: \"x\": a pool is a number from 0 to 4294967295"),
            ("table role = ipf { };", "f:1: \"{\": number = N comes before {"),
            ("table number = 1\n{ 1.1.1.1;", "f:2: the rule ends here: \"}\" comes here"),
            ("table number = 1 { }\ntable", "f:2: \"table\": \";\" comes here"),
            ("table file = x", "f:1: \"file\": role, type, number, size or seed, each once, and then {"),
        ] {
            assert_eq!(faults(text), [wanted], "{text}");
        }
        let many = table(&"x;".repeat(500));
        assert_eq!(faults(&many).len(), FAULTS_SHOWN_MAX);
        let long = "x".repeat(MODEL_TEXT_MAX + 1);
        assert!(faults(&long)[0].contains("bytes"));
    }
}
