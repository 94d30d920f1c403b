//! Changes that the engine cannot make in place: the MTU of a link that exists, and the interface of a VNIC that somebody has deleted.
//!
//! Called by `host.rs`. Rings and segments are laid out for the MTU that a link was made with, so the link and
//! what rests on it are taken down and made again, step by step like everything else. Netstacks, services and
//! namespaces stay; traffic pauses.

use firelane_model::{LinkName, Model};
use firelane_plan::{Action, Step, apply_to_model, plan};

/// The steps in place of `step`, if it cannot be carried out as it is.
pub(crate) fn instead_of(step: &Step, present: &Model) -> Option<Vec<Step>> {
    let name = with_another_mtu(&step.action)?;
    let mut after = present.clone();
    apply_to_model(&mut after, step);
    Some(by_way_of(present, name, &after))
}

/// The steps that make the link `name` again as it is, with what rests on it.
pub(crate) fn anew(name: &LinkName, present: &Model) -> Vec<Step> {
    by_way_of(present, name, present)
}

fn by_way_of(present: &Model, name: &LinkName, after: &Model) -> Vec<Step> {
    let without = without(present, name);
    let mut steps = plan(&without, present);
    steps.extend(plan(after, &without));
    steps
}

fn with_another_mtu(action: &Action) -> Option<&LinkName> {
    match action {
        Action::SetLink(name, from, to) if from.mtu != to.mtu => Some(name),
        Action::SetEtherstub(name, from, to) if from.mtu != to.mtu => Some(name),
        // A netstack is told how large its packets may be.
        Action::SetVnic(name, from, to) if from.mtu != to.mtu && to.netstack().is_none() => Some(name),
        _ => None,
    }
}

/// `model` without the link `name` and what rests on it.
fn without(model: &Model, name: &LinkName) -> Model {
    let mut rest = model.clone();
    rest.links.remove(name);
    rest.etherstubs.remove(name);
    rest.vnics.retain(|vnic, it| vnic != name && !it.over.is(name.as_str()));
    let Model { links, etherstubs, vnics, flows, netstacks, wires, .. } = &mut rest;
    let is_there = |name: &LinkName| {
        links.contains_key(name) || etherstubs.contains_key(name) || vnics.contains_key(name)
    };
    wires.retain(|_, it| it.ends.iter().all(is_there));
    flows.retain(|_, it| is_there(&it.link));
    for netstack in netstacks.values_mut() {
        let filter = netstack.packet_filter().without(|name| !vnics.contains_key(name));
        netstack.set_packet_filter(filter);
        netstack.addresses.retain(|address, _| vnics.contains_key(address.interface()));
        netstack.interfaces.retain(|name, _| vnics.contains_key(name));
        netstack.interfaces.values_mut().for_each(|it| it.forget_sources(|name| !vnics.contains_key(name)));
        netstack.interfaces.retain(|_, it| !it.is_default());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANTS: &str = include_str!("../../../examples/two-tenants.toml");

    #[test]
    fn another_mtu_takes_down_what_rests_on_the_link_and_nothing_else() {
        let present = Model::from_toml("test", TENANTS).unwrap();
        let wanted = TENANTS.replace("[etherstub.vswitch1]", "[etherstub.vswitch1]\nmtu = 1500");
        let wanted = Model::from_toml("test", &wanted).unwrap();
        let steps = plan(&wanted, &present);
        let [step] = steps.as_slice() else { panic!("{steps:?}") };
        let mut reached = present.clone();
        for step in instead_of(step, &present).unwrap() {
            let touched = step.to_string();
            assert!(!touched.contains("service") && !touched.contains("create netstack"), "{touched}");
            assert!(!touched.starts_with("set "), "{touched}");
            apply_to_model(&mut reached, &step);
            assert!(reached.validate().is_empty(), "after {touched}");
        }
        assert_eq!(reached, wanted);
    }

    #[test]
    fn a_wire_is_made_again_with_its_end() {
        let remade = |text: &str, end: &str| {
            let present = Model::from_toml("test", text).unwrap();
            let wanted = Model::from_toml("test", &text.replace(end, &format!("{end}\nmtu = 1500")));
            let step = plan(&wanted.unwrap(), &present).remove(0);
            let steps = instead_of(&step, &present).unwrap();
            steps.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let stubs = "[etherstub.a0]\n[etherstub.b0]\n[wire.w0]\nends = ['a0', 'b0']\n";
        let anew =
            ["delete wire w0", "delete etherstub b0", "create etherstub b0", "create wire w0 from a0 to b0"];
        assert_eq!(remade(stubs, "[etherstub.b0]"), anew);
        let vnic = "[etherstub.a0]\n[etherstub.b0]\n[vnic.v0]\nover = 'a0'\n[wire.w0]\nends = ['v0', 'b0']\n";
        let steps = remade(vnic, "[vnic.v0]");
        assert_eq!(steps[..2], ["delete wire w0", "delete vnic v0"]);
        assert_eq!(steps.last().map(String::as_str), Some("create wire w0 from v0 to b0"));
    }

    #[test]
    fn a_vnic_is_made_again_alone() {
        let present = Model::from_toml("test", TENANTS).unwrap();
        let wanted = TENANTS.replace("[vnic.bob0]", "[vnic.bob0]\nmtu = 1500");
        let wanted = Model::from_toml("test", &wanted).unwrap();
        let step = plan(&wanted, &present).remove(0);
        let steps = instead_of(&step, &present).unwrap();
        let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].starts_with("remove flow iperf") && lines[3].starts_with("add flow iperf"),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| !line.contains("alice")), "{lines:?}");
    }

    #[test]
    fn a_filter_lets_go_of_a_vnic_that_is_made_again_and_takes_it_back() {
        const AT: &str = "[netstack.web.addresses]";
        let rules = "filter = ['block in on web0 all', 'block out all']";
        let tenants = TENANTS.replace(AT, &format!("[netstack.web]\n{rules}\n{AT}"));
        let present = Model::from_toml("test", &tenants).unwrap();
        let wanted = tenants.replace("[etherstub.vswitch1]", "[etherstub.vswitch1]\nmtu = 1500");
        let wanted = Model::from_toml("test", &wanted).unwrap();
        let step = plan(&wanted, &present).remove(0);
        let mut reached = present.clone();
        let mut open = Vec::new();
        for step in instead_of(&step, &present).unwrap() {
            apply_to_model(&mut reached, &step);
            assert!(reached.validate().is_empty(), "after {step}");
            open.push(reached.netstacks["web"].filter.is_empty());
        }
        assert_eq!(reached, wanted);
        assert!(open.iter().all(|open| !open), "the other rule has to stay");
    }

    #[test]
    fn other_changes_are_made_in_place() {
        let present = Model::from_toml("test", TENANTS).unwrap();
        // A netstack is told of another MTU.
        for (vnic, said) in [("[vnic.bob0]", "maxbw = \"1G\""), ("[vnic.web0]", "mtu = 1500")] {
            let wanted = TENANTS.replace(vnic, &format!("{vnic}\n{said}"));
            let steps = plan(&Model::from_toml("test", &wanted).unwrap(), &present);
            assert_eq!(steps.len(), 1, "{said}");
            assert!(instead_of(&steps[0], &present).is_none(), "{said}");
        }
    }
}
