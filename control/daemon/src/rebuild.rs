//! Changes that the engine cannot make in place: another MTU of a VNIC's device, or of a wire, and the interface of a VNIC that
//! somebody has deleted.
//!
//! Called by `host.rs`. Rings and segments are laid out for the MTU that a device was made with, so it is taken down with
//! its VNIC and made again, step by step like everything else. Links, and the VNICs of netstacks, stay with all connections: they are
//! told how large their packets may be.

use std::collections::BTreeSet;

use firelane_model::{LinkName, Model, VnicUser};
use firelane_plan::{Action, Step, apply_to_model, plan};

/// The steps in place of `step`, if it cannot be carried out as it is.
pub(crate) fn instead_of(step: &Step, present: &Model) -> Option<Vec<Step>> {
    let resized = with_another_mtu(&step.action, present)?;
    let mut after = present.clone();
    apply_to_model(&mut after, step);
    let is_rewired = present.wires.values().any(|it| present.wire_mtu(it) != after.wire_mtu(it));
    (is_rewired || !resized.is_empty()).then(|| by_way_of(present, &resized, &after))
}

/// The steps that make the VNIC `name` again as it is, with what rests on it.
pub(crate) fn anew(name: &LinkName, present: &Model) -> Vec<Step> {
    by_way_of(present, &BTreeSet::from([name.clone()]), present)
}

/// What the steps in place of one make again, in words.
pub(crate) fn remade(steps: &[Step]) -> Vec<String> {
    let words = steps.iter().filter_map(|step| match &step.action {
        Action::CreateVnic(name, _) => Some(format!("made anew: vnic {name}")),
        Action::CreateWire(name, _) => Some(format!("made anew: wire {name}")),
        Action::AddFlow(name, _) => Some(format!("made anew: flow {name}")),
        _ => None,
    });
    words.collect()
}

fn by_way_of(present: &Model, gone: &BTreeSet<LinkName>, after: &Model) -> Vec<Step> {
    let without = without(present, gone, after);
    let mut steps = plan(&without, present);
    steps.extend(plan(after, &without));
    steps
}

/// The VNICs whose devices get another MTU, if `action` is about one.
fn with_another_mtu(action: &Action, present: &Model) -> Option<BTreeSet<LinkName>> {
    let lower = match action {
        Action::SetLink(name, from, to) if from.mtu != to.mtu => name,
        Action::SetEtherstub(name, from, to) if from.mtu != to.mtu => name,
        // A netstack is told how large its packets may be.
        Action::SetVnic(name, from, to) if from.mtu != to.mtu && to.netstack().is_none() => {
            return Some(BTreeSet::from([name.clone()]));
        }
        _ => return None,
    };
    let has_device = |user: &VnicUser| matches!(user, VnicUser::Tap(_) | VnicUser::Memif(_));
    let follows =
        present.vnics_over(lower.as_str()).filter(|(_, it)| it.mtu.is_none() && has_device(&it.user));
    Some(follows.map(|(name, _)| name.clone()).collect())
}

/// `model` without the VNICs that are gone, none of which is a netstack's, with what rests on them, and without wires whose packets are
/// others after.
fn without(model: &Model, gone: &BTreeSet<LinkName>, after: &Model) -> Model {
    let mut rest = model.clone();
    rest.vnics.retain(|vnic, _| !gone.contains(vnic));
    rest.wires.retain(|_, it| {
        model.wire_mtu(it) == after.wire_mtu(it) && !it.ends.iter().any(|end| gone.contains(end))
    });
    rest.flows.retain(|_, it| !gone.contains(&it.link));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANTS: &str = include_str!("../../../examples/two-tenants.toml");

    #[test]
    fn another_mtu_takes_down_the_devices_over_the_link_and_nothing_else() {
        let present = Model::from_toml("test", TENANTS).unwrap();
        let wanted = TENANTS.replace("[etherstub.vswitch1]", "[etherstub.vswitch1]\nmtu = 1500");
        let wanted = Model::from_toml("test", &wanted).unwrap();
        let steps = plan(&wanted, &present);
        let [step] = steps.as_slice() else { panic!("{steps:?}") };
        let mut reached = present.clone();
        let steps = instead_of(step, &present).unwrap();
        let made = ["vnic alice0", "vnic bob0", "flow iperf"].map(|it| format!("made anew: {it}"));
        assert_eq!(remade(&steps), made);
        for step in steps {
            let touched = step.to_string();
            assert!(!touched.contains("service") && !touched.contains("web"), "a netstack stays: {touched}");
            assert!(!touched.contains("delete etherstub"), "{touched}");
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
        let anew = ["delete wire w0", "set etherstub b0 mtu 9000 -> 1500", "create wire w0 from a0 to b0"];
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
    fn other_changes_are_made_in_place() {
        let own = "[etherstub.own0]\n[vnic.web1]\nover = 'own0'\nnetstack = 'web'\n\
                   [vnic.tap1]\nover = 'own0'\nmtu = 1300\ntap = {}\n";
        let text = format!("{TENANTS}{own}");
        let present = Model::from_toml("test", &text).unwrap();
        // A netstack is told of another MTU, of its VNIC's or of what is below, and a device has its own.
        for (vnic, said) in [
            ("[vnic.bob0]", "maxbw = \"1G\""),
            ("[vnic.web0]", "mtu = 1500"),
            ("[etherstub.own0]", "mtu = 1400"),
        ] {
            let wanted = text.replace(vnic, &format!("{vnic}\n{said}"));
            let steps = plan(&Model::from_toml("test", &wanted).unwrap(), &present);
            assert_eq!(steps.len(), 1, "{said}");
            assert!(instead_of(&steps[0], &present).is_none(), "{said}");
        }
    }
}
