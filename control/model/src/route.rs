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

    /// The one of that word, or the words that there are.
    pub fn of_word(text: &str) -> Result<Self, &'static str> {
        Self::read(text).ok_or(Self::ALLOWED)
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

/// What becomes of packets for a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// They go to this router.
    Via(IpAddr),
    /// They end.
    Ends(RouteEnd),
}

/// How packets end that take a route which leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RouteEnd {
    /// Nobody is told.
    Blackhole,
    /// The sender is told that the host cannot be reached.
    Unreachable,
    /// The sender is told that they are forbidden.
    Prohibit,
}

impl RouteEnd {
    /// The word in files and plans.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// Where packets for a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "RouteTable", into = "RouteTable")]
pub struct Route {
    destination: IpPrefix,
    way: Way,
    source: Option<IpPrefix>,
    congestion_control: Option<CongestionControl>,
}

impl Route {
    /// A route on which packets end. Host bits are cleared.
    pub fn ending(destination: IpPrefix, end: RouteEnd) -> Self {
        Self {
            destination: destination.network(),
            way: Way::Ends(end),
            source: None,
            congestion_control: None,
        }
    }

    /// `Some` if the gateway is a unicast address of the destination's family. Host bits are cleared.
    pub fn new(destination: IpPrefix, gateway: IpAddr) -> Option<Self> {
        let unicast = !gateway.is_unspecified() && !gateway.is_multicast() && !gateway.is_loopback();
        let broadcast = gateway == IpAddr::V4(Ipv4Addr::BROADCAST);
        let same_family = destination.addr().is_ipv4() == gateway.is_ipv4();
        (unicast && !broadcast && same_family).then_some(Self {
            destination: destination.network(),
            way: Way::Via(gateway),
            source: None,
            congestion_control: None,
        })
    }

    /// The prefix that the route is for; `0.0.0.0/0` or `::/0` for the default route.
    pub const fn destination(self) -> IpPrefix {
        self.destination
    }

    /// The same for packets of the sources `source` alone: `Some` if they are of the destination's family. Host bits are
    /// cleared.
    pub fn with_source(self, source: Option<IpPrefix>) -> Option<Self> {
        let is_its = |it: &IpPrefix| it.addr().is_ipv4() == self.destination.addr().is_ipv4();
        let source = source.map(IpPrefix::network);
        source.as_ref().is_none_or(is_its).then_some(Self { source, ..self })
    }

    /// Which sources' packets may take it; none for all.
    pub const fn source(self) -> Option<IpPrefix> {
        self.source
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
        (self.destination, self.way, self.source) == (other.destination, other.way, other.source)
    }

    /// What becomes of packets.
    pub const fn way(self) -> Way {
        self.way
    }

    /// The router, if it leads to one.
    pub const fn gateway(self) -> Option<IpAddr> {
        match self.way {
            Way::Via(gateway) => Some(gateway),
            Way::Ends(_) => None,
        }
    }
}

/// `default` or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Destination {
    Default,
    Prefix(IpPrefix),
}

impl Destination {
    /// The default's family is its gateway's.
    fn prefix(self, gateway: Option<IpAddr>) -> Option<IpPrefix> {
        let any = match gateway {
            Some(IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            None => {
                let Self::Prefix(prefix) = self else { return None };
                return Some(prefix);
            }
        };
        match self {
            Self::Prefix(prefix) => Some(prefix),
            Self::Default => IpPrefix::new(any, 0),
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
            Self::Prefix(prefix) => prefix.to_string(),
            Self::Default => "default".to_owned(),
        }
    }
}

serde_as_text!(Destination);

/// A route as it stands in the file.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
struct RouteTable {
    /// `default`, or a network.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "192.0.2.0/24"))]
    destination: Destination,
    /// The router; without one there is a `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "value::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    gateway: Option<IpAddr>,
    /// How packets end that take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<RouteEnd>,
    /// Which sources' packets may take it, as a network; without it all. Such routes come before those for all.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "value::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    source: Option<IpPrefix>,
    /// That of new connections over it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "value::option")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    congestion_control: Option<CongestionControl>,
}

impl TryFrom<RouteTable> for Route {
    type Error = String;

    fn try_from(table: RouteTable) -> Result<Self, String> {
        let RouteTable { destination, gateway, kind, source, congestion_control } = table;
        let refused = |value: &str, allowed: &str| Err(value::refusal(value, allowed));
        let Some(prefix) = destination.prefix(gateway) else {
            return refused("default", "without a gateway it has no family: 0.0.0.0/0 or ::/0");
        };
        let route = match (gateway, kind) {
            (Some(gateway), None) => {
                let route = Self::new(prefix, gateway);
                route.map(|it| it.with_congestion_control(congestion_control)).ok_or_else(|| {
                    let allowed = "a gateway is a unicast address of the destination's family";
                    value::refusal(&format!("{:?}", gateway.to_string()), allowed)
                })
            }
            (None, Some(end)) if congestion_control.is_none() => Ok(Self::ending(prefix, end)),
            (None, Some(end)) => refused(end.word(), "no connection goes there: no congestion_control"),
            (Some(_), Some(end)) => refused(end.word(), "a route that ends packets has no gateway"),
            (None, None) => refused("", "a gateway, or a kind: blackhole, unreachable or prohibit"),
        }?;
        let other = || source.map(|it| it.to_string()).unwrap_or_default();
        route.with_source(source).ok_or_else(|| {
            value::refusal(&format!("{:?}", other()), "a source is a network of the destination's family")
        })
    }
}

impl From<Route> for RouteTable {
    fn from(route: Route) -> Self {
        let Route { destination, way, source, congestion_control } = route;
        let (gateway, kind) = match way {
            Way::Via(gateway) => (Some(gateway), None),
            Way::Ends(end) => (None, Some(end)),
        };
        let is_default = destination.prefix_len() == 0 && gateway.is_some();
        let destination = if is_default { Destination::Default } else { Destination::Prefix(destination) };
        Self { destination, gateway, kind, source, congestion_control }
    }
}

impl core::fmt::Display for Route {
    /// `destination via gateway` with the congestion control if it has one, or how packets end.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.way {
            Way::Via(gateway) => write!(f, "{} via {gateway}", self.destination)?,
            Way::Ends(end) => write!(f, "{} {}", self.destination, end.word())?,
        }
        self.source.map_or(Ok(()), |source| write!(f, " from {source}"))?;
        self.congestion_control.map_or(Ok(()), |control| write!(f, " congestion_control {}", control.word()))
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::{RefOr, schema::Schema};

    impl utoipa::PartialSchema for super::Route {
        fn schema() -> RefOr<Schema> {
            super::RouteTable::schema()
        }
    }

    impl utoipa::ToSchema for super::Route {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            super::RouteTable::schemas(schemas);
        }
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
            gateway: "10.0.0.1".parse().ok(),
            kind: None,
            source: None,
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
    fn routes_of_sources_stand_beside_those_of_all() {
        let route = |more: &str| {
            let text = format!("destination = '10.9.0.0/16'\ngateway = '10.0.0.1'\n{more}");
            toml::from_str::<Route>(&text)
        };
        let (all, some) = (route("").unwrap(), route("source = '10.1.0.7/24'").unwrap());
        assert_eq!((all.source(), some.source()), (None, "10.1.0.0/24".parse().ok()));
        assert!(!all.is_same_way(some));
        assert_eq!(some.to_string(), "10.9.0.0/16 via 10.0.0.1 from 10.1.0.0/24");
        assert_eq!(toml::from_str::<Route>(&toml::to_string(&some).unwrap()).unwrap(), some);
        let error = route("source = 'fd00::/8'").unwrap_err().to_string();
        assert!(error.contains("a network of the destination's family"), "{error}");
    }

    #[test]
    fn host_bits_of_the_destination_do_not_count() {
        let gateway = "10.0.0.1".parse().unwrap();
        let a = Route::new("192.0.2.7/24".parse().unwrap(), gateway);
        let b = Route::new("192.0.2.0/24".parse().unwrap(), gateway);
        assert_eq!(a, b);
    }

    #[test]
    fn a_route_leads_to_a_router_or_ends_packets() {
        let table = |destination: &str, gateway: Option<&str>, kind| RouteTable {
            destination: Destination::read(destination).unwrap(),
            gateway: gateway.map(|it| it.parse().unwrap()),
            kind,
            source: None,
            congestion_control: None,
        };
        let end = Some(RouteEnd::Prohibit);
        let route = Route::try_from(table("192.0.2.7/24", None, end)).unwrap();
        assert_eq!(route, Route::ending("192.0.2.0/24".parse().unwrap(), RouteEnd::Prohibit));
        assert_eq!((route.gateway(), route.to_string().as_str()), (None, "192.0.2.0/24 prohibit"));
        let everything = Route::try_from(table("::/0", None, end)).unwrap();
        assert_eq!(Route::try_from(RouteTable::from(everything)), Ok(everything));
        for (wrong, allowed) in [
            (table("default", None, end), "0.0.0.0/0 or ::/0"),
            (table("192.0.2.0/24", Some("10.0.0.1"), end), "has no gateway"),
            (table("192.0.2.0/24", None, None), "a gateway, or a kind"),
            (
                RouteTable {
                    congestion_control: Some(CongestionControl::Bbr),
                    ..table("192.0.2.0/24", None, end)
                },
                "no congestion_control",
            ),
        ] {
            let error = Route::try_from(wrong).unwrap_err();
            assert!(error.contains(allowed), "{error}");
        }
    }
}
