//! A route of a netstack.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::value::{self, TextValue, serde_as_text};

/// How connections over a route, or of a netstack, decide how much may be under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CongestionControl {
    /// RFC 9438.
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 8257.
    Dctcp,
    /// draft-ietf-ccwg-bbr.
    Bbr,
}

impl CongestionControl {
    const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// The word in files and commands, and in the property `congestion_control` of TCP.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }
}

impl TextValue for CongestionControl {
    const ALLOWED: &'static str = "cubic, newreno, dctcp or bbr";

    fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == text)
    }

    fn write(&self) -> String {
        self.word().to_owned()
    }
}

/// Where packets for a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "RouteTable", into = "RouteTable")]
pub struct Route {
    destination: Destination,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    gateway: IpAddr,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    congestion_control: Option<CongestionControl>,
}

impl Route {
    /// `Some` if the gateway is a unicast address of the destination's family. Host bits are cleared.
    pub fn new(destination: IpPrefix, gateway: IpAddr) -> Option<Self> {
        let unicast = !gateway.is_unspecified() && !gateway.is_multicast() && !gateway.is_loopback();
        let broadcast = gateway == IpAddr::V4(Ipv4Addr::BROADCAST);
        let same_family = destination.addr().is_ipv4() == gateway.is_ipv4();
        let destination = Destination::Prefix(destination.network());
        (unicast && !broadcast && same_family).then_some(Self {
            destination,
            gateway,
            congestion_control: None,
        })
    }

    /// The prefix that the route is for; `0.0.0.0/0` or `::/0` for the default route.
    pub fn destination(self) -> IpPrefix {
        self.destination.prefix(self.gateway)
    }

    /// The same for connections that use `control`, whatever their netstack's is; what a socket asks for counts more.
    #[must_use]
    pub const fn with_congestion_control(self, control: Option<CongestionControl>) -> Self {
        Self { congestion_control: control, ..self }
    }

    /// Which congestion control connections over it use, if not the netstack's.
    pub const fn congestion_control(self) -> Option<CongestionControl> {
        self.congestion_control
    }

    /// Whether both are the same way, whatever they say about it.
    pub fn is_same_way(self, other: Self) -> bool {
        (self.destination(), self.gateway) == (other.destination(), other.gateway)
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
    #[serde(default, skip_serializing_if = "Option::is_none", with = "value::option")]
    congestion_control: Option<CongestionControl>,
}

impl TryFrom<RouteTable> for Route {
    type Error = String;

    fn try_from(table: RouteTable) -> Result<Self, String> {
        let RouteTable { destination, gateway, congestion_control } = table;
        let route = Self::new(destination.prefix(gateway), gateway);
        route.map(|it| it.with_congestion_control(congestion_control)).ok_or_else(|| {
            value::refusal(
                &format!("{:?}", gateway.to_string()),
                "a gateway is a unicast address of the destination's family",
            )
        })
    }
}

impl From<Route> for RouteTable {
    fn from(route: Route) -> Self {
        let Route { destination, gateway, congestion_control } = route;
        Self { destination, gateway, congestion_control }
    }
}

impl core::fmt::Display for Route {
    /// `destination via gateway`, and the congestion control if it has one.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} via {}", self.destination(), self.gateway)?;
        self.congestion_control.map_or(Ok(()), |control| write!(f, " congestion_control {}", control.word()))
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
            congestion_control: None,
        });
        assert_eq!(route, Ok(Route::new(any, "10.0.0.1".parse().unwrap()).unwrap()));
        assert_eq!(route.unwrap().destination(), any);
        assert_eq!(Route::new(any, "fd00::1".parse().unwrap()), None);
        assert_eq!(Route::new(any, "224.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_congestion_control_is_one_of_the_propertys_words() {
        let words = crate::Prop::CongestionControl.line().allowed.to_string();
        assert_eq!(CongestionControl::ALL.map(CongestionControl::word).join(","), words);
        let route = |control: &str| {
            let text =
                format!("destination = 'default'\ngateway = '10.0.0.1'\ncongestion_control = '{control}'");
            toml::from_str::<Route>(&text)
        };
        let bbr = route("bbr").unwrap();
        assert_eq!(bbr.congestion_control(), Some(CongestionControl::Bbr));
        assert_eq!(bbr.to_string(), "0.0.0.0/0 via 10.0.0.1 congestion_control bbr");
        assert!(bbr.is_same_way(bbr.with_congestion_control(None)));
        assert_eq!(toml::from_str::<Route>(&toml::to_string(&bbr).unwrap()).unwrap(), bbr);
        let error = route("vegas").unwrap_err().to_string();
        assert!(error.contains("\"vegas\": cubic, newreno, dctcp or bbr"), "{error}");
    }

    #[test]
    fn a_way_stands_once_whatever_is_said_about_it() {
        let route = "{ destination = '10.9.0.0/16', gateway = '10.0.0.1'";
        let text = format!("[netstack.web]\nroutes = [{route} }}, {route}, congestion_control = 'bbr' }}]");
        let faults = crate::Model::from_toml("host.toml", &text).unwrap_err();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert!(matches!(&faults[..], [one] if one.contains("netstack.web.routes")), "{faults:?}");
    }

    #[test]
    fn host_bits_of_the_destination_do_not_count() {
        let gateway = "10.0.0.1".parse().unwrap();
        let a = Route::new("192.0.2.7/24".parse().unwrap(), gateway);
        let b = Route::new("192.0.2.0/24".parse().unwrap(), gateway);
        assert_eq!(a, b);
    }
}
