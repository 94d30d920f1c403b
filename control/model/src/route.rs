//! A route of a netstack.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::value::{self, TextValue, serde_as_text};

/// Where packets for a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "RouteTable", into = "RouteTable")]
pub struct Route {
    destination: Destination,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    gateway: IpAddr,
}

impl Route {
    /// `Some` if the gateway is a unicast address of the destination's family. Host bits are cleared.
    pub fn new(destination: IpPrefix, gateway: IpAddr) -> Option<Self> {
        let unicast = !gateway.is_unspecified() && !gateway.is_multicast() && !gateway.is_loopback();
        let broadcast = gateway == IpAddr::V4(Ipv4Addr::BROADCAST);
        let same_family = destination.addr().is_ipv4() == gateway.is_ipv4();
        let destination = Destination::Prefix(destination.network());
        (unicast && !broadcast && same_family).then_some(Self { destination, gateway })
    }

    /// The prefix that the route is for; `0.0.0.0/0` or `::/0` for the default route.
    pub fn destination(self) -> IpPrefix {
        self.destination.prefix(self.gateway)
    }

    /// The router.
    pub const fn gateway(self) -> IpAddr {
        self.gateway
    }
}

/// `default` or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Destination {
    Default,
    Prefix(IpPrefix),
}

impl Destination {
    fn prefix(self, gateway: IpAddr) -> IpPrefix {
        let any = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Default => IpPrefix::new(any, 0).expect("zero fits every family"),
        }
    }
}

impl TextValue for Destination {
    const ALLOWED: &'static str = "default, or a network such as 192.0.2.0/24";

    fn read(text: &str) -> Option<Self> {
        match text {
            "default" => Some(Self::Default),
            _ => text.parse().ok().map(Self::Prefix),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Prefix(prefix) if prefix.prefix_len() > 0 => prefix.to_string(),
            _ => "default".to_owned(),
        }
    }
}

serde_as_text!(Destination);

/// A route as it stands in the file.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    destination: Destination,
    #[serde(with = "value")]
    gateway: IpAddr,
}

impl TryFrom<RouteTable> for Route {
    type Error = String;

    fn try_from(table: RouteTable) -> Result<Self, String> {
        let RouteTable { destination, gateway } = table;
        Self::new(destination.prefix(gateway), gateway).ok_or_else(|| {
            value::refusal(
                &format!("{:?}", gateway.to_string()),
                "a gateway is a unicast address of the destination's family",
            )
        })
    }
}

impl From<Route> for RouteTable {
    fn from(route: Route) -> Self {
        Self { destination: route.destination, gateway: route.gateway }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_takes_its_family_from_the_gateway() {
        let any: IpPrefix = "0.0.0.0/0".parse().unwrap();
        let route = Route::try_from(RouteTable {
            destination: Destination::Default,
            gateway: "10.0.0.1".parse().unwrap(),
        });
        assert_eq!(route, Ok(Route::new(any, "10.0.0.1".parse().unwrap()).unwrap()));
        assert_eq!(route.unwrap().destination(), any);
        assert_eq!(Route::new(any, "fd00::1".parse().unwrap()), None);
        assert_eq!(Route::new(any, "224.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn host_bits_of_the_destination_do_not_count() {
        let gateway = "10.0.0.1".parse().unwrap();
        let a = Route::new("192.0.2.7/24".parse().unwrap(), gateway);
        let b = Route::new("192.0.2.0/24".parse().unwrap(), gateway);
        assert_eq!(a, b);
    }
}
