//! The laboratory as a configuration: a netstack with four services, and a kernel interface in a namespace beside it.

use std::net::IpAddr;

use firelane_model::{
    Address, Etherstub, LinkName, Model, Netstack, NetstackName, Prop, Protocol, Service, ServiceKind, Tap,
    Tunables, Vnic, VnicUser,
};
use firelane_units::{IpPrefix, Mtu, Port};

/// The network namespace of the kernel's side, and its interface there.
pub(super) const NAMESPACE: &str = "lab";
const IFNAME: &str = "lab0";
/// The virtual switch between the two, and the netstack's interface.
const SWITCH: &str = "labnet0";
const INTERFACE: &str = "stack0";
/// Which service listens where: the ports of RFC 862, 863 and 864, and that of iperf 2.
const SERVICES: [(&str, ServiceKind, u16); 4] = [
    ("echo", ServiceKind::Echo, 7),
    ("discard", ServiceKind::Discard, 9),
    ("chargen", ServiceKind::Chargen, 19),
    ("sink", ServiceKind::Sink, 5001),
];

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    pub(super) addresses: Vec<IpPrefix>,
    pub(super) peers: Vec<IpPrefix>,
    pub(super) mtu: Mtu,
    pub(super) tunables: Tunables,
}

impl Wishes {
    /// The whole configuration, or what is wrong with the wishes.
    pub(super) fn model(&self) -> Result<Model, String> {
        let mut model = Model::default();
        let own = |text: &str| format!("{text:?} is no name");
        let switch: LinkName = SWITCH.parse().map_err(|_| own(SWITCH))?;
        let netstack: NetstackName = NAMESPACE.parse().map_err(|_| own(NAMESPACE))?;
        model.etherstubs.insert(switch.clone(), Etherstub { mtu: self.mtu, ..Etherstub::default() });
        let tap = Tap {
            namespace: Some(NAMESPACE.parse().map_err(|_| own(NAMESPACE))?),
            ifname: None,
            addresses: self.peers()?,
            ..Tap::default()
        };
        for (name, user) in [(INTERFACE, VnicUser::Netstack(netstack.clone())), (IFNAME, VnicUser::Tap(tap))]
        {
            let name: LinkName = name.parse().map_err(|_| own(name))?;
            let vnic = Vnic { user, ..Vnic::new(switch.clone()) };
            model.vnics.insert(name, vnic);
        }
        for (name, kind, port) in SERVICES {
            let service = Service { kind, netstack: netstack.clone(), port: Port(port), root: "".into() };
            model.services.insert(name.parse().map_err(|_| own(name))?, service);
        }
        model.netstacks.insert(netstack, self.netstack()?);
        let faults = model.validate();
        if faults.is_empty() { Ok(model) } else { Err(told(&faults)) }
    }

    fn netstack(&self) -> Result<Netstack, String> {
        let mut netstack = Netstack { tunables: self.tunables.clone(), ..Netstack::default() };
        for (nth, &prefix) in self.addresses.iter().enumerate() {
            let address = Address::new(prefix).ok_or_else(|| format!("{prefix} is no address of a host"))?;
            let name = format!("{INTERFACE}/a{nth}");
            netstack.addresses.insert(name.parse().map_err(|_| format!("{name:?} is no name"))?, address);
        }
        Ok(netstack)
    }

    /// The kernel's addresses: those given, else for each of ours the one beside it.
    fn peers(&self) -> Result<Vec<IpPrefix>, String> {
        if !self.peers.is_empty() {
            return Ok(self.peers.clone());
        }
        let beside = |&prefix: &IpPrefix| {
            neighbour(prefix).ok_or_else(|| format!("{prefix} has no room for a peer: give --peer"))
        };
        self.addresses.iter().map(beside).collect()
    }
}

/// The address after `prefix`'s in its network, or the one before.
fn neighbour(prefix: IpPrefix) -> Option<IpPrefix> {
    let step = |by: i8| -> Option<IpAddr> {
        Some(match prefix.addr() {
            IpAddr::V4(it) => IpAddr::V4(u32::from(it).checked_add_signed(by.into())?.into()),
            IpAddr::V6(it) => IpAddr::V6(u128::from(it).checked_add_signed(by.into())?.into()),
        })
    };
    let beside =
        [1, -1].into_iter().filter_map(step).filter_map(|addr| IpPrefix::new(addr, prefix.prefix_len()));
    beside.into_iter().find(|it| it.network() == prefix.network() && is_host(*it))
}

/// Whether an IPv4 prefix's address is neither the network's own nor its broadcast address (RFC 1122 §3.2.1.3).
fn is_host(prefix: IpPrefix) -> bool {
    let IpAddr::V4(addr) = prefix.addr() else { return prefix.addr() != prefix.network().addr() };
    let hosts = u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
    hosts <= 1 || ![0, hosts].contains(&(u32::from(addr) & hosts))
}

/// A property as `PROTOCOL.NAME=VALUE`.
pub(super) fn set(tunables: &mut Tunables, text: &str) -> Result<(), String> {
    let form = || format!("--prop {text:?}: PROTOCOL.NAME=VALUE, such as tcp.congestion_control=bbr");
    let (left, value) = text.split_once('=').ok_or_else(form)?;
    let (protocol, name) = left.split_once('.').ok_or_else(form)?;
    let protocol = Protocol::from_word(protocol).ok_or_else(form)?;
    let prop = Prop::find(protocol, name).map_err(|error| told(&[error.into_field()]))?;
    tunables.set(prop, value).map_err(|error| format!("--prop {left}: {}", told(&[error.into_field()])))
}

fn told(faults: &[firelane_model::FieldError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(addresses: &[&str]) -> Wishes {
        Wishes {
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            peers: Vec::new(),
            mtu: Mtu::ETHERNET,
            tunables: Tunables::default(),
        }
    }

    #[test]
    fn a_peer_lies_beside_the_address_in_its_network() {
        for (own, beside) in [
            ("10.7.0.1/24", Some("10.7.0.2/24")),
            ("10.7.0.254/24", Some("10.7.0.253/24")),
            ("10.7.0.2/31", Some("10.7.0.3/31")),
            ("10.7.0.3/31", Some("10.7.0.2/31")),
            ("10.7.0.1/32", None),
            ("255.255.255.254/30", Some("255.255.255.253/30")),
            ("fd07::1/64", Some("fd07::2/64")),
            ("fd07::ffff:ffff:ffff:ffff/64", Some("fd07::ffff:ffff:ffff:fffe/64")),
        ] {
            let found = neighbour(own.parse().unwrap()).map(|it| it.to_string());
            assert_eq!(found.as_deref(), beside, "{own}");
        }
    }

    #[test]
    fn the_configuration_is_one_that_can_be_applied() {
        let mut wishes = wishes(&["10.7.0.1/24", "fd07::1/64"]);
        set(&mut wishes.tunables, "tcp.congestion_control=bbr").unwrap();
        let model = wishes.model().unwrap();
        assert_eq!(Model::from_toml("lab", &model.to_toml()).unwrap(), model);
        assert_eq!((model.services.len(), model.addresses().count()), (4, 2));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut tunables = Tunables::default();
        for (text, wanted) in [
            ("tcp", "--prop \"tcp\": PROTOCOL.NAME=VALUE"),
            ("sctp.x=1", "--prop \"sctp.x=1\": PROTOCOL.NAME=VALUE"),
            ("ipv4.tttl=9", "ipv4 has "),
            ("tcp.sack=yes", "never,passive,active"),
        ] {
            let said = set(&mut tunables, text).unwrap_err();
            assert!(said.contains(wanted), "{said}");
        }
        assert!(wishes(&["10.7.0.1/32"]).model().unwrap_err().contains("give --peer"));
        let mut many = wishes(&["10.7.0.1/24"]);
        many.mtu = Mtu::new(65535).unwrap();
        assert!(many.model().unwrap_err().contains("etherstub.labnet0.mtu"));
    }
}
