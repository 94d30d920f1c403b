//! A pool: a set of networks that rules name by number, `pool/13`; or a group map: networks with a group of rules for each.

use core::fmt;
use core::num::NonZeroU32;

use firelane_units::{Direction, IpPrefix};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{self, TextValue, serde_as_text};

/// What a pool is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolNumber(pub u32);

impl fmt::Display for PoolNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TextValue for PoolNumber {
    const ALLOWED: &'static str = "a pool is a number from 0 to 4294967295";

    fn read(text: &str) -> Option<Self> {
        super::read::decimal(text).map(Self)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

serde_as_text!(PoolNumber);

/// A network of a pool, and when it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolEntry {
    /// The network, without host bits.
    pub network: IpPrefix,
    /// From then on it is not in the pool, in seconds since 1970; nothing is without end.
    pub until: Option<u64>,
    /// Its addresses are not in the pool, whatever larger network they are of.
    pub is_exception: bool,
    /// The group of rules for its addresses; then the pool is a group map.
    pub group: Option<MapGroup>,
}

/// A group that a map leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapGroup {
    /// Whose packets its rules are about.
    pub direction: Direction,
    /// Its number.
    pub group: NonZeroU32,
}

impl MapGroup {
    /// `in` or `out`.
    pub fn word(self) -> &'static str {
        match self.direction {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }

    /// Reads `in group 7`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (way, group) = text.split_once(" group ")?;
        let direction = match way {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => return None,
        };
        Some(Self { direction, group: super::read::decimal(group)? })
    }
}

impl fmt::Display for MapGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} group {}", self.word(), self.group)
    }
}

/// A network, and behind a space its group if it is a map's. An exception has none.
pub(super) fn network_and_group(text: &str, is_exception: bool) -> Option<(&str, Option<MapGroup>)> {
    match text.split_once(' ') {
        Some(_) if is_exception => None,
        Some((network, group)) => Some((network, Some(MapGroup::read(group)?))),
        None => Some((text, None)),
    }
}

impl PoolEntry {
    /// A network, without host bits, and when it ends.
    pub fn new(network: IpPrefix, until: Option<u64>) -> Self {
        Self { network: network.network(), until, is_exception: false, group: None }
    }

    /// The same, or the same as an exception.
    #[must_use]
    pub fn excepting(self, is_exception: bool) -> Self {
        Self { is_exception, ..self }
    }

    /// The same of a map that has this group for it.
    #[must_use]
    pub fn leading_to(self, group: Option<MapGroup>) -> Self {
        Self { group, ..self }
    }

    /// Whether it has ended.
    pub fn has_ended(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl fmt::Display for PoolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_exception { "!" } else { "" })?;
        self.network.fmt(f)?;
        self.group.map_or(Ok(()), |group| write!(f, " {group}"))?;
        self.until.map_or(Ok(()), |until| write!(f, " until {until}"))
    }
}

impl TextValue for PoolEntry {
    const ALLOWED: &'static str = "an IP address with a prefix length or without, ! before \
         it if it is an exception, \"in group N\" or \"out group N\" behind it in a group map, and \"until SECONDS-SINCE-1970\" if it ends";

    fn read(text: &str) -> Option<Self> {
        let (is_exception, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (network, until) = match text.split_once(" until ") {
            Some((network, until)) => (network, Some(until)),
            None => (text, None),
        };
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let until = until.map(|text| Some(text).filter(is_number)?.parse().ok());
        let until = until.map_or(Some(None), |it: Option<u64>| it.map(Some))?;
        let (network, group) = network_and_group(network, is_exception)?;
        Some(Self::new(IpPrefix::read(network)?, until).excepting(is_exception).leading_to(group))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// The networks of a pool: sorted, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pool(Vec<PoolEntry>);

impl Pool {
    /// The pool of these networks. Of one that comes more than once the exception counts, and the latest end.
    pub fn new(entries: impl IntoIterator<Item = PoolEntry>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        let order =
            |it: &PoolEntry| (it.network, !it.is_exception, it.until.is_some(), core::cmp::Reverse(it.until));
        entries.sort_unstable_by_key(order);
        entries.dedup_by_key(|it| it.network);
        Self(entries)
    }

    /// Its networks, sorted.
    pub fn entries(&self) -> &[PoolEntry] {
        &self.0
    }

    /// What is said of a network.
    pub fn get(&self, network: IpPrefix) -> Option<&PoolEntry> {
        self.place(network.network()).ok().map(|at| &self.0[at])
    }

    /// Networks come, or get other ends. Of one that comes more than once the latest end counts.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = PoolEntry>) {
        let Self(mut coming) = Self::new(entries);
        let comes = |it: &PoolEntry| coming.binary_search_by_key(&it.network, |it| it.network).is_ok();
        self.0.retain(|it| !comes(it));
        self.0.append(&mut coming);
        self.0.sort_unstable();
    }

    /// Only those stay of which `stays` is so.
    pub fn retain(&mut self, stays: impl FnMut(&PoolEntry) -> bool) {
        self.0.retain(stays);
    }

    fn place(&self, network: IpPrefix) -> Result<usize, usize> {
        self.0.binary_search_by_key(&network, |it| it.network)
    }
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        value::list::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value::list::deserialize::<PoolEntry, D>(from).map(Self::new)
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Pool {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        Vec::<String>::schema()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Pool {}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> PoolEntry {
        PoolEntry::read(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        for (text, written) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("fd00::1/64 until 1795400000", "fd00::/64 until 1795400000"),
            ("!10.1.2.3/16", "!10.1.0.0/16"),
            ("!192.0.2.7 until 7", "!192.0.2.7/32 until 7"),
            ("10.1.2.3/16 in group 20", "10.1.0.0/16 in group 20"),
            ("fd00::1/64 out group 4294967295 until 7", "fd00::/64 out group 4294967295 until 7"),
        ] {
            assert_eq!(entry(text).write(), written);
            assert_eq!(entry(written), entry(text));
        }
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.1 until",
            "10.0.0.1 until ",
            "10.0.0.1 until -1",
            "10.0.0.1  until 1",
            "!",
            "!!10.0.0.1",
            "10.0.0.1 group 7",
            "10.0.0.1 in group 0",
            "10.0.0.1 in group +7",
            "10.0.0.1 by group 7",
            "10.0.0.1 until 7 in group 7",
            "!10.0.0.1 in group 7",
        ] {
            assert_eq!(PoolEntry::read(bad), None, "{bad:?}");
        }
        let ends = entry("10.0.0.1 until 7");
        assert!(ends.has_ended(7) && !ends.has_ended(6) && !entry("10.0.0.1").has_ended(u64::MAX));
    }

    #[test]
    fn a_network_is_in_a_pool_once() {
        let lines = ["10.0.0.9", "10.0.0.1 until 7", "10.0.0.1 until 9", "10.0.0.2 until 3", "10.0.0.2"];
        let mut pool = Pool::new(lines.map(entry));
        let said =
            |pool: &Pool| pool.entries().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        assert_eq!(said(&pool), "10.0.0.1/32 until 9, 10.0.0.2/32, 10.0.0.9/32");
        pool.extend(["10.0.0.3 until 5", "10.0.0.1"].map(entry));
        assert_eq!(said(&pool), "10.0.0.1/32, 10.0.0.2/32, 10.0.0.3/32 until 5, 10.0.0.9/32");
        assert_eq!(pool.get(entry("10.0.0.3").network), Some(&entry("10.0.0.3 until 5")));
        pool.extend([entry("!10.0.0.1"), entry("10.0.0.1")]);
        assert_eq!(pool.get(entry("10.0.0.1").network), Some(&entry("!10.0.0.1")), "of both the exception");
        pool.extend([entry("10.0.0.1")]);
        pool.retain(|it| !it.has_ended(5));
        assert_eq!(said(&pool), "10.0.0.1/32, 10.0.0.2/32, 10.0.0.9/32");
    }
}
