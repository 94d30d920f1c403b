//! Who listens to which groups, and to whom in them (RFC 3376 §3, RFC 3810 §4).
//!
//! Owns, per link and group, the filters of the sockets that joined, and what they amount to for the link. Every
//! lane has the whole table, because any of them may get a group's datagrams; the home lane reports what changes
//! (`group_reports.rs`).

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use firelane_units::LinkId;

/// V10: groups of one netstack.
pub const GROUPS_MAX: usize = 512;
/// V10: members of one group.
pub const MEMBERS_MAX: usize = 1024;
/// Sources that one filter names (Linux: `igmp_max_msf` is 10).
pub(crate) const SOURCES_MAX: usize = 64;

/// Whether a filter names whom to hear or whom not to hear.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FilterMode {
    /// Only the named sources are heard.
    Include,
    /// All but the named sources are heard.
    Exclude,
}

/// From whom a member wants to hear.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceFilter {
    /// What the sources mean.
    pub mode: FilterMode,
    /// The sources.
    pub sources: Vec<IpAddr>,
}

impl SourceFilter {
    /// Everybody.
    pub const fn any() -> Self {
        Self { mode: FilterMode::Exclude, sources: Vec::new() }
    }

    /// Nobody: no member.
    pub const fn none() -> Self {
        Self { mode: FilterMode::Include, sources: Vec::new() }
    }

    /// Whether nobody is heard.
    pub fn is_none(&self) -> bool {
        self.mode == FilterMode::Include && self.sources.is_empty()
    }

    /// Whether `source` is heard.
    pub fn hears(&self, source: IpAddr) -> bool {
        self.sources.contains(&source) == (self.mode == FilterMode::Include)
    }
}

/// Why a group is not joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// The address is no group, or a source is of the other family or a group itself (EINVAL).
    Address,
    /// There is no such link, or none that leads to the group (ENODEV).
    Link,
    /// The netstack has as many groups, or the group as many members, as may be (ENOBUFS).
    Full,
    /// The filter names too many sources (ENOBUFS).
    Sources,
}

impl core::fmt::Display for JoinError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Address => "the address is no group, or a source cannot be one",
            Self::Link => "no link leads to the group",
            Self::Full => "there are too many groups or members",
            Self::Sources => "there are too many sources",
        })
    }
}

impl core::error::Error for JoinError {}

/// Who joins: a socket, or the netstack itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Member {
    /// The netstack, for the groups of its own addresses.
    Netstack,
    /// A socket, by its number.
    Socket(u32),
}

/// A group that somebody here listens to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// On which link.
    pub link: LinkId,
    /// Which group.
    pub group: IpAddr,
    /// How many listen, the netstack itself among them.
    pub members: usize,
}

/// The memberships.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    table: BTreeMap<(LinkId, IpAddr), BTreeMap<Member, SourceFilter>>,
}

impl Groups {
    /// Sets what a member wants of a group; a filter that hears nobody ends the membership.
    pub(crate) fn set(
        &mut self,
        link: LinkId,
        group: IpAddr,
        member: Member,
        filter: SourceFilter,
    ) -> Result<(), JoinError> {
        let is_source =
            |s: &IpAddr| s.is_ipv4() == group.is_ipv4() && !s.is_multicast() && !s.is_unspecified();
        if !group.is_multicast() || !filter.sources.iter().all(is_source) {
            return Err(JoinError::Address);
        }
        if filter.sources.len() > SOURCES_MAX {
            return Err(JoinError::Sources);
        }
        let count = self.table.len();
        if filter.is_none() {
            if let Some(members) = self.table.get_mut(&(link, group)) {
                members.remove(&member);
                if members.is_empty() {
                    self.table.remove(&(link, group));
                }
            }
            return Ok(());
        }
        match self.table.get_mut(&(link, group)) {
            Some(members) if members.len() == MEMBERS_MAX && !members.contains_key(&member) => {
                Err(JoinError::Full)
            }
            None if count == GROUPS_MAX => Err(JoinError::Full),
            _ => {
                self.table.entry((link, group)).or_default().insert(member, filter);
                Ok(())
            }
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Membership> {
        let of = |(&(link, group), members): (&(LinkId, IpAddr), &BTreeMap<_, _>)| Membership {
            link,
            group,
            members: members.len(),
        };
        self.table.iter().map(of)
    }

    /// The memberships of one member.
    pub(crate) fn of(&self, member: Member) -> Vec<(LinkId, IpAddr)> {
        let its = self.table.iter().filter(|(_, members)| members.contains_key(&member));
        its.map(|(&place, _)| place).collect()
    }

    /// Whether anybody here listens to a group; on `None` on any link.
    #[inline]
    pub(crate) fn is_joined(&self, link: Option<LinkId>, group: IpAddr) -> bool {
        match link {
            Some(link) => self.table.contains_key(&(link, group)),
            None => self.table.keys().any(|(_, joined)| *joined == group),
        }
    }

    /// Whether a member wants a datagram from `source` to `group`; on `None` on any link.
    pub(crate) fn hears(&self, link: Option<LinkId>, group: IpAddr, member: Member, source: IpAddr) -> bool {
        self.any(link, group, member, |filter| filter.hears(source))
    }

    /// Whether anybody here wants a datagram from `source` to a group; on `None` on any link.
    pub(crate) fn is_heard(&self, link: Option<LinkId>, group: IpAddr, source: IpAddr) -> bool {
        let hears = |members: &BTreeMap<Member, SourceFilter>| members.values().any(|it| it.hears(source));
        self.on(link, group, hears)
    }

    /// Whether a member has joined a group; on `None` on any link.
    pub(crate) fn has(&self, link: Option<LinkId>, group: IpAddr, member: Member) -> bool {
        self.any(link, group, member, |_| true)
    }

    fn any(
        &self,
        link: Option<LinkId>,
        group: IpAddr,
        member: Member,
        hears: impl Fn(&SourceFilter) -> bool,
    ) -> bool {
        self.on(link, group, |members| members.get(&member).is_some_and(&hears))
    }

    fn on(
        &self,
        link: Option<LinkId>,
        group: IpAddr,
        hear: impl Fn(&BTreeMap<Member, SourceFilter>) -> bool,
    ) -> bool {
        match link {
            Some(link) => self.table.get(&(link, group)).is_some_and(hear),
            None => self.table.iter().any(|((_, joined), members)| *joined == group && hear(members)),
        }
    }

    /// What all members of a group together want (RFC 3376 §3.2). Where that are more sources than one report has room for, it is
    /// everybody, and each member gets what he wants here.
    pub(crate) fn wanted(&self, link: LinkId, group: IpAddr) -> SourceFilter {
        let Some(members) = self.table.get(&(link, group)) else { return SourceFilter::none() };
        let of = |mode| members.values().filter(move |filter| filter.mode == mode);
        let mut included = BTreeSet::new();
        for source in of(FilterMode::Include).flat_map(|filter| &filter.sources) {
            included.insert(*source);
            if included.len() > SOURCES_MAX {
                return SourceFilter::any();
            }
        }
        let mut excluding = of(FilterMode::Exclude);
        let Some(first) = excluding.next() else {
            return SourceFilter { mode: FilterMode::Include, sources: included.into_iter().collect() };
        };
        // Whom all exclude and nobody includes.
        let mut sources = first.sources.clone();
        for other in excluding {
            sources.retain(|source| other.sources.contains(source));
        }
        sources.retain(|source| !included.contains(source));
        sources.sort_unstable();
        sources.dedup();
        if sources.len() > SOURCES_MAX {
            return SourceFilter::any();
        }
        SourceFilter { mode: FilterMode::Exclude, sources }
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        self.table.retain(|(on, _), _| *on != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINK: LinkId = LinkId(1);

    fn group() -> IpAddr {
        IpAddr::from([239, 1, 2, 3])
    }

    fn filter(mode: FilterMode, sources: &[u8]) -> SourceFilter {
        SourceFilter { mode, sources: sources.iter().map(|&n| IpAddr::from([192, 0, 2, n])).collect() }
    }

    #[test]
    fn refusals_and_limits() {
        let mut groups = Groups::default();
        let me = Member::Socket(1);
        let mut set = |group: IpAddr, filter| groups.set(LINK, group, me, filter);
        assert_eq!(set(IpAddr::from([10, 0, 0, 1]), SourceFilter::any()), Err(JoinError::Address));
        let mixed = SourceFilter { mode: FilterMode::Include, sources: vec!["fd00::1".parse().unwrap()] };
        assert_eq!(set(group(), mixed), Err(JoinError::Address));
        let many: Vec<u8> = (1..=65).collect();
        assert_eq!(set(group(), filter(FilterMode::Include, &many)), Err(JoinError::Sources));
        for n in 0..=GROUPS_MAX {
            let joined = set(IpAddr::from([239, 9, (n >> 8) as u8, n as u8]), SourceFilter::any());
            assert_eq!(joined.is_err(), n == GROUPS_MAX);
        }
        assert_eq!(set(group(), SourceFilter::none()), Ok(()));
    }

    proptest! {
        #[test]
        fn the_link_wants_what_any_member_wants(
            members in proptest::collection::vec((any::<bool>(), proptest::collection::vec(1u8..6, 0..4)), 0..5),
            source in 1u8..6,
        ) {
            let mut groups = Groups::default();
            for (n, (is_include, sources)) in members.iter().enumerate() {
                let mode = if *is_include { FilterMode::Include } else { FilterMode::Exclude };
                groups.set(LINK, group(), Member::Socket(n as u32), filter(mode, sources)).unwrap();
            }
            let source = IpAddr::from([192, 0, 2, source]);
            let anybody = (0..members.len() as u32)
                .any(|n| groups.hears(Some(LINK), group(), Member::Socket(n), source));
            prop_assert_eq!(groups.wanted(LINK, group()).hears(source), anybody);
            prop_assert_eq!([Some(LINK), None].map(|on| groups.is_heard(on, group(), source)), [anybody; 2]);
            prop_assert_eq!(groups.is_joined(None, group()), !groups.wanted(LINK, group()).is_none());
        }
    }
}
