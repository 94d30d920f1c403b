//! Addresses that nobody on the switch has: one of each subnet that the program's netstack is on.
//!
//! Called by `aside.rs`. Known are the configuration's addresses and gateways on that switch, and the neighbours that
//! the netstack has met; a host behind an uplink that never spoke is not known, which is what `-a` is for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use firelane_api::AddrInfo;
use firelane_model::{Address, LinkName, Model, NetstackName, Vnic};
use firelane_units::IpPrefix;

/// How many addresses of a subnet are tried, from its end.
const TRIES: u32 = 1 << 16;

/// One free address of each subnet of `netstack` on `vnic`; the highest of its last 65,536.
pub(super) fn free(
    model: &Model,
    netstack: &NetstackName,
    vnic: &LinkName,
    neighbours: impl IntoIterator<Item = IpAddr>,
) -> Vec<IpPrefix> {
    let mut taken = taken(model, vnic);
    taken.extend(neighbours);
    let mut found: Vec<IpPrefix> = Vec::new();
    for subnet in subnets(model, netstack, vnic) {
        if !found.iter().any(|it| it.network() == subnet.network()) {
            found.extend(highest(subnet, &taken));
        }
    }
    found
}

/// Who has an address on the switch of `vnic`, in its VLAN: one of the `known` address objects, or the VNIC of a TAP.
pub(super) fn holder(model: &Model, known: &[AddrInfo], vnic: &LinkName, address: IpAddr) -> Option<String> {
    let like = model.vnics.get(vnic)?;
    let beside = || {
        model.vnics_over(like.over.link().map_or("", LinkName::as_str)).filter(|(_, it)| it.vlan == like.vlan)
    };
    let is_beside = |interface: &str| beside().any(|(name, _)| name.as_str() == interface);
    let has = |it: &AddrInfo| it.addr.parse::<IpPrefix>().is_ok_and(|it| it.addr() == address);
    let object = known.iter().find(|it| has(it) && is_beside(it.name.interface()));
    let has = |vnic: &Vnic| vnic.tap().is_some_and(|tap| tap.addresses.iter().any(|it| it.addr() == address));
    let tap = || beside().find(|(_, vnic)| has(vnic)).map(|(name, _)| format!("vnic={name}"));
    object.map(|it| format!("addrobj={}", it.name)).or_else(tap)
}

fn subnets<'a>(
    model: &'a Model,
    netstack: &NetstackName,
    vnic: &'a LinkName,
) -> impl Iterator<Item = IpPrefix> + use<'a> {
    let addresses = model.netstacks.get(netstack).into_iter().flat_map(|it| &it.addresses);
    let own = addresses.filter(|(name, _)| name.interface() == vnic.as_str());
    own.filter_map(|(_, address)| match address {
        Address::Static(it) => Some(it.prefix()),
        Address::Addrconf(_) | Address::Dhcp(_) => None,
    })
}

/// Every address that the configuration gives to somebody on the switch of `vnic`.
fn taken(model: &Model, vnic: &LinkName) -> BTreeSet<IpAddr> {
    let Some(over) = model.vnics.get(vnic).and_then(|it| it.over.link()) else { return BTreeSet::new() };
    let beside: Vec<_> = model.vnics_over(over.as_str()).collect();
    let taps = beside.iter().filter_map(|(_, it)| it.tap()).flat_map(|tap| &tap.addresses);
    let is_beside = |interface: &str| beside.iter().any(|(name, _)| name.as_str() == interface);
    let stacks = model.addresses().filter(|(_, name, _)| is_beside(name.interface()));
    let gateways = model.netstacks.values().flat_map(|it| &it.routes).filter_map(|route| route.gateway());
    let stacks = stacks.filter_map(|(_, _, address)| address.addr());
    taps.map(|prefix| prefix.addr()).chain(stacks).chain(gateways).collect()
}

/// The highest address of `subnet` that a host may have and that is not `taken`.
fn highest(subnet: IpPrefix, taken: &BTreeSet<IpAddr>) -> Option<IpPrefix> {
    let (len, network) = (subnet.prefix_len(), subnet.network().addr());
    let at: Box<dyn Fn(u32) -> IpAddr> = match network {
        IpAddr::V4(first) => Box::new(move |n| IpAddr::V4((first.to_bits() | n).into())),
        IpAddr::V6(first) => Box::new(move |n| IpAddr::V6((first.to_bits() | u128::from(n)).into())),
    };
    let bits = if network.is_ipv4() { 32 - len } else { 128 - len }.min(31);
    // The first address is the network's or the routers' (RFC 4291 §2.6.1), IPv4's last is everybody's.
    let end = (1u32 << bits).saturating_sub(u32::from(network.is_ipv4()));
    let host = (1..end).rev().take(TRIES as usize).map(at).find(|address| !taken.contains(address))?;
    IpPrefix::new(host, len)
}

#[cfg(test)]
mod tests {
    use firelane_api::{Api, Stub, Which};

    use super::*;

    const HOST: &str = r#"
        [etherstub.vswitch1]
        [etherstub.vswitch2]
        [vnic.web0]
        over = "vswitch1"
        netstack = "web"
        [vnic.web1]
        over = "vswitch2"
        netstack = "web"
        [vnic.alice0]
        over = "vswitch1"
        tap = { namespace = "alice", addresses = ["10.0.0.254/24", "fd00::ffff/112"] }
        [netstack.web]
        routes = [{ destination = "default", gateway = "10.0.0.253" }]
        [netstack.web.addresses]
        "web0/v4" = "10.0.0.10/24"
        "web0/more" = "10.0.0.11/24"
        "web0/v6" = "fd00::10/112"
        "web1/v4" = "10.9.0.1/31"
    "#;

    fn found(vnic: &str, neighbours: &[&str]) -> Vec<String> {
        let model = Model::from_toml("test", HOST).unwrap();
        let neighbours = neighbours.iter().map(|it| it.parse().unwrap());
        free(&model, &"web".parse().unwrap(), &vnic.parse().unwrap(), neighbours)
            .iter()
            .map(|it| it.to_string())
            .collect()
    }

    #[test]
    fn the_highest_that_nobody_has() {
        assert_eq!(found("web0", &[]), ["10.0.0.252/24", "fd00::fffe/112"]);
        assert_eq!(
            found("web0", &["10.0.0.252", "10.0.0.251", "fd00::1"]),
            ["10.0.0.250/24", "fd00::fffe/112"]
        );
    }

    #[test]
    fn who_has_an_address_is_found_on_the_same_switch_and_vlan() {
        let text = format!(
            "{HOST}[vnic.apart0]\nover = 'vswitch1'\nvlan = 7\ntap = {{ addresses = ['10.0.0.7/24'] }}\n"
        );
        let model = Model::from_toml("test", &text).unwrap();
        let known = Stub::new(model.clone(), |_, _| Vec::new()).addrs(Which::Active).unwrap();
        let holder = |vnic: &str, address: &str| {
            holder(&model, &known, &vnic.parse().unwrap(), address.parse().unwrap()).unwrap_or_default()
        };
        assert_eq!(holder("web0", "10.0.0.10"), "addrobj=web0/v4");
        assert_eq!(holder("web0", "10.0.0.254"), "vnic=alice0");
        assert_eq!(holder("web0", "fd00::ffff"), "vnic=alice0");
        assert_eq!(
            [holder("web0", "10.0.0.12"), holder("web0", "10.0.0.7"), holder("web1", "10.0.0.10")],
            [""; 3]
        );
    }

    #[test]
    fn a_subnet_without_room_gives_none() {
        assert_eq!(found("web1", &[]), [""; 0], "a link of two ends has no third address");
        let model = Model::from_toml("test", HOST).unwrap();
        let all: Vec<IpAddr> = (1..=254).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let rest = free(&model, &"web".parse().unwrap(), &"web0".parse().unwrap(), all);
        assert_eq!(rest.len(), 1, "{rest:?}");
    }
}
