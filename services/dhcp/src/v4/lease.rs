//! What a DHCPv4 server gives: an address for a time, and what its network is like (RFC 2132).
//!
//! Read from an OFFER or ACK by `client.rs`. A server is only another station: an address that one station cannot
//! have, a mask with holes or a lease of no time refuses the whole message (A11); a list that cannot be read is left
//! out.

use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;

use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::names;
use crate::v4::message::{Message, option};

/// Routers, name servers and domains that are kept of one server: more serve nobody.
pub(super) const LIST_MAX: usize = 8;
/// Routes that are kept of one server.
const ROUTES_MAX: usize = 64;
/// RFC 2132 §9.2: a lease that does not end.
const FOREVER: u32 = u32::MAX;

/// An address for a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub addr: Ipv4Addr,
    /// How much of it is the subnet's.
    pub prefix_len: u8,
    /// Who gave it.
    pub server: Ipv4Addr,
    /// How long it may be used from when it was asked for; `None` is for ever.
    pub time: Option<Duration>,
    /// After which time the same server is asked again.
    pub renew: Duration,
    /// After which time any server is asked.
    pub rebind: Duration,
    /// Where packets for elsewhere go.
    pub routes: Vec<Route>,
    /// Who resolves names.
    pub name_servers: Vec<Ipv4Addr>,
    /// Where names are looked for.
    pub domains: Vec<String>,
}

/// Where packets for some addresses go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The first of the addresses.
    pub network: Ipv4Addr,
    /// How many of its bits they share.
    pub prefix_len: u8,
    /// The router; 0.0.0.0 if their stations are on the link itself (RFC 3442).
    pub via: Ipv4Addr,
}

impl Route {
    /// The addresses.
    pub fn destination(&self) -> Option<IpPrefix> {
        IpPrefix::new(self.network.into(), self.prefix_len).map(IpPrefix::network)
    }

    /// Whether no router is between.
    pub const fn is_on_link(&self) -> bool {
        self.via.is_unspecified()
    }
}

/// Why an offer or acknowledgment is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// It does not say who sends it, or names nobody.
    NoServer,
    /// The address is none that a station can have.
    Address(Ipv4Addr),
    /// The subnet mask has holes, or leaves no room.
    Mask(Ipv4Addr),
    /// It does not say for how long, or for no time.
    NoTime,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer => f.write_str("it does not say which server sends it"),
            Self::Address(addr) => write!(f, "{addr} is no address of a station"),
            Self::Mask(mask) => write!(f, "{mask} is no subnet mask"),
            Self::NoTime => f.write_str("it does not say for how long"),
        }
    }
}

impl core::error::Error for Unusable {}

impl Lease {
    /// The address with its subnet.
    pub fn prefix(&self) -> Option<IpPrefix> {
        IpPrefix::new(self.addr.into(), self.prefix_len)
    }

    /// What an OFFER or ACK gives.
    pub(crate) fn read(message: &Message) -> Result<Self, Unusable> {
        let server = message.address(option::SERVER).filter(|server| is_station(*server));
        let server = server.ok_or(Unusable::NoServer)?;
        let addr = message.yours;
        if !is_station(addr) {
            return Err(Unusable::Address(addr));
        }
        let prefix_len = prefix_len(addr, message.address(option::SUBNET_MASK))?;
        let time = match message.number(option::LEASE_TIME) {
            None | Some(0) => return Err(Unusable::NoTime),
            Some(FOREVER) => None,
            Some(seconds) => Some(Duration::from_secs(seconds.into())),
        };
        let (renew, rebind) = times(message, time);
        Ok(Self {
            addr,
            prefix_len,
            server,
            time,
            renew,
            rebind,
            routes: routes(message),
            name_servers: message.addresses(option::NAME_SERVERS, LIST_MAX),
            domains: domains(message),
        })
    }
}

/// T1 and T2: the server's, or RFC 2131 §4.4.5's for what it does not say, and for both if they are not in order.
fn times(message: &Message, time: Option<Duration>) -> (Duration, Duration) {
    let Some(time) = time else { return (Duration::MAX, Duration::MAX) };
    let said = |code| message.number(code).map(|seconds| Duration::from_secs(seconds.into()));
    let usual = (time / 2, time * 7 / 8);
    let renew = said(option::RENEWAL_TIME).unwrap_or(usual.0);
    let rebind = said(option::REBINDING_TIME).unwrap_or(usual.1);
    if renew < rebind && rebind < time && !renew.is_zero() { (renew, rebind) } else { usual }
}

/// RFC 3442: classless routes take the place of the routers.
fn routes(message: &Message) -> Vec<Route> {
    if let Some(mut list) = message.options.get(&option::CLASSLESS_ROUTES).and_then(|it| read_routes(it)) {
        list.retain(|route| route.is_on_link() || is_station(route.via));
        list.truncate(ROUTES_MAX);
        return list;
    }
    // RFC 2132 §3.5: in order of preference; one default route is what a host uses.
    let routers = message.addresses(option::ROUTERS, LIST_MAX);
    let first = routers.into_iter().find(|router| is_station(*router));
    first.map(|via| Route { network: Ipv4Addr::UNSPECIFIED, prefix_len: 0, via }).into_iter().collect()
}

fn read_routes(value: &[u8]) -> Option<Vec<Route>> {
    let (mut list, mut rest) = (Vec::new(), value);
    while let [len @ 0..=32, tail @ ..] = rest {
        let (network, tail) = tail.split_at_checked(usize::from(len.div_ceil(8)))?;
        let (via, tail) = tail.split_first_chunk::<4>()?;
        let mut octets = [0; 4];
        octets[..network.len()].copy_from_slice(network);
        list.push(Route { network: octets.into(), prefix_len: *len, via: (*via).into() });
        rest = tail;
    }
    rest.is_empty().then_some(list)
}

pub(super) fn domains(message: &Message) -> Vec<String> {
    let search = message.options.get(&option::DOMAIN_SEARCH).and_then(|value| names::read_list(value));
    let own = || {
        let value = message.options.get(&option::DOMAIN_NAME)?;
        let text = core::str::from_utf8(value).ok()?.trim_end_matches(['\0', '.']);
        names::is_host_name(text).then(|| vec![text.to_owned()])
    };
    let mut list = search.or_else(own).unwrap_or_default();
    list.truncate(LIST_MAX);
    list
}

fn prefix_len(addr: Ipv4Addr, mask: Option<Ipv4Addr>) -> Result<u8, Unusable> {
    let class = match addr.octets()[0] {
        0..=127 => Ipv4Addr::new(255, 0, 0, 0),
        128..=191 => Ipv4Addr::new(255, 255, 0, 0),
        _ => Ipv4Addr::new(255, 255, 255, 0),
    };
    let mask = mask.unwrap_or(class);
    let bits = mask.to_bits();
    let len = bits.leading_ones();
    let is_whole = bits.checked_shl(len).unwrap_or(0) == 0;
    let host = addr.to_bits() & !bits;
    let is_inside = len >= 31 || (host != 0 && host != !bits);
    if !is_whole || len == 0 {
        return Err(Unusable::Mask(mask));
    }
    if !is_inside {
        return Err(Unusable::Address(addr));
    }
    Ok(len as u8)
}

/// Whether one station of a network can have the address.
pub(crate) fn is_station(addr: Ipv4Addr) -> bool {
    let first = addr.octets()[0];
    first != 0 && first < 224 && !addr.is_loopback()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::v4::message::MessageType;
    use firelane_units::MacAddr;

    /// An acknowledgment of 10.0.0.5/24 from 10.0.0.1 for an hour.
    pub(crate) fn ack() -> Message {
        let mut message = Message::request(MessageType::Ack, 7, MacAddr([2, 8, 32, 1, 2, 3]));
        (message.is_reply, message.yours) = (true, Ipv4Addr::new(10, 0, 0, 5));
        message.options.insert(option::SERVER, vec![10, 0, 0, 1]);
        message.options.insert(option::SUBNET_MASK, vec![255, 255, 255, 0]);
        message.options.insert(option::LEASE_TIME, 3600_u32.to_be_bytes().to_vec());
        message
    }

    fn with(code: u8, value: &[u8]) -> Message {
        let mut message = ack();
        message.options.insert(code, value.to_vec());
        message
    }

    #[test]
    fn a11_what_no_honest_server_gives_is_refused() {
        let yours = |octets: [u8; 4]| Message { yours: octets.into(), ..ack() };
        for octets in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 5], [255; 4], [10, 0, 0, 0], [10, 0, 0, 255]]
        {
            assert_eq!(Lease::read(&yours(octets)), Err(Unusable::Address(octets.into())));
        }
        for mask in [[255, 0, 255, 0], [0, 0, 0, 0], [255, 255, 254, 1]] {
            assert_eq!(Lease::read(&with(option::SUBNET_MASK, &mask)), Err(Unusable::Mask(mask.into())));
        }
        for server in [&[224, 0, 0, 1][..], &[0, 0, 0, 0], &[10, 0, 0], &[]] {
            assert_eq!(Lease::read(&with(option::SERVER, server)), Err(Unusable::NoServer));
        }
        for time in [&[0, 0, 0, 0][..], &[1], &[]] {
            assert_eq!(Lease::read(&with(option::LEASE_TIME, time)), Err(Unusable::NoTime));
        }
    }

    #[test]
    fn times_are_the_servers_if_they_are_in_order() {
        let said = |renew: Option<u32>, rebind: Option<u32>| {
            let mut message = ack();
            for (code, seconds) in [(option::RENEWAL_TIME, renew), (option::REBINDING_TIME, rebind)] {
                message.options.extend(seconds.map(|seconds| (code, seconds.to_be_bytes().to_vec())));
            }
            let lease = Lease::read(&message).unwrap();
            (lease.renew.as_secs(), lease.rebind.as_secs())
        };
        let told = |renew, rebind| said(Some(renew), Some(rebind));
        assert_eq!(told(100, 200), (100, 200));
        for (renew, rebind) in [(200, 100), (100, 3600), (0, 100), (4000, 5000)] {
            assert_eq!(told(renew, rebind), (1800, 3150));
        }
        // RFC 2131 §4.4.5: each of them has its share of the lease where the server says nothing of it.
        assert_eq!((said(Some(100), None), said(None, Some(2000))), ((100, 3150), (1800, 2000)));
        for out_of_order in [said(None, None), said(Some(3200), None), said(None, Some(1000))] {
            assert_eq!(out_of_order, (1800, 3150));
        }
        let forever = Lease::read(&with(option::LEASE_TIME, &[255; 4])).unwrap();
        assert_eq!((forever.time, forever.renew), (None, Duration::MAX));
    }

    #[test]
    fn routes_are_classless_before_routers_and_the_mask_has_its_class() {
        let routed = |message: &Message| -> Vec<String> {
            let routes = Lease::read(message).unwrap().routes;
            routes.iter().map(|it| format!("{} {}", it.destination().unwrap(), it.via)).collect()
        };
        let mut message = with(option::ROUTERS, &[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(routed(&message), ["0.0.0.0/0 10.0.0.1"]);
        let classless = [24, 192, 0, 2, 10, 0, 0, 9, 0, 10, 0, 0, 8, 8, 172, 224, 0, 0, 1];
        message.options.insert(option::CLASSLESS_ROUTES, classless.to_vec());
        assert_eq!(routed(&message), ["192.0.2.0/24 10.0.0.9", "0.0.0.0/0 10.0.0.8"], "a group is no router");
        let on_link = [16, 10, 9, 0, 0, 0, 0, 0, 10, 0, 0, 8];
        message.options.insert(option::CLASSLESS_ROUTES, on_link.to_vec());
        assert_eq!(
            routed(&message),
            ["10.9.0.0/16 0.0.0.0", "0.0.0.0/0 10.0.0.8"],
            "nor is a subnet's own link"
        );
        // What cannot be read is as if it were not there.
        message.options.insert(option::CLASSLESS_ROUTES, vec![33, 1, 2, 3]);
        assert_eq!(routed(&message), ["0.0.0.0/0 10.0.0.1"]);
        let mut message = Message { yours: Ipv4Addr::new(192, 168, 7, 7), ..ack() };
        message.options.remove(&option::SUBNET_MASK);
        assert_eq!(Lease::read(&message).unwrap().prefix_len, 24);
    }

    #[test]
    fn name_servers_and_domains() {
        let mut message = with(option::NAME_SERVERS, &[10, 0, 0, 53, 10, 0, 0, 54]);
        message.options.insert(option::DOMAIN_NAME, b"example.net".to_vec());
        let lease = Lease::read(&message).unwrap();
        assert_eq!(lease.name_servers, [Ipv4Addr::new(10, 0, 0, 53), Ipv4Addr::new(10, 0, 0, 54)]);
        assert_eq!(lease.domains, ["example.net"]);
        message
            .options
            .insert(option::DOMAIN_SEARCH, b"\x03lab\x07example\x03net\0\x04test\xc0\x04".to_vec());
        assert_eq!(Lease::read(&message).unwrap().domains, ["lab.example.net", "test.example.net"]);
        message.options.insert(option::DOMAIN_SEARCH, b"\xc0\x00".to_vec());
        message.options.insert(option::DOMAIN_NAME, b"$(reboot)".to_vec());
        let domains = Lease::read(&message).unwrap().domains;
        assert!(domains.is_empty(), "a name goes into files that programs read: {domains:?}");
    }
}
