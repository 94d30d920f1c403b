//! The few questions to the kernel's interfaces that go through rtnetlink: up, address, move, make, delete.
//!
//! Called by `netns.rs`, `veth.rs`, `nic.rs` and `kernel.rs` in threads that stand in the right network namespace. Each function opens a
//! socket of its own, because a socket belongs to the namespace of the thread that made it; an [`Asker`] keeps one, for who looks again
//! and again.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use firelane_units::{IpPrefix, MacAddr, Mtu};
use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, NlasIterator};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, LinkVfInfo, VfInfo,
};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket_with};

/// Whether there is an interface `name`.
pub(crate) fn exists(name: &str) -> io::Result<bool> {
    match index_of(name) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Switches an interface on.
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    let index = index_of(name)?;
    request(async |it| it.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await)
}

/// Room for what is said of one interface: a list of its virtual functions takes at most 64 KiB.
const ANSWER_BYTES: usize = 128 * 1024;
/// The same without them, which is one or two KiB: a look each second is to cost little.
const LOOK_BYTES: usize = 16 * 1024;

/// The address that an interface has now, and what its driver says of those that the device has for good: its own, and those of its
/// virtual functions, each with its number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) now: Option<MacAddr>,
    pub(crate) permanent: Option<MacAddr>,
    pub(crate) functions: Vec<(u32, MacAddr)>,
}

/// Asks for them.
pub(crate) fn addresses(name: &str) -> io::Result<Addresses> {
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Vf]));
    Ok(addresses_of(&told_of(&socket()?, message)?.attributes))
}

/// An interface as it is now, which anybody may have renamed or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Option<MacAddr>,
    /// The largest packet.
    pub(crate) mtu: u32,
    /// It is switched on.
    pub(crate) is_up: bool,
    /// There is somebody at the other end; only of one that is switched on.
    pub(crate) has_carrier: bool,
    /// How often it has got a carrier.
    pub(crate) joined: u32,
    /// The number of the one at the other end, in the namespace where that is, if there is one.
    pub(crate) peer: Option<u32>,
    /// How many frames it could not send.
    pub(crate) unsent: u64,
}

impl Seen {
    /// Whether frames pass it.
    pub(crate) const fn passes(&self) -> bool {
        self.has_carrier
    }

    /// Why they do not.
    pub(crate) const fn stopped(&self) -> Option<&'static str> {
        match (self.is_up, self.has_carrier) {
            (false, _) => Some("is switched off"),
            (true, false) => Some("has no carrier: nobody is at its other end"),
            (true, true) => None,
        }
    }
}

/// Looks at the interface with this number; none if it is gone.
pub(crate) fn look(index: u32) -> io::Result<Option<Seen>> {
    Asker::new()?.look(index)
}

/// Who asks after interfaces of the network namespace in which he was made, wherever the thread stands.
#[derive(Debug)]
pub(crate) struct Asker(OwnedFd);

impl Asker {
    pub(crate) fn new() -> io::Result<Self> {
        socket().map(Self)
    }

    /// Looks at the interface with this number; none if it is gone.
    pub(crate) fn look(&self, index: u32) -> io::Result<Option<Seen>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.look_at(message)
    }

    /// Looks at the interface that has this name now; none if there is none.
    pub(crate) fn look_by_name(&self, name: &str) -> io::Result<Option<Seen>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.look_at(message)
    }

    fn look_at(&self, message: LinkMessage) -> io::Result<Option<Seen>> {
        ask(&self.0, RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)?;
        let mut bytes = [0; LOOK_BYTES];
        let (count, _) = rustix::net::recv(&self.0, &mut bytes, RecvFlags::empty())?;
        match seen_in(&bytes[..count]) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Of a netlink message its header, and what follows it in one about a link (`struct nlmsghdr`, `struct ifinfomsg`).
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
/// `linux/if_link.h`.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_STATS64: u16 = 23;
const IFLA_CARRIER_UP_COUNT: u16 = 47;
/// Where `struct rtnl_link_stats64` has `tx_dropped`.
const TX_DROPPED_BYTE: usize = 56;

/// What an answer says of an interface. It is read here because a look happens to each TAP each second, and reading all of the fifty
/// attributes takes several times as long as asking.
fn seen_in(answer: &[u8]) -> io::Result<Seen> {
    let half = |at: usize| Some(u16::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let word = |at: usize| word_of(answer.get(at..)?);
    match half(4) {
        Some(RTM_NEWLINK) => {}
        Some(NLMSG_ERROR) => {
            let code = word(HEADER_BYTES).ok_or_else(unread)?.cast_signed();
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
        _ => return Err(unread()),
    }
    let flags = LinkFlags::from_bits_retain(word(HEADER_BYTES + 8).ok_or_else(unread)?);
    let mut seen = Seen {
        name: String::new(),
        index: word(HEADER_BYTES + 4).ok_or_else(unread)?,
        mac: None,
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        joined: 0,
        peer: None,
        unsent: 0,
    };
    let attributes = answer.get(HEADER_BYTES + LINK_BYTES..).ok_or_else(unread)?;
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.map_err(io::Error::other)?;
        let value = attribute.value();
        match attribute.kind() {
            IFLA_IFNAME => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                seen.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_ADDRESS if value.len() == 6 => seen.mac = value.first_chunk().copied().map(MacAddr),
            IFLA_MTU => seen.mtu = word_of(value).unwrap_or_default(),
            IFLA_LINK => seen.peer = word_of(value),
            IFLA_CARRIER_UP_COUNT => seen.joined = word_of(value).unwrap_or_default(),
            IFLA_STATS64 => {
                let dropped = value.get(TX_DROPPED_BYTE..).and_then(<[u8]>::first_chunk);
                seen.unsent = dropped.copied().map_or(0, u64::from_ne_bytes);
            }
            _ => {}
        }
    }
    Ok(seen)
}

fn word_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// What the kernel tells of the interface that a message names.
fn told_of(socket: &OwnedFd, message: LinkMessage) -> io::Result<LinkMessage> {
    ask(socket, RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)?;
    match answers(socket)?.into_iter().next() {
        Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(told))) => Ok(told),
        Some(NetlinkPayload::Error(error)) => Err(error.to_io()),
        _ => Err(unread()),
    }
}

/// The addresses by which the kernel is reached at the interface with this number from other networks, too.
pub(crate) fn kernels_addresses(index: u32) -> io::Result<Vec<IpAddr>> {
    let socket = socket()?;
    ask(&socket, RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut found = Vec::new();
    loop {
        let told = answers(&socket)?;
        if told.is_empty() {
            return Err(unread());
        }
        for answer in told {
            match answer {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(told)) => {
                    let is_its = told.header.index == index && told.header.scope != AddressScope::Link;
                    found.extend(told.attributes.iter().filter(|_| is_its).find_map(|it| match it {
                        AddressAttribute::Local(addr) | AddressAttribute::Address(addr) => Some(*addr),
                        _ => None,
                    }));
                }
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

/// A socket to ask by, in the namespace of this thread.
fn socket() -> io::Result<OwnedFd> {
    // Netlink's protocol 0 is rtnetlink.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Asks the kernel, whose answers are to be read from the same socket.
fn ask(socket: &OwnedFd, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut question = NetlinkMessage::from(message);
    question.header.flags = flags;
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    rustix::net::send(socket, &bytes, SendFlags::empty())?;
    Ok(())
}

/// What the next datagram says; an answer of many parts has several in each.
fn answers(socket: &OwnedFd) -> io::Result<Vec<NetlinkPayload<RouteNetlinkMessage>>> {
    let mut bytes = vec![0; ANSWER_BYTES];
    let (count, _) = rustix::net::recv(socket, bytes.as_mut_slice(), RecvFlags::empty())?;
    let (mut rest, mut told) = (&bytes[..count], Vec::new());
    while !rest.is_empty() {
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
        // Messages begin at multiples of four.
        let length = (answer.header.length as usize).next_multiple_of(4).clamp(4, rest.len().max(4));
        rest = rest.get(length..).unwrap_or_default();
        told.push(answer.payload);
    }
    Ok(told)
}

fn unread() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "rtnetlink's answer cannot be read")
}

fn addresses_of(attributes: &[LinkAttribute]) -> Addresses {
    // Where no address was set, a function has none.
    let station = |bytes: &[u8]| {
        let mac = MacAddr(*bytes.first_chunk()?);
        mac.is_unicast().then_some(mac)
    };
    let mut found = Addresses::default();
    for attribute in attributes {
        match attribute {
            LinkAttribute::Address(bytes) if bytes.len() == 6 => found.now = station(bytes),
            LinkAttribute::PermAddress(bytes) if bytes.len() == 6 => found.permanent = station(bytes),
            LinkAttribute::VfInfoList(functions) => {
                let said = functions.iter().flat_map(|LinkVfInfo(said)| said);
                found.functions.extend(said.filter_map(|it| match it {
                    VfInfo::Mac(it) => Some((it.vf_id, station(&it.mac)?)),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found
}

/// Gives an interface, which is down, another name, its Ethernet address and its MTU.
pub(crate) fn shape(old_name: &str, name: &str, mac: MacAddr, mtu: Mtu) -> io::Result<()> {
    let index = index_of(old_name)?;
    let link = LinkUnspec::new_with_index(index).name(name).address(mac.0.to_vec()).mtu(mtu.bytes().into());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Sets an interface's MTU.
pub(crate) fn set_mtu(name: &str, mtu: Mtu) -> io::Result<()> {
    let link = LinkUnspec::new_with_index(index_of(name)?).mtu(mtu.bytes().into());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Gives an interface an address, which it may have already.
pub(crate) fn add_address(name: &str, address: IpPrefix) -> io::Result<()> {
    let index = index_of(name)?;
    let added =
        request(async |it| it.address().add(index, address.addr(), address.prefix_len()).execute().await);
    done_if(added, &[Errno::EXIST])
}

/// Takes an address from an interface, which may have lost it already, or IPv6 as a whole.
pub(crate) fn remove_address(name: &str, address: IpPrefix) -> io::Result<()> {
    let message = address_message(index_of(name)?, address);
    let removed = request(async |it| it.address().del(message).execute().await);
    done_if(removed, &[Errno::ADDRNOTAVAIL, Errno::NXIO])
}

/// Leads packets for a network by an interface to a router, in place of whatever else led there.
pub(crate) fn add_route(name: &str, destination: IpPrefix, router: IpAddr) -> io::Result<()> {
    let message = route_message(index_of(name)?, destination, router);
    request(async |it| it.route().add(message).replace().execute().await)
}

/// Takes such a route away, which may be gone already.
pub(crate) fn remove_route(name: &str, destination: IpPrefix, router: IpAddr) -> io::Result<()> {
    let message = route_message(index_of(name)?, destination, router);
    done_if(request(async |it| it.route().del(message).execute().await), &[Errno::SRCH])
}

/// Both are of one family; what is not would lead nowhere.
fn route_message(index: u32, destination: IpPrefix, router: IpAddr) -> RouteMessage {
    let length = destination.prefix_len();
    match (destination.addr(), router) {
        (IpAddr::V4(network), IpAddr::V4(router)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network, length)
            .gateway(router)
            .output_interface(index)
            .build(),
        (IpAddr::V6(network), IpAddr::V6(router)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(network, length)
            .gateway(router)
            .output_interface(index)
            .build(),
        _ => RouteMessage::default(),
    }
}

/// The errors that say that nothing was left to do.
fn done_if(result: io::Result<()>, done: &[Errno]) -> io::Result<()> {
    result.or_else(|error| match error.raw_os_error() {
        Some(code) if done.iter().any(|it| it.raw_os_error() == code) => Ok(()),
        _ => Err(error),
    })
}

/// Makes a pair of interfaces that are each other's wire.
pub(crate) fn add_veth(near: &str, far: &str) -> io::Result<()> {
    request(async |it| it.link().add(LinkVeth::new(near, far).build()).execute().await)
}

/// Moves an interface into a network namespace.
pub(crate) fn move_to(name: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let link = LinkUnspec::new_with_index(index_of(name)?).setns_by_fd(namespace.as_raw_fd());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Deletes an interface. One that is gone already is no error.
pub(crate) fn delete(name: &str) -> io::Result<()> {
    if !exists(name)? {
        return Ok(());
    }
    let index = index_of(name)?;
    request(async |it| it.link().del(index).execute().await)
}

/// The number of the interface `name`.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let probe = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&probe, name)?)
}

fn address_message(index: u32, address: IpPrefix) -> AddressMessage {
    let length = address.prefix_len();
    match address.addr() {
        IpAddr::V4(addr) => {
            AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(addr, length).build()
        }
        IpAddr::V6(addr) => {
            AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(addr, length).build()
        }
    }
}

/// Sends one request and waits for its answer.
fn request<F>(work: impl FnOnce(Handle) -> F) -> io::Result<()>
where
    F: Future<Output = Result<(), rtnetlink::Error>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let answer = work(handle).await;
        connection.abort();
        answer.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            other => io::Error::other(other.to_string()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::link::VfInfoMac;

    #[test]
    fn permanent_addresses_are_those_that_are_said() {
        let of =
            |function, last| LinkVfInfo(vec![VfInfo::Mac(VfInfoMac::new(function, &[0, 1, 2, 3, 4, last]))]);
        let unset = LinkVfInfo(vec![VfInfo::Mac(VfInfoMac::new(1, &[0; 6]))]);
        let said = [
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 9]),
            LinkAttribute::PermAddress(vec![0, 1, 2, 3, 4, 5]),
            LinkAttribute::VfInfoList(vec![of(0, 6), unset, of(2, 7)]),
        ];
        let mac = |last| MacAddr([0, 1, 2, 3, 4, last]);
        let now = Some(MacAddr([2, 0, 0, 0, 0, 9]));
        let want = Addresses { now, permanent: Some(mac(5)), functions: vec![(0, mac(6)), (2, mac(7))] };
        assert_eq!(addresses_of(&said), want);
        // The address that an interface has now is not one that it has for good, and other media have longer ones.
        let other = [said[0].clone(), LinkAttribute::PermAddress(vec![0; 20])];
        assert_eq!(addresses_of(&other), Addresses { now, ..Addresses::default() });
    }

    #[test]
    fn a_loopback_has_no_address_for_good_and_who_is_not_there_says_so() {
        assert_eq!(addresses("lo").unwrap(), Addresses::default());
        assert!(addresses("nosuch0").is_err());
        let (own, gone) = (index_of("lo").unwrap(), u32::MAX >> 1);
        let seen = look(own).unwrap().unwrap();
        assert_eq!((seen.name.as_str(), seen.mtu), ("lo", 65_536));
        assert_eq!(look(gone).unwrap(), None);
        let asker = Asker::new().unwrap();
        assert_eq!(asker.look_by_name("nosuch0").unwrap(), None);
        assert_eq!(asker.look_by_name("lo").unwrap(), Some(seen));
    }

    #[test]
    fn what_is_no_answer_is_none_and_one_that_is_cut_off_is_read_as_far_as_it_goes() {
        let socket = socket().unwrap();
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName("lo".to_owned()));
        ask(&socket, RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST).unwrap();
        let mut bytes = [0; LOOK_BYTES];
        let (count, _) = rustix::net::recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
        let whole = seen_in(&bytes[..count]).unwrap();
        assert_eq!((whole.name.as_str(), whole.mtu), ("lo", 65_536));
        for end in 0..count {
            if let Ok(seen) = seen_in(&bytes[..end]) {
                assert!(end >= HEADER_BYTES + LINK_BYTES && seen.index == whole.index, "{end}");
            }
        }
    }
}
