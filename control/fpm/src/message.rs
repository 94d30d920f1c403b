//! The netlink messages inside a frame (`linux/rtnetlink.h`, `linux/nexthop.h`), each judged by itself.
//!
//! Called by `feed.rs`. `netlink-packet-core` finds messages and attributes; their meaning is read here, because
//! `netlink-packet-route` 0.34 does not know next hops as objects, which is how zebra names them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::IpPrefix;
use netlink_packet_core::{NetlinkBuffer, NlaBuffer, NlasIterator};

use crate::counts::Refusal;
use crate::table::{End, Whence};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `RTPROT_KERNEL`: zebra gives it to what it has read from its own namespace, connected networks above all.
const PROTOCOL_KERNEL: u8 = 2;
/// `RT_TABLE_UNSPEC`, `RT_TABLE_COMPAT` (then the attribute says which) and `RT_TABLE_MAIN`.
const TABLES: [u8; 3] = [0, 252, TABLE_MAIN];
const TABLE_MAIN: u8 = 254;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP: u16 = 8;

/// `RTNH_F_ONLINK`: the gateway is on the link whatever its address says.
const ON_LINK: u8 = 4;
/// `struct rtmsg`, `struct nhmsg`, `struct rtnexthop`, `struct nexthop_grp`
const RTMSG: usize = 12;
const NHMSG: usize = 8;
const RTNEXTHOP: usize = 8;
const NEXTHOP_GRP: usize = 8;
/// Netlink's messages and attributes begin at such a place (`NLMSG_ALIGNTO`, `RTNH_ALIGNTO`).
const ALIGNMENT: usize = 4;
/// Next hops of a route or group: flows cannot be spread over more with any evenness.
pub(crate) const GROUP_MAX: usize = 256;

/// A next hop as the daemon names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RawHop {
    /// Through whom; without one it is on the link.
    pub(crate) gateway: Option<IpAddr>,
    /// The interface in the daemon's namespace; zero is none.
    pub(crate) index: u32,
    /// Whether the gateway is on that link although no network of it says so.
    pub(crate) is_on_link: bool,
}

/// Where packets of a route go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// By the next hop, or the group, of that number.
    Named(u32),
    /// By these.
    Hops(Box<[RawHop]>),
    /// Nowhere.
    Ends(End),
}

/// What stands behind the number of a next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    One(RawHop),
    Ends,
    Group(Box<[u32]>),
    /// What cannot be followed: nothing goes by it.
    Refused,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A route begins, or another takes its place.
    Route(IpPrefix, Target, Whence),
    RouteGone(IpPrefix),
    /// A route that cannot be followed takes another's place, which is not there any more then.
    RouteRefused(IpPrefix, Refusal),
    /// A next hop begins, or is another one now.
    Object(u32, Object),
    ObjectGone(u32),
    /// The same of a next hop.
    ObjectRefused(u32, Refusal),
}

/// Gives each message of a frame to `take`.
pub(crate) fn each(mut frame: &[u8], mut take: impl FnMut(Result<Message, Refusal>)) {
    while !frame.is_empty() {
        let Ok(message) = NetlinkBuffer::new_checked(frame) else { return take(Err(Refusal::Length)) };
        let length = message.length() as usize;
        let inside = frame.get(HEADER..length).unwrap_or_default();
        take(read(message.message_type(), inside));
        frame = frame.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
}

/// `struct nlmsghdr`
const HEADER: usize = 16;

fn read(kind: u16, inside: &[u8]) -> Result<Message, Refusal> {
    match kind {
        RTM_NEWROUTE => route(inside, true),
        RTM_DELROUTE => route(inside, false),
        RTM_NEWNEXTHOP => object(inside, true),
        RTM_DELNEXTHOP => object(inside, false),
        _ => Err(Refusal::MessageType),
    }
}

type Attribute<'a> = NlaBuffer<&'a [u8]>;

fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Refusal>> {
    NlasIterator::new(bytes).map(|it| it.map_err(|_| Refusal::Attribute))
}

/// A number of the host's order.
fn number(value: &[u8]) -> Result<u32, Refusal> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Refusal::Attribute)
}

fn address(value: &[u8]) -> Result<IpAddr, Refusal> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).map(|it| Ipv4Addr::from(it).into()),
        _ => <[u8; 16]>::try_from(value).map(|it| Ipv6Addr::from(it).into()),
    }
    .map_err(|_| Refusal::Attribute)
}

fn gateway(value: &[u8]) -> Result<Option<IpAddr>, Refusal> {
    let gateway = address(value)?;
    let is_station = !gateway.is_multicast()
        && !gateway.is_loopback()
        && !gateway.is_unspecified()
        && gateway != IpAddr::V4(Ipv4Addr::BROADCAST);
    is_station.then_some(Some(gateway)).ok_or(Refusal::Gateway)
}

/// Something of a route or next hop that cannot be followed is noted: whatever that replaces ends. Who cannot be read replaces nothing.
fn note<T: Default>(read: Result<T, Refusal>, refused: &mut Option<Refusal>) -> Result<T, Refusal> {
    match read {
        Err(why) if why != Refusal::Attribute => {
            refused.get_or_insert(why);
            Ok(T::default())
        }
        read => read,
    }
}

/// `struct rtmsg` and its attributes.
fn route(inside: &[u8], is_new: bool) -> Result<Message, Refusal> {
    let (&header, rest) = inside.split_first_chunk::<RTMSG>().ok_or(Refusal::Length)?;
    let [family, length, source_length, _, table, protocol, _, kind, ..] = header;
    let mut dst = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return Err(Refusal::Family),
    };
    let (mut metric, mut named, mut hops) = (0, None, Vec::new());
    let mut lone = RawHop { gateway: None, index: 0, is_on_link: false };
    let (mut number_of_table, mut refused) = (u32::from(table), None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            RTA_DST => {
                let given = address(value)?;
                dst = (given.is_ipv4() == dst.is_ipv4()).then_some(given).ok_or(Refusal::Attribute)?;
            }
            RTA_OIF => lone.index = number(value)?,
            RTA_GATEWAY => lone.gateway = note(gateway(value), &mut refused)?,
            RTA_VIA => lone.gateway = note(via(value), &mut refused)?,
            RTA_PRIORITY => metric = number(value)?,
            RTA_MULTIPATH => hops = note(multipath(value), &mut refused)?,
            RTA_TABLE => number_of_table = number(value)?,
            RTA_NH_ID => named = Some(number(value)?),
            RTA_ENCAP | RTA_NEWDST => refused = Some(Refusal::Encapsulation),
            _ => {}
        }
    }
    if !TABLES.contains(&table) || ![0, u32::from(TABLE_MAIN)].contains(&number_of_table) {
        return Err(Refusal::Table);
    }
    if source_length != 0 {
        return Err(Refusal::Source);
    }
    let destination = destination(dst, length)?;
    match (protocol == PROTOCOL_KERNEL, is_new) {
        // With `fpm use-route-replace` nothing else says that a route has given its place to the kernel's.
        (true, true) => return Ok(Message::RouteRefused(destination, Refusal::Kernel)),
        // That the kernel's has gone says nothing of what took its place.
        (true, false) => return Err(Refusal::Kernel),
        (false, false) => return Ok(Message::RouteGone(destination)),
        (false, true) => {}
    }
    let end = note(end_of(kind), &mut refused)?;
    if let Some(why) = refused {
        return Ok(Message::RouteRefused(destination, why));
    }
    let target = match (end, named) {
        (Some(end), _) => Target::Ends(end),
        (None, Some(id)) => Target::Named(id),
        (None, None) if !hops.is_empty() => Target::Hops(hops.into()),
        (None, None) if lone.gateway.is_some() || lone.index != 0 => Target::Hops([lone].into()),
        (None, None) => return Err(Refusal::Attribute),
    };
    Ok(Message::Route(destination, target, Whence { protocol, metric }))
}

fn destination(addr: IpAddr, length: u8) -> Result<IpPrefix, Refusal> {
    let prefix = IpPrefix::new(addr, length).ok_or(Refusal::Destination)?.network();
    let addr = prefix.addr();
    // The default's address is unspecified, that of a single station may not be.
    let is_nobody = addr.is_unspecified() && prefix == IpPrefix::host(addr);
    let is_out = addr.is_multicast() || addr.is_loopback() || is_nobody;
    (!is_out).then_some(prefix).ok_or(Refusal::Destination)
}

/// How packets end that take a route of this type (`RTN_...`); none if they go on.
fn end_of(kind: u8) -> Result<Option<End>, Refusal> {
    match kind {
        1 => Ok(None),
        6 => Ok(Some(End::Blackhole)),
        7 => Ok(Some(End::Unreachable)),
        8 => Ok(Some(End::Prohibit)),
        _ => Err(Refusal::RouteType),
    }
}

/// `struct rtvia`: a family and an address of it.
fn via(value: &[u8]) -> Result<Option<IpAddr>, Refusal> {
    let (_, addr) = value.split_first_chunk::<2>().ok_or(Refusal::Attribute)?;
    gateway(addr)
}

/// A row of `struct rtnexthop`, each with attributes.
fn multipath(mut value: &[u8]) -> Result<Vec<RawHop>, Refusal> {
    let mut hops = Vec::new();
    while !value.is_empty() {
        let header = value.first_chunk::<RTNEXTHOP>().ok_or(Refusal::Attribute)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let inside = value.get(RTNEXTHOP..length).ok_or(Refusal::Attribute)?;
        let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        let mut hop = RawHop { gateway: None, index, is_on_link: header[2] & ON_LINK != 0 };
        for attribute in attributes(inside) {
            let attribute = attribute?;
            match attribute.kind() {
                RTA_GATEWAY => hop.gateway = gateway(attribute.value())?,
                RTA_VIA => hop.gateway = via(attribute.value())?,
                RTA_ENCAP | RTA_NEWDST => return Err(Refusal::Encapsulation),
                _ => {}
            }
        }
        hops.push(hop);
        value = value.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    if hops.is_empty() || hops.len() > GROUP_MAX { Err(Refusal::Group) } else { Ok(hops) }
}

/// `struct nhmsg` and its attributes.
fn object(inside: &[u8], is_new: bool) -> Result<Message, Refusal> {
    let (header, rest) = inside.split_first_chunk::<NHMSG>().ok_or(Refusal::Length)?;
    let [family, _, _, _, flags @ ..] = *header;
    if ![AF_UNSPEC, AF_INET, AF_INET6].contains(&family) {
        return Err(Refusal::Family);
    }
    let (mut id, mut group, mut is_end, mut refused) = (None, None, false, None);
    let is_on_link = u32::from_ne_bytes(flags) & u32::from(ON_LINK) != 0;
    let mut hop = RawHop { gateway: None, index: 0, is_on_link };
    for attribute in attributes(rest) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            NHA_ID => id = Some(number(value)?),
            NHA_GROUP => group = Some(note(members(value), &mut refused)?),
            NHA_BLACKHOLE => is_end = true,
            NHA_OIF => hop.index = number(value)?,
            NHA_GATEWAY => hop.gateway = note(gateway(value), &mut refused)?,
            NHA_ENCAP => refused = Some(Refusal::Encapsulation),
            _ => {}
        }
    }
    let id = id.filter(|&id| id != 0).ok_or(Refusal::Attribute)?;
    if !is_new {
        return Ok(Message::ObjectGone(id));
    }
    if let Some(why) = refused {
        return Ok(Message::ObjectRefused(id, why));
    }
    let object = match group {
        Some(members) => Object::Group(members),
        None if is_end => Object::Ends,
        None if hop.gateway.is_some() || hop.index != 0 => Object::One(hop),
        None => return Err(Refusal::Attribute),
    };
    Ok(Message::Object(id, object))
}

/// The numbers of a row of `struct nexthop_grp`. Weights are not followed: flows are spread evenly here.
fn members(value: &[u8]) -> Result<Box<[u32]>, Refusal> {
    let (rows, rest) = value.as_chunks::<NEXTHOP_GRP>();
    if !rest.is_empty() {
        return Err(Refusal::Attribute);
    }
    if rows.is_empty() || rows.len() > GROUP_MAX {
        return Err(Refusal::Group);
    }
    Ok(rows.iter().map(|&[a, b, c, d, ..]| u32::from_ne_bytes([a, b, c, d])).collect())
}
