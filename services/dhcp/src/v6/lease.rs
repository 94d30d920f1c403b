//! What a DHCPv6 server gives: an address for a time, and what its network is like (RFC 8415 §21.4 to §21.6, RFC 3646).
//!
//! Read from an ADVERTISE or REPLY by `client.rs`. A server is only another station: an address that no station can have,
//! or lifetimes that contradict each other, are as if they were not there. We differ: of several addresses of one
//! association the first that can be used is taken, because one is what an interface needs.

use core::fmt;
use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::names;
use crate::v6::message::{Options, option};

/// Name servers and domains that are kept of one server: more serve nobody.
const LIST_MAX: usize = 8;
/// RFC 8415 §7.7: what does not end.
const FOREVER: u32 = u32::MAX;
/// RFC 8415 §21.13.
pub(crate) mod status {
    pub(crate) const SUCCESS: u16 = 0;
    pub(crate) const NO_BINDING: u16 = 3;
    pub(crate) const NOT_ON_LINK: u16 = 4;
}

/// What a network is like beside its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// Who resolves names.
    pub name_servers: Vec<Ipv6Addr>,
    /// Where names are looked for.
    pub domains: Vec<String>,
}

impl Network {
    pub(crate) fn read(options: &Options) -> Self {
        let mut name_servers = options.addresses(option::NAME_SERVERS, LIST_MAX);
        name_servers.retain(|it| !it.is_multicast() && !it.is_unspecified() && !it.is_loopback());
        let domains = options.get(option::DOMAINS).and_then(names::read_list);
        let mut domains = domains.unwrap_or_default();
        domains.truncate(LIST_MAX);
        Self { name_servers, domains }
    }
}

/// An address for a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub addr: Ipv6Addr,
    /// Who gave it: a server's DUID.
    pub server: Vec<u8>,
    /// How long something new may begin with it, from when it was asked for; `None` is for ever.
    pub preferred: Option<Duration>,
    /// How long it may be used.
    pub valid: Option<Duration>,
    /// After which time the same server is asked again.
    pub renew: Duration,
    /// After which time any server is asked.
    pub rebind: Duration,
    /// The rest.
    pub network: Network,
}

/// Why an answer gives no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// It does not say who sends it.
    NoServer,
    /// The server says why not.
    Status(u16),
    /// It is not about our association, or contradicts itself there.
    NoAssociation,
    /// No address in it that a station could have.
    NoAddress,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer => f.write_str("it does not say which server sends it"),
            Self::Status(code) => write!(f, "the server says status {code}"),
            Self::NoAssociation => f.write_str("it is not about this interface"),
            Self::NoAddress => f.write_str("it has no address that a station can have"),
        }
    }
}

impl core::error::Error for Unusable {}

impl Lease {
    /// The address alone: what is on the link is the routers' to say (RFC 8415 §18.2.10.1).
    pub fn prefix(&self) -> IpPrefix {
        IpPrefix::host(self.addr.into())
    }

    /// What an ADVERTISE or REPLY gives to the association `iaid`.
    pub(crate) fn read(options: &Options, iaid: u32) -> Result<Self, Unusable> {
        let server = options.get(option::SERVER_ID).filter(|id| !id.is_empty() && id.len() <= SERVER_ID_MAX);
        let server = server.ok_or(Unusable::NoServer)?.to_vec();
        is_success(options.status())?;
        let association = options.all(option::IA_NA).find_map(|value| {
            let (head, rest) = value.split_first_chunk::<12>()?;
            let [id, renew, rebind] = numbers(head);
            (id == iaid).then_some((renew, rebind, rest))
        });
        let (renew, rebind, rest) = association.ok_or(Unusable::NoAssociation)?;
        let inner = Options::parse(rest).map_err(|_| Unusable::NoAssociation)?;
        is_success(inner.status())?;
        // §21.4: times that are not in order make the association void.
        if renew > rebind && rebind > 0 {
            return Err(Unusable::NoAssociation);
        }
        let (addr, preferred, valid) =
            inner.all(option::IA_ADDR).find_map(read_address).ok_or(Unusable::NoAddress)?;
        let (renew, rebind) = times(renew, rebind, preferred, valid);
        Ok(Self {
            addr,
            server,
            preferred: span(preferred),
            valid: span(valid),
            renew,
            rebind,
            network: Network::read(options),
        })
    }
}

/// RFC 8415 §11.1: a DUID has at most 130 bytes.
const SERVER_ID_MAX: usize = 130;

fn is_success(code: u16) -> Result<(), Unusable> {
    if code == status::SUCCESS { Ok(()) } else { Err(Unusable::Status(code)) }
}

fn numbers(head: &[u8; 12]) -> [u32; 3] {
    let (words, _) = head.as_chunks::<4>();
    [0, 1, 2].map(|n| u32::from_be_bytes(words[n]))
}

/// An address with its preferred and valid lifetimes, if a station can have it (§21.6).
fn read_address(value: &[u8]) -> Option<(Ipv6Addr, u32, u32)> {
    let (head, rest) = value.split_first_chunk::<24>()?;
    let (addr, times) = head.split_first_chunk::<16>()?;
    let (times, _) = times.as_chunks::<4>();
    let (addr, preferred, valid) =
        (Ipv6Addr::from(*addr), u32::from_be_bytes(times[0]), u32::from_be_bytes(times[1]));
    let is_refused = Options::parse(rest).map_or(true, |inner| inner.status() != status::SUCCESS);
    (is_station(addr) && preferred <= valid && valid > 0 && !is_refused).then_some((addr, preferred, valid))
}

/// Whether one station of a network can have the address from a server.
pub(crate) fn is_station(addr: Ipv6Addr) -> bool {
    let is_special = addr.is_unspecified() || addr.is_loopback() || addr.is_multicast();
    !is_special && !addr.is_unicast_link_local() && addr.to_ipv4_mapped().is_none()
}

fn span(seconds: u32) -> Option<Duration> {
    (seconds != FOREVER).then(|| Duration::from_secs(seconds.into()))
}

/// T1 and T2: the server's, or if it leaves them to the client §21.4's shares of the preferred lifetime. An address that is
/// on its way out has none, and one must not ask at once, again and again (§14.2): its shares are of what is left.
fn times(renew: u32, rebind: u32, preferred: u32, valid: u32) -> (Duration, Duration) {
    let base = if preferred == 0 { valid } else { preferred };
    let Some(base) = span(base) else { return (Duration::MAX, Duration::MAX) };
    let chosen = |seconds: u32, usual| match seconds {
        0 => usual,
        seconds => span(seconds).unwrap_or(Duration::MAX),
    };
    let (renew, rebind) = (chosen(renew, base / 2), chosen(rebind, base * 4 / 5));
    (renew.min(rebind), rebind)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const IAID: u32 = 7;
    pub(crate) const SERVER: [u8; 4] = [0, 3, 0, 1];

    /// An association with one address.
    pub(crate) fn association(iaid: u32, times: [u32; 2], addr: &str, lifetimes: [u32; 2]) -> Vec<u8> {
        let mut address = addr.parse::<Ipv6Addr>().unwrap().octets().to_vec();
        lifetimes.iter().for_each(|it| address.extend(it.to_be_bytes()));
        let mut inner = Options::default();
        inner.add(option::IA_ADDR, address);
        let mut value = iaid.to_be_bytes().to_vec();
        times.iter().for_each(|it| value.extend(it.to_be_bytes()));
        inner.emit(&mut value);
        value
    }

    pub(crate) fn given(iaid: u32, times: [u32; 2], addr: &str, lifetimes: [u32; 2]) -> Options {
        let mut options = Options::default();
        options.add(option::SERVER_ID, SERVER);
        options.add(option::IA_NA, association(iaid, times, addr, lifetimes));
        options
    }

    #[test]
    fn what_no_honest_server_gives_is_refused() {
        use Unusable as U;
        for (iaid, times, addr, lifetimes, wanted) in [
            (IAID, [100, 200], "2001:db8::5", [300, 400], None),
            (8, [100, 200], "2001:db8::5", [300, 400], Some(U::NoAssociation)),
            (IAID, [200, 100], "2001:db8::5", [300, 400], Some(U::NoAssociation)),
            (IAID, [100, 200], "2001:db8::5", [400, 300], Some(U::NoAddress)),
            (IAID, [100, 200], "2001:db8::5", [0, 0], Some(U::NoAddress)),
            (IAID, [100, 200], "fe80::5", [300, 400], Some(U::NoAddress)),
            (IAID, [100, 200], "ff02::5", [300, 400], Some(U::NoAddress)),
            (IAID, [100, 200], "::", [300, 400], Some(U::NoAddress)),
            (IAID, [100, 200], "::1", [300, 400], Some(U::NoAddress)),
            (IAID, [100, 200], "::ffff:10.0.0.1", [300, 400], Some(U::NoAddress)),
        ] {
            let read = Lease::read(&given(iaid, times, addr, lifetimes), IAID);
            assert_eq!(read.err(), wanted, "{iaid} {times:?} {addr} {lifetimes:?}");
        }
        let mut nobody = given(IAID, [0, 0], "2001:db8::5", [300, 400]);
        nobody.remove(option::SERVER_ID);
        assert_eq!(Lease::read(&nobody, IAID), Err(U::NoServer));
        nobody.add(option::SERVER_ID, vec![0; 131]);
        assert_eq!(Lease::read(&nobody, IAID), Err(U::NoServer));
        let mut refused = given(IAID, [0, 0], "2001:db8::5", [300, 400]);
        refused.add(option::STATUS, vec![0, 2]);
        assert_eq!(Lease::read(&refused, IAID), Err(U::Status(2)));
        // An association may say it of itself, and cut options are none.
        let mut inner = given(IAID, [0, 0], "2001:db8::5", [300, 400]);
        let whole = inner.get(option::IA_NA).unwrap().to_vec();
        inner.remove(option::IA_NA);
        inner.add(option::IA_NA, [&whole[..12], &[0, 13, 0, 2, 0, 3]].concat());
        assert_eq!(Lease::read(&inner, IAID), Err(U::Status(status::NO_BINDING)));
        for len in [0, 11, 13, whole.len() - 1] {
            inner.remove(option::IA_NA);
            inner.add(option::IA_NA, &whole[..len]);
            assert_eq!(Lease::read(&inner, IAID), Err(U::NoAssociation), "{len}");
        }
    }

    #[test]
    fn times_are_the_servers_or_shares_of_a_lifetime() {
        let read = |times, lifetimes| {
            let lease = Lease::read(&given(IAID, times, "2001:db8::5", lifetimes), IAID).unwrap();
            (lease.renew.as_secs(), lease.rebind.as_secs())
        };
        assert_eq!(read([100, 200], [1000, 2000]), (100, 200));
        assert_eq!(read([0, 0], [1000, 2000]), (500, 800));
        assert_eq!(read([900, 0], [1000, 2000]), (800, 800));
        assert_eq!(read([0, 0], [0, 2000]), (1000, 1600));
        let forever = Lease::read(&given(IAID, [0, 0], "2001:db8::5", [u32::MAX; 2]), IAID).unwrap();
        assert_eq!((forever.valid, forever.renew), (None, Duration::MAX));
    }

    #[test]
    fn name_servers_and_domains_pass_only_if_they_are_sane() {
        let mut options = Options::default();
        let servers = ["2001:db8::53", "ff02::1", "::"].map(|it| it.parse::<Ipv6Addr>().unwrap().octets());
        options.add(option::NAME_SERVERS, servers.concat());
        options.add(option::DOMAINS, *b"\x03lab\x07example\0");
        let network = Network::read(&options);
        assert_eq!(network.name_servers, ["2001:db8::53".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(network.domains, ["lab.example"]);
        options.remove(option::DOMAINS);
        options.add(option::DOMAINS, *b"\x09$(reboot)\0");
        assert!(Network::read(&options).domains.is_empty());
    }
}
