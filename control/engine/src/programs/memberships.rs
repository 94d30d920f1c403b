//! The groups that a program's datagram socket has joined, and from whom it hears in each (RFC 3678, `ip(7)`).
//!
//! Owned by `datagram_options.rs`. Each change is told to the lanes as the whole filter of its group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_ip::{FilterMode, GROUPS_MAX, SourceFilter};
use rustix::io::Errno;

use super::numbers::{AF_INET, AF_INET6, ip, ipv6, mcast};

/// How many sources one group may name (Linux: `igmp_max_msf`).
const SOURCES_MAX: usize = 10;

/// The bytes of a `sockaddr_storage`, which begins with the family.
const STORAGE: usize = 128;
/// A `group_req` begins with the number of a link and is aligned.
const REQUEST_AT: usize = 8;

/// A group by a link, and from whom it is heard. From nobody is no membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) group: IpAddr,
    pub(super) link: u32,
    pub(super) filter: SourceFilter,
}

/// How a program names a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// By an address of this host.
    Address(IpAddr),
    /// By its number.
    Number(u32),
    /// Not at all: it is the one that leads to this group.
    Towards(IpAddr),
}

/// What a program asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    /// To hear a group.
    Join,
    /// To hear it no more.
    Leave,
    /// To hear one source (`Include`), or all but it (`Exclude`), or to stop doing so.
    Source { mode: FilterMode, adds: bool, source: IpAddr },
}

/// The groups of a socket.
#[derive(Clone, Default, Debug)]
pub(super) struct Memberships(Vec<Member>);

impl Memberships {
    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }

    /// setsockopt(2), if the option is about groups. `link_of` finds the link that is named. The membership as it is
    /// afterwards.
    pub(super) fn set(
        &mut self,
        level: i32,
        name: i32,
        value: &[u8],
        link_of: impl Fn(Named) -> Option<u32>,
    ) -> Option<Result<Member, Errno>> {
        let whole = match (level, name) {
            (ip::LEVEL, ip::MSFILTER) => Some(filter_v4(value, &link_of)),
            (ip::LEVEL | ipv6::LEVEL, mcast::MSFILTER) => {
                Some(filter_of(value, level == ipv6::LEVEL, &link_of))
            }
            _ => None,
        };
        if let Some(whole) = whole {
            return Some(whole.and_then(|(group, link, filter)| {
                let link = chosen(link.map_err(|_| Errno::NODEV), group, Errno::NODEV, &link_of)?;
                self.replace(group, link, filter)
            }));
        }
        let leaves = matches!(
            (level, name),
            (ip::LEVEL, ip::DROP_MEMBERSHIP) | (ipv6::LEVEL, ipv6::DROP_MEMBERSHIP) | (_, mcast::LEAVE_GROUP)
        );
        let asked = match (level, name) {
            (ip::LEVEL, ip::ADD_MEMBERSHIP | ip::DROP_MEMBERSHIP) => group_v4(value, &link_of),
            (ipv6::LEVEL, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP) => group_v6(value, &link_of),
            (ip::LEVEL, ip::UNBLOCK_SOURCE..=ip::DROP_SOURCE_MEMBERSHIP) => source_v4(value, &link_of),
            (ip::LEVEL | ipv6::LEVEL, mcast::JOIN_GROUP..=mcast::LEAVE_SOURCE_GROUP) => {
                let has_source = !matches!(name, mcast::JOIN_GROUP | mcast::LEAVE_GROUP);
                of_request(value, level == ipv6::LEVEL, has_source, &link_of)
            }
            _ => return None,
        };
        let wish = |source: Option<IpAddr>| {
            let of = |mode, adds| Wish::Source { mode, adds, source: source.unwrap_or(ANY) };
            match (level, name) {
                (ip::LEVEL, ip::ADD_MEMBERSHIP) | (ipv6::LEVEL, ipv6::ADD_MEMBERSHIP) => Wish::Join,
                (ip::LEVEL, ip::DROP_MEMBERSHIP) | (ipv6::LEVEL, ipv6::DROP_MEMBERSHIP) => Wish::Leave,
                (_, mcast::JOIN_GROUP) => Wish::Join,
                (_, mcast::LEAVE_GROUP) => Wish::Leave,
                (_, ip::ADD_SOURCE_MEMBERSHIP | mcast::JOIN_SOURCE_GROUP) => of(FilterMode::Include, true),
                (_, ip::DROP_SOURCE_MEMBERSHIP | mcast::LEAVE_SOURCE_GROUP) => of(FilterMode::Include, false),
                (_, ip::BLOCK_SOURCE | mcast::BLOCK_SOURCE) => of(FilterMode::Exclude, true),
                _ => of(FilterMode::Exclude, false),
            }
        };
        Some(asked.and_then(|(group, link, source)| {
            // A group is left where it was joined, or nowhere; as Linux has it, one of IPv6 that no way leads to as well.
            let link = link.map_err(|it| if leaves { it } else { Errno::NODEV });
            // Nobody is in a group that is none.
            let is_v4_left = (level, name) == (ip::LEVEL, ip::DROP_MEMBERSHIP);
            if is_v4_left && !group.is_multicast() {
                return Err(Errno::ADDRNOTAVAIL);
            }
            let nowhere = if leaves && group.is_ipv6() { Errno::ADDRNOTAVAIL } else { Errno::NODEV };
            self.change(group, chosen(link, group, nowhere, &link_of)?, wish(source))
        }))
    }

    fn change(&mut self, group: IpAddr, link: u32, wish: Wish) -> Result<Member, Errno> {
        let known = self.find(group, link);
        let filter = wished(known.map(|at| &self.0[at].filter), wish)?;
        // More than a netstack has nobody would hear, and each question about a group looks through them.
        if known.is_none() && self.0.len() >= GROUPS_MAX {
            return Err(Errno::NOBUFS);
        }
        Ok(self.keep(known, Member { group, link, filter }))
    }

    /// Another filter for a group that was joined; that of nobody leaves it (`ip_mc_msfilter`).
    fn replace(&mut self, group: IpAddr, link: u32, filter: SourceFilter) -> Result<Member, Errno> {
        let known = self.find(group, link);
        match known {
            None if filter.is_none() => Err(Errno::ADDRNOTAVAIL),
            None => Err(Errno::INVAL),
            Some(_) => Ok(self.keep(known, Member { group, link, filter })),
        }
    }

    /// A membership that has just begun is not to be.
    pub(super) fn undo(&mut self, member: &Member) {
        self.0.retain(|it| (it.group, it.link) != (member.group, member.link));
    }

    fn find(&self, group: IpAddr, link: u32) -> Option<usize> {
        self.0.iter().position(|it| it.group == group && it.link == link)
    }

    fn keep(&mut self, known: Option<usize>, member: Member) -> Member {
        match known {
            Some(at) if member.filter.is_none() => drop(self.0.swap_remove(at)),
            Some(at) => self.0[at] = member.clone(),
            None => self.0.push(member.clone()),
        }
        member
    }
}

/// The link that was named, or the one that leads to the group; `nowhere` if there is none.
fn chosen(
    named: Result<Option<u32>, Errno>,
    group: IpAddr,
    nowhere: Errno,
    link_of: impl Fn(Named) -> Option<u32>,
) -> Result<u32, Errno> {
    if !group.is_multicast() {
        return Err(Errno::INVAL);
    }
    named?.or_else(|| link_of(Named::Towards(group))).ok_or(nowhere)
}

/// Nobody's address.
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The filter after a wish, if there was `before`; errors as Linux has them (`ip_mc_source`).
fn wished(before: Option<&SourceFilter>, wish: Wish) -> Result<SourceFilter, Errno> {
    let (mode, adds, source) = match (wish, before) {
        (Wish::Join, None) => return Ok(SourceFilter::any()),
        (Wish::Join, Some(_)) => return Err(Errno::ADDRINUSE),
        (Wish::Leave, Some(_)) => return Ok(SourceFilter::none()),
        (Wish::Leave, None) => return Err(Errno::ADDRNOTAVAIL),
        (Wish::Source { mode, adds, source }, _) => (mode, adds, source),
    };
    let mut filter = match before {
        Some(before) if before.mode == mode => before.clone(),
        Some(before) if !before.sources.is_empty() => return Err(Errno::INVAL),
        // Who hears everybody may begin to name whom; who has joined nothing has nobody to block.
        Some(_) => SourceFilter { mode, sources: Vec::new() },
        None if mode == FilterMode::Include && adds => SourceFilter::none(),
        None => return Err(Errno::INVAL),
    };
    match (adds, filter.sources.iter().position(|&it| it == source)) {
        (true, None) if filter.sources.len() >= SOURCES_MAX => return Err(Errno::NOBUFS),
        (true, None) => filter.sources.push(source),
        (false, Some(at)) => drop(filter.sources.swap_remove(at)),
        (true, Some(_)) | (false, None) => return Err(Errno::ADDRNOTAVAIL),
    }
    Ok(filter)
}

/// A group, by which link, if there is such a one, and a source.
type Asked = (IpAddr, Result<Option<u32>, Errno>, Option<IpAddr>);

/// `struct ip_mreq` or `struct ip_mreqn`.
fn group_v4(value: &[u8], link_of: impl Fn(Named) -> Option<u32>) -> Result<Asked, Errno> {
    let (group, interface) = (octets_v4(value)?, value.get(4..8).ok_or(Errno::INVAL)?);
    // What is longer than a `struct ip_mreq` and no `struct ip_mreqn` is one with something behind it.
    let interface = value.get(4..12).unwrap_or(interface);
    Ok((group.into(), interface_v4(interface, link_of), None))
}

/// `struct ip_mreq_source`: the group, the interface's address and the source.
fn source_v4(value: &[u8], link_of: impl Fn(Named) -> Option<u32>) -> Result<Asked, Errno> {
    if value.len() != 12 {
        return Err(Errno::INVAL);
    }
    let [group, interface, source] = [0, 4, 8].map(|at| octets_v4(value.get(at..).unwrap_or_default()));
    Ok((group?.into(), interface_v4(&interface?.octets(), link_of), Some(source?.into())))
}

/// An address of this host, and perhaps the number of a link; neither leaves the choice.
fn interface_v4(value: &[u8], link_of: impl Fn(Named) -> Option<u32>) -> Result<Option<u32>, Errno> {
    let address = octets_v4(value)?;
    let index = value.get(4..8).and_then(|bytes| bytes.first_chunk()).map_or(0, |it| u32::from_ne_bytes(*it));
    if index != 0 || address.is_unspecified() {
        return numbered(index, link_of);
    }
    link_of(Named::Address(address.into())).map(Some).ok_or(Errno::ADDRNOTAVAIL)
}

/// The link of a number; zero leaves the choice.
fn numbered(index: u32, link_of: impl Fn(Named) -> Option<u32>) -> Result<Option<u32>, Errno> {
    let Some(number) = index.checked_sub(1) else { return Ok(None) };
    link_of(Named::Number(number)).map(Some).ok_or(Errno::ADDRNOTAVAIL)
}

fn octets_v4(value: &[u8]) -> Result<Ipv4Addr, Errno> {
    value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets)).ok_or(Errno::INVAL)
}

/// What IP_MULTICAST_IF names: an address, or a `struct ip_mreq` or `struct ip_mreqn`, which begins with a group that nobody looks at.
/// The link and the address.
pub(super) fn interface_of_groups(
    value: &[u8],
    link_of: impl Fn(Named) -> Option<u32>,
) -> Result<(Option<u32>, Ipv4Addr), Errno> {
    let value = match value.len() {
        ..8 => value.get(..4).unwrap_or_default(),
        8..12 => &value[4..8],
        _ => &value[4..12],
    };
    Ok((interface_v4(value, link_of)?, octets_v4(value)?))
}

/// `struct ipv6_mreq`.
fn group_v6(value: &[u8], link_of: impl Fn(Named) -> Option<u32>) -> Result<Asked, Errno> {
    let (group, rest) = value.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
    let index = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
    Ok((Ipv6Addr::from(*group).into(), numbered(index, link_of), None))
}

/// `MCAST_EXCLUDE` and `MCAST_INCLUDE` as filters have them.
fn mode_of(number: u32) -> Result<FilterMode, Errno> {
    match number {
        0 => Ok(FilterMode::Exclude),
        1 => Ok(FilterMode::Include),
        _ => Err(Errno::INVAL),
    }
}

/// A group by a link, if there is such a one, and whom of it to hear.
type Filtered = (IpAddr, Result<Option<u32>, Errno>, SourceFilter);

/// `struct ip_msfilter`: group, the interface's address, mode, count, and so many sources.
fn filter_v4(value: &[u8], link_of: impl Fn(Named) -> Option<u32>) -> Result<Filtered, Errno> {
    let (sources, (mode, count)) = sources_behind(value, 8, size_of::<u32>())?;
    let group = octets_v4(value)?;
    let sources = sources.take(count).map(|it| octets_v4(it).map(IpAddr::from)).collect::<Result<_, _>>()?;
    let filter = SourceFilter { mode: mode_of(mode)?, sources };
    Ok((group.into(), interface_v4(&value[4..8], link_of), filter))
}

/// `struct group_filter`: the number of a link, a group, mode, count, and so many sources.
fn filter_of(value: &[u8], is_v6: bool, link_of: impl Fn(Named) -> Option<u32>) -> Result<Filtered, Errno> {
    let (sources, (mode, count)) = sources_behind(value, REQUEST_AT + STORAGE, STORAGE)?;
    // As Linux has it, of IPv6 what is of another family is no group.
    let invalid = |errno| if is_v6 { Errno::INVAL } else { errno };
    let (group, link, _) = of_request(value, is_v6, false, link_of).map_err(invalid)?;
    let sources = sources.take(count).map(|it| stored(it, is_v6)).collect::<Result<_, _>>()?;
    Ok((group, link, SourceFilter { mode: mode_of(mode)?, sources }))
}

/// What is behind mode and count, which stand at `at`, in pieces of `size`; and these two.
fn sources_behind(
    value: &[u8],
    at: usize,
    size: usize,
) -> Result<(core::slice::ChunksExact<'_, u8>, (u32, usize)), Errno> {
    let word = |at: usize| value.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (mode, count) = word(at).zip(word(at + 4)).ok_or(Errno::INVAL)?;
    let count = usize::try_from(count).ok().filter(|&count| count <= SOURCES_MAX).ok_or(Errno::NOBUFS)?;
    let sources = value[at + 8..].chunks_exact(size);
    if sources.len() < count { Err(Errno::INVAL) } else { Ok((sources, (mode, count))) }
}

/// `struct group_req` or `struct group_source_req`: the number of a link, a group, and perhaps a source.
fn of_request(
    value: &[u8],
    is_v6: bool,
    has_source: bool,
    link_of: impl Fn(Named) -> Option<u32>,
) -> Result<Asked, Errno> {
    let index = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
    let address = |at: usize| stored(value.get(at..at + STORAGE).ok_or(Errno::INVAL)?, is_v6);
    let source = has_source.then(|| address(REQUEST_AT + STORAGE)).transpose()?;
    Ok((address(REQUEST_AT)?, numbered(index, link_of), source))
}

/// The address in a `sockaddr_storage`, which is to be of a family.
fn stored(storage: &[u8], is_v6: bool) -> Result<IpAddr, Errno> {
    let family = u16::from_ne_bytes([storage[0], storage[1]]);
    match (family, is_v6) {
        (AF_INET, false) => octets_v4(&storage[4..]).map(IpAddr::from),
        (AF_INET6, true) => {
            let octets = storage[8..].first_chunk::<16>().ok_or(Errno::INVAL)?;
            Ok(Ipv6Addr::from(*octets).into())
        }
        _ => Err(Errno::ADDRNOTAVAIL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 2, 3));

    fn source(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn link_of(named: Named) -> Option<u32> {
        match named {
            Named::Address(address) => (address == source(9)).then_some(4),
            Named::Number(number) => (number < 20).then_some(number),
            Named::Towards(group) => (group == GROUP).then_some(6),
        }
    }

    fn filter(mode: FilterMode, sources: &[u8]) -> SourceFilter {
        SourceFilter { mode, sources: sources.iter().map(|&n| source(n)).collect() }
    }

    #[test]
    fn wishes_are_granted_as_linux_grants_them() {
        use FilterMode::{Exclude, Include};
        let [hear, unhear] =
            [true, false].map(|adds| move |n| Wish::Source { mode: Include, adds, source: source(n) });
        let [block, unblock] =
            [true, false].map(|adds| move |n| Wish::Source { mode: Exclude, adds, source: source(n) });
        let mut its = Memberships::default();
        for (wish, after) in [
            (Wish::Leave, Err(Errno::ADDRNOTAVAIL)),
            (block(1), Err(Errno::INVAL)),
            (unhear(1), Err(Errno::INVAL)),
            (Wish::Join, Ok(SourceFilter::any())),
            (Wish::Join, Err(Errno::ADDRINUSE)),
            (unblock(1), Err(Errno::ADDRNOTAVAIL)),
            (block(1), Ok(filter(Exclude, &[1]))),
            (block(1), Err(Errno::ADDRNOTAVAIL)),
            (hear(2), Err(Errno::INVAL)),
            (block(2), Ok(filter(Exclude, &[1, 2]))),
            (unblock(1), Ok(filter(Exclude, &[2]))),
            (unblock(2), Ok(SourceFilter::any())),
            (hear(3), Ok(filter(Include, &[3]))),
            (hear(4), Ok(filter(Include, &[3, 4]))),
            (block(3), Err(Errno::INVAL)),
            (unhear(3), Ok(filter(Include, &[4]))),
            (unhear(4), Ok(SourceFilter::none())),
            (Wish::Leave, Err(Errno::ADDRNOTAVAIL)),
            (hear(5), Ok(filter(Include, &[5]))),
            (Wish::Leave, Ok(SourceFilter::none())),
        ] {
            let change = its.change(GROUP, 6, wish).map(|member| member.filter);
            assert_eq!(change, after, "{wish:?}");
        }
        assert_eq!(its.iter().count(), 0);
        for n in 0..SOURCES_MAX as u8 {
            its.change(GROUP, 3, hear(n)).unwrap();
        }
        assert_eq!(its.change(GROUP, 3, hear(99)), Err(Errno::NOBUFS));
        assert_eq!(its.change(GROUP, 6, Wish::Join).unwrap().link, 6, "by another link it is another");
    }

    #[test]
    fn a_socket_joins_so_many_groups_and_may_go_on_with_those() {
        let group = |n: usize| IpAddr::from([232, 2, (n >> 8) as u8, n as u8]);
        let mut its = Memberships::default();
        for n in 0..GROUPS_MAX {
            its.change(group(n), 6, Wish::Join).unwrap();
        }
        assert_eq!(its.change(group(GROUPS_MAX), 6, Wish::Join), Err(Errno::NOBUFS));
        assert_eq!(its.change(group(0), 6, Wish::Join), Err(Errno::ADDRINUSE), "it is there");
        its.change(group(0), 6, Wish::Leave).unwrap();
        its.change(group(GROUPS_MAX), 6, Wish::Join).unwrap();
    }

    #[test]
    fn options_name_groups_links_and_sources() {
        let storage = |ip: IpAddr| {
            let mut bytes = vec![0; STORAGE];
            match ip {
                IpAddr::V4(ip) => {
                    bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                    bytes[4..8].copy_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                    bytes[8..24].copy_from_slice(&ip.octets());
                }
            }
            bytes
        };
        let index = |n: u64| n.to_ne_bytes().to_vec();
        let group_v6: IpAddr = "ff3e::1".parse().unwrap();
        let from_v6: IpAddr = "fd00::1".parse().unwrap();
        let of_ten = |from: u8| [[232, 1, 2, 3], [10, 0, 0, 9], [10, 0, 0, from]].concat();
        for (level, name, value, member) in [
            (0, 35, of_ten(0)[..8].to_vec(), Ok((GROUP, 4, SourceFilter::any()))),
            (0, 35, [&of_ten(0)[..8], &[7, 0, 0, 0]].concat(), Ok((GROUP, 6, SourceFilter::any()))),
            (0, 39, of_ten(7), Ok((GROUP, 4, filter(FilterMode::Include, &[7])))),
            (0, 39, of_ten(7)[..11].to_vec(), Err(Errno::INVAL)),
            (0, 42, [index(5), storage(GROUP)].concat(), Ok((GROUP, 4, SourceFilter::any()))),
            (0, 42, [index(0), storage(GROUP)].concat(), Ok((GROUP, 6, SourceFilter::any()))),
            (0, 42, [index(0), storage(group_v6)].concat(), Err(Errno::ADDRNOTAVAIL)),
            (0, 42, index(0), Err(Errno::INVAL)),
            (
                41,
                46,
                [index(2), storage(group_v6), storage(from_v6)].concat(),
                Ok((group_v6, 1, SourceFilter { mode: FilterMode::Include, sources: vec![from_v6] })),
            ),
            (41, 46, [index(2), storage(group_v6)].concat(), Err(Errno::INVAL)),
        ] {
            let made = Memberships::default().set(level, name, &value, link_of).expect("it is about groups");
            assert_eq!(made.map(|it| (it.group, it.link, it.filter)), member, "{level} {name}");
        }
        let from_nowhere = [[232, 1, 2, 3], [10, 0, 0, 8]].concat();
        for (level, name, value, error) in [
            (0, 35, from_nowhere.clone(), Errno::NODEV),
            (0, 36, from_nowhere, Errno::ADDRNOTAVAIL),
            (0, 35, [[10, 1, 2, 3], [10, 0, 0, 8]].concat(), Errno::INVAL),
            (0, 36, [[10, 1, 2, 3], [10, 0, 0, 8]].concat(), Errno::ADDRNOTAVAIL),
            (0, 42, [index(99), storage(GROUP)].concat(), Errno::NODEV),
            (0, 45, [index(99), storage(GROUP)].concat(), Errno::ADDRNOTAVAIL),
            (0, 42, [index(99), storage(source(1))].concat(), Errno::INVAL),
            // No way leads there.
            (41, 42, [index(0), storage(group_v6)].concat(), Errno::NODEV),
            (41, 45, [index(0), storage(group_v6)].concat(), Errno::ADDRNOTAVAIL),
            (0, 36, [[224, 9, 9, 9], [0; 4]].concat(), Errno::NODEV),
            (41, 46, [index(99), storage(group_v6), storage(from_v6)].concat(), Errno::NODEV),
        ] {
            assert_eq!(Memberships::default().set(level, name, &value, link_of), Some(Err(error)), "{name}");
        }
    }

    /// `struct ip_msfilter`, by which a whole filter is said at once.
    #[test]
    fn a_whole_filter_takes_the_place_of_the_one_that_was_there() {
        use FilterMode::{Exclude, Include};
        let said = |mode: u32, count: u32, sources: &[u8]| {
            let words = [mode.to_ne_bytes(), count.to_ne_bytes()].concat();
            let sources: Vec<u8> = sources.iter().flat_map(|&n| [10, 0, 0, n]).collect();
            [[232, 1, 2, 3, 10, 0, 0, 9].to_vec(), words, sources].concat()
        };
        let mut its = Memberships::default();
        let nobody = its.set(0, 41, &said(1, 0, &[]), link_of);
        assert_eq!(nobody, Some(Err(Errno::ADDRNOTAVAIL)), "left before it was joined");
        assert_eq!(its.set(0, 41, &said(1, 1, &[7]), link_of), Some(Err(Errno::INVAL)), "set before that");
        its.set(0, 35, &[232, 1, 2, 3, 10, 0, 0, 9], link_of).unwrap().unwrap();
        for (value, after) in [
            (said(1, 2, &[7, 8]), Ok(filter(Include, &[7, 8]))),
            (said(0, 1, &[7]), Ok(filter(Exclude, &[7]))),
            (said(0, 1, &[7, 8]), Ok(filter(Exclude, &[7]))),
            (said(0, 0, &[]), Ok(SourceFilter::any())),
            (said(2, 0, &[]), Err(Errno::INVAL)),
            (said(1, 2, &[7]), Err(Errno::INVAL)),
            (said(1, 11, &[7; 11]), Err(Errno::NOBUFS)),
            (said(1, 0, &[])[..15].to_vec(), Err(Errno::INVAL)),
            (said(1, 0, &[]), Ok(SourceFilter::none())),
            (said(1, 0, &[]), Err(Errno::ADDRNOTAVAIL)),
        ] {
            let made = its.set(0, 41, &value, link_of).expect("it is about groups");
            assert_eq!(made.map(|it| it.filter), after, "{value:?}");
        }
        assert_eq!(its.iter().count(), 0);
    }
}
