//! What each change does to a model, or which status word says that it cannot.
//!
//! The checks are those of the Solaris commands, in their order and with their words. Whatever they let through
//! is still validated as a whole, so no change can leave a model that a restart would refuse.

use std::collections::BTreeMap;

use firelane_model::{
    AddrObjName, Address, Cpus, FLOW_KINDS, FLOW_RANGE_PAIRS, FactorySlot, FieldError, Flow, FlowName,
    LinkClass, LinkName, Mac, Model, NO_WIRE, Netstack, NetstackName, Over, Transport, Vnic, VnicUser,
};

use firelane_units::VlanId;

use crate::change::default_netstack;
use crate::filter::{RULE_WORDS, no_netstack};
use crate::pools::POOL_WORDS;
use crate::ways::ROUTE_WORDS;
use crate::{
    ApiError, Change, PropChange, Status, VnicChange, addr_props, enabling, if_props, iptun, props,
    protocol_props, wires,
};

/// Makes `change` on `model`; on an error the model is left half changed and must be thrown away.
pub(crate) fn edit(model: &mut Model, change: &Change) -> Result<(), ApiError> {
    match change {
        Change::CreateEtherstub(name, etherstub) => {
            free_name(model, name)?;
            model.etherstubs.insert(name.clone(), etherstub.clone());
        }
        Change::DeletePhys(name) => delete_phys(model, name)?,
        Change::DeleteEtherstub(name) => delete_etherstub(model, name)?,
        Change::CreateWire(name, wire) => wires::create(model, name, wire)?,
        Change::ModifyWire(name, side, changes) => wires::modify(model, name, *side, changes)?,
        Change::DeleteWire(name) => wires::delete(model, name)?,
        Change::CreateVnic(name, vnic) => create_vnic(model, name, vnic)?,
        Change::ModifyVnic(name, change) => modify_vnic(model, name, change)?,
        Change::DeleteVnic(name) => delete_vnic(model, name)?,
        Change::CreateIptun(name, vnic) => iptun::create(model, name, vnic)?,
        Change::ModifyIptun(name, change) => iptun::modify(model, name, change)?,
        Change::DeleteIptun(name) => iptun::delete(model, name)?,
        Change::RenameLink(from, to) => rename_link(model, from, to)?,
        Change::SetLinkProps(name, changes) => set_link_props(model, name, changes)?,
        Change::AddFlow(name, flow) => add_flow(model, name, flow)?,
        Change::RemoveFlowsOf(link) => remove_flows_of(model, link)?,
        Change::RemoveFlow(name) => drop(model.flows.remove(name).ok_or(Status::NotFound)?),
        Change::SetFlowProps(name, changes) => {
            let flow = model.flows.get_mut(name).ok_or(Status::NotFound)?;
            changes.iter().try_for_each(|change| props::set_flow_prop(flow, change))?;
            let faults = model.validate();
            has_device(&faults)?;
            kept_promises(&faults, name.as_str(), changes)?;
        }
        Change::SetNetstackProps(..)
        | Change::ChangeRoutes(..)
        | Change::ChangeFilter(..)
        | Change::ChangeNat(..)
        | Change::SetNatLimits(..)
        | Change::ChangePools(..) => edit_netstack(model, change)?,
        Change::CreateIf(name, netstack) => create_if(model, name, netstack)?,
        Change::DeleteIf(name) => delete_if(model, name)?,
        Change::CreateAddr(name, address) => create_addr(model, name, *address)?,
        Change::DeleteAddr(name) => {
            let removed = model.netstacks.values_mut().find_map(|it| it.addresses.remove(name));
            removed.ok_or_else(|| ApiError::new(Status::NoAddrObj, "addrobj", name, ""))?;
        }
        Change::SetAccounting(change) => change.follow(&mut model.daemon.accounting),
        Change::MarkAddr(name, up) => enabling::mark(model, name, *up)?,
        // What is kept of them is asked for, too (`enabling::enabled`).
        Change::EnableIf(_) | Change::DisableIf(_) | Change::EnableAddr(_) | Change::DisableAddr(_) => {
            return Err(ApiError::new(Status::IpNotSupported, "temporary", false, "true"));
        }
        Change::SetIfProps(name, changes) => {
            model.vnics.get(name).and_then(Vnic::netstack).ok_or(Status::NoIf)?;
            changes.iter().try_for_each(|change| if_props::set(model, name, change))?;
        }
        Change::SetAddrProps(name, changes) => {
            let address = model.netstacks.values_mut().find_map(|it| it.addresses.get_mut(name));
            let address = address.ok_or_else(|| ApiError::new(Status::NoAddrObj, "addrobj", name, ""))?;
            changes.iter().try_for_each(|change| addr_props::set(address, change))?;
        }
    }
    model.validate().into_iter().next().map_or(Ok(()), |fault| Err(refused(fault)))
}

/// A fault of the whole model in the original's words.
fn refused(fault: FieldError) -> ApiError {
    let is_many = [FLOW_KINDS, FLOW_RANGE_PAIRS].contains(&&*fault.allowed);
    let error = ApiError::from(fault);
    if is_many { ApiError { status: Status::TooMany, ..error } } else { error }
}

/// What is said of a netstack as a whole.
fn edit_netstack(model: &mut Model, change: &Change) -> Result<(), ApiError> {
    match change {
        Change::SetNetstackProps(name, changes) => {
            let allowed = || ApiError::new(Status::NotFound, "netstack", name, "");
            let tunables = &mut model.netstacks.get_mut(name).ok_or_else(allowed)?.tunables;
            changes.iter().try_for_each(|change| protocol_props::set(tunables, change))?;
            if let Some(fault) = tunables.contradictions().into_iter().next() {
                return Err(ApiError { status: Status::OutOfRange, ..fault.into() });
            }
        }
        Change::ChangeRoutes(name, change) => {
            let netstack = model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?;
            change.follow(netstack).refusal("routes", ROUTE_WORDS)?;
        }
        Change::ChangeFilter(name, change) => {
            let netstack = model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?;
            change.follow(&mut netstack.filter).refusal("filter", RULE_WORDS)?;
        }
        Change::ChangeNat(name, change) => {
            let netstack = model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?;
            change.follow(&mut netstack.nat).refusal("nat", RULE_WORDS)?;
        }
        Change::SetNatLimits(name, changes) => {
            let limits = &mut model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?.nat_limits;
            changes.iter().try_for_each(|it| limits.set(&it.name, it.value.as_deref()))?;
        }
        Change::ChangePools(name, change) => {
            let netstack = model.netstacks.get_mut(name).ok_or_else(|| no_netstack(name))?;
            change.follow(&mut netstack.pools).refusal("pools", POOL_WORDS)?;
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn free_name(model: &Model, name: &LinkName) -> Result<(), ApiError> {
    match model.class_of(name.as_str()) {
        Some(_) => Err(Status::Exists.into()),
        None => Ok(()),
    }
}

/// A link cannot go while it has flows or VNICs.
pub(crate) fn unused(model: &Model, name: &LinkName) -> Result<(), ApiError> {
    if let Some((flow, _)) = model.flows_on(name.as_str()).next() {
        return Err(ApiError::new(Status::LinkHasFlows, "flow", flow, ""));
    }
    if let Some((wire, _)) = model.wire_of(name.as_str()) {
        return Err(ApiError::new(Status::LinkBusy, "wire", wire, ""));
    }
    match model.vnics_over(name.as_str()).next() {
        Some((vnic, _)) => Err(ApiError::new(Status::LinkBusy, "vnic", vnic, "")),
        None => Ok(()),
    }
}

/// Why `delete-phys` is refused for a link whose device is there.
pub fn device_is_there(name: &LinkName) -> ApiError {
    let allowed = "a link whose interface has gone; firelane apply takes away one that is not in its file";
    ApiError::new(Status::LinkBusy, "link", name, allowed)
}

/// Whether its device is there is known to the host alone.
fn delete_phys(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    match model.class_of(name.as_str()) {
        None => return Err(Status::NotFound.into()),
        Some(LinkClass::Phys) => unused(model, name)?,
        Some(_) => return Err(Status::LinkInvalid.into()),
    }
    model.links.remove(name);
    Ok(())
}

fn delete_etherstub(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    match model.class_of(name.as_str()) {
        None => return Err(Status::NotFound.into()),
        Some(LinkClass::Etherstub) => unused(model, name)?,
        Some(_) => return Err(Status::LinkInvalid.into()),
    }
    model.etherstubs.remove(name);
    Ok(())
}

fn create_vnic(model: &mut Model, name: &LinkName, vnic: &Vnic) -> Result<(), ApiError> {
    free_name(model, name)?;
    let over = vnic
        .over
        .link()
        .filter(|over| matches!(model.class_of(over.as_str()), Some(LinkClass::Phys | LinkClass::Etherstub)));
    let Some(over) = over else {
        return Err(ApiError::new(Status::LinkInvalid, "over", &vnic.over, "a link or an etherstub"));
    };
    let lower = model.mtu_of(over.as_str());
    if let Some(mtu) = vnic.mtu.filter(|&mtu| Some(mtu) > lower) {
        let allowed = lower.map(|lower| format!("576 to {lower}")).unwrap_or_default();
        return Err(ApiError::new(Status::BadMtu, "mtu", mtu, allowed));
    }
    let taken = |(_, other): (&LinkName, &Vnic)| other.mac == vnic.mac && other.vlan == vnic.vlan;
    if let Mac::Factory(slot) = vnic.mac {
        has_slot(model, over, slot)?;
    }
    if let Mac::Fixed(mac) = vnic.mac
        && model.vnics_over(over.as_str()).any(taken)
    {
        return Err(ApiError::new(Status::MacInUse, "mac", mac, ""));
    }
    model.vnics.insert(name.clone(), vnic.clone());
    has_device(&model.validate())
}

/// What the device offers is known to the host alone; whether there is one that could, and who has the slot, to the model.
fn has_slot(model: &Model, over: &LinkName, slot: Option<FactorySlot>) -> Result<(), ApiError> {
    if !model.has_factory(over.as_str()) {
        return Err(Status::NoFactoryMac.into());
    }
    let is_same = |(_, other): (&LinkName, &Vnic)| other.mac == Mac::Factory(slot);
    match slot.is_some() && model.vnics_over(over.as_str()).any(is_same) {
        true => Err(Status::FactoryMacUsed.into()),
        false => Ok(()),
    }
}

/// The VNIC is taken out and made again with what changes, so that it is checked as a new one is.
fn modify_vnic(model: &mut Model, name: &LinkName, change: &VnicChange) -> Result<(), ApiError> {
    let is_vnic = matches!(model.class_of(name.as_str()), Some(LinkClass::Vnic | LinkClass::Vlan));
    let Some(mut vnic) = is_vnic.then(|| model.vnics.remove(name)).flatten() else {
        return Err(model.class_of(name.as_str()).map_or(Status::NotFound, |_| Status::LinkInvalid).into());
    };
    if let Some(over) = &change.over {
        vnic.over = Over::Link(over.clone());
    }
    vnic.mac = change.mac.unwrap_or(vnic.mac);
    match change.vlan {
        None => {}
        Some(0) if !vnic.is_vlan => vnic.vlan = None,
        Some(id) => {
            let vlan = VlanId::new(id);
            let wrong = || ApiError::new(Status::VidInvalid, "vlan", id, props::vlan_ids(&vnic));
            vnic.vlan = Some(vlan.ok_or_else(wrong)?);
        }
    }
    create_vnic(model, name, &vnic)
}

/// A link's name stands wherever it is referred to. A link with an IP interface keeps its name, because the
/// interface's name and those of its addresses are the same.
fn rename_link(model: &mut Model, from: &LinkName, to: &LinkName) -> Result<(), ApiError> {
    model.class_of(from.as_str()).ok_or(Status::NotFound)?;
    free_name(model, to)?;
    if let Some(link) = model.links.remove(from) {
        model.links.insert(to.clone(), link);
    } else if let Some(stub) = model.etherstubs.remove(from) {
        model.etherstubs.insert(to.clone(), stub);
    } else if let Some(mut vnic) = model.vnics.remove(from) {
        match &mut vnic.user {
            VnicUser::Netstack(netstack) => {
                return Err(ApiError::new(Status::LinkBusy, "netstack", netstack, ""));
            }
            // The kernel's interface keeps the name under which its programs know it.
            VnicUser::Tap(tap) => {
                let kept = tap.ifname(from).to_owned();
                tap.ifname = kept.parse().ok().filter(|_| kept != to.as_str());
            }
            VnicUser::Memif(_) | VnicUser::Nobody => {}
        }
        model.vnics.insert(to.clone(), vnic);
    }
    wires::rename_end(model, from, to);
    let above = model.vnics.values_mut().filter(|vnic| vnic.over.is(from.as_str()));
    above.for_each(|vnic| vnic.over = Over::Link(to.clone()));
    model.flows.values_mut().filter(|flow| flow.link == *from).for_each(|flow| flow.link = to.clone());
    Ok(())
}

fn delete_vnic(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    let vnic = match model.class_of(name.as_str()) {
        None => return Err(Status::NotFound.into()),
        Some(LinkClass::Vnic | LinkClass::Vlan) => &model.vnics[name],
        Some(_) => return Err(Status::LinkInvalid.into()),
    };
    if let Some(netstack) = vnic.netstack() {
        return Err(ApiError::new(Status::LinkBusy, "netstack", netstack, ""));
    }
    unused(model, name)?;
    model.vnics.remove(name);
    Ok(())
}

/// Lanes and rings are those of a device, or of a service; who has none is refused in the original's words.
fn has_device(faults: &[FieldError]) -> Result<(), ApiError> {
    if let Some(fault) = faults.iter().find(|fault| fault.field.ends_with(".cpus")) {
        return Err(ApiError::new(Status::NotSupported, "cpus", &fault.value, &*fault.allowed));
    }
    let is_ring = |fault: &&FieldError| [".rxrings", ".txrings"].iter().any(|end| fault.field.ends_with(end));
    let Some(fault) = faults.iter().find(is_ring) else { return Ok(()) };
    let field = fault.field.rsplit('.').next().unwrap_or_default();
    Err(ApiError::new(Status::HwRings, field, &fault.value, &*fault.allowed))
}

fn set_link_props(model: &mut Model, name: &LinkName, changes: &[PropChange]) -> Result<(), ApiError> {
    model.class_of(name.as_str()).ok_or(Status::NotFound)?;
    for change in changes {
        let vnic = model.vnics.get(name).filter(|vnic| vnic.over.tunnel().is_none());
        let netstack = vnic.and_then(Vnic::netstack).cloned();
        match netstack.and_then(|netstack| model.netstacks.get_mut(&netstack)) {
            // Connections are the netstack's, by whichever of its VNICs they come and go.
            Some(netstack) if change.name == "cpus" => {
                netstack.cpus = props::read_cpus(change.value.as_deref())?;
            }
            _ => props::slots(model, name.as_str()).ok_or(Status::NotFound)?.set(change)?,
        }
    }
    // An MTU is bounded from below by what rests on the link, and from above by what it rests on.
    let faults = model.validate();
    if let Some(Mac::Factory(slot)) = model.vnics.get(name).map(|vnic| vnic.mac)
        && faults.iter().any(|fault| fault.field.ends_with(".mac"))
    {
        let over = model.vnics[name].over.link();
        let has_factory = over.is_some_and(|over| model.has_factory(over.as_str()));
        let status = if has_factory { Status::FactoryMacUsed } else { Status::NoFactoryMac };
        let value = slot.map_or_else(|| "factory".to_owned(), |it| format!("factory/{it}"));
        return Err(ApiError::new(status, "mac-address", value, ""));
    }
    if let Some(fault) = faults.iter().find(|fault| fault.field.ends_with(".mac")) {
        return Err(ApiError::new(Status::MacInUse, "mac-address", &fault.value, ""));
    }
    has_device(&faults)?;
    kept_promises(&faults, name.as_str(), changes)?;
    let Some(fault) = faults.into_iter().find(|fault| fault.field.ends_with(".mtu")) else { return Ok(()) };
    let own = fault.field.ends_with(&format!(".{name}.mtu"));
    let value = changes.iter().find(|change| change.name == "mtu").and_then(|change| change.value.clone());
    let allowed = if own { fault.allowed } else { fault.to_string() };
    Err(ApiError::new(Status::BadMtu, "mtu", value.unwrap_or_default(), allowed))
}

/// A guarantee that cannot be kept is told as what is wrong with the property of `name` that was to be changed.
fn kept_promises(faults: &[FieldError], name: &str, changes: &[PropChange]) -> Result<(), ApiError> {
    let is_promise = |fault: &&FieldError| [".minbw", ".maxbw"].iter().any(|end| fault.field.ends_with(end));
    let Some(fault) = faults.iter().find(is_promise) else { return Ok(()) };
    let changed = |property: &str| changes.iter().find(|change| change.name == property);
    // A limit above is another one's, and less than what is guaranteed.
    let own = ["minbw", "maxbw"].into_iter().find(|end| fault.field.ends_with(&format!(".{name}.{end}")));
    let told = changed(own.unwrap_or("minbw")).or_else(|| changed("minbw")).or_else(|| changed("maxbw"));
    let (property, value) = told.map_or(("", None), |it| (it.name.as_str(), it.value.clone()));
    Err(ApiError::new(Status::OutOfRange, property, value.unwrap_or_default(), fault.to_string()))
}

fn remove_flows_of(model: &mut Model, link: &LinkName) -> Result<(), ApiError> {
    model.class_of(link.as_str()).ok_or(Status::NotFound)?;
    model.flows.retain(|_, flow| flow.link != *link);
    Ok(())
}

fn add_flow(model: &mut Model, name: &FlowName, flow: &Flow) -> Result<(), ApiError> {
    if model.flows.contains_key(name) {
        return Err(Status::Exists.into());
    }
    if model.class_of(flow.link.as_str()).is_none() {
        return Err(ApiError::new(Status::LinkInvalid, "link", &flow.link, ""));
    }
    if !model.carries_flows(flow.link.as_str()) {
        return Err(ApiError::new(Status::NotSupported, "link", &flow.link, NO_WIRE));
    }
    let matching = &flow.matching;
    if matching.is_empty() {
        let allowed = format!("at least one of {}", firelane_model::FlowMatch::ATTRIBUTES.join(", "));
        return Err(ApiError::new(Status::BadArg, "attributes", "", allowed));
    }
    let ports = matching.local_port.is_some() || matching.remote_port.is_some();
    if ports && !matching.transport.is_some_and(Transport::has_ports) {
        return Err(ApiError::new(Status::PortNeedsTransport, "transport", "", "tcp, udp or sctp"));
    }
    if let (Some(local), Some(remote)) = (matching.local_ip, matching.remote_ip)
        && local.addr().is_ipv4() != remote.addr().is_ipv4()
    {
        return Err(ApiError::new(Status::BadIp, "remote_ip", remote, "of the same family as local_ip"));
    }
    let canonical = matching.canonical();
    let identical = |(_, other): &(&FlowName, &Flow)| other.matching.canonical() == canonical;
    if let Some((other, _)) = model.flows_on(flow.link.as_str()).find(identical) {
        return Err(ApiError::new(Status::FlowIdentical, "flow", other, ""));
    }
    model.flows.insert(name.clone(), flow.clone());
    if flow.cpus.is_empty() { Ok(()) } else { has_device(&model.validate()) }
}

/// Why IP has no interface of this name. In the original each link is one, here its frames are for the VNICs over it.
fn no_vnic(model: &Model, name: &str) -> ApiError {
    if model.class_of(name).is_none() {
        return Status::NoDatalink.into();
    }
    let free = (0..).map(|nth| format!("vnic{nth}")).find(|it| model.class_of(it).is_none());
    let vnic = free.unwrap_or_default();
    let allowed = format!("IP is on VNICs; `dladm create-vnic -l {name} {vnic}` makes one");
    ApiError::new(Status::IpNotSupported, "", name, allowed)
}

pub(crate) fn create_if(model: &mut Model, name: &LinkName, netstack: &NetstackName) -> Result<(), ApiError> {
    let wire = model.wire_of(name.as_str()).map(|(wire, _)| wire.clone());
    let Some(vnic) = model.vnics.get_mut(name) else { return Err(no_vnic(model, name.as_str())) };
    if let Some(wire) = wire {
        return Err(ApiError::new(Status::IfInUse, "wire", wire, ""));
    }
    match &vnic.user {
        VnicUser::Nobody => {
            iptun::check_ends(vnic)?;
            vnic.user = VnicUser::Netstack(netstack.clone());
        }
        VnicUser::Netstack(_) => return Err(Status::IfExists.into()),
        VnicUser::Tap(tap) => {
            return Err(ApiError::new(Status::IfInUse, "tap", tap.ifname(name), ""));
        }
        VnicUser::Memif(memif) => return Err(ApiError::new(Status::IfInUse, "memif", &memif.socket, "")),
    }
    // What was said of the VNIC while it had no user is the netstack's from here on.
    let cpus = core::mem::take(&mut vnic.cpus);
    let netstack = model.netstacks.entry(netstack.clone()).or_default();
    if !cpus.is_empty() {
        netstack.cpus = cpus;
    }
    iptun::check(model, name)
}

pub(crate) fn delete_if(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    let vnic = model.vnics.get_mut(name).ok_or(Status::NoIf)?;
    let VnicUser::Netstack(of) = &vnic.user else { return Err(Status::NoIf.into()) };
    let of = of.clone();
    vnic.user = VnicUser::Nobody;
    if let Some(netstack) = model.netstacks.get_mut(&of) {
        netstack.addresses.retain(|addrobj, _| addrobj.interface() != name.as_str());
        netstack.interfaces.remove(name);
        netstack.interfaces.values_mut().for_each(|it| it.forget_sources(|source| source == name));
        netstack.interfaces.retain(|_, it| !it.is_default());
    }
    // `create_if` makes a netstack that is not there, so who takes that back leaves nothing behind.
    let is_used = model.vnics.values().any(|vnic| vnic.netstack() == Some(&of))
        || model.services.values().any(|service| service.netstack == of);
    let Some(rest) = model.netstacks.get(&of).filter(|_| !is_used) else { return Ok(()) };
    if (Netstack { cpus: Cpus::NONE, ..rest.clone() }) == Netstack::default() {
        let cpus = model.netstacks.remove(&of).map(|it| it.cpus).unwrap_or_default();
        if let Some(vnic) = model.vnics.get_mut(name).filter(|vnic| vnic.over.tunnel().is_none()) {
            vnic.cpus = cpus;
        }
    }
    Ok(())
}

/// As in the original (dhcpagent's `make_primary`), the interface that is said to be the primary one last is it.
fn resign(addresses: &mut BTreeMap<AddrObjName, Address>) {
    for address in addresses.values_mut() {
        if let Address::Dhcp(it) = address {
            it.primary = false;
        }
    }
}

fn create_addr(model: &mut Model, name: &AddrObjName, address: Address) -> Result<(), ApiError> {
    let known = model.vnics.get_key_value(name.interface());
    let (link, vnic) = known.ok_or_else(|| no_vnic(model, name.interface()))?;
    let netstack = match &vnic.user {
        VnicUser::Netstack(netstack) => netstack.clone(),
        VnicUser::Nobody => {
            let link = link.clone();
            create_if(model, &link, &default_netstack())?;
            default_netstack()
        }
        VnicUser::Tap(tap) => return Err(ApiError::new(Status::IfInUse, "tap", tap.ifname(link), "")),
        VnicUser::Memif(memif) => return Err(ApiError::new(Status::IfInUse, "memif", &memif.socket, "")),
    };
    let addresses = &mut model.netstacks.entry(netstack).or_default().addresses;
    if addresses.contains_key(name) {
        return Err(Status::AddrObjExists.into());
    }
    let is_same = |other_name: &AddrObjName, other: &Address| match address.addr() {
        Some(addr) => other.addr() == Some(addr),
        None => other.kind() == address.kind() && other_name.interface() == name.interface(),
    };
    if let Some((other, _)) = addresses.iter().find(|(other_name, other)| is_same(other_name, other)) {
        return Err(ApiError::new(Status::AddrInUse, "addrobj", other, ""));
    }
    if matches!(address, Address::Dhcp(it) if it.primary) {
        resign(addresses);
    }
    addresses.insert(name.clone(), address);
    Ok(())
}
